"""Bodies of operators that can be followed, of every kind that a plan has something to say of."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

import dotcu

SOURCE = r"""
#include <dotcu/tensor.cuh>

template <typename T>
__global__ void add(const T* a, const T* b, T* out, long long n) {
    long long i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

__global__ void scale(const float* x, float* out, float alpha, double beta, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = alpha * x[i] + float(beta);
}

__global__ void copy4(const float4* x, float4* out, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i];
}

__global__ void rows(const float* x, long long rows, int columns, float* out, short m, short n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < m * n) out[i] = x[i / n * rows + i % n * columns];
}

__global__ void matrix(dotcu::tensor<const float, 2> x, float* out) {
    if (blockIdx.x == 0 && threadIdx.x == 0) out[0] = float(x.size(0));
}

__global__ void touch(const float* x, const float* optional, float* out, bool flag, signed char code) {
    if (threadIdx.x == 0 && blockIdx.x == 0) out[0] = (optional != nullptr) + 2 * flag + code;
}
"""
kernels = dotcu.load_inline(SOURCE)
box_kernels = dotcu.load_inline(r"""
#include <dotcu/tma.cuh>

// The first 4 x 4 elements of x, and four times those of y; beyond both is zero.
__global__ void corners(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y,
                        const float* first, float* out, int rows) {
    __shared__ alignas(128) float tile[2][32];  // 128 bytes apart
    __shared__ dotcu::mbarrier arrived;
    if (threadIdx.x == 0) arrived.init(1);
    __syncthreads();
    if (threadIdx.x == 0) {
        arrived.arrive_expect(128);
        dotcu::tma_load(tile[0], x, arrived, 0, 0);
        dotcu::tma_load(tile[1], y, arrived, 0, 0);
    }
    arrived.wait(0);
    const int i = threadIdx.x;
    if (i < 16) out[i] = tile[0][i] + 4 * tile[1][i] + (rows < 0) * first[0];
}
""")

LIMIT = 40
WARP = 32


def broadcast_add(a: Tensor, b: Tensor, *, block_size: int = 32) -> Tensor:
    a, b = torch.broadcast_tensors(a, b)
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty_like(a)
    kernels.add[a.dtype](a, b, out, out.numel(), grid=dotcu.cdiv(out.numel(), block_size), block=block_size)
    return out


def branching(x: Tensor) -> Tensor:
    n = x.numel()
    if n == 0:
        return x.new_zeros((3,))
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if n % 4 == 0 and dotcu.is_aligned(x, 16):
        kernels.copy4(x, out, n // 4, grid=max(dotcu.cdiv(n // 4, WARP), 1), block=WARP)
    elif n < LIMIT:
        kernels.scale(x, out, 1.0, 0.0, n, grid=1, block=64)
    else:
        kernels.scale(x, out, n / 2, n * 0.5, n, grid=min(dotcu.cdiv(n, 64), 2000), block=64)
    return out


def _checked(x: Tensor, rank: int) -> tuple[Any, ...]:
    if x.dim() != rank or any(size > 2 * LIMIT for size in x.shape):
        raise ValueError(f"takes {rank} dimensions below {2 * LIMIT}, got {tuple(x.shape)}")
    return tuple(x.shape)


def strided_rows(x: Tensor) -> Tensor:
    m, n = _checked(x, 2)
    out = x.new_empty(m * n)
    kernels.rows(dotcu.strided(x), out, m, n, grid=(dotcu.cdiv(m * n, 64), 1), block=64)
    return out.view(m, n)


def corner(x: Tensor, start: int) -> Tensor:
    _checked(x, 2)
    part = x[start:, : x.shape[1] // 2].T
    out = torch.zeros((2, part.size(0)), dtype=torch.float32, device=x.device)
    kernels.matrix(part, out, grid=part.shape[0], block=1)
    return out


def boxes(x: Tensor, y: Tensor) -> Tensor:
    rows, columns = _checked(x, 2)
    fits = x.stride(0) % 4 == 0 and x.stride(0) > 0 and dotcu.is_aligned(x, 16)
    if x.numel() == 0 or not (x.stride(1) == 1 and fits and y.is_contiguous()):
        return x.new_zeros((4, 4))
    between = y.new_zeros((y.shape[0] + 1, dotcu.cdiv(y.shape[1], 4) * 4))
    kernels.rows(y, y.shape[1], 1, between, y.shape[0], y.shape[1], grid=32, block=64)
    part = between[1:, : y.shape[1]]
    out = x.new_empty(4, 4)
    maps = (dotcu.tensor_map(t, box=(4, 4), l2_promotion=128) for t in (x, part))
    box_kernels.corners(
        *maps, x if columns % 4 == 0 and x.is_contiguous() else None, out, rows, grid=1, block=32
    )
    return out


def optional(x: Tensor, other: Tensor | None, flag: bool, code: int) -> Tensor:
    if other is not None and other.shape != x.shape:
        raise ValueError("takes tensors of one shape")
    out = torch.empty_strided((x.numel() + 1, 2), (2, 1), dtype=torch.float32, device=x.device)
    kernels.touch(x, other, out, flag, code, grid=len(x) if x.dim() else 1, block=1)
    return out


def two_launches(x: Tensor, alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    x = x.reshape(-1)
    n = x.numel()
    first, second = torch.empty_like(x), torch.empty_like(x)
    between = x.new_empty(n + 1)[1:]
    kernels.scale(x, between, alpha, -beta, n, grid=dotcu.cdiv(n, 32), block=32)
    kernels.scale(between, first, alpha * 2, abs(beta) / 3, n, grid=dotcu.cdiv(n, 32), block=32)
    if alpha > beta:
        kernels.scale(first, second, 0.5, float(math.floor(alpha)), n, grid=(n + 31) // 32, block=32)
    else:
        kernels.scale(between, second, alpha + beta, 1, n, grid=(n + 31) // 32, block=32)
    return first, second


def numbers(x: Tensor, n: int, m: int) -> Tensor:
    total = (n * m - n // 3 + (m % 7 << 2)) ^ 5 if m else abs(n)
    size = torch.sym_max(torch.sym_min(total, 20), 0)
    width, height = divmod(size, 3)
    out = torch.empty(width + height, n & 3, dtype=x.dtype, device=x.device)
    kernels.rows(x, total, -n, out, size >> 1, 0, grid=(1, size + 1), block=32)
    return out.unsqueeze(0)


def shaped(x: Tensor, y: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(x.shape, (y.size(-1),))
    inner = math.prod(shape[1:])
    x = x.expand(shape)
    out = torch.empty((*shape[:1], inner), dtype=x.dtype, device=x.device)
    if x.stride(-1) == 0:
        kernels.touch(y, None, out, True, 1, grid=1, block=1)
    kernels.matrix(out, out.flatten(), grid=inner, block=1)
    return out.view(*shape[:1], *shape[1:])


def written(x: Tensor, *, out: Tensor) -> None:
    if out.shape != x.shape:
        raise ValueError("out= must have the shape of x")
    whole = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
    kernels.scale(x.contiguous(), whole, 2.0, 0.0, x.numel(), grid=dotcu.cdiv(x.numel(), 64), block=64)
    if whole is not out:
        out.copy_(whole)
