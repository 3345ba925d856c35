"""One case of an operator in one process: its configurations compiled, rejected, gated and timed.

A kernel that hangs or spoils the GPU ends the process, so `dotcu tune` has it in a worker (`serve`). What it
has done so far it reports, event by event, each a JSON object:

    {"event": "trying", "candidate": 3}                       a call follows that may not come back
    {"event": "rejected", "candidate": 3, "reason": "..."}    it is wrong; with "here", in this case alone
    {"event": "passed", "candidate": 3}                       it may be timed, at any shape of its dtype
    {"event": "timing", "round": 0, "candidates": 120}        calls of all of them follow
    {"event": "timed", "winner": 7, ...}                      the end of a case that could be timed
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import torch

from dotcu.benchmark.device import BenchDevice, throttled_blocks
from dotcu.benchmark.measuring import Conditions, measure
from dotcu.benchmark.results import Measured, Protocol
from dotcu.benchmark.statistics import summary
from dotcu.benchmark.targets import Call, OperatorTarget
from dotcu.benchmark.timers import Timer
from dotcu.benchmark.timing import implausibility
from dotcu.benchmark.verify import TimedResults, verify
from dotcu.benchmark.workloads.input_values import InputValues
from dotcu.benchmark.workloads.shapes import choose_dtypes, shape_rows
from dotcu.benchmark.workloads.workload import Workload, free_bytes, workloads
from dotcu.checking.cases.derived import choose
from dotcu.checking.cases.samples import Case
from dotcu.checking.numerics import Oracle
from dotcu.checking.running import require_usable, run_one
from dotcu.checking.subject import Subject
from dotcu.checking.target import resolve
from dotcu.checking.trial import Failed, Trial
from dotcu.checking.trials import call as calling
from dotcu.compile import Target
from dotcu.errors import CompileError, DotcuError, UsageError
from dotcu.kernel import simulate
from dotcu.kernel.compiled import CompilationUnit, CompiledUnit, gpu_target
from dotcu.kernel.config import limits, require_fit
from dotcu.kernel.scope import KernelRequest, LaunchPolicy, entering_scope, listening_for_kernels
from dotcu.operator import Overload, Sample
from dotcu.operator.configurations import Configurations
from dotcu.serialize import from_plain
from dotcu.tracebacks import first_lines, one_line, quiet
from dotcu.tuning.search import Choice, TimeInterval, search
from dotcu.workers import Channel

ROUNDS = (
    Protocol(blocks=3, most_blocks=3, calls=1, most_calls=20, block_s=0.01, warmup_most_s=0.1, least_s=0.0),
    Protocol(blocks=4, most_blocks=5, calls=2, most_calls=40, block_s=0.02, warmup_most_s=0.2, least_s=0.0),
    Protocol(blocks=10, most_blocks=20, calls=5, most_calls=60, block_s=0.02, warmup_most_s=0.5),
)
"""The protocol of each round, the last of all further ones: few samples of many, then more of few."""

SETS = 2
"""Sets of inputs that are timed in turn."""

WATCHED = 8
"""Candidates of a round whose results are copied while they are timed, and verified."""

VERIFIED = 8
"""Candidates whose results are compared with the reference together."""

TRY_S = {"cuda": 20.0, "cpu": 300.0}
"""Seconds after which a call that may not come back has not, by the device: the simulator is slower."""

TIME_S = 300.0
"""Seconds for one round."""

Report = Callable[[dict[str, Any]], object]


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """One case of an operator to tune.

    Attributes:
        target: Where a process finds the operator, `ops.py:scale`; empty in the process that has it.
        overload: The overload's qualified name.
        shapes: As text, the shapes for the samples; empty for their own.
        case: The case's name among those of the dtype.
        gated: Candidates that were found right for this dtype before.
        rejected: Candidates that were not, or that ended a process.
        default: The author's default for the case.
        earlier: The candidate that the file has; None without.
        full: Gate by more cases and by the simulator, too.
        seconds: The time for this case; None for as long as it takes.
    """

    target: str
    overload: str
    device: str
    dtype: str
    case: str
    shapes: tuple[str, ...] = ()
    gated: tuple[int, ...] = ()
    rejected: tuple[int, ...] = ()
    default: int = 0
    earlier: int | None = None
    full: bool = False
    seed: int = 0
    seconds: float | None = None


def serve(request: Any, channel: Channel) -> None:
    """Tune one case, and reply with what happens; a worker's handler."""
    wanted = from_plain(TuneRequest, request)
    subject = _subject(wanted.target, wanted.overload, wanted.device, wanted.seed)
    limit_s = TRY_S[subject.device.type]

    def reply(event: dict[str, Any]) -> None:
        channel.reply(event)
        if event["event"] == "trying":
            with channel.step(f"candidate {event['candidate']}", limit_s):
                pass

    Session(subject, wanted).run(reply)
    require_usable(subject.device)


@functools.cache
def _subject(target: str, overload: str, device: str, seed: int) -> Subject:
    """Return the subject of an overload; a file is loaded once in a process."""
    found = [o for _, operator in resolve(target, verb="tune") for o in operator.overloads.values()]
    of_name = next(each for each in found if each.qualified_name == overload)
    return Subject(overload=of_name, device=torch.device(device), seed=seed)


def configurations_of(overload: Overload) -> Configurations | None:
    """Return the configurations of an overload; None if it declares none."""
    found: Configurations | None = getattr(overload, "tunable", None)
    return found


class Session:
    """One case of an operator, in this process.

    Args:
        subject: The overload on its device.
        request: What is asked for.
        timer: Takes device time; None for the GPU's own. Without a GPU nothing is timed.
    """

    def __init__(self, subject: Subject, request: TuneRequest, timer: Timer | None = None) -> None:
        tunable = configurations_of(subject.overload)
        assert tunable is not None
        self.subject, self.request, self.tunable = subject, request, tunable
        self.began = perf_counter()
        self._timer = timer
        self._device = BenchDevice(subject.device)
        (self._dtype,) = choose_dtypes(subject.overload, [request.dtype])

    def run(self, report: Report) -> None:
        """Compile, reject, gate and time; report each event."""
        passed = self._gated(report)
        if self._timer is None and self.subject.on_gpu:
            self._timer = self._device.timer
        if self._timer is None or not passed:
            return
        with self._device.current(), torch.no_grad():
            choice = _TimedCandidates(self, self._timer, passed, report).choose()
        if choice is not None:
            report(
                {
                    "event": "timed",
                    "winner": choice.winner,
                    "median_us": choice.times[choice.winner].median_us,
                    "over_runner_up": choice.over(choice.runner_up),
                    "over_default": choice.over(self.request.default),
                    "tied": list(choice.tied),
                    "rounds": choice.rounds,
                    "times": {str(one): asdict(time) for one, time in choice.times.items()},
                }
            )

    @property
    def expired(self) -> bool:
        """True once the case's time is over."""
        return self.request.seconds is not None and perf_counter() - self.began >= self.request.seconds

    @functools.cached_property
    def workload(self) -> Workload:
        """The case."""
        cases = workloads(self.subject, shapes=shape_rows(self.request.shapes), dtypes=[self._dtype])
        return next(case for case in cases if isinstance(case, Workload) and case.name == self.request.case)

    def call_of(self, candidate: int) -> Call:
        """Return a function that calls the operator with a candidate."""
        configuration, overload, tunable = self.tunable.space[candidate], self.subject.overload, self.tunable

        def call(sample: Sample) -> Any:
            with tunable.trying(configuration):
                return overload(*sample.args, **sample.kwargs)

        return call

    # -------------------------------------------------------------- rejected for nothing, then gated

    def _gated(self, report: Report) -> list[int]:
        """Return the candidates that fit the device and compute what the reference does."""
        for case in self._cases:
            _oracle(self.subject, case)  # now, so that no candidate is charged with it
        passed: list[int] = []
        rejected = set(self.request.rejected)
        candidates = [each for each in range(len(self.tunable.space)) if each not in rejected]
        default_spills = False
        candidates.sort(key=lambda each: each != self.request.default)  # it decides whether others may spill
        for candidate, (unfit, spills) in self._fitting(candidates):
            default_spills |= candidate == self.request.default and spills
            if not unfit and spills and not default_spills:
                unfit = "its registers spill"
            if unfit:
                report({"event": "rejected", "candidate": candidate, "reason": unfit, "here": True})
                continue
            reason = ""
            if candidate not in self.request.gated:
                if self.expired and passed:
                    continue
                report({"event": "trying", "candidate": candidate})
                reason = self._wrong(candidate)
            if reason:
                report({"event": "rejected", "candidate": candidate, "reason": reason})
            else:
                report({"event": "passed", "candidate": candidate})
                passed.append(candidate)
        return sorted(passed)

    def _fitting(self, candidates: Sequence[int]) -> Iterator[tuple[int, tuple[str, bool]]]:
        """Yield candidates in order, each with why it cannot run and whether registers spill.

        The host's cores compile the next ones meanwhile.
        """
        sample = self.workload.make(self.request.seed)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            futures = {}
            for candidate in candidates:
                try:
                    futures[candidate] = pool.submit(self._fit, self._requests(candidate, sample))
                except Exception as error:  # what a user's body raises
                    futures[candidate] = pool.submit(_misfit, one_line(error))
            del sample
            for candidate in candidates:
                yield candidate, futures[candidate].result()

    def _requests(self, candidate: int, sample: Sample) -> list[KernelRequest]:
        """Return the launches that a call with a candidate would make."""
        requests: list[KernelRequest] = []
        body, name = self.subject.overload.body, self.subject.name
        assert body is not None
        simulated = nullcontext() if self.subject.on_gpu else simulate()
        with simulated, listening_for_kernels(requests.append), torch.no_grad():
            gpu = self.subject.device.index if self.subject.on_gpu else None
            with (
                self.tunable.trying(self.tunable.space[candidate]) as tried,
                entering_scope(LaunchPolicy.SKIP, operator=name, gpu=gpu),
            ):
                body(*sample.args, **sample.kwargs)
        if tried.unfit:
            raise UsageError("it does not fit these sizes, by the author's `when`")
        return requests

    def _fit(self, requests: Sequence[KernelRequest]) -> tuple[str, bool]:
        """Compile what a call launches; return why it cannot run, and whether registers spill."""
        spills = False
        for request in requests:
            if request.config is None:
                continue
            try:
                code = self._code(request.unit)
                target = code.object.target
                arch = limits(target.major, target.minor)
                if not code.is_tile(request.kernel):
                    needs = code.needs(request.kernel)
                    require_fit(request.kernel, request.config, needs, arch)
                resources = code.object.resources.get(code.symbol(request.kernel))
                spills |= resources is not None and resources.spill_store_bytes > 0
            except CompileError as error:
                said = error.diagnostics[0].message if error.diagnostics else one_line(error)
                return f"it does not compile: {said}", spills
            except DotcuError as error:
                return one_line(error), spills
        return "", spills

    def _code(self, unit: CompilationUnit) -> CompiledUnit:
        """Return the machine code of a unit; without a GPU, that of the one that the simulator stands for."""
        if self.subject.on_gpu:
            target = gpu_target(self.subject.device.index)
            return unit.code(replace(target, kind="sm"))
        try:
            return unit.code(Target.parse("sm_80"))
        except CompileError as error:
            try:
                return unit.code(Target.parse("sm_90a"))  # a kernel for that alone
            except CompileError:
                raise error from None

    def _wrong(self, candidate: int) -> str:
        """Return what `check` finds wrong with a candidate; empty if nothing."""
        with self.tunable.trying(self.tunable.space[candidate]):
            for trial in self._trials():
                for result in run_one(trial):
                    if isinstance(result.outcome, Failed):
                        evidence = result.outcome.evidence.partition("\n")[0]
                        said = f"{result.outcome.reason}: {evidence}" if evidence else result.outcome.reason
                        require_usable(self.subject.device)  # else the process that asks names the candidate
                        return f"{result.check} of {trial.case}: {said}"
        return ""

    def _trials(self) -> Iterator[Trial]:
        for case in self._cases:
            run = functools.partial(calling.look, self.subject, case, _oracle(self.subject, case))
            checks = ("numerics", *calling.SANITIZERS)
            yield Trial(overload=self.subject.name, kind="call", case=case.name, checks=checks, run=run)
        if self.request.full:
            yield from calling.plan_simulated(self.subject)

    @functools.cached_property
    def _cases(self) -> list[Case]:
        """The author's samples in the dtype; at the full level what is derived from them, too."""
        if self.request.full:
            return [case for case in choose(self.subject) if case.dtype == self._dtype]
        return self.subject.given(self._dtype)


def _misfit(reason: str) -> tuple[str, bool]:
    return reason, False


@functools.lru_cache(maxsize=512)
def _oracle(subject: Subject, case: Case) -> Oracle | None:
    """Return what the reference gives, computed once; None where the trial says why not."""
    try:
        with quiet():
            return subject.oracle(case.make(), case.dtype)
    except Exception:  # it fails, or there is none
        return None


class _TimedCandidates:
    """The candidates of one case, on its inputs."""

    def __init__(self, session: Session, timer: Timer, candidates: Sequence[int], report: Report) -> None:
        self._session, self._timer, self._report = session, timer, report
        subject = session.subject
        self._target = OperatorTarget(subject, session.workload.dtype)
        self._sets = session.workload.sets(SETS, session.request.seed, subject.device)
        self._values: InputValues = self._target.input_values(self._sets)
        self._calls = {candidate: session.call_of(candidate) for candidate in candidates}

    def choose(self) -> Choice | None:
        """Verify all, time in rounds, and choose; once more without a winner that is wrong in the end."""
        request = self._session.request
        self._try_each()
        self._verify(list(self._calls))
        while self._calls:
            choice = search(
                list(self._calls),
                self._time_round,
                default=request.default,
                earlier=request.earlier,
                expired=lambda: self._session.expired,
            )
            if choice is None:
                return None
            self._verify([choice.winner])
            if choice.winner in self._calls:
                return choice
        return None

    def _reject(self, candidate: int, reason: str) -> None:
        if self._calls.pop(candidate, None) is not None:
            self._report({"event": "rejected", "candidate": candidate, "reason": reason, "here": True})

    def _try_each(self) -> None:
        """Call each once on the timed inputs: what does not come back is then known by name."""
        for candidate, call in list(self._calls.items()):
            self._report({"event": "trying", "candidate": candidate})
            try:
                call(self._sets[0])
                self._timer.wait()
            except Exception as error:
                require_usable(self._target.device)
                self._reject(candidate, f"{self._session.workload.name}: {first_lines(error)}")

    def _verify(self, candidates: Sequence[int]) -> None:
        """Compare results on the timed inputs with the reference, some at a time."""
        size = max(self._session.workload.result_bytes, 1)
        together = max(1, min(VERIFIED, free_bytes(self._target.device) // (16 * size)))
        for start in range(0, len(candidates), together):
            part = candidates[start : start + together]
            self._report({"event": "timing", "round": -1, "candidates": len(part)})
            calls = {str(each): self._calls[each] for each in part}
            for name, (_, why) in verify(self._target, calls, self._sets[0], self._values).items():
                self._reject(int(name), f"{self._session.workload.name}: {why}")

    def _time_round(self, candidates: Sequence[int], number: int) -> Mapping[int, TimeInterval]:
        """Time some of the candidates: bench's protocol, cold L2."""
        self._report({"event": "timing", "round": number, "candidates": len(candidates)})
        calls = {str(each): self._calls[each] for each in candidates if each in self._calls}
        protocol, results = ROUNDS[min(number, len(ROUNDS) - 1)], TimedResults(self._target, self._values)
        conditions = Conditions(
            sets=self._sets, l2="cold", protocol=protocol, refresh=self._values,
            probe=results.take if len(calls) <= WATCHED else lambda name, sample, result: None,
            device=self._target.device, mutates=self._target.mutates, host=False,
        )  # fmt: skip
        measured, errors, interrupted = measure(calls, conditions, self._timer)
        if interrupted:
            raise KeyboardInterrupt
        if errors:
            require_usable(self._target.device)
        wrong = {name: first_lines(error) for name, error in errors.items()} | results.verify()
        timed = {}
        for name, samples in measured.items():
            others = [other for other in measured.values() if other is not samples]
            reason = wrong.get(name) or implausibility(samples, others)
            interval = _interval(samples, protocol)
            if reason or interval is None:
                self._reject(int(name), reason or "every sample was dropped: the GPU was slowed down")
            else:
                timed[int(name)] = interval
        for name in wrong.keys() - measured.keys():
            self._reject(int(name), wrong[name])
        return timed


def _interval(samples: Measured, protocol: Protocol) -> TimeInterval | None:
    lost = throttled_blocks(samples.blocks)
    times = [block.times_us for at, block in enumerate(samples.blocks) if at not in lost and block.calls]
    if not times:
        return None
    figures = summary(times, confidence=protocol.confidence, resolution_us=samples.resolution_us)
    return TimeInterval(median_us=figures.median_us, low_us=figures.low_us, high_us=figures.high_us)
