"""Bit fields and bit counts, byte permutation, three-input logic, dot products.

Source: PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions",
"Data Movement and Conversion Instructions: prmt".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import Instruction, Pair, Sink
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.semantics.table import (
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

_U8 = np.uint32(0xFF)


def _position(operand: Array, bits: int) -> Array:
    """Return the start of a field, or its length, at most `bits`; as int64.

    PTX takes the lower eight bits. For 64-bit fields, which are put together of shifts, ptxas does
    not cut the others off (measured: H200, CUDA 13.0).
    """
    value = operand & _U8 if bits == 32 else operand
    return np.minimum(value, np.uint32(bits)).astype(np.int64)


def bit_length(a: Array) -> Array:
    """Position of the highest set bit, plus one, as int64; 0 for 0."""
    if a.itemsize == 4:
        return np.frexp(a.astype(np.float64))[1].astype(np.int64)
    high = np.frexp((a >> np.uint64(32)).astype(np.float64))[1]
    low = np.frexp((a & np.uint64(0xFFFFFFFF)).astype(np.float64))[1]
    return np.where(high > 0, high + 32, low).astype(np.int64)


def population(a: Array) -> Array:
    """Set bits."""
    return np.bitwise_count(a).astype(np.uint32)


def leading_zeros(a: Array) -> Array:
    """Zero bits above the highest set one."""
    return (a.itemsize * 8 - bit_length(a)).astype(np.uint32)


def reverse(a: Array) -> Array:
    """Bits in reversed order."""
    width = a.itemsize * 8
    result = a
    for step, mask in _REVERSAL:
        if step < width:
            keep, shift = a.dtype.type(mask & ((1 << width) - 1)), a.dtype.type(step)
            result = ((result >> shift) & keep) | ((result & keep) << shift)
    return result


_REVERSAL = tuple(
    (step, sum(((1 << step) - 1) << at for at in range(0, 64, 2 * step))) for step in (1, 2, 4, 8, 16, 32)
)


def _counts(function: Callable[[Array], Array]) -> Callable[[InstructionForm], Operation]:
    return lambda form: Operation(function, "u32", (form.type,))


def _reverse(form: InstructionForm) -> Operation:
    return Operation(reverse, form.type, (form.type,))


def _find(form: InstructionForm) -> Operation:
    """bfind: the highest bit that differs from the sign; -1 if none."""
    type_, shift_amount = form.type, "shiftamt" in form.flags
    bits = dtype_of(type_).itemsize * 8

    def find(a: Array) -> Array:
        unsigned = a.view(f"u{a.itemsize}")
        if a.dtype.kind == "i":
            unsigned = np.where(a < 0, ~unsigned, unsigned)
        place = bit_length(unsigned) - 1
        if shift_amount:
            place = np.where(place < 0, -1, bits - 1 - place)
        return place.astype(np.uint32)

    return Operation(find, "u32", (type_,))


def _extract(form: InstructionForm) -> Operation:
    """bfe: a field of `length` bits from `start`, extended by its highest bit inside the register."""
    type_ = form.type
    signed = type_[0] == "s"
    dtype = dtype_of(type_)
    bits = dtype.itemsize * 8

    def extract(a: Array, start: Array, length: Array) -> Array:
        at, count = _position(start, bits), _position(length, bits)
        unsigned = np.dtype(f"u{dtype.itemsize}")
        raw = a.view(unsigned)
        field = np.right_shift(raw, at.astype(unsigned))
        mask = np.left_shift(unsigned.type(1), count.astype(unsigned)) - unsigned.type(1)
        mask = np.where(count >= bits, ~unsigned.type(0), mask)
        field = field & mask
        if signed:
            top = np.minimum(at + count - 1, bits - 1)
            sign = (np.right_shift(raw, np.maximum(top, 0).astype(unsigned)) & unsigned.type(1)) != 0
            # Bits above the register are copies of its sign.
            reach = np.minimum(count, bits - at)
            filled = np.left_shift(~unsigned.type(0), reach.astype(unsigned))
            filled = np.where(reach >= bits, unsigned.type(0), filled)
            field = np.where(sign & (count > 0), field | filled, field)
        return field.view(dtype)

    return Operation(extract, type_, (type_, "u32", "u32"))


def _insert(form: InstructionForm) -> Operation:
    """bfi: the low `length` bits of a, put into b from `start`."""
    type_ = form.type
    dtype = dtype_of(type_)
    bits = dtype.itemsize * 8

    def insert(a: Array, b: Array, start: Array, length: Array) -> Array:
        at, count = _position(start, bits).astype(dtype), _position(length, bits).astype(dtype)
        ones = np.where(count >= bits, ~dtype.type(0), np.left_shift(dtype.type(1), count) - dtype.type(1))
        mask = np.left_shift(ones, at)
        return (b & ~mask) | (np.left_shift(a, at) & mask)

    return Operation(insert, type_, (type_, type_, "u32", "u32"))


def _funnel(form: InstructionForm) -> Operation | None:
    """shf: 32 bits of {b, a}, shifted left or right, the amount clamped at 32 or wrapped."""
    left = "l" in form.flags
    if left == ("r" in form.flags) or ("wrap" in form.flags) == ("clamp" in form.flags):
        return None
    wrap = "wrap" in form.flags

    def funnel(a: Array, b: Array, c: Array) -> Array:
        amount = (c & np.uint32(31) if wrap else np.minimum(c, np.uint32(32))).astype(np.uint64)
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        if left:
            return ((both << amount) >> np.uint64(32)).astype(np.uint32)
        return (both >> amount).astype(np.uint32)

    return Operation(funnel, "b32", ("b32", "b32", "u32"))


def logic3(form: InstructionForm) -> Operation | None:
    """lop3: the table's bit for each triple of bits."""
    if form.flags:
        return None

    def logic(a: Array, b: Array, c: Array, table: Array) -> Array:
        result: Array = np.zeros(1, np.uint32)
        lut = int(table[0])
        for row in range(8):
            if lut >> row & 1:
                x = a if row & 4 else ~a
                y = b if row & 2 else ~b
                z = c if row & 1 else ~c
                result = result | (x & y & z)
        return result

    return Operation(logic, "b32", ("b32", "b32", "b32", "u32"))


def _permute(form: InstructionForm) -> Operation | None:
    """prmt: four bytes picked out of eight; a selector's top bit copies the byte's sign instead."""
    mode = next(iter(form.flags), "")

    def pick(a: Array, b: Array, selector: Array) -> Array:
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        result: Array = np.zeros(1, np.uint32)
        for place in range(4):
            choice = _choice(selector, place, mode)
            byte = (both >> ((choice & np.uint32(7)).astype(np.uint64) * np.uint64(8))).astype(
                np.uint32
            ) & _U8
            sign = np.where(byte & np.uint32(0x80), _U8, np.uint32(0))
            byte = np.where(choice & np.uint32(8), sign, byte)
            result = result | (byte << np.uint32(8 * place))
        return result

    return Operation(pick, "b32", ("b32", "b32", "u32"))


_MODES = {
    "f4e": lambda s, i: s + np.uint32(i),
    "b4e": lambda s, i: (s - np.uint32(i)) & np.uint32(7),
    "rc8": lambda s, i: s,
    "ecl": lambda s, i: np.maximum(s, np.uint32(i)),
    "ecr": lambda s, i: np.minimum(s, np.uint32(i)),
    "rc16": lambda s, i: (s & np.uint32(1)) * np.uint32(2) + np.uint32(i & 1),
}


def _choice(selector: Array, place: int, mode: str) -> Array:
    if not mode:
        return (selector >> np.uint32(4 * place)) & np.uint32(15)
    return _MODES[mode](selector & np.uint32(3), place)


def _dot(parts: int) -> Callable[[InstructionForm], Operation | None]:
    """dp4a and dp2a: c plus the dot product of packed integers."""

    def make(form: InstructionForm) -> Operation | None:
        if len(form.types) != 2:
            return None
        a_type, b_type = form.types
        wide, narrow_b = 32 // parts, 8
        offset = 2 if "hi" in form.flags else 0
        result = "s32" if "s" in (a_type[0], b_type[0]) else "u32"

        def dot(a: Array, b: Array, c: Array) -> Array:
            total = c.astype(np.int64)
            for i in range(parts):
                x = _field(a, i * wide, wide, a_type[0] == "s")
                y = _field(b, (i + offset) * narrow_b, narrow_b, b_type[0] == "s")
                total = total + x * y
            return total.astype(np.uint32).view(dtype_of(result))

        return Operation(dot, result, ("b32", "b32", result))

    return make


def _field(a: Array, start: int, length: int, signed: bool) -> Array:
    value = ((a >> np.uint32(start)) & np.uint32((1 << length) - 1)).astype(np.int64)
    if signed:
        value = np.where(value >= 1 << (length - 1), value - (1 << length), value)
    return value


_BITS = frozenset({"b32", "b64"})
_SIGNED_OR_NOT = frozenset({"u32", "u64", "s32", "s64"})
_B32 = frozenset({"b32"})
_NONE: frozenset[str] = frozenset()
_INTEGER = "Integer Arithmetic Instructions: "
_LOGIC = "Logic and Shift Instructions: "
_WORDS = frozenset({"u32", "s32"})

BIT_FIELDS: Table = {
    "popc": (SemanticsRow(_BITS, _NONE, _INTEGER + "popc", _counts(population)),),
    "clz": (SemanticsRow(_BITS, _NONE, _INTEGER + "clz", _counts(leading_zeros)),),
    "brev": (SemanticsRow(_BITS, _NONE, _INTEGER + "brev", _reverse),),
    "bfind": (SemanticsRow(_SIGNED_OR_NOT, frozenset({"shiftamt"}), _INTEGER + "bfind", _find),),
    "bfe": (SemanticsRow(_SIGNED_OR_NOT, _NONE, _INTEGER + "bfe", _extract),),
    "bfi": (SemanticsRow(_BITS, _NONE, _INTEGER + "bfi", _insert),),
    "shf": (SemanticsRow(_B32, frozenset({"l", "r", "wrap", "clamp"}), _LOGIC + "shf", _funnel),),
    "prmt": (SemanticsRow(_B32, frozenset(_MODES), "Data Movement: prmt", _permute),),
    "dp4a": (SemanticsRow(_WORDS, _NONE, _INTEGER + "dp4a", _dot(4)),),
    "dp2a": (SemanticsRow(_WORDS, frozenset({"lo", "hi"}), _INTEGER + "dp2a", _dot(2)),),
}


# Masks of bits: bmsk, szext, fns, and lop3 that also gives a predicate.
#
# Source: PTX ISA, "Integer Arithmetic Instructions: bmsk, szext, fns", "Logic and Shift Instructions:
# lop3".


_ALL = np.uint32(0xFFFFFFFF)
_FIVE = np.uint32(31)


def _below(count: Array) -> Array:
    """Masks of the bits below a position from 0 to 32."""
    return ((np.uint64(1) << count.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)


def _mask(form: InstructionForm) -> Operation:
    """bmsk: `width` bits from `start`, as far as the register reaches."""
    clamp = "clamp" in form.flags

    def mask(start: Array, width: Array) -> Array:
        if clamp:
            start, width = np.minimum(start, np.uint32(32)), np.minimum(width, np.uint32(32))
        else:
            start, width = start & _FIVE, width & _FIVE
        end = np.minimum(start + width, np.uint32(32))
        return _below(end) & ~_below(start)

    return Operation(mask, "b32", ("u32", "u32"))


def _extend(form: InstructionForm) -> Operation:
    """szext: the lowest bits of a value, extended by their sign or by zero."""
    clamp, signed = "clamp" in form.flags, form.type == "s32"

    def extend(a: Array, width: Array) -> Array:
        width = np.minimum(width, np.uint32(32)) if clamp else width & _FIVE
        low = a & _below(width)
        if not signed:
            return low
        top = (low >> ((width - np.uint32(1)) & _FIVE)) & np.uint32(1)
        return low | np.where((top == 1) & (width > 0), ~_below(width), np.uint32(0))

    return Operation(extend, "b32", ("b32", "u32"))


def _find_nth(form: InstructionForm) -> Operation:
    """fns: the position of the n-th set bit, upwards or downwards from a base; all ones if none."""

    def find(mask: Array, base: Array, offset: Array) -> Array:
        mask, base, offset = np.broadcast_arrays(mask, base, offset)
        result = np.full(mask.shape, _ALL)
        left = np.maximum(np.abs(offset.astype(np.int64)), 1)
        downwards = offset < 0
        reach = np.where(offset == 0, 1, 32)
        for step in range(32):
            place = np.where(downwards, base.astype(np.int64) - step, base.astype(np.int64) + step)
            inside = (place >= 0) & (place < 32) & (step < reach)
            is_set = inside & ((mask >> (place & 31).astype(np.uint32)) & np.uint32(1)).astype(bool)
            left = left - is_set
            result = np.where(is_set & (left == 0), place.astype(np.uint32), result)
        return result

    return Operation(find, "b32", ("b32", "u32", "s32"))


_JOIN: Mapping[str, Callable[[Array, Array], Array]] = {"or": np.logical_or, "and": np.logical_and}


def bind_lop3(instruction: Instruction, binding: Binding) -> Step:
    """Bind lop3, with the predicate that is true if any bit of the result is set."""
    form = form_of(instruction)
    plain = logic3(form._replace(flags=form.flags - _JOIN.keys()))
    if plain is None or form.types != ("b32",):
        raise NotExecuted
    if not form.flags:
        return bind_elementwise(plain, instruction, binding)
    (name,) = form.flags
    pair, *operands, other = instruction.operands
    if not isinstance(pair, Pair) or len(operands) != len(plain.sources):
        raise NotExecuted
    function, join = plain.function, _JOIN[name]
    test = Operation(
        lambda a, b, c, table, p: join(function(a, b, c, table) != 0, p),
        "pred",
        (*plain.sources, "pred"),
    )
    set_predicate = bind_elementwise(
        test, instruction._replace(operands=(pair.second, *operands, other)), binding
    )
    if isinstance(pair.first, Sink):
        return set_predicate
    value = bind_elementwise(plain, instruction._replace(operands=(pair.first, *operands)), binding)

    def step(chunk: Chunk) -> None:
        set_predicate(chunk)  # first: the value may overwrite one of its operands
        value(chunk)

    return step


_MODE = frozenset({"clamp", "wrap"})
_SECTION = "Integer Arithmetic Instructions: "

MASKS: Table = {
    "bmsk": (SemanticsRow(frozenset({"b32"}), _MODE, _SECTION + "bmsk", _mask),),
    "szext": (SemanticsRow(frozenset({"u32", "s32"}), _MODE, _SECTION + "szext", _extend),),
    "fns": (SemanticsRow(frozenset({"b32"}), frozenset(), _SECTION + "fns", _find_nth),),
}
