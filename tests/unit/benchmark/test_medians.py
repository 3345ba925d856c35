"""Standard errors of medians: against what can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dotcu.benchmark import statistics
from helpers.timing_samples import Noise, runs


def of(*levels: float, calls: int = 10) -> statistics.MedianEstimate:
    """The median of blocks that are each at one level."""
    return statistics.median_estimate([[level] * calls for level in levels], resolution_us=0.0)


def test_the_variance_of_three_levels_is_the_one_worked_out() -> None:
    """Of 27 draws, 7 have the median 1, 13 have 2, 7 have 3: 14 / 27; and that is two thirds."""
    found = of(1.0, 2.0, 3.0)
    assert (found.value, found.freedom) == (2.0, 2)
    assert found.variance == pytest.approx(14 / 27 * 3 / 2, rel=0.1)


def test_the_variance_of_independent_samples_is_that_of_their_median() -> None:
    """pi / 2 times the variance over the samples: 1 % of 10 us, 200 samples."""
    found = [statistics.median_estimate(run, resolution_us=0.0) for run in runs(Noise(block=0.0), 1, of=200)]
    expected = math.pi / 2 * 0.1**2 / 200
    assert expected < np.mean([each.variance for each in found]) < 2 * expected
    assert np.var([each.value for each in found]) == pytest.approx(expected, rel=0.3)


def test_what_lies_between_blocks_gets_no_smaller_beyond_four_of_them() -> None:
    noise = Noise(sample=0.0001, block=0.01)
    few, many = (
        np.mean(
            [
                statistics.median_estimate(run, resolution_us=0.0).variance
                for run in runs(noise, 2, of=100, blocks=n)
            ]
        )
        for n in (4, 40)
    )
    assert many == pytest.approx(few, rel=0.5)


def test_a_trend_counts_once() -> None:
    ladder = [10 + 0.01 * step for step in range(20)]
    mixed = np.random.default_rng(1).permutation(ladder)
    assert of(*ladder).variance == pytest.approx(4 * of(*mixed).variance, rel=0.3)


def test_a_step_of_the_clock_hides_nothing_that_noise_shows() -> None:
    """10.31 us on a clock of 1 us, with noise of 0.5 us: the median is known to a tenth of a step."""
    noise = Noise(sample=0.05, block=0.0, step_us=1.0)
    found = [statistics.median_estimate(r, resolution_us=1.0).value for r in runs(noise, 3, of=100, us=10.31)]
    assert np.mean(found) == pytest.approx(10.31, abs=0.1)
    assert np.std(found) < 0.2


def test_a_time_of_less_than_a_step_stays_above_nothing() -> None:
    found = statistics.ratio([[0.1] * 5] * 3, [[0.2] * 5] * 3, confidence=0.99, resolution_us=1.0)
    assert found is not None
    assert all(map(math.isfinite, (found.value, found.low, found.high)))
