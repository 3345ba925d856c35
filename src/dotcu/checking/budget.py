"""The budget of a quick check in the simulator: calls of an operator beyond it are left out, and counted.

The simulator's work is counted in steps and lanes. A clock bounds the whole as well, for what is slower than
it counts: what is left out by the clock differs between machines.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dotcu.checking.cases.samples import Case
from dotcu.errors import FindingError
from dotcu.simulator import Run

STEP_S, LANE_S = 20e-6, 5e-9
"""The simulator's time for an instruction, and for each lane in it. Source: measured, one core, 2026-11."""

CALL_S, CASES_S, OPERATOR_S, CLOCK_S = 3.0, 6.0, 12.0, 16.0
"""The most seconds of one call, of cases before one more begins, and of all calls, as counted above; and of
this thread in all calls."""

PATIENCE, FEW_LANES = 500_000, 1024
"""Steps without progress after which a loop counts as endless, and the most lanes of a call that may reach
them: one call of an operator, beyond the limits above. About 8 s. Source: as above."""

_REMEDY = "run the standard level, which waits longer, or give a sample with fewer steps."

PAUSE_S = 0.1
"""The clock stands still in a longer pause between two basic blocks: a kernel is compiled, for example."""

_LONG = "left out, as it takes long to simulate{}"


class LeftOut(BaseException):
    """The rest of a trial is left out. Trials and bodies do not catch it: no Exception.

    Attributes:
        for_time: True if a quick check has no time for it.
    """

    def __init__(self, reason: str, *, for_time: bool = True) -> None:
        super().__init__(reason)
        self.for_time = for_time


@dataclass(eq=False)
class Budget:
    """The simulated work of one operator in a quick check, and its limits.

    Attributes:
        share: The part of the limits that this process has: others have the rest.
        spent_s: Work of all calls so far, in seconds.
        origin: The sample of the case whose call is made; empty if it is none.
        elements: Of its tensors.
        too_large: For each sample, the fewest elements of its cases that were left out.
        endless: Where a call did not end.
        waited: One call has been let run to see whether it ends.
        clock_s: Time of this thread in all calls, in seconds.
        looked_s: When it was last looked at.
    """

    share: float = 1.0
    spent_s: float = 0.0
    origin: str = ""
    elements: int = 0
    too_large: dict[str, float] = field(default_factory=lambda: defaultdict(lambda: float("inf")))
    endless: str = ""
    waited: bool = False
    clock_s: float = 0.0
    looked_s: float = 0.0

    @contextmanager
    def of_case(self, case: Case) -> Iterator[None]:
        """Make the calls of a case; of a derived one only if its sample left out none so small."""
        self._require_end()
        elements = case.elements
        if case.derived and (elements >= self.too_large[case.origin] or self.spent_s > CASES_S * self.share):
            raise LeftOut(_LONG.format(""))
        self.origin, self.elements = case.origin, elements
        try:
            yield
        except FindingError as error:
            if error.finding.kind == "step-limit":
                self.endless = f"{error.finding.file}:{error.finding.line}"
            raise
        finally:
            self.origin = ""

    def _require_end(self) -> None:
        if self.endless:
            raise LeftOut(f"left out: a call did not end, at {self.endless}")

    def watch(self, run: Run) -> None:
        """End a run's launches where the budget does."""
        self._require_end()
        run.patience, run.remedy = PATIENCE, _REMEDY
        before, waits = self.spent_s, False

        def look(steps: int, lanes: int, where: Callable[[], str]) -> None:
            nonlocal waits
            now = time.thread_time()
            pause, self.looked_s = now - self.looked_s, now
            self.clock_s += pause if 0 < pause < PAUSE_S else 0.0
            if self.clock_s > CLOCK_S * self.share:
                raise LeftOut(_LONG.format(""))
            if waits:
                return
            self.spent_s += steps * (STEP_S + lanes * LANE_S)
            if self.spent_s - before > CALL_S:
                waits = bool(self.origin) and not self.waited and lanes <= FEW_LANES
                self.waited |= waits
                if not waits:
                    if self.origin:
                        self.too_large[self.origin] = min(self.too_large[self.origin], self.elements)
                    raise LeftOut(_LONG.format(f", and was still at {where()}"))
            if self.spent_s > OPERATOR_S * self.share:
                raise LeftOut(_LONG.format(""))

        run.watch = look
