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


def _single(value: int) -> Array:
    return np.full(1, value, np.int64)


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
        released: The times (grid, block) that a strong write publishes; NEVER without a fence.
        seen: Knowledge (grid, block) from strong reads that no fence has taken over yet.
    """

    def __init__(self, shape: ChunkShape) -> None:
        self.shape = shape
        self.times = ClockTimes(_single(0), _single(0), _single(0))
        self.known = ClockTimes(_single(0), _single(0), _single(0))
        self.released = (_single(NEVER), _single(NEVER))
        self.seen = (_single(0), _single(0))
        self._posted: dict[int, tuple[Array, Array]] = {}

    def knows_block(self, second: Lanes, first: Array) -> Array:
        """Up to which time lanes know other lanes of their block."""
        known = self.known.block
        if known.ndim == 1:
            return picked(known, second)
        found: Array = known[second, first % self.shape.pitch // WARP]
        return found

    def knows_warp(self, second: Lanes, first: Array) -> Array:
        """Up to which time lanes know other lanes of their warp."""
        known = self.known.warp
        if known.ndim == 1:
            return picked(known, second)
        found: Array = known[second, first % WARP]
        return found

    # What lanes publish and see

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
            self.released = (self._put(self.released[0], lanes, grid), self.released[1])
        self.released = (self.released[0], self._put(self.released[1], lanes, block))
        self.tick(lanes)

    def see(self, lanes: Lanes | None, grid: Array, block: Array, *, at_once: bool) -> None:
        """Lanes read what was published; an acquire knows it at once, else a fence is due.

        Args:
            grid: The times up to which they know other blocks now.
            block: The same for their own block.
        """
        self.seen = (
            self._put(self.seen[0], lanes, np.maximum(picked(self.seen[0], lanes), grid)),
            self._put(self.seen[1], lanes, np.maximum(picked(self.seen[1], lanes), block)),
        )
        if at_once:
            self._take_over(lanes, wide=True)

    def tick(self, lanes: Lanes | None) -> None:
        """Advance the lanes' times: later accesses are after those that they have just published."""
        grid, block, _ = self.times.of(lanes)
        self._set_times(lanes, grid=grid + 1, block=block + 1)

    def _take_over(self, lanes: Lanes | None, *, wide: bool) -> None:
        known, seen = self.known, self.seen
        self._set_known(lanes, block=_at_least(picked(known.block, lanes), picked(seen[1], lanes)))
        if wide:
            self._set_known(lanes, grid=np.maximum(picked(known.grid, lanes), picked(seen[0], lanes)))

    # Where lanes meet

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
        warps = lanes % self.shape.pitch // WARP
        known = self._met(self.known.block, self.times.block, lanes, group, warps, self.shape.pitch // WARP)
        self._set_times(lanes, block=picked(self.times.block, lanes) + 1)
        self._set_known(lanes, block=known)
        for number, post in enumerate(posted):
            if post is not None:
                self._take_posted(lanes[group == number], *post)

    def post(self, lanes: Lanes, keys: Array) -> None:
        """Lanes arrive at a barrier without waiting; those who leave it know what these did."""
        values = (*self.published(lanes), *(picked(r, lanes) for r in self.released))
        rows = np.stack([np.broadcast_to(v, len(lanes)) for v in values], axis=1)
        warps = lanes % self.shape.pitch // WARP
        for key in np.unique(keys).tolist():
            here = keys == key
            own, row = lanes[here], rows[here].max(axis=0)
            group = np.zeros(len(own), np.int64)
            known = self._met(
                self.known.block, self.times.block, own, group, warps[here], self.shape.pitch // WARP
            )[0]
            if key in self._posted:
                row, known = np.maximum(row, self._posted[key][0]), np.maximum(known, self._posted[key][1])
            self._posted[key] = (row, known)
        self.tick(lanes)

    def _take_posted(self, lanes: Lanes, row: Array, known: Array) -> None:
        grid, _, released_grid, released_block = row
        self._set_known(lanes, grid=np.maximum(picked(self.known.grid, lanes), grid + 1))
        self._set_known(lanes, block=np.maximum(self.known.block[lanes], known))
        self.released = (
            self._put(self.released[0], lanes, np.maximum(picked(self.released[0], lanes), released_grid)),
            self._put(self.released[1], lanes, np.maximum(picked(self.released[1], lanes), released_block)),
        )

    def hand_on(self, lanes: Lanes | None, mask: Array) -> None:
        """Lanes of a warp exchange values: each knows what any of them has acquired, not what it did.

        PTX does not say so; cooperative groups rely on it, as does one lane that waits for all.
        """
        grid, block, _ = self.known
        if len(grid) == 1 and len(block) == 1:
            return
        group, count = self._warps(lanes, mask)
        self._set_known(
            lanes,
            grid=self._latest(grid, lanes, group, count),
            block=self._latest(block, lanes, group, count),
        )

    def _warps(self, lanes: Lanes | None, mask: Array) -> tuple[Array, int]:
        """Return for each lane the number of its group: the lanes of its warp with its mask; and how many."""
        if lanes is None and mask.size == 1:
            return np.arange(self.shape.lanes) // WARP, self.shape.lanes // WARP
        lanes = np.arange(self.shape.lanes) if lanes is None else lanes
        keys = (lanes // WARP << 32) | np.broadcast_to(mask, lanes.shape).astype(np.int64)
        unique, group = np.unique(keys, return_inverse=True)
        return group, len(unique)

    def warp(self, lanes: Lanes | None, mask: Array) -> None:
        """Lanes of a warp meet, each with those of the same mask."""
        group, count = self._warps(lanes, mask)
        self._share(lanes, group, count)
        if self.known.warp.ndim == 1 and (mask == 0xFFFFFFFF).all():
            now = self._latest(self.times.warp, lanes, group, count) + 1
            self._set_times(lanes, warp=now)
            self._set_known(lanes, warp=now)
            return
        lanes = np.arange(self.shape.lanes) if lanes is None else lanes
        known = self._met(self.known.warp, self.times.warp, lanes, group, lanes % WARP, WARP)
        self._set_times(lanes, warp=picked(self.times.warp, lanes) + 1)
        self._set_known(lanes, warp=known)

    def _meet(self, lanes: Lanes | None, group: Array, count: int) -> None:
        """All lanes of a block meet: each knows all that any of them did."""
        self._share(lanes, group, count)
        now = self._latest(self.times.block, lanes, group, count) + 1
        self._set_times(lanes, block=now)
        self._set_known(lanes, block=_at_least(picked(self.known.block, lanes), now))

    def _share(self, lanes: Lanes | None, group: Array, count: int) -> None:
        """Lanes have the latest knowledge and fences of their group, and its time towards other blocks."""
        self._take_over(lanes, wide=True)
        grid, block, _ = self.known
        self._set_times(lanes, grid=self._latest(self.times.grid, lanes, group, count))
        self._set_known(
            lanes,
            grid=self._latest(grid, lanes, group, count),
            block=self._latest(block, lanes, group, count),
        )
        released = [self._latest(values, lanes, group, count) for values in self.released]
        self.released = (
            self._put(self.released[0], lanes, released[0]),
            self._put(self.released[1], lanes, released[1]),
        )

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

    @staticmethod
    def _latest(values: Array, lanes: Lanes | None, group: Array, count: int) -> Array:
        """Return for each lane the highest value of its group."""
        if len(values) == 1:
            return values
        best = np.full((count, *values.shape[1:]), NEVER, np.int64)
        np.maximum.at(best, group, picked(values, lanes))
        found: Array = best[group]
        return found

    # Storage

    def _set_times(self, lanes: Lanes | None, **new: Array) -> None:
        old = self.times
        self.times = old._replace(**{n: self._put(getattr(old, n), lanes, v) for n, v in new.items()})

    def _set_known(self, lanes: Lanes | None, **new: Array) -> None:
        old = self.known
        self.known = old._replace(**{n: self._put(getattr(old, n), lanes, v) for n, v in new.items()})

    def _put(self, values: Array, lanes: Lanes | None, new: Array) -> Array:
        """The values with new ones in some lanes; a single one where all are the same."""
        if lanes is None:
            return new[:1] if len(new) > 1 and bool((new == new[0]).all()) and new.ndim == 1 else new
        if len(values) == 1 and bool((new == values[0]).all()):
            return values
        spread = self._rows(values, new.ndim)
        spread[lanes] = new
        return spread

    def _rows(self, values: Array, ndim: int) -> Array:
        """A copy with an element, or a row, for each lane."""
        if values.ndim < ndim:
            width = WARP if values is self.known.warp else self.shape.pitch // WARP
            return np.repeat(np.broadcast_to(values, self.shape.lanes)[:, None], width, axis=1)
        rows: Array = np.broadcast_to(values, (self.shape.lanes, *values.shape[1:])).copy()
        return rows
