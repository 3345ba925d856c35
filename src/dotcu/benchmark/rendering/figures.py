"""Numbers as people read them, and texts that differ in their numbers alone as one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from dotcu.benchmark.row import Row
from dotcu.benchmark.statistics import Ratio
from dotcu.benchmark.work import Work

_PREFIXES = ("", "k", "M", "G", "T", "P")

_NUMBER = re.compile(r"(?<![\w.^-])\d+(?:\.\d+)?(?![\w^])")
"""A number that stands alone: not those of `4096x4096`, `2^26` or `float32-s1`."""


def si(value: float, unit: str) -> str:
    """A value with three digits and the prefix that it needs: `4.37 TB/s`."""
    for prefix in _PREFIXES:
        if value < 999.5 or prefix == _PREFIXES[-1]:
            break
        value /= 1000
    decimals = 0 if not prefix and value == int(value) else max(0, 2 - _magnitude(value))
    return f"{value:.{decimals}f} {prefix}{unit}"


def us(microseconds: float) -> str:
    """A time with two decimals, as in a column of them; more where that would leave nothing."""
    if microseconds >= 0.1 or not microseconds:
        return f"{microseconds:.2f}"
    return f"{microseconds:.2g}" if microseconds >= 0.001 else "<0.001"


def _magnitude(value: float) -> int:
    """The power of ten of the first digit, at least 0."""
    return max(0, math.floor(math.log10(value * 1.0005))) if value > 0 else 0


def times(ratio: Ratio) -> str:
    """How many times as long: `1.12`; `≈1.01` where the interval has 1 in it, so neither is the faster."""
    decimals = 2 if ratio.value < 10 else 1 if ratio.value < 100 else 0
    return f"{'≈' if ratio.low <= 1 <= ratio.high else ''}{ratio.value:.{decimals}f}"


def rate(row: Row) -> str:
    """What a row reached, in the unit of what limits it: `4.37 TB/s`, `785 TFLOP/s`; empty where unknown."""
    if row.time is None or row.work is None:
        return ""
    per_second = 1e6 / row.time.median_us
    if row.work.flops and ("FLOP" in row.limit.what if row.limit else not row.work.bytes):
        return si(row.work.flops * per_second, "FLOP/s")
    return si(row.work.bytes * per_second, "B/s") if row.work.bytes else ""


def claims(works: Iterable[Work]) -> str:
    """Where bytes and FLOPs come from; empty without any work."""
    declared = {work.declared for work in works}
    if not declared:
        return ""
    return "counted as its `work` says" if declared == {True} else "every tensor counted once"


def merged(texts: Iterable[str]) -> Mapping[str, str]:
    """For each text what is said for all that differ from it in numbers alone.

    "power cap in 12 of 40 blocks" and "power cap in 31 of 40 blocks" are both "power cap in 12 to 31 of 40
    blocks".
    """
    alike: dict[str, list[str]] = {}
    for text in texts:
        alike.setdefault(_NUMBER.sub("#", text), []).append(text)
    return {text: told for some in alike.values() for told in [_as_one(some)] for text in some}


def _as_one(texts: Sequence[str]) -> str:
    places = zip(*(_NUMBER.findall(text) for text in texts), strict=True)
    ranges = iter([_range(numbers) for numbers in places])
    return _NUMBER.sub(lambda _: next(ranges), texts[0])


def _range(numbers: Sequence[str]) -> str:
    low, high = min(numbers, key=float), max(numbers, key=float)
    return low if float(low) == float(high) else f"{low} to {high}"
