"""What steps give in Python's numbers, which have no end: what native code is compared with."""

from __future__ import annotations

import math
import operator as python
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dotcu.call_cache.native import Argument
from dotcu.call_cache.record import Field, FieldKind, StepOp
from recorded_calls import FLOAT, INT, Driver, Operator, Steps, launch, plan

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


WHOLE: Mapping[StepOp, Callable[[int, int], int]] = {
    StepOp.ADD: python.add,
    StepOp.SUB: python.sub,
    StepOp.MUL: python.mul,
    StepOp.FLOORDIV: python.floordiv,
    StepOp.MOD: python.mod,
    StepOp.NEG: lambda a, b: -a,
    StepOp.ABS: lambda a, b: abs(a),
    StepOp.MIN: min,
    StepOp.MAX: max,
    StepOp.LSHIFT: _shift,
    StepOp.RSHIFT: python.rshift,
    StepOp.AND: python.and_,
    StepOp.OR: python.or_,
    StepOp.XOR: python.xor,
    StepOp.EQ: python.eq,
    StepOp.NE: python.ne,
    StepOp.LT: python.lt,
    StepOp.LE: python.le,
    StepOp.GT: python.gt,
    StepOp.GE: python.ge,
}
REAL: Mapping[StepOp, Callable[[float, float], float]] = {
    StepOp.FADD: python.add,
    StepOp.FSUB: python.sub,
    StepOp.FMUL: python.mul,
    StepOp.FDIV: python.truediv,
    StepOp.FNEG: lambda a, b: -a,
    StepOp.FABS: lambda a, b: abs(a),
}
TESTS: Mapping[StepOp, Callable[[float, float], bool]] = {
    StepOp.FEQ: python.eq,
    StepOp.FNE: python.ne,
    StepOp.FLT: python.lt,
    StepOp.FLE: python.le,
    StepOp.FGT: python.gt,
    StepOp.FGE: python.ge,
    StepOp.SAME: same,
}
ROUNDINGS: Mapping[StepOp, Callable[[float, float], int]] = {
    StepOp.TRUNC: lambda a, b: math.trunc(a),
    StepOp.FLOOR: lambda a, b: math.floor(a),
    StepOp.CEIL: lambda a, b: math.ceil(a),
}
FLOATS_OF = {*REAL, StepOp.TO_FLOAT}
"""Ops that give doubles."""


def compute(op: StepOp, a: Any, b: Any) -> Any:
    """What an op gives in numbers without an end.

    Raises:
        Unfit: It gives none of 64 bits.
    """
    try:
        if op is StepOp.TO_FLOAT:
            return _to_float(a)
        if op in REAL:
            return REAL[op](a, b)
        found = int({**WHOLE, **TESTS, **ROUNDINGS}[op](a, b))
    except (ArithmeticError, ValueError) as error:
        raise Unfit from error
    if not LEAST <= found <= MOST:
        raise Unfit
    return found


def written(op: StepOp, a: Any, b: Any) -> bytes | str:
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
        FieldKind.FLOAT64
        if steps[last].op in {*FLOATS_OF, StepOp.FLOAT, StepOp.FLOAT_ARGUMENT}
        else FieldKind.INT64
    )
    launched = launch(steps, Field(offset=0, kind=kind, step=last))
    return Operator(driver, arguments, plan(keys, steps, launches=(launched,)))


def of_two(driver: Driver, op: StepOp, left: Any, right: Any) -> Operator:
    """An operator of two numbers whose launch is told an op of them, or of a constant in a number's place."""
    steps, is_float = Steps(), op in {*REAL, *TESTS, *ROUNDINGS}
    constant, leaf = (StepOp.FLOAT, StepOp.FLOAT_ARGUMENT) if is_float else (StepOp.INT, StepOp.INT_ARGUMENT)
    a, b = (
        steps.add(leaf, i) if value is None else steps.add(constant, value=value)
        for i, value in enumerate((left, right))
    )
    key, argument = float if is_float else int, FLOAT if is_float else INT
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
