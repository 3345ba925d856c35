"""Proxies: the ways by which accesses reach memory, and the fences that data needs to cross them.

Loads, stores, atomics and cp.async use the generic proxy; bulk copies and wgmma the async proxy, whose
completion is followed by an implicit fence; a copy reads its tensor map by the tensormap proxy. A write
by one of them is there for another only if a fence lies on the path of causality between the two: by
the thread that wrote, after it did; by the one that accesses, once that is ordered after the write; or
by a third thread between them. So a fence that only the copying thread passes before the barrier joins
its own writes alone. PTX says so of aliases: a fence along the path. Lustig et al. (ISCA 2022,
"Mixed-Proxy Extensions") require it in the block of the asynchronous access, which is not required here.

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
from dotcu.simulator.machine.shape import WARP, BatchShape, Threads
from dotcu.simulator.machine.state import Batch
from dotcu.simulator.run import Array


def is_async(instruction: Instruction) -> bool:
    """Return whether an instruction accesses memory by the async proxy."""
    return instruction.opcode == "wgmma" or "bulk" in instruction.flags


class Moment(NamedTuple):
    """Threads of the earlier of two accesses with their times, or of the later with the times they know."""

    shape: BatchShape
    threads: Array
    clocks: ClockTimes


class ProxyFence(NamedTuple):
    """A fence that some threads passed, with their clocks.

    Attributes:
        number: Observers of this number or a later one come after it.
        threads: Ascending.
        times, known: Of these threads; one element if all have the same.
        crosses: The spaces for which it joins the generic proxy and the async one, or another name.
    """

    number: int
    shape: BatchShape
    threads: Threads
    times: ClockTimes
    known: ClockTimes
    crosses: frozenset[str]

    @classmethod
    def of(cls, batch: Batch, number: int, crosses: Iterable[str] = ()) -> ProxyFence:
        """The fence that the active threads pass now."""
        threads, clocks = batch.numbers(), batch.clocks
        times, known = clocks.times.of(batch.active), clocks.known.of(batch.active)
        if known.block.ndim > 1:  # rows change in place
            known = known._replace(block=known.block.copy())
        return cls(number, batch.shape, threads, times, known, frozenset(crosses))

    def in_blocks(self, owners: Array | None) -> Iterator[tuple[ProxyFence, Array | bool]]:
        """Yield the part of it that reaches the shared memory of each of some blocks, and the mask of these.

        Args:
            owners: For each pair the block of the batch whose memory is accessed; None: both threads' own.
        """
        if owners is None or "shared::cta" not in self.crosses or "shared" in self.crosses:
            yield self, True
            return
        for block in np.unique(owners).tolist():
            here = np.flatnonzero(self.threads // self.shape.pitch == block)
            if len(here):
                times, known = self.times.of(here), self.known.of(here)
                yield self._replace(threads=self.threads[here], times=times, known=known), owners == block

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return self.threads.nbytes + sum(values.nbytes for values in (*self.times, *self.known))

    def _place(self, threads: Array) -> tuple[Array, Array]:
        """The places of threads among its own, and the mask of those that are there at all."""
        at = np.minimum(np.searchsorted(self.threads, threads), len(self.threads) - 1)
        return at, self.threads[at] == threads

    def releases(self, first: Moment, second: Moment) -> Array:
        """Return the mask of pairs whose first thread passed it before the second."""
        shape, threads, _ = first
        if shape is not self.shape:
            return np.zeros(len(threads), bool)
        at, there = self._place(threads)
        return there & ~is_later(Moment(shape, threads, self.times.of(at)), second)

    def joins(self, first: Moment, second: Moment) -> Array:
        """Return the mask of pairs one of which passed it, between the two."""
        joined = self.releases(first, second)
        shape, threads, _ = second
        if shape is self.shape:
            at, there = self._place(threads)
            joined |= there & ~is_later(first, Moment(shape, threads, self.known.of(at)))
        return joined

    def joins_by_others(self, first: Moment, second: Moment) -> Array:
        """Return the mask of pairs between which another thread passed it."""
        threads = len(self.threads)
        return np.array([self._is_between(first, second, np.full(threads, n)) for n in range(len(first[1]))])

    def _is_between(self, first: Moment, second: Moment, pair: Array) -> bool:
        """Return whether some thread passed it after a pair's first and before its second."""
        first, second = (
            Moment(shape, threads[pair], clocks.of(pair)) for shape, threads, clocks in (first, second)
        )
        after = ~is_later(first, Moment(self.shape, self.threads, self.known))
        return bool((after & ~is_later(Moment(self.shape, self.threads, self.times), second)).any())


def is_later(first: Moment, second: Moment) -> Array:
    """Return the mask of pairs of threads whose first is not ordered before the second."""
    (shape, threads, then), (own_shape, own, known) = first, second
    late_grid: Array = np.broadcast_to(then.grid >= known.grid, own.shape)
    if shape is not own_shape:
        return late_grid
    same_block, same_warp = threads // shape.pitch == own // shape.pitch, threads // WARP == own // WARP
    late_block = then.block >= _of_column(known.block, threads % shape.cluster_threads // WARP)
    late_warp = late_block & (then.warp >= _of_column(known.warp, threads % WARP))
    if shape.cluster_blocks > 1:
        late_grid = late_grid & (
            late_block | (threads // shape.cluster_threads != own // shape.cluster_threads)
        )
    late: Array = np.where(same_warp, late_warp, np.where(same_block, late_block, late_grid))
    late &= threads != own
    return late


def known_of(known: ClockTimes, second: Array, shape: BatchShape, first: Array) -> ClockTimes:
    """Return what threads know of one thread each.

    Args:
        known, second: What all threads of the batch know, and the threads.
        shape, first: Of the batch, and for each of them the other thread.
    """
    block, warp = known.block, known.warp
    block = block[second, first % shape.cluster_threads // WARP] if block.ndim > 1 else picked(block, second)
    warp = warp[second, first % WARP] if warp.ndim > 1 else picked(warp, second)
    return ClockTimes(picked(known.grid, second), block, warp)


def _of_column(known: Array, columns: Array) -> Array:
    """Knowledge of one thread or warp each, where it is known apart."""
    return known if known.ndim == 1 else known[np.arange(len(known)), columns]
