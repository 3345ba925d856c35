"""fast_add: a sum, element by element, with vector loads where the tensors allow it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing import make_tensor

import dotcu

kernels = dotcu.load("kernel.cu")

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
REAL = FLOATS + INTEGERS

VECTOR_BYTES = 16
"""The widest access that the hardware has."""

THREAD_BYTES = 16
"""Of each input that a thread has on its way: 64 KB for a multiprocessor of 2048 threads."""


@dotcu.op("dotcu::fast_add", dtypes=REAL)
def fast_add(a: Tensor, b: Tensor, *, block_size: int = 128, grid_size: int = -1) -> Tensor:
    """Add two tensors of one dtype, broadcast against each other, 16 bytes at a time.

    `fast_add(a, b, out=c)` writes into a tensor that is there already. Where a tensor does not start
    at an address divisible by 16 (a view x[1:], say), vectors are as wide as the addresses allow.

    Args:
        a: A tensor of any shape and strides, of a dtype out of `REAL`.
        b: A tensor of the same dtype, of a shape that broadcasts.
        block_size: Threads of a block.
        grid_size: Blocks of the grid, which go through all elements; -1 for as many as there are tiles.
    """
    a, b = _operands(a, b)
    out = torch.empty_like(a)
    _launch(a, b, out, block_size, grid_size)
    return out


@fast_add.overload("out", mutates_args=("out",))
def fast_add_out(a: Tensor, b: Tensor, *, block_size: int = 128, grid_size: int = -1, out: Tensor) -> None:
    """Write a + b into `out`, of any strides. It may be `a` or `b` itself, but not overlap them in part."""
    a, b = _operands(a, b)
    if out.dtype != a.dtype or out.shape != a.shape:
        raise ValueError(
            f"out= must have the result's shape {tuple(a.shape)} and dtype {a.dtype} "
            f"(got {tuple(out.shape)}, {out.dtype}).\n"
            f"Allocate it so: torch.empty({tuple(a.shape)}, dtype={a.dtype})"
        )
    if out.is_contiguous():
        _launch(a, b, out, block_size, grid_size)
    else:
        whole = torch.empty_like(a)
        _launch(a, b, whole, block_size, grid_size)
        out.copy_(whole)


def _launch(a: Tensor, b: Tensor, out: Tensor, block_size: int, grid_size: int) -> None:
    block_size = _block(block_size)
    kernel, n, grid = _choose(a, b, out, block_size, grid_size)
    kernel(a, b, out, n, grid=grid, block=block_size)


@dotcu.by_layout
def _choose(
    a: Tensor, b: Tensor, out: Tensor, block_size: int, grid_size: int
) -> tuple[dotcu.Kernel, int, int]:
    """The kernel, elements, and blocks."""
    n, lanes, share = out.numel(), _lanes((a, b, out), block_size), THREAD_BYTES // out.element_size()
    tile = share * block_size
    grid, exact = _grid(dotcu.cdiv(n, tile), grid_size), grid_size == -1 and bool(n % tile == 0)
    return kernels.fast_add[out.dtype, lanes, share // lanes, exact], n, grid


def _lanes(tensors: tuple[Tensor, ...], block_size: int) -> int:
    """Elements of the widest vector at whose multiples all tensors start."""
    size = tensors[0].element_size()
    lanes = VECTOR_BYTES // size
    while lanes > 1 and not (
        lanes <= block_size and all(dotcu.is_aligned(tensor, lanes * size) for tensor in tensors)
    ):
        lanes //= 2
    return lanes


def _block(block_size: int) -> int:
    if not 1 <= block_size <= 1024:
        raise ValueError(
            f"a block has 1 to 1024 threads (got {block_size}).\nType: fast_add(a, b, block_size=256)"
        )
    return int(block_size)  # lanes hang on it, so torch.compile must know it too


def _grid(blocks: int, grid_size: int) -> int:
    """As many blocks as there are tiles, or as many as are asked for, which then take several."""
    if grid_size == -1:
        return blocks
    if grid_size < 1:
        raise ValueError(
            f"grid_size is a number of blocks, or -1 to have it chosen (got {grid_size}).\n"
            "Leave it out: fast_add(a, b)"
        )
    return grid_size


def _operands(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    if a.dtype != b.dtype:
        raise TypeError(
            f"fast_add takes two tensors of one dtype (got {a.dtype} and {b.dtype}).\n"
            "Convert one of them: fast_add(a, b.to(a.dtype))"
        )
    if a.dtype not in REAL:
        taken = ", ".join(str(dtype).removeprefix("torch.") for dtype in REAL)
        raise TypeError(
            f"fast_add takes {taken} (got {a.dtype}).\nConvert the tensors first: a.to(torch.float32)"
        )
    a, b = torch.broadcast_tensors(a, b)
    return a.contiguous(), b.contiguous()


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
    def random(*shape: int) -> Tensor:
        return make_tensor(shape, device=device, dtype=dtype, low=-9, high=9)

    yield dotcu.Sample(random(1000), random(1000))
    yield dotcu.Sample(random(4, 1024), random(4, 1024))
    yield dotcu.Sample(random(1021), random(1021), grid_size=2)
    yield dotcu.Sample(random(1021)[1:], random(1023)[3:])
    yield dotcu.Sample(random(), random())
    yield dotcu.Sample(random(0, 4), random(4))
    yield dotcu.Sample(random(9, 5).T, random(12, 9)[2:7])
    yield dotcu.Sample(random(40_013), random(40_013), block_size=128)
