"""Comparison and selection: setp, set, selp, slct, testp.

Source: PTX ISA, "Comparison and Selection Instructions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dotcu.ptx.instructions import Instruction, Vector
from dotcu.simulator.machine.state import Batch, InstructionStep
from dotcu.simulator.program.binding import Binding, counted, only, require
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.arithmetic.float import ONE, flush_half, widen
from dotcu.simulator.semantics.arithmetic.integer import COMPARISONS
from dotcu.simulator.semantics.arithmetic.rounding import flush, select
from dotcu.simulator.semantics.table import (
    BITS,
    FLOATS,
    HALF_PAIRS,
    HALVES,
    INTEGERS,
    Operation,
    bind_elementwise,
    computed,
    rows,
)

Compare = Callable[[Array, Array], Array]


def _or_unordered(compare: Compare) -> Compare:
    return lambda a, b: compare(a, b) | (a != a) | (b != b)


# Ordered comparisons are false, unordered ones true, where an operand is NaN.
_INTEGER: Mapping[str, Compare] = {
    **COMPARISONS,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_FLOAT: Mapping[str, Compare] = {
    **COMPARISONS,
    "ne": lambda a, b: (a < b) | (a > b),
    "equ": _or_unordered(np.equal),
    "neu": np.not_equal,
    "ltu": _or_unordered(np.less),
    "leu": _or_unordered(np.less_equal),
    "gtu": _or_unordered(np.greater),
    "geu": _or_unordered(np.greater_equal),
    "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
}
_COMBINE: Mapping[str, Callable[[Array, Array], Array]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}
_FLAGS = frozenset({*_FLOAT, *_INTEGER, *_COMBINE, "ftz"})


def _comparison(ptx: Instruction) -> Compare:
    """The comparison that an instruction's flags name; of pairs, the one of each half."""
    type_ = ptx.type.removesuffix("x2")
    table = _FLOAT if type_ in FLOATS | HALVES else _INTEGER
    names = [f for f in ptx.flags if f in table]
    require(len(names) == 1)
    compare, ftz = table[names[0]], "ftz" in ptx.flags
    if type_ in HALVES:
        return _of_bits(compare, type_, ftz=ftz)
    return (lambda a, b: compare(flush(a), flush(b))) if ftz else compare


def _of_bits(compare: Compare, type_: str, *, ftz: bool) -> Compare:
    """A comparison of values, as one of f16 or bf16 bits."""

    def run(a: Array, b: Array) -> Array:
        if ftz:
            a, b = flush_half(a, type_), flush_half(b, type_)
        return compare(widen(a, type_), widen(b, type_))

    return run


def _tests(ptx: Instruction) -> list[Operation]:
    """The comparison and its negation, or the comparisons of the low and of the high halves of pairs.

    Each is combined with a predicate if the instruction names how.
    """
    compare, type_ = _comparison(ptx), ptx.type
    combine = next((_COMBINE[f] for f in ptx.flags if f in _COMBINE), None)
    both: list[Compare] = [compare, lambda a, b: ~compare(a, b)]
    if type_.endswith("x2"):
        both = [_of_half(compare, 0), _of_half(compare, 16)]
    return [_combined(each, type_, combine) for each in both]


def _of_half(compare: Compare, shift: int) -> Compare:
    by = np.uint32(shift)
    return lambda a, b: compare((a >> by).astype(np.uint16), (b >> by).astype(np.uint16))


def _combined(compare: Compare, type_: str, combine: Compare | None) -> Operation:
    if combine is None:
        return Operation(compare, "pred", (type_, type_))
    return Operation(lambda a, b, c: combine(compare(a, b), c), "pred", (type_, type_, "pred"))


def bind_setp(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """setp, with its second predicate and the boolean that it may be combined with."""
    ptx = instruction.ptx
    require(len(ptx.types) == 1 and _FLAGS.issuperset(ptx.flags))
    tests = _tests(ptx)
    pair, *operands = counted(ptx.operands, 3, 4)
    if not isinstance(pair, Vector):
        require(not ptx.type.endswith("x2"))
        return bind_elementwise(tests[0], ptx, binding)
    one, two = [
        bind_elementwise(test, ptx._replace(operands=(target, *operands)), binding)
        for test, target in zip(tests, pair.elements, strict=True)
    ]
    if pair.elements[0] in operands:  # the first write would change what the second reads
        one, two = two, one

    def step(batch: Batch) -> None:
        one(batch)
        two(batch)

    return step


# The result of set where the comparison holds, with its type: 1.0 or all ones.
_YES: Mapping[str, tuple[str, np.generic]] = {
    "f32": ("f32", np.float32(1)),
    **{half: ("b16", one) for half, one in ONE.items()},
    **{f"{half}x2": ("b16", one) for half, one in ONE.items()},
    **dict.fromkeys(("u16", "s16"), ("b16", np.uint16(0xFFFF))),
    **dict.fromkeys(("u32", "s32"), ("u32", np.uint32(0xFFFFFFFF))),
}


def _set(ptx: Instruction) -> Operation | None:
    """set: `yes` or 0, in each half or in the whole result."""
    to, type_ = counted(ptx.types, 2)
    others = {type_, "u16", "s16"} if type_ in HALVES else {type_} if type_ in HALF_PAIRS else {"f32"}
    if to not in others | {"u32", "s32"}:
        return None
    first, second = _tests(ptx)
    result, yes = _YES[to]
    no = type(yes)(0)
    if type_ not in HALF_PAIRS:
        return Operation(lambda *arrays: np.where(first.function(*arrays), yes, no), result, first.sources)
    one, zero = np.uint32(int(yes) & 0xFFFF), np.uint32(0)

    def halves(*arrays: Array) -> Array:
        low = np.where(first.function(*arrays), one, zero)
        return low | np.where(second.function(*arrays), one << np.uint32(16), zero)

    return Operation(halves, "b32", first.sources)


def _slct(ptx: Instruction) -> Operation | None:
    type_, by = counted(ptx.types, 2)
    ftz = "ftz" in ptx.flags
    if ftz and by != "f32":
        return None

    def choose(a: Array, b: Array, c: Array) -> Array:
        return np.where((flush(c) if ftz else c) >= 0, a, b)

    return Operation(choose, type_, (type_, type_, by))


_TESTS: Mapping[str, Callable[[Array], Array]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan,
    "normal": lambda a: np.isfinite(a) & ((np.abs(a) >= np.finfo(a.dtype).tiny) | (a == 0)),  # zero too
    "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny),
}


def _testp(ptx: Instruction) -> Operation:
    name = only(ptx.flags)
    return Operation(_TESTS[name], "pred", (ptx.type,))


COMPARE = rows(
    "Comparison and Selection Instructions",
    ("set", INTEGERS | BITS | FLOATS | HALVES | HALF_PAIRS, _FLAGS, _set),
    ("selp", INTEGERS | BITS | FLOATS, (), computed(select, "t t pred")),
    ("slct", ("s32", "f32"), ("ftz",), _slct),
    ("testp", FLOATS, _TESTS, _testp),
)
