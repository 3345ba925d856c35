"""What a replay asks of torch and of CUDA's driver, by type of device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dotcu.replay import layout
from dotcu.replay.layout import NoLayout
from dotcu.replay.portable import calm


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The functions that a replay calls.

    Attributes:
        allocate: Memory of sizes, strides and a dtype, on the current device.
        stream: torch's current stream of a device.
        context: Writes this thread's CUcontext to an array of one integer; gives a status.
        launch: cuLaunchKernelEx. Other threads run meanwhile: a full queue waits for work that may
            need them.
    """

    allocate: Callable[..., torch.Tensor]
    stream: Callable[[int], int] = lambda index: 0
    context: Callable[[Any], int] = lambda cell: 0
    launch: Callable[..., int]


drivers: dict[str, Driver] = {}
"""Those of the types of device that `prepare` found usable."""

_reasons: dict[str, str] = {}


def prepare(device: torch.device) -> str:
    """Let plans take calls on tensors of a device's type. Asked for again, it does nothing.

    Returns:
        Why they cannot; empty where they can.
    """
    if device.type not in _reasons:
        _reasons[device.type] = _find(device)
    return _reasons[device.type]


def _find(device: torch.device) -> str:
    try:
        found = _cuda() if device.type == "cuda" else _none(device.type)
    except NoLayout as error:
        return str(error)
    calm.plain_keys(device)  # before the driver is known, so that wherever there is one there are keys
    drivers[device.type] = found
    return ""


def _cuda() -> Driver:
    try:
        quick, waiting = ctypes.PyDLL("libcuda.so.1"), ctypes.CDLL("libcuda.so.1")
        return Driver(
            allocate=layout.allocator("cuda"),
            stream=torch._C._cuda_getCurrentRawStream,
            context=quick.cuCtxGetCurrent,
            launch=waiting.cuLaunchKernelEx,
        )
    except (OSError, AttributeError) as error:
        raise NoLayout(f"the driver cannot be used: {error}") from error


def _none(device: str) -> Driver:
    """For tensors that no kernel of the driver's can reach: a plan for them can only allocate."""
    return Driver(allocate=layout.allocator(device), launch=lambda *launch: CUDA_ERROR_NO_DEVICE)


# CUresult, in cuda.h.
CUDA_ERROR_NO_DEVICE = 100
WRONG_CONTEXT = (201, 400)
"""What the driver answers where no context is current, or one that a function is not of."""
