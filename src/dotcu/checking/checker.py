"""`dotcu.check`: run operators on their samples and compare them with their references."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from dotcu.checking import numerics
from dotcu.checking.report import CheckReport, Failure, OperatorReport
from dotcu.errors import UsageError
from dotcu.kernel import simulate
from dotcu.kernel.context import Launch, watching
from dotcu.operator import Operator, Overload, Sample

SEED = 0
"""What torch's random numbers start from for each overload, so that a failure comes again."""


def check(op: Operator | Iterable[Operator], *, device: str | torch.device | None = None) -> CheckReport:
    """Run operators on their samples, in each of their dtypes, and compare them with their references.

    Every overload is tried: an `out` overload on the operator's samples where it has none of its own,
    into memory filled with NaN. On the CPU the kernels run in the simulator, whose findings are failures.
    Each overload also passes torch's `opcheck`.

    Args:
        op: An operator or several.
        device: `cuda`, `simulator`, or a torch device; by default the GPU where there is one.

    Returns:
        A report that prints itself; `report.held` says whether everything held.

    Raises:
        UsageError: `device` names none that is here.

    Note:
        Synchronizes. Inputs are fresh for each call, and the same in each run: samples draw from a seeded
        generator, and torch's own is left as it was.
    """
    operators = [op] if isinstance(op, Operator) else list(op)
    place = _device(device)
    entries = [_check_overload(overload, place) for o in operators for overload in o.overloads.values()]
    return CheckReport(operators=tuple(entries))


def _device(device: str | torch.device | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    place = torch.device("cpu" if device == "simulator" else device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "device='cuda': torch sees no CUDA GPU here.\nUse device='simulator', or see `dotcu doctor`."
        )
    if place.type not in ("cuda", "cpu"):
        raise UsageError(f"device={str(device)!r}: kernels run on 'cuda' or in the 'simulator'.")
    return place


@dataclass(kw_only=True)
class _Tally:
    """What the cases of one overload add up to."""

    cases: int = 0
    absolute: float = 0.0
    ratio: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    def add(self, case: str, error: numerics.Error) -> None:
        self.cases += 1
        self.absolute = max(self.absolute, error.absolute)
        self.ratio = error.ratio if not error.ratio <= self.ratio else self.ratio
        if not error.held:
            reason = f"{error.where}: {error.ratio:.3g} times the bound"
            self.failures.append(Failure(case=case, reason=reason))


def _check_overload(overload: Overload, device: torch.device) -> OperatorReport:
    tally = _Tally()
    place = simulate() if device.type == "cpu" else nullcontext()
    with watching() as launches, torch.random.fork_rng(), place:
        torch.manual_seed(SEED)
        for dtype in overload.dtypes:
            for sample in _samples(overload, device, dtype):
                _try(overload, sample, dtype, tally)
        opcheck = _opcheck(overload, device, tally)
    return _report(overload, tally, launches, opcheck)


def _report(overload: Overload, tally: _Tally, launches: Sequence[Launch], opcheck: str) -> OperatorReport:
    compiled = {launch.digest: launch for launch in launches}
    return OperatorReport(
        operator=overload.qualified_name,
        kernels=tuple(dict.fromkeys(launch.kernel for launch in launches)),
        where=tuple(dict.fromkeys(launch.where for launch in launches)),
        compile_s=sum(launch.compile_s for launch in compiled.values()),
        cached=bool(compiled) and all(launch.cached for launch in compiled.values()),
        cases=tally.cases,
        worst_error=tally.absolute,
        worst_ratio=tally.ratio,
        opcheck=opcheck,
        failures=tuple(tally.failures),
    )


def _samples(overload: Overload, device: torch.device, dtype: torch.dtype) -> Iterator[Sample]:
    """The overload's samples; for one that writes `out`, else, those of its twin, with poisoned outputs."""
    own = list(overload.make_samples(device, dtype))
    twin = overload.functional
    if own or twin is None or twin.reference_function is None:
        yield from own
        return
    for sample in twin.make_samples(device, dtype):
        results = numerics.outputs(twin.reference_function(*sample.args, **sample.kwargs))
        outs = dict(zip(overload.signature.outs, map(_poisoned, results), strict=False))
        yield Sample(*sample.args, **{**sample.kwargs, **outs})


def _poisoned(like: torch.Tensor) -> torch.Tensor:
    return torch.full_like(like, torch.nan if like.is_floating_point() else 85)


def _try(overload: Overload, sample: Sample, dtype: torch.dtype, tally: _Tally) -> None:
    case = f"{str(dtype).removeprefix('torch.')} {sample!r}"
    try:
        tally.add(case, _compare(overload, sample))
    except Exception as error:  # whatever a user's body or reference raises is what the case found
        tally.cases += 1
        tally.failures.append(Failure(case=case, reason=_words(error)))


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _compare(overload: Overload, sample: Sample) -> numerics.Error:
    reference = overload.reference_function
    if reference is None:
        raise UsageError(
            f"{overload.qualified_name} has no reference to compare with: give it one with "
            f"@{overload.signature.name}.reference."
        )
    inputs = _inputs(overload, sample).map_tensors(lambda tensor: tensor.cpu())
    expected = numerics.oracle(_with_writes(overload, reference), inputs)
    with torch.no_grad():
        result = _with_writes(overload, overload)(*sample.args, **sample.kwargs)
    return numerics.judge(result, expected)


def _with_writes(overload: Overload, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that gives its result and, for an overload that writes its arguments, what it wrote."""
    if overload.functional is not None or not overload.signature.mutates:
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        returned = () if overload.signature.outs else numerics.outputs(result)
        return (*returned, *overload.signature.written(args, kwargs))

    return call


def _inputs(overload: Overload, sample: Sample) -> Sample:
    """What the reference takes: a copy, made before the call, without what the call only writes."""
    copies = sample.map_tensors(lambda tensor: tensor.detach().clone())
    if overload.functional is None:
        return copies
    return Sample(
        *copies.args, **{k: v for k, v in copies.kwargs.items() if k not in overload.signature.outs}
    )


def _opcheck(overload: Overload, device: torch.device, tally: _Tally) -> str:
    dtype = overload.dtypes[0]
    candidates = [s for s in _samples(overload, device, dtype) if all(t.numel() for t in s.tensors)]
    if not candidates:
        return "no sample"
    sample = min(candidates, key=lambda s: sum(tensor.numel() for tensor in s.tensors))
    if overload.has_backward:
        sample = sample.map_tensors(_requiring_grad)
    try:
        torch.library.opcheck(overload.torch_op, sample.args, dict(sample.kwargs))
    except Exception as error:  # opcheck reports by many exception types
        tally.failures.append(Failure(case=f"opcheck {sample!r}", reason=_words(error)))
        return "failed"
    return "passed"


def _requiring_grad(tensor: torch.Tensor) -> Any:
    return tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor
