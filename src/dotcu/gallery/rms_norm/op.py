"""rms_norm: rows divided by their root mean square and scaled, with and without a residual added first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.gallery import norms
from dotcu.gallery.common import (
    ALIGNED,
    APART,
    FLOATS,
    VECTOR_BYTES,
    PlannedLaunch,
    random_tensors,
    vector_width,
)

kernels = dotcu.load("kernel.cu")
backward_kernels = dotcu.load("backward.cu")

FORWARD_VECTORS = (4, 3, 5, 7, 2, 1)
"""Vectors of a thread, the best first: 64 bytes a thread keep memory busy."""

SHORT_VECTORS, LONG_VECTORS = (2, 1), 8
"""Vectors of a thread where lanes of a warp have a row that begins anywhere; and where a row is a block's,
nothing is added, and no vector comes from two words: fewer threads wait for each other."""

BACKWARD_WAYS = (
    *norms.WARP_WAYS[:5], (2, 16, 4, False), (3, 16, 2, False), (2, 32, 2, False), (3, 32, 2, True),
    (4, 32, 2, False), (5, 32, 2, False), (3, 64, 6, True), (2, 128, 4, True), (3, 128, 4, True),
    (2, 256, 2, False), (5, 128, 3, False), (2, 352, 1, True), (5, 160, 3, False),
    (2, 512, 1, False), (3, 384, 1, False), (3, 512, 1, False), (2, 1024, 1, False),
)  # fmt: skip
"""Shares of threads in a row, where registers hold a float for each column besides: by trials on an H100,
which the README tells."""

STAGES = 3
"""Rows in a block's shared memory."""


@dotcu.op("dotcu::rms_norm", dtypes=FLOATS, sharding="x:rows -> rows")
def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Divide each row by its root mean square, and scale it: x * rsqrt(mean(x^2) + eps) * weight.

    Args:
        x: A tensor of any shape and strides with at least one dimension, of a dtype out of `FLOATS`; its
            last dimension is the rows.
        weight: As many elements as a row, of x's dtype; for half types float32 too.
        eps: Added to the mean.
    """
    _require(x, weight)
    x, weight = x.contiguous(), weight.contiguous()
    out = torch.empty_like(x)
    kernel, numbers, grid, block, _, cluster = _choose(x, None, weight)
    kernel(x, None, weight, None, out, *numbers, eps, grid=grid, block=block, cluster=cluster)
    return out


@dotcu.op("dotcu::add_rms_norm", dtypes=FLOATS, sharding="x:rows residual:rows -> rows, rows")
def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Add a residual, then normalize: (rms_norm(sum, weight, eps), sum) with sum = x + residual.

    Args:
        residual: Of x's shape and dtype. The rest as for `rms_norm`.
    """
    _require(x, weight)
    norms.require_like("rms_norm", x, residual, "residual")
    x, residual, weight = x.contiguous(), residual.contiguous(), weight.contiguous()
    sum, out = torch.empty_like(x), torch.empty_like(x)
    kernel, numbers, grid, block, _, cluster = _choose(x, residual, weight)
    kernel(x, residual, weight, sum, out, *numbers, eps, grid=grid, block=block, cluster=cluster)
    return out, sum


@dotcu.op("dotcu::rms_norm_backward", dtypes=FLOATS, sharding="grad:rows x:rows added:rows -> rows, sum")
def rms_norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-6, added: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradients of `rms_norm` by x and by weight; `added`, of x's shape, is added to the first.

    The mean of a row is computed again: the row is read anyhow.

    Args:
        grad: The gradient by the result, of x's shape and dtype.
        added: A gradient by x from elsewhere, of x's shape and dtype. The rest as for `rms_norm`.
    """
    _require(x, weight)
    norms.require_like("rms_norm", x, grad, "grad")
    if added is not None:
        norms.require_like("rms_norm", x, added, "added")
        added = norms.aligned(added)
    grad, x, weight = norms.aligned(grad), norms.aligned(x), weight.contiguous()
    grad_x, grad_weight = torch.empty_like(x), torch.empty_like(weight)
    launch = _choose_backward(grad, x, weight, added)
    norms.run_backward(launch, (grad, x, weight, added), grad_x, (grad_weight,), eps)
    return grad_x, grad_weight


@dotcu.by_layout
def _choose(x: Tensor, residual: Tensor | None, weight: Tensor) -> PlannedLaunch:
    n, adds = int(x.shape[-1]), residual is not None
    way, width = norms.forward_rows((x, residual), (weight,))
    long = not adds and way != APART and n >= 2 * norms.WARP * LONG_VECTORS * width
    choices: tuple[int, ...] = (LONG_VECTORS, *FORWARD_VECTORS) if long else FORWARD_VECTORS
    if way != ALIGNED and n <= SHORT_VECTORS[0] * norms.WARP * width:
        choices = SHORT_VECTORS
    configuration = add_rms_norm.configuration if adds else rms_norm.configuration
    return norms.forward_launch(
        kernels.rms_norm, backward_kernels.sum_parts, x, weight, way, width, choices, configuration, adds
    )


@dotcu.by_layout
def _choose_backward(grad: Tensor, x: Tensor, weight: Tensor, added: Tensor | None) -> norms.BackwardLaunch:
    n, adds = int(x.shape[-1]), added is not None
    width = vector_width(VECTOR_BYTES // x.element_size(), (n,), x, weight, grad, added)
    templates = backward_kernels.row_sums, backward_kernels.rms_norm_backward, backward_kernels.sum_parts
    return norms.backward_launch(
        templates, x, weight, width, BACKWARD_WAYS, 3 if adds else 2, STAGES, adds
    )  # fmt: skip


def _require(x: Tensor, weight: Tensor) -> None:
    norms.require_rows("rms_norm", x, weight, "rms_norm(x, torch.ones_like(x[0]))")


rms_norm.configurations(norms.row_configurations, when=norms.holds, exact=1)
add_rms_norm.configurations(norms.row_configurations, when=norms.holds, exact=1)


# Shapes alone, so that what a launch chooses puts no guards on the sizes of torch.compile.


@rms_norm.fake
def _(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    _require(x, weight)
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@add_rms_norm.fake
def _(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    _require(x, weight)
    norms.require_like("rms_norm", x, residual, "residual")
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    return out, torch.empty_like(out)


@rms_norm_backward.fake
def _(
    grad: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-6, added: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    _require(x, weight)
    norms.require_like("rms_norm", x, grad, "grad")
    if added is not None:
        norms.require_like("rms_norm", x, added, "added")
    return torch.empty_like(x, memory_format=torch.contiguous_format), weight.new_empty(weight.shape)


@rms_norm.reference
def _(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    wide = torch.promote_types(x.dtype, weight.dtype)
    normed = torch.nn.functional.rms_norm(x.to(wide), x.shape[-1:], weight.to(wide), eps)
    return normed.to(x.dtype)


@add_rms_norm.reference
def _(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    sum = x + residual
    wide = torch.promote_types(x.dtype, weight.dtype)
    normed = torch.nn.functional.rms_norm(sum.to(wide), x.shape[-1:], weight.to(wide), eps)
    return normed.to(x.dtype), sum


@rms_norm_backward.reference
def _gradients(
    grad: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-6, added: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(x.dtype, torch.float32)
    dy, value, scale = grad.to(wide), x.to(wide), weight.to(wide)
    r = torch.rsqrt(value.square().mean(-1, keepdim=True) + eps)
    y, g = value * r, dy * scale
    grad_x = r * (g - y * (g * y).mean(-1, keepdim=True))
    if added is not None:
        grad_x = grad_x + added.to(wide)
    grad_weight = (dy * y).sum_to_size(weight.shape)
    return grad_x.to(x.dtype), grad_weight.to(weight.dtype)


@rms_norm.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


@rms_norm.backward
def _(ctx: Any, grad: Tensor) -> Any:
    x, weight = ctx.saved_tensors
    return (*rms_norm_backward(grad, x, weight, ctx.eps), None)


@add_rms_norm.setup_context
def _(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
    _, _, weight, ctx.eps = inputs
    ctx.save_for_backward(output[1], weight)


@add_rms_norm.backward
def _(ctx: Any, grad: Tensor, grad_sum: Tensor) -> Any:
    sum, weight = ctx.saved_tensors
    grad_x, grad_weight = rms_norm_backward(grad, sum, weight, ctx.eps, grad_sum)
    return grad_x, grad_x, grad_weight, None


@rms_norm_backward.setup_context
def _(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
    grad, x, weight, ctx.eps, added = inputs
    ctx.save_for_backward(grad, x, weight)
    ctx.adds = added is not None


@rms_norm_backward.backward
def _(ctx: Any, grad_of_x: Tensor, grad_of_weight: Tensor) -> Any:
    pull_back = torch.func.vjp(lambda *tensors: _gradients(*tensors, ctx.eps), *ctx.saved_tensors)[1]
    return (*pull_back((grad_of_x, grad_of_weight)), None, grad_of_x if ctx.adds else None)


@rms_norm.work
def _(x: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[int, int]:
    return 2 * x.nbytes + weight.nbytes, 4 * x.numel()


@add_rms_norm.work
def _(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[int, int]:
    return 4 * x.nbytes + weight.nbytes, 5 * x.numel()


@rms_norm_backward.work
def _(grad: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-6, added: Any = None) -> tuple[int, int]:
    return (3 if added is None else 4) * x.nbytes + 2 * weight.nbytes, 12 * x.numel()


def _rows(device: torch.device, dtype: torch.dtype, tensors: int) -> Iterator[list[Tensor]]:
    """Some tensors of one shape, and a weight: a case for each way through the kernels."""
    random = random_tensors(device, dtype, -2, 2)
    for shape in ((6, 256), (32, 64), (3, 5, 77), (0, 8)):
        yield [*(random(shape) for _ in range(tensors)), random(shape[-1])]
    yield [*(random(40, 9, 2).transpose(0, 1) for _ in range(tensors)), random(2)]
    yield [*(random(3 * 640 + 1)[1:].view(3, 640) for _ in range(tensors)), random(641)[1:]]
    wide = torch.promote_types(dtype, torch.float32)
    yield [*(random(5, 1536) for _ in range(tensors)), random(1536, dtype=wide)]
    yield [*(random(2, 20_004) for _ in range(tensors)), random(20_004)]


@rms_norm.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield from (dotcu.Sample(*tensors) for tensors in _rows(device, dtype, 1))
    random = random_tensors(device, dtype, -2, 2)
    yield dotcu.Sample(random(3, 2048), random(2048))  # more threads, as rows are few


@add_rms_norm.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for tensors in _rows(device, dtype, 2):
        yield dotcu.Sample(*tensors, 1e-5)
    random = random_tensors(device, dtype, -2, 2)
    yield dotcu.Sample(random(3, 2048), random(3, 2048), random(2048))


@rms_norm_backward.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for tensors in _rows(device, dtype, 2):
        yield dotcu.Sample(*tensors, 1e-5)
        yield dotcu.Sample(*tensors, 1e-5, added=torch.ones_like(tensors[0]))
