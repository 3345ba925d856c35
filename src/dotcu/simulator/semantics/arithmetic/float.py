"""Arithmetic in f32 and f64.

Functions marked .approx are computed in float64 and rounded, which is well within the bound
that PTX states for each; no hardware gives the same last bits.

Source: PTX ISA, "Floating Point Instructions".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dotcu.simulator.semantics.arithmetic import rounding
from dotcu.simulator.semantics.arithmetic.half import widen
from dotcu.simulator.semantics.arithmetic.rounding import MODES, canonical, flush, saturate
from dotcu.simulator.semantics.table import Array, InstructionForm, Operation, SemanticsRow, Table, dtype_of

Make = Callable[[InstructionForm], Operation]
MakeSome = Callable[[InstructionForm], "Operation | None"]


def mode_of(form: InstructionForm) -> str:
    """The rounding mode; to nearest even where none is named."""
    return next((f for f in form.order if f in MODES), "rn")


def finished(function: Callable[..., Array], form: InstructionForm) -> Callable[..., Array]:
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
    def make(form: InstructionForm) -> Operation:
        mode = mode_of(form)

        def compute(*arrays: Array) -> Array:
            return function(*arrays, mode)

        return Operation(finished(compute, form), form.type, (form.type,) * arity)

    return make


def _mixed(function: Callable[..., Array], arity: int) -> MakeSome:
    """add, sub and fma, whose operands, except for the last, may be of a half type (PTX 8.6)."""
    plain = _rounded(function, arity)

    def make(form: InstructionForm) -> Operation | None:
        if len(form.types) == 1:
            return plain(form) if form.type in _BOTH else None
        if len(form.types) != 2 or form.types[0] != "f32" or form.opcode not in ("add", "sub", "fma"):
            return None
        return _widened(plain(form._replace(types=("f32",))), form.type)

    return make


def _widened(operation: Operation, type_: str) -> Operation:
    """An operation on f32 whose operands, except for the last, are given as halves."""
    function, count = operation.function, len(operation.sources) - 1
    return Operation(
        lambda *arrays: function(*[widen(a, type_) for a in arrays[:-1]], arrays[-1]),
        "f32",
        (*[type_] * count, "f32"),
    )


def _add_nearest(a: Array, b: Array) -> Array:
    return canonical(np.add(a, b))


def _sub_nearest(a: Array, b: Array) -> Array:
    return canonical(np.subtract(a, b))


def _mul_nearest(a: Array, b: Array) -> Array:
    return canonical(np.multiply(a, b))


_NEAREST = {"add": _add_nearest, "sub": _sub_nearest, "mul": _mul_nearest}


def _arithmetic(function: Callable[..., Array]) -> MakeSome:
    general = _mixed(function, 2)

    def make(form: InstructionForm) -> Operation | None:
        if len(form.types) != 1 or form.type not in _BOTH:
            return general(form)
        if mode_of(form) == "rn" and not form.flags & {"ftz", "sat"}:
            return Operation(_NEAREST[form.opcode], form.type, (form.type, form.type))
        return general(form)

    return make


def _in_double(function: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda a: canonical(function(a.astype(np.float64)).astype(a.dtype))


def _reciprocal_root(a: Array) -> Array:
    return 1.0 / np.sqrt(a)


def _approximate(function: Callable[[Array], Array]) -> MakeSome:
    def make(form: InstructionForm) -> Operation | None:
        if "approx" not in form.flags:
            return None
        if form.type == "f64" and "ftz" in form.flags:
            return Operation(_upper_words(function), "f64", ("f64",))
        return Operation(finished(_in_double(function), form), form.type, (form.type,))

    return make


def _divide(form: InstructionForm) -> Operation | None:
    if form.flags & {"approx", "full"}:
        if form.type != "f32":
            return None
        quotient = _quotient_by_reciprocal if "approx" in form.flags else _quotient
        return Operation(finished(quotient, form), "f32", ("f32", "f32"))
    return _rounded(rounding.divide, 2)(form)


def _quotient(a: Array, b: Array) -> Array:
    return rounding.divide(a, b, "rn")


def _quotient_by_reciprocal(a: Array, b: Array) -> Array:
    """a / b; where 2^126 < |b|, 1 / b is zero, and the quotient is a * 0: of infinity, NaN (div, notes)."""
    large = np.isfinite(b) & (np.abs(b) > np.float32(2.0**126))
    return canonical(np.where(large, a * np.copysign(np.float32(0), b), rounding.divide(a, b, "rn")))


def _upper_words(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of the upper 32 bits of doubles, whose result has no others; without subnormals.

    Source: PTX ISA, "rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64", for the encoding of NaN too.
    """

    def upper(a: Array) -> Array:
        result: Array = (a.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)
        return flush(result)

    def compute(a: Array) -> Array:
        result = upper(function(upper(a)))
        nan = np.uint64(0x7FFFFFFF00000000)
        return np.where(np.isnan(result), nan, result.view(np.uint64)).view(np.float64)

    return compute


def _reciprocal(form: InstructionForm) -> Operation | None:
    mode = mode_of(form)
    one = dtype_of(form.type).type(1)
    if form.type == "f64" and "approx" in form.flags:
        return Operation(_upper_words(lambda a: 1.0 / a), "f64", ("f64",)) if "ftz" in form.flags else None

    def compute(a: Array) -> Array:
        return rounding.divide(np.full(1, one), a, mode)

    return Operation(finished(compute, form), form.type, (form.type,))


def _root(form: InstructionForm) -> Operation:
    return _rounded(rounding.square_root, 1)(form)


def extreme(a: Array, b: Array, largest: bool) -> Array:
    """min or max: a number wins over a NaN, and -0 is less than +0.

    Args:
        a: The first operand.
        b: The second operand.
        largest: True for max, False for min.
    """
    result = np.fmax(a, b) if largest else np.fmin(a, b)
    tie = (a == b) & (a == 0)
    if tie.any():
        bits = np.dtype(f"u{a.itemsize}")
        x, y = a.view(bits), b.view(bits)
        result = np.where(tie, ((x & y) if largest else (x | y)).view(a.dtype), result)
    return canonical(result)


def _extreme(form: InstructionForm) -> Operation | None:
    """min and max; .xorsign.abs: of the magnitudes, with the product's sign."""
    largest, signs = form.opcode == "max", "xorsign" in form.flags
    if signs != ("abs" in form.flags):
        return None

    def compute(a: Array, b: Array) -> Array:
        result = extreme(np.abs(a), np.abs(b), largest) if signs else extreme(a, b, largest)
        if signs:
            negative = np.signbit(a) ^ np.signbit(b)
            result = np.where(negative & (result == result), -result, result)
        if "NaN" not in form.flags:
            return result
        return canonical(np.where((a != a) | (b != b), a.dtype.type(np.nan), result))

    return Operation(finished(compute, form), form.type, (form.type, form.type))


# What becomes of a NaN, abs and neg leave open; sm_90 gives the canonical one (measured: H200, CUDA 13.0).


def _absolute(a: Array) -> Array:
    return canonical(np.abs(a))


def _negate(a: Array) -> Array:
    return canonical(np.negative(a))


def _copysign(a: Array, b: Array) -> Array:
    return np.copysign(b, a)


def _signs(function: Callable[..., Array], arity: int) -> Make:
    def make(form: InstructionForm) -> Operation:
        return Operation(finished(function, form), form.type, (form.type,) * arity)

    return make


_BOTH = frozenset({"f32", "f64"})
_MIXED = _BOTH | {"f16", "bf16"}
_F32 = frozenset({"f32"})
_FLAGS = MODES | {"ftz", "sat"}
_APPROX = frozenset({"approx", "ftz"})
_EXTREME = frozenset({"ftz", "NaN", "xorsign", "abs"})
_SECTION = "Floating Point Instructions: "

FLOAT: Table = {
    "add": (SemanticsRow(_MIXED, _FLAGS, _SECTION + "add", _arithmetic(rounding.add)),),
    "sub": (SemanticsRow(_MIXED, _FLAGS, _SECTION + "sub", _arithmetic(rounding.subtract)),),
    "mul": (SemanticsRow(_BOTH, _FLAGS, _SECTION + "mul", _arithmetic(rounding.multiply)),),
    "fma": (SemanticsRow(_MIXED, _FLAGS, _SECTION + "fma", _mixed(rounding.fused, 3)),),
    "mad": (SemanticsRow(_BOTH, _FLAGS, _SECTION + "mad", _mixed(rounding.fused, 3)),),
    "div": (SemanticsRow(_BOTH, MODES | {"ftz", "approx", "full"}, _SECTION + "div", _divide),),
    "rcp": (SemanticsRow(_BOTH, MODES | {"ftz", "approx"}, _SECTION + "rcp", _reciprocal),),
    "sqrt": (SemanticsRow(_BOTH, MODES | {"ftz", "approx"}, _SECTION + "sqrt", _root),),
    "rsqrt": (SemanticsRow(_BOTH, _APPROX, _SECTION + "rsqrt", _approximate(_reciprocal_root)),),
    "ex2": (SemanticsRow(_F32, _APPROX, _SECTION + "ex2", _approximate(np.exp2)),),
    "lg2": (SemanticsRow(_F32, _APPROX, _SECTION + "lg2", _approximate(np.log2)),),
    "sin": (SemanticsRow(_F32, _APPROX, _SECTION + "sin", _approximate(np.sin)),),
    "cos": (SemanticsRow(_F32, _APPROX, _SECTION + "cos", _approximate(np.cos)),),
    "tanh": (SemanticsRow(_F32, frozenset({"approx"}), _SECTION + "tanh", _approximate(np.tanh)),),
    "min": (SemanticsRow(_BOTH, _EXTREME, _SECTION + "min", _extreme),),
    "max": (SemanticsRow(_BOTH, _EXTREME, _SECTION + "max", _extreme),),
    "abs": (SemanticsRow(_BOTH, frozenset({"ftz"}), _SECTION + "abs", _signs(_absolute, 1)),),
    "neg": (SemanticsRow(_BOTH, frozenset({"ftz"}), _SECTION + "neg", _signs(_negate, 1)),),
    "copysign": (SemanticsRow(_BOTH, frozenset(), _SECTION + "copysign", _signs(_copysign, 2)),),
}
