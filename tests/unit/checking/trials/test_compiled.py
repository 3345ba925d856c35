"""Operators under torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.catalogue import Level
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped
from dotcu.checking.trials.compiled import plan
from helpers.trial_operators import Said, differentiable, multiply, name, said, squaring


def by_way(outcomes: Said) -> dict[str, CheckResult]:
    return {case.partition("-s0-")[2]: outcome for (_, case), outcome in outcomes.items()}


def test_a_right_operator_compiles_once_for_all_sizes_or_once_for_each() -> None:
    outcomes = by_way(said(plan, differentiable(squaring())))
    assert outcomes == {
        "static": Passed(note="2 graphs for 3 calls"),
        "dynamic": Passed(note="1 graph for 3 calls"),
        "dynamic-backward": Passed(note="1 graph for 3 calls"),
    }


@pytest.mark.slow
def test_an_integer_dtype_is_tried_at_full() -> None:
    operator = squaring(dtypes=(torch.float32, torch.int32))
    cases = [case for _, case in said(plan, operator, Level.FULL) if "inductor" not in case]
    assert cases == ["float32-s0-static", "float32-s0-dynamic", "int32-s0-static", "int32-s0-dynamic"]


def test_a_body_that_reads_a_value_cannot_be_one_graph() -> None:
    operator = squaring(lambda x: multiply(x, x) if x.sum().item() > 0 else -multiply(x, x))
    for outcome in said(plan, operator).values():
        assert isinstance(outcome, Failed)
        assert outcome.reason == "fails under torch.compile and works in eager mode"
        assert "data-dependent" in outcome.evidence


def test_other_values_than_in_eager_mode_are_seen() -> None:
    calls = iter(range(1000))
    operator = squaring(lambda x: multiply(x, x) + next(calls))
    operator.fake(torch.empty_like)
    outcome = said(plan, operator)["compile", "float32-s0-static"]
    assert isinstance(outcome, Failed)
    assert outcome.reason == "gives other values under torch.compile than in eager mode"


def test_a_backward_that_cannot_be_traced_is_seen() -> None:
    operator = differentiable(squaring(), lambda grad, x: grad * 2 * x * float((x > 0).all()))
    outcomes = said(plan, operator)
    assert isinstance(outcomes["compile", "float32-s0-dynamic"], Passed)
    assert isinstance(outcomes["compile", "float32-s0-dynamic-backward"], Failed)


def test_out_is_written_under_compile_and_need_not_come_contiguous() -> None:
    operator = squaring()
    operator.samples(lambda place, dtype: [dotcu.Sample(torch.randn(5, 7, device=place, dtype=dtype).T)])

    @operator.overload("out", mutates_args=("out",))
    def _(x: Tensor, *, out: Tensor) -> None:
        out.copy_(multiply(x, x))

    outcomes = said(plan, operator, overload="out")
    assert all(isinstance(outcome, Passed) for outcome in outcomes.values()), outcomes


def test_lists_of_tensors_and_numbers_are_passed_as_the_author_wrote_them() -> None:
    @dotcu.op(name())
    def weighted(factors: list[Tensor], x: Tensor, *, power: int = 1) -> Tensor:
        for _ in range(power):
            x = multiply(factors[0], x)
        return x

    weighted.reference(lambda factors, x, power: factors[0] ** power * x)

    @weighted.samples
    def _(place: torch.device, dtype: torch.dtype) -> Any:
        a, b = (torch.randn(20, device=place, dtype=dtype) for _ in range(2))
        yield dotcu.Sample([a], b, power=3)

    outcomes = by_way(said(plan, weighted))
    assert outcomes["static"] == Passed(note="2 graphs for 3 calls")
    assert outcomes["dynamic"] == Passed(note="1 graph for 3 calls")


def test_a_size_that_the_operator_does_not_take_is_left_out() -> None:
    def body(x: Tensor) -> Tensor:
        if x.shape[0] > 20:
            raise ValueError("too long")
        return multiply(x, x)

    outcomes = said(plan, squaring(body, sizes=((20,),)))
    assert outcomes["compile", "float32-s0-static"] == Passed(note="1 graph for 2 calls")


@pytest.mark.slow
def test_a_dtype_that_torch_does_not_add_is_compiled_too() -> None:
    operator = squaring(lambda x: multiply(x.int(), x.int()).to(x.dtype), dtypes=(torch.uint16,))
    outcomes = said(plan, operator)
    assert all(isinstance(outcome, Passed) for outcome in outcomes.values()), outcomes


def test_without_samples_it_is_skipped() -> None:
    operator = squaring(sizes=())
    assert said(plan, operator) == {("compile", ""): Skipped(reason="no sample without empty tensors")}


def test_an_error_on_fake_tensors_is_reported_at_the_line_that_raises_it() -> None:
    operator = squaring()
    operator.fake(lambda x: x.new_empty(3, 4) @ x.new_empty(3, 4))
    outcome = next(outcome for outcome in said(plan, operator).values() if isinstance(outcome, Failed))
    assert "caused by tests/unit/checking/trials/test_compiled.py:" in outcome.evidence
    assert "must have same reduction dim" in outcome.evidence
    assert not any(word in outcome.evidence for word in ("Hint:", "Developer debug", "site-packages"))
    assert len(outcome.evidence.splitlines()) <= 4
