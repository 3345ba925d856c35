"""Arguments of kernels of other languages: tensors, numbers, scratch memory."""

from __future__ import annotations

import pytest
import torch

from dotcu.errors import ArgumentError
from dotcu.kernel.languages.arguments import LaunchArguments


def test_one_tensor_has_one_address_and_two_tensors_have_two() -> None:
    given = LaunchArguments("axpy")
    x, y = torch.zeros(4), torch.zeros(4)
    assert given.address("x", x) == given.address("again", x)
    assert given.address("y", y) != given.address("x", x)


def test_numbers_are_packed_in_their_width() -> None:
    given = LaunchArguments("axpy")
    given.put("n", "i", 7)
    given.put("alpha", "d", 0.5)
    given.scratch("scratch", 0)
    assert [len(data) for data in given.packed] == [4, 8, 8]
    assert given.names == ["n", "alpha", "scratch"]
    assert given.packed[2] == bytes(8)


def test_a_number_that_does_not_fit_is_named_with_its_argument() -> None:
    with pytest.raises(ArgumentError, match=r"argument n of axpy got 4294967296"):
        LaunchArguments("axpy").put("n", "i", 1 << 32)


def test_a_tensor_elsewhere_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"x of axpy is on meta.*\n.*\n.*Pass x\.cpu\(\)"):
        LaunchArguments("axpy").address("x", torch.empty(4, device="meta"))
