"""Cheats leave traces in what the device did for a call, and sound operators none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from dotcu.benchmark.results import Block, CallTime, Means, Measured
from dotcu.benchmark.timing import implausibility
from helpers.timing_samples import Noise, measured, runs

N = 200


def traced(calls: Iterable[CallTime], *, by: Means = "cupti", contender: str = "dotcu") -> Measured:
    """A contender whose calls are these, ten to a block."""
    given = tuple(calls)
    blocks = tuple(Block(calls=given[at : at + 10]) for at in range(0, len(given), 10))
    return Measured(contender=contender, l2="cold", by=by, blocks=blocks)


def ran(counts: Sequence[int], **found: int) -> Measured:
    """A contender whose calls ran so many kernels."""
    return traced(CallTime(time_us=5.0 * count, kernels=count, **found) for count in counts)


def timed(times_us: Iterable[float]) -> Measured:
    return traced((CallTime(time_us=float(time)) for time in times_us), by="events")


EAGER = traced([CallTime(time_us=20.0, kernels=3)] * N, contender="eager")


def batches(every: int, kernels: int = 1, light: int = 0) -> list[int]:
    """Calls that do no more than `light` kernels, but for one in so many, which does what the others left."""
    return [light + (kernels * every if at % every == every - 1 else 0) for at in range(N)]


def shuffled(low: int, high: int) -> list[int]:
    return [int(count) for count in np.random.default_rng(0).integers(low, high + 1, N)]


SOUND = {
    "one kernel": [1] * N,
    "a chain of kernels": [25] * N,
    "a library that picks one kernel or two": shuffled(1, 2),
    "one that picks two kernels to five": shuffled(2, 5),
    "a rare fallback": [1] * (N - 10) + [3] * 10,
    "a search that a library makes once": [2] * (N - 1) + [60],
    "records that the tracer lost": [1] * (N - 3) + [0] * 3,
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_operators_are_not_suspected(name: str) -> None:
    assert implausibility(ran(SOUND[name]), [EAGER]) == ""
    assert implausibility(ran(SOUND[name])) == ""


def test_one_kernel_in_place_of_three_is_sound() -> None:
    assert implausibility(ran([1] * N), [EAGER]) == ""
    assert implausibility(EAGER, [ran([1] * N)]) == ""


@pytest.mark.parametrize("every", [2, 3, 10, 100])
def test_batches_of_calls_are_seen(every: int) -> None:
    found = implausibility(ran(batches(every)), [EAGER])
    assert f"{N - N // every} of {N} calls ran no kernel" in found
    assert "batched" in found
    assert "Do the work of a call in that call" in found


@pytest.mark.parametrize("every", [10, 50, 100])
def test_batches_behind_a_kernel_in_every_call_are_seen(every: int) -> None:
    found = implausibility(ran(batches(every, light=1)), [EAGER])
    assert f"{N // every} of {N} calls ran up to {every + 1} kernels and half of them no more than 1" in found
    assert "batched" in found


def test_cached_results_are_seen() -> None:
    found = implausibility(ran([0] * N), [EAGER])
    assert f"{N} of {N} calls ran no kernel, and others ran up to 3: results are remembered" in found
    hit_or_miss = implausibility(ran([2, 0, 0, 0] * (N // 4)), [EAGER])
    assert "150 of 200 calls ran no kernel" in hit_or_miss
    assert "results are remembered" in hit_or_miss


def test_a_call_that_does_nothing_on_the_device_is_reported_so() -> None:
    found = implausibility(ran([0] * N), [traced([CallTime(time_us=0.0, kernels=0)] * N, contender="eager")])
    assert "there is no device time" in found
    assert implausibility(ran([0] * N)) == found


def test_work_on_another_stream_is_seen() -> None:
    found = implausibility(ran([2] * N, late=1), [EAGER])
    assert f"in {N} of {N} calls a kernel on another stream still ran" in found
    assert "wait_stream" in found


def test_work_that_did_not_wait_for_the_caller_is_seen() -> None:
    found = implausibility(ran([1] * N, early=1), [EAGER])
    assert f"in {N} of {N} calls a kernel on another stream did not wait" in found
    assert "side.wait_stream(torch.cuda.current_stream())" in found


def test_work_on_another_gpu_is_seen() -> None:
    found = implausibility(ran([1] * N, elsewhere=1), [EAGER])
    assert f"in {N} of {N} calls a kernel ran on another GPU" in found
    assert "on the GPU of its inputs" in found


def test_work_of_another_thread_is_seen() -> None:
    found = implausibility(ran([0] * N, stray=1), [EAGER])
    assert f"{N} kernels began outside of the {N} calls" in found
    assert "thread" in found


def test_work_that_is_done_after_all_calls_but_a_few_is_seen() -> None:
    """A flush between calls, once in forty."""
    late = (CallTime(time_us=5.0, kernels=1, stray=39 if at % 40 == 39 else 0) for at in range(N))
    assert "195 kernels began outside" in implausibility(traced(late), [EAGER])


def test_one_odd_call_in_a_hundred_moves_no_median_and_is_let_be() -> None:
    bad = CallTime(time_us=5.0, kernels=1, late=1, stray=1, early=1, elsewhere=1)
    odd = [CallTime(time_us=5.0, kernels=1)] * (N - 2) + [bad] * 2
    assert implausibility(traced(odd), [EAGER]) == ""


@pytest.mark.parametrize("every", [2, 5, 10])
def test_batches_are_seen_in_times_alone(every: int) -> None:
    (noise,) = runs(Noise(sample=0.1), 1, of=1, blocks=1, calls=N)[0]
    times = [0.9 * noise[at] / 10 + (8.0 * every if at % every == 0 else 0.0) for at in range(N)]
    found = implausibility(timed(times))
    assert f"{N - N // every} of {N} calls took 0.9" in found
    assert "batched" in found


def test_results_that_some_calls_remember_are_seen_in_times_alone() -> None:
    found = implausibility(timed([0.9, 0.9, 0.9, 100.0] * (N // 4)))
    assert "150 of 200 calls took 0.9 us, less than a launch does, and the others 100 us" in found
    assert "results are remembered" in found


def test_a_batch_is_seen_among_times_that_lie_between() -> None:
    times = [1.0] * 120 + [1.9, 2.5, 3.0] + [40.0] * 77
    assert "batched" in implausibility(timed(times))


@pytest.mark.parametrize("us", [1.9, 2.2, 10.0, 1000.0])
def test_sound_times_are_not_suspected(us: float) -> None:
    for noise in (Noise(), Noise(sample=0.1, tail=0.3, outliers=0.05), Noise(step_us=0.5)):
        for run in runs(noise, 2, of=20, us=us):
            assert implausibility(measured(run, by="events")) == ""


def test_two_paths_that_both_run_kernels_are_not_suspected_by_their_times() -> None:
    assert implausibility(timed([4.0] * 100 + [40.0] * 100)) == ""


def test_no_calls_are_no_crime() -> None:
    assert implausibility(traced([])) == ""
