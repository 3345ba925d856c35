"""matmul: the product of two matrices, by a naive and by a tiled kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.gallery.common import FLOATS, random_tensors, sum_type

kernels = dotcu.load("kernel.cu")


TOLERANCE = {torch.float64: 1e-12}
"""The reference adds up in another order, and in float64 there is nothing more exact to tell them apart."""


@dotcu.op(
    "dotcu::matmul", dtypes=FLOATS, tolerance=TOLERANCE, sharding=("a:0 -> 0", "b:1 -> 1", "a:1 b:0 -> sum")
)
def matmul(a: Tensor, b: Tensor, *, tiled: bool = True, block_size: int = 16) -> Tensor:
    """Multiply two matrices of one dtype; half types add up in float32.

    `matmul(a, b, out=c)` writes into a tensor that is there already.

    Args:
        a: A matrix of M x K elements, of any strides, of a dtype out of `FLOATS`.
        b: A matrix of K x N elements, of the same dtype.
        tiled: Share tiles of both matrices within a block; False for the naive kernel.
        block_size: The side of a block and of its tile, 1 to 32: a block has block_size x block_size threads.
    """
    _require_factors(a, b)
    out = a.new_empty((a.shape[0], b.shape[1]))
    _launch(a, b, out, tiled, block_size)
    return out


@matmul.overload("out", mutates_args=("out",))
def matmul_out(a: Tensor, b: Tensor, *, tiled: bool = True, block_size: int = 16, out: Tensor) -> None:
    """Write a @ b into `out`, of any strides; it may share memory with a and b, which are read first.

    Args:
        out: A tensor (M, N) of their dtype. The rest as for `matmul`.
    """
    _require_factors(a, b)
    product = a.new_empty((a.shape[0], b.shape[1]))
    if (out.dtype, out.shape, out.device) != (product.dtype, product.shape, product.device):
        raise ValueError(
            f"out= must have the result's shape {tuple(product.shape)}, dtype {product.dtype} and device "
            f"{product.device} (got {tuple(out.shape)}, {out.dtype}, {out.device}).\n"
            f"Allocate it so: a.new_empty({tuple(product.shape)})"
        )
    _launch(a, b, product, tiled, block_size)
    out.copy_(product)


def _launch(a: Tensor, b: Tensor, out: Tensor, tiled: bool, block_size: int) -> None:
    if not 1 <= block_size <= 32:
        raise ValueError(
            f"block_size is the side of a square block, 1 to 32 (got {block_size}).\n"
            "Type: matmul(a, b, block_size=16)"
        )
    block_size = int(block_size)  # the tile is compiled in, so torch.compile must know it too
    kernel, grid = _choose(out, tiled, block_size)
    kernel(a, b, out, grid=grid, block=(block_size, block_size))


@dotcu.by_layout
def _choose(out: Tensor, tiled: bool, block_size: int) -> tuple[dotcu.Kernel, int]:
    """The kernel, and as many blocks as there are tiles, or as run at once."""
    template = kernels.matmul_tiled if tiled else kernels.matmul_naive
    kernel = template[out.dtype, sum_type(out.dtype), block_size]
    tiles = dotcu.cdiv(out.shape[0], block_size) * dotcu.cdiv(out.shape[1], block_size)
    resident = kernel.occupancy((block_size, block_size)) * dotcu.sm_count(out)
    return kernel, torch.sym_min(tiles, resident)


def _require_factors(a: Tensor, b: Tensor) -> None:
    if a.dtype != b.dtype or a.dtype not in FLOATS:
        taken = ", ".join(str(dtype).removeprefix("torch.") for dtype in FLOATS)
        raise TypeError(
            f"matmul takes two matrices of one dtype out of {taken} (got {a.dtype} and {b.dtype}).\n"
            "Convert them first: matmul(a.to(torch.float32), b.to(torch.float32))"
        )
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"matmul takes (M, K) and (K, N) matrices (got {tuple(a.shape)} and {tuple(b.shape)}).\n"
            "Transpose one of them, matmul(a, b.T), or cut out a matrix, a[0]."
        )


@matmul.reference
def _(a: Tensor, b: Tensor, **launch: Any) -> Tensor:
    return a @ b


@matmul.setup_context
def _(ctx: Any, inputs: Any, output: Tensor, keyword_only_inputs: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.launch = keyword_only_inputs


@matmul.backward
def _(ctx: Any, grad: Tensor) -> Any:
    a, b = ctx.saved_tensors
    needs_a, needs_b = ctx.needs_input_grad[:2]
    return (
        matmul(grad, b.T, **ctx.launch) if needs_a else None,
        matmul(a.T, grad, **ctx.launch) if needs_b else None,
    )


@matmul.work
def _(a: Tensor, b: Tensor, **launch: Any) -> tuple[int, int]:
    (m, k), n = a.shape, b.shape[1]
    return (m * k + k * n + m * n) * a.element_size(), 2 * m * n * k


@matmul.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -2, 2)
    yield dotcu.Sample(random(64, 48), random(48, 32))
    yield dotcu.Sample(random(33, 17), random(17, 41))
    yield dotcu.Sample(random(33, 17), random(17, 41), tiled=False)
    yield dotcu.Sample(random(1, 70), random(70, 1), block_size=8)
    yield dotcu.Sample(random(5, 0), random(0, 6))
    yield dotcu.Sample(random(0, 5), random(5, 6), tiled=False)
    yield dotcu.Sample(random(19, 20).T, random(25, 40)[3:22, ::2])
