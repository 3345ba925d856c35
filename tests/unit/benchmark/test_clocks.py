"""Clocks by NVML, and without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dotcu.benchmark import device
from dotcu.benchmark.results import Clocks

GPU = torch.device("cuda", 0)


class FakeNvml:
    """Stands for `pynvml`; what it does not know raises its error."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self, **known: Any) -> None:
        self.known = known

    def __getattr__(self, name: str) -> Any:
        def ask(*args: Any) -> Any:
            answer = self.known.get(name)
            found = answer(*args) if callable(answer) else answer
            if found is None:
                raise self.NVMLError("Not Supported")
            return found

        return ask


H200 = {
    "nvmlDeviceGetHandleByUUID": {"GPU-1234": "the H200"}.get,
    "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1965, 2: 3201}[kind],
    "nvmlDeviceGetMaxClockInfo": lambda handle, kind: {1: 1980, 2: 3201}[kind],
    "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
    "nvmlDeviceGetPowerUsage": lambda handle: 512_300,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0x44,
}


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Puts an NVML in place of the real one."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid="1234"))

    def put(library: Any, why: str = "") -> None:
        device._handle.cache_clear()
        monkeypatch.setattr(device, "_nvml", lambda: (library, why))

    yield put
    device._handle.cache_clear()


def test_all_that_nvml_knows_is_reported(nvml: Any) -> None:
    nvml(FakeNvml(**H200))
    assert device.read_clocks(GPU) == Clocks(
        sm_mhz=1965,
        memory_mhz=3201,
        temperature_c=61,
        power_w=512.3,
        reasons=("power cap", "hardware thermal slowdown"),
    )
    assert device.highest_clocks(GPU) == {"sm": 1980, "memory": 3201}


def test_what_nvml_does_not_know_is_omitted(nvml: Any) -> None:
    nvml(FakeNvml(nvmlDeviceGetHandleByUUID="a GPU", nvmlDeviceGetTemperature=40))
    assert device.read_clocks(GPU) == Clocks(temperature_c=40)
    assert device.highest_clocks(GPU) == {}


def test_an_older_nvml_is_asked_by_the_older_name(nvml: Any) -> None:
    known = {"nvmlDeviceGetHandleByUUID": "a GPU", "nvmlDeviceGetCurrentClocksThrottleReasons": 0x20}
    nvml(FakeNvml(**known))
    assert device.read_clocks(GPU).reasons == ("thermal slowdown",)


def test_a_part_of_a_gpu_has_the_clocks_of_the_whole(nvml: Any) -> None:
    known = {
        **H200,
        "nvmlDeviceGetHandleByUUID": {"MIG-1234": "a part"}.get,
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": {"a part": "the H200"}.get,
    }
    nvml(FakeNvml(**known))
    assert device.read_clocks(GPU).sm_mhz == 1965


def test_without_nvml_clocks_are_unknown_with_a_reason(nvml: Any) -> None:
    nvml(None, "pynvml is not installed: pip install nvidia-ml-py")
    assert device.read_clocks(GPU) == Clocks()
    assert device.highest_clocks(GPU) == {}
    assert "pip install nvidia-ml-py" in device.nvml_missing()


def test_a_missing_package_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found, why = device._nvml.__wrapped__()
    assert found is None
    assert why == "pynvml is not installed: pip install nvidia-ml-py"


def test_the_cpu_has_no_clocks(nvml: Any) -> None:
    nvml(FakeNvml(**H200))
    assert device.read_clocks(torch.device("cpu")) == Clocks()


def test_heat_and_hardware_drop_samples_and_the_power_cap_does_not() -> None:
    assert {
        "hardware slowdown",
        "thermal slowdown",
        "hardware thermal slowdown",
        "power brake",
    } == device.DROPPING


def test_reasons_are_nvmls() -> None:
    pynvml = pytest.importorskip("pynvml")
    known = {bit for name, bit in vars(pynvml).items() if name.startswith("nvmlClocksThrottleReason") and bit}
    known -= {pynvml.nvmlClocksThrottleReasonAll}
    assert known <= set(device.REASONS.values())
    assert len(set(device.REASONS.values())) == len(device.REASONS)
