"""What is queued around a timed call, and in which order."""

from __future__ import annotations

import pytest

from dotcu.benchmark.timers import TimedCall, TimerFailed, elapsed_us
from helpers.fake_timer import FakeTimer


def test_a_call_is_prepared_blocked_marked_and_looked_at_in_that_order() -> None:
    timer = FakeTimer()

    def run() -> str:
        timer.log.append("run")
        return "the result"

    timed_call = TimedCall(
        name="a",
        run=run,
        prepare=lambda: timer.log.append("prepare"),
        probe=lambda result: timer.log.append(f"probe {result}"),
        hold_us=30.0,
    )
    timer.time([timed_call])
    assert timer.log == ["prepare", "hold", "begin", "run", "end", "probe the result"]
    assert timer.helpers.held_us == [30.0]


class FakeEvent:
    def __init__(self, ms: float) -> None:
        self.ms = ms

    def elapsed_time(self, other: FakeEvent) -> float:
        return other.ms - self.ms


def test_events_give_microseconds() -> None:
    assert elapsed_us(FakeEvent(1.0), FakeEvent(1.25)) == 250.0


def test_time_that_passes_backwards_is_refused() -> None:
    with pytest.raises(TimerFailed, match="Confidential computing"):
        elapsed_us(FakeEvent(1.0), FakeEvent(0.5))
