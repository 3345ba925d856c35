"""sum: a tensor added up, whole or along a dimension, in an order that never changes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.gallery.common import (
    REAL,
    VECTOR_BYTES,
    PlannedLaunch,
    random_tensors,
    require_dtype,
    result_type,
    sum_type,
    vector_width,
)

kernels = dotcu.load("kernel.cu")

SMALL_INTEGERS = (torch.uint8, torch.int8, torch.int16)

WARP = 32
MAX_THREADS = 1024

SHORT_ROWS_THREADS = 512
"""The most threads of a block whose rows are summed by lanes of a warp: each has twice the registers."""

MAX_PARTS = 2**15
"""Of a row; blocks along the grid's y."""

LAST_TEAM = 512
"""Threads that add up the sums of the parts of a row."""

ROW_BATCH, PART_BATCH = 4, 8
"""Vectors that a thread of `sum_rows` has on their way at once; the same where a row has several blocks."""

PART = 16384
"""Vectors of a part of a row, where there are many."""

SHORT_ROW, MIDDLING_ROW, LONG_ROW = 32, 256, 8192
"""Vectors of a row that lanes of a warp add up; those where there are `MANY_ROWS`; and those of a row that is
not worth a second launch."""

MANY_ROWS, ENOUGH = 1024, 24
"""Rows of which each has few threads, and vectors that such a thread has at most."""

COLUMN_BATCH, NARROW_BYTES = 8, 4
"""Vectors that a thread of `sum_columns` has on their way at once; four times as many of so few bytes."""

NARROW_THREADS = 256
"""The most threads of a block that has those batches."""

MAX_LANES = 8
"""Columns of a thread: so many sums fit into its registers."""

ACROSS, ACROSS_FEW = 32, 8
"""Vectors side by side that a block reads, and those where else too few blocks were busy."""

LINES_BYTES = 256
"""Bytes side by side that a block reads of narrow vectors at least, where there are as many."""

TALL = 1024

Launches = tuple[tuple[int, ...], PlannedLaunch, PlannedLaunch | None]
"""The shape of the sums of parts, if there are several, and the one launch or both."""


@dotcu.op("dotcu::sum", dtypes=REAL)
def sum(x: Tensor, dim: int | None = None, keepdim: bool = False, *, block_size: int = 256) -> Tensor:
    """Add up all elements, or those along a dimension: the same bits at every call.

    Half types add up in float32, integers in 64 bits, and integers give int64, as in torch.
    `sum(x, out=y)` writes into a tensor that is there already.

    Args:
        x: A tensor of any shape, of a dtype out of `REAL`. It is copied if it has gaps, or if its
            dimensions lie in memory in another order than the result's.
        dim: The dimension that goes away; None for all.
        keepdim: Leave a dimension of size 1 in its place.
        block_size: Threads of a block, a multiple of 32, of which short rows take 512 at most; of those that
            add up one sum, the power of two that is no larger, fewer where rows are many and not long, and
            four times as many where blocks are few.
    """
    _require(x, dim, block_size)
    out = _result(x, dim, keepdim)
    _add_up(x, out, dim, block_size)
    return out


@sum.fake
def _(x: Tensor, dim: int | None = None, keepdim: bool = False, *, block_size: int = 256) -> Tensor:
    _require(x, dim, block_size)
    return _result(x, dim, keepdim)  # without the choices by size, each of which would be a guard


@sum.overload("out", mutates_args=("out",))
def sum_out(
    x: Tensor, dim: int | None = None, keepdim: bool = False, *, block_size: int = 256, out: Tensor
) -> None:
    """Write the sum into `out`, of any strides. It must not overlap x.

    Args:
        out: A tensor of the result's shape and dtype, on x's device. The rest as for `sum`.
    """
    _require(x, dim, block_size)
    shape, dtype = _shape(x, dim, keepdim), result_type(x.dtype)
    if tuple(out.shape) != shape or out.dtype != dtype or out.device != x.device:
        raise ValueError(
            f"out= must be a tensor of shape {shape} and dtype {dtype} on {x.device} "
            f"(got {tuple(out.shape)}, {out.dtype}, {out.device}).\n"
            f"Allocate it so: x.new_empty({shape}, dtype={dtype})"
        )
    whole = out if out.is_contiguous() else _result(x, dim, keepdim)
    _add_up(x, whole, dim, block_size)
    if whole is not out:
        out.copy_(whole)


def _add_up(x: Tensor, out: Tensor, dim: int | None, block_size: int) -> None:
    """Launch one kernel, or two: for the parts of each sum, and for their sums."""
    if out.numel() == 0:
        return
    order = _order(x, dim)
    x = x.permute(order).contiguous()
    place = None if dim is None or not order else order.index(dim % x.dim())
    parts, (kernel, numbers, grid, block, smem_bytes, _), last = _choose(x, out, place, block_size)
    if last is None:
        kernel(x, out, *numbers, grid=grid, block=block, smem_bytes=smem_bytes)
        return
    of_part = x.new_empty(parts, dtype=sum_type(x.dtype))
    kernel(x, of_part, *numbers, grid=grid, block=block, smem_bytes=smem_bytes)
    kernel, numbers, grid, block, smem_bytes, _ = last
    kernel(of_part, out, *numbers, grid=grid, block=block, smem_bytes=smem_bytes, programmatic=True)


def _order(x: Tensor, dim: int | None) -> list[int]:
    """The dimensions as they are in memory, if it has no gaps and leaves those of the result in order."""
    given = list(range(x.dim()))
    if x.is_contiguous():
        return given
    order = sorted(given, key=lambda d: -x.stride()[d])
    left = order if dim is None else [d for d in order if d != dim % x.dim()]
    serves = (dim is None or left == sorted(left)) and x.permute(order).is_contiguous()
    return order if serves else given


@dotcu.by_layout
def _choose(x: Tensor, out: Tensor, place: int | None, block_size: int) -> Launches:
    """Look at x as [outer, n, inner], of which n goes away: the dimension at a place, or all."""
    if place is None:
        return _choose_rows(x, out, 1, x.numel(), block_size)
    n, inner = x.shape[place], math.prod(x.shape[place + 1 :])
    if inner == 1:
        return _choose_rows(x, out, out.numel(), n, block_size)
    return _choose_columns(x, out, n, inner, block_size)


def _choose_rows(x: Tensor, out: Tensor, rows: int, n: int, block_size: int) -> Launches:
    """Add up contiguous rows; few long ones in two launches."""
    vectors, block = dotcu.cdiv(n * x.element_size(), VECTOR_BYTES), _power_up_to(block_size)
    most = MAX_THREADS // 2 if x.dtype in SMALL_INTEGERS else MAX_THREADS  # these need 69 registers
    team, parts = _team(vectors, rows, block, most, dotcu.sm_count(x)), 1
    threads, wide = min(block_size, SHORT_ROWS_THREADS) if team <= WARP else team, sum_type(x.dtype)
    if vectors > LONG_ROW:
        kernel = _rows_kernel(x.dtype, wide, team, PART_BATCH)
        resident = kernel.occupancy(threads) * dotcu.sm_count(x)
        busy = torch.sym_min(resident // rows, vectors // (PART_BATCH * team))
        parts = torch.sym_max(torch.sym_max(1, busy), torch.sym_min(vectors // PART, MAX_PARTS))
    if parts > 1:
        last = PlannedLaunch(_rows_kernel(wide, out.dtype, LAST_TEAM), (rows, parts), rows, LAST_TEAM)
        return (rows, parts), PlannedLaunch(kernel, (rows, n), (rows, parts), threads), last
    kernel = _rows_kernel(x.dtype, out.dtype, team)
    return (), PlannedLaunch(kernel, (rows, n), dotcu.cdiv(rows, threads // team), threads), None


def _team(vectors: int, rows: int, block: int, most: int, multiprocessors: int) -> int:
    """Return the number of threads that share a row: lanes of a warp, or a block."""
    if vectors > LONG_ROW:
        return block
    if vectors > ROW_BATCH * block and rows < multiprocessors:
        return max(block, min(4 * block, most))
    if vectors > SHORT_ROW and rows < MANY_ROWS:
        return block
    if vectors > MIDDLING_ROW:
        team = 2 * WARP
        while team < block and ENOUGH * team < vectors:
            team *= 2
        return min(team, block)
    team = 1
    while team < WARP and (ROW_BATCH + 1) * team < vectors:  # a few more are less than twice the lanes
        team *= 2
    return team


def _rows_kernel(dtype: torch.dtype, result: torch.dtype, team: int, batch: int = ROW_BATCH) -> dotcu.Kernel:
    return kernels.sum_rows[dtype, _part_type(dtype), sum_type(dtype), result, team, batch]


def _choose_columns(x: Tensor, out: Tensor, n: int, inner: int, block_size: int) -> Launches:
    """Add up columns; few long ones in two launches."""
    most, columns = min(MAX_LANES, VECTOR_BYTES // x.element_size()), out.numel()
    lanes, anywhere = vector_width(most, (inner,), x), False
    block, parts = _first_columns(x, columns, n, inner, lanes, anywhere, block_size)
    if lanes < most <= inner + 1 and columns == inner and dotcu.is_aligned(x, VECTOR_BYTES):
        wider, shared = _first_columns(x, columns, n, inner, most, True, block_size)
        if most * x.element_size() == VECTOR_BYTES and shared >= most:
            lanes, block, parts, anywhere = most, wider, shared // most * most, True
    if parts == 1:
        return (), _columns(x.dtype, out.dtype, (columns, n, inner), 1, lanes, block), None
    wide = sum_type(x.dtype)
    first = _columns(x.dtype, wide, (columns, n, inner), parts, lanes, block, anywhere)
    lanes = 1 if anywhere else min(lanes, VECTOR_BYTES // wide.itemsize)
    vector_bytes = lanes * wide.itemsize
    block = _columns_block(
        columns // lanes, parts, inner // lanes, vector_bytes, block_size, dotcu.sm_count(x)
    )
    last = _columns(wide, out.dtype, (columns, parts, inner), 1, lanes, block)
    return (columns // inner, parts, inner), first, last


def _first_columns(
    x: Tensor, columns: int, n: int, inner: int, lanes: int, anywhere: bool, block_size: int
) -> tuple[tuple[int, int], int]:
    """Return the block of a launch that reads x, of [outer, n, inner] elements, and the parts of n.

    Args:
        columns: outer * inner.
        lanes: Columns of a thread.
        anywhere: Rows do not begin at multiples of vectors.
    """
    multiprocessors, parts, vectors = dotcu.sm_count(x), 1, columns // lanes
    block = _columns_block(vectors, n, inner // lanes, lanes * x.element_size(), block_size, multiprocessors)
    worthwhile = n // (2 * COLUMN_BATCH * block[1])
    if worthwhile > 1:
        kernel = _columns_kernel(x.dtype, sum_type(x.dtype), lanes, anywhere)
        resident = kernel.occupancy(block, _smem_bytes(x.dtype, lanes, block)) * multiprocessors
        across = dotcu.cdiv(vectors + anywhere, block[0])
        parts = torch.sym_max(1, torch.sym_min(resident // across, worthwhile))
    return block, parts


def _columns(
    dtype: torch.dtype, result: torch.dtype, numbers: tuple[int, int, int], parts: int, lanes: int,
    block: tuple[int, int], anywhere: bool = False,
) -> PlannedLaunch:  # fmt: skip
    grid = dotcu.cdiv(dotcu.cdiv(numbers[0] + anywhere * (lanes - 1), lanes), block[0]), parts
    smem_bytes = _smem_bytes(dtype, lanes, block)
    return PlannedLaunch(_columns_kernel(dtype, result, lanes, anywhere), numbers, grid, block, smem_bytes)


def _columns_block(
    vectors: int, n: int, inner_vectors: int, vector_bytes: int, block_size: int, multiprocessors: int
) -> tuple[int, int]:
    """Threads side by side and along n: as many of these as have half a batch to load, or more."""
    threads = _power_up_to(block_size)
    if vector_bytes <= NARROW_BYTES:  # of larger batches, which take more registers
        threads = min(threads, NARROW_THREADS)
    wide = n >= TALL or vectors >= ACROSS * multiprocessors
    most = max(ACROSS, LINES_BYTES // vector_bytes) if wide else ACROSS_FEW
    across, along = 1, 1
    while across < most and across < inner_vectors and across < threads:
        across *= 2
    while along < threads // across and COLUMN_BATCH // 2 * along < n:
        along *= 2
    return threads // along, along


def _columns_kernel(
    dtype: torch.dtype, result: torch.dtype, lanes: int, anywhere: bool = False
) -> dotcu.Kernel:
    batch = COLUMN_BATCH * (4 if lanes * dtype.itemsize <= NARROW_BYTES else 1)
    return kernels.sum_columns[dtype, _part_type(dtype), sum_type(dtype), result, lanes, batch, anywhere]


def _smem_bytes(dtype: torch.dtype, lanes: int, block: tuple[int, int]) -> int:
    return block[0] * block[1] * lanes * sum_type(dtype).itemsize


def _power_up_to(block_size: int) -> int:
    """The largest power of two that is no larger."""
    power = WARP
    while 2 * power <= block_size:
        power *= 2
    return power


def _part_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type that a batch adds up in."""
    return torch.int32 if dtype in SMALL_INTEGERS else sum_type(dtype)


def _result(x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    return x.new_empty(_shape(x, dim, keepdim), dtype=result_type(x.dtype))


def _shape(x: Tensor, dim: int | None, keepdim: bool) -> tuple[int, ...]:
    if dim is None or x.dim() == 0:
        return (1,) * x.dim() if keepdim else ()
    place = dim % x.dim()
    return (*x.shape[:place], *((1,) if keepdim else ()), *x.shape[place + 1 :])


def _require(x: Tensor, dim: int | None, block_size: int) -> None:
    require_dtype("sum", x.dtype, REAL)
    rank = max(x.dim(), 1)
    if dim is not None and not -rank <= dim < rank:
        raise ValueError(
            f"dim is a dimension of x, {-rank} to {rank - 1} (got {dim}).\nThe last one: sum(x, dim=-1)"
        )
    if block_size % WARP != 0 or not WARP <= block_size <= MAX_THREADS:
        raise ValueError(
            f"block_size is a number of whole warps, a multiple of {WARP} up to {MAX_THREADS} "
            f"(got {block_size}).\nType: sum(x, block_size=256)"
        )


@sum.reference
def _(x: Tensor, dim: int | None = None, keepdim: bool = False, **launch: int) -> Tensor:
    return torch.sum(x, dim, keepdim)


@sum.sharding
def _(x: Tensor, dim: int | None = None, keepdim: bool = False, **launch: int) -> list[str]:
    """A part of what is added up gives a part of the sum."""
    if dim is None or x.ndim == 0:
        return [f"x:{each} -> sum" for each in range(x.ndim)]
    added = dim % x.ndim
    places = [each if keepdim or each < added else each - 1 for each in range(x.ndim)]
    return [f"x:{each} -> {'sum' if each == added else places[each]}" for each in range(x.ndim)]


@sum.setup_context
def _(ctx: Any, inputs: Any, output: Tensor, keyword_only_inputs: Any) -> None:
    x, ctx.dim, keepdim = inputs
    ctx.shape = x.shape
    ctx.gone = ctx.dim is not None and not keepdim and x.dim() > 0


@sum.backward
def _(ctx: Any, grad: Tensor) -> Any:
    return (grad.unsqueeze(ctx.dim) if ctx.gone else grad).expand(ctx.shape), None, None


@sum.vmap
def _(
    info: Any,
    in_dims: tuple[int | None, ...],
    x: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    **launch: int,
) -> Any:
    x = x.movedim(in_dims[0] or 0, 0)
    rank = x.dim() - 1
    if dim is not None and rank > 0:
        return sum(x, dim % rank + 1, keepdim, **launch), 0
    total = sum(x.reshape(len(x), math.prod(x.shape[1:])), 1, **launch)
    return total.view(-1, *[1] * (rank if keepdim else 0)), 0


@sum.work
def _(x: Tensor, dim: int | None = None, keepdim: bool = False, **launch: int) -> tuple[int, int]:
    written = math.prod(_shape(x, dim, keepdim)) * result_type(x.dtype).itemsize
    return x.numel() * x.element_size() + written, x.numel()


@sum.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -1, 2)
    yield dotcu.Sample(random(1000))
    yield dotcu.Sample(random())
    yield dotcu.Sample(random(4, 0))
    yield dotcu.Sample(random(31), block_size=32)
    yield dotcu.Sample(random(3, 11, 7).transpose(0, 1), block_size=1024)
    yield dotcu.Sample(random(70, 9)[:, 1::2])
    yield dotcu.Sample(random(20_011), block_size=128)
    yield dotcu.Sample(random(150_001)[1:])
    yield dotcu.Sample(random(37, 13), 1)
    yield dotcu.Sample(random(40, 24), 0, True)
    yield dotcu.Sample(random(3, 5000, 5), -2)
