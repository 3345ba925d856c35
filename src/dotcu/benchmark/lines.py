"""Dataclasses as plain values that JSON has, and back, by their annotations.

A number that is not finite is null, since JSON has no other; in a field that takes nothing but numbers, null
is read as NaN. The calls of a block are written by column, and a column of equal numbers as one number: a
tenth of the text, and what plots want.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dotcu.benchmark.measured import Block, Call

T = TypeVar("T")


class Misfit(ValueError):
    """A value is not what its place takes; the message has both."""


def encode(value: Any) -> Any:
    """Any of the values that a report is made of, as JSON has it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Block):
        columns = {name: [encode(getattr(call, name)) for call in value.calls] for name in _names(Call)}
        columns |= {name: _one(column) for name, column in columns.items() if name != _TIMES}
        return {**columns, "before": encode(value.before), "after": encode(value.after)}
    if is_dataclass(value):
        return {name: encode(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, Mapping):
        return {str(name): encode(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


_TIMES = "time_us"
"""The column that is always whole."""


def _one(column: list[Any]) -> Any:
    """A column, or the number that all of it is."""
    return column[0] if len(set(column)) == 1 else column


def decode(kind: type[T], value: Any, place: str) -> T:
    """The value of that type which `encode` made this of.

    Fields that the type does not have are left out; those that the value lacks have their default.

    Args:
        place: What the value is called in messages.

    Raises:
        Misfit: The value is not of that type.
    """
    decoded: T = _decode(kind, value, place)
    return decoded


def _decode(kind: Any, value: Any, place: str) -> Any:
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else _decode(inside[0], value, place)
    if origin is tuple:
        items = _require(value, list, place)
        return tuple(_decode(inside[0], item, f"{place}[{at}]") for at, item in enumerate(items))
    if origin is not None and issubclass(_class(origin), Mapping):
        items = _require(value, dict, place)
        return {name: _decode(inside[1], item, f"{place}.{name}") for name, item in items.items()}
    if origin is Literal:
        if value not in inside:
            raise Misfit(f"{place}: one of {', '.join(inside)} is required (got {value!r})")
        return value
    return _dataclass(kind, value, place) if is_dataclass(kind) else _plain(kind, value, place)


def _plain(kind: type, value: Any, place: str) -> Any:
    if kind is float:
        return math.nan if value is None else float(_require(value, (float, int), place))
    return _require(value, kind, place)


def _dataclass(kind: Any, value: Any, place: str) -> Any:
    given = _require(value, dict, place)
    if kind is Block:
        given = {**given, "calls": _rows(given, place)}
    hints = _hints(kind)
    found = {
        name: _decode(hints[name], given[name], f"{place}.{name}") for name in _names(kind) if name in given
    }
    for field in fields(kind):
        if field.name not in found and field.default is field.default_factory is MISSING:
            raise Misfit(f"{place}.{field.name} is missing")
    return kind(**found)


def _rows(columns: Mapping[str, Any], place: str) -> list[dict[str, Any]]:
    """The calls of a block, from its columns."""
    count = len(_require(columns.get(_TIMES, []), list, f"{place}.{_TIMES}"))
    given = {
        name: columns[name] if isinstance(columns[name], list) else [columns[name]] * count
        for name in _names(Call)
        if name in columns
    }
    if len(lengths := {len(column) for column in given.values()}) > 1:
        raise Misfit(f"{place}: columns of one length are required (got {sorted(lengths)})")
    return [dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True)]


def _require(value: Any, kind: Any, place: str) -> Any:
    if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
        return value
    names = [each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,))]
    raise Misfit(f"{place}: {' or '.join(_WORDS[name] for name in names)} is required (got {value!r:.60})")


_WORDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
}


def _class(origin: Any) -> type:
    return origin if isinstance(origin, type) else object


def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@lru_cache(maxsize=64)
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
