"""Places in source files, and the one that an instruction is shown beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """A line of a file, as the user knows the file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


Chain = tuple[Place, ...]
"""Where an instruction comes from: its own line, the line that this was inlined at, and so on outwards."""


def home_of(chains: Sequence[Chain]) -> str:
    """The file of a kernel: the outermost of its first instruction that has a line; empty where none has."""
    return next((chain[-1].file for chain in chains if chain), "")


def user_place(chain: Chain, home: str) -> Place | None:
    """The line that an instruction is shown beside: the innermost one in the kernel's own file.

    So what a header's function costs stands at the line that calls it, as in the simulator's counts.
    """
    return next((place for place in chain if place.file == home), chain[-1] if chain else None)
