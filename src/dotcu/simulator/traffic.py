"""The cost of a launch's accesses and branches, by instruction.

Counting is exact, and cheap where a kernel does the same again: what an access costs depends only
on its addresses relative to the first one, and on where that one is in its sector or word. So
the costs of patterns are remembered, and those of a register that holds addresses.

Global memory is served in sectors of 32 bytes. Shared memory is served in wavefronts: in one, each
of the 32 banks of 4 bytes gives one word, to however many lanes want it. Accesses of 8 bytes are
served by half warps, those of 16 by quarters.

Source: CUDA C++ Programming Guide, "Device Memory Accesses", "Compute Capability 5.x: Shared
Memory" for banks and "2.x" for wide accesses; Nsight Compute, "Memory Tables", for the words
request, sector, wavefront and ideal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dotcu.simulator.machine.shape import WARP, Threads
from dotcu.simulator.machine.state import Access, AccessPart, Batch, LaunchState
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.program.opcodes import work_of
from dotcu.simulator.run import AccessCost, Array

SECTOR_BYTES = 32
BANKS = 32
WORD_BYTES = 4


class LaneGroups:
    """Threads, in ascending order, as groups of `size` neighbours that are served together.

    Attributes:
        count: How many groups have lanes among them.
    """

    def __init__(self, lanes: Threads, size: int) -> None:
        self.size = size
        self._lanes = lanes
        group = lanes // size
        self._fresh = group[1:] != group[:-1]
        self.count = 1 + int(np.count_nonzero(self._fresh))
        self._whole = len(lanes) == self.count * size
        self._begins: Array | None = None
        self._at: Array

    def rows(self, indices: Array) -> Array:
        """A row for each group; a lane that takes no part stands there as the first that does."""
        if self._whole:
            return indices.reshape(-1, self.size)
        if self._begins is None:
            begins = np.concatenate(([True], self._fresh))
            self._begins = np.flatnonzero(begins)
            self._at = (np.cumsum(begins) - 1) * self.size + self._lanes % self.size
        rows = np.repeat(indices[self._begins], self.size)
        rows[self._at] = indices
        return rows.reshape(-1, self.size)


def _served_together(nbytes: int) -> int:
    """Return how many lanes of a warp shared memory serves at once, if each of them wants `nbytes`."""
    return min(WARP, max(1, BANKS * WORD_BYTES // nbytes))


def _sectors(rows: Array, width: int, nbytes: int) -> tuple[int, int]:
    """Return the sectors that warps touch, and how many would hold the same bytes side by side.

    A row has for each lane the first of its elements, counted from the beginning of a sector.
    """
    ordered = np.sort(rows, axis=1)
    distinct = 1 + np.count_nonzero(_changes(ordered), axis=1)
    ideal = -(-distinct * nbytes // SECTOR_BYTES)
    touched = _changes(ordered >> (SECTOR_BYTES // width).bit_length() - 1)
    each = max(1, nbytes // SECTOR_BYTES)
    return (len(ordered) + int(np.count_nonzero(touched))) * each, int(ideal.sum())


def _wavefronts(rows: Array, nbytes: int) -> tuple[int, int]:
    """Return the wavefronts that groups of lanes take, and how many they would without bank conflicts.

    A row has for each lane the first of its words.
    """
    if nbytes > WORD_BYTES:
        words = np.arange(nbytes // WORD_BYTES)
        rows = (rows[:, :, None] + words).reshape(len(rows), -1)
    ordered = np.sort(rows, axis=1)
    ideal = len(ordered)
    ordered = ordered[ordered[:, -1] - ordered[:, 0] >= BANKS]  # fewer words than banks never meet
    fresh = np.concatenate((np.ones((len(ordered), 1), bool), _changes(ordered)), axis=1)
    bank = ordered % BANKS + BANKS * np.arange(len(ordered))[:, None]
    counts = np.bincount(bank[fresh], minlength=BANKS * len(ordered))
    return ideal - len(ordered) + int(counts.reshape(-1, BANKS).max(axis=1).sum()), ideal


def _changes(ordered: Array) -> Array:
    """Return where an element of a sorted row differs from the one before it."""
    return ordered[:, 1:] != ordered[:, :-1]


# Patterns whose costs are remembered: few, since one may be large.
REMEMBERED = 32


AccessPattern = tuple[str, int, int, int]
"""The properties of an access that determine its cost, apart from the addresses.

The space, the first lane's place in its sector or word in elements, an element's bytes, and the elements.
"""


class TrafficCounters:
    """Observes a launch: its accesses and branches, by the number of the instruction, and its basic blocks.

    Attributes:
        accesses: Each access, and what it cost by space: "global", "shared" or "local".
        issues: For each basic block, the warps that have run it.
        splits: Branches at which lanes of a warp parted, and how many warps did.
        skipped: Instructions whose guard kept lanes out, and how many lanes.
    """

    def __init__(self, launch: LaunchState) -> None:
        self.launch = launch
        self.issues = [0] * len(launch.decoded.blocks)
        self.accesses: dict[int, tuple[Access, dict[str, AccessCost]]] = {}
        self.splits: dict[int, tuple[FlatInstruction, int]] = {}
        self.skipped: dict[int, tuple[FlatInstruction, int]] = {}
        self._lanes: Threads | None = None
        self._groups: dict[int, LaneGroups] = {}
        self._patterns: dict[
            tuple[AccessPattern, int, int, int], tuple[Array, Threads | None, AccessCost]
        ] = {}

        launch.on.block.append(self.visit)
        launch.on.branch.append(self.split)
        launch.on.skip.append(self.skip)
        launch.on.resolve.append(self.count)

    def visit(self, batch: Batch, number: int) -> None:
        """Count the warps that run a basic block."""
        active = batch.active
        self.issues[number] += batch.threads // WARP if active is None else self.groups(active).count

    def split(self, number: int, instruction: FlatInstruction, warps: int) -> None:
        self.splits[number] = (instruction, self.splits.get(number, (instruction, 0))[1] + warps)

    def skip(self, number: int, instruction: FlatInstruction, lanes: int) -> None:
        self.skipped[number] = (instruction, self.skipped.get(number, (instruction, 0))[1] + lanes)

    def groups(self, lanes: Threads, size: int = WARP) -> LaneGroups:
        """Threads, in ascending order, as groups of neighbours; remembered for the same threads."""
        if lanes is not self._lanes:
            self._lanes, self._groups = lanes, {}
        if size not in self._groups:
            self._groups[size] = LaneGroups(lanes, size)
        return self._groups[size]

    def count(self, batch: Batch, access: Access, parts: Sequence[AccessPart]) -> None:
        """Count what an access of the active threads cost; `parts` is what was resolved of it.

        Args:
            parts: The parts of the access that are in bounds and aligned.

        Note:
            Atomics are counted as reads are: what it costs when several threads hit one address is not
            documented.
        """
        _, sums = self.accesses.setdefault(access.number, (access, {}))
        for part in parts:
            space, is_whole = _space(batch, access, part), part.positions is None
            # A common offset changes nothing but where the addresses lie in their sectors.
            key = (space, access.width, access.elements, access.offset % SECTOR_BYTES)
            costs = batch.locate(access.slot).costs if is_whole else {}
            cost = costs.get(key)
            if cost is None:
                lanes = batch.active if is_whole else batch.numbers(part.positions)
                if part.indices.size == 1 or space == "local":
                    cost = self._cost_of_one(space, lanes, batch.threads, access.bytes)
                else:
                    pattern = (space, _phase(access, part), access.width, access.elements)
                    cost = self._cost(part.indices, lanes, pattern)
                costs[key] = cost
            known = sums.get(space)
            sums[space] = cost if known is None else AccessCost(*map(int.__add__, known, cost))

    def add_to_run(self) -> None:
        """Add what ran to the run's counters."""
        counters, place = self.launch.run.counters, self.launch.decoded.location_of
        counters.launches += 1
        counters.steps += self.launch.steps
        for lanes, warps, block in zip(
            self.launch.visits, self.issues, self.launch.decoded.blocks, strict=True
        ):
            for (at, is_branch, work), times in block.work.items() if lanes else ():
                for line in counters.both(at):
                    line.add_work(work, times * lanes)
                    line.warp_instructions += times * warps
                    line.branches += times * warps * is_branch
        for instruction, lanes in self.skipped.values():
            for line in counters.both(place(instruction)):
                line.add_work(work_of(instruction.ptx), -lanes)
        for instruction, warps in self.splits.values():
            for line in counters.both(place(instruction)):
                line.divergent_branches += warps
        for access, costs in self.accesses.values():
            for line in counters.both(place(access.instruction)):
                line.add_accesses(access.action, access.bytes, costs)

    def _cost(self, indices: Array, lanes: Threads | None, pattern: AccessPattern) -> AccessCost:
        """Return the cost of places that may differ from lane to lane; remembered by their distances."""
        relative = indices - indices[0]
        key = (pattern, len(indices), int(relative[1]), int(relative[-1]))
        known = self._patterns.get(key)
        if known is not None and known[1] is lanes and np.array_equal(known[0], relative):
            return known[2]
        space, phase, width, elements = pattern
        nbytes, places, size = width * elements, relative + phase, WARP
        if space == "shared":
            size, places = _served_together(nbytes), places * width // WORD_BYTES
        rows = places.reshape(-1, size) if lanes is None else self.groups(lanes, size).rows(places)
        served = _wavefronts(rows, nbytes) if space == "shared" else _sectors(rows, width, nbytes)
        cost = AccessCost(len(relative), self._count_groups(lanes, len(relative)), *served)
        if len(self._patterns) >= REMEMBERED:
            self._patterns.clear()
        self._patterns[key] = (relative, lanes, cost)
        return cost

    def _cost_of_one(self, space: str, lanes: Threads | None, everyone: int, nbytes: int) -> AccessCost:
        """Return the cost where all lanes want the same; of local memory, which each has, the lanes alone."""
        count = everyone if lanes is None else len(lanes)
        if space == "local":
            return AccessCost(count)
        size = _served_together(nbytes) if space == "shared" else WARP
        served = self._count_groups(lanes, count, size)
        return AccessCost(count, self._count_groups(lanes, count), served, served)

    def _count_groups(self, lanes: Threads | None, count: int, size: int = WARP) -> int:
        """Return how many groups the lanes belong to; None stands for the first `count` lanes."""
        return count // size if lanes is None else self.groups(lanes, size).count


def _space(batch: Batch, access: Access, part: AccessPart) -> str:
    if part.region is not None:
        return "global"
    data = batch.shared.views[access.width]
    return "shared" if part.view is data or part.view.base is data.base else "local"


def _phase(access: Access, part: AccessPart) -> int:
    first = int(part.indices[0])
    if part.region is None:
        return first % max(1, WORD_BYTES // access.width)
    address = part.region.view(access.width)[1] + first * access.width
    return address % SECTOR_BYTES // access.width
