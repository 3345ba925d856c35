"""Declared shardings beside whole calls."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.results import Failed, Passed, Skipped
from dotcu.checking.subject import Subject
from dotcu.checking.trials.sharding import join, part, plan
from dotcu.operator import Operator
from dotcu.operator.sharding import Sharding
from helpers.derivable_operators import operator


def scaled(x: Tensor, weight: Tensor) -> Tensor:
    return x * weight.sum()


def outcomes(op: Operator) -> list[Passed | Failed | Skipped]:
    subject = Subject(overload=op, device=torch.device("cpu"))
    return [outcome for trial in plan(subject) for outcome in trial.run()]


def declared(sharding: Sharding, *samples: dotcu.Sample) -> list[Passed | Failed | Skipped]:
    given = samples or (dotcu.Sample(torch.randn(5, 6), torch.randn(4)),)
    op = operator(scaled, *given, reference=scaled)
    op.sharding(sharding)
    return outcomes(op)


def test_a_rule_that_holds_passes_with_uneven_and_empty_parts_and_on_meshes() -> None:
    assert declared(("x:0 -> 0", "x:1 -> 1", "weight:0 -> sum", "x:sum -> sum")) == [Passed()]


@pytest.mark.parametrize(
    ("rule", "how"),
    [
        ("x:0 -> 1", "output 0 has parts that do not fit: float32[3, 6], float32[2, 6]"),
        ("weight:0 -> *", "output 0 on rank 1 has[0, 0]: got "),
        ("weight:0 -> 0", "output 0 is float32[10, 6] in place of float32[5, 6]"),
        ("weight:0 -> max", "output 0 has[0, 0]: got "),
    ],
)
def test_a_wrong_rule_fails_by_name_and_place(rule: str, how: str) -> None:
    (outcome,) = declared(rule)
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith(f"sharded by {rule!r}, over 2 ranks {how}")


def test_a_call_that_a_part_cannot_make_fails_with_its_error() -> None:
    def pairs(x: Tensor) -> Tensor:
        return x.view(-1, 2).sum(1)

    op = operator(pairs, dotcu.Sample(torch.randn(12)), reference=pairs)
    op.sharding("x:0 -> 0")
    (outcome,) = outcomes(op)
    assert isinstance(outcome, Failed)
    assert "over 12 ranks a rank's call fails: RuntimeError" in outcome.reason


def test_what_is_written_is_split_as_the_rule_says() -> None:
    def double(x: Tensor) -> None:
        x.mul_(2)

    op = operator(double, dotcu.Sample(torch.randn(5, 3)), reference=double, mutates_args=("x",))
    op.sharding("x:0 ->")
    assert outcomes(op) == [Passed()]


def test_without_a_declaration_nothing_is_tried() -> None:
    op = operator(scaled, dotcu.Sample(torch.randn(5, 6), torch.randn(4)), reference=scaled)
    assert outcomes(op) == [Skipped(reason="no sharding is declared")]


@pytest.mark.parametrize("place", [0, 1, None, "sum", "avg", "max", "min"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_parts_put_together_are_the_whole(place: int | str | None, ranks: int) -> None:
    x = torch.randn(5, 6, dtype=torch.float64)
    joined = join([[part(x, place, ranks, rank)] for rank in range(ranks)], [place])
    assert not isinstance(joined, str)
    torch.testing.assert_close(joined[0], x)
