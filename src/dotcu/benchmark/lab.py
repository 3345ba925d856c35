"""Where things are timed: a GPU, the means of taking its time, and what it can do at best."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch

from dotcu.benchmark import clocks
from dotcu.benchmark.limits import ceilings, datasheet, kept
from dotcu.benchmark.limits.ceilings import Ceilings
from dotcu.benchmark.limits.datasheet import Sheet
from dotcu.benchmark.limits.limit import Limit, limit
from dotcu.benchmark.machine import machine
from dotcu.benchmark.measured import L2, Means
from dotcu.benchmark.row import Machine
from dotcu.benchmark.timers import Shot, Timer, choose
from dotcu.benchmark.work import Work
from dotcu.checking.trials.telling import one_line

CALLS = 15
"""Of which the median is a ceiling."""

HOLD_US = 100.0
"""Time for the host to queue one call of those whose ceilings are taken."""


class Lab:
    """A GPU for a run. What it can do is measured before its first row, and kept for later runs.

    Args:
        means: How to take device time; None for the best that works.
    """

    def __init__(self, device: torch.device, means: Means | None = None) -> None:
        self.device = device
        self._means = means
        self._ceilings: Ceilings | None = None
        self._lacking: dict[str, str] = {}

    @cached_property
    def machine(self) -> Machine:
        """What the run is made on and with."""
        return machine(self.device)

    @cached_property
    def timer(self) -> Timer:
        """The means of taking device time. The first look at CUPTI takes seconds."""
        with self.current():
            return choose(self.device, self._means)

    def require(self) -> None:
        """Raise where nothing can be timed.

        Raises:
            EnvironmentFault: There is no GPU, or no means of taking its time works.
        """
        self.timer  # noqa: B018

    def current(self) -> AbstractContextManager[object]:
        """Make the GPU torch's current one, until the block ends."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    @cached_property
    def sheet(self) -> Sheet | None:
        """The GPU's datasheet."""
        return datasheet.of_device(self.device, sm_mhz=self.machine.clocks.get("sm", 0))

    @property
    def notes(self) -> tuple[str, ...]:
        """What holds for every row: which means could not be used, and what was not told."""
        why = [f"{means} was not used: {reason}" for means, reason in self.timer.why.items()]
        sheet = [] if self.sheet else [f"no datasheet of {self.machine.gpu} is known: nothing is refused"]
        return tuple(filter(None, (*why, clocks.why_not(), *self._lacking.values(), *sheet)))

    def prepare(self) -> None:
        """Measure what the GPU can do at best, while its memory is free; where that fails, notes tell."""
        self._measured()

    def limit(self, work: Work, l2: L2) -> Limit | None:
        """The least time that the GPU needs for some work; None where that is not known."""
        found = self._known(work)
        if found is None:
            return None
        return limit(work, found, self.sheet, l2=l2, l2_bytes=self.machine.l2_bytes)

    def _known(self, work: Work) -> Ceilings | None:
        """The ceilings, with the rate that the work needs; None where they cannot be measured."""
        found = self._measured()
        if found is None or not work.flops:
            return found
        try:
            wider = ceilings.with_rates(found, work.dtype, self.device, self._cold_us)
        except Exception as error:  # too little memory; or the GPU is unusable, which the next call tells
            self._lacking[work.dtype] = f"no limit of {work.dtype} arithmetic: {one_line(error)}"
            return None  # a limit of the bytes alone would be taken for the whole
        self._lacking.pop(work.dtype, None)
        if wider is not found:
            self._ceilings = wider
            kept.keep(wider)
        return wider

    def _measured(self) -> Ceilings | None:
        """The ceilings without rates; where measuring them fails, it is not tried again."""
        if self._ceilings is None and not self._lacking:
            try:
                self._ceilings = self._kept()
            except Exception as error:  # a run without limits is better than none
                self._lacking[""] = f"no limits: {one_line(error)}"
        return self._ceilings

    def _kept(self) -> Ceilings:
        uuid, driver = self.machine.uuid, self.machine.versions["driver"]

        def measure() -> Ceilings:
            return ceilings.measure(
                self.device, time_cold=self._cold_us, time_warm=self._warm_us, uuid=uuid, driver=driver
            )

        return kept.kept_or(uuid, driver, measure)

    def _cold_us(self, run: Callable[[], Any]) -> float:
        return self._median_us(run, self.timer.flush)

    def _warm_us(self, run: Callable[[], Any]) -> float:
        return self._median_us(run, run)

    def _median_us(self, run: Callable[[], Any], prepare: Callable[[], Any]) -> float:
        shots = [Shot(name="ceiling", run=run, prepare=prepare, hold_us=HOLD_US) for _ in range(CALLS)]
        return statistics.median(call.time_us for call in self.timer.time(shots))
