"""square: x * x, element by element, with a gradient that can be differentiated again."""

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
"""Of x that a thread has on its way."""


@dotcu.op("dotcu::square", dtypes=REAL)
def square(x: Tensor, *, block_size: int = 128) -> Tensor:
    """Multiply each element by itself. `square(x, out=y)` writes into a tensor that is there already.

    Args:
        x: A tensor of any shape and strides, of a dtype out of `REAL`. Integers wrap around, as in torch.
        block_size: Threads of a block.
    """
    _require_real(x)
    x = x.contiguous()
    out = torch.empty_like(x)
    _launch(x, out, block_size)
    return out


@square.overload("out", mutates_args=("out",))
def square_out(x: Tensor, *, block_size: int = 128, out: Tensor) -> None:
    """Write x * x into `out`, of any strides. It may be `x` itself, but not overlap it in part."""
    _require_real(x)
    if out.dtype != x.dtype or out.shape != x.shape:
        raise ValueError(
            f"out= must have the shape and dtype of x, {tuple(x.shape)} and {x.dtype} "
            f"(got {tuple(out.shape)}, {out.dtype}).\nAllocate it so: torch.empty_like(x)"
        )
    whole = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
    _launch(x.contiguous(), whole, block_size)
    if whole is not out:
        out.copy_(whole)


def _launch(x: Tensor, out: Tensor, block_size: int) -> None:
    block_size = _block(block_size)
    kernel, n, grid = _choose(x, out, block_size)
    kernel(x, out, n, grid=grid, block=block_size)


@dotcu.by_layout
def _choose(x: Tensor, out: Tensor, block_size: int) -> tuple[dotcu.Kernel, int, int]:
    """The kernel, elements, and blocks."""
    n, lanes, share = out.numel(), _lanes(x, out, block_size), THREAD_BYTES // out.element_size()
    return kernels.square[x.dtype, lanes, share // lanes], n, dotcu.cdiv(n, share * block_size)


def _lanes(x: Tensor, out: Tensor, block_size: int) -> int:
    """Elements of the widest vector at whose multiples both tensors start."""
    size = x.element_size()
    lanes = VECTOR_BYTES // size
    while lanes > 1 and not (
        lanes <= block_size and all(dotcu.is_aligned(tensor, lanes * size) for tensor in (x, out))
    ):
        lanes //= 2
    return lanes


def _block(block_size: int) -> int:
    if not 1 <= block_size <= 1024:
        raise ValueError(
            f"a block has 1 to 1024 threads (got {block_size}).\nType: square(x, block_size=256)"
        )
    return int(block_size)  # lanes hang on it, so torch.compile must know it too


def _require_real(x: Tensor) -> None:
    if x.dtype not in REAL:
        taken = ", ".join(str(dtype).removeprefix("torch.") for dtype in REAL)
        raise TypeError(
            f"square takes {taken} (got {x.dtype}).\nConvert the tensor first: x.to(torch.float32)"
        )


@square.reference
def _(x: Tensor, **launch: int) -> Tensor:
    return x * x


@square.setup_context
def _(ctx: Any, inputs: Any, output: Tensor, keyword_only_inputs: Any) -> None:
    ctx.save_for_backward(inputs[0])


@square.backward
def _(ctx: Any, grad: Tensor) -> Any:
    (x,) = ctx.saved_tensors
    return grad * (2 * x)  # torch's own operators, which know their derivatives


@square.vmap
def _(info: Any, in_dims: tuple[int | None, ...], x: Tensor, **launch: int) -> Any:
    return square(x, **launch), in_dims[0]


@square.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    def random(*shape: int) -> Tensor:
        return make_tensor(shape, device=device, dtype=dtype, low=-9, high=9)

    yield dotcu.Sample(random(1000))
    yield dotcu.Sample(random())
    yield dotcu.Sample(random(0))
    yield dotcu.Sample(random(2, 7, 5).transpose(0, 2), block_size=32)
    yield dotcu.Sample(random(30, 7)[1:, ::2])
    yield dotcu.Sample(random(20_011), block_size=128)
