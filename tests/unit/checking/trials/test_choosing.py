"""Which dtypes and cases are taken."""

from __future__ import annotations

import torch

from dotcu.checking.trials.fresh_values import first_integer, floating, of_some_size
from helpers.trial_operators import squaring, subject

SIZES = ((), (0, 4), (100,), (20,))


def test_floating_dtypes_are_those_with_gradients() -> None:
    checked = subject(squaring(dtypes=(torch.int32, torch.float16, torch.float8_e5m2, torch.float64)))
    assert floating(checked) == (torch.float16, torch.float64)


def test_the_first_integer_dtype_may_be_bool() -> None:
    assert first_integer(subject(squaring(dtypes=(torch.float32, torch.bool, torch.int8)))) == (torch.bool,)
    assert first_integer(subject(squaring())) == ()


def test_the_smallest_has_no_empty_tensor() -> None:
    checked = subject(squaring(sizes=SIZES))
    smallest = checked.smallest(torch.float32)
    assert smallest is not None
    assert smallest.name == "float32-s0"


def test_cases_come_in_order_of_their_size() -> None:
    checked = subject(squaring(sizes=SIZES))
    names = [case.name for case in checked.whole(torch.float32)]
    assert names == ["float32-s0", "float32-s3", "float32-s2"]


def test_cases_of_a_few_elements_come_last_where_some_size_is_wanted() -> None:
    checked = subject(squaring(sizes=SIZES))
    names = [case.name for case in of_some_size(checked, torch.float32)]
    assert names == ["float32-s3", "float32-s2", "float32-s0"]
