"""A kernel's name."""

from __future__ import annotations

from dataclasses import dataclass

from dotcu.inspection.binaries.demangle import demangle


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel in a binary.

    Attributes:
        symbol: The mangled name.
    """

    symbol: str

    @property
    def name(self) -> str:
        """The name as C++ spells it."""
        return demangle(self.symbol)

    @property
    def told(self) -> str:
        """What it takes, in words; of PTX that is not known."""
        return ""
