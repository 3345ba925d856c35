"""Reports of `dotcu tune`: a row for each case, and the entries of tuned files as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dotcu import report_base
from dotcu.operator.configurations import values_text
from dotcu.operator.tuned import TunedEntry
from dotcu.serialize import plain

TuneStatus = Literal["tuned", "gated", "failed", "skipped"]
"""The outcome of a case: a configuration chosen; rejected and checked alone, without a GPU; none could be
chosen; not begun."""

_REASONS = 6
"""Reasons of rejections that are shown for a case."""


@dataclass(frozen=True, kw_only=True)
class RejectedConfiguration:
    """A configuration that was not timed, or not chosen, and why."""

    configuration: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, kw_only=True)
class TuneRow:
    """One case of an operator.

    Attributes:
        case: The name of its inputs.
        key: What of the call matters.
        candidates: How many configurations are declared.
        configuration: The one that was chosen; of a case that was not timed, the default.
        is_default: True if that is the author's default.
        median_us: Its time; None where nothing was timed.
        over_runner_up: The time of the best other one over its own.
        over_default: The time of the default over its own; 0 if the default was rejected.
        tied: How many were as good.
        seconds: What the case took.
        reason: Why there is no choice, or none beside the default.
    """

    op: str
    case: str
    key: tuple[Any, ...]
    status: TuneStatus
    candidates: int
    configuration: Mapping[str, Any]
    is_default: bool = False
    median_us: float | None = None
    over_runner_up: float = 1.0
    over_default: float = 1.0
    tied: int = 1
    rejected: tuple[RejectedConfiguration, ...] = ()
    seconds: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.op} {self.case}"


@dataclass(frozen=True, kw_only=True)
class TuneReport(report_base.Report):
    """The report of `dotcu.tune`. `str()` of it is a table.

    Attributes:
        gpu: The GPU; empty without one.
        rows: A row for each case.
        files: The files that were written, or are as they were.
        notes: Remarks on all rows.
        interrupted: True if the user interrupted; rows of what was done until then are there.
    """

    gpu: str
    rows: tuple[TuneRow, ...]
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    seconds: float = field(default=0.0, compare=False)

    @property
    def passed(self) -> bool:
        """True if every case has a choice; without a GPU, if a configuration of each is right."""
        return not self.interrupted and all(row.status in ("tuned", "gated") for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON has it; docs/reference/reports.md has its keys."""
        values: dict[str, Any] = {"version": 1, **plain(self)}
        return {**values, "passed": self.passed}

    def __rich__(self) -> RenderableType:
        columns = ("operator", "case", "configuration", "us", "runner-up", "default", "right", "s", "remark")
        table = _table(columns, right=("us", "runner-up", "default", "right", "s"))
        for row in self.rows:
            timed = row.median_us is not None
            right = (
                "" if row.status == "skipped" else f"{row.candidates - len(row.rejected)}/{row.candidates}"
            )
            remark = row.reason or ("the default" if row.is_default and timed else "")
            table.add_row(
                row.op, row.case, values_text(row.configuration) if timed else "",
                f"{row.median_us:.4g}" if timed else "",
                f"{row.over_runner_up:.3f}" if timed else "", _over_default(row) if timed else "", right,
                f"{row.seconds:.1f}", Text(remark),
            )  # fmt: skip
        parts: list[RenderableType] = [table, *map(Text, self._rejections()), *map(Text, self.notes)]
        where = self.gpu or "no GPU: configurations were rejected and checked, and none was timed"
        ending = ", interrupted" if self.interrupted else ""
        parts.append(Text(f"{where}; {self.seconds:.1f} s{ending}"))
        parts += [Text(f"wrote {file}") for file in self.files]
        return Group(*parts)

    def _rejections(self) -> list[str]:
        """Return a line for each reason, the most frequent first."""
        reasons: Counter[tuple[str, str]] = Counter()
        examples: dict[tuple[str, str], Mapping[str, Any]] = {}
        for row in self.rows:
            for each in row.rejected:
                reasons[row.op, each.reason] += 1
                examples.setdefault((row.op, each.reason), each.configuration)
        lines = []
        for (op, reason), count in reasons.most_common(_REASONS):
            times = f", {count} times" if count > 1 else ""
            lines.append(f"rejected: {op} {values_text(examples[op, reason])}{times}: {reason}")
        more = len(reasons) - _REASONS
        reasons_text = "reason" if more == 1 else "reasons"
        return [*lines, f"rejected for {more} more {reasons_text}: --json has them"] if more > 0 else lines


def _over_default(of: TuneRow | TunedEntry) -> str:
    return f"{of.over_default:.3f}" if of.over_default else "rejected"


def entries_table(entries: Sequence[tuple[str, TunedEntry, str]]) -> RenderableType:
    """Return entries of files as a table: operator, entry, and why it is left out, if it is."""
    columns = ("operator", "GPU", "key", "configuration", "us", "runner-up", "default", "date", "remark")
    table = _table(columns, right=("us", "runner-up", "default"))
    for name, entry, misfit in entries:
        table.add_row(
            name, entry.gpu, ", ".join(map(str, entry.key)), values_text(entry.configuration),
            f"{entry.median_us:.4g}", f"{entry.over_runner_up:.3f}", _over_default(entry), entry.date, misfit,
        )  # fmt: skip
    return table


def _table(columns: Sequence[str], *, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table
