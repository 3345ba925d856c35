"""Calls that are made while a kernel runs: where each lane returns to, and what it left behind.

Lanes may be at different depths, also when they run the same instruction. A level of the
stack therefore keeps, for every lane, the call by which the lane came there, and the
registers that the caller had in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Lanes = NDArray[np.int64]


@dataclass
class _Level:
    """What lanes left behind at one depth: arrays with an element for each lane."""

    sites: Lanes
    tops: Array
    registers: dict[int, Array] = field(default_factory=dict)


class CallStack:
    """The calls that the lanes of a chunk are in.

    Attributes:
        tops: For each lane, where the next frame begins in its local memory.
    """

    def __init__(self, lanes: int, base: int) -> None:
        self.lanes = lanes
        self.tops = np.full(lanes, base, np.uint64)
        self._depths = np.zeros(lanes, np.int64)
        self._levels: list[_Level] = []

    def push(self, lanes: Lanes, site: int, registers: list[Array], saved: Sequence[int]) -> None:
        """Lanes make a call: keep the site, and the saved registers."""
        for depth, here in self._by_depth(lanes):
            if depth == len(self._levels):
                self._levels.append(_Level(np.zeros(self.lanes, np.int64), np.zeros(self.lanes, np.uint64)))
            level = self._levels[depth]
            level.sites[here] = site
            level.tops[here] = self.tops[here]
            for slot in saved:
                value = registers[slot]
                kept = level.registers.setdefault(slot, np.zeros(self.lanes, value.dtype))
                kept[here] = value if value.size == 1 else value[here]
        self._depths[lanes] += 1

    def sites(self, lanes: Lanes) -> Lanes:
        """For each lane, the site of the call that it is in."""
        result = np.empty(len(lanes), np.int64)
        depths = self._depths[lanes] - 1
        for depth in np.unique(depths).tolist():
            at = depths == depth
            result[at] = self._levels[depth].sites[lanes[at]]
        return result

    def pop(self, lanes: Lanes, registers: list[Array], saved: Sequence[int]) -> None:
        """Lanes return from a call: give the saved registers back."""
        self._depths[lanes] -= 1
        for depth, here in self._by_depth(lanes):
            level = self._levels[depth]
            self.tops[here] = level.tops[here]
            for slot in saved:
                value = registers[slot]
                if value.size == 1:
                    value = registers[slot] = np.full(self.lanes, value[0], value.dtype)
                value[here] = level.registers[slot][here]

    def _by_depth(self, lanes: Lanes) -> list[tuple[int, Lanes]]:
        depths = self._depths[lanes]
        found = np.unique(depths).tolist()
        return [(depth, lanes if len(found) == 1 else lanes[depths == depth]) for depth in found]
