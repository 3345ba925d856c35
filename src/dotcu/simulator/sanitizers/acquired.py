"""Acquired releases: those of each block that others of a launch know, directly or by way of others.

A lane has one time towards all other blocks, so that acquiring from one of them looks like acquiring from
all that released before. Here each block has, for each other one, the turn of the last release that it has
acquired, and each release keeps what its block had acquired by then: a vector clock for each block, in place
of one for each lane. Lanes of a block are not told apart, and what is not followed counts as acquired.

Source: C. Flanagan, S. N. Freund, "FastTrack: Efficient and Precise Dynamic Race Detection" (2009).
"""

from __future__ import annotations

import numpy as np

from dotcu.simulator.machine.shape import Array

_NEVER = -1
_BLOCK_BITS = 8


class AcquiredReleases:
    """For each block of a launch, the turns of the releases that it has acquired; see `Handovers`.

    Attributes:
        turns: A row for each block, with the turn of the last release of each other block.
    """

    LIMIT_BLOCKS = 1 << _BLOCK_BITS
    LIMIT_BYTES = 1 << 25
    # Places at which one instruction releases, or pairs of a block and a release that one acquires.
    LIMIT_PAIRS = 1 << 10

    def __init__(self, blocks: int) -> None:
        self.turns = np.full((blocks, blocks), _NEVER, np.int64)
        # By turn of a release: what who acquires it knows.
        self._releases: dict[int, Array] = {}
        # Turns and blocks that acquired their releases.
        self._seen: set[int] = set()
        # For each block the turn that it acquired last, as in each round of a loop that waits.
        self._last = np.full(blocks, _NEVER, np.int64)
        self._now = _NEVER

    def release(self, blocks: Array, turns: Array) -> None:
        """Blocks release what they know, each at a turn of its own."""
        rows = self.turns[blocks]
        rows[np.arange(len(blocks)), blocks] = turns
        self._releases.update(zip(turns.tolist(), rows, strict=True))
        self._now = int(turns[-1])
        while len(self._releases) * self.turns.shape[1] * 8 > self.LIMIT_BYTES:
            del self._releases[next(iter(self._releases))]

    def join(self, turns: Array, places: Array, before: Array) -> None:
        """Let releases at a place go on from those before them there, and from those of the same instruction.

        Args:
            turns, places: For each lane, those of its release.
            before: The turn of the last release at its place; `_NEVER`: none.
        """
        if (places == places[0]).all():
            self._join({*turns.tolist()}, int(before.max()))
            return
        order = np.argsort(places, kind="stable")
        starts = np.flatnonzero(np.diff(places[order])) + 1
        if len(starts) > self.LIMIT_PAIRS:
            for turn in np.unique(turns).tolist():
                self._releases.pop(turn, None)
            return
        for part in np.split(order, starts):
            self._join({*turns[part].tolist()}, int(before[part[0]]))

    def _join(self, turns: set[int], before: int) -> None:
        if len(turns) == 1 and before == _NEVER:
            return
        rows = [row for turn in turns if (row := self._releases.get(turn)) is not None]
        earlier = [] if before == _NEVER else [self._known_of(before)]
        joint = np.max([*rows, *earlier], axis=0)
        for row in rows:
            np.maximum(row, joint, out=row)

    def _known_of(self, turn: int) -> Array:
        known = self._releases.get(turn)
        return np.full(len(self.turns), self._now, np.int64) if known is None else known

    def acquire(self, blocks: Array, turns: Array) -> None:
        """Blocks, one for each lane, acquire releases of some turns; `_NEVER`: none."""
        turns = np.broadcast_to(turns, blocks.shape)
        if (self._last[blocks] == turns).all():
            return
        self._last[blocks] = turns
        keys = np.unique((turns << _BLOCK_BITS | blocks)[turns != _NEVER])
        if len(keys) > self.LIMIT_PAIRS:
            self.acquire_all(blocks, self._now)
            return
        fresh = {*keys.tolist()} - self._seen
        for key in fresh:
            turn, block = divmod(key, 1 << _BLOCK_BITS)
            np.maximum(self.turns[block], self._known_of(turn), out=self.turns[block])
        self._seen |= fresh

    def acquire_all(self, blocks: Array, turn: int) -> None:
        """Blocks acquire all that was released up to a turn."""
        here = np.bincount(blocks, minlength=len(self.turns)) > 0
        self.turns[here] = np.maximum(self.turns[here], turn)
