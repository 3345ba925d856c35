"""Boxes of a tensor: which bytes a copy moves, and where each chunk of it lies."""

from __future__ import annotations

import numpy as np
import pytest

from dotcu.simulator.semantics.async_copy.bulk import CopyBox, box_at, chunk_offsets
from dotcu.simulator.tensor_map import Map


def places(start: int, rows: int, row_chunks: int, swizzle: int) -> list[int]:
    """Where the chunks of a box are, in chunks from its first."""
    none = np.zeros(0, np.int64)
    box = CopyBox(
        rows=none,
        addresses=none,
        skip=0,
        length=0,
        row_bytes=16 * row_chunks,
        count=rows,
        swizzle=swizzle,
        type="u8",
    )
    return (chunk_offsets(start, box) // 16).tolist()  # type: ignore[no-any-return]


def made(
    sizes: tuple[int, ...], box: tuple[int, ...], itemsize: int = 4, steps: tuple[int, ...] = ()
) -> tuple[np.ndarray, Map]:  # type: ignore[type-arg]
    """A tensor of consecutive numbers with padded rows, and its map."""
    shape = (*sizes[:0:-1], sizes[0] + 16 // itemsize)
    x = np.arange(1, np.prod(shape) + 1, dtype=f"u{itemsize}").reshape(shape)
    return x, Map(
        address=0,
        sizes=sizes,
        strides_bytes=tuple(x.strides[-2::-1]),
        box=box,
        steps=steps or (1,) * len(sizes),
        type=f"u{8 * itemsize}",
        swizzle=0,
    )


def filled(x: np.ndarray, box: CopyBox) -> np.ndarray:  # type: ignore[type-arg]
    data = x.reshape(-1).view(np.uint8)
    index = box.elements()[:, :, None] + np.arange(box.unit)
    return box.fill(data[index].view(f"u{box.unit}")).view(x.dtype)


@pytest.mark.parametrize("at", [(0, 0), (4, 2), (1, 3), (-3, -1), (12, 6), (-7, 0), (40, 0), (0, -9)])
def test_a_box_holds_the_tensors_elements_and_zeros_around_them(at: tuple[int, int]) -> None:
    x, tensor = made((16, 8), (8, 4))
    around = np.zeros((100, 100), x.dtype)
    around[50:58, 50:66] = x[:, :16]
    expected = around[50 + at[1] :, 50 + at[0] :][:4, :8]
    found = filled(x, box_at(tensor, at))
    assert found.reshape(4, 8).tolist() == expected.tolist()


def test_steps_take_every_so_manyth_row() -> None:
    x, tensor = made((16, 8), (8, 7), steps=(1, 3))
    assert filled(x, box_at(tensor, (2, 1))).reshape(3, 8).tolist() == x[[1, 4, 7], 2:10].tolist()


@pytest.mark.parametrize(("itemsize", "at", "unit"), [(1, 3, 1), (1, 8, 8), (2, 1, 2), (4, 1, 4), (4, 2, 8)])
def test_elements_are_as_wide_as_the_places_allow(itemsize: int, at: int, unit: int) -> None:
    x, tensor = made((64, 2), (16, 2), itemsize)
    box = box_at(tensor, (at, 0))
    assert box.unit == unit
    assert filled(x, box).reshape(2, 16).tolist() == x[:, at : at + 16].tolist()


def test_what_is_cut_of_a_box_is_what_lies_inside() -> None:
    _, tensor = made((16, 8), (8, 4))
    box = box_at(tensor, (12, 6))
    data = np.arange(32, dtype="u4")
    cut = box.cut(data.view(np.uint8)).view("u4")
    assert cut.tolist() == data.reshape(4, 8)[:2, :4].tolist()
    assert box.elements().shape == cut.view(f"u{box.unit}").shape


@pytest.mark.parametrize(
    ("start", "swizzle", "rows", "chunks"),
    [
        (0, 0, (2, 5), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (0, 128, (2, 8), [0, 1, 2, 3, 4, 5, 6, 7, 9, 8, 11, 10, 13, 12, 15, 14]),
        (128, 128, (1, 8), [1, 0, 3, 2, 5, 4, 7, 6]),
        (384, 32, (5, 2), [1, 0, 3, 2, 5, 4, 7, 6, 8, 9]),
        (256, 64, (3, 4), [2, 3, 0, 1, 6, 7, 4, 5, 11, 10, 9, 8]),
    ],
)
def test_chunks_are_exchanged_by_the_bits_of_their_address(
    start: int, swizzle: int, rows: tuple[int, int], chunks: list[int]
) -> None:
    count, length = rows
    assert places(start, count, length, swizzle) == chunks


@pytest.mark.parametrize(
    ("swizzle", "length", "chunks"),
    [
        (32, 1, [0, 2, 4, 6, 9]),
        (64, 2, [0, 1, 4, 5, 9, 8, 13, 12, 18, 19]),
        (128, 2, [0, 1, 9, 8, 18, 19, 27, 26, 36, 37]),
        (128, 3, [0, 1, 2, 9, 8, 11, 18, 19, 16, 27, 26, 25, 36, 37, 38]),
    ],
)
def test_a_row_that_is_shorter_than_the_swizzle_takes_as_many_bytes(
    swizzle: int, length: int, chunks: list[int]
) -> None:
    assert places(0, 5, length, swizzle) == chunks
