"""Operators that compute wrong values, each in one way: what one call shows against the reference."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load_inline("""
#include <cuda_fp16.h>

#define AT long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n)

__global__ void doubled(const float* x, float* out, float factor, long long n) { AT out[i] = factor * x[i]; }

__global__ void through_half(const float* x, float* out, long long n) {
    AT out[i] = __half2float(__float2half(2 * x[i]));
}
__global__ void through_float(const double* x, double* out, long long n) {
    AT out[i] = 2 * static_cast<float>(x[i]);
}
__global__ void wrong_where(const float* x, float* out, long long first, long long step, float wrong,
                            long long n) {
    AT out[i] = i % step == first ? wrong * x[i] : 2 * x[i];
}
__global__ void last_is_the_one_before(const float* x, float* out, long long n) {
    AT out[i] = 2 * x[i < n - 1 || n < 2 ? i : n - 2];
}
template <typename T>
__global__ void added(const T* x, T* out, long long wrong, long long n) {
    AT out[i] = x[i] + 1 + (i == wrong);
}

__global__ void positive(const float* x, bool* out, long long n) { AT out[i] = x[i] > 0 || i == 0; }

__global__ void saturated(const __half* x, __half* out, long long n) {
    AT out[i] = __float2half(fminf(2 * __half2float(x[i]), 65504.0f));
}
""")


def launched(kernel: dotcu.Kernel, x: Tensor, *extra: float, dtype: torch.dtype | None = None) -> Tensor:
    x, n = x.contiguous(), x.numel()
    out = torch.empty_like(x, dtype=dtype)
    kernel(x, out, *extra, n, grid=dotcu.cdiv(n, 64), block=64)
    return out


def numbers(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.randn(1000, dtype=dtype, device=device))


@dotcu.op("wrong_values::by_a_factor")
def by_a_factor(x: Tensor) -> Tensor:
    return launched(kernels.doubled, x, 2.001)


@dotcu.op("wrong_values::through_half")
def through_half(x: Tensor) -> Tensor:
    return launched(kernels.through_half, x)


@dotcu.op("wrong_values::through_float", dtypes=(torch.float64,))
def through_float(x: Tensor) -> Tensor:
    return launched(kernels.through_float, x)


@dotcu.op("wrong_values::nan_everywhere")
def nan_everywhere(x: Tensor) -> Tensor:
    return launched(kernels.doubled, x, float("nan"))


@dotcu.op("wrong_values::one_in_a_thousand")
def one_in_a_thousand(x: Tensor) -> Tensor:
    return launched(kernels.wrong_where, x, 617, 1000, 2.001)


@dotcu.op("wrong_values::some_zeroed")
def some_zeroed(x: Tensor) -> Tensor:
    """330 elements of 19 800: a score over all of them would not notice."""
    return launched(kernels.wrong_where, x, 7, 60, 0.0)


@dotcu.op("wrong_values::biased")
def biased(x: Tensor) -> Tensor:
    """Each element within its bound of 8 units in the last place, and all of them 7 too large."""
    return launched(kernels.doubled, x, 2 * (1 + 7 * 2.0**-23))


@dotcu.op("wrong_values::last_is_the_one_before")
def last_is_the_one_before(x: Tensor) -> Tensor:
    return launched(kernels.last_is_the_one_before, x)


@dotcu.op("wrong_values::one_too_many", dtypes=(torch.int32, torch.int64))
def one_too_many(x: Tensor) -> Tensor:
    return launched(kernels.added[x.dtype], x, 3)


@dotcu.op("wrong_values::wrong_mask")
def wrong_mask(x: Tensor) -> Tensor:
    return launched(kernels.positive, x, dtype=torch.bool)


@dotcu.op("wrong_values::saturated", dtypes=(torch.float16,))
def saturated(x: Tensor) -> Tensor:
    """The largest number where torch has an infinity."""
    return launched(kernels.saturated, x)


@dotcu.op("wrong_values::nan_then_right")
def nan_then_right(x: Tensor) -> tuple[Tensor, Tensor]:
    return launched(kernels.doubled, x, float("nan")), launched(kernels.doubled, x, 2)


@dotcu.op("wrong_values::conjugated", dtypes=(torch.complex64,))
def conjugated(x: Tensor) -> Tensor:
    """Real parts as they must be, imaginary parts of the wrong sign."""
    return launched(kernels.doubled, torch.view_as_real(x.conj().resolve_conj()), 2).view(x.dtype).squeeze(-1)


@dotcu.op("wrong_values::judged_by_itself")
def judged_by_itself(x: Tensor) -> Tensor:
    return launched(kernels.doubled, x, 2.5)


@judged_by_itself.reference
def _(x: Tensor) -> Tensor:
    with dotcu.simulate():
        return judged_by_itself(x)


for operator in (by_a_factor, through_half, through_float, nan_everywhere, one_in_a_thousand, some_zeroed,
                 biased, last_is_the_one_before, saturated, conjugated):  # fmt: skip
    operator.reference(lambda x: 2 * x)
    operator.samples(numbers)
one_too_many.reference(lambda x: x + 1)
wrong_mask.reference(lambda x: x > 0)
nan_then_right.reference(lambda x: (2 * x, 2 * x))
nan_then_right.samples(numbers)
judged_by_itself.samples(numbers)


@some_zeroed.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.randn(19_800, device=device))


@wrong_mask.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.linspace(-1, 1, 100, device=device))


@one_too_many.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    """Integers that float64 cannot tell apart."""
    yield dotcu.Sample(torch.arange(40, dtype=dtype, device=device) + torch.iinfo(dtype).max // 2)


@saturated.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.tensor([1.0, 60_000.0], dtype=dtype, device=device))
