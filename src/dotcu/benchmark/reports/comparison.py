"""Two runs of the same rows: what changed, and what was lost.

A change is called where the whole interval of the ratio lies beyond `least`; it is "same" where all of it
lies within; else it is "unclear". Two rules keep two equal runs from being called changed:

- The interval has a block as its unit, and allows for what differs from process to process, as far as blocks
  show it (`statistics`). Runs are not paired, so their variances add; degrees of freedom by Welch and
  Satterthwaite, rounded down.
- `least` covers what blocks do not show, since all blocks of a run have it in common: a process's layout of
  memory, the clocks of an hour. It must be more than processes differ by without a reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal

from dotcu.benchmark.device import steady_samples
from dotcu.benchmark.reports import saved_runs
from dotcu.benchmark.reports.saved_runs import SavedRun
from dotcu.benchmark.results import OWN, Block, Machine, Measured, Protocol, Row, RowKey
from dotcu.benchmark.statistics import LEAST_BLOCKS, Blocks, MedianEstimate, Ratio, around, median_estimate

if TYPE_CHECKING:
    from dotcu.benchmark.reports.report import BenchReport

ChangeVerdict = Literal["faster", "slower", "same", "unclear"]

_OTHER_CLOCK = 0.03  # SM clocks that differ by more are remarked on


@dataclass(frozen=True, kw_only=True)
class Change:
    """The change of a row against the baseline.

    Attributes:
        ratio: The time now over the baseline's.
        confidence: The confidence of the verdict.
        note: A remark: another clock, say.
    """

    verdict: ChangeVerdict
    ratio: Ratio
    confidence: float
    note: str = ""


def compare(
    before: Measured, after: Measured, *, confidence: float = 0.99, least: float = 0.01
) -> Change | str:
    """Compare two measurements without their throttled blocks; return why if they cannot be compared.

    Args:
        before: The baseline.
        after: The new measurement.
        confidence: The confidence of the verdict.
        least: The share by which times have to differ; at least a step of the clock.
    """
    steady = [steady_samples(run.blocks)[0] for run in (before, after)]
    if reason := _obstacle(before, after, steady):
        return reason
    then, now = steady
    steps_us = (before.resolution_us, after.resolution_us)
    change = judge_samples(then, now, steps_us=steps_us, confidence=confidence, least=least)
    notes = [note for note in (change.note, _clock_note(before.blocks, after.blocks)) if note]
    return replace(change, note="; ".join(notes))


def judge_samples(
    then: Blocks, now: Blocks, *, steps_us: tuple[float, float], confidence: float, least: float
) -> Change:
    """Compare samples of three blocks or more, with medians above 0; arguments are those of `compare`.

    Args:
        then: The samples of the baseline in us, by block.
        now: The new samples in us, by block.
        steps_us: The steps of the two clocks.
        confidence: The confidence of the verdict.
        least: The share by which times have to differ.
    """
    medians_us = [median(time for block in blocks for time in block) for blocks in (then, now)]
    steps = [step_us / each for step_us, each in zip(steps_us, medians_us, strict=True)]
    first, second = (_log_median(*each) for each in zip((then, now), steps_us, strict=True))
    variance = first.variance + second.variance
    weights = sum(each.variance**2 / each.freedom for each in (first, second))
    freedom = int(variance**2 / weights) if weights else 1  # without a spread, any
    difference = MedianEstimate(value=second.value - first.value, variance=variance, freedom=freedom)
    ratio = around(difference.value, max(math.hypot(*steps) / 2, difference.reach(confidence)))
    edge = max(least, *steps)
    note = (
        f"the clock's step is {edge:.1%} of the time: less than that cannot be seen" if edge > least else ""
    )
    return Change(verdict=_verdict(ratio, edge), ratio=ratio, confidence=confidence, note=note)


def _obstacle(before: Measured, after: Measured, steady: Sequence[Blocks]) -> str:
    """Return why two measurements cannot be compared; empty if they can."""
    if before.by != after.by:
        return f"timed by {before.by} then, by {after.by} now, which do not count the same; measure one again"
    for when, run, blocks in zip(("then", "now"), (before, after), steady, strict=True):
        if len(blocks) < LEAST_BLOCKS:
            lost = f" of {len(run.blocks)}, the others throttled" if len(blocks) < len(run.blocks) else ""
            return f"{len(blocks)} blocks {when}{lost}: it takes {LEAST_BLOCKS} to know their spread"
        if median(time for block in blocks for time in block) <= 0:
            return f"no time went by {when}"
    return ""


def _log_median(blocks: Blocks, resolution_us: float) -> MedianEstimate:
    estimate = median_estimate(blocks, resolution_us=resolution_us, seed=0)
    relative = estimate.variance / estimate.value**2
    return MedianEstimate(value=math.log(estimate.value), variance=relative, freedom=estimate.freedom)


def _verdict(ratio: Ratio, edge: float) -> ChangeVerdict:
    if ratio.low > 1 + edge:
        return "slower"
    if ratio.high < 1 / (1 + edge):
        return "faster"
    within = ratio.low >= 1 / (1 + edge) and ratio.high <= 1 + edge
    return "same" if within else "unclear"


def _clock_note(before: Sequence[Block], after: Sequence[Block]) -> str:
    then, now = _median_sm_mhz(before), _median_sm_mhz(after)
    if then and now and abs(now / then - 1) > _OTHER_CLOCK:
        return f"SM clock {then:.0f} MHz then, {now:.0f} MHz now"
    return ""


def _median_sm_mhz(blocks: Sequence[Block]) -> float:
    """Return the median SM clock of a run; 0 if it is unknown."""
    seen = [clocks.sm_mhz for block in blocks for clocks in (block.before, block.after) if clocks.sm_mhz]
    return median(seen) if seen else 0.0


# ------------------------------------------------------------------ whole runs


@dataclass(frozen=True, kw_only=True)
class RowComparison:
    """A row, compared with the baseline.

    Attributes:
        row: The row of this run; of the baseline if only that has it.
        change: None if they cannot be compared.
        note: Why not, or what else differs.
        lost: True if it is the operator's own, had figures in the baseline, was asked for now, and cannot be
            compared.
    """

    row: Row
    change: Change | None = None
    note: str = ""
    lost: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """All remarks on it."""
        return tuple(text for text in (self.note, self.change.note if self.change else "") if text)


def compare_runs(
    baseline: Path,
    report: BenchReport,
    *,
    whole: bool = False,
    confidence: float = 0.99,
    least: float = 0.01,
) -> list[RowComparison]:
    """Compare each row with the baseline, in the order of the report; then rows that only the baseline has.

    Where the file has a row more than once, the latest with figures of this GPU's model counts.

    Args:
        baseline: The file of saved runs.
        report: The new run.
        whole: True if all operators were asked for: one that is missing now is lost.
        confidence: The confidence of verdicts.
        least: The share by which times have to differ.

    Raises:
        UsageError: The file cannot be read.
    """
    saved = _best_rows(saved_runs.read_runs(baseline), report.machine)
    found: list[RowComparison] = []
    for row in report.rows:
        if row.key not in saved:
            found.append(RowComparison(row=row, note=f"not in {baseline.name}"))
            continue
        run, old = saved.pop(row.key)
        change = _compare_rows(run, old, report, row, confidence=confidence, least=least)
        if isinstance(change, Change):
            note = "; ".join(_differences(run, report, row.key))
            found.append(RowComparison(row=row, change=change, note=note))
        else:
            found.append(RowComparison(row=row, note=change, lost=_is_own_figure(old)))
    missing = [row for _, row in saved.values()]
    return found + [_missing_row(row, baseline.name, report, whole=whole) for row in missing]


def _best_rows(runs: Sequence[SavedRun], machine: Machine) -> dict[RowKey, tuple[SavedRun, Row]]:
    """Return the row to compare with for each key: the latest of those with figures of this model."""

    def use(run: SavedRun, row: Row) -> int:
        return _has_figures(row) * (1 + (run.machine.gpu == machine.gpu))

    best: dict[RowKey, tuple[SavedRun, Row]] = {}
    for run in runs:
        for row in run.rows:
            if row.key not in best or use(run, row) >= use(*best[row.key]):
                best[row.key] = run, row
    return best


def _has_figures(row: Row) -> bool:
    return row.status == "measured" and row.measured is not None


def _is_own_figure(row: Row) -> bool:
    return row.key.contender == OWN and _has_figures(row)


def _compare_rows(
    run: SavedRun, old: Row, report: BenchReport, row: Row, *, confidence: float, least: float
) -> Change | str:
    for when, one in (("then", old), ("now", row)):
        if not _has_figures(one):
            return f"no figures {when}: {one.status}"
    then, now = run.machine.gpu, report.machine.gpu
    if then != now:
        return (
            f"gpu {then or 'unknown'} then, {now or 'unknown'} now: the code is not what differs; "
            "measure both on one model"
        )
    assert old.measured is not None
    assert row.measured is not None
    return compare(old.measured, row.measured, confidence=confidence, least=least)


def _differences(then: SavedRun, now: BenchReport, key: RowKey) -> Iterator[str]:
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
    if key.op in now.sources and now.sources[key.op] == then.sources.get(key.op):
        yield "the source is the same"


def _missing_row(old: Row, file: str, report: BenchReport, *, whole: bool) -> RowComparison:
    """Return a row that only the baseline has: lost if this run was asked for it."""
    if whole and old.key.op not in {*report.sources, *(row.key.op for row in report.rows)}:
        note = f"only in {file}: the operator is not there any more"
        return RowComparison(row=old, note=note, lost=_is_own_figure(old))
    cases, states = {(row.key.op, row.key.case) for row in report.rows}, {row.key.l2 for row in report.rows}
    asked = (old.key.op, old.key.case) in cases and old.key.l2 in states
    return RowComparison(row=old, note=f"only in {file}", lost=_is_own_figure(old) and asked)
