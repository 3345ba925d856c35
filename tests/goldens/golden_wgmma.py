"""wgmma: matrices of a warpgroup, from raw bytes of shared memory and raw registers.

Bounds are those of mma (golden_matrices.py), but for fp8, whose sums keep 14 bits or so: DeepSeek-AI,
"DeepSeek-V3 Technical Report", 2024, 3.3.2 ("retaining around 14 bits"). What `wgmma_layouts` adds up is
exact, so that it shows where each element lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from golden_case import Case, In, Out
from golden_compare import Array, Arrays, Within
from golden_matrices import EPSILON, bfloats, floats, fp8, halves, places_a
from golden_recipes import CORE_BF16, CORE_F16, CORE_F32, bf16_bits, bits, random_bits, zeros

U32, U64 = np.uint32, np.uint64
HALF = 2.0**-10
FP8_EPSILON = 2.0**-12
_TILE = 2048 // 4 + 768 // 4
ARCHS = ("sm_90a",)


def _values(words: Array, dtype: Any) -> Array:
    return np.abs(np.ascontiguousarray(words).view(dtype).astype(np.float64))


def _rows(words: Array, dtype: Any) -> Array:
    """|x| of a matrix along K, which lies as 8 rows by 16 bytes, two of them side by side."""
    values = _values(words, dtype).reshape(-1, 2, 8, 16 // np.dtype(dtype).itemsize)
    result: Array = values.transpose(0, 2, 1, 3).reshape(values.shape[0] * 8, -1)
    return result


def _fragment(words: Array, dtype: Any) -> Array:
    """|a| of A in registers: [thread, register]."""
    values = _values(words, dtype).reshape(4, 32, 4, -1)
    row, k = places_a(4, values.shape[-1])
    whole = np.zeros((4, 16, 8 * values.shape[-1]))
    whole[:, row, k] = values.transpose(0, 2, 1, 3)
    return whole.reshape(64, -1)


def _accumulators(matrix: Array) -> Array:
    """Of each thread its elements of a matrix with 64 rows: [thread, column / 8, row half, pair]."""
    parts = matrix.reshape(4, 2, 8, -1, 4, 2)
    result: Array = parts.transpose(0, 2, 4, 3, 1, 5).reshape(128, -1)
    return result


def _bound(a: Array, b: Array, c: Array, epsilon: float, last: float = 0.0) -> Array:
    """The bound of each accumulator; `last` is relative to the sum, for one more rounding on each side."""
    size = _accumulators(a @ b.T) + np.abs(c.astype(np.float64)).reshape(128, -1)
    return np.asarray(((a.shape[1] + 1) * epsilon + last) * size).reshape(-1)


def _sums(kinds: Sequence[tuple[Any, Any]], epsilon: float, *, narrow: bool) -> Callable[[Arrays], Array]:
    """The bound of an output of instructions that take A from shared memory, and then from registers."""

    def tolerance(inputs: Arrays) -> Array:
        parts = []
        for left, right in kinds:
            b = _rows(inputs["tile"][512:], right)
            c = inputs["halves"].view(np.float16) if narrow else inputs["c"].view(np.float32)
            for a in (_rows(inputs["tile"][:512], left), _fragment(inputs["a"], left)):
                parts.append(_bound(a, b, c, epsilon, HALF if narrow else 0.0))
        return np.concatenate(parts)

    return tolerance


def _larger_of_both(bound: Callable[[Arrays], Array], times: int) -> Callable[[Arrays], Array]:
    """The larger bound of A in shared memory and in registers, for each of some instructions."""

    def tolerance(inputs: Arrays) -> Array:
        return np.tile(bound(inputs).reshape(2, -1).max(0), times)

    return tolerance


def _within(**bounds: Callable[[Arrays], Array]) -> Within:
    def tolerance(inputs: Arrays) -> Mapping[str, Any]:
        return {name: bound(inputs) for name, bound in bounds.items()}

    return Within(tolerance)


def _f32(*kinds: tuple[Any, Any]) -> Callable[[Arrays], Array]:
    return _sums(kinds, EPSILON, narrow=False)


def _small(inputs: Arrays) -> Array:
    bound = _f32((ml_dtypes.bfloat16,) * 2)
    return bound({**inputs, "tile": inputs["tile"][: 512 + 64], "c": inputs["c"].reshape(-1)[: 128 * 4]})


_FP8 = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
_FP8_PAIRS = [(a, b) for a in _FP8 for b in _FP8]


def _out(count: int, registers: int, dtype: Any = np.float32) -> Out:
    return Out((count * 128 * registers,), dtype)


def _wide_values(*shape: int) -> Callable[[str], Array]:
    """Two small whole numbers in f16 in each word, which are small bytes as well."""

    def recipe(seed: str) -> Array:
        count = 2 * int(np.prod(shape))
        whole = (random_bits(seed, count) % U64(7)).astype(np.int64) - 3
        return whole.astype(np.float16).view(U32).reshape(shape)

    return recipe


TYPES = (
    Case(
        name="wgmma_f16",
        args={
            "tile": In(halves(_TILE)),
            "c": In(floats(128, 12)),
            "halves": In(halves(128, 6)),
            "a": In(halves(128, 4)),
            "wide": _out(5, 12),
            "narrow": _out(4, 12, np.float16),
        },
        compare=_within(
            wide=_larger_of_both(_f32((np.float16,) * 2), 5),
            narrow=_larger_of_both(_sums([(np.float16,) * 2], EPSILON, narrow=True), 4),
        ),
        archs=ARCHS,
    ),
    Case(
        name="wgmma_bf16",
        args={
            "tile": In(bfloats(_TILE)),
            "c": In(floats(128, 12)),
            "a": In(bfloats(128, 4)),
            "wide": _out(5, 12),
            "small": _out(2, 4),
        },
        compare=_within(wide=_larger_of_both(_f32((ml_dtypes.bfloat16,) * 2), 5), small=_small),
        archs=ARCHS,
    ),
    Case(
        name="wgmma_tf32",
        args={
            "tile": In(floats(_TILE)),
            "c": In(floats(128, 12)),
            "a": In(floats(128, 4)),
            "wide": _out(5, 12),
        },
        compare=_within(wide=_larger_of_both(_f32((np.float32,) * 2), 5)),
        archs=ARCHS,
    ),
    Case(
        name="wgmma_fp8",
        args={
            "tile": In(fp8(_TILE)),
            "c": In(floats(128, 12)),
            "halves": In(halves(128, 6)),
            "a": In(fp8(128, 4)),
            "wide": _out(8, 12),
            "narrow": _out(8, 12, np.float16),
        },
        compare=_within(
            wide=_sums(_FP8_PAIRS, FP8_EPSILON, narrow=False),
            narrow=_sums(_FP8_PAIRS, FP8_EPSILON, narrow=True),
        ),
        archs=ARCHS,
    ),
    Case(
        name="wgmma_int8",
        args={
            "tile": In(bits(_TILE)),
            "c": In(bits(128, 12)),
            "a": In(bits(128, 4)),
            "out": _out(17, 12, np.int32),
        },
        archs=ARCHS,
    ),
    Case(
        name="wgmma_bits",
        args={
            "tile": In(bits(_TILE)),
            "c": In(bits(128, 12)),
            "a": In(bits(128, 4)),
            "out": _out(3, 12, np.int32),
        },
        archs=ARCHS,
    ),
    Case(
        name="wgmma_widest",
        args={
            "tile": In(_wide_values(512 + 2048)),
            "zeros": In(zeros(128, 128, dtype=U32)),
            "a": In(_wide_values(128, 4)),
            "wide": _out(2, 128, U32),
            "narrow": _out(1, 64, U32),
        },
        archs=ARCHS,
    ),
)

# Descriptors: PTX ISA, "Asynchronous warpgroup-level matrix shared memory layout: matrix descriptor".


def descriptor(start: int, leading: int, stride: int, swizzle: int = 0, offset: int = 0) -> int:
    """The descriptor of a matrix in shared memory, all in bytes but the base offset."""
    mode = {0: 0, 128: 1, 64: 2, 32: 3}[swizzle]
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | offset << 49 | mode << 62


def _along_k() -> Iterator[int]:
    """Descriptors of matrices along K, of 64 rows at most."""
    yield descriptor(0, 128, 256)
    yield descriptor(2048, 1024, 128)
    yield descriptor(16, 2064, 144)
    yield descriptor(4096, 0, 2304)
    for width in (128, 64, 32):
        yield descriptor(0, 16, 8 * width, width)
        yield descriptor(8192, 4096, 8 * width, width)  # the leading offset is not read
        yield descriptor(1024, 16, 16 * width, width)
        yield descriptor(2048, 16, 1024 + 64 * 16, width)
        if width > 32:
            yield descriptor(4096 + 32, 16, 8 * width, width)
        if width == 128:
            yield descriptor(4096 + 64, 16, 1024, width)
            yield descriptor(4096 + 96, 16, 1024, width)
        yield descriptor(6144, 16, 8 * width + 128, width)


def _across_k() -> Iterator[int]:
    """Descriptors of matrices along M or N."""
    yield descriptor(0, 1024, 128)
    yield descriptor(2048, 128, 256)
    yield descriptor(16, 144, 2064)
    yield descriptor(4096, 2304, 0)
    for width in (128, 64, 32):
        yield descriptor(0, 2048, 8 * width, width)
        yield descriptor(8192, 8 * width, 4096, width)
        yield descriptor(1024, 1024, 2048, width)
        yield descriptor(2048, 16 * width, 3072, width)
        yield descriptor(4096 + 16, 2048, 1024, width)
        yield descriptor(4096 + 16 * width, 2048, 1024, width)
        yield descriptor(6144, 8 * width + 128, 2048, width)


_WIDE_K = (
    descriptor(0, 128, 256),
    *(descriptor(1024, 16, 8 * width, width) for width in (128, 64, 32)),
)
_WIDE_ACROSS = (
    descriptor(0, 128, 2304),
    *(descriptor(1024, 32 * width, 8 * width, width) for width in (128, 64, 32)),
)


# Matrices that do not begin where the swizzle's pattern does, with each base offset.
_SHIFTED = tuple(
    descriptor(4096 + start, 2048, 16 * width, width, offset)
    for width, starts in ((128, (128, 384, 512 + 32)), (64, (128, 256, 128 + 32)), (32, (128, 256)))
    for start in starts
    for offset in (0, 1, 3, 6)
)


def _pairs(*both: tuple[Sequence[int], Sequence[int]]) -> Array:
    """Descriptors of A and of B for each choice of their directions: every one of either is used."""
    count = max(len(side) for pair in both for side in pair)
    rows = [[a[i % len(a)], b[(5 * i + 3) % len(b)]] for a, b in both for i in range(count)]
    return np.array(rows, U64)


_K, _M = tuple(_along_k()), tuple(_across_k())
_LAYOUTS = {
    "wgmma_layouts": (_pairs((_K, _K), (_M, _K), (_K, _M), (_M, _M)), 4, 12, np.float32),
    "wgmma_layouts_wide": (_pairs((_WIDE_K, _WIDE_K), (_WIDE_ACROSS, _WIDE_ACROSS)), 2, 68, np.float32),
    "wgmma_layouts_shifted": (_pairs((_SHIFTED, _K[:1]), (_SHIFTED, _M[:1])), 2, 12, np.float32),
    "wgmma_layouts_bytes": (_pairs((_K, _K)), 1, 12, np.int32),
}


def _layouts(name: str) -> Case:
    pairs, choices, registers, dtype = _LAYOUTS[name]
    whole = _wide_values(12 * 1024) if dtype is np.float32 else bits(12 * 1024)
    return Case(
        name=name,
        file="wgmma_layouts",
        args={
            "tile": In(whole),
            "pairs": In(lambda seed: pairs),
            "c": In(zeros(128, registers, dtype=U32)),
            "count": len(pairs) // choices,
            "out": _out(len(pairs), registers, dtype),
        },
        archs=ARCHS,
        on_purpose="read from the same bytes",  # the hardware takes such descriptors
    )


def _product_bound(inputs: Arrays) -> Mapping[str, Any]:
    a, b = _values(inputs["a"], ml_dtypes.bfloat16), _values(inputs["b"], ml_dtypes.bfloat16)
    return {"out": (a.shape[1] + 1) * EPSILON * (a @ b)}


PROGRAM = Case(
    name="real_wgmma_matmul",
    args={
        "a": In(bf16_bits(256, 192)),
        "b": In(bf16_bits(192, 128)),
        "out": Out((256, 128)),
        "n": 128,
        "k": 192,
    },
    grid=(2, 2),
    block=256,
    compare=Within(_product_bound),
    archs=ARCHS,
)

# As in `golden_matrices.SPECIAL`, of sums that are exact.
_ADDENDS = np.array(
    [0, 1 << 31, CORE_F32[4], CORE_F32[5], 1, CORE_F32[11], CORE_F32[12], CORE_F32[14]], np.uint32
)
_HALF_ADDENDS = np.array([0, 1 << 15, 0x7C00, 0xFC00, 1, 0xFE12, 0x7C01, 0x7FFF], np.uint32) * U32(0x10001)
SPECIAL = tuple(
    Case(
        name=f"wgmma_special_{name}",
        file="wgmma_special",
        kernel="wgmma_special",
        args={
            "values": In(lambda seed, core=core: np.array(core, np.uint16)),
            "addends": In(lambda seed, addends=addends: addends),
            "kind": kind,
            "out": Out((16 * registers, 32), U32),
        },
        grid=16,
        block=128,
        archs=ARCHS,
    )
    for kind, (name, core, addends, registers) in enumerate(
        (
            ("f16", CORE_F16, _ADDENDS, 4),
            ("bf16", CORE_BF16, _ADDENDS, 4),
            ("f16_sums", CORE_F16, _HALF_ADDENDS, 2),
        )
    )
)

WGMMA = (*TYPES, *SPECIAL, *(_layouts(name) for name in _LAYOUTS), PROGRAM)
