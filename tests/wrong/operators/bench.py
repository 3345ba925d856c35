"""Operators that fool a benchmark: right when looked at once, or done elsewhere than where they are timed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load_inline("""
__global__ void twice(const float* x, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
__global__ void total(const float* x, float* out, long long n) {
    float sum = 0;
    for (long long i = threadIdx.x; i < n; i += 32) sum += x[i];
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (threadIdx.x == 0) out[0] = sum;
}
""")


def launched(x: Tensor, out: Tensor) -> Tensor:
    n = x.numel()
    kernels.twice(x, out, n, grid=dotcu.cdiv(n, 128), block=128)
    return out


@dotcu.op("wrong_bench::sound")
def sound(x: Tensor) -> Tensor:
    return launched(x, torch.empty_like(x))


# ------------------------------------------------------------------ results of earlier calls


def kept(results: dict[Any, Tensor], key: Any, x: Tensor) -> Tensor:
    """The result under a key; it is computed at the first call with it."""
    if key not in results:
        results[key] = launched(x, torch.empty_like(x))
    return results[key].clone()


_by_address: dict[Any, Tensor] = {}
_by_shape: dict[Any, Tensor] = {}
_by_version: dict[Any, Tensor] = {}
_by_first_element: dict[Any, Tensor] = {}
_sums: dict[Any, Tensor] = {}


@dotcu.op("wrong_bench::kept_by_address")
def kept_by_address(x: Tensor) -> Tensor:
    return kept(_by_address, x.data_ptr(), x)


@dotcu.op("wrong_bench::kept_by_shape")
def kept_by_shape(x: Tensor) -> Tensor:
    return kept(_by_shape, x.shape, x)


@dotcu.op("wrong_bench::kept_by_version")
def kept_by_version(x: Tensor) -> Tensor:
    return kept(_by_version, (x.data_ptr(), x._version), x)


@dotcu.op("wrong_bench::kept_by_first_element")
def kept_by_first_element(x: Tensor) -> Tensor:
    return kept(_by_first_element, (x.data_ptr(), float(x[0])), x)


@dotcu.op("wrong_bench::kept_sum")
def kept_sum(x: Tensor) -> Tensor:
    """Values that only change places would leave it as it is."""
    if x.data_ptr() not in _sums:
        out = x.new_empty(())
        kernels.total(x, out, x.numel(), grid=1, block=32)
        _sums[x.data_ptr()] = out
    return _sums[x.data_ptr()].clone()


# ------------------------------------------------------------------ work that is not done


_done: set[int] = set()
_calls = itertools.count()
_rounded = itertools.count()
_waiting: list[tuple[Tensor, Tensor]] = []


@dotcu.op("wrong_bench::only_the_first_time")
def only_the_first_time(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    if x.numel() not in _done:
        _done.add(x.numel())
        launched(x, out)
    return out


@dotcu.op("wrong_bench::only_when_cold")
def only_when_cold(x: Tensor) -> Tensor:
    """Takes the first calls for a check and a warm-up."""
    out = torch.empty_like(x)
    return launched(x, out) if next(_calls) < 4 else out


@dotcu.op("wrong_bench::rounds_when_warm")
def rounds_when_warm(x: Tensor) -> Tensor:
    """Right at first; then in half the digits."""
    return launched(x if next(_rounded) < 4 else x.half().float(), torch.empty_like(x))


@dotcu.op("wrong_bench::in_batches")
def in_batches(x: Tensor) -> Tensor:
    """Every fourth call does the work of four."""
    _waiting.append((x, torch.empty_like(x)))
    out = _waiting[-1][1]
    if len(_waiting) == 4:
        for earlier, result in _waiting:
            launched(earlier, result)
        _waiting.clear()
    return out


# ------------------------------------------------------------------ work elsewhere


threads: list[threading.Thread] = []


@dotcu.op("wrong_bench::in_a_thread")
def in_a_thread(x: Tensor) -> Tensor:
    """Computes once the call has returned."""
    out, values = torch.empty_like(x), x.clone()

    def later() -> None:
        time.sleep(0.02)
        launched(values, out)

    threads.append(threading.Thread(target=later))
    threads[-1].start()
    return out


@dotcu.op("wrong_bench::on_another_stream")
def on_another_stream(x: Tensor) -> Tensor:
    """Waits for the current stream, which does not wait for it."""
    out, side = torch.empty_like(x), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        return launched(x, out)


class Lazy(torch.Tensor):
    """A result that is computed when somebody looks."""

    compute: Callable[[], Tensor]

    @staticmethod
    def __new__(cls, like: Tensor, compute: Callable[[], Tensor]) -> Lazy:
        made = torch.Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype, device=like.device)
        made.compute = compute
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen = [arg.compute() if isinstance(arg, Lazy) else arg for arg in args]
        return func(*seen, **(kwargs or {}))


@dotcu.op("wrong_bench::lazy")
def lazy(x: Tensor) -> Tensor:
    values = x.clone()
    return Lazy(x, lambda: values + values)


@dotcu.op("wrong_bench::zeroes_its_input")
def zeroes_its_input(x: Tensor) -> Tensor:
    """Whoever computes from the same input afterwards agrees."""
    x.data.zero_()
    return torch.zeros_like(x)


# ------------------------------------------------------------------ the clock


@dotcu.op("wrong_bench::turns_the_clock_back")
def turns_the_clock_back(x: Tensor) -> Tensor:
    """Every time between two events is a microsecond from then on."""
    torch.cuda.Event.elapsed_time = lambda start, end: 0.001  # type: ignore[method-assign]
    return launched(x, torch.empty_like(x))


def numbers(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.randn(1000, dtype=dtype, device=device))


for operator in (
    sound, kept_by_address, kept_by_shape, kept_by_version, kept_by_first_element, only_the_first_time,
    only_when_cold, rounds_when_warm, in_batches, in_a_thread, on_another_stream, lazy, zeroes_its_input,
    turns_the_clock_back,
):  # fmt: skip
    operator.reference(lambda x: 2 * x)
    operator.samples(numbers)
kept_sum.reference(torch.sum)
kept_sum.samples(numbers)
