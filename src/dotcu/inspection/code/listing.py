"""Source beside PTX beside SASS, in the terminal: a row for each source line that has code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from dotcu.inspection.code import features
from dotcu.inspection.code.correlate import Correlation, PtxRow, SassRow, SourceRow
from dotcu.inspection.code.inspected import InspectedKernel
from dotcu.inspection.code.rendering import short
from dotcu.inspection.code.sass import Instruction
from dotcu.simulator import Line

_STYLES = {
    features.MATRIX: "green", features.ASYNC: "green", features.GLOBAL: "cyan", features.SHARED: "blue",
    features.LOCAL: "bold red", features.GENERIC: "red", features.DOUBLE: "yellow",
    features.ATOMIC: "magenta", features.BARRIER: "magenta", features.CALL: "red",
}  # fmt: skip
Row = TypeVar("Row", PtxRow, SassRow)

_ELSEWHERE = "of no line of this file"
_GAP = 2
_LEAST = 12  # characters of a pane, however narrow the terminal is
_WITH_CONTROL = 150  # characters: a narrower terminal shows instructions without their control bits


@dataclass(frozen=True)
class Panes:
    """The three panes of a kernel, to print; they share the width that there is, and cut what is longer.

    What the compiler tells no line of the kernel's file for comes last.
    """

    kernel: InspectedKernel

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        one = self.kernel
        yield Text(f"{one.code.name}  {one.code.arch}  {short(one.correlation.file)}", style="bold")
        yield _grid(one, options.max_width)


def _grid(one: InspectedKernel, width: int) -> Table:
    narrow = ["line", *(["lanes"] if one.counted else [])]
    wide = ["source", "PTX", *(["SASS"] if one.function else [])]
    rows = list(_rows(one, with_control=width >= _WITH_CONTROL))
    widths = [max([len(name), *(_width(row[i]) for row in rows)]) for i, name in enumerate(narrow + wide)]
    taken = sum(widths[: len(narrow)]) + _GAP * (len(widths) - 1)
    shares = share(width - taken, widths[len(narrow) :])
    grid = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name in narrow:
        grid.add_column(name, justify="right", no_wrap=True)
    for name in wide:
        grid.add_column(name, no_wrap=True, overflow="ellipsis")
    for row in rows:
        cut = [_cut(cell, most) for cell, most in zip(row[len(narrow) :], shares, strict=True)]
        grid.add_row(*row[: len(narrow)], *cut)
    return grid


def share(available: int, wanted: Sequence[int]) -> list[int]:
    """How wide each pane is: as wide as it wants where there is room, else what the others leave."""
    given = [0] * len(wanted)
    left, open_ones = available, list(range(len(wanted)))
    while open_ones:
        each = max(_LEAST, left // len(open_ones))
        content = [i for i in open_ones if wanted[i] <= each]
        for i in content or open_ones:
            given[i] = min(wanted[i], each)
            left -= given[i]
        open_ones = [i for i in open_ones if i not in (content or open_ones)]
    return given


def _width(cell: Text) -> int:
    return max((len(line) for line in cell.plain.splitlines()), default=0)


def _cut(cell: Text, width: int) -> Text:
    lines = cell.split("\n")
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def _rows(one: InspectedKernel, *, with_control: bool) -> Iterator[list[Text]]:
    """The cells of each source line: its number, its counts where there are any, source, PTX, SASS."""
    found = one.correlation
    ptx = _by_line(row for row in found.ptx if _says_something(row.text))
    sass = _by_line(found.sass)
    for line in [*_shown(found), None]:
        number = line.number if line is not None else 0
        if line is None and number not in ptx and number not in sass:
            continue
        machine = [text for row in sass.get(number, ()) for text in _machine(row.instruction, with_control)]
        yield [
            Text(str(number) if number else "", style="dim"),
            *([_lanes(line.counts if line else None)] if one.counted else []),
            Text(line.text.rstrip()) if line else Text(_ELSEWHERE, style="dim italic"),
            Text("\n").join(Text(_flat(row.text), style="dim") for row in ptx.get(number, ())),
            *([Text("\n").join(machine)] if one.function else []),
        ]


def _by_line(rows: Iterable[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row.source_line, []).append(row)
    return found


def _says_something(text: str) -> bool:
    """A .loc says what stands beside it anyway."""
    words = text.strip()
    return bool(words) and not words.startswith(("//", ".loc"))


def _shown(found: Correlation) -> list[SourceRow]:
    """From the first source line that has code to the last."""
    with_code = [row.number for row in found.source if row.ptx or row.sass]
    if not with_code:
        return []
    return [row for row in found.source if with_code[0] <= row.number <= with_code[-1]]


def _lanes(counts: Line | None) -> Text:
    return Text(f"{counts.lane_instructions:,}" if counts is not None else "", style="yellow")


def _flat(text: str) -> str:
    return " ".join(text.split())


def _machine(instruction: Instruction, with_control: bool) -> Iterator[Text]:
    for label in instruction.labels:
        yield Text(f"{label}:", style="dim")
    control = f"{instruction.control}  " if instruction.control and with_control else ""
    yield Text.assemble(
        (f"{instruction.address:04x}  {control}", "dim"), (instruction.text, style_of(instruction))
    )


def style_of(instruction: Instruction) -> str:
    """The colour of an instruction: that of its kind."""
    for feature in features.SASS:
        if feature.opcode.fullmatch(instruction.opcode):
            return _STYLES.get(feature.group, "")
    return ""
