"""What this GPU reaches lies below its datasheet, and dotcu's kernels reach what torch's own do."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from dotcu.benchmark.limits import ceilings
from dotcu.benchmark.limits.ceilings import MIXES, Ceilings
from dotcu.benchmark.limits.datasheet import Sheet, find, of_device, theoretical_bandwidth
from dotcu.kernel.cuda import capability

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("alone")]

CALLS = 9


def by_events(run: Callable[[], Any]) -> float:
    """The median time of a call between two events; what starting a kernel takes is in it."""
    for _ in range(3):
        run()
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(CALLS)]
    for before, after in pairs:
        before.record()
        run()
        after.record()
    torch.cuda.synchronize()
    return statistics.median(1e3 * before.elapsed_time(after) for before, after in pairs)


@pytest.fixture(scope="module")
def gpu() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


@pytest.fixture(scope="module")
def measured(gpu: torch.device) -> Ceilings:
    return ceilings.measure_bandwidths(gpu, time_cold=by_events, time_warm=by_events)


@pytest.fixture(scope="module")
def sheet(gpu: torch.device) -> Sheet:
    found = of_device(gpu, sm_mhz=2000)
    assert found is not None
    return found


def test_the_driver_reports_the_bandwidth_that_the_datasheet_has(gpu: torch.device) -> None:
    known = find(torch.cuda.get_device_name(gpu))
    if known is None:
        pytest.skip(f"no datasheet of {torch.cuda.get_device_name(gpu)} is known")
    assert theoretical_bandwidth(gpu) == pytest.approx(known.memory_gbps, rel=0.05)


def test_memory_reaches_most_of_its_bandwidth_and_not_more(measured: Ceilings, sheet: Sheet) -> None:
    for _, gbps in measured.memory:
        assert 0.7 * sheet.memory_gbps < gbps < sheet.memory_gbps


def test_l2_is_faster_than_memory(measured: Ceilings) -> None:
    assert measured.l2_read_gbps > measured.read_gbps
    assert measured.l2_copy_gbps > measured.copy_gbps


@pytest.fixture(scope="module")
def on(gpu: torch.device) -> Iterator[ceilings.Buffers]:
    free, _ = torch.cuda.mem_get_info(gpu)
    l2_bytes = torch.cuda.get_device_properties(gpu).L2_cache_size
    yield ceilings.Buffers(ceilings._array_bytes(free, l2_bytes, str(gpu)), gpu, keep=False)
    torch.cuda.empty_cache()


@pytest.mark.parametrize("name", MIXES)
def test_kernels_reach_what_torch_reaches(name: str, on: ceilings.Buffers) -> None:
    by_torch_too = MIXES[name].by_torch
    times = [by_events(run) for _, run in ceilings._candidates(name, on)]
    by_torch, by_kernels = min(times[: len(by_torch_too)]), min(times[len(by_torch_too) :])
    assert by_kernels < 1.05 * by_torch


def test_kernels_compute_the_same_on_large_arrays(on: ceilings.Buffers) -> None:
    ceilings._launch("copy", on, 4, resident=True)
    assert on.out.equal(on.a)
    ceilings._launch("two_to_one", on, 8, resident=False)
    assert on.out.equal(on.a + on.b)


@pytest.mark.parametrize("name", ["float16", "tf32", "float64", "bfloat16", "float8", "int8"])
def test_products_reach_a_rate_that_tensor_cores_allow(name: str, gpu: torch.device, sheet: Sheet) -> None:
    allowed = sheet.matrix_tflops.get(name)
    if allowed is None:
        pytest.skip(f"{sheet.name} has no matrix rate for {name}, as far as is known")
    reached = ceilings._measure_rate(("matrix", name), gpu, by_events)
    assert reached is not None
    assert 0.3 * allowed < reached < allowed


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_registers_reach_most_of_the_plain_rate(name: str, gpu: torch.device, sheet: Sheet) -> None:
    allowed = sheet.plain_tflops.get(name)
    if allowed is None:
        pytest.skip(f"no plain rate of {sheet.name} is known")
    reached = ceilings._measure_rate(("plain", name), gpu, by_events)
    assert reached is not None
    assert 0.6 * allowed < reached < allowed


def test_matrix_rates_are_there_where_the_architecture_has_them(gpu: torch.device) -> None:
    known = find(torch.cuda.get_device_name(gpu))
    if known is None:
        pytest.skip("no datasheet is known")
    assert ("bfloat16" in known.matrix_tflops) == (capability(gpu.index) >= (8, 0))
    assert ("float8" in known.matrix_tflops) == (capability(gpu.index) >= (8, 9))
