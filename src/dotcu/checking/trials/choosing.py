"""Which of an operator's dtypes and given cases a trial takes, where it does not take all of them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dotcu.checking.cases.case import Case
from dotcu.checking.subject import Subject
from dotcu.operator import Sample

COMPUTED = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}
    | {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
)
"""The dtypes that torch adds and multiplies; others (bool, 8-bit floats, wide unsigned) it merely holds."""

FEW = 16
"""Elements, below which a case tells little."""


def size(sample: Sample) -> int:
    """The elements of all tensors."""
    return sum(tensor.numel() for tensor in sample.tensors)


def floating(subject: Subject) -> tuple[torch.dtype, ...]:
    """The operator's floating dtypes that a gradient can be of."""
    taken = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    return tuple(dtype for dtype in subject.overload.dtypes if dtype in taken)


def first_integer(subject: Subject) -> tuple[torch.dtype, ...]:
    """The first of the operator's integer dtypes, bool among them; none where it takes none."""
    whole = (dtype for dtype in subject.overload.dtypes if not (dtype.is_floating_point or dtype.is_complex))
    return tuple(whole)[:1]


def smallest(subject: Subject, dtypes: tuple[torch.dtype, ...]) -> Iterator[Case]:
    """Of each dtype the smallest given case without empty tensors, where there is one."""
    for dtype in dtypes:
        case = subject.smallest(dtype)
        if case is not None:
            yield case


def without_empty(subject: Subject, dtype: torch.dtype) -> list[Case]:
    """The given cases of a dtype in which no tensor is empty, the smallest first."""
    cases = [case for case in subject.given(dtype) if all(t.numel() for t in case.sample.tensors)]
    return sorted(cases, key=lambda case: size(case.sample))


def of_some_size(subject: Subject, dtype: torch.dtype) -> list[Case]:
    """The same, but those with so few elements that layout and order hardly matter come last."""
    return sorted(without_empty(subject, dtype), key=lambda case: size(case.sample) < FEW)
