"""Operators of the gallery beside torch's own functions, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

Gradients = Callable[[], tuple[Tensor, ...]]
"""A call forward and backward; gives the gradients."""


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
    def own_name(self) -> str:
        """The contender that dotcu is."""
        return f"{self.name}, {'torch.autograd.Function' if self.bound else 'dotcu'}"

    @property
    def eager_name(self) -> str:
        """The contender that torch is."""
        return f"{self.name}, torch eager"


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """The loss without the log-sum-exp."""
    loss: Tensor = gallery.cross_entropy(logits, target)[0]
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
    Pair(name="add", own=gallery.add, eager=torch.add, shapes=(WHOLE, WHOLE)),
    Pair(name="add a number", own=lambda x: gallery.add(x, 2.5), eager=lambda x: torch.add(x, 2.5)),
    Pair(name="fast_add", own=gallery.fast_add, eager=torch.add, shapes=(WHOLE, WHOLE)),
    Pair(name="square", own=gallery.square, eager=torch.square),
    Pair(name="swiglu", own=gallery.swiglu, eager=swiglu, shapes=(WHOLE, WHOLE)),
    Pair(name="sum", own=gallery.sum, eager=torch.sum),
    Pair(name="cumsum", own=gallery.cumsum, eager=partial(torch.cumsum, dim=-1)),
    Pair(name="softmax", own=gallery.softmax, eager=partial(torch.softmax, dim=-1)),
    Pair(
        name="softmax of torch",
        own=SoftmaxFunction.apply,
        eager=partial(torch.softmax, dim=-1),
        bound=True,
    ),
    Pair(name="rms_norm", own=gallery.rms_norm, eager=rms_norm, shapes=(WHOLE, (COLUMNS,))),
    Pair(
        name="add_rms_norm",
        own=gallery.add_rms_norm,
        eager=add_rms_norm,
        shapes=(WHOLE, WHOLE, (COLUMNS,)),
    ),
    Pair(name="layer_norm", own=gallery.layer_norm, eager=layer_norm, shapes=(WHOLE, (COLUMNS,), (COLUMNS,))),
    Pair(name="cross_entropy", own=cross_entropy, eager=F.cross_entropy, classes=True),
    Pair(name="matmul", own=gallery.matmul, eager=torch.matmul, shapes=(WHOLE, (COLUMNS, ROWS))),
    Pair(name="transpose", own=gallery.transpose, eager=transpose),
    Pair(
        name="permute_copy",
        own=partial(gallery.permute_copy, dims=SWAPPED),
        eager=partial(permute_copy, dims=SWAPPED),
        shapes=(CUBE,),
    ),
)


def prepare(pair: Pair, device: torch.device) -> tuple[Gradients, Gradients]:
    """Make both calls, dotcu's first, and compare what they give.

    Raises:
        AssertionError: It differs.
    """
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device=device, requires_grad=True) for shape in pair.shapes]
    wanted = list(inputs)
    if pair.classes:
        inputs.append(torch.randint(COLUMNS, (ROWS,), device=device))
    want = pair.eager(*inputs)
    grads = [torch.randn_like(result) for result in tree_leaves(want)]
    own = gradients(pair.own, inputs, wanted, grads)
    eager = gradients(pair.eager, inputs, wanted, grads)
    compare(pair.own(*inputs), want)
    for _ in range(3):  # dotcu's first call is not replayed, the later ones are
        compare(own(), eager())
    return own, eager


def gradients(
    function: Callable[..., Any], inputs: Sequence[Tensor], wanted: Sequence[Tensor], grads: Sequence[Tensor]
) -> Gradients:
    """Make the call forward and backward."""
    return lambda: torch.autograd.grad(function(*inputs), wanted, grads)


def compare(found: Any, want: Any) -> None:
    """Refuse results that are not torch's, rounding apart."""
    torch.testing.assert_close(found, want, rtol=TOLERANCE, atol=TOLERANCE)
