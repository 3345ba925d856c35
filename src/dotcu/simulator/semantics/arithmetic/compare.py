"""Comparison and selection: setp, set, selp, slct, testp.

Source: PTX ISA, "Comparison and Selection Instructions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import Instruction, Pair
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.semantics.arithmetic.half import ONE, flush_half, on_pairs, widen
from dotcu.simulator.semantics.arithmetic.rounding import flush, select
from dotcu.simulator.semantics.table import (
    BITS,
    INTEGERS,
    Array,
    InstructionForm,
    NotExecuted,
    Operation,
    SemanticsRow,
    Step,
    Table,
    bind_elementwise,
    dtype_of,
    form_of,
)

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding

Compare = Callable[[Array, Array], Array]


def _or_unordered(compare: Compare) -> Compare:
    return lambda a, b: compare(a, b) | (a != a) | (b != b)


def _not_equal_ordered(a: Array, b: Array) -> Array:
    return (a < b) | (a > b)


# Ordered comparisons are false, unordered ones true, where an operand is NaN.
_INTEGER: Mapping[str, Compare] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_FLOAT: Mapping[str, Compare] = {
    "eq": np.equal,
    "ne": _not_equal_ordered,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
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


def comparison(form: InstructionForm, type_: str) -> Compare:
    """The comparison that a form's flags name, for operands of a type.

    Raises:
        NotExecuted: There is none.
    """
    is_float = type_ in ("f32", "f64", "f16", "bf16")
    table = _FLOAT if is_float else _INTEGER
    names = [f for f in form.order if f in table]
    if len(names) != 1:
        raise NotExecuted
    compare = table[names[0]]
    if type_ in ("f16", "bf16"):
        return _of_halves(compare, type_, ftz="ftz" in form.flags)
    if "ftz" in form.flags:
        return lambda a, b: compare(flush(a), flush(b))
    return compare


def _of_halves(compare: Compare, type_: str, *, ftz: bool) -> Compare:
    """A comparison of values, as one of f16 or bf16 bits."""

    def run(a: Array, b: Array) -> Array:
        if ftz:
            a, b = flush_half(a, type_), flush_half(b, type_)
        return compare(widen(a, type_), widen(b, type_))

    return run


def _of_half(compare: Compare, shift: int) -> Compare:
    """A comparison of halves, as one of the low or the high halves of pairs."""
    by = np.uint32(shift)
    return lambda a, b: compare((a >> by).astype(np.uint16), (b >> by).astype(np.uint16))


def bind_setp(instruction: Instruction, binding: Binding) -> Step:
    """setp, with its second predicate and the boolean that it may be combined with."""
    form = form_of(instruction)
    if len(form.types) != 1:
        raise NotExecuted
    _refuse_others(form, {*_FLOAT, *_INTEGER, *_COMBINE, "ftz"})
    compare = comparison(form, form.type.removesuffix("x2"))
    pair = instruction.operands[0]
    if form.type.endswith("x2"):
        first, second = _of_half(compare, 0), _of_half(compare, 16)
    else:
        first, second = compare, lambda a, b: ~compare(a, b)
    if isinstance(pair, Pair):
        return _both(instruction, pair, _tested(form, first), _tested(form, second), binding)
    if form.type.endswith("x2"):
        raise NotExecuted
    return bind_elementwise(_tested(form, first), instruction, binding)


def _tested(form: InstructionForm, compare: Compare) -> Operation:
    """A comparison as an operation, combined with a predicate if the form says so."""
    combine = next((f for f in form.order if f in _COMBINE), None)
    if combine is None:
        return Operation(compare, "pred", (form.type, form.type))
    join = _COMBINE[combine]
    return Operation(lambda a, b, c: join(compare(a, b), c), "pred", (form.type, form.type, "pred"))


def _both(
    instruction: Instruction, pair: Pair, first: Operation, second: Operation, binding: Binding
) -> Step:
    rest = instruction.operands[1:]
    one = bind_elementwise(first, instruction._replace(operands=(pair.first, *rest)), binding)
    two = bind_elementwise(second, instruction._replace(operands=(pair.second, *rest)), binding)
    if pair.first in rest:  # the first write would change what the second reads
        one, two = two, one

    def step(chunk: Chunk) -> None:
        one(chunk)
        two(chunk)

    return step


def _refuse_others(form: InstructionForm, known: set[str]) -> None:
    if form.flags - known:
        raise NotExecuted


def _one(holds: Array) -> Array:
    return holds.astype(np.float32)


def _ones(holds: Array) -> Array:
    return np.where(holds, np.uint32(0xFFFFFFFF), np.uint32(0))


def _set_half(form: InstructionForm) -> Operation | None:
    """set of halves, alone or in pairs: 1.0, or all ones, in each half or in the whole result."""
    if len(form.types) != 2:
        return None
    to, type_ = form.types
    holds = comparison(form, type_.removesuffix("x2"))
    combine = next((f for f in form.order if f in _COMBINE), None)
    if type_.endswith("x2"):
        if to not in (type_, "u32", "s32"):
            return None
        return _set_pair(holds, to, type_, combine)
    if to not in (type_, "u16", "s16", "u32", "s32"):
        return None
    dtype = dtype_of("u32" if to.endswith("32") else "u16")
    yes = dtype.type(ONE[to] if to in ONE else np.iinfo(dtype).max)
    return _chosen(holds, f"b{8 * dtype.itemsize}", type_, combine, yes)


def _chosen(holds: Compare, result: str, type_: str, combine: str | None, yes: np.generic) -> Operation:
    """`yes` where a comparison, combined with a predicate or not, holds; else 0."""
    no = type(yes)(0)
    if combine is None:
        return Operation(lambda a, b: np.where(holds(a, b), yes, no), result, (type_, type_))
    join = _COMBINE[combine]
    return Operation(lambda a, b, c: np.where(join(holds(a, b), c), yes, no), result, (type_, type_, "pred"))


def _set_pair(holds: Compare, to: str, type_: str, combine: str | None) -> Operation:
    one = ONE.get(to.removesuffix("x2"), np.uint16(0xFFFF))
    halves = on_pairs(lambda a, b: np.where(holds(a, b), one, np.uint16(0)))
    if combine is None:
        return Operation(halves, "b32", (type_, type_))
    join, both = _COMBINE[combine], np.uint32(int(one) << 16 | int(one))

    def run(a: Array, b: Array, c: Array) -> Array:
        low = join(_of_half(holds, 0)(a, b), c)
        high = join(_of_half(holds, 16)(a, b), c)
        mask = np.where(low, np.uint32(0xFFFF), np.uint32(0)) | np.where(
            high, np.uint32(0xFFFF0000), np.uint32(0)
        )
        return mask & both

    return Operation(run, "b32", (type_, type_, "pred"))


def _set(form: InstructionForm) -> Operation | None:
    if len(form.types) != 2:
        return None
    result, type_ = form.types
    compare = comparison(form, type_)
    combine = next((f for f in form.order if f in _COMBINE), None)
    convert = _one if result == "f32" else _ones
    result = "f32" if result == "f32" else "u32"
    if combine is None:
        return Operation(lambda a, b: convert(compare(a, b)), result, (type_, type_))
    join = _COMBINE[combine]
    return Operation(lambda a, b, c: convert(join(compare(a, b), c)), result, (type_, type_, "pred"))


def _select(a: Array, b: Array, p: Array) -> Array:
    return select(p, a, b)


def _selp(form: InstructionForm) -> Operation:
    return Operation(_select, form.type, (form.type, form.type, "pred"))


def _slct(form: InstructionForm) -> Operation | None:
    if len(form.types) != 2 or form.types[1] not in ("s32", "f32"):
        return None
    by = form.types[1]
    ftz = "ftz" in form.flags
    if ftz and by != "f32":
        return None

    def choose(a: Array, b: Array, c: Array) -> Array:
        return np.where((flush(c) if ftz else c) >= 0, a, b)

    return Operation(choose, form.types[0], (form.types[0], form.types[0], by))


_TESTS: Mapping[str, Callable[[Array], Array]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan,
    "normal": lambda a: np.isfinite(a) & ((np.abs(a) >= np.finfo(a.dtype).tiny) | (a == 0)),  # zero too
    "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny),
}


def _testp(form: InstructionForm) -> Operation | None:
    tests = [f for f in form.order if f in _TESTS]
    return Operation(_TESTS[tests[0]], "pred", (form.type,)) if len(tests) == 1 else None


_SECTION = "Comparison and Selection Instructions: "
_FLOATS = frozenset({"f32", "f64"})
_SELECTABLE = INTEGERS | BITS | _FLOATS

COMPARE: Table = {
    "set": (
        SemanticsRow(
            INTEGERS | BITS | _FLOATS,
            frozenset({*_FLOAT, *_INTEGER, *_COMBINE, "ftz"}),
            _SECTION + "set",
            _set,
        ),
        SemanticsRow(
            frozenset({"f16", "bf16", "f16x2", "bf16x2"}),
            frozenset({*_FLOAT, *_COMBINE, "ftz"}),
            _SECTION + "set",
            _set_half,
        ),
    ),
    "selp": (SemanticsRow(_SELECTABLE, frozenset(), _SECTION + "selp", _selp),),
    "slct": (SemanticsRow(frozenset({"s32", "f32"}), frozenset({"ftz"}), _SECTION + "slct", _slct),),
    "testp": (SemanticsRow(_FLOATS, frozenset(_TESTS), "Floating Point Instructions: testp", _testp),),
}
