"""What a run executed and what it cost, by source line: the efficiency of a kernel without a GPU.

Always on. Instructions are known when a kernel is decoded, so they are counted by visits of basic
blocks; what depends on addresses and predicates is gathered in `traffic`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dotcu.simulator.counting.traffic import Cost, Site
    from dotcu.simulator.counting.work import Work
    from dotcu.simulator.decoding.decode import Tally

_INTEGERS = frozenset({"s8", "u8", "s4", "u4", "b1"})


@dataclass
class Line:
    """What one source line executed.

    Attributes:
        lane_instructions: Instructions, counted once for each lane that ran them; lanes that a guard
            kept out did not.
        warp_instructions: Instructions, counted once for each warp that issued them.
        branches: Branches, guarded or not, counted once for each warp that came to them.
        divergent_branches: Of those, the ones at which lanes of the warp went different ways.
        loaded_bytes: Bytes that its loads asked for, in every state space but param.
        stored_bytes: Bytes that its stores and atomics wrote, in every state space.
        global_requests: Accesses to global memory, counted once for each warp.
        global_sectors: Sectors of 32 bytes that they touched.
        ideal_sectors: Sectors that would have held the same bytes side by side.
        global_bytes: Bytes that their lanes asked for, also where several asked for the same.
        shared_requests: Accesses to shared memory, counted once for each warp.
        shared_wavefronts: Turns that the banks took over them.
        ideal_wavefronts: Turns that they would have taken without bank conflicts.
        shared_bytes: Bytes that their lanes asked for.
        atomics: Atomic operations, counted once for each lane.
        classes: Lane instructions by class: "integer", "float", "half", "special", "move", "convert",
            "memory", "atomic", "async", "matrix", "warp", "barrier", "control".
        operations: Arithmetic operations of lanes by type, such as "f32": an add, a multiply or a
            quotient is one, a fused multiply-add two, m x n x k of a matrix instruction 2 m n k for
            its warp. Integers are counted in matrix instructions only.
    """

    lane_instructions: int = 0
    warp_instructions: int = 0
    branches: int = 0
    divergent_branches: int = 0
    loaded_bytes: int = 0
    stored_bytes: int = 0
    global_requests: int = 0
    global_sectors: int = 0
    ideal_sectors: int = 0
    global_bytes: int = 0
    shared_requests: int = 0
    shared_wavefronts: int = 0
    ideal_wavefronts: int = 0
    shared_bytes: int = 0
    atomics: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)

    @property
    def active_lanes(self) -> float:
        """Lanes that ran an instruction, of the 32 of its warp, on average; 0 if there was none."""
        return _ratio(self.lane_instructions, self.warp_instructions)

    @property
    def sectors_per_request(self) -> float:
        """Sectors of global memory for each warp's access: 4 where neighbours have neighbouring floats."""
        return _ratio(self.global_sectors, self.global_requests)

    @property
    def sector_efficiency(self) -> float:
        """The ideal number of sectors over those touched: 1 is best; 1 where there were none."""
        return _ratio(self.ideal_sectors, self.global_sectors, 1.0)

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts of shared memory beyond those that the accesses need."""
        return self.shared_wavefronts - self.ideal_wavefronts

    @property
    def branch_efficiency(self) -> float:
        """Branches at which warps stayed together, over all: 1 is best; 1 where there were none."""
        return _ratio(self.branches - self.divergent_branches, self.branches, 1.0)

    @property
    def flops(self) -> int:
        """Operations on floats of all types."""
        return sum(count for type_, count in self.operations.items() if type_ not in _INTEGERS)

    def add_visits(self, tally: Tally, lanes: int, warps: int) -> None:
        """Count a basic block's instructions of this line, all visits together."""
        self.lane_instructions += lanes * tally.instructions
        self.warp_instructions += warps * tally.instructions
        self.branches += warps * tally.branches
        for kind, times in tally.classes:
            self.classes[kind] += lanes * times
        for type_, count in tally.operations:
            self.operations[type_] += lanes * count

    def take_back(self, work: Work, lanes: int) -> None:
        """Discount an instruction for lanes that its guard kept out."""
        self.lane_instructions -= lanes
        self.classes[work.kind] -= lanes
        if work.operations:
            self.operations[work.type] -= lanes * work.operations

    def add_traffic(self, site: Site) -> None:
        """Count an instruction's accesses."""
        nbytes, action = site.access.bytes, site.access.action
        lanes = sum(cost.lanes for cost in site.total.values())
        if action == "read":
            self.loaded_bytes += lanes * nbytes
        else:
            self.stored_bytes += lanes * nbytes
        if action == "atomic":
            self.atomics += lanes
        for space, cost in site.total.items():
            self._add_cost(space, cost, nbytes)

    def _add_cost(self, space: str, cost: Cost, nbytes: int) -> None:
        if space == "global":
            self.global_requests += cost.requests
            self.global_sectors += cost.served
            self.ideal_sectors += cost.ideal
            self.global_bytes += cost.lanes * nbytes
        elif space == "shared":
            self.shared_requests += cost.requests
            self.shared_wavefronts += cost.served
            self.ideal_wavefronts += cost.ideal
            self.shared_bytes += cost.lanes * nbytes


def _ratio(part: int, whole: int, otherwise: float = 0.0) -> float:
    return part / whole if whole else otherwise


@dataclass
class Counters(Line):
    """Sums over all launches of a run: those of all lines, and by line.

    Attributes:
        launches: Kernels launched.
        steps: Instructions issued, each for however many lanes stood there together.
        lines: The same counts by source line: (file, line) to Line.
    """

    launches: int = 0
    steps: int = 0
    lines: defaultdict[tuple[str, int], Line] = field(default_factory=lambda: defaultdict(Line))

    def both(self, place: tuple[str, int]) -> tuple[Line, Line]:
        """The totals and the counts of a line: what is counted is added to each."""
        return self, self.lines[place]
