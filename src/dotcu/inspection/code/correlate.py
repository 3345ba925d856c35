"""Source beside PTX beside SASS: which lines of each belong together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dotcu.inspection.code.places import Chain, Place, home_of, user_place
from dotcu.inspection.code.ptx import PtxLine
from dotcu.inspection.code.sass import Instruction
from dotcu.simulator import Line


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """A line of the kernel's file.

    Attributes:
        number: From 1.
        ptx: The numbers of its PTX lines.
        sass: The addresses of its instructions.
        counts: What the simulator counted; None where nothing ran, or nothing of this line.
    """

    number: int
    text: str
    ptx: tuple[int, ...] = ()
    sass: tuple[int, ...] = ()
    counts: Line | None = None


@dataclass(frozen=True, kw_only=True)
class PtxRow:
    """A line of PTX.

    Attributes:
        source_line: The line of the kernel's file that it stands beside; 0 where there is none.
        place: Where it comes from, which may be a header.
    """

    number: int
    text: str
    source_line: int = 0
    place: Place | None = None


@dataclass(frozen=True, kw_only=True)
class SassRow:
    """A machine instruction, and where it comes from."""

    instruction: Instruction
    source_line: int = 0


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """The three panes of a kernel.

    Attributes:
        file: The kernel's own; the lines of a header's functions stand beside those that call them.
    """

    file: str
    source: tuple[SourceRow, ...]
    ptx: tuple[PtxRow, ...]
    sass: tuple[SassRow, ...]


def correlate(
    texts: Mapping[str, str],
    ptx: Sequence[PtxLine],
    sass: Sequence[Instruction],
    counts: Mapping[Place, Line] | None = None,
) -> Correlation:
    """Set the lines of a kernel side by side.

    Args:
        texts: The text of the files that are known.
        sass: In order; empty where there is no disassembly.
        counts: By source line.
    """
    home = home_of([line.chain for line in ptx if line.statements])
    ptx_rows = tuple(_ptx_rows(ptx, home))
    sass_rows = tuple(SassRow(instruction=i, source_line=_line(i.chain, home)) for i in sass)
    of_ptx = _grouped((row.source_line, row.number) for row in ptx_rows)
    of_sass = _grouped((row.source_line, row.instruction.address) for row in sass_rows)
    source = tuple(
        SourceRow(
            number=number,
            text=text,
            ptx=of_ptx.get(number, ()),
            sass=of_sass.get(number, ()),
            counts=(counts or {}).get(Place(home, number)),
        )
        for number, text in enumerate(texts.get(home, "").splitlines(), start=1)
    )
    return Correlation(file=home, source=source, ptx=ptx_rows, sass=sass_rows)


def _ptx_rows(lines: Sequence[PtxLine], home: str) -> Iterator[PtxRow]:
    """The lines of PTX; a label belongs where the instruction behind it does."""
    following: Chain = ()
    found: list[PtxRow] = []
    for line in reversed(lines):
        following = line.chain if line.statements else following
        chain = following if line.text.rstrip().endswith(":") else line.chain
        place = chain[0] if chain else None
        found.append(PtxRow(number=line.number, text=line.text, source_line=_line(chain, home), place=place))
    yield from reversed(found)


def _line(chain: Chain, home: str) -> int:
    place = user_place(chain, home)
    return place.line if place is not None and place.file == home else 0


def _grouped(pairs: Iterable[tuple[int, int]]) -> dict[int, tuple[int, ...]]:
    found: dict[int, list[int]] = {}
    for line, other in pairs:
        if line:
            found.setdefault(line, []).append(other)
    return {line: tuple(others) for line, others in found.items()}
