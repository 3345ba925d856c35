"""What a benchmark found: a value that prints itself, and has a plain form for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from dotcu import report_base
from dotcu.benchmark import plotting, rendering
from dotcu.benchmark.measured import Means
from dotcu.benchmark.protocol import Protocol
from dotcu.benchmark.row import OWN, Machine, Row
from dotcu.benchmark.since import Compared, compare_runs
from dotcu.benchmark.statistics import Summary

if TYPE_CHECKING:
    from dotcu.benchmark.estimate import Estimate

VERSION = 1
"""Of the JSON form; docs/bench.md has its keys."""


@dataclass(frozen=True, kw_only=True)
class BenchReport(report_base.Report):
    """What `dotcu.bench` found. `str()` of it is a table.

    Attributes:
        by: How device time was taken, unless a row says otherwise.
        rows: In the order of the plan.
        changes: Since an earlier run; None where none was named.
        notes: What holds for all rows: why a better means was not there, say.
        sources: The digest of each operator's source, by its name.
        estimate: What can be said where there is no GPU.
        interrupted: Whether there was more to measure.
    """

    machine: Machine
    protocol: Protocol
    by: Means
    rows: tuple[Row, ...]
    changes: tuple[Compared, ...] | None = None
    notes: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    estimate: Estimate | None = None
    interrupted: bool = False

    @property
    def held(self) -> bool:
        """Whether there are figures, none of them is wrong or refused, no operator got slower or was lost.

        Where an earlier run was named, something of the operators' own was compared with it, too.
        """
        measured = any(row.status == "measured" for row in self.rows) or self.estimate is not None
        fell_short = self.faults or self.slower or self.lost or self.nothing_compared
        return measured and not (fell_short or self.interrupted)

    @property
    def faults(self) -> tuple[Row, ...]:
        """What is wrong or refused, and operators without figures because they failed or were throttled."""
        of_all, of_own = ("wrong", "refused"), ("failed", "throttled")
        return tuple(
            row
            for row in self.rows
            if row.status in of_all or (row.key.contender == OWN and row.status in of_own)
        )

    @property
    def slower(self) -> tuple[Compared, ...]:
        """Which operators got slower since the earlier run; baselines that did are no fault of theirs."""
        return tuple(
            one
            for one in self.changes or ()
            if one.row.key.contender == OWN and one.change is not None and one.change.verdict == "slower"
        )

    @property
    def lost(self) -> tuple[Compared, ...]:
        """Operators' rows that had figures in the earlier run, were asked for, and cannot be compared."""
        return tuple(one for one in self.changes or () if one.lost)

    @property
    def nothing_compared(self) -> bool:
        """Whether an earlier run was named, and no operator could be compared with it."""
        own = (one for one in self.changes or () if one.row.key.contender == OWN)
        return self.changes is not None and all(one.change is None for one in own)

    def save(self, path: str | Path) -> None:
        """Write everything, raw samples too, as JSON lines, for `--compare` and for programs.

        Raises:
            UsageError: The file cannot be written.
        """
        from dotcu.benchmark import store

        store.write(Path(path), self, sources=self.sources)

    def compared_with(self, path: str | Path, *, whole: bool = False) -> BenchReport:
        """This report, with what became of each row since a run that was saved.

        Args:
            whole: Whether this run is of all operators: one that only the file has does not hold, then.

        Raises:
            UsageError: The file cannot be read, or was not saved by a report.
        """
        changes = compare_runs(Path(path), self, sources=self.sources, whole=whole)
        return replace(self, changes=tuple(changes))

    def plot(self, path: str | Path) -> None:
        """Draw time and percent of the limit against size, as SVG or PNG by the path's suffix.

        Raises:
            UsageError: Another suffix, or no row that could be drawn.
            EnvironmentFault: matplotlib is not installed.
        """
        plotting.plot(self, Path(path))

    def svg(self) -> str:
        """What `plot` draws, as SVG.

        Raises:
            UsageError: No row could be drawn.
            EnvironmentFault: matplotlib is not installed.
        """
        return plotting.svg(self)

    def to_json(self) -> dict[str, Any]:
        """The report as plain values, without raw samples; its `version` changes when their meaning does.

        A number that is not finite is None, so every reader of JSON takes it.
        """
        report = {
            "version": VERSION,
            "held": self.held,
            "interrupted": self.interrupted,
            "machine": vars(self.machine),
            "protocol": asdict(self.protocol),
            "by": self.by,
            "notes": self.notes,
            "rows": [_row(row) for row in self.rows],
            "changes": None if self.changes is None else [_change(one) for one in self.changes],
            "sources": self.sources,
            "estimate": None if self.estimate is None else _estimate(self.estimate),
        }
        return {name: report_base.values(value) for name, value in report.items()}

    def __rich__(self) -> RenderableType:
        return rendering.table(self)


def _row(row: Row) -> dict[str, Any]:
    by = {"by": row.measured.by, "stopped": row.measured.stopped} if row.measured else {}
    figures = {"time": _summary(row.time), "host": _summary(row.host)}
    values = {name: value for name, value in vars(row).items() if name not in ("key", "measured", *figures)}
    parts = {name: asdict(value) for name, value in values.items() if hasattr(value, "__dataclass_fields__")}
    return asdict(row.key) | values | parts | figures | by


def _estimate(estimate: Estimate) -> dict[str, Any]:
    calls = [
        vars(call) | {"work": asdict(call.work), "kernels": [asdict(kernel) for kernel in call.kernels]}
        for call in estimate.calls
    ]
    return {"gpu": estimate.gpu, "source": estimate.source, "calls": calls}


def _summary(summary: Summary | None) -> dict[str, float] | None:
    return None if summary is None else asdict(summary) | {"noise": summary.noise}


def _change(one: Compared) -> dict[str, Any]:
    told = {"verdict": None, "ratio": None, "confidence": None} if one.change is None else asdict(one.change)
    return asdict(one.row.key) | told | {"note": "; ".join(one.notes), "lost": one.lost}
