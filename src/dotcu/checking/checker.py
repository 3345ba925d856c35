"""`dotcu.check`: run operators on their samples and compare them with their references."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from dotcu.checking import numerics
from dotcu.checking.report import CheckReport, Failure, OperatorReport
from dotcu.checking.samples import cases
from dotcu.errors import EnvironmentFault, OperatorError, SourceError, UsageError
from dotcu.kernel import simulate
from dotcu.kernel.context import Launch, watching
from dotcu.kernel.cuda import fault_story
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
        UsageError: `op` is no operator, or `device` names none that is here.
        OperatorError: A `samples` function failed, or gave something other than samples; says where.
        EnvironmentFault: The machine lacks something that no operator can do without.

    Note:
        Synchronizes. Inputs are fresh for each call, and the same in each run: samples draw from a seeded
        generator, and torch's own is left as it was.
    """
    operators = _operators(op)
    place = _device(device)
    entries = [_check_overload(overload, place) for o in operators for overload in o.overloads.values()]
    return CheckReport(operators=tuple(entries))


def _operators(op: Any) -> list[Operator]:
    """What `check` was given, as a list of at least one operator."""
    given = list(op) if isinstance(op, Iterable) and not isinstance(op, (str, bytes)) else [op]
    operators = [item for item in given if isinstance(item, Operator)]
    if 0 < len(operators) == len(given):
        return operators
    wrong = [repr(item) for item in given if not isinstance(item, Operator)]
    got = f"got {wrong[0]}" if wrong else "got none"
    hint = f"\nFor a file or a module, type: dotcu check {op}" if isinstance(op, str) else ""
    raise UsageError(
        f"dotcu.check takes an operator, or several in a list ({got}).\n"
        f"A function becomes an operator with @dotcu.op.{hint}"
    )


def _device(device: str | torch.device | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device("cpu" if device == "simulator" else device)
    except (RuntimeError, TypeError) as error:
        raise UsageError(f"device={device!r}: give 'cuda' or 'simulator'.") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "device='cuda': torch sees no CUDA GPU here.\nUse device='simulator', or see `dotcu doctor`."
        )
    if place.type not in ("cuda", "cpu"):
        raise UsageError(f"device={str(device)!r}: kernels run on 'cuda' or in the 'simulator'.")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"device={str(device)!r}: torch sees {torch.cuda.device_count()} here, counted from 'cuda:0'."
        )
    return place


@dataclass(kw_only=True)
class _Tally:
    """What the cases of one overload add up to."""

    cases: int = 0
    absolute: float = 0.0
    ratio: float = 0.0
    compiles: bool = True
    failures: list[Failure] = field(default_factory=list)

    def add(self, case: str, error: numerics.Error) -> None:
        self.cases += 1
        self.absolute = max(self.absolute, error.absolute)
        self.ratio = error.ratio if not error.ratio <= self.ratio else self.ratio
        if not error.held:
            reason = f"{error.where}: {error.ratio:.3g} times the bound"
            self.failures.append(Failure(case=case, reason=reason))

    def fail(self, case: str, error: BaseException) -> None:
        """Note what a case raised. What makes every case senseless is no finding and is raised again.

        Raises:
            UsageError, EnvironmentFault: The error is one, or was caused by one.
        """
        causes = list(_causes(error))
        for cause in causes:
            if isinstance(cause, (UsageError, EnvironmentFault)):
                raise cause
        self.compiles = self.compiles and not any(isinstance(cause, SourceError) for cause in causes)
        reason, story = f"{type(error).__name__}: {error}", fault_story(error)
        self.failures.append(Failure(case=case, reason=f"{reason}\n{story}" if story else reason))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it was raised from: torch wraps some of what it catches."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@contextmanager
def _seeded(device: torch.device) -> Iterator[None]:
    """Start the random numbers of the CPU and of one GPU from `SEED`, and leave them as they were."""
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(gpus):
        torch.default_generator.manual_seed(SEED)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(SEED)
        yield


def _check_overload(overload: Overload, device: torch.device) -> OperatorReport:
    tally = _Tally()
    place = simulate() if device.type == "cpu" else nullcontext()
    with watching() as launches, _seeded(device), place:
        for dtype in overload.dtypes:
            for sample in cases(overload, device, dtype):
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


def _try(overload: Overload, sample: Sample, dtype: torch.dtype, tally: _Tally) -> None:
    case = f"{str(dtype).removeprefix('torch.')} {sample!r}"
    try:
        tally.add(case, _compare(overload, sample))
    except (Exception, SystemExit) as error:  # what a user's body or reference raises is what the case found
        tally.cases += 1
        tally.fail(case, error)


def _compare(overload: Overload, sample: Sample) -> numerics.Error:
    reference = overload.reference_function
    if reference is None:
        raise OperatorError(
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
    if not tally.compiles:
        return "not run"
    dtype = overload.dtypes[0]
    needed = set() if overload.functional is None else set(overload.signature.outs)
    candidates = [
        sample
        for sample in cases(overload, device, dtype)
        if needed <= set(sample.kwargs) and all(tensor.numel() for tensor in sample.tensors)
    ]
    if not candidates:
        return "no sample"
    sample = min(candidates, key=lambda s: sum(tensor.numel() for tensor in s.tensors))
    if overload.has_backward:
        sample = sample.map_tensors(_requiring_grad)
    try:
        torch.library.opcheck(overload.torch_op, sample.args, dict(sample.kwargs))
    except (Exception, SystemExit) as error:  # opcheck reports by many exception types
        tally.fail(f"opcheck {sample!r}", error)
        return "failed"
    return "passed"


def _requiring_grad(tensor: torch.Tensor) -> Any:
    return tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor
