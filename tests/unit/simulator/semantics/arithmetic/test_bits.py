"""Bit-field instructions against Python's integers, as PTX's pseudocode has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

u32 = st.integers(0, 2**32 - 1)
EDGES = {
    32: [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xF0F0F0F0, 0x12345678, 0x00010000],
    64: [0, 1, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 0x123456789ABCDEF0],
}


def bits_of(type_: str) -> int:
    return int(type_[1:])


@pytest.mark.parametrize("type_", ["b32", "b64"])
def test_counts_and_reversal(execute: Any, type_: str) -> None:
    bits = bits_of(type_)
    a = np.array(EDGES[bits], f"u{bits // 8}")
    values = a.tolist()
    assert execute(f"popc.{type_} %r0, %a;", a, result="u4").tolist() == [bin(v).count("1") for v in values]
    assert execute(f"clz.{type_} %r0, %a;", a, result="u4").tolist() == [
        bits - v.bit_length() for v in values
    ]
    assert execute(f"brev.{type_} %r0, %a;", a, result=a.dtype).tolist() == [
        int(f"{v:0{bits}b}"[::-1], 2) for v in values
    ]


def found(value: int, type_: str, shift: bool) -> int:
    bits = bits_of(type_)
    if type_[0] == "s" and value >> (bits - 1):
        value = ~value & ((1 << bits) - 1)
    place = value.bit_length() - 1
    if place < 0:
        return 0xFFFFFFFF
    return bits - 1 - place if shift else place


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
def test_find_highest_bit(execute: Any, type_: str) -> None:
    bits = bits_of(type_)
    a = np.array(EDGES[bits], f"u{bits // 8}")
    got = execute(f"bfind.{type_} %r0, %a;", a, result="u4")
    assert got.tolist() == [found(v, type_, False) for v in a.tolist()]
    got = execute(f"bfind.shiftamt.{type_} %r0, %a;", a, result="u4")
    assert got.tolist() == [found(v, type_, True) for v in a.tolist()]


def within(amount: int, bits: int) -> int:
    """A field's start or length: PTX takes eight bits, as an H200 does for 32-bit fields alone."""
    return amount & 0xFF if bits == 32 else min(amount, 1000)


def extracted(a: int, start: int, length: int, type_: str) -> int:
    """bfe as the PTX ISA's pseudocode has it."""
    msb = bits_of(type_) - 1
    pos, count = within(start, msb + 1), within(length, msb + 1)
    sign = 0 if type_[0] == "u" or count == 0 else a >> min(pos + count - 1, msb) & 1
    result = 0
    for i in range(msb + 1):
        bit = a >> (pos + i) & 1 if i < count and pos + i <= msb else sign
        result |= bit << i
    return result


def inserted(a: int, b: int, start: int, length: int, bits: int) -> int:
    pos, count = within(start, bits), within(length, bits)
    for i in range(count):
        if pos + i <= bits - 1:
            b = b & ~(1 << (pos + i)) | (a >> i & 1) << (pos + i)
    return b


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
def test_fields_are_extracted_and_inserted(execute: Any, type_: str) -> None:
    bits = bits_of(type_)
    spots = [0, 1, 7, 31, 32, 33, 63, 64, 255, 256, 256 + 3, 2**32 - 1]
    rows = [(v, s, n) for v in EDGES[bits] for s in spots for n in spots]
    a = np.array([r[0] for r in rows], f"u{bits // 8}")
    start = np.array([r[1] for r in rows], "u4")
    length = np.array([r[2] for r in rows], "u4")
    got = execute(f"bfe.{type_} %r0, %a, %b, %c;", a, start, length, result=a.dtype)
    assert got.tolist() == [extracted(*r, type_) for r in rows]
    if type_[0] == "u":
        b = a[::-1].copy()
        got = execute(f"bfi.b{bits} %r0, %a, %b, %c, %d;", a, b, start, length, result=a.dtype)
        assert got.tolist() == [
            inserted(r[0], y, r[1], r[2], bits) for r, y in zip(rows, b.tolist(), strict=False)
        ]


@pytest.mark.parametrize("way", ["l", "r"])
@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shift(execute: Any, way: str, mode: str) -> None:
    amounts = [0, 1, 15, 31, 32, 33, 64, 0xFFFFFFFF]
    a = np.array([0x89ABCDEF] * len(amounts), "u4")
    b = np.array([0x01234567] * len(amounts), "u4")
    n = np.array(amounts, "u4")
    got = execute(f"shf.{way}.{mode}.b32 %r0, %a, %b, %c;", a, b, n, result="u4")
    both = (0x01234567 << 32) | 0x89ABCDEF
    counts = [s & 31 if mode == "wrap" else min(s, 32) for s in amounts]
    want = [(both << s >> 32 if way == "l" else both >> s) & 0xFFFFFFFF for s in counts]
    assert got.tolist() == want


@settings(max_examples=30, deadline=None)
@given(a=u32, b=u32, c=u32, table=st.integers(0, 255))
def test_three_input_logic_follows_its_table(execute: Any, a: int, b: int, c: int, table: int) -> None:
    arrays = [np.array([x], "u4") for x in (a, b, c)]
    got = execute(f"lop3.b32 %r0, %a, %b, %c, {table};", *arrays, result="u4")
    want = 0
    for i in range(32):
        row = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)
        want |= (table >> row & 1) << i
    assert got.tolist() == [want]


@settings(max_examples=30, deadline=None)
@given(a=u32, b=u32, selector=u32)
def test_permutation_picks_bytes_and_signs(execute: Any, a: int, b: int, selector: int) -> None:
    arrays = [np.array([x], "u4") for x in (a, b, selector)]
    got = execute("prmt.b32 %r0, %a, %b, %c;", *arrays, result="u4")
    source = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    want = b""
    for place in range(4):
        nibble = selector >> 4 * place & 15
        byte = source[nibble & 7]
        want += bytes([(255 if byte & 128 else 0) if nibble & 8 else byte])
    assert got.tolist() == [int.from_bytes(want, "little")]


@pytest.mark.parametrize(
    ("mode", "picks"),
    [
        ("f4e", lambda s: [s, s + 1, s + 2, s + 3]),
        ("b4e", lambda s: [s, (s - 1) % 8, (s - 2) % 8, (s - 3) % 8]),
        ("rc8", lambda s: [s] * 4),
        ("ecl", lambda s: [max(s, i) for i in range(4)]),
        ("ecr", lambda s: [min(s, i) for i in range(4)]),
        ("rc16", lambda s: [2 * (s & 1), 2 * (s & 1) + 1] * 2),
    ],
)
def test_permutation_modes(execute: Any, mode: str, picks: Any) -> None:
    a = np.full(4, 0x33221100, "u4")
    b = np.full(4, 0x77665544, "u4")
    selectors = np.arange(4, dtype="u4")
    got = execute(f"prmt.b32.{mode} %r0, %a, %b, %c;", a, b, selectors, result="u4")
    want = [int.from_bytes(bytes(0x11 * p for p in picks(s)), "little") for s in range(4)]
    assert got.tolist() == want


def test_dot_products_of_packed_integers(execute: Any) -> None:
    a = np.array([0x80FF0102, 0x7F7F7F7F, 0xFFFFFFFF], "u4")
    b = np.array([0x01020304, 0x80808080, 0xFFFFFFFF], "u4")
    c = np.array([5, 0, 0xFFFFFFFE], "u4")
    x, y = a.view("i1").reshape(-1, 4).astype(int), b.view("i1").reshape(-1, 4).astype(int)
    want = ((x * y).sum(1) + c.view("i4")).astype("i8").astype("u4")
    assert execute("dp4a.s32.s32 %r0, %a, %b, %c;", a, b, c, result="u4").tolist() == want.tolist()
    x, y = a.view("u1").reshape(-1, 4).astype(int), b.view("u1").reshape(-1, 4).astype(int)
    want = ((x * y).sum(1) + c).astype("u8").astype("u4")
    assert execute("dp4a.u32.u32 %r0, %a, %b, %c;", a, b, c, result="u4").tolist() == want.tolist()
