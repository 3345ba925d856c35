"""The arithmetic of steps: Python's numbers, where 64 bits are exact, and the builder of a trace's steps.

An `OverflowError` says that a step has no value: Python's does not fit 64 bits, or Python raises.

The tables define `record.Op` for tracing, which folds constants with them, and for `evaluate.py`; native
code does the same.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any

from dotcu.call_cache.record import RecordedStep, Step, StepOp

Number = int | float

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
EXACT_DOUBLE = 2**53


def _to_float(a: int) -> float:
    if abs(a) > EXACT_DOUBLE:
        raise OverflowError
    return float(a)


def bits(number: float) -> bytes:
    """Return a double's bits, which differ between zeros and between NaNs."""
    return struct.pack("<d", number)


# Shifts by more than 64 bits always overflow to the left, and leave only the sign to the right.
_SHIFTS = 64

_UNARY: Mapping[StepOp, Callable[[Number], Number]] = {
    StepOp.NEG: operator.neg,
    StepOp.ABS: abs,
    StepOp.TO_FLOAT: _to_float,  # type: ignore[dict-item]
    StepOp.FNEG: operator.neg,
    StepOp.FABS: abs,
    StepOp.TRUNC: math.trunc,
    StepOp.FLOOR: math.floor,
    StepOp.CEIL: math.ceil,
}

_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
_BINARY: Mapping[StepOp, Callable[[Number, Number], Number]] = {
    **{
        StepOp[name.upper()]: getattr(operator, name)
        for name in ("add", "sub", "mul", "floordiv", "mod", *_COMPARED)
    },
    **{StepOp[f"F{name.upper()}"]: getattr(operator, name) for name in ("add", "sub", "mul", *_COMPARED)},
    StepOp.FDIV: operator.truediv,
    StepOp.MIN: min,
    StepOp.MAX: max,
    StepOp.LSHIFT: lambda a, b: operator.lshift(a, b if b <= _SHIFTS or not a else _SHIFTS),
    StepOp.RSHIFT: lambda a, b: operator.rshift(a, min(b, _SHIFTS)),
    StepOp.AND: operator.and_,
    StepOp.OR: operator.or_,
    StepOp.XOR: operator.xor,
    StepOp.SAME: lambda a, b: bits(a) == bits(b),
}


def operands(instruction: RecordedStep) -> tuple[int, ...]:
    """Return the steps that a step is computed from."""
    if instruction.op in _UNARY:
        return (instruction.a,)
    return (instruction.a, instruction.b) if instruction.op in _BINARY else ()


def compute(op: StepOp, *values: Number) -> Number:
    """Return the value of a step that is computed from others."""
    try:
        result = _UNARY[op](*values) if op in _UNARY else _BINARY[op](*values)
    except (ArithmeticError, ValueError) as error:
        raise OverflowError from error
    if isinstance(result, float):
        return result
    if not INT_MIN <= result <= INT_MAX:
        raise OverflowError
    return int(result)


# Python's operators: the step on integers, the step on doubles, and the function if there is no step.
ARITHMETIC: dict[str, tuple[StepOp | None, StepOp | None, Callable[[Any, Any], Any]]] = {
    "add": (StepOp.ADD, StepOp.FADD, operator.add),
    "sub": (StepOp.SUB, StepOp.FSUB, operator.sub),
    "mul": (StepOp.MUL, StepOp.FMUL, operator.mul),
    "floordiv": (StepOp.FLOORDIV, None, operator.floordiv),
    "mod": (StepOp.MOD, None, operator.mod),
    "truediv": (None, StepOp.FDIV, operator.truediv),
    "lshift": (StepOp.LSHIFT, None, operator.lshift),
    "rshift": (StepOp.RSHIFT, None, operator.rshift),
    "and": (StepOp.AND, None, operator.and_),
    "or": (StepOp.OR, None, operator.or_),
    "xor": (StepOp.XOR, None, operator.xor),
}

_Compare = tuple[StepOp, bool, bool]

# Comparisons by few steps, so that a branch on `>` shares its guard with one on `<`: for integers and for
# doubles the step, True to swap the operands, True to negate the outcome; and Python's function.
COMPARISONS: dict[str, tuple[_Compare, _Compare, Callable[[Any, Any], Any]]] = {
    "eq": ((StepOp.EQ, False, False), (StepOp.FEQ, False, False), operator.eq),
    "ne": ((StepOp.EQ, False, True), (StepOp.FEQ, False, True), operator.ne),
    "lt": ((StepOp.LT, False, False), (StepOp.FLT, False, False), operator.lt),
    "gt": ((StepOp.LT, True, False), (StepOp.FLT, True, False), operator.gt),
    "le": ((StepOp.LT, True, True), (StepOp.FLE, False, False), operator.le),
    "ge": ((StepOp.LT, False, True), (StepOp.FLE, True, False), operator.ge),
}

# Integers are their own truncations: `symbols.SymbolicInt` has these methods itself.
UNARY: dict[str, tuple[StepOp, StepOp, Callable[[Any], Any]]] = {
    "neg": (StepOp.NEG, StepOp.FNEG, operator.neg),
    "abs": (StepOp.ABS, StepOp.FABS, abs),
    "trunc": (StepOp.TRUNC, StepOp.TRUNC, math.trunc),
    "floor": (StepOp.FLOOR, StepOp.FLOOR, math.floor),
    "ceil": (StepOp.CEIL, StepOp.CEIL, math.ceil),
}

# Methods that read the number itself.
LOOKS: dict[str, Callable[..., Any]] = {
    "__index__": operator.index,
    "__int__": int,
    "__float__": float,
    "__hash__": hash,
    "__repr__": repr,
    "__str__": str,
    "__format__": format,
    "__round__": round,
}


_COMMUTES = {
    StepOp.ADD, StepOp.MUL, StepOp.MIN, StepOp.MAX, StepOp.AND, StepOp.OR, StepOp.XOR, StepOp.EQ, StepOp.FEQ,
    StepOp.SAME,
}  # fmt: skip
_IDEMPOTENT = {StepOp.MIN, StepOp.MAX}
_NEUTRAL = {StepOp.ADD: 0, StepOp.SUB: 0, StepOp.MUL: 1, StepOp.FLOORDIV: 1}
_KEEPS_SIGN = {StepOp.ADD, StepOp.MUL, StepOp.FLOORDIV, StepOp.MOD, StepOp.MIN, StepOp.MAX, StepOp.ABS}
_COUNTS = {StepOp.SIZE, StepOp.STRIDE, StepOp.NUMEL, StepOp.MULTIPROCESSORS}  # torch has no negative strides
_DIVISIONS = {StepOp.FLOORDIV, StepOp.MOD, StepOp.FDIV}
_MAY_RAISE = _DIVISIONS | {StepOp.LSHIFT, StepOp.RSHIFT, StepOp.TRUNC, StepOp.FLOOR, StepOp.CEIL}
"""Steps for which Python raises at some values of the operands, other than for their size."""


class Builder:
    """The steps of a trace, each once with its value in the traced call, and the guards on them."""

    def __init__(self) -> None:
        self.steps: list[RecordedStep] = []
        self.values: list[Number] = []
        self.guards: dict[Step, int] = {}
        self._known: dict[Any, Step] = {}

    def _append(self, key: Any, instruction: RecordedStep, value: Number) -> Step:
        step = self._known.get(key)
        if step is None:
            step = self._known[key] = len(self.steps)
            self.steps.append(instruction)
            self.values.append(value)
        return step

    def leaf(self, leaf: RecordedStep, value: Number) -> Step:
        """Return the step of a property of an argument, with its value in this call."""
        return self._append(leaf, leaf, value)

    def constant(self, value: Number) -> Step:
        """Return the step of a constant.

        Raises:
            OverflowError: It is beyond 64 bits.
        """
        if isinstance(value, float):
            return self._append((StepOp.FLOAT, bits(value)), RecordedStep(StepOp.FLOAT, value=value), value)
        if not INT_MIN <= value <= INT_MAX:
            raise OverflowError
        return self._append((StepOp.INT, int(value)), RecordedStep(StepOp.INT, value=int(value)), int(value))

    def is_constant(self, step: Step) -> bool:
        """Return True if a step is the same number in every call."""
        return self.steps[step].op in (StepOp.INT, StepOp.FLOAT)

    def compute(self, op: StepOp, *steps: Step) -> Step:
        """Return the step of an operation on others."""
        if op in _COMMUTES:
            steps = tuple(sorted(steps))
        value = compute(op, *(self.values[step] for step in steps))
        if all(map(self.is_constant, steps)) or (op in (StepOp.EQ, StepOp.LT) and steps[0] == steps[1]):
            return self.constant(value)
        if op in _IDEMPOTENT and steps[0] == steps[1]:
            return steps[0]
        if op in _NEUTRAL:
            neutral = self._known.get((StepOp.INT, _NEUTRAL[op]))
            if neutral == steps[1]:
                return steps[0]
            if neutral == steps[0] and op in _COMMUTES:
                return steps[1]
        instruction = RecordedStep(op, *steps)
        return self._append(instruction, instruction, value)

    def guard(self, step: Step) -> Number:
        """Return the value of an integer step, and guard it."""
        value = self.values[step]
        if not self.is_constant(step):
            self.guards[step] = int(value)
        return value

    def pin(self, step: Step) -> Number:
        """Return the value of a step, and guard it: of a double the same bits."""
        value = self.values[step]
        op = StepOp.SAME if isinstance(value, float) else StepOp.EQ
        self.guard(self.compute(op, step, self.constant(value)))
        return value

    def never_negative(self, step: Step) -> bool:
        """Return True if a step is a size, or computed from sizes in a way that cannot be negative."""
        instruction = self.steps[step]
        if instruction.op in _COUNTS:
            return True
        if instruction.op is StepOp.INT:
            return instruction.value >= 0
        return instruction.op in _KEEPS_SIGN and all(map(self.never_negative, operands(instruction)))

    def live(self, roots: set[Step]) -> list[Step]:
        """Return the steps that guards or `roots` need, or that can raise, in order."""
        needed = {*roots, *self.guards}
        for step in range(len(self.steps) - 1, -1, -1):
            instruction = self.steps[step]
            raises = instruction.op in _MAY_RAISE  # then Python may, for some values, also where it is unused
            if instruction.op in _DIVISIONS and self.is_constant(instruction.b):
                raises = self.values[instruction.b] == 0
            if step in needed or raises:
                needed.add(step)
                needed.update(operands(instruction))
        return sorted(needed)
