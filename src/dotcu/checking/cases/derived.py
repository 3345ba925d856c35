"""Calls that dotcu makes of given ones, and how arguments are taken out of a call and put back.

A derived case keeps how its tensors are made, not the tensors: there are thousands of cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from dotcu.checking.cases.case import Case, seed_of
from dotcu.checking.cases.given import with_outs
from dotcu.checking.subject import ReferenceCalls, Subject
from dotcu.operator import Sample
from dotcu.operator.schema import Signature

Build = Callable[[], Sample | None]
"""Makes a call's arguments; None where there can be no such call."""

Change = Callable[[torch.Tensor], torch.Tensor]


class Derived(Case):
    """A call that dotcu made of another. Its sample is built at each look, the same each time.

    Args:
        build: Makes the sample, as it did when the case was made: any random number in it comes from a
            generator of its own.
    """

    _build: Build

    def __init__(self, *, name: str, dtype: torch.dtype, build: Build) -> None:
        for field, value in {"name": name, "dtype": dtype, "derived": True, "_build": build}.items():
            object.__setattr__(self, field, value)

    @property
    def sample(self) -> Sample:
        """The arguments, anew."""
        sample = self._build()
        assert sample is not None, self.name
        return sample


def arguments(signature: Signature, sample: Sample) -> dict[str, Any]:
    """What a sample gives for each argument, by name, in the order of the call."""
    return {**dict(zip(signature.arguments, sample.args, strict=False)), **sample.kwargs}


def with_arguments(signature: Signature, sample: Sample, values: Mapping[str, Any]) -> Sample:
    """The same call with other values for some of its arguments."""
    names = signature.arguments[: len(sample.args)]
    args = [values.get(name, given) for name, given in zip(names, sample.args, strict=True)]
    return Sample(*args, **{name: values.get(name, given) for name, given in sample.kwargs.items()})


def mapped(sample: Sample, change: Change) -> Sample:
    """The same call with every tensor changed, where a tensor that is given twice stays one."""
    made: dict[int, torch.Tensor] = {}

    def once(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            made[id(tensor)] = change(tensor).detach()
        return made[id(tensor)]

    return sample.map_tensors(once)


def completed(subject: Subject, inputs: Sample) -> Sample | None:
    """The call with tensors for what it only writes; None where nobody can say how large these are."""
    overload = subject.overload
    if overload.functional is None:
        return inputs
    return None if overload.reference_function is None else with_outs(overload, inputs)


def accepted(subject: Subject, sample: Sample) -> bool:
    """Whether there is a reference, and it computes this call."""
    try:
        return subject.reference is not None and subject.reference_error(sample) is None
    except ReferenceCalls:  # the check of the reference says so
        return False


def has_indices(sample: Sample, dtype: torch.dtype) -> bool:
    """Whether a call has integers beside its data: what they may be hangs on the sizes of other tensors."""
    return any(is_integer(t.dtype) and t.dtype != dtype for t in sample.tensors)


def is_integer(dtype: torch.dtype) -> bool:
    """Whether it is a type of whole numbers; bool is none."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def generator_for(name: str, seed: int) -> torch.Generator:
    """Random numbers for something with a name, the same on every machine: they are drawn on the CPU."""
    return torch.Generator().manual_seed(seed_of(name, seed))
