"""The native part: launches that are staged, and calls that are replayed, without Python in between.

It is one library for every Python, torch and CUDA (`dotcu/_native.abi3.so`), and it may be missing:
a wheel for another platform, or an installation from source without a C compiler. Then, and where
torch is not laid out as it is known to be, launches and calls take the same road in Python.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from dotcu import settings
from dotcu.compile import torch_build
from dotcu.kernel import context, layout, ranges, recent
from dotcu.kernel.elements import ELEMENTS
from dotcu.kernel.forked import forked_with_cuda
from dotcu.kernel.layout import NoLayout
from dotcu.kernel.locks import ForkSafeLock

_DEVICE_TYPES: dict[object, int] = {"cpu": 0, "cuda": 1}  # c10/core/DeviceType.h


@functools.cache
def library() -> Any:
    """The library, or why there is none."""
    try:
        from dotcu import _native
    except ImportError as error:
        return f"dotcu's native part is not there: {error}"
    return _native


def missing() -> str:
    """Return why native code cannot be used; empty where it can."""
    if not settings.current().native:
        return "DOTCU_NATIVE=0: the native part is not used"
    reason = torch_build.untried(torch.__version__)
    if reason:
        return f"dotcu's native part is not used: {reason}"
    found = library()
    return found if isinstance(found, str) else _found().reason


class _Found:
    """The addresses and places that were found in torch, or why not."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.codes: dict[object, int] = {**_DEVICE_TYPES}
        self.reason = ""
        try:
            layout.in_a_calm_thread(self._look)
        except NoLayout as error:
            self.reason = f"{error} (torch {torch.__version__})"

    def _look(self) -> None:
        from dotcu.kernel.arguments import Strided
        from dotcu.kernel.tensor_maps import TensorMap

        found, torch_library = library(), ctypes.CDLL(torch._C.__file__)
        self.values.update(layout.symbols(torch_library, layout.SYMBOLS))
        self.values |= {"library": torch_library._handle, "tls_symbol": layout.TLS_SYMBOL}
        found.configure(self.values)
        self.values |= layout.locate(found.tls_words)
        dtypes = {dtype for element in ELEMENTS.values() for dtype in element.dtypes} | set(
            layout.OTHER_DTYPES
        )
        self.codes |= layout.dtype_codes(torch_library, self.values["impl"], dtypes)
        self.values |= {
            "tensor_type": torch.Tensor,
            "parameter_type": torch.nn.Parameter,
            "dtype_type": torch.dtype,
            "device_class": torch.device,
            "whole_number_type": np.integer,
            "strided_type": Strided,
            "map_type": TensorMap,
            "forward_ad": vars(forward_ad),
            "fault": torch.AcceleratorError,
            "scope": context.current,
            "enter_scope": context.scope.set,
            "leave_scope": context.scope.reset,
            "outside": context.OUTSIDE,
            "in_body": context.Place.BODY,
        }


@functools.cache
def _found() -> _Found:
    return _Found()


_prepared: dict[str, str] = {}
_lock = ForkSafeLock()


def prepare(device: torch.device) -> str:
    """Let native code take launches and calls on tensors of a device's type. Asked again, it does nothing.

    Returns:
        Why it cannot; empty where it can.
    """
    if device.type not in _prepared:
        with _lock:
            if missing():
                return missing()
            if device.type not in _prepared:
                try:
                    _prepared[device.type] = _configure(device)
                except RuntimeError as error:  # the interpreter ends: there are no new threads
                    return f"dotcu's native part cannot be prepared: {error}"
    return missing() or _prepared[device.type]


def _configure(device: torch.device) -> str:
    values = dict(_found().values)
    try:
        values |= layout.in_a_calm_thread(lambda: layout.plain_keys(device))
        values["allocate"] = layout.allocator(device.type)
        if device.type == "cuda":
            values |= layout.cuda_symbols()
    except NoLayout as error:
        return str(error)
    library().configure(values)
    recent.note_by(library())
    _hold()
    return ""


def is_ready(device_type: str) -> bool:
    """Return whether native code takes launches and calls on tensors of a device's type already."""
    return _prepared.get(device_type) == "" and settings.current().native


def code(value: object) -> int:
    """torch's number of a dtype or of a device's type."""
    return _found().codes[value]


def codes() -> dict[object, int]:
    """torch's numbers of dtypes and of devices' types."""
    return _found().codes


def launcher(
    parameters: bytes, packs: tuple[Callable[..., bytes], ...], size: int, on_failure: Callable[..., None]
) -> Any:
    """Make what keeps the stages of one kernel.

    Raises:
        ValueError: Its parameters are more than native code takes.
    """
    return library().Launcher(parameters, packs, size, on_failure)


@functools.cache
def _hold() -> None:
    """Let Python see every call and launch while a block asks for that, the settings, or a profiler."""
    hold = library().hold
    settings.watch(_follow_settings)
    context.held.change(_must_see(settings.current()))
    library().replay(settings.current().replay)
    context.held.follow(hold)
    os.register_at_fork(after_in_child=lambda: hold(1) if forked_with_cuda() else None)


def _follow_settings(before: settings.Settings, after: settings.Settings) -> None:
    context.held.change(_must_see(after) - _must_see(before))
    library().replay(after.replay)


def _must_see(now: settings.Settings) -> bool:
    return now.launch_blocking or now.check_replay or not now.native or ranges.attached()
