"""Kernels about one topic: memory, control flow, warps, barriers, atomics, copies, the math library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from golden_case import Case, In, InOut, Out
from golden_compare import Arrays, Ulps, Within, ulp
from golden_recipes import CORE_F32, bits, filled, meeting, uniform, whole, zeros

BOTH = ("sm_80", "sm_90")
I32, U32, U64, U8, U16 = np.int32, np.uint32, np.uint64, np.uint8, np.uint16

_SETTINGS = np.dtype([("flag", "i1"), ("factor", "f8"), ("steps", "i2", 6), ("offset", "i4")], align=True)
_SETTINGS_BYTES = np.array((-3, 1.75, (1, -2, 3, -4, 500, -32768), 123456), _SETTINGS).tobytes()

_GIVEN, _HELD = meeting(CORE_F32, (*CORE_F32[:2], CORE_F32[4], *CORE_F32[7:12]), "u4")

MEMORY = (
    Case(
        name="memory_vectors",
        args={"in": In(bits(6144, dtype=U8)), "out": Out((6144,), U8)},
        block=64,
        archs=BOTH,
    ),
    Case(name="memory_modifiers", args={"in": In(bits(64)), "out": Out((23, 64), U32)}, block=64),
    Case(
        name="memory_wide",
        args={
            "in": In(bits(64, dtype=U64)),
            "out": Out((192,), U64),
            "cells": InOut(bits(64, dtype=U64)),
        },
        block=32,
    ),
    Case(name="memory_cluster", args={"in": In(bits(32)), "out": Out((32,), U32)}, block=32),
    Case(
        name="memory_policies",
        args={"in": In(bits(64)), "out": Out((32,), U32), "scratch": InOut(zeros(32, dtype=U32))},
        block=32,
        archs=BOTH,
    ),
    Case(
        name="memory_extension",
        args={"in": In(bits(256, dtype=U8)), "out": Out((12, 64), U32), "words": InOut(bits(64))},
        block=64,
        archs=BOTH,
    ),
    Case(
        name="memory_spaces",
        args={"in": In(whole(64)), "out": Out((4, 64), I32)},
        block=64,
        archs=BOTH,
    ),
    Case(
        name="memory_parameters",
        args={
            "s": _SETTINGS_BYTES,
            "base": -(2**40) - 5,
            "small": -321,
            "scale": 0.625,
            "negate": True,
            "out": Out((48,), np.float64),
        },
        block=48,
        archs=BOTH,
    ),
    Case(
        name="memory_bytes",
        args={"in": In(bits(96)), "out": Out((2, 96), U32)},
        block=96,
        smem_bytes=4 * 96,
        archs=BOTH,
    ),
)

CONTROL = (
    Case(
        name="control_calls",
        args={"a": In(whole(64, high=5000)), "b": In(whole(64, high=5000)), "out": Out((2, 64), I32)},
        block=64,
        archs=BOTH,
    ),
    Case(
        name="control_stack",
        args={"x": In(whole(96, high=1000)), "out": Out((64,), np.int32), "n": 8},
        block=64,
    ),
    Case(
        name="control_flow",
        args={"in": In(bits(96)), "out": InOut(zeros(3, 96, dtype=U32))},
        block=96,
        archs=BOTH,
    ),
)

WARPS = (
    Case(name="warp_shuffle", args={"in": In(bits(128)), "out": Out((84, 64), U32)}, block=64, archs=BOTH),
    Case(name="warp_vote", args={"in": In(bits(64)), "out": Out((36, 64), U32)}, block=64, archs=BOTH),
    Case(name="warp_masks", args={"out": Out((11, 64), U32)}, block=64),
    Case(
        name="barrier_named",
        args={"in": In(whole(6, 64, high=10**6)), "out": Out((6, 64), I32), "tiles": 6},
        archs=BOTH,
    ),
    Case(
        name="barrier_reduce",
        args={"in": In(whole(96, low=-1000, high=1000)), "out": Out((6, 96), I32)},
        block=96,
        archs=BOTH,
    ),
)


def _any_order(inputs: Arrays) -> Mapping[str, Any]:
    """A sum of n numbers in any order is off by at most (n - 1) 2^-24 sum|x| (Higham, "Accuracy and
    Stability of Numerical Algorithms", 4.2); each side may be."""
    total = float(np.abs(inputs["in"].astype(np.float64)).sum())
    count = inputs["in"].size
    return {"sum": 2 * (count - 1) * 2.0**-24 * total, "wide": 2 * (count - 1) * 2.0**-53 * total}


ATOMICS = (
    Case(
        name="atomic_contended",
        args={
            "in": In(whole(256, high=1000)),
            "totals": InOut(lambda seed: np.array([0, 0, 2**30, -5, -1, 0, 0, 0, 0, 0, 0, 0], I32)),
            "tickets": InOut(zeros(2, dtype=U32)),
            "seen": InOut(zeros(512, dtype=U32)),
            "wide": InOut(zeros(1, dtype=U64)),
        },
        grid=4,
        block=64,
        archs=BOTH,
    ),
    Case(
        name="atomic_unordered",
        args={
            "in": In(uniform(512)),
            "sum": InOut(zeros(1)),
            "wide": InOut(zeros(1, dtype=np.float64)),
        },
        grid=4,
        compare=Within(_any_order),
        archs=BOTH,
        same_for_any_seed=False,
    ),
    Case(
        name="atomic_loop",
        args={
            "in": In(uniform(256, low=0, high=50)),
            "largest": InOut(zeros(3)),
            "product": InOut(filled(1, value=1, dtype=U64)),
        },
        grid=2,
        archs=BOTH,
    ),
    Case(
        name="atomic_lock",
        args={
            "lock": InOut(zeros(1, dtype=I32)),
            "counter": InOut(zeros(1, dtype=I32)),
            "history": InOut(zeros(12, dtype=I32)),
        },
        grid=6,
        block=64,
        archs=BOTH,
    ),
    Case(
        name="atomic_vectors_special",
        file="atomic_vectors",
        kernel="atomic_vectors",
        args={
            "in": In(lambda seed: _GIVEN("any").view(np.float32)),
            "cells": InOut(lambda seed: _HELD("any").view(np.float32)),
            "halves": InOut(filled(64, value=0x3C003C00, dtype=U32)),
        },
        block=32,
    ),
    Case(
        name="atomic_vectors",
        args={
            "in": In(uniform(128)),
            "cells": InOut(uniform(128)),
            "halves": InOut(filled(64, value=0x3C003C00, dtype=U32)),
        },
        block=32,
    ),
)

COOPERATIVE = (
    Case(
        name="cooperative_tiles",
        args={"in": In(whole(64, low=-1000, high=1000)), "out": Out((8, 64), I32)},
        block=64,
    ),
    Case(
        name="cooperative_grid",
        args={"in": In(whole(256, high=1000)), "totals": InOut(zeros(4, dtype=I32)), "out": Out((256,), I32)},
        grid=4,
        block=64,
        cooperative=True,
    ),
    Case(
        name="cooperative_barrier",
        args={
            "x": InOut(whole(512, high=10**6)),
            "count": InOut(zeros(1, dtype=U32)),
            "generation": InOut(zeros(1, dtype=U32)),
            "n": 512,
        },
        grid=4,
        block=64,
        cooperative=True,
        archs=BOTH,
    ),
)

COPIES = (
    Case(name="async_copy", args={"in": In(bits(256)), "out": Out((16, 64), U32)}, block=64, archs=BOTH),
    Case(
        name="async_barrier",
        args={"in": In(bits(256)), "out": Out((384,), U32), "back": InOut(zeros(128, dtype=U32))},
        block=64,
    ),
    Case(
        name="async_pipeline",
        args={"in": In(uniform(9, 64, 4)), "out": Out((64,)), "tiles": 9},
        block=64,
        archs=BOTH,
    ),
)

# Source: CUDA C++ Programming Guide, "Mathematical Functions", "Standard Functions": maximum error in ulp.
_F32_ERRORS: Mapping[str, float] = {
    "expf": 2, "exp2f": 2, "exp10f": 2, "expm1f": 1, "logf": 1, "log2f": 1, "log10f": 2, "log1pf": 1,
    "sinf": 2, "cosf": 2, "tanf": 4, "asinf": 2, "acosf": 2, "atanf": 2, "atan2f": 3,
    "sinhf": 3, "coshf": 2, "tanhf": 2, "erff": 2, "erfcf": 4, "tgammaf": 5, "lgammaf": 6, "powf": 4,
    "cbrtf": 1, "hypotf": 3, "sqrtf": 0, "rsqrtf": 2, "x / y": 0, "sinpif": 1, "cospif": 1, "normcdff": 5,
    "fmodf": 0, "floorf": 0, "rintf": 0, "roundf": 0, "truncf": 0, "ldexpf": 0, "nextafterf": 0, "fdimf": 0,
    "fmaf": 0, "fmaxf": 0, "remainderf": 0,
}  # fmt: skip
_F64_ERRORS: Mapping[str, float] = {
    "exp": 1, "log": 1, "sin": 2, "cos": 2, "atan2": 2, "acos": 2, "tanh": 1, "erf": 2, "pow": 2, "cbrt": 1,
    "sqrt": 0, "rsqrt": 1, "x / y": 0, "fmod": 0, "round": 0, "ldexp": 0,
}  # fmt: skip


def _fast_tolerance(inputs: Arrays) -> Mapping[str, Any]:
    """Twice the error that the CUDA C++ Programming Guide, "Intrinsic Functions", states for each.

    tanf is __sinf / __cosf and powf is exp2f(y * __log2f(x)) there; their errors follow.
    """
    x, y = inputs["xs"].astype(np.float64), inputs["ys"].astype(np.float64)
    p, inside = np.abs(x), x * 0.1
    near = (p >= 0.5) & (p <= 2)
    sine, cosine = 2.0**-21.41, 2.0**-21.19
    power = y * np.log2(p)
    of_power = np.abs(y) * np.where(near, 2.0**-22, 2 * ulp(np.log2(p))) + ulp(power) / 2
    rows = [
        (2 + np.floor(np.abs(1.173 * x))) * ulp(np.exp(x)),
        (2 + np.floor(np.abs(2.97 * x))) * ulp(10.0**x),
        np.where(near, 2.0**-21.41, 3 * ulp(np.log(p))),
        np.where(near, 2.0**-22, 2 * ulp(np.log2(p))),
        np.where(near, 2.0**-24, 3 * ulp(np.log10(p))),
        np.full_like(x, sine),
        np.full_like(x, cosine),
        sine / np.cos(inside) + np.abs(np.tan(inside)) * cosine / np.cos(inside) + 2 * ulp(np.tan(inside)),
        2.0**power * np.log(2) * of_power + 2 * ulp(2.0**power),
        2 * ulp(x / y),
        ulp(1 / y),
        2.0**-23 * np.sqrt(p),  # sqrt.approx, PTX ISA
        2.0**-22.9 / np.sqrt(p),  # rsqrt.approx, PTX ISA
        *[np.zeros_like(x)] * 4,
    ]
    return {"out": 2 * np.array(rows)}


def _intrinsic_tolerance(inputs: Arrays) -> Mapping[str, Any]:
    """As for the fast functions, in the order of that kernel's rows; those with a rounding mode are exact."""
    fast = _fast_tolerance(inputs)["out"]
    return {"out": np.concatenate((fast[[0, 2, 3, 4, 5, 6, 9]], np.zeros((14, fast.shape[1]))))}


_ARGUMENTS = {"xs": In(uniform(128, low=-3.1, high=3.1)), "ys": In(uniform(128, low=-3, high=3))}
_WIDE = {
    "xs": In(uniform(128, low=-9, high=9, dtype=np.float64)),
    "ys": In(uniform(128, low=-5, high=5, dtype=np.float64)),
}

MATH = (
    Case(
        name="math_f32",
        args={
            "xs": In(uniform(128, low=-9.5, high=9.5)),
            "ys": In(uniform(128, low=-6, high=6)),
            "out": Out((len(_F32_ERRORS), 128)),
        },
        compare=Ulps(tuple(_F32_ERRORS.values())),
        archs=BOTH,
    ),
    Case(
        name="math_fast",
        args={**_ARGUMENTS, "out": Out((17, 128))},
        options=("--use_fast_math",),
        compare=Within(_fast_tolerance),
        archs=BOTH,
    ),
    Case(
        name="math_f64",
        args={**_WIDE, "out": Out((len(_F64_ERRORS), 128), np.float64)},
        compare=Ulps(tuple(_F64_ERRORS.values())),
        archs=BOTH,
    ),
    Case(
        name="math_intrinsics",
        args={**_ARGUMENTS, "out": Out((21, 128))},
        compare=Within(_intrinsic_tolerance),
        archs=BOTH,
    ),
    Case(
        name="math_half",
        args={**_ARGUMENTS, "out": Out((14, 128))},
        archs=BOTH,
    ),
)

ORDINARY = (*MEMORY, *CONTROL, *WARPS, *ATOMICS, *COOPERATIVE, *COPIES, *MATH)
