"""Tiles' values: their elements as NumPy holds them, and the operations on values alone.

Floats that are narrower than float32 are held as float32, which has every value of theirs: matrices go to
BLAS as they are, and an operation rounds its float32 result to the type. Sums, products, quotients and roots
are right that way, since float32 has more than twice the bits of bf16 and f16.

Source: S. A. Figueroa, "When is double rounding innocuous?" (1995) for the bits that suffice;
NVIDIA/cuda-tile, Types.td for the types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from dotcu.simulator.program.binding import chosen
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.arithmetic.convert import clamped, odd_double
from dotcu.simulator.semantics.arithmetic.float import round_half, widen
from dotcu.simulator.semantics.arithmetic.integer import high_half
from dotcu.simulator.semantics.arithmetic.rounding import (
    ROUNDED,
    extreme,
    flush,
    fused,
    narrow,
    to_odd,
    two_sum,
)
from dotcu.tile_ir.module import ELEMENT_BITS, TileConstant, TileFunction, TileOperation

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


# The operations.
#
# Each row is an operation of the dialect and the maker of its function. What the dialect calls approximate is
# computed in float64 and rounded, which is well within any bound.
#
# Source: NVIDIA/cuda-tile, Ops.td; for saturating conversions PTX ISA, "cvt".


_ONE_THREAD = 1 << 18  # OpenBLAS, interface/gemm.c: products M N K up to this take no other thread

FunctionMaker = Callable[[TileOperation, TileFunction], ArrayFunction]


def _element(operation: TileOperation, function: TileFunction) -> str:
    return function.types[operation.inputs[0]].element


def _target(operation: TileOperation, function: TileFunction) -> str:
    return function.types[operation.results[0]].element


def _finished(compute: ArrayFunction, operation: TileOperation, element: str) -> ArrayFunction:
    """Return a function of floats with flushing and the rounding to its type."""
    finish: ArrayFunction = compute
    if element not in ("f32", "f64"):
        finish = lambda *a: rounded(compute(*a), element)  # noqa: E731
    if not operation.attributes.get("flush_to_zero"):
        return finish
    return lambda *a: flush(np.asarray(finish(*(flush(np.asarray(x)) for x in a))))


_NEAREST: Mapping[str, ArrayFunction] = {
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide, "sqrt": np.sqrt,
}  # fmt: skip
_OPCODES = {"addf": "add", "subf": "sub", "mulf": "mul", "divf": "div", "sqrt": "sqrt"}


def _rounding(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    element = _element(operation, function)
    mode = MODES.get(operation.attributes["rounding_mode"], "rn")
    compute = _NEAREST[operation.name]
    if mode != "rn":
        if element not in ("f32", "f64"):
            return lambda *a: rounded(
                compute(*(x.astype(np.float64) for x in a)), element, operation.attributes["rounding_mode"]
            )
        exact = ROUNDED[_OPCODES[operation.name]][0]
        compute = in_rows(lambda *a: exact(*a, mode))
    return _finished(compute, operation, element)


def _fma(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    element = _element(operation, function)
    mode = MODES.get(operation.attributes["rounding_mode"], "rn")
    if element in ("f32", "f64"):
        return _finished(in_rows(lambda a, b, c: fused(a, b, c, mode)), operation, element)

    def half(a: Array, b: Array, c: Array) -> Array:
        total, error = two_sum(np.multiply(a, b, dtype=np.float64), c.astype(np.float64))
        odd = to_odd(total, np.where(np.isfinite(total), error, 0.0))
        return widen(round_half(odd, element, mode), element)

    return _finished(in_rows(half), operation, element)


def _precise(compute: ArrayFunction) -> FunctionMaker:
    """Return the maker of a function that is computed in float64."""

    def make(operation: TileOperation, function: TileFunction) -> ArrayFunction:
        element = _element(operation, function)
        held = dtype_of(element)

        def run(*arrays: Array) -> Array:
            result = compute(*(np.asarray(a).astype(np.float64) for a in arrays))
            return np.asarray(result).astype(held)

        return _finished(run, operation, element)

    return make


def _extreme(largest: bool) -> FunctionMaker:
    def make(operation: TileOperation, function: TileFunction) -> ArrayFunction:
        nan = bool(operation.attributes.get("propagate_nan"))
        compute = in_rows(lambda a, b: extreme(a, b, largest=largest, nan=nan, signs=False))
        return _finished(compute, operation, _element(operation, function))

    return make


def _plain(compute: ArrayFunction) -> FunctionMaker:
    return lambda operation, function: compute


# Integers


def _unsigned(a: Array) -> Array:
    values = np.asarray(a)
    return values.view(f"u{values.itemsize}") if values.dtype != bool else values.view(np.uint8)


def _signed(a: Array) -> Array:
    """Integers as signed ones; a true i1 is -1."""
    return -np.asarray(a).view(np.int8) if a.dtype == bool else a


def _by_sign(compute: ArrayFunction, *, comparison: bool = False) -> FunctionMaker:
    """Return the maker of a function of integers that are signed or not."""

    def make(operation: TileOperation, function: TileFunction) -> ArrayFunction:
        held = np.dtype(bool) if comparison else dtype_of(_element(operation, function))
        read = _signed if operation.attributes["signedness"] == "signed" else _unsigned

        def run(a: Array, b: Array) -> Array:
            result = np.asarray(compute(read(a), read(b)))
            if result.dtype == held:
                return result
            return (result & 1) != 0 if held.kind == "b" else result.view(held)

        return run

    return make


def _flags(on_flags: ArrayFunction, compute: ArrayFunction) -> FunctionMaker:
    """Return the maker of a function of integers that differs for i1, which has one bit only."""
    return lambda operation, function: on_flags if _element(operation, function) == "i1" else compute


def _quotient(a: Array, b: Array, rounding: str) -> Array:
    safe = np.where(b == 0, b.dtype.type(1), b)
    floor = np.floor_divide(a, safe)
    rest = a - floor * safe
    if rounding == "negative_inf":
        return floor
    inexact = rest != 0
    if rounding == "positive_inf":
        return floor + inexact.astype(a.dtype)
    return floor + (inexact & ((a < 0) != (safe < 0))).astype(a.dtype)


def _divide(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    rounding = operation.attributes["rounding"]
    return _by_sign(lambda a, b: _quotient(a, b, rounding))(operation, function)


def _remainder(a: Array, b: Array) -> Array:
    return np.where(b == 0, a, a - _quotient(a, b, "zero") * b)


def _shifted(compute: ArrayFunction, operation: TileOperation, function: TileFunction) -> ArrayFunction:
    """Return a shift; by as many bits as there are, or more, it gives 0 or the sign."""
    bits = ELEMENT_BITS[_element(operation, function)]
    signed = operation.attributes.get("signedness") == "signed"
    read = (lambda a: a) if signed else _unsigned

    def run(a: Array, b: Array) -> Array:
        amount, value = _unsigned(b), read(np.asarray(a))
        near = compute(value, np.minimum(amount, bits - 1).astype(value.dtype))
        if not signed:
            near = np.where(amount >= bits, value.dtype.type(0), near)
        return np.asarray(near).view(a.dtype)

    return run


def _high_half(a: Array, b: Array) -> Array:
    """The upper half of the unsigned product."""
    x, y = _unsigned(a), _unsigned(b)
    return np.asarray(high_half(f"u{8 * x.itemsize}")(x, y)).view(a.dtype)


# Comparisons

_COMPARISONS: Mapping[str, ArrayFunction] = {
    "equal": np.equal, "not_equal": np.not_equal, "less_than": np.less, "less_than_or_equal": np.less_equal,
    "greater_than": np.greater, "greater_than_or_equal": np.greater_equal,
}  # fmt: skip


def _compare(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    compute = chosen(_COMPARISONS, operation.attributes["comparison_predicate"])
    return _by_sign(compute, comparison=True)(operation, function)


def _compare_floats(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    predicate = operation.attributes["comparison_predicate"]
    compute = chosen(_COMPARISONS, predicate)
    if operation.attributes["comparison_ordering"] == "unordered":
        if predicate == "not_equal":
            return compute
        return lambda a, b: compute(a, b) | np.isnan(a) | np.isnan(b)
    if predicate == "not_equal":
        return lambda a, b: (a < b) | (a > b)
    return compute


# Conversions


def _extend(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    held = dtype_of(_target(operation, function))
    if operation.attributes["signedness"] == "signed":
        return lambda a: np.asarray(_signed(a)).astype(held)
    return lambda a: _unsigned(a).astype(held)


def _truncate(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    held = dtype_of(_target(operation, function))
    if held.kind == "b":
        return lambda a: (a & 1) != 0
    return lambda a: np.asarray(a).astype(held)


def _float_to_float(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    source, target = _element(operation, function), _target(operation, function)
    mode = operation.attributes["rounding_mode"]
    if target == "f64" or (target == "f32" and source != "f64"):
        return lambda a: np.asarray(a).astype(dtype_of(target))
    return lambda a: rounded(np.asarray(a), target, mode)


def _integer_to_float(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    target, mode = _target(operation, function), operation.attributes["rounding_mode"]
    read = _signed if operation.attributes["signedness"] == "signed" else _unsigned
    if target == "f64":
        return lambda a: np.asarray(read(a)).astype(np.float64)
    return in_rows(lambda a: rounded(odd_double(np.asarray(read(a))), target, mode))


def _float_to_integer(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    target = dtype_of(_target(operation, function))
    kind = "i" if operation.attributes["signedness"] == "signed" else "u"
    held = np.dtype(f"{kind}{target.itemsize}")
    return lambda a: clamped(np.trunc(np.asarray(a).astype(np.float64)), held)[0].view(target)


# Tiles from nothing, tiles of other shapes, and tiles of the same bits


def _shape(operation: TileOperation, function: TileFunction) -> tuple[int, ...]:
    return function.types[operation.results[0]].shape


def _of_shape(compute: Callable[[Array, tuple[int, ...]], Array]) -> FunctionMaker:
    """Return the maker of a function of a tile and of the result's shape."""

    def make(operation: TileOperation, function: TileFunction) -> ArrayFunction:
        shape = _shape(operation, function)
        return lambda a: compute(a, shape)

    return make


def _iota(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    type_ = function.types[operation.results[0]]
    values = np.arange(type_.size).astype(dtype_of(type_.element))
    return lambda: values


def _permute(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    order = operation.attributes["permutation"]
    return lambda a: np.transpose(a, order)


def _cat(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    axis = operation.attributes["dim"]
    return lambda a, b: np.concatenate((a, b), axis)


def _slices(shape: Sequence[int], indices: Sequence[Array]) -> tuple[slice, ...]:
    """Return the part of a tile that a slice's number in each dimension stands for."""
    starts = [int(index) * extent for index, extent in zip(indices, shape, strict=True)]
    return tuple(slice(start, start + extent) for start, extent in zip(starts, shape, strict=True))


def _extract(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    shape = _shape(operation, function)
    return lambda source, *indices: source[_slices(shape, indices)]


def _insert(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    shape = function.types[operation.inputs[0]].shape

    def run(source: Array, target: Array, *indices: Array) -> Array:
        result = np.array(target)
        result[_slices(shape, indices)] = source
        return result

    return run


def _bitcast(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    source, target = _element(operation, function), _target(operation, function)
    return lambda a: from_bits(to_bits(np.asarray(a), source), target)


def _pack(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    element = _element(operation, function)

    def run(a: Array) -> Array:
        bits = to_bits(np.ascontiguousarray(a), element)
        if ELEMENT_BITS[element] == 4:
            low, high = bits[0::2] & np.uint8(15), bits[1::2] & np.uint8(15)
            return (low | (high << np.uint8(4))).view(np.int8)
        return bits.view(np.int8)

    return run


def _unpack(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    type_ = function.types[operation.results[0]]

    def run(a: Array) -> Array:
        data = np.ascontiguousarray(a).view(np.uint8)
        if ELEMENT_BITS[type_.element] == 4:
            nibbles = np.stack((data & np.uint8(15), data >> np.uint8(4)), axis=1).reshape(-1)
            if type_.element == "i4":
                return ((nibbles ^ np.uint8(8)) - np.uint8(8)).view(np.int8)
            return from_bits(nibbles, type_.element)
        return from_bits(data.view(f"u{type_.itemsize}"), type_.element)

    return run


# Matrix products


def _product(a: Array, b: Array) -> Array:
    """Return a matrix product, in pieces that BLAS computes on the thread that asks for them.

    Its other threads wait for each other at each product, which takes far longer than a tile's product where
    something else uses a core (measured: OpenBLAS 0.3, 2 cores, 2026-11: 14 ms instead of 0.2 ms).
    """
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    each = max(1, _ONE_THREAD // (depth * columns))
    if a.ndim != 2 or rows % each or rows <= each:
        return np.matmul(a, b)
    product = np.matmul(np.ascontiguousarray(a).reshape(rows // each, each, depth), b)
    return product.reshape(rows, columns)


def _matrix(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    source, target = _element(operation, function), _target(operation, function)

    def read(a: Array) -> Array:
        """Return what a matrix unit reads of an operand: of tf32 the upper 19 bits."""
        return cut_tf32(np.ascontiguousarray(a).view(np.uint32)) if source == "tf32" else a

    def run(a: Array, b: Array, c: Array) -> Array:
        product = _product(read(a), read(b))
        total = np.add(product, c, dtype=c.dtype if c.dtype == np.float64 else product.dtype)
        return total if target in ("f32", "f64") else rounded(total, target)

    return run


def _integer_matrix(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    signs = [operation.attributes[f"signedness_{side}"] == "signed" for side in ("lhs", "rhs")]

    def wide(a: Array, signed: bool) -> Array:
        return (a if signed else a.view(np.uint8)).astype(np.float64)

    def run(a: Array, b: Array, c: Array) -> Array:
        product = _product(wide(a, signs[0]), wide(b, signs[1]))  # exact: less than 2^53
        return (product.astype(np.int64) + c).astype(np.int32)

    return run


def _scaled_matrix(operation: TileOperation, function: TileFunction) -> ArrayFunction:
    def run(a: Array, b: Array, c: Array, a_scale: Array, b_scale: Array) -> Array:
        depth = a.shape[-1]
        left = a * np.repeat(a_scale, depth // a_scale.shape[-1], axis=-1)
        right = b * np.repeat(b_scale, depth // b_scale.shape[-2], axis=-2)
        return _product(left, right) + c

    return run


_PRECISE: Mapping[str, ArrayFunction] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "atan2": np.arctan2, "pow": np.power,
    "fpowi": np.power, "rsqrt": lambda a: 1.0 / np.sqrt(a),
}  # fmt: skip
"""The functions of special units, which count as one operation each."""

COMPUTED: Mapping[str, FunctionMaker] = {
    **dict.fromkeys(("addf", "subf", "mulf", "divf", "sqrt"), _rounding),
    "fma": _fma,
    **{name: _precise(compute) for name, compute in _PRECISE.items()},
    "remf": _precise(np.fmod),
    "maxf": _extreme(largest=True),
    "minf": _extreme(largest=False),
    "absf": _plain(np.abs),
    "negf": _plain(np.negative),
    "ceil": _plain(np.ceil),
    "floor": _plain(np.floor),
    "addi": _flags(np.logical_xor, np.add),
    "subi": _flags(np.logical_xor, np.subtract),
    "muli": _flags(np.logical_and, np.multiply),
    "negi": _flags(lambda a: a, np.negative),
    "absi": _flags(lambda a: a, np.abs),
    "andi": _plain(np.bitwise_and),
    "ori": _plain(np.bitwise_or),
    "xori": _plain(np.bitwise_xor),
    "maxi": _by_sign(np.maximum),
    "mini": _by_sign(np.minimum),
    "divi": _divide,
    "remi": _by_sign(_remainder),
    "shli": lambda operation, function: _shifted(np.left_shift, operation, function),
    "shri": lambda operation, function: _shifted(np.right_shift, operation, function),
    "mulhii": _plain(_high_half),
    "cmpi": _compare,
    "cmpf": _compare_floats,
    "select": _plain(lambda condition, a, b: np.where(condition, a, b)),
    "exti": _extend,
    "trunci": _truncate,
    "ftof": _float_to_float,
    "itof": _integer_to_float,
    "ftoi": _float_to_integer,
    "iota": _iota,
    "reshape": _of_shape(np.reshape),
    "broadcast": _of_shape(np.broadcast_to),
    "permute": _permute,
    "cat": _cat,
    "extract": _extract,
    "insert": _insert,
    "bitcast": _bitcast,
    "pack": _pack,
    "unpack": _unpack,
    "mmaf": _matrix,
    "mmai": _integer_matrix,
    "mmaf_scaled": _scaled_matrix,
    **dict.fromkeys(("ptr_to_int", "int_to_ptr", "ptr_to_ptr"), _plain(lambda a: a)),
}
"""The operations whose result their operands' values give, by name."""

_FLOAT_OPERATIONS = {**dict.fromkeys(("addf", "subf", "mulf", "divf", "sqrt", *_PRECISE), 1), "fma": 2}


def work_of(operation: TileOperation, function: TileFunction) -> tuple[str, str, int, int]:
    """Return what an operation counts as: class, type and number of its operations, elements.

    The count is as of the counters of `__global__` kernels: a fused multiply-add is two operations, a matrix
    product 2 M N K.
    """
    name = operation.name
    type_ = function.types[(operation.results or operation.inputs or (0,))[0]]
    size = type_.size if type_.kind == "tile" else 1
    if name in ("mmaf", "mmai", "mmaf_scaled"):
        depth = function.types[operation.inputs[0]].shape[-1]
        kind = _element(operation, function)
        return "matrix", "s8" if name == "mmai" else kind, 2 * depth * size, size
    if name in ("reduce", "scan"):
        source = function.types[operation.inputs[0]]
        count = sum(_FLOAT_OPERATIONS.get(inner.name, 0) for inner in operation.regions[0].operations)
        return _class(source.element), source.element, count * source.size, source.size
    count = _FLOAT_OPERATIONS.get(name, 0)
    kind = _CLASSES.get(name) or ("special" if name in _PRECISE else _class(type_.element))
    return kind, type_.element, count * size, size


def _class(element: str) -> str:
    if not element or not is_float(element):
        return "integer"
    return "float" if element in ("f32", "f64") else "half"


_CLASSES: Mapping[str, str] = {
    name: kind
    for kind, names in {
        "control": "if for loop break continue yield return assert print_tko",
        "memory": "load_ptr_tko store_ptr_tko load_view_tko store_view_tko make_tensor_view"
        " make_partition_view make_strided_view make_gather_scatter_view join_tokens make_token",
        "atomic": "atomic_rmw_tko atomic_cas_tko atomic_red_view_tko",
        "move": "constant iota reshape broadcast permute cat extract insert select bitcast pack unpack assume"
        " get_tile_block_id get_num_tile_blocks get_global ptr_to_int int_to_ptr ptr_to_ptr",
        "convert": "ftof itof ftoi exti trunci",
    }.items()
    for name in names.split()
}


# Reductions and scans

RegionBody = Callable[[Sequence[Array]], list[Array]]
"""A region's function of elements, applied to whole arrays: of first and second for each operand."""


def reduce_tiles(operands: Sequence[Array], axis: int, body: RegionBody) -> list[Array]:
    """Return tiles reduced along a dimension: halves of it are combined until one element is left.

    Args:
        body: Combines elements; the dialect leaves the order open.
    """
    tiles = [np.moveaxis(np.asarray(tile), axis, 0) for tile in operands]
    while len(tiles[0]) > 1:
        tiles = body([part for tile in tiles for part in (tile[1::2], tile[0::2])])
    return [tile[0] for tile in tiles]


def scan_tiles(operands: Sequence[Array], axis: int, body: RegionBody, *, reverse: bool) -> list[Array]:
    """Return the inclusive prefixes of tiles along a dimension.

    Args:
        reverse: From the last element to the first.
    """
    tiles = [np.moveaxis(np.array(tile), axis, 0) for tile in operands]
    if reverse:
        tiles = [tile[::-1] for tile in tiles]
    reach, count = 1, len(tiles[0])
    while reach < count:
        later = body([part for tile in tiles for part in (tile[reach:], tile[:-reach])])
        tiles = [np.concatenate((tile[:reach], new)) for tile, new in zip(tiles, later, strict=True)]
        reach *= 2
    if reverse:
        tiles = [tile[::-1] for tile in tiles]
    return [np.moveaxis(tile, 0, axis) for tile in tiles]
