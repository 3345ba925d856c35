"""Operators that fool a benchmark are caught before they are timed, or by what they gave while they were."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import dotcu
from dotcu.benchmark.results import OWN
from dotcu.benchmark.targets import OperatorTarget, contenders, prepare_calls
from dotcu.benchmark.verify import TimedResults, verify
from dotcu.benchmark.workloads import Workload, workloads
from dotcu.checking import target as targets
from dotcu.checking.subject import Subject
from dotcu.operator import Operator
from helpers.trial_operators import device

FILE = Path(__file__).parent / "operators" / "bench.py"
CALLS = 8
COPIED = (2, 5)

BEFORE = {
    # by name: caught before anything is timed, and what is said
    "kept_by_address": "called again with other values",
    "kept_by_shape": "called again with other values",
    "kept_by_version": "called again with other values",
    "kept_by_first_element": "called again with other values",
    "kept_sum": "called again with other values",
    "only_the_first_time": "called again with other values",
    "in_batches": "is wrong: ",
    "in_a_thread": "is wrong: ",
    "lazy": "is a Lazy, not a torch.Tensor",
    "zeroes_its_input": "changes tensor 0 of its arguments",
}
DURING = {
    # caught by what was taken while it was timed
    "only_when_cold": "was right at first, and is wrong where it is timed",
    "rounds_when_warm": "was right at first, and is wrong where it is timed",
}
ON_A_GPU = ("on_another_stream", "turns_the_clock_back")


@pytest.fixture(scope="module")
def operators() -> Iterator[dict[str, Operator]]:
    found = dict(targets.resolve(str(FILE)))
    yield found
    for thread in _module().threads:
        thread.join()


def _module() -> ModuleType:
    return sys.modules[targets._PREFIX + FILE.stem]


def timed(operator: Operator) -> tuple[str, str]:
    """Return the error found before an operator is timed, and that found in calls as a timer makes them."""
    subject = Subject(overload=operator, device=device())
    (workload,) = workloads(subject)
    assert isinstance(workload, Workload)
    sets = workload.sets(2, 0, subject.device)
    target = OperatorTarget(subject, workload.dtype)
    values = target.input_values(sets)
    calls, _ = prepare_calls(contenders(subject))
    _, reason = verify(target, calls, sets[0], values).get(OWN, ("", ""))
    results = TimedResults(target, values)
    alive: list[Any] = []
    for turn in range(CALLS):
        sample = sets[turn % len(sets)]
        values(sample, turn)
        with target.context():
            alive.append(calls[OWN](sample))
            if turn in COPIED:
                results.take(OWN, sample, alive[-1])
    return reason, results.verify().get(OWN, "")


def test_every_operator_has_its_row(operators: dict[str, Operator]) -> None:
    assert {"sound", *BEFORE, *DURING, *ON_A_GPU} == set(operators)


def test_the_sound_one_may_be_timed(operators: dict[str, Operator]) -> None:
    assert timed(operators["sound"]) == ("", "")


@pytest.mark.parametrize("name", BEFORE)
def test_it_is_caught_before_anything_is_timed(name: str, operators: dict[str, Operator]) -> None:
    before, _ = timed(operators[name])
    assert BEFORE[name] in before


@pytest.mark.parametrize("name", DURING)
def test_it_is_caught_by_what_it_gave_while_it_was_timed(name: str, operators: dict[str, Operator]) -> None:
    before, after = timed(operators[name])
    assert before == ""
    assert DURING[name] in after


@pytest.mark.gpu
def test_work_that_nobody_waits_for_is_caught_while_other_streams_sleep(
    operators: dict[str, Operator],
) -> None:
    before, _ = timed(operators["on_another_stream"])
    assert "is wrong" in before


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*BEFORE, *DURING, "on_another_stream"])
def test_none_of_them_gets_a_figure(name: str, operators: dict[str, Operator]) -> None:
    report = dotcu.bench(operators[name], shapes="2^20")
    rows = [row for row in report.rows if row.key.contender == OWN]
    assert rows
    assert {row.status for row in rows} <= {"wrong", "refused"}, str(report)
    assert not report.passed


@pytest.mark.gpu
def test_a_clock_that_was_turned_back_is_not_believed(
    operators: dict[str, Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda.Event, "elapsed_time", torch.cuda.Event.elapsed_time)  # is put back
    honest = dotcu.bench(operators["sound"], shapes="2^24").rows[0]
    (fooled, *_) = dotcu.bench(operators["turns_the_clock_back"], shapes="2^24").rows
    assert honest.time is not None
    if fooled.status == "measured":
        assert fooled.time is not None
        assert fooled.time.median_us > honest.time.median_us / 2
    else:
        assert fooled.status == "refused"
