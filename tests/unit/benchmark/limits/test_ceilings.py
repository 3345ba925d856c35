from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dotcu.benchmark.limits import ceilings
from dotcu.benchmark.limits.ceilings import (
    TILE_BYTES,
    Ceilings,
    _array_bytes,
    _l2_gbps,
    _memory_gbps,
    measure_bandwidths,
    with_rates,
)
from dotcu.benchmark.limits.limit import Rate
from dotcu.errors import EnvironmentFault

GIB = 1 << 30
MEASURED = Ceilings(
    read_gbps=4420,
    two_to_one_gbps=4390,
    copy_gbps=4260,
    write_gbps=4680,
    l2_read_gbps=8000,
    l2_copy_gbps=6000,
    l2_write_gbps=5000,
)


def a_us(run: Callable[[], Any]) -> float:
    return 1.0


def test_every_mix_of_memory_is_measured(device: torch.device) -> None:
    found = _memory_gbps(TILE_BYTES, device, a_us)
    tile = TILE_BYTES / 1e3
    assert found == {"read": tile, "two_to_one": 3 * tile, "copy": 2 * tile, "write": tile}


def test_mixes_of_l2_fit_in_it(device: torch.device) -> None:
    sizes: list[int] = []
    make = ceilings.Buffers

    def noted(nbytes: int, device: torch.device, *, keep: bool) -> Any:
        sizes.append(nbytes)
        assert keep
        return make(nbytes, device, keep=keep)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ceilings, "Buffers", noted)
        patch.setattr(ceilings, "PASSES", 1)
        found = _l2_gbps(8 * TILE_BYTES, device, a_us)
    assert set(found) == {"read", "copy", "write"}
    assert max(sizes) == 4 * TILE_BYTES


def test_points_go_from_reads_to_writes() -> None:
    assert [gbps for _, gbps in MEASURED.memory] == [4420, 4390, 4260, 4680]
    assert [gbps for _, gbps in MEASURED.l2] == [8000, 6000, 5000]
    for points in (MEASURED.memory, MEASURED.l2):
        shares = [share for share, _ in points]
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (0, 1)


def test_arrays_are_4_gib_where_there_is_room() -> None:
    assert _array_bytes(139 * GIB, 60 << 20, "cuda:0") == 4 * GIB


def test_arrays_take_a_quarter_of_what_is_free_where_there_is_less() -> None:
    assert _array_bytes(24 * GIB, 6 << 20, "cuda:0") == 2 * GIB


def test_too_little_memory_is_reported_with_what_is_needed() -> None:
    with pytest.raises(EnvironmentFault, match=r"cuda:0 has 1\.00 GiB of memory free") as refused:
        _array_bytes(GIB, 60 << 20, "cuda:0")
    assert "2.81 GiB have to be free" in str(refused.value)
    assert _array_bytes(int(2.82 * GIB), 60 << 20, "cuda:0") >= 240 << 20


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> list[Rate]:
    """Each rate that is measured; float64 has no matrix rate here."""
    asked: list[Rate] = []

    def fake(rate: Rate, device: torch.device, time: object) -> float | None:
        asked.append(rate)
        return None if rate == ("matrix", "float64") else 100.0

    monkeypatch.setattr(ceilings, "_measure_rate", fake)
    return asked


def test_a_rate_is_measured_when_a_dtype_needs_it(rates: list[Rate]) -> None:
    found = with_rates(MEASURED, "bfloat16", torch.device("cpu"), a_us)
    assert found.matrix_tflops == {"bfloat16": 100.0}
    assert found.plain_tflops == {}
    assert rates == [("matrix", "bfloat16")]


def test_a_rate_that_is_known_is_not_measured_again(rates: list[Rate]) -> None:
    known = dataclasses.replace(MEASURED, plain_tflops={"float32": 62.0})
    assert with_rates(known, "float32", torch.device("cpu"), a_us) is known
    assert rates == []


def test_a_rate_that_there_is_not_stays_out(rates: list[Rate]) -> None:
    found = with_rates(MEASURED, "float64", torch.device("cpu"), a_us)
    assert (found.plain_tflops, found.matrix_tflops) == ({"float64": 100.0}, {})


def test_a_dtype_without_rates_changes_nothing(rates: list[Rate]) -> None:
    assert with_rates(MEASURED, "int64", torch.device("cpu"), a_us) is MEASURED


def test_ceilings_say_what_they_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = type("Properties", (), {"name": "NVIDIA X1", "L2_cache_size": 2 * TILE_BYTES})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (12 * 8 * TILE_BYTES, 0))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    monkeypatch.setattr(ceilings, "PASSES", 1)
    cpu = torch.device("cpu")
    found = measure_bandwidths(cpu, time_cold=a_us, time_warm=lambda run: 2.0, uuid="GPU-1", driver="580")
    assert (found.gpu, found.uuid, found.driver) == ("NVIDIA X1", "GPU-1", "580")
    assert found.copy_gbps == pytest.approx(2 * 8 * TILE_BYTES / 1e3)
    assert found.measured_at.endswith("+00:00")
    assert found.l2_read_gbps > 0
