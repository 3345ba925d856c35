"""Verdicts on two runs: noise is not called a change, shifts are, by simulation of thousands of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray

from dotcu.benchmark.reports.comparison import Change, _judge, compare
from dotcu.benchmark.results import Clocks, Measured, Protocol
from dotcu.benchmark.statistics import summary
from helpers.timing_samples import USUAL, Noise, measured, runs

PROTOCOL = Protocol()
SEEDS = (1, 2)


def slow(case: object) -> object:
    """A case of thousands of runs more, which `make test-all` alone tries."""
    return pytest.param(case, marks=pytest.mark.slow)


@lru_cache
def verdicts(
    noise: Noise,
    *,
    shift: float = 0.0,
    of: int = 100,
    blocks: int = 20,
    us: float = 10.0,
    least: float = 0.01,
    before: Noise | None = None,
) -> Counter[str]:
    """How often what was said of two runs, the second of which takes longer by a share."""
    first = runs(before or noise, SEEDS[0], of=of, blocks=blocks, us=us)
    second = runs(noise, SEEDS[1], of=of, blocks=blocks, us=us * (1 + shift))
    return Counter(verdict(pair, noise.step_us, least) for pair in zip(first, second, strict=True))


def verdict(pair: Iterable[NDArray[np.float64]], step_us: float, least: float = 0.01) -> str:
    then, now = pair
    return _judge(then, now, (step_us, step_us), least).verdict


def changed(before: Measured, after: Measured) -> Change:
    found = compare(before, after)
    assert isinstance(found, Change)
    return found


def share(found: Counter[str], *names: str) -> float:
    return sum(found[name] for name in names) / found.total()


@lru_cache
def ended(noise: Noise, seed: int, us: float = 10.0) -> list[NDArray[np.float64]]:
    """Runs as the protocol ends them: where their noise is low enough, or there are enough blocks."""
    made = runs(noise, seed, of=200, blocks=PROTOCOL.most_blocks, us=us)
    return [run[: _blocks(run, noise.step_us)] for run in made]


def _blocks(run: NDArray[np.float64], step_us: float) -> int:
    counts = range(PROTOCOL.blocks, PROTOCOL.most_blocks, 2)
    so_far = ((n, summary(run[:n], confidence=PROTOCOL.confidence, resolution_us=step_us)) for n in counts)
    return next((n for n, found in so_far if found.noise <= PROTOCOL.noise), PROTOCOL.most_blocks)


EQUAL = {
    "usual": USUAL,
    "processes that differ by 0.3 %": Noise(run=0.003),
    "places": Noise(block=0.0, place=0.003),
    "places that differ by 1 %": Noise(block=0.0, place=0.01),
    "drift": Noise(drift=0.01),
    "drift of 3 %": Noise(drift=0.03),
    "a walk": Noise(walk=0.001),
    "heavy tails": Noise(tail=0.05, outliers=0.02),
    "loud": Noise(sample=0.05, block=0.02),
    "a step of 32 ns": Noise(step_us=0.032),
    "a step of 1 us": Noise(step_us=1.0),
    "a step of 1 us, quiet": Noise(sample=0.001, block=0.0, step_us=1.0),
}


@pytest.mark.parametrize("name", [name if name == "usual" else slow(name) for name in EQUAL])
def test_equal_runs_are_called_changed_at_most_once_in_a_hundred(name: str) -> None:
    assert share(verdicts(EQUAL[name], blocks=20), "faster", "slower") <= 0.01


@pytest.mark.parametrize("blocks", [3, 5, slow(10), slow(40)])
def test_nor_are_they_where_blocks_are_few_or_many(blocks: int) -> None:
    noise = Noise(run=0.002, tail=0.02, outliers=0.01)
    assert share(verdicts(noise, blocks=blocks), "faster", "slower") <= 0.01


@pytest.mark.slow
def test_nor_are_they_where_a_step_is_a_large_part_of_the_time() -> None:
    found = verdicts(Noise(step_us=0.032), us=2.0)
    assert share(found, "faster", "slower") <= 0.01
    assert share(found, "same") >= 0.8


@pytest.mark.parametrize(
    "name", [slow(name) for name in ("usual", "heavy tails", "a step of 32 ns", "places")]
)
def test_the_interval_alone_keeps_equal_runs_apart_from_changed_ones(name: str) -> None:
    """Without the allowance of `least`, the interval has to hold what it claims."""
    found = share(verdicts(EQUAL[name], least=0.0), "faster", "slower")
    assert found <= (0.05 if name == "places" else 0.01)


@pytest.mark.parametrize(("blocks", "least"), [(20, 0.8), pytest.param(40, 0.95, marks=pytest.mark.slow)])
def test_equal_runs_are_mostly_called_the_same(blocks: int, least: float) -> None:
    assert share(verdicts(USUAL, blocks=blocks), "same") >= least


USUAL_NOISE = {
    "usual": USUAL,
    "rare outliers": Noise(outliers=0.005),
    "a step of 32 ns": Noise(step_us=0.032),
    "quiet": Noise(sample=0.003, block=0.001),
}


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.02, 1 / 1.02], ids=["slower", "faster"])
@pytest.mark.parametrize("name", USUAL_NOISE)
def test_a_shift_of_two_percent_is_found_in_runs_as_the_protocol_ends_them(name: str, factor: float) -> None:
    noise = USUAL_NOISE[name]
    pairs = zip(ended(noise, 1), ended(noise, 2, 10.0 * factor), strict=True)
    found = Counter(verdict(pair, noise.step_us) for pair in pairs)
    right, wrong = ("slower", "faster") if factor > 1 else ("faster", "slower")
    assert share(found, right) >= 0.95
    assert share(found, wrong, "same") == 0


@pytest.mark.slow
def test_runs_as_the_protocol_ends_them_are_no_more_often_called_changed() -> None:
    """It stops where a run looks calm, which might flatter the interval."""
    pairs = zip(*(ended(Noise(run=0.002), seed) for seed in SEEDS), strict=True)
    found = Counter(verdict(pair, 0.0) for pair in pairs)
    assert share(found, "faster", "slower") <= 0.01


@pytest.mark.parametrize(("shift", "right"), [(0.05, "slower"), (-0.05, "faster")])
def test_a_shift_of_five_percent_is_found_in_ten_blocks(shift: float, right: str) -> None:
    assert share(verdicts(Noise(tail=0.02), shift=shift, blocks=10), right) >= 0.99


def test_a_shift_that_the_noise_hides_is_unclear() -> None:
    found = verdicts(Noise(sample=0.05, block=0.03), shift=0.02)
    assert share(found, "unclear") >= 0.9


@pytest.mark.slow
def test_a_shift_below_the_least_is_no_change() -> None:
    found = verdicts(Noise(sample=0.002, block=0.0005), shift=0.005)
    assert share(found, "same") >= 0.99


@pytest.mark.slow
def test_a_tail_that_grew_is_no_change_of_the_median() -> None:
    found = verdicts(Noise(outliers=0.03), before=USUAL)
    assert share(found, "faster", "slower") <= 0.01


def test_the_ratio_is_the_time_now_over_the_time_then() -> None:
    before, after = (measured([[us] * 5] * 5) for us in (10.0, 12.0))
    found = changed(before, after)
    assert (found.verdict, found.confidence, found.note) == ("slower", 0.99, "")
    assert found.ratio.value == pytest.approx(1.2)
    assert changed(after, before).ratio.value == pytest.approx(1 / 1.2)


def test_a_change_of_less_than_a_step_of_the_clock_is_none_and_that_is_reported() -> None:
    before, after = (measured([[us] * 10] * 10, step_us=1.0) for us in (10.0, 11.0))
    found = changed(before, after)
    assert found.verdict == "unclear"
    assert found.ratio.low < 1.03
    assert found.ratio.high > 1.17
    assert "clock's step is 10.0%" in found.note
    far = measured([[20.0] * 10] * 10, step_us=1.0)
    assert changed(before, far).verdict == "slower"


def test_throttled_blocks_do_not_count() -> None:
    (before, after) = runs(USUAL, 3, of=2, blocks=20)
    after[:10] *= 1.3
    hot, calm = Clocks(sm_mhz=1980, reasons=("thermal slowdown",)), Clocks(sm_mhz=1980)
    marked = measured(after, clocks=[hot] * 10 + [calm] * 10)
    assert changed(measured(before), marked).verdict in ("same", "unclear")
    assert changed(measured(before), measured(after)).verdict != "same"


def test_other_clocks_are_reported() -> None:
    before, after = runs(USUAL, 4, of=2)
    then, now = (
        measured(run, clocks=[Clocks(sm_mhz=mhz)] * 20)
        for run, mhz in zip((before, after), (1980, 1755), strict=True)
    )
    assert "SM clock 1980 MHz then, 1755 MHz now" in changed(then, now).note
    assert changed(then, then).note == ""


RUN = measured([[10.0] * 5] * 5)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (RUN, measured([[10.0] * 5] * 5, by="events"), "timed by cupti then, by events now"),
        (measured([[10.0] * 5] * 2), RUN, "2 blocks then: it takes 3"),
        (RUN, measured([[0.0] * 5] * 5), "no time went by now"),
        (
            RUN,
            measured([[10.0] * 5] * 5, clocks=[Clocks(reasons=("thermal slowdown",))] * 5),
            "0 blocks now of 5, the others throttled",
        ),
    ],
)
def test_what_cannot_be_compared_says_why(before: Measured, after: Measured, reason: str) -> None:
    found = compare(before, after)
    assert isinstance(found, str)
    assert reason in found
