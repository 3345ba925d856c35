"""An operator with a reference, a backward and an `out` overload, and kernels for others like it."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

import dotcu

SOURCE = """
template <typename T>
__global__ void scale_add(const T* a, const T* b, float alpha, T* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + T(alpha) * b[i];
}
template <typename T>
__global__ void split(const T* a, T* high, T* low, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) { high[i] = a[i] > T(0) ? a[i] : T(0); low[i] = a[i] > T(0) ? T(0) : a[i]; }
}
__global__ void gather(const float* x, const int* index, float* out) {
    int i = threadIdx.x;
    out[i] = x[index[i]];
}
template <typename T>
__global__ void increment(T* a, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) a[i] += T(1);
}
"""

kernels = dotcu.load_inline(SOURCE)
names = (f"operator_test::op{i}" for i in itertools.count())


def make_scale_add(**options: Any) -> dotcu.operator.Operator:
    @dotcu.op(next(names), dtypes=(torch.float32, torch.float64), **options)
    def scale_add(a: Tensor, b: Tensor, alpha: float = 1.0) -> Tensor:
        """a + alpha * b"""
        a, b = torch.broadcast_tensors(a, b)
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty_like(a)
        n = a.numel()
        kernels.scale_add[a.dtype](a, b, alpha, out, n, grid=dotcu.cdiv(n, 256), block=256)
        return out

    @scale_add.reference
    def _(a: Tensor, b: Tensor, alpha: float = 1.0) -> Tensor:
        return a + alpha * b

    @scale_add.backward
    def _(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        zero = torch.zeros_like(grad)
        return grad, scale_add(zero, grad, ctx.alpha), None

    @scale_add.setup_context
    def _(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.alpha = inputs[2]

    @scale_add.overload("out", mutates_args=("out",))
    def _(a: Tensor, b: Tensor, alpha: float = 1.0, *, out: Tensor) -> None:
        out.copy_(scale_add(a, b, alpha))

    return scale_add
