"""The same call at other sizes: empty, one, primes, each side of a warp, a block, a tile.

A size above 1 that a sample's tensors have is a symbol: in (64, 48) @ (48, 32) there are three, and 48
changes in both. One symbol changes at a time. New values are like the old ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from dotcu.checking.cases.case import Case
from dotcu.checking.cases.derived import (
    Derived,
    accepted,
    completed,
    generator_for,
    has_indices,
    is_integer,
    mapped,
)
from dotcu.checking.subject import Subject
from dotcu.operator import Sample

WARP = 32
_EDGES = tuple(n + d for n in (16, WARP, 64, 128, 256, 512, 1024) for d in (-1, 0, 1))
"""Each side of what blocks and tiles measure."""

EVERY = tuple(sorted({0, 1, 2, 7, 1009, 4099, 65537, *_EDGES}))
FEW = (0, 1, 7, WARP - 1, WARP, WARP + 1, 257, 1009)
FEWEST = (0, 1, WARP + 1)

RANKS = {"0d": (), "2d": (6, 10), "4d": (2, 3, 4, 5)}
"""Shapes for a call whose tensors all have one shape."""

LARGEST = {"cpu": 2**17, "cuda": 2**20}
"""Elements of a case's largest tensor, by where kernels run: the simulator is slow."""

WORK = {"cpu": 2**17, "cuda": 2**21}
"""What the symbols of a case come to at most when multiplied: the steps of a product of matrices, say."""

CAPS = (1000, 250, 36, 10, 2)
"""What other symbols shrink to where that would be more: this, or one more for each, no two being equal."""

Shape = tuple[int, ...]


def symbols(sample: Sample) -> tuple[int, ...]:
    """The sizes above 1 of a sample's tensors, each once, in order."""
    return tuple(dict.fromkeys(n for tensor in sample.tensors for n in tensor.shape if n > 1))


def sizes(subject: Subject, case: Case, numbers: Sequence[int]) -> Iterator[Case]:
    """A case with each symbol at each of some sizes; where that is too much work, the others are small."""
    found = symbols(subject.inputs(case.sample))
    for symbol in found:
        for n in numbers:
            change = _within(WORK[subject.device.type], found, {symbol: n})
            if n != symbol and change is not None:
                word = f"n{n}" if len(found) == 1 else f"{symbol}as{n}"
                yield from _reshaped(subject, case, word, partial(_replaced, change))


def modest(subject: Subject, case: Case) -> Case | None:
    """The case, or one like it that is less work, to derive many from; None where there is none such."""
    found = symbols(subject.inputs(case.sample))
    change = _within(WORK[subject.device.type], found, {})
    if change is None:
        return None
    if all(old == new for old, new in change.items()):
        return case
    return next(_reshaped(subject, case, "small", partial(_replaced, change)), None)


def _within(work: int, found: Sequence[int], wanted: dict[int, int]) -> dict[int, int] | None:
    """What each symbol becomes, where some are wanted to be of a size: the others no larger than they may."""
    for cap in (max(found, default=0), *CAPS):
        change = {symbol: min(symbol, cap + i) for i, symbol in enumerate(found)} | wanted
        if math.prod(change.values()) <= work:
            return change
    return None


def ranks(subject: Subject, case: Case, names: Sequence[str]) -> Iterator[Case]:
    """A case whose tensors have one shape, in shapes of other ranks."""
    shapes = {tensor.shape for tensor in subject.inputs(case.sample).tensors}
    if len(shapes) != 1:
        return
    rank = len(next(iter(shapes)))
    for name in names:
        if len(RANKS[name]) != rank:
            yield from _reshaped(subject, case, name, partial(_always, RANKS[name]))


def beside_numbers(case: Case) -> tuple[int, ...]:
    """Each side of the whole numbers among a case's arguments: of a block's size, say."""
    values = [*case.sample.args, *case.sample.kwargs.values()]
    numbers = [v for v in values if isinstance(v, int) and not isinstance(v, bool) and 2 <= v <= 1024]
    return tuple(sorted({n + d for n in numbers for d in (-1, 0, 1)}))


def _replaced(change: dict[int, int], shape: Shape) -> Shape:
    return tuple(change.get(size, size) for size in shape)


def _always(wanted: Shape, shape: Shape) -> Shape:
    return wanted


def _reshaped(subject: Subject, case: Case, word: str, reshape: Callable[[Shape], Shape]) -> Iterator[Case]:
    inputs = subject.inputs(case.sample)
    if any(math.prod(reshape(tuple(t.shape))) > LARGEST[subject.device.type] for t in inputs.tensors):
        return
    name = f"{case.name}-{word}"

    def build() -> Sample | None:
        generator = generator_for(name, subject.seed)
        changed = mapped(subject.inputs(case.sample), lambda t: alike(t, reshape(tuple(t.shape)), generator))
        return completed(subject, changed)

    if subject.overload.functional is not None or has_indices(inputs, case.dtype):
        # Outputs have the reference's shapes; and indices that it refuses no body can refuse.
        made = build()
        if made is None or (has_indices(inputs, case.dtype) and not accepted(subject, made)):
            return
    yield Derived(name=name, dtype=case.dtype, build=build)


def alike(tensor: Tensor, shape: Shape, generator: torch.Generator) -> Tensor:
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


def _floats(old: Tensor, shape: Shape, generator: torch.Generator) -> Tensor:
    noise = torch.randn(shape, dtype=torch.float64, generator=generator)
    finite = old[old.isfinite()]
    if finite.numel() < 2:
        return noise if not finite.numel() else torch.full_like(noise, float(finite[0]))
    return (finite.mean() + finite.std() * noise).clamp(finite.min(), finite.max())


def _integers(old: Tensor, shape: Shape, generator: torch.Generator) -> Tensor:
    """Whole numbers within the range of old ones; a row that ascends, of offsets say, ascends again."""
    old = old.to(torch.int64)
    low, high = (int(old.min()), int(old.max())) if old.numel() else (0, 1)
    high = min(high, 2**63 - 2)  # one more is the end of the range, and must fit
    values = torch.randint(low, high + 1, shape, generator=generator)
    if old.dim() == 1 and old.numel() > 2 and bool((old.diff() >= 0).all()):
        values = values.sort().values
        values[:1], values[1:][-1:] = low, high
    return values
