"""A run of the simulator: its settings, its findings, and its counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from numpy.typing import NDArray

from dotcu.errors import FindingError
from dotcu.tracebacks import file_line

Array = NDArray[Any]
CHECKS = frozenset({"bounds", "init", "race", "barrier"})
"""The checks of a run."""
ON_REQUEST = frozenset({"divergence"})
"""Checks that are off unless a run asks for them: the hardware tolerates what they find."""
# Counts of what ran, by source line: always on, and the efficiency of a kernel without a GPU.


class AccessCost(NamedTuple):
    """The cost of one step's access.

    Attributes:
        lanes, requests: Threads that took part, and warps that did.
        served: Sectors of global memory, or wavefronts of shared memory, that it took.
        ideal: How many it would have taken, had the same bytes lain side by side.
    """

    lanes: int = 0
    requests: int = 0
    served: int = 0
    ideal: int = 0


_INTEGERS = frozenset({"s8", "u8", "s4", "u4", "b1"})


@dataclass
class LineCounters:
    """The counts of one source line.

    Attributes:
        lane_instructions: Instructions, counted once for each thread that ran them; threads that a guard
            kept out did not.
        warp_instructions: Instructions, counted once for each warp that issued them.
        branches: Branches, guarded or not, counted once for each warp that came to them.
        divergent_branches: Of those, the ones at which lanes of the warp went different ways.
        loaded_bytes: Bytes that its loads asked for, in every state space but param.
        stored_bytes: Bytes that its stores and atomics wrote, in every state space.
        global_requests: Accesses to global memory, counted once for each warp.
        global_sectors: Sectors of 32 bytes that they touched.
        ideal_sectors: Sectors of the same bytes side by side.
        global_bytes: Bytes that their threads asked for, also where several asked for the same.
        shared_requests: Accesses to shared memory, counted once for each warp.
        shared_wavefronts: Wavefronts of shared memory that they took.
        ideal_wavefronts: Wavefronts without bank conflicts.
        shared_bytes: Bytes that their threads asked for.
        atomics: Atomic operations, counted once for each thread.
        classes: Thread instructions by class: "integer", "float", "half", "special", "move", "convert",
            "memory", "atomic", "async", "matrix", "warp", "barrier", "control".
        operations: Arithmetic operations of threads by type, such as "f32": an add, a multiply or a
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
        """Threads that ran an instruction, of the 32 of its warp, on average; 0 if there was none."""
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
        """Count an instruction for some threads; for a negative number of them, discount it."""
        kind, type_, operations = work
        self.lane_instructions += lanes
        self.classes[kind] += lanes
        if operations:
            self.operations[type_] += lanes * operations

    def add_accesses(self, action: str, nbytes: int, costs: Mapping[str, AccessCost]) -> None:
        """Count the accesses of an instruction.

        Args:
            action, nbytes: "read", "write" or "atomic", and the bytes of each access.
            costs: What they cost, by space.
        """
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
        steps: Instructions issued, each for however many threads stood there together.
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


# The run.

PATIENCE_STEPS = 5_000_000
REVERSED = -1
"""The seed that reverses the order in which blocks, warps and atomics take effect without one."""
OF_RACES = ("race", "proxy-fence")
ENOUGH_LANES = 1 << 12
"""Threads of an instruction that are found to race, after which it is not checked for races again."""


@dataclass
class Run:
    """One simulation of any number of launches.

    Attributes:
        arch: The architecture to compile for.
        on_finding: "raise" stops at the first finding; "collect" suppresses the faulty access
            (a load gives 0) and goes on.
        seed: Shuffles which warps run ahead, and the order in which atomics of one step reach
            memory; None: all warps in step, and lane order; `REVERSED`: the last first.
        checks: Of `CHECKS` and `ON_REQUEST`, those that are on. A faulty access is left out in any case.
        step_limit: Steps of blocks that run together, after which a launch ends as a `step-limit`
            finding; None: `patience` in which no thread ends and none reaches code for the first time,
            however many there are in all.
        patience: See there; None: `PATIENCE_STEPS`.
        remedy: What to do if a kernel that ends reaches one of the two; empty: pass a higher limit.
        watch: Told of each basic block that is next: its steps, threads and place. It may raise.
        progress: Told of each launch: its kernel, how many blocks have ended, and how many it has.
        launches: How often each kernel was launched.
        findings: What was found, one for each kind and line of a kernel.
        output: What the kernels printed.
        counters: What was executed.
        earlier: What the latest launch wrote, as far as its races were checked.
    """

    arch: str = "sm_80"
    on_finding: Literal["raise", "collect"] = "raise"
    seed: int | None = None
    checks: frozenset[str] = CHECKS
    step_limit: int | None = None
    patience: int | None = None
    remedy: str = ""
    watch: Callable[[int, int, Callable[[], str]], None] | None = None
    progress: Callable[[str, int, int], None] = lambda kernel, ended, blocks: None
    launches: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    earlier: tuple[LaunchWrites, ...] = field(default=(), repr=False)
    _lanes: dict[tuple[str, str, str, int], Counter[str]] = field(default_factory=dict, repr=False)

    def report(self, finding: Finding, instruction: str = "") -> None:
        """Take a finding in, merged with an earlier one of the same kind and line.

        Its threads are those of the instruction of that line that has the most of them, so that
        a thread whose index is wrong counts once, not for every operand that it indexes.

        A finding of a check that is off is dropped.

        Raises:
            FindingError: The run stops at findings: at each, also at one that was seen before.
        """
        if finding.kind not in _ALWAYS and CHECK_OF[finding.kind] not in self.checks:
            return
        key = _key(finding)
        at = next((at for at, known in enumerate(self.findings) if _key(known) == key), None)
        if at is None:
            self._lanes[key] = Counter({instruction: finding.lanes})
            self.findings.append(finding)
        else:
            self._lanes[key][instruction] += finding.lanes
            self.findings[at] = replace(self.findings[at], lanes=max(self._lanes[key].values()))
        if self.on_finding == "raise":
            raise FindingError(finding)


_ENDS = ("trap", "stack-overflow", "bad-call", "division-by-zero", "metadata")
CHECK_OF: Mapping[str, str] = {
    **dict.fromkeys(("out-of-bounds", "null-pointer", "misaligned", "read-only", "exited-block"), "bounds"),
    "broken-promise": "bounds",
    "uninitialized-read": "init",
    **dict.fromkeys(("race", "proxy-fence", "wgmma"), "race"),
    **dict.fromkeys(("barrier", "deadlock", "step-limit", "setmaxnreg"), "barrier"),
    "divergent-barrier": "divergence",
    **dict.fromkeys(_ENDS, ""),
}
"""The check that each kind of finding is of; empty for what a kernel runs into whatever is checked."""

_ALWAYS = frozenset({*_ENDS, "broken-promise", "wgmma", "deadlock", "step-limit", "setmaxnreg"})
"""The kinds that no choice of checks turns off: what follows them is not what a GPU would do."""


def _key(finding: Finding) -> tuple[str, str, str, int]:
    return finding.kind, finding.kernel, finding.file, finding.line


Coordinates = tuple[int, int, int]


class LaunchWrites(NamedTuple):
    """The writes of a launch in one range of memory.

    Attributes:
        start: Where the range lies in this process.
        granule, stamps: Bytes of a granule, and for each one the stamp of its last write; 0: none.
    """

    kernel: str
    start: int
    granule: int
    stamps: Array


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A fault, at the line and thread where it first showed.

    Attributes:
        kind: One of those in `CHECK_OF`, such as "out-of-bounds".
        kernel: The kernel's display name.
        file: The source file, as the user knows it; empty if the PTX names none.
        line: The line in it, from 1; 0 if the PTX names none.
        block: blockIdx of the first thread at fault.
        thread: threadIdx of that thread.
        lanes: How many threads were at fault at this line; of races at least these, from `ENOUGH_LANES` on.
        address_of: The kernel's argument, or the variable, whose memory it was; empty if none.
        message: What happened and what is required.
        source: The line's text; empty if it is not known.
        caller: The tensor that the caller passed for that argument, and the line of the launch; empty if
            neither is known.
        rank: Of the launch on several GPUs; None of another launch.
        tile: It is a tile kernel, which has no threads: `block` is the tile block, `lanes` are elements.
        program: It is a Triton kernel: `block` is the program.
    """

    kind: str
    kernel: str
    file: str
    line: int
    block: Coordinates
    thread: Coordinates
    lanes: int
    address_of: str
    message: str
    source: str = ""
    caller: str = ""
    rank: int | None = None
    tile: bool = False
    program: bool = False

    def __str__(self) -> str:
        place = f"{file_line(self.file, self.line)}: " if self.line else ""
        count = f"{self.lanes} {'element' if self.tile else 'thread'}{'s' * (self.lanes != 1)}"
        if self.kind in OF_RACES and self.lanes >= ENOUGH_LANES and not self.tile:
            count = f"at least {count}"
        first = f"{'program' if self.program else 'block'} {shown_coordinates(self.block)}"
        first += "" if self.rank is None else f" of rank {self.rank}"
        first = f"tile {first}" if self.tile else f"thread {shown_coordinates(self.thread)} of {first}"
        who = f"{count}; first: {first}" if self.lanes > 1 or self.tile else first
        shown = f"\n    {self.line} | {self.source.strip()}" if self.source.strip() else ""
        caller = f"\n    {self.caller}" if self.caller else ""
        said = self.message if self.message.startswith(self.kind) else f"{self.kind}: {self.message}"
        return f"{place}{said}\n    in {self.kernel}, by {who}{caller}{shown}"


def shown_coordinates(coordinates: Coordinates) -> str:
    """Return coordinates as findings show them: `(0,0,0)`."""
    return "({},{},{})".format(*coordinates)
