"""16-bit floats, alone and in pairs, as bits.

A half value is widened to float32, or to float64 where the sum of a product needs it, and
rounded once at the end. Rounding to odd in between keeps the second rounding harmless.

Source: PTX ISA, "Half Precision Floating Point Instructions"; for the canonical NaN 0x7FFF,
"Half Precision Floating Point Instructions: add".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dotcu.ptx.instructions import Instruction
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.arithmetic.rounding import extreme_of, narrow, to_odd, two_sum
from dotcu.simulator.semantics.table import HALF_PAIRS, HALVES, Operation, OperationMaker, on_halves, rows

_NAN = np.uint16(0x7FFF)
_MAGNITUDE = np.uint16(0x7FFF)
_SIGN = np.uint16(0x8000)
ONE = {"f16": np.uint16(0x3C00), "bf16": np.uint16(0x3F80)}
_TINY = {"f16": np.uint16(0x0400), "bf16": np.uint16(0x0080)}
INFINITY = {"f16": np.uint16(0x7C00), "bf16": np.uint16(0x7F80)}
# The power of two after the largest finite value.
_BEYOND = {"f16": np.float32(2.0**16), "bf16": np.float32(np.inf)}


def widen(bits: Array, type_: str) -> Array:
    """f16 or bf16 bits to float32, exactly."""
    if type_ == "f16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def round_half(values: Array, type_: str, mode: str = "rn") -> Array:
    """float32 or float64 to f16 or bf16 bits, with one rounding; NaN to the canonical one.

    Args:
        values: float32 or float64 values.
        type_, mode: "f16" or "bf16"; the rounding mode, of `MODES`.
    """
    if type_ == "f16":
        bits = narrow(values, mode, np.float16).view(np.uint16)
    else:
        bits = _upper_half(values, mode)
    return np.where(np.isnan(values), _NAN, bits)


def _upper_half(values: Array, mode: str) -> Array:
    """Floats to bf16: add what carries into the upper half of float32 bits where it rounds up, and cut."""
    if values.dtype == np.float64:  # to float32 first, cut, with the last bit set where it is inexact
        cut = narrow(values, "rz")
        bits = cut.view(np.uint32) | (values != cut)
    else:
        bits = values.view(np.uint32)
    if mode == "rn":  # half a last place, less one where that is even
        carry = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    else:
        negative = bits >> np.uint32(31)
        outward = {"rz": np.uint32(0), "rm": negative, "rp": negative ^ np.uint32(1)}[mode]
        carry = outward * np.uint32(0xFFFF)
    return ((bits + carry) >> np.uint32(16)).astype(np.uint16)


def flush_half(bits: Array, type_: str) -> Array:
    """Subnormals to zero of their sign."""
    return np.where((bits & _MAGNITUDE) < _TINY[type_], bits & _SIGN, bits)


def _is_nan(bits: Array, type_: str) -> Array:
    return (bits & _MAGNITUDE) > INFINITY[type_]


def saturate_half(bits: Array, type_: str) -> Array:
    """Clamped to [0, 1]; NaN to +0."""
    negative = (bits & _SIGN) != 0
    return np.minimum(np.where(negative | _is_nan(bits, type_), np.uint16(0), bits), ONE[type_])


def clip_below(bits: Array, type_: str) -> Array:
    """Negative numbers to +0 (.relu)."""
    negative = ((bits & _SIGN) != 0) & ~_is_nan(bits, type_)
    return np.where(negative, np.uint16(0), bits)


# One value at a time: functions of bits


def _sum(a: Array, b: Array, type_: str) -> Array:
    # In float64 a sum of two halves is exact for f16, and to odd for bf16.
    total, error = two_sum(widen(a, type_).astype(np.float64), widen(b, type_).astype(np.float64))
    return to_odd(total, error)


def _product(a: Array, b: Array, type_: str) -> Array:
    return np.multiply(widen(a, type_), widen(b, type_), dtype=np.float64)


def _fused(a: Array, b: Array, c: Array, type_: str) -> Array:
    product = np.multiply(widen(a, type_), widen(b, type_), dtype=np.float64)
    total, error = two_sum(product, widen(c, type_).astype(np.float64))
    return to_odd(total, np.where(np.isfinite(total), error, 0.0))


def _exp2(a: Array, type_: str) -> Array:
    """2^a in f32, then cut, for which the bound leaves room (measured: H200, CUDA 13.0)."""
    power = np.exp2(widen(a, type_).astype(np.float64)).astype(np.float32)
    return round_half(np.where(power >= _BEYOND[type_], np.float32(np.inf), power), type_, "rz")


def _tanh(a: Array, type_: str) -> Array:
    return round_half(np.tanh(widen(a, type_).astype(np.float64)), type_)


def _bitwise(function: Callable[..., Array], arity: int) -> OperationMaker:
    """Make operations on a half type, or on pairs of it, of a function of bits."""

    def make(instruction: Instruction) -> Operation:
        scalar = instruction.type.removesuffix("x2")
        flags = instruction.flags

        def run(*arrays: Array) -> Array:
            if "ftz" in flags:
                arrays = tuple(flush_half(a, scalar) for a in arrays)
            result = function(*arrays, scalar)
            if "ftz" in flags:
                result = flush_half(result, scalar)
            if "sat" in flags:
                result = saturate_half(result, scalar)
            return clip_below(result, scalar) if "relu" in flags else result

        packed = on_halves(run) if instruction.type.endswith("x2") else run
        return Operation(packed, instruction.type, (instruction.type,) * arity)

    return make


def _extreme(instruction: Instruction) -> Operation | None:
    choose = extreme_of(instruction)
    if choose is None:
        return None
    return _bitwise(lambda a, b, t: round_half(choose(widen(a, t), widen(b, t)), t), 2)(instruction)


def _rounded(exact: Callable[..., Array], arity: int) -> OperationMaker:
    """Make operations of a function that gives exact results, which are flushed before they are rounded.

    Source: measured: H200, CUDA 13.0, 2026-11 (mul.rn.ftz.f16).
    """

    def make(instruction: Instruction) -> Operation | None:
        flushes = "ftz" in instruction.flags

        def function(*arguments: Any) -> Array:
            value, type_ = exact(*arguments), arguments[-1]
            result = round_half(value, type_)
            if not flushes:
                return result
            smallest = float(widen(np.array([_TINY[type_]]), type_)[0])
            return np.where(np.abs(value) < smallest, result & _SIGN, result)

        return _bitwise(function, arity)(instruction)

    return make


_TYPES = HALVES | HALF_PAIRS
_FLAGS = ("rn", "ftz", "sat")

HALF = rows(
    "Half Precision Floating Point Instructions",
    ("add", _TYPES, _FLAGS, _rounded(_sum, 2)),
    ("sub", _TYPES, _FLAGS, _rounded(lambda a, b, t: _sum(a, b ^ _SIGN, t), 2)),
    ("mul", _TYPES, _FLAGS, _rounded(_product, 2)),
    ("fma", _TYPES, (*_FLAGS, "relu"), _rounded(_fused, 3)),
    # A NaN becomes the canonical one (measured: H200, CUDA 13.0).
    ("neg", _TYPES, ("ftz",), _bitwise(lambda a, t: np.where(_is_nan(a, t), _NAN, a ^ _SIGN), 1)),
    ("abs", _TYPES, ("ftz",), _bitwise(lambda a, t: np.where(_is_nan(a, t), _NAN, a & _MAGNITUDE), 1)),
    ("min max", _TYPES, ("ftz", "NaN", "xorsign", "abs"), _extreme),
    ("ex2", _TYPES, ("approx", "ftz"), _bitwise(_exp2, 1)),
    (
        "tanh",
        _TYPES,
        ("approx",),
        _bitwise(_tanh, 1),
    ),
)
