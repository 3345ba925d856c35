"""What values a step can take, whatever the call: so that the portable path checks only what can fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from dotcu.replay.plan import Instruction, Op

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
EXACT_DOUBLE = 2**53
"""Every integer up to this one is a double."""


class Bounds(NamedTuple):
    """Integers, from `low` to `high` with both."""

    low: int
    high: int

    def within(self, other: Bounds) -> bool:
        return other.low <= self.low and self.high <= other.high

    def clipped(self, other: Bounds) -> Bounds:
        return Bounds(max(self.low, other.low), min(self.high, other.high))


WHOLE = Bounds(INT_MIN, INT_MAX)
_COUNT = Bounds(0, INT_MAX)
_TRUTH = Bounds(0, 1)
_ENDLESS = Bounds(
    -(2**1024), 2**1024
)  # of any finite double; of an int, which may be larger still, it says enough
_MOST_PLACES = 64  # a shift by more gives what a shift by so many gives, or does not fit either


def _corners(function: Callable[[int, int], int], a: Bounds, b: Bounds) -> Bounds:
    """The bounds of a function that is monotone in each argument while the other stays."""
    values = [function(x, y) for x, y in itertools.product(a, b)]
    return Bounds(min(values), max(values))


def _union(parts: Iterable[Bounds]) -> Bounds:
    found = list(parts)
    return Bounds(min(p.low for p in found), max(p.high for p in found)) if found else WHOLE


def _divisors(b: Bounds) -> list[Bounds]:
    """The parts of a range below and above zero."""
    parts = (b.clipped(Bounds(b.low, -1)), b.clipped(Bounds(1, b.high)))
    return [part for part in parts if part.low <= part.high]


def _floordiv(a: Bounds, b: Bounds) -> Bounds:
    return _union(_corners(lambda x, y: x // y, a, part) for part in _divisors(b))


def _mod(a: Bounds, b: Bounds) -> Bounds:
    return Bounds(min(0, b.low + 1), max(0, b.high - 1))


def _abs(a: Bounds, b: Bounds) -> Bounds:
    ends = [abs(a.low), abs(a.high)]
    return Bounds(0 if a.low <= 0 <= a.high else min(ends), max(ends))


def _places(b: Bounds) -> Bounds:
    return Bounds(*(min(max(end, 0), _MOST_PLACES) for end in b))


def _bitwise(a: Bounds, b: Bounds) -> Bounds:
    """Of `|` and `^`."""
    if min(a.low, b.low) < 0:
        return WHOLE
    return Bounds(0, (1 << max(a.high, b.high).bit_length()) - 1)


def _and(a: Bounds, b: Bounds) -> Bounds:
    return Bounds(0, min(a.high, b.high)) if min(a.low, b.low) >= 0 else WHOLE


# Of what `a` and `b` are, before it is held against 64 bits.
_RULES: Mapping[Op, Callable[[Bounds, Bounds], Bounds]] = {
    Op.SIZE: lambda a, b: _COUNT,
    Op.STRIDE: lambda a, b: WHOLE,
    Op.NUMEL: lambda a, b: _COUNT,
    Op.OFFSET: lambda a, b: _COUNT,
    Op.ADDRESS: lambda a, b: _COUNT,
    Op.CONTIGUOUS: lambda a, b: _TRUTH,
    Op.INT_ARGUMENT: lambda a, b: _ENDLESS,
    Op.ADD: lambda a, b: Bounds(a.low + b.low, a.high + b.high),
    Op.SUB: lambda a, b: Bounds(a.low - b.high, a.high - b.low),
    Op.MUL: lambda a, b: _corners(lambda x, y: x * y, a, b),
    Op.FLOORDIV: _floordiv,
    Op.MOD: _mod,
    Op.NEG: lambda a, b: Bounds(-a.high, -a.low),
    Op.ABS: _abs,
    Op.MIN: lambda a, b: Bounds(min(a.low, b.low), min(a.high, b.high)),
    Op.MAX: lambda a, b: Bounds(max(a.low, b.low), max(a.high, b.high)),
    Op.LSHIFT: lambda a, b: _corners(lambda x, y: x << y, a, _places(b)),
    Op.RSHIFT: lambda a, b: _corners(lambda x, y: x >> y, a, _places(b)),
    Op.AND: _and,
    Op.OR: _bitwise,
    Op.XOR: _bitwise,
    Op.TRUNC: lambda a, b: _ENDLESS,
    Op.FLOOR: lambda a, b: _ENDLESS,
    Op.CEIL: lambda a, b: _ENDLESS,
}
TRUTHS = {
    *(Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE),
    *(Op.FEQ, Op.FNE, Op.FLT, Op.FLE, Op.FGT, Op.FGE, Op.SAME),
}
"""Ops that give 0 or 1."""


def bounds(steps: Sequence[Instruction]) -> list[Bounds]:
    """For each step what it can come to before it is held against 64 bits; of a double, nothing to use."""
    found: list[Bounds] = []
    for step in steps:
        a, b = (found[i].clipped(WHOLE) if i < len(found) else WHOLE for i in (step.a, step.b))
        if step.op is Op.INT:
            found.append(Bounds(int(step.value), int(step.value)))
        elif step.op in _RULES:
            found.append(_RULES[step.op](a, b))
        else:
            found.append(_TRUTH if step.op in TRUTHS else WHOLE)
    return found
