"""The timed calls of a block: interleaved, on new values, behind a blocked stream."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from dotcu.benchmark import measuring
from dotcu.benchmark.measuring import Conditions, _Interleaving
from dotcu.benchmark.results import L2, Protocol
from dotcu.operator import Sample
from helpers.fake_timer import FakeTimer

CPU = torch.device("cpu")


class Bench:
    """Turns of two contenders, and a log of what they do."""

    def __init__(self, *, l2: L2 = "cold", calls: int = 10, blocks: int = 10) -> None:
        self.sets = [Sample(torch.full((4,), float(number))) for number in range(3)]
        self.timer = FakeTimer()
        self.refreshed: list[tuple[Sample, int]] = []
        self.refresh: Callable[[], object] = lambda: None
        self.probed: list[tuple[str, Sample, Any]] = []
        conditions = Conditions(
            sets=self.sets,
            l2=l2,
            protocol=Protocol(calls=calls, blocks=blocks),
            refresh=lambda sample, turn: (self.refreshed.append((sample, turn)), self.refresh())[0],
            probe=lambda name, sample, result: self.probed.append((name, sample, result)),
            device=CPU,
        )
        self.contenders: dict[str, Callable[[Sample], Any]] = {
            "a": lambda sample: ("a", sample.args[0] + 1),
            "b": lambda sample: ("b", sample.args[0] + 2),
        }
        self.turns = _Interleaving(["a", "b"], conditions, self.timer)
        for name, call in self.contenders.items():
            self.turns.call_untimed(name, call, self.sets[0])

    def take(self, block: int, *, probing: bool = False) -> list[str]:
        """Time a block; who was called, in order."""
        timed = self.turns.timed_calls(self.contenders, block, probing=probing)
        self.timer.time(timed)
        return [timed_call.name for timed_call in timed]


def test_each_turn_has_every_contender_once() -> None:
    names = Bench().take(0)
    assert [set(names[at : at + 2]) for at in range(0, 20, 2)] == [{"a", "b"}] * 10


def test_the_order_changes_from_turn_to_turn() -> None:
    names = Bench(calls=50).take(0)
    firsts = Counter(names[::2])
    assert firsts["a"] > 5
    assert firsts["b"] > 5


def test_every_call_has_inputs_that_are_new() -> None:
    bench = Bench()
    for block in range(3):
        bench.take(block)
    turns = [turn for _, turn in bench.refreshed]
    assert len(set(turns)) == len(turns) == 60


def test_a_block_is_on_one_set_of_inputs_and_the_next_on_the_next() -> None:
    bench = Bench()
    for block in range(4):
        bench.take(block)
    used = [sample for sample, _ in bench.refreshed]
    for block in range(4):
        assert all(sample is bench.sets[block % 3] for sample in used[20 * block : 20 * block + 20])


def test_cold_calls_come_behind_a_flush_and_warm_ones_do_not() -> None:
    cold, warm = Bench(l2="cold"), Bench(l2="warm")
    cold.take(0)
    warm.take(0)
    assert cold.timer.log.count("flush") == 20
    assert cold.timer.log[:4] == ["flush", "hold", "begin", "end"]
    assert "flush" not in warm.timer.log


def test_in_every_block_a_call_of_each_contender_is_random_turn() -> None:
    bench = Bench(blocks=4)
    for block in range(40):
        bench.take(block, probing=True)
        assert Counter(name for name, _, _ in bench.probed) == {"a": block + 1, "b": block + 1}


def test_a_look_gets_the_inputs_and_the_result_of_that_contender() -> None:
    bench = Bench()
    bench.take(0, probing=True)
    for name, sample, (by, result) in bench.probed:
        assert by == name
        assert sample is bench.sets[0]
        assert result.tolist() == [{"a": 1.0, "b": 2.0}[name]] * 4


def test_nobody_looks_while_warming_up() -> None:
    bench = Bench()
    bench.take(0)
    assert bench.probed == []


def test_which_calls_are_probed_cannot_be_foreseen() -> None:
    picked = set()
    for _ in range(9):
        bench = Bench(calls=100)
        timed = bench.turns.timed_calls({"a": bench.contenders["a"]}, 0, probing=True)
        picked.add([call.probe is not None for call in timed].index(True))
    assert len(picked) > 1


def test_the_last_two_results_stay_alive() -> None:
    import weakref

    bench = Bench()
    results: list[weakref.ref[torch.Tensor]] = []

    def call(sample: Sample) -> torch.Tensor:
        result = sample.args[0] + 1
        results.append(weakref.ref(result))
        return result

    bench.contenders = {"a": call}
    bench.take(0)
    assert [result() is not None for result in results] == [False] * 8 + [True] * 2


def test_a_stream_is_blocked_for_longer_than_a_call_takes_the_host() -> None:
    bench = Bench()
    bench.contenders = {"a": lambda sample: time.sleep(0.002)}
    bench.turns.call_untimed("a", bench.contenders["a"], bench.sets[0])
    bench.turns._free_s["a"] = 0.002
    bench.take(0)
    bench.take(1)
    assert all(us > 2000 for us in bench.timer.helpers.held_us[10:])


def test_a_stream_is_not_blocked_where_the_device_is_behind_anyway() -> None:
    bench = Bench(calls=20)
    bench.take(0)  # shows how long a call takes the host
    bench.timer.helpers.held_us.clear()
    bench.turns.device_us["a"] = 50_000.0
    bench.turns.device_us["b"] = 50_000.0
    bench.take(1)
    assert bench.timer.helpers.held_us[1:] == [0.0] * 39


def test_a_stream_is_blocked_where_new_values_take_the_host_longer_than_a_call_the_device() -> None:
    bench = Bench(calls=20)
    bench.refresh = lambda: time.sleep(0.001)
    bench.take(0)
    bench.timer.helpers.held_us.clear()
    bench.turns.device_us["a"] = 300.0
    bench.turns.device_us["b"] = 300.0
    bench.take(1)
    assert min(bench.timer.helpers.held_us) > 100


def test_between_blocks_calls_go_on_for_some_milliseconds() -> None:
    bench = Bench()
    called: list[str] = []
    bench.contenders = {name: lambda sample, name=name: called.append(name) for name in "ab"}
    bench.turns.keep_busy(bench.contenders)
    assert not called  # how long they take is unknown yet
    bench.turns._free_s |= {"a": 1e-6, "b": 1e-6}  # whatever this host takes
    bench.turns.device_us["a"] = 1500.0
    bench.turns.device_us["b"] = 500.0
    bench.turns.keep_busy(bench.contenders)
    assert called == ["a", "b", "a", "b"]
    bench.turns.device_us["a"] = 1.0
    bench.turns.device_us["b"] = 1.0
    bench.turns.keep_busy(bench.contenders)
    assert len(called) == 4 + 2 * measuring.MAX_BETWEEN


def test_between_blocks_a_slow_host_queues_calls_for_no_longer_than_that() -> None:
    bench = Bench()
    called: list[str] = []
    bench.turns._free_s |= {"a": 0.0015, "b": 0.0005}
    bench.contenders = {name: lambda sample, name=name: called.append(name) for name in "ab"}
    bench.turns.device_us["a"] = bench.turns.device_us["b"] = 1.0
    bench.turns.keep_busy(bench.contenders)
    assert called == ["a", "b", "a", "b"]


def test_a_stream_is_blocked_for_the_mark_before_a_call_too() -> None:
    bench = Bench()
    bench.timer.helpers.begin = lambda: time.sleep(0.002)
    bench.take(0)
    bench.timer.helpers.held_us.clear()
    bench.take(1)
    assert min(bench.timer.helpers.held_us) > 2000


def test_a_call_that_waits_for_the_device_does_not_make_the_hold_grow_with_itself() -> None:
    bench = Bench()

    def waits(sample: Sample) -> None:
        time.sleep(1e-6 * bench.timer.helpers.held_us[-1])

    bench.contenders = {"a": waits}
    for block in range(6):
        bench.take(block)
    least_us = 4 * (1e6 * bench.turns._free_s["a"] + 100.0)
    assert max(bench.timer.helpers.held_us) <= least_us + 400  # of which the mark before a call has some
