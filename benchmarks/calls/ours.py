"""dotcu's contenders."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

import dotcu
from calls.cpp import CPP_INFERENCE, CPP_NO_GRAD, CPP_RECORDING, CPP_TEN, CPP_THREE
from calls.work import ALPHA, BLOCK, DIGITS, KERNELS, WEIGHTS, Call, Contender, Inputs, Once, scaled, weighed
from dotcu import settings

kernels = dotcu.load(KERNELS)

TORCH_OPS = "dotcu, torch.ops"
DIRECT = "dotcu, direct"
PYTHON_TORCH_OPS = "dotcu without native, torch.ops"
PYTHON_DIRECT = "dotcu without native, direct"
RECORDING_TORCH_OPS = "dotcu recording, torch.ops"
RECORDING_DIRECT = "dotcu recording, direct"
THREE_TORCH_OPS = "dotcu, torch.ops, 3 arguments"
THREE_DIRECT = "dotcu, direct, 3 arguments"
TEN_TORCH_OPS = "dotcu, torch.ops, 10 arguments"
TEN_DIRECT = "dotcu, direct, 10 arguments"


def require_alike(a: Tensor, b: Tensor) -> None:
    """The check that the C++ contenders make and that a launch does not."""
    if a.shape != b.shape:
        raise ValueError(f"expected a tensor of shape {tuple(a.shape)} (got {tuple(b.shape)})")


def add(a: Tensor, b: Tensor) -> Tensor:
    """a + b"""
    require_alike(a, b)
    out = torch.empty_like(a)
    n = a.numel()
    kernels.add(a, b, out, n, grid=dotcu.cdiv(n, BLOCK), block=BLOCK)
    return out


def scale_add(a: Tensor, b: Tensor, alpha: float) -> Tensor:
    """a + alpha b"""
    require_alike(a, b)
    out = torch.empty_like(a)
    n = a.numel()
    kernels.scale_add(a, b, alpha, out, n, grid=dotcu.cdiv(n, BLOCK), block=BLOCK)
    return out


def weigh(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    i: int,
    j: int,
    k: int,
    l: int,  # noqa: E741 - the kernel's own name
    x: float,
    y: float,
    z: float,
) -> Tensor:
    """x a + y b + z c + the number with the digits i, j, k, l"""
    require_alike(a, b)
    require_alike(a, c)
    out = torch.empty_like(a)
    n = a.numel()
    kernels.weigh(a, b, c, i, j, k, l, x, y, z, out, n, grid=dotcu.cdiv(n, BLOCK), block=BLOCK)
    return out


def define(body: Callable[..., Tensor], name: str, *, native: bool = True, **options: Any) -> Any:
    """Make an operator of a body, for a while without dotcu's native code."""
    with nullcontext() if native else settings.override(native=False):
        return dotcu.op(f"call_overhead::{name}", **options)(body)


def define_add(name: str, **options: Any) -> Any:
    """Make an operator that adds, with its gradient."""
    operator = define(add, name, **options)
    operator.backward(lambda ctx, grad: (grad, grad))
    return operator


OPERATORS = {
    "add": Once(partial(define_add, "add")),
    "add_without_native": Once(partial(define_add, "add_without_native", native=False)),
    "add_by_its_body": Once(partial(define_add, "add_by_its_body", replay=False)),
    "scale_add": Once(partial(define, scale_add, "scale_add")),
    "weigh": Once(partial(define, weigh, "weigh")),
}


def direct(name: str) -> Any:
    """What `dotcu.op` gave."""
    return OPERATORS[name]()


def packet(name: str) -> Any:
    """What `torch.ops` has of it."""
    direct(name)
    return getattr(torch.ops.call_overhead, name)


def overload(name: str) -> Any:
    """The one overload of that."""
    return packet(name).default


Way = Callable[[str], Any]


def on_two(way: Way, name: str, inputs: Inputs) -> Call:
    """A call on two tensors."""
    op, a, b = way(name), inputs.a, inputs.b
    return lambda: op(a, b)


def on_leaf(way: Way, inputs: Inputs) -> Call:
    """A call on a tensor that requires a gradient."""
    op, a, b = way("add"), inputs.leaf, inputs.b
    return lambda: op(a, b)


def on_three(way: Way, inputs: Inputs) -> Call:
    """A call with three arguments."""
    op, a, b = way("scale_add"), inputs.a, inputs.b
    return lambda: op(a, b, ALPHA)


def on_ten(way: Way, inputs: Inputs) -> Call:
    """A call with ten arguments."""
    op, a, b, c = way("weigh"), inputs.a, inputs.b, inputs.c
    (i, j, k, l), (x, y, z) = DIGITS, WEIGHTS  # noqa: E741
    return lambda: op(a, b, c, i, j, k, l, x, y, z)


def contender(name: str, make: Callable[[Inputs], Call], **more: Any) -> Contender:
    return Contender(name=name, make=make, **more)


CONTENDERS = (
    contender(TORCH_OPS, partial(on_two, packet, "add")),
    contender("dotcu, torch.ops, .default", partial(on_two, overload, "add")),
    contender(DIRECT, partial(on_two, direct, "add")),
    contender(PYTHON_TORCH_OPS, partial(on_two, packet, "add_without_native")),
    contender(PYTHON_DIRECT, partial(on_two, direct, "add_without_native")),
    contender("dotcu, body each time, torch.ops", partial(on_two, packet, "add_by_its_body")),
    contender(RECORDING_TORCH_OPS, partial(on_leaf, packet), base=CPP_RECORDING, records=True),
    contender(RECORDING_DIRECT, partial(on_leaf, direct), base=CPP_RECORDING, records=True),
    contender("dotcu, no_grad, torch.ops", partial(on_leaf, packet), base=CPP_NO_GRAD, mode=torch.no_grad),
    contender("dotcu, no_grad, direct", partial(on_leaf, direct), base=CPP_NO_GRAD, mode=torch.no_grad),
    contender(
        "dotcu, inference_mode, torch.ops",
        partial(on_two, packet, "add"),
        base=CPP_INFERENCE,
        mode=torch.inference_mode,
    ),
    contender(
        "dotcu, inference_mode, direct",
        partial(on_two, direct, "add"),
        base=CPP_INFERENCE,
        mode=torch.inference_mode,
    ),
    contender(THREE_TORCH_OPS, partial(on_three, packet), base=CPP_THREE, want=scaled),
    contender(THREE_DIRECT, partial(on_three, direct), base=CPP_THREE, want=scaled),
    contender(TEN_TORCH_OPS, partial(on_ten, packet), base=CPP_TEN, want=weighed),
    contender(TEN_DIRECT, partial(on_ten, direct), base=CPP_TEN, want=weighed),
)
