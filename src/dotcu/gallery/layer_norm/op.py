"""layer_norm: rows, less their mean, divided by their standard deviation, scaled and shifted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing import make_tensor

import dotcu

kernels = dotcu.load("kernel.cu")
backward_kernels = dotcu.load("backward.cu")

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

VECTOR_BYTES = 16
WARP = 32
MOST_COLUMNS = 1 << 30
"""Of a row: columns are counted in 32 bits."""

MOST_BLOCKS = 8
"""Of a cluster, on every GPU that has them."""

SHARED_BYTES = 48 << 10
"""Of a block; a multiprocessor of sm_90 or sm_100 holds four such blocks, one of sm_80 three."""

FORWARD_LANES, FORWARD_VECTORS = 512, (4, 3, 5, 7, 2, 1)
"""Threads of a block at most; vectors of a thread, the best first: 64 bytes a thread keep memory busy."""

SHORT_VECTORS, LONG_VECTORS = (2, 1), 8
"""Vectors of a thread where lanes of a warp have a row, and where a block has it: of many vectors fewer
threads wait for each other."""

BACKWARD_LANES, BACKWARD_VECTORS, BACKWARD_COLUMNS = 512, (4, 2, 3, 1), 2048
"""The same as forward, where registers hold two floats for each column of a thread besides; and vectors
of a block."""

STAGES, MOST_RESIDENT = 3, 3
"""Rows in a block's shared memory; blocks of a multiprocessor at most, each of which writes a part."""

PART_COLUMNS, PART_THREADS = 16, 512
ROW_THREADS = 512

Numbers = tuple[int, int, float]
"""Rows, elements of a row, and the share that each has in the row's mean."""

Pair = tuple[int, int]


@dotcu.op("dotcu::layer_norm", dtypes=FLOATS)
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalize each row, scale and shift it: (x - mean) * rsqrt(variance + eps) * weight + bias.

    Args:
        x: A tensor of any shape and strides with at least one dimension, of a dtype out of `FLOATS`; its
            last dimension is the rows.
        weight: As many elements as a row, of x's dtype; for half types float32 too.
        bias: As many elements as a row, of weight's dtype.
        eps: Added to the variance.
    """
    _require(x, weight)
    _require_like(weight, bias, "bias")
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    out = torch.empty_like(x)
    kernel, numbers, grid, block, cluster = _choose(x, weight, bias)
    kernel(x, weight, bias, out, *numbers, eps, grid=grid, block=block, cluster=cluster)
    return out


@dotcu.op("dotcu::layer_norm_backward", dtypes=FLOATS)
def layer_norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `layer_norm` by x, by weight and by bias.

    Mean and variance of a row are computed again: the row is read anyhow.

    Args:
        grad: The gradient by the result, of x's shape and dtype.
        x: As for `layer_norm`.
        weight: As for `layer_norm`.
        eps: As for `layer_norm`.
    """
    _require(x, weight)
    _require_like(x, grad, "grad")
    grad, x, weight = grad.contiguous(), x.contiguous(), weight.contiguous()
    grad_x, grad_weight, grad_bias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    chosen = _choose_backward(grad, x, weight)
    (row_sums, kernel, sum_parts), numbers, grid, block, smem_bytes, cluster = chosen
    (rows, n, share), sums, of_rows = numbers, _sum_type(x.dtype), None
    if row_sums is not None:
        of_rows = torch.empty((rows, 4), dtype=sums, device=x.device)
        row_sums(grad, x, weight, of_rows, n, share, eps, grid=rows, block=ROW_THREADS)
    parts = torch.empty((2, grid[0], n), dtype=sums, device=x.device)
    kernel(
        *(grad, x, weight, of_rows, grad_x, parts, rows, n, share, eps),
        grid=grid,
        block=block,
        smem_bytes=smem_bytes,
        cluster=cluster,
    )
    sum_parts(
        *(parts, grad_weight, grad_bias, grid[0], n),
        grid=(dotcu.cdiv(n, PART_COLUMNS), 2),
        block=PART_THREADS,
        programmatic=True,
    )
    return grad_x, grad_weight, grad_bias


@dotcu.by_layout
def _choose(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[dotcu.Kernel, Numbers, Pair, int, Pair | None]:
    """The kernel, its numbers, grid, block and cluster."""
    n, rows, sums = int(x.shape[-1]), math.prod(x.shape[:-1]), _sum_type(x.dtype)
    width = _width(n, x, weight, bias)
    choices = SHORT_VECTORS if n <= SHORT_VECTORS[0] * WARP * width else FORWARD_VECTORS
    if n >= 2 * WARP * LONG_VECTORS * width:
        choices = LONG_VECTORS, *choices
    blocks = 1
    if _has_clusters(x, sums):
        while blocks < MOST_BLOCKS and n > blocks * FORWARD_LANES * choices[0] * width:
            blocks *= 2
    vectors, lanes = _split(dotcu.cdiv(n, blocks), width, choices, FORWARD_LANES)
    rows_of_block = 128 // lanes if lanes <= WARP else 1
    exact = n == blocks * lanes * vectors * width and bool(rows % rows_of_block == 0)
    kernel = kernels.layer_norm[x.dtype, weight.dtype, sums, width, vectors, lanes, exact]
    grid, cluster = (dotcu.cdiv(rows, rows_of_block), blocks), (1, blocks) if blocks > 1 else None
    return kernel, (rows, n, 1 / max(n, 1)), grid, rows_of_block * lanes, cluster


@dotcu.by_layout
def _choose_backward(
    grad: Tensor, x: Tensor, weight: Tensor
) -> tuple[tuple[dotcu.Kernel | None, dotcu.Kernel, dotcu.Kernel], Numbers, Pair, int, int, Pair | None]:
    """The three kernels, and of the second one numbers, grid, block, shared memory and cluster."""
    n, rows, sums = int(x.shape[-1]), math.prod(x.shape[:-1]), _sum_type(x.dtype)
    width = _width(n, x, weight, grad)
    blocks = 1
    if _has_clusters(x, sums):
        while blocks < MOST_BLOCKS and n > blocks * BACKWARD_COLUMNS * width:
            blocks *= 2
    choices = BACKWARD_VECTORS if n >= 2 * WARP * BACKWARD_VECTORS[0] * width else BACKWARD_VECTORS[1:]
    vectors, lanes = _split(dotcu.cdiv(n, blocks), width, choices, BACKWARD_LANES)
    columns = lanes * vectors * width
    given = n > blocks * columns
    if given:
        blocks = dotcu.cdiv(n, columns)
    rows_of_block = 256 // lanes if lanes <= WARP else 1
    stage_bytes = 2 * rows_of_block * columns * x.element_size()
    most = STAGES if sums == torch.float32 else STAGES - 1  # sums of doubles need room, too
    stages = max(1, min(most, SHARED_BYTES * _quarters(sums) // stage_bytes))
    exact = n == blocks * columns and bool(rows % rows_of_block == 0)
    kernel = backward_kernels.layer_norm_backward[
        x.dtype, weight.dtype, sums, width, vectors, lanes, stages, exact, given
    ]
    row_sums = backward_kernels.row_sums[x.dtype, weight.dtype, sums, width, ROW_THREADS] if given else None
    sum_parts = backward_kernels.sum_parts[weight.dtype, sums, PART_COLUMNS, PART_THREADS]
    block, smem_bytes = rows_of_block * lanes, stages * stage_bytes
    # Not every multiprocessor has a place in a cluster; and no grid is larger than what runs at once.
    resident = min(kernel.occupancy(block, smem_bytes), MOST_RESIDENT) * dotcu.sm_count(x)
    resident = max(1, (resident * 7 // 8 if blocks > 1 else resident) // blocks)
    turns = dotcu.cdiv(dotcu.cdiv(rows, rows_of_block), resident)
    grid = dotcu.cdiv(dotcu.cdiv(rows, rows_of_block), torch.sym_max(turns, 1)), blocks
    cluster = (1, blocks) if blocks > 1 and not given else None
    return (row_sums, kernel, sum_parts), (rows, n, 1 / max(n, 1)), grid, block, smem_bytes, cluster


def _sum_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _width(n: int, x: Tensor, weight: Tensor, *others: Tensor | None) -> int:
    """Elements of a vector: what 16 bytes hold, or less where rows or tensors begin elsewhere."""
    width = VECTOR_BYTES // x.element_size()
    while width > 1 and not (n % width == 0 and _all_aligned(width, x, weight, *others)):
        width //= 2
    return width


def _all_aligned(width: int, *tensors: Tensor | None) -> bool:
    return all(
        tensor is None or dotcu.is_aligned(tensor, min(VECTOR_BYTES, width * tensor.element_size()))
        for tensor in tensors
    )


def _split(n: int, width: int, choices: tuple[int, ...], most_lanes: int) -> tuple[int, int]:
    """Vectors of a thread, and threads of a row, a power of two of them: without rest if that can be."""
    for vectors in choices:
        lanes = n // (vectors * width)
        if lanes * vectors * width == n and 0 < lanes <= most_lanes and lanes & (lanes - 1) == 0:
            return vectors, lanes
    lanes = 1
    while lanes < 1024 and lanes * 2 * width < n:
        lanes *= 2
    return 2, lanes


def _quarters(sums: torch.dtype) -> int:
    """How many blocks of `SHARED_BYTES` a multiprocessor holds."""
    return backward_kernels.sum_parts[sums, sums, PART_COLUMNS, PART_THREADS].occupancy(WARP, SHARED_BYTES)


def _has_clusters(x: Tensor, sums: torch.dtype) -> bool:
    """Whether the GPU has clusters; those with so much shared memory do. The simulator has none."""
    return x.is_cuda and _quarters(sums) >= 4


def _require(x: Tensor, weight: Tensor) -> None:
    if x.dtype not in FLOATS:
        taken = ", ".join(str(dtype).removeprefix("torch.") for dtype in FLOATS)
        raise TypeError(
            f"layer_norm takes {taken} (got {x.dtype}).\nConvert the tensor first: x.to(torch.float32)"
        )
    if weight.dtype != x.dtype and (weight.dtype != torch.float32 or x.dtype == torch.float64):
        raise TypeError(
            f"layer_norm takes a weight of x's dtype {x.dtype}, or for half types of float32 "
            f"(got {weight.dtype}).\n"
            "Convert it first: weight.to(x.dtype)"
        )
    if x.dim() == 0 or weight.dim() != 1 or weight.shape[0] != x.shape[-1]:
        raise ValueError(
            "layer_norm takes x with at least one dimension, and a weight for each element of the last one "
            f"(got shapes {tuple(x.shape)} and {tuple(weight.shape)}).\n"
            "Type: layer_norm(x, torch.ones(x.shape[-1]), torch.zeros(x.shape[-1]))"
        )
    if x.shape[-1] > MOST_COLUMNS:
        raise ValueError(
            f"layer_norm takes rows of at most {MOST_COLUMNS} elements (got {x.shape[-1]}).\n"
            "Compute it by torch's operators: torch.nn.functional.layer_norm"
        )


def _require_like(x: Tensor, other: Tensor, name: str) -> None:
    if other.dtype != x.dtype or other.shape != x.shape:
        raise ValueError(
            f"layer_norm takes {name} of shape {tuple(x.shape)} and dtype {x.dtype} "
            f"(got {tuple(other.shape)} and {other.dtype}).\n"
            f"Make it so: {name}.to({x.dtype}), in that shape"
        )


# Shapes alone, so that what a launch chooses puts no guards on the sizes of torch.compile.


@layer_norm.fake
def _(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    _require(x, weight)
    _require_like(weight, bias, "bias")
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@layer_norm_backward.fake
def _(grad: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor, Tensor]:
    _require(x, weight)
    _require_like(x, grad, "grad")
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    return grad_x, weight.new_empty(weight.shape), weight.new_empty(weight.shape)


@layer_norm.reference
def _(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    if x.shape[-1] == 1:  # where torch's gradient by x is a rounding error of zero
        return ((x - x) * weight + bias).to(x.dtype)
    wide = torch.promote_types(x.dtype, weight.dtype)
    normed = torch.nn.functional.layer_norm(x.to(wide), x.shape[-1:], weight.to(wide), bias.to(wide), eps)
    return normed.to(x.dtype)


@layer_norm_backward.reference
def _gradients(grad: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor, Tensor]:
    wide = torch.promote_types(x.dtype, torch.float32)
    dy, value, scale = grad.to(wide), x.to(wide), weight.to(wide)
    off = value - value.mean(-1, keepdim=True)
    r = torch.rsqrt(off.square().mean(-1, keepdim=True) + eps)
    y, g = off * r, dy * scale
    grad_x = r * (g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True))
    grad_weight, grad_bias = (dy * y).sum_to_size(weight.shape), dy.sum_to_size(weight.shape)
    return grad_x.to(x.dtype), grad_weight.to(weight.dtype), grad_bias.to(weight.dtype)


@layer_norm.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, weight, _, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


@layer_norm.backward
def _(ctx: Any, grad: Tensor) -> Any:
    x, weight = ctx.saved_tensors
    return (*layer_norm_backward(grad, x, weight, ctx.eps), None)


@layer_norm_backward.setup_context
def _(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, ctx.eps = inputs
    ctx.save_for_backward(*tensors)


@layer_norm_backward.backward
def _(ctx: Any, *grads: Tensor) -> Any:
    pull_back = torch.func.vjp(lambda *tensors: _gradients(*tensors, ctx.eps), *ctx.saved_tensors)[1]
    return (*pull_back(grads), None)


@layer_norm.work
def _(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> tuple[int, int]:
    return 2 * x.nbytes + 2 * weight.nbytes, 7 * x.numel()


@layer_norm_backward.work
def _(grad: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-5) -> tuple[int, int]:
    return 3 * x.nbytes + 3 * weight.nbytes, 16 * x.numel()


def _rows(device: torch.device, dtype: torch.dtype, xs: int, weights: int) -> Iterator[dotcu.Sample]:
    """Tensors of one shape, and weights: a case for each way through the kernels."""

    def random(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return make_tensor(shape, device=device, dtype=dtype, low=-2, high=2)

    def several(count: int, *shape: int, dtype: torch.dtype = dtype) -> list[Tensor]:
        return [random(*shape, dtype=dtype) for _ in range(count)]

    wide = torch.promote_types(dtype, torch.float32)
    yield dotcu.Sample(*several(xs, 6, 256), *several(weights, 256))
    yield dotcu.Sample(*several(xs, 3, 5, 77), *several(weights, 77), 1e-3)
    yield dotcu.Sample(*several(xs, 0, 8), *several(weights, 8))
    yield dotcu.Sample(*(x.transpose(0, 1) for x in several(xs, 40, 9, 3)), *several(weights, 3))
    unaligned = [x[1:].view(3, 640) for x in several(xs, 3 * 640 + 1)]
    yield dotcu.Sample(*unaligned, *(weight[1:] for weight in several(weights, 641)))
    yield dotcu.Sample(*several(xs, 5, 1536), *several(weights, 1536, dtype=wide))
    yield dotcu.Sample(*several(xs, 2, 20_004), *several(weights, 20_004))


@layer_norm.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield from _rows(device, dtype, 1, 2)


@layer_norm_backward.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield from _rows(device, dtype, 2, 1)
