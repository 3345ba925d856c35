"""The least time that a GPU needs for some work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dotcu.benchmark.limits.ceilings import Ceilings
    from dotcu.benchmark.limits.datasheet import Sheet
    from dotcu.benchmark.results import L2
    from dotcu.benchmark.work import Work


Rate = tuple[Literal["plain", "matrix"], str]
"""A rate of a GPU: "plain" of ordinary instructions or "matrix" of tensor cores, and its name: a dtype,
"tf32", or "float8" for both of that size."""

NOMINAL: Mapping[str, tuple[Rate, ...]] = {
    "float64": (("plain", "float64"), ("matrix", "float64")),
    "complex128": (("plain", "float64"), ("matrix", "float64")),
    "float32": (("plain", "float32"),),  # tensor cores would round its inputs
    "complex64": (("plain", "float32"),),
    "tf32": (("matrix", "tf32"),),
    "float16": (("matrix", "float16"),),  # an upper bound for kernels that use ordinary instructions
    "bfloat16": (("matrix", "bfloat16"),),
    "float8_e4m3fn": (("matrix", "float8"),),
    "float8_e5m2": (("matrix", "float8"),),
    "int8": (("matrix", "int8"),),
    "uint8": (("matrix", "int8"),),
}
"""The rates of each dtype, of which the highest is its limit."""

BEYOND: Mapping[str, Rate] = {"float32": ("matrix", "tf32"), "complex64": ("matrix", "tf32")}
"""The highest plausible rate of a dtype: sums of products in tf32 can have the precision of float32."""


def tflops(rates: Ceilings | Sheet, dtype: str, *, beyond: bool = False) -> float | None:
    """Return the limit of arithmetic in a dtype, in TFLOP/s; None where it is not known.

    Args:
        rates, dtype: The rates of a GPU, measured or of its datasheet; and the dtype's name.
        beyond: Return the highest plausible rate, which is more for float32.
    """
    asked = (*NOMINAL.get(dtype, ()), *([BEYOND[dtype]] if beyond and dtype in BEYOND else []))
    return max((value for rate in asked if (value := value_of(rates, rate))), default=None)


def value_of(rates: Ceilings | Sheet, rate: Rate) -> float | None:
    """Return one rate in TFLOP/s; None where it is not known."""
    kind, name = rate
    return (rates.matrix_tflops if kind == "matrix" else rates.plain_tflops).get(name)


Points = Sequence[tuple[float, float]]
"""Measured mixes: the share of the bytes that is written, ascending from 0 to 1, and 10^9 bytes/s."""


def _time_us(read_bytes: float, written_bytes: float, points: Points) -> float:
    """Return the time in us to read and write some bytes, interpolated between two measured mixes."""
    total = read_bytes + written_bytes
    share = written_bytes / total if total else 0.0
    for (low, low_gbps), (high, high_gbps) in pairwise(points):
        if share <= high:
            part = (share - low) / (high - low)
            return total * ((1 - part) / low_gbps + part / high_gbps) / 1e3
    return total / points[-1][1] / 1e3


def _in_words(read_bytes: float, written_bytes: float) -> str:
    """Return a mix as text: `2 reads to 1 write`, `reads alone`, `87 % reads`."""
    if not written_bytes or not read_bytes:
        return "reads alone" if read_bytes else "writes alone"
    many, few = max(read_bytes, written_bytes), min(read_bytes, written_bytes)
    times = round(many / few)
    if times > 9 or abs(many / few - times) > 0.02 * times:
        return f"{100 * read_bytes / (read_bytes + written_bytes):.0f} % reads"
    reads, writes = (times, 1) if read_bytes >= written_bytes else (1, times)
    return f"{reads} read{'s' * (reads > 1)} to {writes} write{'s' * (writes > 1)}"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The speed of light for one call.

    Attributes:
        time_us, what: The least time, and what sets it, in words: "memory, 2 reads to 1 write, 4.39 TB/s".
        floor_us: The least plausible time: written bytes may stay in L2, as far as they fit.
        sheet_us: The same by the datasheet; None for a GPU without one.
    """

    time_us: float
    what: str
    floor_us: float
    sheet_us: float | None = None

    def percent(self, median_us: float) -> float:
        """Return the percentage of the limit that a measured time reaches."""
        return 100 * self.time_us / median_us if median_us > 0 else float("inf")


def limit(work: Work, ceilings: Ceilings, sheet: Sheet | None, *, l2: L2, l2_bytes: int) -> Limit | None:
    """Return the limit of some work; None where it moves no bytes and its arithmetic has no known rate.

    The limit is the longer of moving the bytes and of doing the arithmetic. With a cold L2, all bytes come
    from memory and go there. With a warm one, as many bytes as L2 holds stay in it, and all go through it.

    Args:
        work: The work of a call.
        ceilings, sheet: The rates of the GPU, measured and by its datasheet.
        l2, l2_bytes: The state of L2 that the call starts with, and its size.
    """
    memory_us, memory = _memory(work, ceilings, in_l2=l2_bytes if l2 == "warm" else 0)
    rate = tflops(ceilings, work.dtype) if work.flops else None
    arithmetic_us = work.flops / rate / 1e6 if rate is not None else 0.0
    if not memory_us and not arithmetic_us:
        return None
    floor_us = memory_us
    if l2 == "cold":
        written = max(0, work.written_bytes - l2_bytes)
        through_l2_us = _time_us(work.read_bytes, work.written_bytes, ceilings.l2)
        floor_us = max(_time_us(work.read_bytes, written, ceilings.memory), through_l2_us)
    slower_us = max(memory_us, arithmetic_us)
    sheet_us = None
    if sheet is not None:  # only bytes count that L2 cannot hold
        kept = work.bytes if l2 == "warm" else work.written_bytes
        moved = work.bytes - min(kept, l2_bytes)
        sheet_rate = tflops(sheet, work.dtype, beyond=True) if work.flops else None
        computed_us = work.flops / sheet_rate / 1e6 if sheet_rate is not None else 0.0
        sheet_us = max(moved / sheet.memory_gbps / 1e3, computed_us) or None
    return Limit(
        time_us=slower_us,
        what=memory if memory_us >= arithmetic_us else f"{work.dtype} arithmetic, {rate:.4g} TFLOP/s",
        floor_us=min(slower_us, max(floor_us, arithmetic_us)),
        sheet_us=sheet_us,
    )


def _memory(work: Work, ceilings: Ceilings, in_l2: int) -> tuple[float, str]:
    """Return the time in us to move the bytes, as many of which stay in L2, and what sets it."""
    if not work.bytes:
        return 0.0, ""
    share = max(0.0, 1 - in_l2 / work.bytes)
    beyond_us = _time_us(share * work.read_bytes, share * work.written_bytes, ceilings.memory)
    through_us = _time_us(work.read_bytes, work.written_bytes, ceilings.l2) if in_l2 else 0.0
    name, points = ("L2", ceilings.l2) if through_us > beyond_us else ("memory", ceilings.memory)
    gbps = work.bytes / _time_us(work.read_bytes, work.written_bytes, points) / 1e3
    rate = f"{gbps / 1e3:.2f} TB/s" if gbps >= 1e3 else f"{gbps:.0f} GB/s"
    return max(beyond_us, through_us), f"{name}, {_in_words(work.read_bytes, work.written_bytes)}, {rate}"
