"""Sound operators with odd arguments: optional, lists, numbers and words, some dtypes and layouts only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load_inline("""
#include <cuda_fp16.h>
#include <dotcu/tensor.cuh>

#define AT long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n)

__global__ void shifted(const float* x, const float* weight, const float* bias, float* out, long long columns,
                        long long n) {
    AT {
        float value = x[i];
        if (weight) value *= weight[i % columns];
        if (bias) value += bias[i % columns];
        out[i] = value;
    }
}
__global__ void accumulated(const float* x, float* out, long long n) { AT out[i] += x[i]; }

__global__ void power(const float* x, float* out, int exponent, float scale, bool negate, long long n) {
    AT {
        float value = scale;
        for (int k = 0; k < exponent; ++k) value *= x[i];
        out[i] = negate ? -value : value;
    }
}
template <typename T>
__global__ void turned(const T* x, T* out, int by, long long n) {
    AT {
        const int width = 8 * sizeof(T);
        out[i] = by == 0 ? x[i] : (x[i] << by) | (x[i] >> (width - by));
    }
}
__global__ void flipped(const bool* x, bool* out, long long n) { AT out[i] = !x[i]; }

__global__ void half_polynomial(const __half* x, __half* out, long long n) {
    AT out[i] = __hadd(__hmul(__hmul(x[i], x[i]), __float2half(0.5f)), x[i]);
}
__global__ void transposed(dotcu::tensor<const float, 2> x, float* out, long long n) {
    AT out[i] = x(i % x.size(0), i / x.size(0));
}
template <typename T>
__global__ void scaled(const T* x, T* out, long long n) { AT out[i] = T(3) * x[i]; }

__global__ void multiplied(const float* a, const float* b, float* out, long long n) {
    AT out[i] = a[i] * b[i];
}
""")


def over(n: int) -> dict[str, int]:
    """A launch over n elements."""
    return {"grid": dotcu.cdiv(n, 64), "block": 64}


def numbers(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for shape in ((100,), (3, 5)):
        yield dotcu.Sample(torch.randn(shape, device=device).to(dtype))


@dotcu.op("right_arguments::shifted")
def shifted(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
    """Optional tensors, for the last dimension."""
    for given in (weight, bias):
        if given is not None and given.shape != x.shape[-1:]:
            raise ValueError(f"weight and bias have the shape {tuple(x.shape[-1:])} (got {given.shape}).")
    x, n = x.contiguous(), x.numel()
    weight, bias = (None if given is None else given.contiguous() for given in (weight, bias))
    out = torch.empty_like(x)
    kernels.shifted(x, weight, bias, out, x.shape[-1] if x.dim() else 1, n, **over(n))
    return out


@shifted.reference
def _(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    x = x * weight if weight is not None else x.clone()
    return x + bias if bias is not None else x


@shifted.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    x, weight, bias = torch.randn(4, 9, device=device), *torch.randn(2, 9, device=device).unbind()
    yield dotcu.Sample(x)
    yield dotcu.Sample(x, weight)
    yield dotcu.Sample(x, None, bias)
    yield dotcu.Sample(x, bias=bias, weight=weight)


@dotcu.op("right_arguments::total")
def total(xs: Sequence[Tensor]) -> Tensor:
    """A list of tensors, and a launch for each."""
    if any(x.shape != xs[0].shape for x in xs):
        raise ValueError(f"total takes tensors of one shape (got {[tuple(x.shape) for x in xs]}).")
    out = torch.zeros_like(xs[0], memory_format=torch.contiguous_format)
    for x in xs:
        kernels.accumulated(x.contiguous(), out, out.numel(), **over(out.numel()))
    return out


@total.reference
def _(xs: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(xs)).sum(0)


@total.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(list(torch.randn(3, 50, device=device).unbind()))
    yield dotcu.Sample([torch.randn(4, 4, device=device).T])


@dotcu.op("right_arguments::power")
def power(x: Tensor, exponent: int, scale: float = 1.0, negate: bool = False, where: str = "all") -> Tensor:
    """An int, a float, a bool and a str."""
    if where not in ("all", "none"):
        raise ValueError(f"where is 'all' or 'none' (got {where!r}).")
    x, n = x.contiguous(), x.numel()
    out = torch.empty_like(x)
    kernels.power(x, out, exponent if where == "all" else 0, scale, negate, n, **over(n))
    return out


@power.reference
def _(x: Tensor, exponent: int, scale: float = 1.0, negate: bool = False, where: str = "all") -> Tensor:
    result = torch.full_like(x, scale)
    for _ in range(exponent if where == "all" else 0):
        result = result * x
    return -result if negate else result


@power.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    x = torch.randn(60, device=device)
    yield dotcu.Sample(x, 3)
    yield dotcu.Sample(x, 2, 0.1, negate=True)
    yield dotcu.Sample(x, 5, where="none")


@dotcu.op("right_arguments::turned", dtypes=(torch.uint8, torch.uint16, torch.uint32))
def turned(x: Tensor, by: int) -> Tensor:
    """Bits turned around: for integers only."""
    if x.dtype not in (torch.uint8, torch.uint16, torch.uint32):
        raise TypeError(f"turned takes unsigned integers of up to 32 bits (got {x.dtype}).")
    x, n = x.contiguous(), x.numel()
    out = torch.empty_like(x)
    kernels.turned[x.dtype](x, out, by, n, **over(n))
    return out


@turned.reference
def _(x: Tensor, by: int) -> Tensor:
    wide, width = x.to(torch.int64), 8 * x.itemsize
    return (((wide << by) | (wide >> (width - by))) & ((1 << width) - 1)).to(x.dtype)


@turned.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for by in (0, 3):
        values = torch.randint(0, torch.iinfo(dtype).max + 1, (77,), device=device)
        yield dotcu.Sample(values.to(dtype), by)


@dotcu.op("right_arguments::flipped", dtypes=(torch.bool,))
def flipped(mask: Tensor) -> Tensor:
    mask, n = mask.contiguous(), mask.numel()
    out = torch.empty_like(mask)
    kernels.flipped(mask, out, n, **over(n))
    return out


@dotcu.op("right_arguments::half_polynomial", dtypes=(torch.float16,))
def half_polynomial(x: Tensor) -> Tensor:
    """For half precision only, and computed in it."""
    x, n = x.contiguous(), x.numel()
    out = torch.empty_like(x)
    kernels.half_polynomial(x, out, n, **over(n))
    return out


@dotcu.op("right_arguments::transposed")
def transposed(x: Tensor) -> Tensor:
    """Reads a strided tensor as it is."""
    if x.dim() != 2:
        raise ValueError(f"transposed takes a matrix (got {x.dim()} dimensions).")
    out = x.new_empty((x.shape[1], x.shape[0]))
    kernels.transposed(x, out, out.numel(), **over(out.numel()))
    return out


@transposed.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.randn(5, 7, device=device))
    yield dotcu.Sample(torch.randn(9, 20, device=device).T[1::3, 2:])
    yield dotcu.Sample(torch.randn(6, 1, device=device).expand(6, 4))


@dotcu.op("right_arguments::contiguous_only", dtypes=(torch.float32, torch.float64))
def contiguous_only(x: Tensor) -> Tensor:
    """Hands on what it gets: the launch refuses a tensor with gaps, by an ArgumentError."""
    if x.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"contiguous_only takes float32 and float64 (got {x.dtype}).")
    out, n = torch.empty_like(x), x.numel()
    kernels.scaled[x.dtype](x, out, n, **over(n))
    return out


@dotcu.op("right_arguments::multiplied")
def multiplied(a: Tensor, b: Tensor) -> Tensor:
    """Broadcasts."""
    a, b = (tensor.contiguous() for tensor in torch.broadcast_tensors(a, b))
    out, n = torch.empty_like(a), a.numel()
    kernels.multiplied(a, b, out, n, **over(n))
    return out


@multiplied.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.randn(4, 1, 5, device=device), torch.randn(3, 1, device=device))
    yield dotcu.Sample(torch.randn((), device=device), torch.randn(7, device=device))


flipped.reference(torch.logical_not)
flipped.samples(lambda device, dtype: [dotcu.Sample(torch.arange(70, device=device) % 3 == 0)])
half_polynomial.reference(lambda x: x * x * 0.5 + x)
half_polynomial.samples(numbers)
transposed.reference(lambda x: x.T.clone(memory_format=torch.contiguous_format))
contiguous_only.reference(lambda x: 3 * x)
contiguous_only.samples(numbers)
multiplied.reference(torch.mul)
