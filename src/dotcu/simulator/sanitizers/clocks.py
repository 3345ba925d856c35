"""Who is ordered before whom: logical clocks of a chunk's lanes.

Each lane has three clocks, one for each distance: they order it against lanes of other
blocks, of other warps of its block, and of its own warp. Whatever makes one lane wait for
another puts the second one's clocks ahead of the first one's. If an access came before
another, its clock is therefore lower; equal or higher clocks of two lanes mean that nothing
ordered them. The reverse does not hold: a lower clock may be chance, and such a race is missed.

A fence sets aside the clock that a later strong write publishes with its location; a strong
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
    """The three clocks of all lanes, one element each, or a single one for all.

    A value is never changed in place: what keeps a reference keeps the time.
    """

    grid: Array
    block: Array
    warp: Array


def _single(value: int) -> Array:
    return np.full(1, value, np.int64)


def picked(values: Array, lanes: Lanes | None) -> Array:
    """The elements of some lanes; a single one if all lanes share it."""
    return values if lanes is None or values.size == 1 else values[lanes]


class Clocks:
    """The clocks of a chunk's lanes, and what they have released and seen.

    Attributes:
        times: The clocks.
        released: The clocks (grid, block) that a strong write publishes; NEVER without a fence.
        seen: Clocks (grid, block) that strong reads saw and no fence has taken over yet.
        version: Goes up with every change of `times`.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.times = Times(_single(0), _single(0), _single(0))
        self.released = (_single(NEVER), _single(NEVER))
        self.seen = (_single(0), _single(0))
        self.version = 0
        self._posted: dict[int, tuple[int, int, int, int]] = {}

    # What orders lanes

    def fence(self, lanes: Lanes | None, scope: str) -> None:
        """Lanes pass a fence: what they saw holds from now on, what they did can be published."""
        grid, block, _ = self.times
        block = np.maximum(picked(block, lanes), picked(self.seen[1], lanes))
        self._release(lanes, 1, block)
        self._set(lanes, block=block + 1)
        if scope != "cta":
            grid = np.maximum(picked(grid, lanes), picked(self.seen[0], lanes))
            self._release(lanes, 0, grid)
            self._set(lanes, grid=grid + 1)

    def see(self, lanes: Lanes | None, grid: Array, block: Array, *, at_once: bool) -> None:
        """Lanes read what was published at some clocks; an acquire holds at once, else a fence is due."""
        seen_grid = np.maximum(picked(self.seen[0], lanes), grid)
        seen_block = np.maximum(picked(self.seen[1], lanes), block)
        self.seen = (self._put(self.seen[0], lanes, seen_grid), self._put(self.seen[1], lanes, seen_block))
        if at_once:
            self._set(
                lanes,
                grid=np.maximum(picked(self.times.grid, lanes), seen_grid),
                block=np.maximum(picked(self.times.block, lanes), seen_block),
            )

    def tick(self, lanes: Lanes | None) -> None:
        """What lanes do from now on is later than what they have just published."""
        self._set(lanes, grid=picked(self.times.grid, lanes) + 1, block=picked(self.times.block, lanes) + 1)

    def barrier(self, lanes: Lanes | None, keys: Array | None) -> None:
        """Lanes leave a barrier together with all of the same key (None: of the same block)."""
        if lanes is None:
            group, count = self._blocks(), self.shape.blocks
        else:
            assert keys is not None
            unique, group = np.unique(keys, return_inverse=True)
            count = len(unique)
        self._join(lanes, group, count, warp=False)
        if lanes is not None and self._posted:
            self._take_posted(lanes, unique, group)

    def post(self, lanes: Lanes, keys: Array) -> None:
        """Lanes arrive at a barrier without waiting; those who leave it are behind them."""
        values = [np.broadcast_to(picked(a, lanes), len(lanes)) for a in (*self.times[:2], *self.released)]
        for position, key in enumerate(keys.tolist()):
            own = tuple(int(v[position]) for v in values)
            known = self._posted.get(key, own)
            self._posted[key] = tuple(map(max, known, own))  # type: ignore[assignment]

    def warp(self, lanes: Lanes | None, mask: Array) -> None:
        """Lanes of a warp meet, each with those of the same mask."""
        if lanes is None and mask.size == 1:
            numbers = np.arange(self.shape.lanes) // WARP
            self._join(None, numbers, self.shape.lanes // WARP, warp=True)
            return
        lanes = np.arange(self.shape.lanes) if lanes is None else lanes
        keys = (lanes // WARP << 32) | np.broadcast_to(mask, lanes.shape).astype(np.int64)
        unique, group = np.unique(keys, return_inverse=True)
        self._join(lanes, group, len(unique), warp=True)

    # How

    def _blocks(self) -> Array:
        return np.arange(self.shape.lanes) // self.shape.pitch

    def _join(self, lanes: Lanes | None, group: Array, count: int, *, warp: bool) -> None:
        def latest(values: Array) -> Array:
            if values.size == 1:
                return values
            best = np.full(count, NEVER, np.int64)
            np.maximum.at(best, group, picked(values, lanes))
            return best[:1] if lanes is None and (best == best[0]).all() else best[group]

        grid, block, own = self.times
        grid = latest(np.maximum(grid, self.seen[0]))
        block = latest(np.maximum(block, self.seen[1])) + (0 if warp else 1)
        released = [latest(values) for values in self.released]
        for level, values in enumerate(released):
            self._release(lanes, level, values)
        self._set(lanes, grid=grid, block=block, warp=latest(own) + 1 if warp else None)

    def _take_posted(self, lanes: Lanes, unique: Array, group: Array) -> None:
        blank = (NEVER, NEVER, NEVER, NEVER)
        posted = np.array([self._posted.pop(int(key), blank) for key in unique.tolist()])[group]
        grid, block = picked(self.times.grid, lanes), picked(self.times.block, lanes)
        self._set(lanes, grid=np.maximum(grid, posted[:, 0]), block=np.maximum(block, posted[:, 1] + 1))
        for level in (0, 1):
            values = picked(self.released[level], lanes)
            self._release(lanes, level, np.maximum(values, posted[:, 2 + level]))

    def _release(self, lanes: Lanes | None, level: int, values: Array) -> None:
        new = self._put(self.released[level], lanes, values)
        self.released = (new, self.released[1]) if level == 0 else (self.released[0], new)

    def _set(
        self,
        lanes: Lanes | None,
        *,
        grid: Array | None = None,
        block: Array | None = None,
        warp: Array | None = None,
    ) -> None:
        old = self.times
        self.times = Times(
            old.grid if grid is None else self._put(old.grid, lanes, grid),
            old.block if block is None else self._put(old.block, lanes, block),
            old.warp if warp is None else self._put(old.warp, lanes, warp),
        )
        self.version += 1

    def _put(self, values: Array, lanes: Lanes | None, new: Array) -> Array:
        """The values with new ones in some lanes; a single one where all are the same."""
        if lanes is None:
            same = new.size > 1 and bool((new == new[0]).all())
            return new[:1] if same else new
        if values.size == 1 and bool((new == values[0]).all()):
            return values
        spread = np.full(self.shape.lanes, values[0]) if values.size == 1 else values.copy()
        spread[lanes] = new
        return spread
