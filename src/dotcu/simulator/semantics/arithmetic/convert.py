"""Conversions: cvt between all types, and packed forms.

Source: PTX ISA, "Data Movement and Conversion Instructions: cvt".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from dotcu.ptx.instructions import Instruction
from dotcu.simulator.machine.state import InstructionStep
from dotcu.simulator.program.binding import (
    MANY,
    Binding,
    NotExecuted,
    counted,
    dtype_of,
    only,
    require,
    unsigned,
)
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.arithmetic.float import INFINITY, clip_below, round_half, saturate_half, widen
from dotcu.simulator.semantics.arithmetic.rounding import (
    MODES,
    canonical,
    directed,
    flush,
    mode_of,
    narrow,
    saturate,
    to_odd,
)
from dotcu.simulator.semantics.table import (
    FLOATS,
    HALF_PAIRS,
    HALVES,
    Operation,
    bind_elementwise,
    step_of,
)

_FLOATS = FLOATS | HALVES
_TO_INTEGER: Mapping[str, Callable[[Array], Array]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
_FP8: Mapping[str, type] = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}
# The largest finite value: OCP 8-bit Floating Point Specification, table 1.
_FP8_LARGEST = {"e4m3x2": np.float32(448), "e5m2x2": np.float32(57344)}
_KNOWN = MODES | set(_TO_INTEGER) | {"sat", "ftz", "relu", "satfinite", "rna"}

Convert = Callable[[Array], Array]


def bind_cvt(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """cvt: one operand, or two that are packed into one result, the first one high."""
    ptx = instruction.ptx
    if "pack" in ptx.flags:
        return bind_elementwise(_pack(ptx), ptx, binding)
    require(len(ptx.types) == 2 and _KNOWN.issuperset(ptx.flags))
    operation = conversion(ptx)
    target, *operands = counted(ptx.operands, 1 + len(operation.sources))
    sources = [binding.wide_source(o, t) for o, t in zip(operands, operation.sources, strict=True)]
    return step_of(operation, binding.destination(target), sources)


def conversion(ptx: Instruction) -> Operation:
    """The operation of a cvt.

    Raises:
        NotExecuted: The simulator has no such conversion.
    """
    to, source = ptx.types
    if to in HALF_PAIRS:
        return _to_pair(ptx)
    if to in _FP8:
        return _to_fp8(ptx)
    if to == "tf32":
        return Operation(_to_tf32(ptx), "b32", ("f32",))
    convert = _CONVERSIONS[source in _FLOATS, to in _FLOATS]
    return Operation(convert(ptx, to, source), to, (source,))


def _integer_to_integer(ptx: Instruction, to: str, source: str) -> Convert:
    target, given = dtype_of(to), dtype_of(source)
    if "sat" not in ptx.flags:
        return lambda a: a.astype(target)
    require(target.kind in "iu" and given.kind in "iu")
    low = max(int(np.iinfo(target).min), int(np.iinfo(given).min))
    high = min(int(np.iinfo(target).max), int(np.iinfo(given).max))
    return lambda a: np.clip(a, given.type(low), given.type(high)).astype(target)


def _integer_to_float(ptx: Instruction, to: str, source: str) -> Convert:
    mode = mode_of(ptx)

    def convert(a: Array) -> Array:
        if to in HALVES:
            bits = round_half(odd_double(a), to, mode)
            return saturate_half(bits, to) if "sat" in ptx.flags else bits
        if to == "f32":
            result = a.astype(np.float32) if mode == "rn" else narrow(odd_double(a), mode)
        else:
            near = a.astype(np.float64)
            result = near if mode == "rn" else directed(near, _left_over(a, near), mode)
        return saturate(result) if "sat" in ptx.flags else result

    return convert


def _left_over(a: Array, near: Array) -> Array:
    """The sign of a - near, for 64-bit integers whose nearest double is near."""
    if a.itemsize < 8:
        return np.zeros(a.shape)
    high = (a >> a.dtype.type(32)).astype(np.float64) * 2.0**32
    low = (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return (high - near) + low


def odd_double(a: Array) -> Array:
    """An integer as a double, rounded to odd where it does not fit."""
    near = a.astype(np.float64)
    return near if a.itemsize < 8 else to_odd(near, _left_over(a, near))


def _float_to_integer(ptx: Instruction, to: str, source: str) -> Convert:
    to_whole = only([_TO_INTEGER[f] for f in ptx.flags if f in _TO_INTEGER])
    target = dtype_of(to)
    # PTX ISA, cvt: NaN gives 0 from a narrower float to a narrower integer, else 1 << (n - 1).
    nan = 0 if source != "f64" and target.itemsize < 8 else 1 << (8 * target.itemsize - 1)
    nan_value = np.array([nan], f"u{target.itemsize}").view(target)[0]

    def convert(a: Array) -> Array:
        values = widen(a, source) if source in HALVES else a
        if "ftz" in ptx.flags and source == "f32":
            values = flush(values)
        whole = to_whole(values.astype(np.float64))
        result, inside = clamped(whole, target)
        return result if inside else np.where(np.isnan(whole), nan_value, result)

    return convert


def clamped(whole: Array, target: np.dtype[Any]) -> tuple[Array, bool]:
    """Return whole float64 numbers as integers of a dtype, clamped, NaN as 0; and whether none was."""
    limits = np.iinfo(target)
    beyond = 2.0 ** (8 * target.itemsize - (1 if target.kind == "i" else 0))
    inside = (whole >= float(limits.min)) & (whole < beyond)
    result = np.where(inside, whole, 0.0).astype(target)
    if inside.all():
        return result, True
    result = np.where(whole >= beyond, target.type(limits.max), result)
    return np.where(whole < float(limits.min), target.type(limits.min), result), False


def _float_to_float(ptx: Instruction, to: str, source: str) -> Convert:
    whole = next((_TO_INTEGER[f] for f in ptx.flags if f in _TO_INTEGER), None)
    mode = mode_of(ptx)
    ftz = "ftz" in ptx.flags
    is_copy = to == "f32" and source in ("f32", "bf16") and not (ftz or "sat" in ptx.flags)

    def convert(a: Array) -> Array:
        values = widen(a, source) if source in HALVES else a
        if ftz and source == "f32" and to != "f16":  # to f16, ptxas drops .ftz (measured: CUDA 13.0)
            values = flush(values)
            if to == "f64":  # it flushes by an addition in f32, whose NaN is the canonical one
                values = canonical(np.array(values))
        if whole is not None:
            values = whole(values)
        elif is_copy:  # or a shift: NaN stays
            return np.array(values)
        result = _round_to(values, to, mode)
        if source == "f64" and to in _NAN_OF_F64:
            result = _with_narrowed_nan(values, result, *_NAN_OF_F64[to])
        return _finish(result, ptx, to)

    return convert


# A NaN of f64 becomes quiet, and keeps its sign and the upper bits of its payload: the narrower type's quiet
# NaN, and how many bits it drops. PTX says nothing of it (measured: H200, CUDA 13.0).
_NAN_OF_F64 = {"f32": (0x7FC00000, 29), "f16": (0x7E00, 42), "bf16": (0x7FC0, 45)}


def _with_narrowed_nan(values: Array, result: Array, nan: int, dropped: int) -> Array:
    """The result, with the narrowed NaN of the operand where that is NaN."""
    is_nan = np.isnan(values)
    if not is_nan.any():
        return result
    word = unsigned(result.itemsize)
    sign = np.signbit(values).astype(word) << word.type(8 * result.itemsize - 1)
    upper = (values.view(np.uint64) >> np.uint64(dropped)).astype(word)
    magnitude = upper & word.type((1 << (8 * result.itemsize - 1)) - 1)
    return np.where(is_nan, sign | magnitude | word.type(nan), result.view(word)).view(result.dtype)


def _round_to(values: Array, to: str, mode: str) -> Array:
    if to in HALVES:
        return round_half(values, to, mode)
    if to == "f64":
        return values.astype(np.float64)
    if values.dtype == np.float64:
        return canonical(narrow(values, mode))
    return canonical(values.copy())


def _finish(result: Array, ptx: Instruction, to: str) -> Array:
    """Apply the modifiers that say what becomes of a rounded value."""
    flags = ptx.flags
    if to in HALVES:
        if "satfinite" in flags:
            is_infinite = (result & np.uint16(0x7FFF)) == INFINITY[to]
            result = np.where(is_infinite, result - np.uint16(1), result)
        result = clip_below(result, to) if "relu" in flags else result
        return saturate_half(result, to) if "sat" in flags else result
    if "ftz" in flags and to == "f32":
        result = flush(result)
    return saturate(result) if "sat" in flags else result


# By whether the source and the result are floats.
_CONVERSIONS: Mapping[tuple[bool, bool], Callable[[Instruction, str, str], Convert]] = {
    (False, False): _integer_to_integer,
    (False, True): _integer_to_float,
    (True, False): _float_to_integer,
    (True, True): _float_to_float,
}


# The bits of a f32 that tf32 drops, the largest finite tf32, infinity, and the canonical NaN without those.
_TF32_DROPPED = np.uint32(0x1FFF)
_TF32_LARGEST = np.uint32(0x7F7FE000)
_TF32_INFINITY = np.uint32(0x7F800000)
_TF32_NAN = np.uint32(0x7FFFE000)


def _to_tf32(ptx: Instruction) -> Convert:
    flags = ptx.flags

    def convert(a: Array) -> Array:
        bits = a.view(np.uint32)
        bias = np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
        if "rna" in flags or "rz" in flags:
            bias = np.uint32(0x1000 if "rna" in flags else 0)
        # Of a NaN, .rna only cuts bits off; all others give the canonical one (measured: H200, CUDA 13.0).
        result = np.where(np.isfinite(a), bits + bias, bits) & ~_TF32_DROPPED
        if flags == ("rna", "satfinite"):  # as ptxas spells it: one less, where the exponent is all ones
            top = (result & _TF32_INFINITY) == _TF32_INFINITY
            return result - np.where(top, _TF32_DROPPED + np.uint32(1), np.uint32(0))
        if "satfinite" in flags:
            magnitude = np.minimum(result & np.uint32(0x7FFFFFFF), _TF32_LARGEST)
            result = (bits & np.uint32(0x80000000)) | magnitude
        if "relu" in flags:
            result = np.where(np.signbit(a), np.uint32(0), result)
        keeps_nan = flags == ("rna",)
        return result if keeps_nan else np.where(np.isnan(a), _TF32_NAN, result)

    return convert


def _pack(ptx: Instruction) -> Operation:
    """cvt.pack: two integers, clamped, packed below what the third operand has shifted up."""
    kind, *others = counted([f for f in (*ptx.flags, *ptx.types) if f not in ("pack", "sat")], 1, MANY)
    require(kind[1:].isdigit())
    bits = int(kind[1:])
    if "sat" not in ptx.flags or kind[0] not in "us" or others != (["s32"] if bits == 16 else ["s32", "b32"]):
        raise NotExecuted
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    mask, by, shift = np.uint32((1 << bits) - 1), np.uint32(bits), np.uint32(2 * bits)

    def both(a: Array, b: Array) -> Array:
        upper = np.clip(a, low, high).view(np.uint32) & mask
        return (upper << by) | (np.clip(b, low, high).view(np.uint32) & mask)

    if bits == 16:
        return Operation(both, "b32", ("s32", "s32"))
    return Operation(lambda a, b, c: (c << shift) | both(a, b), "b32", ("s32", "s32", "b32"))


def _to_pair(ptx: Instruction) -> Operation:
    to, source = ptx.types
    scalar = to.removesuffix("x2")
    if source in _FP8 and to == "f16x2":  # to bf16x2 only architectures after sm_90 go
        return Operation(_from_fp8(source, ptx), to, ("b16",))
    require(source == "f32")
    mode = mode_of(ptx)

    def convert(high: Array, low: Array) -> Array:
        upper = _finish(round_half(high, scalar, mode), ptx, scalar)
        lower = _finish(round_half(low, scalar, mode), ptx, scalar)
        return (upper.astype(np.uint32) << np.uint32(16)) | lower

    return Operation(convert, to, ("f32", "f32"))


def _to_fp8(ptx: Instruction) -> Operation:
    to, source = ptx.types
    require("satfinite" in ptx.flags and source in ("f32", "f16x2"))

    def both(high: Array, low: Array) -> Array:
        upper = _fp8_bits(high, to, ptx).astype(np.uint16) << np.uint16(8)
        return np.bitwise_or(upper, _fp8_bits(low, to, ptx))

    if source == "f32":
        return Operation(both, "b16", ("f32", "f32"))
    scalar = source.removesuffix("x2")

    def convert(pair: Array) -> Array:
        upper = widen((pair >> np.uint32(16)).astype(np.uint16), scalar)
        lower = widen(pair.astype(np.uint16), scalar)
        return both(upper, lower)

    return Operation(convert, "b16", (source,))


def _fp8_bits(values: Array, to: str, ptx: Instruction) -> Array:
    kind = _FP8[to]
    largest = _FP8_LARGEST[to]
    if "relu" in ptx.flags:
        values = np.where(np.signbit(values) & (values == values), np.float32(0), values)
    clipped = np.clip(values, -largest, largest)
    bits = clipped.astype(kind).view(np.uint8)
    return np.where(np.isnan(values), np.uint8(0x7F), bits)


def _from_fp8(source: str, ptx: Instruction) -> Convert:
    kind = _FP8[source]

    def convert(pair: Array) -> Array:
        values = np.ascontiguousarray(pair).view(np.uint8).view(kind).astype(np.float32)
        bits = round_half(values, "f16")
        return (clip_below(bits, "f16") if "relu" in ptx.flags else bits).view(np.uint32)

    return convert
