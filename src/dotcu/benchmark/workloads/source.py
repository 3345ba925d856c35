"""Where calls that are timed come from: the author's samples, or those given in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from dotcu.benchmark.workloads.shapes import Shape
from dotcu.checking.cases.case import short
from dotcu.checking.cases.derived import mapped
from dotcu.checking.cases.given import samples_of
from dotcu.checking.memory import fresh
from dotcu.checking.subject import Subject
from dotcu.kernel.allocations import extent
from dotcu.operator import Sample


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """Where samples of a dtype come from.

    Attributes:
        own: Those that stand for the author's.
    """

    subject: Subject
    dtype: torch.dtype
    own: tuple[Sample, ...]

    def samples(self, seed: int) -> list[Sample]:
        """All of them, from a seed."""
        subject, dtype = self.subject, self.dtype
        if self.own:
            return [sample for sample in self.own if _is_of(sample, dtype)]
        if seed == subject.seed:
            return [case.sample for case in subject.given(dtype)]
        with subject.seeded(f"{subject.name}/{short(dtype)}/{seed}"):
            return list(samples_of(subject.overload, subject.device, dtype))

    def sample(self, position: int, seed: int) -> Sample:
        """One of them; from the first seed where another gives another shape."""
        first, others = self.samples(self.subject.seed), self.samples(seed)
        alike = len(others) == len(first) and repr(others[position]) == repr(first[position])
        return others[position] if alike else first[position]

    def whole(self) -> Iterator[tuple[int, Sample]]:
        """Those without empty tensors, and their positions."""
        for position, sample in enumerate(self.samples(self.subject.seed)):
            if sample.tensors and all(tensor.numel() for tensor in sample.tensors):
                yield position, sample


def _is_of(sample: Sample, dtype: torch.dtype) -> bool:
    """Whether a call that somebody gave is of a dtype: its first tensor with a dtype of data says so."""
    data = [t.dtype for t in sample.tensors if t.is_floating_point() or t.is_complex()]
    return (data or [t.dtype for t in sample.tensors] or [dtype])[0] == dtype


def copied(sample: Sample) -> Sample:
    """The same call in new memory, with the same values, strides and misalignment."""

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.storage_offset() or extent(tensor) != tensor.numel():
            return fresh(Sample(tensor)).tensors[0]
        return tensor.detach().clone()  # begins where its memory does, as what torch.empty gives

    return mapped(sample, copy)


def shapes_of(subject: Subject, sample: Sample) -> tuple[Shape, ...]:
    """Those of a call's tensors, without those that it only writes."""
    return tuple(tuple(tensor.shape) for tensor in subject.inputs(sample).tensors)


def scalars_of(subject: Subject, sample: Sample) -> Mapping[str, str]:
    """A call's arguments that are not tensors, nor have any, as text by name; defaults where not given."""
    arguments = subject.overload.torch_op._schema.arguments
    given = {a.name: a.default_value for a in arguments if a.has_default_value()}
    given |= dict(zip(subject.overload.signature.arguments, sample.args, strict=False)) | dict(sample.kwargs)
    return {name: _text(value) for name, value in sorted(given.items()) if not Sample(value).tensors}


def _text(value: object) -> str:
    return value if isinstance(value, str) else repr(value).removeprefix("torch.").replace(" ", "")
