"""Results that are kept from earlier calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.catalogue import Level
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped
from dotcu.checking.trials.fresh_values import plan
from dotcu.operator import Operator
from helpers.trial_operators import multiply, name, said, squaring


def keeping(key: Callable[[Tensor], Any], **options: Any) -> Operator:
    """An operator that computes once for each key."""
    kept: dict[Any, Any] = {}

    def body(x: Tensor) -> Tensor:
        if key(x) not in kept:
            kept[key(x)] = x, multiply(x, x)  # x too, so that no other tensor gets its address
        return kept[key(x)][1].clone()

    operator = squaring(body, **options)
    operator.fake(lambda x: torch.empty(x.shape, dtype=x.dtype, device=x.device))
    return operator


def only(outcomes: dict[tuple[str, str], CheckResult]) -> CheckResult:
    (outcome,) = outcomes.values()
    return outcome


def right_in(calls: int) -> Passed:
    return Passed(note=f"right in {calls} calls with other values")


def test_a_right_operator_holds_through_all_turns() -> None:
    assert only(said(plan, squaring())) == right_in(7)


def test_every_dtype_is_tried_and_when_quick_a_floating_and_an_integer_one() -> None:
    operator = squaring(dtypes=(torch.int64, torch.int32, torch.float32, torch.float64))
    assert len(said(plan, operator)) == 4
    cases = [case for _, case in said(plan, operator, Level.QUICK)]
    assert cases == ["float32-s0", "int64-s0"]


@pytest.mark.parametrize(
    ("key", "when"),
    [
        (lambda x: (x.data_ptr(), x.shape), "in the same memory"),
        (lambda x: x.shape, "in the same memory"),
        (lambda x: (x.data_ptr(), x._version), "that torch did not count"),
        (
            lambda x: (x.flatten()[0].item(), x.flatten()[-1].item(), x.shape),
            "between the same first and last",
        ),
    ],
    ids=["address", "shape", "version", "ends"],
)
def test_a_kept_result_is_seen_by_whatever_key(key: Callable[[Tensor], Any], when: str) -> None:
    outcome = only(said(plan, keeping(key)))
    assert isinstance(outcome, Failed)
    assert when in outcome.reason
    assert "output 0[" in outcome.evidence


def test_constant_samples_hide_nothing() -> None:
    operator = keeping(lambda x: x.shape)
    operator.samples(lambda place, dtype: [dotcu.Sample(torch.arange(20, device=place).to(dtype))])
    assert isinstance(only(said(plan, operator)), Failed)


def test_whole_numbers_and_truth_values_are_written_anew() -> None:
    operator = keeping(lambda x: x.shape, dtypes=(torch.int32,))
    assert isinstance(only(said(plan, operator)), Failed)


def test_without_a_reference_the_operator_on_copies_is_what_is_compared_with() -> None:
    operator = keeping(lambda x: (x.data_ptr(), x.shape))
    operator._reference = None
    outcome = only(said(plan, operator))
    assert isinstance(outcome, Failed)
    assert "another result for copies of its arguments" in outcome.evidence


def test_a_result_that_a_later_call_changes_is_seen() -> None:
    kept: dict[Any, Tensor] = {}

    def body(x: Tensor) -> Tensor:
        kept[x.shape] = kept.get(x.shape, multiply(x, x))
        return multiply(x, x, kept[x.shape])

    operator = squaring(body)
    operator.fake(torch.empty_like)
    outcome = only(said(plan, operator))
    assert isinstance(outcome, Failed)
    assert outcome.reason == "the result of the call with the first values is changed by a later call"


def test_an_overload_that_writes_is_called_with_out_reused_and_new() -> None:
    operator = squaring()
    written: list[int] = []

    @operator.overload("out", mutates_args=("out",))
    def _(x: Tensor, *, out: Tensor) -> None:
        written.append(out.data_ptr())
        multiply(x, x, out)

    assert only(said(plan, operator, overload="out")) == right_in(7)
    assert sorted(Counter(written).values()) == [1, 1, 5]


def test_an_overload_that_writes_nothing_the_second_time_is_seen() -> None:
    operator = squaring()
    calls: set[Any] = set()

    @operator.overload("out", mutates_args=("out",))
    def _(x: Tensor, *, out: Tensor) -> None:
        if out.data_ptr() not in calls:
            multiply(x, x, out)
        calls.add(out.data_ptr())

    outcome = only(said(plan, operator, overload="out"))
    assert isinstance(outcome, Failed)
    assert "with other values in the same memory" in outcome.reason


def test_an_operator_that_mutates_its_argument_is_called_again_on_new_values() -> None:
    @dotcu.op(name(), mutates_args=("x",))
    def square_(x: Tensor) -> None:
        x.copy_(multiply(x, x))

    @square_.reference
    def _(x: Tensor) -> None:
        x.mul_(x)

    square_.samples(lambda place, dtype: [dotcu.Sample(torch.rand(20, device=place, dtype=dtype))])
    assert only(said(plan, square_)) == right_in(7)


def test_a_first_call_that_is_wrong_is_left_to_other_checks() -> None:
    outcome = only(said(plan, squaring(lambda x: -multiply(x, x))))
    assert isinstance(outcome, Skipped)
    assert "as another check says" in outcome.reason


def test_a_reference_that_fails_is_left_to_its_own_check() -> None:
    operator = squaring()
    operator.reference(lambda x: x[0:3] * x[0:2])
    outcome = only(said(plan, operator))
    assert isinstance(outcome, Skipped)
    assert outcome.reason.startswith("the reference fails: RuntimeError")


def test_values_that_cannot_be_other_ones_are_skipped() -> None:
    operator = squaring(dtypes=(torch.int32,))
    operator.samples(lambda place, dtype: [dotcu.Sample(torch.ones(20, device=place, dtype=dtype))])
    assert only(said(plan, operator)) == Skipped(reason="no other values for its samples could be found")


def test_an_operator_that_draws_random_numbers_is_skipped() -> None:
    operator = squaring(tags=(torch.Tag.nondeterministic_seeded,))
    assert isinstance(only(said(plan, operator)), Skipped)


def test_an_expanded_input_is_written_anew_too() -> None:
    operator = squaring()
    operator.samples(
        lambda place, dtype: [dotcu.Sample(torch.rand(5, device=place, dtype=dtype).expand(4, 5))]
    )
    assert only(said(plan, operator)) == right_in(7)


def test_a_derived_size_is_tried_where_samples_have_but_one() -> None:
    seen: list[int] = []

    def body(x: Tensor) -> Tensor:
        seen.append(x.numel())
        return multiply(x, x)

    assert only(said(plan, squaring(body, sizes=((20,),)))) == Passed(
        note="right in 7 calls with other values"
    )
    assert 33 in seen


def test_a_derived_size_that_is_refused_is_left_out() -> None:
    def body(x: Tensor) -> Tensor:
        if x.numel() != 20:
            raise ValueError("takes 20 elements")
        return multiply(x, x)

    assert only(said(plan, squaring(body, sizes=((20,),)))) == Passed(
        note="right in 5 calls with other values"
    )


def test_what_is_wrong_in_fresh_memory_too_is_left_to_other_checks() -> None:
    operator = squaring(lambda x: multiply(x, x) + float(x.numel() == 33), sizes=((20,),))
    operator.fake(lambda x: torch.empty(x.shape, dtype=x.dtype, device=x.device))
    outcome = only(said(plan, operator))
    assert outcome == Skipped(reason="the same call on new tensors is wrong too, so no result was kept")
