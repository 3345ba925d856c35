"""Arithmetic in f32 and f64.

Functions marked .approx are computed in float64 and rounded, which is well within the bound
that PTX states for each; no hardware gives the same last bits.

Source: PTX ISA, "Floating Point Instructions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from dotcu.ptx.instructions import Instruction
from dotcu.simulator.program.binding import dtype_of, only
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.arithmetic.half import widen
from dotcu.simulator.semantics.arithmetic.rounding import (
    MODES,
    ROUNDED,
    canonical,
    extreme_of,
    flush,
    mode_of,
    saturate,
    with_nan_of,
)
from dotcu.simulator.semantics.table import FLOATS, HALVES, Operation, OperationMaker, computed, rows

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
