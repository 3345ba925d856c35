"""One worker after the other: what becomes of trials whose process dies, hangs or loses its GPU."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dotcu.checking import attendant
from dotcu.checking.attendant import Attendant
from dotcu.checking.outcome import FellShort, Held, Result, Skipped
from dotcu.checking.pieces import Piece, Pieces
from dotcu.checking.protocol import Request
from dotcu.checking.trial import Trial
from dotcu.errors import JitDisabled

WORKER = """
import json, os, sys, time

def tell(**answer): print(json.dumps(answer), flush=True)

def result(name, kind, **values):
    named = {"overload": "a::b", "check": "numerics", "trial": name, "seconds": 1.0, "outcome": kind}
    tell(result={**named, **values})

for line in sys.stdin:
    open(sys.argv[1], "a").write("asked\\n")
    for name in json.loads(line)["trials"]:
        kind = name.split("/")[1]
        if kind == "unknown": continue
        if kind == "raise":
            tell(**{"raise": ["JitDisabled", "no code is there"]})
            break
        tell(begin=name)
        if kind == "segfault":
            print("the last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), 11)
        if kind == "exit": os._exit(0)
        if kind == "hang": time.sleep(60)
        if kind == "fault":
            result(name, "FellShort", reason="it raises", evidence="", reproduce="")
            tell(unusable="a kernel trapped")
            sys.exit(1)
        if kind == "unusable":
            tell(unusable="a kernel trapped")
            sys.exit(1)
        result(name, "Held", note="", ratio=None)
        tell(end=name)
    else:
        tell(done=True)
"""
REQUEST = Request(target="x.py:b", overload="a::b", device="cpu", level=0, seed=0, trials=(), threads=1)


@pytest.fixture(autouse=True)
def starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Workers that do what the names of trials say; the file has a line for each request."""
    script, log = tmp_path / "worker.py", tmp_path / "log"
    script.write_text(WORKER)
    monkeypatch.setattr(attendant, "command", lambda: [sys.executable, str(script), str(log)])
    return log


def trial(kind: str, case: str = "c", overload: str = "a::b") -> Trial:
    return Trial(overload=overload, kind=kind, case=case, checks=("numerics", "bounds"), run=lambda: ())


def run(trials: Sequence[Trial], work: Pieces | None = None) -> list[Result]:
    piece = Piece(request=REQUEST, trials={each.name: each for each in trials})
    return list(Attendant(work or Pieces([piece])).results())


def said(results: Sequence[Result]) -> list[tuple[str, str, str]]:
    """The kind of trial, the check, and what it came to, of each result."""
    return [(r.trial.split("/")[1], r.check, type(r.outcome).__name__) for r in results]


def test_trials_that_end_well_give_what_the_worker_says() -> None:
    results = run([trial("good", "1"), trial("good", "2")])
    assert [r.trial for r in results] == ["a::b/good/1", "a::b/good/2"]
    assert all(r.outcome == Held() for r in results)


def test_a_death_is_that_trials_and_a_new_worker_goes_on(starts: Path) -> None:
    first, dead, last = run([trial("good", "1"), trial("segfault"), trial("good", "2")])
    assert said([first, dead, last]) == [
        ("good", "numerics", "Held"),
        ("segfault", "numerics", "FellShort"),
        ("good", "numerics", "Held"),
    ]
    assert isinstance(dead.outcome, FellShort)
    assert dead.outcome.reason == "the process died: SIGSEGV"
    assert dead.outcome.evidence == "the last words"
    assert len(starts.read_text().splitlines()) == 2


def test_a_process_that_ends_itself_is_told_with_its_status() -> None:
    (dead,) = run([trial("exit")])
    assert isinstance(dead.outcome, FellShort)
    assert dead.outcome.reason == "the process died: exit status 0"


def test_a_trial_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendant, "limit_s", lambda kind: 0.3 if kind == "hang" else 60.0)
    dead, good = run([trial("hang"), trial("good")])
    assert isinstance(dead.outcome, FellShort)
    assert dead.outcome.reason == "it did not end within 0.3 s"
    assert good.outcome == Held()


def test_a_gpu_that_is_lost_without_a_word_is_the_trials_fault() -> None:
    lost, good = run([trial("unusable"), trial("good")])
    assert isinstance(lost.outcome, FellShort)
    assert lost.outcome.reason == "the kernel left the GPU unusable"
    assert lost.outcome.evidence == "a kernel trapped"
    assert good.outcome == Held()


def test_a_fault_that_the_trial_has_told_itself_is_told_once() -> None:
    results = run([trial("fault"), trial("good")])
    assert said(results) == [("fault", "numerics", "FellShort"), ("good", "numerics", "Held")]


def test_after_three_deaths_the_rest_of_an_overload_is_not_tried(starts: Path) -> None:
    results = run([*(trial("exit", str(i)) for i in range(3)), trial("good")])
    assert said(results[:3]) == [("exit", "numerics", "FellShort")] * 3
    assert said(results[3:]) == [("good", "numerics", "Skipped"), ("good", "bounds", "Skipped")]
    assert isinstance(results[3].outcome, Skipped)
    assert "3 times" in results[3].outcome.why
    assert len(starts.read_text().splitlines()) == 3


def test_deaths_of_one_overload_are_none_of_another() -> None:
    other = Trial(overload="a::c", kind="good", case="", checks=("numerics",), run=lambda: ())
    dying = {each.name: each for each in (trial("exit", str(i)) for i in range(4))}
    work = Pieces([
        Piece(request=REQUEST, trials=dying),
        Piece(request=REQUEST.__class__(**{**vars(REQUEST), "overload": "a::c"}), trials={other.name: other}),
    ])  # fmt: skip
    assert said(run([], work))[-1] == ("good", "numerics", "Held")


def test_a_trial_that_the_worker_does_not_have_is_said_to_be_missing() -> None:
    good, *missing = run([trial("good"), trial("unknown")])
    assert good.outcome == Held()
    assert said(missing) == [("unknown", "numerics", "Skipped"), ("unknown", "bounds", "Skipped")]


def test_what_makes_every_trial_senseless_is_raised() -> None:
    with pytest.raises(JitDisabled, match="no code is there"):
        run([trial("raise")])
