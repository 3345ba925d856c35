"""benchmarks/replay_worth.py without a GPU: its calls, what it compares, its mean."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
import replay_worth
from calls import timing
from calls.stats import spread
from calls.timing import Skipped
from quick import quick
from replay_worth import Worth

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_worth, "measure", partial(timing.measure, synchronize=int))


def test_every_overload_of_the_gallery_has_a_call() -> None:
    assert set(replay_worth.samples(CPU)) == set(replay_worth.overloads())


@pytest.mark.parametrize("name", quick(["dotcu::square.out"], ["dotcu::square.out", "dotcu::quantize_fp8"]))
def test_both_ways_of_an_operator_are_timed(name: str) -> None:
    with dotcu.simulate():
        overload, sample = replay_worth.overloads()[name], replay_worth.samples(CPU)[name]
        found = replay_worth.measure_worth(overload, sample, rounds=1, calls=1)
    assert isinstance(found, Worth)
    assert found.ratio is None  # nothing is replayed on a CPU


def test_results_that_differ_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter((torch.zeros(1), torch.ones(1)))

    def compute(operator: Any, sample: dotcu.Sample) -> list[Tensor]:
        return [next(results)]

    monkeypatch.setattr(replay_worth, "compute", compute)
    name = "dotcu::square"
    overload, sample = replay_worth.overloads()[name], replay_worth.samples(CPU)[name]
    found = replay_worth.measure_worth(overload, sample, rounds=1, calls=1)
    assert found == Skipped(name=name, reason="the results differ")


def test_the_mean_leaves_out_what_is_not_replayed() -> None:
    def worth(ratio: float | None) -> Worth:
        us = spread([1.0])
        return Worth(
            name="an operator",
            body_us=us,
            replayed_us=us,
            ratio=None if ratio is None else spread([ratio]),
            reason="",
        )

    rows = [worth(2.0), worth(None), worth(8.0), Skipped(name="another", reason="")]
    assert replay_worth.geometric_mean(rows) == pytest.approx(4.0)
    assert replay_worth.geometric_mean(rows[3:]) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="about a machine without a GPU")
def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["replay_worth.py"])
    assert replay_worth.main() == 3
    assert "GPU" in capsys.readouterr().err
