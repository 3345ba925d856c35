"""Integer instructions against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

EDGES = {
    16: [0, 1, 2, 3, 7, 15, 16, 17, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0xFFFE, 0x1234, 0xABCD],
    32: [
        0,
        1,
        2,
        3,
        31,
        32,
        33,
        0xFF,
        0x7FFFFFFF,
        0x80000000,
        0x80000001,
        0xFFFFFFFF,
        0xFFFFFFFE,
        0x12345678,
    ],
    64: [0, 1, 2, 63, 64, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 1, 0x123456789ABCDEF0],
}


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def of(type_: str, value: int) -> int:
    bits = int(type_[1:])
    return signed(value, bits) if type_[0] == "s" else value & ((1 << bits) - 1)


def quotient(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def clamp(value: int, bits: int) -> int:
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, value))


def pairs(bits: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(bits)
    more = (
        [int(x) for x in rng.integers(0, 1 << bits, 20, dtype=np.uint64 if bits == 64 else np.int64)]
        if bits < 64
        else []
    )
    values = EDGES[bits] + more
    a = np.array([x for x in values for _ in values], f"u{bits // 8}")
    b = np.array([y for _ in values for y in values], f"u{bits // 8}")
    return a, b


Binary = Callable[[int, int], int]
ALL = ["u16", "s16", "u32", "s32", "u64", "s64"]
BINARY: list[tuple[str, list[str], Binary]] = [
    ("add", ALL, lambda a, b: a + b),
    ("sub", ALL, lambda a, b: a - b),
    ("mul.lo", ALL, lambda a, b: a * b),
    ("min", ALL, min),
    ("max", ALL, max),
    ("and", ["b16", "b32", "b64"], lambda a, b: a & b),
    ("or", ["b16", "b32", "b64"], lambda a, b: a | b),
    ("xor", ["b16", "b32", "b64"], lambda a, b: a ^ b),
]


@pytest.mark.parametrize(
    ("op", "type_", "expected"),
    [pytest.param(op, t, f, id=f"{op}.{t}") for op, types, f in BINARY for t in types],
)
def test_binary_instruction_agrees_with_integers(execute: Any, op: str, type_: str, expected: Binary) -> None:
    bits = int(type_[1:])
    a, b = pairs(bits)
    got = execute(f"{op}.{type_} %r0, %a, %b;", a, b, result=a.dtype)
    want = [
        expected(of(type_, int(x)), of(type_, int(y))) & ((1 << bits) - 1) for x, y in zip(a, b, strict=False)
    ]
    assert got.tolist() == want


@pytest.mark.parametrize("type_", ALL)
def test_high_product_is_the_upper_half(execute: Any, type_: str) -> None:
    bits = int(type_[1:])
    a, b = pairs(bits)
    got = execute(f"mul.hi.{type_} %r0, %a, %b;", a, b, result=a.dtype)
    want = [
        (of(type_, int(x)) * of(type_, int(y)) >> bits) & ((1 << bits) - 1)
        for x, y in zip(a, b, strict=False)
    ]
    assert got.tolist() == want


@pytest.mark.parametrize("type_", ["u16", "s16", "u32", "s32"])
def test_wide_product_and_sum_keep_all_bits(execute: Any, type_: str) -> None:
    bits = int(type_[1:])
    a, b = pairs(bits)
    wide = f"u{bits // 4}"
    c = np.arange(len(a)).astype(wide) * 977
    product = execute(f"mul.wide.{type_} %r0, %a, %b;", a, b, result=wide)
    total = execute(f"mad.wide.{type_} %r0, %a, %b, %c;", a, b, c, result=wide)
    exact = [of(type_, int(x)) * of(type_, int(y)) for x, y in zip(a, b, strict=False)]
    mask = (1 << (2 * bits)) - 1
    assert product.tolist() == [p & mask for p in exact]
    assert total.tolist() == [(p + int(z)) & mask for p, z in zip(exact, c, strict=False)]


@pytest.mark.parametrize("type_", ALL)
def test_division_rounds_to_zero_and_remainder_has_the_dividend_s_sign(execute: Any, type_: str) -> None:
    bits = int(type_[1:])
    a, b = pairs(bits)
    a, b = a[b != 0], b[b != 0]
    mask = (1 << bits) - 1
    exact = [(of(type_, int(x)), of(type_, int(y))) for x, y in zip(a, b, strict=False)]
    got = execute(f"div.{type_} %r0, %a, %b;", a, b, result=a.dtype)
    assert got.tolist() == [quotient(x, y) & mask for x, y in exact]
    got = execute(f"rem.{type_} %r0, %a, %b;", a, b, result=a.dtype)
    assert got.tolist() == [(x - quotient(x, y) * y) & mask for x, y in exact]


@pytest.mark.parametrize(("op", "sign"), [("add", 1), ("sub", -1)])
def test_saturated_sums_clamp(execute: Any, op: str, sign: int) -> None:
    a, b = pairs(32)
    got = execute(f"{op}.sat.s32 %r0, %a, %b;", a, b, result="u4")
    want = [
        clamp(signed(int(x), 32) + sign * signed(int(y), 32), 32) & 0xFFFFFFFF
        for x, y in zip(a, b, strict=False)
    ]
    assert got.tolist() == want


@pytest.mark.parametrize("type_", ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"])
def test_shifts_clamp_their_amount(execute: Any, type_: str) -> None:
    bits = int(type_[1:])
    values = EDGES[bits]
    amounts = [0, 1, 5, bits - 1, bits, bits + 1, 200, 0xFFFFFFFF]
    a = np.array([v for v in values for _ in amounts], f"u{bits // 8}")
    n = np.array([s for _ in values for s in amounts], "u4")
    mask = (1 << bits) - 1
    right = execute(f"shr.{type_} %r0, %a, %b;", a, n, result=a.dtype)
    bounded = [min(int(s), bits + 8) for s in n]
    assert right.tolist() == [
        (of(type_.replace("b", "u"), int(x)) >> s) & mask for x, s in zip(a, bounded, strict=False)
    ]
    if type_[0] == "b":
        left = execute(f"shl.{type_} %r0, %a, %b;", a, n, result=a.dtype)
        assert left.tolist() == [(int(x) << s) & mask for x, s in zip(a, bounded, strict=False)]


@pytest.mark.parametrize("type_", ["s16", "s32", "s64"])
def test_sign_instructions(execute: Any, type_: str) -> None:
    bits = int(type_[1:])
    a = np.array(EDGES[bits], f"u{bits // 8}")
    mask = (1 << bits) - 1
    assert execute(f"abs.{type_} %r0, %a;", a, result=a.dtype).tolist() == [
        abs(signed(int(x), bits)) & mask for x in a
    ]
    assert execute(f"neg.{type_} %r0, %a;", a, result=a.dtype).tolist() == [-int(x) & mask for x in a]


@pytest.mark.parametrize("type_", ALL)
def test_sum_of_absolute_difference(execute: Any, type_: str) -> None:
    bits = int(type_[1:])
    a, b = pairs(bits)
    c = np.arange(len(a)).astype(a.dtype)
    got = execute(f"sad.{type_} %r0, %a, %b, %c;", a, b, c, result=a.dtype)
    mask = (1 << bits) - 1
    want = [
        (int(z) + abs(of(type_, int(x)) - of(type_, int(y)))) & mask for x, y, z in zip(a, b, c, strict=False)
    ]
    assert got.tolist() == want


def test_carry_chain_adds_and_subtracts_128_bits(execute: Any) -> None:
    a, b = pairs(64)
    c, d = b[::-1].copy(), a[::-1].copy()
    text = "add.cc.u64 %r0, %a, %b; addc.u64 %r1, %c, %d;"
    low, high = execute(text, a, b, c, d, results=["u8", "u8"])
    for w, x, y, z, lo, hi in zip(*(v.tolist() for v in (a, b, c, d, low, high)), strict=False):
        assert (hi << 64) + lo == (w + x + ((y + z) << 64)) % (1 << 128)
    text = "sub.cc.u64 %r0, %a, %b; subc.u64 %r1, %c, %d;"
    low, high = execute(text, a, b, c, d, results=["u8", "u8"])
    for w, x, y, z, lo, hi in zip(*(v.tolist() for v in (a, b, c, d, low, high)), strict=False):
        assert (hi << 64) + lo == (w - x + ((y - z) << 64)) % (1 << 128)


def test_a_subtraction_leaves_the_carry_of_the_hardware(execute: Any) -> None:
    a, b = pairs(32)
    got = execute("sub.cc.u32 %r0, %a, %b; addc.u32 %r1, 0, 0;", a, b, results=["u4", "u4"])[1]
    assert got.tolist() == (a >= b).tolist()
    got = execute("add.cc.u32 %r0, %a, %b; subc.u32 %r1, 0, 0;", a, b, results=["u4", "u4"])[1]
    carries = a.astype("u8") + b >= 1 << 32
    assert got.tolist() == np.where(carries, 0, 0xFFFFFFFF).tolist()


@pytest.mark.parametrize("op", ["div", "rem"])
@pytest.mark.parametrize("type_", ["s32", "u64"])
def test_a_division_by_zero_is_found(run_kernel: Any, op: str, type_: str) -> None:
    word = {"s32": "int", "u64": "unsigned long long"}[type_]
    sign = {"div": "/", "rem": "%"}[op]
    source = f"""extern "C" __global__ void k({word}* x, {word}* out) {{
      int i = threadIdx.x;
      out[i] = x[i + 32] {sign} x[i];
    }}"""
    x = np.arange(64, dtype={"s32": "i4", "u64": "u8"}[type_])
    result = run_kernel(source, {"x": x, "out": np.zeros(32, x.dtype)}, collect=True)
    (finding,) = result.findings
    assert (finding.kind, finding.line, finding.lanes) == ("division-by-zero", 3, 1)
    assert finding.thread == (0, 0, 0)


def test_carry_goes_through_multiply_add(execute: Any) -> None:
    a, b = pairs(32)
    c = b[::-1].copy()
    text = "mad.lo.cc.u32 %r0, %a, %b, %c; madc.hi.u32 %r1, %a, %b, 0;"
    low, high = execute(text, a, b, c, results=["u4", "u4"])
    for x, y, z, lo, hi in zip(*(v.tolist() for v in (a, b, c, low, high)), strict=False):
        assert (hi << 32) + lo == x * y + z


def test_predicates_combine(execute: Any) -> None:
    a = np.array([0, 0, 1, 1], bool)
    b = np.array([0, 1, 0, 1], bool)
    assert execute("and.pred %r0, %a, %b;", a, b, result=bool).tolist() == [False, False, False, True]
    assert execute("or.pred %r0, %a, !%b;", a, b, result=bool).tolist() == [True, False, True, True]
    assert execute("xor.pred %r0, %a, %b;", a, b, result=bool).tolist() == [False, True, True, False]
    assert execute("not.pred %r0, %a;", a, result=bool).tolist() == [True, True, False, False]


def test_a_saturated_product_of_24_bits_clamps_its_sum(execute: Any) -> None:
    a = np.array([0x7FFFFF, 0x7FFFFF, -0x800000, 5], "i4")
    c = np.array([2**31 - 1, 5, -(2**31), 7], "i4")
    b = np.array([0x7FFFFF, 0x7FFFFF, 0x7FFFFF, 3], "i4")
    exact = [(x * y >> 16) + z for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    got = execute("mad24.hi.sat.s32 %r0, %a, %b, %c;", a, b, c, result="i4")
    assert got.tolist() == [min(max(v, -(2**31)), 2**31 - 1) for v in exact]
