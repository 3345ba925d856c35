"""Other values in the same memory before every call that is timed, so that a result that was kept is wrong.

Floating-point values move on by some places and shrink a little, so that a sum changes as well as what
hangs on order; 16 elements at either end stay, and torch is not told of the write, so that whoever looks up
a result by its first elements, by an address or by a version finds an old one. Rows that ascend only shrink,
since they may have to. Whole numbers and bools may be indices, which must fit each other, and values with a
structure would lose it: all of these together are those of one of the sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dotcu.benchmark.workloads.drawing import ascends
from dotcu.benchmark.workloads.structure import kept
from dotcu.checking.memory import fresh, same_bits, without_repeats
from dotcu.checking.subject import Subject
from dotcu.checking.trials.choosing import COMPUTED
from dotcu.kernel.allocations import extent
from dotcu.operator import Sample

EDGE = 16
"""So many elements stay at either end, where there are four times as many."""

STEP = 7919
"""By so many places values move on from one turn to the next, or by 16 times as many: then what is copied
stays as aligned as it was."""

SHADES = 61
"""So many turns there are until values are as large as they were; they shrink to half of that."""

Write = Callable[[Tensor, int], None]
"""Gives a tensor its values of a turn, all of them: a call may have changed what it must not."""


class Refreshing(Protocol):
    """What gives the inputs of calls other values."""

    @property
    def changes(self) -> bool:
        """Whether values differ from turn to turn; if not, a result that was kept cannot be told."""

    def __call__(self, sample: Sample, turn: int) -> None:
        """Give the tensors of a set their values of a turn, on torch's current stream."""

    def turn_of(self, sample: Sample) -> int:
        """The turn whose values a set has."""

    def inputs(self, turn: int) -> Sample:
        """The values of a turn in new memory, as the next call would find them."""


class Refresh:
    """Gives sets of inputs other values at each turn; in one turn, all sets have the same ones.

    Takes the memory of one more set, and of all sets for what is `kept`; and sets the values of all.

    Args:
        sets: The same call in several places of memory, with values of their own.
    """

    def __init__(self, subject: Subject, sets: Sequence[Sample]) -> None:
        self._subject, self._sets = subject, sets
        self._turns: dict[int, int] = {}
        self._rows = [_row(tensors) for tensors in zip(*map(self._tensors, sets), strict=True)]
        for sample in sets:
            self._write(sample, 0)

    @property
    def changes(self) -> bool:
        """Whether values differ from turn to turn; if not, a result that was kept cannot be told."""
        return any(row.varies for row in self._rows)

    def __call__(self, sample: Sample, turn: int) -> None:
        """Give the tensors of a set their values of a turn, on torch's current stream."""
        self._write(sample, turn)
        self._turns[id(sample)] = turn

    def turn_of(self, sample: Sample) -> int:
        """The turn whose values a set has."""
        return self._turns.get(id(sample), 0)

    def inputs(self, turn: int) -> Sample:
        """The values of a turn in new memory, as the next call would find them."""
        made = fresh(self._sets[0])
        self._write(made, turn)
        return made

    def _write(self, sample: Sample, turn: int) -> None:
        for row, tensor in zip(self._rows, self._tensors(sample), strict=True):
            if row.write is not None and tensor.numel():
                row.write(without_repeats(tensor.data), turn)

    def _tensors(self, sample: Sample) -> tuple[Tensor, ...]:
        """Those that a call reads, each once: what it only writes stays as the last call left it."""
        outs = self._subject.overload.signature.outs
        kept = {name: value for name, value in sample.kwargs.items() if name not in outs}
        return tuple({id(tensor): tensor for tensor in Sample(*sample.args, **kept).tensors}.values())


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One argument, in all sets.

    Attributes:
        write: None where its values stay.
        varies: Whether they differ from turn to turn.
    """

    write: Write | None
    varies: bool


def _row(tensors: Sequence[Tensor]) -> _Row:
    """How an argument gets its values, from copies of those that it has in the sets."""
    views = [without_repeats(tensor.data) for tensor in tensors]
    first = views[0]
    if extent(first) < first.numel():  # elements share memory
        return _Row(write=None, varies=False)
    if kept(first):
        values = [view.clone() for view in views]
        varies = not all(same_bits([one], values[:1]) for one in values)
        return _Row(write=_taking_turns(values), varies=varies)
    shrinks = first.is_floating_point() and ascends(first)
    write = _shrinking(first.clone()) if shrinks else _moving(first.clone())
    return _Row(write=write, varies=first.numel() > 0)


def _shrinking(base: Tensor) -> Write:
    def write(into: Tensor, turn: int) -> None:
        _scaled(base, into, turn)

    return write


def _taking_turns(values: Sequence[Tensor]) -> Write:
    def write(into: Tensor, turn: int) -> None:
        into.copy_(values[turn % len(values)])

    return write


def _moving(base: Tensor) -> Write:
    def write(into: Tensor, turn: int) -> None:
        source, target = (base.view(-1), into.view(-1)) if _flat(base, into) else (base, into)
        axis = max(range(source.dim()), key=source.size, default=None)
        if axis is None:
            _scaled(source, target, turn)
        else:
            _moved(source, target, axis, turn)

    return write


def _flat(*tensors: Tensor) -> bool:
    return all(tensor.is_contiguous() for tensor in tensors)


def _moved(source: Tensor, target: Tensor, axis: int, turn: int) -> None:
    """Write the source into the target, moved on along an axis between the elements at its ends."""
    size = source.size(axis)
    edge = EDGE if size >= 4 * EDGE else int(size > 2)
    inner = size - 2 * edge
    step = turn * STEP * (16 if inner >= 2**16 else 1) % inner
    parts = [(edge + inner - step, edge, step), (edge, edge + step, inner - step)]
    for start, place, count in parts:
        if count:
            _scaled(source.narrow(axis, start, count), target.narrow(axis, place, count), turn)
    for start in (0, size - edge) if edge else ():
        target.narrow(axis, start, edge).copy_(source.narrow(axis, start, edge))


def _scaled(source: Tensor, target: Tensor, turn: int) -> None:
    factor = 1 - turn % SHADES / 128
    if source.dtype in COMPUTED:
        torch.mul(source, factor, out=target)
    else:  # torch only holds them, 8-bit floats say
        target.copy_(source)
