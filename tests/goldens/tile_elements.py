"""Golden cases of one tile operation on each element: arithmetic, comparisons, conversions, functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from golden_recipes import Array, Recipe, angles, exponents, positive_f32
from tile_case import EXACT, Bound, Data, TileCase, case, elementwise, floats, out
from tile_recipes import amounts, convertible, divisors, permutation, ties, values, within

Arrays = Mapping[str, Array]
INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
OPS = "Tile IR, "
MATH = "CUDA C++ Programming Guide, Mathematical Functions; twice, for both sides"


def arithmetic() -> Iterator[TileCase]:
    """Integers and floating-point numbers, element by element."""
    binary: Mapping[str, tuple[str, ...]] = {
        **dict.fromkeys(("add", "sub", "mul"), (*INTEGERS, *FLOATS)),
        "minimum": (*INTEGERS[4:], *FLOATS),
        "maximum": (*INTEGERS[:4], *FLOATS),
        **dict.fromkeys(("minimum_nan", "maximum_nan"), ("f16", "f32", "f64")),
        "mulhi": INTEGERS[4:],
        **dict.fromkeys(("bits_and", "bits_or", "bits_xor"), ("i8", "u32", "i64")),
        "quotient": FLOATS,
        "modulo": ("f32", "f64"),
        **dict.fromkeys(("add_toward_zero", "add_downward", "add_upward"), ("f32", "f64")),
        **dict.fromkeys(("sub_downward", "mul_toward_zero", "mul_upward", "divide_downward"), ("f32", "f64")),
        **dict.fromkeys(("add_flush", "mul_flush", "divide_flush", "maximum_flush"), ("f32",)),
    }
    for op, types in binary.items():
        for t in types:
            yield elementwise("arithmetic", f"{op}<{t}>", {"x": (t, values(t)), "y": (t, values(t))}, t)
    yield from _quotients()
    yield from _shifts()
    yield from _of_one_and_of_three()


def _quotients() -> Iterator[TileCase]:
    for op, bound in APPROXIMATE_QUOTIENTS.items():
        operands = {"x": ("f32", values("f32")), "y": ("f32", values("f32"))}
        yield elementwise("arithmetic", f"{op}<f32>", operands, "f32", bound)
    for op, types in {
        **dict.fromkeys(("quotient", "modulo"), INTEGERS),
        "ceildiv": ("i32", "u32", "i64"),
        "floordiv": ("i8", "i32", "u32"),
    }.items():
        for t in types:
            yield elementwise("arithmetic", f"{op}<{t}>", {"x": (t, values(t)), "y": (t, divisors(t))}, t)


def _shifts() -> Iterator[TileCase]:
    for op in ("shift_left", "shift_right"):
        for t in INTEGERS:
            yield elementwise("arithmetic", f"{op}<{t}>", {"x": (t, values(t)), "y": (t, amounts(t))}, t)


def _of_one_and_of_three() -> Iterator[TileCase]:
    for op, types in {
        "negate": ("i8", "i32", "i64", *FLOATS),
        "absolute": ("i8", "i32", "i64", *FLOATS),
        "complement": ("u8", "i32", "u64"),
    }.items():
        for t in types:
            yield elementwise("arithmetic", f"{op}<{t}>", {"x": (t, values(t))}, t)
    for op, types in {
        "fma": FLOATS,
        **dict.fromkeys(("fma_toward_zero", "fma_upward"), ("f32", "f64")),
        "fma_flush": ("f32",),
    }.items():
        for t in types:
            three = {n: (t, values(t)) for n in "xyz"}
            yield elementwise("arithmetic", f"{op}<{t}>", three, t)


def _ordinary_divisor(inputs: Arrays) -> Array:
    """Where the approximate quotient has a bound."""
    size = np.abs(floats("f32", inputs["y"]))
    return np.asarray((size >= 2.0**-126) & (size <= 2.0**126))


APPROXIMATE_QUOTIENTS = {
    "divide_full": Bound(ulps=2.5, source=OPS + "divf: full, 2 ulp in the full range"),
    "divide_approximate": Bound(
        ulps=2.5, source=OPS + "divf: approx, 2 ulp for divisors in [2^-126, 2^126]", where=_ordinary_divisor
    ),
}


def compare() -> Iterator[TileCase]:
    """Comparisons, logic and selection."""
    for op in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"):
        for t in ("i8", "i32", "u32", "i64", "u64", *FLOATS):
            yield elementwise(
                "compare", f"{op}<{t}, bool>", {"x": (t, values(t)), "y": (t, values(t))}, "bool"
            )
    for op, types in {"both": ("i16", "f32"), "either": ("u16", "f64")}.items():
        for t in types:
            yield elementwise("compare", f"{op}<{t}, bool>", {"x": (t, ties(t)), "y": (t, ties(t))}, "bool")
    yield elementwise("compare", "negated<f32, bool>", {"x": ("f32", values("f32"))}, "bool")
    for op in ("is_nan", "is_inf"):
        for t in FLOATS:
            yield elementwise("compare", f"{op}<{t}, bool>", {"x": (t, values(t))}, "bool")
    for op in ("select", "select_rows"):
        for t in ("i8", "u64", "bf16", "f32"):
            yield elementwise("compare", f"{op}<{t}>", {"x": (t, values(t)), "y": (t, values(t))}, t)
    for op, result in {"compare_pointers": "bool", "pointer_difference": "i64"}.items():
        operands = {"x": ("f32", values("f32")), "y": ("i32", permutation())}
        yield elementwise("compare", f"{op}<f32>", operands, result)


def convert() -> Iterator[TileCase]:
    """Conversions between element types."""
    for source in (*FLOATS, "e4m3", "e5m2"):
        for to in (*FLOATS, "e4m3", "e5m2"):
            if source != to:
                yield elementwise("convert", f"cast<{source}, {to}>", {"x": (source, values(source))}, to)
    yield from _between_floats_and_integers()
    yield from _with_modes()
    yield from _same_bits()


def _between_floats_and_integers() -> Iterator[TileCase]:
    for source in FLOATS:
        for to in INTEGERS if source in ("f32", "f64") else ("i8", "u8", "i32", "u64"):
            operand = {"x": (source, convertible(source, to))}
            yield elementwise("convert", f"cast<{source}, {to}>", operand, to)
    for source in INTEGERS:
        for to in FLOATS:
            yield elementwise("convert", f"cast<{source}, {to}>", {"x": (source, values(source))}, to)
    for source, to in (
        ("i64", "i8"), ("i8", "i64"), ("u8", "i32"), ("i8", "u32"), ("u64", "i16"), ("i32", "u16"),
        ("i32", "bool"), ("f32", "bool"), ("bool", "i32"), ("bool", "f32"), ("bool", "i8"),
    ):  # fmt: skip
        yield elementwise("convert", f"cast<{source}, {to}>", {"x": (source, values(source))}, to)


def _with_modes() -> Iterator[TileCase]:
    for source, to in (("f32", "f16"), ("f32", "bf16"), ("f64", "f32"), ("f64", "f16")):
        yield elementwise("convert", f"cast_toward_zero<{source}, {to}>", {"x": (source, values(source))}, to)
    for op in ("cast_downward", "cast_upward"):
        yield elementwise("convert", f"{op}<f64, f32>", {"x": ("f64", values("f64"))}, "f32")
    for source in FLOATS:
        for to in ("i8", "u8", "i32", "u32", "i64", "u64") if source in ("f32", "f64") else ("i16", "i32"):
            yield elementwise(
                "convert", f"cast_saturated<{source}, {to}>", {"x": (source, values(source))}, to
            )
    for op in ("tf32_to_even", "tf32_to_away", "tf32_toward_zero"):
        yield elementwise("convert", op, {"x": ("f32", values("f32"))}, "f32")


def _same_bits() -> Iterator[TileCase]:
    for source, to in (("f32", "i32"), ("i64", "f64"), ("bf16", "u16"), ("i16", "f16"), ("u8", "i8")):
        recipe = values(source)
        yield elementwise("convert", f"same_bits<{source}, {to}>", {"x": (source, recipe)}, to)
    yield case("convert", "pack_bytes", {"x": Data("u8", within("u8", 0, 256)), "out": out("u32", 32)})
    yield case(
        "convert", "unpack_bytes", {"x": Data("u32", within("u32", 0, 2**32, 32)), "out": out("u8", 128)}
    )


def _f32(recipe: Recipe) -> Recipe:
    """Words of 64 bits as the f32 in their lower half."""
    return lambda seed: recipe(seed).astype(np.uint32).view(np.float32)


def _operands(function: str, type: str) -> Recipe:
    """Arguments where a math function has values of many sizes."""
    if type == "f32":
        words = {"sin": angles, "cos": angles, "tan": angles, "log": positive_f32, "log2": positive_f32}
        words |= dict.fromkeys(("sqrt", "sqrt_upward", "sqrt_approximate", "rsqrt"), positive_f32)
        words |= {"rsqrt_flush": positive_f32, "ceil": angles, "floor": angles}
        words |= dict.fromkeys(("exp2", "exp2_flush"), exponents)
        if function in words:
            return _f32(words[function])
    low, high = {"sqrt": (0, 50), "rsqrt": (0.01, 50), "log": (0, 20), "log2": (0, 20)}.get(function, (-8, 8))
    return within(type, low, high)


# The maximum error of each function in f32 and in f64, in ulp; f16 and bf16 are computed in f32 and rounded.
# 0: correctly rounded, or exact.
FUNCTIONS: Mapping[str, tuple[float, float]] = {
    "exp": (2, 1), "exp2": (2, 1), "log": (1, 1), "log2": (1, 1), "sin": (2, 2), "cos": (2, 2),
    "tan": (4, 2), "sinh": (3, 2), "cosh": (2, 1), "tanh": (2, 1), "rsqrt": (2, 1), "sqrt": (0, 0),
    "ceil": (0, 0), "floor": (0, 0),
}  # fmt: skip
EMULATED = Bound(ulps=1, source=OPS + "computed in f32 and rounded: near a tie the other neighbour")
SOME_F32: Mapping[str, Bound] = {
    # x log2(e) is off by 2^-24 of it, as a product, and by 2^-26 by its constant: times |x| <= 8
    "exp_approximate": Bound(
        ulps=12.5, source=OPS + "exp: approx, exp2 with log2(e) scaling; ex2 errs by 2 ulp"
    ),
    "exp2_flush": Bound(ulps=2.5, source="PTX ISA, ex2.approx: 2 ulp"),
    "tanh_approximate": Bound(ulps=2**13, source="PTX ISA, tanh.approx.f32: relative error 2^-11"),
    "sqrt_approximate": Bound(ulps=2.5, source="PTX ISA, sqrt.approx.f32: relative error 2^-23"),
    "rsqrt_flush": Bound(ulps=3, source="PTX ISA, rsqrt.approx.ftz.f32: relative error 2^-22.9"),
    "sqrt_upward": EXACT,
}


def math() -> Iterator[TileCase]:
    """The math functions."""
    for function, errors in FUNCTIONS.items():
        for t in FLOATS:
            error = errors[t == "f64"]
            bound = EXACT if error == 0 else EMULATED if t in ("f16", "bf16") else Bound(2 * error, 0.0, MATH)
            operand = {"x": (t, _operands(function, t))}
            yield elementwise("math", f"{function}<{t}>", operand, t, bound)
    for function, bound in SOME_F32.items():
        yield elementwise(
            "math", f"{function}<f32>", {"x": ("f32", _operands(function, "f32"))}, "f32", bound
        )
    for t, error in (("f32", 4), ("f64", 2)):
        positive = {"x": (t, within(t, 0.01, 20)), "y": (t, within(t, -6, 6))}
        yield elementwise("math", f"pow<{t}>", positive, t, Bound(2 * error, 0.0, MATH))
    for t, error in (("f32", 3), ("f64", 2)):
        both = {"x": (t, values(t)), "y": (t, values(t))}
        yield elementwise("math", f"atan2<{t}>", both, t, Bound(2 * error, 0.0, MATH))
        whole = {"x": (t, within(t, -3, 3)), "y": ("i32", within("i32", -6, 7))}
        repeated = Bound(16, 0.0, "up to five products, and a quotient")
        yield elementwise("math", f"powi<{t}>", whole, t, repeated)
