"""Tensor maps as the simulator has them."""

from __future__ import annotations

import pytest

from dotcu.simulator.tensor_map import BYTES, Map, decode, replaced

MAPS = [
    Map(address=1 << 44, sizes=(7,), strides_bytes=(), box=(256,), steps=(1,), type="u8", swizzle=0),
    Map(
        address=(1 << 48) - 16,
        sizes=(1 << 32, 2, 3, 4, 5),
        strides_bytes=((1 << 40) - 16, 16, 32, 48),
        box=(32, 256, 3, 2, 1),
        steps=(1, 8, 2, 1, 3),
        type="f64",
        swizzle=128,
    ),
    Map(
        address=1 << 44,
        sizes=(8, 9, 9, 9, 2),
        strides_bytes=(32, 288, 2592, 23328),
        box=(8, 1024),
        steps=(1, 8, 2, 1, 1),
        type="f32",
        swizzle=32,
        lower_corner=(-16, 15, 0),
        upper_corner=(1, 0, -3),
    ),
]


@pytest.mark.parametrize("tensor", MAPS)
def test_a_map_is_read_back_as_it_was(tensor: Map) -> None:
    assert len(tensor.encode()) == BYTES
    assert decode(tensor.encode()) == tensor


def test_a_copy_has_every_step_of_the_box() -> None:
    assert MAPS[1].copied == (32, 32, 2, 2, 1)


@pytest.mark.parametrize("data", [bytes(BYTES), b"\x01" * BYTES])
def test_other_bytes_are_no_map(data: bytes) -> None:
    assert decode(data) is None


def test_a_map_for_im2col_has_no_field_to_replace() -> None:
    assert replaced(MAPS[2].encode(), "global_address", 0, 1 << 40) is None
    assert replaced(MAPS[1].encode(), "global_address", 0, 1 << 40) is not None
