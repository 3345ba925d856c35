"""Which source line an instruction of a report comes from.

ncu's Python module tells of every instruction where it stands in the source. Where that module is not
there, or does not load, the page of source and instructions tells as well: an instruction that was inlined
stands under several lines there, of which the first counts.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dotcu import process
from dotcu.errors import ToolchainError
from dotcu.profiling import report_reader, running
from dotcu.profiling.pages import Instruction, Listing
from dotcu.profiling.tool import Tool

Places = Mapping[int, tuple[str, int]]
"""File and line by address."""


def placed(tool: Tool, report: Path, listings: Sequence[Listing]) -> list[Listing]:
    """The same listings, their instructions with file and line, as far as the report tells."""
    places = _by_module(tool, report) or _by_page(tool, report)
    if len(places) != len(listings):
        return list(listings)
    return [with_places(listing, own) for listing, own in zip(listings, places, strict=True)]


def with_places(listing: Listing, places: Places) -> Listing:
    """A listing whose instructions have their places. Pure.

    Where no address is in both, but both have as many, they are counted from another beginning each.
    """
    found = [instruction.address for instruction in listing.instructions]
    shift = 0
    if found and len(places) == len(found) and not places.keys() & set(found):
        shift = min(places) - min(found)
    return replace(
        listing,
        instructions=[
            replace(instruction, place=places.get(instruction.address + shift, instruction.place))
            for instruction in listing.instructions
        ],
    )


def _by_module(tool: Tool, report: Path) -> list[Places]:
    if tool.module is None:
        return []
    with tempfile.TemporaryDirectory(prefix="dotcu-lines-") as folder:
        file = Path(folder, "lines.json")
        words = [sys.executable, "-I", report_reader.__file__, str(tool.module), str(report), str(file)]
        with suppress(ToolchainError):
            process.run(words, timeout_s=running.PAGE_S)
        return read(file.read_text() if file.is_file() else "")


def read(text: str) -> list[Places]:
    """What `report_reader` wrote; nothing where that is something else. Pure."""
    try:
        launches = json.loads(text)
        found = [{int(at): (str(file), int(line)) for at, file, line in each["lines"]} for each in launches]
    except (ValueError, TypeError, KeyError):
        return []
    return [{at: place for at, place in each.items() if place[0] and place[1]} for each in found]


def _by_page(tool: Tool, report: Path) -> list[Places]:
    return [_first(listing.instructions) for listing in running.source(tool.path, report, "cuda,sass")]


def _first(instructions: Sequence[Instruction]) -> Places:
    return {each.address: each.place for each in reversed(instructions) if each.place is not None}
