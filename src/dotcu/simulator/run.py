"""A run of the simulator: its settings, its findings, and its counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from dotcu.errors import FindingError
from dotcu.simulator import CHECKS, ON_REQUEST
from dotcu.simulator.counting.counters import Counters
from dotcu.tracebacks import file_line

if TYPE_CHECKING:
    from dotcu.simulator.sanitizers.earlier import EarlierLaunch

PATIENCE_STEPS = 5_000_000
REVERSED = -1
"""The seed that reverses the order in which blocks, warps and atomics take effect without one."""
OF_RACES = ("race", "proxy-fence")
ENOUGH_LANES = 1 << 12
"""Lanes of an instruction that are found to race, after which it is not checked for races again."""


@dataclass
class Run:
    """One simulation of any number of launches.

    Attributes:
        arch: The architecture to compile for, for those who compile.
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
        watch: Told of each basic block that is next: its steps, lanes and place. It may raise.
        findings: What was found, one for each kind and line of a kernel.
        output: What the kernels printed.
        counters: What was executed.
        earlier: What the latest launch wrote.
    """

    arch: str = "sm_80"
    on_finding: Literal["raise", "collect"] = "raise"
    seed: int | None = None
    checks: frozenset[str] = CHECKS
    step_limit: int | None = None
    patience: int | None = None
    remedy: str = ""
    watch: Callable[[int, int, Callable[[], str]], None] | None = None
    findings: list[Finding] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    earlier: EarlierLaunch | None = field(default=None, repr=False)
    _lanes: dict[tuple[str, str, str, int], Counter[str]] = field(default_factory=dict, repr=False)

    def report(self, finding: Finding, instruction: str = "") -> None:
        """Take a finding in, merged with an earlier one of the same kind and line.

        Its lanes are those of the instruction of that line that has the most of them, so that
        a lane whose index is wrong counts once, not for every operand that it indexes.

        A finding of a check that is off is dropped.

        Raises:
            FindingError: The run stops at findings: at each, also at one that was seen before.
        """
        if _CHECK_OF.get(finding.kind, finding.kind) in (CHECKS | ON_REQUEST) - self.checks:
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


_CHECK_OF = {
    **dict.fromkeys(("out-of-bounds", "null-pointer", "misaligned", "read-only", "exited-block"), "bounds"),
    "uninitialized-read": "init",
    "proxy-fence": "race",
    "divergent-barrier": "divergence",
}


def _key(finding: Finding) -> tuple[str, str, str, int]:
    return finding.kind, finding.kernel, finding.file, finding.line


Coordinates = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A fault, at the line and thread where it first showed.

    Attributes:
        kind: "out-of-bounds", "null-pointer", "misaligned", "uninitialized-read", "read-only",
            "barrier", "deadlock", "step-limit", "stack-overflow", "bad-call", "trap", "race",
            "proxy-fence", "divergent-barrier", "exited-block", "broken-promise", "wgmma", "setmaxnreg",
            "division-by-zero" or "metadata".
        kernel: The kernel's display name.
        file: The source file, as the user knows it; empty if the PTX names none.
        line: The line in it, from 1; 0 if the PTX names none.
        block: blockIdx of the first lane at fault.
        thread: threadIdx of the first lane at fault.
        lanes: How many lanes were at fault at this line; of races at least these, from `ENOUGH_LANES` on.
        address_of: The kernel's argument, or the variable, whose memory it was; empty if none.
        message: What happened and what is required.
        source: The line's text; empty if it is not known.
        caller: The tensor that the caller passed for that argument, and the line of the launch; empty if
            neither is known.
        rank: Of the launch on several GPUs; None of another launch.
        tile: It is a tile kernel, which has no threads: `block` is the tile block, `lanes` are elements.
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

    def __str__(self) -> str:
        place = f"{file_line(self.file, self.line)}: " if self.line else ""
        count = f"{self.lanes} {'element' if self.tile else 'thread'}{'s' * (self.lanes != 1)}"
        if self.kind in OF_RACES and self.lanes >= ENOUGH_LANES and not self.tile:
            count = f"at least {count}"
        first = f"block {shown_coordinates(self.block)}"
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
