"""Attribution on synthetic traces: whose kernel is it, and how long did the call take?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from dotcu.benchmark.results import CallTime
from dotcu.benchmark.timers import Activity, TimerFailed, attribute

MAIN, SIDE = 7, 13
HERE, ELSEWHERE = 1, 2


def kernel(
    start: int,
    end: int,
    *,
    name: str = "kernel",
    stream: int = MAIN,
    launched: int | None = None,
    thread: int | None = HERE,
    device: int = 0,
) -> Activity:
    return Activity(
        name=name,
        start_ns=start,
        end_ns=end,
        stream=stream,
        device=device,
        launched_ns=launched,
        thread=thread,
    )


def marks(begin: int, end: int, launched: tuple[int, int] | None = None) -> list[Activity]:
    """Marks of 10 ns; the end mark starts at `end`."""
    first, last = launched or (None, None)
    return [
        kernel(begin, begin + 10, name="dotcu_bench_begin()", launched=first),
        kernel(end, end + 10, name="dotcu_bench_end()", launched=last),
    ]


def test_a_call_takes_from_the_start_of_its_first_kernel_to_the_end_of_its_last() -> None:
    trace = [*marks(0, 900), kernel(100, 300), kernel(500, 800)]
    assert attribute(trace, 1) == [CallTime(time_us=0.7, kernels=2)]


def test_the_order_of_a_trace_does_not_matter() -> None:
    trace = [*marks(0, 900), kernel(100, 300), *marks(1000, 1900), kernel(1500, 1600)]
    assert attribute(reversed(trace), 2) == attribute(trace, 2)
    assert [call.time_us for call in attribute(trace, 2)] == [0.2, 0.1]


def test_copies_and_fills_count() -> None:
    copy = kernel(100, 200, name="Memcpy DtoD (Device -> Device)")
    fill = kernel(300, 400, name="Memset (Device)")
    assert attribute([*marks(0, 900), copy, fill], 1) == [CallTime(time_us=0.3, kernels=2)]


def test_what_is_queued_between_calls_is_nobodys() -> None:
    refill = kernel(920, 950, name="roll")
    flush = kernel(950, 980, name="dotcu_bench_flush_l2(uint4 const*, long long, unsigned int*)")
    hold = kernel(980, 999, name="dotcu_bench_hold(long long)")
    trace = [*marks(0, 900), kernel(100, 200), refill, flush, hold, *marks(1000, 1900), kernel(1100, 1200)]
    assert attribute(trace, 2) == [CallTime(time_us=0.1, kernels=1)] * 2


def test_a_call_that_makes_the_device_do_nothing_takes_no_time() -> None:
    assert attribute(marks(0, 900), 1) == [CallTime(time_us=0.0, kernels=0)]


def test_joined_work_on_another_stream_counts() -> None:
    trace = [*marks(0, 900), kernel(100, 200), kernel(150, 850, stream=SIDE)]
    assert attribute(trace, 1) == [CallTime(time_us=0.75, kernels=2)]


def test_work_that_the_callers_stream_did_not_wait_for_is_late() -> None:
    trace = [*marks(0, 300), kernel(100, 200), kernel(150, 2500, stream=SIDE), *marks(1000, 1900)]
    assert attribute(trace, 2) == [CallTime(time_us=2.4, kernels=2, late=1), CallTime(time_us=0.0, kernels=0)]


def test_work_on_another_stream_between_calls_is_stray_of_the_call_before() -> None:
    trace = [*marks(0, 900), *marks(1000, 1900), kernel(1950, 1960, stream=SIDE), *marks(2000, 2900)]
    assert [call.stray for call in attribute(trace, 3)] == [0, 1, 0]


def test_work_before_all_calls_is_stray_of_the_first() -> None:
    trace = [kernel(5, 6, stream=SIDE), *marks(1000, 1900), *marks(2000, 2900)]
    assert [call.stray for call in attribute(trace, 2)] == [1, 0]


# -------------------------------------------------------------- by launch


def test_a_kernel_is_of_the_call_that_launched_it_although_it_started_before_the_mark() -> None:
    """The caller's stream is blocked while the host launches; a stream of the call's own is not."""
    early = kernel(500, 800, stream=SIDE, launched=25)
    first = [*marks(0, 400, launched=(0, 10)), kernel(100, 300, launched=5)]
    second = [*marks(1000, 1500, launched=(20, 30)), early]
    found = attribute([*first, *second], 2)
    assert found == [CallTime(time_us=0.2, kernels=1), CallTime(time_us=0.3, kernels=1, early=1)]


def test_work_that_did_not_wait_for_the_callers_stream_is_early_and_what_is_ordered_is_not() -> None:
    hold = kernel(0, 150_000, name="dotcu_bench_hold(long long)", launched=100)
    first, last = marks(150_100, 150_300, launched=(200, 400))
    ran_within_the_hold = kernel(20_000, 60_000, stream=SIDE, launched=300)
    (found,) = attribute([hold, first, ran_within_the_hold, last], 1)
    assert (found.kernels, found.early, found.late, found.stray) == (1, 1, 0, 0)
    waited = kernel(150_115, 150_200, stream=SIDE, launched=300)
    (found,) = attribute([hold, first, waited, last], 1)
    assert (found.kernels, found.early) == (1, 0)


def test_work_on_another_gpu_is_elsewhere_whenever_it_ran() -> None:
    for start in (20, 150):
        other = kernel(start, start + 100, stream=(1 << 32) + MAIN, device=1, launched=5)
        (found,) = attribute([*marks(100, 900, launched=(0, 10)), other, kernel(300, 400, launched=6)], 1)
        assert (found.kernels, found.early, found.elsewhere) == (2, 0, 1)


def test_a_kernel_that_starts_in_the_next_calls_window_is_of_the_call_that_launched_it() -> None:
    slow = kernel(1200, 1400, stream=SIDE, launched=6)
    trace = [*marks(0, 900, launched=(0, 10)), slow, *marks(1000, 1900, launched=(20, 30))]
    assert attribute(trace, 2) == [CallTime(time_us=0.2, kernels=1, late=1), CallTime(time_us=0.0, kernels=0)]


def test_work_that_another_thread_launches_after_the_return_is_stray() -> None:
    """On the caller's own stream too, where it would pass for a preparation."""
    background = kernel(920, 950, launched=15, thread=ELSEWHERE)
    prepared = kernel(950, 960, launched=16)
    trace = [*marks(0, 900, launched=(0, 10)), background, prepared, *marks(1000, 1900, launched=(20, 30))]
    assert [call.stray for call in attribute(trace, 2)] == [1, 0]
    assert [call.kernels for call in attribute(trace, 2)] == [0, 0]


def test_work_that_another_thread_launches_within_a_call_is_the_calls() -> None:
    autograd = kernel(100, 200, launched=5, thread=ELSEWHERE)
    assert attribute([*marks(0, 900, launched=(0, 10)), autograd], 1) == [CallTime(time_us=0.1, kernels=1)]


def test_a_kernel_without_a_launch_is_placed_by_its_start() -> None:
    by_device = kernel(1100, 1200)
    trace = [*marks(0, 900, launched=(0, 10)), *marks(1000, 1900, launched=(20, 30)), by_device]
    assert [call.kernels for call in attribute(trace, 2)] == [0, 1]


def test_launches_are_not_trusted_where_a_mark_has_none() -> None:
    trace = [*marks(0, 900, launched=(0, 10)), *marks(1000, 1900), kernel(1100, 1200, launched=5)]
    assert [call.kernels for call in attribute(trace, 2)] == [0, 1]


# -------------------------------------------------------------- broken traces


@pytest.mark.parametrize("lost", range(4))
def test_a_lost_mark_is_an_error(lost: int) -> None:
    trace = [*marks(0, 900), *marks(1000, 1900)]
    del trace[lost]
    with pytest.raises(TimerFailed, match=r"marks were recorded for 2 calls"):
        attribute(trace, 2)


def test_marks_of_more_calls_than_there_were_are_an_error() -> None:
    with pytest.raises(TimerFailed, match="2 begin and 2 end marks were recorded for 1 calls"):
        attribute([*marks(0, 900), *marks(1000, 1900)], 1)


def test_marks_out_of_order_are_an_error() -> None:
    begin, end = marks(100, 900)
    with pytest.raises(TimerFailed, match="out of order"):
        attribute([begin, replace(end, start_ns=50, end_ns=60)], 1)


def test_calls_that_overlap_are_an_error() -> None:
    with pytest.raises(TimerFailed, match="out of order"):
        attribute([*marks(0, 900), *marks(500, 1900)], 2)


def test_no_calls_are_no_error() -> None:
    assert attribute([kernel(0, 10)], 0) == []
