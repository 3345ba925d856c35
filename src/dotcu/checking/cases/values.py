"""Other values for the same call: large, tiny, not finite, of either zero, all equal, extremes.

Data alone changes: floating-point tensors, or the integers of the dtype that a case is for. Integers
of another dtype are indices, which must fit the tensors that they point into.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from dotcu.checking.cases.case import Case
from dotcu.checking.cases.derived import (
    Derived,
    accepted,
    completed,
    generator_for,
    is_integer,
    mapped,
)
from dotcu.checking.subject import Subject
from dotcu.operator import Sample

Shape = torch.Size
Fill = Callable[[Shape, torch.dtype, torch.Generator], Tensor]
"""Gives a shape's values, for a dtype; in float64, which holds those of every floating-point type."""

SPARSE = 64
"""One element of so many is what a row of a table is named for."""


def _noise(shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def _between(low: float, high: float, shape: Shape, generator: torch.Generator) -> Tensor:
    """Magnitudes between two, of either sign."""
    magnitudes = low + (high - low) * torch.rand(shape, dtype=torch.float64, generator=generator)
    return torch.where(_noise(shape, generator) < 0, -magnitudes, magnitudes)


def _normal(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    return _noise(shape, generator)


def _large(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Products of two stay finite, and sums of some hundred such products."""
    most = torch.finfo(dtype).max ** 0.5 / 16
    return _between(most / 2, most, shape, generator)


def _spread(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Of every size from a millionth to a million, as far as squares are finite."""
    widest = min(20.0, math.log2(torch.finfo(dtype).max) / 2)
    exponents = widest * (2 * torch.rand(shape, dtype=torch.float64, generator=generator) - 1)
    return torch.exp2(exponents).copysign(_noise(shape, generator))


def _tiny(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    least = torch.finfo(dtype).smallest_normal
    return _between(least, 4 * least, shape, generator)


def _denormal(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    least = torch.finfo(dtype).smallest_normal
    return _between(least / 4, least / 2, shape, generator)


def _sprinkled(values: Sequence[float], shape: Shape, _: torch.dtype, generator: torch.Generator) -> Tensor:
    """Noise, with each of some values at a few places."""
    noise = _noise(shape, generator)
    order = torch.randperm(noise.numel(), generator=generator)
    few = -(-noise.numel() // SPARSE)
    for i, value in enumerate(values):
        noise.view(-1)[order[i * few : (i + 1) * few]] = value
    return noise


def _constant(value: float | bool, shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    return torch.full(shape, value, dtype=torch.bool if isinstance(value, bool) else torch.float64)


FLOATS: Mapping[str, Fill] = {
    "normal": _normal,
    "spread": _spread,
    "large": _large,
    "tiny": _tiny,
    "denormal": _denormal,
    "inf": partial(_sprinkled, (torch.inf, -torch.inf)),
    "nan": partial(_sprinkled, (torch.nan,)),
    "minus-zero": partial(_constant, -0.0),
    "all-equal": partial(_constant, 0.75),
    "zeros": partial(_constant, 0.0),
}


def _least(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    return torch.full(shape, torch.iinfo(dtype).min, dtype=dtype)


def _most(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    return torch.full(shape, torch.iinfo(dtype).max, dtype=dtype)


def _extremes(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """The ends of the range, and what lies beside zero, one among the others."""
    info = torch.iinfo(dtype)
    row = torch.tensor(sorted({info.min, info.min + 1, max(info.min, -1), 0, 1, info.max}), dtype=dtype)
    return row[torch.randint(len(row), shape, generator=generator)]


INTEGERS: Mapping[str, Fill] = {"min": _least, "max": _most, "extremes": _extremes}

BOOLS: Mapping[str, Fill] = {"true": partial(_constant, True), "false": partial(_constant, False)}

EVERY = (*FLOATS, *INTEGERS, *BOOLS)
FEW = ("spread", "nan", "inf", "large", "tiny", "minus-zero", "extremes", "true")
FEWEST = ("nan", "extremes")


def values(subject: Subject, case: Case, names: Sequence[str]) -> Iterator[Case]:
    """A case with each of some values, as far as its dtype has them and its reference takes them.

    A body reads no values, so it cannot refuse any.
    """
    table = _table(case.dtype)
    for name in names:
        if name not in table:
            continue
        build = partial(_filled, subject, case, f"{case.name}-{name}", table[name])
        if _taken(subject, case, build()):
            yield Derived(name=f"{case.name}-{name}", dtype=case.dtype, build=build)


def _taken(subject: Subject, case: Case, sample: Sample | None) -> bool:
    if subject.reference is None:
        return case.dtype.is_floating_point  # integers may be indices
    return sample is not None and accepted(subject, sample)


def _table(dtype: torch.dtype) -> Mapping[str, Fill]:
    if dtype.is_floating_point:
        return FLOATS
    return BOOLS if dtype == torch.bool else INTEGERS if is_integer(dtype) else {}


def _filled(subject: Subject, case: Case, name: str, fill: Fill) -> Sample | None:
    generator = generator_for(name, subject.seed)

    def change(tensor: Tensor) -> Tensor:
        data = tensor.dtype == case.dtype or (case.dtype.is_floating_point and tensor.is_floating_point())
        if not data:
            return tensor
        return fill(tensor.shape, tensor.dtype, generator).to(tensor.device, tensor.dtype)

    changed = mapped(subject.inputs(case.sample), change)
    return completed(subject, changed)
