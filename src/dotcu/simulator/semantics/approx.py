"""How far approximate instructions may be from the exact result.

The simulator computes them in float64 and rounds once, but for ex2 of halves, which it cuts as
hardware does; a GPU may give any value within the bound. A comparison of the two allows for both.

Source: PTX ISA, "Floating Point Instructions" and "Half Precision Floating Point Instructions",
the notes of each instruction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The largest error of a result whose operand lies in an interval; exactly one kind is given.

    Attributes:
        ulp: In units in the last place of the result's type.
        absolute: In value.
        relative: As a part of the exact result.
        inside: Least and largest operand that it holds for; of div, the divisor's magnitude.
    """

    ulp: float | None = None
    absolute: float | None = None
    relative: float | None = None
    inside: tuple[float, float] = (-math.inf, math.inf)

    def allows(self, got: float, exact: float, unit: float) -> bool:
        """Whether a result is near enough.

        Args:
            unit: The distance of neighbouring values of the result's type at `exact`.
        """
        if self.ulp is not None:
            return abs(got - exact) <= self.ulp * unit
        if self.absolute is not None:
            return abs(got - exact) <= self.absolute
        assert self.relative is not None
        return abs(got - exact) <= self.relative * abs(exact)


_TURN, _TURNS = 2 * math.pi, 100 * math.pi
_WAVE = (
    Bound(absolute=2.0**-20.5, inside=(-_TURN, _TURN)),
    Bound(absolute=2.0**-14.7, inside=(-_TURNS, _TURNS)),
)

# By opcode and type; of several bounds, the first whose interval holds the operand. An operand in
# none of them, and rcp and rsqrt of f64, of which only the upper 32 bits are defined, have no bound.
APPROXIMATE: Mapping[str, tuple[Bound, ...]] = {
    "div.approx.f32": (Bound(ulp=2, inside=(2.0**-126, 2.0**126)),),
    "div.full.f32": (Bound(ulp=2),),
    "rcp.approx.f32": (Bound(ulp=1),),
    "sqrt.approx.f32": (Bound(relative=2.0**-23),),
    "rsqrt.approx.f32": (Bound(relative=2.0**-22.9),),
    "sin.approx.f32": _WAVE,
    "cos.approx.f32": _WAVE,
    "lg2.approx.f32": (Bound(absolute=2.0**-22, inside=(0.5, 2.0)), Bound(relative=2.0**-22)),
    "ex2.approx.f32": (Bound(ulp=2),),
    "ex2.approx.f16": (Bound(relative=2.0**-9.9),),
    "ex2.approx.bf16": (Bound(relative=2.0**-7),),
    "tanh.approx.f32": (Bound(relative=2.0**-11),),
    "tanh.approx.f16": (Bound(absolute=2.0**-10.987),),
    "tanh.approx.bf16": (Bound(relative=2.0**-8),),
}


def bound_of(name: str, operand: float) -> Bound | None:
    """The bound of an instruction, such as "ex2.approx.f32", for an operand; None if it has none.

    Modifiers that change no bound (.ftz, and x2 of the type) may be in the name.
    """
    plain = name.replace(".ftz", "").removesuffix("x2")
    for bound in APPROXIMATE.get(plain, ()):
        if bound.inside[0] <= operand <= bound.inside[1]:
            return bound
    return None
