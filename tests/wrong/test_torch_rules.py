"""Each operator that breaks a rule of torch falls short in the check for that rule, in no unrelated one."""

from __future__ import annotations

from pathlib import Path

import pytest

import dotcu
from dotcu.checking.target import resolve
from helpers.quick_cases import quick

OPERATORS = dict(resolve(str(Path(__file__).parent / "operators" / "torch_rules.py")))

# The check that must see it, and what else may: what breaks opcheck, say, breaks more than one thing.
QUICK = {
    "fake_of_other_strides": ("fake", {"registration"}),
    "fake_of_another_dtype": ("fake", {"reference", "registration"}),
    "fake_of_another_device": ("fake", {"reference", "registration"}),
    "fake_of_contiguous_rows_alone": ("fake", set()),
    "allocates_by_values": ("fake", {"registration"}),
    "writes_without_saying": ("registration", {"inputs", "reference"}),
    "twice_the_gradient": ("gradients", set()),
    "twice_the_gradient_in_half": ("gradients", set()),
    "gradient_must_be_contiguous": ("gradients", {"registration"}),
    "strides_of_the_gradient_ignored": ("gradients", set()),
    "tail_of_the_gradient_unwritten": ("gradients", set()),
    "strides_of_what_was_saved_ignored": ("gradients", set()),
    "gradient_only_of_both": ("gradients", {"sanitizer-bounds"}),
    "gradient_lost": ("gradients", set()),
    "kept_by_address": ("fresh-values", {"inputs"}),
    "kept_by_shape": ("fresh-values", {"numerics"}),
    "kept_by_version": ("fresh-values", {"inputs"}),
    "kept_by_ends": ("fresh-values", set()),
    "one_result_for_all": ("fresh-values", {"result", "registration", "inputs"}),
    "reference_of_chance": ("reference", {"numerics"}),
    "reference_that_writes": ("reference", set()),
    "reference_that_fails": ("reference", {"numerics"}),
    "branches_on_a_value": ("fake", {"registration"}),
    "gradient_by_numpy": ("registration", set()),
}
STANDARD = {
    "second_gradient_lost": "second-gradients",
    "second_gradient_wrong": "second-gradients",
    "gradient_by_numpy": "compile",
    "branches_on_a_value": "compile",
    "batch_in_the_first_dimension": "vmap",
    "batch_of_the_first_alone": "vmap",
    "square_of_parts": "sharding",
}
REPRESENTATIVE = ("fake_of_other_strides", "gradient_lost", "reference_that_writes")
"""One of the fake kernel, of autograd and of the reference; unit tests have one for each check."""
ON_THE_CPU = ("gradient_lost",)  # on a GPU dotcu itself records a call, whatever was registered with torch
RIGHT_WHERE_LOOKED = ("second_gradient_lost", "second_gradient_wrong", "batch_in_the_first_dimension")


@pytest.mark.parametrize("name", quick(REPRESENTATIVE, QUICK))
def test_a_broken_rule_is_seen_by_its_check_and_no_unrelated_one(name: str) -> None:
    check, others = QUICK[name]
    place = "simulator" if name in ON_THE_CPU else None
    short = {result.check for result in dotcu.check(OPERATORS[name], level="quick", device=place).failures}
    assert check in short
    assert short <= {check, "errors"} | others  # that these bodies check no arguments is beside the point


TRANSFORMS = ("second_gradient_wrong", "branches_on_a_value", "batch_of_the_first_alone", "square_of_parts")


@pytest.mark.parametrize("name", quick(TRANSFORMS, STANDARD))
def test_a_broken_transform_is_seen_by_its_check(name: str) -> None:
    operator, check = OPERATORS[name], STANDARD[name]
    report = dotcu.check(operator, only=f"{operator.qualified_name}/{check}")
    assert {result.check for result in report.failures} == {check}


@pytest.mark.slow
@pytest.mark.parametrize("name", quick(["second_gradient_lost"], RIGHT_WHERE_LOOKED))
def test_what_only_a_later_level_sees_holds_when_quick(name: str) -> None:
    report = dotcu.check(OPERATORS[name], level="quick")
    assert report.passed, str(report)


def test_every_operator_of_the_file_is_tried_or_is_a_part_of_another() -> None:
    parts = {"times", "times_as_if_contiguous", "times_without_the_tail", "twice_as_if_contiguous", "product"}
    assert set(OPERATORS) == set(QUICK) | set(STANDARD) | parts
