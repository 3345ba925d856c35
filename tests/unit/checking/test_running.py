"""Trials, in this process and in workers: what they raise, and what ends their process, is a result."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu import errors, serialize
from dotcu.checking import planning, running
from dotcu.checking.catalogue import Level
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped, Trial, result_of
from dotcu.checking.running import TrialWorker, run_here, run_one
from dotcu.checking.subject import ReferenceCalls, Subject
from dotcu.checking.target import TrialRequest, resolve
from dotcu.simulator.run import Finding
from dotcu.workers import Worker, WorkerCrash
from helpers.check_reports import bare, identity
from helpers.derivable_operators import operator, subject


def trial(work: Callable[[], Iterator[CheckResult]], case: str = "case") -> Trial:
    return Trial(id=identity(f"a::b/call/{case}"), checks=("numerics", "written"), run=work)


def raising(error: BaseException, case: str = "case") -> Trial:
    def work() -> Iterator[CheckResult]:
        yield Passed(check="written")
        raise error

    return trial(work, case)


def test_results_come_trial_by_trial_with_their_names() -> None:
    trials = [
        trial(lambda: iter([Passed(check="numerics"), Passed(check="written")]), case)
        for case in ("s0", "s1")
    ]
    found = [(str(result.trial), result.check) for result in run_here(trials)]
    names = ["a::b/call/s0", "a::b/call/s1"]
    assert found == [(name, check) for name in names for check in ("numerics", "written")]


def test_a_trial_without_a_result_says_that_it_has_ended(log: Path) -> None:
    empty = trial(lambda: (), "none")
    assert list(run_here([empty])) == [empty.id]
    silent = named("silent")
    assert [*running.run_in_workers([asking(log, silent)], [silent], 1)] == [silent.id]
    simulated = subject(operator(negated, dotcu.Sample(torch.zeros(1))))
    assert TrialWorker().run(simulated, empty) == []


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(0)], ids=lambda error: type(error).__name__)
def test_what_a_trial_raises_counts_against_its_first_check_and_keeps_what_it_found(
    error: BaseException,
) -> None:
    written, raised = run_one(raising(error))
    assert (written.check, bare(written)) == ("written", Passed())
    assert raised.check == "numerics"
    assert isinstance(raised, Failed)
    assert raised.reason == f"it raises {type(error).__name__}"
    assert "test_running.py:" in raised.evidence


def test_a_kernels_fault_that_torch_finds_is_reported_with_the_suspects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "fault_story", lambda error: f"the story of {type(error).__name__}")
    _, raised = run_one(raising(RuntimeError("CUDA error: unspecified launch failure")))
    assert isinstance(raised, Failed)
    assert raised.evidence.endswith("\nthe story of RuntimeError")


@pytest.mark.parametrize("kind", [errors.UsageError, errors.ToolchainError, errors.JitDisabled])
@pytest.mark.parametrize("wrapped", [False, True])
def test_what_no_operator_can_do_without_is_no_finding(kind: type[errors.DotcuError], wrapped: bool) -> None:
    error: Exception = kind("the machine lacks it")
    if wrapped:
        cause, error = error, RuntimeError("from torch")
        error.__cause__ = cause
    with pytest.raises(kind, match="the machine lacks it"):
        run_one(raising(error))


@pytest.mark.parametrize("wrapped", [False, True])
def test_after_a_kernel_that_does_not_compile_its_other_trials_of_that_dtype_are_skipped(
    wrapped: bool,
) -> None:
    error: Exception = errors.CompileError("nonsense is undefined")
    if wrapped:
        cause, error = error, RuntimeError("from torch")
        error.__cause__ = cause
    cases = ("float32-s0", "float32-s1-n3", "float16-s0")
    found = list(run_here(raising(error, case) for case in cases))
    reasons = [(r.trial.case, bare(r)) for r in found if not isinstance(r, Passed)]
    assert [case for case, outcome in reasons if isinstance(outcome, Failed)] == [cases[0], cases[2]]
    skipped = [(r.check, bare(r)) for r in found if isinstance(r, Skipped)]
    why = Skipped(reason="its kernel does not compile")
    assert [pair for pair in skipped if "see call" not in str(pair)] == [("numerics", why), ("written", why)]
    assert {r.check for r in found if isinstance(r, Failed)} == {"call"}, "where a compile error belongs"


def test_a_reference_that_has_an_operator_compute_is_found_as_that() -> None:
    _, raised = run_one(raising(ReferenceCalls("the reference of a::b calls the operator a::b.")))
    assert raised.check == "reference"
    assert isinstance(raised, Failed)
    assert "calls the operator a::b" in raised.evidence


def test_an_interrupt_is_no_finding() -> None:
    with pytest.raises(KeyboardInterrupt):
        run_one(raising(KeyboardInterrupt()))


def endless(case: str) -> Trial:
    def work() -> Iterator[CheckResult]:
        while True:
            try:
                time.sleep(0.01)
            except Exception:  # as trials and bodies do
                yield Passed()

    return trial(work, case)


def test_a_trial_that_does_not_end_in_this_process_is_ended_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "limit_s", lambda kind: 0.1)
    good = trial(lambda: iter([Passed()]))
    hanging, passed = run_here([endless("hangs"), good])
    assert isinstance(hanging, Failed)
    assert (hanging.check, hanging.reason) == ("numerics", "it did not end within 0.1 s")
    assert "test_running.py:" in hanging.evidence
    assert bare(passed) == Passed()
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


@pytest.fixture
def alarms() -> Iterator[list[int]]:
    """Timers of another part of the program, such as pytest-timeout's, that came due."""
    due: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: due.append(number))
    yield due
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_timer_that_is_due_before_a_trials_limit_comes_due_in_it(alarms: list[int]) -> None:
    def waits() -> Iterator[CheckResult]:
        while not alarms:
            time.sleep(0.01)
        yield Passed()

    signal.setitimer(signal.ITIMER_REAL, 0.05)
    assert outcomes(list(run_here([trial(waits)]))) == [("call", "numerics", "Passed")]


def test_a_later_timer_goes_on_after_a_trial_with_the_time_that_is_left(alarms: list[int]) -> None:
    def takes_a_while() -> Iterator[CheckResult]:
        time.sleep(0.05)
        yield Passed()

    signal.setitimer(signal.ITIMER_REAL, 3600)
    list(run_here([trial(takes_a_while)]))
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    assert 0 < left <= 3600 - 0.05
    assert not alarms


def negated(x: torch.Tensor) -> torch.Tensor:
    return -x


def test_after_three_trials_that_do_not_end_the_rest_of_an_overload_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "limit_s", lambda kind: 0.05)
    other = replace(trial(lambda: iter([Passed()])), id=identity("a::c/call/case"))
    one_by_one = TrialWorker()  # as pytest runs them
    simulated = subject(operator(negated, dotcu.Sample(torch.zeros(1))))
    last = [one_by_one.run(simulated, endless(str(i))) for i in range(4)][-1]
    assert [type(result) for result in last] == [Skipped, Skipped]
    results = list(run_here([*(endless(str(i)) for i in range(4)), other]))
    assert outcomes(results) == [
        *[("call", "numerics", "Failed")] * 3,
        ("call", "numerics", "Skipped"),
        ("call", "written", "Skipped"),
        ("call", "numerics", "Passed"),
    ]


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        ("out-of-bounds", "sanitizer-bounds"),
        ("misaligned", "sanitizer-bounds"),
        ("null-pointer", "sanitizer-bounds"),
        ("read-only", "inputs"),
        ("uninitialized-read", "sanitizer-init"),
        ("race", "sanitizer-race"),
        ("barrier", "sanitizer-barrier"),
        ("deadlock", "sanitizer-barrier"),
        ("step-limit", "sanitizer-barrier"),
        ("trap", "call"),
        ("wgmma", "sanitizer-race"),
        ("exited-block", "sanitizer-bounds"),
        ("division-by-zero", "call"),
    ],
)
def test_each_kind_of_finding_is_of_one_check_whichever_trial_has_it(kind: str, check: str) -> None:
    finding = Finding(
        kind=kind, kernel="k", file="k.cu", line=3, block=(0, 0, 0), thread=(0, 0, 0), lanes=1,
        address_of="x", message="so and so",
    )  # fmt: skip
    wrapped = RuntimeError("from torch")
    wrapped.__cause__ = errors.FindingError(finding)
    _, failed, *others = run_one(replace(raising(wrapped), id=identity("a::b/fake/case"), checks=("fake",)))
    assert failed.check == check
    assert isinstance(failed, Failed)
    assert failed.evidence.startswith("k.cu:3: ")
    why = Skipped(reason=f"the simulator found a fault in its call: see {check}")
    assert [(r.check, bare(r)) for r in others] == [("fake", why)]


# ---------------------------------------------------------------- in workers: fakes, which need no torch


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file with a line for each request to workers, which do what the kinds of trials say."""
    monkeypatch.setattr(running, "WORKER", "helpers.fake_workers:trials")
    return tmp_path / "log"


def named(kind: str, case: str = "c", overload: str = "a::b") -> Trial:
    return Trial(id=identity(f"{overload}/{kind}/{case}"), checks=("numerics", "bounds"), run=lambda: ())


def request_for(log: Path, overload: str = "a::b") -> TrialRequest:
    return TrialRequest(
        target=str(log), overload=overload, device="cpu", level=0, seed=0, trials=(), threads=1
    )


def in_workers(log: Path, *trials: Trial) -> list[CheckResult]:
    return list(running.run_in_workers([asking(log, *trials)], trials, 1))


def asking(log: Path, *trials: Trial) -> TrialRequest:
    return replace(request_for(log, trials[0].overload), trials=tuple(trial.id for trial in trials))


def outcomes(results: Sequence[CheckResult]) -> list[tuple[str, str, str]]:
    """The kind of trial, the check and the outcome of each result."""
    return [(r.trial.kind, r.check, type(r).__name__) for r in results]


def test_a_crash_is_that_trials_failure_and_a_new_worker_goes_on(log: Path) -> None:
    first, crashed, last = in_workers(log, named("good", "1"), named("segfault"), named("good", "2"))
    assert (bare(first), bare(last)) == (Passed(), Passed())
    assert crashed.check == "numerics"
    assert isinstance(crashed, Failed)
    assert crashed.reason == "the process died: SIGSEGV"
    assert crashed.evidence.startswith("the last words\n")
    assert len(log.read_text().splitlines()) == 2


def test_a_trial_that_does_not_end_is_ended(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "limit_s", lambda kind: 0.3 if kind == "hang" else 60.0)
    hanging, good = in_workers(log, named("hang"), named("good"))
    assert isinstance(hanging, Failed)
    assert hanging.reason == "it did not end within 0.3 s"
    assert bare(good) == Passed()


def test_a_gpu_that_is_lost_is_the_trials_failure_unless_it_has_failed_already(log: Path) -> None:
    lost, failed, good = in_workers(log, named("unusable"), named("fault"), named("good"))
    assert isinstance(lost, Failed)
    assert (lost.reason, lost.evidence) == (
        "the kernel left the GPU unusable", "a kernel trapped"
    )  # fmt: skip
    assert bare(failed) == Failed(reason="it raises")
    assert bare(good) == Passed()


def test_after_three_crashes_the_rest_of_an_overload_is_skipped_and_no_other(log: Path) -> None:
    crashing = [*(named("exit", str(i)) for i in range(3)), named("good")]
    other = named("good", overload="a::c")
    tasks = [asking(log, *crashing), asking(log, other)]
    results = list(running.run_in_workers(tasks, [*crashing, other], 1))
    assert outcomes(results) == [
        *[("exit", "numerics", "Failed")] * 3,
        ("good", "numerics", "Skipped"),
        ("good", "bounds", "Skipped"),
        ("good", "numerics", "Passed"),
    ]
    assert "3 times" in str(bare(results[3]))
    assert len(log.read_text().splitlines()) == 4


def test_a_trial_that_the_worker_does_not_have_is_skipped(log: Path) -> None:
    good, *missing = in_workers(log, named("good"), named("unknown"))
    assert bare(good) == Passed()
    assert outcomes(missing) == [("unknown", "numerics", "Skipped"), ("unknown", "bounds", "Skipped")]


def test_an_error_that_no_trial_can_do_without_is_raised(log: Path) -> None:
    with pytest.raises(errors.JitDisabled, match="no code is there"):
        in_workers(log, named("raise"))


def test_an_overload_that_another_process_cannot_plan_fails_alone(log: Path) -> None:
    trials = [named("unplannable"), named("good"), named("good", overload="a::c")]
    tasks = [asking(log, *trials[:2]), asking(log, trials[2])]
    failed, *others = running.run_in_workers(tasks, trials, 1)
    assert isinstance(failed, Failed)
    assert (failed.reason, failed.evidence) == ("its samples fail", "Mend them.")
    assert (failed.trial.kind, failed.kind) == ("unplannable", "OperatorError")
    assert outcomes(others) == [
        ("good", "numerics", "Skipped"),
        ("good", "bounds", "Skipped"),
        ("good", "numerics", "Passed"),
    ]


def test_trials_begin_here_until_a_worker_is_ready(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = iter([False, False, True])
    monkeypatch.setattr(Worker, "is_ready", lambda worker: next(here, True))
    trials = [trial(lambda: iter([Passed(note="here")]), str(i)) for i in range(2)] + [named("good")]
    results = list(running.run_in_workers([asking(log, *trials)], trials, 1, begin_here=True))
    assert [str(getattr(bare(r), "note", "")) for r in results] == ["here", "here", ""]


def test_what_the_machine_lacks_before_a_worker_is_ready_leaves_the_other_operators_checked(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "is_ready", lambda worker: False)
    lacking = raising(errors.ToolchainError("no compiler"))
    never = trial(lambda: pytest.fail("it ran"), "never")
    other = replace(trial(lambda: iter([Passed()])), id=identity("a::c/call/case"))
    tasks = [asking(log, lacking, never), asking(log, never), asking(log, other)]
    results: list[CheckResult] = []
    with pytest.raises(errors.ToolchainError, match="no compiler"):
        results.extend(running.run_in_workers(tasks, [lacking, never, other], 1, begin_here=True))
    assert [(result.trial.overload, bare(result)) for result in results] == [("a::c", Passed())]


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_trial_is_in_one_task_of_its_overload(log: Path, jobs: int) -> None:
    names = ("a::b", "a::c")
    trials = [named("call", str(i), name) for i in range(50) for name in names]
    tasks = running._split({name: request_for(log, name) for name in names}, trials, jobs)
    asked = [each for request in tasks for each in request.trials]
    assert sorted(map(str, asked)) == sorted(str(each.id) for each in trials)
    assert all(each.overload == request.overload for request in tasks for each in request.trials)
    assert max(len(request.trials) for request in tasks) == (50 if jobs == 1 else 9)
    assert running._split({}, [], jobs) == []


def quick_tasks(
    log: Path, operators: int, overloads: int = 1, level: Level = Level.QUICK
) -> list[TrialRequest]:
    """The tasks of a check in the simulator, of 53 trials of each overload, for two workers."""
    names = [(f"{log}:op{i}", f"a::op{i}.o{k}") for i in range(operators) for k in range(overloads)]
    requests = {
        name: replace(request_for(log, name), target=target, level=int(level)) for target, name in names
    }
    trials = [named("call", str(i), name) for name in requests for i in range(53)]
    return running._split(requests, trials, 2)


@pytest.mark.parametrize("operators", [2, 5, 7])
def test_an_operator_among_others_has_its_whole_budget_in_a_quick_check(log: Path, operators: int) -> None:
    assert [(len(request.trials), request.workers) for request in quick_tasks(log, operators)] == [
        (53, 1)
    ] * operators


def test_workers_with_trials_of_one_operator_share_its_budget(log: Path) -> None:
    assert {request.workers for request in quick_tasks(log, 1)} == {2}
    assert {request.workers for request in quick_tasks(log, 3, overloads=2)} == {2}
    assert len(quick_tasks(log, 2, level=Level.STANDARD)) == 8, "other levels have no budget"


@pytest.mark.parametrize(
    ("device", "count", "cores", "jobs"),
    [("cpu", 300, 2, 0), ("cpu", 301, 2, 2), ("cpu", 301, 1, 0), ("cuda", 1, 2, 1), ("cuda", 10_000, 16, 8)],
)
def test_workers_are_started_where_they_are_worth_it(
    device: str, count: int, cores: int, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    assert running.jobs_for(torch.device(device), count) == jobs


def test_torchs_compiler_has_more_time_than_a_call() -> None:
    assert running.limit_s("compile") > running.limit_s("call")


# ---------------------------------------------------------------- inside a worker, and with a real one

FILE = """
import ctypes
import os
import time

import torch
from torch import Tensor

import dotcu

print("printed by the module")
PARENT = {parent}

def define(name, act):
    @dotcu.op(f"{namespace}::{{name}}")
    def body(x: Tensor) -> Tensor:
        print("printed by the body")
        if os.getpid() == PARENT and name != "good":
            raise RuntimeError("this is no process of its own")
        act()
        return x.clone()

    body.reference(torch.clone)

    @body.samples
    def _(device, dtype):
        for n in (3, 2):
            yield dotcu.Sample(torch.ones(n, device=device, dtype=dtype))

    return body

aborts = define("aborts", os.abort)
reads_null = define("reads_null", lambda: ctypes.string_at(8))
good = define("good", lambda: None)
"""


def define(folder: Path, namespace: str) -> list[Subject]:
    path = folder / f"{namespace}.py"
    path.write_text(FILE.format(parent=os.getpid(), namespace=namespace))
    return [
        Subject(overload=operator, device=torch.device("cpu"), level=Level.QUICK)
        for _, operator in resolve(str(path))
    ]


class ListChannel:
    """Keeps replies."""

    def __init__(self) -> None:
        self.replies: list[dict[str, object]] = []

    def reply(self, value: object) -> None:
        self.replies.append(serialize.plain(value))

    def step(self, name: str, limit_s: float) -> object:
        return contextlib.nullcontext()


def served(request: TrialRequest) -> list[dict[str, object]]:
    channel = ListChannel()
    running.serve(serialize.plain(request), channel)  # type: ignore[arg-type]
    return channel.replies


@pytest.fixture(scope="module")
def request_of_good(tmp_path_factory: pytest.TempPathFactory) -> TrialRequest:
    *_, subject = define(tmp_path_factory.mktemp("served"), "running_served")
    request = running.request_for(subject)
    assert request is not None
    return replace(request, trials=(identity(f"{subject.name}/call/float32-s1"),))


def test_a_worker_runs_the_trials_that_are_named_and_no_others(request_of_good: TrialRequest) -> None:
    (name,) = request_of_good.trials
    begin, *results, end = served(request_of_good)
    assert (begin, end) == ({"begin": serialize.plain(name)}, {"end": serialize.plain(name)})
    found = [result_of(reply["result"]) for reply in results]
    assert {result.trial for result in found} == {name}
    assert {"numerics", "bounds", "inputs"} <= {result.check for result in found}


def test_a_lost_gpu_ends_the_worker(request_of_good: TrialRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: object) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nCompile with ...")

    running.require_usable(torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    with pytest.raises(WorkerCrash, match=r"^AcceleratorError: CUDA error: an illegal.*encountered$"):
        running.require_usable(torch.device("cuda", 0))


def test_an_overload_that_is_not_there_is_refused(request_of_good: TrialRequest) -> None:
    with pytest.raises(errors.OperatorError, match="other::name"):
        served(replace(request_of_good, overload="other::name"))


@pytest.mark.slow
def test_what_one_operator_destroys_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "jobs_for", lambda *given, **native: 1)
    monkeypatch.setattr(Worker, "is_ready", lambda worker: True)
    subjects = define(tmp_path, "running_destroyed")
    trials = [each for subject in subjects for each in planning.plan(subject) if each.id.case == "float32-s0"]
    trials = [each for each in trials if each.kind == "call"]
    aborted, null, *good = running.run(subjects, trials)
    assert isinstance(aborted, Failed)
    assert aborted.reason == "the process died: SIGABRT"
    assert isinstance(null, Failed)
    assert null.reason == "the process died: SIGSEGV"
    assert "running_destroyed.py" in null.evidence, "a crash names the user's line"
    assert "dotcu/operator" not in null.evidence, "and none of ours"
    assert len(good) > 3
    assert all(isinstance(result, Passed) for result in good)


def test_an_operator_that_no_other_process_can_find_is_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "jobs_for", lambda *given, **native: 2)

    @dotcu.op("running_test::here")
    def here(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    here.reference(torch.clone)
    here.samples(lambda device, dtype: [dotcu.Sample(torch.ones(2, device=device, dtype=dtype))])
    subject = Subject(overload=here, device=torch.device("cpu"), level=Level.QUICK)
    trials = [each for each in planning.plan(subject) if each.kind == "call"]
    assert {type(result) for result in running.run([subject], trials)} == {Passed}
