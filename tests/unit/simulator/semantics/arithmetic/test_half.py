"""16-bit float instructions against exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.powers_of_two import two_to

KINDS = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
FORMATS = {"f16": (11, -24, 65504), "bf16": (8, -133, float(ml_dtypes.finfo(ml_dtypes.bfloat16).max))}


def values(type_: str) -> np.ndarray[Any, Any]:
    """Bits of finite values over the whole range, both signs, ends included."""
    infinity = 0x7C00 if type_ == "f16" else 0x7F80
    rng = np.random.default_rng(3)
    chosen = np.unique(
        np.concatenate((rng.integers(0, infinity, 24), [0, 1, 2, infinity - 1, 0x3C00, 0x3F80]))
    )
    chosen = chosen[chosen < infinity]
    return np.concatenate((chosen, chosen | 0x8000)).astype("u2")


def real(bits: np.ndarray[Any, Any], type_: str) -> list[float]:
    return bits.view(KINDS[type_]).astype("f8").tolist()  # type: ignore[no-any-return]


def nearest(exact: Fraction, type_: str) -> float:
    precision, smallest, largest = FORMATS[type_]
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()  # or one less
    unit = max(smallest, exponent - precision)
    while magnitude >= two_to(unit + precision):
        unit += 1
    value = round(magnitude / two_to(unit)) * two_to(unit)
    number = float("inf") if value > largest else float(value)
    return -number if exact < 0 else number


@pytest.mark.parametrize("type_", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("op", "exact"),
    [("add", lambda x, y: x + y), ("sub", lambda x, y: x - y), ("mul", lambda x, y: x * y)],
)
def test_arithmetic_rounds_once(execute: Any, op: str, exact: Callable[..., Fraction], type_: str) -> None:
    pool = values(type_)
    a, b = (m.reshape(-1).copy() for m in np.meshgrid(pool, pool))
    got = real(execute(f"{op}.{type_} %r0, %a, %b;", a, b, result="u2"), type_)
    for x, y, g in zip(real(a, type_), real(b, type_), got, strict=False):
        want = nearest(exact(Fraction(x), Fraction(y)), type_)
        assert g == want, f"{x} {op} {y}: got {g}, want {want}"


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_fused_multiply_add_rounds_once(execute: Any, type_: str) -> None:
    rng = np.random.default_rng(7)
    a, b, c = (rng.permutation(np.tile(values(type_), 20)) for _ in range(3))
    got = real(execute(f"fma.rn.{type_} %r0, %a, %b, %c;", a, b, c, result="u2"), type_)
    for x, y, z, g in zip(*(real(v, type_) for v in (a, b, c)), got, strict=False):
        want = nearest(Fraction(x) * Fraction(y) + Fraction(z), type_)
        assert g == want, f"{x} * {y} + {z}: got {g}, want {want}"


def test_fma_of_halves_does_not_round_twice(execute: Any) -> None:
    # The product lies in the middle of two halves; only the tiny addend says to which side.
    a = np.array([1 + 2**-10], "f2").view("u2")
    b = np.array([1.5], "f2").view("u2")
    for tiny in (2.0**-24, -(2.0**-24)):
        c = np.array([tiny], "f2").view("u2")
        got = execute("fma.rn.f16 %r0, %a, %b, %c;", a, b, c, result="u2").view("f2")[0]
        assert got == nearest(Fraction(1.5) * Fraction(1 + 2**-10) + Fraction(tiny), "f16")


@pytest.mark.parametrize("type_", ["f16x2", "bf16x2"])
def test_pairs_are_worked_on_half_by_half(execute: Any, type_: str) -> None:
    scalar = type_[:-2]
    pool = values(scalar)
    rng = np.random.default_rng(0)
    a, b, c = (rng.permutation(pool) for _ in range(3))
    packed = [x.view("u4").copy() for x in (a, b, c)]
    together = execute(f"fma.rn.{type_} %r0, %a, %b, %c;", *packed, result="u4").view("u2")
    apart = execute(f"fma.rn.{scalar} %r0, %a, %b, %c;", a, b, c, result="u2")
    assert together.tolist() == apart.tolist()


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_extremes_order_zeros_and_prefer_numbers(execute: Any, type_: str) -> None:
    nan, one = 0x7FFF, {"f16": 0x3C00, "bf16": 0x3F80}[type_]
    a = np.array([nan, one, 0x8000, nan, one], "u2")
    b = np.array([one, nan, 0, nan, one | 0x8000], "u2")
    low = execute(f"min.{type_} %r0, %a, %b;", a, b, result="u2")
    high = execute(f"max.{type_} %r0, %a, %b;", a, b, result="u2")
    assert low.tolist() == [one, one, 0x8000, nan, one | 0x8000]
    assert high.tolist() == [one, one, 0, nan, one]


def test_signs_and_relu(execute: Any) -> None:
    a = np.array([0x3C00, 0xBC00, 0x8000], "u2")
    one = np.full(3, 0x3C00, "u2")
    assert execute("neg.f16 %r0, %a;", a, result="u2").tolist() == [0xBC00, 0x3C00, 0]
    assert execute("abs.f16 %r0, %a;", a, result="u2").tolist() == [0x3C00, 0x3C00, 0]
    zero = np.zeros(3, "u2")
    got = execute("fma.rn.relu.f16 %r0, %a, %b, %c;", a, one, zero, result="u2")
    assert got.tolist() == [0x3C00, 0, 0]


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_the_extreme_of_magnitudes_takes_the_product_s_sign(execute: Any, type_: str) -> None:
    pool = np.concatenate((values(type_)[::5], np.array([0x7FFF, 0, 0x8000], "u2")))
    a, b = (m.reshape(-1).copy() for m in np.meshgrid(pool, pool))
    plain = execute(f"max.{type_} %r0, %a, %b;", a & np.uint16(0x7FFF), b & np.uint16(0x7FFF), result="u2")
    got = execute(f"max.xorsign.abs.{type_} %r0, %a, %b;", a, b, result="u2")
    assert ((got & 0x7FFF) == plain).all()
    is_nan = plain == 0x7FFF
    assert (((got ^ a ^ b) & 0x8000 == 0) | is_nan).all()
    packed = execute(
        f"max.xorsign.abs.{type_}x2 %r0, %a, %b;",
        a[: len(a) & ~1].view("u4"),
        b[: len(a) & ~1].view("u4"),
        result="u4",
    )
    assert packed.view("u2").tolist() == got[: len(a) & ~1].tolist()


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_the_sign_of_a_nan_is_lost(execute: Any, type_: str) -> None:
    infinity = 0x7C00 if type_ == "f16" else 0x7F80
    a = np.array([infinity + 1, 0xFFFF, infinity | 0x8000, 0x8000], "u2")
    pairs = a.astype("u4") << 16 | 1
    want = {"abs": [0x7FFF, 0x7FFF, infinity, 0], "neg": [0x7FFF, 0x7FFF, infinity, 0]}
    for name, bits in want.items():
        assert execute(f"{name}.{type_} %r0, %a;", a, result="u2").tolist() == bits
        low = 1 if name == "abs" else 0x8001
        got = execute(f"{name}.{type_}x2 %r0, %a;", pairs, result="u4")
        assert got.tolist() == [b << 16 | low for b in bits]


@pytest.mark.parametrize(("type_", "name"), [("f16", "ex2.approx.f16"), ("bf16", "ex2.approx.ftz.bf16")])
def test_a_power_of_two_is_cut(execute: Any, type_: str, name: str) -> None:
    precision, smallest, largest = FORMATS[type_]
    a = np.random.default_rng(5).uniform(-20, 15, 300).astype(KINDS[type_])
    got = real(execute(f"{name} %r0, %a;", a.view("u2"), result="u2"), type_)
    for x, g in zip(a.astype("f8").tolist(), got, strict=True):
        exact = Fraction(float(np.float32(2.0**x)))
        unit = smallest
        while exact >= two_to(unit + precision):
            unit += 1
        assert g == float(exact // two_to(unit) * two_to(unit)), x
    inf = float("inf")
    ends = np.array([largest, inf, 150, -largest, -inf], KINDS[type_]).view("u2")
    assert real(execute(f"{name} %r0, %a;", ends, result="u2"), type_) == [inf, inf, inf, 0, 0]


def test_a_product_is_flushed_before_it_is_rounded(execute: Any) -> None:
    a, b = np.array([0x07FF, 0x0800], "u2"), np.array([0xB800, 0xB800], "u2")  # just below 2^-14, and that
    assert execute("mul.rn.ftz.f16 %r0, %a, %b;", a, b, result="u2").tolist() == [0x8000, 0x8400]
    assert execute("mul.rn.f16 %r0, %a, %b;", a, b, result="u2").tolist() == [0x8400, 0x8400]
