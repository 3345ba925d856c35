"""Gradients as functions of tensors alone, and what comes to a backward as its gradient."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from dotcu.checking.trials.gradients import ENDINGS, Differentiation, random_like, requiring
from dotcu.operator import Sample


class Notes(torch.autograd.Function):
    """Doubles, and notes the gradients that come back."""

    seen: ClassVar[list[Tensor]] = []

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        Notes.seen.append(grad)
        return grad * 2


def noted(ending: str) -> Tensor:
    """The gradient that comes to a backward before that ending."""
    x = torch.randn(3, 4, requires_grad=True)
    end = ENDINGS[ending](Notes.apply(x))
    torch.autograd.grad(end, x, torch.randn(end.shape))
    return Notes.seen[-1]


def test_a_dense_gradient_is_contiguous() -> None:
    assert noted("dense").is_contiguous()


def test_an_expanded_gradient_is_one_element() -> None:
    assert noted("expanded").stride() == (0, 0)


def test_a_strided_gradient_has_gaps_and_is_off_any_alignment() -> None:
    grad = noted("strided")
    assert grad.stride() == (8, 2)
    assert grad.storage_offset() == 1


def cubed(a: Tensor, b: Tensor, *, factor: float) -> list[Tensor]:
    return [a**3 * b * factor, b.detach()]


@pytest.fixture
def sample() -> Sample:
    return Sample(
        torch.tensor([1.0, 2.0], dtype=torch.float64),
        torch.tensor([3.0, 5.0], dtype=torch.float64),
        factor=2.0,
    )


def gradients(sample: Sample, **options: Any) -> list[list[float]]:
    derivative = Differentiation(outputs=(0,), **options)
    weights = [torch.ones(2, dtype=torch.float64)]
    call = derivative.call(sample, weights)
    if options.get("order") == 2:
        call = Sample(*call.args[:2], [torch.ones_like(d) for d in call.args[2]], **call.kwargs)
    return [grad.tolist() for grad in derivative.of(cubed)(*call.args, **call.kwargs)]


def test_first_gradients_are_of_all_that_need_one(sample: Sample) -> None:
    assert gradients(sample, needs=(0, 1)) == [[18.0, 120.0], [2.0, 16.0]]
    assert gradients(sample, needs=(1,)) == [[2.0, 16.0]]


def test_second_gradients_are_of_inputs_and_of_the_gradients_weights(sample: Sample) -> None:
    # The sum of 6 a^2 b w and 2 a^3 w, by a, by b and by w.
    assert gradients(sample, needs=(0, 1), order=2) == [[42.0, 144.0], [6.0, 24.0], [20.0, 136.0]]


def test_a_gradient_that_hangs_on_nothing_has_zeros_as_its_own() -> None:
    derivative = Differentiation(needs=(0,), outputs=(0,), order=2)
    call = derivative.call(Sample(torch.randn(3)), [torch.randn(3)])
    constant = derivative.of(lambda x: Straight.apply(x))(*call.args)
    assert [grad.tolist() for grad in constant] == [[0.0] * 3, [0.0] * 3]


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.ones_like(grad).detach()


def test_only_positions_that_need_it_require_a_gradient() -> None:
    call, leaves = requiring(Sample([torch.ones(1), torch.ones(2)], torch.ones(3)), (1,))
    assert [tensor.requires_grad for tensor in call.tensors] == [False, True, False]
    assert [leaf.shape for leaf in leaves] == [(2,)]


def test_random_weights_are_numbers_of_the_dtype() -> None:
    values = random_like(torch.empty(7, dtype=torch.float16))
    assert values.dtype == torch.float16
    assert values.unique().numel() > 1
