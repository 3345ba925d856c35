"""`dotcu.bench`: how long operators take, beside others and beside what the GPU can do at best.

prepare (what is timed, on what inputs, against whom) -> rows as they are done -> BenchReport
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dotcu.benchmark import sources
from dotcu.benchmark.estimate import DEFAULT_GPU, estimate
from dotcu.benchmark.lab import Lab
from dotcu.benchmark.measured import L2
from dotcu.benchmark.planned import Bounded, Planned, Untimed
from dotcu.benchmark.protocol import Protocol
from dotcu.benchmark.report import BenchReport
from dotcu.benchmark.row import Row
from dotcu.benchmark.things import BareCalls, OperatorCalls
from dotcu.benchmark.timing import Timed
from dotcu.benchmark.work import UNCOUNTED, count_check
from dotcu.benchmark.workloads.bare import Bare
from dotcu.benchmark.workloads.contenders import Baseline, contenders
from dotcu.benchmark.workloads.dtypes import chosen
from dotcu.benchmark.workloads.shapes import ShapeRow
from dotcu.benchmark.workloads.shapes import rows as shape_rows
from dotcu.benchmark.workloads.workload import Unfit, Workload, workloads
from dotcu.checking.cases.case import short
from dotcu.checking.checker import operators_of, resolve_device
from dotcu.checking.subject import Subject
from dotcu.checking.trials.telling import first_lines
from dotcu.errors import OperatorError, UsageError
from dotcu.operator import Operator, Overload, Sample

STATES: tuple[L2, ...] = ("cold", "warm")
AGAINST = ("eager", "compile")
DEFAULT = Protocol()


def bench(
    op: Operator | Iterable[Operator] | Callable[[], Any],
    *,
    against: Sequence[Baseline] | None = None,
    samples: Iterable[Sample] = (),
    shapes: str | Sequence[Any] = (),
    dtypes: Sequence[str | torch.dtype] = (),
    l2: L2 | Sequence[L2] = STATES,
    device: str | torch.device | None = None,
    gpu: str = "",
    name: str = "",
    bytes: int = 0,
    flops: int = 0,
    dtype: torch.dtype = torch.float32,
    reference: Callable[[], Any] | None = None,
    outputs: Sequence[Tensor] = (),
    protocol: Protocol = DEFAULT,
) -> BenchReport:
    """Measure how long operators take, beside others, and beside what the GPU can do at best.

    Nothing is timed before it is right on the inputs that it is timed on. `docs/bench.md` tells how.

    Args:
        op: An operator, several, or a callable without arguments that makes one call: a bare launch.
        against: What to compare with: "eager" and "compile" (the reference; these two unless given),
            "max-autotune", a callable that takes the operator's arguments, or the place of one:
            "ops.py:fn". For a bare callable nothing unless given.
        samples: Calls to time, in place of the operator's samples.
        shapes: Shapes to time on, as `--shapes` takes them: "4096x4096,2^28"; or tuples.
        dtypes: Of the operator's, those to time; all unless given.
        l2: What a call finds in L2: "cold", nothing of its own; "warm", its inputs.
        device: The GPU; "simulator" for what can be told without one.
        gpu: Without a GPU, the one to give bounds for.
        name: Of a bare callable, in the report.
        bytes: That one call of a bare callable moves; half of them count as read.
        flops: That it does, in `dtype`.
        reference: Gives what a bare callable is to give. Without it, its results are compared with nothing.
        outputs: The tensors that a bare callable writes, where it does not return its result.
        protocol: How long and how often.

    Raises:
        UsageError: An argument names something that there is not; says what there is.
        OperatorError: Without a GPU: no operator has samples that do not fail. On one, that is a row.
        EnvironmentFault: Device time cannot be taken here.

    Note:
        Synchronizes, takes memory for several sets of inputs, and gives it back. An interrupt (Ctrl-C) ends
        the measurement, not the program: the report has what was measured until then, and `.interrupted`.
    """
    states: Sequence[L2] = (l2,) if isinstance(l2, str) else tuple(l2)
    given: dict[str, Any] = {"samples": tuple(samples), "shapes": shapes, "dtypes": dtypes, "gpu": gpu}
    of_bare: dict[str, Any] = {
        "name": name, "bytes": bytes, "flops": flops, "reference": reference, "outputs": tuple(outputs)
    }  # fmt: skip
    if callable(op) and not isinstance(op, Overload):
        _refuse("a callable without arguments has inputs of its own", given)
        bare = Bare(
            name=name or getattr(op, "__name__", "kernel").strip("<>"), function=op,
            device=resolve_device(device), reference=reference, outputs=of_bare["outputs"],
            bytes=bytes, flops=flops, dtype=short(dtype),
        )  # fmt: skip
        planned: Planned | Bounded = prepare_bare(bare, against=against or (), l2=states, protocol=protocol)
    else:
        _refuse("an operator says by itself what it computes", of_bare)
        planned = prepare(
            op, against=AGAINST if against is None else against, samples=given["samples"],
            shapes=shapes, dtypes=dtypes, l2=states, device=device, gpu=gpu, protocol=protocol,
        )  # fmt: skip
    rows: list[Row] = []
    try:
        rows.extend(planned.run())
    except KeyboardInterrupt:
        return planned.report(rows, interrupted=True)
    return planned.report(rows)


def _refuse(why: str, given: Mapping[str, Any]) -> None:
    """Refuse arguments that would mean nothing.

    Raises:
        UsageError: There is one.
    """
    named = [name for name, value in given.items() if value]
    if named:
        raise UsageError(f"{named[0]}= was given to dotcu.bench, but {why}.\nLeave it out.")


def prepare(
    op: Overload | Iterable[Operator],
    *,
    against: Sequence[Baseline] = AGAINST,
    samples: Iterable[Sample] = (),
    shapes: str | Sequence[Any] = (),
    dtypes: Sequence[str | torch.dtype] = (),
    l2: Sequence[L2] = STATES,
    device: str | torch.device | None = None,
    gpu: str = "",
    protocol: Protocol = DEFAULT,
) -> Planned | Bounded:
    """Plan what `bench` runs; it has the meaning of the arguments, and what is raised."""
    place = resolve_device(device)
    wanted = _Wanted(
        against=tuple(against), samples=tuple(samples), shapes=tuple(shape_rows(shapes)), dtypes=tuple(dtypes)
    )
    subjects = _subjects(op, place, protocol.seed, wanted.samples)
    if place.type != "cuda":
        return _bounds(subjects, wanted, gpu or DEFAULT_GPU, protocol)
    if gpu:
        raise UsageError(
            f"gpu={gpu!r}: bounds for a GPU that is not here are given where there is none.\n"
            "Leave it out to measure on this one, or ask for bounds: device='simulator'"
        )
    return _planned(subjects, wanted, l2, Lab(place), protocol)


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """What was asked for."""

    against: tuple[Baseline, ...]
    samples: tuple[Sample, ...]
    shapes: tuple[ShapeRow, ...]
    dtypes: tuple[str | torch.dtype, ...]


def _subjects(
    op: Overload | Iterable[Operator], device: torch.device, seed: int, samples: Sequence[Sample]
) -> list[Subject]:
    """The overloads that have samples of their own; the operator itself in any case."""
    return [
        Subject(overload=overload, device=device, seed=seed)
        for operator in operators_of(op)
        for overload in operator.overloads.values()
        if overload is operator or (overload.has_samples and not samples)
    ]


def _cases_or_why(subject: Subject, wanted: _Wanted) -> list[Workload | Unfit]:
    """The cases of an operator; where it cannot be planned, one that says so: others can be timed.

    Raises:
        UsageError: It has no such dtype as was asked for.
    """
    dtypes = chosen(subject.overload, wanted.dtypes)
    try:
        return workloads(subject, samples=wanted.samples, shapes=wanted.shapes, dtypes=dtypes)
    except Exception as error:  # samples that fail, or none
        return [Unfit(name="no case", reason=first_lines(error), status="failed")]


def _planned(
    subjects: Sequence[Subject], wanted: _Wanted, states: Sequence[L2], lab: Lab, protocol: Protocol
) -> Planned:
    cases: list[Timed | Untimed] = []
    notes: list[str] = []
    for subject in subjects:
        rivals = contenders(subject, wanted.against)
        claim = _claim(subject)
        notes += [f"{subject.name}: {claim}"] if claim.startswith(UNCOUNTED) else []
        marks = (claim,) if claim and not claim.startswith(UNCOUNTED) else ()
        for case in _cases_or_why(subject, wanted):
            if isinstance(case, Unfit):
                cases.append(Untimed(op=subject.name, dtype="", unfit=case))
                continue
            assert case.dtype is not None
            cases.append(
                Timed(
                    op=subject.name, thing=OperatorCalls(subject=subject, dtype=case.dtype),
                    dtype=short(case.dtype), workload=case, contenders=rivals, states=states, lab=lab,
                    protocol=protocol, marks=marks,
                )
            )  # fmt: skip
    return Planned(
        lab=lab, protocol=protocol, states=states, cases=cases, notes=notes, sources=_sources(subjects)
    )


def prepare_bare(bare: Bare, *, against: Sequence[Baseline], l2: Sequence[L2], protocol: Protocol) -> Planned:
    """Plan what `bench` runs of a bare callable.

    Raises:
        EnvironmentFault: There is no GPU.
        UsageError: A baseline is unknown.
    """
    lab = Lab(bare.device)
    lab.require()
    case = Timed(
        op=bare.name, thing=BareCalls(bare=bare), dtype="", workload=bare.workload,
        contenders=bare.contenders(against), states=l2, lab=lab, protocol=protocol,
    )  # fmt: skip
    digest = sources.source_digest((), bare.function)
    return Planned(lab=lab, protocol=protocol, states=l2, cases=[case], sources={bare.name: digest})


def _claim(subject: Subject) -> str:
    """What is wrong with the work that an operator claims, or why nobody can say, by its smallest sample."""
    try:
        case = subject.smallest(subject.overload.dtypes[0])
        if case is None:
            return ""
        return count_check(subject.overload, case.sample.map_tensors(lambda tensor: tensor.detach().cpu()))
    except Exception:  # samples or `work` that fail: rows say so
        return ""


def _sources(subjects: Sequence[Subject]) -> Mapping[str, str]:
    """The digest of each overload's library, or kernels and body, as its smallest sample reaches them."""
    found = {}
    for subject in subjects:
        if subject.overload.body is None:  # how it is launched, nobody sees: its file has it all
            if subject.overload.library is not None:
                found[subject.name] = sources.file_digest(subject.overload.library)
            continue
        with contextlib.suppress(Exception):  # rows say what is wrong with the samples, or the call
            case = subject.smallest(subject.overload.dtypes[0])
            if case is not None:
                kernels = sources.digests(lambda: subject.call(case.make()))  # noqa: B023
                found[subject.name] = sources.source_digest(kernels, subject.overload.body)
    return found


def _bounds(subjects: Sequence[Subject], wanted: _Wanted, gpu: str, protocol: Protocol) -> Bounded:
    calls = []
    notes = []
    for subject in subjects:
        contenders(subject, wanted.against)  # an unknown one is told here as well
        for case in _cases_or_why(subject, wanted):
            if isinstance(case, Unfit):
                notes.append(f"{subject.name} {case.name}: {case.reason}")
            else:
                calls.append((subject.overload, case.name, case.make(protocol.seed)))
    if notes and not calls:
        raise OperatorError("\n".join(notes))
    lab = Lab(torch.device("cpu"))
    return Bounded(lab=lab, protocol=protocol, estimate=estimate(calls, gpu), notes=notes)
