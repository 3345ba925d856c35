"""Results of timed calls, verified afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dotcu.benchmark import verify as module
from dotcu.benchmark.targets import OperatorTarget
from dotcu.benchmark.verify import TimedResults
from dotcu.operator import Sample
from helpers.derivable_operators import operator, subject


def body(x: Tensor) -> Tensor:
    return x * 3


@pytest.fixture
def sets() -> list[Sample]:
    return [Sample(torch.randn(100)) for _ in range(2)]


@pytest.fixture
def timed(sets: list[Sample]) -> TimedResults:
    of = subject(operator(body, reference=body))
    target = OperatorTarget(of, torch.float32)
    return TimedResults(target, target.input_values(sets))


def test_results_are_those_of_their_own_turn_whatever_happens_to_them_later(
    timed: TimedResults, sets: list[Sample]
) -> None:
    for turn in (3, 4, 9):
        sample = sets[turn % 2]
        timed._values(sample, turn)
        result = 3 * sample.tensors[0]
        timed.take("right", sample, result)
        timed.take("late", sample, result - 1 if turn == 4 else result)
        result.zero_()
        sample.tensors[0].zero_()
    found = timed.verify()
    assert set(found) == {"late"}
    assert found["late"].startswith("was right at first, and is wrong where it is timed: 100 of 100")
    assert not timed._copies


def test_a_stored_result_is_found(timed: TimedResults, sets: list[Sample]) -> None:
    timed._values(sets[0], 1)
    kept = 3 * sets[0].tensors[0]
    for turn in (1, 2):
        timed._values(sets[0], turn)
        timed.take("kept", sets[0], kept)
    assert "is wrong where it is timed" in timed.verify()["kept"]


def test_what_cannot_be_read_is_reported(timed: TimedResults, sets: list[Sample]) -> None:
    timed.take("meta", sets[0], torch.empty(100, device="meta"))
    assert timed.verify() == {
        "meta": "cannot be read where it is timed: output 0 is on meta, its inputs on cpu"
    }


def test_nothing_is_copied_where_memory_is_short(
    timed: TimedResults, sets: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "free_bytes", lambda device: 4 * 400 - 1)
    timed.take("short", sets[0], torch.zeros(100))
    assert timed.verify() == {}
    assert timed.missed == {"short"}


def test_a_copy_that_runs_out_of_memory_is_missed(
    timed: TimedResults, sets: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed._values(sets[0], 1)
    timed.take("short", sets[0], 3 * sets[0].tensors[0])
    monkeypatch.setattr(module, "snapshot", out_of_memory)
    timed.take("short", sets[0], torch.zeros(100))
    assert timed.verify() == {}
    assert timed.missed == {"short"}


def test_judging_that_runs_out_of_memory_says_nothing_against_a_contender(
    timed: TimedResults, sets: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OperatorTarget, "find_errors", out_of_memory)
    timed.take("short", sets[0], torch.zeros(100))
    assert timed.verify() == {}
    assert timed.missed == {"short"}


def out_of_memory(*args: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_of_many_results_a_few_are_stored_and_the_latest_always(
    timed: TimedResults, sets: list[Sample]
) -> None:
    first_ones = set()
    for _ in range(20):
        for turn in range(1, 30):
            timed._values(sets[0], turn)
            timed.take("late", sets[0], 3 * sets[0].tensors[0] * (turn < 29))
        taken = [turn for turn, _ in timed._copies["late"]]
        assert len(taken) == module.COPIES
        assert taken[-1] == 29
        first_ones |= set(taken[:-1])
        assert "is wrong where it is timed" in timed.verify()["late"]
    assert len(first_ones) > 2 * module.COPIES, "the choice is random"


def test_where_nothing_can_be_compared_nothing_is_copied(sets: list[Sample]) -> None:
    of = subject(operator(body))
    target = OperatorTarget(of, None)
    timed = TimedResults(target, target.input_values(sets))
    timed.take("any", sets[0], torch.zeros(3))
    assert timed.verify() == {}
