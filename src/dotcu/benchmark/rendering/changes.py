"""A comparison with an earlier run: what changed, and how sure that is; what did not is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, get_args

from rich.text import Text

from dotcu.benchmark.comparing import Verdict
from dotcu.benchmark.rendering.figures import merged
from dotcu.benchmark.rendering.grid import Column, Grid, Line
from dotcu.benchmark.row import Row

if TYPE_CHECKING:
    from dotcu.benchmark.since import Compared

_COLUMNS = (
    Column(right=False),  # verdict
    Column(right=False),  # case
    Column(right=False),  # state of L2
    Column(right=False),  # contender
    Column(head="× before"),
    Column(head="interval", right=False),
    Column(head="at", right=False, spare=1),
)

_STYLES = {"slower": "bold red", "lost": "bold red", "faster": "green", "unclear": "yellow"}


def grid(changes: Sequence[Compared]) -> Grid:
    """What changed, what is unclear and what was lost, by operator; notes at the end."""
    shown = [one for one in changes if one.lost or (one.change and one.change.verdict != "same")]
    lines = [Line(), Line(words=Text(_counted(changes), style="bold"))]
    if shown:
        lines.append(Line(cells=tuple(Text(column.head, style="bold") for column in _COLUMNS)))
    for op in dict.fromkeys(one.row.key.op for one in shown):
        lines.append(Line(indent=2, words=Text(op)))
        lines += [_line(one) for one in shown if one.row.key.op == op]
    lines += [Line(indent=2, words=Text(note, style="yellow")) for note in _notes(changes)]
    return Grid(columns=_COLUMNS, lines=lines)


def _counted(changes: Sequence[Compared]) -> str:
    counts = Counter(_came_to(one) for one in changes)
    order = (*get_args(Verdict), "lost", "not compared")
    return f"since then: {', '.join(f'{counts[word]} {word}' for word in order if counts[word])}"


def _came_to(one: Compared) -> str:
    if one.change is not None:
        return one.change.verdict
    return "lost" if one.lost else "not compared"


def _line(one: Compared) -> Line:
    """A row that changed; one that was lost has no figures."""
    word, key = _came_to(one), one.row.key
    cells = (Text(word, style=_STYLES[word]), Text(key.case), Text(key.l2), Text(key.contender))
    if one.change is None:
        return Line(indent=4, cells=cells)
    ratio = one.change.ratio
    figures = (f"{ratio.value:.3f}", f"{ratio.low:.3f} to {ratio.high:.3f}", f"{one.change.confidence:.0%}")
    return Line(indent=4, cells=(*cells, *map(Text, figures)))


def _notes(changes: Sequence[Compared]) -> Iterator[str]:
    """What is said of all rows once, and of those that were not compared with the rows' names."""
    said: dict[str, list[Row]] = {}
    told_as = merged(text for one in changes for text in one.notes)
    for one in changes:
        for text in dict.fromkeys(one.notes):
            said.setdefault(told_as[text], []).append(one.row)
    for text, rows in said.items():
        whole = len(rows) == len(changes)
        first = rows[0].key
        name = f"{first.op} {first.case} {first.contender} {first.l2}"
        yield text if whole else f"{name}{f' and {len(rows) - 1} more' if len(rows) > 1 else ''}: {text}"
