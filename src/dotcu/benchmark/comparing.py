"""Two runs of the same thing: which changed?

A change is called where the whole interval of the ratio lies beyond `least`; it is the same where all of it
lies within; else it is unclear. Two things keep two equal runs from being called changed:

- The interval has a block as its unit and allows for what another process draws anew, as far as blocks show
  it (`medians`). Runs are not paired, so their variances add; degrees of freedom by Welch and Satterthwaite,
  rounded down.
- `least` covers what blocks do not show, since all of a run's have it in common: a process's layout of
  memory, the clocks of an hour. It is to be more than processes differ by for no reason of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from dotcu.benchmark import medians, throttling
from dotcu.benchmark.measured import Block, Measured
from dotcu.benchmark.medians import Blocks, Estimate
from dotcu.benchmark.statistics import Ratio, around

Verdict = Literal["faster", "slower", "same", "unclear"]

LEAST_BLOCKS = 3
"""Of fewer, the spread is a guess: t of one degree of freedom is 64."""

_OTHER_CLOCK = 0.03  # SM clocks that differ by more are told


@dataclass(frozen=True, kw_only=True)
class Change:
    """What became of a row since an earlier run.

    Attributes:
        ratio: The time now over the time then.
        confidence: Of the verdict.
        note: What a reader has to know: another driver, say.
    """

    verdict: Verdict
    ratio: Ratio
    confidence: float
    note: str = ""


@dataclass(frozen=True)
class Incomparable:
    """Why no ratio of two runs can be given."""

    reason: str


def compare(
    before: Measured, after: Measured, *, confidence: float = 0.99, least: float = 0.01
) -> Change | Incomparable:
    """What became of it.

    Throttled blocks are left out.

    Args:
        least: The share by which times have to differ; where a step of the clock is a larger share of the
            median, that step.
    """
    kept = [throttling.kept(run.blocks)[0] for run in (before, after)]
    if reason := _obstacle(before, after, kept):
        return Incomparable(reason)
    then, now = kept
    steps_us = (before.resolution_us, after.resolution_us)
    change = judge(then, now, steps_us=steps_us, confidence=confidence, least=least)
    notes = [note for note in (change.note, _clock_note(before.blocks, after.blocks)) if note]
    return replace(change, note="; ".join(notes))


def judge(
    then: Blocks, now: Blocks, *, steps_us: tuple[float, float], confidence: float, least: float
) -> Change:
    """What samples alone say; three blocks of each at least, and medians above 0."""
    medians_us = [median(time for block in blocks for time in block) for blocks in (then, now)]
    steps = [step_us / each for step_us, each in zip(steps_us, medians_us, strict=True)]
    first, second = (_log_median(*each) for each in zip((then, now), steps_us, strict=True))
    apart = _difference(first, second)
    ratio = around(apart.value, max(math.hypot(*steps) / 2, apart.reach(confidence)))
    edge = max(least, *steps)
    note = (
        f"the clock's step is {edge:.1%} of the time: less than that cannot be seen" if edge > least else ""
    )
    return Change(verdict=_verdict(ratio, edge), ratio=ratio, confidence=confidence, note=note)


def _obstacle(before: Measured, after: Measured, kept: Sequence[Blocks]) -> str:
    """Why the two cannot be compared; empty where they can be."""
    if before.by != after.by:
        return f"timed by {before.by} then, by {after.by} now, which do not count the same; measure one again"
    for when, run, blocks in zip(("then", "now"), (before, after), kept, strict=True):
        if len(blocks) < LEAST_BLOCKS:
            lost = f" of {len(run.blocks)}, the others throttled" if len(blocks) < len(run.blocks) else ""
            return f"{len(blocks)} blocks {when}{lost}: it takes {LEAST_BLOCKS} to know their spread"
        if median(time for block in blocks for time in block) <= 0:
            return f"no time went by {when}"
    return ""


def _log_median(blocks: Blocks, resolution_us: float) -> Estimate:
    estimate = medians.median(blocks, resolution_us=resolution_us, seed=0)
    relative = estimate.variance / estimate.value**2
    return Estimate(value=math.log(estimate.value), variance=relative, freedom=estimate.freedom)


def _difference(then: Estimate, now: Estimate) -> Estimate:
    variance = then.variance + now.variance
    weights = sum(each.variance**2 / each.freedom for each in (then, now))
    freedom = int(variance**2 / weights) if weights else 1  # without a spread, any
    return Estimate(value=now.value - then.value, variance=variance, freedom=freedom)


def _verdict(ratio: Ratio, edge: float) -> Verdict:
    if ratio.low > 1 + edge:
        return "slower"
    if ratio.high < 1 / (1 + edge):
        return "faster"
    within = ratio.low >= 1 / (1 + edge) and ratio.high <= 1 + edge
    return "same" if within else "unclear"


def _clock_note(before: Sequence[Block], after: Sequence[Block]) -> str:
    then, now = _sm_mhz(before), _sm_mhz(after)
    if then and now and abs(now / then - 1) > _OTHER_CLOCK:
        return f"SM clock {then:.0f} MHz then, {now:.0f} MHz now"
    return ""


def _sm_mhz(blocks: Sequence[Block]) -> float:
    """The median clock of a run; 0 where nothing told it."""
    seen = [clocks.sm_mhz for block in blocks for clocks in (block.before, block.after) if clocks.sm_mhz]
    return median(seen) if seen else 0.0
