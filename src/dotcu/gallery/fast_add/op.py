"""fast_add: a sum, element by element, with vector loads where the tensors allow it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.gallery.common import (
    REAL,
    contiguous_like,
    is_multiple,
    random_tensors,
    require_block,
    require_operands,
    require_out,
    vector_lanes,
)

kernels = dotcu.load("kernel.cu")

THREAD_BYTES = 16
"""The bytes of each input that a thread has in flight: 64 KB for a multiprocessor of 2048 threads."""


@dotcu.op("dotcu::fast_add", dtypes=REAL, sharding="elementwise")
def fast_add(a: Tensor, b: Tensor, *, block_size: int = 128, grid_size: int = -1) -> Tensor:
    """Add two tensors of one dtype, broadcast against each other, 16 bytes at a time.

    `fast_add(a, b, out=c)` writes into a tensor that is there already. Where a tensor does not start
    at an address divisible by 16 (such as a view x[1:]), vectors are as wide as the addresses allow.

    Args:
        a: A tensor of any shape and strides, of a dtype out of `REAL`.
        b: A tensor of the same dtype, of a shape that broadcasts.
        block_size: Threads of a block.
        grid_size: Blocks of the grid, which go through all elements; -1 for as many as there are tiles.
    """
    a, b = require_operands("fast_add", a, b)
    out = torch.empty_like(a)
    _launch(a, b, out, block_size, grid_size)
    return out


@fast_add.overload("out", mutates_args=("out",))
def fast_add_out(a: Tensor, b: Tensor, *, block_size: int = 128, grid_size: int = -1, out: Tensor) -> None:
    """Write a + b into `out`, of any strides. It may be `a` or `b` itself, but not overlap them in part.

    Args:
        out: A tensor of the result's shape and dtype. The rest as for `fast_add`.
    """
    a, b = require_operands("fast_add", a, b)
    require_out(out, a)
    whole = contiguous_like(out)
    _launch(a, b, whole, block_size, grid_size)
    if whole is not out:
        out.copy_(whole)


def _launch(a: Tensor, b: Tensor, out: Tensor, block_size: int, grid_size: int) -> None:
    block_size = require_block(block_size, "fast_add(a, b, block_size=256)")
    kernel, n, grid = _choose(a, b, out, block_size, grid_size)
    kernel(a, b, out, n, grid=grid, block=block_size)


@dotcu.by_layout
def _choose(
    a: Tensor, b: Tensor, out: Tensor, block_size: int, grid_size: int
) -> tuple[dotcu.Kernel, int, int]:
    """The kernel, elements, and blocks."""
    n, lanes, share = out.numel(), vector_lanes((a, b, out), block_size), THREAD_BYTES // out.element_size()
    tile = share * block_size
    grid, exact = _grid(dotcu.cdiv(n, tile), grid_size), grid_size == -1 and is_multiple(n, tile)
    return kernels.fast_add[out.dtype, lanes, share // lanes, exact], n, grid


def _grid(blocks: int, grid_size: int) -> int:
    """Return as many blocks as there are tiles, or as many as are requested, each with several tiles."""
    if grid_size == -1:
        return blocks
    if grid_size < 1:
        raise ValueError(
            f"grid_size is a number of blocks, or -1 to have it chosen (got {grid_size}).\n"
            "Leave it out: fast_add(a, b)"
        )
    return grid_size


@fast_add.reference
def _(a: Tensor, b: Tensor, **launch: int) -> Tensor:
    return torch.add(a, b)


@fast_add.setup_context
def _(ctx: Any, inputs: Any, output: Tensor, keyword_only_inputs: Any) -> None:
    ctx.shapes = inputs[0].shape, inputs[1].shape


@fast_add.backward
def _(ctx: Any, grad: Tensor) -> Any:
    a, b = ctx.shapes
    return (grad, grad) if a == b else (grad.sum_to_size(a), grad.sum_to_size(b))


@fast_add.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -9, 9)
    yield dotcu.Sample(random(1000), random(1000))
    yield dotcu.Sample(random(4, 1024), random(4, 1024))
    yield dotcu.Sample(random(1021), random(1021), grid_size=2)
    yield dotcu.Sample(random(1021)[1:], random(1023)[3:])
    yield dotcu.Sample(random(), random())
    yield dotcu.Sample(random(0, 4), random(4))
    yield dotcu.Sample(random(9, 5).T, random(12, 9)[2:7])
    yield dotcu.Sample(random(40_013), random(40_013), block_size=128)
