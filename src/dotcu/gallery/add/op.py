"""add: a sum, element by element, of two tensors or of a tensor and a number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing import make_tensor
from torch.types import Number

import dotcu
from dotcu.gallery.common import (
    REAL,
    contiguous_like,
    is_multiple,
    random_tensors,
    require_block,
    require_dtype,
    require_operands,
    require_out,
    sum_type,
    vector_lanes,
)

kernels = dotcu.load("kernel.cu")

WORD_BYTES = 4
"""The bytes of an access: those of a warp are a line of 128 bytes."""

THREAD_BYTES = 16
"""The bytes of each input that a thread has in flight: 32 KB for a multiprocessor of 2048 threads."""


@dotcu.op("dotcu::add", dtypes=REAL, sharding="elementwise")
def add(a: Tensor, b: Tensor, *, block_size: int = 128) -> Tensor:
    """Add two tensors of one dtype, broadcast against each other.

    `add(a, 2)` adds a number, `add(a, b, out=c)` writes into a tensor that is there already.

    Args:
        a: A tensor of any shape and strides, of a dtype out of `REAL`.
        b: A tensor of the same dtype, of a shape that broadcasts.
        block_size: Threads of a block.
    """
    a, b = require_operands("add", a, b)
    out = torch.empty_like(a)
    _launch(a, b, out, block_size)
    return out


@add.overload("out", mutates_args=("out",))
def add_out(a: Tensor, b: Tensor, *, block_size: int = 128, out: Tensor) -> None:
    """Write a + b into `out`, of any strides. It may be `a` or `b` itself, but not overlap them in part.

    Args:
        out: A tensor of the result's shape and dtype. The rest as for `add`.
    """
    a, b = require_operands("add", a, b)
    require_out(out, a)
    whole = contiguous_like(out)
    _launch(a, b, whole, block_size)
    if whole is not out:
        out.copy_(whole)


@add.overload("Scalar")
def add_number(a: Tensor, b: Number, *, block_size: int = 128) -> Tensor:
    """Add a number; an integer tensor and a fraction give a floating-point tensor, as in torch.

    Args:
        b: The number. The rest as for `add`.
    """
    a = _promoted(a, b)
    out = torch.empty_like(a)
    _launch(a, b, out, block_size)
    return out


@add.overload("Scalar_out", mutates_args=("out",))
def add_number_out(a: Tensor, b: Number, *, block_size: int = 128, out: Tensor) -> None:
    """Write a + b, with a number b, into `out`.

    Args:
        out: A tensor of the result's shape and dtype. The rest as for `add`.
    """
    a = _promoted(a, b)
    require_out(out, a)
    whole = contiguous_like(out)
    _launch(a, b, whole, block_size)
    if whole is not out:
        out.copy_(whole)


def _launch(a: Tensor, b: Tensor | Number, out: Tensor, block_size: int) -> None:
    block_size = require_block(block_size, "add(a, b, block_size=256)")
    tensors = (a, b, out) if isinstance(b, Tensor) else (a, out)
    kernel, n, grid = _choose(block_size, *tensors)
    kernel(a, b, out, n, grid=grid, block=block_size)


@dotcu.by_layout
def _choose(block_size: int, *tensors: Tensor) -> tuple[dotcu.Kernel, int, int]:
    """The kernel, for two tensors or for one and a number, and out; elements, and blocks."""
    out = tensors[-1]
    lanes, share = vector_lanes(tensors, block_size, WORD_BYTES), THREAD_BYTES // out.element_size()
    n, tile = out.numel(), share * block_size
    steps, exact, grid = share // lanes, is_multiple(n, tile), dotcu.cdiv(n, tile)
    if len(tensors) == 3:
        return kernels.add[out.dtype, lanes, steps, exact], n, grid
    return kernels.add_number[out.dtype, sum_type(out.dtype), lanes, steps, exact], n, grid


def _promoted(a: Tensor, b: Number) -> Tensor:
    require_dtype("add", a.dtype, REAL)
    dtype = torch.result_type(a, b)
    require_dtype("add", dtype, REAL)
    return a.to(dtype).contiguous()


@add.reference
@add_number.reference
def _(a: Tensor, b: Any, **launch: int) -> Tensor:
    return torch.add(a, b)


add_number.sharding("elementwise")


@add.setup_context
def _(ctx: Any, inputs: Any, output: Tensor, keyword_only_inputs: Any) -> None:
    ctx.shapes = inputs[0].shape, inputs[1].shape


@add.backward
def _(ctx: Any, grad: Tensor) -> Any:
    a, b = ctx.shapes
    return (grad, grad) if a == b else (grad.sum_to_size(a), grad.sum_to_size(b))


@add_number.backward
def _(ctx: Any, grad: Tensor) -> Any:
    return grad, None


@add.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -9, 9)
    yield dotcu.Sample(random(1000), random(1000))
    yield dotcu.Sample(random(4, 1024), random(4, 1024))
    yield dotcu.Sample(random(), random())
    yield dotcu.Sample(random(3, 0), random(3, 0))
    yield dotcu.Sample(random(7, 1, 5), random(3, 1), block_size=64)
    yield dotcu.Sample(random(9, 5).T, random(12, 9)[2:7])
    yield dotcu.Sample(random(20_011), random(20_011), block_size=128)


@add_number.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for shape in ((999,), (2048,), (), (0,), (5, 3, 7)):
        x = make_tensor(shape, device=device, dtype=dtype, low=-9, high=9)
        yield dotcu.Sample(x, 3)
        yield dotcu.Sample(x, 2.5)
