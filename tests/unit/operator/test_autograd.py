"""Gradients of an operator: what a backward gives, and what is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu import errors
from helpers.scale_operators import kernels, names


def test_first_and_second_gradients_hold(scale_add, device) -> None:
    a, b = (torch.randn(4, dtype=torch.double, device=device, requires_grad=True) for _ in range(2))
    with dotcu.simulate():
        assert torch.autograd.gradcheck(lambda a, b: scale_add(a, b, 2.0), (a, b))
        assert torch.autograd.gradgradcheck(lambda a, b: scale_add(a, b, 2.0), (a, b))


def test_without_a_backward_differentiating_raises(device) -> None:
    @dotcu.op(next(names))
    def halves(a: Tensor) -> Tensor:
        return a * 0.5

    result = halves(torch.ones(3, device=device, requires_grad=True))
    with pytest.raises(errors.GradientError, match=r"has no backward.*\n.*@op\d+\.backward"):
        result.sum().backward()


def test_an_out_overload_refuses_to_be_differentiated(scale_add, device) -> None:
    a = torch.ones(3, device=device, requires_grad=True)
    with pytest.raises(errors.GradientError, match="writes out"):
        scale_add(a, a, out=torch.empty(3, device=device))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_mode_raises(scale_add, pair) -> None:
    with pytest.raises(errors.GradientError, match="no forward-mode"):
        torch.func.jvp(lambda a: scale_add(a, pair[1]), (pair[0],), (pair[0],))


def test_func_grad_holds(scale_add, pair) -> None:
    with dotcu.simulate():
        grad = torch.func.grad(lambda b: scale_add(pair[0], b, 3.0).sum())(pair[1])
    assert grad.tolist() == torch.full_like(grad, 3).tolist()


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_of_func_grad_holds(scale_add, pair) -> None:
    with dotcu.simulate():
        grad = torch.func.vmap(torch.func.grad(lambda b: scale_add(b, b, 3.0).sum()))(pair[1])
    assert grad.tolist() == torch.full_like(grad, 4).tolist()


def test_a_list_of_tensors_has_gradients(device) -> None:
    @dotcu.op(next(names))
    def total(xs: Sequence[Tensor], weight: float) -> Tensor:
        return torch.stack(list(xs)).sum(0) * weight

    @total.setup_context
    def _(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.count, ctx.weight = len(inputs[0]), inputs[1]

    @total.backward
    def _(ctx: Any, grad: Tensor) -> tuple[list[Tensor], None]:
        return [grad * ctx.weight] * ctx.count, None

    xs = [torch.ones(2, device=device, requires_grad=True) for _ in range(3)]
    total(xs, 2.0).sum().backward()
    assert [x.grad.tolist() for x in xs] == [[2.0, 2.0]] * 3


def test_what_needs_a_gradient_is_said_of_each_positional_argument(device) -> None:
    seen = []

    @dotcu.op(next(names))
    def affine(x: Tensor, bias: Optional[Tensor] = None, alpha: float = 1.0) -> Tensor:  # noqa: UP045
        return x.clone() if bias is None else x + bias

    @affine.backward
    def _(ctx: Any, grad: Tensor) -> Any:
        seen.append(ctx.needs_input_grad)
        return grad, grad if ctx.needs_input_grad[1] else None, None

    x, bias = (torch.ones(2, device=device, requires_grad=True) for _ in range(2))
    for arguments in ((x,), (x, bias), (x, None, 2.0)):  # the dispatcher leaves out defaults
        affine(*arguments).sum().backward()
    assert seen == [(True, False, False), (True, True, False), (True, False, False)]


def test_a_launch_in_a_backward_raises(device) -> None:
    @dotcu.op(next(names))
    def bad(a: Tensor) -> Tensor:
        return a.clone()

    @bad.backward
    def _(ctx: Any, grad: Tensor) -> Tensor:
        out = torch.empty_like(grad)
        kernels.increment[grad.dtype](out, 3, grid=1, block=32)
        return out

    result = bad(torch.ones(3, device=device, requires_grad=True))
    with pytest.raises(errors.TracedLaunchError, match="backward"):
        result.sum().backward()


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_two_levels_of_torch_func_hold(scale_add, device) -> None:
    def cubed(x: Tensor) -> Tensor:
        return (scale_add(x, x) ** 3).sum()  # 8 x^3

    grad = torch.func.grad
    x = torch.ones(2, device=device)
    with dotcu.simulate():
        assert grad(lambda q: grad(cubed)(q).sum())(x).tolist() == [48.0, 48.0]
        assert torch.func.jacrev(torch.func.jacrev(cubed))(x).tolist() == [[48.0, 0.0], [0.0, 48.0]]


def test_torch_func_over_a_tensor_that_requires_grad_is_recorded(scale_add, device) -> None:
    x = torch.ones(2, device=device, requires_grad=True)
    with dotcu.simulate():
        torch.func.grad(lambda x: (scale_add(x, x) ** 3).sum())(x).sum().backward()
    assert x.grad.tolist() == [48.0, 48.0]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_mode_over_reverse_mode_raises(scale_add, pair) -> None:
    with pytest.raises(errors.GradientError, match="no forward-mode"), dotcu.simulate():
        torch.func.hessian(lambda a: (scale_add(a, pair[1]) ** 2).sum())(pair[0])


def test_a_keyword_tensor_that_requires_a_gradient_raises_when_differentiated(device) -> None:
    @dotcu.op(next(names))
    def keyword(x: Tensor, *, w: Tensor) -> Tensor:
        return x * w

    w = torch.ones(3, device=device, requires_grad=True)
    with pytest.raises(errors.GradientError, match="has no backward"):
        keyword(torch.ones(3, device=device), w=w).sum().backward()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda g: (torch.stack([g, g]), g),
        lambda g: ([g], [g, g, g]),
        lambda g: ([g, g], g),
        lambda g: ([g, g], [g, g], g),
        lambda g: [g, g],
    ],
    ids=["a stack", "lists of other lengths", "a tensor for a list", "one too many", "no tuple"],
)
def test_gradients_that_do_not_fit_the_arguments_raise(wrong, device) -> None:
    @dotcu.op(next(names))
    def both(xs: Sequence[Tensor], ys: Sequence[Tensor]) -> Tensor:
        return xs[0] + xs[1] + ys[0] + ys[1]

    both.backward(lambda ctx, grad: wrong(grad))
    x = torch.ones(2, device=device, requires_grad=True)
    with pytest.raises(errors.GradientError, match="one gradient for each positional argument"):
        both([x, x], [x, x]).sum().backward()


def test_a_launch_in_setup_context_raises(device) -> None:
    @dotcu.op(next(names))
    def bad(a: Tensor) -> Tensor:
        return a.clone()

    @bad.setup_context
    def _(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        kernels.increment[output.dtype](output, 3, grid=1, block=32)

    with pytest.raises(errors.TracedLaunchError, match="setup_context"):
        bad(torch.ones(3, device=device, requires_grad=True))
