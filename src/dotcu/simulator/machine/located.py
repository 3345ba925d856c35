"""Addresses in a register, looked at once: their range, their alignment, where they lie.

Unrolled code reads one register at many offsets. What does not depend on the offset is
worked out at the first access and kept until the register changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.machine.memory import Region
from dotcu.simulator.machine.private import Private
from dotcu.simulator.machine.shape import Array, Lanes

if TYPE_CHECKING:
    from dotcu.simulator.counting.traffic import Cost


class Located:
    """The addresses that the active lanes have in a register.

    Attributes:
        address: The addresses, as u64; a single one if all lanes have the same.
        low: The lowest of them.
        high: The highest of them.
        bits: All of them, or-ed: its trailing zeros tell how they are aligned.
        costs: What accesses through them cost, by space, width, elements and offset in a sector.
    """

    def __init__(self, register: Array, active: Lanes | None) -> None:
        # What is remembered by identity has to stay alive.
        self.register, self.active = register, active
        own = register if active is None or register.size == 1 else register[active]
        self.address = own if own.itemsize == 8 else own.astype(np.uint64)
        if own.size == 1:
            self.low = self.high = self.bits = int(own[0])
        else:
            self.low, self.high = int(own.min()), int(own.max())
            self.bits = int(np.bitwise_or.reduce(own))
        self.costs: dict[tuple[str, int, int, int], Cost] = {}
        self._indices: dict[tuple[int, int], Array] = {}
        self._owners: list[Region | Private] = []

    def in_region(self, region: Region, width: int) -> Array:
        """For each lane the element of a region, as its view of that width counts them."""
        key = (id(region), width)
        index = self._indices.get(key)
        if index is None:
            first = region.view(width)[1]
            index = _elements(self.address - np.uint64(first), width)
            self._keep(key, region, index)
        return index

    def in_private(self, private: Private, window: int, width: int) -> Array:
        """For each lane the element of shared or local memory, counted over all owners."""
        key = (id(private), width)
        index = self._indices.get(key)
        if index is None:
            bases = private.bases
            if bases.size > 1 and self.active is not None:
                bases = bases[self.active]
            index = _elements(self.address + (bases - np.uint64(window)), width)
            self._keep(key, private, index)
        return index

    def _keep(self, key: tuple[int, int], owner: Region | Private, index: Array) -> None:
        self._indices[key] = index
        self._owners.append(owner)


def _elements(offset: Array, width: int) -> Array:
    index = offset.view(np.int64)
    return index if width == 1 else index >> (width.bit_length() - 1)
