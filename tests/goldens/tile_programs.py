"""Golden cases of tile operations on whole tiles and on memory, and of whole kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from golden_recipes import Recipe
from tile_case import DTYPES, EXACT, Bound, Data, TileCase, case, out
from tile_elements import FLOATS, INTEGERS
from tile_recipes import permutation, rounded, small_integers, ties, values, within

I32, F32, F64 = np.int32, np.float32, np.float64
ORDER = "the order of additions is the compiler's; error of each order, twice"

CUBE = (4, 8, 4)


def _reduced(dimension: int) -> int:
    return 128 // CUBE[dimension]


def reduce() -> Iterator[TileCase]:
    """Reductions and scans."""
    for op, types in {
        "sum": ("i8", "i32", "u64", *FLOATS),
        "product": ("i32", "u64", "f32", "f64"),
        "largest": ("i8", "u32", "i64", *FLOATS),
        "smallest": ("u8", "i32", "u64", *FLOATS),
    }.items():
        for t in types:
            for d in (0, 1, 2) if t in ("i32", "f32") else (1,):
                yield _reduction(op, t, d, out(t, _reduced(d)))
    yield from _places()
    yield from _bits_and_scans()


def _places() -> Iterator[TileCase]:
    for op in ("largest_nan", "smallest_nan"):
        for t in ("f16", "f32", "f64"):
            yield _reduction(op, t, 1, out(t, _reduced(1)))
    yield _reduction("sum_toward_zero", "f32", 1, out("f32", _reduced(1)))
    for op in ("where_largest", "where_smallest"):
        for t in ("i32", "u8", "f32", "f16"):
            for d in (0, 1, 2) if t == "f32" else (1,):
                yield _reduction(op, t, d, out("i32", _reduced(d)), ", i32")


def _bits_and_scans() -> Iterator[TileCase]:
    for op in ("all", "any"):
        yield _reduction(op, "i32", 2, out("bool", _reduced(2)), ", bool")
    for op in ("reduce_and", "reduce_or", "reduce_xor"):
        for t in ("u8", "i32", "u64"):
            yield _reduction(op, t, 2, out(t, _reduced(2)))
    for op in ("scan_sum", "scan_sum_backward", "scan_product", "scan_product_backward"):
        for t in ("i32", "u64", "f32", "f64"):
            for d in (0, 1, 2) if t == "i32" else (1,):
                yield _reduction(op, t, d, out(t, 128))


def _reduction(op: str, type: str, dimension: int, result: Data, second: str = "") -> TileCase:
    recipe, bound = values(type), EXACT
    if op.startswith("where"):
        recipe = ties(type)
    elif op in ("all", "any"):
        recipe = within(type, 0 if op == "any" else 1, 3)
    elif type in FLOATS and ("sum" in op or "product" in op):
        recipe = within(type, 0.5, 1.5)  # positive: then each of 7 steps errs by half an ulp, or by one
        bound = Bound(14, 0.0, ORDER)
    kernel = f"{op}<{type}, {dimension}{second}>"
    return case("reduce", kernel, {"x": Data(type, recipe), "out": result}, bounds=bound)


def shape() -> Iterator[TileCase]:
    """Tiles from nothing, and tiles of other shapes."""
    for t in ("i8", "u16", "i32", "u64"):
        yield case("shape", f"iota<{t}>", {"out": out(t, 128)})
    for t, value in (("i8", np.int8(-7)), ("i64", np.int64(-(2**40))), ("f32", F32(0.1)), ("f64", F64(-0.0))):
        yield case("shape", f"filled<{t}>", {"value": value, "out": out(t, 96)})
    constants = {"ints": out("i32", 8), "floats": out("f32", 4), "halves": out("f16", 4)}
    yield case("shape", "constants", constants)
    for op, size in {"broadcast": 128, "reshape": 32, "permute": 128, "transpose": 128, "cat": 128}.items():
        for t in ("u8", "i32", "f64") if op != "reshape" else ("u8", "i32", "u64"):
            yield case("shape", f"{op}<{t}>", {"x": Data(t, values(t)), "out": out(t, size)})
    for t in ("i32", "bf16"):
        yield case("shape", f"extract<{t}>", {"x": Data(t, values(t)), "row": I32(2), "out": out(t, 16)})
    for t in ("i32", "f32"):
        yield case("shape", f"insert<{t}>", {"x": Data(t, values(t)), "column": I32(2), "out": out(t, 128)})


_K = 32


def _product_bound(unit: float) -> Bound:
    """For operands in [-1, 1): each of 32 additions errs by a unit of the largest partial sum."""
    return Bound(
        1, _K * (_K + 1) * unit, "tensor cores add in an order of their own, and cut below f32's last bit"
    )


def mma() -> Iterator[TileCase]:
    """Matrix products."""
    a, b, c = 16 * _K, _K * 16, 256
    for t, acc in (
        ("f16", "f16"), ("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("f64", "f64"),
        ("e4m3", "f32"), ("e4m3", "f16"), ("e5m2", "f32"), ("e5m2", "f16"),
    ):  # fmt: skip
        args = {"x": Data(t, small_integers(t, a)), "y": Data(t, small_integers(t, b))}
        args |= {"z": Data(acc, small_integers(acc, c)), "out": out(acc, 256)}
        yield case("mma", f"mma<{t}, {acc}>", args, name=f"mma<{t}, {acc}> whole")
    for t, acc, unit in (
        ("f16", "f16", 2.0**-11), ("f16", "f32", 2.0**-23),
        ("bf16", "f32", 2.0**-23), ("f32", "f32", 2.0**-23), ("f64", "f64", 2.0**-53),
    ):  # fmt: skip
        args = {"x": Data(t, within(t, -1, 1, a)), "y": Data(t, within(t, -1, 1, b))}
        args |= {"z": Data(acc, within(acc, -1, 1, c)), "out": out(acc, 256)}
        yield case("mma", f"mma<{t}, {acc}>", args, bounds=_product_bound(unit))
    args = {"x": Data("f32", within("f32", -1, 1, a)), "y": Data("f32", within("f32", -1, 1, b))}
    args |= {"z": Data("f32", within("f32", -1, 1, c)), "out": out("f32", 256)}
    yield case("mma", "mma_tf32", args, bounds=_product_bound(2.0**-23))
    for x, y in (("i8", "i8"), ("u8", "u8"), ("i8", "u8"), ("u8", "i8")):
        low = {"i8": (-128, 128), "u8": (0, 256)}
        args = {"x": Data(x, within(x, *low[x], a)), "y": Data(y, within(y, *low[y], b))}
        args |= {"z": Data("i32", within("i32", -(2**20), 2**20, c)), "out": out("i32", 256)}
        yield case("mma", f"mma_bytes<{x}, {y}>", args)
    for t, acc in (("bf16", "f32"), ("f16", "f32"), ("e4m3", "f32")):
        args = {"x": Data(t, small_integers(t, 4096)), "y": Data(t, small_integers(t, 4096))}
        yield case("mma", f"mma_large<{t}, {acc}>", {**args, "out": out(acc, 4096)})
    for t, acc in (("f16", "f32"), ("i8", "i32"), ("f64", "f64")):
        args = {"x": Data(t, small_integers(t, 128)), "y": Data(t, small_integers(t, 512))}
        args |= {"z": Data(acc, small_integers(acc, 256)), "out": out(acc, 256)}
        yield case("mma", f"mma_batched<{t}, {acc}>", args)
    for t, acc in (("bf16", "f32"), ("f16", "f16")):
        args = {"x": Data(t, small_integers(t, 256)), "y": Data(t, small_integers(t, 256))}
        yield case("mma", f"matmul<{t}, {acc}>", {**args, "out": out(acc, 256)})


def _paddings() -> Iterator[TileCase]:
    for t in ("f32", "f16", "bf16"):
        for padding in ("zero", "negative_zero", "positive_inf", "negative_inf", "nan"):
            yield _padded(t, padding)
    for t in ("i32", "u8", "f64"):
        yield _padded(t, "zero")


def _padded(type: str, padding: str) -> TileCase:
    args = {"x": Data(type, within(type, 1, 5, 13 * 21)), "out": out(type, 512)}
    args |= {"m": I32(13), "n": I32(21)}
    return case("memory", f"padded<{type}, ct::view_padding::{padding}>", args, grid=(2, 2))


def memory() -> Iterator[TileCase]:
    """Loads, stores and atomics."""
    for t in ("i8", "i32", "f64"):
        args = {"x": Data(t, values(t)), "index": Data("i32", within("i32", 0, 128)), "out": out(t, 128)}
        yield case("memory", f"gather<{t}>", args)
        yield case("memory", f"scatter<{t}>", {**args, "index": Data("i32", permutation())})
        args = {"x": Data(t, values(t)), "out": out(t, 128), "first": I32(5), "count": I32(77)}
        yield case("memory", f"masked<{t}>", {**args, "padding": DTYPES[t].type(42)})
        yield case(
            "memory", f"scalars<{t}>", {"x": Data(t, within(t, -9, 9, 5)), "out": out(t, 4)}, grid=(4,)
        )
    twice = {"x": Data("f32", within("f32", -1, 1, 96)), "out": out("u64", 128)}
    yield case("memory", "pointer_casts<f32>", twice)
    chosen = Data("i32", within("i32", 0, 8, 6))
    yield case("memory", "table", {"x": chosen, "out": out("i32", 6)}, grid=(6,))
    for t in ("u8", "bf16", "f32"):
        args = {"x": Data(t, within(t, 0, 100, 512)), "out": out(t, 512)}
        yield case("memory", f"copy_blocks<{t}>", args, grid=(2, 2))
    yield from _paddings()
    for t in ("i32", "f16"):
        sizes = {"m": I32(11), "n": I32(13)}
        args = {"x": Data(t, within(t, 1, 99, 143)), "out": out(t, 143)}
        yield case("memory", f"store_borders<{t}>", {**args, **sizes}, grid=(2, 2))
        yield case("memory", f"columns_first<{t}>", {**args, **sizes}, grid=(2,))
        args = {"x": Data(t, within(t, 1, 99, 256)), "out": out(t, 128)}
        strides = {"rows": I32(6), "row_stride": I32(3), "column_stride": I32(20)}
        yield case("memory", f"strided_layout<{t}>", {**args, **strides})
        sizes = {"m": I32(7), "n": I32(11), "stride": I32(30)}
        yield case("memory", f"padded_rows<{t}>", {**args, **sizes})
    args = {"x": Data("f32", values("f32")), "out": out("f32", 128), "n": I32(104)}
    yield case("memory", "promised<f32>", args)
    args = {"x": Data("i32", within("i32", 0, 999, 120)), "out": out("i32", 256), "n": I32(120)}
    yield case("memory", "overlapping<i32>", args, grid=(4,))
    args = {"x": Data("f32", within("f32", 1, 2, 12 * 30)), "index": Data("i32", within("i32", 0, 15, 8))}
    yield case("memory", "gather_rows<f32>", {**args, "out": out("f32", 128), "m": I32(12), "n": I32(30)})
    yield from atomics()


def atomics() -> Iterator[TileCase]:
    """Each element of a permutation of cells once, so that what was there before is known; and crowds."""
    for op, types in {
        "atomic_add": (*INTEGERS[4:], "f16", "bf16", "f32", "f64"),
        "atomic_sub": ("i32", "u64", "f32"),
        **dict.fromkeys(("atomic_min", "atomic_max"), INTEGERS[4:]),
        **dict.fromkeys(("atomic_and", "atomic_or", "atomic_xor"), ("u32", "i64")),
        "atomic_xchg": ("i32", "u64", "f32", "f64"),
    }.items():
        for t in types:
            args = {"cells": Data(t, values(t), compared=True), "index": Data("i32", permutation())}
            args |= {"y": Data(t, values(t)), "old": out(t, 128)}
            yield case("memory", f"{op}<{t}>", args)
    for t in ("i32", "u64", "f32"):
        args = {"cells": Data(t, within(t, 0, 2), compared=True), "index": Data("i32", permutation())}
        args |= {"expected": Data(t, within(t, 0, 2)), "y": Data(t, values(t)), "old": out(t, 128)}
        yield case("memory", f"atomic_cas<{t}>", args)
    args = {"cells": Data("i32", values("i32"), compared=True), "y": Data("i32", values("i32"))}
    yield case("memory", "atomic_add_masked<i32>", {**args, "count": I32(50), "old": out("i32", 128)})
    for t in ("i32", "u64"):
        args = {"cells": Data(t, within(t, 0, 99, 8), compared=True), "y": Data(t, within(t, 0, 2**30, 1024))}
        yield case("memory", f"atomic_contended<{t}>", args, grid=(8,))
        args = {
            "sums": Data(t, within(t, 0, 9), compared=True),
            "largest": Data(t, within(t, 0, 9), compared=True),
        }
        args |= {"y": Data(t, within(t, 0, 2**20, 512)), "n": I32(100)}
        yield case("memory", f"view_atomics<{t}>", args, grid=(4,))
        yield case("memory", f"atomic_load_store<{t}>", {"x": Data(t, values(t)), "out": out(t, 128)})


def control() -> Iterator[TileCase]:
    """Control flow, scalars, tile blocks."""
    half, brain = np.float16(-1.375), np.uint16(0xC2F7)
    given = {
        "on": np.bool_(True), "a": np.int8(-100), "b": np.uint16(50000), "c": I32(-123456789),
        "d": np.uint32(4000000000), "e": np.int64(-(2**60)), "f": np.uint64(2**63 + 2**40), "g": F32(0.1),
        "h": F64(-1e300), "i": half, "j": brain,
    }  # fmt: skip
    yield case("control", "arguments", {"out": out("f64", 16), **given})
    yield case("control", "block_ids", {"out": out("i32", 24)}, grid=(2, 3, 4))
    line, some = Data("f32", within("f32", -4, 4)), Data("i32", within("i32", -99, 99))
    for count in (0, 1, 7):
        args = {"x": Data("f32", small_integers("f32", 128)), "out": out("f32", 128), "count": I32(count)}
        yield case("control", "loop_carried", args, name=f"loop_carried {count}")
    for steps in ((0, 10, 3), (-7, 20, 5), (4, 4, 1), (9, 2, 1)):
        args = {"out": out("i32", 2), **dict(zip(("first", "end", "step"), map(I32, steps), strict=True))}
        yield case("control", "loop_steps", args, name=f"loop_steps {steps}")
    yield case("control", "loop_nested", {"x": some, "out": out("i32", 128), "m": I32(3), "n": I32(5)})
    numbers = Data("i32", lambda seed: np.array([4, 8, 2, 7, -6, 9, 3, 12], np.int32))
    for stop in (9, 1):
        args = {"x": numbers, "out": out("i32", 2), "n": I32(8), "stop": I32(stop)}
        yield case("control", "loop_break", args, name=f"loop_break {stop}")
    yield case("control", "loop_continue", {"x": numbers, "out": out("i32", 2), "n": I32(8)})
    starts = Data("i32", lambda seed: np.array([1, 2, 7, 27], np.int32))
    yield case("control", "collatz", {"x": starts, "out": out("i32", 4)}, grid=(4,))
    newton = Bound(2, 0.0, "x * x - 2 may be one fma, and a quotient's rounding may differ")
    yield case("control", "do_while", {"out": out("f32", 2), "start": F32(37.0)}, bounds=newton)
    three = Data("f32", within("f32", -4, 4, 384))
    yield case("control", "branches", {"x": three, "out": out("f32", 384)}, grid=(3,))
    yield case("control", "early_return", {"x": numbers, "out": out("i32", 8), "n": I32(6)}, grid=(8,))
    pairs = Data("i32", lambda seed: np.array([40, 7, -13, 5, 99, 4, -17, 5], np.int32))
    yield case("control", "functions", {"x": pairs, "out": out("i32", 8)}, grid=(4,))
    for kernel in ("local_array", "asserted"):
        yield case("control", kernel, {"x": numbers, "out": out("i32", 1)})
    yield case("control", "until_converged", {"x": line, "out": out("f32", 128)})


def _ordinary_values(type: str, count: int) -> Data:
    return Data(type, within(type, -1, 1, count))


def kernels() -> Iterator[TileCase]:
    """Whole kernels."""
    for k, t in ((64, "whole"), (48, "fractions")):
        made = small_integers if t == "whole" else lambda type, count: within(type, -1, 1, count)
        args = {"a": Data("bf16", made("bf16", 64 * k)), "b": Data("bf16", made("bf16", k * 64))}
        args |= {"c": out("f32", 4096), "m": I32(64), "n": I32(64), "k": I32(k)}
        bound = EXACT if t == "whole" else Bound(1, k * k * 2.0**-23, ORDER)
        yield case("kernels", "matmul", args, grid=(2, 2), bounds=bound, name=f"matmul of {t}")
    m, n, k = 45, 27, 37
    args = {
        "a": _ordinary_values("f16", m * k),
        "b": _ordinary_values("f16", n * k),
        "bias": _ordinary_values("f16", n),
        "c": out("f16", m * n),
    }
    args |= {"m": I32(m), "n": I32(n), "k": I32(k)}
    f16_sum = Bound(1, k * k * 2.0**-23, ORDER + "; then rounded to f16")
    yield case("kernels", "matmul_masked", args, grid=(2, 2), bounds=f16_sum)
    args = {
        "a": Data("f16", small_integers("f16", 3 * 512)),
        "b": Data("f16", small_integers("f16", 3 * 512)),
    }
    yield case("kernels", "matmul_batched", {**args, "c": out("f32", 3 * 256), "batch": I32(3)}, grid=(2,))
    args = {"a": Data("f16", small_integers("f16", 4096)), "b": Data("f16", small_integers("f16", 4096))}
    args |= {"c": Data("f32", small_integers("f32", 1024), compared=True), "k": I32(128)}
    yield case("kernels", "matmul_split", args, grid=(4,))
    yield from _normalisations()
    steps, heads = 40, 2
    whole = heads * steps * 32
    args = {
        "q": _ordinary_values("bf16", whole),
        "k": _ordinary_values("bf16", whole),
        "v": _ordinary_values("bf16", whole),
    }
    args |= {"o": out("f32", whole), "t": I32(steps), "scale": F32(0.17677669)}
    near = Bound(
        0, 2.0**-8, "p is rounded to bf16, 2^-9 of it, and |v| < 1; where p lies near a tie both ways"
    )
    yield case("kernels", "attention", args, grid=(3, heads), bounds=near)
    yield from _ordinary()


def _normalisations() -> Iterator[TileCase]:
    exp_and_sum = Bound(
        12, 0.0, "exp errs by 2 ulp on each side, the sum of 64 and the quotient by some more"
    )
    args = {
        "x": Data("f32", within("f32", -6, 6, 5 * 50)),
        "y": out("f32", 250),
        "rows": I32(5),
        "columns": I32(50),
    }
    yield case("kernels", "softmax", args, grid=(5,), bounds=exp_and_sum)
    sums = Bound(4, 2.0**-19, "sums of 50 in any order, of numbers below 4, and rsqrt's 2 ulp")
    args = {
        "x": _ordinary_values("f32", 350),
        "w": _ordinary_values("f32", 50),
        "b": _ordinary_values("f32", 50),
        "y": out("f32", 350),
    }
    args |= {"rows": I32(7), "columns": I32(50), "eps": F32(1e-5)}
    yield case("kernels", "layernorm", args, grid=(2,), bounds=sums)
    one = Bound(1, 0.0, "rounded to bf16: near a tie the other neighbour")
    args = {
        "x": _ordinary_values("bf16", 256),
        "w": _ordinary_values("bf16", 64),
        "y": out("bf16", 256),
        "rows": I32(4),
    }
    yield case("kernels", "rmsnorm", args, grid=(4,), bounds=one)
    args = {
        "gate": _ordinary_values("bf16", 300),
        "up": _ordinary_values("bf16", 300),
        "out": out("bf16", 300),
        "n": I32(300),
    }
    yield case("kernels", "gelu_and_mul", args, grid=(3,), bounds=one)
    args = {"x": Data("f32", within("f32", -3, 3, 256)), "q": out("e4m3", 256), "scales": out("f32", 8)}
    yield case("kernels", "quantize_rows", {**args, "rows": I32(8)}, grid=(2,))


def _ordinary() -> Iterator[TileCase]:
    args = {
        "x": Data("u16", within("u16", 0, 65536, 20 * 45)),
        "y": out("u16", 900),
        "m": I32(20),
        "n": I32(45),
    }
    yield case("kernels", "transpose", args, grid=(2, 2))
    args = {"x": Data("u8", within("u8", 0, 256, 1000)), "counts": out("u32", 16), "n": I32(1000)}
    yield case("kernels", "histogram", args, grid=(8,))
    args = {"x": Data("i32", within("i32", -99, 99, 900)), "y": out("i32", 900), "columns": I32(300)}
    yield case("kernels", "prefix_sum", args, grid=(3,))
    args = {
        "x": Data("f64", small_integers("f64", 700, 1000)),
        "parts": out("f64", 8),
        "arrived": out("u32", 1),
    }
    yield case("kernels", "reduce_two_stages", {**args, "out": out("f64", 1), "n": I32(700)}, grid=(6,))
    args = {
        "table": _ordinary_values("bf16", 50 * 32),
        "ids": Data("i32", within("i32", 0, 50, 21)),
        "out": out("f32", 21 * 32),
    }
    yield case("kernels", "embedding", {**args, "rows": I32(50), "count": I32(21)}, grid=(2,))
    args = {
        "x": Data("f32", within("f32", 0, 9, 13 * 29)),
        "y": out("f32", 13 * 29),
        "m": I32(13),
        "n": I32(29),
    }
    yield case("kernels", "stencil", args, grid=(2, 2))
    args = {"x": Data("f32", ties_of("f32", 20 * 30)), "most": out("f32", 20), "where": out("i32", 20)}
    yield case("kernels", "argmax_rows", {**args, "rows": I32(20), "columns": I32(30)}, grid=(3,))


def ties_of(type: str, count: int) -> Recipe:
    """As `ties`, of any number."""
    return lambda seed: rounded(type, np.round(8 * within("f64", -1, 1, count)(seed)) / 2)
