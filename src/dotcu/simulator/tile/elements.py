"""Elements of tiles as NumPy holds them, and their bits in memory.

Floats that are narrower than float32 are held as float32, which has every value of theirs: matrices go to
BLAS as they are, and an operation rounds its float32 result to the type. Sums, products, quotients and roots
are right that way, since float32 has more than twice the bits of bf16 and f16.

Source: S. A. Figueroa, "When is double rounding innocuous?" (1995) for the bits that suffice;
NVIDIA/cuda-tile, Types.td for the types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from dotcu.simulator.run import Array
from dotcu.simulator.semantics.arithmetic.half import round_half, widen
from dotcu.simulator.semantics.arithmetic.rounding import narrow
from dotcu.tile_ir.module import TileConstant

_SMALL: Mapping[str, Any] = {
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
    "f4E2M1FN": ml_dtypes.float4_e2m1fn,
}
# A scale: five bits of exponent, three of fraction, no sign, and one NaN (CUDA's __nv_fp8_ue5m3).
_UE5M3 = np.array(
    [np.ldexp(8.0 + b % 8 if b > 7 else b % 8, max(b >> 3, 1) - 18) for b in range(255)] + [np.nan]
)
_LARGEST = {"f8E4M3FN": 448.0, "f8E5M2": 57344.0, "f4E2M1FN": 6.0}
_HALVES = frozenset({"f16", "bf16"})
_DIRECT = {
    "i4": np.int8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "f32": np.float32, "tf32": np.float32, "f64": np.float64,
}  # fmt: skip
MODES = {"nearest_even": "rn", "zero": "rz", "negative_inf": "rm", "positive_inf": "rp"}
"""PTX's names of the rounding modes."""

_TF32_CUT = np.uint32(0xFFFFE000)
_TF32_HALF = np.uint32(0x1000)


def dtype_of(element: str) -> np.dtype[Any]:
    """Return the dtype that holds an element type."""
    if element == "i1":
        return np.dtype(bool)
    return np.dtype(np.int64 if element.startswith("ptr<") else _DIRECT.get(element, np.float32))


def is_float(element: str) -> bool:
    """Return whether an element type is a float."""
    return element[0] in "fb" or element == "tf32"


def from_bits(bits: Array, element: str) -> Array:
    """Return the values of elements by their bits, unsigned integers of the element's bytes in memory."""
    if element in _HALVES:
        return widen(bits, element)
    if element == "i1":
        return bits != 0
    if element == "fnv8E5M3FNU":
        return _UE5M3.astype(np.float32)[bits]
    if element in _SMALL:
        return bits.view(_SMALL[element]).astype(np.float32)
    return bits.view(dtype_of(element))


def to_bits(values: Array, element: str) -> Array:
    """Return the bits of elements, which the values are exactly."""
    if element == "bf16":
        return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if element == "f16":
        return values.astype(np.float16).view(np.uint16)
    if element == "i1":
        return values.astype(np.uint8)
    if element == "fnv8E5M3FNU":
        return np.where(np.isnan(values), 255, np.searchsorted(_UE5M3[:255], values)).astype(np.uint8)
    if element in _SMALL:
        return values.astype(_SMALL[element]).view(np.uint8)
    return values.view(f"u{values.itemsize}")


def rounded(values: Array, element: str, mode: str = "nearest_even") -> Array:
    """Return float32 or float64 values rounded to a type, as they are held.

    Args:
        values, element: The values, and the type to round to.
        mode: The dialect's word for the rounding mode.
    """
    if element in _HALVES:
        return widen(round_half(np.asarray(values), element, MODES[mode]), element)
    if element == "f64":
        return values.astype(np.float64)
    if element in _SMALL or element == "fnv8E5M3FNU":
        return _rounded_to_small(values, element, mode)
    if values.dtype == np.float64:
        values = narrow(np.atleast_1d(values), MODES.get(mode, "rn")).reshape(values.shape)
        if element == "f32":
            return values
    return _rounded_to_tf32(values, mode) if element == "tf32" else values


def cut_tf32(bits: Array) -> Array:
    """Return the floats of tf32 that 32 bits begin with."""
    return (bits & _TF32_CUT).view(np.float32)


def _rounded_to_tf32(values: Array, mode: str) -> Array:
    bits = values.view(np.uint32)
    if mode == "nearest_away":
        # Of a NaN it only cuts bits off (measured: H100, driver 580).
        return cut_tf32(np.where(np.isfinite(values), bits + _TF32_HALF, bits))
    if mode == "nearest_even":
        bits = bits + (_TF32_HALF - np.uint32(1)) + ((bits >> np.uint32(13)) & np.uint32(1))
    return np.where(np.isnan(values), np.float32(np.nan), cut_tf32(bits))


def _rounded_to_small(values: Array, element: str, mode: str) -> Array:
    if element == "f8E8M0FNU":  # powers of two
        fraction, exponent = np.frexp(np.abs(values).astype(np.float64))
        power = exponent - 1 + ((fraction > 0.5) & (mode == "positive_inf"))
        result = np.ldexp(np.float32(1), np.clip(power, -127, 127))
        return np.where(np.isnan(values), np.float32(np.nan), result).astype(np.float32)
    if element == "fnv8E5M3FNU":  # to the nearest; of two the one whose last bit is 0
        held = np.clip(values.astype(np.float64), 0, _UE5M3[254])
        above = np.clip(np.searchsorted(_UE5M3[:255], held), 1, 254)
        middle = (_UE5M3[above - 1] + _UE5M3[above]) / 2
        down = (held < middle) | ((held == middle) & (above % 2 == 1))
        return np.where(np.isnan(values), np.nan, _UE5M3[above - down]).astype(np.float32)
    largest = _LARGEST[element]
    clipped = np.clip(values, -largest, largest)
    return clipped.astype(_SMALL[element]).astype(np.float32)


def constant(literal: TileConstant) -> Array:
    """Return the value of a constant, in its type's shape."""
    type_, data, _ = literal
    if type_.element == "i1":
        values = np.frombuffer(data, np.uint8)
        if len(data) == -(-type_.size // 8) != type_.size:
            values = np.unpackbits(values, bitorder="little")[: type_.size]
        values = values != 0
    else:
        values = from_bits(np.frombuffer(data, f"<u{type_.itemsize}"), type_.element)
    if values.size == 1:
        return np.broadcast_to(values.reshape(()), type_.shape)
    return values.reshape(type_.shape)


ArrayFunction = Callable[..., Any]


def in_rows(function: ArrayFunction) -> ArrayFunction:
    """Return a function of one-dimensional arrays as one of arrays of any shape, which are broadcast."""

    def run(*arrays: Array) -> Array:
        shape = np.shape(arrays[0])
        if any(np.shape(a) != shape for a in arrays):
            shape = np.broadcast_shapes(*map(np.shape, arrays))
            arrays = tuple(np.broadcast_to(a, shape) for a in arrays)
        return function(*[np.ascontiguousarray(a).reshape(-1) for a in arrays]).reshape(shape)

    return run
