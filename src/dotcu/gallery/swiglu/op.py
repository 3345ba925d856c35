"""swiglu: silu(gate) * up, a transformer's gate, and both of its gradients by one kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import make_tensor

import dotcu
from dotcu.gallery.common import FLOATS, sum_type, vector_lanes

kernels = dotcu.load("kernel.cu")

BLOCK = 128

THREAD_BYTES = 16
"""The bytes of each input that a thread has in flight: 64 KB for a multiprocessor of 2048 threads."""


@dotcu.op("dotcu::swiglu", dtypes=FLOATS, sharding="elementwise")
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Compute silu(gate) * up, with silu(x) = x / (1 + exp(-x)), element by element.

    Half types compute in float32 and are rounded once.

    Args:
        gate: A tensor of any shape and strides, of a dtype out of `FLOATS`.
        up: A tensor of the same shape and dtype.
    """
    gate, up = _alike(gate, up)
    out = torch.empty_like(gate)
    _launch(gate, up, out)
    return out


@dotcu.op("dotcu::swiglu_backward", dtypes=FLOATS, sharding="elementwise")
def swiglu_backward(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the gradients by `gate` and by `up` from that by the result of `swiglu`, in one pass.

    Args:
        grad: A tensor of the shape and dtype of `gate` and `up`, which are as for `swiglu`.
    """
    grad, gate, up = _alike(grad, gate, up)
    grad_gate, grad_up = torch.empty_like(gate), torch.empty_like(up)
    _launch(grad, gate, up, grad_gate, grad_up)
    return grad_gate, grad_up


def _launch(*tensors: Tensor) -> None:
    kernel, n, grid = _choose(*tensors)
    kernel(*tensors, n, grid=grid, block=BLOCK)


@dotcu.by_layout
def _choose(*tensors: Tensor) -> tuple[dotcu.Kernel, int, int]:
    """The kernel, for three tensors or for the five of the backward; elements, and blocks."""
    kernel, first = kernels.swiglu if len(tensors) == 3 else kernels.swiglu_backward, tensors[0]
    n, lanes, share = first.numel(), vector_lanes(tensors, BLOCK), THREAD_BYTES // first.element_size()
    return kernel[first.dtype, sum_type(first.dtype), lanes, share // lanes], n, dotcu.cdiv(n, share * BLOCK)


def _alike(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors, contiguous, if they have one shape and one dtype out of `FLOATS`."""
    shape, dtype = tensors[0].shape, tensors[0].dtype
    if dtype not in FLOATS or any(tensor.dtype != dtype for tensor in tensors):
        taken = ", ".join(str(dtype).removeprefix("torch.") for dtype in FLOATS)
        got = " and ".join(str(tensor.dtype) for tensor in tensors)
        raise TypeError(
            f"swiglu takes tensors of one dtype out of {taken} (got {got}).\n"
            "Convert them first: swiglu(gate.to(torch.float32), up.to(torch.float32))"
        )
    if any(tensor.shape != shape for tensor in tensors):
        got = " and ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise ValueError(
            f"swiglu takes tensors of one shape (got {got}).\nExpand one of them: up.expand_as(gate)"
        )
    return tuple(tensor.contiguous() for tensor in tensors)


@swiglu.reference
def _(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


@swiglu_backward.reference
def _(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ops.aten.silu_backward(grad * up, gate), grad * F.silu(gate)


@swiglu.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


@swiglu.backward
def _(ctx: Any, grad: Tensor) -> Any:
    return swiglu_backward(grad, *ctx.saved_tensors)


@swiglu_backward.setup_context
def _(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


@swiglu_backward.backward
def _(ctx: Any, by_gate: Tensor, by_up: Tensor) -> Any:
    """Differentiate by torch's operators, which have derivatives."""
    grad, gate, up = ctx.saved_tensors
    s = torch.sigmoid(gate)
    silu = gate * s
    slope = s + silu * (1 - s)
    bend = s * (1 - s) * (2 + gate * (1 - 2 * s))
    by_both = by_gate * up * slope + by_up * silu
    return by_both, grad * (by_gate * up * bend + by_up * slope), grad * by_gate * slope


@swiglu.vmap
def _(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> Any:
    return swiglu(*_batches(info, in_dims, tensors)), 0


@swiglu_backward.vmap
def _(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> Any:
    return swiglu_backward(*_batches(info, in_dims, tensors)), (0, 0)


def _batches(info: Any, in_dims: tuple[int | None, ...], tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """The tensors with the batch as their first dimension."""
    return [
        tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, in_dims, strict=True)
    ]


@swiglu.work
def _(gate: Tensor, up: Tensor) -> tuple[int, int]:
    return 3 * gate.numel() * gate.element_size(), 5 * gate.numel()


@swiglu_backward.work
def _(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[int, int]:
    return 5 * gate.numel() * gate.element_size(), 10 * gate.numel()


@swiglu.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield from _samples(2, device, dtype)


@swiglu_backward.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield from _samples(3, device, dtype)


def _samples(count: int, device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    def random(*shape: int) -> list[Tensor]:
        return [make_tensor(shape, device=device, dtype=dtype, low=-9, high=9) for _ in range(count)]

    yield dotcu.Sample(*random(16, 64))
    yield dotcu.Sample(*random())
    yield dotcu.Sample(*random(3, 0))
    yield dotcu.Sample(*random(1021))
    yield dotcu.Sample(*(tensor[1:] for tensor in random(1021)))
    yield dotcu.Sample(*(tensor.chunk(2, dim=-1)[1] for tensor in random(5, 14)))
    yield dotcu.Sample(*random(8_209))
