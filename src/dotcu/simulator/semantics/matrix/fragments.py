"""Fragments of mma: which words of which matrix each lane's registers hold.

A lane's number and a register's number are split into axes, named by letters, and so are a
row and a word of a row; the layout says which is which. `k m | g t | m g | k t` reads: the
registers are numbered by (k, m), the lanes by (g, t); the row of the matrix is (m, g), and the
word in the row (k, t). A lane axis that is in neither counts matrices of one warp.

Every mma except the m8n8k4 of f16 follows one rule, with groupID the lane's g and
threadID_in_group its t: words of 32 bits (64 for f64) run along k, four lanes side by side.

Source: PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type", "... for
mma.m8n8k4 with .f64 floating point type", and the same for m8n8k16, m8n8k32, m8n8k128, m16n8k4,
m16n8k8, "mma.m16n8k16 with floating point type", "... with integer type", m16n8k32, m16n8k64,
m16n8k128 and m16n8k256.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import ml_dtypes
import numpy as np

from dotcu.simulator.machine.shape import WARP, Array
from dotcu.simulator.semantics.arithmetic.half import widen


class FragmentLayout(NamedTuple):
    """A fragment that is a permutation of axes.

    Attributes:
        indices: Of each register, in the axes of registers.
        lanes: Sizes of the axes of lanes.
        order: From the matrix's axes, warps first, to those of registers, warps and lanes.
        shape: Sizes of the matrix's axes, without the warps.
        rows: Rows of one matrix.
        words: Words of a row.
    """

    indices: tuple[tuple[int, ...], ...]
    lanes: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]
    rows: int
    words: int
    transposed: bool = False

    @property
    def registers(self) -> int:
        """Registers of each lane."""
        return len(self.indices)

    def gather(self, registers: Sequence[Array]) -> Array:
        """From registers to words by matrix, row and word of the row."""
        warps = len(registers[0]) // WARP
        words = np.empty((warps, *self.shape), registers[0].dtype)
        view = words.transpose(self.order)
        for place, register in zip(self.indices, registers, strict=True):
            view[place] = register.reshape(warps, *self.lanes)
        return words.reshape(-1, self.rows, self.words)

    def scatter(self, words: Array) -> list[Array]:
        """From words by matrix, row and word of the row to registers."""
        view = words.reshape(-1, *self.shape).transpose(self.order)
        return [view[place].reshape(-1) for place in self.indices]


def layout(text: str, *, transposed: bool = False, **sizes: int) -> FragmentLayout:
    """Read a layout such as "k m | g t | m g | k t".

    Args:
        sizes: How many each letter counts; g is 8 and t is 4 by default.
    """
    sizes = {"g": 8, "t": 4, **sizes}
    registers, lanes, rows, words = [part.split() for part in text.split("|")]
    matrices = [axis for axis in lanes if axis not in rows + words]
    wanted = ["warp", *matrices, *rows, *words]
    return FragmentLayout(
        indices=tuple(np.ndindex(tuple(sizes[a] for a in registers))),
        lanes=tuple(sizes[a] for a in lanes),
        order=tuple(wanted.index(a) for a in (*registers, "warp", *lanes)),
        shape=tuple(sizes[a] for a in wanted[1:]),
        rows=math.prod(sizes[a] for a in rows),
        words=math.prod(sizes[a] for a in words),
        transposed=transposed,
    )


def fragments_of(sizes: Sequence[int], bits: int, sum_bits: int) -> tuple[FragmentLayout, ...]:
    """The fragments of D, A, B and C of an mma with eight columns, A by rows and B by columns.

    Args:
        sizes: M, N and K.
        bits: Bits of an element of A and B.
        sum_bits: Bits of an element of C and D.
    """
    m, k = sizes[0] // 8, sizes[2] * bits // (4 * max(32, bits))
    a = layout("k m | g t | m g | k t", m=m, k=k)
    b = layout("k | g t | g | k t", transposed=True, k=k)
    # Of C and D, each lane has two neighbours of a row, of 16 bits in one register.
    if sum_bits == 16:
        sums = layout("m | g t | m g | t", m=m)
    else:
        sums = layout("m c | g t | m g | t c", m=m, c=2)
    return sums, a, b, sums


# mma.m8n8k4 of f16: four products a warp, each of eight lanes, q of 0..3: h is the high group,
# and u, v are the bits of a lane's place in its group; x, y, z those of the register.
_ALONG_LANES = "j | h q l | h l | j"
_ACROSS_LANES = "j | h q l | l | h j"


def quad_multiplicand(*, along_k: bool, is_b: bool) -> FragmentLayout:
    """A or B of mma.m8n8k4.f16: a lane has four elements along k, or four across it."""
    text = _ALONG_LANES if along_k else _ACROSS_LANES
    return layout(text, transposed=along_k == is_b, j=2, h=2, q=4, l=4)


def quad_accumulator(bits: int) -> FragmentLayout:
    """C or D of mma.m8n8k4.f16."""
    if bits == 16:
        return layout(_ALONG_LANES, j=4, h=2, q=4, l=4)
    return layout("x y z | h q u v | h y v | x u z", x=2, y=2, z=2, h=2, q=4, u=2, v=2)


# Formats of matrix elements: from the words of a fragment to numbers that NumPy multiplies.
#
# Floats become float64, in which their products are exact: f16 and fp8 have at most 11 bits of mantissa,
# bf16 has 8, tf32 has 11. Integers of 8 and 4 bits become float32: 256 products of them stay below 2^24.
# Single bits stay words.
#
# Source: PTX ISA, "Alternate Floating-Point Data Formats", "Fixed-point Data format", "Sub-byte data
# types"; for tf32, "Matrix Data-types": the lower 13 bits of the register are ignored.


_BYTES = np.arange(256, dtype=np.uint8)
_TF32 = np.uint32(0xFFFFE000)


# Bits of each type of element.
ELEMENT_BITS: Mapping[str, int] = {
    **dict.fromkeys(("f16", "bf16"), 16),
    **dict.fromkeys(("tf32", "f32", "s32"), 32),
    "f64": 64,
    **dict.fromkeys(("s8", "u8", "e4m3", "e5m2"), 8),
    **dict.fromkeys(("s4", "u4"), 4),
    "b1": 1,
}


def _fp8(type_: type) -> Callable[[Array], Array]:
    table = _BYTES.view(type_).astype(np.float64)
    return lambda words: table.take(words.view(np.uint8))


def _nibbles(signed: bool) -> Callable[[Array], Array]:
    pairs = np.stack((_BYTES & 15, _BYTES >> 4), axis=1).astype(np.float32)
    table = np.where(pairs >= 8, pairs - 16, pairs) if signed else pairs

    def numbers(words: Array) -> Array:
        return table.take(words.view(np.uint8), axis=0).reshape(*words.shape[:-1], -1)

    return numbers


# From words to elements, those of a word side by side, the lowest first.
MULTIPLICANDS: Mapping[str, Callable[[Array], Array]] = {
    "f16": lambda words: words.view(np.float16).astype(np.float64),
    "bf16": lambda words: widen(words.view(np.uint16), "bf16").astype(np.float64),
    "tf32": lambda words: (words & _TF32).view(np.float32).astype(np.float64),
    "f64": lambda words: words.view(np.float64),
    "e4m3": _fp8(ml_dtypes.float8_e4m3fn),
    "e5m2": _fp8(ml_dtypes.float8_e5m2),
    "s8": lambda words: words.view(np.int8).astype(np.float32),
    "u8": lambda words: words.view(np.uint8).astype(np.float32),
    "s4": _nibbles(signed=True),
    "u4": _nibbles(signed=False),
    "b1": lambda words: words,
}

# What C and D are kept as.
ACCUMULATORS: Mapping[str, np.dtype[np.generic]] = {
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "s32": np.dtype(np.int32),
}
