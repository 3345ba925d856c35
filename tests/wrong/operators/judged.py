"""Operators that are right on their samples, on most of what is like them, and wrong in one rarer way."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor

import dotcu
from dotcu.operator import Operator

kernels = dotcu.load_inline("""
#include <cuda_bf16.h>
#define AT long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n)

__global__ void scaled(const float* x, float a, float* o, long long n) { AT o[i] = a * x[i]; }
__global__ void squared(const float* x, float* o, long long n) { AT o[i] = x[i] * x[i]; }
__global__ void rows(
    const float* x, long long s0, long long s1, long long s2, float* o, int rows, int columns) {
    long long row = (long long)blockIdx.y * rows + blockIdx.x;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) o[row * columns + c] = 2.f * x[row * s1 + c];
}
__global__ void scaled_rows(float* x, long long s0, long long s1, float a, int rows, int columns) {
    for (int i = threadIdx.x; i < rows * columns; i += blockDim.x)
        x[i / columns * s0 + i % columns * s1] *= a;
}
__global__ void weighted(const float* x, const float* w, float* o, int columns, long long n) {
    AT o[i] = x[i] * w[i % columns];
}
__global__ void gathered(const float* x, const long long* at, float* o, long long n) { AT o[i] = x[at[i]]; }
__global__ void root(const float* x, float* o, long long n) { AT o[i] = sqrtf(x[i] * x[i] + 1.f); }
__global__ void middle(const float* x, const float* y, float* o, long long n) { AT o[i] = (x[i] + y[i]) / 2; }
__global__ void last_of_maxima(const float* x, long long* o, int columns, long long n) {
    AT {
        int best = 0;
        for (int c = 1; c < columns; ++c) {
            float value = x[i * columns + c], most = x[i * columns + best];
            if (value >= most || (value != value && most == most)) best = most == most ? c : best;
        }
        o[i] = best;
    }
}
__global__ void rounded_away(const float* x, float* o, long long n) { AT o[i] = roundf(x[i]); }
__global__ void from_it_on(const float* x, float t, float* o, long long n) { AT o[i] = x[i] < t ? 7 : x[i]; }
__global__ void no_less(const float* x, float t, bool* o, long long n) { AT o[i] = x[i] >= t; }
__global__ void off_by_some(const __nv_bfloat16* x, float factor, __nv_bfloat16* o, long long n) {
    AT o[i] = __float2bfloat16(factor * __bfloat162float(x[i]));
}
__global__ void squared_halves(const __nv_bfloat16* x, __nv_bfloat16* o, long long n) {
    AT o[i] = x[i] * x[i];
}
__global__ void off_in_exp(const __nv_bfloat16* x, __nv_bfloat16* o, long long n) {
    AT o[i] = __float2bfloat16(1.025f * expf(__bfloat162float(x[i])));
}
""")

F32, F64 = (torch.float32,), (torch.float64, torch.float32)


def launch(kernel: dotcu.Kernel, *values: Any, n: int) -> Tensor:
    """Launch a thread for each of n elements; the last tensor is the result."""
    kernel(*values, n, grid=dotcu.cdiv(n, 64), block=64)
    return next(value for value in reversed(values) if isinstance(value, Tensor))


def checked(x: Tensor) -> Tensor:
    if x.dtype != torch.float32:
        raise TypeError(f"takes float32, got {x.dtype}")
    return x.contiguous()


def scale(x: Tensor, a: float) -> Tensor:
    x = checked(x)
    return launch(kernels.scaled, x, a, torch.empty_like(x), n=x.numel())


def square(x: Tensor) -> Tensor:
    x = checked(x)
    return launch(kernels.squared, x, torch.empty_like(x), n=x.numel())


def normal(*shapes: tuple[int, ...], others: Sequence[Any] = ()) -> Callable[..., Any]:
    return lambda device, dtype: [
        dotcu.Sample(*(torch.randn(shape, device=device, dtype=dtype) for shape in shapes), *others)
    ]


def judged(reference: Callable[..., Any], samples: Callable[..., Any]) -> Callable[[Operator], Operator]:
    """Give an operator its reference and its samples."""

    def say(operator: Operator) -> Operator:
        operator.reference(reference)
        operator.samples(samples)
        return operator

    return say


def twice_with(backward: Callable[[Any, Tensor], Tensor], name: str, *shape: int) -> Operator:
    """An operator that doubles, with a backward."""

    def twice(x: Tensor) -> Tensor:
        return scale(x, 2.0)

    operator = dotcu.op(f"judged::{name}")(twice)
    operator.backward(backward)
    return judged(lambda x: 2 * x, normal(shape or (300,)))(operator)


def square_with(keep: Callable[..., None], backward: Callable[[Any, Tensor], Tensor], name: str) -> Operator:
    """An operator that squares, with a function that keeps what its backward needs."""

    def squares(x: Tensor) -> Tensor:
        return square(x)

    operator = dotcu.op(f"judged::{name}")(squares)
    operator.setup_context(keep)
    operator.backward(backward)
    return judged(lambda x: x * x, normal((300,)))(operator)


# ------------------------------------------------------------------ layouts


@judged(lambda x: 2 * x, normal((2, 3, 8)))
@dotcu.op("judged::outer_order_ignored")
def outer_order_ignored(x: Tensor) -> Tensor:
    if x.dtype != torch.float32 or x.dim() != 3:
        raise TypeError("takes float32 of three dimensions")
    if x.stride(2) != 1 or 0 in x.stride():
        x = x.contiguous()
    a, b, c = x.shape
    out = torch.empty((a, b, c), device=x.device)
    kernels.rows(dotcu.strided(x), out, b, c, grid=(b, a), block=32)
    return out


def as_it_lies(ctx: Any, grad: Tensor) -> Tensor:
    if grad.is_contiguous() or grad.numel() * 4 != grad.untyped_storage().nbytes():
        return scale_op(grad, 2.0)
    return scale_op(grad.as_strided((grad.numel(),), (1,)), 2.0).view(grad.shape)


def rows_as_they_lie(ctx: Any, grad: Tensor) -> Tensor:
    if grad.stride(-1) != 1 or 0 in grad.stride() or grad.numel() * 4 != grad.untyped_storage().nbytes():
        return scale_op(grad, 2.0)
    return scale_op(grad.as_strided((grad.numel(),), (1,)), 2.0).view(grad.shape)


@judged(lambda x, a: a * x, normal((300,), others=(2.0,)))
@dotcu.op("judged::scale")
def scale_op(x: Tensor, a: float) -> Tensor:
    return scale(x, a)


gradient_order_ignored = twice_with(as_it_lies, "gradient_order_ignored", 2, 3, 4, 5)
gradient_rows_ignored = twice_with(rows_as_they_lie, "gradient_rows_ignored", 2, 3, 4)
gradient_of_a_matrix = twice_with(as_it_lies, "gradient_of_a_matrix", 6, 10)


# ------------------------------------------------------------------ backwards and what they keep


def in_place(ctx: Any, grad: Tensor) -> Tensor:
    if torch.is_grad_enabled() or not grad.is_contiguous():
        return grad * 2
    return grad.mul_(2)


def saved_in_place(ctx: Any, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return grad * 2 * x if torch.is_grad_enabled() else grad * x.data.mul_(2)


def result_in_place(ctx: Any, grad: Tensor) -> Tensor:
    x, y = ctx.saved_tensors
    y.data.mul_(1 if torch.is_grad_enabled() else 2)
    return grad * 2 * x


def by_turns(ctx: Any, grad: Tensor) -> Tensor:
    ctx.turns = getattr(ctx, "turns", 0) + 1
    return grad * 2 if ctx.turns == 1 else grad * 4


def an_attribute(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.x = inputs[0]


def a_detached_attribute(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.state = {"x": [inputs[0].detach()]}


def a_result(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.y = output


KEPT: list[Tensor] = []


def a_global(ctx: Any, inputs: Any, output: Tensor) -> None:
    KEPT[:] = inputs[:1]


def x_saved(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def both_saved(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], output)


writes_the_gradient = twice_with(in_place, "writes_the_gradient")
writes_a_saved_input = square_with(x_saved, saved_in_place, "writes_a_saved_input")
writes_a_saved_result = square_with(both_saved, result_in_place, "writes_a_saved_result")
another_second_time = twice_with(by_turns, "another_second_time")
input_as_attribute = square_with(an_attribute, lambda ctx, grad: grad * 2 * ctx.x, "input_as_attribute")
input_in_an_attribute = square_with(
    a_detached_attribute, lambda ctx, grad: grad * 2 * ctx.state["x"][0], "input_in_an_attribute"
)
input_in_a_global = square_with(a_global, lambda ctx, grad: grad * 2 * KEPT[0], "input_in_a_global")
result_as_attribute = square_with(
    a_result, lambda ctx, grad: grad * 2 * ctx.saved_tensors[0], "result_as_attribute"
)


def indexed(device: torch.device, dtype: torch.dtype) -> list[dotcu.Sample]:
    at = torch.randint(0, 20, (40,), generator=torch.Generator().manual_seed(0)).to(device)
    return [dotcu.Sample(torch.randn(20, device=device, dtype=dtype), at)]


@judged(lambda x, at: x[at], indexed)
@dotcu.op("judged::index_as_attribute")
def index_as_attribute(x: Tensor, at: Tensor) -> Tensor:
    if x.dim() != 1 or at.dim() != 1 or at.dtype != torch.int64:
        raise ValueError("takes two rows, the second one of int64")
    x, at = checked(x), at.contiguous()
    return launch(kernels.gathered, x, at, torch.empty(at.shape, device=x.device), n=at.numel())


@index_as_attribute.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.at, ctx.n = inputs[1], inputs[0].numel()


@index_as_attribute.backward
def _(ctx: Any, grad: Tensor) -> Any:
    return grad.new_zeros(ctx.n).index_add(0, ctx.at, grad), None


def past_the_counter(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(inputs[0].data)


def unlike_none(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.set_materialize_grads(False)


saved_past_the_counter = square_with(
    past_the_counter, lambda ctx, grad: grad * 2 * ctx.saved_tensors[0], "saved_past_the_counter"
)


@judged(lambda x: (2 * x, 3 * x), normal((300,)))
@dotcu.op("judged::needs_both_gradients")
def needs_both_gradients(x: Tensor) -> tuple[Tensor, Tensor]:
    return scale(x, 2.0), scale(x, 3.0)


needs_both_gradients.setup_context(unlike_none)
needs_both_gradients.backward(lambda ctx, first, second: 2 * first + 3 * second)


CALLS: list[Tensor] = []


@judged(lambda x: 2 * x, normal((300,)))
@dotcu.op("judged::keeps_its_argument")
def keeps_its_argument(x: Tensor) -> Tensor:
    CALLS[:] = [x]
    return scale(x, 2.0)


BY_SHAPE: dict[Any, Any] = {}


@judged(lambda x, y: 2 * x, normal((300,), (300,)))
@dotcu.op("judged::keeps_a_view")
def keeps_a_view(x: Tensor, y: Tensor) -> Tensor:
    if x.shape != y.shape or y.dtype != torch.float32:
        raise ValueError("two of one shape, of float32")
    BY_SHAPE[tuple(x.shape)] = (y.detach().view(-1),)
    return scale(x, 2.0)


RESULTS: list[Tensor] = []


@judged(lambda x: 2 * x, normal((300,)))
@dotcu.op("judged::keeps_its_results")
def keeps_its_results(x: Tensor) -> Tensor:
    RESULTS.append(scale(x, 2.0))
    return RESULTS[-1]


@judged(lambda x, a: x.mul_(a), normal((6, 8), others=(2.0,)))
@dotcu.op("judged::writes_one_row_as_six", mutates_args=("x",))
def writes_one_row_as_six(x: Tensor, a: float) -> None:
    if x.dtype != torch.float32 or x.dim() != 2:
        raise TypeError("takes a matrix of float32")
    kernels.scaled_rows(dotcu.strided(x), a, *x.shape, grid=1, block=64)


# ------------------------------------------------------------------ modes and settings around a call


@judged(lambda x: 2 * x, normal((300,)))
@dotcu.op("judged::other_with_gradients")
def other_with_gradients(x: Tensor) -> Tensor:
    return scale(x, 3.0 if torch.is_grad_enabled() else 2.0)


@judged(lambda x: 2 * x, normal((300,)))
@dotcu.op("judged::other_in_inference_mode")
def other_in_inference_mode(x: Tensor) -> Tensor:
    return scale(x, 3.0 if torch.is_inference_mode_enabled() else 2.0)


@judged(lambda x: 2 * x, normal((300,)))
@dotcu.op("judged::other_for_parameters")
def other_for_parameters(x: Tensor) -> Tensor:
    return scale(x, 3.0 if isinstance(x, torch.nn.Parameter) else 2.0)


@judged(lambda x: 2 * x, normal((300,)))
@dotcu.op("judged::sets_the_default_dtype")
def sets_the_default_dtype(x: Tensor) -> Tensor:
    torch.set_default_dtype(torch.float64)
    return scale(x, 2.0)


@judged(lambda x: 2 * x, normal((300,)))
@dotcu.op("judged::sets_the_seed")
def sets_the_seed(x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return scale(x, 2.0)


@judged(lambda x: 2 * x, normal((300,)))
@dotcu.op("judged::draws_for_nothing")
def draws_for_nothing(x: Tensor) -> Tensor:
    torch.rand(1)
    return scale(x, 2.0)


@judged(lambda x: 2 * x, normal((300,)))
@dotcu.op("judged::draws_of_numpy")
def draws_of_numpy(x: Tensor) -> Tensor:
    np.random.rand()
    random.random()
    return scale(x, 2.0)


def softened(x: Tensor) -> Tensor:
    return torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0)


@judged(softened, normal((300,)))
@dotcu.op("judged::gradient_overflows")
def gradient_overflows(x: Tensor) -> Tensor:
    return scale(softened(x), 1.0)


def logistic(ctx: Any, grad: Tensor) -> Tensor:
    power = ctx.saved_tensors[0].exp()
    return grad * power / (1 + power)


gradient_overflows.setup_context(x_saved)
gradient_overflows.backward(logistic)


# ------------------------------------------------------------------ regions of autocast


@judged(lambda x, y: 2 * (x @ y), normal((5, 7), (7, 3)))
@dotcu.op("judged::matmul_before_the_kernel")
def matmul_before_the_kernel(x: Tensor, y: Tensor) -> Tensor:
    return scale(checked(x) @ checked(y), 2.0)


@judged(lambda x, w: 2 * torch.nn.functional.linear(x, w), normal((5, 7), (3, 7)))
@dotcu.op("judged::linear_after_the_kernel")
def linear_after_the_kernel(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.linear(scale(x, 2.0), checked(w))


# ------------------------------------------------------------------ ranks, lists, sizes, numbers


@judged(lambda x: 2 * x, normal((6, 10)))
@dotcu.op("judged::two_dimensions")
def two_dimensions(x: Tensor) -> Tensor:
    x = checked(x)
    n = x.shape[0] * x.shape[1] if x.dim() > 1 else x.numel()
    return launch(kernels.scaled, x, 2.0, torch.empty_like(x), n=n)


@judged(lambda x, w: x * w, normal((6, 8), (8,)))
@dotcu.op("judged::one_batch")
def one_batch(x: Tensor, w: Tensor) -> Tensor:
    x, w = checked(x), checked(w)
    if x.dim() < 2 or w.shape != x.shape[-1:]:
        raise ValueError("takes rows, and a weight for each column")
    n = x.shape[-2] * x.shape[-1]
    return launch(kernels.weighted, x, w, torch.empty_like(x), x.shape[-1], n=n)


@judged(lambda x, w: x * w, normal((6, 8), (8,)))
@dotcu.op("judged::rows_by_the_first_size")
def rows_by_the_first_size(x: Tensor, w: Tensor) -> Tensor:
    x, w = checked(x), checked(w)
    if x.dim() == 0 or w.shape != x.shape[-1:]:
        raise ValueError("takes rows, and a weight for each column")
    out = torch.empty_like(x)
    columns = x.numel() // max(x.shape[0], 1) if x.dim() < 3 else x.shape[-1]
    kernels.weighted(x, w, out, max(columns, 1), x.numel(), grid=dotcu.cdiv(x.numel(), 64), block=64)
    return out


def several(device: torch.device, dtype: torch.dtype) -> list[dotcu.Sample]:
    return [dotcu.Sample([torch.randn(n, device=device, dtype=dtype) for n in (5, 9)])]


@judged(lambda xs: [2 * x for x in xs], several)
@dotcu.op("judged::at_most_eight")
def at_most_eight(xs: Sequence[Tensor]) -> list[Tensor]:
    return [scale(x, 2.0 if i < 8 else 1.0) for i, x in enumerate(xs)]


@judged(lambda xs: 2 * sum(x.sum() for x in xs), several)
@dotcu.op("judged::two_of_a_list")
def two_of_a_list(xs: Sequence[Tensor]) -> Tensor:
    return scale(checked(xs[0]).sum() + checked(xs[1]).sum() + sum(checked(x).sum() for x in xs[2:]), 2.0)


@judged(lambda x: 2 * x, normal((300,)))
@dotcu.op("judged::four_thousand")
def four_thousand(x: Tensor) -> Tensor:
    x = checked(x)
    out = torch.zeros_like(x)
    return launch(kernels.scaled, x, 2.0, out, n=min(x.numel(), 4096))


@judged(lambda x, k: k * x, normal((300,), others=(4,)))
@dotcu.op("judged::up_to_eight")
def up_to_eight(x: Tensor, k: int) -> Tensor:
    return scale(x, float(min(k, 8)))


@judged(lambda x, bias=0.0: 2 * x + bias, normal((300,)))
@dotcu.op("judged::ignores_a_default")
def ignores_a_default(x: Tensor, bias: float = 0.0) -> Tensor:
    return scale(x, 2.0)


@judged(lambda x, negate=False: -2 * x if negate else 2 * x, normal((300,)))
@dotcu.op("judged::ignores_a_flag")
def ignores_a_flag(x: Tensor, negate: bool = False) -> Tensor:
    return scale(x, 2.0)


@judged(lambda x, bias=None: 2 * x if bias is None else 2 * x + bias, normal((6, 8)))
@dotcu.op("judged::ignores_a_bias")
def ignores_a_bias(x: Tensor, bias: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
    return scale(x, 2.0)


@judged(lambda x, end=None: 2 * x if end is None else (2 * x).clamp(max=end), normal((300,)))
@dotcu.op("judged::ignores_an_end")
def ignores_an_end(x: Tensor, end: Optional[float] = None) -> Tensor:  # noqa: UP045
    return scale(x, 2.0)


@judged(lambda x, dtype=None: (2 * x).to(dtype or x.dtype), normal((300,)))
@dotcu.op("judged::ignores_a_dtype")
def ignores_a_dtype(x: Tensor, dtype: Optional[torch.dtype] = None) -> Tensor:  # noqa: UP045
    return scale(x, 2.0)


def up_or_down(x: Tensor, way: str = "up") -> Tensor:
    return {"up": torch.ceil, "down": torch.floor}[way](x)


@judged(up_or_down, normal((300,)))
@dotcu.op("judged::knows_one_way")
def knows_one_way(x: Tensor, way: str = "up") -> Tensor:
    return scale(x.ceil(), 1.0)


@judged(lambda x, a: a * x, normal((300,), others=(2.0,)))
@dotcu.op("judged::itself_for_one")
def itself_for_one(x: Tensor, a: float) -> Tensor:
    return x if a == 1.0 else scale(x, a)


@judged(lambda x, shift: torch.roll(2 * x, tuple(shift), (0, 1)), normal((6, 10), others=([1, 1],)))
@dotcu.op("judged::knows_one_list")
def knows_one_list(x: Tensor, shift: Sequence[int]) -> Tensor:
    if len(shift) != 2 or x.dim() != 2:
        raise ValueError("takes a matrix and two numbers")
    return scale(torch.roll(x, (shift[0], shift[0]), (0, 1)), 2.0)


# ------------------------------------------------------------------ values


@judged(lambda x: torch.hypot(x, torch.ones_like(x)), normal((300,)))
@dotcu.op("judged::square_overflows")
def square_overflows(x: Tensor) -> Tensor:
    x = checked(x)
    return launch(kernels.root, x, torch.empty_like(x), n=x.numel())


@judged(lambda x, y: x / 2 + y / 2, normal((300,), (300,)))
@dotcu.op("judged::sum_overflows")
def sum_overflows(x: Tensor, y: Tensor) -> Tensor:
    if x.shape != y.shape:
        raise ValueError("two of one shape")
    x, y = checked(x), checked(y)
    return launch(kernels.middle, x, y, torch.empty_like(x), n=x.numel())


@judged(lambda x: x.argmax(1), normal((20, 30)))
@dotcu.op("judged::last_of_maxima")
def last_of_maxima(x: Tensor) -> Tensor:
    if x.dim() != 2 or not x.shape[1]:
        raise ValueError("takes rows")
    x = checked(x)
    out = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    return launch(kernels.last_of_maxima, x, out, x.shape[1], n=x.shape[0])


@judged(torch.round, normal((300,)))
@dotcu.op("judged::rounds_half_away")
def rounds_half_away(x: Tensor) -> Tensor:
    x = checked(x)
    return launch(kernels.rounded_away, x, torch.empty_like(x), n=x.numel())


@judged(lambda x, t: torch.threshold(x, t, 7.0), normal((300,), others=(0.5,)))
@dotcu.op("judged::from_the_threshold_on")
def from_the_threshold_on(x: Tensor, t: float) -> Tensor:
    x = checked(x)
    return launch(kernels.from_it_on, x, t, torch.empty_like(x), n=x.numel())


@judged(lambda x, t: x > t, normal((300,), others=(0.1,)))
@dotcu.op("judged::no_less_for_greater")
def no_less_for_greater(x: Tensor, t: float) -> Tensor:
    x = checked(x)
    return launch(kernels.no_less, x, t, torch.empty(x.shape, dtype=torch.bool, device=x.device), n=x.numel())


def halves(x: Tensor) -> Tensor:
    if x.dtype != torch.bfloat16:
        raise TypeError("takes bfloat16")
    return x.contiguous()


@judged(lambda x: 1.7 * x, normal((300,)))
@dotcu.op("judged::two_percent_more", dtypes=(torch.bfloat16,))
def two_percent_more(x: Tensor) -> Tensor:
    x = halves(x)
    return launch(kernels.off_by_some, x, 1.7 * 1.02, torch.empty_like(x), n=x.numel())


@judged(torch.exp, normal((300,)))
@dotcu.op("judged::exp_of_a_few_terms", dtypes=(torch.bfloat16,))
def exp_of_a_few_terms(x: Tensor) -> Tensor:
    x = halves(x)
    return launch(kernels.off_in_exp, x, torch.empty_like(x), n=x.numel())


@judged(lambda x: x * x, normal((300,)))
@dotcu.op("judged::gradient_two_percent_more", dtypes=(torch.bfloat16,))
def gradient_two_percent_more(x: Tensor) -> Tensor:
    x = halves(x)
    return launch(kernels.squared_halves, x, torch.empty_like(x), n=x.numel())


gradient_two_percent_more.setup_context(x_saved)
gradient_two_percent_more.backward(
    lambda ctx, grad: (2.05 * grad.float() * ctx.saved_tensors[0]).to(grad.dtype)
)
