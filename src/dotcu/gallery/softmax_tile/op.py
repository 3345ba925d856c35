"""softmax_tile: softmax over the last dimension, by a tile for a row, in CUDA Tile C++."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.gallery.common import VECTOR_BYTES, random_tensors, require_dtype

kernels = dotcu.load("kernel.cu")
odd_kernels = dotcu.load("odd.cu")

TAKEN = (torch.float32, torch.bfloat16, torch.float16)

HOLDERS = (
    (256, 4, 4, 8), (512, 4, 4, 8), (1024, 4, 4, 8), (2048, 2, 4, 8), (4096, 1, 8, 4), (8192, 1, 4, 2),
    (16384, 1, 8, 2), (32768, 1, 16, 1),
)  # fmt: skip
"""Elements of a tile's row, rows of a tile, warps, and blocks of a multiprocessor: the smallest first."""

ODD = (
    (256, 1, 16), (512, 1, 32), (1024, 1, 32), (2048, 4, 4), (4096, 4, 4), (8192, 4, 2), (16384, 8, 2),
    (32768, 16, 1),
)  # fmt: skip
"""Likewise, for rows that begin anywhere: a tile holds one."""

LONG = (8192, 8)
"""Elements of a tile and warps, for longer rows."""


@dotcu.op("dotcu::softmax_tile", dtypes=TAKEN, sharding="x:rows -> rows")
def softmax_tile(x: Tensor) -> Tensor:
    """Divide exp(x) by its sum along the last dimension; half types compute in float32.

    Args:
        x: A tensor of any shape and strides with at least one dimension, float32, bfloat16 or float16.
    """
    _require("softmax_tile", x)
    x = x.contiguous()
    out = torch.empty_like(x)
    if out.numel() != 0:
        kernel, rows, n, grid = _choose(x, out)
        kernel(x, out, rows, n, grid=grid)
    return out


@dotcu.op("dotcu::softmax_tile_backward", dtypes=TAKEN, sharding="grad:rows y:rows -> rows")
def softmax_tile_backward(grad: Tensor, y: Tensor) -> Tensor:
    """Give the gradient of softmax_tile's argument: y * (grad - sum(grad * y)).

    Args:
        grad: The gradient of its result.
        y: Its result, of the same shape and dtype.
    """
    _require("softmax_tile_backward", grad, y)
    grad, y = grad.contiguous(), y.contiguous()
    out = torch.empty_like(y)
    if out.numel() != 0:
        kernel, rows, n, grid = _choose_backward(grad, y, out)
        kernel(grad, y, out, rows, n, grid=grid)
    return out


@dotcu.by_layout
def _choose(*tensors: Tensor) -> tuple[dotcu.Kernel, int, int, int]:
    return _launch(kernels.softmax, odd_kernels.softmax_odd, kernels.softmax_long, *tensors)


@dotcu.by_layout
def _choose_backward(*tensors: Tensor) -> tuple[dotcu.Kernel, int, int, int]:
    of_odd_rows = odd_kernels.softmax_backward_odd
    return _launch(kernels.softmax_backward, of_odd_rows, kernels.softmax_backward_long, *tensors)


def _launch(held: Any, odd: Any, long: Any, *tensors: Tensor) -> tuple[dotcu.Kernel, int, int, int]:
    """Choose the smallest tile that holds a row, else the kernel for longer rows.

    Returns:
        The kernel, rows, elements of a row, and tile blocks.
    """
    x = tensors[0]
    n, lanes = x.shape[-1], VECTOR_BYTES // x.element_size()
    rows, aligned = x.numel() // n, all(dotcu.is_aligned(tensor, VECTOR_BYTES) for tensor in tensors)
    align = lanes if aligned and n % lanes == 0 else 1
    if aligned and align == 1:
        for cols, warps, blocks in ODD:
            if n <= cols:
                return odd[x.dtype, cols, warps, blocks], rows, n, rows
    for cols, rows_of_tile, warps, blocks in HOLDERS:
        if n <= cols:
            kernel = held[x.dtype, rows_of_tile, cols, align, warps, blocks]
            return kernel, rows, n, dotcu.cdiv(rows, rows_of_tile)
    return long[x.dtype, LONG[0], align, LONG[1]], rows, n, rows


def _require(name: str, *tensors: Tensor) -> None:
    x = tensors[0]
    for other in tensors:
        require_dtype(name, other.dtype, TAKEN)
        if (other.dtype, other.shape) != (x.dtype, x.shape):
            raise ValueError(
                f"{name} takes tensors of one dtype and shape (got {x.dtype}, {tuple(x.shape)} and "
                f"{other.dtype}, {tuple(other.shape)}).\nPass the gradient of the result: torch.ones_like(y)"
            )
    if x.dim() == 0:
        raise ValueError(
            f"{name} takes a tensor with a dimension (got a scalar).\nGive it one: x.unsqueeze(0)"
        )


@softmax_tile.fake
def _(x: Tensor) -> Tensor:
    _require("softmax_tile", x)
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@softmax_tile_backward.fake
def _(grad: Tensor, y: Tensor) -> Tensor:
    _require("softmax_tile_backward", grad, y)
    return torch.empty_like(y, memory_format=torch.contiguous_format)


@softmax_tile.reference
def _(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


@softmax_tile_backward.reference
def _(grad: Tensor, y: Tensor) -> Tensor:
    return y * (grad - (grad * y).sum(-1, keepdim=True))


@softmax_tile.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(output)


@softmax_tile.backward
def _(ctx: Any, grad: Tensor) -> Any:
    return softmax_tile_backward(grad, *ctx.saved_tensors)


@softmax_tile_backward.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


@softmax_tile_backward.backward
def _(ctx: Any, bend: Tensor) -> Any:
    grad, y = ctx.saved_tensors
    beside = grad - (grad * y).sum(-1, keepdim=True)
    return softmax_tile_backward(bend, y), bend * beside - grad * (bend * y).sum(-1, keepdim=True)


@softmax_tile.work
def _(x: Tensor) -> tuple[int, int]:
    return 2 * x.nbytes, 4 * x.numel()


@softmax_tile_backward.work
def _(grad: Tensor, y: Tensor) -> tuple[int, int]:
    return 3 * y.nbytes, 4 * y.numel()


def _shaped(random: Any) -> Iterator[Tensor]:
    for shape in ((20, 31), (3, 64), (2, 5, 7), (4, 0, 3), (2, 1000), (2, 2056)):
        yield random(*shape)
    yield random(40, 33)[1:, ::2]
    yield random(12 * 64 + 1)[1:].view(12, 64)


@softmax_tile.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield from (dotcu.Sample(x) for x in _shaped(random_tensors(device, dtype, -3, 3)))


@softmax_tile_backward.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -3, 3)
    for grad, x in zip(_shaped(random), _shaped(random), strict=True):
        yield dotcu.Sample(grad, torch.softmax(x, -1))
