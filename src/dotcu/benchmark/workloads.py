"""The inputs that an operator is timed on: its author's samples, or similar ones of other shapes."""

from __future__ import annotations

import difflib
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from dotcu.checking.cases.derived import completed, is_integer
from dotcu.checking.cases.samples import samples_of, seed_of, short
from dotcu.checking.memory import fresh, mapped, same_bits, without_repeats
from dotcu.checking.numerics import outputs, real
from dotcu.checking.subject import Subject
from dotcu.checking.trials.fresh_values import COMPUTED
from dotcu.errors import OperatorError, UsageError
from dotcu.kernel.arguments.memory import extent
from dotcu.operator import Overload, Sample
from dotcu.tracebacks import quiet


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """Inputs of one kind.

    Attributes:
        name: Unique for an operator: `float32-4096x4096`.
        dtype: The operator's dtype that it is for; None for a bare kernel.
        shapes: Of its tensors, without those that a call only writes; `elements` are those of the largest.
        make: Gives inputs in new memory, with other random numbers for another seed. It may run out of
            memory, and raises OperatorError where what a call writes is unknown.
        input_bytes, result_bytes: Of what `make` gives, and a call; 0 where that is unknown without a call.
    """

    name: str
    dtype: torch.dtype | None
    shapes: tuple[InputShape, ...]
    elements: int
    make: Callable[[int], Sample] = field(repr=False)
    input_bytes: int
    result_bytes: int

    @property
    def bytes(self) -> int:
        """The bytes of all tensors, results among them."""
        return self.input_bytes + self.result_bytes

    def sets(self, count: int, seed: int, device: torch.device) -> list[Sample]:
        """Return at most `count` sets of inputs, each from a seed of its own, as many as memory reaches.

        Args:
            count, seed, device: The first set has that seed; the free memory of that device counts.
        """
        free = free_bytes(device)
        while count > 1 and _needed_bytes(self.input_bytes, self.result_bytes, sets=count) > free:
            count -= 1
        return [self.make(seed + i) for i in range(max(1, count))]


@dataclass(frozen=True, kw_only=True)
class UntimedCase:
    """A case that is not timed: this machine is too small for it, or the operator does not take it."""

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
        subject, dtypes: The overload, and out of its dtypes those to time; none for all.
        samples, shapes: Calls to time in place of the author's, and shapes for them; none for their own.
    """
    own = tuple(sample.map_tensors(lambda t: t.to(subject.device)) for sample in samples)
    cases: list[Workload | UntimedCase] = []
    for dtype in dtypes or subject.overload.dtypes:
        source = partial(_samples, subject, dtype, own)
        cases += _reshaped(subject, dtype, source, shapes) if shapes else _as_given(subject, dtype, source)
    if not cases:
        raise OperatorError(
            f"{subject.name} has no sample without empty tensors, so there is nothing to time.\n"
            f"Yield one:\n    @{subject.overload.__name__}.samples\n    def _(device, dtype):\n"
            "        yield dotcu.Sample(torch.randn(2**24, device=device, dtype=dtype))"
        )
    return cases


_Source = Callable[[int], list[Sample]]  # returns the samples of a dtype, from a seed


def _samples(subject: Subject, dtype: torch.dtype, own: Sequence[Sample], seed: int) -> list[Sample]:
    """Return the samples of a dtype; those of the caller, if any, in place of the author's."""
    if own:
        return [sample for sample in own if _dtype_of(sample, dtype) == dtype]
    if seed == subject.seed:
        return [case.sample for case in subject.given(dtype)]
    with subject.seeded(f"{subject.name}/{short(dtype)}/{seed}"):
        return list(samples_of(subject.overload, subject.device, dtype))


def _one(subject: Subject, source: _Source, position: int, seed: int) -> Sample:
    """Return one sample; from the first seed if this one gives other shapes."""
    first, others = source(subject.seed), source(seed)
    alike = len(others) == len(first) and repr(others[position]) == repr(first[position])
    return others[position] if alike else first[position]


def _whole(subject: Subject, source: _Source) -> Iterator[tuple[int, Sample]]:
    """Yield the samples without empty tensors, and their positions."""
    for position, sample in enumerate(source(subject.seed)):
        if sample.tensors and all(tensor.numel() for tensor in sample.tensors):
            yield position, sample


def _dtype_of(sample: Sample, default: torch.dtype) -> torch.dtype:
    """Return the dtype of a sample's first floating-point tensor, or else of its first tensor."""
    dtypes = sorted(
        (t.dtype for t in sample.tensors), key=lambda d: not (d.is_floating_point or d.is_complex)
    )
    return dtypes[0] if dtypes else default


def _as_given(subject: Subject, dtype: torch.dtype, source: _Source) -> Iterator[Workload | UntimedCase]:
    """Yield a case for each sample; of several with equal shapes and scalars for the first."""
    alike: dict[tuple[InputShape, ...], dict[tuple[tuple[str, str], ...], tuple[int, Sample]]] = {}
    for position, sample in _whole(subject, source):
        of_shapes = alike.setdefault(_shapes_of(subject, sample), {})
        of_shapes.setdefault(_scalars_of(subject, sample), (position, sample))
    for shapes, group in alike.items():
        common = set.intersection(*map(set, group))
        for scalars, (position, sample) in group.items():
            name = "".join(f"-{name}={value}" for name, value in scalars if (name, value) not in common)
            one = partial(_one, subject, source, position)
            yield _fitting(
                subject, dtype, sample, shapes, partial(_copied_one, one), f"{shapes_name(shapes)}{name}"
            )


def _copied_one(one: Callable[[int], Sample], seed: int) -> Sample:
    return _copied(one(seed))


def _copied(sample: Sample) -> Sample:
    """Return the same call in new memory, with the same values, strides and misalignment."""

    def copy(tensor: Tensor) -> Tensor:
        if tensor.storage_offset() or extent(tensor) != tensor.numel():
            return fresh(Sample(tensor)).tensors[0]
        return tensor.detach().clone()  # begins where its memory does, as what torch.empty gives

    return mapped(sample, copy)


def _shapes_of(subject: Subject, sample: Sample) -> tuple[InputShape, ...]:
    """Return the shapes of a call's tensors, without those that it only writes."""
    return tuple(tuple(tensor.shape) for tensor in subject.inputs(sample).tensors)


def _scalars_of(subject: Subject, sample: Sample) -> tuple[tuple[str, str], ...]:
    """Return a call's arguments without tensors as pairs of name and text, with defaults."""
    arguments = subject.overload.torch_op._schema.arguments
    values = {a.name: a.default_value for a in arguments if a.has_default_value()}
    values |= dict(zip(subject.overload.signature.arguments, sample.args, strict=False)) | dict(sample.kwargs)
    return tuple(
        (name, value if isinstance(value, str) else repr(value).removeprefix("torch.").replace(" ", ""))
        for name, value in sorted(values.items())
        if not Sample(value).tensors
    )


def _reshaped(
    subject: Subject, dtype: torch.dtype, source: _Source, rows: Sequence[ShapeRow]
) -> Iterator[Workload | UntimedCase]:
    """Yield a case for each row, like the first sample that can take its shapes."""
    for row in rows:
        reason = ""
        for position, sample in _whole(subject, source):
            try:
                shapes = fitted(_shapes_of(subject, sample), row)
            except UsageError as error:
                reason = reason or str(error)
                continue
            make = partial(_redrawn, subject, dtype, partial(_one, subject, source, position), shapes)
            yield _fitting(subject, dtype, sample, shapes, make, shapes_name(shapes))
            break
        else:
            yield UntimedCase(
                name=f"{short(dtype)}-{shapes_name(row)}",
                reason=reason or "there is no sample without empty tensors to follow",
                status="failed",
            )


def _redrawn(
    subject: Subject,
    dtype: torch.dtype,
    one: Callable[[int], Sample],
    shapes: Sequence[InputShape],
    seed: int,
) -> Sample:
    """Return the call with tensors of other shapes; those that keep theirs are the author's."""
    template = subject.inputs(one(seed))
    wanted = {id(tensor): shape for tensor, shape in zip(template.tensors, shapes, strict=True)}
    generator = torch.Generator(subject.device).manual_seed(seed_of(f"{subject.name}/{shapes}", seed))
    index = _within(_shapes_of(subject, template), shapes)

    def draw(tensor: Tensor) -> Tensor:
        shape = wanted[id(tensor)]
        if shape == tuple(tensor.shape):
            return _copied(Sample(tensor)).tensors[0]
        is_data = not is_integer(tensor.dtype) or tensor.dtype == dtype
        return _drawn(tensor, shape, generator, None if is_data else index)

    sample = completed(subject, mapped(template, draw))
    if sample is None:
        raise OperatorError(
            f"the outputs of {subject.name} at {shapes_name(shapes)} are unknown: the reference does not "
            "take these shapes.\n"
            "Give shapes that the operator takes, or correct the reference."
        )
    return sample


def _fitting(
    subject: Subject, dtype: torch.dtype, like: Sample, shapes: tuple[InputShape, ...],
    make: Callable[[int], Sample], name: str,
) -> Workload | UntimedCase:  # fmt: skip
    """Return the case of a sample with some shapes, unless the device has too little memory for it."""
    title = f"{short(dtype)}-{name}"
    inputs = subject.inputs(like).tensors
    unique = {id(t): (t, shape) for t, shape in zip(inputs, shapes, strict=True)}.values()
    results = _results(subject, like, shapes)
    input_bytes = sum(math.prod(shape) * t.itemsize for t, shape in unique)
    result_bytes = sum(math.prod(shape) * size for shape, size in results)
    needed, free = _needed_bytes(input_bytes, result_bytes), free_bytes(subject.device)
    if needed > free:
        reason = f"needs {needed / 2**30:.1f} GiB of memory on the GPU, which has {free / 2**30:.1f} GiB free"
        return UntimedCase(name=title, reason=reason, status="skipped")
    return Workload(
        name=title, dtype=dtype, shapes=shapes, make=make,
        elements=max(math.prod(shape) for shape in (*shapes, *(shape for shape, _ in results))),
        input_bytes=input_bytes, result_bytes=result_bytes,
    )  # fmt: skip


def _results(subject: Subject, like: Sample, shapes: Sequence[InputShape]) -> list[tuple[InputShape, int]]:
    """Return the shape and item size of each result, by the reference on tensors without memory."""
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


_DRAWN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # others are drawn in float32


def _drawn(
    like: Tensor, shape: InputShape, generator: torch.Generator, top: Callable[[int], int] | None = None
) -> Tensor:
    """Return a contiguous tensor of a shape, with values like another's, on its device.

    Floating-point numbers are normal, since constants draw less power than what a user has; but where an
    author's are all of one sign, or within -1 to 1, they stay so. Whole numbers are from the author's range,
    whose end `top` changes. What ascends in the author's ascends again.
    """
    if like.dtype == torch.bool:
        return torch.randint(0, 2, shape, device=like.device, generator=generator).to(torch.bool)
    if is_integer(like.dtype):
        old = like.to(torch.int64)
        low, high = (int(old.min()), int(old.max())) if old.numel() else (0, 1)
        high = max(low, min(top(high) if top else high, 2**63 - 2))
        made = torch.randint(low, high + 1, shape, device=like.device, generator=generator)
        if len(shape) == old.dim() == 1 and ascends(old):
            made = made.sort().values
            made[:1], made[1:][-1:] = low, high
        return made.to(like.dtype)
    wide = like.dtype if real(like).dtype in _DRAWN else torch.float32
    made = torch.empty(shape, dtype=wide, device=like.device)
    _draw_floats(real(made), real(like), generator)
    if like.is_floating_point() and made.dim() and ascends(like):
        made = made.sort().values
    return made.to(like.dtype)


def _draw_floats(made: Tensor, like: Tensor, generator: torch.Generator) -> None:
    finite = like.double().flatten()
    finite = finite[finite.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 0.0)
    if low == high == 0:
        made.normal_(0, 1, generator=generator)
    elif low < 0 < high and max(-low, high) > 1:
        made.normal_(float(finite.mean()), float(finite.std()), generator=generator)
    else:
        if low == high:  # a constant
            low, high = sorted((low / 2, 1.5 * low))
        made.uniform_(low, high, generator=generator)


def ascends(tensor: Tensor) -> bool:
    """Return True if a tensor has rows of three elements or more that all ascend: edges of bins, say."""
    if tensor.dim() == 0 or tensor.size(-1) < 3:
        return False
    wide = tensor if real(tensor).dtype in _DRAWN or is_integer(tensor.dtype) else tensor.float()
    return bool((wide[..., :-1] <= wide[..., 1:]).all())


def _within(old: Sequence[InputShape], new: Sequence[InputShape]) -> Callable[[int], int]:
    """Return the largest of whole numbers that may be indices or offsets, when sizes change.

    An index into any of the old sizes above it stays below the least of what these become. A number that is
    one of the sizes may be an end: it becomes what that size becomes, as far as it is below the others.
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


RESULTS = 4  # that exist at once: the last two of a contender, a new one, and the reference's
SHARE = 0.9  # of the free memory that is usable: the rest is lost between blocks


def free_bytes(device: torch.device) -> int:
    """Return the free bytes of a device, with those that torch has cached."""
    if device.type != "cuda":
        return sys.maxsize
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _needed_bytes(inputs: int, results: int, sets: int = 1) -> int:
    """Return the bytes of a case: each set of inputs has a copy, one has two; the oracle has another."""
    return int(((max(2 * sets, 3) + 1) * inputs + RESULTS * results) / SHARE)


# ---------------------------------------------------------------- shapes, as options and calls have them

InputShape = tuple[int, ...]
ShapeRow = tuple[InputShape, ...]  # the shape of the first tensor, or one for each
NO_SIZES = "0d"  # the text for a tensor without dimensions

_SIZE = re.compile(r"(\d{1,19})(?:\^(\d{1,2}))?")


def parse_shapes(text: str) -> list[ShapeRow]:
    """Return the rows of a text such as `4096x4096,2^28,64x48:48x32`; UsageError for another form."""
    return [tuple(_shape(part, row) for part in row.split(":")) for row in text.replace(" ", "").split(",")]


def shape_rows(shapes: str | Iterable[str | Sequence[int] | Sequence[Sequence[int]]]) -> list[ShapeRow]:
    """Return the rows of text, or of a list whose items are text, a shape, or a shape for each tensor."""
    items = [shapes] if isinstance(shapes, str) else shapes
    return [row for item in items for row in parse_shapes(item if isinstance(item, str) else _text(item))]


def _text(item: object) -> str:
    """A shape, or several, as text: `4096x4096`, `0d`, `64x48:48x32`."""
    if not isinstance(item, Sequence):
        raise UsageError(f"shapes holds {item!r}.\nGive text or tuples: shapes=['4096x4096', (1024,)].")
    if all(isinstance(size, int) for size in item):
        return "x".join(map(str, item)) or NO_SIZES
    return ":".join(map(_text, item))


def _shape(part: str, row: str) -> InputShape:
    if part == NO_SIZES:
        return ()
    sizes = []
    for word in part.split("x"):
        match = _SIZE.fullmatch(word)
        size = int(match[1]) ** int(match[2] or 1) if match else 0
        if size < 1 or size >= 2**63:
            raise UsageError(
                f"{row!r} is not a shape: {word!r} is not a size.\n"
                "Sizes are whole numbers from 1 on, or powers such as 2^28, joined by x; shapes of several "
                "tensors are joined by : and rows by a comma.\nType: --shapes 4096x4096,2^28"
            )
        sizes.append(size)
    return tuple(sizes)


def shapes_name(shapes: Sequence[InputShape]) -> str:
    """Return shapes as a name: `4096x4096`, or `64x48:48x32` where they differ."""
    return _text(shapes[0] if len(set(shapes)) == 1 else shapes)


def fitted(template: Sequence[InputShape], row: ShapeRow) -> tuple[InputShape, ...]:
    """Return the shapes of all tensors of a call: those of the row, or such that they follow the first one.

    A tensor that has the first one's shape goes on having it. Any other keeps its dimensions, of which those
    that measure what one of the first tensor's does go on doing so; sizes of 1 stay. `template` has the
    shapes of a sample's tensors.
    """
    if len(row) == len(template):
        return tuple(row)
    example = f"\nType: --shapes {_text(template)}" if template else ""
    shown = ", ".join(map(_text, template)) or "none"
    if len(row) > 1 or not template:
        raise UsageError(
            f"{shapes_name(row)} has {len(row)} shapes, and a call has {len(template)} tensors: {shown}.\n"
            f"Give one shape for the first tensor, or one for each.{example}"
        )
    (new,), old = row, template[0]
    others = [shape for shape in template if shape != old]
    if others and len(new) != len(old):
        raise UsageError(
            f"{_text(new)} has {len(new)} dimensions, a sample's first tensor {len(old)}: the shapes "
            f"of the others of {shown} do not follow.\nGive a shape for each.{example}"
        )
    shared = {size for shape in others for size in shape}
    change: dict[int, int] = {}
    for before, after in zip(old, new, strict=False):
        if before == 1 or before not in shared:
            continue
        if change.setdefault(before, after) != after:
            raise UsageError(
                f"the first tensor of a sample has the size {before} more than once, and in "
                f"{_text(new)} it is {change[before]} and {after}: another tensor has it too, "
                f"and could follow either.\nGive a shape for each tensor.{example}"
            )
    return tuple(
        new if shape == old else tuple(change.get(size, size) for size in shape) for shape in template
    )


_SHORTER = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "fp64": "float64"}


def choose_dtypes(
    overload: Overload, names: Sequence[str | torch.dtype], *, option: str = "--dtypes"
) -> tuple[torch.dtype, ...]:
    """Return the dtypes of an operator that an option names; all if none is named.

    Args:
        overload, names, option: An unknown name is answered with the operator's nearest, after the option.
    """
    known = {short(dtype): dtype for dtype in overload.dtypes}
    chosen = []
    for name in names:
        text = short(name) if isinstance(name, torch.dtype) else name.strip().removeprefix("torch.")
        text = _SHORTER.get(text, text)
        if text not in known:
            nearest = difflib.get_close_matches(text, known, n=1, cutoff=0) or list(known)
            raise UsageError(
                f"{overload.qualified_name} has no dtype {text!r}; it has {', '.join(known)}.\n"
                f"Name some of these, or declare it: @dotcu.op(..., dtypes=...).\nType: {option} {nearest[0]}"
            )
        chosen.append(known[text])
    return tuple(dict.fromkeys(chosen)) or overload.dtypes


# ---------------------------------------------------------------- new values before each timed call


class InputValues:
    """Writes values of a turn into sets of inputs; in one turn, all sets have the same values.

    Takes the memory of another copy of all sets, and sets the values of all.

    Args:
        sets: The same call with several sets of tensors, whose values are used in rotation.
        outs: Keyword arguments that a call only writes; they keep what the last call wrote.
        poisoned: Tensors that are overwritten before each call, so that one that writes nothing shows.

    Attributes:
        vary: True if values differ from turn to turn; else a remembered result is never wrong.
        turns: The turn whose values a set has, by its `id`.
    """

    def __init__(
        self, sets: Sequence[Sample], *, outs: Sequence[str] = (), poisoned: Sequence[Tensor] = ()
    ) -> None:
        self._first, self._outs, self._poisoned = sets[0], outs, poisoned
        self.turns = {id(sample): 0 for sample in sets}
        self._values = [_values(tensors) for tensors in zip(*map(self._tensors, sets), strict=True)]
        self.vary = any(not same_bits([one], own[:1]) for own in self._values for one in own[1:])
        for sample in sets:
            self._write(sample, 0)

    def __call__(self, sample: Sample, turn: int) -> None:
        """Write the values of a turn into a set, on torch's current stream."""
        for tensor in self._poisoned:
            tensor.fill_(torch.nan if tensor.is_floating_point() or tensor.is_complex() else 85)
        self._write(sample, turn)
        self.turns[id(sample)] = turn

    def inputs(self, turn: int) -> Sample:
        """Return the values of a turn in new memory."""
        made = fresh(self._first)
        self._write(made, turn)
        return made

    def _write(self, sample: Sample, turn: int) -> None:
        for values, tensor in zip(self._values, self._tensors(sample), strict=True):
            if values:
                without_repeats(tensor.data).copy_(values[turn % len(values)])

    def _tensors(self, sample: Sample) -> tuple[Tensor, ...]:
        """Return the tensors that a call reads, each once."""
        read = {name: value for name, value in sample.kwargs.items() if name not in self._outs}
        return tuple({id(tensor): tensor for tensor in Sample(*sample.args, **read).tensors}.values())


FEW = 4  # a tensor with no more different values is a mask, or has flags


def _values(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the values that one argument takes in turn; none where its elements share memory."""
    values = [without_repeats(tensor.data).clone() for tensor in tensors]
    first = values[0]
    if extent(without_repeats(tensors[0].data)) < first.numel():
        return []
    if not (first.is_floating_point() or first.is_complex()) or not first.numel():
        return values
    if all(same_bits([one], [first]) for one in values) and first.dtype in COMPUTED:
        is_mask = first.numel() >= FEW**2 and first.flatten()[:4096].unique().numel() <= FEW
        values = [first] if is_mask else [first * (1 - i / 16) for i in range(max(2, len(values)))]
    is_square = first.dim() > 1 and first.size(-1) == first.size(-2)
    if first.numel() > 1 and not is_square and (first.is_complex() or not ascends(first)):
        corner = (slice(0, 1),) * first.dim()
        for other in values[1:]:
            other[corner].copy_(first[corner])
    return values
