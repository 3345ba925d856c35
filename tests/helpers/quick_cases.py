"""Cases of which a few run in the quick suite, and the rest with `-m slow`."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from typing import Any

import pytest


def quick(some: Collection[Any], every: Iterable[Any]) -> list[Any]:
    """Return parameters for `pytest.mark.parametrize`: every value, those not in `some` marked as slow."""
    return [value if value in some else pytest.param(value, marks=pytest.mark.slow) for value in every]


def quick_pairs(some: Collection[tuple[Any, Any]], rows: Iterable[Any], columns: Iterable[Any]) -> list[Any]:
    """Return parameters for two arguments: every pair, those not in `some` marked as slow."""
    return [
        pytest.param(a, b, id=f"{a}-{b}", marks=() if (a, b) in some else pytest.mark.slow)
        for a, b in itertools.product(rows, list(columns))
    ]
