"""layer_norm: rows, less their mean, divided by their standard deviation, scaled and shifted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.gallery import norms
from dotcu.gallery.common import ALIGNED, FLOATS, VECTOR_BYTES, PlannedLaunch, random_tensors, vector_width

kernels = dotcu.load("kernel.cu")
backward_kernels = dotcu.load("backward.cu")

FORWARD_VECTORS = (4, 3, 5, 7, 2, 1)
"""Vectors of a thread, the best first: 64 bytes a thread keep memory busy."""

SHORT_VECTORS, LONG_VECTORS = (2, 1), 8
"""Vectors of a thread where lanes of a warp have a row, and where a block has it, in whole vectors: fewer
threads then wait for each other."""

BACKWARD_WAYS = (
    *norms.WARP_WAYS, (4, 32, 1, True), (5, 32, 1, True), (3, 64, 6, True), (2, 128, 4, True),
    (3, 128, 3, True), (2, 256, 2, True), (3, 192, 2, True), (5, 128, 2, True), (3, 256, 2, False),
    (4, 256, 1, True), (3, 512, 1, False), (5, 320, 1, False), (4, 512, 1, False),
)  # fmt: skip
"""Shares of threads in a row, where registers hold two floats for each column besides: by trials on an H100,
which the README tells. A multiple of four warps keeps the parts of a multiprocessor equally busy."""

STAGES = 3
"""Rows in a block's shared memory."""


@dotcu.op("dotcu::layer_norm", dtypes=FLOATS, sharding="x:rows -> rows")
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
    norms.require_like("layer_norm", weight, bias, "bias")
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    out = torch.empty_like(x)
    kernel, numbers, grid, block, _, cluster = _choose(x, weight, bias)
    kernel(x, weight, bias, out, *numbers, eps, grid=grid, block=block, cluster=cluster)
    return out


@dotcu.op("dotcu::layer_norm_backward", dtypes=FLOATS, sharding="grad:rows x:rows -> rows, sum, sum")
def layer_norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `layer_norm` by x, by weight and by bias.

    Mean and variance of a row are computed again: the row is read anyhow.

    Args:
        grad: The gradient by the result, of x's shape and dtype. The rest as for `layer_norm`.
    """
    _require(x, weight)
    norms.require_like("layer_norm", x, grad, "grad")
    grad, x, weight = norms.aligned(grad), norms.aligned(x), weight.contiguous()
    grad_x, grad_weight, grad_bias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    launch = _choose_backward(grad, x, weight)
    norms.run_backward(launch, (grad, x, weight), grad_x, (grad_weight, grad_bias), eps)
    return grad_x, grad_weight, grad_bias


@dotcu.by_layout
def _choose(x: Tensor, weight: Tensor, bias: Tensor) -> PlannedLaunch:
    n = int(x.shape[-1])
    way, width = norms.forward_rows((x,), (weight, bias))
    choices = SHORT_VECTORS if n <= SHORT_VECTORS[0] * norms.WARP * width else FORWARD_VECTORS
    if way == ALIGNED and n >= 2 * norms.WARP * LONG_VECTORS * width:
        choices = LONG_VECTORS, *choices
    return norms.forward_launch(
        kernels.layer_norm, backward_kernels.sum_parts, x, weight, way, width, choices,
        layer_norm.configuration,
    )  # fmt: skip


@dotcu.by_layout
def _choose_backward(grad: Tensor, x: Tensor, weight: Tensor) -> norms.BackwardLaunch:
    n = int(x.shape[-1])
    width = vector_width(VECTOR_BYTES // x.element_size(), (n,), x, weight, grad)
    stages = STAGES - 1 if x.dtype == torch.float64 else STAGES  # sums of doubles need room, too
    templates = backward_kernels.row_sums, backward_kernels.layer_norm_backward, backward_kernels.sum_parts
    return norms.backward_launch(templates, x, weight, width, BACKWARD_WAYS, 2, stages)


def _require(x: Tensor, weight: Tensor) -> None:
    norms.require_rows(
        "layer_norm", x, weight, "layer_norm(x, torch.ones(x.shape[-1]), torch.zeros(x.shape[-1]))"
    )


layer_norm.configurations(norms.row_configurations, when=norms.holds, exact=1)


# Shapes alone, so that what a launch chooses puts no guards on the sizes of torch.compile.


@layer_norm.fake
def _(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    _require(x, weight)
    norms.require_like("layer_norm", weight, bias, "bias")
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@layer_norm_backward.fake
def _(grad: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor, Tensor]:
    _require(x, weight)
    norms.require_like("layer_norm", x, grad, "grad")
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
    random = random_tensors(device, dtype, -2, 2)

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
    random = random_tensors(device, dtype, -2, 2)
    yield dotcu.Sample(random(3, 2048), random(2048), random(2048))  # more threads, as rows are few


@layer_norm_backward.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield from _rows(device, dtype, 2, 1)
