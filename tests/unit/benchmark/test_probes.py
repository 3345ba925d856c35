"""What calls gave while they were timed, judged afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dotcu.benchmark import probes as module
from dotcu.benchmark.probes import Probes
from dotcu.benchmark.referee import OverloadReferee
from dotcu.benchmark.workloads.refresh import Refresh
from dotcu.operator import Sample
from subjects import operator, subject


def body(x: Tensor) -> Tensor:
    return x * 3


@pytest.fixture
def sets() -> list[Sample]:
    return [Sample(torch.randn(100)) for _ in range(2)]


@pytest.fixture
def probes(sets: list[Sample]) -> Probes:
    of = subject(operator(body, reference=body))
    return Probes(OverloadReferee(subject=of, dtype=torch.float32), Refresh(of, sets))


def test_results_are_those_of_their_own_turn_whatever_happens_to_them_later(
    probes: Probes, sets: list[Sample]
) -> None:
    for turn in (3, 4, 9):
        sample = sets[turn % 2]
        probes._refresh(sample, turn)
        result = 3 * sample.tensors[0]
        probes.take("right", sample, result)
        probes.take("late", sample, result - 1 if turn == 4 else result)
        result.zero_()
        sample.tensors[0].zero_()
    found = probes.judge()
    assert set(found) == {"late"}
    assert found["late"].startswith("was right at first, and is wrong where it is timed: 100 of 100")
    assert probes.judge() == {}, "copies are let go"


def test_a_kept_result_is_found(probes: Probes, sets: list[Sample]) -> None:
    probes._refresh(sets[0], 1)
    kept = 3 * sets[0].tensors[0]
    for turn in (1, 2):
        probes._refresh(sets[0], turn)
        probes.take("kept", sets[0], kept)
    assert "is wrong where it is timed" in probes.judge()["kept"]


def test_what_cannot_be_read_is_told(probes: Probes, sets: list[Sample]) -> None:
    probes.take("meta", sets[0], torch.empty(100, device="meta"))
    assert probes.judge() == {
        "meta": "cannot be read where it is timed: output 0 is on meta, its inputs on cpu"
    }


def test_nothing_is_copied_where_memory_is_short(
    probes: Probes, sets: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "free_bytes", lambda device: 4 * 400 - 1)
    probes.take("short", sets[0], torch.zeros(100))
    assert probes.judge() == {}
    assert probes.mark("short") == "not verified while it was timed: too little memory"
    assert probes.mark("other") == ""


def test_a_copy_that_runs_out_of_memory_is_missed(
    probes: Probes, sets: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    probes._refresh(sets[0], 1)
    probes.take("short", sets[0], 3 * sets[0].tensors[0])
    monkeypatch.setattr(module, "snapshot", out_of_memory)
    probes.take("short", sets[0], torch.zeros(100))
    assert probes.judge() == {}
    assert probes.mark("short") == "verified only in part while it was timed: too little memory"


def test_judging_that_runs_out_of_memory_says_nothing_against_a_contender(
    probes: Probes, sets: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OverloadReferee, "judge", out_of_memory)
    probes.take("short", sets[0], torch.zeros(100))
    assert probes.judge() == {}
    assert probes.mark("short") == "not verified while it was timed: too little memory"


def out_of_memory(*args: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_of_many_results_a_few_are_kept_and_the_latest_always(probes: Probes, sets: list[Sample]) -> None:
    first_ones = set()
    for _ in range(20):
        for turn in range(1, 30):
            probes._refresh(sets[0], turn)
            probes.take("late", sets[0], 3 * sets[0].tensors[0] * (turn < 29))
        taken = [one.turn for one in probes._copies["late"].all()]
        assert len(taken) == module.KEPT + 1
        assert taken[-1] == 29
        first_ones |= set(taken[:-1])
        assert "is wrong where it is timed" in probes.judge()["late"]
    assert len(first_ones) > 2 * module.KEPT, "which ones are kept is left to chance"


def test_where_nothing_can_be_compared_nothing_is_copied(sets: list[Sample]) -> None:
    of = subject(operator(body))
    probes = Probes(OverloadReferee(subject=of, dtype=None), Refresh(of, sets))
    probes.take("any", sets[0], torch.zeros(3))
    assert probes.judge() == {}
