"""The budget of a quick check in the simulator: calls of an operator beyond it are left out, and counted.

The simulator's work is counted in steps and lanes, so the same calls are left out on every machine. A clock
bounds the whole as well, for what is slow elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dotcu.checking.trial import LEFT_OUT
from dotcu.simulator import Run

STEP_S, LANE_S = 20e-6, 5e-9
"""The simulator's time for an instruction, and for each lane in it. Source: measured, one core, 2026-11."""

CALL_S, CASES_S, OPERATOR_S, CLOCK_S = 3.0, 6.0, 12.0, 16.0
"""The most seconds of one call, of cases before one more begins, and of all calls, as counted above; and of
this thread in all calls."""

PAUSE_S = 0.1
"""The clock stands still in a longer pause between two basic blocks: a kernel is compiled, for example."""

_LONG = f"{LEFT_OUT}, as it takes long to simulate{{}}"


class LeftOut(BaseException):
    """The rest of a trial is left out. Trials and bodies do not catch it: no Exception."""


@dataclass(eq=False)
class Budget:
    """The simulated work of one operator in a quick check, and its limits.

    Attributes:
        spent_s: Work of all calls so far, in seconds.
        elements: Of the tensors of the call that is made; None if unknown.
        too_large: The fewest elements of a case that was left out.
        endless: Where a call did not end.
        clock_s: Time of this thread in all calls, in seconds.
        looked_s: When it was last looked at.
    """

    spent_s: float = 0.0
    elements: int | None = None
    too_large: float = float("inf")
    endless: str = ""
    clock_s: float = 0.0
    looked_s: float = 0.0

    @contextmanager
    def of_case(self, elements: int) -> Iterator[None]:
        """Make the calls of a case, unless one of no more elements was left out or others need the time."""
        self._require_end()
        if elements >= self.too_large or self.spent_s > CASES_S:
            raise LeftOut(_LONG.format(""))
        self.elements = elements
        try:
            yield
        finally:
            self.elements = None

    def _require_end(self) -> None:
        if self.endless:
            raise LeftOut(f"{LEFT_OUT}: a call did not end, at {self.endless}")

    def watch(self, run: Run) -> None:
        """End a run's launches where the budget does."""
        self._require_end()
        before = self.spent_s

        def ends(ran: int, steps: int, lanes: int, where: Callable[[], str]) -> bool:
            self.spent_s += steps * (STEP_S + lanes * LANE_S)
            now = time.thread_time()
            pause, self.looked_s = now - self.looked_s, now
            self.clock_s += pause if 0 < pause < PAUSE_S else 0.0
            if self.elements is not None and ran > 100_000 + 10 * self.elements**2:
                self.endless = where()
                return True
            if self.spent_s - before > CALL_S:
                self.too_large = min(self.too_large, self.elements or self.too_large)
                raise LeftOut(_LONG.format(f", and was still at {where()}"))
            if self.spent_s > OPERATOR_S or self.clock_s > CLOCK_S:
                raise LeftOut(_LONG.format(""))
            return False

        run.watch = ends
