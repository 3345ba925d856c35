"""A reference that is to judge must agree with itself, and leave its inputs alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.catalogue import Level
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped
from dotcu.checking.trials import errors
from dotcu.checking.trials.reference import plan
from helpers.derivable_operators import operator as described
from helpers.derivable_operators import subject
from helpers.trial_operators import multiply, name, said, squaring


def test_a_right_reference_holds_for_every_sample_of_the_first_dtype() -> None:
    operator = squaring(dtypes=(torch.float32, torch.int32))
    quick = said(plan, operator, Level.QUICK)
    assert list(quick) == [("reference", f"float32-{word}") for word in ("s0", "s1", "s0-called")]
    assert set(quick.values()) == {Passed()}


def test_other_dtypes_come_with_the_levels() -> None:
    operator = squaring(dtypes=(torch.float32, torch.int32))
    assert len(said(plan, operator)) == 4
    assert len(said(plan, operator, Level.FULL)) == 5


def test_without_a_reference_it_is_said_what_still_runs() -> None:
    @dotcu.op(name())
    def square(x: Tensor) -> Tensor:
        return multiply(x, x)

    (outcome,) = said(plan, square).values()
    assert isinstance(outcome, Skipped)
    assert "no reference" in outcome.reason
    assert "every other check runs" in outcome.reason


def test_torchs_random_numbers_are_others_at_the_second_call() -> None:
    operator = squaring()
    operator.reference(lambda x: x * x + torch.rand(()))
    outcome = said(plan, operator)["reference", "float32-s0"]
    assert isinstance(outcome, Failed)
    assert outcome.reason == "the reference gives different values at a second call with equal inputs"
    assert outcome.evidence.startswith("output 0[0]: first ")


def test_a_reference_of_a_random_operator_may_draw_the_same_from_the_same_seed() -> None:
    operator = squaring(tags=(torch.Tag.nondeterministic_seeded,))
    operator.reference(lambda x: x * x + torch.rand(()))
    assert set(said(plan, operator).values()) == {Passed()}


@pytest.mark.parametrize("look", [plan, errors.plan], ids=["by itself", "for wrong calls"])
def test_a_reference_that_calls_its_operator_is_no_oracle(look: Any) -> None:
    operator = squaring()

    @operator.reference
    def _(x: Tensor) -> Tensor:
        with dotcu.simulate():
            return operator(x)

    short = {check: one for (check, _), one in said(look, operator).items() if isinstance(one, Failed)}
    assert set(short) == {"reference"}
    assert short["reference"].reason == "the reference calls an operator of dotcu"
    assert f"calls the operator {operator.qualified_name}" in short["reference"].evidence


def test_nan_agrees_with_nan() -> None:
    operator = squaring()
    operator.reference(lambda x: x * torch.nan)
    assert set(said(plan, operator).values()) == {Passed()}


def test_zeros_of_either_sign_differ() -> None:
    signs = iter([1.0, -1.0] * 10)
    operator = squaring()
    operator.reference(lambda x: torch.zeros_like(x) * next(signs))
    outcome = said(plan, operator)["reference", "float32-s0"]
    assert isinstance(outcome, Failed)
    assert outcome.evidence == "output 0[0]: first 0.0, then -0.0"


def test_another_shape_at_the_second_call_is_shown() -> None:
    sizes = iter([1, 2] * 10)
    operator = squaring()
    operator.reference(lambda x: x.new_zeros(next(sizes)))
    outcome = said(plan, operator)["reference", "float32-s0"]
    assert isinstance(outcome, Failed)
    assert outcome.evidence == "output 0: first torch.float32[1], then torch.float32[2]"


def test_a_changed_input_is_named_by_its_position() -> None:
    operator = squaring()
    operator.reference(lambda x: x.mul_(x).clone())
    outcome = said(plan, operator)["reference", "float32-s0"]
    assert isinstance(outcome, Failed)
    assert "changes the tensor at position 0" in outcome.reason


def test_what_is_declared_as_mutated_may_be_changed() -> None:
    @dotcu.op(name(), mutates_args=("x",))
    def square_(x: Tensor) -> None:
        x.copy_(multiply(x, x))

    @square_.reference
    def _(x: Tensor) -> None:
        x.mul_(x)

    @square_.samples
    def _(device: torch.device, dtype: torch.dtype) -> Any:
        yield dotcu.Sample(torch.randn(9, device=device, dtype=dtype))

    assert set(said(plan, square_).values()) == {Passed()}


def test_a_reference_that_fails_is_blamed_with_its_line() -> None:
    operator = squaring()
    operator.reference(lambda x: x * x[3:7])
    outcome = said(plan, operator)["reference", "float32-s0"]
    assert isinstance(outcome, Failed)
    assert outcome.reason == "the reference fails on a sample"
    assert "test_reference.py:" in outcome.evidence


def test_a_call_on_cpu_tensors_outside_of_the_simulator_is_made_too() -> None:
    def named_in_the_simulator(x: Tensor) -> Tensor:
        return x * 2

    made = described(named_in_the_simulator, dotcu.Sample(torch.ones(5)), reference=lambda x: 2 * x)
    assert called(made) == Passed()

    @made.fake
    def _(x: Tensor) -> Tensor:
        raise ValueError("no shapes here")

    outcome = called(made)
    assert isinstance(outcome, Failed)
    assert outcome.reason == "a call on CPU tensors, outside of the simulator, fails"
    assert "no shapes here" in outcome.evidence


def called(made: dotcu.operator.Operator) -> CheckResult:
    """The outcome of the trial of a plain call."""
    (trial,) = (trial for trial in plan(subject(made)) if trial.id.case.endswith("-called"))
    (outcome,) = trial.run()
    return outcome
