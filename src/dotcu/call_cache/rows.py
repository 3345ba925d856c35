"""What a body reads beside its arguments, as every call by plan looks at it: is it still the same?

A dict is asked for a name. What a function or a closure's cell refers to is a word of memory: to ask
Python for a function's code raises an audit event, which alone can take as long as all the rest of a call.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from types import CellType, FunctionType
from typing import Any

from dotcu.call_cache.plan import Read

Row = tuple[object, object, object]
"""(dict, name, value), or (address, word, what must live as long)."""

_WORD = ctypes.sizeof(ctypes.c_void_p)


class NoPlace(Exception):
    """This Python does not keep it where it can be found; says what."""


def rows(found: Sequence[Read]) -> tuple[Row, ...]:
    """Rows for everything that a body reads.

    Raises:
        NoPlace: Something cannot be looked at.
    """
    return tuple(_row(read) for read in found)


def _row(read: Read) -> Row:
    if isinstance(read.names, dict):
        return read.names, read.name, read.value
    holder: Any = read.names
    is_absent = read.value is None and read.name == "__defaults__"
    address = id(holder) + _place(isinstance(holder, CellType), read.name)
    return address, 0 if is_absent else id(read.value), (holder, read.value)


def _word(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value


@functools.cache
def _place(is_cell: bool, name: str) -> int:
    """Where in its memory a cell or a function refers to what it has by a name."""
    samples = [_sample(is_cell, name) for _ in range(3)]
    words = range(0, type(samples[0][0]).__basicsize__, _WORD)
    places = [at for at in words if all(_word(id(holder) + at) == id(value) for holder, value in samples)]
    if len(places) != 1:
        raise NoPlace(f"{name or 'what a cell holds'} is found in {len(places)} places of memory")
    return places[0]


def _sample(is_cell: bool, name: str) -> tuple[Any, Any]:
    if is_cell:
        value = object()
        return CellType(value), value
    made = FunctionType((lambda: None).__code__.replace(), {}, argdefs=(object(),))
    return made, getattr(made, name)
