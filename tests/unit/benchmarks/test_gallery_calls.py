"""benchmarks/gallery_calls.py without a GPU: its operators, what it compares, its goals."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import gallery_calls
from calls import gradients, timing
from calls.gradients import BACKWARD, FORWARD, PAIRS, Pair
from calls.report import Timing
from calls.stats import judge
from calls.timing import Skipped
from dotcu import gallery

CPU = torch.device("cpu")
ELSEWHERE = {"attention", "attention_varlen", "attention_decode", "gemv", "grouped_matmul", "matmul_swiglu"}
"""What attention.py, matmul.py and gallery.py measure: operators of half types alone."""


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = partial(timing.measure, warm_calls=1, synchronize=int)
    monkeypatch.setattr(gallery_calls, "measure", quick)
    monkeypatch.setattr(gallery_calls, "CALLS", 1)


def test_every_differentiable_operator_is_compared_that_is_not_itself_a_gradient() -> None:
    names = [
        name for name in gallery.__all__ if "_tile" not in name and not name.startswith("reduce_scatter")
    ]
    found = {name for name in names if getattr(getattr(gallery, name), "has_backward", False)}
    gradients_themselves = {name for name in found if name.endswith("_backward")} | {"reverse_cumsum"}
    over_gpus = {name for name in found if name.startswith("all_reduce")}
    compared = {pair.name.split()[0] for pair in PAIRS}
    assert compared == found - gradients_themselves - over_gpus - ELSEWHERE


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_operators_and_torch_agree_without_a_gradient_and_with_one(pair: Pair) -> None:
    calls = gradients.prepare(pair, CPU)
    assert tuple(calls) == pair.ways
    for own, eager in calls.values():
        gradients.compare(own(), eager())


def test_calls_go_through_torch_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the operator's Python object was called")

    monkeypatch.setattr(type(gallery.add), "__call__", refuse)
    for pair in PAIRS[:2]:
        gradients.prepare(pair, CPU)


def test_an_operator_with_another_gradient_is_skipped_and_the_next_one_timed() -> None:
    add = PAIRS[0]
    wrong = replace(add, name="wrong", own=lambda a, b: torch.add(a, b.detach()))
    (*skipped, a, b, c, d), times = gallery_calls.measure_pairs([wrong, add], CPU, rounds=1)
    assert [(type(each), each.name) for each in skipped] == [
        (Skipped, f"wrong, {way}, dotcu") for way in (FORWARD, BACKWARD)
    ]
    assert all(isinstance(timing, Timing) for timing in (a, b, c, d))
    assert set(times) == {name(way) for way in add.ways for name in (add.own_name, add.eager_name)}


def timed(ratio_of_worst: float) -> dict[str, list[float]]:
    """Times in two rounds: the second takes twice as long, one operator so much longer than torch's."""
    operators = [pair for pair in PAIRS if not pair.bound]
    ratios = {operators[0].name: ratio_of_worst, operators[1].name: 1 / ratio_of_worst}
    times = {}
    for pair in operators:
        for way in pair.ways:
            ratio = ratios.get(pair.name, 1.0)
            times[pair.own_name(way)], times[pair.eager_name(way)] = [ratio, 2 * ratio], [1.0, 2.0]
    return times


def test_the_goals_are_for_the_geometric_mean_and_for_the_worst_operator() -> None:
    verdicts = [judge(goal, timed(1.35)) for goal in gallery_calls.goals()]
    figures = [verdict.figure.median for verdict in verdicts if verdict.figure]
    assert figures == pytest.approx([1.0, 1.35, 1.0, 1.35])
    assert [verdict.at_most for verdict in verdicts] == [1.0, 1.4, 1.1, 1.3]
    assert [verdict.held for verdict in verdicts][1::2] == [True, False]


def test_a_goal_does_not_hold_where_an_operator_was_not_measured() -> None:
    times = timed(1.0)
    del times[PAIRS[0].own_name(FORWARD)]
    mean, worst, *others = (judge(goal, times) for goal in gallery_calls.goals())
    assert not mean.held
    assert PAIRS[0].own_name(FORWARD) in worst.reason
    assert all(verdict.held for verdict in others)


def test_the_saved_figures_are_those_of_the_table_with_their_goals(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "device", lambda name: CPU)
    monkeypatch.setattr(gallery_calls, "machine", lambda: {"gpu": "none"})
    saved = tmp_path / "calls.json"
    assert gallery_calls.main(["--rounds", "1", "--only", "square", "--save", str(saved)]) == 0
    found = json.loads(saved.read_text())
    assert [row["name"] for row in found["results"]] == [
        f"square, {way}, {whose}" for way in (FORWARD, BACKWARD) for whose in ("dotcu", "torch eager")
    ]
    assert (found["version"], found["shape"], found["machine"]) == (1, [64, 256], {"gpu": "none"})


@pytest.mark.skipif(torch.cuda.is_available(), reason="about a machine without a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert gallery_calls.main([]) == 3
    assert "GPU" in capsys.readouterr().err
