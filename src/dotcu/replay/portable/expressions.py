"""Steps as Python expressions, with the checks that a step needs to be exact.

Python's integers have no end, so that a step's value is always the right one; what is checked is
that it fits 64 bits, and that only where `bounds.py` cannot show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dotcu.replay.arguments import Argument, Kinds
from dotcu.replay.plan import Instruction, Op, Plan, Step, TensorKey
from dotcu.replay.portable.bounds import EXACT_DOUBLE, WHOLE, Bounds, bounds

_LEAVES: Mapping[Op, str] = {
    Op.SIZE: "size{a}_{b}",
    Op.STRIDE: "stride{a}_{b}",
    Op.NUMEL: "a{a}.numel()",
    Op.OFFSET: "a{a}.storage_offset()",
    Op.ADDRESS: "a{a}.data_ptr()",
    Op.CONTIGUOUS: "a{a}.is_contiguous()",
    Op.INT_ARGUMENT: "a{a}",
    Op.FLOAT_ARGUMENT: "float(a{a})",
}

_COMPUTED: Mapping[Op, str] = {
    Op.ADD: "{a} + {b}",
    Op.SUB: "{a} - {b}",
    Op.MUL: "{a} * {b}",
    Op.FLOORDIV: "{a} // {b}",
    Op.MOD: "{a} % {b}",
    Op.NEG: "-{a}",
    Op.ABS: "abs({a})",
    Op.MIN: "{a} if {a} < {b} else {b}",
    Op.MAX: "{a} if {a} > {b} else {b}",
    Op.LSHIFT: "{a} << ({b} if {b} < 64 else 64)",  # by more it does not fit either, and is a large number
    Op.RSHIFT: "{a} >> {b}",
    Op.AND: "{a} & {b}",
    Op.OR: "{a} | {b}",
    Op.XOR: "{a} ^ {b}",
    Op.EQ: "{a} == {b}",
    Op.NE: "{a} != {b}",
    Op.LT: "{a} < {b}",
    Op.LE: "{a} <= {b}",
    Op.GT: "{a} > {b}",
    Op.GE: "{a} >= {b}",
    Op.TO_FLOAT: "float({a})",
    Op.FADD: "{a} + {b}",
    Op.FSUB: "{a} - {b}",
    Op.FMUL: "{a} * {b}",
    Op.FDIV: "{a} / {b}",
    Op.FNEG: "-{a}",
    Op.FABS: "abs({a})",
    Op.FEQ: "{a} == {b}",
    Op.FNE: "{a} != {b}",
    Op.FLT: "{a} < {b}",
    Op.FLE: "{a} <= {b}",
    Op.FGT: "{a} > {b}",
    Op.FGE: "{a} >= {b}",
    Op.SAME: "BITS({a}) == BITS({b})",
    Op.TRUNC: "TRUNC({a})",
    Op.FLOOR: "FLOOR({a})",
    Op.CEIL: "CEIL({a})",
}

_DIVISIONS = {Op.FLOORDIV, Op.MOD}
_SHIFTS = {Op.LSHIFT, Op.RSHIFT}
_NAMED = {Op.SIZE, Op.STRIDE, Op.INT_ARGUMENT}  # they have a name before any step runs
_EXACT = Bounds(-EXACT_DOUBLE, EXACT_DOUBLE)


def outside(text: str, of: Bounds, limits: Bounds) -> str:
    """A condition that a value breaks limits; empty where it cannot."""
    low = f"{text} < {limits.low}" if of.low < limits.low else ""
    high = f"{text} > {limits.high}" if of.high > limits.high else ""
    return " or ".join(filter(None, (low, high)))


class Steps:
    """The steps of a plan as text.

    Attributes:
        bounds: For each step what an integer can be, once it is known to fit.
    """

    def __init__(self, plan: Plan, arguments: Sequence[Argument]) -> None:
        self._steps = plan.steps
        self._keys = plan.keys
        self._arguments = arguments
        self._unchecked = bounds(plan.steps)
        self.bounds = [found.clipped(WHOLE) for found in self._unchecked]

    def operands(self, index: Step) -> tuple[Step, ...]:
        """The steps that a step is computed of."""
        step = self._steps[index]
        text = _COMPUTED.get(step.op, "")
        return tuple(of for name, of in (("{a}", step.a), ("{b}", step.b)) if name in text)

    def uses(self, op: Op, argument: int) -> bool:
        """Whether a leaf of an argument is among the steps."""
        return any(step.op is op and step.a == argument for step in self._steps)

    def value(self, index: Step) -> str:
        """What gives a step's value once its statements ran."""
        step = self._steps[index]
        if step.op is Op.INT:
            return f"({step.value})" if step.value < 0 else str(step.value)
        if step.op in _NAMED:
            return self.expression(index)
        return f"{'C' if step.op is Op.FLOAT else 'v'}{index}"

    def constants(self) -> dict[str, object]:
        """The doubles among the values."""
        found = {self.value(i): step.value for i, step in enumerate(self._steps) if step.op is Op.FLOAT}
        return {name: float(value) for name, value in found.items()}

    def expression(self, index: Step) -> str:
        """What computes a step of the values of others."""
        step = self._steps[index]
        if step.op is Op.NUMEL and self.uses(Op.SIZE, step.a):
            return self._product(step.a)
        if step.op in _LEAVES:
            return _LEAVES[step.op].format(a=step.a, b=step.b)
        a, *rest = (self.value(operand) for operand in self.operands(index))
        return _COMPUTED[step.op].format(a=a, b=rest[0] if rest else "")

    def _product(self, argument: int) -> str:
        """How many elements there are, from sizes that are there already."""
        key = self._keys[argument]
        assert isinstance(key, TensorKey)
        return " * ".join(f"size{argument}_{axis}" for axis in range(key.dim)) or "1"

    def misfits(self, index: Step) -> tuple[str, str]:
        """Conditions, before a step is computed and after, that it is not exact; empty where it must be."""
        return self._before(self._steps[index]), outside(self.value(index), self._unchecked[index], WHOLE)

    def _before(self, step: Instruction) -> str:
        if step.op is Op.TO_FLOAT:
            return outside(self.value(step.a), self.bounds[step.a], _EXACT)
        if step.op is Op.FLOAT_ARGUMENT and takes_ints(self._arguments[step.a]):
            return f"type(a{step.a}) is int and not {_EXACT.low} <= a{step.a} <= {_EXACT.high}"
        return ""

    def statements(self, index: Step) -> Iterator[str]:
        """What computes a step, and gives up where it is not exact."""
        before, after = self.misfits(index)
        if before:
            yield f"if {before}: return MISS"
        if self.value(index).startswith("v"):
            yield f"{self.value(index)} = {self.expression(index)}"
        if after:
            yield f"if {after}: return MISS"

    def needed(self, used: Iterable[Step]) -> list[Step]:
        """Steps that are used, all that they are computed of, and those that can fail."""
        found: set[Step] = set()
        pending = [*used, *(i for i in range(len(self._steps)) if self._can_fail(i))]
        while pending:
            index = pending.pop()
            if index not in found:
                found.add(index)
                pending.extend(self.operands(index))
        return sorted(found)

    def _can_fail(self, index: Step) -> bool:
        step = self._steps[index]
        if step.op is Op.FDIV or any(self.misfits(index)):
            return True
        if step.op in _DIVISIONS:
            return self.bounds[step.b].low <= 0 <= self.bounds[step.b].high
        return step.op in _SHIFTS and self.bounds[step.b].low < 0


def takes_ints(argument: Argument) -> bool:
    """Whether an int is given where the schema says float."""
    return argument.makes_float and Kinds.INT in argument.kinds
