"""The inputs that an operator is timed on: its author's samples, or similar ones of other shapes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from dotcu.benchmark.workloads.shapes import Shape, ShapeRow, fitted, shapes_name
from dotcu.checking.cases.derived import completed, is_integer, mapped
from dotcu.checking.cases.samples import samples_of, seed_of, short
from dotcu.checking.memory import fresh
from dotcu.checking.numerics import outputs, real
from dotcu.checking.subject import Subject
from dotcu.errors import OperatorError, UsageError
from dotcu.kernel.simulation import extent
from dotcu.operator import Sample
from dotcu.tracebacks import quiet


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """Inputs of one kind.

    Attributes:
        name: Unique for an operator: `float32-4096x4096`.
        dtype: The operator's dtype that it is for; None for a bare kernel.
        shapes: Of its tensors, without those that a call only writes.
        elements: Of its largest tensor.
        make: Gives inputs in new memory on the device, with other random numbers for another seed. It may
            run out of memory, and raises OperatorError where what a call writes is unknown.
        input_bytes: Of what `make` gives.
        result_bytes: Of what a call gives; 0 where it is unknown without a call.
    """

    name: str
    dtype: torch.dtype | None
    shapes: tuple[Shape, ...]
    elements: int
    make: Callable[[int], Sample] = field(repr=False)
    input_bytes: int
    result_bytes: int

    @property
    def bytes(self) -> int:
        """The bytes of all tensors, results among them."""
        return self.input_bytes + self.result_bytes

    def sets(self, count: int, seed: int, device: torch.device) -> list[Sample]:
        """Sets of inputs, each in memory of its own and from a seed of its own, as many as memory reaches.

        Args:
            count: The largest number of sets.
            seed: The seed of the first set; the next has the next one.
            device: The device whose free memory counts.
        """
        free = free_bytes(device)
        fitting = fitting_sets(self.input_bytes, self.result_bytes, free, count)
        return [self.make(seed + i) for i in range(fitting)]


@dataclass(frozen=True, kw_only=True)
class UntimedCase:
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
) -> list[Workload | UntimedCase]:
    """Return the cases that an overload is timed on, dtype by dtype.

    Args:
        samples: Calls to time in place of the author's.
        shapes: Shapes for them, of which any that is not empty serves as a template; none for their own.
        dtypes: Out of the operator's; none for all.

    Raises:
        OperatorError: The author's `samples` function failed, or gave something else.
    """
    own = tuple(sample.map_tensors(lambda t: t.to(subject.device)) for sample in samples)
    found: list[Workload | UntimedCase] = []
    for dtype in dtypes or subject.overload.dtypes:
        source = SampleSource(subject=subject, dtype=dtype, own=own)
        found += _reshaped(source, shapes) if shapes else _as_given(source)
    if not found:
        raise OperatorError(
            f"{subject.name} has no sample without empty tensors, so there is nothing to time.\n"
            f"Yield one:\n    @{subject.overload.__name__}.samples\n    def _(device, dtype):\n"
            "        yield dotcu.Sample(torch.randn(2**24, device=device, dtype=dtype))"
        )
    return found


def _as_given(source: SampleSource) -> Iterator[Workload | UntimedCase]:
    """Yield a case for each sample; of several with equal shapes and scalars for the first."""
    alike: dict[tuple[Shape, ...], dict[tuple[tuple[str, str], ...], tuple[int, Sample]]] = {}
    for position, sample in source.whole():
        of_shapes = alike.setdefault(shapes_of(source.subject, sample), {})
        of_shapes.setdefault(tuple(scalars_of(source.subject, sample).items()), (position, sample))
    for shapes, group in alike.items():
        common = set.intersection(*map(set, group))
        for scalars, (position, sample) in group.items():
            what = "".join(f"-{name}={value}" for name, value in scalars if (name, value) not in common)
            yield _fitting(source, sample, shapes, partial(_again, source, position), what)


def _again(source: SampleSource, position: int, seed: int) -> Sample:
    return copied(source.sample(position, seed))


# ------------------------------------------------------------------ other shapes


def _reshaped(source: SampleSource, rows: Sequence[ShapeRow]) -> Iterator[Workload | UntimedCase]:
    """Yield a case for each row, like the first sample that can take its shapes."""
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
            yield UntimedCase(
                name=f"{short(source.dtype)}-{shapes_name(row)}", reason=reason, status="failed"
            )


def _redrawn(source: SampleSource, position: int, shapes: Sequence[Shape], seed: int) -> Sample:
    """Return the call with tensors of other shapes; those that keep theirs are the author's."""
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
            f"the outputs of {subject.name} at {shapes_name(shapes)} are unknown: the reference does not "
            "take these shapes.\n"
            "Give shapes that the operator takes, or correct the reference."
        )
    return made


# ------------------------------------------------------------------ what it takes


def _fitting(
    source: SampleSource,
    like: Sample,
    shapes: tuple[Shape, ...],
    make: Callable[[int], Sample],
    what: str = "",
) -> Workload | UntimedCase:
    """Return the case, unless the device has too little memory for it.

    Args:
        source: The samples.
        like: The sample that it is like.
        shapes: The shapes of its tensors.
        make: Returns inputs from a seed.
        what: The end of its name, if another case has the same shapes.
    """
    subject, title = source.subject, f"{short(source.dtype)}-{shapes_name(shapes)}{what}"
    inputs = subject.inputs(like).tensors
    unique = {id(t): (t, shape) for t, shape in zip(inputs, shapes, strict=True)}.values()
    results = _results(subject, like, shapes)
    input_bytes = sum(math.prod(shape) * t.itemsize for t, shape in unique)
    result_bytes = sum(math.prod(shape) * size for shape, size in results)
    if words := too_large(input_bytes, result_bytes, free_bytes(subject.device)):
        return UntimedCase(name=title, reason=words, status="skipped")
    return Workload(
        name=title,
        dtype=source.dtype,
        shapes=shapes,
        elements=max(math.prod(shape) for shape in (*shapes, *(shape for shape, _ in results))),
        make=make,
        input_bytes=input_bytes,
        result_bytes=result_bytes,
    )


def _results(subject: Subject, like: Sample, shapes: Sequence[Shape]) -> list[tuple[Shape, int]]:
    """Return the shape and item size of each result, by the reference on tensors without memory.

    Empty if that fails. Not by the body, which may keep its arguments. Written arguments count as inputs.
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
    except Exception:  # its shapes depend on values, or it refuses the call: then the call itself says so
        return []


# ------------------------------------------------------------------ samples


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleSource:
    """The samples of a dtype.

    Attributes:
        own: Samples of the caller, in place of the author's.
    """

    subject: Subject
    dtype: torch.dtype
    own: tuple[Sample, ...]

    def samples(self, seed: int) -> list[Sample]:
        """Return all samples, from a seed."""
        subject, dtype = self.subject, self.dtype
        if self.own:
            return [sample for sample in self.own if _is_of(sample, dtype)]
        if seed == subject.seed:
            return [case.sample for case in subject.given(dtype)]
        with subject.seeded(f"{subject.name}/{short(dtype)}/{seed}"):
            return list(samples_of(subject.overload, subject.device, dtype))

    def sample(self, position: int, seed: int) -> Sample:
        """Return one sample; from the first seed if this one gives other shapes."""
        first, others = self.samples(self.subject.seed), self.samples(seed)
        alike = len(others) == len(first) and repr(others[position]) == repr(first[position])
        return others[position] if alike else first[position]

    def whole(self) -> Iterator[tuple[int, Sample]]:
        """Yield the samples without empty tensors, and their positions."""
        for position, sample in enumerate(self.samples(self.subject.seed)):
            if sample.tensors and all(tensor.numel() for tensor in sample.tensors):
                yield position, sample


def _is_of(sample: Sample, dtype: torch.dtype) -> bool:
    """Return True if a sample is of a dtype, by its first floating-point tensor."""
    data = [t.dtype for t in sample.tensors if t.is_floating_point() or t.is_complex()]
    return (data or [t.dtype for t in sample.tensors] or [dtype])[0] == dtype


def copied(sample: Sample) -> Sample:
    """Return the same call in new memory, with the same values, strides and misalignment."""

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.storage_offset() or extent(tensor) != tensor.numel():
            return fresh(Sample(tensor)).tensors[0]
        return tensor.detach().clone()  # begins where its memory does, as what torch.empty gives

    return mapped(sample, copy)


def shapes_of(subject: Subject, sample: Sample) -> tuple[Shape, ...]:
    """Return the shapes of a call's tensors, without those that it only writes."""
    return tuple(tuple(tensor.shape) for tensor in subject.inputs(sample).tensors)


def scalars_of(subject: Subject, sample: Sample) -> Mapping[str, str]:
    """Return a call's arguments without tensors as text, by name, with defaults."""
    arguments = subject.overload.torch_op._schema.arguments
    values = {a.name: a.default_value for a in arguments if a.has_default_value()}
    values |= dict(zip(subject.overload.signature.arguments, sample.args, strict=False)) | dict(sample.kwargs)
    return {name: _text(value) for name, value in sorted(values.items()) if not Sample(value).tensors}


def _text(value: object) -> str:
    return value if isinstance(value, str) else repr(value).removeprefix("torch.").replace(" ", "")


# ------------------------------------------------------------------ values


_DRAWN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The dtypes that torch draws numbers in; others are drawn in float32 and rounded."""


def drawn(like: Tensor, shape: Shape, top: Callable[[int], int], generator: torch.Generator) -> Tensor:
    """Return a contiguous tensor of a shape, with values like another's, on its device.

    Floating-point numbers are normal, since constants draw less power, and so run faster, than what a user
    has; but where an author's are all of one sign, or within -1 to 1, they stay so. Whole numbers are
    from the author's range. What ascends in the author's ascends again.

    Args:
        like: The tensor to resemble.
        shape: The shape.
        top: Returns the new largest whole number from the old one.
        generator: A generator on the tensor's device.
    """
    if like.dtype == torch.bool:
        return torch.randint(0, 2, shape, device=like.device, generator=generator).to(torch.bool)
    if is_integer(like.dtype):
        return _integers(like, shape, top, generator)
    wide = like.dtype if real(like).dtype in _DRAWN else torch.float32
    made = torch.empty(shape, dtype=wide, device=like.device)
    _floats(real(like))(real(made), generator)
    if like.is_floating_point() and made.dim() and ascends(like):
        made = made.sort().values
    return made.to(like.dtype)


def ascends(tensor: Tensor) -> bool:
    """Return True if a tensor has rows of three elements or more that all ascend: edges of bins, say."""
    if tensor.dim() == 0 or tensor.size(-1) < 3:
        return False
    wide = tensor if real(tensor).dtype in _DRAWN or is_integer(tensor.dtype) else tensor.float()
    return bool((wide[..., :-1] <= wide[..., 1:]).all())


def _floats(old: Tensor) -> Callable[[Tensor, torch.Generator], object]:
    """Return a function that draws numbers like some old ones."""
    finite = old.double().flatten()
    finite = finite[finite.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 0.0)
    if low == high == 0:
        return lambda made, generator: made.normal_(0, 1, generator=generator)
    if low < 0 < high and max(-low, high) > 1:
        mean, deviation = float(finite.mean()), float(finite.std())
        return lambda made, generator: made.normal_(mean, deviation, generator=generator)
    if low == high:  # a constant
        low, high = sorted((low / 2, 1.5 * low))
    return lambda made, generator: made.uniform_(low, high, generator=generator)


def _integers(like: Tensor, shape: Shape, top: Callable[[int], int], generator: torch.Generator) -> Tensor:
    old = like.to(torch.int64)
    low, high = (int(old.min()), int(old.max())) if old.numel() else (0, 1)
    high = max(low, min(top(high), 2**63 - 2))
    values = torch.randint(low, high + 1, shape, device=like.device, generator=generator)
    if len(shape) == old.dim() == 1 and ascends(old):
        values = values.sort().values
        values[:1], values[1:][-1:] = low, high
    return values.to(like.dtype)


def unchanged(largest: int) -> int:
    """Return the range of whole numbers that are data: the same."""
    return largest


def within(old: Sequence[Shape], new: Sequence[Shape]) -> Callable[[int], int]:
    """Return the range of whole numbers that may be indices or offsets, when sizes change.

    It may be an index into any of the old sizes above it, so it stays below the least of what these become.
    A number that is one of the sizes may be an end, and then becomes what that size becomes, or an index
    after all: it stays below the others all the same.
    """
    pairs = {
        (before, after)
        for a, b in zip(old, new, strict=True)
        if len(a) == len(b)
        for before, after in zip(a, b, strict=True)
    }

    def top(largest: int) -> int:
        ends = [after for before, after in pairs if before == largest]
        bounds = [after for before, after in pairs if before > largest]
        return min([*ends, *(bound - 1 for bound in bounds)], default=largest)

    return top


# ------------------------------------------------------------------ memory


RESULTS = 4
"""Results that exist at once: the last two of a contender, a new one, and the reference's."""

SHARE = 0.9
"""The usable share of the free memory: the rest is lost between blocks."""


def free_bytes(device: torch.device) -> int:
    """Return the free bytes of a device, with those that torch has cached."""
    if device.type != "cuda":
        return sys.maxsize
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def needed_bytes(inputs: int, results: int, sets: int = 1) -> int:
    """Return the bytes that it takes to time and to verify a case with some sets of inputs.

    Each set has a copy that new values come from; the oracle has another set.

    Args:
        inputs: The bytes of one set of inputs.
        results: The bytes of one call's results.
        sets: The number of sets.
    """
    return int(((2 * sets + 1) * inputs + RESULTS * results) / SHARE)


def fitting_sets(inputs: int, results: int, free: int, wanted: int) -> int:
    """Return how many sets of inputs fit into free memory; at least one, at most `wanted`.

    Args:
        inputs: The bytes of one set of inputs.
        results: The bytes of one call's results.
        free: The free bytes.
        wanted: The largest number of sets.
    """
    fitting = (sets for sets in range(wanted, 1, -1) if needed_bytes(inputs, results, sets) <= free)
    return next(fitting, 1)


def too_large(inputs: int, results: int, free: int) -> str:
    """Return how much memory a case needs and how much is free; empty if it fits.

    Args:
        inputs: The bytes of one set of inputs.
        results: The bytes of one call's results.
        free: The free bytes.
    """
    least = needed_bytes(inputs, results)
    if least <= free:
        return ""
    return f"needs {least / 2**30:.1f} GiB of memory on the GPU, which has {free / 2**30:.1f} GiB free"
