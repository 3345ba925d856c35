"""The median of samples that were taken in blocks, and how far another run's may lie from it.

Samples of a block hang together: they share inputs, places in memory and a moment. So a block is the unit,
and the standard error is that of a bootstrap over whole blocks. It asks nothing of the shape of the samples:
a heavy tail or an outlier weighs no more than it does in the median itself. To that come:

- Few blocks. They show their own spread too small by (n - 1) / n, which is put right, and a spread that is
  known from few values is badly known: intervals widen by Student's t with n - 1 degrees of freedom.
- What another process draws anew. Blocks differ since they use other places in memory and since heat and
  clocks drift; there are few such places, drift is slow, so more blocks do not make that part of the error
  smaller. The share of the variance that lies between blocks counts as if there were `_INDEPENDENT` of them,
  however many there are. (The share is what the blocks' parts above the common median vary by, beyond what
  independent samples would: ranks, so outliers do not hide or feign it.) Where blocks rise or fall by a trend
  that chance rarely gives, it counts as if there were one: the next run may fall where this one rose.
- The clock's step. Each sample is spread over its step at random, since where in the step the time lies is
  unknown. Where noise is wider than a step, the median then says what the samples say together; where it is
  not, intervals are held to a step at least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dotcu.benchmark import student

Blocks: TypeAlias = Sequence[Sequence[float]]
"""Samples in microseconds: by block, in the order in which blocks were taken."""

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.float32]  # whole numbers, as floats: matrices of those multiply fast

_RESAMPLES = 400  # the standard error is then itself known to 3.5 %

_INDEPENDENT = 4  # as many as there are sets of inputs, by default

_TREND = 0.99  # chance gives a trend in the other hundredth of runs


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure and how sure it is.

    Attributes:
        variance: Of the figure, over runs.
        freedom: Degrees of freedom that the variance is known with.
    """

    value: float
    variance: float
    freedom: int

    def reach(self, confidence: float) -> float:
        """Half the interval."""
        return student.quantile(confidence, self.freedom) * math.sqrt(self.variance)


def median(blocks: Blocks, *, resolution_us: float, seed: int) -> Estimate:
    """The median of all samples, in us.

    Args:
        blocks: Two at least, none of them empty.
    """
    samples = _Samples(blocks, resolution_us, seed)
    drawn = samples.medians(_drawn(len(blocks), seed))
    return _estimate(samples.median, drawn, samples.above, _chance(blocks))


def log_ratio(a: Blocks, b: Blocks, *, resolution_us: float, seed: int) -> Estimate:
    """The logarithm of the ratio of two medians, of blocks that were taken by turns.

    A draw takes the same blocks of both: what both met at the same time cancels.

    Args:
        a: Two blocks at least, none of them empty, of times that are more than 0.
        b: As many.
    """
    first, second = _Samples(a, resolution_us, seed), _Samples(b, resolution_us, seed + 1)
    counts = _drawn(len(a), seed)
    drawn = np.log(first.medians(counts) / second.medians(counts))
    value = math.log(first.median / second.median)
    return _estimate(value, drawn, first.above - second.above, _chance(a) + _chance(b))


class _Samples:
    """Samples in ascending order, spread over the clock's step.

    Attributes:
        above: The share of each block's samples that lies above the median of all.
    """

    def __init__(self, blocks: Blocks, resolution_us: float, seed: int) -> None:
        values = np.concatenate([np.asarray(block, np.float64) for block in blocks])
        # A time of less than a step stays a time: half a step below it may be nothing, or less.
        step = np.minimum(resolution_us, np.abs(values))
        values = values + step * np.random.default_rng(seed).uniform(-0.5, 0.5, values.size)
        owners = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
        order = np.argsort(values, kind="stable")
        self._values: Floats = values[order]
        self.median = float(np.median(values))
        of_block = (owners[order] == np.arange(len(blocks))[:, None]).astype(np.float32)
        self._upto = np.cumsum(of_block, axis=1)  # how many of a block are among the first of all
        above = (self._values > self.median) + 0.5 * (self._values == self.median)
        self.above: Floats = of_block @ above / self._upto[:, -1]

    def medians(self, counts: Counts) -> Floats:
        """The median of each draw; a row of `counts` says how often each block is in it."""
        upto: Counts = counts @ self._upto
        half = upto[:, -1:] / 2
        low, high = (upto >= half).argmax(axis=1), (upto > half).argmax(axis=1)
        middles: Floats = (self._values[low] + self._values[high]) / 2
        return middles


@lru_cache(maxsize=128)
def _drawn(blocks: int, seed: int) -> Counts:
    """How often each block is in each draw, of as many blocks as there are."""
    picks = np.random.default_rng(seed).integers(blocks, size=(_RESAMPLES, blocks))
    counts: Counts = (picks[:, :, None] == np.arange(blocks)).sum(axis=1, dtype=np.float32)
    return counts


def _chance(blocks: Blocks) -> float:
    """What the shares above the median vary by where all samples are independent."""
    return float(np.mean([0.25 / len(block) for block in blocks]))


def _estimate(value: float, drawn: Floats, above: Floats, chance: float) -> Estimate:
    blocks = above.size
    seen = max(float(np.var(above, ddof=1)), chance)
    fewer = 1 + (1 - chance / seen) * max(0.0, blocks / _independent(above) - 1)
    variance = float(np.var(drawn)) * blocks / (blocks - 1) * fewer
    return Estimate(value=value, variance=variance, freedom=blocks - 1)


def _independent(above: Floats) -> int:
    """How many blocks, at most, have a value of their own of what lies between blocks."""
    blocks = above.size
    place = np.arange(blocks) - (blocks - 1) / 2
    all_of_it = float(np.sum((above - above.mean()) ** 2))
    by_trend = float(place @ above) ** 2 / float(place @ place)
    if blocks <= _INDEPENDENT or not all_of_it:
        return _INDEPENDENT
    t = math.sqrt(by_trend * (blocks - 2) / max(all_of_it - by_trend, 1e-12))
    return 1 if t > student.quantile(_TREND, blocks - 2) else _INDEPENDENT
