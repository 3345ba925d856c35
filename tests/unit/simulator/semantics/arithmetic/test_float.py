"""Floating-point instructions against exact rational arithmetic, in every rounding mode."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.powers_of_two import two_to
from helpers.quick_cases import quick_pairs

MODES = ["rn", "rz", "rm", "rp"]
every_mode = pytest.mark.parametrize(
    ("mode", "type_"), quick_pairs([(mode, "f32") for mode in MODES] + [("rn", "f64")], MODES, ["f32", "f64"])
)
"""Doubles go by the same rounding, with more bits: one mode of them is quick."""
# precision, smallest exponent of a last place, exponent of the largest number plus one
FORMATS = {"f32": (24, -149, 128), "f64": (53, -1074, 1024)}
DTYPES = {"f32": np.float32, "f64": np.float64}
BITS = {"f32": "u4", "f64": "u8"}


def rounded(exact: Fraction, type_: str, mode: str) -> float:
    """A rational that is not zero, rounded by scanning: no floating point in it."""
    precision, smallest, top = FORMATS[type_]
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()  # or one less
    unit = max(smallest, exponent - precision)
    while magnitude >= two_to(unit + precision):
        unit += 1
    count, rest = divmod(magnitude, two_to(unit))
    twice = 2 * rest - two_to(unit)
    if rest and (
        (mode == "rn" and (twice > 0 or (twice == 0 and count % 2)))
        or (mode == "rp" and exact > 0)
        or (mode == "rm" and exact < 0)
    ):
        count += 1
    value = count * two_to(unit)
    if value >= two_to(top):
        largest = (2**precision - 1) * two_to(top - precision)
        infinite = mode == "rn" or (mode == "rp" and exact > 0) or (mode == "rm" and exact < 0)
        return (-1 if exact < 0 else 1) * (math.inf if infinite else float(largest))
    return -float(value) if exact < 0 else float(value)


def bits(value: float, type_: str) -> int:
    code = ("<f", "<I") if type_ == "f32" else ("<d", "<Q")
    return int(struct.unpack(code[1], struct.pack(code[0], value))[0])


def interesting(type_: str) -> list[float]:
    info = np.finfo(DTYPES[type_])
    tiny, least, most = float(info.tiny), float(info.smallest_subnormal), float(info.max)
    third = float(DTYPES[type_](1 / 3))
    values = [0.0, 1.0, 1.5, third, 3.0, 7.0, 1 + float(info.eps), 1 - float(info.epsneg), tiny, least]
    values += [most, most / 2, tiny * 1.25, least * 3, 1e10, 1e-10, 16777215.0, 0.1]
    values = [float(DTYPES[type_](v)) for v in values]
    return values + [-v for v in values]


def grid(type_: str, count: int) -> list[np.ndarray[Any, Any]]:
    values = interesting(type_)
    rng = np.random.default_rng(count)
    noise = rng.standard_normal(16) * 10.0 ** rng.integers(-20, 20, 16)
    pool = np.array(values + noise.astype(DTYPES[type_]).tolist(), DTYPES[type_])
    if count == 3:
        return [rng.permutation(np.repeat(pool, 25)) for _ in range(3)]
    meshes = np.meshgrid(*[pool] * count)
    return [m.reshape(-1).copy() for m in meshes]


def same(got: np.ndarray[Any, Any], want: list[float], type_: str, operands: list[Any]) -> None:
    for index, (g, w) in enumerate(zip(got.view(BITS[type_]).tolist(), want, strict=False)):
        at = [o[index] for o in operands]
        assert g == bits(w, type_), f"{at}: got {g:#x}, want {bits(w, type_):#x} ({w})"


@every_mode
@pytest.mark.parametrize(
    ("op", "exact"),
    [("add", lambda x, y: x + y), ("sub", lambda x, y: x - y), ("mul", lambda x, y: x * y)],
)
def test_sums_and_products_round_once(
    execute: Any, op: str, exact: Callable[..., Fraction], mode: str, type_: str
) -> None:
    a, b = grid(type_, 2)
    got = execute(f"{op}.{mode}.{type_} %r0, %a, %b;", a, b, result=a.dtype)
    want = []
    for x, y in zip(a.tolist(), b.tolist(), strict=False):
        value = exact(Fraction(x), Fraction(y))
        if value:
            want.append(rounded(value, type_, mode))
        elif op == "mul":
            want.append(math.copysign(0.0, math.copysign(1, x) * math.copysign(1, y)))
        else:
            y = -y if op == "sub" else y
            alike = x == 0 == y and math.copysign(1, x) == math.copysign(1, y)
            want.append(x if alike else (-0.0 if mode == "rm" else 0.0))
    same(got, want, type_, [a, b])


@every_mode
def test_fused_multiply_add_rounds_once(execute: Any, mode: str, type_: str) -> None:
    a, b, c = grid(type_, 3)
    got = execute(f"fma.{mode}.{type_} %r0, %a, %b, %c;", a, b, c, result=a.dtype)
    want, kept = [], []
    for index, (x, y, z) in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), strict=False)):
        value = Fraction(x) * Fraction(y) + Fraction(z)
        if value:
            want.append(rounded(value, type_, mode))
            kept.append(index)
    same(got[kept], want, type_, [a[kept], b[kept], c[kept]])


def test_float_fma_does_not_round_twice(execute: Any) -> None:
    # a * b + c lies just above the middle of two floats; through a double it would sit on it.
    a = np.array([1 + 2**-12], "f4")
    b = np.array([1 + 2**-12], "f4")
    c = np.array([2.0**-60], "f4")
    middle = np.array([2**-24 * (1 + 2.0**-20)], "f4")
    for z in (c, -c, middle):
        got = execute("fma.rn.f32 %r0, %a, %b, %c;", a, b, z, result="f4")
        exact = Fraction(float(a[0])) * Fraction(float(b[0])) + Fraction(float(z[0]))
        assert got[0] == rounded(exact, "f32", "rn")


finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
finite64 = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(a=finite64, b=finite64, c=finite64, mode=st.sampled_from(MODES))
@example(a=1e-200, b=1e-200, c=5e-324, mode="rp")
@example(a=1e308, b=1e10, c=-1e308, mode="rz")
@example(a=1e-160, b=1e-160, c=0.0, mode="rn")
def test_double_fma_is_exact_everywhere(execute: Any, a: float, b: float, c: float, mode: str) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:
        return
    arrays = [np.array([x]) for x in (a, b, c)]
    got = execute(f"fma.{mode}.f64 %r0, %a, %b, %c;", *arrays, result="f8")
    assert got[0] == rounded(exact, "f64", mode)


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_a_fused_sum_of_zeros_of_one_sign_has_that_sign(execute: Any, type_: str) -> None:
    zeros = [np.array([0.0, -0.0], DTYPES[type_]) for _ in range(2)]
    ones = np.ones(2, DTYPES[type_])
    for mode in ("rn", "rz", "rm", "rp"):
        got = execute(f"fma.{mode}.{type_} %r0, %a, %b, %c;", zeros[0], ones, zeros[1], result=ones.dtype.str)
        assert np.signbit(got).tolist() == [False, True]


@every_mode
def test_quotients_and_reciprocals_round_once(execute: Any, mode: str, type_: str) -> None:
    a, b = grid(type_, 2)
    a, b = a[b != 0], b[b != 0]
    a, b = a[a != 0], b[a != 0]
    got = execute(f"div.{mode}.{type_} %r0, %a, %b;", a, b, result=a.dtype)
    want = [
        rounded(Fraction(x) / Fraction(y), type_, mode) for x, y in zip(a.tolist(), b.tolist(), strict=False)
    ]
    same(got, want, type_, [a, b])
    once = np.unique(b)
    got = execute(f"rcp.{mode}.{type_} %r0, %a;", once, result=a.dtype)
    same(got, [rounded(1 / Fraction(y), type_, mode) for y in once.tolist()], type_, [once])


@every_mode
def test_square_roots_round_once(execute: Any, mode: str, type_: str) -> None:
    a = np.unique(np.abs(grid(type_, 1)[0]))
    a = a[a > 0]
    got = execute(f"sqrt.{mode}.{type_} %r0, %a;", a, result=a.dtype)
    for x, root in zip(a.tolist(), got.tolist(), strict=False):
        below = float(np.nextafter(DTYPES[type_](root), DTYPES[type_](0)))
        above = float(np.nextafter(DTYPES[type_](root), DTYPES[type_](np.inf)))
        r, square = Fraction(root), Fraction(x)
        if mode == "rn":
            assert ((r + Fraction(below)) / 2) ** 2 <= square <= ((r + Fraction(above)) / 2) ** 2
        elif mode == "rp":
            assert Fraction(below) ** 2 < square <= r * r
        else:
            assert r * r <= square < Fraction(above) ** 2


def test_flush_to_zero_and_saturation(execute: Any) -> None:
    tiny = np.array([1e-39, -1e-39, 1e-38, 2.0, -3.0, np.nan, 0.5], "f4")
    one = np.ones(7, "f4")
    got = execute("mul.ftz.f32 %r0, %a, %b;", tiny, one, result="f4")
    assert got[:2].tolist() == [0.0, -0.0]
    assert np.signbit(got[1])
    got = execute("mul.f32 %r0, %a, %b;", tiny, one, result="f4")
    assert got[0] == tiny[0]
    got = execute("add.sat.f32 %r0, %a, %b;", tiny, np.zeros(7, "f4"), result="f4")
    assert got[3:].tolist() == [1.0, 0.0, 0.0, 0.5]


def test_not_a_number_is_canonical_and_loses_to_numbers(execute: Any) -> None:
    nan, inf = np.nan, np.inf
    a = np.array([nan, 1, nan, inf, -0.0, 0.0], "f4")
    b = np.array([1, nan, nan, -inf, 0.0, -0.0], "f4")
    assert (execute("add.f32 %r0, %a, %b;", a, b, result="u4")[:4] == 0x7FFFFFFF).all()
    low = execute("min.f32 %r0, %a, %b;", a, b, result="u4")
    high = execute("max.f32 %r0, %a, %b;", a, b, result="u4")
    assert low.tolist() == [0x3F800000, 0x3F800000, 0x7FFFFFFF, 0xFF800000, 0x80000000, 0x80000000]
    assert high.tolist() == [0x3F800000, 0x3F800000, 0x7FFFFFFF, 0x7F800000, 0, 0]
    assert (execute("max.NaN.f32 %r0, %a, %b;", a, b, result="u4")[:3] == 0x7FFFFFFF).all()


# Doubles: a quiet NaN with a payload, a negative one, a signalling one and what becomes of it.
QUIET, NEGATIVE, SIGNALLING, QUIETED = (
    0x7FFD540000000000,
    0xFFF8123456789ABC,
    0xFFF5432100000001,
    0xFFFD432100000001,
)
MADE, ONE64, INF64 = 0xFFF8000000000000, 0x3FF0000000000000, 0x7FF0000000000000


@pytest.mark.parametrize(
    ("text", "preferred"),
    [
        ("add.rn.f64 %r0, %a, %b;", "ba"),
        ("add.rz.f64 %r0, %a, %b;", "ba"),
        ("sub.rn.f64 %r0, %a, %b;", "ba"),
        ("sub.rm.f64 %r0, %a, %b;", "ba"),
        ("mul.rn.f64 %r0, %a, %b;", "ba"),
        ("mul.rp.f64 %r0, %a, %b;", "ba"),
        ("div.rn.f64 %r0, %a, %b;", "ab"),
        ("div.rz.f64 %r0, %a, %b;", "ab"),
        ("min.f64 %r0, %a, %b;", "ba"),
        ("max.f64 %r0, %a, %b;", "ba"),
        ("fma.rn.f64 %r0, %a, %b, %c;", "bca"),
        ("fma.rm.f64 %r0, %a, %b, %c;", "bca"),
    ],
)
def test_a_nan_of_doubles_is_that_of_one_operand(execute: Any, text: str, preferred: str) -> None:
    pool = (
        [QUIET, NEGATIVE, SIGNALLING] if text[:3] in ("min", "max") else [QUIET, NEGATIVE, SIGNALLING, ONE64]
    )
    meshes = np.meshgrid(*[np.array(pool, "u8")] * len(preferred))
    operands = dict(zip("abc", [m.reshape(-1).copy() for m in meshes], strict=False))
    got = execute(text, *operands.values(), result="u8").tolist()
    for at, value in enumerate(got):
        given = [int(operands[name][at]) for name in preferred]
        first = next((v for v in given if v != ONE64), None)
        if first is not None:
            assert value == (QUIETED if first == SIGNALLING else first), [hex(v) for v in given]


def test_a_nan_that_doubles_make_is_negative(execute: Any) -> None:
    inf, zero, minus = (np.array([v], "u8") for v in (INF64, 0, ONE64 | 1 << 63))
    for mode in MODES:
        assert execute(f"sub.{mode}.f64 %r0, %a, %b;", inf, inf, result="u8").tolist() == [MADE]
        assert execute(f"mul.{mode}.f64 %r0, %a, %b;", inf, zero, result="u8").tolist() == [MADE]
        assert execute(f"div.{mode}.f64 %r0, %a, %b;", zero, zero, result="u8").tolist() == [MADE]
        assert execute(f"sqrt.{mode}.f64 %r0, %a;", minus, result="u8").tolist() == [MADE]
        assert execute(f"fma.{mode}.f64 %r0, %a, %b, %a;", inf, zero, result="u8").tolist() == [MADE]


def test_a_nan_of_doubles_keeps_its_sign(execute: Any) -> None:
    a = np.array([QUIET, NEGATIVE, SIGNALLING], "u8")
    for name in ("abs", "neg", "rcp.rn", "sqrt.rn"):
        assert execute(f"{name}.f64 %r0, %a;", a, result="u8").tolist() == [QUIET, NEGATIVE, QUIETED]


def test_the_reciprocal_of_doubles_flushes_nothing(execute: Any) -> None:
    a = np.array([1e-310, 1.5e308])
    for mode in MODES:
        plain = execute(f"rcp.{mode}.f64 %r0, %a;", a, result="u8").tolist()
        assert execute(f"rcp.{mode}.ftz.f64 %r0, %a;", a, result="u8").tolist() == plain


@pytest.mark.parametrize(
    ("text", "function", "low", "high", "bound"),
    [
        ("ex2.approx.ftz.f32", lambda x: 2.0**x, -120, 120, 2**-22),
        ("lg2.approx.f32", math.log2, 1e-30, 1e30, 2**-22),
        ("rcp.approx.ftz.f32", lambda x: 1 / x, 1e-30, 1e30, 2**-23),
        ("rsqrt.approx.f32", lambda x: 1 / math.sqrt(x), 1e-30, 1e30, 2**-22.9),
        ("sqrt.approx.f32", math.sqrt, 1e-30, 1e30, 2**-23),
        ("tanh.approx.f32", math.tanh, -5, 5, 2**-11),
        ("sin.approx.f32", math.sin, -3.14, 3.14, 2**-20.5),
        ("cos.approx.f32", math.cos, -3.14, 3.14, 2**-20.5),
    ],
)
def test_approximate_functions_keep_their_bound(
    execute: Any, text: str, function: Callable[[float], float], low: float, high: float, bound: float
) -> None:
    x = np.random.default_rng(1).uniform(low, high, 300).astype("f4")
    got = execute(f"{text} %r0, %a;", x, result="f4")
    want = np.array([function(v) for v in x.tolist()])
    scale = 1.0 if text[:3] in ("sin", "cos", "lg2") else np.abs(want)
    assert (np.abs(got - want) <= bound * np.maximum(scale, np.abs(want)) + 1e-44).all()


def test_signs_and_copies(execute: Any) -> None:
    a = np.array([1.5, -2.0, -0.0, np.inf], "f4")
    b = np.array([-1.0, 1.0, 1.0, -0.0], "f4")
    assert execute("neg.f32 %r0, %a;", a, result="u4").tolist() == (a.view("u4") ^ 0x80000000).tolist()
    assert execute("abs.f32 %r0, %a;", a, result="u4").tolist() == (a.view("u4") & 0x7FFFFFFF).tolist()
    got = execute("copysign.f32 %r0, %a, %b;", a, b, result="f4")
    assert got.tolist() == [-1.0 if i == 9 else v for i, v in enumerate([1.0, -1.0, -1.0, 0.0])]


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("nan", ["", ".NaN"])
def test_the_extreme_of_magnitudes_takes_the_product_s_sign(execute: Any, name: str, nan: str) -> None:
    pool = np.array([0.0, -0.0, 1.5, -1.5, 3.0, -3.0, np.inf, -np.inf, np.nan], "f4")
    a, b = (m.reshape(-1).copy() for m in np.meshgrid(pool, pool))
    got = execute(f"{name}{nan}.xorsign.abs.f32 %r0, %a, %b;", a, b, result="f4")
    for x, y, g in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
        if x != x or y != y:
            if nan or (x != x and y != y):
                assert g != g
                continue
            magnitude = abs(y if x != x else x)
        else:
            magnitude = (min if name == "min" else max)(abs(x), abs(y))
        negative = np.signbit(np.float32(x)) ^ np.signbit(np.float32(y))
        assert abs(g) == magnitude
        assert np.signbit(np.float32(g)) == negative


@pytest.mark.parametrize("type_", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["", ".rz", ".rp"])
def test_operands_of_half_types_are_widened(execute: Any, type_: str, mode: str) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0x3000, 0x4800, 200).astype("u2") for _ in range(2))
    c = rng.uniform(-9, 9, 200).astype("f4")
    wide = [execute(f"cvt.f32.{type_} %r0, %a;", x, result="f4") for x in (a, b)]
    for op in ("add", "sub"):
        want = execute(f"{op}{mode}.f32 %r0, %a, %b;", wide[0], c, result="f4")
        assert execute(f"{op}{mode}.f32.{type_} %r0, %a, %b;", a, c, result="f4").tolist() == want.tolist()
    rounded = mode or ".rn"
    want = execute(f"fma{rounded}.sat.f32 %r0, %a, %b, %c;", *wide, c, result="f4")
    got = execute(f"fma{rounded}.sat.f32.{type_} %r0, %a, %b, %c;", a, b, c, result="f4")
    assert got.tolist() == want.tolist()
