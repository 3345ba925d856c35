"""The best means that works is taken, and why a better one is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from dotcu.benchmark import timers
from dotcu.benchmark.results import CallTime, Means
from dotcu.benchmark.timers import TimedCall, Timer, TimerFailed
from dotcu.errors import EnvironmentFault
from helpers.fake_timer import FakeHelpers

GPU = torch.device("cuda", 0)


def kind(called: Means, *, fails: Exception | None = None, call: CallTime | None = None) -> type[Timer]:
    """A means that works, or fails, or gives a figure of its own."""

    class Kind(Timer):
        name = called
        resolution_us = 0.5

        def time(self, timed_calls: Sequence[TimedCall]) -> list[CallTime]:
            if fails is not None:
                raise fails
            return [call or CallTime(time_us=1.5, kernels=1) for _ in timed_calls]

    return Kind


@pytest.fixture
def means(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts other means in place of the real ones, and a CPU tensor in place of the trial's."""
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *size, device: zeros(*size))

    def put(*kinds: type[Timer]) -> None:
        monkeypatch.setattr(timers, "BEST_FIRST", kinds)
        helpers = FakeHelpers()
        helpers.device = GPU  # type: ignore[assignment]
        monkeypatch.setattr(timers, "TimingKernels", lambda device: helpers)

    return put


def test_the_best_that_works_is_taken(means: Any) -> None:
    means(kind("cupti"), kind("events"))
    chosen = timers.choose(GPU)
    assert (chosen.name, chosen.why) == ("cupti", {})


def test_it_is_said_why_a_better_one_is_not_taken(means: Any) -> None:
    means(kind("cupti", fails=TimerFailed("no records\nmore")), kind("events"))
    chosen = timers.choose(GPU)
    assert (chosen.name, chosen.why) == ("events", {"cupti": "no records"})


@pytest.mark.parametrize("call", [CallTime(time_us=0.0, kernels=0), CallTime(time_us=2.0, kernels=2)])
def test_a_means_that_sees_one_kernel_wrongly_is_not_taken(means: Any, call: CallTime) -> None:
    means(kind("cupti", call=call), kind("events", call=CallTime(time_us=3.0)))
    chosen = timers.choose(GPU)
    assert chosen.name == "events"
    assert chosen.why["cupti"].startswith("a small addition was measured as CallTime(")


def test_one_that_is_asked_for_is_taken_alone(means: Any) -> None:
    means(kind("cupti"), kind("events"))
    assert timers.choose(GPU, "events").name == "events"


def test_one_that_is_asked_for_and_does_not_work_is_an_error(means: Any) -> None:
    means(kind("cupti", fails=TimerFailed("no records")), kind("events"))
    with pytest.raises(EnvironmentFault, match="cupti: no records"):
        timers.choose(GPU, "cupti")


def test_after_one_that_failed_comes_the_next_best(means: Any) -> None:
    means(kind("cupti"), kind("events"))
    following = timers.after(timers.choose(GPU), "marks were lost")
    assert following.name == "events"
    assert following.why == {"cupti": "marks were lost"}


def test_after_the_last_comes_an_error(means: Any) -> None:
    means(kind("cupti"), kind("events"))
    last = timers.after(timers.choose(GPU), "marks were lost")
    with pytest.raises(EnvironmentFault, match="cupti: marks were lost"):
        timers.after(last, "time went backwards")


def test_device_time_of_the_cpu_is_refused() -> None:
    with pytest.raises(EnvironmentFault, match="on a CUDA GPU only"):
        timers.choose(torch.device("cpu"))
