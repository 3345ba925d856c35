"""Arithmetic, comparisons and conversions of tiles, element by element.

Each row is an operation of the dialect and the maker of its function. What the dialect calls approximate is
computed in float64 and rounded, which is well within any bound.

Source: NVIDIA/cuda-tile, Ops.td; for saturating conversions PTX ISA, "cvt".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dotcu.simulator.machine.shape import Array
from dotcu.simulator.semantics.arithmetic.convert import odd_double
from dotcu.simulator.semantics.arithmetic.half import round_half, widen
from dotcu.simulator.semantics.arithmetic.rounding import (
    ROUNDED,
    extreme,
    flush,
    fused,
    to_odd,
    two_sum,
)
from dotcu.simulator.tile.elements import MODES, Function, dtype_of, in_rows, is_float, rounded
from dotcu.tile_ir.module import ELEMENT_BITS, TileFunction, TileOperation

Maker = Callable[[TileOperation, TileFunction], Function]


def _element(operation: TileOperation, function: TileFunction) -> str:
    return function.types[operation.inputs[0]].element


def _finished(compute: Function, operation: TileOperation, element: str) -> Function:
    """Return a function of floats with flushing and the rounding to its type."""
    finish: Function = compute
    if element not in ("f32", "f64"):
        finish = lambda *a: rounded(compute(*a), element)  # noqa: E731
    if not operation.attributes.get("flush_to_zero"):
        return finish
    return lambda *a: flush(np.asarray(finish(*(flush(np.asarray(x)) for x in a))))


_NEAREST: Mapping[str, Function] = {
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide, "sqrt": np.sqrt,
}  # fmt: skip
_OPCODES = {"addf": "add", "subf": "sub", "mulf": "mul", "divf": "div", "sqrt": "sqrt"}


def _rounding(operation: TileOperation, function: TileFunction) -> Function:
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


def _fma(operation: TileOperation, function: TileFunction) -> Function:
    element = _element(operation, function)
    mode = MODES.get(operation.attributes["rounding_mode"], "rn")
    if element in ("f32", "f64"):
        return _finished(in_rows(lambda a, b, c: fused(a, b, c, mode)), operation, element)

    def half(a: Array, b: Array, c: Array) -> Array:
        total, error = two_sum(np.multiply(a, b, dtype=np.float64), c.astype(np.float64))
        odd = to_odd(total, np.where(np.isfinite(total), error, 0.0))
        return widen(round_half(odd, element, mode), element)

    return _finished(in_rows(half), operation, element)


def _precise(compute: Function) -> Maker:
    """Return the maker of a function that is computed in float64."""

    def make(operation: TileOperation, function: TileFunction) -> Function:
        element = _element(operation, function)
        held = dtype_of(element)

        def run(*arrays: Array) -> Array:
            result = compute(*(np.asarray(a).astype(np.float64) for a in arrays))
            values: Array = np.asarray(result).astype(held)
            return values

        return _finished(run, operation, element)

    return make


def _extreme(largest: bool) -> Maker:
    def make(operation: TileOperation, function: TileFunction) -> Function:
        nan = bool(operation.attributes.get("propagate_nan"))
        compute = in_rows(lambda a, b: extreme(a, b, largest=largest, nan=nan, signs=False))
        return _finished(compute, operation, _element(operation, function))

    return make


def _plain(compute: Function) -> Maker:
    return lambda operation, function: compute


# Integers


def _unsigned(a: Array) -> Array:
    values = np.asarray(a)
    return values.view(f"u{values.itemsize}") if values.dtype != bool else values.view(np.uint8)


def _signed(a: Array) -> Array:
    """Integers as signed ones; a true i1 is -1."""
    return -np.asarray(a).view(np.int8) if a.dtype == bool else a


def _by_sign(compute: Function, *, comparison: bool = False) -> Maker:
    """Return the maker of a function of integers that are signed or not."""

    def make(operation: TileOperation, function: TileFunction) -> Function:
        held = np.dtype(bool) if comparison else dtype_of(_element(operation, function))
        read = _signed if operation.attributes["signedness"] == "signed" else _unsigned

        def run(a: Array, b: Array) -> Array:
            result = np.asarray(compute(read(a), read(b)))
            if result.dtype == held:
                return result
            return (result & 1) != 0 if held.kind == "b" else result.view(held)

        return run

    return make


def _flags(on_flags: Function, compute: Function) -> Maker:
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
        ceiling: Array = floor + inexact.astype(a.dtype)
        return ceiling
    quotient: Array = floor + (inexact & ((a < 0) != (safe < 0))).astype(a.dtype)
    return quotient


def _divide(operation: TileOperation, function: TileFunction) -> Function:
    rounding = operation.attributes["rounding"]
    return _by_sign(lambda a, b: _quotient(a, b, rounding))(operation, function)


def _remainder(a: Array, b: Array) -> Array:
    return np.where(b == 0, a, a - _quotient(a, b, "zero") * b)


def _shifted(compute: Function, operation: TileOperation, function: TileFunction) -> Function:
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
    if x.itemsize < 8:
        bits = 8 * x.itemsize
        wide = x.astype(np.uint64) * y.astype(np.uint64)
        upper = (wide >> np.uint64(bits)).astype(x.dtype)
        upper_half: Array = upper.view(a.dtype)
        return upper_half
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + ((x0 * y0) >> half)
    upper = x1 * y1 + (middle >> half) + ((x0 * y1 + (middle & low)) >> half)
    return np.asarray(upper).view(a.dtype)


# Comparisons

_COMPARISONS: Mapping[str, Function] = {
    "equal": np.equal, "not_equal": np.not_equal, "less_than": np.less, "less_than_or_equal": np.less_equal,
    "greater_than": np.greater, "greater_than_or_equal": np.greater_equal,
}  # fmt: skip


def _compare(operation: TileOperation, function: TileFunction) -> Function:
    compute = _COMPARISONS[operation.attributes["comparison_predicate"]]
    return _by_sign(compute, comparison=True)(operation, function)


def _compare_floats(operation: TileOperation, function: TileFunction) -> Function:
    predicate = operation.attributes["comparison_predicate"]
    compute = _COMPARISONS[predicate]
    if operation.attributes["comparison_ordering"] == "unordered":
        if predicate == "not_equal":
            return compute
        return lambda a, b: compute(a, b) | np.isnan(a) | np.isnan(b)
    if predicate == "not_equal":
        return lambda a, b: (a < b) | (a > b)
    return compute


# Conversions


def _target(operation: TileOperation, function: TileFunction) -> str:
    return function.types[operation.results[0]].element


def _extend(operation: TileOperation, function: TileFunction) -> Function:
    held = dtype_of(_target(operation, function))
    if operation.attributes["signedness"] == "signed":
        return lambda a: np.asarray(_signed(a)).astype(held)
    return lambda a: _unsigned(a).astype(held)


def _truncate(operation: TileOperation, function: TileFunction) -> Function:
    held = dtype_of(_target(operation, function))
    if held.kind == "b":
        return lambda a: (a & 1) != 0
    return lambda a: np.asarray(a).astype(held)


def _float_to_float(operation: TileOperation, function: TileFunction) -> Function:
    source, target = _element(operation, function), _target(operation, function)
    mode = operation.attributes["rounding_mode"]
    if target == "f64" or (target == "f32" and source != "f64"):
        return lambda a: np.asarray(a).astype(dtype_of(target))
    return lambda a: rounded(np.asarray(a), target, mode)


def _integer_to_float(operation: TileOperation, function: TileFunction) -> Function:
    target, mode = _target(operation, function), operation.attributes["rounding_mode"]
    read = _signed if operation.attributes["signedness"] == "signed" else _unsigned
    if target == "f64":
        return lambda a: np.asarray(read(a)).astype(np.float64)
    return in_rows(lambda a: rounded(odd_double(np.asarray(read(a))), target, mode))


def _float_to_integer(operation: TileOperation, function: TileFunction) -> Function:
    target = dtype_of(_target(operation, function))
    bits = 8 * target.itemsize
    signed = operation.attributes["signedness"] == "signed"
    kind = np.dtype(f"{'i' if signed else 'u'}{target.itemsize}")
    low, beyond = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if signed else (0.0, 2.0**bits)
    limits = np.iinfo(kind)

    def run(a: Array) -> Array:
        whole = np.trunc(np.asarray(a).astype(np.float64))
        inside = (whole >= low) & (whole < beyond)
        result = np.where(inside, whole, 0.0).astype(kind)
        if not inside.all():
            result = np.where(whole >= beyond, kind.type(limits.max), result)
            result = np.where(whole < low, kind.type(limits.min), result)
        return np.asarray(result).view(target)

    return run


def _power(a: Array, b: Array) -> Array:
    return np.power(a, b)


ELEMENTWISE: Mapping[str, Maker] = {
    **dict.fromkeys(("addf", "subf", "mulf", "divf", "sqrt"), _rounding),
    "fma": _fma,
    "exp": _precise(np.exp),
    "exp2": _precise(np.exp2),
    "log": _precise(np.log),
    "log2": _precise(np.log2),
    "sin": _precise(np.sin),
    "cos": _precise(np.cos),
    "tan": _precise(np.tan),
    "sinh": _precise(np.sinh),
    "cosh": _precise(np.cosh),
    "tanh": _precise(np.tanh),
    "atan2": _precise(np.arctan2),
    "rsqrt": _precise(lambda a: 1.0 / np.sqrt(a)),
    "pow": _precise(_power),
    "fpowi": _precise(_power),
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
}
"""The operations that work element by element, by name."""

_FLOAT_OPERATIONS = {
    **dict.fromkeys(("addf", "subf", "mulf", "divf", "sqrt", "rsqrt", "exp", "exp2", "log", "log2"), 1),
    **dict.fromkeys(("sin", "cos", "tan", "sinh", "cosh", "tanh", "atan2", "pow", "fpowi"), 1),
    "fma": 2,
}
_SPECIAL = frozenset(
    [
        "exp",
        "exp2",
        "log",
        "log2",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "atan2",
        "pow",
        "fpowi",
        "rsqrt",
    ]
)


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
    kind = _CLASSES.get(name) or ("special" if name in _SPECIAL else _class(type_.element))
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
