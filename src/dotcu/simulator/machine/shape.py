"""The numbers of a launch's threads: blocks one after the other, each padded to whole warps.

Blocks stand in linear order. Those of a cluster stand together: clusters in linear order, and in each its
blocks by rank. A batch holds whole clusters, so a block of the same cluster is at a fixed distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotcu.simulator.run import Array, Coordinates

Threads = NDArray[np.int64]
WARP = 32


def merged(one: Threads, other: Threads) -> Threads:
    """Return the threads of both, ascending."""
    threads: Threads = np.concatenate((one, other))
    threads.sort()
    return threads


@dataclass(frozen=True, kw_only=True)
class BatchShape:
    """The numbers of the threads of some blocks, which make a batch.

    Attributes:
        grid, block, cluster: Blocks, threads, and blocks of a cluster in x, y, z.
        first: Number of the batch's first block, counted cluster after cluster and rank after rank.
        blocks: How many blocks the batch holds.
    """

    grid: Coordinates
    block: Coordinates
    first: int
    blocks: int
    cluster: Coordinates = (1, 1, 1)

    @property
    def block_threads(self) -> int:
        """Threads in a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def pitch(self) -> int:
        """Threads from one block to the next: its threads, padded to whole warps."""
        return -(-self.block_threads // WARP) * WARP

    @property
    def threads(self) -> int:
        """All threads, padding among them."""
        return self.blocks * self.pitch

    @cached_property
    def rank(self) -> int:
        """The rank whose launch the blocks are of, where several run at once."""
        return self.first // max(1, self.grid[0] * self.grid[1] * self.grid[2])

    @cached_property
    def _first_of_rank(self) -> int:
        return self.first - self.rank * self.grid[0] * self.grid[1] * self.grid[2]

    @cached_property
    def cluster_blocks(self) -> int:
        """Blocks in a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    @property
    def cluster_threads(self) -> int:
        """Threads from one cluster to the next."""
        return self.cluster_blocks * self.pitch

    @property
    def clusters(self) -> Coordinates:
        """Clusters in x, y, z."""
        x, y, z = (g // c for g, c in zip(self.grid, self.cluster, strict=True))
        return x, y, z

    def coordinates(self, thread: int) -> tuple[Coordinates, Coordinates]:
        """blockIdx and threadIdx of a thread."""
        block, place = divmod(thread, self.pitch)
        cluster, rank = divmod(self._first_of_rank + block, self.cluster_blocks)
        x, y, z = (
            outer * extent + inner
            for outer, extent, inner in zip(
                split(cluster, self.clusters), self.cluster, split(rank, self.cluster), strict=True
            )
        )
        return (x, y, z), split(place, self.block)

    def program(self, thread: int) -> Coordinates:
        """The Triton program of a thread, whose blocks are a cluster."""
        x, y, z = (b // c for b, c in zip(self.coordinates(thread)[0], self.cluster, strict=True))
        return x, y, z

    def numbers(self) -> tuple[Array, Array]:
        """For each block of the batch the number of its cluster, and its rank there."""
        first = self._first_of_rank
        cluster, rank = np.divmod(np.arange(first, first + self.blocks), self.cluster_blocks)
        return cluster, rank


def split(linear: Any, extent: Coordinates) -> tuple[Any, Any, Any]:
    """The coordinates of linear numbers, or of one."""
    return (
        linear % extent[0],
        linear // extent[0] % extent[1],
        linear // (extent[0] * extent[1]),
    )
