"""A result may be as wrong as its dtype forces, and no more."""

from __future__ import annotations

import math

import pytest
import torch

from dotcu.checking import numerics
from dotcu.operator import Sample


def judge(reference: numerics.Reference, result: torch.Tensor, *args: torch.Tensor) -> numerics.Error:
    return numerics.judge(result, numerics.oracle(reference, Sample(*args)))


def ones_and_noise(n: int = 1000, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(3)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_torchs_own_result_holds(dtype: torch.dtype) -> None:
    x = ones_and_noise(dtype=dtype)
    assert judge(torch.exp, torch.exp(x), x).held


def test_a_sum_in_another_order_holds() -> None:
    x = ones_and_noise(100_000)
    total = x.flip(0).view(-1, 100).sum(0).sum()
    assert judge(torch.sum, total, x).held


def test_a_sum_that_misses_an_element_fails() -> None:
    x = ones_and_noise(100_000)
    assert not judge(torch.sum, x[:-1].sum(), x).held


def test_one_wrong_element_fails_and_is_named() -> None:
    x = ones_and_noise().view(10, 100)
    wrong = x * x
    wrong[3, 7] += 1e-3
    error = judge(torch.square, wrong, x)
    assert not error.held
    assert error.where.startswith("output 0[3, 7]")
    assert error.absolute == pytest.approx(1e-3, rel=1e-2)


def test_a_large_element_excuses_no_small_one() -> None:
    x = torch.cat([torch.tensor([22.0]), torch.linspace(0, 4, 40)])
    wrong = torch.where(x > 15, torch.exp(x), 0.0)
    assert not judge(torch.exp, wrong, x).held
    assert judge(torch.exp, torch.exp(x), x).held


def test_zeros_that_should_be_tiny_fail() -> None:
    x = torch.full((4,), 1e-30)
    assert not judge(torch.clone, torch.zeros(4), x).held


def test_a_result_without_tensors_fails() -> None:
    assert not numerics.judge(None, numerics.oracle(lambda x: None, Sample(torch.ones(2)))).held


def test_the_sample_is_left_alone() -> None:
    x = torch.ones(3, dtype=torch.float64)
    numerics.oracle(lambda x: x.add_(1), Sample(x))
    assert x.tolist() == [1.0] * 3


def test_half_precision_where_single_is_due_fails() -> None:
    x = ones_and_noise()
    assert not judge(torch.exp, torch.exp(x.half()).float(), x).held


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_value_that_is_not_finite_fails(poison: float) -> None:
    x = ones_and_noise()
    wrong = x.clone()
    wrong[5] = poison
    assert not judge(torch.clone, wrong, x).held


def test_nan_and_infinity_hold_where_the_reference_has_them() -> None:
    x = torch.tensor([1.0, math.nan, math.inf, -math.inf])
    assert judge(torch.clone, x.clone(), x).held
    assert not judge(torch.clone, torch.tensor([1.0, math.nan, -math.inf, math.inf]), x).held


def test_integers_must_be_equal() -> None:
    x = torch.arange(5)
    assert judge(torch.square, x * x, x).held
    assert not judge(torch.square, x * x + (x == 3), x).held


def test_another_shape_or_dtype_fails() -> None:
    x = ones_and_noise()
    assert not judge(torch.clone, x[:-1], x).held
    assert not judge(torch.clone, x.double(), x).held
    assert "float64[1000], not torch.float32[1000]" in judge(torch.clone, x.double(), x).where


def test_a_missing_output_fails() -> None:
    x = ones_and_noise()
    assert not numerics.judge((x,), numerics.oracle(lambda x: (x.clone(), x.clone()), Sample(x))).held


def test_empty_results_hold() -> None:
    x = torch.empty(0)
    assert judge(torch.clone, x.clone(), x).held
