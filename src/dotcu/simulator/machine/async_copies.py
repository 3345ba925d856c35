"""Copies on their way: issued, and not yet landed in shared memory.

On hardware, an asynchronous copy may land at any time until a thread waits for it. Here
it lands as late as it may: when its thread waits for its group, or when a thread reads the
mbarrier that tracks it. A kernel that does not wait therefore finds the old bytes, and until then
every byte is marked with the copy that it belongs to, so that an access to it can be named.
Copies that no thread waits for never land; those that a mbarrier tracks are reported in the end.

Source: PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from dotcu.simulator.machine.access import shared_part
from dotcu.simulator.machine.memory import WRITTEN
from dotcu.simulator.machine.shape import Threads
from dotcu.simulator.machine.state import Access, AccessPart, Batch, SourceCheck, active_threads
from dotcu.simulator.run import Array

# How a copy's completion is observed: by groups of one of two kinds, or by an mbarrier alone.
GROUPS = ("async", "bulk")
_MARKS = (1 << 16) - 1


@dataclass(eq=False, kw_only=True)
class AsyncCopy:
    """The bytes that one instruction copies, for all threads that ran it.

    Attributes:
        access: The instruction's access to the shared memory that the copy holds.
        threads, indices: The threads that issued it, and for each the first of its elements of shared memory.
        values: For each thread, its elements; None if the copy only reads shared memory.
        kind: "async" or "bulk", whose groups are counted apart, or "mbarrier".
        groups: For each thread, the number of the group that the copy will be in.
        serial: Counts what is issued.
        writes: The numbers of its writes to global memory; see `Observers.async_write`.
        sources: The checks of the memory that it reads until it lands.
    """

    access: Access
    threads: Threads
    indices: Array
    values: Array | None
    kind: str
    groups: Array
    serial: int
    writes: tuple[int, ...] = ()
    sources: tuple[SourceCheck, ...] = ()

    @property
    def mark(self) -> int:
        """The mark of its bytes; not 0."""
        return self.serial % _MARKS + 1


@dataclass(eq=False, kw_only=True)
class CopySignal:
    """The update of an mbarrier once copies have landed.

    Attributes:
        access: The instruction's access to the mbarrier.
        threads, objects: The threads that issued it, and for each the mbarrier: an 8-byte element of shared
            memory.
        serial: All of the threads' copies before this one are tracked, or `copy` alone.
        copy: The serial number of the one copy that is tracked.
        tx_bytes: Completed transactions; 0: an arrival.
    """

    access: Access
    threads: Threads
    objects: Array
    serial: int
    copy: int | None = None
    tx_bytes: int = 0


Issued = TypeVar("Issued", AsyncCopy, CopySignal)


def of_threads(issued: Issued, mask: Array) -> Issued:
    """Return a copy or a signal of some of its threads."""
    fields = vars(issued).items()
    arrays: dict[str, Any] = {name: each[mask] for name, each in fields if isinstance(each, np.ndarray)}
    return replace(issued, **arrays)


_Marks = dict[int, Array]
"""For every 4 bytes of shared memory, the mark of the copy that holds them, 0 for none, by unit."""


def _no_marks(size: int) -> _Marks:
    words = np.zeros(size // 4, np.uint16)
    return {4: words, 8: words.view(np.uint32), 16: words.view(np.uint64)}


def _marks_of(marks: _Marks, index: Array, width: int) -> Array:
    """Return the marks of elements of a width."""
    if width == 8:
        both = marks[8][index]
        return np.where(both & 0xFFFF, both & 0xFFFF, both >> 16)
    return marks[4].take(index if width == 4 else index // (4 // width))


class CopiesInFlight:
    """The copies of a batch that have not landed.

    Attributes:
        copies: By serial number, in the order in which they were issued.
        unfinished: Copies whose writes to global memory no thread has waited for.
        signals: What mbarriers wait for.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.copies: dict[int, AsyncCopy] = {}
        self.unfinished: list[AsyncCopy] = []
        self.signals: list[CopySignal] = []
        self.serial = 0
        self.committed = {kind: np.zeros(batch.threads, np.int64) for kind in GROUPS}
        size = int(batch.shared.data.size)
        self.targets, self.sources = _no_marks(size), _no_marks(size)

    def issue(
        self,
        part: AccessPart,
        values: Array | None,
        kind: str,
        *,
        writes: tuple[int, ...] = (),
        sources: tuple[SourceCheck, ...] = (),
    ) -> int:
        """Take in a copy of some threads; its serial number.

        Args:
            values: The elements that the copy writes; None if it only reads shared memory.
        """
        for note in self.batch.on.target if values is not None else ():
            note(part, part.rows())
        self.serial += 1
        threads = self.batch.numbers(part.positions)
        copy = self.copies[self.serial] = AsyncCopy(
            access=part.access,
            threads=threads,
            indices=part.spread(),
            values=values,
            kind=kind,
            groups=self.committed[kind][threads] if kind in GROUPS else np.zeros(len(threads), np.int64),
            serial=self.serial,
            writes=writes,
            sources=sources,
        )
        if values is not None and kind == "mbarrier" and self.batch.on.issue:
            with self.elements(copy) as (whole, indices):
                for check in self.batch.on.issue:
                    check(whole, indices)
        if writes:
            self.unfinished.append(copy)
        self._mark(copy, copy.mark)
        return copy.serial

    def _mark(self, copy: AsyncCopy, mark: int) -> None:
        """Mark the bytes of a copy; with 0, as free."""
        marks = self.sources if copy.values is None else self.targets
        size, width = copy.access.bytes, copy.access.width
        unit = min(16, size)
        index = (copy.indices * width // unit)[:, None] + np.arange(size // unit)
        marks[unit][index] = int.from_bytes(mark.to_bytes(2, "little") * (unit // 4), "little")

    def commit(self, kind: str) -> None:
        """The active threads close their current group."""
        self.committed[kind][self.batch.numbers()] += 1

    def wait(self, kind: str, pending: int, *, reads: bool = False) -> None:
        """The active threads wait for all of their groups but the `pending` latest.

        Args:
            kind, pending: The kind of the groups, and how many may be left.
            reads: Wait for what the copies read alone.
        """
        if not self.copies and not self.unfinished:
            return
        threads = self.batch.numbers()
        done = np.full(self.batch.threads, -1, np.int64)
        done[threads] = self.committed[kind][threads] - pending
        for copy in [c for c in self.copies.values() if c.kind == kind]:
            self._land(copy, copy.groups < done[copy.threads])
        if kind == "bulk" and not reads:
            unfinished = [(copy, copy.groups < done[copy.threads]) for copy in self.unfinished]
            self.unfinished = [of_threads(copy, ~mask) for copy, mask in unfinished if not mask.all()]
            for copy, mask in unfinished:
                self._complete(copy, mask)

    def _complete(self, copy: AsyncCopy, mask: Array) -> None:
        """Note that some threads of a copy have waited for its writes to global memory."""
        if mask.any():
            with active_threads(self.batch, np.unique(copy.threads[mask])):
                for note in self.batch.on.complete:
                    for number in copy.writes:
                        note(self.batch, number)

    def complete(self, signal: CopySignal) -> None:
        """Land the copies that a signal tracks."""
        for copy in list(self.copies.values()):
            tracked = copy.kind == "async" and copy.serial <= signal.serial
            if signal.copy is not None:
                tracked = copy.serial == signal.copy
            if tracked:
                self._land(copy, np.isin(copy.threads, signal.threads))

    def due(self, objects: Array) -> list[CopySignal]:
        """Remove and return the signals of some mbarriers."""
        masks = [np.isin(signal.objects, objects) for signal in self.signals]
        pairs = list(zip(self.signals, masks, strict=True))
        self.signals = [of_threads(signal, ~mask) for signal, mask in pairs if not mask.all()]
        return [of_threads(signal, mask) for signal, mask in pairs if mask.any()]

    def _land(self, copy: AsyncCopy, mask: Array) -> None:
        """Write what some threads of a copy copied into shared memory, a row of elements for each thread."""
        if not mask.any():
            return
        if mask.all():
            del self.copies[copy.serial]
        else:
            self.copies[copy.serial] = of_threads(copy, ~mask)
            copy = of_threads(copy, mask)
        self._mark(copy, 0)
        for check in copy.sources:
            check(copy.threads)
        batch, shared = self.batch, self.batch.shared
        if batch.on.land:
            may_have_written = copy.values is None or copy.kind == "mbarrier"
            values = None if copy.values is None or may_have_written else copy.values.reshape(-1)
            with self.elements(copy) as (part, indices):
                for note in batch.on.land:
                    note(part, indices, values)
        if copy.values is None:
            return
        index = copy.indices[:, None] + np.arange(copy.values.shape[1])
        shared.views[copy.access.width][index] = copy.values
        shared.shadows[copy.access.width][index] = WRITTEN[copy.access.width]

    @contextmanager
    def elements(self, copy: AsyncCopy) -> Iterator[tuple[AccessPart, Array]]:
        """A copy's part of shared memory, with a thread and an index for each of its elements."""
        count = copy.access.elements if copy.values is None else copy.values.shape[1]
        indices = (copy.indices[:, None] + np.arange(count)).reshape(-1)
        with active_threads(self.batch, np.repeat(copy.threads, count)):
            yield shared_part(self.batch, copy.access, indices), indices

    def conflicts(self, index: Array, width: int, *, writes: bool) -> tuple[Array, AsyncCopy | None]:
        """Return the mask of elements that an access must not touch yet, and the copy of the first.

        Args:
            index, width: The elements in question, and bytes of one.
            writes: True for a write or an atomic.
        """
        marks = _marks_of(self.targets, index, width)
        if writes and any(c.values is None for c in self.copies.values()):
            marks = np.where(marks, marks, _marks_of(self.sources, index, width))
        mask: Array = marks != 0
        if not mask.any():
            return mask, None
        first = int(marks[mask][0])
        return mask, next((c for c in self.copies.values() if c.mark == first), None)


def in_flight(batch: Batch) -> CopiesInFlight:
    """The copies of a batch."""
    return batch.part(CopiesInFlight)
