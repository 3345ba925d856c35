"""The kernel of row_sum.cu as a PyTorch operator."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load("row_sum.cu")


@dotcu.op("demo::row_sum")
def row_sum(x: Tensor) -> Tensor:
    """Return the sum of each row of x, (rows, columns), as a tensor of shape (rows,)."""
    if x.dim() != 2 or x.dtype is not torch.float32:
        raise ValueError(f"row_sum takes a float32 tensor of two dimensions, got {x.dtype} of {x.dim()}")
    x = x.contiguous()
    out = x.new_empty(x.shape[0])
    kernels.row_sum[x.dtype](x, out, x.shape[1], grid=x.shape[0], block=128)
    return out


@row_sum.reference
def _(x: Tensor) -> Tensor:
    return x.sum(1)


@row_sum.backward
def _(ctx: object, grad: Tensor) -> Tensor:
    return grad[:, None].expand(ctx.shape)


@row_sum.setup_context
def _(ctx: object, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.shape = inputs[0].shape


@row_sum.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for shape in [(3, 1000), (17, 64)]:
        yield dotcu.Sample(torch.randn(shape, device=device, dtype=dtype))
