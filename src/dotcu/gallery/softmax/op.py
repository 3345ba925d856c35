"""softmax: exponentials along a dimension, over their sum, by one read of each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.testing import make_tensor

import dotcu
from dotcu.gallery.common import (
    ALIGNED,
    FLOATS,
    VECTOR_BYTES,
    PlannedLaunch,
    has_few_rows,
    random_tensors,
    require_dtype,
    row_vectors,
    sum_type,
)

backward_kernels = dotcu.load("backward.cu")


class Holder(NamedTuple):
    """A launch that holds a whole row: threads, bytes of a thread, blocks of a cluster."""

    threads: int
    held: int
    blocks: int


HOLDERS = (
    Holder(4, 16, 1), Holder(4, 32, 1), Holder(8, 32, 1), Holder(8, 64, 1), Holder(16, 64, 1),
    Holder(32, 64, 1), Holder(64, 64, 1), Holder(128, 64, 1), Holder(256, 64, 1), Holder(512, 64, 1),
    Holder(1024, 64, 1), Holder(512, 128, 2), Holder(1024, 128, 1), Holder(512, 128, 4), Holder(512, 128, 8),
    Holder(1024, 128, 8),
)  # fmt: skip
"""The smallest first: without a tuned one, the first that holds a row is launched."""

MANY_ROWS_HOLDERS = (Holder(32, 64, 1), Holder(64, 64, 1), Holder(128, 64, 1))
FEW_ROWS_HOLDERS = (Holder(64, 32, 1), Holder(128, 32, 1), Holder(256, 32, 1))
"""Those of an aligned row of a half type, and what it has instead where rows are few: by trials on an H100,
which the README tells."""

kernels = dotcu.load(
    "kernel.cu",
    instantiate={
        "softmax": [
            (dtype, ALIGNED, VECTOR_BYTES // 2, holder.held // VECTOR_BYTES, holder.threads, 1)
            for dtype in (torch.float16, torch.bfloat16)
            for holder in MANY_ROWS_HOLDERS
        ]
    },
)
"""No sample has as many rows as what takes these."""

BACKWARD_HOLDERS = (
    Holder(4, 16, 1), Holder(8, 16, 1), Holder(8, 32, 1), Holder(16, 32, 1), Holder(32, 32, 1),
    Holder(64, 32, 1), Holder(128, 32, 1), Holder(256, 32, 1), Holder(512, 32, 1), Holder(1024, 32, 1),
    Holder(1024, 64, 1), Holder(1024, 64, 2), Holder(1024, 64, 4), Holder(1024, 64, 8),
)  # fmt: skip
"""The same for the backward, whose threads hold as many bytes of each of two tensors."""

LONG = (512, 64)
"""Threads, and bytes of a thread, for rows that no launch can hold."""

MAX_PARTS = 256
"""Blocks of such a row, for whose numbers the threads of each suffice."""

MAX_STEPS = 32
"""Loads that a thread holds at once: each takes a register or more."""

Vectors = tuple[str, int]
"""How rows lie, and the elements of a vector: `row_vectors`."""

RowLaunch = tuple[dotcu.Kernel | None, PlannedLaunch]
"""The kernel of the parts of rows that none holds, and the launch of the last kernel, as theirs is."""


@dotcu.op("dotcu::softmax", dtypes=FLOATS)
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Divide exp(x) by its sum along a dimension; half types compute in float32.

    Args:
        x: A tensor of any shape and strides, of a dtype out of `FLOATS`.
        dim: The dimension. Any but the last is copied to be the innermost one, and stays that in the result.
    """
    _require("softmax", dim, x)
    rows = _innermost(x, dim)
    out = torch.empty_like(rows)
    if out.numel() != 0:
        _run(_choose(rows, out), (rows,), out, numbers_of_part=2)
    return _as_before(out, dim)


@dotcu.op("dotcu::softmax_backward", dtypes=FLOATS)
def softmax_backward(grad: Tensor, y: Tensor, dim: int = -1) -> Tensor:
    """Give the gradient of softmax's argument.

    Args:
        grad: The gradient of its result.
        y: Its result, of the same shape and dtype.
        dim: The dimension, as for softmax.
    """
    _require("softmax_backward", dim, grad, y)
    grad, y = _innermost(grad, dim), _innermost(y, dim)
    out = torch.empty_like(y)
    if out.numel() != 0:
        _run(_choose_backward(grad, y, out), (grad, y), out, numbers_of_part=1)
    return _as_before(out, dim)


def _run(chosen: RowLaunch, tensors: tuple[Tensor, ...], out: Tensor, numbers_of_part: int) -> None:
    """Launch one kernel, or two: the second reads the numbers of all parts of its row."""
    of_parts, (kernel, numbers, grid, block, _, cluster) = chosen
    if of_parts is None:
        kernel(*tensors, out, *numbers, grid=grid, block=block, cluster=cluster)
        return
    parts = out.new_empty((grid, numbers_of_part), dtype=sum_type(out.dtype))
    of_parts(*tensors, parts, *numbers, grid=grid, block=block)
    kernel(*tensors, parts, out, *numbers, grid=grid, block=block, programmatic=True)


def _innermost(x: Tensor, dim: int) -> Tensor:
    """The tensor with its dimension last, and contiguous."""
    return (x if _is_last(x, dim) else x.transpose(dim, -1)).contiguous()


def _as_before(x: Tensor, dim: int) -> Tensor:
    return x if _is_last(x, dim) else x.transpose(dim, -1)


def _is_last(x: Tensor, dim: int) -> bool:
    return x.dim() == 0 or dim == -1 or dim == x.dim() - 1


@dotcu.by_layout
def _choose(x: Tensor, out: Tensor) -> RowLaunch:
    rows, n, vectors = _row(x, out)
    holder = _first(HOLDERS, x, n, vectors)
    if holder is None:
        return _long(kernels.softmax_parts, kernels.softmax_long, LONG[1], x, rows, n, vectors)
    if vectors == (ALIGNED, VECTOR_BYTES // 2) and holder in MANY_ROWS_HOLDERS and has_few_rows(x, rows):
        holder = FEW_ROWS_HOLDERS[MANY_ROWS_HOLDERS.index(holder)]
    tuned = softmax.configuration(x.dtype, n, rows, default=holder)
    holder = tuned if _fits(tuned, x, n, vectors) else holder
    return _launch(kernels.softmax, holder, x, rows, n, vectors)


@dotcu.by_layout
def _choose_backward(grad: Tensor, y: Tensor, out: Tensor) -> RowLaunch:
    rows, n, vectors = _row(grad, y, out)
    holder = _first(BACKWARD_HOLDERS, grad, n, vectors)
    if holder is None:
        first, last = backward_kernels.softmax_backward_parts, backward_kernels.softmax_backward_long
        return _long(first, last, LONG[1] // 2, grad, rows, n, vectors)
    tuned = softmax_backward.configuration(grad.dtype, n, rows, default=holder)
    holder = tuned if _fits(tuned, grad, n, vectors) else holder
    return _launch(backward_kernels.softmax_backward, holder, grad, rows, n, vectors)


def _row(*tensors: Tensor) -> tuple[int, int, Vectors]:
    """Count rows and elements of one, and choose the vectors that they and the tensors allow."""
    x = tensors[0]
    n = x.shape[-1] if x.dim() > 0 else 1
    return x.numel() // n, n, row_vectors(n, *tensors)


def _first(holders: tuple[Holder, ...], x: Tensor, n: int, vectors: Vectors) -> Holder | None:
    for holder in holders:
        if _fits(holder, x, n, vectors):
            return holder
    return None


def _fits(holder: Holder, x: Tensor, n: int, vectors: Vectors) -> bool:
    """Return whether a launch holds a row of n elements, in such vectors, on this GPU."""
    (threads, held, blocks), (_, width) = holder, vectors
    size = x.element_size()
    holds = held // (width * size) <= MAX_STEPS and n * size <= threads * held * blocks
    return holds and (blocks == 1 or _has_clusters(x))


def _launch(kernel: Any, holder: Holder, x: Tensor, rows: int, n: int, vectors: Vectors) -> RowLaunch:
    (threads, held, blocks), (way, width) = holder, vectors
    rows_of_block = 128 // threads if threads < 64 else 1
    grid, block = dotcu.cdiv(rows, rows_of_block) * blocks, threads * rows_of_block
    steps, cluster = held // (width * x.element_size()), blocks if blocks > 1 else None
    instance = kernel[x.dtype, way, width, steps, threads, blocks]
    return None, PlannedLaunch(instance, (rows, n), grid, block, 0, cluster)


def _long(first: Any, last: Any, held: int, x: Tensor, rows: int, n: int, vectors: Vectors) -> RowLaunch:
    """Choose the launches for rows that none holds, of whose part a thread holds so many bytes at once."""
    way, width = vectors
    steps = held // (width * x.element_size())
    at_once = steps * width * LONG[0]
    share = dotcu.cdiv(dotcu.cdiv(n, MAX_PARTS), at_once) * at_once
    parts = dotcu.cdiv(n, share)
    instance = (x.dtype, way, width, steps, LONG[0])
    return first[instance], PlannedLaunch(last[instance], (n, parts, share), rows * parts, LONG[0])


def _has_clusters(x: Tensor) -> bool:
    """Return True on sm_90 and sm_100, which have 228 KB of shared memory."""
    return x.is_cuda and kernels.softmax[torch.float32, ALIGNED, 1, 1, 4, 1].occupancy(32, 48 * 1024) >= 4


def _require(name: str, dim: int, *tensors: Tensor) -> None:
    x = tensors[0]
    for other in tensors:
        require_dtype(name, other.dtype, FLOATS)
        if (other.dtype, other.shape) != (x.dtype, x.shape):
            raise ValueError(
                f"{name} takes tensors of one dtype and shape (got {x.dtype}, {tuple(x.shape)} and "
                f"{other.dtype}, {tuple(other.shape)}).\nPass the gradient of the result: torch.ones_like(y)"
            )
    rank = max(x.dim(), 1)
    if not -rank <= dim < rank:
        raise ValueError(
            f"dim is one of the tensor's {rank} dimensions, {-rank} to {rank - 1} (got {dim}).\n"
            "Pass dim=-1 for the last."
        )


@softmax.fake
def _(x: Tensor, dim: int = -1) -> Tensor:
    """Allocate as the body does, without its launch: its choice by size would guard every graph."""
    _require("softmax", dim, x)
    return _as_before(torch.empty_like(_innermost(x, dim)), dim)


@softmax_backward.fake
def _(grad: Tensor, y: Tensor, dim: int = -1) -> Tensor:
    _require("softmax_backward", dim, grad, y)
    return _as_before(torch.empty_like(_innermost(y, dim)), dim)


def _holds(holder: Holder, dtype: torch.dtype, n: int, rows: int) -> bool:
    return n * dtype.itemsize <= holder.threads * holder.held * holder.blocks


@softmax.configurations(when=_holds, exact=1)
def _() -> Iterator[Holder]:
    yield from HOLDERS
    for threads in (32, 64, 128, 256, 512, 1024):
        for held in (16, 32, 128):
            yield Holder(threads, held, 1)


@softmax_backward.configurations(when=_holds, exact=1)
def _() -> Iterator[Holder]:
    yield from BACKWARD_HOLDERS
    for threads in (64, 128, 256, 512, 1024):
        for held in (16, 64):
            yield Holder(threads, held, 1)


@softmax.reference
def _(x: Tensor, dim: int = -1) -> Tensor:
    return torch.softmax(x, dim)


@softmax_backward.reference
def _(grad: Tensor, y: Tensor, dim: int = -1) -> Tensor:
    return y * (grad - (grad * y).sum(dim, keepdim=True))


@softmax.sharding
def _(x: Tensor, dim: int = -1) -> list[str]:
    return [f"x:{other} -> {other}" for other in range(x.ndim) if other != dim % x.ndim]


@softmax_backward.sharding
def _(grad: Tensor, y: Tensor, dim: int = -1) -> list[str]:
    return [f"grad:{other} y:{other} -> {other}" for other in range(y.ndim) if other != dim % y.ndim]


@softmax.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.dim = inputs[1]


@softmax.backward
def _(ctx: Any, grad: Tensor) -> Any:
    (y,) = ctx.saved_tensors
    return softmax_backward(grad, y, ctx.dim), None


@softmax_backward.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.dim = inputs[2]


@softmax_backward.backward
def _(ctx: Any, bend: Tensor) -> Any:
    (grad, y), dim = ctx.saved_tensors, ctx.dim
    beside = grad - (grad * y).sum(dim, keepdim=True)
    return softmax_backward(bend, y, dim), bend * beside - grad * (bend * y).sum(dim, keepdim=True), None


@softmax.vmap
def _(info: Any, in_dims: tuple[int | None, ...], x: Tensor, dim: int = -1) -> Any:
    x = x.movedim(in_dims[0] or 0, 0)
    if x.dim() == 1:
        return softmax(x.unsqueeze(1)).squeeze(1), 0
    return softmax(x, dim % (x.dim() - 1) + 1), 0


@softmax.work
def _(x: Tensor, dim: int = -1) -> tuple[int, int]:
    return 2 * x.numel() * x.element_size(), 4 * x.numel()


@softmax_backward.work
def _(grad: Tensor, y: Tensor, dim: int = -1) -> tuple[int, int]:
    return 3 * y.numel() * y.element_size(), 4 * y.numel()


LAYOUTS: tuple[tuple[tuple[int, ...], int], ...] = (
    ((20, 31), -1), ((3, 64), -1), ((9, 200), 1), ((), 0), ((4, 0, 3), -1), ((2, 0), 1), ((2, 1000), -1),
    ((1, 2056), -1), ((2, 5, 7), 1), ((1, 70_004), -1),
)  # fmt: skip
"""Shapes and dimensions: several rows to a warp, one, a block to a row, and a row too long to hold."""


@softmax.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -3, 3)
    for shape, dim in LAYOUTS:
        yield dotcu.Sample(random(*shape), dim)
    yield dotcu.Sample((20 * random(40, 33))[1:, ::2])
    yield dotcu.Sample(random(12 * 64 + 1)[1:].view(12, 64))


@softmax_backward.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    def random(*shape: int) -> tuple[Tensor, Tensor]:
        logits, grad = (make_tensor(shape, device=device, dtype=dtype, low=-3, high=3) for _ in range(2))
        return grad, torch.softmax(logits, -1)

    for shape, dim in LAYOUTS:
        yield dotcu.Sample(*random(*shape), dim)
    grad, y = random(40, 33)
    yield dotcu.Sample(grad[1:, ::2], y[1:, ::2])
    yield dotcu.Sample(*(t.flatten()[1:].view(12, 64) for t in random(12 * 64 + 1)))
