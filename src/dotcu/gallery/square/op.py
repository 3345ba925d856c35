"""square: x * x, element by element, with a gradient that can be differentiated again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.gallery.common import (
    REAL,
    contiguous_like,
    random_tensors,
    require_block,
    require_dtype,
    require_out,
    vector_lanes,
)

kernels = dotcu.load("kernel.cu")

THREAD_BYTES = 16
"""The bytes of x that a thread has in flight."""


@dotcu.op("dotcu::square", dtypes=REAL, sharding="elementwise")
def square(x: Tensor, *, block_size: int = 128) -> Tensor:
    """Multiply each element by itself. `square(x, out=y)` writes into a tensor that is there already.

    Args:
        x: A tensor of any shape and strides, of a dtype out of `REAL`. Integers wrap around, as in torch.
        block_size: Threads of a block.
    """
    require_dtype("square", x.dtype, REAL)
    x = x.contiguous()
    out = torch.empty_like(x)
    _launch(x, out, block_size)
    return out


@square.overload("out", mutates_args=("out",))
def square_out(x: Tensor, *, block_size: int = 128, out: Tensor) -> None:
    """Write x * x into `out`, of any strides. It may be `x` itself, but not overlap it in part.

    Args:
        out: A tensor of x's shape and dtype. The rest as for `square`.
    """
    require_dtype("square", x.dtype, REAL)
    require_out(out, x)
    whole = contiguous_like(out)
    _launch(x.contiguous(), whole, block_size)
    if whole is not out:
        out.copy_(whole)


def _launch(x: Tensor, out: Tensor, block_size: int) -> None:
    block_size = require_block(block_size, "square(x, block_size=256)")
    kernel, n, grid = _choose(x, out, block_size)
    kernel(x, out, n, grid=grid, block=block_size)


@dotcu.by_layout
def _choose(x: Tensor, out: Tensor, block_size: int) -> tuple[dotcu.Kernel, int, int]:
    """The kernel, elements, and blocks."""
    n, lanes, share = out.numel(), vector_lanes((x, out), block_size), THREAD_BYTES // out.element_size()
    return kernels.square[x.dtype, lanes, share // lanes], n, dotcu.cdiv(n, share * block_size)


@square.reference
def _(x: Tensor, **launch: int) -> Tensor:
    return x * x


@square.setup_context
def _(ctx: Any, inputs: Any, output: Tensor, keyword_only_inputs: Any) -> None:
    ctx.save_for_backward(inputs[0])


@square.backward
def _(ctx: Any, grad: Tensor) -> Any:
    (x,) = ctx.saved_tensors
    return grad * (2 * x)  # torch's own operators, which know their derivatives


@square.vmap
def _(info: Any, in_dims: tuple[int | None, ...], x: Tensor, **launch: int) -> Any:
    return square(x, **launch), in_dims[0]


@square.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -9, 9)
    yield dotcu.Sample(random(1000))
    yield dotcu.Sample(random())
    yield dotcu.Sample(random(0))
    yield dotcu.Sample(random(2, 7, 5).transpose(0, 2), block_size=32)
    yield dotcu.Sample(random(30, 7)[1:, ::2])
    yield dotcu.Sample(random(20_011), block_size=128)
