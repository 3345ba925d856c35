"""Figures of samples: what they are, and that their intervals hold, by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dotcu.benchmark.statistics import Ratio, Summary, ratio, summary
from helpers.quick_cases import quick
from helpers.timing_samples import USUAL, Noise, runs

SHOWN = {
    "usual": USUAL,
    "heavy tails": Noise(tail=0.03, outliers=0.01),
    "a step of 32 ns": Noise(step_us=0.032),
    "a step wider than the noise": Noise(sample=0.002, block=0.001, step_us=0.25),
    "a step of 1 us": Noise(step_us=1.0),
    "blocks alone": Noise(sample=0.0001, block=0.005),
    "calls alone": Noise(sample=0.02, block=0.0),
}
"""Noise that a run's own samples show."""


def true_median(noise: Noise) -> float:
    """The median that a clock without a step would say of ever so many samples."""
    endless = Noise(tail=noise.tail, outliers=noise.outliers, sample=noise.sample, block=noise.block)
    return float(np.median(runs(endless, 99, of=1000)))


def summaries(noise: Noise, *, of: int = 100, blocks: int = 20, seed: int = 1) -> list[Summary]:
    made = runs(noise, seed, of=of, blocks=blocks)
    return [summary(run, confidence=0.99, resolution_us=noise.step_us) for run in made]


def holds(ratio: Ratio | None, value: float) -> bool:
    assert ratio is not None
    return ratio.low <= value <= ratio.high


def test_a_summary_has_the_samples_percentiles() -> None:
    found = summary([[1.0, 2.0, 3.0], [4.0, 5.0]], confidence=0.99)
    assert (found.median_us, found.p25_us, found.p75_us, found.n, found.blocks) == (3.0, 2.0, 4.0, 5, 2)
    assert found.p5_us == pytest.approx(1.2)
    assert found.p95_us == pytest.approx(4.8)


@pytest.mark.parametrize("blocks", [10, *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 40))])
@pytest.mark.parametrize("name", SHOWN)
def test_the_true_median_is_in_the_interval(name: str, blocks: int) -> None:
    truth = true_median(SHOWN[name])
    found = [each.low_us <= truth <= each.high_us for each in summaries(SHOWN[name], blocks=blocks)]
    assert np.mean(found) >= 0.98


REPEATED = {"blocks": USUAL, "places": Noise(block=0.0, place=0.01), "drift": Noise(drift=0.01)}
"""Noise that differs in another process: which places it got, and whether clocks sank or rose."""


@pytest.mark.parametrize("blocks", [20, *(pytest.param(n, marks=pytest.mark.slow) for n in (10, 40))])
@pytest.mark.parametrize("name", quick(["blocks"], REPEATED))
def test_the_intervals_of_repeated_runs_overlap(name: str, blocks: int) -> None:
    first, again = (summaries(REPEATED[name], blocks=blocks, seed=seed) for seed in (2, 3))
    overlaps = [a.low_us <= b.high_us and b.low_us <= a.high_us for a, b in zip(first, again, strict=True)]
    assert np.mean(overlaps) >= 0.97


def test_blocks_that_differ_widen_the_interval_more_than_calls_that_do() -> None:
    """As many samples of the same spread, but the spread is between blocks: there is less to know it from."""
    calls = np.mean([each.noise for each in summaries(Noise(sample=0.01, block=0.0))])
    blocks = np.mean([each.noise for each in summaries(Noise(sample=0.0, block=0.01))])
    assert blocks > 5 * calls


@pytest.mark.slow
def test_more_calls_narrow_the_interval_and_more_places_are_not_made_up() -> None:
    noise = Noise(sample=0.01, block=0.0)
    few, many = (np.mean([each.noise for each in summaries(noise, of=60, blocks=n)]) for n in (10, 40))
    assert many < 0.6 * few
    noise = Noise(sample=0.0, block=0.01)
    few, many = (np.mean([each.noise for each in summaries(noise, of=60, blocks=n)]) for n in (10, 40))
    assert 0.6 * few < many < few


def test_the_interval_is_never_narrower_than_the_clocks_step() -> None:
    found = summary([[10.0] * 10] * 10, confidence=0.99, resolution_us=0.5)
    assert found.low_us <= 9.75
    assert found.high_us >= 10.25
    assert summary([[10.0] * 10] * 10, confidence=0.99).noise == 0


def test_one_outlier_in_ten_blocks_moves_nothing() -> None:
    (run,) = runs(USUAL, 4, of=1, blocks=10)
    calm = summary(run, confidence=0.99)
    run[3, 5] = 1000.0
    struck = summary(run, confidence=0.99)
    assert struck.noise == pytest.approx(calm.noise, rel=0.15)


def test_one_disturbed_block_in_ten_does_not_hide_the_others() -> None:
    (run,) = runs(USUAL, 5, of=1, blocks=10)
    run[3] *= 1.5
    assert summary(run, confidence=0.99).noise < 0.02


def test_of_one_block_the_interval_is_its_range() -> None:
    found = summary([[3.0, 1.0, 2.0]], confidence=0.99)
    assert (found.low_us, found.high_us, found.blocks) == (1.0, 3.0, 1)


def test_empty_blocks_count_for_nothing() -> None:
    found = summary([[1.0, 2.0], [], [3.0]], confidence=0.99)
    assert (found.n, found.blocks) == (3, 2)


def test_blocks_of_unequal_length_weigh_by_their_samples() -> None:
    found = summary([[1.0] * 90, [2.0] * 3, [3.0] * 3], confidence=0.99)
    assert found.median_us == 1.0


def test_no_time_at_all_is_endless_noise_and_no_error() -> None:
    found = summary([[0.0] * 10] * 10, confidence=0.99, resolution_us=0.001)
    assert found.median_us == 0
    assert found.noise == math.inf


def test_a_summary_is_the_same_every_time() -> None:
    (run,) = runs(Noise(step_us=0.032), 6, of=1)
    assert summary(run, confidence=0.99, resolution_us=0.032) == summary(
        run, confidence=0.99, resolution_us=0.032
    )


def test_a_ratio_is_that_of_the_medians() -> None:
    found = ratio([[2.0, 2.1], [2.0, 1.9]], [[1.0, 1.0], [1.0, 1.0]], confidence=0.99)
    assert found is not None
    assert found.value == pytest.approx(2.0)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("usual", "a step of 1 us") else pytest.param(name, marks=pytest.mark.slow)
        for name in SHOWN
    ],
)
def test_the_true_ratio_is_in_the_interval(name: str) -> None:
    noise = SHOWN[name]
    a, b = runs(noise, 7, of=100), runs(noise, 8, of=100, us=5.0)
    found = [ratio(*pair, confidence=0.99, resolution_us=noise.step_us) for pair in zip(a, b, strict=True)]
    assert np.mean([holds(each, 2.0) for each in found]) >= 0.98


def test_what_both_meet_at_once_cancels() -> None:
    """A clock that sinks by a tenth, for both: their ratio is known far better than either median."""
    shared = np.exp(np.linspace(0, 0.1, 20))[:, None]
    a = runs(USUAL, 9, of=100) * shared
    b = runs(USUAL, 10, of=100) * shared
    found = [ratio(*pair, confidence=0.99) for pair in zip(a, b, strict=True)]
    assert np.mean([holds(each, 1.0) for each in found]) >= 0.98
    assert np.mean([each.high - each.low for each in found if each]) / 2 < 0.02
    assert np.mean([summary(run, confidence=0.99).noise for run in a[:50]]) > 0.03


@pytest.mark.parametrize(
    ("a", "b"),
    [([[1.0, 2.0]], [[1.0, 2.0]]), ([[1.0], [0.0]], [[1.0], [1.0]]), ([[1.0], []], [[1.0], [1.0]])],
    ids=["one block", "no time", "one block filled"],
)
def test_there_is_no_ratio_where_it_is_unknown(a: list[list[float]], b: list[list[float]]) -> None:
    assert ratio(a, b, confidence=0.99) is None


def test_contenders_with_unequal_blocks_are_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratio([[1.0], [1.0]], [[1.0]], confidence=0.99)
