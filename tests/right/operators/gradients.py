"""Sound operators whose backwards save, round or answer in a way of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

import dotcu
from dotcu.operator import Operator

kernels = dotcu.load_inline("""
#include <cuda_bf16.h>
#define AT long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n)

template <typename T>
__global__ void multiplied(const T* x, const T* y, T* out, long long n) {
    AT out[i] = T(float(x[i]) * float(y[i]));
}

template <typename T>
__global__ void sigmoid(const T* x, T* out, long long n) { AT out[i] = T(1 / (1 + expf(-float(x[i])))); }
""")

DTYPES = (torch.bfloat16, torch.float32)


def numbers(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.randn(300, device=device, dtype=dtype))


def pairs(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(*torch.randn(2, 6, 8, device=device).to(dtype))


def run(kernel: dotcu.Kernel, *tensors: Tensor) -> Tensor:
    if any(tensor.dtype not in DTYPES or tensor.dtype != tensors[0].dtype for tensor in tensors):
        raise TypeError("takes float32 or bfloat16")
    tensors = tuple(tensor.contiguous() for tensor in tensors)
    out, n = torch.empty_like(tensors[0]), tensors[0].numel()
    kernel[out.dtype](*tensors, out, n, grid=dotcu.cdiv(n, 64), block=64)
    return out


def squares(name: str, keep: Callable[..., None], backward: Callable[..., Any]) -> Operator:
    def square(x: Tensor) -> Tensor:
        return run(kernels.multiplied, x, x)

    operator = dotcu.op(f"right_gradients::{name}", dtypes=DTYPES)(square)
    operator.reference(lambda x: x * x)
    operator.samples(numbers)
    operator.setup_context(keep)
    operator.backward(backward)
    return operator


def keep_a_view(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(inputs[0].reshape(-1))


def keep_detached(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(inputs[0].detach())


def keep_a_copy(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.x = inputs[0].detach().clone()


def keep(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


@once_differentiable
def of_saved(ctx: Any, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return grad * 2 * x.view(grad.shape)


@once_differentiable
def of_copy(ctx: Any, grad: Tensor) -> Tensor:
    return grad * 2 * ctx.x


def in_steps(ctx: Any, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return grad * 1.1 * 1.3 * x * (1 / 1.1) * (2 / 1.3)


saved_view = squares("saved_view", keep_a_view, of_saved)
saved_detached = squares("saved_detached", keep_detached, of_saved)
saved_copy = squares("saved_copy", keep_a_copy, of_copy)
rounded_often = squares("rounded_often", keep, in_steps)


@dotcu.op("right_gradients::saved_result", dtypes=DTYPES)
def saved_result(x: Tensor) -> Tensor:
    return run(kernels.sigmoid, x)


@saved_result.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(output)


@saved_result.backward
def _(ctx: Any, grad: Tensor) -> Tensor:
    (y,) = ctx.saved_tensors
    return grad * y * (1 - y)


saved_result.reference(torch.sigmoid)
saved_result.samples(numbers)


@dotcu.op("right_gradients::broadcast", dtypes=DTYPES)
def broadcast(x: Tensor, y: Tensor, z: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:  # noqa: UP045
    """Two results, of tensors that are broadcast, and of one that may be left out."""
    x, y = torch.broadcast_tensors(x, y)
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        return run(kernels.multiplied, x, y), run(kernels.multiplied, x, x if z is None else z.expand_as(x))
    finally:
        torch.set_default_dtype(default)


@broadcast.reference
def _(x: Tensor, y: Tensor, z: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:  # noqa: UP045
    x, y = torch.broadcast_tensors(x, y)
    return x * y, x * (x if z is None else z.expand_as(x))


@broadcast.setup_context
def _(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.set_materialize_grads(False)


@broadcast.backward
def _(ctx: Any, first: Tensor | None, second: Tensor | None) -> Any:
    x, y, z = ctx.saved_tensors
    of_x, of_y, of_z = 0, None, None
    if first is not None:
        of_x, of_y = first * y, (first * x).sum_to_size(y.shape)
    if second is not None:
        of_x = of_x + second * (2 * x if z is None else z)
        of_z = (second * x).sum_to_size(z.shape) if ctx.needs_input_grad[2] else None
    return of_x.sum_to_size(x.shape) if isinstance(of_x, Tensor) else None, of_y, of_z


broadcast.samples(pairs)
