"""Programs as people write them: reductions, scans, sorts, filters, norms, attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from golden_case import Case, In, InOut, Out, Scratch
from golden_compare import Arrays, Within
from golden_recipes import bits, in_order, uniform, whole, zeros

BOTH = ("sm_80", "sm_90")
I32, U32, U8 = np.int32, np.uint32, np.uint8
ULP = 2.0**-23

# What is left inexact below goes back to expf, logf, sinf, cosf and rsqrtf, which rest on
# approximate instructions; each of the two sides is off by at most their documented errors
# (CUDA C++ Programming Guide, "Mathematical Functions"), carried through the formula.


def _softmax(inputs: Arrays) -> Mapping[str, Any]:
    """A step has two expf of 2 ulp and three roundings: 6 ulp; the end an expf, a logf and a quotient."""
    x = inputs["in"].astype(np.float64)
    steps = -(-x.shape[1] // 32) + 5
    shifted = x - x.max(1, keepdims=True)
    weights = np.exp(shifted)
    total = weights.sum(1, keepdims=True)
    relative = (6 * steps + 4) * ULP
    logarithm = (6 * steps + 2 * np.abs(np.log(total)) + np.abs(shifted) + np.abs(x)) * ULP
    return {"out": 2 * relative * weights / total, "logarithm": 2 * logarithm}


def _layernorm(inputs: Arrays) -> Mapping[str, Any]:
    """rsqrtf has 2 ulp; the product with it, the weight and the bias are rounded three times."""
    x = inputs["in"].astype(np.float64)
    scale = 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    size = np.abs((x - x.mean(1, keepdims=True)) * scale * inputs["weight"]) + np.abs(inputs["bias"])
    return {"out": 2 * (2 + 3) * ULP * size}


def _attention(inputs: Arrays) -> Mapping[str, Any]:
    """Weights are off by 6 ulp for each tile of keys, sums of n of them by n roundings; |v| is below 1."""
    n = inputs["k"].shape[0]
    return {"out": 2 * (6 * (n // 32) + n + 8) * ULP}


def _normal(inputs: Arrays) -> Mapping[str, Any]:
    """logf 1 ulp, halved by the root; sinf and cosf 2 ulp of at most 1; two roundings; radius below 6.7."""
    return {"normal": 2 * (1 + 2 + 1) * ULP * 6.7}


PROGRAMS = (
    Case(
        name="real_reduce",
        args={
            "in": In(uniform(3, 700)),
            "sums": Out((3,)),
            "least": Out((3,)),
            "places": Out((3,), I32),
            "n": 700,
        },
        grid=3,
        block=256,
        archs=BOTH,
    ),
    Case(
        name="real_scan",
        args={"in": In(uniform(512)), "out": Out((512,)), "exclusive": Out((512,))},
        grid=2,
        block=256,
        archs=BOTH,
    ),
    Case(
        name="real_look_back",
        args={
            "in": In(whole(1024, high=1000, dtype=U32)),
            "out": Out((1024,), U32),
            "ticket": InOut(zeros(1, dtype=U32)),
            "states": InOut(zeros(8, dtype=U32)),
            "aggregates": Scratch(zeros(8, dtype=U32)),
            "prefixes": InOut(zeros(8, dtype=U32)),
        },
        grid=8,
        archs=BOTH,
    ),
    Case(
        name="real_last_block",
        args={
            "in": In(uniform(2000)),
            "partial": InOut(zeros(5)),
            "count": InOut(zeros(1, dtype=U32)),
            "mean": Out((1,)),
            "n": 2000,
        },
        grid=5,
        archs=BOTH,
    ),
    Case(
        name="real_softmax",
        args={
            "in": In(uniform(4, 200, low=-8, high=8)),
            "out": Out((4, 200)),
            "logarithm": Out((4, 200)),
            "n": 200,
        },
        grid=4,
        block=32,
        compare=Within(_softmax),
        archs=BOTH,
    ),
    Case(
        name="real_layernorm",
        args={
            "in": In(uniform(4, 150, low=-3, high=5)),
            "weight": In(uniform(150, low=0.5, high=2)),
            "bias": In(uniform(150)),
            "out": Out((4, 150)),
            "means": Out((4,)),
            "variances": Out((4,)),
            "n": 150,
        },
        grid=4,
        block=32,
        compare=Within(_layernorm),
        archs=BOTH,
    ),
    Case(
        name="real_transpose",
        args={"in": In(uniform(45, 70)), "out": Out((70, 45)), "rows": 45, "columns": 70},
        grid=(3, 2),
        block=(32, 8),
        archs=BOTH,
    ),
    Case(
        name="real_matmul",
        args={
            "a": In(uniform(40, 37)),
            "b": In(uniform(37, 50)),
            "out": Out((40, 50)),
            "m": 40,
            "n": 50,
            "k": 37,
        },
        grid=(2, 2),
        block=(16, 16),
        archs=BOTH,
    ),
    Case(
        name="real_histogram",
        args={"in": In(bits(3000, dtype=U8)), "bins": InOut(zeros(256, dtype=U32)), "n": 3000},
        grid=4,
        archs=BOTH,
    ),
    Case(
        name="real_sort",
        args={"keys": InOut(uniform(512)), "values": InOut(in_order(512))},
        grid=2,
        block=256,
        archs=BOTH,
    ),
    Case(
        name="real_box_filter",
        args={"in": In(bits(30, 50, dtype=U8)), "out": Out((30, 50), U8), "width": 50, "height": 30},
        grid=(4, 2),
        block=(16, 16),
        archs=BOTH,
    ),
    Case(
        name="real_philox",
        args={
            "bits": Out((128, 4), U32),
            "uniform": Out((128, 4)),
            "normal": Out((128, 2)),
            "seed": 0x0123456789ABCDEF,
        },
        grid=2,
        block=64,
        compare=Within(_normal),
        archs=BOTH,
    ),
    Case(
        name="real_attention",
        args={
            "q": In(uniform(16, 32, low=-2, high=2)),
            "k": In(uniform(64, 32, low=-2, high=2)),
            "v": In(uniform(64, 32)),
            "out": Out((16, 32)),
            "n": 64,
        },
        grid=4,
        block=(32, 4),
        compare=Within(_attention),
        archs=BOTH,
    ),
    Case(
        name="real_quantize",
        args={
            "in": In(uniform(3, 300, low=-30, high=30)),
            "fp8": Out((3, 300), U8),
            "int8": Out((3, 300), np.int8),
            "scales": Out((3,)),
            "restored": Out((3, 300)),
            "n": 300,
        },
        grid=3,
        archs=("sm_90",),
    ),
    Case(
        name="real_fft",
        args={"in": In(uniform(2, 256, 2)), "out": Out((2, 256, 2))},
        grid=2,
        archs=BOTH,
    ),
    Case(
        name="real_mandelbrot",
        args={"out": Out((16, 32), np.uint16), "width": 32, "limit": 100},
        grid=(1, 4),
        block=(32, 4),
        archs=BOTH,
    ),
    Case(
        name="real_compact",
        args={
            "in": In(whole(1000, low=-500, high=500)),
            "out": InOut(zeros(1000, dtype=I32)),
            "kept": Out((1,), I32),
            "n": 1000,
        },
        block=256,
        archs=BOTH,
    ),
    Case(
        name="real_crc",
        args={"in": In(bits(64, 50, dtype=U8)), "out": Out((64,), U32), "length": 50},
        block=64,
        archs=BOTH,
    ),
    Case(
        name="real_nbody",
        args={"bodies": In(uniform(128, 4)), "forces": Out((128, 3)), "n": 128},
        grid=2,
        block=64,
        smem_bytes=64 * 16,
        archs=BOTH,
    ),
    Case(
        name="real_life",
        args={"in": In(bits(64, dtype=np.uint64)), "out": Out((64,), np.uint64), "generations": 12},
        block=64,
        archs=BOTH,
    ),
    Case(
        name="real_edit_distance",
        args={
            "a": In(whole(8, 32, low=97, high=100, dtype=np.int8)),
            "b": In(whole(8, 32, low=97, high=100, dtype=np.int8)),
            "out": Out((8,), I32),
        },
        grid=8,
        block=32,
        archs=BOTH,
    ),
)
