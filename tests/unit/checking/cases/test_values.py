"""Other values for the same call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.cases.derived import EVERY_VALUE, _values
from dotcu.checking.cases.samples import Case
from dotcu.checking.subject import Subject
from helpers.derivable_operators import operator, subject

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def copied(a: Tensor) -> Tensor:
    return a.clone()


def rows(weight: Tensor, index: Tensor) -> Tensor:
    return weight[index]


def of(dtype: torch.dtype, *names: str, shape: tuple[int, ...] = (300,), seed: int = 0) -> dict[str, Tensor]:
    one = subject(operator(copied, reference=torch.clone, dtypes=(dtype,)), seed=seed)
    case = Case(dtype=dtype, number=0, build=lambda: dotcu.Sample(torch.ones(shape).to(dtype)))
    return {made.variant: made.sample.tensors[0] for made in _values(one, case, names or EVERY_VALUE)}


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_what_their_name_says(dtype: torch.dtype) -> None:
    made, info = of(dtype), torch.finfo(dtype)
    size = {name: tensor.double().abs() for name, tensor in made.items()}
    assert all(tensor.dtype == dtype for tensor in made.values())
    assert bool((size["tiny"] >= info.smallest_normal).all())
    assert bool((size["tiny"] <= 8 * info.smallest_normal).all())
    assert bool((size["denormal"] < info.smallest_normal).all())
    assert bool((size["denormal"] > 0).all())
    assert bool((made["large"] * made["large"]).isfinite().all())
    assert float(size["large"].min()) > info.max**0.5 / 64
    assert bool((size["zeros"] == 0).all())
    assert len(made["all-equal"].unique()) == 1
    assert 0.5 < float(size["normal"].mean()) < 1.1


def test_either_sign_is_among_the_large_and_the_tiny() -> None:
    made = of(torch.float32, "large", "tiny", "denormal", "normal")
    assert all(len(tensor.sign().unique()) == 2 for tensor in made.values())


def test_a_sum_of_some_hundred_large_products_is_finite() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        (large,) = of(dtype, "large").values()
        assert bool((large * large).sum().isfinite())


@pytest.mark.parametrize("shape", [(300,), (2,), ()])
def test_what_is_not_finite_is_there_and_not_everywhere(shape: tuple[int, ...]) -> None:
    made = of(torch.float32, "inf", "nan", shape=shape)
    infinite, missing = made["inf"], made["nan"]
    assert bool(missing.isnan().any())
    assert bool((infinite == torch.inf).any())
    assert bool((infinite == -torch.inf).any()) is (infinite.numel() > 1)
    if shape == (300,):
        assert int(missing.isnan().sum()) < 20


def test_minus_zero_has_its_sign() -> None:
    (zero,) = of(torch.float16, "minus-zero").values()
    assert bool((zero == 0).all())
    assert bool(zero.signbit().all())


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_reach_the_ends_of_their_range(dtype: torch.dtype) -> None:
    made, info = of(dtype), torch.iinfo(dtype)
    assert list(made) == ["min", "max", "extremes"]
    assert made["min"].unique().tolist() == [info.min]
    assert made["max"].unique().tolist() == [info.max]
    assert {info.min, info.max, 0, 1} <= set(made["extremes"].tolist())


def test_truth_is_all_true_or_all_false() -> None:
    made = of(torch.bool)
    assert {name: tensor.unique().tolist() for name, tensor in made.items()} == {
        "true": [True],
        "false": [False],
    }


def test_values_are_the_same_each_time_and_others_by_another_seed() -> None:
    assert torch.equal(of(torch.float32, "normal")["normal"], of(torch.float32, "normal")["normal"])
    assert not torch.equal(
        of(torch.float32, "normal")["normal"], of(torch.float32, "normal", seed=1)["normal"]
    )


def table() -> tuple[Subject, Case]:
    one = subject(operator(rows, reference=rows))
    sample = dotcu.Sample(torch.randn(20, 4), torch.tensor([3, 19, 0]))
    return one, Case(dtype=torch.float32, number=0, build=lambda: sample)


def test_indices_stay_as_they_are() -> None:
    for case in _values(*table(), ("nan", "max", "extremes")):
        assert case.sample.args[1].tolist() == [3, 19, 0]


def test_values_that_the_reference_refuses_make_no_case() -> None:
    def checked(a: Tensor) -> Tensor:
        if bool(a.isnan().any()):
            raise ValueError("NaN")
        return a.clone()

    one = subject(operator(copied, reference=checked))
    case = Case(dtype=torch.float32, number=0, build=lambda: dotcu.Sample(torch.ones(9)))
    assert [made.variant for made in filter(one.takes, _values(one, case, ("nan", "inf")))] == ["inf"]


def test_without_a_reference_integers_stay_as_they_are() -> None:
    one = subject(operator(copied, dtypes=(torch.int32,)))
    case = Case(dtype=torch.int32, number=0, build=lambda: dotcu.Sample(torch.ones(9, dtype=torch.int32)))
    assert not list(_values(one, case, EVERY_VALUE))


@pytest.mark.parametrize(
    ("function", "tried"), [(torch.abs, True), (torch.sum, False), (torch.square, False)]
)
def test_the_largest_values_are_for_what_overflows_in_no_order(function: Any, tried: bool) -> None:
    def body(a: Tensor) -> Tensor:
        return function(a).clone()

    one = subject(operator(body, reference=function))
    case = Case(dtype=torch.float32, number=0, build=lambda: dotcu.Sample(torch.ones(300)))
    (largest,) = _values(one, case, ["largest"])
    assert one.takes(largest) is tried
