"""Small operators for tests of trials, and what trials say of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.checking.catalogue import Level
from dotcu.checking.results import CheckResult, Trial
from dotcu.checking.running import Runner
from dotcu.checking.subject import Subject
from dotcu.operator import Operator
from helpers.check_reports import bare

kernels = dotcu.load_inline("""
template <typename T>
__global__ void multiply(const T* a, const T* b, T* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] * b[i];
}
""")
_numbers = itertools.count()


def device() -> torch.device:
    """The GPU where there is one, else the CPU, where kernels run in the simulator."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def name() -> str:
    """An operator's name that no other has."""
    return f"trying::op{next(_numbers)}"


def multiply(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """The product of two tensors of one shape, by a kernel."""
    out = torch.empty(a.shape, dtype=a.dtype, device=a.device) if out is None else out
    n = out.numel()
    kernels.multiply[a.dtype](a.contiguous(), b.contiguous(), out, n, grid=dotcu.cdiv(n, 64), block=64)
    return out


def shapes(*sizes: tuple[int, ...]) -> Callable[[torch.device, torch.dtype], Iterator[dotcu.Sample]]:
    """Samples of one tensor each, of random whole numbers."""

    def samples(place: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
        for size in sizes:
            yield dotcu.Sample(torch.randint(1, 100, size, device=place).to(dtype))

    return samples


def squaring(
    body: Callable[[Tensor], Tensor] = lambda x: multiply(x, x),
    *,
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    sizes: Sequence[tuple[int, ...]] = ((20,), (3, 7)),
    **options: Any,
) -> Operator:
    """A new operator of one tensor, with x * x as its reference."""

    @dotcu.op(name(), dtypes=tuple(dtypes), **options)
    def square(x: Tensor) -> Tensor:
        return body(x)

    square.reference(lambda x: x * x)
    square.samples(shapes(*sizes))
    return square


def differentiable(operator: Operator, backward: Callable[[Tensor, Tensor], Any] | None = None) -> Operator:
    """Give it a backward, of the gradient and x: the right one of a square if none is given."""
    operator.setup_context(lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))
    rule = backward or (lambda grad, x: grad * (2 * x))
    operator.backward(lambda ctx, grad: rule(grad, *ctx.saved_tensors))
    return operator


def subject(operator: Operator, level: Level = Level.STANDARD, overload: str = "") -> Subject:
    """An overload of it as a check sees it."""
    return Subject(overload=operator.overloads[overload], device=device(), level=level)


class Said(Mapping[tuple[str, str], CheckResult]):
    """What trials say, by check and case. A trial runs when it is asked for, and no other does."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._trials = [*trials]
        self._runner = Runner(limited=True)
        self._found: dict[Trial, dict[tuple[str, str], CheckResult]] = {}

    def _of(self, trial: Trial) -> dict[tuple[str, str], CheckResult]:
        if trial not in self._found:
            results = self._runner.run(trial)
            self._found[trial] = {(result.check, trial.id.case): bare(result) for result in results}
        return self._found[trial]

    def __getitem__(self, key: tuple[str, str]) -> CheckResult:
        for trial in self._trials:
            if key[1] == trial.id.case and key in (found := self._of(trial)):
                return found[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return (key for trial in self._trials for key in self._of(trial))

    def __len__(self) -> int:
        return sum(len(self._of(trial)) for trial in self._trials)


def said(
    plan: Callable[[Subject], Iterator[Trial]],
    operator: Operator,
    level: Level = Level.STANDARD,
    overload: str = "",
) -> Said:
    """What the trials of a plan say."""
    return Said(plan(subject(operator, level, overload)))


def bug_of_dotcu(*given: Any, **named: Any) -> Any:
    """A function of dotcu that has a bug: to put in another one's place."""
    file = Path(dotcu.__file__).with_name("planted.py")
    names: dict[str, Any] = {}
    exec(compile("def planted():\n    return {}['planted']\n", str(file), "exec"), names)
    return names["planted"]()
