"""What steps give in Python's numbers, which have no end: what native code is compared with."""

from __future__ import annotations

import math
import operator as python
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dotcu.call_cache.arguments import Argument
from dotcu.call_cache.plan import Field, FieldKind, NumberKey, Op
from replays import FLOAT, INT, Driver, Operator, Steps, launch, plan

LEAST, MOST = -(2**63), 2**63 - 1
EXACT = 2**53

WHOLE_NUMBERS = (
    0,
    1,
    -1,
    2,
    -2,
    3,
    -3,
    7,
    -7,
    62,
    63,
    64,
    65,
    255,
    EXACT,
    EXACT + 1,
    -EXACT,
    2**62,
    MOST,
    LEAST,
)
DOUBLES = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e300, -1e300, 5e-324, 2.0**53, 2.0**62, 2.0**63, -(2.0**63)),
    *(math.nextafter(2.0**63, 0), math.nextafter(-(2.0**63), -math.inf), math.inf, -math.inf, math.nan),
)


class Unfit(Exception):
    """A step has no value of its type."""


def _shift(a: int, by: int) -> int:
    if a and by > 64:
        raise Unfit  # before Python makes a number of so many digits
    return a << by if a else 0 << (by if by < 0 else 0)


def _to_float(a: int) -> float:
    if abs(a) > EXACT:
        raise Unfit
    return float(a)


def same(a: float, b: float) -> bool:
    return struct.pack("<d", a) == struct.pack("<d", b)


WHOLE: Mapping[Op, Callable[[int, int], int]] = {
    Op.ADD: python.add,
    Op.SUB: python.sub,
    Op.MUL: python.mul,
    Op.FLOORDIV: python.floordiv,
    Op.MOD: python.mod,
    Op.NEG: lambda a, b: -a,
    Op.ABS: lambda a, b: abs(a),
    Op.MIN: min,
    Op.MAX: max,
    Op.LSHIFT: _shift,
    Op.RSHIFT: python.rshift,
    Op.AND: python.and_,
    Op.OR: python.or_,
    Op.XOR: python.xor,
    Op.EQ: python.eq,
    Op.NE: python.ne,
    Op.LT: python.lt,
    Op.LE: python.le,
    Op.GT: python.gt,
    Op.GE: python.ge,
}
REAL: Mapping[Op, Callable[[float, float], float]] = {
    Op.FADD: python.add,
    Op.FSUB: python.sub,
    Op.FMUL: python.mul,
    Op.FDIV: python.truediv,
    Op.FNEG: lambda a, b: -a,
    Op.FABS: lambda a, b: abs(a),
}
TESTS: Mapping[Op, Callable[[float, float], bool]] = {
    Op.FEQ: python.eq,
    Op.FNE: python.ne,
    Op.FLT: python.lt,
    Op.FLE: python.le,
    Op.FGT: python.gt,
    Op.FGE: python.ge,
    Op.SAME: same,
}
ROUNDINGS: Mapping[Op, Callable[[float, float], int]] = {
    Op.TRUNC: lambda a, b: math.trunc(a),
    Op.FLOOR: lambda a, b: math.floor(a),
    Op.CEIL: lambda a, b: math.ceil(a),
}
FLOATS_OF = {*REAL, Op.TO_FLOAT}
"""Ops that give doubles."""


def compute(op: Op, a: Any, b: Any) -> Any:
    """What an op gives in numbers without an end.

    Raises:
        Unfit: It gives none of 64 bits.
    """
    try:
        if op is Op.TO_FLOAT:
            return _to_float(a)
        if op in REAL:
            return REAL[op](a, b)
        found = int({**WHOLE, **TESTS, **ROUNDINGS}[op](a, b))
    except (ArithmeticError, ValueError) as error:
        raise Unfit from error
    if not LEAST <= found <= MOST:
        raise Unfit
    return found


def written(op: Op, a: Any, b: Any) -> bytes | str:
    """What a launch with the result of one op is to be told."""
    try:
        found = compute(op, a, b)
    except Unfit:
        return "body"
    return struct.pack("<d8x" if op in FLOATS_OF else "<q8x", found)


def noting(
    driver: Driver, keys: Sequence[Any], arguments: Sequence[Argument], steps: Steps, last: int
) -> Operator:
    """An operator whose launch is told the value of a step."""
    kind = (
        FieldKind.FLOAT64 if steps[last].op in {*FLOATS_OF, Op.FLOAT, Op.FLOAT_ARGUMENT} else FieldKind.INT64
    )
    launched = launch(steps, Field(offset=0, kind=kind, step=last))
    return Operator(driver, arguments, plan(keys, steps, launches=(launched,)))


def of_two(driver: Driver, op: Op, left: Any, right: Any) -> Operator:
    """An operator of two numbers whose launch is told an op of them, or of a constant in a number's place."""
    steps, is_float = Steps(), op in {*REAL, *TESTS, *ROUNDINGS}
    constant, leaf = (Op.FLOAT, Op.FLOAT_ARGUMENT) if is_float else (Op.INT, Op.INT_ARGUMENT)
    a, b = (
        steps.add(leaf, i) if value is None else steps.add(constant, value=value)
        for i, value in enumerate((left, right))
    )
    key, argument = NumberKey(is_float=is_float), FLOAT if is_float else INT
    return noting(driver, [key, key], [argument, argument], steps, steps.add(op, a, b))


def told(operator: Operator, *args: Any) -> Any:
    """What the launch of a call was told, or what came instead of a launch."""
    operator.launched.clear()
    answer = operator(*args)
    return operator.launched[0].parameters if answer is None else answer


def agree(found: Any, want: Any, *, doubles: bool) -> bool:
    """Whether two are the same; of NaNs, any two."""
    if found == want or not doubles or isinstance(found, str) or isinstance(want, str):
        return bool(found == want)
    return all(math.isnan(struct.unpack("<d8x", side)[0]) for side in (found, want))
