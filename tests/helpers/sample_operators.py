"""Operators that the tests take everywhere: into graphs, streams, threads, forks and compilers.

Each call makes another operator of a source of its own, so nothing of it is compiled or loaded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.operator import Operator

TESTS = Path(__file__).parents[1]
SOURCE = """
template <typename T>
__global__ void times(const T* x, float by, T* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = T(by) * x[i];
}
template <typename T>
__global__ void plus(const T* a, const T* b, T* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}
__constant__ float table[4];
__global__ void look_up(float* out) { out[threadIdx.x] = table[threadIdx.x]; }
__global__ void last_of(float* x, int n) {
    extern __shared__ float line[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) line[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) *x = line[n - 1];
}
"""
_numbers = itertools.count()


def fresh_module() -> dotcu.Module:
    """Kernels that nothing has compiled or loaded yet."""
    return dotcu.load_inline(f"{SOURCE}// {next(_numbers)}\n")


def make_axpy(kernels: dotcu.Module | None = None) -> Operator:
    """`axpy(a, b, alpha) -> a + alpha * b`, by two launches with a temporary between them.

    Its backward calls another operator, with a kernel of its own.
    """
    kernels = kernels if kernels is not None else fresh_module()
    number = next(_numbers)

    @dotcu.op(f"everywhere::times{number}", dtypes=(torch.float32, torch.float64))
    def times(x: Tensor, by: float) -> Tensor:
        x = x.contiguous()
        out, n = torch.empty_like(x), x.numel()
        kernels.times[x.dtype](x, by, out, n, grid=dotcu.cdiv(n, 128), block=128)
        return out

    times.reference(lambda x, by: x * by)

    @dotcu.op(f"everywhere::axpy{number}", dtypes=(torch.float32, torch.float64))
    def axpy(a: Tensor, b: Tensor, alpha: float = 1.0) -> Tensor:
        a, b = a.contiguous(), b.contiguous()
        scaled, out, n = torch.empty_like(b), torch.empty_like(a), a.numel()
        kernels.times[a.dtype](b, alpha, scaled, n, grid=dotcu.cdiv(n, 128), block=128)
        kernels.plus[a.dtype](a, scaled, out, n, grid=dotcu.cdiv(n, 128), block=128)
        return out

    axpy.reference(lambda a, b, alpha=1.0: a + alpha * b)

    @axpy.setup_context
    def _(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.alpha = inputs[2]

    @axpy.backward
    def _(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        return grad, times(grad, ctx.alpha), None

    @axpy.samples
    def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
        for n in (1, 300):
            a, b = torch.randn(2, n, device=device, dtype=dtype)
            yield dotcu.Sample(a, b, alpha=0.5)

    return axpy


def pair(n: int, device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Two vectors of n different elements."""
    a = torch.arange(n, device=device, dtype=torch.float32)
    return a, a.flip(0) + 1
