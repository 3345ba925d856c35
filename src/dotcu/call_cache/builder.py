"""The steps and guards of a plan in the making, each step with its value in the call that is followed."""

from __future__ import annotations

from typing import Any

from dotcu.call_cache.arithmetic import INT_MAX, INT_MIN, Inexact, Number, bits, compute, may_raise, operands
from dotcu.call_cache.plan import Instruction, Op, Step

_COMMUTES = {Op.ADD, Op.MUL, Op.MIN, Op.MAX, Op.AND, Op.OR, Op.XOR, Op.EQ, Op.FEQ, Op.SAME}
_IDEMPOTENT = {Op.MIN, Op.MAX}
_DIVISIONS = {Op.FLOORDIV, Op.MOD, Op.FDIV}
_KEEPS_SIGN = {Op.ADD, Op.MUL, Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX, Op.ABS}
_COUNTS = {Op.SIZE, Op.STRIDE, Op.NUMEL, Op.MULTIPROCESSORS}  # torch has no strides below zero
_NEUTRAL = {Op.ADD: 0, Op.SUB: 0, Op.MUL: 1, Op.FLOORDIV: 1}


class Builder:
    """Steps, each once, and the guards on them."""

    def __init__(self) -> None:
        self.steps: list[Instruction] = []
        self.values: list[Number] = []
        self.guards: dict[Step, int] = {}
        self._found: dict[Any, Step] = {}

    def _append(self, key: Any, instruction: Instruction, value: Number) -> Step:
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = len(self.steps)
            self.steps.append(instruction)
            self.values.append(value)
        return found

    def leaf(self, op: Op, argument: int, dimension: int, value: Number) -> Step:
        """The step of something that an argument has, with what that is in this call."""
        instruction = Instruction(op, argument, dimension)
        return self._append(instruction, instruction, value)

    def constant(self, value: Number) -> Step:
        """The step of a number that never changes.

        Raises:
            Inexact: It is beyond 64 bits.
        """
        if isinstance(value, float):
            return self._append((Op.FLOAT, bits(value)), Instruction(Op.FLOAT, value=value), value)
        if not INT_MIN <= value <= INT_MAX:
            raise Inexact
        return self._append((Op.INT, int(value)), Instruction(Op.INT, value=int(value)), int(value))

    def is_constant(self, step: Step) -> bool:
        """Whether a step is the same number in every call."""
        return self.steps[step].op in (Op.INT, Op.FLOAT)

    def compute(self, op: Op, *steps: Step) -> Step:
        """The step of an operation on others.

        Raises:
            Inexact: It has no value in this call.
        """
        if op in _COMMUTES:
            steps = tuple(sorted(steps))
        value = compute(op, *(self.values[step] for step in steps))
        if all(map(self.is_constant, steps)) or (op in (Op.EQ, Op.LT) and steps[0] == steps[1]):
            return self.constant(value)
        kept = self._unchanged(op, steps)
        if kept is not None:
            return kept
        instruction = Instruction(op, *steps)
        return self._append(instruction, instruction, value)

    def _unchanged(self, op: Op, steps: tuple[Step, ...]) -> Step | None:
        """The operand that an operation gives back as it is."""
        if op in _IDEMPOTENT and steps[0] == steps[1]:
            return steps[0]
        if op not in _NEUTRAL:
            return None
        neutral = self._found.get((Op.INT, _NEUTRAL[op]))
        if neutral == steps[1]:
            return steps[0]
        return steps[1] if neutral == steps[0] and op in _COMMUTES else None

    def guard(self, step: Step) -> Number:
        """The value of an integer step, which the plan from now on demands."""
        value = self.values[step]
        if not self.is_constant(step):
            self.guards[step] = int(value)
        return value

    def pin(self, step: Step) -> Number:
        """The value of a step, which the plan from now on demands: of a double the same bits."""
        value = self.values[step]
        op = Op.SAME if isinstance(value, float) else Op.EQ
        self.guard(self.compute(op, step, self.constant(value)))
        return value

    def never_negative(self, step: Step) -> bool:
        """Whether a step is a size, or made of sizes in ways that cannot fall below zero."""
        instruction = self.steps[step]
        if instruction.op in _COUNTS:
            return True
        if instruction.op is Op.INT:
            return instruction.value >= 0
        return instruction.op in _KEEPS_SIGN and all(map(self.never_negative, operands(instruction)))

    def live(self, roots: set[Step]) -> list[Step]:
        """The steps that guards or `roots` need, or that can raise, in order."""
        needed = {*roots, *self.guards}
        for step in range(len(self.steps) - 1, -1, -1):
            if step in needed or self._may_raise(self.steps[step]):
                needed.add(step)
                needed.update(operands(self.steps[step]))
        return sorted(needed)

    def _may_raise(self, instruction: Instruction) -> bool:
        """Whether Python would raise for some values, so that a step counts even where nothing uses it."""
        if not may_raise(instruction.op):
            return False
        divides_by = self.values[instruction.b] if self.is_constant(instruction.b) else 0
        return instruction.op not in _DIVISIONS or divides_by == 0
