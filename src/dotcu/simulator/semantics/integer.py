"""Integer arithmetic, logic and shifts.

Source: PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions",
"Extended-Precision Integer Arithmetic Instructions".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dotcu.simulator.semantics.table import (
    BITS,
    INTEGERS,
    Array,
    Form,
    Operation,
    Row,
    Table,
    dtype_of,
)


def bits_type(type_: str) -> str:
    """The type of the same width whose arithmetic does not depend on the sign."""
    return type_ if type_ == "pred" else "b" + type_.lstrip("bsu")


def _modular(function: Callable[..., Array]) -> Callable[[Form], Operation]:
    """Arithmetic modulo 2^n: the sign does not matter."""

    def make(form: Form) -> Operation:
        type_ = bits_type(form.type)
        return Operation(function, type_, (type_,) * _arity(function))

    return make


def _typed(function: Callable[..., Array], arity: int) -> Callable[[Form], Operation]:
    """Arithmetic on the values as the type has them."""

    def make(form: Form) -> Operation:
        return Operation(function, form.type, (form.type,) * arity)

    return make


def _arity(function: Callable[..., Array]) -> int:
    if isinstance(function, np.ufunc):
        return int(function.nin)
    return function.__code__.co_argcount


def saturated_add(a: Array, b: Array) -> Array:
    """a + b for s32, clamped to its range."""
    return np.clip(a.astype(np.int64) + b, -(2**31), 2**31 - 1).astype(np.int32)


def saturated_subtract(a: Array, b: Array) -> Array:
    """a - b for s32, clamped to its range."""
    return np.clip(a.astype(np.int64) - b, -(2**31), 2**31 - 1).astype(np.int32)


def _add(form: Form) -> Operation | None:
    if "sat" not in form.flags:
        return _modular(np.add)(form)
    return _typed(saturated_add, 2)(form) if form.type == "s32" else None


def _sub(form: Form) -> Operation | None:
    if "sat" not in form.flags:
        return _modular(np.subtract)(form)
    return _typed(saturated_subtract, 2)(form) if form.type == "s32" else None


def multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, modulo 2^n."""
    return a * b + c


def high64(a: Array, b: Array) -> Array:
    """The upper 64 bits of the product of two u64."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> shift, b & low, b >> shift
    middle = a1 * b0 + (a0 * b0 >> shift)
    other = a0 * b1 + (middle & low)
    result: Array = a1 * b1 + (middle >> shift) + (other >> shift)
    return result


def high64_signed(a: Array, b: Array) -> Array:
    """The upper 64 bits of the product of two s64."""
    ua, ub = a.view(np.uint64), b.view(np.uint64)
    high = high64(ua, ub)
    high = high - np.where(a < 0, ub, np.uint64(0)) - np.where(b < 0, ua, np.uint64(0))
    return high.view(np.int64)


def _high(type_: str) -> Callable[[Array, Array], Array]:
    if type_ == "u64":
        return high64
    if type_ == "s64":
        return high64_signed
    narrow = dtype_of(type_)
    wide = np.dtype(f"{narrow.kind}{narrow.itemsize * 2}")
    shift = wide.type(narrow.itemsize * 8)
    return lambda a, b: (np.multiply(a, b, dtype=wide) >> shift).astype(narrow)


def _wide(type_: str) -> tuple[str, Callable[[Array, Array], Array]]:
    narrow = dtype_of(type_)
    wide = np.dtype(f"{narrow.kind}{narrow.itemsize * 2}")
    return f"{type_[0]}{wide.itemsize * 8}", lambda a, b: np.multiply(a, b, dtype=wide)


def _mul(form: Form) -> Operation | None:
    type_ = form.type
    if "wide" in form.flags:
        if type_.endswith("64"):
            return None
        result, product = _wide(type_)
        return Operation(product, result, (type_, type_))
    if "hi" in form.flags:
        return Operation(_high(type_), type_, (type_, type_))
    return _modular(np.multiply)(form) if "lo" in form.flags else None


def _mad(form: Form) -> Operation | None:
    type_ = form.type
    if "wide" in form.flags:
        if type_.endswith("64"):
            return None
        result, product = _wide(type_)
        return Operation(lambda a, b, c: product(a, b) + c, result, (type_, type_, result))
    if "hi" in form.flags:
        high = _high(type_)
        if "sat" in form.flags:
            if type_ != "s32":
                return None
            return Operation(lambda a, b, c: saturated_add(high(a, b), c), type_, (type_,) * 3)
        return Operation(lambda a, b, c: high(a, b) + c, type_, (type_,) * 3)
    if "sat" in form.flags:
        return None
    return _modular(multiply_add)(form) if "lo" in form.flags else None


def _mul24(form: Form) -> Operation | None:
    type_ = form.type
    wide = np.int64 if type_ == "s32" else np.uint64
    narrow = dtype_of(type_)
    shift = 16 if "hi" in form.flags else 0

    def cut(a: Array) -> Array:
        low = (a.view(np.uint32) << np.uint32(8)).view(narrow) >> narrow.type(8)
        result: Array = low.astype(wide)
        return result

    def product(a: Array, b: Array) -> Array:
        result: Array = (cut(a) * cut(b) >> wide(shift)).astype(narrow)
        return result

    if form.opcode == "mul24":
        return Operation(product, type_, (type_, type_))
    if "sat" in form.flags:
        if type_ != "s32" or "hi" not in form.flags:
            return None
        return Operation(lambda a, b, c: saturated_add(product(a, b), c), type_, (type_,) * 3)
    return Operation(lambda a, b, c: product(a, b) + c, type_, (type_,) * 3)


def divide(a: Array, b: Array) -> Array:
    """a / b, rounded to zero; all ones where b is 0, as the hardware gives."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        quotient = a // safe
    else:
        floored = a // safe
        quotient = floored + ((floored < 0) & (floored * safe != a))
        quotient = np.where((a == np.iinfo(a.dtype).min) & (safe == -1), a, quotient)
    return np.where(zero, ~b, quotient).astype(a.dtype)


def remainder(a: Array, b: Array) -> Array:
    """a - a / b * b, with the sign of a; a where b is 0."""
    zero = b == 0
    return np.where(zero, a, a - divide(a, np.where(zero, b.dtype.type(1), b)) * b)


def absolute_difference(a: Array, b: Array, c: Array) -> Array:
    """c + |a - b|."""
    return c + np.where(a < b, b - a, a - b)


def _bitwise(ufunc: np.ufunc) -> Callable[[Form], Operation]:
    def make(form: Form) -> Operation:
        return Operation(ufunc, form.type, (form.type,) * ufunc.nin)

    return make


def _logical_not(a: Array) -> Array:
    """cnot: 1 where a is 0."""
    result: Array = (a == 0).astype(a.dtype)
    return result


def _shift(left: bool) -> Callable[[Form], Operation]:
    """Shifts by 32 bits of amount; NumPy, like PTX, gives sign or zero beyond the width."""

    def make(form: Form) -> Operation:
        type_ = bits_type(form.type) if left else form.type
        dtype = dtype_of(type_)
        limit = np.uint32(dtype.itemsize * 8)
        ufunc = np.left_shift if left else np.right_shift

        def shift(a: Array, amount: Array) -> Array:
            result: Array = ufunc(a, np.minimum(amount, limit).astype(dtype))
            return result

        return Operation(shift, type_, (type_, "u32"))

    return make


def _minimum_with_relu(form: Form) -> Operation | None:
    ufunc = np.minimum if form.opcode == "min" else np.maximum
    if "relu" not in form.flags:
        return _typed(ufunc, 2)(form)
    if form.type != "s32":
        return None
    return Operation(lambda a, b: np.maximum(ufunc(a, b), 0), "s32", ("s32", "s32"))


def negate(a: Array) -> Array:
    """-a, modulo 2^n."""
    return np.negative(a)


_ARITHMETIC = "Integer Arithmetic Instructions: "
_LOGIC = "Logic and Shift Instructions: "
_NONE: frozenset[str] = frozenset()
_PARTS = frozenset({"lo", "hi", "wide", "sat"})
_SIGNED = frozenset({"s16", "s32", "s64"})
_LOGICAL = BITS | {"pred"}

INTEGER: Table = {
    "add": (Row(INTEGERS, frozenset({"sat"}), _ARITHMETIC + "add", _add),),
    "sub": (Row(INTEGERS, frozenset({"sat"}), _ARITHMETIC + "sub", _sub),),
    "mul": (Row(INTEGERS, _PARTS - {"sat"}, _ARITHMETIC + "mul", _mul),),
    "mad": (Row(INTEGERS, _PARTS, _ARITHMETIC + "mad", _mad),),
    "mul24": (Row(frozenset({"u32", "s32"}), frozenset({"lo", "hi"}), _ARITHMETIC + "mul24", _mul24),),
    "mad24": (Row(frozenset({"u32", "s32"}), frozenset({"lo", "hi", "sat"}), _ARITHMETIC + "mad24", _mul24),),
    "sad": (Row(INTEGERS, _NONE, _ARITHMETIC + "sad", _typed(absolute_difference, 3)),),
    "div": (Row(INTEGERS, _NONE, _ARITHMETIC + "div", _typed(divide, 2)),),
    "rem": (Row(INTEGERS, _NONE, _ARITHMETIC + "rem", _typed(remainder, 2)),),
    "abs": (Row(_SIGNED, _NONE, _ARITHMETIC + "abs", _typed(np.abs, 1)),),
    "neg": (Row(_SIGNED, _NONE, _ARITHMETIC + "neg", _typed(negate, 1)),),
    "min": (Row(INTEGERS, frozenset({"relu"}), _ARITHMETIC + "min", _minimum_with_relu),),
    "max": (Row(INTEGERS, frozenset({"relu"}), _ARITHMETIC + "max", _minimum_with_relu),),
    "and": (Row(_LOGICAL, _NONE, _LOGIC + "and", _bitwise(np.bitwise_and)),),
    "or": (Row(_LOGICAL, _NONE, _LOGIC + "or", _bitwise(np.bitwise_or)),),
    "xor": (Row(_LOGICAL, _NONE, _LOGIC + "xor", _bitwise(np.bitwise_xor)),),
    "not": (Row(_LOGICAL, _NONE, _LOGIC + "not", _bitwise(np.invert)),),
    "cnot": (Row(BITS, _NONE, _LOGIC + "cnot", _typed(_logical_not, 1)),),
    "shl": (Row(BITS, _NONE, _LOGIC + "shl", _shift(left=True)),),
    "shr": (Row(BITS | INTEGERS, _NONE, _LOGIC + "shr", _shift(left=False)),),
}
