"""transpose and permute_copy: a tensor's elements in another order of its dimensions, contiguous."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.testing import make_tensor

import dotcu
from dotcu.gallery.common import VECTOR_BYTES, PlannedLaunch, vector_width

kernels = dotcu.load("kernel.cu")
copy_kernels = dotcu.load("copy.cu")
span_kernels = dotcu.load("spans.cu")

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.bool)
"""Some of each size; all others of these sizes are taken too."""

WORDS = ("unsigned char", "unsigned short", "unsigned", "uint2", "uint4")
"""Types of 1, 2, 4, 8 and 16 bytes; kernels are compiled for these, and dtypes of one size share them."""

SIDES = (128, 64, 32, 32, 16)
"""The side of a tile in elements of so many bytes."""

LARGE_SIDES = (128, 128, 64, 32, 16)
"""The same where accesses of 16 bytes make lines of 256: memory likes to go on where it has begun."""

THREADS = 256
BATCHES = (16, 16, 8, 4, 4)
"""Elements of a thread of `narrow` and `copy`, of so many bytes."""

FEW, NARROW = 8, 48
"""A dimension of fewer elements would leave most of a tile empty: it is copied by its strides instead, or has
tiles of its own."""

LEAST_OF_BYTES = (2, 2, FEW, FEW, FEW)
"""Rows or columns of a matrix that is copied as a span, at least, for elements of so many bytes."""

LONG, TILE_BYTES, LONG_BYTES = 512, 2**13, 2**15
"""Rows of a tile of few columns, or columns of one of few rows; its bytes at least, of fewer than 8, and at
most, about."""

LEAST_RUN_BYTES, RUN_BYTES, RUN_THREADS = 32, 2**13, 128
"""Bytes of a row that stays a row and is copied by words wherever it begins, at least; bytes and threads of a
tile."""

SOON_BYTES, GROUP_BYTES = 2**22, 2**10
"""Neighbours of a row in the tensor are fetched into L2 with it if the result has them at most so many bytes
later, and if they have so many together."""

MAX_RUNS = 2**32
"""Rows that `runs` counts are fewer."""

LINE_BYTES = 32
"""At multiples of so many bytes begins what a tile of `shifted` writes to a row of the result."""

FAR_BYTES = 2**32
"""Strides within a tile are less."""

T = TypeVar("T")

Dimension = tuple[int, int, int]
"""The size of a dimension, and its strides in the tensor and in the result."""

Copy = tuple[PlannedLaunch, tuple[int, ...]]
"""A launch, whose numbers come before the view, and the numbers after it."""


@dotcu.op("dotcu::transpose", dtypes=DTYPES)
def transpose(x: Tensor, dim0: int = -2, dim1: int = -1) -> Tensor:
    """Copy a tensor with two of its dimensions swapped: `x.transpose(dim0, dim1).contiguous()`.

    Args:
        x: A tensor of any shape and strides, of a dtype of 1, 2, 4, 8 or 16 bytes.
        dim0: One dimension, counted as in torch.
        dim1: The other one.
    """
    return _copy(x.transpose(dim0, dim1))


@dotcu.op("dotcu::permute_copy", dtypes=DTYPES)
def permute_copy(x: Tensor, dims: list[int]) -> Tensor:
    """Copy a tensor with its dimensions in the order `dims`: `x.permute(dims).contiguous()`.

    Args:
        x: A tensor of any shape and strides, of a dtype of 1, 2, 4, 8 or 16 bytes.
        dims: Each dimension once, counted as in torch.
    """
    return _copy(x.permute(dims))


def _copy(view: Tensor) -> Tensor:
    """The elements of a view, in order."""
    out = torch.empty(view.shape, dtype=view.dtype, device=view.device)
    (kernel, matrix, grid, block, smem_bytes, _), rest = _choose(view, out)
    kernel(out, *matrix, dotcu.strided(view), *rest, grid=grid, block=block, smem_bytes=smem_bytes)
    return out


@dotcu.by_layout
def _choose(view: Tensor, out: Tensor) -> Copy:
    dims = _merged(view)
    nearest = _nearest(dims)
    (rows, row, _), (columns, column, pitch), size = dims[-1], dims[nearest], view.element_size()
    if nearest == len(dims) - 1 or row * size >= FAR_BYTES or pitch * size >= FAR_BYTES:
        return _choose_rows(view, out, dims)
    least = _of_bytes(LEAST_OF_BYTES, size)
    few = column == 1 and row == columns and least <= columns < NARROW
    if few and rows >= LONG and columns * size % VECTOR_BYTES:
        return _choose_tall(view, dims, nearest)
    if (rows < NARROW or columns < NARROW) and (rows % FEW or columns % FEW):
        if column == 1 and pitch == rows and least <= rows < NARROW and columns >= LONG:
            return _choose_flat(view, dims, nearest)
        if rows >= FEW and columns >= FEW:
            return _choose_narrow(view, dims, nearest)
    if rows < FEW or columns < FEW:
        return _choose_rows(view, out, dims)
    return _choose_tiles(view, out, dims, nearest)


def _merged(view: Tensor) -> tuple[Dimension, ...]:
    """The dimensions, without those of one element; two that lie like one are one."""
    dims: tuple[Dimension, ...] = ()
    pitch = 1
    for size, stride in zip(reversed(view.shape), reversed(view.stride()), strict=True):
        if size == 1:
            continue
        if dims and stride == dims[0][0] * dims[0][1]:
            dims = ((dims[0][0] * size, *dims[0][1:]), *dims[1:])
        else:
            dims = ((size, stride, pitch), *dims)
        pitch = pitch * size
    return dims or ((1, 1, 1),)


def _nearest(dims: tuple[Dimension, ...]) -> int:
    """The dimension along which the tensor's elements are nearest to each other."""
    nearest = len(dims) - 1
    for d, (_, stride, _) in enumerate(dims):
        if 0 < stride < dims[nearest][1]:
            nearest = d
    return nearest


def _choose_tiles(view: Tensor, out: Tensor, dims: tuple[Dimension, ...], nearest: int) -> Copy:
    """Choose tiles, for neighbours that the result separates."""
    size = view.element_size()
    (rows, row, _), (columns, column, pitch) = dims[-1], dims[nearest]
    rest = dims[:nearest] + dims[nearest + 1 : -1]
    most = VECTOR_BYTES // size
    strides = (stride for _, stride, _ in rest)
    load = vector_width(most, (columns, row, *strides), view) if column == 1 else 1
    store = vector_width(most, (rows,), out)
    side, large = _of_bytes(SIDES, size), _of_bytes(LARGE_SIDES, size)
    whole, shifted = load == store == most, column == 1 and store < most
    if (whole or shifted) and rows * columns * _count(rest) > dotcu.sm_count(view) * large**2:
        side = large
    if shifted:
        return _choose_shifted(view, dims, nearest, side)
    threads = min(THREADS, side * side // (load * store))
    arguments = (_of_bytes(WORDS, size), load, store, side, threads, view.dim(), *_types(view, rest))
    tiles = dotcu.cdiv(rows, side) * dotcu.cdiv(columns, side) * _count(rest)
    matrix = (pitch * size, rows, columns, row * size, column * size)
    return PlannedLaunch(kernels.transpose[arguments], matrix, tiles, threads), _flat(rest, size)


def _choose_tall(view: Tensor, dims: tuple[Dimension, ...], nearest: int) -> Copy:
    """Choose tiles of whole rows, one after the other."""
    size = view.element_size()
    (rows, _, _), (columns, _, pitch) = dims[-1], dims[nearest]
    rest = dims[:nearest] + dims[nearest + 1 : -1]
    higher, height = VECTOR_BYTES // size - 1, _long(columns, size)
    matrix = (pitch * size, rows, columns, height)
    arguments = (_of_bytes(WORDS, size), THREADS, view.dim(), *_types(view, rest))
    tiles = dotcu.cdiv(rows + higher, height) * _count(rest)
    smem_bytes = (height + higher) * columns * size + 2 * VECTOR_BYTES
    return PlannedLaunch(span_kernels.tall[arguments], matrix, tiles, THREADS, smem_bytes), _flat(rest, size)


def _choose_flat(view: Tensor, dims: tuple[Dimension, ...], nearest: int) -> Copy:
    """Choose tiles of all rows, whose result is one after the other."""
    size = view.element_size()
    (rows, row, _), (columns, _, _) = dims[-1], dims[nearest]
    rest = dims[:nearest] + dims[nearest + 1 : -1]
    across = _long(rows, size)
    matrix = (rows, columns, row * size, across)
    arguments = (_of_bytes(WORDS, size), NARROW, THREADS, view.dim(), *_types(view, rest))
    tiles = dotcu.cdiv(columns, across) * _count(rest)
    smem_bytes = rows * (across * size + 2 * VECTOR_BYTES)
    return PlannedLaunch(span_kernels.flat[arguments], matrix, tiles, THREADS, smem_bytes), _flat(rest, size)


def _long(few: int, size: int) -> int:
    """Return rows of a tile of few columns, or the other way round."""
    many = LONG
    while few < FEW and many * few * size < TILE_BYTES:
        many *= 2
    while many * few * size > LONG_BYTES:
        many //= 2
    return many


def _choose_shifted(view: Tensor, dims: tuple[Dimension, ...], nearest: int, side: int) -> Copy:
    """Choose tiles of so many rows and columns, for rows that begin anywhere."""
    size = view.element_size()
    (rows, row, _), (columns, column, pitch) = dims[-1], dims[nearest]
    rest = dims[:nearest] + dims[nearest + 1 : -1]
    line = LINE_BYTES // size
    arguments = (_of_bytes(WORDS, size), line, side, side, THREADS, view.dim(), *_types(view, rest))
    height, words = side + line - 1, side * size // VECTOR_BYTES + 1
    tiles = dotcu.cdiv(rows + line - 1, side) * dotcu.cdiv(columns, side) * _count(rest)
    matrix = (pitch * size, rows, columns, row * size, column * size)
    smem_bytes = (height * words + height * size // VECTOR_BYTES + 1) * VECTOR_BYTES
    return PlannedLaunch(kernels.shifted[arguments], matrix, tiles, THREADS, smem_bytes), _flat(rest, size)


def _choose_narrow(view: Tensor, dims: tuple[Dimension, ...], nearest: int) -> Copy:
    """Choose tiles for a matrix of few rows or columns, all of which a tile has."""
    size = view.element_size()
    (rows, row, _), (columns, column, pitch) = dims[-1], dims[nearest]
    rest = dims[:nearest] + dims[nearest + 1 : -1]
    batch = _of_bytes(BATCHES, size)
    height, width = _tile(rows, columns, batch * THREADS)
    arguments = (_of_bytes(WORDS, size), batch, THREADS, view.dim(), *_types(view, rest))
    tiles = dotcu.cdiv(rows, height) * dotcu.cdiv(columns, width) * _count(rest)
    matrix = (pitch * size, rows, columns, row * size, column * size, height, width)
    return PlannedLaunch(copy_kernels.narrow[arguments], matrix, tiles, THREADS), _flat(rest, size)


def _tile(rows: int, columns: int, elements: int) -> tuple[int, int]:
    """Return height and width of tiles of so many elements at most: whole rows or columns, if those fit."""
    if columns > rows:
        width, height = _tile(columns, rows, elements)
        return height, width
    width = _even(columns, elements)
    return torch.sym_min(rows, elements // width), width


def _choose_rows(view: Tensor, out: Tensor, dims: tuple[Dimension, ...]) -> Copy:
    """Choose rows, for neighbours that stay neighbours, or that no tile fits."""
    size = view.element_size()
    if dims[-1][1] == 1:
        numbers = (dims[-1][0], *(stride for _, stride, _ in dims[:-1]))
        word = vector_width(VECTOR_BYTES // size, numbers, view)
        anywhere = word * size < VECTOR_BYTES and dims[-1][0] * size >= LEAST_RUN_BYTES
        if anywhere and _count(dims[:-1]) < MAX_RUNS and dotcu.is_aligned(out, VECTOR_BYTES):
            return _choose_runs(view, dims)
        dims, size = _in_words(dims, word), size * word
    columns, column, _ = dims[-1]
    longest = _longest(dims[:-1])
    rows, row, pitch = dims[longest] if longest >= 0 else (1, 0, 0)
    rest = dims[:longest] + dims[longest + 1 : -1] if longest >= 0 else ()
    batch = _of_bytes(BATCHES, size)
    width = _even(columns, batch * THREADS)
    height = torch.sym_max(torch.sym_min(rows, batch * THREADS // width), 1)
    arguments = (_of_bytes(WORDS, size), batch, THREADS, view.dim(), *_types(view, rest))
    tiles = dotcu.cdiv(rows, height) * dotcu.cdiv(columns, width) * _count(rest)
    matrix = (pitch * size, rows, columns, row * size, column * size, height, width)
    return PlannedLaunch(copy_kernels.copy[arguments], matrix, tiles, THREADS), _flat(rest, size)


def _choose_runs(view: Tensor, dims: tuple[Dimension, ...]) -> Copy:
    """Choose spans of the result, which consist of rows and parts of rows that begin anywhere."""
    size, (columns, _, _), rest = view.element_size(), dims[-1], dims[:-1]
    width, elements = VECTOR_BYTES // size, RUN_BYTES // size
    wide = torch.sym_min(columns, elements)
    words, most = (wide + 2 * width - 2) // width, (elements - 2) // wide + 2
    apart = words // 2 * 2 + 1  # words from one row to the next
    room = elements // width + (most - 1) * (apart * width - wide) // width + 4
    soon = any(
        stride == columns and pitch * size <= SOON_BYTES and count * stride * size >= GROUP_BYTES
        for count, stride, pitch in rest
    )
    numbers = (RUN_BYTES, RUN_THREADS, int(soon), view.dim())
    arguments = (_of_bytes(WORDS, size), *numbers, *_types(view, rest))
    total, reach = columns * _count(rest), size * (1 + sum((count - 1) * stride for count, stride, _ in dims))
    matrix = (total, columns, reach, words, most, room)
    smem_bytes = (room + 2 * most + 1) * VECTOR_BYTES
    grid = dotcu.cdiv(total, elements)
    return PlannedLaunch(span_kernels.runs[arguments], matrix, grid, RUN_THREADS, smem_bytes), _flat(
        rest, size
    )


def _in_words(dims: tuple[Dimension, ...], word: int) -> tuple[Dimension, ...]:
    """The dimensions of a tensor of words, each of which holds so many of its elements."""
    rows = tuple((size, stride // word, pitch // word) for size, stride, pitch in dims[:-1])
    return (*rows, (dims[-1][0] // word, 1, 1))


def _longest(dims: tuple[Dimension, ...]) -> int:
    """The dimension with the most elements; -1 if there is none."""
    longest = len(dims) - 1
    for d, (size, _, _) in enumerate(dims):
        if size > dims[longest][0]:
            longest = d
    return longest


def _even(columns: int, most: int) -> int:
    """Return the columns of equal parts, of so many at most; 1 where there are none."""
    parts: int = torch.sym_max(1, dotcu.cdiv(columns, most))
    width: int = torch.sym_max(1, dotcu.cdiv(columns, parts))
    return width


def _of_bytes(table: tuple[T, ...], size: int) -> T:
    """The entry of a table for 1, 2, 4, 8 or 16 bytes."""
    return table[size.bit_length() - 1]


def _types(view: Tensor, rest: tuple[Dimension, ...]) -> tuple[str, ...]:
    """The types of a kernel's last parameters: strides of the view, and what `_flat` gives."""
    return ("long long",) * (view.dim() + 3 * len(rest))


def _flat(rest: tuple[Dimension, ...], size: int) -> tuple[int, ...]:
    """Dimensions as a kernel takes them: innermost first, strides in bytes."""
    numbers: tuple[int, ...] = ()
    for count, stride, pitch in reversed(rest):
        numbers = (*numbers, count, stride * size, pitch * size)
    return numbers


def _count(rest: tuple[Dimension, ...]) -> int:
    return math.prod(size for size, _, _ in rest)


@transpose.fake
def _(x: Tensor, dim0: int = -2, dim1: int = -1) -> Tensor:
    return x.new_empty(x.transpose(dim0, dim1).shape)


@permute_copy.fake
def _(x: Tensor, dims: list[int]) -> Tensor:
    return x.new_empty(x.permute(dims).shape)


@transpose.reference
def _(x: Tensor, dim0: int = -2, dim1: int = -1) -> Tensor:
    return x.transpose(dim0, dim1).clone(memory_format=torch.contiguous_format)


@permute_copy.reference
def _(x: Tensor, dims: list[int]) -> Tensor:
    return x.permute(dims).clone(memory_format=torch.contiguous_format)


@transpose.sharding
def _(x: Tensor, dim0: int = -2, dim1: int = -1) -> list[str]:
    order = [*range(x.ndim)]
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return [f"x:{before} -> {after}" for after, before in enumerate(order)]


@permute_copy.sharding
def _(x: Tensor, dims: list[int]) -> list[str]:
    return [f"x:{before % x.ndim} -> {after}" for after, before in enumerate(dims)]


@transpose.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.dims = inputs[1:]


@transpose.backward
def _(ctx: Any, grad: Tensor) -> Any:
    return grad.transpose(*ctx.dims), None, None


@permute_copy.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.dims = inputs[1]


@permute_copy.backward
def _(ctx: Any, grad: Tensor) -> Any:
    rank = grad.dim()
    order = [dim % rank for dim in ctx.dims]
    return grad.permute([order.index(dim) for dim in range(rank)]), None


@transpose.vmap
def _(info: Any, in_dims: tuple[int | None, ...], x: Tensor, dim0: int = -2, dim1: int = -1) -> Any:
    x = x.movedim(in_dims[0] or 0, 0)
    order = [*range(x.dim() - 1)]
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return permute_copy(x, [0, *(dim + 1 for dim in order)]), 0


@permute_copy.vmap
def _(info: Any, in_dims: tuple[int | None, ...], x: Tensor, dims: list[int]) -> Any:
    x = x.movedim(in_dims[0] or 0, 0)
    return permute_copy(x, [0, *(range(1, x.dim())[dim] for dim in dims)]), 0


@transpose.work
def _(x: Tensor, dim0: int = -2, dim1: int = -1) -> tuple[int, int]:
    return 2 * x.numel() * x.element_size(), 0


@permute_copy.work
def _(x: Tensor, dims: list[int]) -> tuple[int, int]:
    return 2 * x.numel() * x.element_size(), 0


@transpose.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    def random(*shape: int) -> Tensor:
        return _random(shape, device, dtype)

    yield dotcu.Sample(random(80, 144))
    yield dotcu.Sample(random(67, 33))
    yield dotcu.Sample(random(2, 40, 48)[:, 1:], 1, 2)
    yield dotcu.Sample(random(3, 5, 32), 0, 1)
    yield dotcu.Sample(random(24, 3, 10)[..., 1:], 0, -1)
    yield dotcu.Sample(random(4, 0, 3))
    yield dotcu.Sample(random(), 0, -1)
    yield dotcu.Sample(random(40, 24).T)
    yield dotcu.Sample(random(520, 11))  # a tile of these two is a span of memory
    yield dotcu.Sample(random(9, 520))


@permute_copy.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    def random(*shape: int) -> Tensor:
        return _random(shape, device, dtype)

    yield dotcu.Sample(random(2, 6, 5, 16), [0, 2, 3, 1])
    yield dotcu.Sample(random(2, 9, 3, 11), [3, 0, -2, 1])
    yield dotcu.Sample(random(3, 4, 32)[::2], [1, 0, 2])
    yield dotcu.Sample(random(2, 5, 3, 33), [0, 2, 1, 3])  # rows stay rows, and begin anywhere
    yield dotcu.Sample(random(2, 3, 2, 5, 3, 2, 4), [6, 4, 2, 0, 5, 3, 1])
    yield dotcu.Sample(random(0, 4, 3), [2, 0, 1])
    yield dotcu.Sample(random(), [])


def _random(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    if dtype.itemsize == 1 and dtype.is_floating_point:
        return make_tensor(shape, device=device, dtype=torch.float32, low=-9, high=9).to(dtype)
    return make_tensor(shape, device=device, dtype=dtype)
