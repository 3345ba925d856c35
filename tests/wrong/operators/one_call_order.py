"""Operators that are wrong in when things happen, each in one way: order, chance, barriers, errors."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load_inline("""
#define AT long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n)

__global__ void copied(const float* x, float* out, long long n) { AT out[i] = x[i]; }

__global__ void summed(const float* x, float* out, long long n) { AT atomicAdd(out, x[i]); }

__global__ void past_its_end(const float* x, float* out, long long n) { AT out[i + 1] = x[i]; }

__global__ void by_fours(const float* x, float* out, long long n) {
    AT reinterpret_cast<float4*>(out)[i] = reinterpret_cast<const float4*>(x)[i];
}

__global__ void from_scratch(const float* x, const float* scratch, float* out, long long n) {
    AT out[i] = x[i] + scratch[i];
}
__global__ void reversed(const float* x, float* out, long long n) {
    __shared__ float tile[128];
    int i = threadIdx.x;
    if (i < n) tile[i] = x[i];
    if (i < n) out[i] = tile[n - 1 - i];
}
__global__ void half_way(const float* x, float* out, long long n) {
    AT out[i] = x[i];
    if (threadIdx.x < 40) __syncthreads();
    __syncthreads();
}
""")


def launched(kernel: dotcu.Kernel, x: Tensor, *extra: Tensor) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    kernel(x, *extra, out, n, grid=dotcu.cdiv(n, 128), block=128)
    return out


# ------------------------------------------------------------------ determinism


@dotcu.op("wrong_order::undeclared_atomics")
def undeclared_atomics(x: Tensor) -> Tensor:
    out, n = x.new_zeros(()), x.numel()
    kernels.summed(x.contiguous(), out, n, grid=dotcu.cdiv(n, 128), block=128)
    return out


@dotcu.op("wrong_order::undeclared_noise")
def undeclared_noise(x: Tensor) -> Tensor:
    """The noise changes the last bit alone, so the values are right."""
    return launched(kernels.copied, x * (1 + 2.0**-23 * (torch.rand_like(x) < 0.5)))


_calls = itertools.count()


@dotcu.op("wrong_order::counts_its_calls")
def counts_its_calls(x: Tensor) -> Tensor:
    return launched(kernels.copied, x * (1 + 2.0**-23 * (next(_calls) % 2)))


_attempts = itertools.count()


@dotcu.op("wrong_order::every_other_time")
def every_other_time(x: Tensor) -> Tensor:
    if next(_attempts) % 2:
        raise RuntimeError("there was a call before")
    return launched(kernels.copied, x)


# ------------------------------------------------------------------ sanitizers


@dotcu.op("wrong_order::past_its_end")
def past_its_end(x: Tensor) -> Tensor:
    return launched(kernels.past_its_end, x)


@dotcu.op("wrong_order::by_fours")
def by_fours(x: Tensor) -> Tensor:
    """16-byte loads of what is aligned to 4 bytes."""
    out, n = torch.empty_like(x), x.numel() // 4
    kernels.by_fours(x, out, n, grid=dotcu.cdiv(n, 128), block=128)
    return out


@dotcu.op("wrong_order::unwritten_scratch")
def unwritten_scratch(x: Tensor) -> Tensor:
    return launched(kernels.from_scratch, x, torch.empty_like(x))


@dotcu.op("wrong_order::without_a_barrier")
def without_a_barrier(x: Tensor) -> Tensor:
    return launched(kernels.reversed, x)


@dotcu.op("wrong_order::barrier_for_some")
def barrier_for_some(x: Tensor) -> Tensor:
    return launched(kernels.half_way, x)


# ------------------------------------------------------------------ bodies that fail


@dotcu.op("wrong_order::ends_the_process")
def ends_the_process(x: Tensor) -> Tensor:
    sys.exit(0)


@dotcu.op("wrong_order::raises")
def raises(x: Tensor) -> Tensor:
    raise RuntimeError("not on a Monday")


def numbers(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.randn(128, device=device))


for operator in (undeclared_noise, counts_its_calls, every_other_time, past_its_end, by_fours,
                 unwritten_scratch, without_a_barrier, barrier_for_some,
                 ends_the_process, raises):  # fmt: skip
    operator.reference(torch.clone)
    operator.samples(numbers)
without_a_barrier.reference(lambda x: x.flip(0))
undeclared_atomics.reference(torch.sum)


@undeclared_atomics.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.randn(1000, device=device))


@by_fours.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.randn(65, device=device)[1:])
