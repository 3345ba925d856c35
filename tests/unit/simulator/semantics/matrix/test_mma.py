"""mma.sync against float64 and Python integers, with the fragments written down element by element."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

Array = np.ndarray[Any, Any]
Place = Callable[[int, int, int], tuple[int, int]]


class Layout(NamedTuple):
    """Where element i of the lane with groupID g and threadID_in_group t stands: (row, column)."""

    a: Place
    b: Place
    c: Place


def c8(g: int, t: int, i: int) -> tuple[int, int]:
    return g, 2 * t + i


def c16(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8), 2 * t + (i & 1)


# By shape and bits of an element, as PTX ISA, "Matrix Fragments for mma...", gives the formulas.
LAYOUTS: dict[tuple[str, int], Layout] = {
    ("m8n8k4", 64): Layout(lambda g, t, i: (g, t), lambda g, t, i: (t, g), c8),
    ("m8n8k16", 8): Layout(lambda g, t, i: (g, 4 * t + i), lambda g, t, i: (4 * t + i, g), c8),
    ("m8n8k32", 4): Layout(lambda g, t, i: (g, 8 * t + i), lambda g, t, i: (8 * t + i, g), c8),
    ("m8n8k128", 1): Layout(lambda g, t, i: (g, 32 * t + i), lambda g, t, i: (32 * t + i, g), c8),
    ("m16n8k4", 32): Layout(lambda g, t, i: (g if i == 0 else g + 8, t), lambda g, t, i: (t, g), c16),
    ("m16n8k4", 64): Layout(lambda g, t, i: (g if i == 0 else g + 8, t), lambda g, t, i: (t, g), c16),
    ("m16n8k8", 16): Layout(
        lambda g, t, i: (g if i in (0, 1) else g + 8, 2 * t + (i & 1)), lambda g, t, i: (2 * t + i, g), c16
    ),
    ("m16n8k8", 32): Layout(
        lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
        lambda g, t, i: (t if i == 0 else t + 4, g),
        c16,
    ),
    ("m16n8k8", 64): Layout(
        lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
        lambda g, t, i: (t if i == 0 else t + 4, g),
        c16,
    ),
    ("m16n8k16", 16): Layout(
        lambda g, t, i: (
            g if 0 <= i < 2 or 4 <= i < 6 else g + 8,
            2 * t + (i & 1) if i < 4 else 2 * t + (i & 1) + 8,
        ),
        lambda g, t, i: (2 * t + (i & 1) if i < 2 else 2 * t + (i & 1) + 8, g),
        c16,
    ),
    ("m16n8k16", 64): Layout(
        lambda g, t, i: (g, 2 * i + t) if i % 2 == 0 else (g + 8, 2 * i - 2 + t),
        lambda g, t, i: (t + 4 * i, g),
        c16,
    ),
    ("m16n8k16", 8): Layout(
        lambda g, t, i: (g if i < 4 else g + 8, 4 * t + (i & 3)), lambda g, t, i: (4 * t + i, g), c16
    ),
    ("m16n8k32", 8): Layout(
        lambda g, t, i: (
            g if 0 <= i < 4 or 8 <= i < 12 else g + 8,
            4 * t + (i & 3) if i < 8 else 4 * t + (i & 3) + 16,
        ),
        lambda g, t, i: (4 * t + (i & 3) if i < 4 else 4 * t + (i & 3) + 16, g),
        c16,
    ),
    ("m16n8k32", 4): Layout(
        lambda g, t, i: (g if i < 8 else g + 8, 8 * t + (i & 7)), lambda g, t, i: (8 * t + i, g), c16
    ),
    ("m16n8k64", 4): Layout(
        lambda g, t, i: (
            g if 0 <= i < 8 or 16 <= i < 24 else g + 8,
            8 * t + (i & 7) if i < 16 else 8 * t + (i & 7) + 32,
        ),
        lambda g, t, i: (8 * t + (i & 7) if i < 8 else 8 * t + (i & 7) + 32, g),
        c16,
    ),
    ("m16n8k128", 1): Layout(
        lambda g, t, i: (g if i < 32 else g + 8, 32 * t + (i & 31)), lambda g, t, i: (32 * t + i, g), c16
    ),
    ("m16n8k256", 1): Layout(
        lambda g, t, i: (
            g if i < 32 or 64 <= i < 96 else g + 8,
            32 * t + (i & 31) if i < 64 else 32 * t + (i & 31) + 128,
        ),
        lambda g, t, i: (32 * t + (i & 31) if i < 32 else 32 * t + (i & 31) + 128, g),
        c16,
    ),
}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
BITS |= {"s4": 4, "u4": 4, "b1": 1, "f32": 32, "s32": 32}


def sizes(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


# Matrices: values, and the bits of each element


def matrix(rng: np.random.Generator, type_: str, rows: int, columns: int) -> tuple[Array, Array]:
    """Random values, as float64 or int64, and their bits as uint64."""
    shape = (rows, columns)
    if type_ in ("s8", "u8", "s4", "u4", "b1"):
        bits = BITS[type_]
        low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if type_[0] == "s" else (0, 1 << bits)
        values = rng.integers(low, high, shape)
        return values, (values & ((1 << bits) - 1)).astype(np.uint64)
    if type_ == "s32":
        values = rng.integers(-(1 << 31), 1 << 31, shape)
        return values, (values & 0xFFFFFFFF).astype(np.uint64)
    plain = rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 5, shape)
    if type_ == "tf32":
        raw = plain.astype(np.float32).view(np.uint32)
        return (raw & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64), raw.astype(np.uint64)
    kind = {
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2,
        "f32": np.float32,
        "f64": np.float64,
    }[type_]
    stored = plain.astype(kind)
    return stored.astype(np.float64), stored.view(f"u{BITS[type_] // 8}").astype(np.uint64)


def registers(bits: Array, place: Place, width: int, count: int) -> list[Array]:
    """A matrix's bits in the registers of one warp."""
    word = max(32, width)
    per_word = word // width
    found = np.zeros((count, 32), np.uint64)
    for lane in range(32):
        for i in range(count * per_word):
            row, column = place(lane >> 2, lane % 4, i)
            shift = np.uint64(width * (i % per_word))
            found[i // per_word, lane] |= bits[row, column] << shift
    return [r.astype(f"u{word // 8}") for r in found]


def taken(outs: list[Array], place: Place, width: int, shape: tuple[int, int]) -> Array:
    """The way back: bits by row and column, of one warp."""
    per_word = max(1, 32 // width)
    bits = np.zeros(shape, np.uint64)
    mask = np.uint64((1 << width) - 1)
    for lane in range(32):
        for i in range(len(outs) * per_word):
            row, column = place(lane >> 2, lane % 4, i)
            word = outs[i // per_word][lane].astype(np.uint64)
            bits[row, column] = (word >> np.uint64(width * (i % per_word))) & mask
    return bits


def spelled(names: str, start: int, count: int) -> str:
    return "{" + ", ".join(f"%{names}{n}" for n in range(start, start + count)) + "}"


class Case(NamedTuple):
    """An mma with random matrices, one set for each warp."""

    a: list[Array]
    b: list[Array]
    c: list[Array]
    d: list[Array]


def multiply(
    on_registers: Any, shape: str, types: tuple[str, ...], flags: str = "", tail: str = "", **given: Any
) -> Case:
    """Run one mma in three warps; the values of A, B, C, and the bits of D."""
    d, a, b, c = types
    m, n, k = sizes(shape)
    layout = LAYOUTS[shape, BITS[a]]
    rng = np.random.default_rng(0)
    word = max(32, BITS[a])
    counts = [m * k * BITS[a] // word // 32, k * n * BITS[b] // word // 32, m * n * BITS[c] // word // 32]
    values: list[list[Array]] = [[], [], []]
    inputs: list[list[Array]] = []
    for _ in range(3):
        warp: list[Array] = []
        parts = ((a, m, k, layout.a), (b, k, n, layout.b), (c, m, n, layout.c))
        for number, (type_, rows, columns, place) in enumerate(parts):
            value, bits = given.get("abc"[number], matrix)(rng, type_, rows, columns)
            values[number].append(value)
            warp += registers(bits, place, BITS[type_], counts[number])
        inputs.append(warp)
    joined = [np.concatenate(parts) for parts in zip(*inputs, strict=True)]
    count = m * n * BITS[d] // word // 32
    text = f"mma.sync.aligned.{shape}.row.col{flags}.{d}.{a}.{b}.{c}{tail} {spelled('o', 0, count)}, "
    text += f"{spelled('i', 0, counts[0])}, {spelled('i', counts[0], counts[1])}, "
    text += f"{spelled('i', counts[0] + counts[1], counts[2])};"
    outs, _ = on_registers(text, joined, [f"u{word // 8}"] * count)
    results = [taken([o[32 * w : 32 * w + 32] for o in outs], layout.c, BITS[d], (m, n)) for w in range(3)]
    return Case(values[0], values[1], values[2], results)


FLOATS = [
    ("m16n8k8", ("f16", "f16", "f16", "f16")),
    ("m16n8k8", ("f32", "f16", "f16", "f32")),
    ("m16n8k16", ("f16", "f16", "f16", "f16")),
    ("m16n8k16", ("f32", "f16", "f16", "f32")),
    ("m16n8k8", ("f32", "bf16", "bf16", "f32")),
    ("m16n8k16", ("f32", "bf16", "bf16", "f32")),
    ("m16n8k4", ("f32", "tf32", "tf32", "f32")),
    ("m16n8k8", ("f32", "tf32", "tf32", "f32")),
    *[
        (shape, (c, a, b, c))
        for shape in ("m16n8k16", "m16n8k32")
        for a, b in (("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e4m3", "e5m2"), ("e5m2", "e4m3"))
        for c in ("f32", "f16")
    ],
]


@pytest.mark.parametrize(("shape", "types"), FLOATS)
def test_floats_are_within_one_rounding_of_the_exact_product(
    on_registers: Any, shape: str, types: tuple[str, ...]
) -> None:
    case = multiply(on_registers, shape, types)
    kind, unit = (np.float32, 2.0**-24) if types[0] == "f32" else (np.float16, 2.0**-11)
    for a, b, c, d in zip(case.a, case.b, case.c, case.d, strict=True):
        got = d.astype(f"u{BITS[types[0]] // 8}").view(kind).astype(np.float64)
        exact = a @ b + c
        spread = np.abs(a) @ np.abs(b) + np.abs(c)
        assert (np.abs(got - exact) <= unit * np.abs(exact) * 1.0001 + 2.0**-48 * spread + 2.0**-25).all()
        assert (np.abs(got - exact) <= (sizes(shape)[2] + 1) * 2 * unit * spread).all()


@pytest.mark.parametrize(
    ("shape", "types"),
    [
        *[
            (shape, ("s32", a, b, "s32"))
            for shape in ("m8n8k16", "m16n8k16", "m16n8k32")
            for a in ("s8", "u8")
            for b in ("s8", "u8")
        ],
        *[
            (shape, ("s32", a, b, "s32"))
            for shape in ("m8n8k32", "m16n8k32", "m16n8k64")
            for a in ("s4", "u4")
            for b in ("s4", "u4")
        ],
    ],
)
@pytest.mark.parametrize("flags", ["", ".satfinite"])
def test_integers_are_exact(on_registers: Any, shape: str, types: tuple[str, ...], flags: str) -> None:
    def near_the_ends(rng: np.random.Generator, _: str, rows: int, columns: int) -> tuple[Array, Array]:
        ends = rng.choice([-(1 << 31), (1 << 31) - 1, 0, -1], (rows, columns))
        return ends, (ends & 0xFFFFFFFF).astype(np.uint64)

    case = multiply(on_registers, shape, types, flags, c=near_the_ends)
    clamped = wrapped = 0
    for a, b, c, d in zip(case.a, case.b, case.c, case.d, strict=True):
        for row in range(a.shape[0]):
            for column in range(b.shape[1]):
                exact = int(c[row, column]) + sum(
                    int(x) * int(y) for x, y in zip(a[row], b[:, column], strict=True)
                )
                if flags:
                    expected = max(-(1 << 31), min((1 << 31) - 1, exact))
                    clamped += expected != exact
                else:
                    expected = (exact + (1 << 31)) % (1 << 32) - (1 << 31)
                    wrapped += expected != exact
                assert int(d[row, column]) == expected & 0xFFFFFFFF
    assert clamped + wrapped > 10


@pytest.mark.parametrize("shape", ["m8n8k128", "m16n8k128", "m16n8k256"])
@pytest.mark.parametrize("operation", ["xor", "and"])
def test_bits_are_counted(on_registers: Any, shape: str, operation: str) -> None:
    case = multiply(on_registers, shape, ("s32", "b1", "b1", "s32"), tail=f".{operation}.popc")
    for a, b, c, d in zip(case.a, case.b, case.c, case.d, strict=True):
        left, right = a[:, :, None], b[None, :, :]
        counted = (left != right if operation == "xor" else (left & right) == 1).sum(axis=1)
        assert ((counted + c) & 0xFFFFFFFF == d).all()


@pytest.mark.parametrize("shape", ["m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"])
@pytest.mark.parametrize("mode", ["", ".rn", ".rz", ".rm", ".rp"])
def test_doubles_are_a_chain_of_fused_multiply_adds(on_registers: Any, shape: str, mode: str) -> None:
    from dotcu.simulator.semantics.arithmetic.rounding import round_fraction

    case = multiply(on_registers, shape, ("f64",) * 4, mode)
    for a, b, c, d in zip(case.a[:1], case.b, case.c, case.d, strict=False):
        for row in range(a.shape[0]):
            for column in range(8):
                total = float(c[row, column])
                for x, y in zip(a[row], b[:, column], strict=True):
                    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(total)
                    total = round_fraction(exact, mode[1:] or "rn")
                assert d[row, column].view(np.float64) == total


def test_infinities_nans_and_subnormals_of_halves(on_registers: Any) -> None:
    def special(rng: np.random.Generator, type_: str, rows: int, columns: int) -> tuple[Array, Array]:
        values = rng.choice([0.0, 1.0, -2.0, 2.0**-24, 65504.0], (rows, columns)).astype(np.float16)
        values[0, 0], values[1, 1] = (np.inf, np.nan) if rows == 16 else (0.0, 1.0)
        return values.astype(np.float64), values.view(np.uint16).astype(np.uint64)

    case = multiply(on_registers, "m16n8k16", ("f32", "f16", "f16", "f32"), a=special, b=special)
    with np.errstate(invalid="ignore"):
        for a, b, c, d in zip(case.a, case.b, case.c, case.d, strict=True):
            got, exact = d.astype(np.uint32).view(np.float32), (a @ b + c).astype(np.float32)
            assert np.isnan(got).any()
            assert np.array_equal(np.isnan(got), np.isnan(exact))
            assert np.isclose(got, exact, rtol=2.0**-22, equal_nan=True).all()
            assert (d[np.isnan(got)] == 0x7FFFFFFF).all()


# m8n8k4 of f16: four products in a warp


def quad(rows_by_lane: bool, lane: int, i: int) -> tuple[int, int]:
    """Row and column of A by rows, with B by columns its transpose; else those of A by columns."""
    high = 0 if lane < 16 else 4
    return (lane % 4 + high, i) if rows_by_lane else (i % 4 + high, lane % 4)


@pytest.mark.parametrize("layouts", ["row.row", "row.col", "col.row", "col.col"])
@pytest.mark.parametrize(("d", "c"), [("f16", "f16"), ("f32", "f32"), ("f32", "f16")])
def test_quads_of_halves(on_registers: Any, layouts: str, d: str, c: str) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-8, 9, (4, 8, 4)), rng.integers(-8, 9, (4, 4, 8))
    sums = rng.integers(-99, 99, (4, 8, 8))
    words = np.zeros((16, 32), np.uint64)

    def put(first: int, lane: int, i: int, value: int, type_: str) -> None:
        raw = int(np.float16(value).view(np.uint16)) if type_ == "f16" else int(np.float32(value).view("u4"))
        per_word = 2 if type_ == "f16" else 1
        words[first + i // per_word, lane] |= np.uint64(raw << (16 * (i % per_word)))

    def place(type_: str, lane: int, i: int) -> tuple[int, int]:
        high = 0 if lane < 16 else 4
        if type_ == "f16":
            return lane % 4 + high, i
        return (lane & 1) + (i & 2) + high, (i & 4) + (lane & 2) + (i & 1)

    alayout, blayout = layouts.split(".")
    for lane in range(32):
        q = lane % 16 // 4
        for i in range(4):
            put(0, lane, i, a[(q, *quad(alayout == "row", lane, i))], "f16")
            column, row = quad(blayout == "col", lane, i)
            put(2, lane, i, b[q, row, column], "f16")
        for i in range(8):
            put(4, lane, i, sums[(q, *place(c, lane, i))], c)
    counts = {"f16": 4, "f32": 8}
    text = f"mma.sync.aligned.m8n8k4.{layouts}.{d}.f16.f16.{c} {spelled('o', 0, counts[d])}, "
    text += f"{spelled('i', 0, 2)}, {spelled('i', 2, 2)}, {spelled('i', 4, counts[c])};"
    outs, _ = on_registers(text, [w.astype(np.uint32) for w in words[: 4 + counts[c]]], ["u4"] * counts[d])
    expected = a @ b + sums
    for lane in range(32):
        for i in range(8):
            where = (lane % 16 // 4, *place(d, lane, i))
            if d == "f16":
                got = outs[i // 2][lane : lane + 1].view(np.float16)[i % 2]
            else:
                got = outs[i][lane : lane + 1].view(np.float32)[0]
            assert got == expected[where]
