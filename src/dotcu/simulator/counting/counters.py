"""Counts of what a run executed, by source line: the efficiency of a kernel without a GPU.

Always on. Instructions are known when a kernel is decoded, so they are counted by visits of basic
blocks; what depends on addresses and predicates is gathered in `traffic`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dotcu.ptx.instructions import Instruction

if TYPE_CHECKING:
    from dotcu.simulator.counting.traffic import AccessCost
    from dotcu.simulator.semantics.memory.access import Access
    from dotcu.simulator.tile.access import TileAccess


_INTEGERS = frozenset({"s8", "u8", "s4", "u4", "b1"})


@dataclass
class LineCounters:
    """The counts of one source line.

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
        ideal_sectors: Sectors of the same bytes side by side.
        global_bytes: Bytes that their lanes asked for, also where several asked for the same.
        shared_requests: Accesses to shared memory, counted once for each warp.
        shared_wavefronts: Wavefronts of shared memory that they took.
        ideal_wavefronts: Wavefronts without bank conflicts.
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
    def flops(self) -> int:
        """Operations on floats of all types."""
        return sum(count for type_, count in self.operations.items() if type_ not in _INTEGERS)

    def add_work(self, work: tuple[str, str, int], lanes: int) -> None:
        """Count an instruction for some lanes; for a negative number of them, discount it."""
        kind, type_, operations = work
        self.lane_instructions += lanes
        self.classes[kind] += lanes
        if operations:
            self.operations[type_] += lanes * operations

    def add_accesses(self, access: Access | TileAccess, costs: Mapping[str, AccessCost]) -> None:
        """Count an instruction's accesses; `costs` are by space."""
        nbytes, action = access.bytes, access.action
        lanes = sum(cost.lanes for cost in costs.values())
        if action == "read":
            self.loaded_bytes += lanes * nbytes
        else:
            self.stored_bytes += lanes * nbytes
        if action == "atomic":
            self.atomics += lanes
        for space, cost in costs.items():
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
class Counters(LineCounters):
    """Sums over all launches of a run: those of all lines, and by line.

    Attributes:
        launches: Kernels launched.
        steps: Instructions issued, each for however many lanes stood there together.
        lines: The same counts by source line: (file, line) to Line.
    """

    launches: int = 0
    steps: int = 0
    lines: defaultdict[tuple[str, int], LineCounters] = field(
        default_factory=lambda: defaultdict(LineCounters)
    )

    def both(self, place: tuple[str, int]) -> tuple[LineCounters, LineCounters]:
        """The totals and the counts of a line: what is counted is added to each."""
        return self, self.lines[place]


# The class of an instruction, and the arithmetic operations that it counts as.
#
# An add or a multiply is one operation, a fused multiply-add two, each element of a packed pair counts, and
# a matrix instruction of M x N x K is 2 M N K for its warp. Minima, comparisons, conversions and moves are
# none.
#
# Source: PTX ISA, "Instruction Set" for the groups; NVIDIA, "Matrix Multiplication Background User's
# Guide" for the counts.


WARP = 32
_FLOATS = frozenset({"f32", "f64", "f32x2"})
_HALVES = frozenset({"f16", "f16x2", "bf16", "bf16x2"})
_PACKED = frozenset({"f16x2", "bf16x2", "f32x2"})

_OPCODES_BY_CLASS = {
    "move": "mov selp slct cvta isspacep mapa getctarank prmt createpolicy alloca stacksave stackrestore",
    "convert": "cvt szext",
    "memory": "ld ldu st prefetch prefetchu applypriority discard",
    "atomic": "atom red multimem",
    "async": "cp mbarrier tensormap",
    "matrix": "mma wmma ldmatrix stmatrix movmatrix wgmma tcgen05",
    "warp": "shfl vote match redux activemask elect",
    "barrier": "bar barrier membar fence griddepcontrol nanosleep",
    "control": "bra brx ret exit call trap brkpt assertfail setmaxnreg pmevent",
}
CLASSES: Mapping[str, str] = {
    opcode: kind for kind, opcodes in _OPCODES_BY_CLASS.items() for opcode in opcodes.split()
}
"""Opcodes that are of one class whatever their type; all others are arithmetic of their type."""

# Functions of the special-function units where they are approximate.
_SPECIAL = frozenset({"rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"})
# Arithmetic operations of one element.
OPERATIONS: Mapping[str, int] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "atom", "red", *_SPECIAL), 1),
    **dict.fromkeys(("fma", "mad"), 2),
}
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")


def work_of(instruction: Instruction) -> tuple[str, str, int]:
    """Return the class of an instruction, the type of its operations, and how many a lane executes.

    The class is that of its opcode, or of the type that it computes in. The type is without the x2 of a
    pair, and empty if there are no operations. Those of a matrix instruction are divided among the lanes
    of its warp.
    """
    opcode, type_ = instruction.opcode, instruction.types[-1] if instruction.types else ""
    is_half, is_float = type_ in _HALVES, type_ in _FLOATS
    kind = CLASSES.get(opcode, "half" if is_half else "float" if is_float else "integer")
    if opcode in _SPECIAL and "approx" in instruction.flags:
        kind = "special"
    if kind == "matrix":
        return _matrix(instruction)
    count = OPERATIONS.get(opcode, 0) * (2 if type_ in _PACKED else 1)
    if not count or not (is_half or is_float) or (kind == "atomic" and "add" not in instruction.flags):
        return kind, "", 0
    return kind, type_.removesuffix("x2"), count


def _matrix(instruction: Instruction) -> tuple[str, str, int]:
    shape = next(filter(None, map(_SHAPE.match, instruction.flags)), None)
    if shape is None or not {"mma", "mma_async"} & {instruction.opcode, *instruction.flags}:
        return "matrix", "", 0
    m, n, k = map(int, shape.groups())
    # d, a, b and c; wgmma's d is c as well; wmma of halves names d and c only.
    type_ = instruction.types[1] if len(instruction.types) > 2 else "f16"
    # The one shape of which a warp computes four at once (PTX ISA, "mma.m8n8k4").
    times = 4 if (m, n, k) == (8, 8, 4) and type_ == "f16" else 1
    lanes = 4 * WARP if instruction.opcode == "wgmma" else WARP
    return "matrix", type_, times * 2 * m * n * k // lanes
