"""A report as people read it.

dotcu::add  every tensor counted once
  limit, cold: memory, 2 reads to 1 write, 4.39 TB/s
                       µs  ± %  IQR %    n  host µs       rate  % limit  × dotcu
  float32-4096x4096  201 MB, limit 45.86 µs cold
    cold  dotcu     46.02  0.1    0.3  400      3.9  4.37 TB/s     99.7
          eager     46.21  0.1    0.3  400      4.8  4.36 TB/s     99.2     1.00
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from dotcu.benchmark.rendering import changes, estimated, head, rows

if TYPE_CHECKING:
    from dotcu.benchmark.report import BenchReport


def table(report: BenchReport) -> RenderableType:
    """The whole report."""
    parts: list[RenderableType] = [*head.lines(report)]
    if report.rows:
        parts.append(rows.grid(report))
    if report.estimate is not None:
        parts.append(estimated.grid(report.estimate))
    if report.changes is not None:
        parts.append(changes.grid(report.changes))
    return Group(*parts, Text(), _conclusion(report))


def _conclusion(report: BenchReport) -> Text:
    counts = Counter(row.status for row in report.rows)
    measured = f"{counts.pop('measured', 0)} of {_count(len(report.rows), 'row')} measured"
    others = [f"{number} {status}" for status, number in counts.items()]
    slower = [f"{len(report.slower)} slower"] if report.slower else []
    lost = [f"{len(report.lost)} lost since then"] if report.lost else []
    nothing = ["nothing compared"] if report.nothing_compared else []
    told = ", ".join([measured, *others, *slower, *lost, *nothing])
    if report.estimate is not None:
        return Text("nothing was measured", style="bold yellow")
    if report.interrupted:
        return Text(f"interrupted: {told}", style="bold red")
    if report.held:
        return Text(f"held: {told}", style="bold green")
    return Text(f"FELL SHORT: {told}", style="bold red")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
