"""Operators that break what torch asks of one: each in one way, named after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load_inline("""
template <typename T>
__global__ void multiply(const T* a, const T* b, T* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] * b[i];
}
""")

FLOATS = (torch.float32, torch.float64)


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """The product of two contiguous tensors of one shape."""
    out = torch.empty(a.shape, dtype=a.dtype, device=a.device)
    n = out.numel()
    kernels.multiply[a.dtype](a, b, out, n, grid=dotcu.cdiv(n, 64), block=64)
    return out


def square_of(x: Tensor) -> Tensor:
    x = x.contiguous()
    return multiply(x, x)


def squares(operator: Any) -> Any:
    """Give an operator that squares its only tensor what all of them share: reference and samples."""
    operator.reference(lambda x: x * x)

    @operator.samples
    def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
        for shape in ((5, 7), (3,), (40,)):
            yield dotcu.Sample(torch.randn(shape, device=device, dtype=dtype))

    return operator


def of_even_sizes(operator: Any) -> Any:
    """The same, with samples of one dimension whose sizes are even."""
    squares(operator).samples(
        lambda device, dtype: [dotcu.Sample(torch.randn(n, device=device, dtype=dtype)) for n in (40, 64)]
    )
    return operator


def pairs(operator: Any) -> Any:
    """Give an operator that multiplies two tensors a reference and samples."""
    operator.reference(lambda a, b: a * b)

    @operator.samples
    def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
        for shape in ((20,), (4, 5)):
            yield dotcu.Sample(*(torch.randn(shape, device=device, dtype=dtype) for _ in range(2)))

    return operator


def differentiable(operator: Any, backward: Callable[[Tensor, Tensor], Any]) -> Any:
    """Give it a backward too, as a function of the gradient and of x."""
    operator.setup_context(lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))
    operator.backward(lambda ctx, grad: backward(grad, *ctx.saved_tensors))
    return squares(operator)


# ------------------------------------------------------------------ fake kernels


@dotcu.op("torch_rules::fake_of_other_strides")
def fake_of_other_strides(x: Tensor) -> Tensor:
    return square_of(x)


squares(fake_of_other_strides).fake(torch.empty_like)  # which keeps the strides of x; the body does not


@dotcu.op("torch_rules::fake_of_another_dtype")
def fake_of_another_dtype(x: Tensor) -> Tensor:
    return square_of(x)


@squares(fake_of_another_dtype).fake
def _(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=torch.float64, device=x.device)


@dotcu.op("torch_rules::fake_of_another_device")
def fake_of_another_device(x: Tensor) -> Tensor:
    return square_of(x)


@squares(fake_of_another_device).fake
def _(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device="meta")


@dotcu.op("torch_rules::allocates_by_values")
def allocates_by_values(x: Tensor) -> Tensor:
    return square_of(x.flatten()[: int((x > 0).sum())])


squares(allocates_by_values).reference(lambda x: x.flatten()[: int((x > 0).sum())] ** 2)


@dotcu.op("torch_rules::fake_of_contiguous_rows_alone")
def fake_of_contiguous_rows_alone(x: Tensor) -> Tensor:
    return square_of(x)


@of_even_sizes(fake_of_contiguous_rows_alone).fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape) if x.is_contiguous() else x.new_empty((*x.shape, 2))[..., 0]


# ------------------------------------------------------------------ registration


@dotcu.op("torch_rules::writes_without_saying")
def writes_without_saying(x: Tensor) -> Tensor:
    out = square_of(x)
    x.zero_()
    return out


squares(writes_without_saying)


# ------------------------------------------------------------------ gradients


@dotcu.op("torch_rules::twice_the_gradient", dtypes=FLOATS)
def twice_the_gradient(x: Tensor) -> Tensor:
    return square_of(x)


differentiable(twice_the_gradient, lambda grad, x: grad * x * 4)


@dotcu.op("torch_rules::twice_the_gradient_in_half", dtypes=(torch.float16,))
def twice_the_gradient_in_half(x: Tensor) -> Tensor:
    return square_of(x)


differentiable(twice_the_gradient_in_half, lambda grad, x: grad * x * 4)


@dotcu.op("torch_rules::times", dtypes=FLOATS)
def times(a: Tensor, b: Tensor) -> Tensor:
    return multiply(a, b.contiguous())


@dotcu.op("torch_rules::gradient_must_be_contiguous", dtypes=FLOATS)
def gradient_must_be_contiguous(x: Tensor) -> Tensor:
    return square_of(x)


differentiable(gradient_must_be_contiguous, lambda grad, x: times(grad, 2 * x))


@dotcu.op("torch_rules::times_as_if_contiguous", dtypes=FLOATS)
def times_as_if_contiguous(a: Tensor, b: Tensor) -> Tensor:
    flat = a.as_strided((a.untyped_storage().nbytes() // a.itemsize,), (1,), 0)
    return multiply(flat.repeat(-(-b.numel() // flat.numel()))[: b.numel()].view(b.shape), b.contiguous())


@dotcu.op("torch_rules::strides_of_the_gradient_ignored", dtypes=FLOATS)
def strides_of_the_gradient_ignored(x: Tensor) -> Tensor:
    return square_of(x)


differentiable(strides_of_the_gradient_ignored, lambda grad, x: times_as_if_contiguous(grad, 2 * x))


@dotcu.op("torch_rules::times_without_the_tail", dtypes=FLOATS)
def times_without_the_tail(a: Tensor, b: Tensor) -> Tensor:
    out = torch.empty(a.shape, dtype=a.dtype, device=a.device)
    n = out.numel() // 2 * 2
    kernels.multiply[a.dtype](a.contiguous(), b.contiguous(), out, n, grid=dotcu.cdiv(n, 64), block=64)
    return out


@dotcu.op("torch_rules::tail_of_the_gradient_unwritten", dtypes=FLOATS)
def tail_of_the_gradient_unwritten(x: Tensor) -> Tensor:
    return square_of(x)


differentiable(tail_of_the_gradient_unwritten, lambda grad, x: times_without_the_tail(grad, 2 * x))
of_even_sizes(tail_of_the_gradient_unwritten)


@dotcu.op("torch_rules::twice_as_if_contiguous", dtypes=FLOATS)
def twice_as_if_contiguous(a: Tensor, b: Tensor) -> Tensor:
    start = a.as_strided(b.shape, b.contiguous().stride(), a.storage_offset())
    return multiply(start.contiguous(), 2 * b.contiguous())


@dotcu.op("torch_rules::strides_of_what_was_saved_ignored", dtypes=FLOATS)
def strides_of_what_was_saved_ignored(x: Tensor) -> Tensor:
    return square_of(x)


differentiable(strides_of_what_was_saved_ignored, lambda grad, x: twice_as_if_contiguous(x, grad))


@dotcu.op("torch_rules::gradient_only_of_both", dtypes=FLOATS)
def gradient_only_of_both(a: Tensor, b: Tensor) -> Tensor:
    return multiply(a.contiguous(), b.contiguous())


pairs(gradient_only_of_both).setup_context(lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


@gradient_only_of_both.backward
def _(ctx: Any, grad: Tensor) -> Any:
    a, b = ctx.saved_tensors
    return (grad * b, grad * a) if all(ctx.needs_input_grad) else (grad, grad)


@dotcu.op("torch_rules::gradient_lost")
def gradient_lost(x: Tensor) -> Tensor:
    return square_of(x)


def _without_a_gradient(x: Tensor) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.torch_rules.gradient_lost(x)


squares(gradient_lost)
_library = torch.library.Library("torch_rules", "IMPL")
_library.impl("gradient_lost", _without_a_gradient, "AutogradCPU")


@dotcu.op("torch_rules::second_gradient_lost", dtypes=FLOATS)
def second_gradient_lost(x: Tensor) -> Tensor:
    return square_of(x)


differentiable(second_gradient_lost, lambda grad, x: grad * 2 * x.detach())


@dotcu.op("torch_rules::product", dtypes=FLOATS)
def product(a: Tensor, b: Tensor) -> Tensor:
    return multiply(a.contiguous(), b.contiguous())


product.setup_context(lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
product.backward(lambda ctx, grad: (grad * ctx.saved_tensors[1], grad))  # of b it is grad * a


@dotcu.op("torch_rules::second_gradient_wrong")
def second_gradient_wrong(x: Tensor) -> Tensor:
    return square_of(x)


differentiable(second_gradient_wrong, lambda grad, x: product(grad, 2 * x))


# ------------------------------------------------------------------ transforms


@dotcu.op("torch_rules::batch_in_the_first_dimension")
def batch_in_the_first_dimension(x: Tensor) -> Tensor:
    return square_of(x)


@squares(batch_in_the_first_dimension).vmap
def _(info: Any, in_dims: Any, x: Tensor) -> Any:
    return batch_in_the_first_dimension(x), 0


@dotcu.op("torch_rules::batch_of_the_first_alone")
def batch_of_the_first_alone(a: Tensor, b: Tensor) -> Tensor:
    return multiply(a.contiguous(), b.expand_as(a).contiguous())


@pairs(batch_of_the_first_alone).vmap
def _(info: Any, in_dims: Any, a: Tensor, b: Tensor) -> Any:
    return batch_of_the_first_alone(a.movedim(in_dims[0] or 0, 0), b), 0


@dotcu.op("torch_rules::square_of_parts", sharding=("x:0 -> 0", "x:sum -> sum"))
def square_of_parts(x: Tensor) -> Tensor:
    return square_of(x)


squares(square_of_parts)


@dotcu.op("torch_rules::gradient_by_numpy")
def gradient_by_numpy(x: Tensor) -> Tensor:
    return square_of(x)


def _by_numpy(grad: Tensor, x: Tensor) -> Tensor:
    return torch.from_numpy(grad.detach().cpu().numpy() * 2 * x.detach().cpu().numpy()).to(x.device)


differentiable(gradient_by_numpy, _by_numpy)


@dotcu.op("torch_rules::branches_on_a_value")
def branches_on_a_value(x: Tensor) -> Tensor:
    return square_of(x) if x.sum().item() > 0 else square_of(-x)


squares(branches_on_a_value)


# ------------------------------------------------------------------ results that are kept

_kept: dict[Any, Any] = {}


def keeps_results(name: str, key: Callable[[Tensor], Any]) -> Any:
    """An operator that computes once for each key."""

    @dotcu.op(f"torch_rules::{name}", dtypes=(torch.float32, torch.int32))
    def kept(x: Tensor) -> Tensor:
        known = (name, key(x))
        if known not in _kept:
            _kept[known] = x, square_of(x)  # x too, so that no other tensor gets its address or id
        return _kept[known][1].clone()

    kept.fake(lambda x: torch.empty(x.shape, dtype=x.dtype, device=x.device))
    kept.reference(lambda x: x * x)

    @kept.samples
    def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
        for n in (20, 33):
            yield dotcu.Sample(torch.randint(-9, 9, (n,), device=device).to(dtype))

    return kept


kept_by_address = keeps_results("kept_by_address", lambda x: (x.data_ptr(), x.dtype, x.shape))
kept_by_shape = keeps_results("kept_by_shape", lambda x: (x.dtype, x.shape))
kept_by_version = keeps_results("kept_by_version", lambda x: (id(x), x._version, x.dtype, x.shape))
kept_by_ends = keeps_results("kept_by_ends", lambda x: (x[0].item(), x[-1].item(), x.dtype, x.shape))


@dotcu.op("torch_rules::one_result_for_all")
def one_result_for_all(x: Tensor) -> Tensor:
    _kept["one", x.shape] = _kept.get(("one", x.shape), square_of(x))
    return _kept["one", x.shape].copy_(square_of(x))


squares(one_result_for_all).fake(lambda x: torch.empty(x.shape, dtype=x.dtype, device=x.device))


# ------------------------------------------------------------------ references

_calls = [0]


@dotcu.op("torch_rules::reference_of_chance")
def reference_of_chance(x: Tensor) -> Tensor:
    return square_of(x)


@squares(reference_of_chance).reference
def _(x: Tensor) -> Tensor:
    _calls[0] += 1
    return x * x + _calls[0]


@dotcu.op("torch_rules::reference_that_writes")
def reference_that_writes(x: Tensor) -> Tensor:
    return square_of(x)


@squares(reference_that_writes).reference
def _(x: Tensor) -> Tensor:
    return x.mul_(x)


@dotcu.op("torch_rules::reference_that_fails")
def reference_that_fails(x: Tensor) -> Tensor:
    return square_of(x)


@squares(reference_that_fails).reference
def _(x: Tensor) -> Tensor:
    return x * x[5:10]
