"""Arithmetic of floats: of 16 bits, alone and in pairs, as bits; and f32 and f64.

A half value is widened to float32, or to float64 where the sum of a product needs it, and
rounded once at the end. Rounding to odd in between keeps the second rounding harmless.

Source: PTX ISA, "Half Precision Floating Point Instructions"; for the canonical NaN 0x7FFF,
"Half Precision Floating Point Instructions: add".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dotcu.ptx.instructions import Instruction
from dotcu.simulator.program.binding import dtype_of, only
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.arithmetic.rounding import (
    MODES,
    ROUNDED,
    canonical,
    extreme_of,
    flush,
    mode_of,
    narrow,
    saturate,
    to_odd,
    two_sum,
    with_nan_of,
)
from dotcu.simulator.semantics.table import (
    FLOATS,
    HALF_PAIRS,
    HALVES,
    Operation,
    OperationMaker,
    computed,
    on_halves,
    rows,
)

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


def _half_extreme(instruction: Instruction) -> Operation | None:
    choose = extreme_of(instruction)
    if choose is None:
        return None
    return _bitwise(lambda a, b, t: round_half(choose(widen(a, t), widen(b, t)), t), 2)(instruction)


def _half_rounded(exact: Callable[..., Array], arity: int) -> OperationMaker:
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
_HALF_FLAGS = ("rn", "ftz", "sat")

HALF = rows(
    "Half Precision Floating Point Instructions",
    ("add", _TYPES, _HALF_FLAGS, _half_rounded(_sum, 2)),
    ("sub", _TYPES, _HALF_FLAGS, _half_rounded(lambda a, b, t: _sum(a, b ^ _SIGN, t), 2)),
    ("mul", _TYPES, _HALF_FLAGS, _half_rounded(_product, 2)),
    ("fma", _TYPES, (*_HALF_FLAGS, "relu"), _half_rounded(_fused, 3)),
    # A NaN becomes the canonical one (measured: H200, CUDA 13.0).
    ("neg", _TYPES, ("ftz",), _bitwise(lambda a, t: np.where(_is_nan(a, t), _NAN, a ^ _SIGN), 1)),
    ("abs", _TYPES, ("ftz",), _bitwise(lambda a, t: np.where(_is_nan(a, t), _NAN, a & _MAGNITUDE), 1)),
    ("min max", _TYPES, ("ftz", "NaN", "xorsign", "abs"), _half_extreme),
    ("ex2", _TYPES, ("approx", "ftz"), _bitwise(_exp2, 1)),
    (
        "tanh",
        _TYPES,
        ("approx",),
        _bitwise(_tanh, 1),
    ),
)


# f32 and f64.
#
# Functions marked .approx are computed in float64 and rounded, which is well within the bound
# that PTX states for each; no hardware gives the same last bits.
#
# Source: PTX ISA, "Floating Point Instructions".


_divided = ROUNDED["div"][0]


def _finished(
    function: Callable[..., Array], instruction: Instruction, arity: int, nan: Sequence[int] = (0,)
) -> Operation:
    """An operation of one type, with .ftz on operands and result, and .sat on the result.

    Args:
        function, instruction, arity: What it computes, of how many operands.
        nan: In f64, the operands whose NaN the result has, by preference.
    """
    is_double = instruction.type == "f64"
    # rcp.ftz.f64, which ptxas takes, flushes nothing (measured: H200, CUDA 13.0).
    ftz, sat = "ftz" in instruction.flags and not is_double, "sat" in instruction.flags

    def run(*arrays: Array) -> Array:
        result = function(*[flush(a) for a in arrays] if ftz else arrays)
        if is_double:
            result = with_nan_of(result, *[arrays[i] for i in nan])
        elif ftz:
            result = flush(result)
        return saturate(result) if sat else result

    is_plain = not (is_double or ftz or sat)
    return Operation(function if is_plain else run, instruction.type, (instruction.type,) * arity)


# By the opcode: the operands whose NaN a result in f64 has, by preference (measured: H200, CUDA 13.0).
_NAN_OF: Mapping[str, Sequence[int]] = {
    **dict.fromkeys(("add", "sub", "mul", "min", "max"), (1, 0)),
    **dict.fromkeys(("fma", "mad"), (1, 2, 0)),
    "div": (0, 1),
    "sqrt": (0,),
}

# Rounded to nearest, as NumPy does.
_NEAREST: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": lambda a, b: canonical(a + b),
    "sub": lambda a, b: canonical(a - b),
    "mul": lambda a, b: canonical(a * b),
}


def _rounded(instruction: Instruction) -> Operation | None:
    """Arithmetic that rounds; operands of add, sub and fma, except for the last, may be halves (PTX 8.6)."""
    opcode, (type_, *halves) = instruction.opcode, instruction.types
    if type_ not in FLOATS or (halves and (type_ != "f32" or opcode not in ("add", "sub", "fma"))):
        return None
    function, arity = ROUNDED[opcode]
    mode = mode_of(instruction)
    nearest = _NEAREST.get(opcode) if mode == "rn" else None
    compute = nearest or partial(function, mode=mode)
    operation = _finished(compute, instruction._replace(types=(type_,)), arity, _NAN_OF[opcode])
    if not halves:
        return operation
    half = only(halves)
    return Operation(
        lambda *arrays: operation.function(*[widen(a, half) for a in arrays[:-1]], arrays[-1]),
        "f32",
        (*[half] * (arity - 1), "f32"),
    )


def _approximate(function: Callable[[Array], Array]) -> OperationMaker:
    def make(instruction: Instruction) -> Operation | None:
        if "approx" not in instruction.flags:
            return None
        if instruction.type == "f64" and "ftz" in instruction.flags:
            return Operation(_upper_words(function), "f64", ("f64",))
        return _finished(lambda a: canonical(function(a.astype(np.float64)).astype(a.dtype)), instruction, 1)

    return make


def _upper_words(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of the upper 32 bits of doubles, whose result has no others; without subnormals.

    Source: PTX ISA, "rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64", for the encoding of NaN too.
    """

    def upper(a: Array) -> Array:
        return flush((a.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64))

    def compute(a: Array) -> Array:
        result = upper(function(upper(a)))
        nan = np.uint64(0x7FFFFFFF00000000)
        return np.where(np.isnan(result), nan, result.view(np.uint64)).view(np.float64)

    return compute


def _divide(instruction: Instruction) -> Operation | None:
    if not {"approx", "full"}.intersection(instruction.flags):
        return _rounded(instruction)
    if instruction.type != "f32":
        return None
    by_reciprocal = "approx" in instruction.flags

    def quotient(a: Array, b: Array) -> Array:
        result = _divided(a, b, "rn")
        if not by_reciprocal:
            return result
        # Where 2^126 < |b|, 1 / b is zero, and the quotient is a * 0: of infinity, NaN (div, notes).
        large = np.isfinite(b) & (np.abs(b) > np.float32(2.0**126))
        return canonical(np.where(large, a * np.copysign(np.float32(0), b), result))

    return _finished(quotient, instruction, 2)


def _reciprocal(instruction: Instruction) -> Operation | None:
    if instruction.type == "f64" and "approx" in instruction.flags:
        return _approximate(lambda a: 1.0 / a)(instruction) if "ftz" in instruction.flags else None
    one = np.ones(1, dtype_of(instruction.type))
    return _finished(partial(_divided, one, mode=mode_of(instruction)), instruction, 1)


def _extreme(instruction: Instruction) -> Operation | None:
    function = extreme_of(instruction)
    return None if function is None else _finished(function, instruction, 2, _NAN_OF[instruction.opcode])


def _plain(function: Callable[..., Array], arity: int) -> OperationMaker:
    return lambda instruction: _finished(function, instruction, arity)


_F32 = ("f32",)
_FLAGS = (*MODES, "ftz", "sat")
_APPROX = ("approx", "ftz")

FLOAT = rows(
    "Floating Point Instructions",
    ("add sub fma", FLOATS | HALVES, _FLAGS, _rounded),
    ("mul mad", FLOATS, _FLAGS, _rounded),
    ("div", FLOATS, (*MODES, "ftz", "approx", "full"), _divide),
    ("rcp", FLOATS, (*MODES, *_APPROX), _reciprocal),
    ("sqrt", FLOATS, (*MODES, *_APPROX), _rounded),
    ("rsqrt", FLOATS, _APPROX, _approximate(lambda a: 1.0 / np.sqrt(a))),
    ("ex2", _F32, _APPROX, _approximate(np.exp2)),
    ("lg2", _F32, _APPROX, _approximate(np.log2)),
    ("sin", _F32, _APPROX, _approximate(np.sin)),
    ("cos", _F32, _APPROX, _approximate(np.cos)),
    ("tanh", _F32, ("approx",), _approximate(np.tanh)),
    ("min max", FLOATS, ("ftz", "NaN", "xorsign", "abs"), _extreme),
    # PTX leaves open the NaN that abs and neg give: in f32 the canonical one on sm_90, in f64 the operand's,
    # sign and all (measured: H200, CUDA 13.0).
    ("abs", FLOATS, ("ftz",), _plain(lambda a: canonical(np.abs(a)), 1)),
    ("neg", FLOATS, ("ftz",), _plain(lambda a: canonical(-a), 1)),
    ("copysign", FLOATS, (), computed(lambda a, b: np.copysign(b, a), "t t")),
)
