"""Formats of matrix elements: from the words of a fragment to numbers that NumPy multiplies.

Floats become float64, in which their products are exact: f16 and fp8 have at most 11 bits of
mantissa, bf16 has 8, tf32 has 11. Integers of 8 and 4 bits become float32: 256 products of
them stay below 2^24. Single bits stay words.

Source: PTX ISA, "Alternate Floating-Point Data Formats", "Fixed-point Data format",
"Sub-byte data types"; for tf32, "Matrix Data-types": the lower 13 bits of the register are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import ml_dtypes
import numpy as np

from dotcu.simulator.machine.chunk import Array

_BYTES = np.arange(256, dtype=np.uint8)
_TF32 = np.uint32(0xFFFFE000)


class Format(NamedTuple):
    """A type of multiplicand elements.

    Attributes:
        bits: Of one element.
        numbers: From words to elements, those of a word side by side, the lowest first.
    """

    bits: int
    numbers: Callable[[Array], Array]


def _f16(words: Array) -> Array:
    return words.view(np.float16).astype(np.float64)


def _bf16(words: Array) -> Array:
    wide = words.view(np.uint16).astype(np.uint32)
    wide <<= np.uint32(16)
    numbers: Array = wide.view(np.float32).astype(np.float64)
    return numbers


def _tf32(words: Array) -> Array:
    numbers: Array = (words & _TF32).view(np.float32).astype(np.float64)
    return numbers


def _fp8(type_: type) -> Callable[[Array], Array]:
    table = _BYTES.view(type_).astype(np.float64)
    return lambda words: table.take(words.view(np.uint8))


def _nibbles(signed: bool) -> Callable[[Array], Array]:
    pairs = np.stack((_BYTES & 15, _BYTES >> 4), axis=1).astype(np.float32)
    table = np.where(pairs >= 8, pairs - 16, pairs) if signed else pairs

    def numbers(words: Array) -> Array:
        return table.take(words.view(np.uint8), axis=0).reshape(*words.shape[:-1], -1)

    return numbers


MULTIPLICANDS: Mapping[str, Format] = {
    "f16": Format(16, _f16),
    "bf16": Format(16, _bf16),
    "tf32": Format(32, _tf32),
    "f64": Format(64, lambda words: words.view(np.float64)),
    "e4m3": Format(8, _fp8(ml_dtypes.float8_e4m3fn)),
    "e5m2": Format(8, _fp8(ml_dtypes.float8_e5m2)),
    "s8": Format(8, lambda words: words.view(np.int8).astype(np.float32)),
    "u8": Format(8, lambda words: words.view(np.uint8).astype(np.float32)),
    "s4": Format(4, _nibbles(signed=True)),
    "u4": Format(4, _nibbles(signed=False)),
    "b1": Format(1, lambda words: words),
}

# What C and D are kept as.
ACCUMULATORS: Mapping[str, np.dtype[np.generic]] = {
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "s32": np.dtype(np.int32),
}
