"""What `ncu --import REPORT --csv` prints, as values. Pure, and tolerant: what a page lacks is not there.

The raw page has a row for each launch and a column for each metric; the row below the heads has units:

    "ID","Process ID",...,"Kernel Name",...,"Block Size","Grid Size",...,"gpu__time_duration.sum",...
    "","",...,"ns",...
    "0","108",...,"void square<float>(const float *, float *, long long)",...,"31,200",...

The source page has a block for each launch, with a row for each instruction:

    "Kernel Name","void square<float>(const float *, float *, long long)"
    "Address","Source","Warp Stall Sampling (All Samples)",...,"stall_long_sb",...
    "0x7f2ef9254d00","LDG.E R2, desc[UR4][R2.64]","412",...,"380",...

With `--print-source cuda,sass` it has one for each file, where instructions follow their line:

    "File Path","/dotcu/kernel.cu"
    "Line No","Source","Address","Source",...
    "16","out[i] = ...","-","-",...
    "","","0x7f2ef9254d00","LDG.E R2, desc[UR4][R2.64]",...

Source: recorded output of Nsight Compute 2023 to 2026.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

LOG = "=="
"""Begins the lines that ncu says of itself."""

_SAMPLES = ("Warp Stall Sampling (All Samples)", "Warp Stall Sampling (All Cycles)", "# Samples")
_EXECUTED = "Instructions Executed"
_STALL, _NOT_ISSUED = "stall_", "(Not Issued)"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of one launch, as ncu prints it.

    Attributes:
        value: None where the page has no number for it.
        unit: Empty where it has none.
    """

    value: float | None
    unit: str


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A row of the raw page."""

    name: str
    grid: str
    block: str
    metrics: Mapping[str, Metric]


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """A row of the source page.

    Attributes:
        samples: How often a sampled warp stood at it.
        stalls: The same by reason, without reasons that no sample had.
        executed: By how many warps it was executed.
        place: File and line, where the page tells.
    """

    address: int
    text: str
    samples: int
    stalls: Mapping[str, int]
    executed: int
    place: tuple[str, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The instructions of one launch."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)


def number(text: str) -> float | None:
    """A number as ncu prints it, with commas between thousands; None where the text is none."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def raw(text: str) -> list[Launched]:
    """The launches of the raw page."""
    rows = list(_rows(text))
    start = next((i for i, row in enumerate(rows) if "Kernel Name" in row and len(row) > 2), None)
    if start is None:
        return []
    heads, below = rows[start], rows[start + 1 :]
    name = heads.index("Kernel Name")
    has_units = bool(below) and len(below[0]) > name and not below[0][name]
    units = dict(zip(heads, below[0], strict=False)) if has_units else {}
    return [
        _launched(dict(zip(heads, row, strict=False)), units)
        for row in below[1 if has_units else 0 :]
        if len(row) > name and row[name]
    ]


def _launched(cells: Mapping[str, str], units: Mapping[str, str]) -> Launched:
    metrics = {
        head: Metric(value=number(cell), unit=units.get(head, ""))
        for head, cell in cells.items()
        if "__" in head
    }
    return Launched(
        name=cells["Kernel Name"],
        grid=cells.get("Grid Size", ""),
        block=cells.get("Block Size", ""),
        metrics=metrics,
    )


def source(text: str) -> list[Listing]:
    """The instructions of the source page, launch by launch; of either view."""
    found: list[Listing] = []
    heads: list[str] = []
    file, line = "", 0
    for row in _rows(text):
        if row[0] == "Kernel Name" and len(row) > 1:
            found.append(Listing(name=row[1]))
            file, line = "", 0
        elif row[0] == "File Path" and len(row) > 1:
            file, line = row[1], 0
            found += [] if found else [Listing(name="")]
        elif "Address" in row and "Source" in row:
            heads = row
            found += [] if found else [Listing(name="")]
        elif heads and heads[0] == "Line No" and row[0].isdecimal():
            line = int(row[0])
        elif heads and (instruction := _instruction(heads, row, (file, line) if line else None)):
            found[-1].instructions.append(instruction)
    return found


def _instruction(
    heads: Sequence[str], row: Sequence[str], place: tuple[str, int] | None
) -> Instruction | None:
    at = heads.index("Address")
    address = _address(row[at]) if len(row) > at + 1 else None
    if address is None:
        return None
    cells = dict(reversed(list(zip(heads, row, strict=False))))  # of two columns of a name, the first
    stalls = {
        head.removeprefix(_STALL): count
        for head, cell in cells.items()
        if head.startswith(_STALL) and not head.endswith(_NOT_ISSUED) and (count := int(number(cell) or 0))
    }
    samples = next((cells[head] for head in _SAMPLES if head in cells), "")
    return Instruction(
        address=address,
        text=row[at + 1].strip(),
        samples=int(number(samples) or 0),
        stalls=stalls,
        executed=int(number(cells.get(_EXECUTED, "")) or 0),
        place=place,
    )


def _address(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _rows(text: str) -> Iterator[list[str]]:
    lines = (line for line in text.splitlines() if not line.startswith(LOG))
    return (row for row in csv.reader(lines) if row)
