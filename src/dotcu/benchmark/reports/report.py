"""The report of a benchmark: a value that prints itself, and has a plain form for programs."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from dotcu import report_base
from dotcu.benchmark.reports import plotting, saved_runs
from dotcu.benchmark.reports.comparison import RowComparison, compare_runs
from dotcu.benchmark.reports.table import table
from dotcu.benchmark.results import OWN, BenchRow, Machine, Means, Protocol
from dotcu.serialize import plain

if TYPE_CHECKING:
    from dotcu.benchmark.estimate import Estimate

VERSION = 2
"""The version of the JSON form; docs/reference/reports.md has its keys."""


@dataclass(frozen=True, kw_only=True)
class BenchReport(report_base.Report):
    """The report of `dotcu.bench`. `str()` of it is a table.

    Attributes:
        by: The timer, unless a row has another.
        changes: The comparison with a saved run; None if none was named.
        notes: Remarks on all rows: why a better timer was not used, say.
        sources: The digest of each operator's source, by its name.
        estimate: Bounds in place of rows if there is no GPU.
        interrupted: True if the user interrupted the run.
    """

    machine: Machine
    protocol: Protocol
    by: Means
    rows: tuple[BenchRow, ...]
    changes: tuple[RowComparison, ...] | None = None
    notes: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    estimate: Estimate | None = None
    interrupted: bool = False

    @property
    def passed(self) -> bool:
        """True if there are figures, none is wrong or refused, and no operator got slower or was lost.

        With a baseline, at least one row of the operators' own was compared with it, too. Without a GPU, true
        if all kernels compile.
        """
        if self.interrupted:
            return False
        if self.estimate is not None:
            return all(call.compiles for call in self.estimate.calls)
        measured = any(row.status == "measured" for row in self.rows)
        return measured and not (self.faults or self.slower or self.lost or self.nothing_compared)

    @property
    def faults(self) -> tuple[BenchRow, ...]:
        """Rows that are wrong or refused, and operators' own that failed or were throttled."""
        of_all, of_own = ("wrong", "refused"), ("failed", "throttled")
        return tuple(
            row
            for row in self.rows
            if row.status in of_all or (row.key.contender == OWN and row.status in of_own)
        )

    @property
    def slower(self) -> tuple[RowComparison, ...]:
        """Rows of the operators' own that got slower; those of other contenders do not count."""
        own = (one for one in self.changes or () if one.row.key.contender == OWN)
        return tuple(one for one in own if one.change is not None and one.change.verdict == "slower")

    @property
    def lost(self) -> tuple[RowComparison, ...]:
        """Rows of the operators' own that the saved run has, that were asked for, and cannot be compared."""
        return tuple(one for one in self.changes or () if one.lost)

    @property
    def nothing_compared(self) -> bool:
        """True if a saved run was named, and no operator could be compared with it."""
        own = (one for one in self.changes or () if one.row.key.contender == OWN)
        return self.changes is not None and all(one.change is None for one in own)

    def save(self, path: str | Path) -> None:
        """Write everything, raw samples too, as JSON lines, for `--compare` and for programs."""
        saved_runs.write_run(Path(path), self)

    def compared_with(self, path: str | Path, *, whole: bool = False) -> BenchReport:
        """Return this report with a comparison of each row with the saved run in a file.

        A row that only the file has is lost if this run is of the `whole` target.
        """
        return replace(self, changes=tuple(compare_runs(Path(path), self, whole=whole)))

    def plot(self, path: str | Path) -> None:
        """Draw time and percent of the limit against size, as SVG or PNG by the path's suffix."""
        plotting.plot(self, Path(path))

    def _picture(self) -> str:
        """Plot time and percent of the limit against size, given several sizes and matplotlib."""
        drawn = {(row.key.op, row.elements) for row in self.rows if row.time and row.elements}
        several = len(drawn) > len({op for op, _ in drawn})
        if not several or find_spec("matplotlib") is None:
            return ""
        data = base64.b64encode(self.svg().encode()).decode()
        return f'<img alt="time of a call against size" src="data:image/svg+xml;base64,{data}">'

    def svg(self) -> str:
        """Return the plot as SVG."""
        drawn = io.BytesIO()
        plotting.plot(self, drawn)
        return drawn.getvalue().decode()

    def to_json(self) -> dict[str, Any]:
        """Return the report without raw samples; its `version` changes when the meaning of values does."""
        report: dict[str, Any] = plain(
            {
                "version": VERSION,
                "passed": self.passed,
                "interrupted": self.interrupted,
                "machine": self.machine,
                "protocol": self.protocol,
                "by": self.by,
                "notes": self.notes,
                "rows": [_row_json(row) for row in self.rows],
                "changes": None if self.changes is None else [_change_json(one) for one in self.changes],
                "sources": self.sources,
                "estimate": self.estimate and _estimate_json(self.estimate),
            }
        )
        return report

    def __rich__(self) -> RenderableType:
        return table(self)


def _row_json(row: BenchRow) -> dict[str, Any]:
    values = {**vars(row.key), **vars(row)}
    del values["key"], values["measured"]
    for name in ("time", "host"):
        if values[name] is not None:
            values[name] = {**vars(values[name]), "noise": values[name].noise}
    return values | ({"by": row.measured.by, "stopped": row.measured.stopped} if row.measured else {})


def _change_json(one: RowComparison) -> dict[str, Any]:
    change = vars(one.change) if one.change else {"verdict": None, "ratio": None, "confidence": None}
    return {**vars(one.row.key), **change, "note": "; ".join(one.notes), "lost": one.lost}


def _estimate_json(estimate: Estimate) -> dict[str, Any]:
    """Return an estimate with each kernel of a call once, how long that took to compile, and its launches."""
    rows = []
    for call in estimate.calls:
        values = dict(vars(call))
        launches = values.pop("launches")
        first = {launch.kernel: launch for launch in reversed(launches)}
        counts = Counter(launch.kernel for launch in launches)
        values["kernels"] = [
            {"kernel": name, "seconds": first[name].compile_s, "cached": first[name].cached, "launches": n}
            for name, n in counts.items()
        ]
        rows.append(values)
    return {"gpu": estimate.sheet.name, "source": estimate.sheet.source, "calls": rows}
