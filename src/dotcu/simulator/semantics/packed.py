"""Integers packed in a register: 16-bit pairs, and the SIMD video instructions.

Source: PTX ISA, "Integer Arithmetic Instructions: add, min, max" for pairs; "SIMD Video
Instructions" for the rest, in the form without selectors and masks, which is the one that
CUDA's SIMD intrinsics become.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dotcu.simulator.semantics.table import Array, Form, Operation, Row, Table, dtype_of

# Pairs of 16-bit integers


def on_halves(function: Callable[..., Array], type_: str) -> Callable[..., Array]:
    """The function on each 16-bit half of packed 32-bit values."""
    dtype = dtype_of(type_.removesuffix("x2"))

    def packed(*arrays: Array) -> Array:
        size = max(a.size for a in arrays)
        halves = [np.ascontiguousarray(np.broadcast_to(a, size)).view(dtype) for a in arrays]
        return np.ascontiguousarray(function(*halves)).view(np.uint32)

    return packed


def _add(form: Form) -> Operation:
    return Operation(on_halves(np.add, form.type), "b32", ("b32", "b32"))


def _extreme(form: Form) -> Operation | None:
    relu = "relu" in form.flags
    if relu and form.type != "s16x2":
        return None
    ufunc = np.minimum if form.opcode == "min" else np.maximum

    def extreme(a: Array, b: Array) -> Array:
        result = ufunc(a, b)
        return np.maximum(result, np.int16(0)) if relu else result

    return Operation(on_halves(extreme, form.type), "b32", ("b32", "b32"))


# SIMD video instructions: on 64-bit integers, so that nothing wraps before it is told to


def _average(a: Array, b: Array) -> Array:
    total = a + b
    return (total + (total >= 0)) >> 1


_VIDEO: Mapping[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vavrg": _average,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}
_COMPARE: Mapping[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _parts(a: Array, type_: str, count: int) -> Array:
    """The 2 or 4 parts of each register, the lowest first, as 64-bit integers."""
    dtype = np.dtype(f"{'i' if type_[0] == 's' else 'u'}{4 // count}")
    return np.ascontiguousarray(a).view(dtype).reshape(-1, count).astype(np.int64)


def _joined(parts: Array, count: int) -> Array:
    cut = (parts & ((1 << (32 // count)) - 1)).astype(f"u{4 // count}")
    return np.ascontiguousarray(cut).view(np.uint32).reshape(-1)


def _accumulated(parts: Array, c: Array) -> Array:
    total: Array = (parts.sum(axis=1) + c.astype(np.int64)).astype(np.uint32)
    return total


def _finished(parts: Array, c: Array, form: Form, count: int) -> Array:
    if "add" in form.flags:
        return _accumulated(parts, c)
    if "sat" in form.flags:
        limits = np.iinfo(f"{'i' if form.types[0][0] == 's' else 'u'}{4 // count}")
        parts = np.clip(parts, limits.min, limits.max)
    return _joined(parts, count)


def _video(form: Form) -> Operation | None:
    if len(form.types) != 3 or form.flags >= {"add", "sat"}:
        return None
    count = int(form.opcode[-1])
    function = _VIDEO[form.opcode[:-1]]

    def run(a: Array, b: Array, c: Array) -> Array:
        parts = function(_parts(a, form.types[1], count), _parts(b, form.types[2], count))
        return _finished(parts, c, form, count)

    return Operation(run, "b32", ("b32", "b32", "b32"))


def _video_set(form: Form) -> Operation | None:
    names = [f for f in form.order if f in _COMPARE]
    if len(form.types) != 2 or len(names) != 1:
        return None
    count, compare = int(form.opcode[-1]), _COMPARE[names[0]]

    def run(a: Array, b: Array, c: Array) -> Array:
        holds = compare(_parts(a, form.types[0], count), _parts(b, form.types[1], count))
        return _finished(holds.astype(np.int64), c, form, count)

    return Operation(run, "b32", ("b32", "b32", "b32"))


_PAIRS = frozenset({"u16x2", "s16x2"})
_WORDS = frozenset({"u32", "s32"})
_NONE: frozenset[str] = frozenset()
_ARITHMETIC = "Integer Arithmetic Instructions: "
_SECTION = "SIMD Video Instructions: "

PACKED: Table = {
    "add": (Row(_PAIRS, _NONE, _ARITHMETIC + "add", _add),),
    "min": (Row(_PAIRS, frozenset({"relu"}), _ARITHMETIC + "min", _extreme),),
    "max": (Row(_PAIRS, frozenset({"relu"}), _ARITHMETIC + "max", _extreme),),
    **{
        f"{name}{count}": (Row(_WORDS, frozenset({"sat", "add"}), f"{_SECTION}{name}{count}", _video),)
        for name in _VIDEO
        for count in (2, 4)
    },
    **{
        f"vset{count}": (Row(_WORDS, frozenset({*_COMPARE, "add"}), f"{_SECTION}vset{count}", _video_set),)
        for count in (2, 4)
    },
}
