"""Which cases a level tries.

A table says it. The counts in it keep the gallery's check within its time: a case costs about 20 ms in
the simulator, and each row is multiplied by overloads, dtypes and samples.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from dotcu.checking.cases import layouts, sizes, values
from dotcu.checking.cases.case import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.subject import Subject
from dotcu.operator import Sample


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What is derived from one sample.

    Attributes:
        ranks: Shapes of other ranks, where all tensors have one shape.
        beside_numbers: Whether also sizes beside whole numbers among the arguments.
        layouts: Of all tensors at once.
        alone: Layouts of one argument at a time.
    """

    sizes: Sequence[int]
    ranks: Sequence[str]
    beside_numbers: bool
    layouts: Sequence[str]
    alone: Sequence[str]
    values: Sequence[str]


FEW = Selection(
    sizes=sizes.FEW,
    ranks=("0d",),
    beside_numbers=False,
    layouts=("transposed", "sliced", "rows-sliced", "expanded", "offset-1", "offset-3", "channels-last"),
    alone=(),
    values=values.FEW,
)
MORE = replace(FEW, alone=("transposed", "offset-1", "expanded"))
EVERY = Selection(
    sizes=sizes.EVERY,
    ranks=tuple(sizes.RANKS),
    beside_numbers=True,
    layouts=tuple(layouts.LAYOUTS),
    alone=("transposed", "rows-sliced", "channels-last", "sliced", "expanded", "offset-1", "offset-4"),
    values=values.EVERY,
)
FEWEST = Selection(
    sizes=sizes.FEWEST,
    ranks=(),
    beside_numbers=True,
    layouts=("transposed", "sliced", "offset-1"),
    alone=(),
    values=values.FEWEST,
)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a level derives.

    Attributes:
        each_dtype: Whether in each dtype, or in the first and the narrowest alone.
        first: From the first sample that has elements and a dimension.
        others: From each sample of another structure; None for nothing.
    """

    each_dtype: bool
    first: Selection
    others: Selection | None = None


CHOICES = {
    Level.QUICK: Choice(each_dtype=False, first=FEW),
    Level.STANDARD: Choice(each_dtype=True, first=MORE),
    Level.FULL: Choice(each_dtype=True, first=EVERY, others=FEWEST),
}


@functools.lru_cache(maxsize=1)  # several kinds of trial ask, one after the other
def choose(subject: Subject) -> tuple[Case, ...]:
    """The author's samples in each dtype, and what is derived from them."""
    dtypes = subject.overload.dtypes
    choice = CHOICES[subject.level]
    deriving = set(dtypes if choice.each_dtype else few_dtypes(dtypes))
    found: dict[str, Case] = {}
    for dtype in dtypes:
        for case in [*subject.given(dtype), *(_derived(subject, dtype, choice) if dtype in deriving else ())]:
            found.setdefault(case.name, case)
    return tuple(found.values())


def few_dtypes(dtypes: Sequence[torch.dtype]) -> tuple[torch.dtype, ...]:
    """The first, and the narrowest: its elements lie at the oddest addresses."""
    return tuple(dict.fromkeys([*dtypes[:1], *sorted(dtypes, key=lambda dtype: dtype.itemsize)[:1]]))


def bases(subject: Subject, dtype: torch.dtype) -> list[Case]:
    """Of the given cases that have elements and a dimension, the first of each structure."""
    unique: dict[object, Case] = {}
    for case in subject.given(dtype):
        tensors = subject.inputs(case.sample).tensors
        if all(t.numel() for t in tensors) and any(t.dim() for t in tensors):
            unique.setdefault(_structure(case.sample), case)
    return list(unique.values())


def _structure(sample: Sample) -> object:
    """The ranks of a call's tensors, and its other arguments."""
    ranks = sample.map_tensors(lambda tensor: torch.empty([0] * tensor.dim(), dtype=tensor.dtype))
    return repr(ranks)


def _derived(subject: Subject, dtype: torch.dtype, choice: Choice) -> Iterator[Case]:
    for i, case in enumerate(bases(subject, dtype)):
        selection = choice.others if i else choice.first
        if selection is not None:
            yield from _of(subject, case, selection)


def _of(subject: Subject, case: Case, selection: Selection) -> Iterator[Case]:
    beside = sizes.beside_numbers(case) if selection.beside_numbers else ()
    yield from sizes.sizes(subject, case, sorted({*selection.sizes, *beside}))
    yield from sizes.ranks(subject, case, selection.ranks)
    less = sizes.modest(subject, case)
    if less is not None:
        yield from _laid_out(subject, less, selection)
        yield from values.values(subject, less, selection.values)


def _laid_out(subject: Subject, case: Case, selection: Selection) -> Iterator[Case]:
    """A case in each layout; those that its rank does not have, in another rank that it may have."""
    shaped = [case, *sizes.ranks(subject, case, ("2d", "4d"))]
    for find, names in ((layouts.layouts, selection.layouts), (layouts.alone, selection.alone)):
        for name in names:
            yield from next(filter(None, (list(find(subject, base, [name])) for base in shaped)), [])
