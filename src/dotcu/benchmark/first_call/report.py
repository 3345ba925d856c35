"""The first call of an operator, phase by phase: a value that prints itself, and has a plain form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.console import RenderableType

from dotcu import report_base
from dotcu.benchmark.first_call import rendering
from dotcu.benchmark.first_call.catalogue import Stage, about

VERSION = 1
"""Of the JSON form; docs/bench.md has its keys."""

Cache = Literal["empty", "filled"]
"""What the call found in the cache: nothing, or what an earlier process had compiled."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of the time, disjoint with all others.

    Attributes:
        name: A key of `catalogue.START` or `catalogue.CALL`.
        times: How often it came.
    """

    stage: Stage
    name: str
    ms: float
    times: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """A process that made the call for the first time, and some calls more.

    Attributes:
        whole_ms: From before the process was started until it told that the result was there: one
            stopwatch, of another process and another clock than those of the phases.
        imported: The modules that the call imported, without those that they import in turn.
        later_ms: The calls after the first, each with the wait for its result.
    """

    cache: Cache
    phases: tuple[Phase, ...]
    whole_ms: float
    imported: tuple[str, ...] = ()
    later_ms: tuple[float, ...]

    def stage_ms(self, stage: Stage) -> float:
        """What the phases before the call, or those in it, add up to."""
        return sum(phase.ms for phase in self.phases if phase.stage == stage)

    @property
    def remainder_ms(self) -> float:
        """What no phase accounts for. Two clocks differ: it may be a little less than nothing."""
        return self.whole_ms - sum(phase.ms for phase in self.phases)

    def find(self, stage: Stage, name: str) -> Phase | None:
        """A phase, None where it did not come."""
        return next((p for p in self.phases if (p.stage, p.name) == (stage, name)), None)


@dataclass(frozen=True, kw_only=True)
class FirstCall(report_base.Report):
    """Where the time of a first call goes. `str()` of it is a table.

    Attributes:
        operator: The qualified name.
        sample: What it was called with, in words: the first of its samples that has elements.
        device: `simulator`, or the GPU's name and number.
        planned: Whether calls from the third on were replayed by a plan.
        note: What else there is to say; empty where nothing is.
        runs: With the cache empty, then with it filled.
    """

    operator: str
    sample: str
    device: str
    planned: bool
    versions: Mapping[str, str]
    note: str = ""
    runs: tuple[Run, ...]

    @property
    def simulated(self) -> bool:
        """Whether the kernels ran in the simulator, for want of a GPU."""
        return self.device == "simulator"

    def to_json(self) -> dict[str, Any]:
        """The report as plain values, with a `version` that changes when their meaning does."""
        return {
            "version": VERSION,
            "operator": self.operator,
            "sample": self.sample,
            "device": self.device,
            "planned": self.planned,
            "versions": dict(self.versions),
            "note": self.note,
            "runs": [self._run(run) for run in self.runs],
        }

    def _run(self, run: Run) -> dict[str, Any]:
        return {
            "cache": run.cache,
            "whole_ms": run.whole_ms,
            "start_ms": run.stage_ms("start"),
            "call_ms": run.stage_ms("call"),
            "remainder_ms": run.remainder_ms,
            "imported": list(run.imported),
            "later_ms": list(run.later_ms),
            "phases": [
                {**asdict(phase), **asdict(about(phase.name, simulated=self.simulated))}
                for phase in run.phases
            ],
        }

    def __rich__(self) -> RenderableType:
        return rendering.table(self)
