"""Cases derived from the author's samples: other sizes, ranks, memory layouts and values.

The table at the end says which of them a level tries. The counts in it keep the gallery's check within its
time: a case costs about 20 ms in the simulator, and each row is multiplied by overloads, dtypes and samples.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from dotcu.checking.cases.samples import Case, seed_of, with_outs
from dotcu.checking.catalogue import Level
from dotcu.checking.memory import mapped
from dotcu.checking.subject import Subject
from dotcu.operator import Sample
from dotcu.operator.schema import Signature


def arguments(signature: Signature, sample: Sample) -> dict[str, Any]:
    """Return a sample's value for each argument, by name, in the order of the call."""
    return {**dict(zip(signature.arguments, sample.args, strict=False)), **sample.kwargs}


def with_arguments(signature: Signature, sample: Sample, values: Mapping[str, Any]) -> Sample:
    """The same call with other values for some of its arguments.

    Args:
        values: By argument.
    """
    names = signature.arguments[: len(sample.args)]
    args = [values.get(name, given) for name, given in zip(names, sample.args, strict=True)]
    return Sample(*args, **{name: values.get(name, given) for name, given in sample.kwargs.items()})


def completed(subject: Subject, inputs: Sample) -> Sample | None:
    """The call with tensors for what it only writes; None if their sizes are unknown."""
    overload = subject.overload
    if overload.functional is None:
        return inputs
    return None if overload.reference_function is None else with_outs(overload, inputs)


def has_indices(sample: Sample, dtype: torch.dtype) -> bool:
    """Return whether a call has integers in addition to its data, whose range depends on other tensors."""
    return any(is_integer(t.dtype) and t.dtype != dtype for t in sample.tensors)


def has_integers(sample: Sample) -> bool:
    """Return whether a call has whole numbers, which may be indices."""
    return any(is_integer(tensor.dtype) for tensor in sample.tensors)


def is_integer(dtype: torch.dtype) -> bool:
    """Return whether it is a type of whole numbers; bool is none."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def generator_for(name: str, seed: int) -> torch.Generator:
    """Random numbers for something with a name, the same on every machine: they are drawn on the CPU."""
    return torch.Generator().manual_seed(seed_of(name, seed))


# --------------------- the same call at other sizes: empty, one, primes, each side of a warp, a block, a tile

Sizes = tuple[int, ...]

WARP = 32
_EDGES = tuple(n + d for n in (16, WARP, 64, 128, 256, 512, 1024) for d in (-1, 0, 1))
"""Each side of what blocks and tiles measure."""

EVERY_SIZE = tuple(sorted({0, 1, 2, 7, 1009, 4099, 65537, *_EDGES}))
FEW_SIZES = (0, 1, 7, WARP - 1, WARP, WARP + 1, 257, 1009)
FEWEST_SIZES = (0, 1, WARP + 1)
IN_EVERY_DTYPE = (*FEWEST_SIZES, 257)
"""The sizes that are tried in each dtype, aligned: the last one ends in a second block."""

RANKS = {"0d": (), "1d": (60,), "2d": (6, 10), "3d": (3, 4, 5), "4d": (2, 3, 4, 5)}
"""Shapes for a call whose tensors all have one shape."""

DEPTHS: Mapping[str, Callable[[Sizes], Sizes]] = {
    "deeper": lambda shape: (2, *shape),
    "flatter": lambda shape: shape[1:],
}
"""For any other call: the new shape of those of its tensors that have the most dimensions."""

LARGEST = {"cpu": 2**17, "cuda": 2**20}
"""Elements of a case's largest tensor, by where kernels run: the simulator is slow."""

WORK = {"cpu": 2**17, "cuda": 2**21}
"""The largest product of a case's symbols: the steps of a product of matrices, for example."""

QUICK_WORK = 2**16
"""The same for a quick check in the simulator, where a size counts as often as one tensor has it."""

CAPS = (1000, 250, 36, 10, 2)
"""Other symbols shrink to these where it would be more: to this, or one more for each, no two being equal."""


def symbols(sample: Sample) -> tuple[int, ...]:
    """The sizes above 1 of a sample's tensors, each once, in order."""
    return tuple(dict.fromkeys(n for tensor in sample.tensors for n in tensor.shape if n > 1))


def _sizes(
    subject: Subject, case: Case, numbers: Sequence[int], hand: int = 0, hands: int = 1
) -> Iterator[Case]:
    """A case with each symbol at each of some sizes; where that is too much work, the others are small.

    Of several hands each has each edge, at one of its sides, and each side, at some edges: by diagonals.
    Every other one is tried in misaligned memory then, which is where other variants of a kernel run.

    Args:
        hand: Of the hands, by the place of the case's dtype.
    """
    inputs = subject.inputs(case.sample)
    found = symbols(inputs)
    offsets = itertools.cycle([n for n in OFFSET_ORDER if n * case.dtype.itemsize <= ALIGNED] or [1])
    turns = itertools.count(hand)
    for i, symbol in enumerate(found):
        for n in numbers:
            edge = round(math.log2(n)) if n else 0
            if n not in IN_EVERY_DTYPE and (edge + n - 2**edge + i + hand) % hands:
                continue
            change = _within(subject, inputs, {symbol: n})
            if n == symbol or change is None:
                continue
            word = f"n{n}" if len(found) == 1 else f"{symbol}as{n}"
            for sized in _reshaped(subject, case, word, _replaced(inputs, change)):
                if hands == 1 or n in IN_EVERY_DTYPE or next(turns) % 2:
                    yield sized
                else:
                    yield _in_layout(subject, sized, f"offset-{next(offsets)}")


def modest(subject: Subject, case: Case) -> Case | None:
    """The case, or one like it that is less work, to derive many from; None if there is none."""
    inputs = subject.inputs(case.sample)
    change = _within(subject, inputs, {})
    if change is None:
        return None
    if all(old == new for old, new in change.items()):
        return case
    return next(
        map(_kept, filter(subject.takes, _reshaped(subject, case, "small", _replaced(inputs, change)))), None
    )


def _kept(case: Case) -> Case:
    """A case that there is, its arguments made once, to derive many from."""
    sample = case.sample
    return replace(case, build=lambda: sample, doubtful=False)


def _within(subject: Subject, inputs: Sample, wanted: dict[int, int]) -> dict[int, int] | None:
    """Return the new size of each symbol, where some are given one: the others no larger than they may be."""
    found, work, times = symbols(inputs), WORK[subject.device.type], dict[int, int]()
    if subject.bounded:
        work, shapes = QUICK_WORK, [tuple(tensor.shape) for tensor in inputs.tensors]
        times = {symbol: max(shape.count(symbol) for shape in shapes) for symbol in found}
    for cap in (max(found, default=0), *CAPS):
        change = {symbol: min(symbol, cap + i) for i, symbol in enumerate(found)} | wanted
        if math.prod(n ** times.get(symbol, 1) for symbol, n in change.items()) <= work:
            return change
    return None


def _ranks(subject: Subject, case: Case, names: Sequence[str]) -> Iterator[Case]:
    """A case in shapes of other ranks, by their names: of all tensors, or of those of the highest rank."""
    shapes = {tuple(tensor.shape) for tensor in subject.inputs(case.sample).tensors}
    highest = max(map(len, shapes), default=0)
    for name in names:
        if name in DEPTHS and len(shapes) > 1 and highest > 1:
            change = {shape: DEPTHS[name](shape) if len(shape) == highest else shape for shape in shapes}
            yield from _reshaped(subject, case, name, change)
        elif name in RANKS and len(shapes) == 1 and len(RANKS[name]) != highest:
            yield from _reshaped(subject, case, name, dict.fromkeys(shapes, RANKS[name]))


LISTS = {"list-of-1": 1, "list-of-17": 17}
"""The lengths of lists of tensors, by the case's name."""


def _lists(subject: Subject, case: Case, names: Sequence[str]) -> Iterator[Case]:
    """A case whose lists of tensors have another length each, all those of one length the same."""
    signature = subject.overload.signature

    def resized(length: int) -> Sample | None:
        sample = subject.inputs(case.sample)
        lists = {
            name: value
            for name, value in arguments(signature, sample).items()
            if isinstance(value, (list, tuple)) and Sample(value).tensors
        }
        if len({len(value) for value in lists.values()}) != 1:
            return None
        changed = {
            name: [value[i] if i < len(value) else value[i % len(value)].clone() for i in range(length)]
            for name, value in lists.items()
        }
        return completed(subject, with_arguments(signature, sample, changed))

    for name in names:
        if resized(LISTS[name]) is not None:
            build = partial(resized, LISTS[name])
            yield case.derive(name, build)


def numbers_in(sample: Sample) -> tuple[float, ...]:
    """The numbers among a call's arguments, also those in lists, each once."""
    given = tree_leaves(([*sample.args], dict(sample.kwargs)))
    numbers = (v for v in given if isinstance(v, (int, float)) and not isinstance(v, bool))
    return tuple(dict.fromkeys(numbers))


def around_integers(case: Case) -> tuple[int, ...]:
    """Each side of the whole numbers among a case's arguments: of a block's size, for example."""
    values = [*case.sample.args, *case.sample.kwargs.values()]
    numbers = [v for v in values if isinstance(v, int) and not isinstance(v, bool) and 2 <= v <= 1024]
    return tuple(sorted({n + d for n in numbers for d in (-1, 0, 1)}))


def _replaced(inputs: Sample, change: Mapping[int, int]) -> dict[Sizes, Sizes]:
    """The shapes of tensors, with some sizes replaced."""
    shapes = {tuple(tensor.shape) for tensor in inputs.tensors}
    return {shape: tuple(change.get(size, size) for size in shape) for shape in shapes}


def _reshaped(subject: Subject, case: Case, word: str, shapes: Mapping[Sizes, Sizes]) -> Iterator[Case]:
    if any(math.prod(shape) > LARGEST[subject.device.type] for shape in shapes.values()):
        return
    name = f"{case.name}-{word}"

    def build() -> Sample | None:
        generator = generator_for(name, subject.seed)
        changed = mapped(subject.inputs(case.sample), lambda t: _alike(t, shapes[tuple(t.shape)], generator))
        return completed(subject, changed)

    # Outputs have the reference's shapes; and indices that it refuses no body can refuse.
    indices = has_indices(subject.inputs(case.sample), case.dtype)
    doubtful = subject.overload.functional is not None or indices
    yield case.derive(word, build, doubtful=doubtful)


def _alike(tensor: Tensor, shape: Sizes, generator: torch.Generator) -> Tensor:
    """A contiguous tensor of a shape, with values in the range of another's; that one if it has the shape."""
    if tuple(tensor.shape) == shape:
        return tensor
    if tensor.dtype == torch.bool:
        values = torch.rand(shape, generator=generator) < 0.5
    elif is_integer(tensor.dtype):
        values = _integers(tensor.cpu(), shape, generator)
    elif tensor.is_complex():
        values = torch.randn(shape, dtype=torch.complex128, generator=generator)
    else:
        values = _floats(tensor.cpu().double(), shape, generator)
    return values.to(tensor.device, tensor.dtype)


def _floats(old: Tensor, shape: Sizes, generator: torch.Generator) -> Tensor:
    noise = torch.randn(shape, dtype=torch.float64, generator=generator)
    finite = old[old.isfinite()]
    if finite.numel() < 2:
        return noise if not finite.numel() else torch.full_like(noise, float(finite[0]))
    return (finite.mean() + finite.std() * noise).clamp(finite.min(), finite.max())


def _integers(old: Tensor, shape: Sizes, generator: torch.Generator) -> Tensor:
    """Whole numbers within the range of old ones; a row that ascends, such as offsets, ascends again."""
    old = old.to(torch.int64)
    low, high = (int(old.min()), int(old.max())) if old.numel() else (0, 1)
    high = min(high, 2**63 - 2)  # one more is the end of the range, and must fit
    values = torch.randint(low, high + 1, shape, generator=generator)
    if old.dim() == len(shape) == 1 and old.numel() > 2 and bool((old.diff() >= 0).all()):
        values = values.sort().values
        values[:1], values[1:][-1:] = low, high
    return values


# --------------- other values for the same call: large, tiny, not finite, of either zero, all equal, extremes

MakeValues = Callable[[Sizes, torch.dtype, torch.Generator], Tensor]
"""Gives a shape's values, for a dtype; in float64, which holds those of every floating-point type."""

SPARSE = 64
"""A row's name applies to one element of this many."""


def _noise(shape: Sizes, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def _between(low: float, high: float, shape: Sizes, generator: torch.Generator) -> Tensor:
    """Magnitudes between two, of either sign."""
    magnitudes = low + (high - low) * torch.rand(shape, dtype=torch.float64, generator=generator)
    return torch.where(_noise(shape, torch.float64, generator) < 0, -magnitudes, magnitudes)


def _large(shape: Sizes, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Products of two stay finite, and sums of some hundred such products."""
    most = torch.finfo(dtype).max ** 0.5 / 16
    return _between(most / 2, most, shape, generator)


def _small(low: float, high: float, shape: Sizes, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Magnitudes between two multiples of the smallest normal number."""
    least = torch.finfo(dtype).smallest_normal
    return _between(low * least, high * least, shape, generator)


def _largest(shape: Sizes, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Finite values whose squares and sums are not."""
    return _between(torch.finfo(dtype).max / 2, torch.finfo(dtype).max, shape, generator)


def _ties(shape: Sizes, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Halves from -2 to 2: most are equal to others, and half of them lie between two whole numbers."""
    return torch.randint(-4, 5, shape, generator=generator).double() / 2


def _spread(shape: Sizes, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Values of every magnitude from 1e-6 to 1e6, as far as their squares are finite."""
    widest = min(20.0, math.log2(torch.finfo(dtype).max) / 2)
    exponents = widest * (2 * torch.rand(shape, dtype=torch.float64, generator=generator) - 1)
    return torch.exp2(exponents).copysign(_noise(shape, dtype, generator))


def _sprinkled(
    values: Sequence[float], shape: Sizes, dtype: torch.dtype, generator: torch.Generator
) -> Tensor:
    """Noise, with each of some values at a few places."""
    noise = _noise(shape, dtype, generator)
    order = torch.randperm(noise.numel(), generator=generator)
    few = -(-noise.numel() // SPARSE)
    for i, value in enumerate(values):
        noise.view(-1)[order[i * few : (i + 1) * few]] = value
    return noise


def _constant(value: float | bool, shape: Sizes, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    return torch.full(shape, value, dtype=torch.bool if isinstance(value, bool) else torch.float64)


FLOATS: Mapping[str, MakeValues] = {
    "normal": _noise,
    "spread": _spread,
    "large": _large,
    "largest": _largest,
    "ties": _ties,
    "tiny": partial(_small, 1, 4),
    "denormal": partial(_small, 1 / 4, 1 / 2),
    "inf": partial(_sprinkled, (torch.inf, -torch.inf)),
    "nan": partial(_sprinkled, (torch.nan,)),
    "minus-zero": partial(_constant, -0.0),
    "all-equal": partial(_constant, 0.75),
    "zeros": partial(_constant, 0.0),
}


def _end(name: str, shape: Sizes, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    return torch.full(shape, getattr(torch.iinfo(dtype), name), dtype=dtype)


def _extremes(shape: Sizes, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """The ends of the range, and the values next to zero, one among the others."""
    info = torch.iinfo(dtype)
    row = torch.tensor(sorted({info.min, info.min + 1, max(info.min, -1), 0, 1, info.max}), dtype=dtype)
    return row[torch.randint(len(row), shape, generator=generator)]


INTEGERS: Mapping[str, MakeValues] = {
    "min": partial(_end, "min"),
    "max": partial(_end, "max"),
    "extremes": _extremes,
}

BOOLS: Mapping[str, MakeValues] = {"true": partial(_constant, True), "false": partial(_constant, False)}

SCALARS = "scalars"
"""The name of a case in which some values are equal to a number among its arguments."""

SHARP = ("ties", SCALARS)
"""The cases that are to show on which side of a jump a result is."""


def _with_scalars(numbers: Sequence[float], dtype: torch.dtype) -> MakeValues:
    """Return what gives values of which some are equal to one of some numbers, as the dtype holds them."""
    if dtype.is_floating_point:
        return partial(_sprinkled, numbers)
    info = torch.iinfo(dtype)
    whole = (int(number) + d for number in numbers for d in (-1, 0, 1) if math.isfinite(number))
    near = torch.tensor([n for n in whole if info.min <= n <= info.max] or [0], dtype=dtype)
    return lambda shape, dtype, generator: near[torch.randint(len(near), shape, generator=generator)]


EVERY_VALUE = (*FLOATS, *INTEGERS, *BOOLS, SCALARS)
FEWER_VALUES = ("spread", "nan", "inf", "large", "tiny", "minus-zero", "extremes", "true")
FEW_VALUES = (*FEWER_VALUES, "largest", *SHARP)
FEWEST_VALUES = ("nan", "extremes")


def _values(subject: Subject, case: Case, names: Sequence[str]) -> Iterator[Case]:
    """A case with each of some values, as far as its dtype has them and its reference takes them.

    A body reads no values, so it cannot refuse any.
    """
    if case.dtype.is_floating_point:
        table = FLOATS
    else:
        table = BOOLS if case.dtype == torch.bool else INTEGERS if is_integer(case.dtype) else {}
    numbers = numbers_in(case.sample)
    if numbers and table and case.dtype != torch.bool:
        table = {**table, SCALARS: _with_scalars(numbers, case.dtype)}
    for name in (name for name in names if name in table):
        if subject.reference is None and not case.dtype.is_floating_point:
            continue  # integers may be indices
        build = partial(_filled, subject, case, f"{case.name}-{name}", table[name])
        doubtful = subject.reference is not None
        yield case.derive(name, build, doubtful=doubtful, sharp=name in SHARP, finite=name == "largest")


def _filled(subject: Subject, case: Case, name: str, fill: MakeValues) -> Sample | None:
    generator = generator_for(name, subject.seed)

    def change(tensor: Tensor) -> Tensor:
        data = tensor.dtype == case.dtype or (case.dtype.is_floating_point and tensor.is_floating_point())
        if not data:
            return tensor
        return fill(tensor.shape, tensor.dtype, generator).to(tensor.device, tensor.dtype)

    return completed(subject, mapped(subject.inputs(case.sample), change))


# ------------------ the same values in other memory layouts, of all tensors of a call at once or of one alone

ChangeLayout = Callable[[Tensor], Tensor | None]
"""Gives a tensor of equal shape and values; None if the layout is none of that rank."""

GAP = 3
"""Columns next to those of a row."""


def _in_order(axes_of: Callable[[int], Sequence[int]], tensor: Tensor) -> Tensor | None:
    """The axes as they lie in memory, the innermost last, by the rank; no layout where there are none."""
    axes = axes_of(tensor.dim())
    back = [axes.index(axis) for axis in range(len(axes))]
    return tensor.permute(*axes).contiguous().permute(back) if axes else None


def _sliced(step: int, gap: int, tensor: Tensor) -> Tensor | None:
    """Every column of a step, in rows that are longer by a gap, if there is more than one row."""
    if tensor.dim() < (2 if gap else 1):
        return None
    end = step * tensor.shape[-1]
    return tensor.new_empty((*tensor.shape[:-1], end + gap))[..., :end:step].copy_(tensor)


def _expanded(tensor: Tensor) -> Tensor | None:
    """The first row, again and again: the one layout that changes values."""
    axis = next((axis for axis, size in enumerate(tensor.shape) if size > 1), None)
    return None if axis is None else tensor.narrow(axis, 0, 1).clone().expand(tensor.shape)


def _offset(elements: int, tensor: Tensor) -> Tensor:
    buffer = tensor.new_empty(tensor.numel() + elements)
    return buffer[elements:].view(tensor.shape).copy_(tensor)


OFFSET_ORDER = (1, 2, 4, 8, 3, 5, 6, 7, *range(9, 16))
"""Offsets in elements, those of other alignments first."""

ALIGNED = 16
"""The bytes of the widest access of a thread: an offset beyond them is like one within."""

OFFSETS: dict[str, ChangeLayout] = {f"offset-{n}": partial(_offset, n) for n in range(1, 16)}

LAYOUTS: dict[str, ChangeLayout] = {
    "transposed": partial(
        _in_order, lambda rank: (*range(rank - 2), rank - 1, rank - 2) if rank >= 2 else ()
    ),
    "reversed": partial(_in_order, lambda rank: range(rank)[::-1] if rank >= 3 else ()),
    "permuted": partial(_in_order, lambda rank: (*range(1, rank), 0) if rank >= 3 else ()),
    "outer-swapped": partial(
        _in_order, lambda rank: (*range(rank - 3), rank - 2, rank - 3, rank - 1) if rank >= 3 else ()
    ),
    "channels-last": partial(_in_order, lambda rank: (0, 2, 3, 1) if rank == 4 else ()),
    "sliced": partial(_sliced, 2, 0),
    "rows-sliced": partial(_sliced, 1, GAP),
    "expanded": _expanded,
    **OFFSETS,
}
"""Layouts by the case's name; the bytes around and between the elements are guarded when the call is made."""

STRIDED = tuple(name for name in LAYOUTS if name not in OFFSETS)
"""Layouts whose elements are not contiguous."""


def _in_layouts(subject: Subject, case: Case, names: Sequence[str], *, alone: bool = False) -> Iterator[Case]:
    """A case in each of some layouts that it can have, of all its tensors or of one argument alone."""
    chosen: list[str | None] = [None]
    if alone:
        given = arguments(subject.overload.signature, case.sample)
        having = [name for name, value in given.items() if Sample(value).tensors]
        chosen = [*having] if len(having) > 1 else []
    before = list(map(_placed, case.sample.tensors))
    for name in names:
        for argument in chosen:
            changed = _in_layout(subject, case, name, argument)
            if list(map(_placed, changed.sample.tensors)) != before:
                yield changed


def _in_layout(subject: Subject, case: Case, name: str, argument: str | None = None) -> Case:
    """A case in a layout, of all its tensors or of one argument; it may have it already."""
    signature = subject.overload.signature

    def build() -> Sample | None:
        sample = case.build()
        if sample is None:
            return None
        written = Sample(*signature.written(sample.args, sample.kwargs)).tensors
        kept = (
            {id(tensor) for tensor in written} if name == "expanded" else set()
        )  # torch refuses such writes

        def change(tensor: Tensor) -> Tensor:
            changed = None if id(tensor) in kept else LAYOUTS[name](tensor)
            return tensor if changed is None or not tensor.numel() else changed

        if argument is None:
            return mapped(sample, change)
        value = arguments(signature, sample)[argument]
        (changed,) = mapped(Sample(value), change).args
        return with_arguments(signature, sample, {argument: changed})

    # the values of an expanded row may fit nothing, if they are indices
    fits = name != "expanded" or subject.reference is None or not has_indices(case.sample, case.dtype)
    word = name if argument is None else f"{name}-{argument}"
    return case.derive(word, build, doubtful=case.doubtful or not fits)


def _placed(tensor: Tensor) -> tuple[object, ...]:
    """The place of elements in memory: of what has one element, or none, strides mean nothing."""
    strides = [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
    return (tensor.storage_offset() * tensor.itemsize % 512, strides if tensor.numel() else [])


# ---------------------------------------------------------------- which of these a level tries

Selection = Mapping[str, Sequence[Any]]
"""What is derived from one sample: sizes, ranks, lengths of lists, layouts of all tensors at once and of one
alone, values."""

FEWER: Selection = {
    "sizes": FEW_SIZES,
    "ranks": ("0d",),
    "layouts": ("transposed", "sliced", "rows-sliced", "expanded", "offset-1", "offset-3", "channels-last"),
    "values": FEWER_VALUES,
}
FEW: Selection = {
    "sizes": (*FEW_SIZES, 4099),
    "ranks": ("0d", "1d", "3d", *DEPTHS),
    "lists": tuple(LISTS),
    "layouts": (*FEWER["layouts"], "outer-swapped"),
    "values": FEW_VALUES,
}
EVERY: Selection = {
    "sizes": EVERY_SIZE,
    "ranks": (*RANKS, *DEPTHS),
    "lists": tuple(LISTS),
    "layouts": tuple(LAYOUTS),
    "alone": ("transposed", "rows-sliced", "channels-last", "sliced", "expanded", "offset-1", "offset-4"),
    "values": EVERY_VALUE,
}
FEWEST: Selection = {
    "sizes": FEWEST_SIZES,
    "layouts": ("transposed", "sliced", "offset-1"),
    "values": FEWEST_VALUES,
}

SELECTIONS: Mapping[Level, tuple[Selection, Selection | None]] = {
    Level.QUICK: (FEW, None),
    Level.STANDARD: ({**FEW, "alone": ("transposed", "offset-1", "expanded")}, None),
    Level.FULL: (EVERY, FEWEST),
}
"""The cases that a level derives from the first sample with elements and a dimension, and from each sample of
another structure."""

HANDS = 3
"""The most dtypes among which cases are dealt at full: the sides of an edge are three."""


@functools.lru_cache(maxsize=1)  # several kinds of trial ask, one after the other
def choose(subject: Subject) -> tuple[Case, ...]:
    """The author's samples in each dtype, and what is derived from them; when quick, in few dtypes.

    At full it is dealt among the dtypes, so that each two properties of a call meet in some case, but not
    each three: each dtype has each edge (16, 32, ..) and each side of one, each layout and each kind of
    value; each argument has each layout, each dimension each size; and sizes meet misaligned memory.
    """
    dtypes = subject.overload.dtypes
    deriving = few_dtypes(dtypes) if subject.level == Level.QUICK else dtypes
    first, others = SELECTIONS[subject.level]
    hands = min(HANDS, len(deriving)) if subject.level == Level.FULL else 1
    unique: dict[str, Case] = {}
    for dtype in dtypes:
        cases = list(subject.given(dtype))
        hand = deriving.index(dtype) if dtype in deriving else -1
        for i, case in enumerate(bases(subject, dtype) if hand >= 0 else ()):
            if i == 0:
                less = subject.level == Level.QUICK and hand > 0
                cases += _of(subject, case, FEWER if less else first, hand, hands)
            elif others is not None and (i - hand) % len(deriving) == 0:
                cases += _of(subject, case, others)
        if subject.bounded:  # where every sample is left out, this is what is tried of the dtype
            cases += filter(None, (modest(subject, case) for case in bases(subject, dtype)[:1]))
        for case in cases:
            unique.setdefault(case.name, case)
    return tuple(unique.values())


def few_dtypes(dtypes: Sequence[torch.dtype]) -> tuple[torch.dtype, ...]:
    """The first, and the narrowest: its elements are at the oddest addresses."""
    return tuple(dict.fromkeys([*dtypes[:1], *sorted(dtypes, key=lambda dtype: dtype.itemsize)[:1]]))


def bases(subject: Subject, dtype: torch.dtype) -> list[Case]:
    """Return the first case of each structure, of the given ones with elements and a dimension.

    The structure is the ranks of the call's tensors, and its other arguments.
    """
    unique: dict[str, Case] = {}
    for case in subject.given(dtype):
        tensors = subject.inputs(case.sample).tensors
        if all(t.numel() for t in tensors) and any(t.dim() for t in tensors):
            structure = case.sample.map_tensors(lambda t: torch.empty([0] * t.dim(), dtype=t.dtype))
            unique.setdefault(repr(structure), case)
    return list(unique.values())


def _of(subject: Subject, case: Case, selection: Selection, hand: int = 0, hands: int = 1) -> Iterator[Case]:
    """The cases of a selection that fall to one of some hands.

    Args:
        hand: Of the hands, by the place of the case's dtype.
    """

    def falls(number: int) -> bool:
        return (number + hand) % hands == 0

    around = around_integers(case) if subject.level == Level.FULL else ()
    yield from _sizes(subject, case, sorted({*selection["sizes"], *around}), hand, hands)
    less = modest(subject, case)
    ranks = [name for i, name in enumerate(selection.get("ranks", ())) if falls(i)]
    yield from _ranks(subject, less or case, ranks if less else [name for name in ranks if name in RANKS])
    if less is None:
        return
    yield from _lists(subject, less, [name for i, name in enumerate(selection.get("lists", ())) if falls(i)])
    # for layouts that its own rank does not have
    shaped = [less, *map(_kept, filter(subject.takes, _ranks(subject, less, ("2d", "4d"))))]
    for name in selection["layouts"]:
        if hands == 1 or name not in OFFSETS or name in FEW["layouts"]:  # the others go with sizes
            yield from next(filter(None, (list(_in_layouts(subject, each, [name])) for each in shaped)), [])
    for i, name in enumerate(selection.get("alone", ())):
        alone = (list(_in_layouts(subject, each, [name], alone=True)) for each in shaped)
        found = next(filter(None, alone), [])
        yield from (each for k, each in enumerate(found) if falls(i + k))
    yield from _values(subject, less, selection["values"])


def derived_cases(subject: Subject, dtype: torch.dtype, endings: Iterable[str]) -> list[Case]:
    """The derived cases of a dtype whose variants end in one of some words.

    Args:
        endings: The words, as patterns.
    """
    wanted = re.compile(rf"(?:^|-)(?:{'|'.join(endings)})$")
    return [case for case in choose(subject) if case.dtype == dtype and wanted.search(case.variant)]


def size_pattern(*numbers: int) -> str:
    """The pattern of cases in which a size was changed to one of some numbers; to any, if none is given."""
    return rf"(?:n|\d+as)(?:{'|'.join(map(str, numbers)) or '[0-9]+'})"
