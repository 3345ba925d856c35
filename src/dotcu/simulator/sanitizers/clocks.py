"""Vector clocks: the order that synchronization gives the accesses of a chunk's lanes.

Each lane has a time of its own, and knows of the others' times up to some point. Both exist
at each distance: towards lanes of other blocks (grid), of its block (block: warps of it may meet
without the others, so that each is known apart) and of its warp (warp: the same for its lanes).
When one lane waits for another, it learns all that the other did so far.
So an earlier access is ordered before a later one only if its time is below what the later
lane knows; if it is not, nothing ordered them. The reverse does not hold: knowledge of one
lane's time may cover another's by chance, and such a race is missed.

A fence sets aside the time that a later strong write publishes with its location; a strong
read of that location sees it, and takes it over at the next fence or barrier.

Source: PTX ISA, "Memory Consistency Model" (chapter 8: release and acquire patterns, causality
order); L. Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System" (1978).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dotcu.simulator.machine.shape import WARP, Array, ChunkShape, Lanes

NEVER = -1


class ClockTimes(NamedTuple):
    """The lanes' own times: one element for each, or a single one for all.

    A value is never changed in place: what keeps a reference keeps the time.
    """

    grid: Array
    block: Array
    warp: Array

    def of(self, lanes: Lanes | None) -> ClockTimes:
        """The times of some lanes."""
        return ClockTimes(*(picked(values, lanes) for values in self))


def picked(values: Array, lanes: Lanes | None) -> Array:
    """The elements of some lanes; a single one if all lanes share it."""
    return values if lanes is None or len(values) == 1 else values[lanes]


def _at_least(known: Array, times: Array) -> Array:
    """Return knowledge that reaches at least some times."""
    return np.maximum(known, times if known.ndim == 1 else times[:, None])


class VectorClocks:
    """The clocks of a chunk's lanes, and what they have released and seen.

    Attributes:
        times: Their own times.
        known: Up to which time they know others. Once only some warps of a block have met, `block` has
            a row for each lane: a time for each warp of its block. `warp` has one for each lane of its
            warp once only some of those have met.
        released: The times towards the grid and the block that a strong write publishes; NEVER without a
            fence.
        seen: Knowledge of both from strong reads that no fence has taken over yet.
    """

    def __init__(self, shape: ChunkShape) -> None:
        self.shape = shape
        self.times = self.known = self.seen = ClockTimes(*np.zeros((3, 1), np.int64))
        self.released = ClockTimes(*np.full((3, 1), NEVER, np.int64))
        self._posted: dict[int, tuple[Array, Array]] = {}

    def published(self, lanes: Lanes | None) -> tuple[Array, Array]:
        """All that lanes did and know, as times (grid, block) to publish."""
        grid, block = picked(self.known.grid, lanes), picked(self.known.block, lanes)
        block = block if block.ndim == 1 else block.max(axis=1)
        times = self.times.of(lanes)
        return np.maximum(times.grid, grid - 1), np.maximum(times.block, block - 1)

    def fence(self, lanes: Lanes | None, scope: str) -> None:
        """Lanes pass a fence: what they saw holds from now on, what they did can be published."""
        wide = scope != "cta"
        self._take_over(lanes, wide=wide)
        grid, block = self.published(lanes)
        if wide:
            self._set("released", lanes, grid=grid)
        self._set("released", lanes, block=block)
        self.tick(lanes)

    def see(self, lanes: Lanes | None, grid: Array, block: Array, *, at_once: bool) -> None:
        """Lanes read what was published; an acquire knows it at once, else a fence is due.

        Args:
            grid: The times up to which they know other blocks now.
            block: The same for their own block.
        """
        self._raise("seen", lanes, grid=grid, block=block)
        if at_once:
            self._take_over(lanes, wide=True)

    def tick(self, lanes: Lanes | None) -> None:
        """Advance the lanes' times: later accesses are after those that they have just published."""
        grid, block, _ = self.times.of(lanes)
        self._set("times", lanes, grid=grid + 1, block=block + 1)

    def _take_over(self, lanes: Lanes | None, *, wide: bool) -> None:
        seen = self.seen.of(lanes)
        self._set("known", lanes, block=_at_least(picked(self.known.block, lanes), seen.block))
        if wide:
            self._raise("known", lanes, grid=seen.grid)

    def barrier(self, lanes: Lanes | None, keys: Array | None, *, whole: bool) -> None:
        """Lanes leave a barrier together with all of the same key (None: of the same block).

        Args:
            whole: All threads of their blocks are there.
        """
        if lanes is None or keys is None:
            everyone = np.arange(self.shape.lanes)
            self._meet(None, everyone // self.shape.pitch, self.shape.blocks)
            return
        unique, group = np.unique(keys, return_inverse=True)
        posted = [self._posted.pop(key, None) for key in unique.tolist()] if self._posted else []
        if whole and not any(posted):
            self._meet(lanes, group, len(unique))
            return
        self._share(lanes, group, len(unique))
        known = self._met_warps(lanes, group)
        self._set("times", lanes, block=picked(self.times.block, lanes) + 1)
        self._set("known", lanes, block=known)
        for number, post in enumerate(posted):
            if post is not None:
                own, (grid, _, released_grid, released_block) = lanes[group == number], post[0]
                self._raise("known", own, grid=grid + 1, block=post[1])
                self._raise("released", own, grid=released_grid, block=released_block)

    def post(self, lanes: Lanes, keys: Array) -> None:
        """Lanes arrive at a barrier without waiting; those who leave it know what these did."""
        values = (*self.published(lanes), *self.released.of(lanes)[:2])
        rows = np.stack([np.broadcast_to(v, len(lanes)) for v in values], axis=1)
        for key in np.unique(keys).tolist():
            own, row = lanes[keys == key], rows[keys == key].max(axis=0)
            known = self._met_warps(own, np.zeros(len(own), np.int64))[0]
            if key in self._posted:
                row, known = np.maximum(row, self._posted[key][0]), np.maximum(known, self._posted[key][1])
            self._posted[key] = (row, known)
        self.tick(lanes)

    def hand_on(self, lanes: Lanes | None, mask: Array) -> None:
        """Lanes of a warp exchange values: each knows what any of them has acquired, not what it did.

        PTX does not say so; cooperative groups rely on it, as does one lane that waits for all.
        """
        if len(self.known.grid) > 1 or len(self.known.block) > 1:
            self._share_knowledge(lanes, *self._warps(lanes, mask))

    def warp(self, lanes: Lanes | None, mask: Array) -> None:
        """Lanes of a warp meet, each with those of the same mask."""
        group, count = self._warps(lanes, mask)
        self._share(lanes, group, count)
        if self.known.warp.ndim == 1 and (mask == 0xFFFFFFFF).all():
            now = _latest(self.times.warp, lanes, group, count) + 1
            self._set("times", lanes, warp=now)
            self._set("known", lanes, warp=now)
            return
        lanes = np.arange(self.shape.lanes) if lanes is None else lanes
        known = self._met(self.known.warp, self.times.warp, lanes, group, lanes % WARP, WARP)
        self._set("times", lanes, warp=picked(self.times.warp, lanes) + 1)
        self._set("known", lanes, warp=known)

    def _warps(self, lanes: Lanes | None, mask: Array) -> tuple[Array, int]:
        """Return for each lane the number of its group: the lanes of its warp with its mask; and how many."""
        if lanes is None and mask.size == 1:
            return np.arange(self.shape.lanes) // WARP, self.shape.lanes // WARP
        lanes = np.arange(self.shape.lanes) if lanes is None else lanes
        keys = (lanes // WARP << 32) | np.broadcast_to(mask, lanes.shape).astype(np.int64)
        unique, group = np.unique(keys, return_inverse=True)
        return group, len(unique)

    def _meet(self, lanes: Lanes | None, group: Array, count: int) -> None:
        """All lanes of a block meet: each knows all that any of them did."""
        self._share(lanes, group, count)
        now = _latest(self.times.block, lanes, group, count) + 1
        self._set("times", lanes, block=now)
        self._set("known", lanes, block=_at_least(picked(self.known.block, lanes), now))

    def _share(self, lanes: Lanes | None, group: Array, count: int) -> None:
        """Lanes have the latest knowledge and fences of their group, and its time towards other blocks."""
        self._take_over(lanes, wide=True)
        self._set("times", lanes, grid=_latest(self.times.grid, lanes, group, count))
        self._share_knowledge(lanes, group, count)
        grid, block = (_latest(values, lanes, group, count) for values in self.released[:2])
        self._set("released", lanes, grid=grid, block=block)

    def _share_knowledge(self, lanes: Lanes | None, group: Array, count: int) -> None:
        grid, block = (_latest(values, lanes, group, count) for values in self.known[:2])
        self._set("known", lanes, grid=grid, block=block)

    def _met_warps(self, lanes: Lanes, group: Array) -> Array:
        """Return what lanes know of their block's warps, after those of a group have met without others."""
        warps = lanes % self.shape.pitch // WARP
        return self._met(self.known.block, self.times.block, lanes, group, warps, self.shape.pitch // WARP)

    def _met(
        self, known: Array, times: Array, lanes: Lanes, group: Array, columns: Array, width: int
    ) -> Array:
        """Return the lanes' knowledge, a row for each, after those of a group have met without others."""
        if known.ndim == 1:
            known = np.repeat(np.broadcast_to(known, self.shape.lanes)[lanes, None], width, axis=1)
        else:
            known = known[lanes]
        best = np.full((int(group.max()) + 1, width), NEVER, np.int64)
        np.maximum.at(best, group, known)
        np.maximum.at(best, (group, columns), picked(times, lanes) + 1)
        rows: Array = best[group]
        return rows

    def _raise(self, clock: str, lanes: Lanes | None, **least: Array) -> None:
        """Set some of a clock's times to at least those given."""
        old = getattr(self, clock)
        new = {name: np.maximum(picked(getattr(old, name), lanes), value) for name, value in least.items()}
        self._set(clock, lanes, **new)

    def _set(self, clock: str, lanes: Lanes | None, **new: Array) -> None:
        old = getattr(self, clock)
        put = {name: self._put(getattr(old, name), lanes, value) for name, value in new.items()}
        setattr(self, clock, old._replace(**put))

    def _put(self, values: Array, lanes: Lanes | None, new: Array) -> Array:
        """The values with new ones in some lanes; a single one where all are the same."""
        if lanes is None:
            return new[:1] if len(new) > 1 and bool((new == new[0]).all()) and new.ndim == 1 else new
        if len(values) == 1 and bool((new == values[0]).all()):
            return values
        values = values if values.ndim == new.ndim else values[:, None]
        spread: Array = np.broadcast_to(values, (self.shape.lanes, *new.shape[1:])).copy()
        spread[lanes] = new
        return spread


def _latest(values: Array, lanes: Lanes | None, group: Array, count: int) -> Array:
    """Return for each lane the highest value of its group."""
    if len(values) == 1:
        return values
    best = np.full((count, *values.shape[1:]), NEVER, np.int64)
    np.maximum.at(best, group, picked(values, lanes))
    latest: Array = best[group]
    return latest
