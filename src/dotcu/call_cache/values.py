"""Symbols inside of other values: shapes, arguments of a call, slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dotcu.call_cache.symbols import is_symbol


def plain(value: Any) -> Any:
    """A value with its symbols, also those in tuples, lists, dicts and slices, as plain numbers."""
    return _mapped(value, lambda number: number.value)


def pinned(value: Any) -> Any:
    """The same, and the plan from now on demands these numbers."""
    return _mapped(value, lambda number: number.pinned())


def _mapped(value: Any, convert: Callable[[Any], Any]) -> Any:
    kind = type(value)
    if is_symbol(value):
        return convert(value)
    if kind is tuple or kind is list:
        return kind([_mapped(item, convert) for item in value])
    if kind is torch.Size:
        return torch.Size([_mapped(item, convert) for item in value])
    if kind is dict:
        return {key: _mapped(item, convert) for key, item in value.items()}
    if kind is slice:
        return slice(*(_mapped(item, convert) for item in (value.start, value.stop, value.step)))
    return value
