"""A fault that the simulator found in a kernel, told so that a person can act on it."""

from __future__ import annotations

from dataclasses import dataclass

Coordinates = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A fault, at the line and thread where it first showed.

    Attributes:
        kind: "out-of-bounds", "null-pointer", "misaligned", "uninitialized-read", "read-only",
            "barrier", "deadlock", "step-limit", "stack-overflow", "bad-call", "trap" or "race".
        kernel: The kernel's display name.
        file: The source file, as the user knows it; empty where the PTX names none.
        line: The line in it, from 1; 0 where the PTX names none.
        block: blockIdx of the first lane at fault.
        thread: threadIdx of the first lane at fault.
        lanes: How many lanes were at fault at this line.
        address_of: The kernel's argument, or the variable, whose memory it was; empty if none.
        message: What happened and what is required.
        source: The line's text; empty where it is not known.
    """

    kind: str
    kernel: str
    file: str
    line: int
    block: Coordinates
    thread: Coordinates
    lanes: int
    address_of: str
    message: str
    source: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else ""
        count = "1 lane in all" if self.lanes == 1 else f"{self.lanes} lanes in all"
        who = f"by thread {_tuple(self.thread)} of block {_tuple(self.block)}, {count}"
        shown = f"\n    {self.line} | {self.source.strip()}" if self.source.strip() else ""
        said = self.message if self.message.startswith(self.kind) else f"{self.kind}: {self.message}"
        return f"{place}{said}\n    in {self.kernel}, {who}{shown}"


def _tuple(coordinates: Coordinates) -> str:
    return "({},{},{})".format(*coordinates)
