"""What is known, event by event; and how the page and the lines say it."""

from __future__ import annotations

import io
from typing import Literal

import msgspec
import pytest
from rich.console import Console

from dotcu.benchmark.reports.comparison import Change
from dotcu.benchmark.results import Block, CallTime, Measured
from dotcu.benchmark.statistics import Ratio
from dotcu.checking.results import CheckResult, Failed, Passed
from dotcu.serialize import plain
from dotcu.watching import watcher
from dotcu.watching.watcher import WatchEvent, WatchState, after, event_json, lines, page
from helpers.check_reports import identity

TRIAL = identity("ns::op/call/float32-s0")
WRONG = Failed(
    check="numerics",
    trial=TRIAL,
    reason="a kernel does not compile",
    evidence="a.cu:3:9: error: no y\n    x = y;\n        ^",
    place="a.cu:3",
    kind="CompileError",
)
RIGHT = Passed(check="numerics", trial=TRIAL, ratio=0.5)
MEASURED = Measured(
    contender="dotcu", l2="cold", by="cupti", blocks=(Block(calls=(CallTime(time_us=2.0, kernels=1),)),) * 3
)
TIMING = {
    "op": "ns::op", "case": "float32-s0", "median_us": 2.0, "measured": plain(MEASURED), "note": "",
    "change": plain(Change(verdict="faster", ratio=Ratio(value=0.5, low=0.49, high=0.51), confidence=0.99)),
}  # fmt: skip


def resources(registers: int) -> dict[str, object]:
    return {
        "kernel": "f", "arch": "sm_90a", "registers": registers,
        "smem_bytes": 0, "stack_bytes": 0, "spill_bytes": 0,
    }  # fmt: skip


def version(result: CheckResult, registers: int, *more: WatchEvent) -> list[WatchEvent]:
    return [
        {"event": "begun"},
        {"event": "planned", "device": "simulator", "overloads": ["ns::op"], "trials": 1},
        {"event": "trying", "trial": str(result.trial)},
        {"event": "tried", "trial": str(result.trial), "results": [result]},
        checked(isinstance(result, Passed)),
        {"event": "compiled", "kernels": [resources(registers)]},
        *more,
        {"event": "done"},
    ]


def checked(passed: bool, *not_tried: str) -> WatchEvent:
    return {"event": "checked", "passed": passed, "not_tried": list(not_tried), "seconds": 0.25}


TIMED: WatchEvent = {"event": "timed", "timings": [TIMING]}


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher.time, "time", lambda: 10.5)


def run(*happened: WatchEvent) -> WatchState:
    state = WatchState(target="ops.py", begun=0.0)
    for event in happened:
        state = after(event, state)
    return state


def saved(at: float = 10.0, *gone: str) -> WatchEvent:
    return {"event": "saved", "files": ["a.cu", *gone], "gone": list(gone), "at": at}


def drawn(state: WatchState, *, width: int = 100, color: Literal["standard"] | None = "standard") -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=color)
    with console.capture() as captured:
        console.print(page(state, width))
    return captured.get()


def test_the_first_verdict_is_timed_from_the_save() -> None:
    state = run(saved(), *version(RIGHT, 10))
    assert state.first_s == 0.5
    assert "first result after 0.50 s: ns::op/call/float32-s0 passed" in drawn(state)


def test_a_change_of_registers_is_reported_beside_the_last_version_that_held() -> None:
    happened = [*version(RIGHT, 10), saved(), *version(WRONG, 99), saved(), *version(RIGHT, 12)]
    assert "12 registers (was 10)" in drawn(run(*happened))


def test_a_version_that_was_abandoned_is_not_the_last_that_held() -> None:
    happened = [*version(RIGHT, 10), saved(), *version(RIGHT, 11)[:-1], saved(), *version(RIGHT, 12)]
    assert "12 registers (was 10)" in drawn(run(*happened))


def test_times_of_the_last_good_version_outlive_one_without() -> None:
    happened = [*version(RIGHT, 10, TIMED), saved(), *version(WRONG, 10), saved()]
    state = run(*happened)
    assert state.good_timings == [TIMING]


def test_a_caret_is_shown_below_the_line_at_fault() -> None:
    lines = drawn(run(saved(), *version(WRONG, 10))).splitlines()
    (place,) = (i for i, line in enumerate(lines) if "x = y;" in line)
    assert lines[place + 1].rstrip() == f"\x1b[1;31m{' ' * 12}^\x1b[0m"


def test_failures_of_one_cause_are_shown_once() -> None:
    second = msgspec.structs.replace(WRONG, check="fake", trial=identity("ns::op/fake/float32-s0"))
    state = run(
        saved(), *version(WRONG, 10)[:4], {"event": "tried", "trial": str(second.trial), "results": [second]}
    )
    assert drawn(state, color=None).count("a.cu:3:9: error: no y") == 1


def test_the_command_that_tries_again_can_be_copied_from_a_narrow_terminal() -> None:
    command = "dotcu check ops.py:op --device simulator --quick --seed 0 --only ns::op/call/float32-s0"
    wrong = msgspec.structs.replace(WRONG, reproduce=command)
    shown = drawn(run(saved(), *version(wrong, 10)), width=60, color=None).splitlines()
    (begin,) = (i for i, line in enumerate(shown) if "again: " in line)
    end = next(i for i in range(begin, len(shown)) if not shown[i].endswith("\\"))
    assert all(len(line) == 60 for line in shown[begin:end]), "no blanks follow a backslash"
    pasted = "\n".join(shown[begin : end + 1]).partition("again: ")[2]
    joined = pasted.replace("\\\n", "")  # as a shell does
    assert joined.split() == command.split()


def test_a_file_that_is_gone_is_not_called_saved() -> None:
    state = run(saved(10.0, "b.cuh"))
    assert "a.cu saved; b.cuh deleted\n" in drawn(state)


@pytest.mark.parametrize("code", ["x = y;", f"{'1 + ' * 20}y;"])
def test_a_caret_stays_below_its_place_on_a_narrow_terminal(code: str) -> None:
    at = code.index("y")
    evidence = f"a.cu:3:9: error: no y\n    {code}{' and more' * 9}\n    {' ' * at}^"
    wrong = msgspec.structs.replace(WRONG, evidence=evidence)
    lines = drawn(run(saved(), *version(wrong, 10)), width=40, color=None).splitlines()
    (place,) = (i for i, line in enumerate(lines) if line.strip() == "^")
    assert lines[place - 1][lines[place].index("^")] == "y"


def test_a_new_save_leaves_nothing_of_the_old_verdict() -> None:
    state = run(saved(), *version(WRONG, 10), saved())
    assert "FAILED" not in drawn(state)
    assert state.passed is None


def test_a_process_that_ended_names_the_trial() -> None:
    broken = {"event": "crashed", "reason": "the process died: SIGSEGV", "evidence": "words"}
    state = run(saved(), *version(RIGHT, 1)[:3], broken)
    assert state.trouble == f"the process died: SIGSEGV during {RIGHT.trial}\n    words"
    assert state.passed is False
    assert "SIGSEGV" in drawn(state)


def told(*happened: WatchEvent) -> list[str]:
    """All lines in a pipe, without their times."""
    state, found = WatchState(target="ops.py", begun=0.0), []
    for event in happened:
        before, state = state, after(event, state)
        found += [line.partition(" ")[2] for line in lines(state, before)]
    return found


def test_lines_tell_the_verdicts_the_needs_and_the_change() -> None:
    assert told(saved(), *version(RIGHT, 10, TIMED)) == [
        "a.cu saved",
        "first result after 0.50 s: ns::op/call/float32-s0 passed",
        "quick check passed: 1 trial, 0.2 s",
        "f on sm_90a: 10 registers",
        "ns::op float32-s0: 2.00 us; faster: 0.500 times the last version that passed (0.490 to 0.510)",
    ]


def test_lines_show_a_failure_once_and_all_again_after_a_save() -> None:
    other = msgspec.structs.replace(WRONG, trial=identity("ns::op/call/float32-s1"))
    again: WatchEvent = {"event": "tried", "trial": str(other.trial), "results": [other]}
    wrong = version(WRONG, 10)
    once = told(*wrong[:4], again)
    assert "\n".join(once).count("does not compile") == 1
    assert "\n".join(told(*wrong[:4], again, saved(), *wrong[:4])).count("does not compile") == 2


def test_nothing_tried_is_not_held() -> None:
    state = run(saved(), *version(RIGHT, 10)[:4], checked(False, "no samples"))
    assert "INCOMPLETE" in drawn(state)
    assert "no samples" in drawn(state)


def test_without_a_gpu_nothing_is_said_to_be_timed() -> None:
    *happened, compiled, _ = version(RIGHT, 10)
    assert "\ncompiling 0.5 s" in drawn(run(saved(), *happened), color=None)
    assert run(saved(), *happened, compiled).phase == "timing"


def test_results_are_printed_as_the_json_form_of_a_check_has_them() -> None:
    tried = version(WRONG, 10)[3]
    (result,) = event_json(tried)["results"]
    assert (result["trial"], result["outcome"], result["reason"]) == (
        str(WRONG.trial), "failed", "a kernel does not compile"
    )  # fmt: skip
    assert event_json(saved()) == saved()
