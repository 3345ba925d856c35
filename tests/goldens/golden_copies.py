"""Copies and reductions by TMA, and tensor maps that a kernel changes."""

from __future__ import annotations

import numpy as np

from golden_case import Case, In, InOut, MapOf, Out, Scratch
from golden_recipes import bits, zeros

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


COPIES = (
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
