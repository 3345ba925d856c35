"""Operators to derive calls of: bodies of plain PyTorch, with a reference and samples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

import dotcu
from dotcu.checking.cases.samples import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.subject import Subject

_names = (f"subjects::op{i}" for i in itertools.count())


def operator(
    body: Callable[..., Any],
    *samples: dotcu.Sample,
    reference: Callable[..., Any] | None = None,
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    mutates_args: Sequence[str] = (),
) -> dotcu.operator.Operator:
    """An operator with these samples, in each dtype, of the tensors that are floating-point."""
    made = dotcu.op(next(_names), dtypes=dtypes, mutates_args=mutates_args)(body)
    if reference is not None:
        made.reference(reference)

    def give(device: torch.device, dtype: torch.dtype) -> list[dotcu.Sample]:
        return [
            sample.map_tensors(lambda t: t.to(device, dtype if t.is_floating_point() else t.dtype))
            for sample in samples
        ]

    made.samples(give)
    return made


def subject(overload: dotcu.operator.Overload, level: Level = Level.FULL, seed: int = 0) -> Subject:
    """The overload under check, in the simulator."""
    return Subject(overload=overload, device=torch.device("cpu"), level=level, seed=seed)


def first(of: Subject) -> Case:
    """The first of the given cases, in the first dtype."""
    return of.given(of.overload.dtypes[0])[0]
