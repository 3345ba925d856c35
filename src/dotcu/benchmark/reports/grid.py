"""Lines of cells that stand under each other, and lines of words between and behind them.

Unlike rich's table, words may run across the columns. Where the console is too narrow, the least
important columns are omitted; what is still too long is folded under itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

_GAP = 2
_NARROWEST = 30
"""Words get no fewer characters than so, wherever they begin."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of cells.

    Attributes:
        spare: On a narrow console, the column with the highest is omitted first; that with 0 never is.
    """

    head: str = ""
    right: bool = True
    spare: int = 0


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line: cells, from the first column on, and words behind the last of them.

    Attributes:
        indent: Characters before the first cell, or before the words where there are no cells.
    """

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
        shown = self._fitting(widths, most)
        for line in self.lines:
            start = self._cells(line, widths, shown)
            if line.words is None:
                start.rstrip()
                yield start
                continue
            hang = min(start.cell_len, max(0, most - _NARROWEST))
            folded = line.words.wrap(console, most - hang) if line.words else [Text()]
            for number, part in enumerate(folded):
                whole = Text.assemble(start if number == 0 else " " * hang, part)
                whole.rstrip()
                yield whole

    def _fitting(self, widths: Sequence[int], most: int) -> list[int]:
        """The places of the columns that fit beside each other, and hold anything."""
        shown = [place for place, width in enumerate(widths) if width]
        for place in sorted(shown, key=lambda place: -self.columns[place].spare):
            if sum(widths[p] + _GAP for p in shown) - _GAP <= most or not self.columns[place].spare:
                break
            shown.remove(place)
        return shown

    def _cells(self, line: Line, widths: Sequence[int], shown: Sequence[int]) -> Text:
        """The indent and the cells of a line, aligned."""
        start = Text(" " * line.indent)
        for place in (place for place in shown if place < len(line.cells)):
            cell = line.cells[place].copy()
            room = widths[place] - (line.indent if place == 0 else 0)
            cell.align("right" if self.columns[place].right else "left", room)
            start.append_text(cell.append(" " * _GAP))
        return start
