"""Blocks that run together: their lanes, registers and memory, and who waits where.

A chunk holds whole blocks. Its lanes stand in one row, block after block, each block padded
to whole warps; padding lanes never run. `active` names the lanes of the step at hand: an
ascending array of lane numbers, or None for every lane there is, which is the fast path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dotcu.simulator.finding import Coordinates
from dotcu.simulator.memory import Region

if TYPE_CHECKING:
    from dotcu.simulator.machine import Grid

Array = NDArray[Any]
Lanes = NDArray[np.int64]
WARP = 32


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a launch's threads become lanes.

    Attributes:
        grid: Blocks in x, y, z.
        block: Threads in x, y, z.
        first: Linear number of the chunk's first block.
        blocks: How many blocks the chunk holds.
    """

    grid: Coordinates
    block: Coordinates
    first: int
    blocks: int

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def pitch(self) -> int:
        """Lanes from one block to the next: its threads, padded to whole warps."""
        return -(-self.threads // WARP) * WARP

    @property
    def lanes(self) -> int:
        """All lanes, padding among them."""
        return self.blocks * self.pitch

    def coordinates(self, lane: int) -> tuple[Coordinates, Coordinates]:
        """blockIdx and threadIdx of a lane."""
        block, thread = divmod(lane, self.pitch)
        return _split(self.first + block, self.grid), _split(thread, self.block)


def _split(linear: int, extent: Coordinates) -> Coordinates:
    return (
        linear % extent[0],
        linear // extent[0] % extent[1],
        linear // (extent[0] * extent[1]),
    )


class Private:
    """Memory that is addressed from 0 by each block (shared) or each lane (local).

    Attributes:
        size: Bytes that one owner may touch.
        bases: For each lane, where its owner's bytes begin in `data`; one value if all share them.
        written: One byte for each byte of data: 1 where something wrote it.
    """

    def __init__(self, owners: int, lanes: int, size: int) -> None:
        self.size = size
        pitch = -(-size // 16) * 16
        self.data = np.zeros(owners * pitch, np.uint8)
        self.written = np.zeros(owners * pitch, np.uint8)
        self.views = {w: self.data.view(f"u{w}") for w in (1, 2, 4, 8)}
        self.shadows = {w: self.written.view(f"u{w}") for w in (1, 2, 4, 8)}
        starts = np.arange(owners, dtype=np.uint64) * np.uint64(pitch)
        self.bases = starts if owners == 1 else np.repeat(starts, lanes // owners)


class Chunk:
    """The state of the blocks that run together."""

    def __init__(self, grid: Grid, shape: Shape) -> None:
        self.grid: Grid = grid
        self.shape = shape
        self.lanes = shape.lanes
        self.registers: list[Array] = []
        self.active: Lanes | None = None
        self.hints: dict[int, Region] = {}
        self.shared: Private
        self.local: Private
        self.steps = 0
        self.ready: dict[int, Lanes | None] = {}
        self.stalled: dict[int, Lanes] = {}
        self.live = np.ones(self.lanes, bool)
        self.existing = self.live.copy()
        if shape.pitch != shape.threads:
            self.live = np.tile(np.arange(shape.pitch) < shape.threads, shape.blocks)
            self.existing = self.live.copy()
        self.living = shape.threads * shape.blocks
        self._numbers: Lanes | None = None

    # Registers

    def read(self, slot: int) -> Array:
        """A register's value in the active lanes; one element if all have the same."""
        value = self.registers[slot]
        if self.active is None or value.size == 1:
            return value
        found: Array = value[self.active]
        return found

    def write(self, slot: int, value: Array) -> None:
        """Set a register in the active lanes."""
        active = self.active
        if active is None:
            self.registers[slot] = value
            return
        kept = self.registers[slot]
        if kept.size == 1:
            kept = self.registers[slot] = np.full(self.lanes, kept[0], kept.dtype)
        kept[active] = value

    def numbers(self) -> Lanes:
        """The active lanes' numbers."""
        if self.active is not None:
            return self.active
        if self._numbers is None:
            self._numbers = np.arange(self.lanes)
        return self._numbers

    def count(self) -> int:
        """How many lanes are active."""
        return self.lanes if self.active is None else len(self.active)

    # Where lanes go next

    def send(self, block: int, lanes: Lanes | None) -> None:
        """Let lanes go on at a basic block, together with those that are there already."""
        if lanes is not None:
            if len(lanes) == 0:
                return
            if block in self.ready:
                there = self.ready[block]
                assert there is not None
                lanes = np.concatenate((there, lanes))
                lanes.sort()
            if len(lanes) == self.lanes:
                lanes = None
        self.ready[block] = lanes

    def leave(self, lanes: Lanes | None) -> None:
        """Lanes end: they returned, or were stopped."""
        if lanes is None:
            self.live[:] = False
            self.living = 0
        else:
            self.live[lanes] = False
            self.living -= len(lanes)
        self.grid.barriers(self).recheck()

    def stall(self, block: int, lanes: Lanes) -> None:
        """Lanes wait at a rendezvous for others of their warp."""
        there = self.stalled.get(block)
        if there is not None:
            lanes = np.concatenate((there, lanes))
            lanes.sort()
        self.stalled[block] = lanes

    # Warps

    def warp_bits(self, lanes: Lanes | None) -> Array:
        """For each warp, the lanes of it that are given, as 32 bits."""
        if lanes is None:
            return np.full(self.lanes // WARP, 0xFFFFFFFF, np.uint32)
        flags = np.zeros(self.lanes, bool)
        flags[lanes] = True
        return pack_bits(flags)


def pack_bits(flags: Array) -> Array:
    """Booleans, one a lane, to 32 bits a warp; lane 0 is bit 0."""
    return np.packbits(flags, bitorder="little").view(np.uint32)
