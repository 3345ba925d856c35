"""benchmarks/call_overhead.py without a GPU: its statistics, its goals, what it skips, what it refuses."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

import call_overhead
import dotcu
from calls import bare, ours, stats, timing
from calls.stats import Goal, Verdict
from calls.timing import Ready, Skipped, Timed
from calls.work import Call, Contender, Inputs, Once, make_inputs


@pytest.fixture
def inputs() -> Inputs:
    return make_inputs(torch.device("cpu"))


def adding(inputs: Inputs) -> Call:
    return lambda: inputs.a + inputs.b


def prepared(inputs: Inputs, make: Callable[[Inputs], Call], **more: Any) -> Ready | Skipped:
    return timing.prepare(Contender(name="peer", make=make, **more), inputs)


def reason(found: Ready | Skipped) -> str:
    assert isinstance(found, Skipped)
    assert found.name == "peer"
    return found.reason


# Statistics.


def test_a_spread_has_the_median_the_quartiles_and_the_range() -> None:
    assert stats.spread([5, 1, 4, 2, 3]) == stats.Spread(median=3, p25=2, p75=4, min=1, max=5)


def test_a_spread_of_one_figure_is_that_figure() -> None:
    assert stats.spread([7.0]) == stats.Spread(median=7, p25=7, p75=7, min=7, max=7)


def test_a_ratio_is_not_moved_by_what_slows_down_a_whole_round() -> None:
    times = {"fast": [1.0, 2.0, 4.0], "slow": [2.0, 4.0, 8.0]}
    assert stats.ratios(times, "fast", "slow") == [0.5, 0.5, 0.5]


def test_a_difference_is_taken_round_by_round() -> None:
    assert stats.differences({"a": [3.0, 7.0], "b": [1.0, 6.0]}, "a", "b") == [2.0, 1.0]


# Goals.


def judged(goal: Goal, **times: list[float]) -> Verdict:
    return stats.judge(goal, times)


def test_a_goal_holds_up_to_its_bound() -> None:
    assert judged(stats.at_most_times("a", 1.5, "b"), a=[3.0], b=[2.0]).held
    assert not judged(stats.at_most_times("a", 1.4, "b"), a=[3.0], b=[2.0]).held
    assert judged(stats.at_most_more("a", 1.0, "b"), a=[3.0], b=[2.0]).held
    assert not judged(stats.at_most_more("a", 0.9, "b"), a=[3.0], b=[2.0]).held


def test_a_goal_that_could_not_be_measured_did_not_hold_and_says_what_is_missing() -> None:
    verdict = judged(stats.at_most_times("a", 1.0, "b"), a=[1.0])
    assert (verdict.held, verdict.figure) == (False, None)
    assert "b" in verdict.reason


def test_a_figure_that_is_not_a_number_does_not_hold() -> None:
    assert not judged(stats.at_most_times("a", 1.0, "b"), a=[float("nan")], b=[1.0]).held


def test_goals_and_bases_name_contenders_that_there_are() -> None:
    names = [contender.name for contender in call_overhead.CONTENDERS]
    assert len(names) == len(set(names))
    assert {contender.base for contender in call_overhead.CONTENDERS} <= set(names)
    assert {name for goal in call_overhead.GOALS for name in goal.needs} <= set(names)


def test_only_brings_what_the_named_are_compared_with_and_leaves_out_goals_of_others() -> None:
    chosen = call_overhead.choose(call_overhead.CONTENDERS, ["recording, direct"])
    assert {contender.name for contender in chosen} == {ours.RECORDING_DIRECT, ours.CPP_RECORDING}
    (goal,) = call_overhead.asked(call_overhead.GOALS, chosen)
    assert goal.at_most == 1.1


# What is skipped.


def test_a_peer_that_is_not_installed_is_skipped_by_name(inputs: Inputs) -> None:
    def make(inputs: Inputs) -> Call:
        import no_such_peer

        return no_such_peer.add

    assert reason(prepared(inputs, make)) == "ModuleNotFoundError: No module named 'no_such_peer'"


def test_a_reason_is_more_than_its_announcement(inputs: Inputs) -> None:
    def make(inputs: Inputs) -> Call:
        raise RuntimeError("inductor raised:\nTypeError: no such thing\nand much more")

    assert reason(prepared(inputs, make)) == "RuntimeError: inductor raised: TypeError: no such thing"


def test_a_contender_that_is_right_is_not_skipped(inputs: Inputs) -> None:
    assert isinstance(prepared(inputs, adding), Ready)


def test_a_contender_that_is_wrong_is_skipped(inputs: Inputs) -> None:
    assert "wrong" in reason(prepared(inputs, lambda inputs: lambda: inputs.a - inputs.b))


def test_a_contender_that_gives_the_same_memory_twice_is_skipped(inputs: Inputs) -> None:
    def make(inputs: Inputs) -> Call:
        out = inputs.a + inputs.b
        return lambda: out

    assert "same memory" in reason(prepared(inputs, make))


def test_a_contender_that_writes_gives_the_same_memory_twice(inputs: Inputs) -> None:
    def make(inputs: Inputs) -> Call:
        out = torch.empty_like(inputs.a)
        return lambda: torch.add(inputs.a, inputs.b, out=out)

    assert isinstance(prepared(inputs, make, writes=True), Ready)
    assert "other memory" in reason(prepared(inputs, adding, writes=True))


def test_a_contender_that_writes_only_once_is_skipped(inputs: Inputs) -> None:
    def make(inputs: Inputs) -> Call:
        out = inputs.a + inputs.b
        return lambda: out

    assert "wrong" in reason(prepared(inputs, make, writes=True))


def test_a_contender_that_does_not_record_is_skipped(inputs: Inputs) -> None:
    assert "requires_grad" in reason(prepared(inputs, adding, records=True))


def test_a_contender_whose_gradient_is_wrong_is_skipped(inputs: Inputs) -> None:
    def make(inputs: Inputs) -> Call:
        return lambda: inputs.leaf + inputs.leaf - inputs.leaf.detach() + inputs.b

    def want(inputs: Inputs) -> Tensor:
        return make(inputs)().detach()

    assert "gradient" in reason(prepared(inputs, make, records=True, want=want))


def test_a_contender_that_kept_its_result_is_found_after_the_timing(inputs: Inputs) -> None:
    def make(inputs: Inputs) -> Call:
        kept = inputs.a + inputs.b
        return lambda: kept.clone()

    ready = prepared(inputs, make)
    assert isinstance(ready, Ready)
    (found,) = call_overhead.still_right([ready], inputs)
    assert "after the timing" in found.reason


def test_what_failed_once_is_not_tried_again() -> None:
    attempts = []

    def fail() -> None:
        attempts.append(1)
        raise OSError("no compiler")

    build = Once(fail)
    for _ in range(2):
        with pytest.raises(OSError, match="no compiler"):
            build()
    assert len(attempts) == 1


# Timing.


def clock_of(step_ns: int) -> Callable[[], int]:
    ticks = count(0, step_ns)
    return lambda: next(ticks)


def test_a_time_is_microseconds_per_call_for_each_round() -> None:
    found = timing.measure(
        [Timed(name="a", call=int), Timed(name="b", call=int)],
        rounds=3,
        calls=10,
        synchronize=int,
        clock_ns=clock_of(20_000),
    )
    assert found == {"a": [2.0] * 3, "b": [2.0] * 3}


def test_a_call_of_many_launches_is_made_less_often() -> None:
    made: list[int] = []
    long = Timed(name="long", call=lambda: made.append(1), launches=10)
    timing.measure([long], rounds=1, calls=300, synchronize=int)
    assert len(made) == 30 + timing.WARM_CALLS // 10


def test_waiting_for_the_gpu_counts_only_where_it_is_asked_for() -> None:
    now = 0

    def synchronize() -> None:
        nonlocal now
        now += 7000

    for waits, us in ((False, 0.0), (True, 7.0)):
        found = timing.measure(
            [Timed(name="a", call=int)],
            rounds=1,
            calls=1,
            waits=waits,
            synchronize=synchronize,
            clock_ns=lambda: now,
        )
        assert found == {"a": [us]}


def test_the_collector_rests_while_calls_are_made_and_not_longer() -> None:
    seen: list[bool] = []
    timed = Timed(name="a", call=lambda: seen.append(gc.isenabled()))
    timing.measure([timed], rounds=1, calls=1, synchronize=int)
    assert not any(seen)
    assert gc.isenabled()


# dotcu's own contenders, and the program.


@pytest.mark.parametrize(
    "name",
    [
        ours.DIRECT,
        ours.TORCH_OPS,
        ours.EIGHT_DIRECT,
        ours.CLONE_TORCH_OPS,
        ours.READ_DIRECT,
        ours.THREE_DIRECT,
        ours.TEN_TORCH_OPS,
        bare.DOTCU,
    ],
)
def test_dotcus_contenders_are_right(name: str, inputs: Inputs) -> None:
    (contender,) = (each for each in (*ours.CONTENDERS, *bare.CONTENDERS) if each.name == name)
    with dotcu.simulate():
        ready = timing.prepare(contender, inputs)
        assert isinstance(ready, Ready)
        assert call_overhead.still_right([ready], inputs) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="about a machine without a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert call_overhead.main([]) == 3
    assert "GPU" in capsys.readouterr().err
