"""Operators that are wrong in ways that only a GPU shows, and one that is right beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load_inline("""
template <typename T>
__global__ void twice(const T* x, T* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = T(2) * x[i];
}

template <typename T>
__global__ void twice_by_int(const T* x, T* out, long long n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 0 && i < n) out[i] = T(2) * x[i];
}

__global__ void far_beyond(const float* x, float* out, long long n) {
    out[1ll << 42] = x[0];
}

__global__ void one_beyond(const float* x, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i <= n) out[i] = 2 * x[i < n ? i : 0];
}

__global__ void onto_unwritten(const float* x, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i] + (out[i] == 12345.678f ? 1.0f : 0.0f);
}

__global__ void reversed_without_barrier(const float* x, float* out) {
    __shared__ float tile[256];
    tile[threadIdx.x] = 2 * x[threadIdx.x];
    out[threadIdx.x] = tile[255 - threadIdx.x];
}

__global__ void barrier_in_a_branch(const float* x, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i % 32 < 16) __syncthreads();
    if (i < n) out[i] = 2 * x[i];
    __syncthreads();
}
""")


def launch(kernel: dotcu.Kernel, x: Tensor) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    kernel(x, out, n, grid=dotcu.cdiv(n, 128), block=128)
    return out


def sized(*sizes: int) -> Callable[[torch.device, torch.dtype], Iterable[dotcu.Sample]]:
    def samples(device: torch.device, dtype: torch.dtype) -> Iterable[dotcu.Sample]:
        for n in sizes:
            yield dotcu.Sample(torch.randint(1, 60, (n,), device=device).to(dtype))

    return samples


@dotcu.op("wrong_gpu::sound")
def sound(x: Tensor) -> Tensor:
    return launch(kernels.twice[x.dtype], x)


@dotcu.op("wrong_gpu::side_stream_that_waits")
def side_stream_that_waits(x: Tensor) -> Tensor:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        return launch(kernels.twice[x.dtype], x)


@dotcu.op("wrong_gpu::side_stream_that_is_waited_for")
def side_stream_that_is_waited_for(x: Tensor) -> Tensor:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        out = launch(kernels.twice[x.dtype], x)
    torch.cuda.current_stream().wait_stream(side)
    return out


@dotcu.op("wrong_gpu::default_stream")
def default_stream(x: Tensor) -> Tensor:
    with torch.cuda.stream(torch.cuda.default_stream()):
        return launch(kernels.twice[x.dtype], x)


@dotcu.op("wrong_gpu::synchronizing")
def synchronizing(x: Tensor) -> Tensor:
    out = launch(kernels.twice[x.dtype], x)
    torch.cuda.synchronize()
    return out


@dotcu.op("wrong_gpu::illegal_address")
def illegal_address(x: Tensor) -> Tensor:
    return launch(kernels.far_beyond, x)


@dotcu.op("wrong_gpu::one_beyond")
def one_beyond(x: Tensor) -> Tensor:
    return launch(kernels.one_beyond, x)


@dotcu.op("wrong_gpu::reads_unwritten")
def reads_unwritten(x: Tensor) -> Tensor:
    return launch(kernels.onto_unwritten, x)


@dotcu.op("wrong_gpu::racing")
def racing(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.reversed_without_barrier(x, out, grid=1, block=256)
    return out


@dotcu.op("wrong_gpu::diverging")
def diverging(x: Tensor) -> Tensor:
    return launch(kernels.barrier_in_a_branch, x)


@dotcu.op("wrong_gpu::current_device")
def current_device(x: Tensor) -> Tensor:
    out, n = torch.empty(x.shape, dtype=x.dtype, device=x.device.type), x.numel()
    kernels.twice[x.dtype](x, out, n, grid=dotcu.cdiv(n, 128), block=128)
    return out


@dotcu.op("wrong_gpu::index_of_32_bits", dtypes=(torch.int8,))
def index_of_32_bits(x: Tensor) -> Tensor:
    return launch(kernels.twice_by_int[x.dtype], x)


@dotcu.op("wrong_gpu::index_of_64_bits", dtypes=(torch.int8,))
def index_of_64_bits(x: Tensor) -> Tensor:
    return launch(kernels.twice[x.dtype], x)


for operator in (
    sound, side_stream_that_waits, side_stream_that_is_waited_for, default_stream, synchronizing,
    illegal_address, one_beyond, reads_unwritten, diverging, current_device, index_of_32_bits,
    index_of_64_bits,
):  # fmt: skip
    operator.reference(lambda x: 2 * x)
    operator.samples(sized(100, 1000))

racing.reference(lambda x: (2 * x).flip(0))
racing.samples(sized(256))
