"""Operators that are right on their own samples, and wrong on calls that are like them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load_inline("""
#define AT long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n)

extern "C" __global__ void doubled(const float* a, float* out, long long n) { AT out[i] = 2 * a[i]; }

extern "C" __global__ void doubled_by_fours(const float* a, float* out, long long n) {
    AT {
        if (4 * i + 4 <= n) {
            float4 v = reinterpret_cast<const float4*>(a)[i];
            out[4 * i] = 2 * v.x, out[4 * i + 1] = 2 * v.y;
            out[4 * i + 2] = 2 * v.z, out[4 * i + 3] = 2 * v.w;
        } else {
            for (long long j = 4 * i; j < n; ++j) out[j] = 2 * a[j];
        }
    }
}

extern "C" __global__ void doubled_anything(const void* a, void* out, long long n) {
    AT static_cast<float*>(out)[i] = 2 * static_cast<const float*>(a)[i];
}

extern "C" __global__ void total(const int* a, int* out, long long n) {
    int sum = 0;
    for (long long i = threadIdx.x; i < n; i += 32) sum += a[i];
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (threadIdx.x == 0) out[0] = sum;
}

extern "C" __global__ void added(const float* a, const float* b, float* out, long long n) {
    AT out[i] = a[i] + b[i];
}

extern "C" __global__ void larger(const float* a, const float* b, float* out, long long n) {
    AT out[i] = fmaxf(a[i], b[i]);
}

extern "C" __global__ void copied_onto_zero(const float* a, float* out, long long n) {
    AT out[i] = 0.0f + a[i];
}

extern "C" __global__ void added_within_range(const int* a, const int* b, int* out, long long n) {
    AT {
        long long sum = (long long)a[i] + b[i];
        out[i] = sum > 2147483647 ? 2147483647 : sum < -2147483648LL ? -2147483647 - 1 : (int)sum;
    }
}
""")

fast = dotcu.load_inline(
    """
extern "C" __global__ void halved(const float* a, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 0.5f * a[i];
}
""",
    options=("--use_fast_math",),
)


def sampled(
    reference: Callable[..., Any], *shapes: tuple[int, ...]
) -> Callable[[dotcu.operator.Operator], dotcu.operator.Operator]:
    """Give an operator its reference, and a sample of tensors of these shapes."""

    def say(operator: dotcu.operator.Operator) -> dotcu.operator.Operator:
        def samples(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
            tensors = (torch.randint(1, 9, shape, device=device).to(dtype) for shape in shapes)
            yield dotcu.Sample(*tensors)

        operator.reference(reference)
        operator.samples(samples)
        return operator

    return say


def launch(kernel: dotcu.Kernel, *tensors: Tensor, n: int) -> Tensor:
    """Launch a thread for each of n elements; the last tensor is the result."""
    kernel(*tensors, n, grid=dotcu.cdiv(n, 64), block=64)
    return tensors[-1]


def twice(a: Tensor, **ignored: Any) -> Tensor:
    return 2 * a


@sampled(twice, (6, 5))
@dotcu.op("wrong_calls::ignores_strides")
def ignores_strides(a: Tensor) -> Tensor:
    memory = a.as_strided((a.numel(),), (1,))
    out = torch.zeros(a.shape, dtype=a.dtype, device=a.device)
    return launch(kernels.doubled, memory, out, n=a.numel())


@sampled(twice, (64,))
@dotcu.op("wrong_calls::loads_by_fours")
def loads_by_fours(a: Tensor) -> Tensor:
    a = a.contiguous()
    return launch(kernels.doubled_by_fours, a, torch.zeros_like(a), n=a.numel())


@sampled(twice, (512,))
@dotcu.op("wrong_calls::leaves_the_tail")
def leaves_the_tail(a: Tensor) -> Tensor:
    a = a.contiguous()
    return launch(kernels.doubled, a, torch.zeros_like(a), n=a.numel() // 256 * 256)


@sampled(twice, (100,))
@dotcu.op("wrong_calls::knows_one_size")
def knows_one_size(a: Tensor) -> Tensor:
    a = a.contiguous()
    return launch(kernels.doubled, a, torch.zeros_like(a), n=100 if a.numel() == 100 else 0)


@sampled(lambda a: a.sum(dtype=torch.int32), (100,))
@dotcu.op("wrong_calls::forgets_the_empty", dtypes=(torch.int32,))
def forgets_the_empty(a: Tensor) -> Tensor:
    a, out = a.contiguous(), a.new_empty(())
    kernels.total(a, out, a.numel(), grid=torch.sym_min(a.numel(), 1), block=32)
    return out


@sampled(twice, (40,))
@dotcu.op("wrong_calls::takes_any_bits")
def takes_any_bits(a: Tensor) -> Tensor:
    a = a.contiguous()
    return launch(kernels.doubled_anything, a, torch.zeros_like(a), n=a.numel())


@sampled(torch.add, (40,), (40,))
@dotcu.op("wrong_calls::trusts_shapes")
def trusts_shapes(a: Tensor, b: Tensor) -> Tensor:
    a, b = a.contiguous(), b.contiguous()
    return launch(kernels.added, a, b, torch.zeros_like(a), n=a.numel())


@sampled(torch.maximum, (40,), (40,))
@dotcu.op("wrong_calls::drops_nan")
def drops_nan(a: Tensor, b: Tensor) -> Tensor:
    a, b = (each.contiguous() for each in torch.broadcast_tensors(a, b))
    return launch(kernels.larger, a, b, torch.zeros_like(a), n=a.numel())


@sampled(torch.clone, (40,))
@dotcu.op("wrong_calls::loses_minus_zero")
def loses_minus_zero(a: Tensor) -> Tensor:
    a = a.contiguous()
    return launch(kernels.copied_onto_zero, a, torch.zeros_like(a), n=a.numel())


@sampled(lambda a: a / 2, (40,))
@dotcu.op("wrong_calls::flushes_denormals")
def flushes_denormals(a: Tensor) -> Tensor:
    a = a.contiguous()
    return launch(fast.halved, a, torch.zeros_like(a), n=a.numel())


@sampled(torch.add, (40,), (40,))
@dotcu.op("wrong_calls::saturates", dtypes=(torch.int32,))
def saturates(a: Tensor, b: Tensor) -> Tensor:
    a, b = (each.contiguous() for each in torch.broadcast_tensors(a, b))
    return launch(kernels.added_within_range, a, b, torch.zeros_like(a), n=a.numel())


@sampled(twice, (40,))
@dotcu.op("wrong_calls::asserts")
def asserts(a: Tensor) -> Tensor:
    assert a.dim() == 1
    a = a.contiguous()
    return launch(kernels.doubled, a, torch.zeros_like(a), n=a.numel())


@sampled(twice, (40,))
@dotcu.op("wrong_calls::checks_no_out")
def checks_no_out(a: Tensor) -> Tensor:
    a = a.contiguous()
    return launch(kernels.doubled, a, torch.zeros_like(a), n=a.numel())


@checks_no_out.overload("out", mutates_args=("out",))
def checks_no_out_out(a: Tensor, *, out: Tensor) -> None:
    a, result = a.contiguous(), out if out.is_contiguous() else torch.empty_like(out.contiguous())
    launch(kernels.doubled, a, result, n=min(a.numel(), out.numel()))
    if result is not out:
        out.copy_(result)
