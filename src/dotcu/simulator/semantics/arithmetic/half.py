"""16-bit floats, alone and in pairs, as bits.

A half value is widened to float32, or to float64 where the sum of a product needs it, and
rounded once at the end. Rounding to odd in between keeps the second rounding harmless.

Source: PTX ISA, "Half Precision Floating Point Instructions"; for the canonical NaN 0x7FFF,
"Half Precision Floating Point Instructions: add".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dotcu.simulator.semantics.arithmetic.rounding import to_odd, two_sum
from dotcu.simulator.semantics.table import Array, InstructionForm, Operation, SemanticsRow, Table

_NAN = np.uint16(0x7FFF)
_MAGNITUDE = np.uint16(0x7FFF)
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
        type_: "f16" or "bf16".
        mode: The rounding mode: "rn", "rz", "rm" or "rp".
    """
    if type_ == "f16" and mode == "rn":
        bits = values.astype(np.float16).view(np.uint16)
    elif mode == "rn" and values.dtype == np.float32:
        bits = _upper_half(values.view(np.uint32))
    else:
        bits = _round(values, type_, mode)
    return np.where(np.isnan(values), _NAN, bits)


def _upper_half(bits: Array) -> Array:
    """float32 bits to the nearest bf16: add half a last place, less one where that is even, and cut."""
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded: Array = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
    return rounded.astype(np.uint16)


def _round(values: Array, type_: str, mode: str) -> Array:
    """Rounding on the bits of the float64 value: the target's last place, then the mode."""
    mantissa, smallest, largest = (10, -24, 15) if type_ == "f16" else (7, -133, 127)
    wide = np.where(np.isfinite(values), values, 0).astype(np.float64)
    magnitude = np.abs(wide)
    exponent = np.frexp(magnitude)[1] - 1
    unit = np.maximum(exponent - mantissa, smallest)
    scaled = np.ldexp(magnitude, -unit)
    negative = np.signbit(values)
    whole = _whole(scaled, mode, negative)
    result = np.ldexp(whole, unit)
    limit = np.ldexp(2.0 - 2.0**-mantissa, largest)
    outward: Mapping[str, Array] = {"rn": np.ones(1, bool), "rp": ~negative, "rm": negative}
    to_infinity = outward.get(mode, np.zeros(1, bool))
    result = np.where(result > limit, np.where(to_infinity, np.inf, limit), result)
    result = np.where(np.isinf(values), np.inf, result)
    return _encode(np.where(negative, -result, result), type_)


def _whole(scaled: Array, mode: str, negative: Array) -> Array:
    if mode == "rn":
        return np.rint(scaled)
    if mode == "rna":
        return np.floor(scaled + 0.5)
    upward: Mapping[str, Array] = {"rm": negative, "rp": ~negative}
    up = upward.get(mode, np.zeros(1, bool))
    return np.where(up, np.ceil(scaled), np.floor(scaled))


def _encode(exact: Array, type_: str) -> Array:
    """Values that the type holds exactly, to its bits."""
    if type_ == "f16":
        return exact.astype(np.float16).view(np.uint16)
    return (exact.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def flush_half(bits: Array, type_: str) -> Array:
    """Subnormals to zero of their sign."""
    small = (bits & np.uint16(0x7FFF)) < _TINY[type_]
    return np.where(small, bits & np.uint16(0x8000), bits)


def _is_nan(bits: Array, type_: str) -> Array:
    return (bits & np.uint16(0x7FFF)) > INFINITY[type_]


def saturate(bits: Array, type_: str) -> Array:
    """Clamped to [0, 1]; NaN to +0."""
    negative = (bits & np.uint16(0x8000)) != 0
    clamped = np.where(negative | _is_nan(bits, type_), np.uint16(0), bits)
    return np.minimum(clamped, ONE[type_])


def clip_below(bits: Array, type_: str) -> Array:
    """Negative numbers to +0 (.relu)."""
    negative = ((bits & np.uint16(0x8000)) != 0) & ~_is_nan(bits, type_)
    return np.where(negative, np.uint16(0), bits)


# One value at a time: functions of bits


def _sum(a: Array, b: Array, type_: str) -> Array:
    # In float64 a sum of two halves is exact for f16, and to odd for bf16.
    total, error = two_sum(widen(a, type_).astype(np.float64), widen(b, type_).astype(np.float64))
    return round_half(to_odd(total, error), type_)


def _difference(a: Array, b: Array, type_: str) -> Array:
    return _sum(a, b ^ np.uint16(0x8000), type_)


def _product(a: Array, b: Array, type_: str) -> Array:
    return round_half(np.multiply(widen(a, type_), widen(b, type_), dtype=np.float64), type_)


def _fused_half(a: Array, b: Array, c: Array, type_: str) -> Array:
    """a * b + c with one rounding."""
    product = np.multiply(widen(a, type_), widen(b, type_), dtype=np.float64)
    total, error = two_sum(product, widen(c, type_).astype(np.float64))
    return round_half(to_odd(total, np.where(np.isfinite(total), error, 0.0)), type_)


def extreme(a: Array, b: Array, type_: str, largest: bool, nan: bool) -> Array:
    """min or max: a NaN loses to a number unless `nan`; -0 is less than +0.

    Args:
        a: The first operand.
        b: The second operand.
        type_: The PTX type.
        largest: True for max, False for min.
        nan: True if a NaN operand makes the result NaN.
    """
    x, y = widen(a, type_), widen(b, type_)
    first = (x > y) if largest else (x < y)
    same = x == y
    tie = (a & b) if largest else (a | b)
    result = np.where(same, tie, np.where(first, a, b))
    x_nan, y_nan = np.isnan(x), np.isnan(y)
    if nan:
        return np.where(x_nan | y_nan, _NAN, result)
    result = np.where(x_nan, b, np.where(y_nan, a, result))
    return np.where(x_nan & y_nan, _NAN, result)


def negate_half(a: Array, type_: str) -> Array:
    """-a; a NaN becomes the canonical one (measured: H200, CUDA 13.0)."""
    negated: Array = a ^ np.uint16(0x8000)
    return np.where(_is_nan(a, type_), _NAN, negated)


def absolute_half(a: Array, type_: str) -> Array:
    """|a|; a NaN becomes the canonical one (measured: H200, CUDA 13.0)."""
    magnitude: Array = a & np.uint16(0x7FFF)
    return np.where(_is_nan(a, type_), _NAN, magnitude)


def _exp2(a: Array, type_: str) -> Array:
    """2^a in f32, then cut, for which the bound leaves room (measured: H200, CUDA 13.0)."""
    power = np.exp2(widen(a, type_).astype(np.float64)).astype(np.float32)
    return round_half(np.where(power >= _BEYOND[type_], np.float32(np.inf), power), type_, "rz")


def _tanh(a: Array, type_: str) -> Array:
    return round_half(np.tanh(widen(a, type_).astype(np.float64)), type_)


Half = Callable[..., Array]


def on_pairs(function: Half) -> Half:
    """The function on each half of packed 32-bit values."""

    def packed(*arrays: Array) -> Array:
        size = max(a.size for a in arrays)
        split = [np.ascontiguousarray(np.broadcast_to(a, size)).view(np.uint16) for a in arrays]
        return np.ascontiguousarray(function(*split)).view(np.uint32)

    return packed


def _made(function: Half, arity: int) -> Callable[[InstructionForm], Operation]:
    def make(form: InstructionForm) -> Operation:
        return _operation_of(function, arity, form)

    return make


def _operation_of(function: Half, arity: int, form: InstructionForm) -> Operation:
    """A function of bits as an operation on a half type or on pairs of it."""
    scalar = form.type.removesuffix("x2")
    flags = form.flags

    def run(*arrays: Array) -> Array:
        if "ftz" in flags:
            arrays = tuple(flush_half(a, scalar) for a in arrays)
        result = function(*arrays, scalar)
        if "ftz" in flags:
            result = flush_half(result, scalar)
        if "sat" in flags:
            result = saturate(result, scalar)
        return clip_below(result, scalar) if "relu" in flags else result

    packed = on_pairs(run) if form.type.endswith("x2") else run
    return Operation(packed, form.type, (form.type,) * arity)


def _extreme(form: InstructionForm) -> Operation | None:
    """min and max; .xorsign.abs: of the magnitudes, with the product's sign."""
    largest, nan = form.opcode == "max", "NaN" in form.flags
    signs = "xorsign" in form.flags
    if signs != ("abs" in form.flags):
        return None

    def run(a: Array, b: Array, type_: str) -> Array:
        if not signs:
            return extreme(a, b, type_, largest, nan)
        result = extreme(a & _MAGNITUDE, b & _MAGNITUDE, type_, largest, nan)
        return np.where(_is_nan(result, type_), result, result | ((a ^ b) & ~_MAGNITUDE))

    return _operation_of(run, 2, form)


_TYPES = frozenset({"f16", "f16x2", "bf16", "bf16x2"})
_ROUND = frozenset({"rn", "ftz", "sat"})
_EXTREME = frozenset({"ftz", "NaN", "xorsign", "abs"})
_SECTION = "Half Precision Floating Point Instructions: "

HALF: Table = {
    "add": (SemanticsRow(_TYPES, _ROUND, _SECTION + "add", _made(_sum, 2)),),
    "sub": (SemanticsRow(_TYPES, _ROUND, _SECTION + "sub", _made(_difference, 2)),),
    "mul": (SemanticsRow(_TYPES, _ROUND, _SECTION + "mul", _made(_product, 2)),),
    "fma": (SemanticsRow(_TYPES, _ROUND | {"relu"}, _SECTION + "fma", _made(_fused_half, 3)),),
    "neg": (SemanticsRow(_TYPES, frozenset({"ftz"}), _SECTION + "neg", _made(negate_half, 1)),),
    "abs": (SemanticsRow(_TYPES, frozenset({"ftz"}), _SECTION + "abs", _made(absolute_half, 1)),),
    "min": (SemanticsRow(_TYPES, _EXTREME, _SECTION + "min", _extreme),),
    "max": (SemanticsRow(_TYPES, _EXTREME, _SECTION + "max", _extreme),),
    "ex2": (SemanticsRow(_TYPES, frozenset({"approx", "ftz"}), _SECTION + "ex2", _made(_exp2, 1)),),
    "tanh": (SemanticsRow(_TYPES, frozenset({"approx"}), _SECTION + "tanh", _made(_tanh, 1)),),
}
