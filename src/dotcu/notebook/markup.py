"""What a report shows in a terminal, as HTML: its texts, tables and grids, with their styles.

Every word goes through `_words`, which escapes it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from rich.console import Console, Group
from rich.constrain import Constrain
from rich.padding import Padding
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

from dotcu import report_base
from dotcu.benchmark.rendering.grid import Grid, Line

_COLOURS = ("red", "green", "yellow", "cyan")
"""Those that reports have; `page` says how each looks."""

_RIGHT = ' class="right"'


def render(shown: Any) -> str:
    """A renderable of a report as HTML; what is of another kind as its lines."""
    if isinstance(shown, (str, Text)):
        return f"<div>{_words(shown) or '&nbsp;'}</div>"
    if isinstance(shown, Group):
        return "".join(map(render, shown.renderables))
    if isinstance(shown, Padding):
        return f'<div style="margin-left:{shown.left}ch">{render(shown.renderable)}</div>'
    if isinstance(shown, Constrain):
        return render(shown.renderable)
    if isinstance(shown, Table):
        return _table(_rows(shown), _head(shown))
    if isinstance(shown, Grid):
        return _table(_lines(shown))
    inner = getattr(shown, "__rich__", None)
    return render(inner()) if inner else f"<pre>{html.escape(report_base.text(shown))}</pre>"


def _words(text: str | Text) -> str:
    """Text with its styles as elements."""
    if isinstance(text, str):
        return html.escape(text)
    whole = _console().get_style(text.style)  # which rich leaves out where no part has a style of its own
    parts = (part for part in text.render(_console()) if part.text)
    return "".join(_styled(html.escape(part.text), part.style or whole) for part in parts)


@cache
def _console() -> Console:
    """What knows the names of styles; nothing is written to it."""
    return Console(quiet=True, force_jupyter=False)


def _styled(words: str, style: Style) -> str:
    colour = style.color.name if style.color else ""
    names = " ".join([*([colour] if colour in _COLOURS else []), *(["dim"] if style.dim else [])])
    words = f'<span class="{names}">{words}</span>' if names else words
    return f"<b>{words}</b>" if style.bold else words


def _table(rows: Iterable[str], head: str = "") -> str:
    return f"<table>{head}{''.join(rows)}</table>"


# ------------------------------------------------------------------ rich's tables


def _head(table: Table) -> str:
    if not table.show_header:
        return ""
    cells = "".join(f"<th{_side(column)}>{_cell(column.header)}</th>" for column in table.columns)
    return f"<tr>{cells}</tr>"


def _rows(table: Table) -> Iterator[str]:
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        row = (
            f"<td{_side(column)}>{_cell(cell)}</td>"
            for column, cell in zip(table.columns, cells, strict=True)
        )
        yield f"<tr>{''.join(row)}</tr>"


def _cell(shown: Any) -> str:
    return _words(shown) if isinstance(shown, (str, Text)) else render(shown)


def _side(column: Column) -> str:
    return _RIGHT if column.justify == "right" else ""


# ------------------------------------------------------------------ benchmark's grids


def _lines(grid: Grid) -> Iterator[str]:
    """Rows; words run across the columns that a line leaves free."""
    blank = f'<td colspan="{len(grid.columns)}">&nbsp;</td>'
    used = [place for place in range(len(grid.columns)) if any(_has(line, place) for line in grid.lines)]
    for line in grid.lines:
        indent = f' style="padding-left:{line.indent}ch"' if line.indent else ""
        cells: list[str] = []
        for place in (each for each in used if each < len(line.cells)):
            side = _RIGHT if grid.columns[place].right else indent if not cells else ""
            cells.append(f"<td{side}>{_words(line.cells[place])}</td>")
        if line.words is not None:
            rest = max(1, len(used) - len(cells))
            words = _words(line.words) or "&nbsp;"
            cells.append(f'<td colspan="{rest}"{"" if cells else indent}>{words}</td>')
        yield f"<tr>{''.join(cells) or blank}</tr>"


def _has(line: Line, place: int) -> bool:
    return place < len(line.cells) and bool(line.cells[place])
