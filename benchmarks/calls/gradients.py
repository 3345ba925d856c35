"""Operators of the gallery beside torch's own functions: without a gradient, and forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves

from dotcu import gallery

ROWS, COLUMNS = 64, 256
WHOLE = (ROWS, COLUMNS)
CUBE, SWAPPED = (ROWS, 16, 16), [0, 2, 1]
TOLERANCE = 1e-3

FORWARD, BACKWARD = "no gradient", "forward and backward"

Calls = tuple[Callable[[], Any], Callable[[], Any]]
"""dotcu's call and torch's; they give results, or gradients."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An operator and torch's function for the same.

    Attributes:
        shapes: Of the inputs, which are float32 and get gradients.
        classes: Whether there is one more input: the class of each row.
        bound: Whether it is torch's own kernels in a torch.autograd.Function, for what that costs.
    """

    name: str
    own: Callable[..., Any]
    eager: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = (WHOLE,)
    classes: bool = False
    bound: bool = False

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways to call it that are timed."""
        return (BACKWARD,) if self.bound else (FORWARD, BACKWARD)

    def own_name(self, way: str) -> str:
        """The contender that dotcu is."""
        return f"{self.name}, {way}, {'torch.autograd.Function' if self.bound else 'dotcu'}"

    def eager_name(self, way: str) -> str:
        """The contender that torch is."""
        return f"{self.name}, {way}, torch eager"


def packet(name: str) -> Any:
    """An operator of the gallery as `torch.ops` has it."""
    getattr(gallery, name)  # defines it
    return getattr(torch.ops.dotcu, name)


own_cross_entropy = packet("cross_entropy")


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """The loss without the log-sum-exp."""
    loss: Tensor = own_cross_entropy(logits, target)[0]
    return loss


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, 1e-6)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return rms_norm(total, weight), total


class SoftmaxFunction(torch.autograd.Function):
    """torch's softmax and its gradient, recorded by a node that is written in Python."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        return torch._softmax_backward_data(grad, y, -1, y.dtype)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, weight.shape, weight, bias)


def transpose(x: Tensor) -> Tensor:
    return x.t().contiguous()


def permute_copy(x: Tensor, dims: list[int]) -> Tensor:
    return x.permute(dims).contiguous()


# Without quantize_fp8, which has no gradient, and what is itself a gradient: reverse_cumsum is cumsum's.
PAIRS = (
    Pair(name="add", own=packet("add"), eager=torch.add, shapes=(WHOLE, WHOLE)),
    Pair(name="add a number", own=lambda x: torch.ops.dotcu.add(x, 2.5), eager=lambda x: torch.add(x, 2.5)),
    Pair(name="fast_add", own=packet("fast_add"), eager=torch.add, shapes=(WHOLE, WHOLE)),
    Pair(name="square", own=packet("square"), eager=torch.square),
    Pair(name="swiglu", own=packet("swiglu"), eager=swiglu, shapes=(WHOLE, WHOLE)),
    Pair(name="sum", own=packet("sum"), eager=torch.sum),
    Pair(name="cumsum", own=packet("cumsum"), eager=partial(torch.cumsum, dim=-1)),
    Pair(name="softmax", own=packet("softmax"), eager=partial(torch.softmax, dim=-1)),
    Pair(
        name="softmax of torch",
        own=SoftmaxFunction.apply,
        eager=partial(torch.softmax, dim=-1),
        bound=True,
    ),
    Pair(name="rms_norm", own=packet("rms_norm"), eager=rms_norm, shapes=(WHOLE, (COLUMNS,))),
    Pair(
        name="add_rms_norm",
        own=packet("add_rms_norm"),
        eager=add_rms_norm,
        shapes=(WHOLE, WHOLE, (COLUMNS,)),
    ),
    Pair(
        name="layer_norm", own=packet("layer_norm"), eager=layer_norm, shapes=(WHOLE, (COLUMNS,), (COLUMNS,))
    ),
    Pair(name="cross_entropy", own=cross_entropy, eager=F.cross_entropy, classes=True),
    Pair(name="matmul", own=packet("matmul"), eager=torch.matmul, shapes=(WHOLE, (COLUMNS, ROWS))),
    Pair(name="transpose", own=packet("transpose"), eager=transpose),
    Pair(
        name="permute_copy",
        own=partial(packet("permute_copy"), dims=SWAPPED),
        eager=partial(permute_copy, dims=SWAPPED),
        shapes=(CUBE,),
    ),
)


def prepare(pair: Pair, device: torch.device) -> Mapping[str, Calls]:
    """Make the calls of each way, and compare what they give.

    Raises:
        AssertionError: It differs.
    """
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device=device, requires_grad=True) for shape in pair.shapes]
    wanted = list(inputs)
    if pair.classes:
        inputs.append(torch.randint(COLUMNS, (ROWS,), device=device))
    grads = [torch.randn_like(result) for result in tree_leaves(pair.eager(*inputs))]
    plain = [tensor.detach() for tensor in inputs]
    own, eager = pair.own, pair.eager
    calls: dict[str, Calls] = {
        FORWARD: (lambda: own(*plain), lambda: eager(*plain)),
        BACKWARD: (gradients(own, inputs, wanted, grads), gradients(eager, inputs, wanted, grads)),
    }
    for ours, theirs in calls.values():
        for _ in range(2):  # dotcu's first call prepares its launches, the second one finds them
            compare(ours(), theirs())
    return {way: calls[way] for way in pair.ways}


def gradients(
    function: Callable[..., Any], inputs: Sequence[Tensor], wanted: Sequence[Tensor], grads: Sequence[Tensor]
) -> Callable[[], tuple[Tensor, ...]]:
    """Make the call forward and backward."""
    return lambda: torch.autograd.grad(function(*inputs), wanted, grads)


def compare(found: Any, want: Any) -> None:
    """Refuse results that are not torch's, rounding apart."""
    torch.testing.assert_close(found, want, rtol=TOLERANCE, atol=TOLERANCE)
