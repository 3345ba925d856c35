"""What an operator is timed on: its author's samples, or calls of other shapes that are like them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dotcu.benchmark.workloads import memory
from dotcu.benchmark.workloads.drawing import drawn, unchanged, within
from dotcu.benchmark.workloads.shapes import Shape, ShapeRow, fitted, name
from dotcu.benchmark.workloads.source import Source, copied, scalars_of, shapes_of
from dotcu.benchmark.workloads.structure import kept
from dotcu.checking.cases.case import seed_of, short
from dotcu.checking.cases.derived import completed, is_integer, mapped
from dotcu.checking.numerics import outputs
from dotcu.checking.subject import Subject
from dotcu.checking.trials.telling import quiet
from dotcu.errors import OperatorError, UsageError
from dotcu.operator import Sample


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """Inputs of one kind.

    Attributes:
        name: Unique for an operator: `float32-4096x4096`.
        dtype: The operator's dtype that it is for; None for a bare kernel.
        shapes: Of its tensors, without those that a call only writes.
        elements: Of its largest tensor.
        make: Gives inputs in new memory on the device, with other random numbers for another seed. It may
            run out of memory, and raises OperatorError where nobody can say what a call is to write.
        input_bytes: Of what `make` gives.
        result_bytes: Of what a call gives; 0 where that cannot be told without a call.
        kept_bytes: Of those inputs of which new values are another set's.
    """

    name: str
    dtype: torch.dtype | None
    shapes: tuple[Shape, ...]
    elements: int
    make: Callable[[int], Sample] = field(repr=False)
    input_bytes: int
    result_bytes: int
    kept_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Of all tensors, results among them."""
        return self.input_bytes + self.result_bytes

    def sets(self, count: int, seed: int, device: torch.device) -> list[Sample]:
        """Sets of inputs, each in memory of its own and from a seed of its own, as many as memory reaches."""
        free = memory.free_bytes(device)
        fitting = memory.how_many(self.input_bytes, self.result_bytes, free, count, kept=self.kept_bytes)
        return [self.make(seed + i) for i in range(fitting)]


@dataclass(frozen=True, kw_only=True)
class Unfit:
    """A case that is not timed, and why.

    Attributes:
        status: That of its row: "skipped" where this machine is too small for it, "failed" where the
            operator does not take it.
    """

    name: str
    reason: str
    status: Literal["skipped", "failed"]


def workloads(
    subject: Subject,
    *,
    samples: Sequence[Sample] = (),
    shapes: Sequence[ShapeRow] = (),
    dtypes: Sequence[torch.dtype] = (),
) -> list[Workload | Unfit]:
    """What an overload is timed on, dtype by dtype.

    Args:
        samples: Calls to time in place of the author's.
        shapes: Shapes for them, of which any that is not empty serves as a template; none for their own.
        dtypes: Out of the operator's; none for all.

    Raises:
        OperatorError: The author's `samples` function failed, or gave something else.
    """
    own = tuple(sample.map_tensors(lambda t: t.to(subject.device)) for sample in samples)
    found: list[Workload | Unfit] = []
    for dtype in dtypes or subject.overload.dtypes:
        source = Source(subject=subject, dtype=dtype, own=own)
        found += _reshaped(source, shapes) if shapes else _as_given(source)
    if not found:
        raise OperatorError(
            f"{subject.name} has no sample without empty tensors, so there is nothing to time.\n"
            f"Yield one:\n    @{subject.overload.__name__}.samples\n    def _(device, dtype):\n"
            "        yield dotcu.Sample(torch.randn(2**24, device=device, dtype=dtype))"
        )
    return found


def _as_given(source: Source) -> Iterator[Workload | Unfit]:
    """A case for each sample, of several with equal shapes and scalars for the first."""
    alike: dict[tuple[Shape, ...], dict[tuple[tuple[str, str], ...], tuple[int, Sample]]] = {}
    for position, sample in source.whole():
        of_shapes = alike.setdefault(shapes_of(source.subject, sample), {})
        of_shapes.setdefault(tuple(scalars_of(source.subject, sample).items()), (position, sample))
    for shapes, group in alike.items():
        common = set.intersection(*map(set, group))
        for scalars, (position, sample) in group.items():
            what = "".join(f"-{name}={value}" for name, value in scalars if (name, value) not in common)
            yield _fitting(source, sample, shapes, partial(_again, source, position), what)


def _again(source: Source, position: int, seed: int) -> Sample:
    return copied(source.sample(position, seed))


# ------------------------------------------------------------------ other shapes


def _reshaped(source: Source, rows: Sequence[ShapeRow]) -> Iterator[Workload | Unfit]:
    """A case for each row, like the first sample that can take its shapes."""
    for row in rows:
        words: UsageError | None = None
        for position, sample in source.whole():
            try:
                shapes = fitted(shapes_of(source.subject, sample), row)
            except UsageError as error:
                words = words or error
                continue
            yield _fitting(source, sample, shapes, partial(_redrawn, source, position, shapes))
            break
        else:
            reason = str(words) if words else "there is no sample without empty tensors to follow"
            yield Unfit(name=f"{short(source.dtype)}-{name(row)}", reason=reason, status="failed")


def _redrawn(source: Source, position: int, shapes: Sequence[Shape], seed: int) -> Sample:
    """The call with tensors of other shapes; those that keep theirs are the author's."""
    subject = source.subject
    template = subject.inputs(source.sample(position, seed))
    wanted = {id(tensor): shape for tensor, shape in zip(template.tensors, shapes, strict=True)}
    generator = torch.Generator(subject.device).manual_seed(seed_of(f"{subject.name}/{shapes}", seed))
    index = within(shapes_of(subject, template), shapes)

    def draw(tensor: torch.Tensor) -> torch.Tensor:
        shape = wanted[id(tensor)]
        if shape == tuple(tensor.shape):
            return copied(Sample(tensor)).tensors[0]
        is_data = not is_integer(tensor.dtype) or tensor.dtype == source.dtype
        return drawn(tensor, shape, unchanged if is_data else index, generator)

    made = completed(subject, mapped(template, draw))
    if made is None:
        raise OperatorError(
            f"nobody can say what {subject.name} writes at {name(shapes)}: the reference does not take it.\n"
            "Give shapes that the operator takes, or correct the reference."
        )
    return made


# ------------------------------------------------------------------ what it takes


def _fitting(
    source: Source,
    like: Sample,
    shapes: tuple[Shape, ...],
    make: Callable[[int], Sample],
    what: str = "",
) -> Workload | Unfit:
    """The case, unless the device has too little memory for it.

    Args:
        what: Ends its name, where shapes alone do not tell it from another.
    """
    subject, title = source.subject, f"{short(source.dtype)}-{name(shapes)}{what}"
    inputs = subject.inputs(like).tensors
    unique = {id(t): (t, shape) for t, shape in zip(inputs, shapes, strict=True)}.values()
    results = _results(subject, like, shapes)
    input_bytes = sum(math.prod(shape) * t.itemsize for t, shape in unique)
    result_bytes = sum(math.prod(shape) * size for shape, size in results)
    if words := memory.too_large(input_bytes, result_bytes, memory.free_bytes(subject.device)):
        return Unfit(name=title, reason=words, status="skipped")
    return Workload(
        name=title,
        dtype=source.dtype,
        shapes=shapes,
        elements=max(math.prod(shape) for shape in (*shapes, *(shape for shape, _ in results))),
        make=make,
        input_bytes=input_bytes,
        result_bytes=result_bytes,
        kept_bytes=sum(math.prod(shape) * t.itemsize for t, shape in unique if kept(t)),
    )


def _results(subject: Subject, like: Sample, shapes: Sequence[Shape]) -> list[tuple[Shape, int]]:
    """The shape and item size of each result, by the reference on tensors without memory.

    None where that fails. Not by the body, which may keep what it is given. What a call writes of its
    arguments is counted as one of these already.
    """
    overload = subject.overload.functional or subject.overload
    if subject.reference is None or overload.signature.mutates:
        return []
    inputs = subject.inputs(like)
    wanted = iter(shapes)
    try:
        with FakeTensorMode(), quiet():
            fakes = inputs.map_tensors(lambda t: torch.empty(next(wanted), dtype=t.dtype, device=t.device))
            made = outputs(subject.reference(*fakes.args, **fakes.kwargs))
            return [(tuple(int(size) for size in t.shape), t.itemsize) for t in made]
    except Exception:  # its shapes hang on values, or it refuses the call: then the call itself says so
        return []
