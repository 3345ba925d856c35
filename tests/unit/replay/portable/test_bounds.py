"""What a step can come to: never less than what it does come to."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dotcu.replay.plan import Instruction, Op
from dotcu.replay.portable.bounds import INT_MAX, INT_MIN, WHOLE, Bounds, bounds

numbers = st.one_of(st.integers(-70, 70), st.integers(INT_MIN, INT_MAX), st.sampled_from((INT_MIN, INT_MAX)))
ranges = st.tuples(numbers, numbers).map(sorted).map(lambda ends: Bounds(*ends))


def within(draw: st.DrawFn, found: Bounds) -> int:
    return draw(st.one_of(st.sampled_from(found), st.integers(*found)))


VALUES = {
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.FLOORDIV: lambda a, b: a // b,
    Op.MOD: lambda a, b: a % b,
    Op.NEG: lambda a, b: -a,
    Op.ABS: lambda a, b: abs(a),
    Op.MIN: min,
    Op.MAX: max,
    Op.LSHIFT: lambda a, b: a << min(b, 100),
    Op.RSHIFT: lambda a, b: a >> b,
    Op.AND: lambda a, b: a & b,
    Op.OR: lambda a, b: a | b,
    Op.XOR: lambda a, b: a ^ b,
}


@pytest.mark.parametrize("op", VALUES, ids=lambda op: op.name)
@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_value_that_fits_is_within_its_bounds(op: Op, data: st.DataObject) -> None:
    """The operands are kept within ranges by MIN and MAX of constants."""
    first, second = data.draw(ranges), data.draw(ranges)
    steps = [Instruction(Op.INT, value=value) for value in (*first, *second)]
    steps += [Instruction(Op.INT_ARGUMENT, 0), Instruction(Op.INT_ARGUMENT, 1)]
    steps += [Instruction(Op.MAX, 4, 0), Instruction(Op.MIN, 6, 1)]
    steps += [Instruction(Op.MAX, 5, 2), Instruction(Op.MIN, 8, 3), Instruction(op, 7, 9)]
    found = bounds(steps)
    assert (found[7], found[9]) == (first, second)
    a, b = (data.draw(st.one_of(st.sampled_from(r), st.integers(*r))) for r in (first, second))
    assume(b != 0 or op not in (Op.FLOORDIV, Op.MOD))
    assume(b >= 0 or op not in (Op.LSHIFT, Op.RSHIFT))
    value = VALUES[op](a, b)
    assert found[10].low <= value <= found[10].high or not WHOLE.low <= value <= WHOLE.high


def test_what_comes_of_sizes_is_known_not_to_overflow() -> None:
    n, block = Instruction(Op.NUMEL, 0), Instruction(Op.INT, value=256)
    blocks = [n, block, Instruction(Op.NEG, 0), Instruction(Op.FLOORDIV, 2, 1), Instruction(Op.NEG, 3)]
    found = bounds(blocks)
    assert found[4] == Bounds(0, 2**55)
    assert all(part.within(WHOLE) for part in found)


def test_what_can_overflow_is_known_to() -> None:
    n, one = Instruction(Op.NUMEL, 0), Instruction(Op.INT, value=1)
    _, _, more, product = bounds([n, one, Instruction(Op.ADD, 0, 1), Instruction(Op.MUL, 0, 0)])
    assert not more.within(WHOLE)
    assert not product.within(WHOLE)


@pytest.mark.parametrize("op", [Op.TRUNC, Op.FLOOR, Op.CEIL, Op.INT_ARGUMENT])
def test_numbers_without_an_end_are_checked(op: Op) -> None:
    assert not bounds([Instruction(Op.FLOAT_ARGUMENT, 0), Instruction(op, 0)])[1].within(WHOLE)
