"""Operations of tiles, one at a time, against NumPy and against exact arithmetic of Python."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dotcu.errors import UnsupportedInstruction
from dotcu.simulator.tile.access import update_of
from dotcu.simulator.tile.decode import BINDERS
from dotcu.simulator.tile.operations import (
    COMPUTED,
    constant,
    from_bits,
    reduce_tiles,
    rounded,
    scan_tiles,
    to_bits,
)
from dotcu.simulator.tile.state import TileDecoder
from dotcu.tile_ir.module import Region, SourceLocation, TileConstant, TileFunction, TileOperation, TileType
from dotcu.tile_ir.table import OPERATIONS, TERMINATORS

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def tile(element: str, *shape: int) -> TileType:
    return TileType(kind="tile", element=element, shape=shape)


def operation(
    name: str, *operands: TileType, result: TileType, **attributes: Any
) -> tuple[TileOperation, TileFunction]:
    """Return an operation on values that are numbered in order, and a function of it alone."""
    count = len(operands)
    made = TileOperation(
        name=name,
        operands={f"operand {at}": (at,) for at in range(count)},
        results=(count,),
        attributes=attributes,
        lines=(SourceLocation("k.cu", 3),),
    )
    end = TileOperation(name="return", operands={}, results=(), attributes={})
    body = Region(tuple(range(count)), (made, end))
    return made, TileFunction(name="k", types=(*operands, result), body=body, hints={})


def apply(name: str, *arrays: np.ndarray, elements: str, to: str = "", **attributes: Any) -> np.ndarray:
    """Return what an operation makes of arrays whose elements are of one type."""
    types = [tile(elements, *array.shape) for array in arrays]
    function = COMPUTED[name](
        *operation(name, *types, result=tile(to or elements, *arrays[0].shape), **attributes)
    )
    return np.asarray(function(*arrays))


I8 = np.array([-128, -127, -7, -1, 0, 1, 2, 7, 100, 127], np.int8)
PAIRS = tuple(each.reshape(-1) for each in np.meshgrid(I8, I8))


def wrapped(value: int) -> int:
    return (value + 128) % 256 - 128


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("addi", lambda a, b: a + b),
        ("subi", lambda a, b: a - b),
        ("muli", lambda a, b: a * b),
        ("mulhii", lambda a, b: ((a % 256) * (b % 256)) >> 8),
    ],
)
def test_integers_wrap_around(name: str, exact: Any) -> None:
    given = apply(name, *PAIRS, elements="i8", overflow="none")
    assert given.tolist() == [wrapped(exact(int(a), int(b))) for a, b in zip(*PAIRS, strict=True)]


@pytest.mark.parametrize("rounding", ["zero", "negative_inf", "positive_inf"])
@pytest.mark.parametrize("signedness", ["signed", "unsigned"])
def test_quotients_round_as_told(rounding: str, signedness: str) -> None:
    a, b = (each[PAIRS[1] != 0] for each in PAIRS)
    given = apply("divi", a, b, elements="i8", rounding=rounding, signedness=signedness)
    for x, y, q in zip(a.tolist(), b.tolist(), given.tolist(), strict=True):
        if signedness == "unsigned":
            x, y = x % 256, y % 256
        floor, rest = divmod(x, y)
        up = rest != 0 and (rounding == "positive_inf" or (rounding == "zero" and (x < 0) != (y < 0)))
        assert q == wrapped(floor + up)


@pytest.mark.parametrize("signedness", ["signed", "unsigned"])
def test_comparisons_extremes_and_remainders_by_sign(signedness: str) -> None:
    a, b = PAIRS
    x, y = (a, b) if signedness == "signed" else (a.view(np.uint8), b.view(np.uint8))
    less = apply("cmpi", a, b, elements="i8", comparison_predicate="less_than", signedness=signedness)
    assert less.tolist() == (x < y).tolist()
    assert (
        apply("maxi", a, b, elements="i8", signedness=signedness).tolist()
        == np.maximum(x, y).view(np.int8).tolist()
    )
    some = y != 0
    rest = apply("remi", a[some], b[some], elements="i8", signedness=signedness)
    assert rest.tolist() == np.fmod(x[some].astype(int), y[some].astype(int)).astype(np.int8).tolist()


def test_shifts_by_as_many_bits_as_there_are() -> None:
    a, by = np.array([-8, -8, 5], np.int8), np.array([1, 8, 9], np.int8)
    assert apply("shli", a, by, elements="i8", overflow="none").tolist() == [-16, 0, 0]
    assert apply("shri", a, by, elements="i8", signedness="signed").tolist() == [-4, -1, 0]
    assert apply("shri", a, by, elements="i8", signedness="unsigned").tolist() == [124, 0, 0]


def test_booleans_have_one_bit() -> None:
    a, b = np.array([True, True, False]), np.array([True, False, False])
    assert apply("addi", a, b, elements="i1", overflow="none").tolist() == [False, True, False]
    assert apply("exti", a, elements="i1", to="i32", signedness="signed").tolist() == [-1, -1, 0]
    assert apply("exti", a, elements="i1", to="i32", signedness="unsigned").tolist() == [1, 1, 0]
    assert apply("trunci", np.array([2, 3]), elements="i64", to="i1", overflow="none").tolist() == [
        False,
        True,
    ]


RNG = np.random.default_rng(3)
HALVES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("element", HALVES)
@pytest.mark.parametrize(("name", "exact"), [("addf", np.add), ("mulf", np.multiply), ("divf", np.divide)])
def test_halves_round_once(element: str, name: str, exact: Any) -> None:
    a, b = (RNG.standard_normal(500).astype(HALVES[element]) for _ in range(2))
    given = apply(
        name, a.astype(np.float32), b.astype(np.float32), elements=element, rounding_mode="nearest_even"
    )
    expected = exact(a.astype(np.float64), b.astype(np.float64)).astype(HALVES[element])
    np.testing.assert_array_equal(given, expected.astype(np.float32))


@pytest.mark.parametrize("mode", ["zero", "negative_inf", "positive_inf"])
def test_sums_in_other_rounding_modes(mode: str) -> None:
    a, b = RNG.standard_normal(500).astype(np.float32), RNG.standard_normal(500).astype(np.float32)
    given = apply("addf", a, b, elements="f32", rounding_mode=mode).astype(np.float64)
    exact = a.astype(np.float64) + b.astype(np.float64)
    step = np.spacing(np.abs(given).astype(np.float32)).astype(np.float64)
    if mode == "zero":
        assert (np.abs(given) <= np.abs(exact)).all()
    elif mode == "negative_inf":
        assert (given <= exact).all()
    else:
        assert (given >= exact).all()
    assert (np.abs(given - exact) < step).all()


def test_subnormals_flush_where_told() -> None:
    tiny = np.array([1e-40, -1e-40, 1.0], np.float32)
    one = np.ones(3, np.float32)
    flushed = apply("mulf", tiny, one, elements="f32", rounding_mode="nearest_even", flush_to_zero=True)
    assert flushed.tolist() == [0.0, -0.0, 1.0]
    assert apply("mulf", tiny, one, elements="f32", rounding_mode="nearest_even")[0] != 0


def test_extremes_and_nan() -> None:
    a, b = np.array([1, np.nan, -0.0], np.float32), np.array([np.nan, np.nan, 0.0], np.float32)
    plain = apply("maxf", a, b, elements="f32")
    assert plain[0] == 1
    assert np.isnan(plain[1])
    assert not np.signbit(plain[2])
    assert np.isnan(apply("minf", a, b, elements="f32", propagate_nan=True)[:2]).all()


def test_comparisons_with_nan() -> None:
    a, b = np.array([1, np.nan], np.float32), np.array([2, 2], np.float32)

    def compared(predicate: str, ordering: str) -> list[bool]:
        told = {"comparison_predicate": predicate, "comparison_ordering": ordering}
        return list(apply("cmpf", a, b, elements="f32", **told))

    assert compared("less_than", "ordered") == [True, False]
    assert compared("less_than", "unordered") == [True, True]
    assert compared("not_equal", "ordered") == [True, False]
    assert compared("not_equal", "unordered") == [True, True]


def test_floats_to_integers_truncate_and_saturate() -> None:
    x = np.array([1.9, -1.9, 300, -300, np.nan, np.inf], np.float32)
    attributes = {"signedness": "signed", "rounding_mode": "nearest_int_to_zero", "saturating": True}
    assert apply("ftoi", x, elements="f32", to="i8", **attributes).tolist() == [1, -1, 127, -128, 0, 127]
    attributes["signedness"] = "unsigned"
    assert apply("ftoi", x, elements="f32", to="i8", **attributes).view(np.uint8).tolist() == [
        1,
        0,
        255,
        0,
        0,
        255,
    ]


def test_large_integers_round_once() -> None:
    x = np.array([(1 << 24) + 1, (1 << 53) + 1, (1 << 62) + (1 << 38) + 1, -1])
    given = apply("itof", x, elements="i64", to="f32", signedness="signed", rounding_mode="nearest_even")
    assert given.tolist() == [float(np.float32(int(value))) for value in x[:2]] + [
        float((1 << 62) + (1 << 39)), -1.0,
    ]  # fmt: skip
    top = apply("itof", x[3:], elements="i64", to="f64", signedness="unsigned", rounding_mode="nearest_even")
    assert top.tolist() == [2.0**64]


@pytest.mark.parametrize(
    "element", ["f8E4M3FN", "f8E5M2", "f4E2M1FN", "f8E8M0FNU", "fnv8E5M3FNU", "f16", "bf16", "f64", "i16"]
)
def test_each_bit_pattern_comes_back(element: str) -> None:
    width = {"f64": 8, "f16": 2, "bf16": 2, "i16": 2}.get(element, 1)
    bits = np.arange(16 if element == "f4E2M1FN" else 256, dtype=np.uint8)
    if width > 1:
        bits = RNG.integers(0, 1 << 15, 500).astype(f"u{width}") << np.uint8(8 * (width - 2))
    values = from_bits(bits, element)
    kept = ~np.isnan(values.astype(np.float64))
    np.testing.assert_array_equal(to_bits(values, element)[kept], bits[kept])


def test_tf32_rounds_in_its_modes() -> None:
    x = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-12], np.float32)
    step = 2.0**-10
    assert rounded(x, "tf32", "nearest_even").tolist() == [1.0, 1 + 2 * step, 1.0]
    assert rounded(x, "tf32", "nearest_away").tolist() == [1 + step, 1 + 2 * step, 1.0]
    assert rounded(x, "tf32", "zero").tolist() == [1.0, 1 + step, 1.0]


def test_constants_of_one_and_of_many_elements() -> None:
    assert constant(TileConstant(tile("i32", 2, 2), b"\x07\0\0\0")).tolist() == [[7, 7], [7, 7]]
    many = constant(TileConstant(tile("i8", 4), bytes([1, 2, 255, 4])))
    assert many.tolist() == [1, 2, -1, 4]
    assert constant(TileConstant(tile("bf16"), b"\x80\x3f")) == 1.0


@pytest.mark.parametrize(("element", "depth"), [("f16", 64), ("bf16", 16), ("f64", 16), ("f8E4M3FN", 32)])
def test_matrix_products(element: str, depth: int) -> None:
    a, b = RNG.integers(-4, 5, (16, depth)), RNG.integers(-4, 5, (depth, 32))
    held = np.float64 if element == "f64" else np.float32
    c = np.full((16, 32), 2, held)
    target = "f64" if element == "f64" else "f32"
    types = (tile(element, 16, depth), tile(element, depth, 32), tile(target, 16, 32))
    run = COMPUTED["mmaf"](*operation("mmaf", *types, result=types[2]))
    np.testing.assert_array_equal(run(a.astype(held), b.astype(held), c), a @ b + 2)


def test_integer_matrix_products_by_sign() -> None:
    a, b = (RNG.integers(-128, 128, (16, 16)).astype(np.int8) for _ in range(2))
    types = (tile("i8", 16, 16), tile("i8", 16, 16), tile("i32", 16, 16))
    signs = {"signedness_lhs": "unsigned", "signedness_rhs": "signed"}
    run = COMPUTED["mmai"](*operation("mmai", *types, result=types[2], **signs))
    expected = a.view(np.uint8).astype(int) @ b.astype(int) + 5
    assert (run(a, b, np.full((16, 16), 5, np.int32)) == expected).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_keep_their_order(axis: int) -> None:
    x = np.arange(8 * 4).reshape(8, 4)

    def joined(pairs: Any) -> list[np.ndarray]:  # the later one is first: associative, not commutative
        later, earlier = pairs
        return [np.char.add(earlier, later)]

    words = x.astype(str).astype("U64")
    (reduced,) = reduce_tiles([words], axis, joined)
    assert reduced.tolist() == ["".join(row) for row in np.moveaxis(words, axis, -1)]
    (running,) = scan_tiles([words], axis, joined, reverse=False)
    assert np.moveaxis(running, axis, 0)[-1].tolist() == reduced.tolist()


def test_scans_from_the_end() -> None:
    x = np.arange(1, 9)
    (running,) = scan_tiles([x], 0, lambda pairs: [pairs[0] + pairs[1]], reverse=True)
    assert running.tolist() == x[::-1].cumsum()[::-1].tolist()


MODES = {
    "and": 4, "or": -2, "xor": -6, "add": 2, "max": 6, "min": -4, "umax": -4, "umin": 6, "xchg": 6,
}  # fmt: skip


@pytest.mark.parametrize(("mode", "expected"), MODES.items())
def test_atomic_operations(mode: str, expected: int) -> None:
    old, operand = np.array([-4], np.int32), np.array([6], np.int32)
    assert update_of(mode, "i32")(old, operand).tolist() == [expected]


def test_every_operation_that_is_read_is_executed_or_refused_by_name_and_line() -> None:
    _, function = operation("nothing", result=tile("i32"))
    with pytest.raises(UnsupportedInstruction, match=r"k\.cu:3: the simulator does not execute `nothing`"):
        TileDecoder(function, BINDERS)
    assert {form.name for form in OPERATIONS.values()} >= TERMINATORS


def test_scales_of_five_and_three_bits_round_to_nearest_even() -> None:
    x = np.array([1.0, 1.0625, 1.1875, 0.0, 1e9, 2.0**-17, -1.0], np.float32)
    assert rounded(x, "fnv8E5M3FNU").tolist() == [1.0, 1.0, 1.25, 0.0, 2.0**16 * 1.75, 2.0**-17, 0.0]
