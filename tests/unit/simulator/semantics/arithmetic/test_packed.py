"""Packed integers against Python's: 16-bit pairs and the SIMD video instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

WORDS = np.random.default_rng(5).integers(0, 2**32, 300, dtype=np.uint64).astype("u4")
EDGES = np.array(
    [0, 0xFFFFFFFF, 0x80008000, 0x7FFF7FFF, 0x80007FFF, 0x80808080, 0x7F7F7F7F, 0x00FF00FF], "u4"
)
A, B = (m.reshape(-1).copy() for m in np.meshgrid(np.concatenate((EDGES, WORDS[:40])), EDGES))


def parts(word: int, bits: int, signed: bool) -> list[int]:
    found = [(word >> at) & ((1 << bits) - 1) for at in range(0, 32, bits)]
    return [v - (1 << bits) if signed and v >> (bits - 1) else v for v in found]


def packed(values: list[int], bits: int) -> int:
    return sum((v & ((1 << bits) - 1)) << (bits * n) for n, v in enumerate(values))


PAIRS: dict[str, tuple[bool, Callable[[int, int], int]]] = {
    "add.u16x2": (False, lambda x, y: x + y),
    "add.s16x2": (True, lambda x, y: x + y),
    "min.u16x2": (False, min),
    "max.u16x2": (False, max),
    "min.s16x2": (True, min),
    "max.s16x2": (True, max),
    "min.relu.s16x2": (True, lambda x, y: max(min(x, y), 0)),
    "max.relu.s16x2": (True, lambda x, y: max(x, y, 0)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_16_bits(execute: Any, name: str) -> None:
    signed, function = PAIRS[name]
    got = execute(f"{name} %r0, %a, %b;", A, B, result="u4").tolist()
    want = [
        packed([function(x, y) for x, y in zip(parts(a, 16, signed), parts(b, 16, signed), strict=True)], 16)
        for a, b in zip(A.tolist(), B.tolist(), strict=True)
    ]
    assert got == want


def average(x: int, y: int) -> int:
    """Half the sum, upwards; below zero downwards."""
    return (x + y + 1) // 2 if x + y >= 0 else (x + y) // 2


VIDEO: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda x, y: x + y,
    "vsub": lambda x, y: x - y,
    "vavrg": average,
    "vabsdiff": lambda x, y: abs(x - y),
    "vmin": min,
    "vmax": max,
    "vset": lambda x, y: int(x < y),
}


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("signs", ["u32.u32", "s32.s32", "u32.s32"])
@pytest.mark.parametrize("name", VIDEO)
def test_simd_video_instructions(execute: Any, name: str, signs: str, count: int) -> None:
    bits, function = 32 // count, VIDEO[name]
    types = f"{signs}.lt" if name == "vset" else f"s32.{signs}"
    first, second = (kind[0] == "s" for kind in signs.split("."))
    c = WORDS[: len(A)].copy() if len(A) <= len(WORDS) else np.resize(WORDS, len(A))
    exact = [
        [function(x, y) for x, y in zip(parts(a, bits, first), parts(b, bits, second), strict=True)]
        for a, b in zip(A.tolist(), B.tolist(), strict=True)
    ]
    got = execute(f"{name}{count}.{types} %r0, %a, %b, %c;", A, B, c, result="u4")
    assert got.tolist() == [packed(values, bits) for values in exact]
    got = execute(f"{name}{count}.{types}.add %r0, %a, %b, %c;", A, B, c, result="u4")
    assert got.tolist() == [(sum(v) + z) % 2**32 for v, z in zip(exact, c.tolist(), strict=True)]
    if name != "vset":
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        got = execute(f"{name}{count}.{types}.sat %r0, %a, %b, %c;", A, B, c, result="u4")
        assert got.tolist() == [packed([min(max(x, low), high) for x in v], bits) for v in exact]
