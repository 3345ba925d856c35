"""The native part: calls that are replayed without Python in between.

It is one library for every Python, torch and CUDA (`dotcu/_native.abi3.so`), and it may be missing:
a wheel for another platform, or an installation from source without a C compiler. Then, and where
torch is not as it is known to be, the portable path serves.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from dotcu.kernel import recent
from dotcu.kernel.elements import ELEMENTS
from dotcu.replay import layout
from dotcu.replay.arguments import Argument, Caller, Fallback, Plans, positional
from dotcu.replay.layout import NoLayout
from dotcu.replay.packed import pack
from dotcu.replay.plan import Plan

_DEVICE_TYPES: dict[object, int] = {"cpu": 0, "cuda": 1}  # c10/core/DeviceType.h


@functools.cache
def _library() -> Any:
    """The library, or why there is none."""
    try:
        from dotcu import _native
    except ImportError as error:
        return f"dotcu's native part is not there: {error}"
    return _native


def missing() -> str:
    """Why calls can take the portable path alone; empty where they need not."""
    library = _library()
    return library if isinstance(library, str) else _found().reason


def hold(by: int) -> None:
    """Count up or down who wants every call to take its ordinary path, on every thread."""
    library = _library()
    if not isinstance(library, str):
        library.hold(by)


class _Found:
    """What was found of torch, or why not."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.codes: dict[object, int] = {**_DEVICE_TYPES}
        self.reason = ""
        try:
            layout.in_a_calm_thread(self._look)
        except NoLayout as error:
            self.reason = f"{error} (torch {torch.__version__})"

    def _look(self) -> None:
        native, torch_library = _library(), ctypes.CDLL(torch._C.__file__)
        self.values.update(layout.symbols(torch_library, layout.SYMBOLS))
        self.values |= {"library": torch_library._handle, "tls_symbol": layout.TLS_SYMBOL}
        native.configure(self.values)
        self.values |= layout.locate(native.tls_words)
        dtypes = {dtype for element in ELEMENTS.values() for dtype in element.dtypes} | set(
            layout.OTHER_DTYPES
        )
        self.codes |= layout.dtype_codes(torch_library, self.values["impl"], dtypes)
        self.values |= {
            "tensor_type": torch.Tensor,
            "parameter_type": torch.nn.Parameter,
            "forward_ad": vars(forward_ad),
            "note": recent.note,
        }


@functools.cache
def _found() -> _Found:
    return _Found()


_prepared: dict[str, str] = {}


def prepare(device: torch.device) -> str:
    """Let native code take calls on tensors of a device's type. Asked for again, it does nothing.

    Returns:
        Why it cannot; empty where it can.
    """
    reason = missing()
    if not reason and device.type not in _prepared:
        _prepared[device.type] = _configure(device)
    return reason or _prepared[device.type]


def _configure(device: torch.device) -> str:
    values = dict(_found().values)
    try:
        values["plain_keys"] = layout.in_a_calm_thread(lambda: layout.plain_keys(device))
        values["allocate"] = layout.allocator(device.type)
        if device.type == "cuda":
            values |= layout.cuda_symbols()
    except NoLayout as error:
        return str(error)
    _library().configure(values)
    return ""


def plans(arguments: Sequence[Argument], caller: Caller) -> Plans:
    """Where the plans of an overload are kept."""
    made: Plans = _library().Plans(
        names=tuple(argument.name for argument in arguments),
        kinds=tuple(int(argument.kinds) for argument in arguments),
        floats=tuple(argument.makes_float for argument in arguments),
        defaults=tuple(argument.default for argument in arguments),
        positional=positional(arguments),
        on_miss=caller.miss,
        on_record=caller.record,
        on_stale=caller.stale,
        on_elsewhere=caller.elsewhere,
        on_failure=caller.failure,
        on_write=caller.write,
    )
    return made


def entry(plans: Sequence[Plans], fallback: Fallback, *, autocasts: bool) -> Fallback:
    """What calls an operator: by a plan where one fits, else as torch does.

    Args:
        plans: Those of each overload that the call chooses among.
        autocasts: Whether the operator has a rule for autocast, which only torch applies.
    """
    made: Fallback = _library().Entry(tuple(plans), fallback, autocasts)
    return made


def add(plans: Plans, plan: Plan, operator: str, context: int) -> bool:
    """Keep a plan of an operator, whose launches need a CUcontext; False where there are too many."""
    try:
        return plans.add(pack(plan, operator, _found().codes, context))
    except (ValueError, KeyError):
        return False
