"""Whether anything watches or transforms calls: what torch's functions tell of a thread and a tensor.

The dispatcher looks at sets of keys: those that a thread includes and excludes, and those of the
tensors. A call is an ordinary one where they are those of a fresh thread and of plain tensors.

A thread's included keys say almost all. Dispatch modes, functorch's transforms, functionalization,
traces and snapshots of them each include a key; inference mode takes one away. What changes the
excluded keys alone is seen where it matters:

    autocast            its keys are excluded until it is on: asked for, where the operator has a rule
    below autograd      matters where a call is to be recorded, or no plan fits: asked for then
    below ADInplaceOrView   matters to a call that writes its arguments: asked for by its plans
    Python              a dispatch mode that is excluded is not called, and a plain tensor has no such key

Excluding the tensors' own backend leaves the dispatcher nothing to call, so nobody does. What does
not go by keys at all is asked for by itself: function modes, the profiler's callbacks, deterministic
mode, and forward-mode differentiation, whose dual tensors have plain keys.

Sets of keys are numbers here. They are read where `layout` finds that torch keeps them, and asked of
torch where it does not: torch makes an object of each set, which takes three times as long.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch._C import DispatchKey

from dotcu.replay import layout
from dotcu.replay.layout import NoLayout, in_a_calm_thread

function_mode: Callable[[], bool] = torch._C._is_torch_function_mode_enabled
deterministic: Callable[[], bool] = torch._C._get_deterministic_algorithms
excluded: Callable[[Any], bool] = torch._C._dispatch_tls_is_dispatch_key_excluded
autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled

COUNTING = DispatchKey.ADInplaceOrView
"""Where torch counts the writes of a call."""


def _callbacks() -> Callable[[], bool]:
    """Whether anything wants to know of calls: any profiler, or an observer of its own."""
    try:
        function = ctypes.PyDLL(torch._C.__file__)._ZN2at12hasCallbacksEv
    except (OSError, AttributeError):  # not a library of this ABI: then what Python can ask
        return torch.autograd._profiler_enabled  # type: ignore[attr-defined]
    function.restype = ctypes.c_bool
    return function


callbacks = _callbacks()


class Calm(NamedTuple):
    """Sets of keys while nothing watches, out of inference mode and in it."""

    usual: int
    inference: int

    def has(self, keys: int) -> bool:
        return keys == self.usual or keys == self.inference


def _both(find: Callable[[], int]) -> Calm:
    usual = find()
    with torch.inference_mode():
        return Calm(usual, find())


class _Asked(Sequence[int]):
    """What this thread includes, as torch tells it."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        return int(torch._C._dispatch_tls_local_include_set().raw_repr())


def _stored() -> Sequence[int]:
    """What this thread includes, as torch stores it: with a mask, and in another place on each thread."""
    words: Any = ctypes.c_uint64 * 2
    found: Sequence[int] = words.in_dll(ctypes.CDLL(torch._C.__file__), layout.TLS_SYMBOL)
    return found


@functools.cache
def _is_stored() -> bool:
    """Whether what is stored changes as what torch tells does."""

    def both(words: Sequence[int]) -> Calm:
        return _both(lambda: words[0])

    try:
        stored, asked = in_a_calm_thread(lambda: (both(_stored()), both(_Asked())))
    except (OSError, ValueError):  # no such library or symbol
        return False
    return stored.usual ^ stored.inference == asked.usual ^ asked.inference != 0


class Thread(threading.local):
    """A thread's dispatch state.

    Attributes:
        words: At 0, the keys that this thread includes, at any time.
    """

    def __init__(self) -> None:
        self.words = _stored() if _is_stored() else _Asked()


thread = Thread()


@functools.cache
def thread_keys() -> Calm:
    """What a thread includes."""
    return in_a_calm_thread(lambda: _both(lambda: thread.words[0]))


WORDS = (ctypes.c_uint64 * 2**44).from_address(0)
"""Every word of this process, by its address divided by 8."""


@functools.cache
def _place() -> int:
    """Where a tensor's keys are, in words from its TensorImpl; 0 where that is not known."""
    try:
        return in_a_calm_thread(layout.key_set_place) // 8
    except NoLayout:
        return 0


def keys_of(tensor: torch.Tensor) -> int:
    """A tensor's keys, as torch tells them."""
    return int(torch._C._dispatch_keys(tensor).raw_repr())


def keys_text(name: str) -> str:
    """An expression for the keys of a tensor of a name, in terms of `keys_of` and `WORDS`."""
    return f"WORDS[({name}._cdata >> 3) + {_place()}]" if _place() else f"KEYS({name})"


_plain: dict[str, Calm] = {}


def plain_keys(device: torch.device) -> Calm:
    """The keys of an ordinary tensor of a device's type, and of one made in inference mode."""
    if device.type not in _plain:
        _plain[device.type] = in_a_calm_thread(lambda: _both(lambda: keys_of(torch.empty(0, device=device))))
    return _plain[device.type]


def is_only(device: torch.device) -> bool:
    """Whether a device is this process's one GPU, which all its CUDA tensors are then on."""
    return device.type == "cuda" and not device.index and torch.cuda.device_count() == 1


def below_autograd() -> bool:
    """Whether autograd has had its turn at this call, or is turned off by more than a mode."""
    return excluded(DispatchKey.AutogradFunctionality) and not torch.is_inference_mode_enabled()


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is an ordinary one of a device type that `plain_keys` was asked for."""
    return any(plain.has(keys_of(tensor)) for plain in _plain.values())
