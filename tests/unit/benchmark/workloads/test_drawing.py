"""Tensors of other shapes with values like an author's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dotcu.benchmark.workloads import _drawn, _within, ascends

N = 20_000


def like(old: Tensor, shape: tuple[int, ...] = (N,)) -> Tensor:
    made = _drawn(old, shape, torch.Generator().manual_seed(3))
    assert made.dtype == old.dtype
    assert tuple(made.shape) == shape
    assert made.is_contiguous()
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float8_e4m3fn])
def test_numbers_of_either_sign_are_normal(dtype: torch.dtype) -> None:
    old = (2 * torch.randn(1000) + 1).to(dtype)
    made = like(old).double()
    assert 0.95 < float(made.std() / old.double().std()) < 1.05
    assert abs(float(made.mean() - old.double().mean())) < 0.1
    assert made.unique().numel() > 100


@pytest.mark.parametrize(
    ("old", "low", "high"),
    [
        (torch.rand(500) + 3, 3, 4),
        (torch.rand(500) * 2 - 1, -1, 1),
        (torch.full((8,), 4.0), 2, 6),
        (-torch.ones(8), -1.5, -0.5),
    ],
)
def test_a_range_that_may_be_meant_is_preserved(old: Tensor, low: float, high: float) -> None:
    made = like(old)
    assert low <= float(made.min()) < low + 0.1 * (high - low)
    assert high - 0.1 * (high - low) < float(made.max()) <= high


def test_zeros_and_complex_numbers_become_normal() -> None:
    assert 0.9 < float(like(torch.zeros(3)).std()) < 1.1
    made = like(torch.randn(100, dtype=torch.complex64) * 3)
    assert float(made.real.std()) > 1
    assert float(made.imag.std()) > 1


def test_whole_numbers_stay_in_their_range_and_bools_take_either_value() -> None:
    made = like(torch.randint(-5, 90, (300,), dtype=torch.int32))
    assert int(made.min()) >= -5
    assert int(made.max()) <= 89
    assert like(torch.tensor([True, False])).double().mean() == pytest.approx(0.5, abs=0.05)
    assert int(like(torch.tensor([255], dtype=torch.uint8), (5,)).max()) == 255


def test_what_ascends_does_so_again() -> None:
    assert ascends(like(torch.arange(9.0) - 3))
    offsets = like(torch.tensor([0, 3, 7, 12]), (50,))
    assert ascends(offsets)
    assert (int(offsets[0]), int(offsets[-1])) == (0, 12)
    assert not ascends(torch.tensor([1.0, 0.0, 2.0]))
    assert not ascends(torch.tensor([1.0, 2.0]))


def test_an_index_fits_whatever_it_may_point_into() -> None:
    top = _within([(100, 64), (8,)], [(5000, 32), (1000,)])
    assert top(99) == 4999
    assert top(50) == 31  # it may point into 64 as well
    assert top(100) == 5000  # the end of a row of offsets
    assert top(200) == 200


def test_the_same_seed_draws_the_same() -> None:
    old = torch.randn(50)
    assert torch.equal(like(old), like(old))
