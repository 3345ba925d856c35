"""Student's t: how much wider an interval has to be since its spread is itself an estimate of few values."""

from __future__ import annotations

import math
from functools import lru_cache

_LARGEST = 1e6  # beyond any quantile that is asked for: t of one degree at 99.99 % is 6366


@lru_cache(maxsize=1024)
def quantile(confidence: float, freedom: int) -> float:
    """How many standard errors to each side hold `confidence` of the distribution.

    Args:
        freedom: Degrees of freedom, 1 or more: a fraction is rounded down by callers, which widens.
    """
    low, high = 0.0, _LARGEST
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if held(middle, freedom) < confidence else (low, middle)
    return high


def held(t: float, freedom: int) -> float:
    """The share of the distribution within t standard errors of its middle.

    Source: Abramowitz and Stegun, 26.7.3 and 26.7.4: exact for whole degrees of freedom.
    """
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * math.cos(angle) ** 2
        total += term
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total
