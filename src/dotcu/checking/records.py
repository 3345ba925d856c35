"""What compute-sanitizer prints, as records: each a headline and what is indented below it.

    ========= Invalid __global__ write of size 4 bytes
    =========     at scale(const float *, float *, long long)+0x90 in ops.cu:4
    =========     by thread (99,0,0) in block (0,0,0)

Source: its manual, and tests of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PREFIX = "========="
_INDENT = "     "

_OF_THE_RUN = (
    "COMPUTE-SANITIZER",
    "ERROR SUMMARY",
    "RACECHECK SUMMARY",
    "LEAK SUMMARY",
    "Program hit ",  # an error that the driver gave to a caller
    "Target application",
    "Internal Sanitizer Error",
)
"""How headlines begin that say something of the run, not of a kernel."""

_ERROR = "Error: "
"""How others begin that are of the run, unless they have one of these words."""

_OF_A_RACE = ("Race reported", "hazard")

_TROUBLE = (_ERROR, "Internal Sanitizer Error")
_WARNINGS = ("Warning", "WARNING")


@dataclass(frozen=True, kw_only=True)
class Record:
    """One report."""

    lines: tuple[str, ...]

    @property
    def headline(self) -> str:
        """What it is."""
        return self.lines[0]

    @property
    def is_warning(self) -> bool:
        """Whether the tool itself does not call it an error."""
        return self.headline.startswith(_WARNINGS)

    def __str__(self) -> str:
        return "\n".join(self.lines)


def parse(lines: Iterable[str]) -> list[Record]:
    """The records of kernels in a tool's output."""
    found: list[list[str]] = []
    inside = False
    for line in lines:
        text = line.removeprefix(PREFIX)
        if not text.startswith(_INDENT):
            inside = _is_of_a_kernel(text.strip())
            found += [[text.strip()]] if inside else []
        elif inside:
            found[-1].append(f"    {text.strip()}")
    return [Record(lines=tuple(each)) for each in found]


def trouble(lines: Iterable[str]) -> str:
    """What a tool says of its own trouble, in its first line of that; empty where it has none."""
    texts = (line.removeprefix(PREFIX).strip() for line in lines)
    own = (text for text in texts if text.startswith(_TROUBLE) and not _is_of_a_kernel(text))
    return next(own, "")


def _is_of_a_kernel(headline: str) -> bool:
    if headline.startswith(_ERROR):
        return any(words in headline for words in _OF_A_RACE)
    return bool(headline) and not headline.startswith(_OF_THE_RUN)
