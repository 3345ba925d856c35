"""What each step computes: Python's numbers, cut off where a plan cannot be exact.

The table is the meaning of `plan.Op` for the follower, which folds constants with it, and for
`evaluate.py`; native code does the same.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping

from dotcu.call_cache.plan import Instruction, Op

Number = int | float

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
EXACT_DOUBLE = 2**53


class Inexact(ArithmeticError):
    """A step has no value: Python has another than 64 bits hold, or raises."""


def _to_float(a: int) -> float:
    if abs(a) > EXACT_DOUBLE:
        raise Inexact
    return float(a)


def bits(number: float) -> bytes:
    """A double's bits: they tell zeros and NaNs apart."""
    return struct.pack("<d", number)


# More than 64 places always overflow to the left, and always leave the sign to the right.
_SHIFTS = 64

_UNARY: Mapping[Op, Callable[[Number], Number]] = {
    Op.NEG: operator.neg,
    Op.ABS: abs,
    Op.TO_FLOAT: _to_float,  # type: ignore[dict-item]
    Op.FNEG: operator.neg,
    Op.FABS: abs,
    Op.TRUNC: math.trunc,
    Op.FLOOR: math.floor,
    Op.CEIL: math.ceil,
}

_BINARY: Mapping[Op, Callable[[Number, Number], Number]] = {
    Op.ADD: operator.add,
    Op.SUB: operator.sub,
    Op.MUL: operator.mul,
    Op.FLOORDIV: operator.floordiv,
    Op.MOD: operator.mod,
    Op.MIN: min,
    Op.MAX: max,
    Op.LSHIFT: lambda a, b: operator.lshift(a, b if b <= _SHIFTS or not a else _SHIFTS),
    Op.RSHIFT: lambda a, b: operator.rshift(a, min(b, _SHIFTS)),
    Op.AND: operator.and_,
    Op.OR: operator.or_,
    Op.XOR: operator.xor,
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
    Op.FADD: operator.add,
    Op.FSUB: operator.sub,
    Op.FMUL: operator.mul,
    Op.FDIV: operator.truediv,
    Op.FEQ: operator.eq,
    Op.FNE: operator.ne,
    Op.FLT: operator.lt,
    Op.FLE: operator.le,
    Op.FGT: operator.gt,
    Op.FGE: operator.ge,
    Op.SAME: lambda a, b: bits(a) == bits(b),
}

_MAY_RAISE = {Op.FLOORDIV, Op.MOD, Op.FDIV, Op.LSHIFT, Op.RSHIFT, Op.TRUNC, Op.FLOOR, Op.CEIL}


def operands(instruction: Instruction) -> tuple[int, ...]:
    """The steps that a step is computed of."""
    if instruction.op in _UNARY:
        return (instruction.a,)
    return (instruction.a, instruction.b) if instruction.op in _BINARY else ()


def may_raise(op: Op) -> bool:
    """Whether Python raises for some values of the operands, other than for their size."""
    return op in _MAY_RAISE


def compute(op: Op, *values: Number) -> Number:
    """The value of a step that is computed of others.

    Raises:
        Inexact: It has none.
    """
    try:
        found = _UNARY[op](*values) if op in _UNARY else _BINARY[op](*values)
    except (ArithmeticError, ValueError) as error:
        raise Inexact from error
    if isinstance(found, float):
        return found
    if not INT_MIN <= found <= INT_MAX:
        raise Inexact
    return int(found)
