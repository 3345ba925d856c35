"""Integer arithmetic, logic and shifts.

Source: PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions",
"Extended-Precision Integer Arithmetic Instructions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dotcu.ptx.instructions import Immediate, Instruction, Register, Sink
from dotcu.simulator.machine.shape import Threads
from dotcu.simulator.machine.state import Batch, InstructionStep
from dotcu.simulator.machine.undefined import HeldCheck, full_bits
from dotcu.simulator.program.binding import (
    Binding,
    NotExecuted,
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
from dotcu.simulator.semantics.table import (
    BITS,
    INTEGERS,
    Operation,
    Table,
    bind_elementwise,
    computed,
    on_halves,
    rows,
)


def _saturated(ufunc: np.ufunc) -> Callable[[Array, Array], Array]:
    """A sum or difference of s32, clamped to its range."""
    return lambda a, b: np.clip(ufunc(a.astype(np.int64), b), -(2**31), 2**31 - 1).astype(np.int32)


_saturated_add = _saturated(np.add)


def _sum(ptx: Instruction) -> Operation | None:
    ufunc = np.add if ptx.opcode == "add" else np.subtract
    if "sat" not in ptx.flags:
        return computed(ufunc, "b b", "b")(ptx)
    return computed(_saturated(ufunc), "t t")(ptx) if ptx.type == "s32" else None


def _high64(a: Array, b: Array) -> Array:
    """The upper 64 bits of the product of two u64."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> shift, b & low, b >> shift
    middle = a1 * b0 + (a0 * b0 >> shift)
    other = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> shift) + (other >> shift)


def _high64_signed(a: Array, b: Array) -> Array:
    ua, ub = a.view(np.uint64), b.view(np.uint64)
    high = _high64(ua, ub) - np.where(a < 0, ub, np.uint64(0)) - np.where(b < 0, ua, np.uint64(0))
    return high.view(np.int64)


def high_half(type_: str) -> Callable[[Array, Array], Array]:
    """The upper half of a product, as the type."""
    if type_.endswith("64"):
        return _high64 if type_ == "u64" else _high64_signed
    narrow = dtype_of(type_)
    wide = np.dtype(f"{narrow.kind}{narrow.itemsize * 2}")
    shift = wide.type(narrow.itemsize * 8)
    return lambda a, b: (np.multiply(a, b, dtype=wide) >> shift).astype(narrow)


def _multiply(ptx: Instruction) -> Operation | None:
    """mul and mad: the low or the high half of the product, or all of it."""
    type_, flags, adds = ptx.type, ptx.flags, ptx.opcode == "mad"
    if "wide" in flags:
        if type_.endswith("64"):
            return None
        wide = np.dtype(f"{dtype_of(type_).kind}{2 * dtype_of(type_).itemsize}")
        result = f"{type_[0]}{wide.itemsize * 8}"
        if not adds:
            return Operation(lambda a, b: np.multiply(a, b, dtype=wide), result, (type_, type_))
        return Operation(lambda a, b, c: np.multiply(a, b, dtype=wide) + c, result, (type_, type_, result))
    if "hi" in flags:
        high = high_half(type_)
        return _with_sum(high, ptx) if adds else Operation(high, type_, (type_, type_))
    if "lo" not in flags or "sat" in flags:
        return None
    maker = computed(lambda a, b, c: a * b + c, "b b b", "b") if adds else computed(np.multiply, "b b", "b")
    return maker(ptx)


def _with_sum(product: Callable[[Array, Array], Array], ptx: Instruction) -> Operation | None:
    """A product and a sum of the same type; .sat clamps the high half of s32 products."""
    if "sat" not in ptx.flags:
        return computed(lambda a, b, c: product(a, b) + c, "t t t")(ptx)
    if ptx.type != "s32" or "hi" not in ptx.flags:
        return None
    return computed(lambda a, b, c: _saturated_add(product(a, b), c), "t t t")(ptx)


def _multiply24(ptx: Instruction) -> Operation | None:
    narrow = dtype_of(ptx.type)
    wide = np.dtype(f"{narrow.kind}8")
    shift = wide.type(16 if "hi" in ptx.flags else 0)

    def cut(a: Array) -> Array:
        return ((a.view(np.uint32) << np.uint32(8)).view(narrow) >> narrow.type(8)).astype(wide)

    def product(a: Array, b: Array) -> Array:
        return (cut(a) * cut(b) >> shift).astype(narrow)

    if ptx.opcode == "mad24":
        return _with_sum(product, ptx)
    return computed(product, "t t")(ptx)


def _divide(a: Array, b: Array) -> Array:
    """a / b, rounded to zero; all ones where b is 0, as the hardware gives."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    quotient = a // safe
    if a.dtype.kind == "i":
        quotient = quotient + ((quotient < 0) & (quotient * safe != a))
        quotient = np.where((a == np.iinfo(a.dtype).min) & (safe == -1), a, quotient)
    return np.where(zero, ~b, quotient).astype(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    """a - a / b * b, with the sign of a; all ones where b is 0 (measured: H200, CUDA 13.0, 2026-11)."""
    zero = b == 0
    return np.where(zero, ~b, a - _divide(a, np.where(zero, b.dtype.type(1), b)) * b)


def checked_division(
    step: InstructionStep, instruction: FlatInstruction, binding: Binding
) -> InstructionStep:
    """Return the step of an integer division that reports threads which divide by zero.

    Triton divides in all lanes, also in those that a mask then drops: a finding has to wait there until
    something depends on the result.
    """
    ptx = instruction.ptx
    if isinstance(ptx.operands[2], Immediate):
        return step
    divisor, target = binding.source(ptx.operands[2], ptx.type), binding.destination(ptx.operands[0])
    bits = unsigned(dtype_of(ptx.type).itemsize)
    noun = "remainder of a division" if ptx.opcode == "rem" else "division"

    def run(batch: Batch) -> None:
        values = divisor.read(batch)
        step(batch)
        if values.all():
            return
        threads = batch.numbers()[np.broadcast_to(values == 0, batch.count())]

        def report(users: Threads) -> None:
            message = (
                f"division-by-zero: {noun} of integers by zero, whose result is undefined. Check the "
                "divisor before, or let no thread with a divisor of 0 get here."
            )
            batch.report("division-by-zero", instruction, users, message)

        if batch.launch.decoded.language == "triton":
            check = batch.undefined.hold(HeldCheck(report, threads, np.zeros(batch.threads, bool)))
            batch.undefined.put(target.slot, threads, np.full(len(threads), full_bits(bits), bits), check)
        else:
            report(threads)

    return run


def _shift(ptx: Instruction) -> Operation | None:
    """Shifts by 32 bits of amount; NumPy, like PTX, gives sign or zero beyond the width."""
    dtype = dtype_of(ptx.type)
    ufunc = np.left_shift if ptx.opcode == "shl" else np.right_shift
    limit = np.uint32(dtype.itemsize * 8)
    return computed(lambda a, n: ufunc(a, np.minimum(n, limit).astype(dtype)), "t u32")(ptx)


def _extreme(ptx: Instruction) -> Operation | None:
    """min and max, of values or of 16-bit pairs."""
    type_, relu = ptx.type, "relu" in ptx.flags
    ufunc = np.minimum if ptx.opcode == "min" else np.maximum
    if relu and type_ not in ("s32", "s16x2"):
        return None

    def extreme(a: Array, b: Array) -> Array:
        return np.maximum(ufunc(a, b), a.dtype.type(0))

    function = extreme if relu else ufunc
    if type_.endswith("x2"):
        return Operation(on_halves(function, dtype_of(type_.removesuffix("x2"))), "b32", ("b32", "b32"))
    return computed(function, "t t")(ptx)


_PARTS = ("lo", "hi", "wide")
_PAIRS = ("u16x2", "s16x2")
_SIGNED = ("s16", "s32", "s64")
_WORDS = ("u32", "s32")
_LOGICAL = BITS | {"pred"}

INTEGER = rows(
    "Integer Arithmetic Instructions",
    ("add sub", INTEGERS, ("sat",), _sum),
    ("mul", INTEGERS, _PARTS, _multiply),
    ("mad", INTEGERS, (*_PARTS, "sat"), _multiply),
    ("mul24", _WORDS, ("lo", "hi"), _multiply24),
    ("mad24", _WORDS, ("lo", "hi", "sat"), _multiply24),
    ("sad", INTEGERS, (), computed(lambda a, b, c: c + np.where(a < b, b - a, a - b), "t t t")),
    ("div", INTEGERS, (), computed(_divide, "t t")),
    ("rem", INTEGERS, (), computed(_remainder, "t t")),
    ("abs", _SIGNED, (), computed(np.abs, "t")),
    ("neg", _SIGNED, (), computed(np.negative, "t")),
    ("min max", INTEGERS, ("relu",), _extreme),
)
LOGIC = rows(
    "Logic and Shift Instructions",
    ("and", _LOGICAL, (), computed(np.bitwise_and, "t t")),
    ("or", _LOGICAL, (), computed(np.bitwise_or, "t t")),
    ("xor", _LOGICAL, (), computed(np.bitwise_xor, "t t")),
    ("not", _LOGICAL, (), computed(np.invert, "t")),
    ("cnot", BITS, (), computed(lambda a: (a == 0).astype(a.dtype), "t")),
    ("shl", BITS, (), _shift),
    ("shr", BITS | INTEGERS, (), _shift),
)
PAIRS = rows(
    "Integer Arithmetic Instructions",
    ("add", _PAIRS, (), computed(on_halves(np.add), "b32 b32", "b32")),
    ("min max", _PAIRS, ("relu",), _extreme),
)


# SIMD video instructions: on 64-bit integers, so that nothing wraps early.
#
# Source: PTX ISA, "SIMD Video Instructions", in the form without selectors and masks, which CUDA's SIMD
# intrinsics become.


_VIDEO: Mapping[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}
COMPARISONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _parts(a: Array, dtype: np.dtype[np.integer]) -> Array:
    """The 2 or 4 parts of each register, the lowest first, as 64-bit integers."""
    return np.ascontiguousarray(a).view(dtype).reshape(-1, 4 // dtype.itemsize).astype(np.int64)


def _video(ptx: Instruction) -> Operation | None:
    """Combine the parts of two registers; give them side by side, clamped or not, or their sum with c."""
    opcode, flags, size = ptx.opcode[:-1], ptx.flags, 4 // int(ptx.opcode[-1])
    names = [opcode] if opcode in _VIDEO else [f for f in flags if f in COMPARISONS]
    result, *operands = [np.dtype(f"{'i' if t[0] == 's' else 'u'}{size}") for t in ptx.types]
    if opcode == "vset":
        operands = [result, *operands]
    if len(names) != 1 or len(operands) != 2 or {"add", "sat"}.issubset(flags):
        return None
    function, limits = {**_VIDEO, **COMPARISONS}[names[0]], np.iinfo(result)

    def run(a: Array, b: Array, c: Array) -> Array:
        parts = function(_parts(a, operands[0]), _parts(b, operands[1])).astype(np.int64)
        if "add" in flags:
            return (parts.sum(axis=1) + c.astype(np.int64)).astype(np.uint32)
        if "sat" in flags:
            parts = np.clip(parts, limits.min, limits.max)
        return np.ascontiguousarray(parts.astype(f"u{size}")).view(np.uint32).reshape(-1)

    return Operation(run, "b32", ("b32", "b32", "b32"))


VIDEO: Table = rows(
    "SIMD Video Instructions",
    (" ".join(f"{name}{count}" for name in _VIDEO for count in (2, 4)), _WORDS, ("sat", "add"), _video),
    ("vset2 vset4", _WORDS, (*COMPARISONS, "add"), _video),
)


# Extended-precision arithmetic: the condition code register, and the instructions that read it.
#
# The carry is a predicate register of its own, CC.CF. A subtraction leaves the carry of a + ~b + 1, which is
# set where nothing is borrowed (measured: H200, CUDA 13.0, 2026-11, by sub.cc before addc and add.cc before
# subc).
#
# Source: PTX ISA, "Extended-Precision Integer Arithmetic Instructions".


CARRY = Register("CC.CF", "pred")
_OPCODES = frozenset({"add", "addc", "sub", "subc", "mad", "madc"})


def bind_carry(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """add.cc, addc, sub.cc, subc, mad.cc and madc."""
    ptx = instruction.ptx
    opcode, flags, type_ = ptx.opcode, set(ptx.flags), only(ptx.types)
    size = dtype_of(type_).itemsize
    target = binding.destination(ptx.operands[0])
    if (
        opcode not in _OPCODES
        or flags - {"cc", "lo", "hi"}
        or size not in (4, 8)
        or target.dtype.itemsize != size
    ):
        raise NotExecuted
    sources = [binding.source(o, f"u{8 * size}") for o in ptx.operands[1:]]
    carry = binding.register(CARRY).slot
    takes_carry, gives_carry = opcode.endswith("c"), "cc" in flags
    multiplies, subtracts = opcode.startswith("mad"), opcode.startswith("sub")
    require(len(sources) == (3 if multiplies else 2))
    own, bits = dtype_of(type_), unsigned(size)
    high = high_half(type_) if "hi" in flags else None

    def step(batch: Batch) -> None:
        *factors, last = [source.read(batch) for source in sources]
        if not multiplies:
            first = factors[0]
        elif high is None:
            first = factors[0] * factors[1]
        else:
            first = high(factors[0].view(own), factors[1].view(own)).view(bits)
        carried = batch.read(carry) if takes_carry else np.full(1, subtracts)
        total, carry_out = _with_carry(first, last, carried, subtracts)
        batch.write(target.slot, total.view(target.dtype))
        if gives_carry:
            batch.write(carry, carry_out)

    return step


def _with_carry(a: Array, b: Array, carry: Array, subtract: bool) -> tuple[Array, Array]:
    """The sum or difference with a carry in, and the carry that comes out."""
    b = ~b if subtract else b
    part = a + b
    result = part + carry.astype(a.dtype)
    return result, (part < a) | (result < part)


# Bit fields, masks and bit counts, byte permutation, three-input logic, dot products.
#
# Source: PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions",
# "Data Movement and Conversion Instructions: prmt".


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
_SINGLE_WORDS = ("u32", "s32")
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
    ("dp4a", _SINGLE_WORDS, (), _dot),
    ("dp2a", _SINGLE_WORDS, ("lo", "hi"), _dot),
    ("bmsk", _B32, ("clamp", "wrap"), _mask),
    ("szext", _SINGLE_WORDS, ("clamp", "wrap"), _extend),
    ("fns", _B32, (), computed(_find_nth, "b32 u32 s32", "b32")),
)
BYTES = rows(
    "Logic and Shift Instructions, Data Movement",
    ("shf", _B32, ("l", "r", "wrap", "clamp"), _funnel),
    ("prmt", _B32, tuple(_MODES)[1:], _permute),
)
