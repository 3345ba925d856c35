"""Results of approximate instructions lie within the bounds that PTX states.

The simulator computes them in float64 and rounds once, except ex2 of halves, which it truncates as
hardware does; a GPU may give any value within the bound.

Source: PTX ISA, "Floating Point Instructions" and "Half Precision Floating Point Instructions",
the notes of each instruction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest


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


DTYPES = {"f32": np.dtype("f4"), "f16": np.dtype("f2"), "bf16": np.dtype(ml_dtypes.bfloat16)}
EXACT = {
    "rcp": lambda x: 1 / x,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "sin": math.sin,
    "cos": math.cos,
    "lg2": math.log2,
    "ex2": lambda x: 2.0**x,
    "tanh": math.tanh,
}


def operands(opcode: str, type_: str) -> np.ndarray[Any, Any]:
    """Values of a type for which the result is a normal number."""
    rng = np.random.default_rng(2)
    if opcode in ("rcp", "sqrt", "rsqrt", "lg2"):
        values = 2.0 ** rng.uniform(-20, 20, 500)
    else:
        values = rng.uniform(-10, 10, 500)
    return np.unique(values.astype(DTYPES[type_]))


@pytest.mark.parametrize("name", [n for n in APPROXIMATE if not n.startswith("div")])
def test_results_are_within_their_bound(execute: Any, name: str) -> None:
    opcode, _, type_ = name.split(".")
    dtype = DTYPES[type_]
    x = operands(opcode, type_)
    spelled = name.replace("bf16", "ftz.bf16") if opcode == "ex2" and type_ == "bf16" else name
    kept = "u2" if dtype.itemsize == 2 else "f4"
    got = execute(f"{spelled} %r0, %a;", x.view(kept), result=kept).view(dtype).astype("f8").tolist()
    for operand, result in zip(x.astype("f8").tolist(), got, strict=True):
        exact = EXACT[opcode](operand)
        unit = float(np.spacing(np.array([exact], dtype), dtype=dtype)[0]) if type_ != "bf16" else 0.0
        bound = bound_of(name, operand)
        assert bound is not None
        assert bound.allows(result, exact, abs(unit)), (operand, result, exact)


@pytest.mark.parametrize("name", ["div.approx.f32", "div.full.f32"])
def test_quotients_are_within_their_bound(execute: Any, name: str) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.uniform(-1e6, 1e6, 500).astype("f4") for _ in range(2))
    got = execute(f"{name} %r0, %a, %b;", a, b, result="f4").tolist()
    for x, y, result in zip(a.tolist(), b.tolist(), got, strict=True):
        bound = bound_of(name, abs(y))
        assert bound is not None
        assert bound.allows(result, x / y, float(np.spacing(np.float32(abs(x / y)))))


@pytest.mark.parametrize("ftz", ["", ".ftz"])
def test_a_quotient_by_a_huge_number_is_zero(execute: Any, ftz: str) -> None:
    a = np.array([2.0**127, -(2.0**127), np.inf, 2.0**127], "f4")  # PTX ISA, div: for 2^126 < |b| < 2^128
    b = np.array([2.0**126.5, 2.0**127, 2.0**127, 2.0**126], "f4")
    got = execute(f"div.approx{ftz}.f32 %r0, %a, %b;", a, b, result="f4")
    assert got[:2].tolist() == [0.0, 0.0]
    assert np.signbit(got[:2]).tolist() == [False, True]
    assert np.isnan(got[2])
    assert got[3] == 2.0


def test_a_bound_rejects_what_is_too_far() -> None:
    bound = bound_of("ex2.approx.ftz.f32", 3.0)
    assert bound is not None
    unit = float(np.spacing(np.float32(8)))
    assert bound.allows(8 + 2 * unit, 8.0, unit)
    assert not bound.allows(8 + 3 * unit, 8.0, unit)
    assert not bound.allows(math.nan, 8.0, unit)
    assert bound_of("sin.approx.f32", 1000.0) is None
    assert bound_of("lg2.approx.f32", 1.5) == bound_of("lg2.approx.ftz.f32", 0.5)
    assert bound_of("tanh.approx.bf16x2", 1.0) == bound_of("tanh.approx.bf16", 1.0)


def test_approximations_of_doubles_use_the_upper_words(execute: Any) -> None:
    x = np.array([3.0, -7.123456789, 1e-310, 2.0**1000, np.inf, -0.0], "f8")
    for name, exact in (("rcp", lambda v: 1 / v), ("rsqrt", lambda v: 1 / np.sqrt(v))):
        got = execute(f"{name}.approx.ftz.f64 %r0, %a;", x, result="f8")
        assert not (got.view("u8") & np.uint64(0xFFFFFFFF)).any()
        with np.errstate(all="ignore"):
            want = exact(x)
        normal = np.isfinite(want) & (np.abs(x) > 1e-300)
        assert np.allclose(got[normal], want[normal], rtol=2.0**-19)
    assert execute("rcp.approx.ftz.f64 %r0, %a;", x, result="f8")[2] == np.inf
    nan = np.array([0x7FF8000000000001, 0xFFF1234500000000], "u8").view("f8")
    for name in ("rcp", "rsqrt"):
        got = execute(f"{name}.approx.ftz.f64 %r0, %a;", nan, result="u8")
        assert got.tolist() == [0x7FFFFFFF00000000] * 2
