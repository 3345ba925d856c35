"""The mapping of a launch's threads to lanes: blocks one after the other, each padded to whole warps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotcu.simulator.run import Coordinates

Array = NDArray[Any]
Lanes = NDArray[np.int64]
WARP = 32


def merged(one: Lanes, other: Lanes) -> Lanes:
    """Return the lanes of both, ascending."""
    lanes: Lanes = np.concatenate((one, other))
    lanes.sort()
    return lanes


@dataclass(frozen=True, kw_only=True)
class ChunkShape:
    """The mapping of the threads of some blocks to lanes.

    Attributes:
        grid: Blocks in x, y, z.
        block: Threads in x, y, z.
        first: Linear number of the chunk's first block.
        blocks: How many blocks the chunk holds.
    """

    grid: Coordinates
    block: Coordinates
    first: int
    blocks: int

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def pitch(self) -> int:
        """Lanes from one block to the next: its threads, padded to whole warps."""
        return -(-self.threads // WARP) * WARP

    @property
    def lanes(self) -> int:
        """All lanes, padding among them."""
        return self.blocks * self.pitch

    def coordinates(self, lane: int) -> tuple[Coordinates, Coordinates]:
        """blockIdx and threadIdx of a lane."""
        block, thread = divmod(lane, self.pitch)
        return _split(self.first + block, self.grid), _split(thread, self.block)


def _split(linear: int, extent: Coordinates) -> Coordinates:
    return (
        linear % extent[0],
        linear // extent[0] % extent[1],
        linear // (extent[0] * extent[1]),
    )
