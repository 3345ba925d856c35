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
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch._C import DispatchKey

from dotcu.replay.layout import in_a_calm_thread

Keys = Any
"""A `torch._C.DispatchKeySet`."""

function_mode: Callable[[], bool] = torch._C._is_torch_function_mode_enabled
deterministic: Callable[[], bool] = torch._C._get_deterministic_algorithms
included: Callable[[], Keys] = torch._C._dispatch_tls_local_include_set
excluded: Callable[[Any], bool] = torch._C._dispatch_tls_is_dispatch_key_excluded
autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled
keys_of: Callable[[torch.Tensor], Keys] = torch._C._dispatch_keys

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

    usual: Keys
    inference: Keys

    def has(self, keys: Keys) -> bool:
        return bool(keys == self.usual or keys == self.inference)


def _both(find: Callable[[], Keys]) -> Calm:
    usual = find()
    with torch.inference_mode():
        return Calm(usual, find())


@functools.cache
def thread_keys() -> Calm:
    """What a thread includes."""
    return in_a_calm_thread(lambda: _both(included))


_plain: dict[str, Calm] = {}


def plain_keys(device: torch.device) -> Calm:
    """The keys of an ordinary tensor of a device's type, and of one made in inference mode."""
    if device.type not in _plain:
        _plain[device.type] = in_a_calm_thread(lambda: _both(lambda: keys_of(torch.empty(0, device=device))))
    return _plain[device.type]


def below_autograd() -> bool:
    """Whether autograd has had its turn at this call, or is turned off by more than a mode."""
    return excluded(DispatchKey.AutogradFunctionality) and not torch.is_inference_mode_enabled()


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is an ordinary one of a device type that `plain_keys` was asked for."""
    return any(plain.has(keys_of(tensor)) for plain in _plain.values())
