"""Two runs of the same rows: what changed, and what was lost.

A change is called where the whole interval of the ratio lies beyond `least`; it is "same" where all of it
lies within; else it is "unclear". Two rules keep two equal runs from being called changed:

- The interval allows for what differs from process to process, as far as blocks show it (`statistics`). Runs
  are not paired, so their variances add; degrees of freedom by Welch and Satterthwaite, rounded down.
- `least` covers what all blocks of a run have in common: a process's layout of memory, the clocks of an hour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal

from dotcu.benchmark.device import sm_mhz, steady_samples
from dotcu.benchmark.reports import saved_runs
from dotcu.benchmark.reports.saved_runs import SavedRow
from dotcu.benchmark.results import OWN, BenchKey, BenchRow, Measured, Protocol
from dotcu.benchmark.statistics import (
    LEAST_BLOCKS,
    BlockTimes,
    MedianEstimate,
    Ratio,
    around,
    median_estimate,
)

if TYPE_CHECKING:
    from dotcu.benchmark.reports.report import BenchReport

ChangeVerdict = Literal["faster", "slower", "same", "unclear"]

_CONFIDENCE = 0.99
_LEAST = 0.01  # the share by which times have to differ
_OTHER_CLOCK = 0.03  # SM clocks that differ by more are remarked on


@dataclass(frozen=True, kw_only=True)
class Change:
    """The change of a row against the baseline; `ratio` is the time now over the baseline's."""

    verdict: ChangeVerdict
    ratio: Ratio
    confidence: float
    note: str = ""


def compare(before: Measured, after: Measured) -> Change | str:
    """Compare two measurements without their throttled blocks; return why if they cannot be compared."""
    if before.by != after.by:
        return f"timed by {before.by} then, by {after.by} now, which do not count the same; measure one again"
    then, now = (steady_samples(run.blocks)[0] for run in (before, after))
    for when, run, blocks in (("then", before, then), ("now", after, now)):
        if len(blocks) < LEAST_BLOCKS:
            lost = f" of {len(run.blocks)}, the others throttled" if len(blocks) < len(run.blocks) else ""
            return f"{len(blocks)} blocks {when}{lost}: it takes {LEAST_BLOCKS} to know their spread"
        if median(time for block in blocks for time in block) <= 0:
            return f"no time went by {when}"
    change = _judge(then, now, (before.resolution_us, after.resolution_us))
    old_mhz, new_mhz = (median(sm_mhz(run.blocks) or [0]) for run in (before, after))  # 0 if unknown
    if old_mhz and new_mhz and abs(new_mhz / old_mhz - 1) > _OTHER_CLOCK:
        clocks = f"SM clock {old_mhz:.0f} MHz then, {new_mhz:.0f} MHz now"
        return replace(change, note="; ".join(filter(None, (change.note, clocks))))
    return change


def _judge(then: BlockTimes, now: BlockTimes, steps_us: tuple[float, float], least: float = _LEAST) -> Change:
    """Compare samples in us of three blocks or more, with medians above 0, by clocks of some steps."""
    steps = [
        step_us / median(time for block in blocks for time in block)
        for step_us, blocks in zip(steps_us, (then, now), strict=True)
    ]
    first, second = (
        median_estimate(blocks, resolution_us=step_us)
        for blocks, step_us in zip((then, now), steps_us, strict=True)
    )
    variances = [each.variance / each.value**2 for each in (first, second)]  # of the logarithms
    weights = variances[0] ** 2 / first.freedom + variances[1] ** 2 / second.freedom
    freedom = int(sum(variances) ** 2 / weights) if weights else 1  # without a spread, any
    value = math.log(second.value) - math.log(first.value)
    difference = MedianEstimate(value=value, variance=sum(variances), freedom=freedom)
    ratio = around(value, max(math.hypot(*steps) / 2, difference.reach(_CONFIDENCE)))
    edge = max(least, *steps)
    verdict: ChangeVerdict = "unclear"
    if ratio.low > 1 + edge:
        verdict = "slower"
    elif ratio.high < 1 / (1 + edge):
        verdict = "faster"
    elif ratio.low >= 1 / (1 + edge) and ratio.high <= 1 + edge:
        verdict = "same"
    unseen = f"the clock's step is {edge:.1%} of the time: less than that cannot be seen"
    note = unseen if edge > least else ""
    return Change(verdict=verdict, ratio=ratio, confidence=_CONFIDENCE, note=note)


@dataclass(frozen=True, kw_only=True)
class RowComparison:
    """A row of this run, or one that only the baseline has, compared.

    Attributes:
        change: None if they cannot be compared; then `note` says why, else what else differs.
        lost: True if the operator's own row had figures in the baseline, was asked for, and has none now.
    """

    row: BenchRow
    change: Change | None = None
    note: str = ""
    lost: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """All remarks on it."""
        return tuple(text for text in (self.note, self.change.note if self.change else "") if text)


def compare_runs(baseline: Path, report: BenchReport, *, whole: bool = False) -> list[RowComparison]:
    """Compare each row with the baseline, in the order of the report; then rows that only the baseline has.

    Where the file has a row more than once, the latest with figures of this GPU's model counts.

    Args:
        baseline, report: The file of saved runs, and the new run.
        whole: True if all operators were asked for: one that is missing now is lost.
    """

    def use(saved: SavedRow) -> int:
        return _has_figures(saved.row) * (1 + (saved.machine.gpu == report.machine.gpu))

    best: dict[BenchKey, SavedRow] = {}
    for saved in saved_runs.read_runs(baseline):
        if saved.row.key not in best or use(saved) >= use(best[saved.row.key]):
            best[saved.row.key] = saved
    comparisons: list[RowComparison] = []
    for row in report.rows:
        old = best.pop(row.key, None)
        if old is None:
            comparisons.append(RowComparison(row=row, note=f"not in {baseline.name}"))
            continue
        change = _compare_rows(old, report, row)
        if isinstance(change, Change):
            note = "; ".join(_differences(old, report))
            comparisons.append(RowComparison(row=row, change=change, note=note))
        else:
            lost = row.key.contender == OWN and _has_figures(old.row)
            comparisons.append(RowComparison(row=row, note=change, lost=lost))
    operators = {*report.sources, *(row.key.op for row in report.rows)}
    cases, states = {(row.key.op, row.key.case) for row in report.rows}, {row.key.l2 for row in report.rows}
    for row in (old.row for old in best.values()):
        is_gone = whole and row.key.op not in operators
        asked = is_gone or ((row.key.op, row.key.case) in cases and row.key.l2 in states)
        note = f"only in {baseline.name}{': the operator is not there any more' if is_gone else ''}"
        lost = asked and row.key.contender == OWN and _has_figures(row)
        comparisons.append(RowComparison(row=row, note=note, lost=lost))
    return comparisons


def _has_figures(row: BenchRow) -> bool:
    return row.status == "measured" and row.measured is not None


def _compare_rows(saved: SavedRow, report: BenchReport, row: BenchRow) -> Change | str:
    for when, one in (("then", saved.row), ("now", row)):
        if not _has_figures(one):
            return f"no figures {when}: {one.status}"
    then, now = saved.machine.gpu or "unknown", report.machine.gpu or "unknown"
    if then != now:
        return f"gpu {then} then, {now} now: the code is not what differs; measure both on one model"
    assert saved.row.measured is not None
    assert row.measured is not None
    return compare(saved.row.measured, row.measured)


def _differences(then: SavedRow, now: BenchReport) -> Iterator[str]:
    """Yield what else differs between two runs of a row, and may explain its change."""
    before, after = ({"host": run.machine.host, **run.machine.versions} for run in (then, now))
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name) or "unknown", after.get(name) or "unknown"
        if old != new:
            yield f"{name} {old} then, {new} now"
    if then.machine.uuid != now.machine.uuid:
        yield f"another {now.machine.gpu or 'GPU'} than then"
    for field in fields(Protocol):
        old, new = getattr(then.protocol, field.name), getattr(now.protocol, field.name)
        if old != new:
            yield f"protocol: {field.name} {old} then, {new} now"
    if then.source and then.source == now.sources.get(then.row.key.op):
        yield "the source is the same"
