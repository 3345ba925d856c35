"""`dotcu.bench`: time operators beside baselines and beside what the GPU can do at best.

prepare (targets, inputs, contenders) -> BenchPlan -> rows as they are done -> BenchReport
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dotcu import jobs
from dotcu.benchmark.device import BenchDevice
from dotcu.benchmark.estimate import DEFAULT_GPU, Estimate, estimate
from dotcu.benchmark.reports.report import BenchReport
from dotcu.benchmark.results import L2, OWN, BenchKey, BenchRow, Means, Protocol
from dotcu.benchmark.targets import (
    BareTarget,
    Baseline,
    Contenders,
    OperatorTarget,
    bare_contenders,
    contenders,
)
from dotcu.benchmark.timing import TimedCase
from dotcu.benchmark.work import UNCOUNTED, count_check
from dotcu.benchmark.workloads import ShapeRow, UntimedCase, Workload, choose_dtypes, shape_rows, workloads
from dotcu.checking.cases.samples import short
from dotcu.checking.subject import Subject
from dotcu.checking.target import operators_of, resolve_device
from dotcu.errors import OperatorError, UsageError
from dotcu.files import read_file
from dotcu.kernel.launch_policy import watching_launches
from dotcu.operator import Operator, Overload, Sample
from dotcu.tracebacks import first_lines, shortens_tracebacks

STATES: tuple[L2, ...] = ("cold", "warm")
AGAINST = ("eager", "compile")
DEFAULT = Protocol()


@shortens_tracebacks
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

    Nothing is timed before it is verified on the inputs that it is timed on:
    `docs/explanation/measuring.md` explains how.

    Args:
        op: An operator, several, or a callable without arguments that makes one call: a bare launch.
        against: Baselines: "eager" and "compile" (the reference; these two by default), "max-autotune", a
            callable that takes the operator's arguments, or its location: "ops.py:fn".
        samples: Calls to time in place of the operator's samples.
        shapes: Shapes to time on, as `--shapes` takes them: "4096x4096,2^28"; or tuples.
        dtypes: The operator's dtypes to time; all by default.
        l2: The state of L2 that a call starts with: "cold", without its data; "warm", with its inputs.
        device: The GPU; "simulator" for an estimate without one.
        gpu: Without a GPU, the one to estimate bounds for.
        name: The name of a bare callable in the report.
        bytes: Bytes that one call of a bare callable moves; half of them count as read.
        flops: Operations of one call of a bare callable, in `dtype`.
        dtype: The dtype of these operations.
        reference: Returns the expected results of a bare callable. Without it, nothing is verified.
        outputs: The tensors that a bare callable writes, if it does not return its results.
        protocol: How long and how often to measure.

    Raises:
        UsageError: An argument names something that does not exist; says what does.
        OperatorError: Without a GPU: every operator's samples fail. On a GPU, that is a row.
        EnvironmentFault: Device time cannot be taken here.

    Note:
        Synchronizes, takes memory for several sets of inputs, and frees it. An interrupt (Ctrl-C) ends
        the measurement, not the program: the report has everything measured until then, and `.interrupted`.
    """
    states: Sequence[L2] = (l2,) if isinstance(l2, str) else tuple(l2)
    samples, outputs = tuple(samples), tuple(outputs)
    if callable(op) and not isinstance(op, Overload):
        operator_options = {"samples": samples, "shapes": shapes, "dtypes": dtypes, "gpu": gpu}
        _refuse("a callable without arguments has inputs of its own", operator_options)
        bare = BareTarget(
            name=name or getattr(op, "__name__", "kernel").strip("<>"), function=op,
            device=resolve_device(device), reference=reference, outputs=outputs,
            bytes=bytes, flops=flops, dtype=short(dtype),
        )  # fmt: skip
        gpu_device = BenchDevice(bare.device)
        gpu_device.timer  # noqa: B018  (raises where nothing can be timed)
        case = TimedCase(
            target=bare, dtype="", workload=bare.workload, contenders=bare_contenders(bare, against or ()),
            states=states, device=gpu_device, protocol=protocol,
        )  # fmt: skip
        digests = {bare.name: source_digest((), bare.function)}
        plan = BenchPlan(device=gpu_device, protocol=protocol, states=states, cases=[case], sources=digests)
    else:
        bare_options = {
            "name": name, "bytes": bytes, "flops": flops, "reference": reference, "outputs": outputs
        }  # fmt: skip
        _refuse("an operator says by itself what it computes", bare_options)
        plan = prepare(
            op, against=AGAINST if against is None else against, samples=samples,
            shapes=shapes, dtypes=dtypes, l2=states, device=device, gpu=gpu, protocol=protocol,
        )  # fmt: skip
    return jobs.complete(plan)


def _refuse(why: str, options: Mapping[str, Any]) -> None:
    """Refuse arguments that would have no effect."""
    named = [name for name, value in options.items() if value]
    if named:
        raise UsageError(f"{named[0]}= was passed to dotcu.bench, but {why}.\nLeave it out.")


@dataclass(frozen=True, kw_only=True, eq=False)
class BenchPlan:
    """A job: the cases to time, and rows of those that cannot be timed; without a GPU, an estimate."""

    device: BenchDevice
    protocol: Protocol
    states: Sequence[L2] = ()
    cases: Sequence[TimedCase | BenchRow] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    estimate: Estimate | None = None

    @property
    def total(self) -> int:
        """The number of rows to come."""
        return sum(1 if isinstance(c, BenchRow) else len(c.contenders) * len(self.states) for c in self.cases)

    def run(self) -> Iterator[BenchRow]:
        """Yield the rows once they are done; before a KeyboardInterrupt, those of everything measured."""
        with self.device.current():
            if any(isinstance(case, TimedCase) for case in self.cases):
                self.device.bandwidths()  # before the first inputs take memory
            for case in self.cases:
                if isinstance(case, BenchRow):
                    yield case
                else:
                    yield from case.rows()

    def report(self, rows: Sequence[BenchRow], *, seconds: float, interrupted: bool) -> BenchReport:
        """Return the report of some rows."""
        by: Means = "events"
        notes = tuple(self.notes)
        if self.estimate is None:
            timers = Counter(row.measured.by for row in rows if row.measured is not None)
            by = timers.most_common(1)[0][0] if timers else self.device.timer.name
            notes += self.device.notes
        return BenchReport(
            machine=self.device.machine, protocol=self.protocol, by=by, rows=tuple(rows), notes=notes,
            sources=self.sources, estimate=self.estimate, interrupted=interrupted,
        )  # fmt: skip


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
) -> BenchPlan:
    """Plan a benchmark of operators.

    Args:
        op, against, samples, shapes, dtypes, l2, device, gpu, protocol: As for `bench`.
    """
    samples, rows = tuple(samples), tuple(shape_rows(shapes))
    where = resolve_device(device)
    subjects = [
        Subject(overload=overload, device=where, seed=protocol.seed)
        for operator in operators_of(op)
        for overload in operator.overloads.values()
        if overload is operator or (overload.has_samples and not samples)
    ]
    if where.type == "cuda" and gpu:
        raise UsageError(
            f"gpu={gpu!r}: bounds for a GPU that is not here are estimated where there is none.\n"
            "Leave it out to measure on this one, or ask for bounds: device='simulator'"
        )
    cases = [(subject, _cases(subject, samples, rows, dtypes)) for subject in subjects]
    rivals = {subject.name: contenders(subject, against) for subject in subjects}
    if where.type != "cuda":
        return _estimate_plan(cases, gpu or DEFAULT_GPU, protocol)
    return _run_plan(cases, rivals, l2, BenchDevice(where), protocol)


_Cases = Sequence[tuple[Subject, Sequence[Workload | UntimedCase]]]


def _cases(
    subject: Subject, samples: Sequence[Sample], shapes: Sequence[ShapeRow],
    dtypes: Sequence[str | torch.dtype],
) -> list[Workload | UntimedCase]:  # fmt: skip
    """Return the cases of an operator; if its samples fail, one that says so: others can be timed."""
    chosen = choose_dtypes(subject.overload, dtypes)
    try:
        return workloads(subject, samples=samples, shapes=shapes, dtypes=chosen)
    except Exception as error:  # samples that fail, or none
        return [UntimedCase(name="no case", reason=first_lines(error), status="failed")]


def _run_plan(
    cases: _Cases, rivals: Mapping[str, Contenders], states: Sequence[L2], device: BenchDevice,
    protocol: Protocol,
) -> BenchPlan:  # fmt: skip
    """Return the plan of measurements on a GPU."""
    planned: list[TimedCase | BenchRow] = []
    notes: list[str] = []
    for subject, own in cases:
        claim = ""
        with contextlib.suppress(Exception):  # samples or `work` that fail: rows say so
            if smallest := subject.smallest(subject.overload.dtypes[0]):
                on_cpu = smallest.sample.map_tensors(lambda tensor: tensor.detach().cpu())
                claim = count_check(subject.overload, on_cpu)
        uncounted = claim.startswith(UNCOUNTED)
        notes += [f"{subject.name}: {claim}"] if uncounted else []
        for case in own:
            if isinstance(case, UntimedCase):
                key = BenchKey(op=subject.name, case=case.name, contender=OWN, l2=states[0])
                planned.append(BenchRow(key=key, status=case.status, reason=case.reason))
                continue
            assert case.dtype is not None
            planned.append(
                TimedCase(
                    target=OperatorTarget(subject, case.dtype), dtype=short(case.dtype), workload=case,
                    contenders=rivals[subject.name], states=states, device=device, protocol=protocol,
                    marks=(claim,) if claim and not uncounted else (),
                )
            )  # fmt: skip
    return BenchPlan(
        device=device, protocol=protocol, states=states, cases=planned, notes=notes,
        sources=source_digests(subject for subject, _ in cases),
    )  # fmt: skip


def _estimate_plan(cases: _Cases, gpu: str, protocol: Protocol) -> BenchPlan:
    """Return the plan without a GPU, whose estimate is made already."""
    calls = []
    notes = []
    for subject, own in cases:
        for case in own:
            if isinstance(case, UntimedCase):
                notes.append(f"{subject.name} {case.name}: {case.reason}")
            else:
                calls.append((subject.overload, case.name, case.make(protocol.seed)))
    if notes and not calls:
        raise OperatorError("\n".join(notes))
    device = BenchDevice(torch.device("cpu"))
    return BenchPlan(device=device, protocol=protocol, estimate=estimate(calls, gpu), notes=notes)


def source_digests(subjects: Iterable[Subject]) -> dict[str, str]:
    """Return a digest of each overload's library, or of its body and the kernels of its smallest sample."""
    digests = {}
    for subject in subjects:
        overload = subject.overload
        if overload.body is None:  # its launches are not seen: the file of the library has it all
            if overload.library is not None:
                digests[subject.name] = hashlib.sha256(read_file(overload.library, 4 << 30)).hexdigest()
            continue
        with contextlib.suppress(Exception):  # rows say what is wrong with the samples, or the call
            case = subject.smallest(overload.dtypes[0])
            if case is not None:
                with watching_launches() as launches:
                    subject.call(case.make())
                kernels = dict.fromkeys(launch.digest for launch in launches)
                digests[subject.name] = source_digest(tuple(kernels), overload.body)
    return digests


def source_digest(kernels: Sequence[str], body: Callable[..., Any]) -> str:
    """Return one digest of the build digests of kernels, and of the Python function that launches them."""
    body = inspect.unwrap(body)
    try:
        text = inspect.getsource(body)
    except (OSError, TypeError):
        code = getattr(body, "__code__", None)
        text = "" if code is None else code.co_code.hex()
    digest = hashlib.sha256()
    for part in (*kernels, text):
        digest.update(f"{len(part)}:{part}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
