"""Pictures of reports: what lines of a kernel executed, as bars; times against size, as a plot."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dotcu.benchmark.report import BenchReport
    from dotcu.inspection.code.inspected import InspectedKernel
    from dotcu.inspection.code.report import InspectReport

_BAR = 24  # characters of the longest


def of(report: Any) -> str:
    """The picture of a report as HTML; empty where it has none."""
    draw = _PICTURES.get(type(report).__name__)
    return draw(report) if draw else ""


def plot(report: BenchReport) -> str:
    """Time and percent of the limit against size, where there are several sizes and matplotlib is there."""
    drawn = {(row.key.op, row.elements) for row in report.rows if row.time and row.elements}
    several = len(drawn) > len({op for op, _ in drawn})
    if not several or find_spec("matplotlib") is None:
        return ""
    data = base64.b64encode(report.svg().encode()).decode()
    return f'<img alt="time of a call against size" src="data:image/svg+xml;base64,{data}">'


def lines(report: InspectReport) -> str:
    """Each counted kernel's source, with a bar at each line for what it executed; of several, folded."""
    counted = [one for one in report.kernels if one.counted is not None]
    return "".join(_lines(one, " open" if len(counted) == 1 else "") for one in counted)


def _lines(one: InspectedKernel, state: str) -> str:
    name = f"{one.code.name} {one.code.arch}"
    rows = "".join(_rows(one))
    head = '<tr><th class="right">instructions</th><th></th><th class="right">line</th><th></th></tr>'
    return (
        f"<details{state}><summary>{html.escape(name)}: instructions by line</summary>"
        f"<table>{head}{rows}</table></details>"
    )


def _rows(one: InspectedKernel) -> Iterator[str]:
    """The lines from the first to the last that executed anything."""
    assert one.counted is not None
    home = one.code.home
    counts = {p.line: line.lane_instructions for p, line in one.counted.lines.items() if p.file == home}
    text = one.code.texts.get(home, "").splitlines()
    most = max(counts.values(), default=0)
    for number in range(min(counts, default=1), max(counts, default=0) + 1):
        count = counts.get(number, 0)
        bar = f'<span class="bar" style="width:{_BAR * count / most:.1f}ch"></span>' if count else ""
        source = html.escape(text[number - 1]) if number <= len(text) else ""
        yield (
            f'<tr><td class="right">{f"{count:,}" if count else ""}</td><td>{bar}</td>'
            f'<td class="right dim">{number}</td><td>{source}</td></tr>'
        )


_PICTURES: dict[str, Callable[[Any], str]] = {"BenchReport": plot, "InspectReport": lines}
"""By the name of a report's type, so that none is imported for it."""
