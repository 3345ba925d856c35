"""Running trials, in this process or in workers.

An illegal address ends CUDA for its process, a wrong pointer on the CPU ends the process, and a loop
without end never gives it back. So trials run in workers, where a fresh process can find the operator. A
trial that ends its worker has failed, and another worker goes on.

An error with which no trial can make sense, a UsageError or an EnvironmentFault, is raised wherever they run.
What a worker cannot plan is a failure of its overload alone.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import msgspec
import torch

from dotcu import settings, workers
from dotcu.checking.budget import Budget, LeftOut
from dotcu.checking.catalogue import TOOLS, Level
from dotcu.checking.planning import plan
from dotcu.checking.results import START_S, CheckResult, Failed, Skipped, Trial, TrialId, limit_s, result_of
from dotcu.checking.subject import ReferenceCalls, Subject
from dotcu.checking.target import WORKER, TrialRequest, request_for, resolve
from dotcu.errors import (
    CompileError,
    DotcuError,
    EnvironmentFault,
    FindingError,
    OperatorError,
    UsageError,
)
from dotcu.kernel.cuda import fault_story
from dotcu.serialize import from_plain
from dotcu.simulator import CHECKS
from dotcu.simulator.run import CHECK_OF
from dotcu.tracebacks import describe, first_lines, quiet
from dotcu.workers import Channel, Worker, WorkerCrash

# ---------------------------------------------------------------- in this process


def run_here(trials: Iterable[Trial]) -> Iterator[CheckResult | TrialId]:
    """Run trials in this process, and yield as `run`.

    Raises:
        EnvironmentFault: As `run`.
    """
    runner, faults = Runner(limited=True), dict[str, EnvironmentFault]()
    for trial in trials:
        try:
            if trial.overload not in faults:
                yield from runner.run(trial) or (trial.id,)
        except EnvironmentFault as fault:
            faults[trial.overload] = fault
    for each in faults.values():
        raise each


class Runner:
    """Runs trials, and skips those that an earlier one has shown to be useless.

    These are the trials of a dtype for which a kernel does not compile (it may for another one), and those of
    an overload of which several did not end.

    Args:
        limited: End a trial at its limit of time. In a worker the process that asks does so.
    """

    def __init__(self, *, limited: bool = False) -> None:
        self._limited = limited
        self._broken: set[TrialId] = set()
        self._endless: Counter[str] = Counter()

    def run(self, trial: Trial) -> list[CheckResult]:
        """Return the results of one trial."""
        of_dtype = TrialId(overload=trial.overload, dtype=trial.id.dtype)
        if of_dtype in self._broken:
            return _all_skipped(trial, "its kernel does not compile")
        if self._endless[trial.overload] >= MAX_CRASHES:
            return _all_skipped(trial, f"other trials of it did not end, {MAX_CRASHES} times")
        try:
            with _time_limit(limit_s(trial.kind)) if self._limited else nullcontext():
                results = run_one(trial)
        except TrialTimeout as error:
            self._endless[trial.overload] += 1
            return [_of(trial, Failed.raised(str(error), error), limit_s(trial.kind))]
        if any(isinstance(result, Failed) and result.reason == _NO_CODE for result in results):
            self._broken.add(of_dtype)
        return results


class TrialTimeout(BaseException):
    """A trial in this process reached its limit of time. Trials and bodies do not catch it: no Exception."""


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise TrialTimeout in the block after some seconds.

    Only the main thread can be interrupted. A timer that is due before, such as pytest-timeout's, stays.
    """
    due, interval = signal.getitimer(signal.ITIMER_REAL)
    if threading.current_thread() is not threading.main_thread() or 0 < due <= seconds:
        yield
        return

    def end(number: int, frame: object) -> None:
        raise TrialTimeout(f"it did not end within {seconds:g} s")

    handler, start = signal.signal(signal.SIGALRM, end), time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, seconds, 5.0)  # and again: an exception in a __del__ is lost
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)
        if due:
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, due - (time.monotonic() - start)), interval)


_NO_CODE = "a kernel does not compile"


def run_one(trial: Trial) -> list[CheckResult]:
    """Return the results of one trial; an error that it raises is one."""
    start = time.perf_counter()
    results: list[CheckResult] = []
    try:
        with quiet():
            results.extend(trial.run())
    except (Exception, SystemExit) as error:  # whatever a user's body or reference raises
        results += _raised(trial, error)
    except LeftOut as left:
        results.append(Skipped(reason=str(left), left_out=left.for_time))
    seconds = time.perf_counter() - start
    return [_of(trial, result, seconds) for result in results]


def _raised(trial: Trial, error: BaseException) -> Iterator[CheckResult]:
    """Yield the failure that an error is, by what it was raised from: torch wraps some of what it catches."""
    check, reason = "", f"it raises {type(error).__name__}"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (UsageError, EnvironmentFault)):
            raise cause from None
        if isinstance(cause, FindingError):
            yield from _finding(trial, cause)
            return
        if isinstance(cause, ReferenceCalls):
            check, reason = "reference", "the reference calls an operator of dotcu"
            break
        if isinstance(cause, CompileError):
            check, reason = "call", _NO_CODE
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    story = fault_story(error)
    told = describe(error) if isinstance(error, DotcuError) else first_lines(error)
    yield Failed.raised(reason, error, f"{told}\n{story}" if story else told, check=check)
    if reason == _NO_CODE and check not in trial.checks:
        yield Skipped(reason=f"its kernel does not compile: see {check}")


def _finding(trial: Trial, error: FindingError) -> Iterator[CheckResult]:
    """Yield the failure of the check that a finding is of, whichever trial made the call that has it."""
    kind = error.finding.kind
    of_run = CHECK_OF[kind]
    check = "inputs" if kind == "read-only" else f"sanitizer-{of_run}" if of_run in CHECKS else "call"
    yield Failed.raised(f"{kind} in the simulator", error, str(error), check=check)
    if check not in trial.checks:
        yield Skipped(reason=f"the simulator found a fault in its call: see {check}")


def _of(trial: Trial, result: CheckResult, seconds: float) -> CheckResult:
    """Return a result as that of a trial."""
    check = result.check or trial.checks[0]
    return msgspec.structs.replace(result, trial=trial.id, check=check, seconds=seconds)


def _all_skipped(trial: Trial, reason: str) -> list[CheckResult]:
    return [Skipped(trial=trial.id, check=check, reason=reason) for check in trial.checks]


# ---------------------------------------------------------------- in workers

MAX_WORKERS = {"cpu": 4, "cuda": 8}
"""The most workers at once, by the device's type. On a GPU each has a context of half a gigabyte."""

WORTH_WORKERS = {"cpu": 300, "cuda": 0}
"""Workers are started for more trials than this, by the device's type: each takes seconds to start."""

TRIALS_PER_WORKER = 75
"""The trials that make another worker worthwhile."""

TASKS_PER_WORKER = 4
"""Keeps the last batches small, so that the workers finish at about the same time."""

MAX_CRASHES = 3
"""The trials of an overload that may crash a worker, or not end, before the remainder is skipped."""


def run(subjects: Sequence[Subject], trials: Sequence[Trial]) -> Iterator[CheckResult | TrialId]:
    """Run trials, in workers where that is possible and worth it, and yield their results as they come.

    Of a trial that ends without a result, such as one of a call that there is not, it yields the identity.

    Raises:
        EnvironmentFault: The machine lacks something that an overload needs; once all others have been run.
    """
    requests = {subject.name: request for subject in subjects if (request := request_for(subject))}
    movable = [trial for trial in trials if trial.overload in requests]
    native = any(not subject.has_body and subject.name in requests for subject in subjects)
    jobs = jobs_for(subjects[0].device, len(movable), native=native) if subjects else 0
    if not jobs:
        yield from run_here(trials)
        return
    on_gpu = subjects[0].on_gpu
    tools = [trial for trial in movable if on_gpu and trial.kind in TOOLS]
    largest = [trial for trial in movable if trial.kind == "large" and on_gpu]  # takes most of a GPU
    others = [trial for trial in movable if trial not in largest and trial not in tools]
    begin_here = not (native or on_gpu or settings.current().check_apart)
    threads = max(1, torch.get_num_threads() // jobs)
    shared = {name: replace(request, threads=threads) for name, request in requests.items()}
    faults: list[EnvironmentFault] = []
    for stage in (
        run_in_workers(_split(shared, others, jobs), others, jobs, begin_here=begin_here),
        run_in_workers(_split(requests, largest, 1), largest, 1),
        _under_tools(requests, tools),
        run_here(trial for trial in trials if trial.overload not in requests),
    ):
        try:
            yield from stage
        except EnvironmentFault as fault:
            faults.append(fault)
    if faults:
        raise faults[0]


def _under_tools(requests: Mapping[str, TrialRequest], trials: Sequence[Trial]) -> Iterator[CheckResult]:
    if trials:
        from dotcu.checking import compute_sanitizer

        yield from compute_sanitizer.run(requests, trials)


def jobs_for(device: torch.device, count: int, *, native: bool = False) -> int:
    """Return the number of workers for some trials on a device; 0 if this process runs them itself.

    Args:
        native: Whether a library computes some, and a fault of it may end its process.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    apart = settings.current().check_apart
    if (
        not native
        and not apart
        and (count <= WORTH_WORKERS[device.type] or (device.type == "cpu" and cores < 2))
    ):
        return 0
    return min(MAX_WORKERS[device.type], cores, 1 + count // TRIALS_PER_WORKER) if count else 0


def _split(requests: Mapping[str, TrialRequest], trials: Sequence[Trial], jobs: int) -> list[TrialRequest]:
    """Return requests for trials: by overload, and in several parts where there are several workers.

    Parts share the budget that an operator has in a quick check in the simulator, and their trials differ in
    work, so that more is left out: where each worker has an operator, there are none.
    """
    own = {name: tuple(trial.id for trial in trials if trial.overload == name) for name in requests}
    used = [request for name, request in requests.items() if own[name]]
    budgeted = any(request.level == Level.QUICK and request.device == "cpu" for request in used)
    whole = jobs == 1 or (budgeted and len({request.target for request in used}) >= jobs)
    most = max(1, len(trials) if whole else -(-len(trials) // (TASKS_PER_WORKER * jobs)))
    tasks = [
        replace(request, trials=own[request.overload][start : start + most])
        for request in used
        for start in range(0, len(own[request.overload]), most)
    ]
    parts = Counter(request.target for request in tasks)
    return [replace(request, workers=min(jobs, parts[request.target])) for request in tasks]


def run_in_workers(
    tasks: Iterable[TrialRequest], trials: Iterable[Trial], jobs: int, *, begin_here: bool = False
) -> Iterator[CheckResult | TrialId]:
    """Run tasks in several workers, and yield as `run`.

    Args:
        trials: Those of all tasks.
        begin_here: Run trials in this process until a worker is ready.

    Raises:
        EnvironmentFault: As `run`.
    """
    queued, planned = deque(tasks), {trial.id: trial for trial in trials}
    pool = [Worker(WORKER) for _ in range(min(jobs, len(queued)))]
    crashes: Counter[str] = Counter()
    faults: dict[str, EnvironmentFault] = {}
    try:
        if begin_here:
            for worker in pool:
                worker.start()
            runner = Runner(limited=True)
            while queued and not any(worker.is_ready() for worker in pool):
                request = queued.popleft()
                if request.overload in faults:
                    continue
                try:
                    trial = planned[request.trials[0]]
                    yield from runner.run(trial) or (trial.id,)
                except EnvironmentFault as fault:
                    faults[request.overload] = fault
                if rest := request.trials[1:]:
                    queued.appendleft(replace(request, trials=rest))
        left = iter(lambda: queued.popleft() if queued else None, None)
        ask = functools.partial(_run_task, planned=planned, crashes=crashes, faults=faults)
        yield from workers.run_pool(pool, left, ask)
    finally:
        for worker in pool:
            worker.close()
    for each in faults.values():
        raise each


def _run_task(
    worker: Worker,
    request: TrialRequest,
    planned: Mapping[TrialId, Trial],
    crashes: Counter[str],
    faults: dict[str, EnvironmentFault],
) -> Iterator[CheckResult | TrialId]:
    """Have a worker run trials, again after each that ends it, and yield as `run`.

    Args:
        crashes: How often trials of an overload ended a worker.
        faults: What the machine lacks for an overload, of which no more is run then.
    """
    waiting = {each: planned[each] for each in request.trials}
    while waiting and request.overload not in faults:
        if crashes[request.overload] >= MAX_CRASHES:
            yield from _skip(waiting, f"other trials of it crashed their process {MAX_CRASHES} times")
            return
        try:
            yield from _ask(worker, request, waiting, crashes)
        except EnvironmentFault as fault:
            faults[request.overload] = fault
        except UsageError:
            raise
        except DotcuError as error:
            yield from _unplanned(waiting, error)


def _unplanned(waiting: dict[TrialId, Trial], error: DotcuError) -> Iterator[CheckResult]:
    """Yield the failure of an overload whose trials a worker cannot plan."""
    trial = waiting.pop(next(iter(waiting)))
    reason, _, evidence = str(error).partition("\n")
    yield _of(trial, Failed(reason=reason, evidence=evidence, kind=type(error).__name__), 0.0)
    yield from _skip(waiting, f"another process cannot plan its trials: see {trial.id}")


def _ask(
    worker: Worker, request: TrialRequest, waiting: dict[TrialId, Trial], crashes: Counter[str]
) -> Iterator[CheckResult | TrialId]:
    """Ask a worker for the trials that wait, and take out of these what was begun."""
    trial, results, start = None, list[CheckResult](), time.perf_counter()
    planned = dict(waiting)
    try:
        worker.send(replace(request, trials=tuple(waiting)))
        while (reply := worker.receive(START_S if trial is None else limit_s(trial.kind))) is not None:
            if "begin" in reply:
                trial, results = planned[from_plain(TrialId, reply["begin"])], []
                start = time.perf_counter()
                waiting.pop(trial.id, None)
            elif "result" in reply:
                results.append(result_of(reply["result"]))
                yield results[-1]
            else:
                if not results:
                    yield from_plain(TrialId, reply["end"])
                trial = None
    except WorkerCrash as crash:
        if worker.closed:
            waiting.clear()
            return
        crashes[request.overload] += 1
        if not any(isinstance(result, Failed) for result in results):
            trial = trial or waiting.pop(next(iter(waiting)))  # it died over the plan, or between two trials
            seconds = time.perf_counter() - start
            yield _of(trial, Failed(reason=crash.reason, evidence=crash.evidence), seconds)
    else:
        reason = "another process has no such trial: samples must be the same for the same torch seed"
        yield from _skip(waiting, reason)


def _skip(waiting: dict[TrialId, Trial], reason: str) -> Iterator[CheckResult]:
    for trial in waiting.values():
        yield from _all_skipped(trial, reason)
    waiting.clear()


class TrialWorker:
    """Runs trials one at a time, for pytest: in a worker, but in this process in the simulator."""

    def __init__(self) -> None:
        self._worker, self._runner = Worker(WORKER), Runner(limited=True)
        self._crashes: Counter[str] = Counter()

    def run(self, subject: Subject, trial: Trial) -> list[CheckResult]:
        """Return the results of one trial."""
        request = None if subject.simulated else request_for(subject)
        if request is None:
            return self._runner.run(trial)
        faults: dict[str, EnvironmentFault] = {}
        request = replace(request, trials=(trial.id,))
        told = list(_run_task(self._worker, request, {trial.id: trial}, self._crashes, faults))
        for fault in faults.values():
            raise fault
        return [each for each in told if not isinstance(each, TrialId)]

    def close(self) -> None:
        """End the worker, if there is one."""
        self._worker.close()


# ---------------------------------------------------------------- inside a worker


def serve(request: Any, channel: Channel) -> None:
    """Run the trials of a request.

    Replies `{"begin": id}`, `{"result": ...}` for each result and `{"end": id}`, trial by trial; of a bare
    call the end has the `kernels` that it has launched.
    """
    wanted = from_plain(TrialRequest, request)
    torch.set_num_threads(wanted.threads)
    runner = Runner()
    for trial in _plan_once(replace(wanted, trials=(), threads=0)):
        if not wanted.bare and trial.id not in wanted.trials:
            continue
        with channel.step(str(trial.id), limit_s(trial.kind)):
            channel.reply({"begin": trial.id})
            for result in runner.run(trial):
                channel.reply({"result": result})
        require_usable(torch.device(wanted.device))
        channel.reply({"end": trial.id, **_launched(wanted)})


def _launched(request: TrialRequest) -> dict[str, list[str]]:
    if not request.bare:
        return {}
    from dotcu.checking import compute_sanitizer

    return {"kernels": compute_sanitizer.launched(request.overload)}


@functools.lru_cache(maxsize=4)  # samples on the GPU stay in memory while their plan does
def _plan_once(request: TrialRequest) -> tuple[Trial, ...]:
    overloads = {
        overload.qualified_name: overload
        for operator in _operators(request.target)
        for overload in operator.overloads.values()
    }
    if request.overload not in overloads:
        raise OperatorError(
            f"{request.target} has no overload {request.overload!r} in a fresh process, where trials run.\n"
            "Define operators unconditionally, when their file is imported."
        )
    subject = Subject(
        overload=overloads[request.overload],
        device=torch.device(request.device),
        level=Level(request.level),
        seed=request.seed,
        budget=_budget(request.target, request.workers),
    )
    if request.bare:
        from dotcu.checking import compute_sanitizer

        return tuple(compute_sanitizer.bare(subject))
    return tuple(plan(subject))


@functools.cache
def _budget(target: str, workers: int) -> Budget:
    return Budget(share=1 / workers)


@functools.cache
def _operators(target: str) -> list[Any]:
    return [operator for _, operator in resolve(target)]


def require_usable(device: torch.device) -> None:
    """Refuse to go on where no more work can be done on a device in this process.

    A kernel's fault ends CUDA for its process. A capture that failed may leave torch's generator in its
    hands, which a random number shows.

    Raises:
        workers.WorkerCrash: It cannot; the message says why.
    """
    if device.type != "cuda":
        return
    try:
        torch.cuda.synchronize(device)
        torch.empty(1, device=device).uniform_()
        torch.cuda.synchronize(device)
    except RuntimeError as error:  # torch.AcceleratorError is one
        reason = fault_story(error) or f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        raise workers.WorkerCrash(reason) from error
