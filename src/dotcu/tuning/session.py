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
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass
from itertools import chain
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
from dotcu.benchmark.workloads import InputValues, Workload, choose_dtypes, shape_rows, workloads
from dotcu.checking.cases.derived import choose
from dotcu.checking.cases.samples import Case
from dotcu.checking.numerics import Oracle
from dotcu.checking.results import Failed, Trial, trial_id
from dotcu.checking.running import require_usable, run_one
from dotcu.checking.subject import Subject
from dotcu.checking.target import resolve
from dotcu.checking.trials import call as calling
from dotcu.compile import Target
from dotcu.compile.plan import BuildInputs
from dotcu.compile.pool import compile_ahead
from dotcu.errors import CompileError, DotcuError, UsageError
from dotcu.kernel import simulate
from dotcu.kernel.compiled import CompilationUnit, CompiledUnit, target_of
from dotcu.kernel.config import limits, require_fit
from dotcu.kernel.launch import KernelRequest, listening_for_kernels
from dotcu.kernel.launch_policy import LaunchPolicy, entering_scope
from dotcu.kernel.shape_queries import capability
from dotcu.operator import Overload, Sample
from dotcu.operator.configurations import Configurations, values_of
from dotcu.serialize import from_plain
from dotcu.simulator import Counters
from dotcu.tracebacks import first_lines, one_line, quiet
from dotcu.tuning.search import MAX_TIMED, TimeInterval, Times, TuneChoice, explore, new_study, search
from dotcu.workers import Channel

ROUNDS: tuple[Protocol, ...] = (
    Protocol(blocks=3, most_blocks=3, calls=1, most_calls=20, block_s=0.01, warmup_most_s=0.0, least_s=0.0),
    Protocol(blocks=4, most_blocks=5, calls=2, most_calls=40, block_s=0.02, warmup_most_s=0.2, least_s=0.0),
    Protocol(blocks=5, most_blocks=8, calls=5, most_calls=60, block_s=0.02, warmup_most_s=0.2, least_s=0.0),
    Protocol(
        blocks=20, most_blocks=40, calls=10, most_calls=60, block_s=0.03, warmup_most_s=0.2, noise=0.002
    ),
)
"""The protocol of each round, the last of all further ones: few samples of many, then more of few."""

SETS = 2
"""Sets of inputs that are timed in turn."""

GATED = 5
"""Samples that each candidate is checked on, from the smallest to the largest."""

MAX_TIMES = 2
"""The default's counts times this are what `counters` allows."""

MAX_COUNTED = 1 << 15
"""The most elements of a sample that is simulated to be counted."""

TRY_S = {"cuda": 20.0, "cpu": 300.0}
"""Seconds after which a call that may not come back has not, by the device: the simulator is slower."""

TIME_S = 300.0
"""Seconds for one round."""

_COMPILED: set[BuildInputs] = set()
"""What other processes have compiled for this one, so that no further case asks them again."""

OnEvent = Callable[[dict[str, Any]], object]


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
        counters: Reject by the simulator's counters, too.
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
    counters: bool = False
    seed: int = 0
    seconds: float | None = None


def serve(request: Any, channel: Channel) -> None:
    """Tune one case, and reply with what happens; a worker's handler."""
    wanted = from_plain(TuneRequest, request)
    subject = _subject(wanted.target, wanted.overload, wanted.device, wanted.seed)
    limit_s = TRY_S[subject.device.type]

    with ExitStack() as trying:  # until the next event

        def reply(event: dict[str, Any]) -> None:
            trying.close()
            channel.reply(event)
            if event["event"] == "trying":
                trying.enter_context(channel.step(f"candidate {event['candidate']}", limit_s))

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
        self._default_spills = False
        self._counted: dict[int, Counters | None] = {}
        self._device = BenchDevice(subject.device)
        if timer is None and subject.on_gpu:
            self._timer = self._device.timer
        (self._dtype,) = choose_dtypes(subject.overload, [request.dtype])

    def time(self, candidates: Sequence[int]) -> Times:
        """Time candidates on a GPU in one round, without checks or a choice; what fails is left out."""
        assert self._timer is not None
        with self._device.current(), torch.no_grad():
            return _TimedCandidates(self, self._timer, lambda event: None).time(candidates, 0)

    def run(self, report: OnEvent) -> None:
        """Compile, reject, gate and time; report each event."""
        rejected = set(self.request.rejected)
        candidates = [each for each in range(len(self.tunable.space)) if each not in rejected]
        if self._timer is None or len(candidates) <= MAX_TIMED:
            candidates = self._gated(candidates, report)
        if self._timer is None or not candidates:
            return
        with self._device.current(), torch.no_grad():
            timed = _TimedCandidates(self, self._timer, report)
            if len(candidates) > MAX_TIMED:
                candidates = self._explored(candidates, timed, report)
            choice = timed.choose(candidates)
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

    def _explored(self, candidates: Sequence[int], timed: _TimedCandidates, report: OnEvent) -> list[int]:
        """Return the fastest of those that a study proposes out of a large space; each is gated first."""
        first = [each for each in (self.request.default, self.request.earlier) if each in candidates]

        def time_batch(batch: Sequence[int]) -> Times:
            known = [candidates[each] for each in batch]
            times = timed.time(self._gated(known, report), 0)
            return {each: times[candidates[each]] for each in batch if candidates[each] in times}

        space = [values_of(self.tunable.space[each]) for each in candidates]
        places = [candidates.index(each) for each in first if each is not None]
        found = explore(
            space, new_study(self.request.seed), time_batch, first=places, expired=lambda: self.expired
        )
        return [candidates[each] for each in found]

    def _gated(self, candidates: Sequence[int], report: OnEvent) -> list[int]:
        """Return the candidates that fit the device and compute what the reference does."""
        for case in self._cases:
            _oracle(self.subject, case)  # now, so that no candidate is charged with it
        passed: list[int] = []
        # the default comes first: it decides whether others may spill
        for candidate, (unfit, spills) in self._fitting(
            sorted(candidates, key=lambda each: each != self.request.default)
        ):
            self._default_spills |= candidate == self.request.default and spills
            if not unfit and spills and not self._default_spills:
                unfit = "its registers spill"
            if unfit:
                report({"event": "rejected", "candidate": candidate, "reason": unfit, "here": True})
                continue
            reason = ""
            if candidate not in self.request.gated:
                if self.expired and passed:
                    continue
                report({"event": "trying", "candidate": candidate})
                reason = (self.request.counters and self._wasteful(candidate)) or self._wrong(candidate)
            if reason:
                report({"event": "rejected", "candidate": candidate, "reason": reason})
            else:
                report({"event": "passed", "candidate": candidate})
                passed.append(candidate)
        return sorted(passed)

    def _fitting(self, candidates: Sequence[int]) -> Iterator[tuple[int, tuple[str, bool]]]:
        """Yield candidates in order, each with why it cannot run and whether registers spill.

        Other processes compile the next ones meanwhile.
        """
        samples = [self.workload.make(self.request.seed)]
        if self.subject.on_gpu:  # what the gate launches is compiled as well
            samples += [case.sample for case in self._cases]
        requests: dict[int, list[KernelRequest]] = {}
        unfit: dict[int, str] = {}
        units: dict[CompilationUnit, threading.Event] = {}
        for candidate in candidates:
            try:
                requests[candidate] = self._requests(candidate, samples[0])
                reached = [*requests[candidate]]
                for sample in samples[1:] if candidate not in self.request.gated else ():
                    with suppress(Exception):  # the gate says what is wrong with it
                        reached += self._requests(candidate, sample)
                units.update({each.unit: threading.Event() for each in reached if each.unit not in units})
            except Exception as error:  # what a user's body raises
                unfit[candidate] = one_line(error)
        del samples
        if self.subject.on_gpu:
            threading.Thread(target=self._compile_ahead, args=[units], daemon=True).start()
        for candidate in candidates:
            if candidate in unfit:
                yield candidate, (unfit[candidate], False)
                continue
            if self.subject.on_gpu:
                for request in requests[candidate]:
                    units[request.unit].wait()
            yield candidate, self._fit(requests[candidate])

    def _compile_ahead(self, units: Mapping[CompilationUnit, threading.Event]) -> None:
        """Have other processes compile units into the cache, and set the event of each."""
        index = self.subject.device.index
        wanted: dict[BuildInputs, list[threading.Event]] = {}
        try:
            for unit, event in units.items():
                wanted.setdefault(unit.inputs(target_of(index, is_tile=unit.is_tile)), []).append(event)
            known = [each for each in wanted if each in _COMPILED]
            others = [each for each in wanted if each not in _COMPILED]
            for done in chain(known, compile_ahead(others, few=2)):  # templates that are worth tuning
                _COMPILED.add(done)
                for event in wanted[done]:
                    event.set()
        finally:  # what is not there is compiled here
            for event in units.values():
                event.set()

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
            return unit.on_gpu(self.subject.device.index)
        try:
            return unit.code(Target.parse("sm_80"))
        except CompileError as error:
            try:
                return unit.code(Target.parse("sm_90a"))  # a kernel for that alone
            except CompileError:
                raise error from None

    def _wasteful(self, candidate: int) -> str:
        """Return what a candidate needs far more of than the default, by the simulator; empty if nothing."""
        counted, usual = self._counts(candidate), self._counts(self.request.default)
        if counted is None or usual is None:
            return ""
        rows = (
            ("bank conflicts", counted.bank_conflicts, usual.bank_conflicts, counted.ideal_wavefronts),
            ("sectors of global memory", counted.global_sectors, usual.global_sectors, 0),
        )
        for what, count, of_default, spare in rows:
            if count > MAX_TIMES * of_default + spare:
                return f"{count:,} {what} in the simulator, and the default {of_default:,}"
        return ""

    def _counts(self, candidate: int) -> Counters | None:
        """Return the counters of a call with a sample; None where the simulator cannot run it."""
        if candidate not in self._counted:
            fitting = [case for case in self._cases if case.elements <= MAX_COUNTED]
            arch = "sm_{}{}".format(*capability(self.subject.device))
            run: Counters | None = None
            with suppress(DotcuError), simulate(arch=arch, on_finding="collect", checks=()) as simulated:
                sample = max(fitting, key=lambda case: case.elements).sample if fitting else None
                if sample is not None:
                    self.call_of(candidate)(sample.map_tensors(lambda tensor: tensor.detach().cpu()))
                    run = simulated.counters
            self._counted[candidate] = run
        return self._counted[candidate]

    def _wrong(self, candidate: int) -> str:
        """Return what `check` finds wrong with a candidate; empty if nothing."""
        with self.tunable.trying(self.tunable.space[candidate]):
            for trial in self._trials():
                for result in run_one(trial):
                    if isinstance(result, Failed):
                        evidence = result.evidence.partition("\n")[0]
                        said = f"{result.reason}: {evidence}" if evidence else result.reason
                        require_usable(self.subject.device)  # else the process that asks names the candidate
                        return f"{result.check} of {trial.id.case}: {said}"
        return ""

    def _trials(self) -> Iterator[Trial]:
        for case in self._cases:
            run = functools.partial(calling.look, self.subject, case, _oracle(self.subject, case))
            checks = ("numerics", *calling.SANITIZERS)
            yield Trial(id=trial_id(self.subject, "call", case), checks=checks, run=run)
        if self.request.full:
            yield from calling.plan_simulated(self.subject)

    @functools.cached_property
    def _cases(self) -> list[Case]:
        """Some of the author's samples in the dtype; at the full level all, and what is derived from them."""
        if self.request.full:
            cases = (case for case in choose(self.subject) if case.dtype == self._dtype)
            return list(filter(self.subject.takes, cases))
        given = self.subject.given(self._dtype)
        by_size = sorted(given, key=lambda case: case.elements)
        steps = max(1, min(GATED, len(by_size)) - 1)
        chosen = (
            {id(by_size[at * (len(by_size) - 1) // steps]) for at in range(steps + 1)} if given else set()
        )
        return [case for case in given if id(case) in chosen]


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

    def __init__(self, session: Session, timer: Timer, report: OnEvent) -> None:
        self._session, self._timer, self._report = session, timer, report
        subject = session.subject
        self._target = OperatorTarget(subject, session.workload.dtype)
        self._sets = session.workload.sets(SETS, session.request.seed, subject.device)
        self._values: InputValues = self._target.input_values(self._sets)
        self._calls: dict[int, Call] = {}

    def time(self, candidates: Sequence[int], number: int) -> Times:
        """Time some candidates in one round."""
        self._try_each(candidates)
        return self._time_round([each for each in candidates if each in self._calls], number)

    def choose(self, candidates: Sequence[int]) -> TuneChoice | None:
        """Time candidates in rounds, and choose; while there is time, once more without what is wrong."""
        request = self._session.request
        self._calls = {each: call for each, call in self._calls.items() if each in candidates}
        self._try_each(candidates)
        while self._calls:
            choice = search(
                sorted(self._calls),
                self._time_round,
                default=request.default,
                earlier=request.earlier,
                expired=lambda: self._session.expired,
            )
            if choice is None:
                return None
            self._verify(choice.winner)
            if choice.winner in self._calls:
                return choice
            if self._session.expired:
                return None
        return None

    def _reject(self, candidate: int, reason: str) -> None:
        if self._calls.pop(candidate, None) is not None:
            self._report({"event": "rejected", "candidate": candidate, "reason": reason, "here": True})

    def _try_each(self, candidates: Sequence[int]) -> None:
        """Call each once on the timed inputs: what does not come back is then known by name."""
        for candidate in (each for each in candidates if each not in self._calls):
            self._report({"event": "trying", "candidate": candidate})
            call = self._calls[candidate] = self._session.call_of(candidate)
            try:
                call(self._sets[0])
                self._timer.wait()
            except Exception as error:
                require_usable(self._target.device)
                self._reject(candidate, f"{self._session.workload.name}: {first_lines(error)}")

    def _verify(self, candidate: int) -> None:
        """Compare results on the timed inputs with the reference: of two calls, then of some that are timed.

        Only what is to be chosen is worth it: a reference in float64 takes longer than a round.
        """
        self._report({"event": "trying", "candidate": candidate})
        calls = {str(candidate): self._calls[candidate]}
        for _, why in verify(self._target, calls, self._sets[0], self._values).values():
            require_usable(self._target.device)
            self._reject(candidate, f"{self._session.workload.name}: {why}")
        if candidate in self._calls:
            self._time_round([candidate], 0, verified=True)

    def _time_round(self, candidates: Sequence[int], number: int, *, verified: bool = False) -> Times:
        """Time some of the candidates: bench's protocol, cold L2. Results of some calls may be verified."""
        self._report({"event": "timing", "round": number, "candidates": len(candidates)})
        calls = {str(each): self._calls[each] for each in candidates if each in self._calls}
        protocol, results = ROUNDS[min(number, len(ROUNDS) - 1)], TimedResults(self._target, self._values)
        conditions = Conditions(
            sets=self._sets, l2="cold", protocol=protocol, refresh=self._values,
            probe=results.take if verified else lambda name, sample, result: None,
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
