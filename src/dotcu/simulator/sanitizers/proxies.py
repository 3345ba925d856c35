"""Proxies: the ways by which accesses reach memory, and the fences that data needs to cross them.

Loads, stores, atomics and cp.async use the generic proxy; bulk copies and wgmma the async proxy, whose
completion is followed by an implicit fence; a copy reads its tensor map by the tensormap proxy. A write
by one of them is there for another only if a fence lies on the path of causality between the two: by
the thread that wrote, after it did; by the one that accesses, once that is ordered after the write; or
by a third thread between them. So a fence that only the copying thread passes before the barrier joins
its own writes alone. PTX words it so for aliases: a fence along the path. That it is in the block of the
asynchronous access, as Lustig et al. have it (ISCA 2022, "Mixed-Proxy Extensions"), is not asked for.

What was only read needs no fence before an async write to the same place, if the two are ordered:
CUTLASS's pipelines release a stage by an arrival alone. The mbarrier that a copy completes is accessed
by the generic proxy: its initialization needs no fence of the async proxy.

Source: PTX ISA, "Asynchronous copy: Async Proxy", "membar, fence, fence.proxy",
"Memory Consistency Model: Proxies, Causality Order"; for the mbarrier, PTX ISA 9.3, "cp.async.bulk".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from dotcu.ptx.instructions import Instruction
from dotcu.simulator.machine.clocks import ClockTimes, picked
from dotcu.simulator.machine.shape import WARP, ChunkShape, Lanes
from dotcu.simulator.machine.state import Chunk
from dotcu.simulator.run import Array


def is_async(instruction: Instruction) -> bool:
    """Return whether an instruction accesses memory by the async proxy."""
    return instruction.opcode == "wgmma" or "bulk" in instruction.flags


Moment = tuple[ChunkShape, Array, ClockTimes]
"""Lanes with their times, for what comes first; or with what they know of others', for what comes second."""


class ProxyFence(NamedTuple):
    """A fence that some lanes passed, with their clocks.

    Attributes:
        number: Observers of this number or a later one come after it.
        lanes: Ascending.
        times, known: Of these lanes; one element if all have the same.
        crosses: The spaces for which it joins the generic proxy and the async one, or another name.
    """

    number: int
    shape: ChunkShape
    lanes: Lanes
    times: ClockTimes
    known: ClockTimes
    crosses: frozenset[str]

    @classmethod
    def of(cls, chunk: Chunk, number: int, crosses: Iterable[str] = ()) -> ProxyFence:
        """The fence that the active lanes pass now.

        Args:
            chunk, number: The blocks that run together, and the number of the next event.
            crosses: See there.
        """
        lanes, clocks = chunk.numbers(), chunk.clocks
        times, known = clocks.times.of(chunk.active), clocks.known.of(chunk.active)
        if known.block.ndim > 1:  # rows change in place
            known = known._replace(block=known.block.copy())
        return cls(number, chunk.shape, lanes, times, known, frozenset(crosses))

    def in_blocks(self, owners: Array | None) -> Iterator[tuple[ProxyFence, Array | bool]]:
        """Yield the part of it that reaches the shared memory of each of some blocks, and the mask of these.

        Args:
            owners: For each pair the block of the chunk whose memory is accessed; None: both lanes' own.
        """
        if owners is None or "shared::cta" not in self.crosses or "shared" in self.crosses:
            yield self, True
            return
        for block in np.unique(owners).tolist():
            here = np.flatnonzero(self.lanes // self.shape.pitch == block)
            if len(here):
                times, known = self.times.of(here), self.known.of(here)
                yield self._replace(lanes=self.lanes[here], times=times, known=known), owners == block

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return self.lanes.nbytes + sum(values.nbytes for values in (*self.times, *self.known))

    def _place(self, lanes: Array) -> tuple[Array, Array]:
        """The places of lanes among its own, and the mask of those that are there at all."""
        at = np.minimum(np.searchsorted(self.lanes, lanes), len(self.lanes) - 1)
        return at, self.lanes[at] == lanes

    def releases(self, first: Moment, second: Moment) -> Array:
        """Return the mask of pairs whose first lane passed it before the second."""
        shape, lanes, _ = first
        if shape is not self.shape:
            return np.zeros(len(lanes), bool)
        at, there = self._place(lanes)
        return there & ~is_later((shape, lanes, self.times.of(at)), second)

    def joins(self, first: Moment, second: Moment) -> Array:
        """Return the mask of pairs one of which passed it, between the two."""
        joined = self.releases(first, second)
        shape, lanes, _ = second
        if shape is self.shape:
            at, there = self._place(lanes)
            joined |= there & ~is_later(first, (shape, lanes, self.known.of(at)))
        return joined

    def joins_by_others(self, first: Moment, second: Moment) -> Array:
        """Return the mask of pairs between which another lane passed it."""
        lanes = len(self.lanes)
        return np.array([self._is_between(first, second, np.full(lanes, n)) for n in range(len(first[1]))])

    def _is_between(self, first: Moment, second: Moment, pair: Array) -> bool:
        """Return whether some lane passed it after a pair's first and before its second."""
        first, second = ((shape, lanes[pair], clocks.of(pair)) for shape, lanes, clocks in (first, second))
        after = ~is_later(first, (self.shape, self.lanes, self.known))
        return bool((after & ~is_later((self.shape, self.lanes, self.times), second)).any())


def is_later(first: Moment, second: Moment) -> Array:
    """Return the mask of pairs of lanes whose first is not ordered before the second."""
    (shape, lanes, then), (own_shape, own, known) = first, second
    late_grid: Array = np.broadcast_to(then.grid >= known.grid, own.shape)
    if shape is not own_shape:
        return late_grid
    same_block, same_warp = lanes // shape.pitch == own // shape.pitch, lanes // WARP == own // WARP
    late_block = then.block >= _of_column(known.block, lanes % shape.cluster_lanes // WARP)
    late_warp = late_block & (then.warp >= _of_column(known.warp, lanes % WARP))
    if shape.cluster_blocks > 1:
        late_grid = late_grid & (late_block | (lanes // shape.cluster_lanes != own // shape.cluster_lanes))
    late: Array = np.where(same_warp, late_warp, np.where(same_block, late_block, late_grid))
    late &= lanes != own
    return late


def known_of(known: ClockTimes, second: Array, shape: ChunkShape, first: Array) -> ClockTimes:
    """Return what lanes know of one lane each.

    Args:
        known, second: What all lanes of the chunk know, and the lanes.
        shape, first: Of the chunk, and for each of them the other lane.
    """
    block, warp = known.block, known.warp
    block = block[second, first % shape.cluster_lanes // WARP] if block.ndim > 1 else picked(block, second)
    warp = warp[second, first % WARP] if warp.ndim > 1 else picked(warp, second)
    return ClockTimes(picked(known.grid, second), block, warp)


def _of_column(known: Array, columns: Array) -> Array:
    """Knowledge of one lane or warp each, where it is known apart."""
    return known if known.ndim == 1 else known[np.arange(len(known)), columns]
