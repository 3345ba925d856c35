"""A run: what is simulated, how findings are treated, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from dotcu.errors import FindingError
from dotcu.simulator import CHECKS
from dotcu.simulator.counting.counters import Counters
from dotcu.simulator.finding import Finding

DEFAULT_STEP_LIMIT = 5_000_000


@dataclass
class Run:
    """One simulation of any number of launches.

    Attributes:
        arch: The architecture to compile for, for those who compile.
        on_finding: "raise" stops at the first finding; "collect" suppresses the faulty access
            (a load gives 0) and goes on.
        seed: Shuffles which warps run ahead, and the order in which atomics of one step reach
            memory; None: all warps in step, and lane order.
        checks: Of `CHECKS`, those that are on. A faulty access is left out in any case.
        step_limit: Steps of blocks that run together, after which a launch ends as a `step-limit`
            finding.
        findings: What was found, one for each kind and line of a kernel.
        output: What the kernels printed.
        counters: What was executed.
    """

    arch: str = "sm_80"
    on_finding: Literal["raise", "collect"] = "raise"
    seed: int | None = None
    checks: frozenset[str] = CHECKS
    step_limit: int = DEFAULT_STEP_LIMIT
    findings: list[Finding] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    _lanes: dict[tuple[str, str, str, int], dict[str, int]] = field(default_factory=dict, repr=False)

    def report(self, finding: Finding, instruction: str = "") -> None:
        """Take a finding in, merged with an earlier one of the same kind and line.

        Its lanes are those of the instruction of that line that has the most of them, so that
        a lane whose index is wrong counts once, not for every operand that it indexes.

        A finding of a check that is off is dropped.

        Raises:
            FindingError: The run stops at findings: at each, also at one that was seen before.
        """
        if _CHECK_OF.get(finding.kind, finding.kind) in CHECKS - self.checks:
            return
        if not self._merge(finding, instruction):
            self._lanes[_key(finding)] = {instruction: finding.lanes}
            self.findings.append(finding)
        if self.on_finding == "raise":
            raise FindingError(finding)

    def _merge(self, finding: Finding, instruction: str) -> bool:
        for index, known in enumerate(self.findings):
            if _key(known) == _key(finding):
                counts = self._lanes[_key(known)]
                counts[instruction] = counts.get(instruction, 0) + finding.lanes
                self.findings[index] = replace(known, lanes=max(counts.values()))
                return True
        return False


_CHECK_OF = {
    **dict.fromkeys(("out-of-bounds", "null-pointer", "misaligned", "read-only"), "bounds"),
    "uninitialized-read": "init",
}


def _key(finding: Finding) -> tuple[str, str, str, int]:
    return finding.kind, finding.kernel, finding.file, finding.line
