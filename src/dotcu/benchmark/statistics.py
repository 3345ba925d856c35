"""Samples as figures: medians with their interval, and ratios of two contenders."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dotcu.benchmark import medians
from dotcu.benchmark.medians import Blocks

_LEAST_BLOCKS = 2  # of fewer, nobody can say how much blocks differ


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Samples in a few figures, in microseconds.

    Attributes:
        low_us: The lower end of the median's interval, at the protocol's confidence.
        high_us: Its upper end.
        n: Samples.
        blocks: Blocks that they were taken in.
    """

    median_us: float
    p25_us: float
    p75_us: float
    p5_us: float
    p95_us: float
    low_us: float
    high_us: float
    n: int
    blocks: int

    @property
    def noise(self) -> float:
        """Half the interval of the median, as a share of it; infinite where no time went by."""
        return (self.high_us - self.low_us) / (2 * self.median_us) if self.median_us > 0 else math.inf


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times as long one takes as another, with the ends of its interval."""

    value: float
    low: float
    high: float


def summary(blocks: Blocks, *, confidence: float, resolution_us: float = 0.0, seed: int = 0) -> Summary:
    """Samples in a few figures; one sample at least.

    The interval allows for what a repeated run draws anew, as far as blocks show it (`medians` says how):
    those of two runs overlap. It is never narrower than the clock's step. Of a single block it is the range
    of the samples, since nothing tells how blocks differ.
    """
    filled = [block for block in blocks if len(block)]
    samples = np.concatenate([np.asarray(block, np.float64) for block in filled])
    p5, p25, p50, p75, p95 = (float(value) for value in np.percentile(samples, (5, 25, 50, 75, 95)))
    low, high, reach = float(samples.min()), float(samples.max()), resolution_us / 2
    if len(filled) >= _LEAST_BLOCKS:
        estimate = medians.median(filled, resolution_us=resolution_us, seed=seed)
        low, high = min(p50, estimate.value), max(p50, estimate.value)
        reach = max(reach, estimate.reach(confidence))
    return Summary(
        median_us=p50,
        p25_us=p25,
        p75_us=p75,
        p5_us=p5,
        p95_us=p95,
        low_us=max(0.0, low - reach),
        high_us=high + reach,
        n=samples.size,
        blocks=len(filled),
    )


def ratio(
    a_blocks: Blocks, b_blocks: Blocks, *, confidence: float, resolution_us: float = 0.0, seed: int = 0
) -> Ratio | None:
    """How many times as long `a` takes as `b`; None where a time is not above 0, or of fewer than two blocks.

    Block i of both was taken by turns, as `throttling.kept` gives them. What drifts, drifts for both, so the
    interval is that of the ratio within blocks: narrower than what two medians alone would allow.
    """
    paired = [(a, b) for a, b in zip(a_blocks, b_blocks, strict=True) if len(a) and len(b)]
    a_kept, b_kept = [a for a, _ in paired], [b for _, b in paired]
    if len(paired) < _LEAST_BLOCKS or min(min(map(min, a_kept)), min(map(min, b_kept))) <= 0:
        return None
    estimate = medians.log_ratio(a_kept, b_kept, resolution_us=resolution_us, seed=seed)
    steps = [resolution_us / float(np.median(np.concatenate(each))) for each in (a_kept, b_kept)]
    return around(estimate.value, max(math.hypot(*steps) / 2, estimate.reach(confidence)))


def around(log_value: float, reach: float) -> Ratio:
    """The ratio with that logarithm, and an interval that reaches as far to both sides on a log scale."""
    ends = (math.exp(max(-_FAR, min(_FAR, each))) for each in (log_value - reach, log_value + reach))
    low, high = ends
    return Ratio(value=math.exp(log_value), low=low, high=high)


_FAR = 50.0  # natural logarithm; of few blocks an interval may reach further than a float
