"""The native part: launches that are staged, and calls that are replayed, without Python in between.

It is one library for every Python, torch and CUDA (`dotcu/_native.abi3.so`), and it may be missing: a wheel
for another platform, or an installation from source without a C compiler. It also needs two things that
torch has no C functions for: a tensor's dispatch keys and a thread's dispatch state. They are never assumed
to be anywhere: `torch._C._dispatch_keys` gives the keys, and the memory of tensors of many kinds is
searched for the one offset that holds them in each. Where anything is missing or unexpected, launches and
calls go through Python.

Source: c10/core/TensorImpl.h, c10/core/impl/LocalDispatchKeySet.h, torch/csrc/autograd/python_variable.h,
torch/csrc/inductor/aoti_torch/c/shim.h.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import BaseTorchDispatchMode

from dotcu import settings
from dotcu.compile import toolchain
from dotcu.errors import ToolchainError
from dotcu.kernel.arguments.pack import Extents, Strided
from dotcu.kernel.arguments.tensor_map import TensorMap
from dotcu.kernel.arguments.values import ELEMENTS
from dotcu.kernel.driver import cuda
from dotcu.kernel.driver.errors import use_native_record
from dotcu.kernel.driver.fork import ForkSafeLock, forked_with_cuda
from dotcu.kernel.scope import (
    OUTSIDE,
    LaunchPolicy,
    change_observers,
    current_scope,
    scope_variable,
    watch_observers,
)

Result = TypeVar("Result")

_TLS_SYMBOL = "_ZN3c104impl26raw_local_dispatch_key_setE"

_OF_TENSORS = ("data_ptr", "sizes", "strides", "dim", "numel", "dtype", "device_type", "device_index")
# The name in native code, and the symbol.
_TORCH_SYMBOLS = (
    ("function_mode", "_ZN2at4impl27torch_function_mode_enabledEv"),
    ("has_callbacks", "_ZN2at12hasCallbacksEv"),
    ("global_context", "_ZN2at13globalContextEv"),
    ("deterministic", "_ZNK2at7Context23deterministicAlgorithmsEv"),
    ("grad_mode", "aoti_torch_grad_mode_is_enabled"),
    *((name, f"aoti_torch_get_{name}") for name in _OF_TENSORS),
    ("offset", "aoti_torch_get_storage_offset"),
    ("is_contiguous", "aoti_torch_is_contiguous"),
    ("zero", "aoti_torch_zero_"),
    ("bump_version", "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE"),
)
_CUDA_SYMBOLS = (
    ("stream", "aoti_torch_get_current_cuda_stream"),
    ("enter_device", "aoti_torch_create_cuda_guard"),
    ("leave_device", "aoti_torch_delete_cuda_guard"),
)
_DRIVER_SYMBOLS = (
    ("context", "cuCtxGetCurrent"),
    ("enter", "cuCtxPushCurrent_v2"),
    ("leave", "cuCtxPopCurrent_v2"),
    ("launch", "cuLaunchKernelEx"),
)
_MAP_SYMBOLS = (("encode", "cuTensorMapEncodeTiled"),)
"""Missing from drivers before CUDA 12.0."""


_OBJECT_OFFSETS = (16, 24, 32)  # after a PyObject's head, with or without a flag and its padding
_IMPL_OFFSETS = range(0, 26 * 8, 8)  # a TensorImpl has at least this size on 64-bit machines


@functools.cache
def library() -> Any:
    """Return the library, or why there is none."""
    try:
        from dotcu import _native
    except ImportError as error:
        return f"dotcu's native part is missing: {error}"
    return _native


def missing() -> str:
    """Return why native code cannot be used; empty if it can."""
    if not settings.current().native:
        return "DOTCU_NATIVE=0: the native part is not used"
    reason = toolchain.untested_torch(torch.__version__)
    if reason:
        return f"dotcu's native part is not used: {reason}"
    for needed in (library, torch_layout):
        if isinstance(needed(), str):
            return str(needed())
    return ""


_prepared: dict[str, str] = {}
_lock = ForkSafeLock()


def prepare(device: torch.device) -> str:
    """Let native code take launches and calls on tensors of a device's type; repeated, it does nothing.

    Returns:
        Why it cannot; empty if it can.
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
    values = dict(torch_layout())
    try:
        values |= in_new_thread(lambda: plain_keys(device))
        values["allocate"] = allocator(device.type)
        if device.type == "cuda":
            values |= cuda_symbols()
    except ToolchainError as error:
        return str(error)
    library().configure(values)
    use_native_record(library())
    follow_observers()
    return ""


def is_ready(device_type: str) -> bool:
    """Return whether native code takes launches and calls on tensors of a device's type already."""
    return _prepared.get(device_type) == "" and settings.current().native


@functools.cache
def follow_observers() -> None:
    """Let Python see every call and launch while a block, the settings or a profiler asks for that."""
    observe, replay = library().observe, library().replay

    def follow_settings(before: settings.Settings, after: settings.Settings) -> None:
        change_observers(_must_see(after) - _must_see(before))
        replay(after.replay)

    settings.watch(follow_settings)
    change_observers(_must_see(settings.current()))
    replay(settings.current().replay)
    watch_observers(observe)
    os.register_at_fork(after_in_child=lambda: observe(1) if forked_with_cuda() else None)


def _must_see(now: settings.Settings) -> bool:
    return now.launch_blocking or now.check_replay or not now.native or cuda.profiler_attached()


# The layout of this process's torch


@functools.cache
def torch_layout() -> Any:
    """Return the addresses and offsets that native code needs, by name; or a str, why there are none."""
    try:
        return in_new_thread(_search)
    except ToolchainError as error:
        return f"{error} (torch {torch.__version__})"


def _search() -> dict[str, Any]:
    torch_library = ctypes.CDLL(torch._C.__file__)
    values: dict[str, Any] = dict(symbols(torch_library, _TORCH_SYMBOLS))
    values |= {"library": torch_library._handle, "tls_symbol": _TLS_SYMBOL}
    library().configure(values)
    return {
        **values,
        **locate(library().dispatch_keys),
        "tensor_type": torch.Tensor,
        "parameter_type": torch.nn.Parameter,
        "dtype_type": torch.dtype,
        "device_class": torch.device,
        "integer_type": np.integer,
        "strided_type": Strided,
        "extents_type": Extents,
        "map_type": TensorMap,
        "forward_ad": vars(forward_ad),
        "fault": torch.AcceleratorError,
        "scope": current_scope,
        "enter_scope": scope_variable.set,
        "leave_scope": scope_variable.reset,
        "outside": OUTSIDE,
        "in_body": LaunchPolicy.BODY,
    }


@functools.cache
def codes() -> dict[object, int]:
    """Return torch's numbers of dtypes and of devices' types."""
    torch_library, offset = ctypes.CDLL(torch._C.__file__), torch_layout()["impl"]

    def code_of(dtype: torch.dtype) -> int:
        tensor, code = torch.empty(0, dtype=dtype), ctypes.c_int32()
        torch_library.aoti_torch_get_dtype(ctypes.c_void_p(id(tensor) + offset), ctypes.byref(code))
        return code.value

    dtypes = {dtype for element in ELEMENTS.values() for dtype in element.dtypes}
    dtypes |= {torch.complex64, torch.complex128}
    numbers: dict[Any, int] = in_new_thread(lambda: {dtype: code_of(dtype) for dtype in dtypes})
    return {"cpu": 0, "cuda": 1, **numbers}  # c10/core/DeviceType.h


def symbols(library: ctypes.CDLL, names: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the addresses of functions."""
    addresses = {}
    for name, symbol in names:
        try:
            addresses[name] = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
        except AttributeError as error:
            raise ToolchainError(f"torch has no {symbol}") from error
    return addresses


def word(address: int) -> int:
    """Return the eight bytes at an address."""
    return ctypes.c_uint64.from_address(address).value


def _keys(tensor: Tensor) -> int:
    return int(torch._C._dispatch_keys(tensor).raw_repr())


def _offset_of(what: str, tensors: Sequence[Tensor], wanted: Callable[[Tensor], int]) -> int:
    """Return the one offset in a TensorImpl that holds the wanted word in each of some tensors."""
    offsets = [o for o in _IMPL_OFFSETS if all(word(t._cdata + o) == wanted(t) for t in tensors)]
    if len(offsets) != 1:
        raise ToolchainError(f"a tensor's {what} found in {len(offsets)} places")
    return offsets[0]


def _autograd_offset() -> int:
    """Return the offset of a tensor's pointer to its autograd data, null until there is some."""
    offsets = set(_IMPL_OFFSETS)
    for _ in range(3):
        tensor = torch.empty(2)
        offsets = {offset for offset in offsets if word(tensor._cdata + offset) == 0}
        tensor.requires_grad_()
        offsets = {offset for offset in offsets if word(tensor._cdata + offset) != 0}
    if len(offsets) != 1:
        raise ToolchainError("a tensor's autograd data is not found in one place")
    return offsets.pop()


def _state(read: Callable[[], tuple[int, int] | None]) -> dict[str, list[int]]:
    """Return the dispatch state of a new thread, and the bits that modes, autograd and autocast change.

    Raises:
        ToolchainError: The state does not change where it must.
    """
    rest = read()
    with torch.inference_mode():
        inference = read()
    with torch._C._AutoDispatchBelowAutograd():
        below = read()
    for device in ("cpu", "cuda"):
        torch.set_autocast_enabled(device, True)
    cast = read()
    for device in ("cpu", "cuda"):
        torch.set_autocast_enabled(device, False)
    with BaseTorchDispatchMode():
        watched = read()
    if rest is None or inference is None or below is None or cast is None or watched is None:
        raise ToolchainError("a thread's dispatch state cannot be read")
    inference_included, autograd = rest[0] ^ inference[0], below[1] & ~rest[1]
    changes = inference_included and autograd and below[0] == rest[0] and inference[1] & autograd == autograd
    if not changes or rest != read():
        raise ToolchainError(
            "a thread's dispatch state does not show inference mode, or what is below autograd"
        )
    if not (watched[0] ^ rest[0]) & ~inference_included:
        raise ToolchainError("a thread's dispatch state does not show a dispatch mode")
    return {
        "rest": [*rest],
        "inference_included": [inference_included],
        "autograd_excluded": [autograd],
        "autocast": [rest[0] ^ cast[0], rest[1] ^ cast[1]],
    }


def in_new_thread(function: Callable[[], Result]) -> Result:
    """Run a function in a new thread: modes, and the keys that a dispatcher excludes, belong to threads."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(function).result()


def plain_keys(device: torch.device) -> dict[str, list[int]]:
    """Return the dispatch keys of an ordinary tensor of a device, and of one made in inference mode."""
    ordinary = torch.empty(0, device=device)  # takes no memory, so that a graph that is captured sees nothing
    with torch.inference_mode():
        inference = torch.empty(0, device=device)
    return {"plain_keys": [_keys(ordinary)], "inference_keys": [_keys(inference)]}


def locate(read_state: Callable[[], tuple[int, int] | None]) -> dict[str, Any]:
    """Return the offsets and dispatch keys of this process's torch. To be called in a new thread.

    Raises:
        ToolchainError: Something is at no known offset, or at several.
    """
    with torch.inference_mode():
        inference = torch.empty(2)
    conjugated = torch.empty(2, dtype=torch.complex64).conj()
    with_grad, on_meta = torch.empty(2, requires_grad=True), torch.empty(2, device="meta")
    kinds = [torch.empty(2), with_grad, inference, conjugated, conjugated.imag, on_meta]
    pointers = [o for o in _OBJECT_OFFSETS if all(word(id(t) + o) == t._cdata for t in kinds)]
    if len(pointers) != 1:
        raise ToolchainError("a tensor's Python object does not hold its TensorImpl where it is known to")
    return {
        "impl": pointers[0],
        "key_set": _offset_of("dispatch keys are", kinds, _keys),
        "storage": _offset_of("storage is", kinds, lambda tensor: tensor.untyped_storage()._cdata),
        "autograd_meta": _autograd_offset(),
        **_state(read_state),
    }


def allocator(device: str) -> Any:
    """Return the allocator of TorchInductor's own code: (sizes, strides, dtype) on the current device."""
    found = getattr(torch._C._dynamo.guards, f"_empty_strided_{device}", None)
    if found is None:
        raise ToolchainError(f"torch has no _empty_strided_{device}")
    return found


def cuda_symbols() -> dict[str, int]:
    """Return the addresses of functions that launch, and that give torch's current stream."""
    torch_library = ctypes.CDLL(torch._C.__file__)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise ToolchainError(f"the driver cannot be loaded: {error}") from error
    encodes = hasattr(driver, _MAP_SYMBOLS[0][1])
    names = (*_DRIVER_SYMBOLS, *(_MAP_SYMBOLS if encodes else ()))
    return symbols(torch_library, _CUDA_SYMBOLS) | symbols(driver, names)
