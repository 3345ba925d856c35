"""The state of a GPU before and after a block: clocks, temperature, power, reasons for low clocks.

NVML tells it, through `pynvml` of the package nvidia-ml-py. Where one of them is missing, nothing is told
and nothing fails: `why_not()` says why.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dotcu.benchmark.measured import Clocks


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why clocks are lower than they could be.

    Attributes:
        bit: In what NVML gives.
        drops: Whether a sample taken under it is dropped.
        meaning: In words.
    """

    bit: int
    name: str
    drops: bool
    meaning: str


REASONS: tuple[Reason, ...] = (
    Reason(bit=0x1, name="idle", drops=False, meaning="nothing runs on the GPU"),
    Reason(bit=0x2, name="application clocks", drops=False, meaning="a user has set the clocks"),
    # The steady state of a GPU that is busy with matrices: its figures are right, and others get them too.
    Reason(bit=0x4, name="power cap", drops=False, meaning="it draws as much power as it may"),
    Reason(bit=0x8, name="hardware slowdown", drops=True, meaning="hardware halves the clocks or worse"),
    Reason(bit=0x10, name="sync boost", drops=False, meaning="it follows other GPUs of its group"),
    Reason(bit=0x20, name="thermal slowdown", drops=True, meaning="the driver lowers clocks: too hot"),
    Reason(bit=0x40, name="hardware thermal slowdown", drops=True, meaning="hardware lowers clocks: too hot"),
    Reason(bit=0x80, name="power brake", drops=True, meaning="the power supply asks for less"),
    Reason(bit=0x100, name="display clocks", drops=False, meaning="a display sets the clocks"),
    Reason(bit=0x200, name="board limit", drops=False, meaning="the board allows no more"),
    Reason(bit=0x400, name="reliability", drops=False, meaning="the voltage allows no more"),
)
"""Source: nvml.h, nvmlClocksEventReasons (nvmlClocksThrottleReasons, before driver 535)."""


def read(device: torch.device) -> Clocks:
    """The state of a GPU now, without waiting for it; empty where NVML does not tell. Takes some 5 ms."""
    nvml, _ = _nvml()
    handle = _handle(nvml, device)
    if handle is None:
        return Clocks()
    milliwatts = _ask(nvml, "nvmlDeviceGetPowerUsage", handle)
    return Clocks(
        sm_mhz=_ask(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
        memory_mhz=_ask(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM),
        temperature_c=_ask(nvml, "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
        power_w=None if milliwatts is None else milliwatts / 1e3,
        reasons=_reasons(nvml, handle),
    )


def highest(device: torch.device) -> Mapping[str, int]:
    """The highest clocks of a GPU in MHz: "sm" and "memory"; without those that NVML does not tell."""
    nvml, _ = _nvml()
    handle = _handle(nvml, device)
    if handle is None:
        return {}
    kinds = {"sm": nvml.NVML_CLOCK_SM, "memory": nvml.NVML_CLOCK_MEM}
    asked = {name: _ask(nvml, "nvmlDeviceGetMaxClockInfo", handle, kind) for name, kind in kinds.items()}
    return {name: mhz for name, mhz in asked.items() if mhz is not None}


def driver() -> str:
    """The version of the GPUs' driver; empty where NVML does not tell."""
    nvml, _ = _nvml()
    return "" if nvml is None else str(_ask(nvml, "nvmlSystemGetDriverVersion") or "")


def why_not() -> str:
    """Why nothing is told of any GPU, with what to do; empty where NVML is there."""
    return _nvml()[1]


@functools.cache
def _nvml() -> tuple[Any, str]:
    """NVML, and why it is not there."""
    try:
        import pynvml
    except ImportError:
        return None, "pynvml is not installed: pip install nvidia-ml-py"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, f"NVML does not start: {error}"
    return pynvml, ""


def _handle(nvml: Any, device: torch.device) -> Any:
    """NVML's handle of a GPU that torch knows; None where there is none."""
    if nvml is None or device.type != "cuda":
        return None
    index: int | None = device.index
    return _handle_of(nvml, torch.cuda.current_device() if index is None else index)


@functools.cache
def _handle_of(nvml: Any, index: int) -> Any:
    uuid = str(torch.cuda.get_device_properties(index).uuid)
    handle = _ask(nvml, "nvmlDeviceGetHandleByUUID", f"GPU-{uuid}")
    if handle is None:  # a part of a GPU has no clocks of its own: those of the whole one
        part = _ask(nvml, "nvmlDeviceGetHandleByUUID", f"MIG-{uuid}")
        handle = part and _ask(nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", part)
    return handle


def _reasons(nvml: Any, handle: Any) -> tuple[str, ...]:
    bits = _ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if bits is None:
        bits = _ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
    return tuple(reason.name for reason in REASONS if bits & reason.bit)


def _ask(nvml: Any, function: str, *args: Any) -> Any:
    """What NVML answers; None where it does not know, or is too old to be asked."""
    try:
        return getattr(nvml, function)(*args)
    except (nvml.NVMLError, AttributeError):
        return None
