"""Nothing is timed before it is right: what is said of contenders that fail, are wrong, or do harm."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dotcu.benchmark.results import OWN
from dotcu.benchmark.targets import Baseline, OperatorTarget, contenders, prepare_calls
from dotcu.benchmark.verify import Failures, verify
from dotcu.benchmark.workloads import Workload, workloads
from dotcu.checking.subject import Subject
from dotcu.operator import Operator
from helpers.trial_operators import device, multiply, squaring


def failures(operator: Operator, *against: Baseline) -> Failures:
    """Return the contenders that may not be timed, and why."""
    return verified(operator, *against)[0]


def verified(operator: Operator, *against: Baseline) -> tuple[Failures, OperatorTarget]:
    subject = Subject(overload=operator, device=device())
    case = workloads(subject)[0]
    assert isinstance(case, Workload)
    sets = case.sets(2, 0, subject.device)
    target = OperatorTarget(subject, case.dtype)
    calls, _ = prepare_calls(contenders(subject, against))
    return verify(target, calls, sets[0], target.input_values(sets)), target


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32])
def test_what_is_right_may_be_timed(dtype: torch.dtype) -> None:
    assert failures(squaring(dtypes=(dtype,)), "eager", torch.square) == {}


def test_each_wrong_contender_has_its_reason_and_the_others_may_be_timed() -> None:
    def raises(x: Tensor) -> Tensor:
        raise RuntimeError("out of luck")

    def cubes(x: Tensor) -> Tensor:
        return x * x * x

    def of_other_dtype(x: Tensor) -> Tensor:
        return x.double() ** 2

    found = failures(squaring(), raises, cubes, of_other_dtype, "eager")
    assert {name: status for name, (status, _) in found.items()} == {
        "raises": "failed", "cubes": "wrong", "of_other_dtype": "wrong",
    }  # fmt: skip
    assert "out of luck" in found["raises"][1]
    assert "elements are wrong; the largest error is" in found["cubes"][1]
    assert "its reference gives float32[20]" in found["of_other_dtype"][1]


def test_a_reference_that_does_not_take_float64_is_a_mark_of_all_that_it_judged() -> None:
    def narrow(x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            raise TypeError("float32 only")
        return x * x

    made = squaring()
    made.reference(narrow)
    found, target = verified(made, torch.square)
    assert found == {}
    assert "compared in float32 with wide bounds" in target.caveat


def harm(change: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    def harmful(x: Tensor) -> Tensor:
        result = x * x
        change(x)
        return result

    return harmful


def test_a_contender_that_changes_its_inputs_is_wrong() -> None:
    for change in (Tensor.zero_, lambda x: x[3:4].neg_()):
        found = failures(squaring(), harm(change))
        assert found == {"harmful": ("wrong", "changes tensor 0 of its arguments, which it must not")}


def test_an_operator_that_returns_its_input_is_wrong() -> None:
    def same(x: Tensor) -> Tensor:
        return x.view(x.shape)

    made = squaring(same)
    made.reference(torch.clone)
    status, reason = failures(made)[OWN]
    assert status in ("wrong", "failed")
    assert "memory" in reason


def test_a_fault_that_shows_only_at_the_second_call_is_wrong() -> None:
    calls: list[int] = []

    def once(x: Tensor) -> Tensor:
        calls.append(1)
        return x * x if len(calls) < 2 else x

    status, reason = failures(squaring(), once)["once"]
    assert status == "wrong"
    assert reason.startswith("is wrong, called again with other values in the same memory")


def test_a_reference_that_fails_leaves_nothing_to_be_timed() -> None:
    made = squaring()

    def refuses(x: Tensor) -> Tensor:
        raise ValueError("no such value")

    made.reference(refuses)
    status, reason = failures(made)[OWN]
    assert status == "failed"
    assert "the reference fails, so nothing can be verified" in reason
    assert "no such value" in reason


def test_without_a_reference_a_mark_says_so() -> None:
    made = squaring()
    made._reference = None
    found, target = verified(made)
    assert found == {}
    assert target.unverified == "not verified: the operator has no reference"


def test_elements_that_are_not_written_are_wrong() -> None:
    def half(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        multiply(x[:10], x[:10], out[:10])
        return out

    assert failures(squaring(half))[OWN][0] == "wrong"


def test_advice_of_torchs_compiler_is_not_passed_on() -> None:
    def advises(x: Tensor) -> Tensor:
        warnings.warn("you could be faster", UserWarning, stacklevel=2)
        return x * x

    assert failures(squaring(), advises) == {}
