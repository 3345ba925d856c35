"""Who is ordered before whom: logical clocks of a chunk's lanes.

Each lane has a time of its own, and knows of the others' times up to some point. Both exist
at each distance: towards lanes of other blocks (grid), of other warps of its block (block),
and of its own warp (warp: parts of a warp may meet, so that each lane is known apart).
Whatever makes one lane wait for another lets the second know all that the first did so far.
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

from dotcu.simulator.shape import WARP, Array, Lanes, Shape

NEVER = -1


class Times(NamedTuple):
    """The clocks of all lanes, one element each, or a single one for all.

    A value is never changed in place: what keeps a reference keeps the time. `known_warp` has
    a row of 32 for each lane once parts of a warp have met.
    """

    grid: Array
    known_grid: Array
    block: Array
    known_block: Array
    warp: Array
    known_warp: Array

    def known_in_warp(self, first: Array, second: Lanes) -> Array:
        """Up to which of their times lanes know other lanes of their warp."""
        if self.known_warp.ndim == 1:
            return picked(self.known_warp, second)
        found: Array = self.known_warp[second, first % WARP]
        return found


def _single(value: int) -> Array:
    return np.full(1, value, np.int64)


def picked(values: Array, lanes: Lanes | None) -> Array:
    """The elements of some lanes; a single one if all lanes share it."""
    return values if lanes is None or values.size == 1 else values[lanes]


class Clocks:
    """The clocks of a chunk's lanes, and what they have released and seen.

    Attributes:
        times: The clocks.
        released: The times (grid, block) that a strong write publishes; NEVER without a fence.
        seen: Knowledge (grid, block) from strong reads that no fence has taken over yet.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.times = Times(*(_single(0) for _ in Times._fields))
        self.released = (_single(NEVER), _single(NEVER))
        self.seen = (_single(0), _single(0))
        self._posted: dict[int, Array] = {}

    # What lanes publish and see

    def published(self, lanes: Lanes | None) -> tuple[Array, Array]:
        """All that lanes did and know, as times (grid, block) to publish."""
        times = Times(*(picked(values, lanes) for values in self.times))
        return np.maximum(times.grid, times.known_grid - 1), np.maximum(times.block, times.known_block - 1)

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
        """What lanes do from now on is later than what they have just published."""
        self._set(lanes, grid=picked(self.times.grid, lanes) + 1, block=picked(self.times.block, lanes) + 1)

    def _take_over(self, lanes: Lanes | None, *, wide: bool) -> None:
        times, seen = self.times, self.seen
        self._set(lanes, known_block=np.maximum(picked(times.known_block, lanes), picked(seen[1], lanes)))
        if wide:
            self._set(lanes, known_grid=np.maximum(picked(times.known_grid, lanes), picked(seen[0], lanes)))

    # Where lanes meet

    def barrier(self, lanes: Lanes | None, keys: Array | None) -> None:
        """Lanes leave a barrier together with all of the same key (None: of the same block)."""
        if lanes is None:
            group = np.arange(self.shape.lanes) // self.shape.pitch
            self._meet(None, group, self.shape.blocks, None)
            return
        assert keys is not None
        unique, group = np.unique(keys, return_inverse=True)
        nothing = np.full(4, NEVER)
        posted = None
        if self._posted:
            posted = np.array([self._posted.pop(key, nothing) for key in unique.tolist()])
        self._meet(lanes, group, len(unique), posted)

    def post(self, lanes: Lanes, keys: Array) -> None:
        """Lanes arrive at a barrier without waiting; those who leave it know what these did."""
        values = (*self.published(lanes), *(picked(r, lanes) for r in self.released))
        rows = np.stack([np.broadcast_to(v, len(lanes)) for v in values], axis=1)
        for key in np.unique(keys).tolist():
            row = rows[keys == key].max(axis=0)
            self._posted[key] = np.maximum(self._posted.get(key, row), row)
        self.tick(lanes)

    def warp(self, lanes: Lanes | None, mask: Array) -> None:
        """Lanes of a warp meet, each with those of the same mask."""
        if lanes is None and mask.size == 1:
            group, count = np.arange(self.shape.lanes) // WARP, self.shape.lanes // WARP
        else:
            lanes = np.arange(self.shape.lanes) if lanes is None else lanes
            keys = (lanes // WARP << 32) | np.broadcast_to(mask, lanes.shape).astype(np.int64)
            unique, group = np.unique(keys, return_inverse=True)
            count = len(unique)
        self._share(lanes, group, count, None)
        if self.times.known_warp.ndim == 1 and (mask == 0xFFFFFFFF).all():
            now = self._latest(self.times.warp, lanes, group, count) + 1
            self._set(lanes, warp=now, known_warp=now)
        else:
            self._meet_in_part(np.arange(self.shape.lanes) if lanes is None else lanes, group, count)

    def _meet_in_part(self, lanes: Lanes, group: Array, count: int) -> None:
        """Lanes of a warp meet without the others, whom they know no better than before."""
        known, own = self.times.known_warp, np.broadcast_to(self.times.warp, self.shape.lanes)
        if known.ndim == 1:
            known = np.repeat(np.broadcast_to(known, self.shape.lanes)[:, None], WARP, axis=1)
        best = np.full((count, WARP), NEVER, np.int64)
        np.maximum.at(best, group, known[lanes])
        best[group, lanes % WARP] = own[lanes] + 1
        known = known.copy()
        known[lanes] = best[group]
        self._set(lanes, warp=own[lanes] + 1)
        self.times = self.times._replace(known_warp=known)

    def _meet(self, lanes: Lanes | None, group: Array, count: int, posted: Array | None) -> None:
        """Lanes of a block meet: each knows all that any of them did."""
        self._share(lanes, group, count, posted)
        now = picked(self.times.block, lanes) + 1
        self._set(lanes, block=now, known_block=np.maximum(picked(self.times.known_block, lanes), now))

    def _share(self, lanes: Lanes | None, group: Array, count: int, posted: Array | None) -> None:
        """Lanes have the latest times, knowledge and fences of their group."""
        self._take_over(lanes, wide=True)
        times = [self._latest(values, lanes, group, count) for values in self.times[:4]]
        released = [self._latest(values, lanes, group, count) for values in self.released]
        if posted is not None:
            late = posted[group]
            times[0], times[2] = np.maximum(times[0], late[:, 0]), np.maximum(times[2], late[:, 1])
            times[1] = np.maximum(times[1], late[:, 0] + 1)
            released = [np.maximum(values, late[:, 2 + n]) for n, values in enumerate(released)]
        self.released = (
            self._put(self.released[0], lanes, released[0]),
            self._put(self.released[1], lanes, released[1]),
        )
        self._set(lanes, grid=times[0], known_grid=times[1], block=times[2], known_block=times[3])

    @staticmethod
    def _latest(values: Array, lanes: Lanes | None, group: Array, count: int) -> Array:
        """For each lane the highest value of its group."""
        if values.size == 1:
            return values
        best = np.full(count, NEVER, np.int64)
        np.maximum.at(best, group, picked(values, lanes))
        return best[group]

    # How they are kept

    def _set(self, lanes: Lanes | None, **new: Array) -> None:
        old = self.times
        self.times = old._replace(**{n: self._put(getattr(old, n), lanes, v) for n, v in new.items()})

    def _put(self, values: Array, lanes: Lanes | None, new: Array) -> Array:
        """The values with new ones in some lanes; a single one where all are the same."""
        if lanes is None:
            return new[:1] if new.size > 1 and bool((new == new[0]).all()) else new
        if values.size == 1 and bool((new == values[0]).all()):
            return values
        spread = np.full(self.shape.lanes, values[0]) if values.size == 1 else values.copy()
        spread[lanes] = new
        return spread
