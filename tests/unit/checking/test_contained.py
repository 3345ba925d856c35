"""Trials in workers: what one operator destroys leaves the others' trials alone."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

import dotcu
from dotcu.checking import attendant, contained, protocol
from dotcu.checking.catalogue import Level
from dotcu.checking.outcome import FellShort, Held, Result
from dotcu.checking.planning import plan
from dotcu.checking.subject import Subject
from dotcu.checking.target import resolve

FILE = """
import ctypes
import os
import time

import torch
from torch import Tensor

import dotcu

print("printed by the module")
PARENT = {parent}

def make(name, what):
    @dotcu.op(f"contained_test::{{name}}")
    def made(x: Tensor) -> Tensor:
        print("printed by the body")
        if os.getpid() == PARENT:
            raise RuntimeError("this is no process of its own")
        what()
        return x.clone()

    made.reference(torch.clone)

    @made.samples
    def _(device, dtype):
        yield dotcu.Sample(torch.ones(3, device=device, dtype=dtype))

    return made

aborts = make("aborts", os.abort)
exits = make("exits", lambda: os._exit(0))
reads_null = make("reads_null", lambda: ctypes.string_at(8))
hangs = make("hangs", lambda: time.sleep(600))
good = make("good", lambda: None)
"""
NAMES = ("aborts", "exits", "reads_null", "hangs", "good")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Result]]:
    path = tmp_path_factory.mktemp("contained") / "dying_ops.py"
    path.write_text(FILE.format(parent=os.getpid()))
    subjects = [
        Subject(overload=operator, device=torch.device("cpu"), level=Level.QUICK)
        for _, operator in resolve(str(path))
    ]
    trials = [trial for subject in subjects for trial in plan(subject) if trial.kind == "call"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attendant, "limit_s", lambda kind: 8.0)
        yield list(contained.run(subjects, trials, jobs=2))


def of(results: list[Result], name: str) -> list[Result]:
    return [result for result in results if result.overload == f"contained_test::{name}"]


REASONS = {
    "aborts": "the process died: SIGABRT",
    "exits": "the process died: exit status 0",
    "reads_null": "the process died: SIGSEGV",
    "hangs": "it did not end within 8 s",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REASONS)
def test_how_a_process_was_destroyed_is_said_of_the_first_check(results: list[Result], name: str) -> None:
    (result,) = [found for found in of(results, name) if found.trial.endswith("/call/float32-s0")]
    assert isinstance(result.outcome, FellShort)
    assert result.outcome.reason == REASONS[name]
    assert result.check == "numerics"
    assert result.trial == f"contained_test::{name}/call/float32-s0"


@pytest.mark.slow
def test_a_crash_names_the_users_line_and_none_of_ours(results: list[Result]) -> None:
    result = next(found for found in of(results, "reads_null") if isinstance(found.outcome, FellShort))
    assert isinstance(result.outcome, FellShort)
    assert "Segmentation fault" in result.outcome.evidence
    assert "dying_ops.py" in result.outcome.evidence
    assert "dotcu/operator" not in result.outcome.evidence


@pytest.mark.slow
def test_what_is_not_destroyed_is_checked_all_the_same(results: list[Result]) -> None:
    good = of(results, "good")
    assert {"numerics", "bounds", "inputs"} <= {result.check for result in good}
    assert all(isinstance(result.outcome, Held) for result in good)


def test_what_no_other_process_can_find_is_run_here() -> None:
    @dotcu.op("contained_test::here")
    def here(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    here.reference(torch.clone)
    here.samples(lambda device, dtype: [dotcu.Sample(torch.ones(2, device=device, dtype=dtype))])
    subject = Subject(overload=here, device=torch.device("cpu"), level=Level.QUICK)
    trials = [trial for trial in plan(subject) if trial.kind == "call"]
    found = list(contained.run([subject], trials, jobs=2))
    assert {type(result.outcome) for result in found} == {Held}


@pytest.mark.parametrize(("device", "count", "jobs"), [("cpu", 300, 0), ("cpu", 301, 2), ("cuda", 1, 1)])
def test_workers_are_started_where_they_are_worth_it(
    device: str, count: int, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    assert contained.jobs_for(torch.device(device), count) == jobs


def test_a_machine_with_many_cores_has_no_more_workers_than_the_table_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    assert contained.jobs_for(torch.device("cuda"), 10_000) == contained.MOST_WORKERS


def test_torchs_compiler_has_more_time_than_a_call() -> None:
    assert protocol.limit_s("compile") > protocol.limit_s("call")
