"""Public Triton kernels: how results are compared, and how kernels are counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from benchmarks.triton_corpora.__main__ import summary
from benchmarks.triton_corpora.case import Case, attempt, difference, results


def row(case: str, kernels: list[str], *, ran: bool, right: bool, **others: Any) -> dict[str, Any]:
    return {
        "case": case,
        "kernels": kernels,
        "ran": ran,
        "right": right,
        "findings": [],
        "faults": [],
        **others,
    }


def test_equal_results_do_not_differ() -> None:
    value = torch.tensor([1.0, torch.nan, torch.inf])
    assert not difference([value, None], [value.clone(), None], 0.0)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, 1.1])
def test_a_wrong_value_differs(wrong: float) -> None:
    assert "result 1 of 1 differs" in difference([torch.tensor([wrong])], [torch.ones(1)], 1e-3)


def test_a_missing_gradient_differs() -> None:
    assert "None" in difference([None], [torch.ones(1)], 1.0)
    assert "1 results" in difference([torch.ones(1)], [torch.ones(1), torch.ones(1)], 1.0)


def test_gradients_follow_results() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    square, gradient = results(lambda x: x * x, [x], "cpu")
    assert square == 9
    assert gradient is not None
    assert gradient != 0


def test_a_function_that_writes_into_its_argument_leaves_the_input() -> None:
    x = torch.ones(2)
    results(lambda x: x.zero_(), [x], "cpu")
    assert x.tolist() == [1, 1]


def test_a_case_that_launches_nothing_is_not_right() -> None:
    outcome = attempt(
        Case(name="none", inputs=lambda: [torch.ones(1)], library=lambda x: x, plain=lambda x: x), print
    )
    assert not outcome.right
    assert outcome.error == "no kernel was launched"


def test_a_kernel_is_right_if_all_its_cases_are() -> None:
    rows = [
        row("a", ["forward", "backward"], ran=True, right=True),
        row("b", ["forward"], ran=True, right=False),
        row("c", ["other"], ran=False, right=False, findings=["race k.py:3"]),
    ]
    counted = summary(rows)
    assert (counted["kernels"], counted["ran"], counted["right"], counted["findings"]) == (3, 2, 1, 1)
