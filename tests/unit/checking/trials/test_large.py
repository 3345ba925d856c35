"""The large trial with a few dozen elements in place of 2^31: which sizes grow, and what is near enough."""

from __future__ import annotations

import math

import pytest
import torch

from dotcu.checking.cases.case import Case
from dotcu.checking.trials import large
from dotcu.checking.trials.large import Grown, enlarged, first_difference, growing
from dotcu.operator import Sample

DTYPES = (torch.float32, torch.bfloat16, torch.int8, torch.bool)


def sample(*shapes: tuple[int, ...]) -> Sample:
    return Sample(*(torch.randn(shape) for shape in shapes))


@pytest.mark.parametrize(
    ("shape", "old", "count"), [((1000,), 1000, 1), ((3, 7), 7, 1), ((20, 20), 20, 2), ((2, 5, 5, 5), 5, 3)]
)
def test_a_size_grows_to_the_least_that_is_enough(shape: tuple[int, ...], old: int, count: int) -> None:
    new = growing(sample(shape))[old]
    rest = math.prod(shape) // old**count
    assert rest * new**count >= large.ELEMENTS > rest * (new - 1) ** count


def test_sizes_of_the_largest_tensor_grow_and_ones_and_strided_tensors_do_not() -> None:
    assert set(growing(sample((4, 6), (6, 2)))) == {4, 6}
    assert set(growing(sample((1, 6), (3,)))) == {6}
    assert growing(Sample(torch.randn(4, 6).T)) == {}
    assert growing(Sample(3)) == {}


def test_equal_sizes_grow_together_and_elements_repeat_by_an_odd_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large, "CHUNK", 16)
    a, b = torch.arange(4.0), torch.arange(8.0).view(2, 4)
    case = Case(name="float32-s0", dtype=torch.float32, sample=Sample(a, b, a, scale=4))
    made = enlarged(Grown(case=case, old=4, new=11, bytes=0))
    assert [tuple(tensor.shape) for tensor in made.tensors] == [(11,), (2, 11), (11,)]
    assert made.args[0] is made.args[2], "one tensor stays one tensor"
    assert made.kwargs["scale"] == 4
    assert made.args[0].tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]
    assert made.args[1].flatten().tolist() == [i % 7 for i in range(22)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_element_that_differs_is_found_in_whatever_chunk(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "CHUNK", 10)
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


def test_adding_up_many_numbers_may_lose_more() -> None:
    expected = torch.tensor(1e9)
    assert first_difference(expected * (1 + 1e-4), expected, large.ELEMENTS) is None
    assert first_difference(expected * 0.5, expected, large.ELEMENTS) == 0


def test_a_result_of_another_shape_or_number_is_told() -> None:
    one, two = torch.zeros(3), torch.zeros(2)
    assert "gives 1 tensors, its reference 2" in large._difference((one,), (one, one), 3)
    assert "[3], its reference gives torch.float32[2]" in large._difference((one,), (two,), 3)
    assert large._difference((one,), (one.clone(),), 3) == ""
    wrong = torch.zeros(2, 2)
    wrong[1, 0] = 7
    assert large._difference((wrong,), (torch.zeros(2, 2),), 3) == "output 0[1, 0]: got 7.0, expected 0.0"
