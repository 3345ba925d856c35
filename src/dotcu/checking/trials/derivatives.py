"""First and second gradients of a call, of an operator or of its reference, as functions of tensors alone.

A gradient comes to a backward as whatever follows the operator makes of it: with elements side by side, one
element that stands for all (of `.sum()`), or with gaps between elements and off any alignment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dotcu.checking.numerics import outputs
from dotcu.errors import GradientError
from dotcu.operator import Sample

Ending = Callable[[Tensor], Tensor]
Function = Callable[..., Any]

ENDINGS: dict[str, Ending] = {
    "dense": lambda result: result.clone(),
    "expanded": lambda result: result.sum(),
    "strided": lambda result: torch.stack([torch.zeros_like(result), result], -1),
}
"""What follows the operator, by what it makes of a gradient."""


@dataclass(frozen=True, kw_only=True)
class Derivative:
    """Which gradients of a call are asked for.

    Attributes:
        names: Of the arguments by keyword, in order.
        needs: Positions, among all tensors of the call, of those that require a gradient.
        outputs: Positions, among the results, of those that have one.
        ending: What follows the call.
        order: 1, or 2 for the gradients of the gradients.
    """

    names: tuple[str, ...]
    needs: tuple[int, ...]
    outputs: tuple[int, ...]
    ending: Ending = ENDINGS["dense"]
    order: int = 1

    def of(self, function: Function) -> Function:
        """The gradients of a function, as a function of what `joint` makes."""

        def gradients(args: Any, values: Any, weights: Any, directions: Any) -> tuple[Tensor, ...]:
            sample = Sample(*args, **dict(zip(self.names, values, strict=True)))
            with torch.enable_grad():
                return self._gradients(function, sample, weights, directions)

        return gradients

    def _gradients(
        self, function: Function, sample: Sample, weights: Sequence[Tensor], directions: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        sample, leaves = requiring(sample, self.needs)
        results = outputs(function(*sample.args, **sample.kwargs))
        weights = [weight.detach().requires_grad_(self.order == 2) for weight in weights]
        ends = [(self.ending(results[i]), w) for i, w in zip(self.outputs, weights, strict=True)]
        told = [(end, weight) for end, weight in ends if end.requires_grad]
        if not told:
            raise GradientError("none of its results requires a gradient")
        first = _grad([e for e, _ in told], leaves, [w for _, w in told], create_graph=self.order == 2)
        if self.order == 1:
            return first
        pairs = [(g, d) for g, d in zip(first, directions, strict=True) if g.requires_grad]
        inputs = [*leaves, *weights]
        if not pairs:
            return tuple(torch.zeros_like(tensor) for tensor in inputs)
        return _grad([g for g, _ in pairs], inputs, [d for _, d in pairs])


def joint(sample: Sample, derivative: Derivative, weights: Sequence[Tensor]) -> Sample:
    """What the gradients of a call are a function of, as the one call of such a function.

    Args:
        weights: A gradient for each ending.
    """
    tensors = sample.tensors
    directions = [random_like(tensors[i]) for i in derivative.needs]
    return Sample(list(sample.args), list(sample.kwargs.values()), list(weights), directions)


def random_like(tensor: Tensor) -> Tensor:
    """Normal random numbers that a tensor's dtype holds exactly, drawn on the CPU."""
    values = torch.randn(tensor.shape, dtype=torch.float64).to(tensor.dtype)
    return values.to(tensor.device)


def requiring(sample: Sample, needs: Sequence[int]) -> tuple[Sample, list[Tensor]]:
    """The call with tensors at some positions requiring a gradient, the others not; and those tensors."""
    leaves: list[Tensor] = []
    positions = iter(range(len(sample.tensors)))

    def prepare(tensor: Tensor) -> Tensor:
        plain = tensor.detach()
        if next(positions) in needs:
            leaves.append(plain.requires_grad_())
        return plain

    return sample.map_tensors(prepare), leaves


def _grad(
    ends: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor], create_graph: bool = False
) -> tuple[Tensor, ...]:
    return torch.autograd.grad(
        ends, inputs, weights, create_graph=create_graph, allow_unused=True, materialize_grads=True
    )
