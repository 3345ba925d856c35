"""Sound operators whose last bits vary, that draw random numbers, or that are approximate on purpose."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load_inline("""
#define AT long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n)

__global__ void summed(const float* x, float* out, long long n) {
    float sum = 0;
    AT sum = x[i];
    for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_down_sync(0xffffffff, sum, lane);
    if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}

__global__ void dropped(const float* x, float* out, unsigned int seed, float p, float scale, long long n) {
    AT {
        unsigned int h = static_cast<unsigned int>(i) * 2654435761u + seed;
        h ^= h >> 16;
        h *= 2246822519u;
        h ^= h >> 13;
        out[i] = (h >> 8) * 5.9604644775390625e-8f < p ? 0 : scale * x[i];
    }
}
__global__ void added(const float* x, const float* noise, float* out, long long n) {
    AT out[i] = x[i] + noise[i];
}

__global__ void sigmoid(const float* x, float* out, long long n) { AT out[i] = 1 / (1 + __expf(-x[i])); }
""")


def over(n: int) -> dict[str, int]:
    """A launch over n elements."""
    return {"grid": dotcu.cdiv(n, 64), "block": 64}


def numbers(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.randn(1000, device=device))


@dotcu.op("right_chance::summed", tags=(torch.Tag.nondeterministic_bitwise,))
def summed(x: Tensor) -> Tensor:
    """Warps add up by atomics, in any order."""
    x, out = x.contiguous(), x.new_zeros(())
    kernels.summed(x, out, x.numel(), **over(x.numel()))
    return out


@dotcu.op("right_chance::dropped")
def dropped(x: Tensor, seed: int, p: float = 0.25) -> Tensor:
    """Random by its seed alone."""
    if not 0 <= p < 1:
        raise ValueError(f"p is from 0 to below 1, got {p}")
    x, n = x.contiguous(), x.numel()
    out = torch.empty_like(x)
    kernels.dropped(x, out, seed, p, 1 / (1 - p), n, **over(n))
    return out


@dropped.reference
def _(x: Tensor, seed: int, p: float = 0.25) -> Tensor:
    word = 0xFFFF_FFFF
    h = (torch.arange(x.numel(), device=x.device) * 2654435761 + seed) & word
    h = ((h ^ (h >> 16)) * 2246822519) & word
    h = h ^ (h >> 13)
    return torch.where((h >> 8) * 2.0**-24 < p, 0.0, x.flatten() / (1 - p)).view(x.shape).to(x.dtype)


@dropped.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    x = torch.randn(20, 30, device=device)
    yield dotcu.Sample(x, 1)
    yield dotcu.Sample(x, 2_000_000_000, p=0.5)


@dotcu.op("right_chance::noisy", tags=(torch.Tag.nondeterministic_seeded,))
def noisy(x: Tensor) -> Tensor:
    """Draws torch's random numbers, and says so; its reference draws others."""
    x, n = x.contiguous(), x.numel()
    out = torch.empty_like(x)
    kernels.added(x, torch.rand_like(x), out, n, **over(n))
    return out


@dotcu.op("right_chance::sigmoid", tolerance=1e-5)
def sigmoid(x: Tensor) -> Tensor:
    """Approximate, within a tolerance that it declares."""
    x, n = x.contiguous(), x.numel()
    out = torch.empty_like(x)
    kernels.sigmoid(x, out, n, **over(n))
    return out


summed.reference(torch.sum)
noisy.reference(lambda x: x + torch.rand_like(x))
sigmoid.reference(torch.sigmoid)
for operator in (summed, noisy, sigmoid):
    operator.samples(numbers)
