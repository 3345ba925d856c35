"""The least time that a GPU needs for some work, and what to think of a time that is less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dotcu.benchmark.limits import mix
from dotcu.benchmark.limits.rates import BEYOND, tflops

if TYPE_CHECKING:
    from dotcu.benchmark.limits.ceilings import Ceilings
    from dotcu.benchmark.limits.datasheet import Sheet
    from dotcu.benchmark.measured import L2
    from dotcu.benchmark.work import Work

MARKED_ABOVE = 102.0
"""Percent of the limit above which a row is marked: ceilings are measured, so known to a percent or two."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The speed of light for one call.

    Attributes:
        time_us: The least time, by the ceilings that were measured.
        what: What sets it, in words: "memory, 2 reads to 1 write, 4.39 TB/s".
        floor_us: The least that can be believed: what is written may stay in L2, as far as it fits.
        sheet_us: The same by the datasheet; None for a GPU that has none here.
    """

    time_us: float
    what: str
    floor_us: float
    sheet_us: float | None = None


class Judgement(NamedTuple):
    """What a time is worth beside its limit.

    Attributes:
        percent: Of the limit that was reached.
        marks: What a reader has to know, in words.
        refusal: Why the time cannot be; empty where it can.
    """

    percent: float
    marks: tuple[str, ...] = ()
    refusal: str = ""


class _Bound(NamedTuple):
    time_us: float
    what: str


_NONE = _Bound(0.0, "")


def limit(work: Work, ceilings: Ceilings, sheet: Sheet | None, *, l2: L2, l2_bytes: int) -> Limit | None:
    """The limit of some work; None where it moves no bytes and nothing is known of its arithmetic.

    The slower of moving the bytes and of doing the arithmetic. Cold, all bytes come from memory and go there.
    Warm, as many bytes as L2 holds stay in it, and all go through it.

    Args:
        l2: What the call found in L2.
        l2_bytes: The size of L2.
    """
    arithmetic = _arithmetic(work, ceilings)
    memory = _memory(work, ceilings, l2_bytes if l2 == "warm" else 0)
    slower = max(memory, arithmetic, key=lambda bound: bound.time_us)
    if not slower.time_us:
        return None
    floor_us = memory.time_us if l2 == "warm" else _floor_us(work, ceilings, l2_bytes)
    return Limit(
        time_us=slower.time_us,
        what=slower.what,
        floor_us=min(slower.time_us, max(floor_us, arithmetic.time_us)),
        sheet_us=None if sheet is None else _sheet_us(work, sheet, l2, l2_bytes),
    )


def _arithmetic(work: Work, ceilings: Ceilings) -> _Bound:
    rate = tflops(ceilings, work.dtype) if work.flops else None
    if rate is None:
        return _NONE
    return _Bound(work.flops / rate / 1e6, f"{work.dtype} arithmetic, {rate:.4g} TFLOP/s")


def _memory(work: Work, ceilings: Ceilings, kept: int) -> _Bound:
    """The time to move the bytes, of which so many stay in L2."""
    if not work.bytes:
        return _NONE
    share = max(0.0, 1 - kept / work.bytes)
    beyond = mix.time_us(share * work.read_bytes, share * work.written_bytes, ceilings.memory)
    through = mix.time_us(work.read_bytes, work.written_bytes, ceilings.l2) if kept else 0.0
    if through > beyond:
        return _Bound(through, _moved("L2", work, ceilings.l2))
    return _Bound(beyond, _moved("memory", work, ceilings.memory))


def _moved(what: str, work: Work, points: mix.Points) -> str:
    gbps = mix.bandwidth_gbps(work.read_bytes, work.written_bytes, points)
    rate = f"{gbps / 1e3:.2f} TB/s" if gbps >= 1e3 else f"{gbps:.0f} GB/s"
    return f"{what}, {mix.in_words(work.read_bytes, work.written_bytes)}, {rate}"


def _floor_us(work: Work, ceilings: Ceilings, l2_bytes: int) -> float:
    """Cold, but what is written stays in L2 as far as it fits."""
    written = max(0, work.written_bytes - l2_bytes)
    return max(
        mix.time_us(work.read_bytes, written, ceilings.memory),
        mix.time_us(work.read_bytes, work.written_bytes, ceilings.l2),
    )


def _sheet_us(work: Work, sheet: Sheet, l2: L2, l2_bytes: int) -> float | None:
    """What physics allows: of the bytes only those that L2 can have no part in."""
    if l2 == "warm":
        moved = max(0, work.bytes - l2_bytes)
    else:
        moved = work.read_bytes + max(0, work.written_bytes - l2_bytes)
    rate = tflops(sheet, work.dtype, beyond=True) if work.flops else None
    arithmetic_us = work.flops / rate / 1e6 if rate is not None else 0.0
    return max(moved / sheet.memory_gbps / 1e3, arithmetic_us) or None


def judge(median_us: float, limit: Limit, work: Work, *, resolution_us: float = 0.0) -> Judgement:
    """Hold a time against its limit.

    Args:
        resolution_us: The step of the clock: a time may be so much more than it says.
    """
    percent = 100 * limit.time_us / median_us if median_us > 0 else float("inf")
    longest_us = median_us + resolution_us
    if limit.sheet_us is not None and longest_us < limit.sheet_us:
        return Judgement(percent, refusal=_refusal(median_us, limit.sheet_us, work))
    if percent <= MARKED_ABOVE or longest_us >= limit.time_us:
        return Judgement(percent)
    return Judgement(percent, (_mark(longest_us, percent, limit, work),))


def _refusal(median_us: float, sheet_us: float, work: Work) -> str:
    causes = ["a result that was kept from an earlier call", "work outside of the timed window"]
    if work.declared:
        causes.insert(0, "`work` that claims more than a call does")
        remedy = "Compare what `work` returns with what the kernel reads, writes and computes."
    else:
        causes.insert(0, "tensors that are not read or written whole")
        remedy = "Where they are not, say what is moved, by a function under the operator's .work decorator."
    return (
        f"{median_us:.4g} us is less than the {sheet_us:.4g} us that this GPU's datasheet allows for "
        f"{_claim(work)}.\nThat has a cause: {', '.join(causes)}.\n{remedy}"
    )


def _claim(work: Work) -> str:
    """The work in words: `12.6 MB and 17.2 GFLOP in float32`."""
    words = [f"{work.bytes / 1e6:.4g} MB"] if work.bytes else []
    words += [f"{work.flops / 1e9:.4g} GFLOP in {work.dtype}"] if work.flops else []
    return " and ".join(words)


def _mark(longest_us: float, percent: float, limit: Limit, work: Work) -> str:
    shown = f"{percent:.0f} % of the limit"
    if longest_us * MARKED_ABOVE / 100 >= limit.floor_us and limit.floor_us < limit.time_us:
        return f"{shown}: what it writes stays in L2, in part or all"
    if work.dtype in BEYOND and limit.what.startswith(work.dtype):
        return f"{shown}: more than {work.dtype} instructions can do, so it may compute in tf32 or in halves"
    what = "its `work`" if work.declared else "that it touches its tensors whole"
    return f"{shown}, more than was ever measured on this GPU: doubt {what}, or the figure"
