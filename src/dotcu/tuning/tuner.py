"""`dotcu.tune`: plan the cases of operators, have a worker try their configurations, and write the files.

prepare (operators, cases, earlier entries) -> TunePlan -> rows as they are done -> TuneReport
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from dotcu import jobs, locks
from dotcu.benchmark.device import describe_machine
from dotcu.benchmark.timers import Timer
from dotcu.benchmark.workloads import UntimedCase, Workload, choose_dtypes, shape_rows, workloads
from dotcu.checking.cases.samples import short
from dotcu.checking.subject import Subject
from dotcu.checking.target import operators_of, resolve_device, target_of
from dotcu.compile import cache
from dotcu.errors import DotcuError, EnvironmentFault, OperatorError, UsageError
from dotcu.kernel import simulate
from dotcu.kernel.launch_policy import LaunchPolicy, entering_scope
from dotcu.operator import Operator, Sample, tuned
from dotcu.operator.configurations import Configurations, gpu_at_hand, values_of
from dotcu.operator.tuned import CallKey, TunedEntry, TunedFile, TunedGpu
from dotcu.tracebacks import first_lines, one_line, shortens_tracebacks
from dotcu.tuning.report import RejectedConfiguration, TuneReport, TuneRow
from dotcu.tuning.search import MAX_TIMED, new_study
from dotcu.tuning.session import TIME_S, TRY_S, Session, TuneRequest, configurations_of
from dotcu.workers import Worker, WorkerCrash

WORKER = "dotcu.tuning.session:serve"

LIMIT_S = 600.0
"""Seconds until a worker has imported the target, and until it has compiled one more configuration."""

MAX_CRASHES = 20
"""Configurations that may end a worker in one case: each new one takes seconds to start."""

TuneEvent = dict[str, Any]


@shortens_tracebacks
def tune(
    op: Operator | Iterable[Operator],
    *,
    shapes: str | Sequence[Any] = (),
    dtypes: Sequence[str | torch.dtype] = (),
    device: str | torch.device | None = None,
    full: bool = False,
    counters: bool = False,
    budget_s: float | None = None,
    seed: int = 0,
) -> TuneReport:
    """Choose the fastest configuration of operators for this GPU, and write it beside them.

    Configurations that a kernel's resources forbid are rejected, the others checked against the reference
    before they are timed. The file `ops.tuned.toml` beside `ops.py` gets an entry for each case.

    Args:
        op: An operator or several, with `configurations`.
        shapes: Shapes to tune for, as for `dotcu.bench`; the operator's samples by default.
        dtypes: The operator's dtypes to tune for; all by default.
        device: The GPU; "simulator" only rejects and checks.
        full: Check by derived cases and by the simulator's sanitizers, too.
        counters: Reject what has far more bank conflicts or sectors than the default, by the simulator.
        budget_s: Seconds for all cases; then the best found so far is kept.
        seed: What random numbers start from.

    Raises:
        UsageError: An operator declares no configurations; a tuned file is not as it was written; another
            tuner is at work on this GPU.
        OperatorError: Every operator's samples fail.

    Note:
        Synchronizes. An interrupt (Ctrl-C) ends it: cases that are done are in the file, and in the report.
    """
    plan = prepare(
        op,
        shapes=shapes,
        dtypes=dtypes,
        device=device,
        full=full,
        counters=counters,
        budget_s=budget_s,
        seed=seed,
    )
    return jobs.complete(plan)


@dataclass(frozen=True, kw_only=True, eq=False)
class TuneCase:
    """One case to tune.

    Attributes:
        tunable: The configurations of its operator.
        key: What of the call matters.
        default: The author's default for it, as a candidate.
        target: Where a worker finds the operator; empty if only this process has it.
    """

    subject: Subject
    tunable: Configurations
    workload: Workload
    key: CallKey
    default: int
    target: str


@dataclass(frozen=True, kw_only=True, eq=False)
class TunePlan:
    """A job: the cases to tune, and rows of those that cannot be.

    Attributes:
        gpu: What entries are written for; None without a GPU.
        timer: Takes device time in this process, without a worker: for tests.
    """

    cases: Sequence[TuneCase | TuneRow]
    device: torch.device
    gpu: TunedGpu | None
    shapes: tuple[str, ...]
    full: bool
    counters: bool
    budget_s: float | None
    seed: int
    driver: str = ""
    timer: Timer | None = None
    _files: dict[Path, None] = field(default_factory=dict)
    _began: list[float] = field(default_factory=list)

    def run(self) -> Iterator[TuneRow]:
        """Yield the rows once they are done; entries are written as each is.

        Raises:
            UsageError: Another tuner is at work on this GPU.
            KeyboardInterrupt: The user interrupted.
        """
        self._began.append(time.monotonic())
        worker = Worker(WORKER)
        rejected: dict[tuple[str, str], dict[int, str]] = {}
        gated: dict[tuple[str, str], set[int]] = {}
        with _alone_on(self.device):
            try:
                for case in self.cases:
                    if isinstance(case, TuneRow):
                        yield case
                        continue
                    of = case.subject.name, short(case.workload.dtype or torch.float32)
                    run = _CaseRun(
                        self, case, worker, gated.setdefault(of, set()), rejected.setdefault(of, {})
                    )
                    yield run.row()
            finally:
                worker.close()

    @property
    def left_s(self) -> float | None:
        """The seconds that are left of the budget; None without one."""
        spent = time.monotonic() - self._began[0] if self._began else 0.0
        return None if self.budget_s is None else self.budget_s - spent

    def write(self, case: TuneCase, event: TuneEvent) -> None:
        """Write the entry of a case into its file; one that chose the same before stays as it is."""
        path, gpu = case.tunable.file, self.gpu
        if path is None or gpu is None:
            return
        entry = TunedEntry(
            gpu=gpu.name, capability=gpu.capability, multiprocessors=gpu.multiprocessors, key=case.key,
            configuration=values_of(case.tunable.space[event["winner"]]), digest=case.tunable.digest,
            median_us=_rounded(event["median_us"]), over_runner_up=round(event["over_runner_up"], 3),
            over_default=round(event["over_default"], 3), driver=self.driver,
            date=datetime.date.today().isoformat(),
        )  # fmt: skip
        with _held(f"file-{path.resolve()}", wait=True):
            file = tuned.read(path) if path.is_file() else TunedFile()
            before = {each.place: each for each in file.operators.get(case.tunable.name, ())}
            old = before.get(entry.place)
            if old is None or _decided(old) != _decided(entry):
                file.with_entries(case.tunable.name, [entry]).write(path)
        self._files[path] = None
        case.tunable.forget()

    def report(self, rows: Sequence[TuneRow], *, seconds: float, interrupted: bool) -> TuneReport:
        """Return the report of some rows."""
        return TuneReport(
            gpu=self.gpu.name if self.gpu is not None else "", rows=tuple(rows),
            files=tuple(map(str, self._files)), interrupted=interrupted,
            seconds=seconds,
        )  # fmt: skip


def _decided(entry: TunedEntry) -> tuple[Any, ...]:
    """Return what makes a new entry worth writing: not the noise of its figures."""
    return entry.place, sorted(entry.configuration.items()), entry.digest, entry.driver


def _rounded(us: float) -> float:
    return float(f"{us:.4g}")


class _CaseRun:
    """The run of one case: in a worker, again after each configuration that ends it.

    Args:
        gated: Candidates that are right for the dtype, from earlier cases on; added to.
        rejected: Candidates that are not, with reasons.
    """

    def __init__(
        self, plan: TunePlan, case: TuneCase, worker: Worker, gated: set[int], rejected: dict[int, str]
    ) -> None:
        self._plan, self._case, self._worker = plan, case, worker
        self._gated, self._rejected = gated, rejected
        self._of_case: dict[int, str] = {}  # rejected at the case's own shapes
        self._outcome: TuneEvent | None = None
        self._failed = ""

    def row(self) -> TuneRow:
        """Tune the case, write its entry, and return its row."""
        began, plan, case = time.monotonic(), self._plan, self._case
        space = case.tunable.space
        row = TuneRow(
            op=case.subject.name, case=case.workload.name, key=case.key, status="skipped",
            candidates=len(space), configuration=values_of(space[case.default]), is_default=True,
        )  # fmt: skip
        left_s = plan.left_s
        if left_s is not None and left_s <= 0:
            return replace(row, reason="not begun: the budget is spent")
        try:
            self._events()
        except EnvironmentFault:
            raise
        except DotcuError as error:  # other cases may go on
            self._failed = one_line(error)
        reasons = {**self._rejected, **self._of_case}
        rejected = tuple(
            RejectedConfiguration(configuration=values_of(space[each]), reason=reasons[each])
            for each in sorted(reasons)
        )
        row = replace(row, rejected=rejected, seconds=time.monotonic() - began)
        event = self._outcome
        if event is not None:
            plan.write(case, event)
            lost = reasons.get(case.default)
            return replace(
                row, status="tuned",
                reason="" if lost is None else f"the default was rejected: {lost}",
                configuration=values_of(space[event["winner"]]),
                is_default=event["winner"] == case.default, median_us=event["median_us"],
                over_runner_up=event["over_runner_up"], over_default=event["over_default"],
                tied=len(event["tied"]),
            )  # fmt: skip
        if len(reasons) == len(space):
            return replace(row, status="failed", reason="every configuration was rejected")
        if not self._failed and plan.gpu is None:
            return replace(row, status="gated", reason="not timed: there is no GPU")
        if not self._failed and (left_s := plan.left_s) is not None and left_s <= 0:
            return replace(row, reason="the budget was spent before a right one was found")
        return replace(row, status="failed", reason=self._failed or "none could be timed")

    def _events(self) -> None:
        """Run until the case is done; once more after each crash that one configuration is to blame for."""
        if self._plan.timer is not None or not self._case.target:
            session = Session(self._case.subject, self._request(""), self._plan.timer)
            session.run(self._take)
            return
        for _ in range(MAX_CRASHES):
            last: TuneEvent = {"event": "begun"}
            try:
                self._worker.send(self._request(self._case.target))
                while (event := self._worker.receive(self._limit_s(last))) is not None:
                    self._take(event)
                    last = event
                return
            except WorkerCrash as crash:
                if self._worker.closed:
                    return
                said = f"{crash.reason}: {crash.evidence.partition(chr(10))[0]}".rstrip(": ")
                if last["event"] != "trying":
                    self._failed = f"the worker ended while it {_WHILE[last['event']]}: {said}"
                    return
                self._take({"event": "rejected", "candidate": last["candidate"], "reason": said})
        self._failed = f"{MAX_CRASHES} configurations ended their process"

    def _limit_s(self, last: TuneEvent) -> float:
        if last["event"] == "trying":
            return TRY_S[self._plan.device.type]
        return TIME_S if last["event"] == "timing" else LIMIT_S

    def _take(self, event: TuneEvent) -> None:
        kind = event["event"]
        if kind == "passed":
            self._gated.add(event["candidate"])
        elif kind == "rejected":
            candidate, reason = event["candidate"], str(event["reason"]).partition("\n")[0]
            of = self._of_case if event.get("here") or candidate in self._gated else self._rejected
            of[candidate] = reason
        elif kind == "timed":
            self._outcome = event

    def _request(self, target: str) -> TuneRequest:
        plan, case = self._plan, self._case
        return TuneRequest(
            target=target, overload=case.subject.name, device=str(plan.device),
            dtype=short(case.workload.dtype or torch.float32), case=case.workload.name, shapes=plan.shapes,
            gated=tuple(sorted(self._gated)), rejected=tuple(sorted({**self._rejected, **self._of_case})),
            default=case.default, earlier=self._earlier(), full=plan.full,
            counters=plan.counters, seed=plan.seed, seconds=plan.left_s,
        )  # fmt: skip

    def _earlier(self) -> int | None:
        """Return the candidate that the file has for this GPU and key."""
        tunable, gpu = self._case.tunable, self._plan.gpu
        found = tunable.tables().get(gpu, {}).get(self._case.key) if gpu is not None else None
        return None if found is None else tunable.space.index(found)


_WHILE = {
    "begun": "began",
    "rejected": "compiled the next configuration",
    "passed": "compiled the next configuration",
    "timing": "timed the configurations",
    "timed": "ended",
}


# ------------------------------------------------------------------ the plan


def prepare(
    op: Operator | Iterable[Operator],
    *,
    shapes: str | Sequence[Any] = (),
    dtypes: Sequence[str | torch.dtype] = (),
    device: str | torch.device | None = None,
    full: bool = False,
    counters: bool = False,
    budget_s: float | None = None,
    seed: int = 0,
    timer: Timer | None = None,
) -> TunePlan:
    """Plan what `tune` runs; it has the meaning of the arguments, and what is raised.

    Args:
        op, shapes, dtypes, device, full, counters, budget_s, seed: As for `tune`.
        timer: Takes device time in this process, without a worker.
    """
    if budget_s is not None and not budget_s > 0:
        raise UsageError(f"budget_s={budget_s!r} is not a number of seconds above 0.\nType: --budget 60")
    place = resolve_device(device)
    subjects = [
        Subject(overload=overload, device=place, seed=seed)
        for operator in operators_of(op)
        for overload in operator.overloads.values()
        if configurations_of(overload) is not None
    ]
    if not subjects:
        given = operators_of(op)
        names = ", ".join(operator.qualified_name for operator in given)
        raise UsageError(
            f"No configurations declared for {names}.\nAdd `@{given[0].__name__}.configurations`."
        )
    cases: list[TuneCase | TuneRow] = []
    rows = tuple(shape_rows(shapes))
    for subject in subjects:
        tunable = configurations_of(subject.overload)
        assert tunable is not None
        _ = tunable.space  # raises what is wrong with it
        if tunable.file is not None and tunable.file.is_file():
            tuned.read(tunable.file)
        cases += _cases(subject, tunable, rows, dtypes)
    untuned = [case for case in cases if isinstance(case, TuneRow)]
    if len(untuned) == len(cases):
        raise OperatorError("\n".join(f"{row.op} {row.case}: {row.reason}" for row in untuned))
    if place.type == "cuda" and any(
        len(case.tunable.space) > MAX_TIMED for case in cases if isinstance(case, TuneCase)
    ):
        new_study(seed)  # raises where optuna is missing
    gpu = gpu_at_hand(place.index) if place.type == "cuda" or timer is not None else None
    return TunePlan(
        cases=cases, device=place, gpu=gpu, shapes=_texts(shapes), full=full, counters=counters,
        budget_s=budget_s, seed=seed, timer=timer,
        driver=describe_machine(place).versions["driver"] if gpu is not None else "",
    )  # fmt: skip


def _texts(shapes: str | Sequence[Any]) -> tuple[str, ...]:
    """Return shapes as text, as a worker is given them."""
    rows = shape_rows(shapes)
    return tuple(":".join("x".join(map(str, shape)) or "0d" for shape in row) for row in rows)


def _cases(
    subject: Subject, tunable: Configurations, rows: Sequence[Any], dtypes: Sequence[str | torch.dtype]
) -> list[TuneCase | TuneRow]:
    """Return the cases of an operator, the largest of each key."""
    chosen = choose_dtypes(subject.overload, dtypes)
    empty = TuneRow(
        op=subject.name, case="no case", key=(), status="failed", candidates=len(tunable.space),
        configuration=values_of(tunable.space[0]), is_default=True,
    )  # fmt: skip
    try:
        found = workloads(subject, shapes=rows, dtypes=chosen)
    except Exception as error:  # samples that fail, or none
        return [replace(empty, reason=first_lines(error))]
    by_key: dict[CallKey, TuneCase] = {}
    others: list[TuneCase | TuneRow] = []
    target = target_of(subject.overload) or ""
    for workload in found:
        if isinstance(workload, UntimedCase):
            others.append(replace(empty, case=workload.name, status=workload.status, reason=workload.reason))
            continue
        try:
            keys = _keys(subject, tunable, workload.make(subject.seed))
        except Exception as error:  # a body that refuses its own sample
            others.append(replace(empty, case=workload.name, reason=first_lines(error)))
            continue
        if len(keys) != 1:
            why = "asks for no configuration" if not keys else f"asks for {len(keys)} configurations"
            others.append(replace(empty, case=workload.name, status="skipped", reason=f"its call {why}"))
            continue
        ((key, default),) = keys.items()
        if default not in tunable.space:
            why = f"its default {default} is none of the declared configurations"
            others.append(replace(empty, case=workload.name, reason=why))
            continue
        known = by_key.get(key)
        if known is None or known.workload.elements < workload.elements:
            by_key[key] = TuneCase(
                subject=subject, tunable=tunable, workload=workload, key=key,
                default=tunable.space.index(default), target=target,
            )  # fmt: skip
    return [*by_key.values(), *others]


def _keys(subject: Subject, tunable: Configurations, sample: Sample) -> Mapping[CallKey, Any]:
    """Return the keys that a call asks with and its default for each, by its body without launches."""
    body = subject.overload.body
    assert body is not None
    with nullcontext() if subject.on_gpu else simulate(), torch.no_grad():
        gpu = subject.device.index if subject.on_gpu else None
        with (
            tunable.trying(None) as tried,
            entering_scope(LaunchPolicy.SKIP, operator=subject.name, gpu=gpu),
        ):
            body(*sample.args, **sample.kwargs)
    return tried.keys


# ------------------------------------------------------------------ locks


@contextmanager
def _held(name: str, *, wait: bool) -> Iterator[None]:
    """Hold a lock among processes until the block ends; where the cache takes none, or too late, none.

    Raises:
        UsageError: Another process holds it, and waiting was not asked for.
    """
    import hashlib

    store = cache.Store(cache.location())
    path = store.root / "locks" / f"tune-{hashlib.sha256(name.encode()).hexdigest()[:16]}.lock"
    with ExitStack() as stack:
        try:
            store.make(path.parent)
            is_free = stack.enter_context(locks.holding(path, lambda: not wait))
        except OSError as error:
            store.warn("lock", error)
            is_free = True
        if not (is_free or wait):
            raise UsageError(
                "Another `dotcu tune` is at work on this GPU, and both would get wrong times.\n"
                f"{locks.holder(path)}.\n"
                "Wait for it, or name another GPU: --device cuda:1"
            )
        yield


def _alone_on(device: torch.device) -> Any:
    """Return the lock of a GPU; none without one."""
    if device.type != "cuda":
        return nullcontext()
    return _held(f"gpu-{torch.cuda.get_device_properties(device).uuid}", wait=False)


# ------------------------------------------------------------------ the files: show, join, what is stale


def entries(op: Operator | Iterable[Operator]) -> list[tuple[str, TunedEntry, str]]:
    """Return the entries in the files of operators: operator, entry, and why it is left out, if it is.

    Raises:
        UsageError: A file is not as it was written.
    """
    found = []
    for tunable in _all(op):
        if tunable.file is not None and tunable.file.is_file():
            of_file = tuned.read(tunable.file).operators.get(tunable.name, ())
            found += [(tunable.name, entry, tunable.misfit(entry)) for entry in of_file]
    return found


def merge(op: Operator | Iterable[Operator], others: Sequence[Path]) -> list[tuple[str, TunedEntry, str]]:
    """Join entries of other files into those of operators; return those that were left out, and why.

    Of two entries for one GPU and key the later stays.

    Raises:
        UsageError: A file is not as it was written.
    """
    read = [tuned.read(path) for path in others]
    left_out = []
    for tunable in _all(op):
        if tunable.file is None:
            continue
        with _held(f"file-{tunable.file.resolve()}", wait=True):
            file = tuned.read(tunable.file) if tunable.file.is_file() else TunedFile()
            for other in read:
                of_file = other.operators.get(tunable.name, ())
                left_out += [(tunable.name, e, why) for e in of_file if (why := tunable.misfit(e))]
                file = file.with_entries(tunable.name, [e for e in of_file if not tunable.misfit(e)])
            file.write(tunable.file)
        tunable.forget()
    return left_out


def with_configurations(operators: Iterable[Operator]) -> list[Operator]:
    """Return the operators that declare configurations."""
    return [
        operator
        for operator in operators
        if any(configurations_of(overload) is not None for overload in operator.overloads.values())
    ]


def _all(op: Operator | Iterable[Operator]) -> list[Configurations]:
    overloads = (overload for operator in operators_of(op) for overload in operator.overloads.values())
    return [found for overload in overloads if (found := configurations_of(overload)) is not None]
