"""Conversions against exact arithmetic and ml_dtypes."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.powers_of_two import two_to

INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
HELD = {8: "u2", 16: "u2", 32: "u4", 64: "u8"}
EDGES = [0, 1, -1, 127, 128, 255, 256, -128, -129, 32767, 32768, 65535, 2**31 - 1, -(2**31), 2**32 - 1]
EDGES += [2**32, 2**63 - 1, -(2**63), 2**64 - 1, 2**24 + 1, 2**53 + 1, 2**62 + 1, 0x1234567890ABCDEF]


def bits(type_: str) -> int:
    return int(type_.lstrip("usf"))


def limits(type_: str) -> tuple[int, int]:
    n = bits(type_)
    return (-(1 << (n - 1)), (1 << (n - 1)) - 1) if type_[0] == "s" else (0, (1 << n) - 1)


def wrapped(value: int, type_: str) -> int:
    n = bits(type_)
    value &= (1 << n) - 1
    return value - (1 << n) if type_[0] == "s" and value >> (n - 1) else value


def held(value: int, type_: str) -> int:
    """What the register shows: sign- or zero-extended to its own width."""
    return value & ((1 << max(16, bits(type_))) - 1)


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", INTEGERS)
def test_integer_to_integer(execute: Any, to: str, source: str) -> None:
    inputs = sorted({wrapped(v, source) for v in EDGES})
    a = np.array([held(v, source) for v in inputs], HELD[bits(source)])
    got = execute(f"cvt.{to}.{source} %r0, %a;", a, result=HELD[bits(to)])
    assert got.tolist() == [held(wrapped(v, to), to) for v in inputs]
    low, high = limits(to)
    got = execute(f"cvt.sat.{to}.{source} %r0, %a;", a, result=HELD[bits(to)])
    assert got.tolist() == [held(max(low, min(high, v)), to) for v in inputs]


WHOLE = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
FLOATS = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 0.999, 126.5, 127.5, 128.5, 255.5, 65535.5, 1e9, 2.0**31]
FLOATS += [
    -(2.0**31),
    -(2.0**31) - 4096,
    2.0**32,
    2.0**63,
    -(2.0**63),
    2.0**64,
    1e30,
    -1e30,
    math.inf,
    -math.inf,
]


@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("mode", list(WHOLE))
def test_float_to_integer_rounds_and_clamps(execute: Any, to: str, source: str, mode: str) -> None:
    a = np.array(FLOATS, source.replace("32", "4").replace("64", "8"))
    got = execute(f"cvt.{mode}.{to}.{source} %r0, %a;", a, result=HELD[bits(to)])
    low, high = limits(to)
    want = []
    for value in a.tolist():
        whole = (high if value > 0 else low) if math.isinf(value) else WHOLE[mode](Fraction(value))
        want.append(held(max(low, min(high, whole)), to))
    assert got.tolist() == want


def test_not_a_number_to_integer(execute: Any) -> None:
    single, double = np.array([np.nan], "f4"), np.array([np.nan])
    assert execute("cvt.rzi.s32.f32 %r0, %a;", single, result="u4").tolist() == [0]
    assert execute("cvt.rzi.s64.f32 %r0, %a;", single, result="u8").tolist() == [1 << 63]
    assert execute("cvt.rzi.s32.f64 %r0, %a;", double, result="u4").tolist() == [1 << 31]


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", ["f32", "f64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_integer_to_float_rounds_in_every_mode(execute: Any, to: str, source: str, mode: str) -> None:
    inputs = sorted({wrapped(v, source) for v in EDGES})
    a = np.array([held(v, source) for v in inputs], HELD[bits(source)])
    kind = np.dtype(to.replace("32", "4").replace("64", "8"))
    got = execute(f"cvt.{mode}.{to}.{source} %r0, %a;", a, result=kind)
    for value, g in zip(inputs, got.tolist(), strict=False):
        below = float(np.nextafter(kind.type(g), kind.type(-np.inf)))
        above = float(np.nextafter(kind.type(g), kind.type(np.inf)))
        exact = Fraction(g)
        if mode == "rn":
            assert abs(exact - value) <= min(abs(Fraction(below) - value), abs(Fraction(above) - value))
        elif mode == "rp":
            assert Fraction(below) < value <= exact
        elif mode == "rm":
            assert exact <= value < Fraction(above)
        else:
            assert abs(exact) <= abs(value)
            assert value == exact or abs(value) < max(abs(Fraction(below)), abs(Fraction(above)))


SINGLES = np.concatenate(
    (
        np.random.default_rng(2).integers(0, 2**32, 3000, dtype="u8").astype("u4").view("f4"),
        np.array(
            [0, -0.0, 1, 65504, 65519.99, 65520, 6e-8, 2.9e-8, 1e-40, np.inf, -np.inf, 1 + 2**-11], "f4"
        ),
    )
)
SINGLES = SINGLES[~np.isnan(SINGLES)]


@pytest.mark.parametrize(("to", "kind"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_float_to_half_and_back(execute: Any, to: str, kind: Any) -> None:
    with np.errstate(over="ignore"):
        want = SINGLES.astype(kind)
    got = execute(f"cvt.rn.{to}.f32 %r0, %a;", SINGLES, result="u2")
    assert got.tolist() == want.view("u2").tolist()
    back = execute(f"cvt.f32.{to} %r0, %a;", got, result="f4")
    assert back.tolist() == want.astype("f4").tolist()


@pytest.mark.parametrize(("to", "kind"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_rounding_to_zero_gives_the_half_below(execute: Any, to: str, kind: Any) -> None:
    got = execute(f"cvt.rz.{to}.f32 %r0, %a;", SINGLES, result="u2")
    value = np.abs(got.view(kind).astype("f8"))
    with np.errstate(invalid="ignore"):  # the neighbour of infinity is no number
        above = np.abs((got + 1).astype("u2").view(kind).astype("f8"))
    exact = np.abs(SINGLES.astype("f8"))
    finite = np.isfinite(value) & np.isfinite(above)
    assert (value[finite] <= exact[finite]).all()
    assert (exact[finite] < above[finite]).all()


def test_packed_conversion_puts_its_first_operand_high(execute: Any) -> None:
    a, b = np.array([1.0, 2.5], "f4"), np.array([-3.0, 0.1], "f4")
    got = execute("cvt.rn.f16x2.f32 %r0, %a, %b;", a, b, result="u4")
    assert (got >> 16).astype("u2").view("f2").tolist() == [1.0, 2.5]
    assert (got & 0xFFFF).astype("u2").view("f2").tolist() == b.astype("f2").tolist()
    got = execute("cvt.rn.bf16x2.f32 %r0, %a, %b;", a, b, result="u4")
    assert (got >> 16).astype("u2").view(ml_dtypes.bfloat16).astype("f4").tolist() == [1.0, 2.5]


@pytest.mark.parametrize(
    ("to", "kind"), [("e4m3x2", ml_dtypes.float8_e4m3fn), ("e5m2x2", ml_dtypes.float8_e5m2)]
)
def test_eight_bit_floats(execute: Any, to: str, kind: Any) -> None:
    largest = float(ml_dtypes.finfo(kind).max)
    a = np.array([0.1, -1.7, 300.0, 1e9, -1e9, 2**-9], "f4")
    b = a[::-1].copy()
    got = execute(f"cvt.rn.satfinite.{to}.f32 %r0, %a, %b;", a, b, result="u2")
    want = np.clip(a, -largest, largest).astype(kind).view("u1")
    assert (got >> 8).tolist() == want.tolist()
    assert (got & 0xFF).tolist() == want[::-1].tolist()
    back = execute(f"cvt.rn.f16x2.{to} %r0, %a;", got, result="u4")
    assert (back >> 16).astype("u2").view("f2").tolist() == want.view(kind).astype("f2").tolist()


def test_double_to_float_rounds_in_every_mode(execute: Any) -> None:
    a = np.array([1 + 2**-25, -(1 + 2**-25), 1e300, -1e300, 1e-300, 1 + 2**-24 + 2**-50, 0.1])
    for mode in ("rn", "rz", "rm", "rp"):
        got = execute(f"cvt.{mode}.f32.f64 %r0, %a;", a, result="f4").astype("f8")
        if mode == "rz":
            assert (np.abs(got) <= np.abs(a)).all()
        elif mode == "rm":
            assert (got <= a).all()
        elif mode == "rp":
            assert (got >= a).all()
        else:
            assert got[[0, 5]].tolist() == [1.0, 1 + 2**-23]


def test_float_to_whole_float_and_saturation(execute: Any) -> None:
    a = np.array([0.5, 1.5, -0.5, 2.5, np.nan, -3.0], "f4")
    assert execute("cvt.rni.f32.f32 %r0, %a;", a[:4], result="f4").tolist() == [0, 2, 0, 2]
    assert execute("cvt.rzi.f32.f32 %r0, %a;", a[:4], result="f4").tolist() == [0, 1, 0, 2]
    assert execute("cvt.sat.f32.f32 %r0, %a;", a, result="f4").tolist() == [0.5, 1, 0, 1, 0, 0]


def tf32(value: float, mode: str) -> float:
    """A float32, rounded to 11 significant bits."""
    exact = Fraction(abs(value))
    unit = max(-136, exact.numerator.bit_length() - exact.denominator.bit_length() - 11)  # or one less
    while exact >= two_to(unit + 11):
        unit += 1
    scaled = exact / two_to(unit)
    whole = {"rn": round(scaled), "rz": math.floor(scaled), "rna": math.floor(scaled + Fraction(1, 2))}[mode]
    result = whole * two_to(unit)
    number = math.inf if result >= two_to(128) else float(result)
    return math.copysign(number, value)


@pytest.mark.parametrize("mode", ["rn", "rz", "rna"])
def test_tf32_keeps_eleven_bits(execute: Any, mode: str) -> None:
    a = np.random.default_rng(9).integers(0, 2**32, 400, dtype="u8").astype("u4").view("f4")
    a = np.concatenate((a[np.isfinite(a)], np.array([0.0, -0.0, 3.4e38, -3.4e38, 1e-40], "f4")))
    got = execute(f"cvt.{mode}.tf32.f32 %r0, %a;", a, result="u4").view("f4").tolist()
    assert got == [tf32(x, mode) for x in a.tolist()]


def test_a_nan_becomes_tf32_as_on_hardware(execute: Any) -> None:
    a = np.array([0x7FC00000, 0x7F800001, 0xFFC12345, 0x7FFFFFFF], "u4")
    assert execute("cvt.rna.tf32.f32 %r0, %a;", a, result="u4").tolist() == (a >> 13 << 13).tolist()
    for mode in ("rn", "rz"):
        assert set(execute(f"cvt.{mode}.tf32.f32 %r0, %a;", a, result="u4").tolist()) == {0x7FFFE000}


def test_a_copied_or_shifted_nan_stays_as_it_is(execute: Any) -> None:
    a = np.array([0x7FC00000, 0x7F800001, 0xFFC12345], "u4")
    assert execute("cvt.f32.f32 %r0, %a;", a, result="u4").tolist() == a.tolist()
    assert execute("cvt.ftz.f32.f32 %r0, %a;", a, result="u4").tolist() == [0x7FFFFFFF] * 3
    assert execute("cvt.sat.f32.f32 %r0, %a;", a, result="u4").tolist() == [0] * 3
    halves = np.array([0x7FC0, 0xFF81], "u2")
    assert execute("cvt.f32.bf16 %r0, %a;", halves, result="u4").tolist() == [0x7FC00000, 0xFF810000]


@pytest.mark.parametrize(
    ("to", "want", "kept"),
    [
        ("f32", [0x7FC00000, 0x7FC00000, 0xFFC00000, 0xFFC091A2, 0xFFEA1908, 0x7FFFFFFF, 0], "u4"),
        ("f16", [0x7E00, 0x7E00, 0xFE00, 0xFE04, 0xFF50, 0x7FFF, 0], "u2"),
        ("bf16", [0x7FC0, 0x7FC0, 0xFFC0, 0xFFC0, 0xFFEA, 0x7FFF, 0], "u2"),
    ],
)
def test_a_nan_of_a_double_keeps_its_sign_and_upper_bits(
    execute: Any, to: str, want: list[int], kept: str
) -> None:
    plain = [0x7FF8000000000000, 0x7FF0000000000001, 0xFFF8000000012345]
    a = np.array([*plain, 0xFFF8123456789ABC, 0xFFF5432100000001, 0x7FFFFFFFFFFFFFFF, 0], "u8")
    for mode in ("rn", "rz", "rm", "rp"):
        assert execute(f"cvt.{mode}.{to}.f64 %r0, %a;", a, result=kept).tolist() == want
    if to != "bf16":  # which has no .sat
        assert execute(f"cvt.rn.sat.{to}.f64 %r0, %a;", a, result=kept).tolist() == [0] * 7


def test_a_nan_that_is_flushed_on_its_way_to_a_double_is_the_canonical_one(execute: Any) -> None:
    a = np.array([0x7FC00000, 0xFFA12345, 0x80000001, 0x3F800000], "u4")
    kept = [0x7FF8000000000000, 0xFFFC2468A0000000, 0xB6A0000000000000, 0x3FF0000000000000]
    assert execute("cvt.f64.f32 %r0, %a;", a, result="u8").tolist() == kept
    flushed = [0x7FFFFFFFE0000000, 0x7FFFFFFFE0000000, 1 << 63, 0x3FF0000000000000]
    assert execute("cvt.ftz.f64.f32 %r0, %a;", a, result="u8").tolist() == flushed
    assert a.tolist() == [0x7FC00000, 0xFFA12345, 0x80000001, 0x3F800000]


def test_a_subnormal_on_its_way_to_f16_is_not_flushed(execute: Any) -> None:
    a = np.array([1, 0x80000001, 0x007FFFFF], "u4")
    assert execute("cvt.rp.ftz.f16.f32 %r0, %a;", a, result="u2").tolist() == [1, 0x8000, 1]
    assert execute("cvt.rm.ftz.f16.f32 %r0, %a;", a, result="u2").tolist() == [0, 0x8001, 0]


@pytest.mark.parametrize("source", ["s8", "s32", "u64"])
@pytest.mark.parametrize(("to", "dtype"), [("f16", "f2"), ("f32", "f4"), ("f64", "f8")])
def test_integers_saturate_between_zero_and_one(execute: Any, to: str, dtype: str, source: str) -> None:
    a = np.array([0, 1, 2, 100, 2**16 - 1 if source == "s8" else (1 << bits(source)) - 1], HELD[bits(source)])
    got = execute(f"cvt.rn.sat.{to}.{source} %r0, %a;", a, result=f"u{dtype[1]}").view(dtype)
    assert got.tolist() == [0.0, 1.0, 1.0, 1.0, 1.0 if source[0] == "u" else 0.0]


def test_tf32_clamps(execute: Any) -> None:
    a = np.array([-1.5, -0.0, 2.0, np.nan, np.inf, -np.inf, 3.4028235e38], "f4")
    relu = execute("cvt.rn.relu.tf32.f32 %r0, %a;", a, result="u4")
    assert relu.tolist()[:5] == [0, 0, 0x40000000, 0x7FFFE000, 0x7F800000]
    finite = execute("cvt.rna.satfinite.tf32.f32 %r0, %a;", a, result="u4")
    assert finite.tolist()[3:] == [0x7FBFE000, 0x7F7FE000, 0xFF7FE000, 0x7F7FE000]
    nan = np.array([0x7F800001, 0x7FFFFFFF, 0xFFC12345], "u4")
    got = execute("cvt.rna.satfinite.tf32.f32 %r0, %a;", nan, result="u4")
    assert got.tolist() == [0x7F7FE000, 0x7FFFC000, 0xFFC10000]


@pytest.mark.parametrize("type_", ["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"])
def test_packing_clamps_integers(execute: Any, type_: str) -> None:
    low, high = limits(type_)
    pool = [0, 1, -1, low, high, low - 1, high + 1, 2**31 - 1, -(2**31), 5]
    a, b = (m.reshape(-1).astype("i4") for m in np.meshgrid(pool, pool))
    c = np.arange(len(a), dtype="u4") * np.uint32(0x01234567)
    n = bits(type_)
    text = (
        f"cvt.pack.sat.{type_}.s32 %r0, %a, %b;"
        if n == 16
        else f"cvt.pack.sat.{type_}.s32.b32 %r0, %a, %b, %c;"
    )
    got = execute(text, a, b, c, result="u4").tolist()
    for x, y, z, g in zip(a.tolist(), b.tolist(), c.tolist(), got, strict=True):
        clamped = [min(max(v, low), high) % (1 << n) for v in (x, y)]
        above = z << (2 * n) if n < 16 else 0
        assert g == (above | clamped[0] << n | clamped[1]) % 2**32


@pytest.mark.parametrize("kind", ["e4m3x2", "e5m2x2"])
def test_eight_bit_floats_without_negatives(execute: Any, kind: str) -> None:
    a = np.array([-1.0, -0.0, 1.0, np.nan, -1e-9, np.inf], "f4")
    got = execute(f"cvt.rn.satfinite.relu.{kind}.f32 %r0, %a, %a;", a, result="u2").tolist()
    one, largest = (0x38, 0x7E) if kind == "e4m3x2" else (0x3C, 0x7B)
    assert got == [byte * 0x101 for byte in (0, 0, one, 0x7F, 0, largest)]
