"""Integer arithmetic, logic and shifts.

Source: PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions",
"Extended-Precision Integer Arithmetic Instructions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import Register
from dotcu.simulator.decoding.inlining import FlatInstruction
from dotcu.simulator.machine.chunk import Chunk
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
    dtype_of,
    unsigned,
)

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding


def bits_type(type_: str) -> str:
    """The type of the same width whose arithmetic does not depend on the sign."""
    return type_ if type_ == "pred" else "b" + type_.lstrip("bsu")


def _modular(function: Callable[..., Array]) -> Callable[[InstructionForm], Operation]:
    """Arithmetic modulo 2^n: the sign does not matter."""

    def make(form: InstructionForm) -> Operation:
        type_ = bits_type(form.type)
        return Operation(function, type_, (type_,) * _arity(function))

    return make


def _typed(function: Callable[..., Array], arity: int) -> Callable[[InstructionForm], Operation]:
    """Arithmetic on the values as the type has them."""

    def make(form: InstructionForm) -> Operation:
        return Operation(function, form.type, (form.type,) * arity)

    return make


def _arity(function: Callable[..., Array]) -> int:
    if isinstance(function, np.ufunc):
        return int(function.nin)
    return function.__code__.co_argcount


def saturated_add(a: Array, b: Array) -> Array:
    """a + b for s32, clamped to its range."""
    return np.clip(a.astype(np.int64) + b, -(2**31), 2**31 - 1).astype(np.int32)


def saturated_subtract(a: Array, b: Array) -> Array:
    """a - b for s32, clamped to its range."""
    return np.clip(a.astype(np.int64) - b, -(2**31), 2**31 - 1).astype(np.int32)


def _add(form: InstructionForm) -> Operation | None:
    if "sat" not in form.flags:
        return _modular(np.add)(form)
    return _typed(saturated_add, 2)(form) if form.type == "s32" else None


def _sub(form: InstructionForm) -> Operation | None:
    if "sat" not in form.flags:
        return _modular(np.subtract)(form)
    return _typed(saturated_subtract, 2)(form) if form.type == "s32" else None


def _multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, modulo 2^n."""
    return a * b + c


def high64(a: Array, b: Array) -> Array:
    """The upper 64 bits of the product of two u64."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> shift, b & low, b >> shift
    middle = a1 * b0 + (a0 * b0 >> shift)
    other = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> shift) + (other >> shift)


def high64_signed(a: Array, b: Array) -> Array:
    """The upper 64 bits of the product of two s64."""
    ua, ub = a.view(np.uint64), b.view(np.uint64)
    high = high64(ua, ub)
    high = high - np.where(a < 0, ub, np.uint64(0)) - np.where(b < 0, ua, np.uint64(0))
    return high.view(np.int64)


def _high(type_: str) -> Callable[[Array, Array], Array]:
    if type_ == "u64":
        return high64
    if type_ == "s64":
        return high64_signed
    narrow = dtype_of(type_)
    wide = np.dtype(f"{narrow.kind}{narrow.itemsize * 2}")
    shift = wide.type(narrow.itemsize * 8)
    return lambda a, b: (np.multiply(a, b, dtype=wide) >> shift).astype(narrow)


def _wide(type_: str) -> tuple[str, Callable[[Array, Array], Array]]:
    narrow = dtype_of(type_)
    wide = np.dtype(f"{narrow.kind}{narrow.itemsize * 2}")
    return f"{type_[0]}{wide.itemsize * 8}", lambda a, b: np.multiply(a, b, dtype=wide)


def _mul(form: InstructionForm) -> Operation | None:
    type_ = form.type
    if "wide" in form.flags:
        if type_.endswith("64"):
            return None
        result, product = _wide(type_)
        return Operation(product, result, (type_, type_))
    if "hi" in form.flags:
        return Operation(_high(type_), type_, (type_, type_))
    return _modular(np.multiply)(form) if "lo" in form.flags else None


def _mad(form: InstructionForm) -> Operation | None:
    type_ = form.type
    if "wide" in form.flags:
        if type_.endswith("64"):
            return None
        result, product = _wide(type_)
        return Operation(lambda a, b, c: product(a, b) + c, result, (type_, type_, result))
    if "hi" in form.flags:
        high = _high(type_)
        if "sat" in form.flags:
            if type_ != "s32":
                return None
            return Operation(lambda a, b, c: saturated_add(high(a, b), c), type_, (type_,) * 3)
        return Operation(lambda a, b, c: high(a, b) + c, type_, (type_,) * 3)
    if "sat" in form.flags:
        return None
    return _modular(_multiply_add)(form) if "lo" in form.flags else None


def _mul24(form: InstructionForm) -> Operation | None:
    type_ = form.type
    wide = np.int64 if type_ == "s32" else np.uint64
    narrow = dtype_of(type_)
    shift = 16 if "hi" in form.flags else 0

    def cut(a: Array) -> Array:
        low = (a.view(np.uint32) << np.uint32(8)).view(narrow) >> narrow.type(8)
        return low.astype(wide)

    def product(a: Array, b: Array) -> Array:
        return (cut(a) * cut(b) >> wide(shift)).astype(narrow)

    if form.opcode == "mul24":
        return Operation(product, type_, (type_, type_))
    if "sat" in form.flags:
        if type_ != "s32" or "hi" not in form.flags:
            return None
        return Operation(lambda a, b, c: saturated_add(product(a, b), c), type_, (type_,) * 3)
    return Operation(lambda a, b, c: product(a, b) + c, type_, (type_,) * 3)


def divide(a: Array, b: Array) -> Array:
    """a / b, rounded to zero; all ones where b is 0, as the hardware gives."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        quotient = a // safe
    else:
        floored = a // safe
        quotient = floored + ((floored < 0) & (floored * safe != a))
        quotient = np.where((a == np.iinfo(a.dtype).min) & (safe == -1), a, quotient)
    return np.where(zero, ~b, quotient).astype(a.dtype)


def remainder(a: Array, b: Array) -> Array:
    """a - a / b * b, with the sign of a; a where b is 0."""
    zero = b == 0
    return np.where(zero, a, a - divide(a, np.where(zero, b.dtype.type(1), b)) * b)


def _absolute_difference(a: Array, b: Array, c: Array) -> Array:
    """c + |a - b|."""
    return c + np.where(a < b, b - a, a - b)


def _bitwise(ufunc: np.ufunc) -> Callable[[InstructionForm], Operation]:
    def make(form: InstructionForm) -> Operation:
        return Operation(ufunc, form.type, (form.type,) * ufunc.nin)

    return make


def _logical_not(a: Array) -> Array:
    """cnot: 1 where a is 0."""
    return (a == 0).astype(a.dtype)


def _shift(left: bool) -> Callable[[InstructionForm], Operation]:
    """Shifts by 32 bits of amount; NumPy, like PTX, gives sign or zero beyond the width."""

    def make(form: InstructionForm) -> Operation:
        type_ = bits_type(form.type) if left else form.type
        dtype = dtype_of(type_)
        limit = np.uint32(dtype.itemsize * 8)
        ufunc = np.left_shift if left else np.right_shift

        def shift(a: Array, amount: Array) -> Array:
            return ufunc(a, np.minimum(amount, limit).astype(dtype))

        return Operation(shift, type_, (type_, "u32"))

    return make


def _minimum_with_relu(form: InstructionForm) -> Operation | None:
    ufunc = np.minimum if form.opcode == "min" else np.maximum
    if "relu" not in form.flags:
        return _typed(ufunc, 2)(form)
    if form.type != "s32":
        return None
    return Operation(lambda a, b: np.maximum(ufunc(a, b), 0), "s32", ("s32", "s32"))


def negate(a: Array) -> Array:
    """-a, modulo 2^n."""
    return np.negative(a)


_ARITHMETIC = "Integer Arithmetic Instructions: "
_LOGIC = "Logic and Shift Instructions: "
_NONE: frozenset[str] = frozenset()
_PARTS = frozenset({"lo", "hi", "wide", "sat"})
_SIGNED = frozenset({"s16", "s32", "s64"})
_LOGICAL = BITS | {"pred"}

INTEGER: Table = {
    "add": (SemanticsRow(INTEGERS, frozenset({"sat"}), _ARITHMETIC + "add", _add),),
    "sub": (SemanticsRow(INTEGERS, frozenset({"sat"}), _ARITHMETIC + "sub", _sub),),
    "mul": (SemanticsRow(INTEGERS, _PARTS - {"sat"}, _ARITHMETIC + "mul", _mul),),
    "mad": (SemanticsRow(INTEGERS, _PARTS, _ARITHMETIC + "mad", _mad),),
    "mul24": (
        SemanticsRow(frozenset({"u32", "s32"}), frozenset({"lo", "hi"}), _ARITHMETIC + "mul24", _mul24),
    ),
    "mad24": (
        SemanticsRow(
            frozenset({"u32", "s32"}), frozenset({"lo", "hi", "sat"}), _ARITHMETIC + "mad24", _mul24
        ),
    ),
    "sad": (SemanticsRow(INTEGERS, _NONE, _ARITHMETIC + "sad", _typed(_absolute_difference, 3)),),
    "div": (SemanticsRow(INTEGERS, _NONE, _ARITHMETIC + "div", _typed(divide, 2)),),
    "rem": (SemanticsRow(INTEGERS, _NONE, _ARITHMETIC + "rem", _typed(remainder, 2)),),
    "abs": (SemanticsRow(_SIGNED, _NONE, _ARITHMETIC + "abs", _typed(np.abs, 1)),),
    "neg": (SemanticsRow(_SIGNED, _NONE, _ARITHMETIC + "neg", _typed(negate, 1)),),
    "min": (SemanticsRow(INTEGERS, frozenset({"relu"}), _ARITHMETIC + "min", _minimum_with_relu),),
    "max": (SemanticsRow(INTEGERS, frozenset({"relu"}), _ARITHMETIC + "max", _minimum_with_relu),),
    "and": (SemanticsRow(_LOGICAL, _NONE, _LOGIC + "and", _bitwise(np.bitwise_and)),),
    "or": (SemanticsRow(_LOGICAL, _NONE, _LOGIC + "or", _bitwise(np.bitwise_or)),),
    "xor": (SemanticsRow(_LOGICAL, _NONE, _LOGIC + "xor", _bitwise(np.bitwise_xor)),),
    "not": (SemanticsRow(_LOGICAL, _NONE, _LOGIC + "not", _bitwise(np.invert)),),
    "cnot": (SemanticsRow(BITS, _NONE, _LOGIC + "cnot", _typed(_logical_not, 1)),),
    "shl": (SemanticsRow(BITS, _NONE, _LOGIC + "shl", _shift(left=True)),),
    "shr": (SemanticsRow(BITS | INTEGERS, _NONE, _LOGIC + "shr", _shift(left=False)),),
}


# Integers packed in a register: 16-bit pairs, and the SIMD video instructions.
#
# Source: PTX ISA, "Integer Arithmetic Instructions: add, min, max" for pairs; "SIMD Video Instructions"
# for the rest, in the form without selectors and masks, which CUDA's SIMD intrinsics become.


# Pairs of 16-bit integers


def on_halves(function: Callable[..., Array], type_: str) -> Callable[..., Array]:
    """The function on each 16-bit half of packed 32-bit values."""
    dtype = dtype_of(type_.removesuffix("x2"))

    def packed(*arrays: Array) -> Array:
        size = max(a.size for a in arrays)
        halves = [np.ascontiguousarray(np.broadcast_to(a, size)).view(dtype) for a in arrays]
        return np.ascontiguousarray(function(*halves)).view(np.uint32)

    return packed


def _packed_add(form: InstructionForm) -> Operation:
    return Operation(on_halves(np.add, form.type), "b32", ("b32", "b32"))


def _packed_extreme(form: InstructionForm) -> Operation | None:
    relu = "relu" in form.flags
    if relu and form.type != "s16x2":
        return None
    ufunc = np.minimum if form.opcode == "min" else np.maximum

    def extreme(a: Array, b: Array) -> Array:
        result = ufunc(a, b)
        return np.maximum(result, np.int16(0)) if relu else result

    return Operation(on_halves(extreme, form.type), "b32", ("b32", "b32"))


# SIMD video instructions: on 64-bit integers, so that nothing wraps early


def _average(a: Array, b: Array) -> Array:
    total = a + b
    return (total + (total >= 0)) >> 1


_VIDEO: Mapping[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vavrg": _average,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}
_COMPARE: Mapping[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _unpack_parts(a: Array, type_: str, count: int) -> Array:
    """The 2 or 4 parts of each register, the lowest first, as 64-bit integers."""
    dtype = np.dtype(f"{'i' if type_[0] == 's' else 'u'}{4 // count}")
    return np.ascontiguousarray(a).view(dtype).reshape(-1, count).astype(np.int64)


def _pack_parts(parts: Array, count: int) -> Array:
    cut = (parts & ((1 << (32 // count)) - 1)).astype(f"u{4 // count}")
    return np.ascontiguousarray(cut).view(np.uint32).reshape(-1)


def _accumulate(parts: Array, c: Array) -> Array:
    return (parts.sum(axis=1) + c.astype(np.int64)).astype(np.uint32)


def _pack_result(parts: Array, c: Array, form: InstructionForm, count: int) -> Array:
    if "add" in form.flags:
        return _accumulate(parts, c)
    if "sat" in form.flags:
        limits = np.iinfo(f"{'i' if form.types[0][0] == 's' else 'u'}{4 // count}")
        parts = np.clip(parts, limits.min, limits.max)
    return _pack_parts(parts, count)


def _video(form: InstructionForm) -> Operation | None:
    if len(form.types) != 3 or form.flags >= {"add", "sat"}:
        return None
    count = int(form.opcode[-1])
    function = _VIDEO[form.opcode[:-1]]

    def run(a: Array, b: Array, c: Array) -> Array:
        parts = function(_unpack_parts(a, form.types[1], count), _unpack_parts(b, form.types[2], count))
        return _pack_result(parts, c, form, count)

    return Operation(run, "b32", ("b32", "b32", "b32"))


def _video_set(form: InstructionForm) -> Operation | None:
    names = [f for f in form.order if f in _COMPARE]
    if len(form.types) != 2 or len(names) != 1:
        return None
    count, compare = int(form.opcode[-1]), _COMPARE[names[0]]

    def run(a: Array, b: Array, c: Array) -> Array:
        holds = compare(_unpack_parts(a, form.types[0], count), _unpack_parts(b, form.types[1], count))
        return _pack_result(holds.astype(np.int64), c, form, count)

    return Operation(run, "b32", ("b32", "b32", "b32"))


_PAIRS = frozenset({"u16x2", "s16x2"})
_WORDS = frozenset({"u32", "s32"})
_SECTION = "SIMD Video Instructions: "

PACKED: Table = {
    "add": (SemanticsRow(_PAIRS, frozenset(), _ARITHMETIC + "add", _packed_add),),
    "min": (SemanticsRow(_PAIRS, frozenset({"relu"}), _ARITHMETIC + "min", _packed_extreme),),
    "max": (SemanticsRow(_PAIRS, frozenset({"relu"}), _ARITHMETIC + "max", _packed_extreme),),
    **{
        f"{name}{count}": (
            SemanticsRow(_WORDS, frozenset({"sat", "add"}), f"{_SECTION}{name}{count}", _video),
        )
        for name in _VIDEO
        for count in (2, 4)
    },
    **{
        f"vset{count}": (
            SemanticsRow(_WORDS, frozenset({*_COMPARE, "add"}), f"{_SECTION}vset{count}", _video_set),
        )
        for count in (2, 4)
    },
}


# Extended-precision arithmetic: the condition code register, and the instructions that read it.
#
# The carry is a predicate register of its own, CC.CF.
#
# Source: PTX ISA, "Extended-Precision Integer Arithmetic Instructions".


CARRY = Register("CC.CF", "pred")
_OPCODES = frozenset({"add", "addc", "sub", "subc", "mad", "madc"})


def bind_carry(placed: FlatInstruction, binding: Binding) -> Step:
    """add.cc, addc, sub.cc, subc, mad.cc and madc."""
    instruction = placed.instruction
    opcode, flags = instruction.opcode, set(instruction.flags)
    if opcode not in _OPCODES or flags - {"cc", "lo", "hi"} or len(instruction.types) != 1:
        raise NotExecuted
    type_ = instruction.types[0]
    size = dtype_of(type_).itemsize
    if size not in (4, 8):
        raise NotExecuted
    target = binding.destination(instruction.operands[0])
    if target.dtype.itemsize != size:
        raise NotExecuted
    sources = [binding.source(o, f"u{8 * size}") for o in instruction.operands[1:]]
    carry = binding.register(CARRY).slot
    takes_carry, gives_carry = opcode.endswith("c"), "cc" in flags
    multiplies, subtracts = opcode.startswith("mad"), opcode.startswith("sub")
    if len(sources) != (3 if multiplies else 2):
        raise NotExecuted

    def step(chunk: Chunk) -> None:
        values = [source.read(chunk) for source in sources]
        if multiplies:
            product = _carry_product(values[0], values[1], type_, "hi" in flags)
            values = [product, values[2]]
        carried = chunk.read(carry) if takes_carry else np.zeros(1, bool)
        total, out = _with_carry(values[0], values[1], carried, subtracts)
        chunk.write(target.slot, total.view(target.dtype))
        if gives_carry:
            chunk.write(carry, out)

    return step


def _carry_product(a: Array, b: Array, type_: str, high: bool) -> Array:
    if not high:
        return a * b
    if type_ == "u64":
        return high64(a, b)
    if type_ == "s64":
        return high64_signed(a.view(np.int64), b.view(np.int64)).view(np.uint64)
    narrow = dtype_of(type_)
    wide = np.dtype(f"{narrow.kind}8")
    product: Array = np.multiply(a.view(narrow), b.view(narrow), dtype=wide) >> wide.type(32)
    return product.astype(unsigned(4))


def _with_carry(a: Array, b: Array, carry: Array, subtract: bool) -> tuple[Array, Array]:
    """The sum or difference with a carry or borrow in, and the one that comes out."""
    one = carry.astype(a.dtype)
    if subtract:
        part = a - b
        result = part - one
        return result, (a < b) | (part < one)
    part = a + b
    result = part + one
    return result, (part < a) | (result < part)
