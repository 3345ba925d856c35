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
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dotcu.simulator.machine.access import PREPOSITIONS
from dotcu.simulator.machine.memory import Buffer
from dotcu.simulator.run import Array
from dotcu.tile_ir.module import TileOperation


class TileAccess(NamedTuple):
    """One operation's access to memory.

    Attributes:
        number, operation: The operation, and its number in the kernel.
        action: "read", "write" or "atomic".
        element, bytes: The element type in memory, and its bytes.
        strong: It is atomic, or relaxed and stronger for other blocks: no race with others of its kind.
        acquire: What follows it sees what came before the release that it observed.
        release: Threads that acquire it see what came before.
    """

    number: int
    operation: TileOperation
    action: str
    element: str
    bytes: int
    strong: bool
    acquire: bool
    release: bool

    def __str__(self) -> str:
        return f"{self.action} {PREPOSITIONS[self.action]} {self.bytes} bytes"


MAX_FLAGS = 1024
"""The most elements of one access that a release or an acquire is followed through."""


class Places(NamedTuple):
    """The elements of a region that an access touches, in any array that has one entry for each of them.

    Attributes:
        first: The first element; with `indices`, added to each.
        shape: The shape of the tile's part that is touched.
        strides: From one element to the next by dimension; empty with `indices`.
        indices: The elements, where they have no such pattern.
        within: Which of the tile's elements these are, as slices or counted from its first; None: all.
    """

    region: Buffer
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    indices: Array | None = None
    within: tuple[slice, ...] | Array | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def of(self, tile: Array) -> Array:
        """Return those of a tile's elements that are here."""
        if self.within is None:
            return tile
        return tile[self.within] if isinstance(self.within, tuple) else tile.reshape(-1)[self.within]

    def fill(self, tile: Array, values: Array) -> None:
        """Set those of a contiguous tile's elements that are here."""
        if isinstance(self.within, tuple):
            tile[self.within] = values
        else:
            tile.reshape(-1)[slice(None) if self.within is None else self.within] = values.reshape(-1)

    def window(self, entries: Array) -> Array:
        """Return the entries, as a window into the array if the elements have a pattern, else a copy."""
        if self.indices is not None:
            return entries.take(self.indices + self.first if self.first else self.indices)
        size = entries.itemsize
        strides = tuple(stride * size for stride in self.strides)
        return np.ndarray(self.shape, entries.dtype, entries, self.first * size, strides)

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
        base, size: The address of its first byte, and its bytes.
        granule: Bytes of an entry: the narrowest access so far; 0 before the first.
    """

    def __init__(self, regions: Sequence[Buffer], order: BlockOrder) -> None:
        self.base = min(each.base for each in regions) & ~255
        self.size = max(each.base + each.size for each in regions) - self.base
        self.order, self.granule = order, 0
        self._stamps: dict[str, Array] = {}

    def compare(self, access: TileAccess, places: Places) -> Iterator[tuple[str, Array, Array]]:
        """Yield what nothing orders an access behind: what left stamps, these, and which; leave its own."""
        order, action = self.order, access.action
        strong, now = access.strong or action == "atomic", order.next(access.number)
        kind = "read" if action == "read" else "atomic" if strong else "write"
        for part in self._parts(places, access.bytes):
            for name in _AGAINST[action, strong]:
                if name in self._stamps:
                    stamps = part.window(self._stamps[name])
                    apart = order.unordered(stamps)
                    if apart.any():
                        yield name, stamps, apart
                        break
            latest = self._of(kind)
            if kind != "write":
                before = part.window(latest)
                others = (before != 0) & (before < order.since)
                if others.any():
                    other = self._of(f"other {kind}")
                    part.put(other, np.where(others, before, part.window(other)))
            part.put(latest, now)

    def _parts(self, places: Places, width: int) -> list[Places]:
        """Return the entries of elements of some width: one for each granule of an element."""
        if not self.granule or self.granule > width:
            factor = self.granule // width
            self._stamps = {name: np.repeat(stamps, factor) for name, stamps in self._stamps.items()}
            self.granule = width
        each = width // self.granule
        skew = (places.region.view(width)[1] - self.base) // self.granule
        return [places.moved(skew + k, each) for k in range(each)]

    def _of(self, name: str) -> Array:
        if name not in self._stamps:
            self._stamps[name] = np.zeros(self.size // self.granule + 2, np.int32)
        return self._stamps[name]


def shadows_of(regions: Sequence[Buffer], order: BlockOrder) -> dict[int, BlockShadow]:
    """Return the shadow of each region that anything can write, by the region's id."""
    shadows: dict[int, BlockShadow] = {}
    for region in regions:
        group = [region, *region.aliases]
        if id(region) not in shadows and not all(each.read_only for each in group):
            shadows.update(dict.fromkeys(map(id, group), BlockShadow(group, order)))
    return shadows


class BlockOrder:
    """The accesses of a launch by number, and which of them come before the current block's next one.

    Attributes:
        now, since: The number of the last access, and of the first one of the current block.
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
        """Let tile blocks that acquire from these addresses know what came before."""
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
