"""The same call with other values: what a kept result, a batch or a second run must be tried with.

Values come from the author's `samples` function, asked again with other random numbers, so that they
are ones that the operator takes. Where it gives the same again, floating-point values change places and
shrink a little, and whole numbers change places if there are no others.
"""

from __future__ import annotations

from torch import Tensor

from dotcu.checking.cases.case import Case
from dotcu.checking.cases.given import samples_of
from dotcu.checking.memory import same_bits
from dotcu.checking.subject import Subject
from dotcu.operator import Sample

_ATTEMPTS = 3
"""A few integers drawn anew may be the same."""

_SHRINK = 0.75
"""Keeps a sign, a zero, and what is to stay below 1."""


def anew(subject: Subject, case: Case, turn: int) -> Sample | None:
    """A given case in new memory with other values; None where no other could be found.

    Args:
        turn: From 1 on: another one gives other values.
    """
    for attempt in range(_ATTEMPTS):
        drawn = _drawn(subject, case, turn, attempt)
        if drawn is not None and not same_bits(drawn.tensors, case.sample.tensors):
            return _poured(case, drawn)
    changed = _poured(case, moved(case, turn))
    return None if same_bits(changed.tensors, case.sample.tensors) else changed


def moved(case: Case, turn: int) -> Sample:
    """The case's call with its values in other places."""
    has_floats = any(tensor.is_floating_point() for tensor in case.sample.tensors)

    def move(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            return (tensor.double() * _SHRINK**turn).roll(turn).to(tensor.dtype)
        return tensor if has_floats or tensor.dtype != case.dtype else tensor.roll(turn)

    return case.sample.map_tensors(move)


def _poured(case: Case, values: Sample) -> Sample:
    """Values in new memory that lies as the case's does."""
    made = case.make()
    for into, value in zip(made.tensors, values.tensors, strict=True):
        write(into, value)
    return made


def doubled(case: Case) -> Sample | None:
    """The case's call at another size: every dimension of more than one element twice as long.

    None where a tensor is of another kind of dtype than the case: what it holds may have to fit a size.
    """
    if not all(tensor.is_floating_point() or tensor.dtype == case.dtype for tensor in case.sample.tensors):
        return None
    return case.sample.map_tensors(_doubled)


def _doubled(tensor: Tensor) -> Tensor:
    return tensor.detach().repeat([2 if size > 1 else 1 for size in tensor.shape])


def _drawn(subject: Subject, case: Case, turn: int, attempt: int) -> Sample | None:
    """The sample that the author's function gives in the place of the case's, with other random numbers."""
    position = next((i for i, given in enumerate(subject.given(case.dtype)) if given is case), None)
    if position is None:
        return None
    with subject.seeded(f"{subject.name}/{case.name}/{turn}/{attempt}"):
        samples = list(samples_of(subject.overload, subject.device, case.dtype))
    return samples[position] if position < len(samples) and _alike(samples[position], case.sample) else None


def _alike(a: Sample, b: Sample) -> bool:
    """Whether two calls differ in the values of tensors alone."""
    return len(a.tensors) == len(b.tensors) and repr(a) == repr(b)


def write(into: Tensor, values: Tensor) -> None:
    """Copy values into a tensor, each element of memory once: a dimension of stride 0 has one."""
    for axis, (size, stride) in enumerate(zip(into.shape, into.stride(), strict=True)):
        if stride == 0 and size > 1:
            into, values = into.narrow(axis, 0, 1), values.narrow(axis, 0, 1)
    into.copy_(values)
