"""Operators that are wrong in a rare way are caught when quick, each by the trial that is made for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu.checking.target import resolve
from helpers.quick_cases import quick

OPERATORS = dict(resolve(str(Path(__file__).parent / "operators" / "judged.py")))

CAUGHT = {
    # by name: the trial that it is caught by, and the check that it fails there
    "outer_order_ignored": ("call/float32-s0-outer-swapped", "sanitizer-bounds"),
    "gradient_order_ignored": ("gradients/float32-s0-swapped", "gradients"),
    "gradient_rows_ignored": ("gradients/float32-s0-swapped", "gradients"),
    "gradient_of_a_matrix": ("gradients/float32-s0-transposed", "gradients"),
    "writes_the_gradient": ("gradients/float32-s0-dense", "gradients"),
    "writes_a_saved_input": ("gradients/float32-s0-dense", "gradients"),
    "writes_a_saved_result": ("gradients/float32-s0-kept", "gradients"),
    "another_second_time": ("gradients/float32-s0-kept", "gradients"),
    "input_as_attribute": ("gradients/float32-s0-kept", "gradients"),
    "input_in_an_attribute": ("gradients/float32-s0-kept", "gradients"),
    "input_in_a_global": ("gradients/float32-s0-kept", "gradients"),
    "result_as_attribute": ("gradients/float32-s0-kept", "gradients"),
    "index_as_attribute": ("gradients/float32-s0-kept", "gradients"),
    "keeps_its_argument": ("inputs/float32-s0-kept", "inputs"),
    "keeps_a_view": ("inputs/float32-s0-kept", "inputs"),
    "saved_past_the_counter": ("gradients/float32-s0-kept", "gradients"),
    "needs_both_gradients": ("gradients/float32-s0-result-1", "gradients"),
    "keeps_its_results": ("inputs/float32-s0-kept", "inputs"),
    "writes_one_row_as_six": ("errors/float32-s0-x-expanded", "sanitizer-race"),
    "gradient_overflows": ("gradients/float32-s0-large-dense", "gradients"),
    "other_with_gradients": ("determinism/float32-s0-modes", "determinism"),
    "other_in_inference_mode": ("determinism/float32-s0-modes", "determinism"),
    "other_for_parameters": ("determinism/float32-s0-modes", "determinism"),
    "sets_the_default_dtype": ("inputs/float32-s0-state", "inputs"),
    "sets_the_seed": ("inputs/float32-s0-state", "inputs"),
    "draws_for_nothing": ("inputs/float32-s0-state", "inputs"),
    "draws_of_numpy": ("inputs/float32-s0-state", "inputs"),
    "matmul_before_the_kernel": ("autocast/float32-s0", "autocast"),
    "linear_after_the_kernel": ("autocast/float32-s0", "autocast"),
    "two_dimensions": ("call/float32-s0-3d", "written"),
    "one_batch": ("call/float32-s0-deeper", "written"),
    "rows_by_the_first_size": ("call/float32-s0-flatter", "numerics"),
    "at_most_eight": ("call/float32-s0-list-of-17", "numerics"),
    "two_of_a_list": ("call/float32-s0-list-of-1", "errors"),
    "four_thousand": ("call/float32-s0-n4099", "numerics"),
    "up_to_eight": ("errors/float32-s0-k-threefold", "errors"),
    "ignores_a_default": ("errors/float32-s0-bias-more", "errors"),
    "ignores_a_flag": ("errors/float32-s0-negate-negated", "errors"),
    "ignores_a_bias": ("errors/float32-s0-bias-8", "errors"),
    "ignores_an_end": ("errors/float32-s0-end-given", "errors"),
    "ignores_a_dtype": ("errors/float32-s0-dtype-float16", "errors"),
    "knows_one_way": ("errors/float32-s0-way-down", "errors"),
    "itself_for_one": ("errors/float32-s0-a-one", "errors"),
    "knows_one_list": ("errors/float32-s0-shift-last-one-more", "errors"),
    "square_overflows": ("call/float32-s0-largest", "numerics"),
    "sum_overflows": ("call/float32-s0-largest", "numerics"),
    "last_of_maxima": ("call/float32-s0-ties", "numerics"),
    "rounds_half_away": ("call/float32-s0-ties", "numerics"),
    "from_the_threshold_on": ("call/float32-s0-scalars", "numerics"),
    "no_less_for_greater": ("call/float32-s0-scalars", "numerics"),
    "two_percent_more": ("call/bfloat16-s0", "numerics"),
    "exp_of_a_few_terms": ("call/bfloat16-s0", "numerics"),
    "gradient_two_percent_more": ("gradients/bfloat16-s0-dense", "gradients"),
}
PARTS = {"scale_op"}
REPRESENTATIVE = ("input_in_an_attribute", "no_less_for_greater", "at_most_eight")


@pytest.fixture(autouse=True)
def default_dtype() -> Iterator[None]:
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


def test_every_operator_has_its_row() -> None:
    assert set(CAUGHT) | PARTS == set(OPERATORS)


@pytest.mark.parametrize("name", quick(REPRESENTATIVE, CAUGHT))
def test_it_is_caught_by_the_trial_for_its_fault(name: str) -> None:
    trial, check = CAUGHT[name]
    only = f"judged::{name}/{trial}"
    report = dotcu.check(OPERATORS[name], device="simulator", level="quick", only=only)
    assert check in {failure.check for failure in report.failures if str(failure.trial) == only}, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUGHT)
def test_its_own_sample_is_right(name: str) -> None:
    if name in ("two_percent_more", "exp_of_a_few_terms"):
        pytest.skip("its fault is in every value")
    dtype = "bfloat16" if torch.bfloat16 in OPERATORS[name].dtypes else "float32"
    only = f"judged::{name}/call/{dtype}-s0"
    report = dotcu.check(OPERATORS[name], device="simulator", level="quick", only=only)
    assert report.passed, str(report)
