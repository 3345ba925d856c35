"""What a launch's accesses and branches cost, by instruction.

Counting is exact, and cheap where a kernel does the same again: what an access costs depends only
on its addresses relative to the first one, and on where that one lies in its sector or word. So
patterns that were counted are kept, and a register that holds addresses keeps what they cost.

Source: Nsight Compute, "Memory Tables", for the words request, sector, wavefront and ideal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dotcu.simulator.counting.coalesce import (
    SECTOR_BYTES,
    WARP,
    WORD_BYTES,
    Array,
    Groups,
    Lanes,
    sectors,
    served_together,
    wavefronts,
)

if TYPE_CHECKING:
    from dotcu.ptx.link import Placed
    from dotcu.simulator.machine.chunk import Chunk
    from dotcu.simulator.semantics.spaces import Access, Part

# Patterns whose costs are remembered: few, since one may be large.
REMEMBERED = 32


class Cost(NamedTuple):
    """What one step's access cost.

    Attributes:
        lanes: Lanes that took part.
        requests: Warps that did.
        served: Sectors of global memory, or wavefronts of shared memory, that it took.
        ideal: How many it would have taken, had the same bytes lain side by side.
    """

    lanes: int = 0
    requests: int = 0
    served: int = 0
    ideal: int = 0


class Where(NamedTuple):
    """What the cost of a pattern depends on, apart from the places themselves.

    Attributes:
        phase: Where the first lane's element lies in its sector, or word, in elements.
    """

    space: str
    phase: int
    width: int
    elements: int


@dataclass
class Site:
    """Sums over one instruction's accesses.

    Attributes:
        total: By space, "global", "shared" or "local".
    """

    access: Access
    total: dict[str, Cost] = field(default_factory=dict)

    def add(self, space: str, cost: Cost) -> None:
        """Take one access in."""
        known = self.total.get(space)
        self.total[space] = cost if known is None else Cost(*map(int.__add__, known, cost))


class Traffic:
    """What a launch's accesses and branches cost, by the number of the instruction.

    Attributes:
        sites: Accesses.
        splits: Branches at which lanes of a warp parted, and how many warps did.
        skipped: Instructions whose guard kept lanes out, and how many lanes.
    """

    def __init__(self) -> None:
        self.sites: dict[int, Site] = {}
        self.splits: dict[int, tuple[Placed, int]] = {}
        self.skipped: dict[int, tuple[Placed, int]] = {}
        self._lanes: Lanes | None = None
        self._groups: dict[int, Groups] = {}
        self._patterns: dict[tuple[Where, int, int, int], tuple[Array, Lanes | None, Cost]] = {}

    def site(self, access: Access) -> Site:
        """The sums of an instruction."""
        found = self.sites.get(access.number)
        if found is None:
            found = self.sites[access.number] = Site(access)
        return found

    def split(self, number: int, placed: Placed, warps: int) -> None:
        """Count warps whose lanes parted at a branch."""
        self.splits[number] = (placed, self.splits.get(number, (placed, 0))[1] + warps)

    def skip(self, number: int, placed: Placed, lanes: int) -> None:
        """Count lanes that a guard kept from an instruction."""
        self.skipped[number] = (placed, self.skipped.get(number, (placed, 0))[1] + lanes)

    def groups(self, lanes: Lanes, size: int = WARP) -> Groups:
        """Lanes, in ascending order, as groups of neighbours; kept until other lanes are asked for."""
        if lanes is not self._lanes:
            self._lanes, self._groups = lanes, {}
        found = self._groups.get(size)
        if found is None:
            found = self._groups[size] = Groups(lanes, size)
        return found

    def count_groups(self, lanes: Lanes | None, count: int, size: int = WARP) -> int:
        """How many groups the lanes are of; None stands for the first `count` ones."""
        return count // size if lanes is None else self.groups(lanes, size).count

    def cost(self, places: Array, lanes: Lanes | None, where: Where) -> Cost:
        """The cost of places that may differ from lane to lane."""
        relative = places - places[0]
        key = (where, len(places), int(relative[1]), int(relative[-1]))
        known = self._patterns.get(key)
        if known is not None and known[1] is lanes and np.array_equal(known[0], relative):
            return known[2]
        cost = self._worked_out(relative + where.phase, lanes, where)
        if len(self._patterns) >= REMEMBERED:
            self._patterns.clear()
        self._patterns[key] = (relative, lanes, cost)
        return cost

    def _worked_out(self, places: Array, lanes: Lanes | None, where: Where) -> Cost:
        count, nbytes = len(places), where.width * where.elements
        size = WARP
        if where.space == "shared":
            size, places = served_together(nbytes), places * where.width // WORD_BYTES
        rows = places.reshape(-1, size) if lanes is None else self.groups(lanes, size).rows(places)
        served = wavefronts(rows, nbytes) if where.space == "shared" else sectors(rows, where.width, nbytes)
        return Cost(count, self.count_groups(lanes, count), *served)


def count_access(chunk: Chunk, access: Access, parts: Sequence[Part]) -> None:
    """Count what an access of the active lanes cost; `parts` is what was resolved of it.

    Note:
        Atomics are counted as reads are: what it costs when several lanes hit one address is not
        documented.
    """
    traffic: Traffic = chunk.grid.traffic
    site = traffic.site(access)
    if len(parts) != 1 or parts[0].positions is not None:
        for part in parts:
            lanes = chunk.active if part.positions is None else chunk.numbers()[part.positions]
            space = _space(chunk, access, part)
            site.add(space, _part_cost(traffic, chunk, access, part, space, lanes))
        return
    space, costs = _space(chunk, access, parts[0]), chunk.locate(access.slot).costs
    # A common offset changes nothing but where the addresses lie in their sectors.
    key = (space, access.width, access.elements, access.offset % SECTOR_BYTES)
    cost = costs.get(key)
    if cost is None:
        cost = costs[key] = _part_cost(traffic, chunk, access, parts[0], space, chunk.active)
    site.add(space, cost)


def _part_cost(
    traffic: Traffic, chunk: Chunk, access: Access, part: Part, space: str, lanes: Lanes | None
) -> Cost:
    if part.places.size == 1 or space == "local":
        return _cost_of_one(traffic, space, lanes, chunk.lanes, access.bytes)
    where = Where(space, _phase(access, part), access.width, access.elements)
    return traffic.cost(part.places, lanes, where)


def _space(chunk: Chunk, access: Access, part: Part) -> str:
    if part.region is not None:
        return "global"
    data = chunk.shared.views[access.width]
    return "shared" if part.view is data or part.view.base is data.base else "local"


def _phase(access: Access, part: Part) -> int:
    first = int(part.places[0])
    if part.region is None:
        return first % max(1, WORD_BYTES // access.width)
    address = part.region.view(access.width)[1] + first * access.width
    return address % SECTOR_BYTES // access.width


def _cost_of_one(traffic: Traffic, space: str, lanes: Lanes | None, everyone: int, nbytes: int) -> Cost:
    """The cost where all lanes want the same; of local memory, which each has for itself, the lanes alone."""
    count = everyone if lanes is None else len(lanes)
    if space == "local":
        return Cost(count)
    warps = traffic.count_groups(lanes, count)
    size = served_together(nbytes) if space == "shared" else WARP
    served = warps if size == WARP else traffic.count_groups(lanes, count, size)
    return Cost(count, warps, served, served)
