"""Statistics of samples in blocks: medians with confidence intervals, and ratios.

Samples of a block are correlated: they share inputs, memory and a moment. So a block is the unit, and the
standard error is that of a bootstrap over whole blocks, which assumes nothing about the distribution. Added:

- Few blocks. Their own spread is too small by (n - 1) / n, which is corrected, and known from few values:
  intervals widen by Student's t with n - 1 degrees of freedom.
- Differences between processes. There is little other memory and drift is slow, so more blocks do not reduce
  that part of the error: the share of the variance between blocks counts as if there were `_INDEPENDENT` of
  them, or one if they follow a trend that chance rarely gives. (It is the variance of their shares above the
  common median, beyond that of independent samples: ranks, which outliers neither hide nor feign.)
- The clock's step. Each sample is spread over its step at random, since its position in the step is unknown.
  If noise is wider than a step, the median then uses all samples; else intervals are at least a step wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_LARGEST = 1e6  # beyond any quantile that is asked for: t of one degree at 99.99 % is 6366


@lru_cache(maxsize=1024)
def t_quantile(confidence: float, freedom: int) -> float:
    """Return the quantile of Student's t: the standard errors to each side that hold `confidence`."""
    low, high = 0.0, _LARGEST
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, freedom) < confidence else (low, middle)
    return high


def t_probability(t: float, freedom: int) -> float:
    """Return the share within t standard errors. Source: Abramowitz and Stegun, 26.7.3 and 26.7.4: exact."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * math.cos(angle) ** 2
        total += term
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


BlockTimes: TypeAlias = Sequence[Sequence[float]]
"""Samples in microseconds: by block, in the order in which blocks were taken."""

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.float32]  # whole numbers, as floats: matrices of those multiply fast

_RESAMPLES = 400  # the standard error is then itself known to 3.5 %
_INDEPENDENT = 4  # as many as there are sets of inputs, by default
_TREND = 0.99  # chance gives a trend in the other hundredth of runs


@dataclass(frozen=True, kw_only=True)
class MedianEstimate:
    """A figure, its variance over runs, and the degrees of freedom that this is known with."""

    value: float
    variance: float
    freedom: int

    def reach(self, confidence: float) -> float:
        """Half the interval."""
        return t_quantile(confidence, self.freedom) * math.sqrt(self.variance)


def median_estimate(blocks: BlockTimes, *, resolution_us: float) -> MedianEstimate:
    """The median of all samples, in us, of two blocks at least, none of them empty."""
    return _estimate(*_resampled(blocks, resolution_us))


def _resampled(
    blocks: BlockTimes, resolution_us: float, seed: int = 0
) -> tuple[float, Floats, Floats, float]:
    """Return the median of all samples, that of each draw, and the share of each block above the former.

    The last value is the variance of these shares if all samples are independent.
    """
    values = np.concatenate([np.asarray(block, np.float64) for block in blocks])
    # A time of less than a step stays a time: half a step below it may be nothing, or less.
    step = np.minimum(resolution_us, np.abs(values))
    values = values + step * np.random.default_rng(seed).uniform(-0.5, 0.5, values.size)
    owners = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    order = np.argsort(values, kind="stable")
    values, median = values[order], float(np.median(values))
    of_block = (owners[order] == np.arange(len(blocks))[:, None]).astype(np.float32)
    first = np.cumsum(of_block, axis=1)  # how many of a block are among the first of all
    above: Floats = of_block @ ((values > median) + 0.5 * (values == median)) / first[:, -1]
    drawn: Counts = _drawn(len(blocks)) @ first
    half = drawn[:, -1:] / 2
    low, high = (drawn >= half).argmax(axis=1), (drawn > half).argmax(axis=1)
    medians: Floats = (values[low] + values[high]) / 2
    return median, medians, above, float(np.mean([0.25 / len(block) for block in blocks]))


@lru_cache(maxsize=128)
def _drawn(blocks: int) -> Counts:
    """Return how often each block is in each bootstrap resample of all blocks."""
    picks = np.random.default_rng(0).integers(blocks, size=(_RESAMPLES, blocks))
    counts: Counts = (picks[:, :, None] == np.arange(blocks)).sum(axis=1, dtype=np.float32)
    return counts


def _estimate(value: float, drawn: Floats, above: Floats, chance: float) -> MedianEstimate:
    blocks = above.size
    seen = max(float(np.var(above, ddof=1)), chance)
    fewer = 1 + (1 - chance / seen) * max(0.0, blocks / _independent(above) - 1)
    variance = float(np.var(drawn)) * blocks / (blocks - 1) * fewer
    return MedianEstimate(value=value, variance=variance, freedom=blocks - 1)


def _independent(above: Floats) -> int:
    """Return how many blocks count as independent in the variance between blocks."""
    blocks = above.size
    place = np.arange(blocks) - (blocks - 1) / 2
    all_of_it = float(np.sum((above - above.mean()) ** 2))
    by_trend = float(place @ above) ** 2 / float(place @ place)
    if blocks <= _INDEPENDENT or not all_of_it:
        return _INDEPENDENT
    t = math.sqrt(by_trend * (blocks - 2) / max(all_of_it - by_trend, 1e-12))
    return 1 if t > t_quantile(_TREND, blocks - 2) else _INDEPENDENT


LEAST_BLOCKS = 3  # that two runs need to be compared: of fewer, the spread is a guess
_LEAST_BLOCKS = 2  # of fewer, the spread of blocks is unknown
_FAR = 50.0  # natural logarithm; of few blocks an interval may reach further than a float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """`n` samples in a few figures, in microseconds; the median's interval is from `low_us` to `high_us`."""

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
    """A ratio of two times, with the ends of its confidence interval."""

    value: float
    low: float
    high: float


def summary(blocks: BlockTimes, *, confidence: float, resolution_us: float = 0.0) -> Summary:
    """Return samples in a few figures; one sample at least.

    The interval allows for what differs in a repeated run, as far as blocks show it. It is never narrower
    than the clock's step; of a single block it is the range of the samples.

    Args:
        blocks: Samples in us, by block; empty blocks are ignored.
        confidence, resolution_us: The confidence of the interval, and the step of the clock.
    """
    filled = [block for block in blocks if len(block)]
    samples = np.concatenate([np.asarray(block, np.float64) for block in filled])
    p5, p25, p50, p75, p95 = (float(value) for value in np.percentile(samples, (5, 25, 50, 75, 95)))
    low, high, reach = float(samples.min()), float(samples.max()), resolution_us / 2
    if len(filled) >= _LEAST_BLOCKS:
        estimate = median_estimate(filled, resolution_us=resolution_us)
        low, high = min(p50, estimate.value), max(p50, estimate.value)
        reach = max(reach, estimate.reach(confidence))
    return Summary(
        median_us=p50, p25_us=p25, p75_us=p75, p5_us=p5, p95_us=p95, low_us=max(0.0, low - reach),
        high_us=high + reach, n=samples.size, blocks=len(filled),
    )  # fmt: skip


def ratio(
    a_blocks: BlockTimes, b_blocks: BlockTimes, *, confidence: float, resolution_us: float = 0.0
) -> Ratio | None:
    """Return the ratio of the times of `a` and `b`; None for times of 0, or fewer than two blocks.

    What drifts, drifts for both: a draw takes the same blocks of both, so the interval is narrower than the
    intervals of two medians.

    Args:
        a_blocks, b_blocks: Samples in us, by block, of which block i of both was interleaved.
        confidence, resolution_us: The confidence of the interval, and the step of the clock.
    """
    paired = [(a, b) for a, b in zip(a_blocks, b_blocks, strict=True) if len(a) and len(b)]
    a_times, b_times = [a for a, _ in paired], [b for _, b in paired]
    if len(paired) < _LEAST_BLOCKS or min(min(map(min, a_times)), min(map(min, b_times))) <= 0:
        return None
    a_median, a_drawn, a_above, a_chance = _resampled(a_times, resolution_us)
    b_median, b_drawn, b_above, b_chance = _resampled(b_times, resolution_us, seed=1)
    value, drawn = math.log(a_median / b_median), np.log(a_drawn / b_drawn)
    estimate = _estimate(value, drawn, a_above - b_above, a_chance + b_chance)
    steps = [resolution_us / float(np.median(np.concatenate(each))) for each in (a_times, b_times)]
    return around(value, max(math.hypot(*steps) / 2, estimate.reach(confidence)))


def around(log_value: float, reach: float) -> Ratio:
    """The ratio with that logarithm, and an interval that reaches as far to both sides on a log scale."""
    low, high = (math.exp(max(-_FAR, min(_FAR, end))) for end in (log_value - reach, log_value + reach))
    return Ratio(value=math.exp(log_value), low=low, high=high)
