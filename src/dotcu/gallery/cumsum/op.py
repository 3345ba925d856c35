"""cumsum: running sums along a dimension, in one pass over memory, with the same bits at every call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.gallery.common import (
    ALIGNED,
    FLOATS,
    INTEGERS,
    LEAST_RAGGED_BYTES,
    REAL,
    VECTOR_BYTES,
    PlannedLaunch,
    random_tensors,
    require_dtype,
    result_type,
    row_vectors,
    sum_type,
    vector_width,
)

kernels = dotcu.load("kernel.cu")
tile_kernels = dotcu.load("tiles.cu")
column_kernels = dotcu.load("columns.cu")


WARP = 32

LANES = (
    (1, 1, 1, 4), (2, 2, 1, 4), (4, 4, 1, 4), (8, 8, 1, 4), (16, 16, 1, 4), (32, 32, 1, 4), (64, 32, 2, 2),
    (128, 32, 4, 1), (256, 32, 8, 1),
)  # fmt: skip
"""Up to so many vectors in a row: lanes that share it, vectors of each, rows that they take at a time."""
LANES_BLOCK = 256

BLOCKS = ((512, 1, 128, 4), (1024, 1, 256, 4), (2048, 1, 256, 8))
RAGGED_BLOCKS = ((2048, 1, 256, 8),)

MUCH = 2**19
CLUSTERS = ((4096, 2, 256, 8), (8192, 4, 256, 8), (16384, 8, 256, 8), (32768, 16, 256, 8))
SPREAD_CLUSTERS = ((4096, 8, 256, 2), (8192, 8, 256, 4), (16384, 8, 256, 8), (32768, 16, 256, 8))
"""Up to so many vectors in a row: blocks that share it, threads of each at most, vectors of each.

Where all rows are less than `MUCH` vectors, a row is spread over more blocks. Rows that begin anywhere have
more vectors for each thread: its words are shifted while others load."""

TILES = ((2**20, 256, 4), (2**63, 160, 8))
"""Fewer than so many vectors in all rows: threads of a block, vectors of each; tiles of longer rows."""

TOGETHER = 2 * (1 + WARP)
"""The blocks that must fit on a GPU for a conductor that reads 32 tiles at a time, on two streams."""

COLUMN_BLOCKS = (32, 64, 128, 256)
"""Threads: the fewest that have all rows, or the most."""
COLUMNS, RAGGED_COLUMNS = (4, 256), (16, 128)
"""Vectors side by side in a warp, where there are many rows, and threads at most; the same where rows begin
anywhere."""
COLUMN_ROWS, AHEAD = 8, 8
"""Rows of a thread; as in look_back.cuh."""

RAGGED_SIDES = (32, 64, 128, 256)
"""Threads side by side that have a column each, where rows begin anywhere: the fewest that have all columns,
or the most."""
RAGGED_BLOCK, RAGGED_BYTES = 256, 2**16
"""Threads, and bytes of a tile of such columns."""


def _ragged(dtype: torch.dtype, side: int, reverse: bool) -> tuple[Any, ...]:
    """Return the template arguments of ragged.cu."""
    rows = RAGGED_BYTES // (RAGGED_BLOCK * dtype.itemsize)
    return dtype, sum_type(dtype), side, RAGGED_BLOCK, rows, reverse


RAGGED = itertools.product((torch.float32, torch.float16, torch.bfloat16), RAGGED_SIDES, (False, True))
ragged_kernels = dotcu.load(
    "ragged.cu", instantiate={"cumsum_ragged": list(itertools.starmap(_ragged, RAGGED))}
)
"""No sample is as large as what takes these."""
RAGGED_TILES, RAGGED_BELOW = 1024, 4
"""Tiles that are enough for a GPU, and how many of them are below each other at least."""
RAGGED_LEAST_BYTES, RAGGED_MAX_BYTES = 64, 4
"""Bytes of such a row at least, and of its elements at most."""

Scan = tuple[PlannedLaunch, int | None]
"""A launch, and how many sums its tiles tell each other, if it has such."""

TOLERANCE = {torch.float64: 1e-12}
"""The reference adds one element after another, and in float64 that is the less exact of the two."""


@dotcu.op("dotcu::cumsum", dtypes=REAL, tolerance=TOLERANCE)
def cumsum(x: Tensor, dim: int = -1) -> Tensor:
    """Add up along a dimension and keep every sum: half types in float32, integers in 64 bits, as in torch.

    Args:
        x: A tensor of any shape and strides, of a dtype out of `REAL`.
        dim: The dimension.
    """
    return _scan(x, dim, False)


@dotcu.op("dotcu::reverse_cumsum", dtypes=FLOATS, tolerance=TOLERANCE)
def reverse_cumsum(x: Tensor, dim: int = -1) -> Tensor:
    """Add up along a dimension from its end on: the gradient of `cumsum`, as that is its gradient.

    Args:
        x: A tensor of any shape and strides, of a dtype out of `FLOATS`.
        dim: The dimension.
    """
    return _scan(x, dim, True)


def _scan(x: Tensor, dim: int, reverse: bool) -> Tensor:
    _require(x, dim, FLOATS if reverse else REAL)
    x = x.contiguous()
    out = torch.empty_like(x, dtype=result_type(x.dtype))
    if x.numel() > 0:
        (kernel, numbers, grid, block, smem_bytes, cluster), places = _choose(x, out, dim, reverse)
        mailbox = () if places is None else (_mailbox(x, places),)
        waits = bool(mailbox)
        kernel(
            x, out, *numbers, *mailbox,
            grid=grid, block=block, cluster=cluster, smem_bytes=smem_bytes, programmatic=waits,
        )  # fmt: skip
    return out


@dotcu.by_layout
def _choose(x: Tensor, out: Tensor, dim: int, reverse: bool) -> Scan:
    outer, n, inner = _sizes(x, dim)
    if inner == 1:
        return _choose_rows(x, out, outer, n, reverse)
    return _choose_columns(x, out, outer, n, inner, reverse)


def _choose_rows(x: Tensor, out: Tensor, rows: int, n: int, reverse: bool) -> Scan:
    way, width = _lying(x, out, rows, n)
    types = (x.dtype, out.dtype, sum_type(x.dtype), width)
    length = dotcu.cdiv(n if way == ALIGNED else n + width - 1, width)
    for longest, lanes, vectors, batch in LANES:
        if length <= longest:
            instance: tuple[Any, ...] = (*types, vectors, LANES_BLOCK, lanes, batch, way, reverse)
            grid = dotcu.cdiv(rows, LANES_BLOCK // lanes * batch)
            return PlannedLaunch(kernels.cumsum_rows[instance], (n, rows), grid, LANES_BLOCK), None
    ways: tuple[tuple[int, int, int, int], ...] = BLOCKS if way == ALIGNED else RAGGED_BLOCKS
    if _has_clusters(x):
        ways += CLUSTERS if rows * length >= MUCH else SPREAD_CLUSTERS
    for longest, blocks, threads, vectors in ways:
        if length <= longest:
            threads = torch.sym_min(threads, WARP * dotcu.cdiv(length, WARP * blocks * vectors))
            instance = (*types, vectors, threads, blocks, way, reverse)
            cluster = blocks if blocks > 1 else None
            return PlannedLaunch(kernels.cumsum[instance], (n,), rows * blocks, threads, 0, cluster), None
    threads, vectors = next(tile for most, *tile in TILES if rows * length < most)
    tiles = dotcu.cdiv(length, threads * vectors)
    instance = (*types, vectors, threads, way, False, reverse)
    if tile_kernels.cumsum_tiles[instance].occupancy(threads) * dotcu.sm_count(x) < TOGETHER:
        instance = (*types, vectors, threads, way, True, reverse)
    kernel = tile_kernels.cumsum_tiles[instance]
    return PlannedLaunch(kernel, (n, tiles), rows * (tiles + 1), threads), rows * 2 * tiles


def _lying(x: Tensor, out: Tensor, rows: int, n: int) -> tuple[str, int]:
    """Return how rows lie, and the elements of their vectors."""
    most = VECTOR_BYTES // out.element_size()
    width = vector_width(most, (0 if rows == 1 else n,), x)
    return (ALIGNED, width) if width == most or x.dtype != out.dtype else row_vectors(n, x, out)


def _choose_columns(x: Tensor, out: Tensor, outer: int, n: int, inner: int, reverse: bool) -> Scan:
    most = VECTOR_BYTES // out.element_size()
    width = vector_width(most, (inner,), x)
    if width < most and x.dtype == out.dtype and x.element_size() <= RAGGED_MAX_BYTES:
        ragged = _choose_ragged(x, out, outer, n, inner, reverse)
        if ragged is not None:
            return ragged
    anywhere = width < most and x.dtype == out.dtype and inner * x.element_size() >= LEAST_RAGGED_BYTES
    width = most if anywhere else width
    most_lanes, block = RAGGED_COLUMNS if anywhere else COLUMNS
    lanes = _column_lanes(n, dotcu.cdiv(inner, width), most_lanes)
    across = dotcu.cdiv(inner, lanes * width)
    types = (x.dtype, out.dtype, sum_type(x.dtype), width, COLUMN_ROWS)
    for threads in COLUMN_BLOCKS:
        if n * lanes <= threads * COLUMN_ROWS and threads <= block:
            way = (*types, threads, lanes, anywhere, False, reverse)
            numbers = (n, inner, across, 1, None)
            return PlannedLaunch(column_kernels.cumsum_columns[way], numbers, outer * across, threads), None
    tiles = dotcu.cdiv(n * lanes, block * COLUMN_ROWS)
    group = AHEAD * (block // (lanes * width))
    places = outer * across * (tiles + tiles // group + 1) * lanes * width
    way, grid = (*types, block, lanes, anywhere, True, reverse), outer * across * tiles
    return PlannedLaunch(column_kernels.cumsum_columns[way], (n, inner, across, tiles), grid, block), places


def _choose_ragged(x: Tensor, out: Tensor, outer: int, n: int, inner: int, reverse: bool) -> Scan | None:
    """Choose for rows that begin anywhere, if they are many."""
    width = VECTOR_BYTES // x.element_size()
    side = next((side for side in RAGGED_SIDES if inner + width - 1 <= side), RAGGED_SIDES[-1])
    across = dotcu.cdiv(inner, side - width + 1)
    types = _ragged(x.dtype, side, reverse)
    slices, rows = RAGGED_BLOCK // side, types[4]
    tiles = dotcu.cdiv(n, slices * rows)
    grid = outer * across * tiles
    aligned = dotcu.is_aligned(x, VECTOR_BYTES) and dotcu.is_aligned(out, VECTOR_BYTES)
    many = tiles >= RAGGED_BELOW and grid >= RAGGED_TILES
    fit = not x.is_cuda or _has_clusters(x)  # three tiles on a multiprocessor
    if not aligned or not many or not fit or inner * x.element_size() < RAGGED_LEAST_BYTES:
        return None
    places = outer * across * (tiles + tiles // (AHEAD * slices) + 1) * side
    numbers = (n, inner, x.numel(), dotcu.cdiv(inner, across), across, tiles)
    kernel = ragged_kernels.cumsum_ragged[types]
    return PlannedLaunch(kernel, numbers, grid, RAGGED_BLOCK, RAGGED_BYTES), places


def _column_lanes(n: int, vectors: int, most: int) -> int:
    """Return the number of vectors side by side in a warp: so many at most, or more if rows are few."""
    lanes = 1
    while lanes < vectors and lanes < WARP and (lanes < most or 2 * lanes * n <= WARP * COLUMN_ROWS):
        lanes *= 2
    return lanes


def _mailbox(x: Tensor, places: int) -> Tensor:
    """Return cleared memory by which tiles pass their sums to each other."""
    words = 2 * places if x.dtype in INTEGERS else places
    mailbox = torch.empty(words, dtype=torch.int64, device=x.device)
    tile_kernels.clear(mailbox, words, grid=dotcu.cdiv(words, LANES_BLOCK), block=LANES_BLOCK)
    return mailbox


def _has_clusters(x: Tensor) -> bool:
    """Return True if the GPU has clusters of 16: sm_90 and sm_100, which have 228 KB of shared memory."""
    return x.is_cuda and tile_kernels.clear.occupancy(32, 70 * 1024) >= 3


def _sizes(x: Tensor, dim: int) -> tuple[int, int, int]:
    """Return the numbers of elements outside of the dimension, along it and inside of it."""
    if x.dim() == 0:
        return 1, 1, 1
    n, inner = x.shape[dim], math.prod(x.shape[dim % x.dim() + 1 :])
    return x.numel() // (n * inner), n, inner


def _require(x: Tensor, dim: int, dtypes: tuple[torch.dtype, ...]) -> None:
    require_dtype("a running sum", x.dtype, dtypes)
    most = max(x.dim(), 1)
    if not -most <= dim < most:
        raise ValueError(
            f"dim is a dimension of x, {-most} to {most - 1} (got {dim} for {x.dim()} dimensions).\n"
            "Leave it out for the last one: cumsum(x)"
        )


@cumsum.fake
def _(x: Tensor, dim: int = -1) -> Tensor:
    """Shapes alone: launches are chosen by size, which would tie a graph to the sizes it was traced with."""
    _require(x, dim, REAL)
    return torch.empty_like(x.contiguous(), dtype=result_type(x.dtype))


@reverse_cumsum.fake
def _(x: Tensor, dim: int = -1) -> Tensor:
    _require(x, dim, FLOATS)
    return torch.empty_like(x.contiguous())


@cumsum.reference
def _(x: Tensor, dim: int = -1) -> Tensor:
    return torch.cumsum(x, dim)


@reverse_cumsum.reference
def _(x: Tensor, dim: int = -1) -> Tensor:
    if x.dim() == 0:
        return torch.cumsum(x, dim)
    return torch.cumsum(x.flip(dim), dim).flip(dim)


@cumsum.sharding
@reverse_cumsum.sharding
def _(x: Tensor, dim: int = -1) -> list[str]:
    return [f"x:{other} -> {other}" for other in range(x.ndim) if other != dim % x.ndim]


@cumsum.setup_context
@reverse_cumsum.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.dim = inputs[1]


@cumsum.backward
def _(ctx: Any, grad: Tensor) -> Any:
    return reverse_cumsum(grad, ctx.dim), None


@reverse_cumsum.backward
def _(ctx: Any, grad: Tensor) -> Any:
    return cumsum(grad, ctx.dim), None


@cumsum.work
@reverse_cumsum.work
def _(x: Tensor, dim: int = -1) -> tuple[int, int]:
    return x.numel() * (x.element_size() + result_type(x.dtype).itemsize), x.numel()


@cumsum.vmap
def _(info: Any, in_dims: tuple[int | None, ...], x: Tensor, dim: int = -1) -> Any:
    return _batched(cumsum, in_dims, x, dim)


@reverse_cumsum.vmap
def _(info: Any, in_dims: tuple[int | None, ...], x: Tensor, dim: int = -1) -> Any:
    return _batched(reverse_cumsum, in_dims, x, dim)


def _batched(operator: Any, in_dims: tuple[int | None, ...], x: Tensor, dim: int) -> tuple[Tensor, int]:
    assert in_dims[0] is not None
    x = x.movedim(in_dims[0], 0)
    if x.dim() == 1:  # of numbers, which are sums of themselves
        return operator(x[:, None], -1)[:, 0], 0
    return operator(x, dim if dim < 0 else dim + 1), 0


@cumsum.samples
@reverse_cumsum.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -2, 3)
    yield dotcu.Sample(random(20_011))  # tiles, or a cluster where there are some
    yield dotcu.Sample(random(3, 1024))  # a row for a warp, or a block
    yield dotcu.Sample(random(9, 50)[:, 1::2])
    yield dotcu.Sample(random(), 0)
    yield dotcu.Sample(random(4, 0), 1)
    yield dotcu.Sample(random(5, 7, 3), 1)  # columns
    yield dotcu.Sample(random(2, 4000, 2), -2)  # tiles of columns
    yield dotcu.Sample(random(1000)[1:], 0)  # off any alignment
