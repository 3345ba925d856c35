"""From samples to rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dotcu.benchmark.limits.limit import Limit
from dotcu.benchmark.results import OWN, BenchKey, BenchRow, Block, CallTime, Clocks, Measured, Protocol
from dotcu.benchmark.timing import _figures_of
from dotcu.benchmark.work import Work

WORK = Work(read_bytes=1000, written_bytes=1000)


def measured(us: float, contender: str = OWN, **options: object) -> Measured:
    blocks = tuple(Block(calls=tuple(CallTime(time_us=us, kernels=1) for _ in range(10))) for _ in range(12))
    return replace(Measured(contender=contender, l2="cold", by="cupti", blocks=blocks), **options)


def row(
    one: Measured, own: BenchRow | None = None, limit: Limit | None = None, *, all_: list[Measured]
) -> BenchRow:
    key = BenchKey(op="a::b", case="float32-8", contender=one.contender, l2="cold")
    empty = BenchRow(key=key, work=WORK, marks=("known",) if one.contender == OWN else ())
    samples = {other.contender: other for other in all_}
    return _figures_of(empty, samples, own=own, limit=lambda work, l2: limit, protocol=Protocol())


def alone(one: Measured, limit: Limit | None = None) -> BenchRow:
    return row(one, limit=limit, all_=[one])


def bound(us: float, sheet_us: float | None = None) -> Limit:
    return Limit(time_us=us, what="memory", floor_us=us, sheet_us=sheet_us)


def test_a_row_has_its_figures_its_share_of_the_limit_and_what_is_known_of_it() -> None:
    found = alone(measured(10.0, host_us=(3.0, 4.0, 5.0)), bound(8.0))
    assert found.time is not None
    assert found.host is not None
    assert (found.status, found.time.median_us, found.time.n, found.host.median_us) == (
        "measured",
        10.0,
        120,
        4.0,
    )
    assert found.percent == pytest.approx(80.0)
    assert found.marks == ("known",)
    assert found.work is WORK


def test_a_time_below_the_datasheets_is_refused_and_not_shown() -> None:
    found = alone(measured(10.0), bound(20.0, sheet_us=15.0))
    assert (found.status, found.time, found.percent) == ("refused", None, None)
    assert "less than the 15 us" in found.reason


def test_a_time_somewhat_below_the_limit_is_marked_first() -> None:
    found = alone(measured(10.0), bound(11.0))
    assert found.status == "measured"
    assert found.marks[0].startswith("110 % of the limit")
    assert found.marks[1] == "known"


def test_a_contender_is_compared_with_the_operators_own_row() -> None:
    ours, theirs = measured(10.0), measured(25.0, "eager")
    own = row(ours, all_=[ours, theirs])
    found = row(theirs, own, all_=[ours, theirs])
    assert own.ratio is None
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(2.5)


@pytest.mark.parametrize("status", ["wrong", "refused", "throttled", "failed"])
def test_nobody_is_compared_with_an_operator_that_is_not_measured(status: str) -> None:
    ours, theirs = measured(10.0), measured(25.0, "eager")
    own = replace(row(ours, all_=[ours]), status=status)
    assert row(theirs, own, all_=[ours, theirs]).ratio is None


def test_figures_of_two_means_are_not_compared() -> None:
    ours, theirs = measured(10.0), measured(25.0, "eager", by="events")
    assert row(theirs, row(ours, all_=[ours]), all_=[ours, theirs]).ratio is None


def test_samples_of_a_gpu_that_was_slowed_down_are_dropped_and_counted() -> None:
    hot = Clocks(sm_mhz=1000)
    cool = Clocks(sm_mhz=1980)
    blocks = measured(10.0).blocks
    slow = replace(blocks[0], before=hot, after=hot)
    found = alone(measured(10.0, blocks=(slow, *(replace(b, before=cool, after=cool) for b in blocks[1:]))))
    assert (found.status, found.dropped) == ("measured", 10)
    assert found.time is not None
    assert found.time.n == 110


def test_without_a_sample_a_row_says_why() -> None:
    found = alone(measured(10.0, blocks=()))
    assert (found.status, found.reason) == ("skipped", "interrupted before a sample was taken")


def test_calls_without_a_kernel_beside_calls_with_some_are_refused() -> None:
    calls = tuple(CallTime(time_us=1.0, kernels=i % 2) for i in range(10))
    found = alone(measured(1.0, blocks=(Block(calls=calls),) * 12))
    assert (found.status, found.time) == ("refused", None)


def test_what_is_noisy_is_marked() -> None:
    blocks = tuple(Block(calls=(CallTime(time_us=10.0 + 5 * (i % 3), kernels=1),) * 5) for i in range(8))
    assert any(mark.startswith("noisy: ") for mark in alone(measured(1.0, blocks=blocks)).marks)
