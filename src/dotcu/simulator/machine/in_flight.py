"""Copies on their way: issued, and not yet landed in shared memory.

The hardware may let an asynchronous copy land at any time until somebody waits for it. Here
it lands as late as it may: when its lane waits for its group, or when somebody looks at the
mbarrier that tracks it. Who forgets to wait therefore finds the old bytes, and until then
every byte is marked with the copy that it belongs to, so that an access to it can be named.
Copies that nobody waits for never land.

Source: PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from dotcu.simulator.machine.chunk import Array, Chunk, Lanes
from dotcu.simulator.sanitizers.init import WRITTEN
from dotcu.simulator.sanitizers.race import check_write
from dotcu.simulator.semantics.spaces import Access, Part

# How a copy's completion is observed: by groups of one of two kinds, or by an mbarrier alone.
GROUPS = ("async", "bulk")
_MARKS = (1 << 16) - 1


@dataclass(eq=False, kw_only=True)
class Copy:
    """What one instruction copies, for all lanes that ran it.

    Attributes:
        access: The instruction's access to the shared memory that the copy holds.
        lanes: Who issued it.
        places: For each lane, the first of its elements of shared memory.
        values: For each lane, its elements; None where the copy only reads shared memory.
        size: Bytes of each lane's copy.
        kind: "async" or "bulk", whose groups are counted apart, or "mbarrier".
        groups: For each lane, the number of the group that the copy will be in.
        serial: Counts what is issued.
    """

    access: Access
    lanes: Lanes
    places: Array
    values: Array | None
    size: int
    kind: str
    groups: Array
    serial: int

    @property
    def mark(self) -> int:
        """What its bytes are marked with; not 0."""
        return self.serial % _MARKS + 1

    def only(self, mask: Array) -> Copy:
        """The same, of some of its lanes."""
        values = None if self.values is None else self.values[mask]
        return replace(
            self, lanes=self.lanes[mask], places=self.places[mask], values=values, groups=self.groups[mask]
        )


@dataclass(eq=False, kw_only=True)
class Signal:
    """What an mbarrier is to be told once copies have landed.

    Attributes:
        access: The instruction's access to the mbarrier.
        lanes: Who issued it.
        objects: For each lane, the mbarrier: an 8-byte element of shared memory.
        serial: All of the lanes' copies before this one are tracked, or `copy` alone.
        copy: The serial number of the one copy that is tracked.
        tx_bytes: Completed transactions; 0: an arrival.
    """

    access: Access
    lanes: Lanes
    objects: Array
    serial: int
    copy: int | None = None
    tx_bytes: int = 0

    def only(self, mask: Array) -> Signal:
        """The same, of some of its lanes."""
        return replace(self, lanes=self.lanes[mask], objects=self.objects[mask])


class Marks:
    """For every 4 bytes of shared memory, the copy that holds them; 0 for none."""

    def __init__(self, size: int) -> None:
        words = np.zeros(size // 4, np.uint16)
        self.units: dict[int, Array] = {4: words, 8: words.view(np.uint32), 16: words.view(np.uint64)}

    def put(self, start: Array, size: int, mark: int) -> None:
        """Mark `size` bytes from each start."""
        unit = min(16, size)
        repeated = int.from_bytes(mark.to_bytes(2, "little") * (unit // 4), "little")
        index = (start // unit)[:, None] + np.arange(size // unit)
        self.units[unit][index] = repeated

    def at(self, index: Array, width: int) -> Array:
        """The marks of elements of a width."""
        if width == 8:
            both = self.units[8][index]
            return np.where(both & 0xFFFF, both & 0xFFFF, both >> 16)
        marks: Array = self.units[4][index if width == 4 else index // (4 // width)]
        return marks


class InFlight:
    """The copies of a chunk that have not landed.

    Attributes:
        copies: By serial number, in the order in which they were issued.
        signals: What mbarriers wait for.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.copies: dict[int, Copy] = {}
        self.signals: list[Signal] = []
        self.serial = 0
        self.committed = {kind: np.zeros(chunk.lanes, np.int64) for kind in GROUPS}
        size = int(chunk.shared.data.size)
        self.targets, self.sources = Marks(size), Marks(size)

    # Issue

    def issue(
        self, access: Access, lanes: Lanes, places: Array, values: Array | None, size: int, kind: str
    ) -> int:
        """Take in a copy of some lanes; its serial number."""
        groups = self.committed[kind][lanes] if kind in self.committed else np.zeros(len(lanes), np.int64)
        self.serial += 1
        copy = Copy(
            access=access,
            lanes=lanes,
            places=places,
            values=values,
            size=size,
            kind=kind,
            groups=groups,
            serial=self.serial,
        )
        self.copies[copy.serial] = copy
        self._mark(copy, copy.mark)
        return copy.serial

    def _mark(self, copy: Copy, mark: int) -> None:
        marks = self.sources if copy.values is None else self.targets
        marks.put(copy.places * copy.access.width, copy.size, mark)

    # Wait

    def commit(self, kind: str) -> None:
        """The active lanes close their current group."""
        self.committed[kind][self.chunk.numbers()] += 1

    def wait(self, kind: str, pending: int) -> None:
        """The active lanes wait for all of their groups but the `pending` latest."""
        if not self.copies:
            return
        lanes = self.chunk.numbers()
        done = np.full(self.chunk.lanes, -1, np.int64)
        done[lanes] = self.committed[kind][lanes] - pending
        for copy in [c for c in self.copies.values() if c.kind == kind]:
            self._land(copy, copy.groups < done[copy.lanes])

    def complete(self, signal: Signal) -> None:
        """Let land what a signal tracks."""
        for copy in [c for c in self.copies.values() if _tracks(signal, c)]:
            self._land(copy, np.isin(copy.lanes, signal.lanes))

    def due(self, objects: Array) -> list[Signal]:
        """The signals of some mbarriers, which are no longer kept."""
        found: list[Signal] = []
        kept: list[Signal] = []
        for signal in self.signals:
            mask = np.isin(signal.objects, objects)
            if mask.any():
                found.append(signal.only(mask))
            if not mask.all():
                kept.append(signal.only(~mask))
        self.signals = kept
        return found

    def _land(self, copy: Copy, mask: Array) -> None:
        if not mask.any():
            return
        if mask.all():
            del self.copies[copy.serial]
        else:
            self.copies[copy.serial] = copy.only(~mask)
            copy = copy.only(mask)
        self._mark(copy, 0)
        if copy.values is not None:
            with acting(self.chunk, copy.lanes):
                land(self.chunk, copy.access, copy.places, copy.values)

    # Look

    def conflicts(self, index: Array, width: int, *, writes: bool) -> tuple[Array, Copy | None]:
        """Which elements an access must not touch yet, and the copy that holds the first of them."""
        marks = self.targets.at(index, width)
        if writes and any(c.values is None for c in self.copies.values()):
            marks = np.where(marks, marks, self.sources.at(index, width))
        mask: Array = marks != 0
        if not mask.any():
            return mask, None
        first = int(marks[mask][0])
        return mask, next((c for c in self.copies.values() if c.mark == first), None)


def _tracks(signal: Signal, copy: Copy) -> bool:
    if signal.copy is not None:
        return copy.serial == signal.copy
    return copy.kind == "async" and copy.serial <= signal.serial


def land(chunk: Chunk, access: Access, places: Array, values: Array) -> None:
    """Write what the active lanes copied into shared memory, a row of elements for each lane."""
    shared = chunk.shared
    part = Part(shared.views[access.width], None, places, None, None, shared.races)
    if shared.races is not None:
        for column in range(values.shape[1]):
            check_write(chunk, access, part, places + column, values[:, column])
    index = places[:, None] + np.arange(values.shape[1])
    chunk.shared.views[access.width][index] = values
    chunk.shared.shadows[access.width][index] = WRITTEN[access.width]


def in_flight(chunk: Chunk) -> InFlight:
    """The copies of a chunk."""
    if chunk.in_flight is None:
        chunk.in_flight = InFlight(chunk)
    return chunk.in_flight


@contextmanager
def acting(chunk: Chunk, lanes: Lanes) -> Iterator[None]:
    """Have some lanes active for a while."""
    kept = chunk.active
    chunk.active = lanes
    try:
        yield
    finally:
        chunk.active = kept
