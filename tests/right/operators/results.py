"""Sound operators with odd results: none, several, empty, a scalar, another shape or dtype, other layouts."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load_inline("""
#include <cuda_fp8.h>
#include <dotcu/tensor.cuh>

#define AT long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n)

__global__ void axpy(float* y, const float* x, float alpha, long long n) { AT y[i] += alpha * x[i]; }

__global__ void averaged(const float* x, float* mean, float momentum, long long n) {
    AT mean[i] = (1 - momentum) * mean[i] + momentum * x[i];
}
__global__ void added(dotcu::tensor<const float, 1> a, dotcu::tensor<const float, 1> b,
                      dotcu::tensor<float, 1> out, long long n) {
    AT out(i) = a(i) + b(i);
}
__global__ void parts(const float* x, float* whole, float* rest, bool* positive, long long n) {
    AT {
        whole[i] = truncf(x[i]);
        rest[i] = x[i] - truncf(x[i]);
        positive[i] = x[i] > 0;
    }
}
__global__ void largest_at(const float* x, long long* out, long long columns, long long n) {
    AT {
        const float* row = x + i * columns;
        long long best = 0;
        for (long long j = 1; j < columns; ++j) {
            bool first_nan = isnan(row[j]) && !isnan(row[best]);
            if (row[j] > row[best] || first_nan) best = j;
        }
        out[i] = best;
    }
}
__global__ void dotted(const float* x, const float* y, float* out, long long n) {
    double sum = 0;  // in float, sixty thousand in a row lose more than torch does
    for (long long i = 0; i < n; ++i) sum += x[i] * y[i];
    *out = sum;
}
template <typename From, typename To>
__global__ void cast(const From* x, To* out, long long n) { AT out[i] = static_cast<To>(x[i]); }

__global__ void quantized(const float* x, signed char* out, float scale, long long n) {
    AT out[i] = isnan(x[i]) ? 0 : static_cast<signed char>(fminf(fmaxf(rintf(x[i] * scale), -128), 127));
}
__global__ void to_fp8(const float* x, __nv_fp8_e4m3* out, long long n) { AT out[i] = __nv_fp8_e4m3(x[i]); }

__global__ void times_i(const float* x, float* out, long long n) {
    AT {
        out[2 * i] = -x[2 * i + 1];
        out[2 * i + 1] = x[2 * i];
    }
}
""")


def over(n: int) -> dict[str, int]:
    """A launch over n elements."""
    return {"grid": dotcu.cdiv(n, 64), "block": 64}


def require_alike(*tensors: Tensor) -> None:
    if any(tensor.shape != tensors[0].shape for tensor in tensors):
        raise ValueError(f"the tensors have one shape (got {[tuple(t.shape) for t in tensors]}).")


def numbers(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for shape in ((100,), (3, 5)):
        yield dotcu.Sample(torch.randn(shape, device=device).to(dtype) * 3)


def pairs(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(*torch.randn(2, 90, device=device).unbind())


@dotcu.op("right_results::axpy_", mutates_args=("y",))
def axpy_(y: Tensor, x: Tensor, alpha: float = 1.0) -> None:
    """Writes its first argument, and returns nothing."""
    require_alike(x, y)
    kernels.axpy(y, x.contiguous(), alpha, y.numel(), **over(y.numel()))


@axpy_.reference
def _(y: Tensor, x: Tensor, alpha: float = 1.0) -> None:
    y.add_(x, alpha=alpha)


@axpy_.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    y, x = torch.randn(2, 90, device=device).unbind()
    yield dotcu.Sample(y, x, 0.3)
    yield dotcu.Sample(y, torch.zeros_like(x))
    yield dotcu.Sample(y[:0], x[:0])


@dotcu.op("right_results::averaged", mutates_args=("mean",))
def averaged(x: Tensor, *, mean: Tensor, momentum: float = 0.1) -> None:
    """Writes a keyword-only argument that it also reads."""
    require_alike(x, mean)
    kernels.averaged(x.contiguous(), mean, momentum, x.numel(), **over(x.numel()))


@averaged.reference
def _(x: Tensor, *, mean: Tensor, momentum: float = 0.1) -> None:
    mean.mul_(1 - momentum).add_(x, alpha=momentum)


@averaged.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    x, mean = torch.randn(2, 90, device=device).unbind()
    yield dotcu.Sample(x, mean=mean)


@dotcu.op("right_results::added")
def added(a: Tensor, b: Tensor) -> Tensor:
    """It has an overload that writes `out`, of any stride."""
    out = a.new_empty(a.shape)
    write_sum(a, b, out)
    return out


@added.overload("out", mutates_args=("out",))
def added_out(a: Tensor, b: Tensor, *, out: Tensor) -> None:
    write_sum(a, b, out)


def write_sum(a: Tensor, b: Tensor, out: Tensor) -> None:
    require_alike(a, b, out)
    if a.dim() != 1:
        raise ValueError(f"added takes tensors of one dimension (got {a.dim()}).")
    kernels.added(a, b, out, out.numel(), **over(out.numel()))


@added_out.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    a, b = torch.randn(2, 90, device=device).unbind()
    yield dotcu.Sample(a, b, out=torch.empty_like(a))
    yield dotcu.Sample(a, b, out=torch.zeros(180, device=device)[::2])
    yield dotcu.Sample(a, b, out=a)
    yield dotcu.Sample(a, a, out=torch.empty_like(a))


@dotcu.op("right_results::parts")
def parts(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Several outputs, of several dtypes."""
    x, n = x.contiguous(), x.numel()
    whole, rest, positive = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)
    kernels.parts(x, whole, rest, positive, n, **over(n))
    return whole, rest, positive


@dotcu.op("right_results::largest_at")
def largest_at(x: Tensor) -> Tensor:
    """Another shape, and another dtype."""
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"largest_at takes rows with elements (got {tuple(x.shape)}).")
    x = x.contiguous()
    out = x.new_empty(x.shape[:-1], dtype=torch.int64)
    kernels.largest_at(x, out, x.shape[-1], out.numel(), **over(out.numel()))
    return out


@largest_at.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.randn(9, 33, device=device))
    yield dotcu.Sample(torch.randint(0, 3, (5, 20), device=device).float())
    yield dotcu.Sample(torch.tensor([0.0, float("nan"), 2.0, float("nan")], device=device))


@dotcu.op("right_results::nothing")
def nothing(x: Tensor) -> Tensor:
    """A result without elements, whatever it gets."""
    return x.new_empty((0, 3))


@dotcu.op("right_results::dotted")
def dotted(x: Tensor, y: Tensor) -> Tensor:
    """A scalar."""
    require_alike(x, y)
    out = x.new_empty(())
    kernels.dotted(x.contiguous(), y.contiguous(), out, x.numel(), grid=1, block=1)
    return out


@dotcu.op("right_results::cast", dtypes=(torch.float32, torch.float64))
def cast(x: Tensor, *, dtype: torch.dtype) -> Tensor:
    """The dtype that a keyword asks for."""
    if not dtype.is_floating_point:
        raise TypeError(f"cast gives floating-point numbers (got dtype={dtype}).")
    x, n = x.contiguous(), x.numel()
    out = torch.empty_like(x, dtype=dtype)
    kernels.cast[x.dtype, dtype](x, out, n, **over(n))
    return out


@cast.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for to in (torch.float16, torch.float32, torch.float64):
        yield dotcu.Sample(torch.randn(60, device=device, dtype=dtype), dtype=to)
    yield dotcu.Sample(torch.tensor([65_519.0, 65_520.0, 1e9], device=device, dtype=dtype), dtype=torch.half)


@dotcu.op("right_results::quantized")
def quantized(x: Tensor) -> Tensor:
    """Integers that the last place of an input decides: 0.05 * 10 is a half, or just not."""
    x, n = x.contiguous(), x.numel()
    out = torch.empty_like(x, dtype=torch.int8)
    kernels.quantized(x, out, 10.0, n, **over(n))
    return out


@quantized.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.arange(-99, 99, device=device) * 0.05)


@dotcu.op("right_results::to_fp8")
def to_fp8(x: Tensor) -> Tensor:
    """A dtype that torch computes little with."""
    x, n = x.contiguous(), x.numel()
    out = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    kernels.to_fp8(x, out, n, **over(n))
    return out


@to_fp8.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.randn(60, device=device) * 50)
    yield dotcu.Sample(torch.tensor([0.0, -0.0, 1e-3, 447.0, 500.0, -1e9], device=device))


@dotcu.op("right_results::times_i", dtypes=(torch.complex64,))
def times_i(x: Tensor) -> Tensor:
    """Complex numbers, also where torch has put off to conjugate them."""
    if x.dtype != torch.complex64:
        raise TypeError(f"times_i takes complex64 (got {x.dtype}).")
    x, n = x.resolve_conj().resolve_neg().contiguous(), x.numel()
    out = torch.empty_like(x)
    kernels.times_i(torch.view_as_real(x), torch.view_as_real(out), n, **over(n))
    return out


@times_i.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.randn(50, device=device, dtype=dtype))
    yield dotcu.Sample(torch.randn(50, device=device, dtype=dtype).conj())


added.reference(torch.add)
added.samples(pairs)
parts.reference(lambda x: (x.trunc(), x - x.trunc(), x > 0))
parts.samples(numbers)
largest_at.reference(lambda x: x.argmax(-1))
nothing.reference(lambda x: x.new_empty((0, 3)))
nothing.samples(numbers)
dotted.reference(lambda x, y: (x * y).sum())
dotted.samples(pairs)
cast.reference(lambda x, *, dtype: x.to(dtype, copy=True))
quantized.reference(lambda x: (x * 10.0).round().clamp(-128, 127).nan_to_num(0).to(torch.int8))
to_fp8.reference(lambda x: x.clamp(-448, 448).to(torch.float8_e4m3fn))
times_i.reference(lambda x: x * 1j)
