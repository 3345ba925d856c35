"""The native part: launches and operators' calls without Python in between.

It is one library for every Python, torch and CUDA (`dotcu/_native.abi3.so`). It looks at tensors by the C
exchange API of DLPack and calls the driver by the functions of cuda.h; both are versioned interfaces in C. It
may be missing: a wheel for another platform, or an installation from source without a C compiler. Then every
launch and call goes through Python, which does the same, and one warning says so.

Source: dlpack.h, version 1.3; cuda.h, CUDA 12.0.
"""

from __future__ import annotations

import functools
import os
import sysconfig
import warnings
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from dotcu import settings, torch_compat
from dotcu.compile import driver
from dotcu.errors import PerformanceWarning, ToolchainError
from dotcu.kernel import cuda
from dotcu.kernel.arguments.pack import Extents, Strided
from dotcu.kernel.arguments.tensor_map import TensorMap
from dotcu.kernel.faults import forked_with_cuda, use_native_record
from dotcu.kernel.launch_policy import (
    OUTSIDE,
    LaunchPolicy,
    change_observers,
    current_scope,
    scope_variable,
    watch_observers,
)
from dotcu.locks import ForkSafeLock

CUDA, CPU = 2, 1
"""DLPack's numbers of devices' types: kDLCUDA, kDLCPU."""

_DRIVER_SYMBOLS = (
    ("context", "cuCtxGetCurrent"),
    ("enter", "cuCtxPushCurrent_v2"),
    ("leave", "cuCtxPopCurrent_v2"),
    ("launch", "cuLaunchKernelEx"),
    ("move_map", "cuTensorMapReplaceAddress"),
)

_CODES = MappingProxyType({
    torch.int8: (0, 8), torch.int16: (0, 16), torch.int32: (0, 32), torch.int64: (0, 64),
    torch.uint8: (1, 8), torch.uint16: (1, 16), torch.uint32: (1, 32), torch.uint64: (1, 64),
    torch.float16: (2, 16), torch.float32: (2, 32), torch.float64: (2, 64), torch.bfloat16: (4, 16),
    torch.complex64: (5, 64), torch.complex128: (5, 128), torch.bool: (6, 8),
    torch.float8_e4m3fn: (10, 8), torch.float8_e5m2: (12, 8), torch.float8_e8m0fnu: (14, 8),
})  # fmt: skip
"""DLPack's code and bits of the dtypes that kernels take. Source: dlpack.h, DLDataTypeCode."""


def dtype_code(dtype: torch.dtype) -> int:
    """Return the number by which native code knows a dtype: a DLDataType of one lane in three bytes."""
    code, bits = _CODES[dtype]
    return code | bits << 8 | 1 << 16


@functools.cache
def missing() -> str:
    """Return why there is no library; empty if there is one."""
    try:
        import_module("dotcu._native")  # for tools, a statement would import dotcu's whole front
    except ImportError as error:
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            return "dotcu has no native part for a free-threaded Python"
        return (
            f"dotcu's native part is missing: {error}\n"
            "Install a wheel of dotcu, or a C compiler and then: pip install --force-reinstall dotcu"
        )
    return ""


@functools.cache
def library() -> Any:
    """Return the library; None if it is missing."""
    return None if missing() else import_module("dotcu._native")


_prepared: dict[int, str] = {}
_lock = ForkSafeLock()


def prepare(device_type: int = CUDA) -> str:
    """Let native code take launches and calls on tensors of a device's type; repeated, it does nothing.

    Returns:
        Why it cannot; empty if it can.
    """
    if not settings.current().native:
        return "DOTCU_NATIVE=0: the native part is not used"
    if device_type not in _prepared:
        with _lock:
            if device_type not in _prepared:
                _prepared[device_type] = _configure(device_type)
                if _prepared[device_type]:
                    _warn(_prepared[device_type])
    return _prepared[device_type]


def unusable() -> str:
    """Return why native code cannot be used with this torch; empty if it can. Asks no driver."""
    if not settings.current().native:
        return "DOTCU_NATIVE=0: the native part is not used"
    if reason := missing():
        return reason
    try:
        library().configure(torch_values(CUDA))
    except ImportError as error:
        return _unfit(error)
    return ""


def _unfit(error: Exception) -> str:
    return f"{error} (torch {torch.__version__}).\nUpgrade dotcu: pip install --upgrade dotcu"


def is_ready() -> bool:
    """Return whether native code takes launches and calls already."""
    return any(reason == "" for reason in _prepared.values()) and settings.current().native


def reason_for_python() -> str:
    """Return why launches and calls go through Python; empty if they do not, or if nothing was launched."""
    if not settings.current().native:
        return prepare()
    return next(filter(None, _prepared.values()), "")


def _warn(reason: str) -> None:
    warnings.warn(
        f"every launch and every call of an operator goes through Python, which takes longer.\n{reason}",
        PerformanceWarning,
        stacklevel=2,
    )


def _configure(device_type: int) -> str:
    if reason := missing():
        return reason
    try:
        library().configure(torch_values(device_type) | (driver_functions() if device_type == CUDA else {}))
    except (ImportError, ToolchainError) as error:
        return _unfit(error)
    use_native_record(library())
    follow_observers()
    return ""


def torch_values(device_type: int) -> dict[str, Any]:
    """Return what native code needs to know of torch, by name."""
    watching = (torch_compat.dispatch_modes, torch_compat.LEVEL_OF_DUAL_NUMBERS, torch_compat.profiling)
    # a trace above autograd has a mode for functions, too, which takes a third of the time to ask for
    tracing = (torch_compat.jit_trace, (torch_compat.function_modes, torch_compat.pre_dispatch))
    return {
        "exchange_api": getattr(torch.Tensor, "__dlpack_c_exchange_api__", None),
        "device_type": device_type,
        "tensor_type": torch.Tensor,
        "parameter_type": torch.nn.Parameter,
        "dtype_type": torch.dtype,
        "device_class": torch.device,
        "integer_type": np.integer,
        "strided_type": Strided,
        "extents_type": Extents,
        "map_type": TensorMap,
        "is_neg": torch.Tensor.is_neg,
        "is_conj": torch.Tensor.is_conj,
        "grad_enabled": torch.is_grad_enabled,
        "increment_version": torch_compat.increment_version,
        "watchers_of_bodies": (torch_compat.profiling,),
        "watchers_of_autograd": (*watching, torch_compat.transforms),
        "watchers_of_launches": (*watching, *tracing),
        "watchers_of_calls": (
            *watching, torch_compat.jit_trace, torch_compat.transforms, torch_compat.function_modes,
        ),
        "fault": torch.AcceleratorError,
        "scope": current_scope,
        "enter_scope": scope_variable.set,
        "leave_scope": scope_variable.reset,
        "outside": OUTSIDE,
        "in_body": LaunchPolicy.BODY,
    }  # fmt: skip


def driver_functions() -> dict[str, int]:
    """Return the addresses of the driver's functions, by their names in native code."""
    return {name: driver.function(symbol) for name, symbol in _DRIVER_SYMBOLS}


@functools.cache
def follow_observers() -> None:
    """Let Python see every call and launch while a block, the settings or a profiler asks for that."""
    observe = library().observe

    def follow_settings(before: settings.Settings, after: settings.Settings) -> None:
        change_observers(_must_see(after) - _must_see(before))

    settings.watch(follow_settings)
    change_observers(_must_see(settings.current()))
    watch_observers(observe)
    os.register_at_fork(after_in_child=lambda: observe(1) if forked_with_cuda() else None)


def _must_see(now: settings.Settings) -> bool:
    return now.launch_blocking or not now.native or cuda.profiler_attached()
