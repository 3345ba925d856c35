"""Notes on rows: what a reader has to know of a figure, under the table and by number.

Notes that differ in their numbers alone are one, with ranges: a sweep may have one thing to say of every row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from dotcu.benchmark.rendering.figures import merged, us
from dotcu.benchmark.rendering.grid import Line
from dotcu.benchmark.row import Row

if TYPE_CHECKING:
    from dotcu.benchmark.report import BenchReport

WIDE = 0.25
"""Where p5 and p95 lie further apart than so, as a share of the median, a note has both."""

IN_PLACE = 4
"""A reason of so many lines stands where the figures would; of a longer one the first, and a note has all."""

LINES = 20
"""How many lines of a note are shown."""

_TIMED = {"cupti": "by CUPTI", "graph": "by replay of a graph", "events": "between events"}


@dataclass(frozen=True)
class Notes:
    """The notes of an operator's rows.

    Attributes:
        said: What is shown for each note that some row has.
    """

    by: str
    said: Mapping[str, str]

    @property
    def numbers(self) -> dict[str, int]:
        """What is shown, with its number."""
        return {text: number for number, text in enumerate(dict.fromkeys(self.said.values()), 1)}

    def references(self, row: Row) -> str:
        """The numbers of a row's notes: `[1][3]`."""
        numbers = self.numbers
        return "".join(f"[{n}]" for n in sorted({numbers[self.said[text]] for text in _of(row, self.by)}))

    def lines(self) -> Iterator[Line]:
        """The notes themselves."""
        for text, number in self.numbers.items():
            head, *rest = text.splitlines()
            if len(rest) >= LINES:
                rest = [*rest[: LINES - 1], f"... and {len(rest) - LINES + 1} lines more"]
            yield Line(indent=2, words=Text.assemble((f"[{number}] ", "yellow"), head))
            for line in rest:
                yield Line(indent=6, words=Text(line, style="dim"))


def notes(report: BenchReport, rows: Sequence[Row]) -> Notes:
    """All notes on some rows of a report."""
    return Notes(by=report.by, said=merged([text for row in rows for text in _of(row, report.by)]))


def reason(row: Row) -> str:
    """Why a row has no figures, as far as that stands in its place."""
    told = row.reason.strip()
    return told.partition("\n")[0] if _is_long(told) else told


def _of(row: Row, by: str) -> Iterator[str]:
    """Marks, and what the figures of a row do not show; a reason that is too long for its place."""
    if row.time is None and _is_long(row.reason.strip()):
        yield row.reason.strip()
    yield from row.marks
    if row.dropped:
        yield f"{row.dropped} samples dropped: taken while the GPU was throttled"
    if row.measured and row.measured.by != by:
        yield f"timed {_TIMED[row.measured.by]}"
    if row.time and row.time.p95_us - row.time.p5_us > WIDE * row.time.median_us:
        yield f"wide: p5 {us(row.time.p5_us)} µs, p95 {us(row.time.p95_us)} µs"


def _is_long(text: str) -> bool:
    return len(text.splitlines()) > IN_PLACE
