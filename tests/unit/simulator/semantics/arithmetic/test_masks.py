"""bmsk, szext, fns and lop3 with a predicate, against integers that do not wrap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ALL = 0xFFFFFFFF
RNG = np.random.default_rng(11)


def pairs(first: Any, second: Any) -> list[np.ndarray[Any, Any]]:
    return [m.reshape(-1).astype("u4") for m in np.meshgrid(first, second)]


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_bmsk_sets_a_run_of_bits(execute: Any, mode: str) -> None:
    start, width = pairs([*range(34), 64, ALL], [*range(34), 64, 95, ALL])
    got = execute(f"bmsk.{mode}.b32 %r0, %a, %b;", start, width, result="u4").tolist()
    for s, w, g in zip(start.tolist(), width.tolist(), got, strict=True):
        if mode == "wrap":
            s, w = s % 32, w % 32
        assert g == sum(1 << bit for bit in range(32) if s <= bit < s + w), (s, w)


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
@pytest.mark.parametrize("type_", ["u32", "s32"])
def test_szext_extends_the_low_bits(execute: Any, mode: str, type_: str) -> None:
    value, width = pairs([0, 1, 0x80, 0x7F, 0x80000000, ALL, 0x12345678, 0xFEDCBA98], [*range(34), 64, ALL])
    got = execute(f"szext.{mode}.{type_} %r0, %a, %b;", value, width, result="u4").tolist()
    for v, w, g in zip(value.tolist(), width.tolist(), got, strict=True):
        w = w % 32 if mode == "wrap" else min(w, 32)
        want = v % (1 << w)
        if type_ == "s32" and w and want >> (w - 1):
            want -= 1 << w
        assert g == want & ALL, (v, w)


def nth_set(mask: int, base: int, offset: int) -> int:
    set_bits = [bit for bit in range(32) if mask >> bit & 1]
    if offset == 0:
        return base if base in set_bits else ALL
    way = [b for b in set_bits if b >= base] if offset > 0 else [b for b in reversed(set_bits) if b <= base]
    return way[abs(offset) - 1] if len(way) >= abs(offset) else ALL


def test_fns_finds_the_nth_set_bit(execute: Any) -> None:
    mask = np.concatenate((RNG.integers(0, 2**32, 500, dtype=np.uint64), [0, ALL, 0xAAAAAAAA, 1, 1 << 31]))
    mask = np.repeat(mask.astype("u4"), 12)
    base = RNG.integers(0, 32, len(mask)).astype("u4")
    offset = RNG.choice([0, 1, -1, 2, -2, 3, 31, 32, 33, -32, -(2**31), 2**31 - 1], len(mask)).astype("i4")
    got = execute("fns.b32 %r0, %a, %b, %c;", mask, base, offset, result="u4").tolist()
    want = [nth_set(*each) for each in zip(mask.tolist(), base.tolist(), offset.tolist(), strict=True)]
    assert got == want


@pytest.mark.parametrize("join", ["or", "and"])
def test_lop3_also_reports_whether_a_bit_is_set(execute: Any, join: str) -> None:
    a = np.array([0, 0xF0, 0xF0, 0, 5, 5], "u4")
    b = np.array([0, 0x0F, 0xF0, 7, 5, 2], "u4")
    c = np.array([0, 0xFF, 0xFF, 7, 5, 7], "u4")
    q = np.array([0, 0, 1, 1, 1, 0], bool)
    together = (a & b & c).tolist()
    want = [
        (v != 0 or p) if join == "or" else (v != 0 and p) for v, p in zip(together, q.tolist(), strict=True)
    ]
    text = f"lop3.{join}.b32 %r0|%r1, %a, %b, %c, 0x80, %d;"
    value, told = execute(text, a, b, c, q, results=["u4", "b1"])
    assert value.tolist() == together
    assert told.tolist() == want
    text = f"lop3.{join}.b32 %a|%r0, %a, %b, %c, 0x80, %d;"  # the result overwrites an operand
    assert execute(text, a, b, c, q, result="b1").tolist() == want
    text = f".reg .pred %n; not.pred %n, %d; lop3.{join}.b32 _|%r0, %a, %b, %c, 0x80, !%n;"
    assert execute(text, a, b, c, q, result="b1").tolist() == want
