"""Which source line stands behind each instruction of a body: what its `.loc` directives say.

Source: PTX ISA, "Debugging Directives: .loc".
"""

from __future__ import annotations

from dotcu.ptx.instructions import NOWHERE, Location

At = tuple[int, int, int]
"""File, line and column, as a `.loc` has them."""


class Locations:
    """Follows the `.loc` directives of one body.

    Attributes:
        current: The source line of the instructions from here on, and where it was inlined.
    """

    def __init__(self) -> None:
        self.current = NOWHERE
        self._known: dict[At, Location] = {}

    def move(self, at: At, inlined_at: At | None = None) -> None:
        """Take in a directive; the place that it was inlined at is one of those before it."""
        if at[1] == 0:  # line 0 belongs to no source line: stay where we are
            return
        outer = None
        if inlined_at is not None:
            outer = self._known.get(inlined_at) or Location(inlined_at[0], inlined_at[1])
        self.current = self._known[at] = Location(at[0], at[1], outer)
