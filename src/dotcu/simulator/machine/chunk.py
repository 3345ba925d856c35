"""Blocks that run together: their lanes, registers and memory, and who waits where.

A chunk holds whole blocks. Its lanes stand in one row, block after block, each block padded
to whole warps; padding lanes never run. `active` names the lanes of the step at hand: an
ascending array of lane numbers, or None for every lane there is, which is the fast path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.machine.located import Located
from dotcu.simulator.machine.memory import Region
from dotcu.simulator.machine.private import Private
from dotcu.simulator.machine.shape import WARP, Array, Lanes, Shape
from dotcu.simulator.machine.spin import Spin
from dotcu.simulator.sanitizers.clocks import Clocks, Times
from dotcu.simulator.sanitizers.shadow import Event

if TYPE_CHECKING:
    from dotcu.ptx.link import Placed
    from dotcu.simulator.machine.barrier import Barriers
    from dotcu.simulator.machine.callstack import CallStack
    from dotcu.simulator.machine.grid import Grid
    from dotcu.simulator.machine.in_flight import InFlight
    from dotcu.simulator.semantics.spaces import Access

__all__ = ["WARP", "Array", "Chunk", "Lanes", "Private", "Shape", "pack_bits"]

# Registers whose addresses a chunk remembers, and sets of lanes for each.
REMEMBERED = 32


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
        self.barriers: Barriers
        self.spin = Spin(shape, grid.run.seed)
        self.in_flight: InFlight | None = None
        self.params: Private
        self.steps = 0
        self.looked = -1
        self.ready: dict[int, Lanes | None] = {}
        self.stalled: dict[int, Lanes] = {}
        self.stack: CallStack | None = None
        self.live = np.ones(self.lanes, bool)
        self.existing = self.live.copy()
        if shape.pitch != shape.threads:
            self.live = np.tile(np.arange(shape.pitch) < shape.threads, shape.blocks)
            self.existing = self.live.copy()
        self.living = shape.threads * shape.blocks
        self.clocks = Clocks(shape)
        self.located: dict[int, dict[int, Located]] = {}
        self.waits_on: Placed | None = None
        self._numbers: Lanes | None = None
        self._stamps: Array | None = None
        self._events: dict[int, tuple[tuple[Times, Lanes | None, int], int]] = {}

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
        else:
            self.located.pop(id(kept), None)
        kept[active] = value

    def numbers(self) -> Lanes:
        """The active lanes' numbers."""
        if self.active is not None:
            return self.active
        if self._numbers is None:
            self._numbers = np.arange(self.lanes)
        return self._numbers

    def everyone(self) -> Lanes:
        """The lanes that live."""
        return np.flatnonzero(self.live)

    def count(self) -> int:
        """How many lanes are active."""
        return self.lanes if self.active is None else len(self.active)

    def stamps(self) -> Array:
        """The launch-wide number of each lane."""
        if self._stamps is None:
            first = self.shape.first * self.shape.pitch
            self._stamps = (np.arange(first, first + self.lanes) & 0xFFFFFFFF).astype(np.uint64)
        return self._stamps

    def event(self, access: Access, times: Times, lanes: Lanes | None) -> int:
        """The number of the event that an access by some lanes is, at their times."""
        events, known = self.grid.events, self._events.get(access.number)
        key = (times, lanes, events.forgotten)
        if known is not None and all(old is new for old, new in zip(known[0], key, strict=True)):
            return known[1]
        is_uniform = all(values.size == 1 for values in times)
        number = events.number(
            Event(
                access.placed,
                access.action,
                access.order,
                self.shape,
                None if is_uniform else lanes,
                times if is_uniform else times.of(lanes),
            )
        )
        self._events[access.number] = ((times, lanes, events.forgotten), number)
        return number

    def locate(self, slot: int) -> Located:
        """Where the addresses in a register lie, remembered until the register changes."""
        register, active = self.registers[slot], self.active
        by_lanes = self.located.get(id(register))
        if by_lanes is None:
            if len(self.located) >= REMEMBERED:
                self.located.clear()
            by_lanes = self.located[id(register)] = {}
        found = by_lanes.get(id(active))
        if found is None:
            if len(by_lanes) >= REMEMBERED:
                by_lanes.clear()
            found = by_lanes[id(active)] = Located(register, active)
        return found

    def watch(self, placed: Placed) -> None:
        """Lanes read what others may change meanwhile: perhaps they wait for that."""
        self.grid.strong_reads += 1
        self.waits_on = placed

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
        self.grid.progress += 1
        self.barriers.recheck()

    def retire(self) -> None:
        """Let go of registers and memory, once all lanes have ended.

        What refers to the chunk still, such as reads that no write has been held against, needs none.
        """
        self.registers.clear()
        self.located.clear()
        del self.shared, self.local, self.barriers
        self.in_flight = None

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
