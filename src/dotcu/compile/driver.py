"""libcuda, opened once: its version, its GPUs and its functions, found without a CUDA context."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path

from dotcu.errors import ToolchainError
from dotcu.files import read_text

# Source: CUDA driver API, CUdevice_attribute.
_MAJOR, _MINOR = 75, 76


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU that the driver knows."""

    index: int
    name: str
    capability: tuple[int, int]


_VERSION = Path("/sys/module/nvidia/version")


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def version() -> tuple[int, int] | None:
    """Return the CUDA version that the driver supports, None if there is no driver; starts nothing."""
    library, number = _library(), ctypes.c_int()
    if library is None or library.cuDriverGetVersion(ctypes.byref(number)) != 0:
        return None
    return number.value // 1000, number.value % 1000 // 10


@functools.cache
def function(symbol: str) -> int:
    """Return the address of one of the driver's functions.

    Raises:
        ToolchainError: There is no driver, or it lacks the function.
    """
    library = _library()
    if library is None:
        raise ToolchainError("the driver cannot be loaded: there is no libcuda.so.1")
    try:
        return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
    except AttributeError as error:
        raise ToolchainError(f"the driver has no {symbol}, which comes with CUDA 12.0") from error


def release() -> str:
    """Return the driver's own version, such as `580.95.05`; "" where the kernel module does not say it."""
    try:
        return read_text(_VERSION).strip()
    except OSError:
        return ""


def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that this process may use; initializes the driver, makes no context."""
    library, count = _library(), ctypes.c_int()
    if library is None or library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    known = []
    for index in range(count.value):
        device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        library.cuDeviceGet(ctypes.byref(device), index)
        library.cuDeviceGetName(name, len(name), device)
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
        library.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
        known.append(Gpu(index=index, name=name.value.decode(), capability=(major.value, minor.value)))
    return tuple(known)
