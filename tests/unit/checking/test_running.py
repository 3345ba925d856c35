"""Running trials: what they raise is a result, except what no trial can make sense of."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dotcu import errors
from dotcu.checking import running
from dotcu.checking.outcome import FellShort, Held, Skipped, Verdict
from dotcu.checking.running import run, run_one
from dotcu.checking.subject import ReferenceCalls
from dotcu.checking.trial import Trial


def trial(work: Callable[[], Iterator[Verdict]], case: str = "case") -> Trial:
    return Trial(overload="a::b", kind="call", case=case, checks=("numerics", "written"), run=work)


def raising(error: BaseException, case: str = "case") -> Trial:
    def work() -> Iterator[Verdict]:
        yield "written", Held()
        raise error

    return trial(work, case)


def test_results_come_trial_by_trial_with_their_names() -> None:
    trials = [trial(lambda: iter([("numerics", Held()), ("written", Held())]), case) for case in ("s0", "s1")]
    found = [(result.trial, result.check) for result in run(trials)]
    names = ["a::b/call/s0", "a::b/call/s1"]
    assert found == [(name, check) for name in names for check in ("numerics", "written")]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(0)], ids=lambda error: type(error).__name__)
def test_what_a_trial_raises_counts_against_its_first_check_and_keeps_what_it_found(
    error: BaseException,
) -> None:
    written, raised = run_one(raising(error))
    assert (written.check, written.outcome) == ("written", Held())
    assert raised.check == "numerics"
    assert isinstance(raised.outcome, FellShort)
    assert raised.outcome.reason == f"it raises {type(error).__name__}"
    assert "test_running.py:" in raised.outcome.evidence


def test_a_kernels_fault_that_torch_finds_is_told_with_the_suspects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "fault_story", lambda error: f"the story of {type(error).__name__}")
    _, raised = run_one(raising(RuntimeError("CUDA error: unspecified launch failure")))
    assert isinstance(raised.outcome, FellShort)
    assert raised.outcome.evidence.endswith("\nthe story of RuntimeError")


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
    found = list(run(raising(error, case) for case in cases))
    reasons = [(r.trial.rpartition("/")[2], r.outcome) for r in found if not isinstance(r.outcome, Held)]
    assert [case for case, outcome in reasons if isinstance(outcome, FellShort)] == [cases[0], cases[2]]
    skipped = [(r.check, r.outcome) for r in found if isinstance(r.outcome, Skipped)]
    why = Skipped(why="its kernel does not compile")
    assert skipped == [("numerics", why), ("written", why)]


def test_a_reference_that_has_an_operator_compute_is_found_as_that() -> None:
    _, raised = run_one(raising(ReferenceCalls("the reference of a::b calls the operator a::b.")))
    assert raised.check == "reference"
    assert isinstance(raised.outcome, FellShort)
    assert "calls the operator a::b" in raised.outcome.evidence


def test_an_interrupt_is_no_finding() -> None:
    with pytest.raises(KeyboardInterrupt):
        run_one(raising(KeyboardInterrupt()))
