"""Operators that launch Triton kernels: each fault beside its repair, as `torch.library` registers them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

import dotcu
from dotcu.operator import ExistingOperator

BLOCK = 64
_numbers = itertools.count()


@triton.jit
def double(x_ptr, out_ptr, n, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if MASKED:
        x = tl.load(x_ptr + at, mask=at < n)
    else:
        x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, 2 * x, mask=at < n)


@triton.jit
def total(x_ptr, out_ptr, n, ATOMIC: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0))
    if ATOMIC:
        tl.atomic_add(out_ptr, value)
    else:
        tl.store(out_ptr, tl.load(out_ptr) + value)


@triton.jit
def double_in_place(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = 2 * tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, x, mask=at < n)
    tl.store(out_ptr + at, x, mask=at < n)


@triton.jit
def double_rows(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n)
    tl.store(out_ptr + row * n + at, 2 * x, mask=at < n)


@triton.jit
def sum_of_integers(x_ptr, out_ptr, n, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    if WIDE:
        x = x.to(tl.int64)
    tl.store(out_ptr, tl.sum(x).to(tl.int64))


@triton.jit
def copy_of_some_block(x_ptr, count_ptr, out_ptr, n, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = tl.program_id(0)
    if FIRST:
        place = tl.atomic_add(count_ptr, 1)
    if place == 0:
        tl.store(out_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0)))


def doubled(x: Tensor, *, masked: bool = True, left_out: int = 0) -> Tensor:
    """Launch `double` on all elements, as they lie in memory."""
    out, n = torch.empty(x.shape, dtype=x.dtype, device=x.device), x.numel()
    if n > left_out * BLOCK:
        grid = (triton.cdiv(n, BLOCK) - left_out,)
        torch.library.wrap_triton(double)[grid](x, out, n, MASKED=masked, BLOCK=BLOCK)
    return out


def summed(x: Tensor, *, atomic: bool = True, zeroed: bool = True) -> Tensor:
    """Launch `total`, each program of which adds its part."""
    out = (torch.zeros if zeroed else torch.empty)((), dtype=x.dtype, device=x.device)
    if x.numel():
        total[(triton.cdiv(x.numel(), BLOCK),)](x.contiguous(), out, x.numel(), ATOMIC=atomic, BLOCK=BLOCK)
    return out


def doubled_by_rows(x: Tensor, *, even: bool) -> Tensor:
    """Launch `double_rows`; with `even`, as if each row had an even number of elements."""
    x = x.contiguous()
    out, n = torch.empty_like(x), x.shape[-1] if x.ndim else 1
    if x.numel():
        stride = n + n % 2 if even else n
        double_rows[(x.numel() // n,)](x, out, n, stride, BLOCK=triton.next_power_of_2(n))
    return out


def doubled_in_place(x: Tensor) -> Tensor:
    """Launch `double_in_place`, which writes its argument too."""
    out, n = torch.empty_like(x.contiguous()), x.numel()
    if n:
        double_in_place[(triton.cdiv(n, BLOCK),)](x.contiguous(), out, n, BLOCK=BLOCK)
    return out


def integers_summed(x: Tensor, *, wide: bool) -> Tensor:
    """Launch `sum_of_integers`, in 32 bits or 64."""
    out = torch.zeros((), dtype=torch.int64, device=x.device)
    if x.numel():
        size = triton.next_power_of_2(x.numel())
        sum_of_integers[(1,)](x.contiguous(), out, x.numel(), WIDE=wide, BLOCK=size)
    return out


def sum_of_a_block(x: Tensor, *, first: bool) -> Tensor:
    """Sum one block: the first to arrive, or block 0."""
    x, count = x.contiguous(), torch.zeros((), dtype=torch.int32, device=x.device)
    out = torch.zeros((), dtype=x.dtype, device=x.device)
    if x.numel():
        grid = (triton.cdiv(x.numel(), BLOCK),)
        copy_of_some_block[grid](x, count, out, x.numel(), FIRST=first, BLOCK=BLOCK)
    return out


def like(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def scalar(x: Tensor) -> Tensor:
    return torch.empty((), dtype=x.dtype, device=x.device)


def registered(
    body: Callable[..., Tensor],
    reference: Callable[..., Tensor],
    *,
    backward: Callable[[Any, Tensor], Tensor] | None = None,
    fake: Callable[[Tensor], Tensor] = like,
    dtype: torch.dtype = torch.float32,
    make: Any = torch.library.custom_op,
    **declared: Any,
) -> ExistingOperator:
    """Register a function of one tensor under a name of its own, and describe it to dotcu.

    Args:
        backward: Of the registered operator and the gradient of its result.
    """
    name = f"triton_operators::op{next(_numbers)}"

    def compute(x: Tensor) -> Tensor:
        if x.dtype is not dtype:
            raise TypeError(f"x has the type {x.dtype}; it must be {dtype}")
        return body(x)

    def faked(x: Tensor) -> Tensor:
        if x.dtype is not dtype:
            raise TypeError(f"x has the type {x.dtype}; it must be {dtype}")
        return fake(x)

    made: Any = make(name, compute, mutates_args=())
    made.register_fake(faked)
    if backward is not None:
        made.register_autograd(lambda ctx, grad: backward(made, grad))
    operator = dotcu.op.existing(name, dtypes=(dtype,), **declared)
    operator.reference(reference)

    @operator.samples
    def _(device: torch.device, dtype: torch.dtype) -> list[dotcu.Sample]:
        if dtype.is_floating_point:
            return [dotcu.Sample(torch.randn(3, 50, device=device, dtype=dtype))]
        return [dotcu.Sample(torch.randint(1 << 29, 1 << 30, (3, 50), device=device, dtype=dtype))]

    return operator
