"""A device: what the GPU can do at best, measured once, and where that fails a note."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from dotcu.benchmark import device as module
from dotcu.benchmark.device import BenchDevice
from dotcu.benchmark.limits import ceilings
from dotcu.benchmark.limits.ceilings import Ceilings
from dotcu.benchmark.work import Work
from dotcu.errors import EnvironmentFault
from helpers.fake_device import FakeDevice

CEILINGS = Ceilings(
    read_gbps=4000, two_to_one_gbps=4000, copy_gbps=4000, write_gbps=4000, l2_read_gbps=8000,
    l2_copy_gbps=8000, l2_write_gbps=8000,
)  # fmt: skip

BYTES = Work(read_bytes=2_000_000, written_bytes=2_000_000)
FLOPS = replace(BYTES, flops=10**9, dtype="float16")


class LimitedDevice(FakeDevice):
    """Has the limits of a real one."""

    bandwidths = BenchDevice.bandwidths
    limit = BenchDevice.limit


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> LimitedDevice:
    monkeypatch.setattr(ceilings, "read_saved", lambda uuid, driver: CEILINGS)
    monkeypatch.setattr(ceilings, "save", lambda ceilings: None)
    return LimitedDevice()


def test_limits_come_from_what_was_saved_for_this_gpu(gpu: LimitedDevice) -> None:
    limit = gpu.limit(BYTES, "cold")
    assert limit is not None
    assert limit.time_us == pytest.approx(1.0)


def test_what_is_not_saved_is_measured_once_and_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Ceilings] = []
    monkeypatch.setattr(ceilings, "read_saved", lambda uuid, driver: None)
    monkeypatch.setattr(ceilings, "measure_bandwidths", lambda device, **options: CEILINGS)
    monkeypatch.setattr(ceilings, "save", saved.append)
    gpu = LimitedDevice()
    for _ in range(2):
        assert gpu.limit(BYTES, "cold") is not None
    assert saved == [CEILINGS]


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), EnvironmentFault("too little memory is free\nmore")],
)
def test_limits_that_cannot_be_measured_are_a_note_and_not_tried_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def fails(device: torch.device, *, uuid: str, **options: Any) -> Ceilings:
        tried.append(uuid)
        raise error

    monkeypatch.setattr(ceilings, "read_saved", lambda uuid, driver: None)
    monkeypatch.setattr(ceilings, "measure_bandwidths", fails)
    gpu = LimitedDevice()
    gpu.bandwidths()
    assert gpu.limit(BYTES, "cold") is None
    assert len(tried) == 1
    assert f"no limits: {str(error).splitlines()[0]}" in gpu.notes


def test_a_rate_that_cannot_be_measured_leaves_the_limits_of_other_work(
    gpu: LimitedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(module.ceilings, "with_rates", fails)
    assert gpu.limit(FLOPS, "cold") is None
    assert gpu.limit(BYTES, "cold") is not None
    assert "no limit of float16 arithmetic: CUDA out of memory" in gpu.notes


def test_a_rate_that_was_measured_is_saved(gpu: LimitedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Ceilings] = []
    wider = replace(CEILINGS, matrix_tflops={"float16": 1.0})
    monkeypatch.setattr(module.ceilings, "with_rates", lambda *args: wider)
    monkeypatch.setattr(ceilings, "save", saved.append)
    gpu.limit(FLOPS, "cold")
    assert saved == [wider]
