"""Inputs in float64: as they are, moved in their last place, and next to zero."""

from __future__ import annotations

import pytest
import torch

from dotcu.checking import numerics

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.parametrize("dtype", FLOATS)
def test_an_element_moves_by_about_a_unit_in_its_last_place(dtype: torch.dtype) -> None:
    x = torch.linspace(-5, 5, 100).to(dtype)
    up, down, *random = (numerics.move(x, noise) for noise in numerics.noises())
    unit = torch.finfo(dtype).eps * x.double().abs()
    for moved, size in ((up, 1), (down, -1)):  # float64 rounds its own last place
        assert torch.allclose(moved, x.double() * (1 + size * torch.finfo(dtype).eps), rtol=2**-52, atol=0)
    for moved in random:
        assert bool(((moved - x.double()).abs() <= 2 * unit).all())
        assert not torch.equal(moved, random[0]) or moved is random[0]


def test_complex_numbers_move_in_both_parts() -> None:
    x = torch.complex(torch.ones(3), torch.full((3,), 2.0)).conj()
    moved = numerics.move(x, numerics.noises()[2])
    assert moved.dtype == torch.complex128
    assert bool((moved.real != 1).all())
    assert bool((moved.imag != -2).all())


@pytest.mark.parametrize("x", [torch.arange(4), torch.tensor([True, False])])
def test_integers_and_bools_stay(x: torch.Tensor) -> None:
    for copy in (numerics.to_double(x), numerics.move(x, numerics.noises()[0]), numerics.next_to_zero(x)):
        assert torch.equal(copy, x)
        assert copy.data_ptr() != x.data_ptr()


def test_zeros_move_off_to_their_own_side_alone() -> None:
    beside = numerics.next_to_zero(torch.tensor([0.0, -0.0, 3.0]))
    assert beside.tolist() == [1e-300, -1e-300, 3.0]


def test_inputs_are_moved_as_often_at_random_as_was_asked_for() -> None:
    assert len(numerics.noises(3)) == 5
    assert len(numerics.noises()) == 2 + numerics.TRIALS
