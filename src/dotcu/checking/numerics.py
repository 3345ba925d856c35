"""How wrong a result is, and how wrong it may be.

The oracle is the reference computed in float64. A result may differ from it by what its own dtype
forces: by a unit in its last place, by what a change of the inputs in their last place does to the
oracle, which grows where a result is a small difference of large terms, and by what torch's own
operator needs beyond that. Nobody chooses a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dotcu.operator import Sample

TRIALS = 3
"""How often the inputs are moved in their last place."""

MARGIN = 8.0
"""How many times the error of torch's own operator is allowed, in units of what is unavoidable."""

Reference = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """What a result should be, and how far from that each element may be."""

    values: tuple[torch.Tensor, ...]
    bounds: tuple[torch.Tensor, ...]
    plain: tuple[torch.Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class Error:
    """The worst element of a result.

    Attributes:
        absolute: Its distance from the oracle; NaN where it should not be NaN.
        ratio: That distance over its bound; a result is right if every ratio is at most 1.
        where: Which output and index, in words, with the values.
    """

    absolute: float
    ratio: float
    where: str = ""

    @property
    def held(self) -> bool:
        """Whether the result is right; false for NaN."""
        return self.ratio <= 1.0


def outputs(result: Any) -> tuple[torch.Tensor, ...]:
    """The tensors of an operator's result, in order."""
    if result is None:
        return ()
    if isinstance(result, torch.Tensor):
        return (result,)
    return tuple(tensor for item in result for tensor in outputs(item))


def oracle(reference: Reference, sample: Sample) -> Oracle:
    """Compute what a sample's result should be, and its bounds. The sample's tensors are left alone."""
    plain = outputs(_call(reference, sample.map_tensors(torch.clone)))
    exact = _compute(reference, sample.map_tensors(_to_double))
    generator = torch.Generator().manual_seed(0)
    moved = [
        _compute(reference, sample.map_tensors(lambda tensor: _move(tensor, generator)))
        for _ in range(TRIALS)
    ]
    bounds = [
        _bound(own, value, others) if own.is_floating_point() and own.numel() else torch.zeros_like(value)
        for own, value, *others in zip(plain, exact, *moved, strict=True)
    ]
    return Oracle(values=exact, bounds=tuple(bounds), plain=plain)


def _bound(own: torch.Tensor, exact: torch.Tensor, moved: Sequence[torch.Tensor]) -> torch.Tensor:
    """How far each element may be: some multiple of the error that it cannot avoid.

    That error is a unit in its last place, and what the last places of the inputs do to it. The
    multiple is what torch's own operator needs at its worst element, so a large element's error
    excuses no small one.
    """
    limits = torch.finfo(own.dtype)
    unit = limits.eps * (exact.abs() + limits.smallest_normal)
    for other in moved:
        unit = unit.maximum((other - exact).abs())
    needed = ((own.double() - exact).abs() / unit).nan_to_num(0, 0, 0).amax()
    return MARGIN * needed.clamp(min=1.0) * unit


def judge(result: Any, expected: Oracle) -> Error:
    """The worst error of a result, over all its outputs.

    An integer or bool must be equal. Where the oracle, or torch's own result, is not finite, the
    result must be that same NaN or infinity.
    """
    worst = Error(absolute=0.0, ratio=0.0)
    actual = [tensor.cpu() for tensor in outputs(result)]
    if not actual or len(actual) != len(expected.plain):
        return Error(absolute=float("nan"), ratio=float("nan"), where=f"{len(actual)} outputs to compare")
    for position, (got, plain, value, bound) in enumerate(
        zip(actual, expected.plain, expected.values, expected.bounds, strict=True)
    ):
        if got.shape != plain.shape or got.dtype != plain.dtype:
            where = f"output {position} is {got.dtype}{list(got.shape)}, not {plain.dtype}{list(plain.shape)}"
            return Error(absolute=float("nan"), ratio=float("nan"), where=where)
        error = _judge_one(got, plain, value, bound, position)
        if not error.ratio <= worst.ratio:
            worst = error
    return worst


def _judge_one(
    got: torch.Tensor, plain: torch.Tensor, value: torch.Tensor, bound: torch.Tensor, position: int
) -> Error:
    if not got.numel():
        return Error(absolute=0.0, ratio=0.0)
    same = (got == plain) | (got.isnan() & plain.isnan())
    distance = (got.double() - value).abs()
    ratio = torch.where(distance == 0, 0.0, distance / bound)
    ratio = torch.where(same, torch.where(ratio.isfinite(), ratio, 0.0), ratio)
    ratio = torch.where(got.isfinite() == plain.isfinite(), ratio, torch.nan)
    flat = int(ratio.nan_to_num(nan=torch.inf).argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(flat), got.shape)]
    where = (
        f"output {position}{index}: got {got.flatten()[flat].item()}, expected {value.flatten()[flat].item()}"
    )
    finite = distance[got.isfinite()]
    absolute = float(finite.max()) if finite.numel() else 0.0
    return Error(absolute=absolute, ratio=float(ratio.flatten()[flat]), where=where)


def _compute(reference: Reference, sample: Sample) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.double() for tensor in outputs(_call(reference, sample)))


def _call(reference: Reference, sample: Sample) -> Any:
    return reference(*sample.args, **sample.kwargs)


def _to_double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64, copy=True) if tensor.is_floating_point() else tensor.clone()


def _move(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The tensor in float64, each element moved by up to one unit in the last place of its own dtype."""
    if not tensor.is_floating_point():
        return tensor.clone()
    noise = torch.rand(tensor.shape, dtype=torch.float64, generator=generator) * 2 - 1
    return tensor.double() * (1 + _eps(tensor.dtype) * noise)


def _eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
