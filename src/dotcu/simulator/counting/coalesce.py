"""How memory serves the lanes of a warp: sectors of global memory, wavefronts of shared memory.

Global memory is served in sectors of 32 bytes. Shared memory is served in wavefronts: in one, each
of the 32 banks of 4 bytes gives one word, to however many lanes want it. Accesses of 8 bytes are
served by half warps, those of 16 by quarters.

Source: CUDA C++ Programming Guide, "Device Memory Accesses", "Compute Capability 5.x: Shared
Memory" for banks and "2.x" for wide accesses; Nsight Compute, "Memory Tables", for the words
sector and wavefront.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Lanes = NDArray[np.int64]
WARP = 32
SECTOR_BYTES = 32
BANKS = 32
WORD_BYTES = 4


class Groups:
    """Lanes, in ascending order, as groups of `size` neighbours that are served together.

    Attributes:
        count: How many groups have lanes among them.
    """

    def __init__(self, lanes: Lanes, size: int) -> None:
        self.size = size
        self._lanes = lanes
        group = lanes // size
        self._fresh = group[1:] != group[:-1]
        self.count = 1 + int(np.count_nonzero(self._fresh))
        self._whole = len(lanes) == self.count * size
        self._begins: Array | None = None
        self._at: Array

    def rows(self, places: Array) -> Array:
        """A row for each group; a lane that takes no part stands there as the first that does."""
        if self._whole:
            return places.reshape(-1, self.size)
        if self._begins is None:
            begins = np.concatenate(([True], self._fresh))
            self._begins = np.flatnonzero(begins)
            self._at = (np.cumsum(begins) - 1) * self.size + self._lanes % self.size
        rows = np.repeat(places[self._begins], self.size)
        rows[self._at] = places
        return rows.reshape(-1, self.size)


def common_warps(*groups: Lanes) -> int:
    """How many warps have lanes in more than one of the groups, each ascending."""
    seen = np.zeros(max(int(g[-1]) for g in groups) // WARP + 1, np.int32)
    for lanes in groups:
        here = np.zeros(len(seen), bool)
        here[lanes // WARP] = True
        seen += here
    return int(np.count_nonzero(seen > 1))


def served_together(nbytes: int) -> int:
    """How many lanes of a warp shared memory serves at once, for the bytes that each of them wants."""
    return min(WARP, max(1, BANKS * WORD_BYTES // nbytes))


def sectors(rows: Array, width: int, nbytes: int) -> tuple[int, int]:
    """Sectors that warps touch, and how many would hold the same bytes side by side.

    Args:
        rows: For each warp the first element of each lane, counted from the beginning of a sector.
        width: Bytes of one element.
        nbytes: Bytes that each lane wants from its first element on.
    """
    ordered = np.sort(rows, axis=1)
    distinct = 1 + np.count_nonzero(_changes(ordered), axis=1)
    ideal = -(-distinct * nbytes // SECTOR_BYTES)
    touched = _changes(ordered >> (SECTOR_BYTES // width).bit_length() - 1)
    each = max(1, nbytes // SECTOR_BYTES)
    return (len(ordered) + int(np.count_nonzero(touched))) * each, int(ideal.sum())


def wavefronts(rows: Array, nbytes: int) -> tuple[int, int]:
    """Wavefronts that groups of lanes take, and how many they would take without bank conflicts.

    Args:
        rows: For each group the first word of each lane.
        nbytes: Bytes that each lane wants from there on.
    """
    if nbytes > WORD_BYTES:
        words = np.arange(nbytes // WORD_BYTES)
        rows = (rows[:, :, None] + words).reshape(len(rows), -1)
    ordered = np.sort(rows, axis=1)
    ideal = len(ordered)
    ordered = ordered[ordered[:, -1] - ordered[:, 0] >= BANKS]  # fewer words than banks never meet
    return ideal - len(ordered) + int(_busiest(ordered).sum()), ideal


def _busiest(ordered: Array) -> Array:
    """For each sorted row of words, how many of them lie in the bank that has the most."""
    fresh = np.concatenate((np.ones((len(ordered), 1), bool), _changes(ordered)), axis=1)
    bank = ordered % BANKS + BANKS * np.arange(len(ordered))[:, None]
    counts = np.bincount(bank[fresh], minlength=BANKS * len(ordered))
    most: Array = counts.reshape(-1, BANKS).max(axis=1)
    return most


def _changes(ordered: Array) -> Array:
    """Where an element of a sorted row differs from the one before it."""
    changes: Array = ordered[:, 1:] != ordered[:, :-1]
    return changes
