"""Results too large for an oracle: what is near enough to what the reference gives."""

from __future__ import annotations

import math

import pytest
import torch

from dotcu.checking import numerics
from dotcu.checking.numerics import difference, first_difference

DTYPES = (torch.float32, torch.bfloat16, torch.int8, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_element_that_differs_is_found_in_whatever_chunk(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numerics, "CHUNK", 10)
    expected = torch.ones(35).to(dtype)
    got = expected.clone()
    assert first_difference(got, expected, 35) is None
    got[27] = 0
    got[31] = 0
    assert first_difference(got, expected, 35) == 27


def test_a_float_may_be_off_by_some_units_and_nan_is_only_right_where_it_is_expected() -> None:
    expected = torch.tensor([1.0, -3.0, math.nan, math.inf, 2.0])
    assert first_difference(expected * (1 + 4e-7), expected, 5) is None
    assert first_difference(expected * (1 + 1e-4), expected, 5) == 0
    for place, value in ((0, math.nan), (2, 1.0), (3, -math.inf), (4, math.inf)):
        got = expected.clone()
        got[place] = value
        assert first_difference(got, expected, 5) == place


def test_infinity_may_be_the_largest_number_and_no_other() -> None:
    expected = torch.tensor([math.inf, 65504.0, -math.inf, 1.0], dtype=torch.float16)
    near = torch.tensor([65504.0, math.inf, -65472.0, 1.0], dtype=torch.float16)
    assert first_difference(near, expected, 4) is None
    for place, value in ((0, 40000.0), (1, -math.inf), (2, 65504.0), (3, math.inf)):
        got = expected.clone()
        got[place] = value
        assert first_difference(got, expected, 4) == place


def test_adding_up_many_numbers_may_lose_more() -> None:
    expected = torch.tensor(1e9)
    assert first_difference(expected * (1 + 1e-4), expected, 2**31) is None
    assert first_difference(expected * 0.5, expected, 2**31) == 0


def test_a_result_of_another_shape_or_number_is_reported() -> None:
    one, two = torch.zeros(3), torch.zeros(2)
    assert "gives 1 tensors, its reference 2" in difference((one,), (one, one), 3)
    assert "[3], its reference gives float32[2]" in difference((one,), (two,), 3)
    assert difference((one,), (one.clone(),), 3) == ""
    wrong = torch.zeros(2, 2)
    wrong[1, 0] = 7
    assert difference((wrong,), (torch.zeros(2, 2),), 3) == "output 0[1, 0]: got 7.0, expected 0.0"


def test_complex_numbers_are_as_near_as_their_parts() -> None:
    expected = torch.tensor([1 + 2j, -3j, 4.0])
    assert first_difference(expected * (1 + 4e-7), expected, 3) is None
    assert first_difference(expected.conj(), expected, 3) == 0
