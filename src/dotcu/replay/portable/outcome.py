"""What a replay gives where it gives no result."""

from __future__ import annotations


class Outcome:
    """One object for each, compared by identity."""


MISS = Outcome()
"""The plan is not for such a call."""

ASIDE = Outcome()
"""The ordinary path shall take the call."""

UNSET = Outcome()
"""The value of an argument that was not given."""
