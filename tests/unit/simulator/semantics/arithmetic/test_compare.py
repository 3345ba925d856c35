"""Comparisons and selections."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

OPERATORS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
VALUES = [0, 1, 5, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
NUMBERS = [0.0, -0.0, 1.0, -1.0, float("inf"), float("nan")]


def pairs(values: list[Any], kind: str) -> list[np.ndarray[Any, Any]]:
    return [m.reshape(-1).copy() for m in np.meshgrid(np.array(values, kind), np.array(values, kind))]


@pytest.mark.parametrize("name", list(OPERATORS))
def test_integers_compare_by_sign(execute: Any, name: str) -> None:
    a, b = pairs(VALUES, "u4")
    compare = OPERATORS[name]
    assert (execute(f"setp.{name}.u32 %r0, %a, %b;", a, b, result=bool) == compare(a, b)).all()
    got = execute(f"setp.{name}.s32 %r0, %a, %b;", a, b, result=bool)
    assert (got == compare(a.view("i4"), b.view("i4"))).all()


@pytest.mark.parametrize("name", list(OPERATORS))
def test_unordered_comparisons_hold_for_nan_and_ordered_ones_do_not(execute: Any, name: str) -> None:
    a, b = pairs(NUMBERS, "f4")
    nan = np.isnan(a) | np.isnan(b)
    plain = OPERATORS[name](a, b)
    assert (execute(f"setp.{name}.f32 %r0, %a, %b;", a, b, result=bool) == (plain & ~nan)).all()
    assert (execute(f"setp.{name}u.f32 %r0, %a, %b;", a, b, result=bool) == (plain | nan)).all()


def test_num_and_nan(execute: Any) -> None:
    a, b = pairs(NUMBERS, "f8")
    nan = np.isnan(a) | np.isnan(b)
    assert (execute("setp.num.f64 %r0, %a, %b;", a, b, result=bool) == ~nan).all()
    assert (execute("setp.nan.f64 %r0, %a, %b;", a, b, result=bool) == nan).all()


def test_both_predicates_and_the_combined_form(execute: Any) -> None:
    a = np.array([1, 2, 3, 4], "u4")
    b = np.array([2, 2, 2, 2], "u4")
    c = np.array([True, True, False, False])
    yes, no = execute("setp.lt.u32 %r0|%r1, %a, %b;", a, b, results=[bool, bool])
    assert yes.tolist() == [True, False, False, False]
    assert no.tolist() == [False, True, True, True]
    yes, no = execute("setp.lt.and.u32 %r0|%r1, %a, %b, %c;", a, b, c, results=[bool, bool])
    assert yes.tolist() == [True, False, False, False]
    assert no.tolist() == [False, True, False, False]
    got = execute("setp.ge.or.u32 %r0, %a, %b, !%c;", a, b, c, result=bool)
    assert got.tolist() == [False, True, True, True]


def test_set_gives_ones_or_one(execute: Any) -> None:
    a = np.array([1.0, 2.0], "f4")
    b = np.array([2.0, 1.0], "f4")
    assert execute("set.lt.u32.f32 %r0, %a, %b;", a, b, result="u4").tolist() == [0xFFFFFFFF, 0]
    assert execute("set.lt.f32.f32 %r0, %a, %b;", a, b, result="f4").tolist() == [1.0, 0.0]


def test_set_of_halves_works_half_by_half(execute: Any) -> None:
    a = np.array([1.0, 2.0, np.nan, 0.0], "f2").view("u4").copy()
    b = np.array([2.0, 1.0, 1.0, -0.0], "f2").view("u4").copy()
    got = execute("set.lt.f16x2.f16x2 %r0, %a, %b;", a, b, result="u4")
    assert got.view("f2").tolist() == [1.0, 0.0, 0.0, 0.0]
    got = execute("set.geu.u32.f16x2 %r0, %a, %b;", a, b, result="u4")
    assert got.view("u2").tolist() == [0, 0xFFFF, 0xFFFF, 0xFFFF]
    got = execute("set.eq.f16.f16 %r0, %a, %b;", a.view("u2"), b.view("u2"), result="u2")
    assert got.view("f2").tolist() == [0.0, 0.0, 0.0, 1.0]


def test_selections(execute: Any) -> None:
    a, b = np.array([1, 2], "u4"), np.array([3, 4], "u4")
    p = np.array([True, False])
    assert execute("selp.b32 %r0, %a, %b, %c;", a, b, p, result="u4").tolist() == [1, 4]
    c = np.array([-1.0, 0.0], "f4")
    assert execute("slct.b32.f32 %r0, %a, %b, %c;", a, b, c, result="u4").tolist() == [3, 2]
    d = np.array([5, 0xFFFFFFFF], "u4")
    assert execute("slct.u32.s32 %r0, %a, %b, %c;", a, b, d, result="u4").tolist() == [1, 4]


def test_properties_of_floats(execute: Any) -> None:
    a = np.array([1.0, np.inf, np.nan, 1e-40, 0.0, -0.0], "f4")
    expected = {
        "finite": [True, False, False, True, True, True],
        "infinite": [False, True, False, False, False, False],
        "number": [True, True, False, True, True, True],
        "notanumber": [False, False, True, False, False, False],
        "normal": [True, False, False, False, True, True],  # PTX ISA, testp: zeros are normal
        "subnormal": [False, False, False, True, False, False],
    }
    for name, want in expected.items():
        assert execute(f"testp.{name}.f32 %r0, %a;", a, result=bool).tolist() == want


@pytest.mark.parametrize("type_", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["eq", "lt", "gtu", "nan"])
def test_halves_in_pairs_give_two_predicates(execute: Any, name: str, type_: str) -> None:
    one, nan, tiny = {"f16": 0x3C00, "bf16": 0x3F80}[type_], 0x7FFF, 1
    a, b = pairs([0, 0x8000, one, one | 0x8000, nan, tiny], "u2")
    other = np.roll(a, 7)
    apart = execute(f"setp.{name}.{type_} %r0, %a, %b;", a, b, result=bool)
    above = execute(f"setp.{name}.{type_} %r0, %a, %b;", other, b, result=bool)
    c = (np.arange(len(a)) % 3 == 0).astype(bool)
    packed = [low.astype("u4") | high.astype("u4") << np.uint32(16) for low, high in ((a, other), (b, b))]
    got = execute(f"setp.{name}.{type_}x2 %r0|%r1, %a, %b;", *packed, results=[bool, bool])
    assert (got[0] == apart).all()
    assert (got[1] == above).all()
    got = execute(f"setp.{name}.xor.{type_}x2 %r0|%r1, %a, %b, !%c;", *packed, c, results=[bool, bool])
    assert (got[0] == (apart ^ ~c)).all()
    assert (got[1] == (above ^ ~c)).all()
    want = np.where(apart & c, 0xFFFF, 0) | np.where(above & c, 0xFFFF0000, 0)
    got = execute(f"set.{name}.and.u32.{type_}x2 %r0, %a, %b, %c;", *packed, c, result="u4")
    assert got.tolist() == want.tolist()
    want = np.where(apart | c, one, 0) | np.where(above | c, one << 16, 0)
    got = execute(f"set.{name}.or.{type_}x2.{type_}x2 %r0, %a, %b, %c;", *packed, c, result="u4")
    assert got.tolist() == want.tolist()


@pytest.mark.parametrize("to", ["u16", "s16", "u32", "s32", "f16"])
def test_a_comparison_of_halves_fills_its_destination(execute: Any, to: str) -> None:
    a, b = pairs([0, 0x3C00, 0x7FFF, 0xBC00], "u2")
    c = (np.arange(len(a)) % 2 == 0).astype(bool)
    holds = execute("setp.le.f16 %r0, %a, %b;", a, b, result=bool)
    kind = "u4" if to.endswith("32") else "u2"
    yes = {"f16": 0x3C00}.get(to, 0xFFFFFFFF if kind == "u4" else 0xFFFF)
    got = execute(f"set.le.{to}.f16 %r0, %a, %b;", a, b, result=kind)
    assert got.tolist() == np.where(holds, yes, 0).tolist()
    got = execute(f"set.le.and.{to}.f16 %r0, %a, %b, !%c;", a, b, c, result=kind)
    assert got.tolist() == np.where(holds & ~c, yes, 0).tolist()


def test_subnormal_halves_are_flushed_where_asked(execute: Any) -> None:
    tiny, zero = np.array([1, 0x8001], "u2"), np.zeros(2, "u2")
    assert not execute("setp.eq.f16 %r0, %a, %b;", tiny, zero, result=bool).any()
    assert execute("setp.eq.ftz.f16 %r0, %a, %b;", tiny, zero, result=bool).all()
