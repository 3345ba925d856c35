"""What approximate instructions give lies within the bounds that are written down for them."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dotcu.simulator.semantics.approx import APPROXIMATE, bound_of

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
