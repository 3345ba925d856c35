"""dotcu's contenders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import dotcu
from calls.cpp import (
    CPP_CLONE,
    CPP_EIGHT,
    CPP_INFERENCE,
    CPP_NO_GRAD,
    CPP_READ,
    CPP_RECORDING,
    CPP_TEN,
    CPP_THREE,
)
from calls.peers import SCHEMA
from calls.work import (
    ALPHA,
    BLOCK,
    BLOCKS,
    DIGITS,
    ELEMENTS,
    KERNELS,
    LAUNCHES,
    WEIGHTS,
    Call,
    Contender,
    Inputs,
    Once,
    scaled,
    scaled_by_tensor,
    summed,
    weighed,
)

kernels = dotcu.load(KERNELS)

TORCH_OPS = "dotcu, torch.ops"
DIRECT = "dotcu, direct"
EIGHT_TORCH_OPS = "dotcu, 8 launches, torch.ops"
EIGHT_DIRECT = "dotcu, 8 launches, direct"
CLONE_TORCH_OPS = "dotcu, clone and launch, torch.ops"
CLONE_DIRECT = "dotcu, clone and launch, direct"
READ_TORCH_OPS = "dotcu, read a value and launch, torch.ops"
READ_DIRECT = "dotcu, read a value and launch, direct"
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


def add_eight_times(a: Tensor, b: Tensor) -> Tensor:
    """a + b + ... + b"""
    require_alike(a, b)
    out = torch.empty_like(a)
    n = a.numel()
    grid = dotcu.cdiv(n, BLOCK)
    kernels.add(a, b, out, n, grid=grid, block=BLOCK)
    for _ in range(LAUNCHES - 1):
        kernels.add(out, b, out, n, grid=grid, block=BLOCK)
    return out


def add_to_clone(a: Tensor, b: Tensor) -> Tensor:
    """a + b, into a copy of a"""
    require_alike(a, b)
    out = a.clone()
    n = a.numel()
    kernels.add(out, b, out, n, grid=dotcu.cdiv(n, BLOCK), block=BLOCK)
    return out


def scale_add(a: Tensor, b: Tensor, alpha: float) -> Tensor:
    """a + alpha b"""
    require_alike(a, b)
    out = torch.empty_like(a)
    n = a.numel()
    kernels.scale_add(a, b, alpha, out, n, grid=dotcu.cdiv(n, BLOCK), block=BLOCK)
    return out


def scale_add_by_tensor(a: Tensor, b: Tensor, alpha: Tensor) -> Tensor:
    """a + alpha b, with alpha read from a tensor"""
    require_alike(a, b)
    out = torch.empty_like(a)
    n = a.numel()
    kernels.scale_add(a, b, alpha.item(), out, n, grid=dotcu.cdiv(n, BLOCK), block=BLOCK)
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


def define(body: Callable[..., Tensor], name: str, **options: Any) -> Any:
    """Make an operator of a body."""
    return dotcu.op(f"call_overhead::{name}", **options)(body)


def define_add(name: str, **options: Any) -> Any:
    """Make an operator that adds, with its gradient."""
    operator = define(add, name, **options)
    operator.backward(lambda ctx, grad: (grad, grad))
    return operator


OPERATORS = {
    "add": Once(partial(define_add, "add")),
    "add_eight_times": Once(partial(define, add_eight_times, "add_eight_times")),
    "add_to_clone": Once(partial(define, add_to_clone, "add_to_clone")),
    "scale_add": Once(partial(define, scale_add, "scale_add")),
    "scale_add_by_tensor": Once(partial(define, scale_add_by_tensor, "scale_add_by_tensor")),
    "weigh": Once(partial(define, weigh, "weigh")),
}


def direct(name: str) -> Any:
    """Return an operator as `dotcu.op` gave it."""
    return OPERATORS[name]()


def packet(name: str) -> Any:
    """Return the same as `torch.ops` has it."""
    direct(name)
    return getattr(torch.ops.call_overhead, name)


def overload(name: str) -> Any:
    """Return the one overload of that."""
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


def on_alpha(way: Way, inputs: Inputs) -> Call:
    """A call on two tensors and one with a value to read."""
    op, a, b, alpha = way("scale_add_by_tensor"), inputs.a, inputs.b, inputs.alpha
    return lambda: op(a, b, alpha)


def on_three(way: Way, inputs: Inputs) -> Call:
    """A call with three arguments."""
    op, a, b = way("scale_add"), inputs.a, inputs.b
    return lambda: op(a, b, ALPHA)


def on_ten(way: Way, inputs: Inputs) -> Call:
    """A call with ten arguments."""
    op, a, b, c = way("weigh"), inputs.a, inputs.b, inputs.c
    (i, j, k, l), (x, y, z) = DIGITS, WEIGHTS  # noqa: E741
    return lambda: op(a, b, c, i, j, k, l, x, y, z)


def launched() -> Any:
    """A torch.library.custom_op whose function allocates and launches."""

    def add(a: Tensor, b: Tensor) -> Tensor:
        out = torch.empty_like(a)
        kernels.add(a, b, out, ELEMENTS, grid=BLOCKS, block=BLOCK)
        return out

    return torch.library.custom_op("call_overhead_launch::add", add, mutates_args=(), schema=SCHEMA)


custom_op = Once(launched)


def from_custom_op(inputs: Inputs) -> Call:
    """A call of that."""
    op, a, b = custom_op(), inputs.a, inputs.b
    return lambda: op(a, b)


def contender(name: str, make: Callable[[Inputs], Call], **more: Any) -> Contender:
    return Contender(name=name, make=make, **more)


CONTENDERS = (
    contender(TORCH_OPS, partial(on_two, packet, "add")),
    contender("dotcu, torch.ops, .default", partial(on_two, overload, "add")),
    contender(DIRECT, partial(on_two, direct, "add")),
    contender("dotcu, launch from custom_op", from_custom_op),
    *(
        contender(
            name,
            partial(on_two, way, "add_eight_times"),
            base=CPP_EIGHT,
            want=partial(summed, LAUNCHES),
            launches=LAUNCHES,
        )
        for name, way in ((EIGHT_TORCH_OPS, packet), (EIGHT_DIRECT, direct))
    ),
    contender(CLONE_TORCH_OPS, partial(on_two, packet, "add_to_clone"), base=CPP_CLONE, launches=2),
    contender(CLONE_DIRECT, partial(on_two, direct, "add_to_clone"), base=CPP_CLONE, launches=2),
    *(
        contender(name, partial(on_alpha, way), base=CPP_READ, want=scaled_by_tensor, launches=2)
        for name, way in ((READ_TORCH_OPS, packet), (READ_DIRECT, direct))
    ),
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
