"""The base of reports: each has a `__rich__`, and from that its text and its form in a notebook.

Its JSON form is `to_json`, which begins from `dotcu.serialize.plain`.
"""

from __future__ import annotations

import html
import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rich.console import (
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    Group,
    RenderableType,
    RenderHook,
    RenderResult,
)
from rich.constrain import Constrain
from rich.control import Control
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column as TableColumn
from rich.table import Table
from rich.text import Text

from dotcu.errors import escaped


class Visible(RenderHook):
    """A hook of a console: all text that it prints is `escaped`."""

    def __init__(self, *shown: RenderableType) -> None:
        self.shown = shown

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [each if isinstance(each, Control) else Visible(each) for each in renderables]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for each in self.shown:
            for segment in console.render(each, options):
                yield segment if segment.control else Segment(escaped(segment.text), segment.style)


_WIDE = 100_000  # characters: no line of a report is folded in its text


class Report(ABC):
    """A value that shows itself: in a terminal as `__rich__` has it, as a str, and in a notebook."""

    @abstractmethod
    def __rich__(self) -> RenderableType: ...

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows, as a fragment of HTML that loads nothing."""
        return f'<div class="dotcu"><style>{_STYLE}</style>{html_of(self)}{self._picture()}</div>'

    def _picture(self) -> str:
        """Return what a notebook shows below the text, as HTML."""
        return ""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the text that IPython shows in a terminal, in place of a dataclass's repr."""
        return {"text/plain": str(self)}


def html_escaped(text: str) -> str:
    """Return text as HTML that shows all of it, and no more."""
    return html.escape(escaped(text))


def text(renderable: RenderableType) -> str:
    """Return the text that is shown, without colours, nothing folded, no blanks at the ends of lines."""
    console = Console(
        file=io.StringIO(), width=_WIDE, color_system=None, highlight=False, emoji=False,
        markup=False, force_jupyter=False,
    )  # fmt: skip
    console.push_render_hook(Visible())
    with console.capture() as captured:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())


_GAP = 2
_NARROWEST = 30  # characters of words, wherever they begin


Column = tuple[str, bool, int]
"""A head, whether cells stand to the right, and when it is omitted on a narrow console: that with the highest
number first, one with 0 never."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line: an indent, cells from the first column on, and words behind the last of them."""

    cells: tuple[Text, ...] = ()
    words: Text | None = None
    indent: int = 0


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Lines, and the columns of their cells."""

    columns: Sequence[Column]
    lines: Sequence[Line]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        most = options.max_width
        widths = [0] * len(self.columns)
        for line in self.lines:
            for place, cell in enumerate(line.cells):
                widths[place] = max(widths[place], cell.cell_len + (line.indent if place == 0 else 0))
        shown = [place for place, width in enumerate(widths) if width]
        for place in sorted(shown, key=lambda place: -self.columns[place][2]):
            if sum(widths[p] + _GAP for p in shown) - _GAP > most and self.columns[place][2]:
                shown.remove(place)
        for line in self.lines:
            start = Text(" " * line.indent)
            for place in (place for place in shown if place < len(line.cells)):
                cell = line.cells[place].copy()
                room = widths[place] - (line.indent if place == 0 else 0)
                cell.align("right" if self.columns[place][1] else "left", room)
                start.append_text(cell.append(" " * _GAP))
            hang = min(start.cell_len, max(0, most - _NARROWEST))
            folded = line.words.wrap(console, most - hang) if line.words else [Text()]
            for number, part in enumerate(folded):
                whole = Text.assemble(start if number == 0 else " " * hang, part)
                whole.rstrip()
                if line.words and line.words.overflow == "ignore":  # a long path stays in one piece
                    whole.no_wrap, whole.overflow = True, "ignore"
                yield whole


# What a report shows in a terminal, as HTML: its texts, tables and grids, with their styles.


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

_COLOURS = ("red", "green", "yellow", "cyan")
"""The colours that reports use; `_STYLE` has each."""

_RIGHT = ' class="right"'


def html_of(shown: Any) -> str:
    """Return a renderable of a report as HTML; one of another kind as its lines."""
    if isinstance(shown, (str, Text)):
        return f"<div>{_words(shown) or '&nbsp;'}</div>"
    if isinstance(shown, Group):
        return "".join(map(html_of, shown.renderables))
    if isinstance(shown, Padding):
        return f'<div style="margin-left:{shown.left}ch">{html_of(shown.renderable)}</div>'
    if isinstance(shown, Constrain):
        return html_of(shown.renderable)
    if isinstance(shown, Table):
        head = "".join(f"<th{_side(column)}>{_cell(column.header)}</th>" for column in shown.columns)
        return html_table(_table_rows(shown), f"<tr>{head}</tr>" if shown.show_header else "")
    if isinstance(shown, Grid):
        return html_table(_grid_rows(shown))
    inner = getattr(shown, "__rich__", None)
    return html_of(inner()) if inner else f"<pre>{html_escaped(text(shown))}</pre>"


def _words(text: str | Text) -> str:
    """Return text with its styles as elements."""
    if isinstance(text, str):
        return html_escaped(text)
    whole = _console().get_style(text.style)  # which rich leaves out where no part has a style of its own
    elements = []
    for part in (part for part in text.render(_console()) if part.text):
        style, element = part.style or whole, html_escaped(part.text)
        colour = style.color.name if style.color else ""
        names = " ".join([*([colour] if colour in _COLOURS else []), *(["dim"] if style.dim else [])])
        element = f'<span class="{names}">{element}</span>' if names else element
        elements.append(f"<b>{element}</b>" if style.bold else element)
    return "".join(elements)


@cache
def _console() -> Console:
    """Return a console that knows the names of styles; nothing is written to it."""
    return Console(quiet=True, force_jupyter=False)


def html_table(rows: Iterable[str], head: str = "") -> str:
    return f"<table>{head}{''.join(rows)}</table>"


def _table_rows(table: Table) -> Iterator[str]:
    columns = [
        [f"<td{_side(column)}>{_cell(cell)}</td>" for cell in column.cells] for column in table.columns
    ]
    yield from (f"<tr>{''.join(row)}</tr>" for row in zip(*columns, strict=True))


def _cell(shown: Any) -> str:
    return _words(shown) if isinstance(shown, (str, Text)) else html_of(shown)


def _side(column: TableColumn) -> str:
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
