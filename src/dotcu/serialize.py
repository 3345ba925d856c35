"""Dataclasses as JSON, and back, by their annotations: the one JSON layer.

The rule. What leaves a process (a report, a request to a worker, a manifest) is a frozen dataclass whose
fields are numbers, strings, None, tuples, mappings, `Literal`s and other such dataclasses. It has no encoder
of its own. A report's `to_json` returns `plain(self)`, and adds to it what is computed. To read it back, call
`from_plain` or `from_json` with the class. Both ignore fields that the class lacks, and give a missing field
its default.

A number that is not finite becomes null, since JSON has no other: annotate a field that may hold one
`float | None`. A union may have one dataclass and None; for more kinds, write a field that names the kind.
Annotations are read at run time: import their types outside of `if TYPE_CHECKING`.
"""

from __future__ import annotations

import json
import math
from pathlib import PurePath
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

Misfit = msgspec.DecodeError
"""A text is not JSON, or a value is not of the type that was asked for. A ValueError; it names the field."""


def plain(value: Any) -> Any:
    """Return a value, however nested, as dicts, lists, strings, finite numbers and None."""
    try:
        return msgspec.json.decode(_encoder.encode(value))
    except UnicodeEncodeError:
        return json.loads(to_json(value))


def to_json(value: Any) -> str:
    """Return a value as one line of JSON."""
    try:
        return _encoder.encode(value).decode()
    except UnicodeEncodeError:  # a file's name that is not UTF-8, which Python holds in lone surrogates
        return json.dumps(_finite(msgspec.to_builtins(value, enc_hook=_encode_other)))


def _finite(value: Any) -> Any:
    """Return a value with null for each number that is not finite."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_plain(kind: type[T], value: Any) -> T:
    """Return the value of a type that `plain` was given.

    Raises:
        Misfit: The value is not of that type.
    """
    return msgspec.convert(value, kind)


def from_json(kind: type[T], text: str) -> T:
    """Return the value of a type that `to_json` was given.

    Raises:
        Misfit: The text is not JSON, or not of that type.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except Misfit:  # msgspec takes no lone surrogates
        try:
            return from_plain(kind, json.loads(text))
        except json.JSONDecodeError:
            pass
        raise


def _encode_other(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    for base in (str, int, float):  # a subclass, such as NumPy's float64 and the version of torch
        if isinstance(value, base):
            return base(value)
    if hasattr(value, "items"):  # a mapping that is not a dict
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


_encoder = msgspec.json.Encoder(enc_hook=_encode_other)
