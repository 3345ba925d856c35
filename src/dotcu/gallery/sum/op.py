"""sum: all elements of a tensor added up, by warp shuffles, shared memory and atomics."""

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

WARP = 32


UNORDERED = (torch.Tag.nondeterministic_bitwise,)
"""What is said of both overloads: blocks add up by atomics, in the order in which they finish."""


@dotcu.op("dotcu::sum", dtypes=REAL, tags=UNORDERED)
def sum(x: Tensor, *, block_size: int = 256) -> Tensor:
    """Add up all elements: half types in float32, integers in 64 bits, and integers give int64, as in torch.

    `sum(x, out=y)` writes into a tensor that is there already.

    Args:
        x: A tensor of any shape and strides, of a dtype out of `REAL`.
        block_size: Threads of a block, a multiple of 32.

    Note:
        Blocks finish in any order, so the last bits of a floating-point sum can differ between calls.
    """
    return _total(x, block_size).to(_result_type(x.dtype))


@sum.overload("out", mutates_args=("out",), tags=UNORDERED)
def sum_out(x: Tensor, *, block_size: int = 256, out: Tensor) -> None:
    """Write the sum into `out`, a tensor without dimensions."""
    total, dtype = _total(x, block_size), _result_type(x.dtype)
    if out.dim() != 0 or out.dtype != dtype or out.device != x.device:
        raise ValueError(
            f"out= must be a 0-dimensional tensor of dtype {dtype} on {x.device} (got {tuple(out.shape)}, "
            f"{out.dtype}, {out.device}).\nAllocate it so: x.new_empty((), dtype={dtype})"
        )
    out.copy_(total)


def _total(x: Tensor, block_size: int) -> Tensor:
    """The sum in a type that is as wide as any."""
    _require(x, block_size)
    x, n = x.contiguous(), x.numel()
    total = x.new_zeros((), dtype=torch.int64 if x.dtype in INTEGERS else torch.float64)
    kernel = kernels.sum[x.dtype, _sum_type(x.dtype), total.dtype]
    resident = kernel.occupancy(block_size) * dotcu.sm_count(x)
    kernel(x, total, n, grid=torch.sym_min(dotcu.cdiv(n, block_size), resident), block=block_size)
    return total


def _sum_type(dtype: torch.dtype) -> torch.dtype:
    if dtype in INTEGERS:
        return torch.int64
    return torch.float64 if dtype == torch.float64 else torch.float32


def _result_type(dtype: torch.dtype) -> torch.dtype:
    return torch.int64 if dtype in INTEGERS else dtype


def _require(x: Tensor, block_size: int) -> None:
    if x.dtype not in REAL:
        taken = ", ".join(str(dtype).removeprefix("torch.") for dtype in REAL)
        raise TypeError(f"sum takes {taken} (got {x.dtype}).\nConvert the tensor first: x.to(torch.float32)")
    if block_size % WARP != 0:
        raise ValueError(
            f"block_size is a number of whole warps, a multiple of {WARP} (got {block_size}).\n"
            "Type: sum(x, block_size=256)"
        )


@sum.reference
def _(x: Tensor, **launch: int) -> Tensor:
    return torch.sum(x)


@sum.setup_context
def _(ctx: Any, inputs: Any, output: Tensor, keyword_only_inputs: Any) -> None:
    ctx.shape = inputs[0].shape


@sum.backward
def _(ctx: Any, grad: Tensor) -> Any:
    return grad.expand(ctx.shape)


@sum.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    def random(*shape: int) -> Tensor:
        return make_tensor(shape, device=device, dtype=dtype, low=-1, high=2)

    yield dotcu.Sample(random(1000))
    yield dotcu.Sample(random())
    yield dotcu.Sample(random(4, 0))
    yield dotcu.Sample(random(31), block_size=32)
    yield dotcu.Sample(random(3, 11, 7).transpose(0, 1), block_size=1024)
    yield dotcu.Sample(random(70, 9)[:, 1::2])
    yield dotcu.Sample(random(20_011), block_size=128)
