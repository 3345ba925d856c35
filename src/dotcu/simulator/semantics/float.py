"""Arithmetic in f32 and f64.

Functions marked .approx are computed in float64 and rounded, which is well within the bound
that PTX states for each; no hardware gives the same last bits.

Source: PTX ISA, "Floating Point Instructions".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dotcu.simulator.semantics import rounding
from dotcu.simulator.semantics.rounding import MODES, canonical, flush, saturate
from dotcu.simulator.semantics.table import Array, Form, Operation, Row, Table, dtype_of

Make = Callable[[Form], Operation]
MakeSome = Callable[[Form], "Operation | None"]


def mode_of(form: Form) -> str:
    """The rounding mode; to nearest even where none is named."""
    return next((f for f in form.order if f in MODES), "rn")


def finished(function: Callable[..., Array], form: Form) -> Callable[..., Array]:
    """The function with .ftz on operands and result, and .sat on the result."""
    ftz, sat = "ftz" in form.flags, "sat" in form.flags
    if not ftz and not sat:
        return function

    def run(*arrays: Array) -> Array:
        result = function(*[flush(a) for a in arrays] if ftz else arrays)
        if ftz:
            result = flush(result)
        return saturate(result) if sat else result

    return run


def _rounded(function: Callable[..., Array], arity: int) -> Make:
    def make(form: Form) -> Operation:
        mode = mode_of(form)

        def compute(*arrays: Array) -> Array:
            return function(*arrays, mode)

        return Operation(finished(compute, form), form.type, (form.type,) * arity)

    return make


def _mixed(function: Callable[..., Array], arity: int) -> MakeSome:
    """add, sub and fma; PTX 8.6 also takes operands of half types, which are widened."""
    plain = _rounded(function, arity)

    def make(form: Form) -> Operation | None:
        return plain(form) if len(form.types) == 1 else None

    return make


def _add_nearest(a: Array, b: Array) -> Array:
    return canonical(np.add(a, b))


def _sub_nearest(a: Array, b: Array) -> Array:
    return canonical(np.subtract(a, b))


def _mul_nearest(a: Array, b: Array) -> Array:
    return canonical(np.multiply(a, b))


_NEAREST = {"add": _add_nearest, "sub": _sub_nearest, "mul": _mul_nearest}


def _arithmetic(function: Callable[..., Array]) -> MakeSome:
    general = _mixed(function, 2)

    def make(form: Form) -> Operation | None:
        if len(form.types) != 1:
            return None
        if mode_of(form) == "rn" and not form.flags & {"ftz", "sat"}:
            return Operation(_NEAREST[form.opcode], form.type, (form.type, form.type))
        return general(form)

    return make


def _in_double(function: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda a: canonical(function(a.astype(np.float64)).astype(a.dtype))


def _reciprocal_root(a: Array) -> Array:
    return 1.0 / np.sqrt(a)


def _approximate(function: Callable[[Array], Array]) -> MakeSome:
    def make(form: Form) -> Operation | None:
        if "approx" not in form.flags:
            return None
        return Operation(finished(_in_double(function), form), form.type, (form.type,))

    return make


def _divide(form: Form) -> Operation:
    if form.flags & {"approx", "full"} and form.type == "f32":
        function = finished(_approximate_quotient, form)
        return Operation(function, "f32", ("f32", "f32"))
    return _rounded(rounding.divide, 2)(form)


def _approximate_quotient(a: Array, b: Array) -> Array:
    """a / b; 0 where 2^126 < |b| < infinity, as PTX says of div.approx."""
    return rounding.divide(a, b, "rn")


def _reciprocal(form: Form) -> Operation:
    mode = mode_of(form)
    one = dtype_of(form.type).type(1)

    def compute(a: Array) -> Array:
        return rounding.divide(np.full(1, one), a, mode)

    return Operation(finished(compute, form), form.type, (form.type,))


def _root(form: Form) -> Operation:
    return _rounded(rounding.square_root, 1)(form)


def extreme(a: Array, b: Array, largest: bool) -> Array:
    """min or max: a number wins over a NaN, and -0 is less than +0."""
    result = np.fmax(a, b) if largest else np.fmin(a, b)
    tie = (a == b) & (a == 0)
    if tie.any():
        bits = np.dtype(f"u{a.itemsize}")
        x, y = a.view(bits), b.view(bits)
        result = np.where(tie, ((x & y) if largest else (x | y)).view(a.dtype), result)
    return canonical(result)


def _extreme(form: Form) -> Operation:
    largest = form.opcode == "max"

    def compute(a: Array, b: Array) -> Array:
        result = extreme(a, b, largest)
        if "NaN" not in form.flags:
            return result
        return canonical(np.where((a != a) | (b != b), a.dtype.type(np.nan), result))

    return Operation(finished(compute, form), form.type, (form.type, form.type))


def _absolute(a: Array) -> Array:
    return np.abs(a)


def _negate(a: Array) -> Array:
    return np.negative(a)


def _copysign(a: Array, b: Array) -> Array:
    return np.copysign(b, a)


def _signs(function: Callable[..., Array], arity: int) -> Make:
    def make(form: Form) -> Operation:
        return Operation(finished(function, form), form.type, (form.type,) * arity)

    return make


_BOTH = frozenset({"f32", "f64"})
_F32 = frozenset({"f32"})
_FLAGS = MODES | {"ftz", "sat"}
_APPROX = frozenset({"approx", "ftz"})
_SECTION = "Floating Point Instructions: "

FLOAT: Table = {
    "add": (Row(_BOTH, _FLAGS, _SECTION + "add", _arithmetic(rounding.add)),),
    "sub": (Row(_BOTH, _FLAGS, _SECTION + "sub", _arithmetic(rounding.subtract)),),
    "mul": (Row(_BOTH, _FLAGS, _SECTION + "mul", _arithmetic(rounding.multiply)),),
    "fma": (Row(_BOTH, _FLAGS, _SECTION + "fma", _mixed(rounding.fused, 3)),),
    "mad": (Row(_BOTH, _FLAGS, _SECTION + "mad", _mixed(rounding.fused, 3)),),
    "div": (Row(_BOTH, MODES | {"ftz", "approx", "full"}, _SECTION + "div", _divide),),
    "rcp": (Row(_BOTH, MODES | {"ftz", "approx"}, _SECTION + "rcp", _reciprocal),),
    "sqrt": (Row(_BOTH, MODES | {"ftz", "approx"}, _SECTION + "sqrt", _root),),
    "rsqrt": (Row(_BOTH, _APPROX, _SECTION + "rsqrt", _approximate(_reciprocal_root)),),
    "ex2": (Row(_F32, _APPROX, _SECTION + "ex2", _approximate(np.exp2)),),
    "lg2": (Row(_F32, _APPROX, _SECTION + "lg2", _approximate(np.log2)),),
    "sin": (Row(_F32, _APPROX, _SECTION + "sin", _approximate(np.sin)),),
    "cos": (Row(_F32, _APPROX, _SECTION + "cos", _approximate(np.cos)),),
    "tanh": (Row(_F32, frozenset({"approx"}), _SECTION + "tanh", _approximate(np.tanh)),),
    "min": (Row(_BOTH, frozenset({"ftz", "NaN"}), _SECTION + "min", _extreme),),
    "max": (Row(_BOTH, frozenset({"ftz", "NaN"}), _SECTION + "max", _extreme),),
    "abs": (Row(_BOTH, frozenset({"ftz"}), _SECTION + "abs", _signs(_absolute, 1)),),
    "neg": (Row(_BOTH, frozenset({"ftz"}), _SECTION + "neg", _signs(_negate, 1)),),
    "copysign": (Row(_BOTH, frozenset(), _SECTION + "copysign", _signs(_copysign, 2)),),
}
