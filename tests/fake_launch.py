"""A driver for native calls on CPU tensors: a launch computes `out = a + alpha * b` on the host.

It stands where `cuLaunchKernelEx` stands, and gets the same configuration and parameter pointers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recorded_calls import configured

Dim = ctypes.c_uint * 3


class Config(ctypes.Structure):
    _fields_ = [
        ("grid", Dim),
        ("block", Dim),
        ("smem_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]


LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(Config),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


@dataclass
class Driver:
    """What was launched, and the status that a launch gives."""

    grids: list[tuple[int, ...]] = field(default_factory=list)
    status: int = 0

    @property
    def launches(self) -> int:
        return len(self.grids)


def _floats(pointer: Any, count: int) -> Any:
    address = ctypes.c_void_p.from_address(pointer).value
    return np.frombuffer((ctypes.c_float * count).from_address(address or 0), dtype=np.float32)


@contextmanager
def fake_launch() -> Iterator[Driver]:
    """Let native code take calls on CPU tensors, and launch `scale_add(a, b, alpha, out, n)` here."""
    driver = Driver()

    @LAUNCH
    def launch(config: Any, function: Any, parameters: Any, extra: Any) -> int:
        driver.grids.append(tuple(config.contents.grid))
        if driver.status:
            return driver.status
        n = ctypes.c_longlong.from_address(parameters[4]).value
        a, b, out = (_floats(parameters[i], n) for i in (0, 1, 3))
        out[:] = a + np.float32(ctypes.c_float.from_address(parameters[2]).value) * b
        return 0

    with configured(functions={"launch": launch}):
        yield driver
