"""Figures of contenders, and their tables and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from calls.stats import Spread, Times, Verdict, ratios, spread
from calls.timing import Skipped

console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The cost of one call of a contender, and its ratio to the cost of its base."""

    name: str
    us: Spread
    base: str
    ratio: Spread | None


def summarize(name: str, base: str, times: Times) -> Timing:
    """One contender's figures."""
    compared = base in times and base != name
    return Timing(
        name=name,
        us=spread(times[name]),
        base=base,
        ratio=spread(ratios(times, name, base)) if compared else None,
    )


def show(title: str, results: Sequence[Timing | Skipped]) -> None:
    """Print a table of contenders."""
    table = Table("contender", title=title)
    for heading in ("median", "quartiles", "range", "ratio", "quartiles"):
        table.add_column(heading, justify="right")
    table.add_column("to")
    for result in results:
        table.add_row(*row(result))
    console.print(table)


def row(result: Timing | Skipped) -> list[str]:
    """A line of the table."""
    if isinstance(result, Skipped):
        return [result.name, "skipped", "", "", "", "", result.reason]
    us, ratio = result.us, result.ratio
    figures = [f"{us.median:.2f}", f"{us.p25:.2f} to {us.p75:.2f}", f"{us.min:.2f} to {us.max:.2f}"]
    if ratio is None:
        return [result.name, *figures, "", "", ""]
    return [result.name, *figures, f"{ratio.median:.3f}", f"{ratio.p25:.3f} to {ratio.p75:.3f}", result.base]


def show_goals(verdicts: Sequence[Verdict]) -> None:
    """Print a table of goals, if there are any."""
    table = Table("goal", title="goals")
    table.add_column("figure", justify="right")
    table.add_column("")
    table.add_column("reason")
    for verdict in verdicts:
        figure = "not measured" if verdict.figure is None else f"{verdict.figure.median:.3f} {verdict.unit}"
        table.add_row(verdict.goal, figure, "held" if verdict.held else "MISSED", verdict.reason)
    if verdicts:
        console.print(table)
