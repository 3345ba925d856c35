"""Tensor maps, and every limit of theirs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from dotcu.errors import ArgumentError
from dotcu.kernel.arguments.tensor_map import _MAX_KNOWN, Tiled, _known, tensor_map, tiled
from dotcu.kernel.arguments.values import Mismatch


def made(tensor: torch.Tensor, **given: Any) -> Tiled:
    return tiled(tensor_map(tensor, **given))


def refusal(tensor: torch.Tensor, **given: Any) -> str:
    with pytest.raises(Mismatch) as caught:
        made(tensor, **given)
    return f"{caught.value.got}.\n{caught.value.remedy}"


def test_dimensions_are_reversed_for_the_hardware() -> None:
    found = made(
        torch.zeros(5, 6, 32), box=(1, 3, 16), element_strides=(2, 1, 1), swizzle=64, l2_promotion=128
    )
    assert found == Tiled(
        dtype=torch.float32,
        sizes=(32, 6, 5),
        strides_bytes=(128, 768),
        box=(16, 3, 1),
        element_strides=(1, 1, 2),
        swizzle=64,
        l2_promotion=128,
        fill="zeros",
    )


def test_a_box_of_one_dimension_may_be_a_number() -> None:
    assert made(torch.zeros(100), box=64).box == (64,)
    assert made(torch.zeros(100), box=64).strides_bytes == ()


def test_strides_are_the_tensors_own() -> None:
    x = torch.zeros(8, 4, 32, dtype=torch.bfloat16).transpose(0, 1)[:, ::2]
    assert made(x, box=(1, 1, 32)).strides_bytes == (2 * 4 * 64, 64)


@pytest.mark.parametrize("stride", [1, 3, 2**41])
def test_the_stride_of_a_dimension_of_one_element_does_not_matter(stride: int) -> None:
    x = torch.zeros(3, 20).as_strided((3, 1, 20), (20, stride, 1))
    assert made(x, box=(1, 1, 4)).strides_bytes == (80, 80)
    row = torch.zeros(7).as_strided((1, 7), (stride, 1))
    assert made(row, box=(1, 4)).strides_bytes == (32,)


def test_a_fake_gives_a_map_that_nobody_looks_into() -> None:
    with FakeTensorMode():
        tensor_map(torch.empty(3, 5, device="cuda"), box=(7, 7), swizzle=5)


def test_it_shows_what_it_is_of() -> None:
    shown = repr(tensor_map(torch.zeros(8, 64), box=(8, 32), swizzle=128))
    assert shown == "a tensor map of a float32 tensor of shape (8, 64) on cpu, box=(8, 32), swizzle=128"


FLOATS = torch.zeros(64, 64)


def large(sizes: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """Floats that nobody has the memory for."""
    return torch.empty_strided(sizes, strides, device="meta")


@pytest.mark.parametrize(
    ("tensor", "given", "says"),
    [
        (torch.zeros(()), {"box": ()}, "0 dimensions; a map has 1 to 5.\nPass t.reshape(1)."),
        (torch.zeros(1, 1, 1, 1, 1, 4), {"box": (1, 1, 1, 1, 1, 4)}, "6 dimensions; a map has 1 to 5"),
        (FLOATS, {"box": 64}, "box=(64,) for 2 dimensions; it has one number for each.\nPass box with 2"),
        (FLOATS, {"box": (8, 8), "element_strides": (1,)}, "element_strides=(1,) for 2 dimensions"),
        (FLOATS.to(torch.complex64), {"box": (8, 8)}, "torch.complex64; a map knows uint8"),
        (FLOATS, {"box": (257, 8)}, "box 257 in dimension 0; the limits are 1 and 256"),
        (FLOATS, {"box": (0, 8)}, "box 0 in dimension 0"),
        (FLOATS, {"box": (8, 8.0)}, "box 8.0 in dimension 1"),
        (FLOATS, {"box": (True, 8)}, "box True in dimension 0"),
        (FLOATS, {"box": (8, 8), "element_strides": (9, 1)}, "element_strides 9 in dimension 0; the limits"),
        (FLOATS, {"box": (8, 8), "element_strides": (1, 2)}, "element_strides 2 in the last dimension"),
        (FLOATS, {"box": (8, 7)}, "28 bytes in a row of the box (7 elements of 4 bytes); they are"),
        (FLOATS.half(), {"box": (8, 4)}, "Make the last number of box a multiple of 8"),
        (FLOATS, {"box": (8, 64), "swizzle": 128}, "256 bytes in a row of the box (64 elements of 4 bytes)"),
        (FLOATS, {"box": (8, 64), "swizzle": 128}, "at most 32, or pass a wider swizzle"),
        (FLOATS, {"box": (8, 8), "swizzle": 16}, "swizzle=16; it is one of 0, 32, 64, 128"),
        (FLOATS, {"box": (8, 8), "swizzle": "128B"}, "swizzle='128B'; it is one of"),
        (FLOATS, {"box": (8, 8), "swizzle": False}, "swizzle=False"),
        (FLOATS, {"box": (8, 8), "l2_promotion": 32}, "l2_promotion=32; it is one of 0, 64, 128, 256"),
        (FLOATS, {"box": (8, 8), "fill": "ones"}, "fill='ones'; it is one of 'zeros', 'nan'"),
        (FLOATS.int(), {"box": (8, 8), "fill": "nan"}, 'fill="nan" for torch.int32'),
        (FLOATS.t(), {"box": (8, 8)}, "strides (1, 64); the last one is 1.\nPass t.contiguous()"),
        (torch.zeros(8, 6), {"box": (8, 4)}, "a stride of 24 bytes in dimension 0; it is a multiple of 16"),
        (large((2, 4), (2**39, 1)), {"box": (8, 4)}, "a stride of 2199023255552 bytes"),
        (large((2**33, 4), (4, 1)), {"box": (8, 4)}, "8589934592 elements in a dimension"),
        (torch.zeros(65)[1:], {"box": 4}, "an address 4 bytes past one divisible by 16"),
    ],
)  # fmt: skip
def test_what_the_hardware_cannot_do_is_refused_by_limit_and_value(
    tensor: torch.Tensor, given: dict[str, Any], says: str
) -> None:
    assert says in refusal(tensor, **given)


def test_what_is_just_within_the_limits_passes() -> None:
    wide = large((2, 2**32), (2**38 - 4, 1))
    assert made(wide, box=(256, 256)).strides_bytes == (2**40 - 16,)
    assert made(FLOATS, box=(256, 32), swizzle=128, element_strides=(8, 1)).box == (32, 256)
    assert made(FLOATS.bfloat16(), box=(1, 8), fill="nan").fill == "nan"


def test_what_passed_once_is_checked_again_where_anything_differs() -> None:
    x = torch.zeros(64, 64)
    assert made(x, box=(8, 8)) is made(torch.ones(64, 64), box=(8, 8))
    for broken in ({"box": (8, 8.0)}, {"box": (8, 8), "swizzle": False}, {"box": (8, 8), "swizzle": [0]}):
        assert refusal(x, **broken)
    assert "an address 4 bytes past" in refusal(torch.zeros(4097)[1:].view(64, 64), box=(8, 8))
    assert made(x.bfloat16(), box=(8, 8)) != made(x, box=(8, 8))
    assert made(x[::2], box=(8, 8)).strides_bytes == (512,)


def test_what_is_remembered_is_bounded() -> None:
    for rows in range(3000):
        made(torch.empty(rows + 1, 4), box=(8, 4))
    assert len(_known) <= _MAX_KNOWN


def im2col(shape: tuple[int, ...], **given: Any) -> dict[str, Any]:
    corner = (0,) * (len(shape) - 2)
    usual = {"lower_corner": corner, "upper_corner": corner, "channels_per_pixel": 8, "pixels_per_column": 64}
    return {**usual, **given}


NHWC = (2, 5, 6, 32)


def test_an_im2col_map_is_reversed_for_the_hardware_too() -> None:
    corners = {"lower_corner": (-1, -2), "upper_corner": (-3, -4)}
    found = made(torch.zeros(NHWC), **im2col(NHWC, **corners, element_strides=(1, 2, 3, 1)))
    assert (found.sizes, found.box, found.element_strides) == ((32, 6, 5, 2), (8, 64), (1, 3, 2, 1))
    assert (found.lower_corner, found.upper_corner) == ((-2, -1), (-4, -3))


def test_the_corner_of_a_line_may_be_a_number() -> None:
    assert made(torch.zeros(2, 9, 8), **im2col((2, 9, 8), lower_corner=-1)).lower_corner == (-1,)


def test_a_fake_gives_an_im2col_map() -> None:
    with FakeTensorMode():
        shown = repr(tensor_map(torch.empty(NHWC, device="cuda"), **im2col(NHWC)))
    assert "upper_corner=(0, 0), channels_per_pixel=8, pixels_per_column=64" in shown


@pytest.mark.parametrize(
    ("shape", "given", "says"),
    [
        ((8, 32), {"lower_corner": ()}, "2 dimensions; an im2col map has 3 to 5."),
        (NHWC, {"lower_corner": (0,)}, "Pass lower_corner with 2 numbers, outermost first."),
        (NHWC, {"upper_corner": (128, 0)}, "upper_corner 128 in dimension 1; the limits are -128 and 127."),
        ((1, 9, 9, 9, 8), {"lower_corner": (0, 0, -17)}, "-17 in dimension 3; the limits are -16 and 15."),
        ((1, 9, 8), {"lower_corner": (-32769,)}, "the limits are -32768 and 32767."),
        (NHWC, {"channels_per_pixel": 257}, "channels_per_pixel 257; the limits are 1 and 256."),
        (NHWC, {"pixels_per_column": 1025}, "pixels_per_column 1025; the limits are 1 and 1024."),
        (NHWC, {"channels_per_pixel": 6}, "Make channels_per_pixel a multiple of 4;"),
        (NHWC, {"channels_per_pixel": 32, "swizzle": 64}, "Let channels_per_pixel be at most 16,"),
        (NHWC, {"lower_corner": (0, 1), "upper_corner": (0, -5)}, "corners 1 and -5 in dimension 2 of 6"),
        (NHWC, {"element_strides": (2, 1, 1, 1)}, "element_strides 2 in dimension 0;"),
    ],
)  # fmt: skip
def test_limits_of_im2col(shape: tuple[int, ...], given: dict[str, Any], says: str) -> None:
    assert says in refusal(torch.zeros(shape), **im2col(shape, **given))


@pytest.mark.parametrize("given", [{}, im2col(NHWC, box=(1, 1, 1, 8)), im2col(NHWC, pixels_per_column=None)])
def test_a_map_is_of_boxes_or_of_pixels(given: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="Pass box alone, or leave it out and pass the four"):
        tensor_map(torch.zeros(NHWC), **given)


def test_an_empty_tensor_has_a_map_with_any_corners() -> None:
    shape = (2, 0, 6, 32)
    assert made(torch.zeros(shape), **im2col(shape, lower_corner=(-1, -1), upper_corner=(-1, -1)))
