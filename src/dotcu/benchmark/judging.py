"""From what was measured to rows: figures, what they are worth, and what a reader has to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dotcu.benchmark import statistics, throttling
from dotcu.benchmark.limits.limit import Limit, judge
from dotcu.benchmark.measured import L2, Measured
from dotcu.benchmark.protocol import Protocol
from dotcu.benchmark.row import OWN, Row
from dotcu.benchmark.statistics import Ratio, Summary, summary
from dotcu.benchmark.suspicion import suspects
from dotcu.benchmark.work import Work


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What rows of one case and state of L2 are judged by.

    Attributes:
        limit: Gives the least time for some work, in a state of L2.
        work: Of a call; None where that is not known.
        marks: What a reader has to know of a contender, by name, whatever its figures are.
        own: The operator's own row, which is judged first; others are compared with it where it is measured.
    """

    protocol: Protocol
    limit: Callable[[Work, L2], Limit | None]
    work: Work | None
    marks: Mapping[str, tuple[str, ...]]
    own: Row | None = None


def judged(row: Row, measured: Measured, all_: Mapping[str, Measured], bench: Bench) -> Row:
    """A row with the figures of what was measured, or with why there are none.

    Args:
        row: What is known without them.
        all_: What was measured of all contenders, interleaved with this one.
    """
    lost = throttling.dropped(measured.blocks)
    kept = [block for place, block in enumerate(measured.blocks) if place not in lost]
    dropped = sum(len(measured.blocks[place].calls) for place in lost)
    row = replace(row, measured=measured, dropped=dropped, work=bench.work)
    if not any(block.calls for block in kept):
        return _without_samples(row, measured, lost)
    others = [other for name, other in all_.items() if name != measured.contender]
    reason = suspects(measured, others)
    if reason:
        return replace(row, status="refused", reason=reason)
    time = summary(
        [block.times_us for block in kept],
        confidence=bench.protocol.confidence,
        resolution_us=measured.resolution_us,
    )
    return _with_limit(replace(row, time=time, host=host(measured, bench.protocol)), bench)


def _without_samples(row: Row, measured: Measured, lost: Mapping[int, str]) -> Row:
    if not lost:
        return replace(row, status="skipped", reason="interrupted before a sample was taken")
    first = next(iter(lost.values()))
    return replace(row, status="throttled", reason=f"every sample was dropped: {first}")


def _with_limit(row: Row, bench: Bench) -> Row:
    """The row with its limit, its percentage and its ratio; refused where the time cannot be."""
    assert row.time is not None
    assert row.measured is not None
    marks = [*bench.marks.get(row.key.contender, ()), *throttling.told(row.measured.blocks)]
    found = None if bench.work is None else bench.limit(bench.work, row.key.l2)
    percent = None
    if found is not None and bench.work is not None:
        verdict = judge(row.time.median_us, found, bench.work, resolution_us=row.measured.resolution_us)
        if verdict.refusal:
            return replace(row, status="refused", reason=verdict.refusal, limit=found, time=None, host=None)
        percent, marks = verdict.percent, [*verdict.marks, *marks]
    if row.time.noise > 4 * bench.protocol.noise:
        marks.append(f"noisy: its median is known to {row.time.noise:.1%}")
    return replace(
        row, limit=found, percent=percent, ratio=_ratio(row, bench.own, bench.protocol), marks=tuple(marks)
    )


def _ratio(row: Row, own_row: Row | None, protocol: Protocol) -> Ratio | None:
    """The contender's time over the operator's own, by the blocks that both have."""
    if row.key.contender == OWN or own_row is None or own_row.status != "measured":
        return None
    own, other = own_row.measured, row.measured
    if own is None or other is None or own.by != other.by:
        return None
    theirs, ours = throttling.kept(other.blocks, own.blocks)
    step = max(own.resolution_us, other.resolution_us)
    return statistics.ratio(theirs, ours, confidence=protocol.confidence, resolution_us=step)


def host(measured: Measured, protocol: Protocol) -> Summary | None:
    """The host time of a call; None where it was not taken."""
    if not measured.host_us:
        return None
    return summary([[time] for time in measured.host_us], confidence=protocol.confidence)
