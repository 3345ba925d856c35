"""Operators that treat memory wrongly, each in one way: what they write, keep and give back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load_inline("""
#define AT long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n)

template <typename T>
__global__ void copied(const T* x, T* out, long long step, long long n) { AT out[i * step] = x[i * step]; }

__global__ void through_const(const float* x, float* out, long long n) {
    AT { out[i] = x[i]; const_cast<float*>(x)[i] = 0; }
}
""")


def copied(x: Tensor, out: Tensor, *, step: int = 1, miss: int = 0) -> Tensor:
    """Copy every `step`th element, but for the last `miss`."""
    n = max(dotcu.cdiv(x.numel(), step) - miss, 0)
    kernels.copied[x.dtype](x.contiguous(), out, step, n, grid=dotcu.cdiv(n, 64), block=64)
    return out


# ------------------------------------------------------------------ written


@dotcu.op("wrong_memory::no_tail", dtypes=(torch.float32, torch.int8, torch.int32, torch.bool))
def no_tail(x: Tensor) -> Tensor:
    return copied(x, torch.empty_like(x), miss=1)


@dotcu.op("wrong_memory::even_ones", dtypes=(torch.float32, torch.int64))
def even_ones(x: Tensor) -> Tensor:
    return copied(x, torch.empty_like(x), step=2)


@dotcu.op("wrong_memory::nothing_launched")
def nothing_launched(x: Tensor) -> Tensor:
    """It hopes for memory that the reference has just freed."""
    return torch.empty_like(x)


@dotcu.op("wrong_memory::partly_out", dtypes=(torch.float32, torch.int32))
def partly_out(x: Tensor) -> Tensor:
    return copied(x, torch.empty_like(x))


@partly_out.overload("out", mutates_args=("out",))
def partly_out_out(x: Tensor, *, out: Tensor) -> None:
    copied(x, out, miss=5)


# ------------------------------------------------------------------ bounds and inputs


@dotcu.op("wrong_memory::beside_its_input")
def beside_its_input(x: Tensor) -> Tensor:
    """A torch operation, which no sanitizer watches, writes behind the input's last element."""
    beside = x.as_strided((1,), (1,), x.storage_offset() + x.numel())
    beside.zero_()
    return copied(x, torch.empty_like(x))


@dotcu.op("wrong_memory::zeroes_its_input")
def zeroes_its_input(x: Tensor) -> Tensor:
    """A reference that came after it would see zeros, and agree with its second call."""
    out = copied(x, torch.empty_like(x))
    x.zero_()
    return out


@dotcu.op("wrong_memory::sorts_its_input")
def sorts_its_input(x: Tensor) -> Tensor:
    x.copy_(x.sort().values)
    return copied(x, torch.empty_like(x))


@dotcu.op("wrong_memory::through_const")
def through_const(x: Tensor) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    kernels.through_const(x, out, n, grid=dotcu.cdiv(n, 64), block=64)
    return out


# ------------------------------------------------------------------ mutation


@dotcu.op("wrong_memory::leaves_all", mutates_args=("y",))
def leaves_all(x: Tensor, y: Tensor) -> None:
    copied(x, torch.empty_like(x))


@dotcu.op("wrong_memory::leaves_one", mutates_args=("y", "z"))
def leaves_one(x: Tensor, y: Tensor, z: Tensor) -> None:
    copied(x, y)


# ------------------------------------------------------------------ result


class Named(torch.Tensor):
    """A tensor by another name."""


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


@dotcu.op("wrong_memory::named")
def named(x: Tensor) -> Tensor:
    return copied(x, torch.empty_like(x)).as_subclass(Named)


@dotcu.op("wrong_memory::lazy")
def lazy(x: Tensor) -> Tensor:
    return Lazy(x, x.clone)


@dotcu.op("wrong_memory::expanded")
def expanded(x: Tensor) -> Tensor:
    return copied(x[:1], torch.empty_like(x[:1])).expand(x.shape)


@dotcu.op("wrong_memory::view_of_its_input")
def view_of_its_input(x: Tensor) -> Tensor:
    return x.view(x.shape)


@dotcu.op("wrong_memory::both_the_same")
def both_the_same(x: Tensor) -> tuple[Tensor, Tensor]:
    out = copied(x, torch.empty_like(x))
    return out, out.view(out.shape)


@dotcu.op("wrong_memory::on_another_device")
def on_another_device(x: Tensor) -> Tensor:
    return torch.empty_like(x, device="meta")


@dotcu.op("wrong_memory::without_memory")
def without_memory(x: Tensor) -> Tensor:
    out = copied(x, torch.empty_like(x))
    out.untyped_storage().resize_(0)
    return out


_kept: dict[Any, Tensor] = {}


@dotcu.op("wrong_memory::kept_memory")
def kept_memory(x: Tensor) -> Tensor:
    """A later call changes what an earlier one returned."""
    return copied(x, _kept.setdefault((x.shape, x.device), torch.empty_like(x)).view(x.shape))


# ------------------------------------------------------------------ references and samples


def numbers(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    x = torch.randint(1, 100, (40,), device=device)
    yield dotcu.Sample(x.to(dtype).contiguous())


def pairs(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(*torch.randn(2, 40, device=device).unbind())


@leaves_all.reference
def _(x: Tensor, y: Tensor) -> None:
    y.copy_(x)


@leaves_one.reference
def _(x: Tensor, y: Tensor, z: Tensor) -> None:
    y.copy_(x)
    z.copy_(x)


@leaves_one.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(*torch.randn(3, 40, device=device).unbind())


for operator in (no_tail, even_ones, nothing_launched, partly_out, beside_its_input, zeroes_its_input,
                 through_const, named, lazy, view_of_its_input, on_another_device, without_memory,
                 kept_memory):  # fmt: skip
    operator.reference(torch.clone)
    operator.samples(numbers)
sorts_its_input.reference(lambda x: x.sort().values)
expanded.reference(lambda x: x[:1].repeat(x.numel()))
both_the_same.reference(lambda x: (x.clone(), x.clone()))
for operator in (sorts_its_input, expanded, both_the_same):
    operator.samples(numbers)
leaves_all.samples(pairs)
