"""What a body may use: things that cannot carry state from one call to the next."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch.overrides import get_overridable_functions

from dotcu.kernel import Kernel, Module, cdiv, is_aligned, sm_count, strided

_BUILTINS: tuple[Any, ...] = (
    min, max, len, isinstance, abs, range, zip, enumerate, all, any, sum, reversed, sorted, divmod, pow,
    round, map, filter, slice, int, float, bool, complex, str, bytes, tuple, list, dict, iter, next,
    AssertionError, NotImplemented,
)  # fmt: skip

_DOTCU: tuple[Any, ...] = (cdiv, is_aligned, sm_count, strided, Kernel, Module)

# Of torch: what a function mode sees, and what hangs on nothing else than its arguments.
_TORCH: tuple[Any, ...] = (
    torch.Tensor, torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo,
    torch.iinfo, torch.is_tensor, torch.empty, torch.empty_strided, torch.zeros, torch.ones, torch.full,
    torch.arange, torch.tensor, torch.promote_types, torch.can_cast, torch.result_type,
    torch.broadcast_shapes, torch.cuda.get_device_capability,
)  # fmt: skip

_CONSTANTS = (
    int, float, bool, complex, str, bytes, type(None), type(...), torch.dtype, torch.device,
    torch.memory_format, torch.layout, range,
)  # fmt: skip

_UNSEEN = {"eig", "lstsq", "reinforce", "solve", "symeig", "to_sparse_coo", "format", "format_map"}
"""Methods that no function mode sees, or that read attributes by names in a text."""

_OTHER_ATTRIBUTES = {
    "occupancy", "name", "index", "type", "eps", "tiny", "smallest_normal", "resolution", "itemsize",
    "is_signed", "to_complex", "to_real",
}  # fmt: skip


@functools.cache
def _identities() -> frozenset[int]:
    """The ids of everything allowed by name; these objects live as long as Python does."""
    functions = [
        function
        for function in get_overridable_functions()[torch]
        if isinstance(function, (BuiltinFunctionType, FunctionType))
    ]
    mathematics = [value for name, value in vars(math).items() if callable(value) and name[0] != "_"]
    return frozenset(map(id, (*_BUILTINS, *_DOTCU, *_TORCH, *functions, *mathematics)))


def is_allowed(value: Any) -> bool:
    """Whether it is one of the functions and types of the tables."""
    return id(value) in _identities()


def is_constant(value: Any) -> bool:
    """Whether a value can never change: a number, a text, a dtype, a tuple of these, an exception's type."""
    if isinstance(value, (tuple, frozenset)) and type(value) in (tuple, frozenset, torch.Size):
        return all(is_constant(item) or is_allowed(item) for item in value)
    if isinstance(value, type):
        return issubclass(value, BaseException)
    return type(value) in _CONSTANTS or isinstance(value, enum.Enum)


@functools.cache
def attributes() -> frozenset[str]:
    """The names that a body may read of values that come about in it."""
    kinds: Iterable[Any] = (torch.Tensor, torch.Size, str, tuple, list, dict, int, float, range)
    names = {name for kind in kinds for name in dir(kind) if not name.startswith("_")}
    names |= {name for info in (torch.finfo, torch.iinfo) for name in dir(info) if not name.startswith("_")}
    return frozenset((names | _OTHER_ATTRIBUTES) - _UNSEEN)
