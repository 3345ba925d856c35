"""Pictures of reports: what lines of a kernel executed, as bars; times against size, as a plot."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from html import escape as html_escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from dotcu import report_base
from dotcu.benchmark.reports.table import Grid, Line
from dotcu.errors import escaped

if TYPE_CHECKING:
    from dotcu.benchmark.reports.report import BenchReport
    from dotcu.inspection.report import InspectedKernel, InspectReport
    from dotcu.report_base import Report


def escape(text: str) -> str:
    """Return text as HTML that shows all of it, and no more."""
    return html_escape(escaped(text))


_BAR = 24  # characters of the longest


def plot(report: BenchReport) -> str:
    """Plot time and percent of the limit against size, given several sizes and matplotlib."""
    drawn = {(row.key.op, row.elements) for row in report.rows if row.time and row.elements}
    several = len(drawn) > len({op for op, _ in drawn})
    if not several or find_spec("matplotlib") is None:
        return ""
    data = base64.b64encode(report.svg().encode()).decode()
    return f'<img alt="time of a call against size" src="data:image/svg+xml;base64,{data}">'


def lines(report: InspectReport) -> str:
    """Return the source of each counted kernel, with a bar at each line; of several kernels, folded."""
    counted = [one for one in report.kernels if one.counts is not None]
    state = " open" if len(counted) == 1 else ""
    head = '<tr><th class="right">instructions</th><th></th><th class="right">line</th><th></th></tr>'
    return "".join(
        f"<details{state}><summary>{escape(one.code.name)} {one.code.arch}: instructions by line"
        "</summary>"
        f"{_table(_rows(one), head)}</details>"
        for one in counted
    )


def _rows(one: InspectedKernel) -> Iterator[str]:
    """Yield the lines from the first to the last that executed anything."""
    assert one.counts is not None
    file = one.code.file
    counts = {p.line: line.lane_instructions for p, line in one.counts.lines.items() if p.file == file}
    text = one.code.texts.get(file, "").splitlines()
    most = max(counts.values(), default=0)
    for number in range(min(counts, default=1), max(counts, default=0) + 1):
        count = counts.get(number, 0)
        bar = f'<span class="bar" style="width:{_BAR * count / most:.1f}ch"></span>' if count else ""
        source = escape(text[number - 1]) if number <= len(text) else ""
        yield (
            f'<tr><td class="right">{f"{count:,}" if count else ""}</td><td>{bar}</td>'
            f'<td class="right dim">{number}</td><td>{source}</td></tr>'
        )


_PICTURES: dict[str, Callable[[Any], str]] = {"BenchReport": plot, "InspectReport": lines}
"""The functions that draw a report, by the name of its type, so that no report is imported for it."""


# What a report shows in a terminal, as HTML: its texts, tables and grids, with their styles.


_COLOURS = ("red", "green", "yellow", "cyan")
"""The colours that reports use; `page` has the style of each."""

_RIGHT = ' class="right"'


def render(shown: Any) -> str:
    """Return a renderable of a report as HTML; one of another kind as its lines."""
    if isinstance(shown, (str, Text)):
        return f"<div>{_words(shown) or '&nbsp;'}</div>"
    if isinstance(shown, Group):
        return "".join(map(render, shown.renderables))
    if isinstance(shown, Padding):
        return f'<div style="margin-left:{shown.left}ch">{render(shown.renderable)}</div>'
    if isinstance(shown, Constrain):
        return render(shown.renderable)
    if isinstance(shown, Table):
        head = "".join(f"<th{_side(column)}>{_cell(column.header)}</th>" for column in shown.columns)
        return _table(_table_rows(shown), f"<tr>{head}</tr>" if shown.show_header else "")
    if isinstance(shown, Grid):
        return _table(_grid_rows(shown))
    inner = getattr(shown, "__rich__", None)
    return render(inner()) if inner else f"<pre>{escape(report_base.text(shown))}</pre>"


def _words(text: str | Text) -> str:
    """Return text with its styles as elements."""
    if isinstance(text, str):
        return escape(text)
    whole = _console().get_style(text.style)  # which rich leaves out where no part has a style of its own
    elements = []
    for part in (part for part in text.render(_console()) if part.text):
        style, element = part.style or whole, escape(part.text)
        colour = style.color.name if style.color else ""
        names = " ".join([*([colour] if colour in _COLOURS else []), *(["dim"] if style.dim else [])])
        element = f'<span class="{names}">{element}</span>' if names else element
        elements.append(f"<b>{element}</b>" if style.bold else element)
    return "".join(elements)


@cache
def _console() -> Console:
    """Return a console that knows the names of styles; nothing is written to it."""
    return Console(quiet=True, force_jupyter=False)


def _table(rows: Iterable[str], head: str = "") -> str:
    return f"<table>{head}{''.join(rows)}</table>"


def _table_rows(table: Table) -> Iterator[str]:
    columns = [
        [f"<td{_side(column)}>{_cell(cell)}</td>" for cell in column.cells] for column in table.columns
    ]
    yield from (f"<tr>{''.join(row)}</tr>" for row in zip(*columns, strict=True))


def _cell(shown: Any) -> str:
    return _words(shown) if isinstance(shown, (str, Text)) else render(shown)


def _side(column: Column) -> str:
    return _RIGHT if column.justify == "right" else ""


def _grid_rows(grid: Grid) -> Iterator[str]:
    """Rows; words run across the columns that a line leaves free."""
    blank = f'<td colspan="{len(grid.columns)}">&nbsp;</td>'
    used = [place for place in range(len(grid.columns)) if any(_has(line, place) for line in grid.lines)]
    for line in grid.lines:
        indent = f' style="padding-left:{line.indent}ch"' if line.indent else ""
        cells: list[str] = []
        for place in (each for each in used if each < len(line.cells)):
            side = _RIGHT if grid.columns[place][1] else indent if not cells else ""
            cells.append(f"<td{side}>{_words(line.cells[place])}</td>")
        if line.words is not None:
            rest = max(1, len(used) - len(cells))
            words = _words(line.words) or "&nbsp;"
            cells.append(f'<td colspan="{rest}"{"" if cells else indent}>{words}</td>')
        yield f"<tr>{''.join(cells) or blank}</tr>"


def _has(line: Line, place: int) -> bool:
    return place < len(line.cells) and bool(line.cells[place])


# A report as a notebook shows it: what a terminal would, as tables, and a picture where one shows more.


# Notebooks are light or dark and seldom say which: text has the notebook's own colour, and the others are
# of the middle, with a contrast of 3 to 1 or more against white and against black.
_STYLE = """
.dotcu { font: 13px/1.5 var(--jp-code-font-family, ui-monospace, Menlo, Consolas, monospace);
  color: inherit; white-space: pre-wrap; overflow-x: auto; padding: 2px 0; }
.dotcu table { border-collapse: collapse; border: 0; margin: 0; font: inherit; color: inherit; }
.dotcu tr, .dotcu tr:nth-child(even), .dotcu tr:hover { background: transparent; border: 0; }
.dotcu td, .dotcu th { padding: 0 2ch 0 0; border: 0; text-align: left; vertical-align: top;
  white-space: pre-wrap; max-width: 110ch; color: inherit; }
.dotcu .right { text-align: right; }
.dotcu .red { color: #e5484d; } .dotcu .green { color: #2f9e58; }
.dotcu .yellow { color: #b07d00; } .dotcu .cyan { color: #1a8ba6; } .dotcu .dim { opacity: .7; }
.dotcu details { margin-top: 6px; } .dotcu summary { cursor: pointer; color: #1a8ba6; }
.dotcu .bar { display: inline-block; height: .75em; border-radius: 2px; background: #1a8ba6; }
.dotcu img { max-width: 100%; margin-top: 8px; border-radius: 6px; background: white; }
"""


def html(report: Report) -> str:
    """Return a report as a fragment of HTML, whole by itself."""
    draw = _PICTURES.get(type(report).__name__)
    picture = draw(report) if draw else ""
    return f'<div class="dotcu"><style>{_STYLE}</style>{render(report)}{picture}</div>'
