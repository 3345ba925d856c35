"""Races between tile blocks: accesses of one element by two blocks that nothing orders, one of them a write.

Blocks run one after the other. A stamp is the number of an access, counted over the launch, so that it tells
the block as well: for each element there are the stamps of the last write, of the last atomic, and of the
last reads of two blocks. Two accesses that are both atomic, or `relaxed` and stronger for the whole device,
do not race. An access of a block that released, to a block that acquired from it, comes before.

Source: NVIDIA/cuda-tile, Ops.td and AttrDefs.td, "memory_ordering_semantics"; PTX ISA, "Memory Consistency
Model" for what a release and an acquire order.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dotcu.simulator.machine.memory import Buffer
from dotcu.simulator.machine.shape import Array

MOST_FLAGS = 1024
"""The most elements of one access that a release or an acquire is followed through."""


class Places(NamedTuple):
    """The elements of a region that an access touches, in any array that has one entry for each of them.

    Attributes:
        region: The region.
        first: The first element; with `indices`, added to each.
        shape: The shape of the tile's part that is touched.
        strides: From one element to the next by dimension; empty with `indices`.
        indices: The elements, where they have no such pattern.
        positions: Which of the tile's elements these are, counted from its first; None: all.
    """

    region: Buffer
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    indices: Array | None = None
    positions: Array | None = None

    def window(self, entries: Array) -> Array:
        """Return the entries, as a window into the array if the elements have a pattern, else a copy."""
        if self.indices is not None:
            return entries.take(self.indices + self.first if self.first else self.indices)
        size = entries.itemsize
        strides = tuple(stride * size for stride in self.strides)
        window: Array = np.ndarray(self.shape, entries.dtype, entries, self.first * size, strides)
        return window

    def put(self, entries: Array, values: Array | int) -> None:
        """Set the entries."""
        if self.indices is not None:
            entries[self.indices + self.first] = values
        else:
            self.window(entries)[...] = values

    def moved(self, by: int, factor: int = 1) -> Places:
        """Return the places in an array whose entries are narrower by a factor and begin elsewhere."""
        if self.indices is not None:
            return self._replace(first=self.first * factor + by, indices=self.indices * factor)
        strides = tuple(stride * factor for stride in self.strides)
        return self._replace(first=self.first * factor + by, strides=strides)

    def flat(self) -> Array:
        """Return the elements one by one."""
        if self.indices is not None:
            return self.indices + self.first
        found = np.full((), self.first, np.int64)
        for extent, stride in zip(self.shape, self.strides, strict=True):
            found = found[..., None] + np.arange(extent) * stride
        return found.reshape(-1)


# What an access is checked against, and which stamps it leaves, by what it does and whether it is strong.
_AGAINST: Mapping[tuple[str, bool], tuple[str, ...]] = {
    ("read", False): ("write", "atomic", "other atomic"),
    ("write", False): ("write", "read", "other read", "atomic", "other atomic"),
    ("read", True): ("write",),
    ("write", True): ("write", "read", "other read"),
    ("atomic", True): ("write", "read", "other read"),
}


class BlockShadow:
    """The stamps of the elements of a region, or of regions of the same bytes.

    Attributes:
        base: The address of its first byte.
        size: Its bytes.
        granule: Bytes of an entry: the narrowest access so far; 0 before the first.
    """

    def __init__(self, base: int, size: int) -> None:
        self.base, self.size, self.granule = base, size, 0
        self._stamps: dict[str, Array] = {}

    @classmethod
    def of(cls, regions: list[Buffer]) -> dict[int, BlockShadow]:
        """Return the shadow of each region that anything can write, by the region's id."""
        shadows: dict[int, BlockShadow] = {}
        for region in regions:
            group = [region, *region.aliases]
            if id(region) in shadows or all(each.read_only for each in group):
                continue
            low = min(each.base for each in group) & ~255
            shadow = cls(low, max(each.base + each.size for each in group) - low)
            shadows.update(dict.fromkeys(map(id, group), shadow))
        return shadows

    def parts(self, places: Places, width: int) -> list[Places]:
        """Return the entries of elements of some width: one for each granule of an element."""
        if not self.granule or self.granule > width:
            factor = self.granule // width
            self._stamps = {name: np.repeat(stamps, factor) for name, stamps in self._stamps.items()}
            self.granule = width
        each = width // self.granule
        skew = (places.region.view(width)[1] - self.base) // self.granule
        return [places.moved(skew + k, each) for k in range(each)]

    def earlier(self, action: str, strong: bool, part: Places) -> list[tuple[str, Array]]:
        """Return the stamps that an access has to be compared with, by what left them.

        Args:
            action: "read", "write" or "atomic".
            strong: No race with other strong accesses.
            part: The entries.
        """
        names = _AGAINST[action, strong or action == "atomic"]
        return [(name, part.window(self._stamps[name])) for name in names if name in self._stamps]

    def stamp(self, action: str, strong: bool, part: Places, stamps: tuple[int, int]) -> None:
        """Leave the stamps of an access.

        Args:
            action: "read", "write" or "atomic".
            strong: No race with other strong accesses.
            part: The entries.
            stamps: The access's stamp, and the first one of its block.
        """
        now, since = stamps
        kind = "read" if action == "read" else "atomic" if strong or action == "atomic" else "write"
        latest = self._of(kind)
        if kind != "write":
            before = part.window(latest)
            apart = (before != 0) & (before < since)
            if apart.any():
                other = self._of(f"other {kind}")
                part.put(other, np.where(apart, before, part.window(other)))
        part.put(latest, now)

    def _of(self, name: str) -> Array:
        if name not in self._stamps:
            self._stamps[name] = np.zeros(self.size // self.granule + 2, np.int32)
        return self._stamps[name]


class BlockOrder:
    """The accesses of a launch by number, and which of them come before the current block's next one.

    Attributes:
        now: The number of the last access.
        since: The number of the first access of the current block.
        operations: For each access the number of its operation.
        starts: For each block that has run its first access's number.
    """

    def __init__(self) -> None:
        self.now = 0
        self.since = 1
        self.operations = array("i", [0])
        self.starts: list[int] = []
        self._known: dict[int, int] = {}
        self._released: dict[int, dict[int, int]] = {}

    def begin(self) -> None:
        """Begin the next block, which knows of no other."""
        self.since = self.now + 1
        self.starts.append(self.since)
        self._known = {}

    def next(self, operation: int) -> int:
        """Number an access of an operation."""
        self.now += 1
        self.operations.append(operation)
        return self.now

    def block_of(self, stamp: int) -> int:
        """Return the number of the block that made an access, counted in the order in which blocks run."""
        return bisect.bisect_right(self.starts, stamp) - 1

    def unordered(self, stamps: Array) -> Array:
        """Return which stamps are of accesses that nothing orders before the current block's next one."""
        apart: Array = (stamps != 0) & (stamps < self.since)
        if self._known and apart.any():
            bounds = np.zeros(len(self.starts), np.int64)
            for block, stamp in self._known.items():
                bounds[block] = stamp
            blocks = np.searchsorted(np.asarray(self.starts), stamps[apart], side="right") - 1
            apart[apart] = stamps[apart] > bounds[blocks]
        return apart

    def release(self, addresses: list[int]) -> None:
        """Let those who acquire from these addresses know what came before."""
        known = {**self._known, len(self.starts) - 1: self.now}
        for address in addresses:
            mine = self._released.setdefault(address, {})
            for block, stamp in known.items():
                mine[block] = max(stamp, mine.get(block, 0))

    def acquire(self, addresses: list[int]) -> None:
        """Take over what was released at these addresses."""
        for address in addresses:
            for block, stamp in self._released.get(address, {}).items():
                self._known[block] = max(stamp, self._known.get(block, 0))
