"""Copies and reductions by TMA, and tensor maps that a kernel changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from golden_case import Case, In, InOut, MapOf, Out, Scratch
from golden_recipes import CORE_BF16, CORE_F16, CORE_F32, CORE_F64, bits, meeting, zeros

U32, U64 = np.uint32, np.uint64

# Bits of the operations add, min, max, inc, dec, and, or, xor.
_BITWISE, _MINIMUM, _COUNT = 0b11100000, 0b110, 0b11000
_TMA_REDUCTIONS = {
    "uint32": 1 | _MINIMUM | _COUNT | _BITWISE,
    "int32": 1 | _MINIMUM | _BITWISE,
    "uint64": 1 | _MINIMUM | _BITWISE,
    "int64": _MINIMUM,
    "float16": 1 | _MINIMUM,
    "bfloat16": 1 | _MINIMUM,
    "float32": 1,
}
"""Of each element type the operations that it has.

Source: PTX ISA, "Data Movement and Conversion Instructions: cp.reduce.async.bulk.tensor".
"""


def _reduction(dtype: str, ops: int) -> Case:
    itemsize = {"64": 8, "32": 4, "16": 2}[dtype[-2:]]
    return Case(
        name=f"tma_reduce_{dtype}",
        kernel="tma_reduce",
        file="tma_reduce",
        args={
            "in": In(bits(512)),
            "out": InOut(bits(ops.bit_count() * 8, 32)),
            "map": MapOf("out", (8, 128 // itemsize), dtype=dtype),
            "ops": ops,
        },
        block=32,
    )


def _bulk_special(name: str, core: Sequence[int], others: Sequence[int], dtype: str) -> Case:
    """Every operation on special values of a type, of which 1024 bytes hold all pairs."""
    given, held = (np.resize(recipe("any"), 256) for recipe in meeting(core, others, dtype))
    args = {"in": In(lambda seed: given), "out": InOut(lambda seed: np.tile(held, (27, 1)))}
    return Case(name=f"bulk_reduce_{name}", file="bulk_reduce", kernel="bulk_reduce", args=args, block=32)


COPIES = (
    _bulk_special("f32", CORE_F32, CORE_F32, "u4"),
    _bulk_special("f64", CORE_F64, (*CORE_F64[4:6], *CORE_F64[8:14]), "u8"),
    _bulk_special("f16", CORE_F16, CORE_F16, "u2"),
    _bulk_special("bf16", CORE_BF16, CORE_BF16, "u2"),
    *(_reduction(dtype, ops) for dtype, ops in _TMA_REDUCTIONS.items()),
    Case(name="bulk_reduce", args={"in": In(bits(256)), "out": InOut(bits(27, 256))}, block=32),
    Case(
        name="tma_replace",
        args={
            "in": In(bits(32, 32)),
            "out": Out((6, 256), U32),
            "maps": Scratch(zeros(6, 16, dtype=U64)),
            "map": MapOf("in", (8, 32), dtype="uint32"),
        },
        block=32,
        archs=("sm_90a",),
    ),
    Case(
        name="tma_replace_box",
        args={
            "in": In(bits(32, 32)),
            "out": Out((3, 256), U32),
            "maps": Scratch(zeros(3, 16, dtype=U64)),
            "map": MapOf("in", (8, 32), dtype="uint32"),
        },
        block=32,
        archs=("sm_90a",),
    ),
)
