"""Bit fields, masks and bit counts, byte permutation, three-input logic, dot products.

Source: PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions",
"Data Movement and Conversion Instructions: prmt".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dotcu.ptx.instructions import Instruction, Sink
from dotcu.simulator.machine.state import Batch, InstructionStep
from dotcu.simulator.program.binding import (
    Binding,
    chosen,
    counted,
    dtype_of,
    only,
    require,
    unsigned,
    vector,
)
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.table import Operation, bind_elementwise, computed, rows

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


def _reverse(a: Array) -> Array:
    """Bits in reversed order."""
    width = a.itemsize * 8
    for step, mask in _REVERSAL:
        if step < width:
            keep, shift = a.dtype.type(mask & ((1 << width) - 1)), a.dtype.type(step)
            a = ((a >> shift) & keep) | ((a & keep) << shift)
    return a


_REVERSAL = tuple(
    (step, sum(((1 << step) - 1) << at for at in range(0, 64, 2 * step))) for step in (1, 2, 4, 8, 16, 32)
)


def _find(ptx: Instruction) -> Operation:
    """bfind: the highest bit that differs from the sign; -1 if none."""
    type_, shift_amount = ptx.type, "shiftamt" in ptx.flags
    bits = dtype_of(type_).itemsize * 8

    def find(a: Array) -> Array:
        raw = a.view(f"u{a.itemsize}")
        if a.dtype.kind == "i":
            raw = np.where(a < 0, ~raw, raw)
        place = bit_length(raw) - 1
        if shift_amount:
            place = np.where(place < 0, -1, bits - 1 - place)
        return place.astype(np.uint32)

    return Operation(find, "u32", (type_,))


def _extract(ptx: Instruction) -> Operation:
    """bfe: a field of `length` bits from `start`, extended by its highest bit inside the register."""
    type_ = ptx.type
    signed = type_[0] == "s"
    dtype = dtype_of(type_)
    bits, word = dtype.itemsize * 8, unsigned(dtype.itemsize)

    def extract(a: Array, start: Array, length: Array) -> Array:
        at, count = _position(start, bits), _position(length, bits)
        raw = a.view(word)
        mask = np.left_shift(word.type(1), count.astype(word)) - word.type(1)
        mask = np.where(count >= bits, ~word.type(0), mask)
        field = np.right_shift(raw, at.astype(word)) & mask
        if signed:
            top = np.minimum(at + count - 1, bits - 1)
            sign = (np.right_shift(raw, np.maximum(top, 0).astype(word)) & word.type(1)) != 0
            # Bits above the register are copies of its sign.
            reach = np.minimum(count, bits - at)
            filled = np.left_shift(~word.type(0), reach.astype(word))
            filled = np.where(reach >= bits, word.type(0), filled)
            field = np.where(sign & (count > 0), field | filled, field)
        return field.view(dtype)

    return Operation(extract, type_, (type_, "u32", "u32"))


def _insert(a: Array, b: Array, start: Array, length: Array) -> Array:
    """bfi: the low `length` bits of a, put into b from `start`."""
    dtype, bits = a.dtype, a.itemsize * 8
    at, count = _position(start, bits).astype(dtype), _position(length, bits).astype(dtype)
    ones = np.where(count >= bits, ~dtype.type(0), np.left_shift(dtype.type(1), count) - dtype.type(1))
    mask = np.left_shift(ones, at)
    return (b & ~mask) | (np.left_shift(a, at) & mask)


def _funnel(ptx: Instruction) -> Operation | None:
    """shf: 32 bits of {b, a}, shifted left or right, the amount clamped at 32 or wrapped."""
    left, wrap = "l" in ptx.flags, "wrap" in ptx.flags
    if left == ("r" in ptx.flags) or wrap == ("clamp" in ptx.flags):
        return None

    def funnel(a: Array, b: Array, c: Array) -> Array:
        amount = (c & np.uint32(31) if wrap else np.minimum(c, np.uint32(32))).astype(np.uint64)
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        shifted = ((both << amount) >> np.uint64(32)) if left else both >> amount
        return shifted.astype(np.uint32)

    return Operation(funnel, "b32", ("b32", "b32", "u32"))


def _permute(ptx: Instruction) -> Operation:
    """prmt: four bytes picked out of eight; a selector's top bit copies the byte's sign instead."""
    choose = _MODES[next(iter(ptx.flags), "")]

    def pick(a: Array, b: Array, selector: Array) -> Array:
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        result: Array = np.zeros(1, np.uint32)
        for place in range(4):
            choice = choose(selector, place)
            byte = (both >> ((choice & np.uint32(7)).astype(np.uint64) * np.uint64(8))).astype(
                np.uint32
            ) & _U8
            sign = np.where(byte & np.uint32(0x80), _U8, np.uint32(0))
            byte = np.where(choice & np.uint32(8), sign, byte)
            result = result | (byte << np.uint32(8 * place))
        return result

    return Operation(pick, "b32", ("b32", "b32", "u32"))


# From the selector and a place in the result to the byte that is picked.
_MODES: Mapping[str, Callable[[Array, int], Array]] = {
    "": lambda s, i: (s >> np.uint32(4 * i)) & np.uint32(15),
    "f4e": lambda s, i: (s & np.uint32(3)) + np.uint32(i),
    "b4e": lambda s, i: ((s & np.uint32(3)) - np.uint32(i)) & np.uint32(7),
    "rc8": lambda s, i: s & np.uint32(3),
    "ecl": lambda s, i: np.maximum(s & np.uint32(3), np.uint32(i)),
    "ecr": lambda s, i: np.minimum(s & np.uint32(3), np.uint32(i)),
    "rc16": lambda s, i: (s & np.uint32(1)) * np.uint32(2) + np.uint32(i & 1),
}


def _dot(ptx: Instruction) -> Operation:
    """dp4a and dp2a: c plus the dot product of packed integers."""
    a_type, b_type = counted(ptx.types, 2)
    parts = int(ptx.opcode[2])
    offset = 2 if "hi" in ptx.flags else 0
    result = "s32" if "s" in (a_type[0], b_type[0]) else "u32"
    dtype = dtype_of(result)

    def dot(a: Array, b: Array, c: Array) -> Array:
        total = c.astype(np.int64)
        for i in range(parts):
            x = _field(a, i * 32 // parts, 32 // parts, a_type[0] == "s")
            y = _field(b, (i + offset) * 8, 8, b_type[0] == "s")
            total = total + x * y
        return total.astype(np.uint32).view(dtype)

    return Operation(dot, result, ("b32", "b32", result))


def _field(a: Array, start: int, length: int, signed: bool) -> Array:
    value = ((a >> np.uint32(start)) & np.uint32((1 << length) - 1)).astype(np.int64)
    return np.where(value >= 1 << (length - 1), value - (1 << length), value) if signed else value


_FIVE = np.uint32(31)


def _below(count: Array) -> Array:
    """Masks of the bits below a position from 0 to 32."""
    return ((np.uint64(1) << count.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)


def _limited(amount: Array, ptx: Instruction) -> Array:
    """A position or width, clamped to 32 or modulo 32."""
    return np.minimum(amount, np.uint32(32)) if "clamp" in ptx.flags else amount & _FIVE


def _mask(ptx: Instruction) -> Operation:
    """bmsk: `width` bits from `start`, as far as the register reaches."""

    def mask(start: Array, width: Array) -> Array:
        start, width = _limited(start, ptx), _limited(width, ptx)
        return _below(np.minimum(start + width, np.uint32(32))) & ~_below(start)

    return Operation(mask, "b32", ("u32", "u32"))


def _extend(ptx: Instruction) -> Operation:
    """szext: the lowest bits of a value, extended by their sign or by zero."""

    def extend(a: Array, width: Array) -> Array:
        width = _limited(width, ptx)
        low = a & _below(width)
        if ptx.type == "u32":
            return low
        top = (low >> ((width - np.uint32(1)) & _FIVE)) & np.uint32(1)
        return low | np.where((top == 1) & (width > 0), ~_below(width), np.uint32(0))

    return Operation(extend, "b32", ("b32", "u32"))


def _find_nth(mask: Array, base: Array, offset: Array) -> Array:
    """fns: the position of the n-th set bit, upwards or downwards from a base; all ones if none."""
    mask, base, offset = np.broadcast_arrays(mask, base, offset)
    result = np.full(mask.shape, np.uint32(0xFFFFFFFF))
    left = np.maximum(np.abs(offset.astype(np.int64)), 1)
    direction = np.where(offset < 0, -1, 1)
    reach = np.where(offset == 0, 1, 32)
    for step in range(32):
        place = base.astype(np.int64) + step * direction
        inside = (place >= 0) & (place < 32) & (step < reach)
        is_set = inside & ((mask >> (place & 31).astype(np.uint32)) & np.uint32(1)).astype(bool)
        left = left - is_set
        result = np.where(is_set & (left == 0), place.astype(np.uint32), result)
    return result


def _logic3(a: Array, b: Array, c: Array, table: Array) -> Array:
    """The table's bit for each triple of bits."""
    result: Array = np.zeros(1, np.uint32)
    lut = int(table[0])
    for row in range(8):
        if lut >> row & 1:
            x = a if row & 4 else ~a
            y = b if row & 2 else ~b
            z = c if row & 1 else ~c
            result = result | (x & y & z)
    return result


_JOIN: Mapping[str, np.ufunc] = {"or": np.logical_or, "and": np.logical_and}


def bind_lop3(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """Bind lop3, with the predicate that is true if any bit of the result is set."""
    ptx = instruction.ptx
    logic = Operation(_logic3, "b32", ("b32", "b32", "b32", "u32"))
    require(ptx.types == ("b32",))
    if not ptx.flags:
        return bind_elementwise(logic, ptx, binding)
    name = only(ptx.flags)
    pair, *operands, other = counted(ptx.operands, 6)
    first, second = vector(pair, 2)
    join = chosen(_JOIN, name)
    test = Operation(
        lambda *arrays: join(_logic3(*arrays[:4]) != 0, arrays[4]), "pred", (*logic.sources, "pred")
    )
    set_predicate = bind_elementwise(test, ptx._replace(operands=(second, *operands, other)), binding)
    if isinstance(first, Sink):
        return set_predicate
    value = bind_elementwise(logic, ptx._replace(operands=(first, *operands)), binding)

    def step(batch: Batch) -> None:
        set_predicate(batch)  # first: the value may overwrite one of its operands
        value(batch)

    return step


_B32 = ("b32",)
_WORDS = ("u32", "s32")
_COUNTED = ("b32", "b64")
_FIELDS = ("u32", "u64", "s32", "s64")

BIT_FIELDS = rows(
    "Integer Arithmetic Instructions",
    ("popc", _COUNTED, (), computed(lambda a: np.bitwise_count(a).astype(np.uint32), "t", "u32")),
    ("clz", _COUNTED, (), computed(lambda a: (a.itemsize * 8 - bit_length(a)).astype(np.uint32), "t", "u32")),
    ("brev", _COUNTED, (), computed(_reverse, "t")),
    ("bfind", _FIELDS, ("shiftamt",), _find),
    ("bfe", _FIELDS, (), _extract),
    ("bfi", _COUNTED, (), computed(_insert, "t t u32 u32")),
    ("dp4a", _WORDS, (), _dot),
    ("dp2a", _WORDS, ("lo", "hi"), _dot),
    ("bmsk", _B32, ("clamp", "wrap"), _mask),
    ("szext", _WORDS, ("clamp", "wrap"), _extend),
    ("fns", _B32, (), computed(_find_nth, "b32 u32 s32", "b32")),
)
BYTES = rows(
    "Logic and Shift Instructions, Data Movement",
    ("shf", _B32, ("l", "r", "wrap", "clamp"), _funnel),
    ("prmt", _B32, tuple(_MODES)[1:], _permute),
)
