"""Where torch keeps what native code must see: found on known tensors, never assumed.

A tensor's dispatch keys and a thread's dispatch state have no C functions. They are found by
their values: `torch._C._dispatch_keys` gives the keys, and the memory of tensors of many kinds is
searched for the one place that holds them in each. Where anything is not as expected, there is no
layout, and launches and calls take the road through Python.

Source: c10/core/TensorImpl.h, c10/core/impl/LocalDispatchKeySet.h,
torch/csrc/autograd/python_variable.h, torch/csrc/inductor/aoti_torch/c/shim.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

TLS_SYMBOL = "_ZN3c104impl26raw_local_dispatch_key_setE"

# What native code calls it, and the symbol.
SYMBOLS = (
    ("function_mode", "_ZN2at4impl27torch_function_mode_enabledEv"),
    ("has_callbacks", "_ZN2at12hasCallbacksEv"),
    ("global_context", "_ZN2at13globalContextEv"),
    ("deterministic", "_ZNK2at7Context23deterministicAlgorithmsEv"),
    ("grad_mode", "aoti_torch_grad_mode_is_enabled"),
    ("data_ptr", "aoti_torch_get_data_ptr"),
    ("sizes", "aoti_torch_get_sizes"),
    ("strides", "aoti_torch_get_strides"),
    ("dim", "aoti_torch_get_dim"),
    ("numel", "aoti_torch_get_numel"),
    ("offset", "aoti_torch_get_storage_offset"),
    ("dtype", "aoti_torch_get_dtype"),
    ("device_type", "aoti_torch_get_device_type"),
    ("device_index", "aoti_torch_get_device_index"),
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

OTHER_DTYPES = (torch.complex64, torch.complex128)

_WORD = 8
_IMPL_PLACES = (16, 24, 32)  # after a PyObject's head, with or without a flag and its padding
_IMPL_WORDS = 26  # a TensorImpl is no smaller on 64-bit machines


Result = TypeVar("Result")


class NoLayout(Exception):
    """torch is not laid out as any version that is known; says what was looked for."""


def symbols(library: ctypes.CDLL, names: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The addresses of functions.

    Raises:
        NoLayout: One is not there.
    """
    found = {}
    for name, symbol in names:
        try:
            found[name] = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
        except AttributeError as error:
            raise NoLayout(f"torch has no {symbol}") from error
    return found


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _keys(tensor: Tensor) -> int:
    return int(torch._C._dispatch_keys(tensor).raw_repr())


def _impl_place(tensors: Iterable[Tensor]) -> int:
    """Where in its Python object a tensor's TensorImpl is pointed to."""
    places = [p for p in _IMPL_PLACES if all(_word(id(t) + p) == t._cdata for t in tensors)]
    if len(places) != 1:
        raise NoLayout("a tensor's Python object does not hold its TensorImpl where it is known to")
    return places[0]


def _kinds_of_tensor() -> list[Tensor]:
    """Tensors whose dispatch keys differ."""
    with torch.inference_mode():
        inference = torch.empty(2)
    plain = torch.empty(2)
    complex_ = torch.empty(2, dtype=torch.complex64)
    meta = torch.empty(2, device="meta")
    return [
        plain,
        torch.empty(2, requires_grad=True),
        inference,
        complex_.conj(),
        complex_.conj().imag,
        meta,
    ]


def _place_of(what: str, tensors: Sequence[Tensor], wanted: Callable[[Tensor], int]) -> int:
    """The one place in a TensorImpl that holds a word in each of some tensors."""
    found = [
        place
        for place in range(0, _IMPL_WORDS * _WORD, _WORD)
        if all(_word(t._cdata + place) == wanted(t) for t in tensors)
    ]
    if len(found) != 1:
        raise NoLayout(f"a tensor's {what} found in {len(found)} places")
    return found[0]


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _autograd_place() -> int:
    """Where a tensor points to what autograd knows of it: null until it is asked to know something."""
    places = None
    for _ in range(3):
        tensor = torch.empty(2)
        before = [_word(tensor._cdata + i * _WORD) for i in range(_IMPL_WORDS)]
        tensor.requires_grad_()
        after = [_word(tensor._cdata + i * _WORD) for i in range(_IMPL_WORDS)]
        changed = {i * _WORD for i in range(_IMPL_WORDS) if before[i] == 0 and after[i] != 0}
        places = changed if places is None else places & changed
    if places is None or len(places) != 1:
        raise NoLayout("a tensor's autograd data is not found in one place")
    return places.pop()


def _state(read: Callable[[], tuple[int, int] | None]) -> dict[str, list[int]]:
    """The dispatch state of a thread at rest, and what inference mode, autograd and autocast change of it.

    Raises:
        NoLayout: The state does not change where it must.
    """
    rest = read()
    with torch.inference_mode():
        inference = read()
    with torch._C._AutoDispatchBelowAutograd():
        below = read()
    cast = _under_autocast(read)
    with _Watching():  # type: ignore[no-untyped-call]
        watched = read()
    if rest is None or inference is None or below is None or cast is None or watched is None:
        raise NoLayout("a thread's dispatch state cannot be read")
    inference_included, autograd = rest[0] ^ inference[0], below[1] & ~rest[1]
    changes = inference_included and autograd and below[0] == rest[0] and inference[1] & autograd == autograd
    if not changes or rest != read():
        raise NoLayout("a thread's dispatch state does not show inference mode, or what is below autograd")
    if not (watched[0] ^ rest[0]) & ~inference_included:
        raise NoLayout("a thread's dispatch state does not show a dispatch mode")
    return {
        "rest": [*rest],
        "inference_included": [inference_included],
        "autograd_excluded": [autograd],
        "autocast": [rest[0] ^ cast[0], rest[1] ^ cast[1]],
    }


def _under_autocast(read: Callable[[], tuple[int, int] | None]) -> tuple[int, int] | None:
    before = [(device, torch.is_autocast_enabled(device)) for device in ("cpu", "cuda")]
    try:
        for device, _ in before:
            torch.set_autocast_enabled(device, True)
        return read()
    finally:
        for device, enabled in before:
            torch.set_autocast_enabled(device, enabled)


class _Watching(TorchDispatchMode):
    """Any dispatch mode."""


def in_a_calm_thread(look: Callable[[], Result]) -> Result:
    """Look at torch from a new thread: modes, and what a dispatcher at work excludes, belong to threads.

    Raises:
        Exception: What `look` raises.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(look).result()


def plain_keys(device: torch.device) -> dict[str, list[int]]:
    """The dispatch keys of an ordinary tensor of a device, and of one made in inference mode."""
    ordinary = torch.empty(0, device=device)  # takes no memory, so that a graph that is captured sees nothing
    with torch.inference_mode():
        inference = torch.empty(0, device=device)
    return {"plain_keys": [_keys(ordinary)], "inference_keys": [_keys(inference)]}


def locate(read_state: Callable[[], tuple[int, int] | None]) -> dict[str, Any]:
    """What native code must know of this process's torch, whatever the device. Asked in a calm thread.

    Args:
        read_state: Gives the included and excluded dispatch keys of this thread, once `library` and
            `tls_symbol` are known.

    Raises:
        NoLayout: Something is not where it is known to be.
    """
    kinds = _kinds_of_tensor()
    return {
        "impl": _impl_place(kinds),
        "key_set": _place_of("dispatch keys are", kinds, _keys),
        "storage": _place_of("storage is", kinds, _storage),
        "autograd_meta": _autograd_place(),
        **_state(read_state),
    }


def allocator(device: str) -> Any:
    """What allocates for TorchInductor's own code: (sizes, strides, dtype) on the current device.

    Raises:
        NoLayout: torch has none.
    """
    found = getattr(torch._C._dynamo.guards, f"_empty_strided_{device}", None)
    if found is None:
        raise NoLayout(f"torch has no _empty_strided_{device}")
    return found


def cuda_symbols() -> dict[str, int]:
    """The addresses of what launches, and of what tells torch's current stream.

    Raises:
        NoLayout: One is not there.
    """
    torch_library = ctypes.CDLL(torch._C.__file__)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoLayout(f"the driver cannot be loaded: {error}") from error
    return symbols(torch_library, _CUDA_SYMBOLS) | symbols(driver, _DRIVER_SYMBOLS)


def dtype_codes(library: ctypes.CDLL, place: int, dtypes: Iterable[torch.dtype]) -> dict[object, int]:
    """torch's own numbers of dtypes."""
    codes: dict[object, int] = {}
    for dtype in dtypes:
        tensor, code = torch.empty(0, dtype=dtype), ctypes.c_int32()
        library.aoti_torch_get_dtype(ctypes.c_void_p(id(tensor) + place), ctypes.byref(code))
        codes[dtype] = code.value
    return codes
