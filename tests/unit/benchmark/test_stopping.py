"""When warm-up and measuring end."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dotcu.benchmark import measuring
from dotcu.benchmark.results import Block, CallTime, Protocol

PROTOCOL = Protocol(warmup_s=0.1, warmup_most_s=2.0, stable=0.01)


def warm(before: dict[str, float], now: dict[str, float], elapsed_s: float = 0.5, step: float = 0.0) -> bool:
    return measuring._is_warm(before, now, elapsed_s, step, PROTOCOL)


def test_warm_up_ends_where_two_blocks_agree() -> None:
    assert warm({"a": 100.0, "b": 5.0}, {"a": 100.9, "b": 5.04})


def test_warm_up_goes_on_while_one_contender_changes() -> None:
    assert not warm({"a": 100.0, "b": 5.0}, {"a": 100.0, "b": 5.2})


def test_warm_up_goes_on_for_its_least_time_although_blocks_agree() -> None:
    assert not warm({"a": 100.0}, {"a": 100.0}, elapsed_s=0.05)


def test_warm_up_ends_at_its_most_time_although_blocks_differ() -> None:
    assert warm({"a": 100.0}, {"a": 200.0}, elapsed_s=2.0)


def test_one_block_is_not_enough_to_be_warm() -> None:
    assert not warm({}, {"a": 100.0})


def test_a_difference_of_a_step_of_the_clock_is_none() -> None:
    assert warm({"a": 1.28}, {"a": 1.344}, step=0.032)
    assert not warm({"a": 1.28}, {"a": 1.376}, step=0.032)


def why(blocks: int = 10, elapsed_s: float = 1.0, noise: float = 0.001, **changed: Any) -> str:
    protocol = replace(Protocol(), **changed)
    return measuring._why_stop(blocks, elapsed_s, noise, protocol)


def test_it_stops_once_medians_are_known_well_enough() -> None:
    assert why() == "noise"


def test_it_goes_on_while_they_are_not() -> None:
    assert why(noise=0.006) == ""


def test_few_blocks_are_never_enough() -> None:
    assert why(blocks=9) == ""


def test_it_goes_on_for_the_least_time() -> None:
    assert why(elapsed_s=0.05) == ""


def test_it_stops_when_time_is_up() -> None:
    assert why(blocks=3, elapsed_s=10.0, noise=0.5) == "time"


def test_three_blocks_are_taken_however_long_that_takes() -> None:
    assert why(blocks=2, elapsed_s=100.0) == ""
    assert why(blocks=2, noise=0.5, most_blocks=1) == ""


def test_it_stops_at_the_most_blocks() -> None:
    assert why(blocks=40, noise=0.5) == "blocks"


def test_noise_that_is_no_number_stops_nothing_early() -> None:
    assert why(noise=float("nan")) == ""


def test_noise_is_that_of_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def summary(samples: Any, **options: Any) -> Any:
        asked.update(options, samples=samples)
        return SimpleNamespace(noise=0.02, median_us=5.0)

    monkeypatch.setattr(measuring, "summary", summary, raising=False)
    blocks = [
        Block(calls=(CallTime(time_us=5.0), CallTime(time_us=6.0))),
        Block(calls=(CallTime(time_us=7.0),)),
    ]
    assert measuring._median_noise(blocks, 0.5, Protocol(confidence=0.9)) == 0.02
    assert asked == {
        "samples": [(5.0, 6.0), (7.0,)],
        "confidence": 0.9,
        "resolution_us": 0.5,
    }


def test_calls_that_take_no_device_time_have_no_noise() -> None:
    blocks = [Block(calls=(CallTime(time_us=0.0),))]
    assert measuring._median_noise(blocks, 0.5, Protocol()) == 0.0


@pytest.mark.parametrize(("turn_s", "calls"), [(1e-6, 100), (0.001, 20), (0.0006, 34), (0.1, 10), (0.0, 100)])
def test_a_block_has_as_many_calls_as_it_takes_to_last(turn_s: float, calls: int) -> None:
    protocol = Protocol(calls=10, most_calls=100, block_s=0.02)
    assert measuring._calls_of_block(turn_s, protocol) == calls


@pytest.mark.parametrize(("turn_s", "calls"), [(0.11, 9), (0.5, 2), (0.9, 1), (1.5, 1), (60.0, 1)])
def test_slow_calls_are_fewer_in_a_block_rather_than_in_fewer_blocks(turn_s: float, calls: int) -> None:
    protocol = Protocol(calls=10, blocks=10, most_s=10.0)
    assert measuring._calls_of_block(turn_s, protocol) == calls
