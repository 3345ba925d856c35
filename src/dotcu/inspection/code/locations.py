"""Source locations of instructions, and the one that an instruction is shown at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SourceLocation(NamedTuple):
    """A line of a file, under the name that the user knows the file by."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


LocationChain = tuple[SourceLocation, ...]
"""An instruction's own line, the line that this was inlined at, and so on outwards."""


def kernel_file(chains: Sequence[LocationChain]) -> str:
    """Return the file of a kernel: the outermost of its first instruction that has a line; "" without any."""
    return next((chain[-1].file for chain in chains if chain), "")


def shown_location(chain: LocationChain, file: str) -> SourceLocation | None:
    """Return the line that an instruction is shown at: the innermost one in the kernel's own file.

    So the cost of a header's function is at the line that calls it, as in the simulator's counts.
    """
    return next((location for location in chain if location.file == file), chain[-1] if chain else None)
