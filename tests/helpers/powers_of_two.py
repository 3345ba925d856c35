"""Powers of two as rationals, of which tests of rounding ask for the same ones thousands of times."""

from __future__ import annotations

import functools
from fractions import Fraction


@functools.cache
def two_to(exponent: int) -> Fraction:
    """Return 2 to the power of an integer, exactly."""
    return Fraction(2) ** exponent
