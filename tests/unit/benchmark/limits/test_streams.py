"""The streaming kernels move what they should: here in the simulator, or on a GPU where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import dotcu
from dotcu.benchmark.limits import ceilings
from dotcu.benchmark.limits.ceilings import (
    LOADS,
    MIXES,
    TILE_BYTES,
    Buffers,
    _arrays_of,
    _best_gbps,
    _launch,
)
from dotcu.errors import EnvironmentFault, JitDisabled


@pytest.fixture(params=[False, True], ids=["streaming", "kept in L2"])
def on(request: pytest.FixtureRequest, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Buffers:
    """Three tiles of whole numbers, whose sums are exact."""
    monkeypatch.setattr(ceilings, "PASSES", 2)
    made = Buffers(3 * TILE_BYTES, device, keep=request.param)
    for tensor in (made.a, made.b):
        tensor.random_(-8, 9)
    made.out.fill_(torch.nan)
    made.sums.zero_()
    return made


every_kernel = pytest.mark.parametrize("loads", LOADS)
every_grid = pytest.mark.parametrize("resident", [False, True])


@every_kernel
@every_grid
def test_copy_copies(on: Buffers, loads: int, resident: bool) -> None:
    _launch("copy", on, loads, resident=resident)
    assert on.out.equal(on.a)


@every_kernel
@every_grid
def test_add_adds(on: Buffers, loads: int, resident: bool) -> None:
    _launch("two_to_one", on, loads, resident=resident)
    assert on.out.equal(on.a + on.b)


@every_kernel
@every_grid
def test_read_reads_every_element_once_in_each_pass(on: Buffers, loads: int, resident: bool) -> None:
    _launch("read", on, loads, resident=resident)
    assert on.sums.sum().item() == on.passes * on.a.sum().item()


@every_kernel
@every_grid
def test_write_writes_every_element_with_bits_that_change(on: Buffers, loads: int, resident: bool) -> None:
    _launch("write", on, loads, resident=resident)
    vectors = torch.arange(on.out.numel() // 4, dtype=torch.int64) + on.passes - 1
    places = ((4 * vectors[:, None] + torch.arange(4)) % 2**32).numpy().astype(np.uint32).reshape(-1)
    bits = np.uint32(0x3F800000) | (places * np.uint32(2654435769) >> np.uint32(9))
    assert np.array_equal(on.out.cpu().numpy(), bits.view(np.float32))
    toggled = np.unpackbits((bits[1:] ^ bits[:-1]).view(np.uint8)).mean() * 32
    assert toggled > 8


@pytest.mark.parametrize("name", MIXES)
def test_each_lane_asks_for_16_bytes_side_by_side(name: str) -> None:
    on = Buffers(TILE_BYTES, torch.device("cpu"), keep=False)
    with dotcu.simulate() as run:
        _launch(name, on, 4, resident=False)
    counters = run.counters
    extra = 2 * 4 * 8 if name == "read" else 0  # a sum for each warp
    assert counters.global_bytes == _arrays_of(name) * on.nbytes + extra
    assert counters.sector_efficiency == 1
    assert counters.global_requests - extra // 4 == _arrays_of(name) * on.nbytes // 512


def test_passes_are_made_and_not_optimized_away() -> None:
    on = Buffers(TILE_BYTES, torch.device("cpu"), keep=True)
    with dotcu.simulate() as run:
        _launch("read", on, 4, resident=True)
    assert run.counters.loaded_bytes == ceilings.PASSES * on.nbytes


def test_buffers_are_random_normal_values_in_whole_tiles(device: torch.device) -> None:
    on = Buffers(3 * TILE_BYTES + 1000, device, keep=False)
    assert on.nbytes == 3 * TILE_BYTES
    for tensor in (on.a, on.b, on.out):
        assert abs(tensor.mean().item()) < 0.05
        assert abs(tensor.std().item() - 1) < 0.05
    assert not on.a.equal(on.b)


def test_tiny_buffers_still_hold_a_tile(device: torch.device) -> None:
    assert Buffers(1, device, keep=False).nbytes == TILE_BYTES


class Stopwatch:
    """Gives each call the time that is said for it, torch's operations first; calls nothing."""

    def __init__(self, *times_us: float) -> None:
        self.times_us = list(times_us)

    def __call__(self, run: Callable[[], Any]) -> float:
        return self.times_us.pop(0) if len(self.times_us) > 1 else self.times_us[0]


def test_the_best_of_all_counts(device: torch.device) -> None:
    on = Buffers(TILE_BYTES, device, keep=False)
    by_torch = _best_gbps("copy", on, Stopwatch(1.0, 4.0))
    assert by_torch == pytest.approx(2 * TILE_BYTES / 1e3)
    by_kernel = _best_gbps("copy", on, Stopwatch(4.0, 4.0, 2.0, 4.0))
    assert by_kernel == pytest.approx(2 * TILE_BYTES / 2e3)


def test_passes_of_a_kernel_count_and_torch_makes_one(device: torch.device) -> None:
    on = Buffers(TILE_BYTES, device, keep=True)
    assert _best_gbps("read", on, Stopwatch(1.0, 1000.0)) == pytest.approx(TILE_BYTES / 1e3)
    by_kernel = _best_gbps("read", on, Stopwatch(1000.0, 1.0))
    assert by_kernel == pytest.approx(ceilings.PASSES * TILE_BYTES / 1e3)


def test_without_a_compiler_torchs_operations_remain(device: torch.device) -> None:
    on = Buffers(TILE_BYTES, device, keep=False)
    calls = iter(range(100))

    def time(run: Callable[[], Any]) -> float:
        if next(calls) > 0:
            raise JitDisabled("DOTCU_JIT=0")
        return 1.0

    assert _best_gbps("copy", on, time) == pytest.approx(2 * TILE_BYTES / 1e3)


def test_where_nothing_runs_the_error_says_why(device: torch.device) -> None:
    def time(run: Callable[[], Any]) -> float:
        raise RuntimeError("CUDA error: no kernel image is available\nmore")

    with pytest.raises(EnvironmentFault, match="no kernel image is available") as refused:
        _best_gbps("copy", Buffers(TILE_BYTES, device, keep=False), time)
    assert str(refused.value).endswith("See: dotcu doctor")


@pytest.mark.parametrize("name", MIXES)
def test_every_contender_runs(name: str, device: torch.device) -> None:
    on = Buffers(TILE_BYTES, device, keep=False)
    runs = [run for _, run in ceilings._candidates(name, on)]
    assert len(runs) == len(MIXES[name].by_torch) + 2 * len(LOADS)
    for run in runs[: len(MIXES[name].by_torch) + 2]:
        run()
