"""Measuring on a fake timer: what is kept, what is dropped, what ends it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dotcu.benchmark import device, measuring
from dotcu.benchmark.measuring import Conditions, measure
from dotcu.benchmark.results import L2, Clocks, Measured, Protocol
from dotcu.benchmark.timers import Timer, TimerFailed
from dotcu.errors import EnvironmentFault
from dotcu.operator import Sample
from helpers.fake_timer import FakeTimer


@pytest.fixture(autouse=True)
def calls_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be called but what is timed."""
    monkeypatch.setattr(measuring, "MAX_BETWEEN", 0)


QUICK = Protocol(
    warmup_s=0.0, warmup_most_s=0.5, blocks=3, most_blocks=5, calls=4, most_calls=4, least_s=0.0, most_s=60.0
)


@pytest.fixture(autouse=True)
def _quiet_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make intervals narrow: other tests cover them."""
    found = SimpleNamespace(noise=0.0, median_us=10.0)
    monkeypatch.setattr(measuring, "summary", lambda *args, **kwargs: found, raising=False)


@pytest.fixture
def next_means(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """Put events after every other timer; yield the timers that failed, and why."""
    failed: list[tuple[str, str]] = []

    def after(timer: Timer, reason: str) -> Timer:
        failed.append((timer.name, reason))
        if timer.name == "events":
            raise EnvironmentFault("no other timer works")
        return FakeTimer(name="events")

    monkeypatch.setattr(measuring, "after", after)
    return failed


@dataclass
class Found:
    """The result of a measurement."""

    measured: dict[str, Measured]
    errors: dict[str, Exception]
    interrupted: bool


def run(
    contenders: Mapping[str, Callable[[Sample], Any]],
    timer: FakeTimer | None = None,
    protocol: Protocol = QUICK,
    l2: L2 = "cold",
    sets: int = 2,
) -> Found:
    return Found(*measure(contenders, conditions(sets, l2=l2, protocol=protocol), timer or FakeTimer()))


def conditions(sets: int, **changes: Any) -> Conditions:
    default: dict[str, Any] = {
        "sets": [Sample(torch.zeros(8)) for _ in range(sets)],
        "l2": "cold",
        "protocol": QUICK,
        "refresh": lambda sample, turn: None,
        "probe": lambda name, sample, result: None,
        "device": torch.device("cpu"),
    }
    return Conditions(**{**default, **changes})


def plus_one(sample: Sample) -> torch.Tensor:
    return sample.args[0] + 1  # type: ignore[no-any-return]


def fails(sample: Sample) -> None:
    raise ValueError("no such shape")


class FailsAtCall:
    """Raises at one of its calls."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.at, self.error, self.calls = at, error, 0

    def __call__(self, sample: Sample) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise self.error


FIRST_CALLS = 4
"""Of each contender: two on each of two sets."""

HOST = measuring.HOST_BATCHES * measuring.HOST_CALLS


def test_each_contender_has_its_own_samples() -> None:
    found = run({"a": plus_one, "b": plus_one}, FakeTimer({"a": 10.0, "b": 20.0}))
    assert list(found.measured) == ["a", "b"]
    for name, us in (("a", 10.0), ("b", 20.0)):
        measured = found.measured[name]
        assert measured.contender == name
        assert [block.times_us for block in measured.blocks] == [(us,) * 4] * 3
        assert (measured.l2, measured.by, measured.resolution_us) == ("cold", "cupti", 0.032)
        assert measured.stopped == "noise"
        assert len(measured.host_us) == measuring.HOST_BATCHES
        assert all(us > 0 for us in measured.host_us)
    assert (found.errors, found.interrupted) == ({}, False)


def test_host_time_is_that_of_calls_that_do_not_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    timer = FakeTimer()
    timer.wait = lambda: log.append("wait")  # type: ignore[method-assign]
    run({"a": lambda sample: log.append("call")}, timer)
    batch = ["wait", *["call"] * measuring.HOST_CALLS]
    taken = "".join(log)
    assert taken.count("".join(batch)) == measuring.HOST_BATCHES
    monkeypatch.setattr(measuring, "HOST_CALLS", 4)
    slow = run({"a": lambda sample: time.sleep(0.002)}).measured["a"]
    assert all(2000 <= us < 20_000 for us in slow.host_us)


def test_noise_is_measured_on_until_the_most_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = SimpleNamespace(noise=0.2, median_us=10.0)
    monkeypatch.setattr(measuring, "summary", lambda *args, **kwargs: noisy, raising=False)
    measured = run({"a": plus_one}).measured["a"]
    assert (len(measured.blocks), measured.stopped) == (5, "blocks")


def test_time_that_is_up_ends_it() -> None:
    protocol = replace(QUICK, blocks=4, most_s=0.0)
    measured = run({"a": plus_one}, protocol=protocol).measured["a"]
    assert (len(measured.blocks), measured.stopped) == (3, "time")


def test_a_slow_call_has_all_its_blocks_and_fewer_calls_in_each_from_warm_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measuring, "HOST_CALLS", 1)
    monkeypatch.setattr(measuring, "HOST_BATCHES", 2)
    timer = FakeTimer()
    protocol = replace(QUICK, blocks=4, most_s=0.7)  # a block of 4 calls would take more than half
    measured = run({"a": lambda sample: time.sleep(0.1)}, timer, protocol, sets=1).measured["a"]
    assert [len(block.calls) for block in measured.blocks] == [1, 1, 1, 1]
    assert max(len(timed_calls) for timed_calls in timer.blocks) == 1


def test_warm_up_goes_on_until_figures_settle_and_is_not_reported() -> None:
    falling = itertools.chain([80.0] * 4, [40.0] * 4, [20.0] * 4, itertools.repeat(10.0))
    timer = FakeTimer({"a": lambda: next(falling)})
    measured = run({"a": plus_one}, timer).measured["a"]
    assert len(timer.blocks) == 5 + 3
    assert {us for block in measured.blocks for us in block.times_us} == {10.0}


def test_clocks_are_read_before_the_first_block_and_after_each(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count(1000)
    monkeypatch.setattr(device, "read_clocks", lambda device: Clocks(sm_mhz=next(numbers)))
    blocks = run({"a": plus_one, "b": plus_one}).measured["b"].blocks
    seen = [(block.before.sm_mhz, block.after.sm_mhz) for block in blocks]
    assert seen == [(1000, 1001), (1001, 1002), (1002, 1003)]


# -------------------------------------------------------------- who raises


def test_a_contender_that_raises_at_once_does_not_end_the_others() -> None:
    found = run({"bad": fails, "good": plus_one})
    assert str(found.errors["bad"]) == "no such shape"
    assert found.measured["bad"].blocks == ()
    assert len(found.measured["good"].blocks) == 3


@pytest.mark.parametrize(
    ("at", "when"),
    [
        (FIRST_CALLS + 1, "in warm-up"),
        (FIRST_CALLS + 2 * 4 + 1, "while host time is taken"),
        (FIRST_CALLS + 2 * 4 + HOST + 6, "in the second block"),
    ],
)
def test_a_contender_that_raises_later_loses_its_blocks_and_the_others_none(at: int, when: str) -> None:
    found = run({"bad": FailsAtCall(at, ValueError("late")), "good": plus_one})
    assert str(found.errors["bad"]) == "late", when
    assert found.measured["bad"].blocks == ()
    assert [len(block.calls) for block in found.measured["good"].blocks] == [4] * 3


def test_a_fault_of_the_device_is_reported_for_all_contenders() -> None:
    fault = RuntimeError("CUDA error: an illegal memory access was encountered")
    found = run({"a": plus_one, "b": plus_one}, FakeTimer(failures=[None, None, None, fault]))
    assert found.errors == {"a": fault, "b": fault}
    assert all(measured.blocks == () for measured in found.measured.values())


# -------------------------------------------------------------- means that fail


def test_lost_records_are_tried_once_more() -> None:
    found = run({"a": plus_one}, FakeTimer(failures=[None, None, TimerFailed("lost", again=True)]))
    assert (found.measured["a"].by, len(found.measured["a"].blocks)) == ("cupti", 3)


def test_records_lost_twice_lead_to_another_means(next_means: list[tuple[str, str]]) -> None:
    lost = TimerFailed("CUPTI's trace is not whole: 3 begin\nand more", again=True)
    found = run({"a": plus_one, "b": plus_one}, FakeTimer(failures=[None, None, None, lost, lost]))
    assert {measured.by for measured in found.measured.values()} == {"events"}
    assert {len(measured.blocks) for measured in found.measured.values()} == {3}, "samples are not mixed"
    assert next_means == [("cupti", "CUPTI's trace is not whole: 3 begin")]


def test_where_no_timer_works_that_is_what_is_wrong_with_a_contender(
    next_means: list[tuple[str, str]],
) -> None:
    timer = FakeTimer(name="events", failures=[TimerFailed("time went backwards")])
    assert str(run({"a": plus_one}, timer).errors["a"]) == "no other timer works"


# -------------------------------------------------------------- calls that change their inputs


class Appends:
    """A call that can be made once on its inputs; says how many were made."""

    def __init__(self) -> None:
        self.used: set[int] = set()
        self.calls = 0

    def __call__(self, sample: Sample) -> None:
        assert id(sample) not in self.used, "called on what another call left"
        self.used.add(id(sample))
        self.calls += 1

    def renew(self, sample: Sample, turn: int) -> None:
        self.used.discard(id(sample))


def test_every_call_that_changes_its_inputs_finds_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "MAX_BETWEEN", 50)
    appends = Appends()
    measured, errors, _ = measure(
        {"a": appends}, conditions(2, refresh=appends.renew, mutates=True), FakeTimer()
    )
    assert errors == {}
    assert len(measured["a"].host_us) == measuring.HOST_BATCHES
    assert appends.calls > 4 + measuring.HOST_BATCHES


# -------------------------------------------------------------- interrupts


def test_an_interrupt_keeps_whole_blocks() -> None:
    timer = FakeTimer(failures=[None, None, None, None, KeyboardInterrupt()])
    found = run({"a": plus_one, "b": plus_one}, timer)
    assert found.interrupted
    measured = found.measured
    assert {name: len(one.blocks) for name, one in measured.items()} == {"a": 2, "b": 2}
    assert {one.stopped for one in measured.values()} == {"interrupt"}


def test_an_interrupt_while_warming_up_keeps_names() -> None:
    found = run({"a": FailsAtCall(FIRST_CALLS + 1, KeyboardInterrupt())})
    assert found.interrupted
    measured = found.measured["a"]
    assert (measured.blocks, measured.stopped) == ((), "interrupt")


def test_pythons_collector_rests_only_while_calls_are_timed() -> None:
    import gc

    seen: list[bool] = []
    assert gc.isenabled()
    run({"a": lambda sample: seen.append(gc.isenabled())})
    assert seen[:FIRST_CALLS] == [True] * FIRST_CALLS
    assert seen[-4:] == [False] * 4
    assert gc.isenabled()
