"""The bandwidth of a mix of reads and writes, from a few mixes that were measured.

Memory moves reads and writes at different rates, and turning from one to the other costs too. Between two
measured mixes the time for a byte is interpolated, by the share of what is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Point(NamedTuple):
    """The bandwidth of one mix.

    Attributes:
        written: The share of the bytes that is written, 0 to 1.
    """

    written: float
    gbps: float


Points = Sequence[Point]
"""Mixes that were measured, by ascending share of what is written, from 0 to 1."""


def bandwidth_gbps(read_bytes: float, written_bytes: float, points: Points) -> float:
    """The bandwidth for so many bytes read and written; at least one of them is not 0."""
    share = written_bytes / (read_bytes + written_bytes)
    for low, high in pairwise(points):
        if share <= high.written:
            part = (share - low.written) / (high.written - low.written)
            return 1 / ((1 - part) / low.gbps + part / high.gbps)
    return points[-1].gbps


def time_us(read_bytes: float, written_bytes: float, points: Points) -> float:
    """How long they take; 0 where there are none."""
    total = read_bytes + written_bytes
    return total / bandwidth_gbps(read_bytes, written_bytes, points) / 1e3 if total else 0.0


def in_words(read_bytes: float, written_bytes: float) -> str:
    """`2 reads to 1 write`, `reads alone`, `87 % reads`."""
    if not written_bytes or not read_bytes:
        return "reads alone" if read_bytes else "writes alone"
    many, few = max(read_bytes, written_bytes), min(read_bytes, written_bytes)
    times = round(many / few)
    if times > 9 or abs(many / few - times) > 0.02 * times:
        return f"{100 * read_bytes / (read_bytes + written_bytes):.0f} % reads"
    reads, writes = (times, 1) if read_bytes >= written_bytes else (1, times)
    return f"{_count(reads, 'read')} to {_count(writes, 'write')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"
