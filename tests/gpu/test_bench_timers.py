"""Device time on a GPU: two means against each other, and what each of them sees."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from threading import Event
from typing import Any

import pytest
import torch
from torch import Tensor

from dotcu.benchmark import device
from dotcu.benchmark.measuring import Conditions, measure
from dotcu.benchmark.results import CallTime, Means, Protocol
from dotcu.benchmark.timers import TimedCall, Timer, choose
from dotcu.kernel import Module, load_inline
from dotcu.operator import Sample

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("alone")]

LARGE = 1 << 28
"""Elements of float32 whose copy takes some 500 us on an H200."""

MILLISECOND = 2_000_000
"""Clocks that a stream is kept busy for: some 1 ms."""

EACH: tuple[Means, ...] = ("cupti", "events")


@pytest.fixture(scope="module")
def gpu() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


@pytest.fixture(scope="module")
def timers(gpu: torch.device) -> dict[Means, Timer]:
    """Each means, tried already."""
    return {means: choose(gpu, means) for means in EACH}


@pytest.fixture
def cupti(timers: dict[Means, Timer]) -> Timer:
    return timers["cupti"]


@pytest.fixture
def x(gpu: torch.device) -> Tensor:
    return torch.ones(1000, device=gpu)


def taken(
    timer: Timer,
    run: Callable[[], Any],
    *,
    prepare: Callable[[], Any] = lambda: None,
    probe: Callable[[Any], Any] | None = None,
    calls: int = 10,
    hold_us: float = 500.0,
) -> list[CallTime]:
    """Time a call some times, after it was called and timed before."""
    run()
    shots = [
        TimedCall(name="it", run=run, prepare=prepare, probe=probe, hold_us=hold_us) for _ in range(calls)
    ]
    timer.time(shots)
    return timer.time(shots)


def typical_us(timer: Timer, run: Callable[[], Any], **options: Any) -> float:
    return median(call.time_us for call in taken(timer, run, **options))


# -------------------------------------------------------------- figures


def test_cupti_is_the_means_that_is_chosen(gpu: torch.device) -> None:
    chosen = choose(gpu)
    assert (chosen.name, chosen.why) == ("cupti", {})


def test_the_means_agree_on_a_large_kernel(gpu: torch.device, timers: dict[Means, Timer]) -> None:
    source, target = torch.ones(LARGE, device=gpu), torch.empty(LARGE, device=gpu)
    found = {
        means: typical_us(timer, lambda: torch.add(source, 1, out=target), prepare=timer.helpers.flush)
        for means, timer in timers.items()
    }
    assert max(found.values()) <= 1.05 * min(found.values()), found


def test_a_copy_that_fits_l2_is_slower_cold_than_warm(gpu: torch.device, cupti: Timer) -> None:
    n = cupti.helpers.l2_bytes // 4 // 4
    source, target = torch.ones(n, device=gpu), torch.empty(n, device=gpu)
    cold = typical_us(cupti, lambda: target.copy_(source), prepare=cupti.helpers.flush, calls=30)
    warm = typical_us(cupti, lambda: target.copy_(source), calls=30)
    assert cold > 1.1 * warm, (cold, warm)


@pytest.mark.parametrize("means", EACH)
def test_what_comes_before_a_call_is_not_counted(
    gpu: torch.device, timers: dict[Means, Timer], means: Means, x: Tensor
) -> None:
    large = torch.ones(1 << 26, device=gpu)

    def refresh() -> None:
        for _ in range(5):
            large.add_(1)

    calls = taken(timers[means], lambda: x.add_(1), prepare=refresh)
    assert median(call.time_us for call in calls) < 30
    assert all(call.kernels in (None, 1) and call.stray == 0 for call in calls)


@pytest.mark.parametrize("means", EACH)
def test_what_looks_at_a_result_is_not_counted(
    gpu: torch.device, timers: dict[Means, Timer], means: Means, x: Tensor
) -> None:
    large = torch.ones(1 << 26, device=gpu)
    calls = taken(timers[means], lambda: x.add_(1), probe=lambda result: large.clone())
    assert median(call.time_us for call in calls) < 30
    assert all(call.kernels in (None, 1) and call.stray == 0 for call in calls)


def test_a_look_sees_the_result_of_its_own_call(cupti: Timer, gpu: torch.device) -> None:
    counter, seen = torch.zeros(1, device=gpu), list[Tensor]()
    shots = [
        TimedCall(name="it", run=lambda: counter.add_(1), probe=lambda out: seen.append(out.clone()))
        for _ in range(5)
    ]
    cupti.time(shots)
    assert torch.cat(seen).tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("means", EACH)
def test_a_held_stream_keeps_the_hosts_time_out(timers: dict[Means, Timer], means: Means, x: Tensor) -> None:
    def two_launches_far_apart() -> None:
        x.add_(1)
        time.sleep(0.0005)
        x.add_(1)

    held = typical_us(timers[means], two_launches_far_apart, hold_us=3000.0)
    free = typical_us(timers[means], two_launches_far_apart, hold_us=0.0)
    assert held < 50 < 400 < free


@pytest.mark.parametrize("means", EACH)
def test_it_works_on_a_side_stream(timers: dict[Means, Timer], means: Means, x: Tensor) -> None:
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        calls = taken(timers[means], lambda: x.add_(1))
    assert all(0 < call.time_us < 30 and call.stray == call.late == 0 for call in calls)


def test_nothing_is_written_to_the_terminal(
    cupti: Timer, x: Tensor, capfd: pytest.CaptureFixture[str]
) -> None:
    taken(cupti, lambda: x.add_(1))
    assert capfd.readouterr() == ("", "")


# -------------------------------------------------------------- what CUPTI sees


def test_a_fill_and_a_copy_are_counted(cupti: Timer, gpu: torch.device) -> None:
    source, target = torch.ones(1 << 20, device=gpu), torch.empty(1 << 20, device=gpu)

    def run() -> None:
        source.zero_()
        target.copy_(source)

    assert {call.kernels for call in taken(cupti, run)} == {2}


def test_a_call_without_kernels_takes_no_time(cupti: Timer) -> None:
    assert taken(cupti, lambda: None, calls=3) == [CallTime(time_us=0.0, kernels=0)] * 3


def test_work_that_is_left_behind_on_another_stream_is_seen(cupti: Timer, x: Tensor) -> None:
    side = torch.cuda.Stream()

    def run() -> None:
        x.add_(1)
        with torch.cuda.stream(side):
            torch.cuda._sleep(MILLISECOND)

    for call in taken(cupti, run, calls=5):
        assert (call.kernels, call.late) == (2, 1)
        assert call.time_us > 500


def test_events_do_not_see_it(timers: dict[Means, Timer], x: Tensor) -> None:
    side = torch.cuda.Stream()

    def run() -> None:
        x.add_(1)
        with torch.cuda.stream(side):
            torch.cuda._sleep(MILLISECOND)

    assert typical_us(timers["events"], run) < 100
    torch.cuda.synchronize()


def test_work_on_another_stream_that_does_not_wait_for_the_caller_is_early(cupti: Timer, x: Tensor) -> None:
    side, y = torch.cuda.Stream(), x.clone()

    def run() -> None:
        x.add_(1)
        with torch.cuda.stream(side):
            y.add_(1)
        torch.cuda.current_stream().wait_stream(side)

    for call in taken(cupti, run, calls=5, hold_us=1000.0):
        assert (call.kernels, call.early, call.late, call.elsewhere) == (2, 1, 0, 0)


def test_work_on_another_stream_that_is_waited_for_is_not_late(cupti: Timer, x: Tensor) -> None:
    side = torch.cuda.Stream()

    def run() -> None:
        x.add_(1)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(MILLISECOND)
        torch.cuda.current_stream().wait_stream(side)

    for call in taken(cupti, run, calls=5):
        assert (call.kernels, call.late, call.stray, call.early, call.elsewhere) == (2, 0, 0, 0, 0)
        assert call.time_us > 500


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_work_by_a_thread_after_the_return_is_stray(
    cupti: Timer, x: Tensor, thread: ThreadPoolExecutor
) -> None:
    thread.submit(x.add_, 1).result()  # its first launch
    returned, pending = Event(), []

    def in_background() -> None:
        returned.wait()
        x.add_(1)

    def run() -> None:
        returned.clear()
        pending.append(thread.submit(in_background))

    def after(result: object) -> None:
        returned.set()
        pending.pop().result()

    run()
    after(None)
    calls = cupti.time([TimedCall(name="it", run=run, probe=after) for _ in range(5)])
    assert [(call.kernels, call.stray) for call in calls] == [(0, 1)] * 5


@pytest.fixture(scope="module")
def module() -> Module:
    return load_inline("__global__ void more(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1; }")


def test_a_launch_of_dotcus_is_counted_and_one_before_a_call_is_nobodys(
    cupti: Timer, x: Tensor, module: Module
) -> None:
    def more() -> None:
        module.more(x, 32, grid=1, block=32)

    more()
    for call in taken(cupti, more, prepare=more):
        assert (call.kernels, call.late, call.stray) == (1, 0, 0)
        assert 0 < call.time_us < 30


def test_kernels_of_a_graph_are_of_the_call_that_replays_it(cupti: Timer, x: Tensor) -> None:
    graph = torch.cuda.CUDAGraph()
    x.add_(1)
    with torch.cuda.graph(graph):
        for _ in range(3):
            x.add_(1)
    assert {call.kernels for call in taken(cupti, graph.replay)} == {3}


# -------------------------------------------------------------- what cannot fool, and what fails


def test_a_replaced_method_of_events_changes_no_figure(
    gpu: torch.device, timers: dict[Means, Timer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda.Event, "elapsed_time", lambda self, other: 0.001)
    monkeypatch.setattr(torch.cuda.Event, "record", lambda self, stream=None: None)
    large = torch.ones(1 << 26, device=gpu)
    assert typical_us(timers["events"], lambda: large.add_(1)) > 50


def test_clocks_of_a_gpu_are_reported(gpu: torch.device) -> None:
    if device.nvml_missing():
        pytest.skip(device.nvml_missing())
    state, most = device.read_clocks(gpu), device.highest_clocks(gpu)
    assert state.sm_mhz is not None
    assert state.temperature_c is not None
    assert 0 < state.sm_mhz <= most["sm"]
    assert 0 < state.temperature_c < 120


# -------------------------------------------------------------- all of it


def samples(gpu: torch.device) -> list[Sample]:
    return [Sample(torch.arange(1 << 24, device=gpu) / (1 << 24)) for _ in range(4)]


def test_a_contender_measured_against_itself_is_as_fast(gpu: torch.device, cupti: Timer) -> None:
    probed: list[str] = []

    def square(sample: Sample) -> Tensor:
        return sample.args[0] * sample.args[0]  # type: ignore[no-any-return]

    measured, errors, _ = measure(
        {"one": square, "other": square},
        Conditions(
            sets=samples(gpu),
            l2="cold",
            protocol=Protocol(least_s=0.0),
            refresh=lambda sample, turn: sample.args[0].copy_(sample.args[0].roll(2 * turn + 1)),
            probe=lambda name, sample, result: probed.append(name),
            device=gpu,
        ),
        cupti,
    )
    assert errors == {}
    one, other = (measured[name] for name in ("one", "other"))
    assert Counter(probed) == {"one": len(one.blocks), "other": len(other.blocks)}
    assert one.by == "cupti"
    assert len(one.blocks) == len(other.blocks) >= 10
    typical = [median(us for block in who.blocks for us in block.times_us) for who in (one, other)]
    assert max(typical) < 1.02 * min(typical)
    assert median(one.host_us) < 30, "the device takes some 40 us for each"
    assert all(call.kernels == 1 and call.late == 0 for block in one.blocks for call in block.calls)
    assert sum(call.stray for who in (one, other) for block in who.blocks for call in block.calls) == 0


def test_each_means_measures_to_the_end(gpu: torch.device, timers: dict[Means, Timer]) -> None:
    for timer in timers.values():
        measured, errors, _ = measure(
            {"square": lambda sample: sample.args[0] * sample.args[0]},
            Conditions(
                sets=samples(gpu),
                l2="cold",
                protocol=Protocol(least_s=0.0, warmup_s=0.0, blocks=3, most_blocks=3),
                refresh=lambda sample, turn: sample.args[0].add_(1),
                probe=lambda name, sample, result: None,
                device=gpu,
            ),
            timer,
        )
        assert errors == {}
        assert measured["square"].by == timer.name
        assert len(measured["square"].blocks) == 3
