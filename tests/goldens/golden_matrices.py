"""Matrix instructions, on whole matrices that Python knows too.

Bound for sums in f32: (K + 1) 2^-23 sum|a b|, c counted as one product, which covers any order
and truncation of aligned sums (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA
tensor cores", 2021). tf32 and fp8 operands are exact in the products, so the same holds for them.
Sums in f16 are rounded once more. Integers are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from golden_case import Case, In, InOut, Out
from golden_compare import Array, Arrays, Within
from golden_recipes import (
    CORE_BF16,
    CORE_F16,
    CORE_F32,
    CORE_F64,
    Recipe,
    bf16_bits,
    bits,
    random_bits,
    uniform,
    unit,
    zeros,
)

U32 = np.uint32
EPSILON = 2.0**-23

# Fragments of mma.sync: PTX ISA, "Matrix Fragments for mma"; one layout for all element sizes, in
# which a register holds e elements of neighbouring k.


def places_a(registers: int, e: int) -> tuple[Array, Array]:
    """Row and k of each element of A: [register, lane, element]."""
    r, lane, j = np.ix_(np.arange(registers), np.arange(32), np.arange(e))
    row = lane // 4 + 8 * (r % 2) + 0 * j
    k = e * (lane % 4) + j + 4 * e * (r // 2)
    return row, k


def places_b(registers: int, e: int) -> tuple[Array, Array]:
    """k and column of each element of B."""
    r, lane, j = np.ix_(np.arange(registers), np.arange(32), np.arange(e))
    return e * (lane % 4) + j + 4 * e * r, lane // 4 + 0 * j + 0 * r


def magnitudes(a: Array, b: Array, c: Array, e: int) -> Array:
    """sum|a b| + |c| for each element of c, from fragments of values: [register, lane, element]."""
    rows, ka = places_a(a.shape[0], e)
    kb, columns = places_b(b.shape[0], e)
    k = int(ka.max()) + 1
    whole_a, whole_b = np.zeros((16, k)), np.zeros((k, 8))
    whole_a[rows, ka] = np.abs(a)
    whole_b[kb, columns] = np.abs(b)
    product = whole_a @ whole_b
    r, lane = np.ix_(np.arange(c.shape[0]), np.arange(32))
    result: Array = product[lane // 4 + 8 * (r // 2), 2 * (lane % 4) + r % 2] + np.abs(c)
    return result


Values = Callable[[Array], Array]
"""From registers [register, lane] of u32 to float64 values [register, lane, element]."""


def _as(dtype: Any) -> Values:
    return lambda words: np.ascontiguousarray(words)[..., None].view(dtype).astype(np.float64)


_F16, _BF16, _F32 = _as(np.float16), _as(ml_dtypes.bfloat16), _as(np.float32)
_E4M3, _E5M2 = _as(ml_dtypes.float8_e4m3fn), _as(ml_dtypes.float8_e5m2)
Shape = tuple[int, int, int, Values, Values]
"""Registers of a, b and d, and how a and b are read."""


def _mma_bound(shapes: Sequence[Shape]) -> Within:
    """The bound of each instruction of a kernel, in the order of its output."""

    def tolerance(inputs: Arrays) -> Mapping[str, Any]:
        parts = []
        for na, nb, nd, read_a, read_b in shapes:
            a, b = read_a(inputs["a"][:na]), read_b(inputs["b"][:nb])
            c = _F32(inputs["c"][:nd])[..., 0]
            e = a.shape[-1]
            products = 4 * e * max(1, na // 2)
            parts.append((products + 1) * EPSILON * magnitudes(a, b, c, e))
        return {"out": np.concatenate(parts)}

    return Within(tolerance)


def _mma_half_bound(shapes: Sequence[Shape]) -> Within:
    """Sums in f16: the same, and one rounding to f16 on each side."""

    def tolerance(inputs: Arrays) -> Mapping[str, Any]:
        parts = []
        for na, nb, nd, read_a, read_b in shapes:
            a, b = read_a(inputs["a"][:na]), read_b(inputs["b"][:nb])
            c = _F16(inputs["c"][:nd])  # two columns in a register
            r = np.arange(2 * nd)
            spread = c[r // 2, :, r % 2]
            size = magnitudes(a, b, spread, 2)
            bound = (4 * 2 * max(1, na // 2) + 1) * EPSILON * size + 2.0**-10 * size
            parts.append(bound.reshape(nd, 2, 32).transpose(0, 2, 1).reshape(nd, 64))
        return {"out": np.concatenate(parts)}

    return Within(tolerance)


def halves(*shape: int) -> Callable[[str], Array]:
    """Pairs of f16 between -2 and 2 as u32; some are zero, some large, some tiny."""

    def recipe(seed: str) -> Array:
        count = 2 * int(np.prod(shape))
        scale = np.array([1, 1, 1, 1, 0, 16, 2.0**-12, 1])[random_bits(f"{seed} scale", count) % np.uint64(8)]
        values = ((4 * unit(seed, count) - 2) * scale).astype(np.float16)
        return values.view(U32).reshape(shape)

    return recipe


def bfloats(*shape: int) -> Callable[[str], Array]:
    """Pairs of bf16 as u32."""

    def recipe(seed: str) -> Array:
        return bf16_bits(*shape, 2, low=-2, high=2)(seed).reshape(-1).view(U32).reshape(shape)

    return recipe


def tf32(*shape: int) -> Callable[[str], Array]:
    """float32 bits with a significand of 11 bits, as tf32 has."""

    def recipe(seed: str) -> Array:
        words = uniform(*shape, low=-2, high=2)(seed).view(U32)
        result: Array = words & U32(0xFFFFE000)
        return result

    return recipe


def fp8(*shape: int) -> Callable[[str], Array]:
    """Four fp8 in a word, of magnitude below 2^8 in either format and never NaN."""

    def recipe(seed: str) -> Array:
        words = bits(*shape)(seed)
        result: Array = words & U32(0xBFBFBFBF) ^ U32(0x20202020)
        return result

    return recipe


def floats(*shape: int) -> Callable[[str], Array]:
    """float32 bits between -4 and 4."""
    return lambda seed: uniform(*shape, low=-4, high=4)(seed).view(U32)


def _mma(name: str, a: Any, b: Any, c: Any, rows: int, **more: Any) -> Case:
    out = Out((rows, 32), more.pop("out", np.float32))
    return Case(name=name, args={"a": In(a), "b": In(b), "c": In(c), "out": out}, block=32, **more)


_BOTH = ("sm_80", "sm_90")
_SMALL_AND_LARGE: tuple[tuple[int, int, int], ...] = ((2, 1, 4), (4, 2, 4))


def _shapes(read: Values) -> list[Shape]:
    return [(na, nb, nd, read, read) for na, nb, nd in _SMALL_AND_LARGE]


def _f64_bound(inputs: Arrays) -> Mapping[str, Any]:
    parts = []
    for na, nb, nd in ((1, 1, 2), (2, 1, 4), (4, 2, 4), (8, 4, 4)):
        a, b, c = inputs["a"][:na, :, None], inputs["b"][:nb, :, None], inputs["c"][:nd]
        parts.append((4 * max(1, na // 2) + 1) * 2.0**-52 * magnitudes(a, b, c, 1))
    return {"out": np.concatenate(parts)}


MMA = (
    _mma(
        "matrix_f16",
        halves(4, 32),
        halves(2, 32),
        floats(4, 32),
        8,
        compare=_mma_bound(_shapes(_F16)),
        archs=_BOTH,
    ),
    Case(
        name="matrix_f16_sums",
        args={
            "a": In(halves(4, 32)),
            "b": In(halves(2, 32)),
            "c": In(halves(2, 32)),
            "out": Out((4, 64), np.float16),
        },
        block=32,
        compare=_mma_half_bound([(2, 1, 2, _F16, _F16), (4, 2, 2, _F16, _F16)]),
        archs=_BOTH,
    ),
    _mma(
        "matrix_bf16",
        bfloats(4, 32),
        bfloats(2, 32),
        floats(4, 32),
        8,
        compare=_mma_bound(_shapes(_BF16)),
        archs=_BOTH,
    ),
    _mma(
        "matrix_tf32",
        tf32(4, 32),
        tf32(2, 32),
        floats(4, 32),
        8,
        compare=_mma_bound(_shapes(_F32)),
        archs=_BOTH,
    ),
    _mma(
        "matrix_fp8",
        fp8(4, 32),
        fp8(2, 32),
        floats(4, 32),
        16,
        compare=_mma_bound([(4, 2, 4, x, y) for x in (_E4M3, _E5M2) for y in (_E4M3, _E5M2)]),
    ),
    _mma("matrix_int8", bits(4, 32), bits(2, 32), bits(4, 32), 80, out=np.int32, archs=_BOTH),
    _mma("matrix_int4", bits(4, 32), bits(2, 32), bits(4, 32), 40, out=np.int32, archs=_BOTH),
    _mma("matrix_bits", bits(4, 32), bits(2, 32), bits(4, 32), 20, out=np.int32, archs=_BOTH),
    _mma(
        "matrix_f64",
        uniform(8, 32, dtype=np.float64),
        uniform(4, 32, dtype=np.float64),
        uniform(4, 32, dtype=np.float64),
        14,
        out=np.float64,
        compare=Within(_f64_bound),
    ),
    Case(
        name="matrix_ldmatrix", args={"in": In(bits(128)), "out": Out((15, 32), U32)}, block=32, archs=_BOTH
    ),
    Case(name="matrix_stmatrix", args={"in": In(bits(128)), "out": Out((24, 32), U32)}, block=32),
)

# Special values: A's first column meets B's first row, all else is zero, so that each sum is a product and
# an addend, exact whatever its order.


def _packed(elements: Array, dtype: Any) -> Recipe:
    """Elements by register, lane and place in the register, as words of a dtype."""
    word = f"u{max(4, elements.itemsize)}"
    words = np.ascontiguousarray(elements).view(word).reshape(elements.shape[:2]).view(dtype)
    return lambda seed: words


def _first_column(core: Sequence[int], element: str, dtype: Any = U32) -> Recipe:
    """A, with 16 values of `core`, as bits."""
    rows, ks = places_a(8 if element == "u8" else 4, max(1, 4 // np.dtype(element).itemsize))
    return _packed(np.where(ks == 0, np.array(core, element)[rows], 0).astype(element), dtype)


def _first_row(core: Sequence[int], element: str, dtype: Any = U32) -> Recipe:
    """B, with 8 values of `core`, as bits."""
    ks, columns = places_b(4 if element == "u8" else 2, max(1, 4 // np.dtype(element).itemsize))
    return _packed(np.where(ks == 0, np.array(core, element)[columns], 0).astype(element), dtype)


def _addends(core: Sequence[int], element: str, dtype: Any = U32) -> Recipe:
    """C, with values of `core` in turn, as bits."""
    pair = 2 if element == "u2" else 1
    r, lane, j = np.ix_(np.arange(4 // pair), np.arange(32), np.arange(pair))
    row, column = (lane // 4 + 8 * r, 2 * (lane % 4) + j) if pair == 2 else (lane // 4 + 8 * (r // 2), r % 2)
    column = column if pair == 2 else 2 * (lane % 4) + column
    return _packed(np.array(core, element)[(row + 3 * column + 0 * j) % len(core)], dtype)


_CORE_FP8 = (
    0x00, 0x80, 0x38, 0xBC, 0x7E, 0xFE, 0x7C, 0x08, 0x01, 0x87, 0x7F, 0xFF, 0x7D, 0xFD, 0xFC, 0x04,
)  # fmt: skip
_CORE_TF32 = tuple(word & 0xFFFFE000 for word in CORE_F32)
_ADDENDS_F32 = (0, 0x7F800000, 0xFF800000, 0xFFC12345, 0x7F800001, 0x7F7FFFFF, 1, 0x807FFFFF)
_ADDENDS_F16 = (0, 0x7C00, 0xFC00, 0xFE12, 0x7C01, 0x7BFF, 1, 0x83FF)
_ADDENDS_F64 = (0, CORE_F64[4], CORE_F64[5], CORE_F64[11], CORE_F64[13], CORE_F64[6], 1, CORE_F64[9])


def _special(
    kernel: str, core: Sequence[int], element: str, rows: int, sums: str = "u4", out: Any = np.float32
) -> tuple[Case, ...]:
    """A kernel on special values: one half of B with zeros added, the other half with special ones."""
    given = np.float64 if element == "u8" else U32
    zeros_of = {"u4": (0, 1 << 31), "u2": (0, 1 << 15), "u8": (0, 1 << 63)}[sums]
    special = {"u4": _ADDENDS_F32, "u2": _ADDENDS_F16, "u8": _ADDENDS_F64}[sums]
    halves = (("numbers", core[:8], zeros_of), ("nan", core[8:], special))
    return tuple(
        Case(
            name=f"{kernel}_{name}",
            file=kernel,
            kernel=kernel,
            args={
                "a": In(_first_column(core, element, given)),
                "b": In(_first_row(half, element, given)),
                "c": In(_addends(addends, sums, given)),
                "out": Out((rows, 64 if out == np.float16 else 32), out),
            },
            block=32,
        )
        for name, half, addends in halves
    )


SPECIAL = (
    *_special("matrix_f16", CORE_F16, "u2", 8),
    *_special("matrix_f16_sums", CORE_F16, "u2", 4, "u2", np.float16),
    *_special("matrix_bf16", CORE_BF16, "u2", 8),
    *_special("matrix_tf32", _CORE_TF32, "u4", 8),
    *_special("matrix_fp8", _CORE_FP8, "u1", 16),
    *_special("matrix_f64", CORE_F64, "u8", 14, "u8", np.float64),
)

# mma.sp, on small integers in every type, so that each sum is exact whatever its order.


def small(*shape: int, dtype: Any) -> Callable[[str], Array]:
    """Integers from -8 to 8, in words of elements of a type."""

    def recipe(seed: str) -> Array:
        count = int(np.prod(shape)) * 4 // np.dtype(dtype).itemsize
        values = (random_bits(seed, count) % np.uint64(17)).astype(np.float32) - 8
        return values.astype(dtype).view(U32).reshape(shape)

    return recipe


def metadata(*choices: int) -> Callable[[str], Array]:
    """Eight choices of four bits in each lane's word."""

    def recipe(seed: str) -> Array:
        picked = np.array(choices, U32)[random_bits(seed, 256) % np.uint64(len(choices))].reshape(32, 8)
        result: Array = (picked << np.arange(0, 32, 4, dtype=U32)).sum(axis=1, dtype=U32)
        return result

    return recipe


_ASCENDING = (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110)
SPARSE = Case(
    name="matrix_sparse",
    args={
        "f16": In(small(8, 32, dtype=np.float16)),
        "bf16": In(small(8, 32, dtype=ml_dtypes.bfloat16)),
        "tf32": In(small(8, 32, dtype=np.float32)),
        "fp8": In(small(8, 32, dtype=ml_dtypes.float8_e4m3fn)),
        "bits": In(bits(8, 32)),
        "sums": In(small(4, 32, dtype=np.float32)),
        "half_sums": In(small(2, 32, dtype=np.float16)),
        "meta": In(metadata(*_ASCENDING)),
        "tf32_meta": In(metadata(0b0100, 0b1110)),
        "any_meta": In(metadata(*_ASCENDING, 0b0001, 0b0010, 0b0011, 0b0110, 0b0111, 0b1011)),
        "out": Out((25 * 4 + 2 * 2, 32), U32),
    },
    block=32,
)

# wmma: whole matrices. Each tile is m x n x k, with A and B row by row ("r") or column by column ("c").


def _matrix(flat: Array, rows: int, columns: int, order: str) -> Array:
    part = np.abs(flat.reshape(-1)[: rows * columns].astype(np.float64))
    return part.reshape(rows, columns) if order == "r" else part.reshape(columns, rows).T


def _tile_bound(
    a: Array, b: Array, c: Array, shape: tuple[int, int, int], orders: str, epsilon: float
) -> Array:
    """The bound for a tile, flat in the order in which it is stored."""
    m, n, k = shape
    size = _matrix(a, m, k, orders[0]) @ _matrix(b, k, n, orders[1]) + _matrix(c, m, n, orders[2]) + 1
    bound = ((k + 1) * EPSILON + epsilon) * size
    return bound.reshape(-1) if orders[2] == "r" else bound.T.reshape(-1)


_WIDE_TILES = (((16, 16, 16), "rcr"), ((16, 16, 16), "rrc"), ((32, 8, 16), "crr"), ((8, 32, 16), "ccr"))
_NARROW_TILES = (((16, 16, 16), "rcr"), ((32, 8, 16), "rrc"))


def _wmma_f16_bound(inputs: Arrays) -> Mapping[str, Any]:
    a, b = inputs["a"], inputs["b"]
    wide = [_tile_bound(a, b, inputs["c"], shape, orders, 0) for shape, orders in _WIDE_TILES]
    narrow = [
        _tile_bound(a, b, inputs["narrow_c"], shape, orders, 2.0**-10) for shape, orders in _NARROW_TILES
    ]
    return {"out": np.concatenate(wide), "narrow_out": np.concatenate(narrow)}


def _wmma_others_bound(inputs: Arrays) -> Mapping[str, Any]:
    a, b = inputs["bits_a"].view(ml_dtypes.bfloat16), inputs["bits_b"].view(ml_dtypes.bfloat16)
    tiles = [
        _tile_bound(a, b, inputs["c"], shape, "rcr", 0) for shape in ((16, 16, 16), (32, 8, 16), (8, 32, 16))
    ]
    tiles.append(_tile_bound(inputs["tf_a"], inputs["tf_b"], inputs["c"], (16, 16, 8), "rcr", 0))
    wide = _tile_bound(inputs["wide_a"], inputs["wide_b"], inputs["wide_c"], (8, 8, 4), "rcr", 0)
    return {"out": np.concatenate(tiles), "wide": wide * 2.0**-29}


def _tf32_values(*shape: int) -> Callable[[str], Array]:
    return lambda seed: tf32(*shape)(seed).view(np.float32)


_F64 = {"dtype": np.float64}
WMMA = (
    Case(
        name="matrix_wmma_f16",
        args={
            "a": In(uniform(512, dtype=np.float16)),
            "b": In(uniform(512, dtype=np.float16)),
            "c": In(uniform(256)),
            "narrow_c": In(uniform(256, dtype=np.float16)),
            "out": Out((1024,)),
            "narrow_out": Out((512,), np.float16),
        },
        block=32,
        compare=Within(_wmma_f16_bound),
        archs=_BOTH,
    ),
    Case(
        name="matrix_wmma_others",
        args={
            "bits_a": In(bf16_bits(512)),
            "bits_b": In(bf16_bits(512)),
            "c": In(uniform(256)),
            "tf_a": In(_tf32_values(128)),
            "tf_b": In(_tf32_values(128)),
            "char_a": In(bits(512, dtype=np.int8)),
            "char_b": In(bits(512, dtype=np.int8)),
            "wide_a": In(uniform(32, **_F64)),
            "wide_b": In(uniform(32, **_F64)),
            "wide_c": In(uniform(64, **_F64)),
            "out": Out((1024,)),
            "sums": InOut(zeros(1024, dtype=np.int32)),
            "wide": Out((64,), np.float64),
        },
        block=32,
        compare=Within(_wmma_others_bound),
        archs=_BOTH,
    ),
)


def product_bound(inputs: Arrays) -> Mapping[str, Any]:
    """For out = a @ b."""
    a, b = np.abs(inputs["a"].astype(np.float64)), np.abs(inputs["b"].astype(np.float64))
    return {"out": (a.shape[1] + 1) * EPSILON * (a @ b)}


def _product(name: str, m: int, n: int, k: int, block: int, grid: tuple[int, int]) -> Case:
    return Case(
        name=name,
        args={
            "a": In(uniform(m, k, dtype=np.float16)),
            "b": In(uniform(k, n, dtype=np.float16)),
            "out": Out((m, n)),
            "n": n,
            "k": k,
        },
        grid=grid,
        block=block,
        compare=Within(product_bound),
        archs=_BOTH,
    )


MATRICES = (
    *MMA,
    *SPECIAL,
    SPARSE,
    *WMMA,
    _product("real_wmma_matmul", 32, 32, 48, 64, (1, 2)),
    _product("real_mma_matmul", 64, 32, 80, 128, (1, 2)),
)
