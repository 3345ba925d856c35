"""saxpy for PyTorch; main.cpp calls the same kernel without Python."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load("saxpy.cu")


@dotcu.op("cpp_example::saxpy", dtypes=(torch.float32, torch.float64))
def saxpy(a: float, x: Tensor, y: Tensor) -> Tensor:
    """a * x + y, of contiguous tensors of one shape."""
    out, n = y.clone(memory_format=torch.contiguous_format), x.numel()
    kernels.saxpy[x.dtype](a, x.contiguous(), out, n, grid=dotcu.cdiv(n, 256), block=256)
    return out


@saxpy.reference
def _(a: float, x: Tensor, y: Tensor) -> Tensor:
    return a * x + y


@saxpy.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    x = torch.arange(1000, device=device, dtype=dtype)
    yield dotcu.Sample(2.0, x, torch.ones_like(x))
