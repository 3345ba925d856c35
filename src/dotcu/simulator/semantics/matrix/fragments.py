"""Fragments of mma: which words of which matrix each lane's registers hold.

A lane's number and a register's number are split into axes, named by letters, and so are a
row and a word of a row; the layout says which is which. `k m | g t | m g | k t` reads: the
registers are numbered by (k, m), the lanes by (g, t); the row of the matrix is (m, g), and the
word in the row (k, t). A lane axis that is in neither counts matrices of one warp.

Every mma but the m8n8k4 of f16 follows one rule, with groupID the lane's g and
threadID_in_group its t: words of 32 bits (64 for f64) run along k, four lanes side by side.

Source: PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type", "... for
mma.m8n8k4 with .f64 floating point type", and the same for m8n8k16, m8n8k32, m8n8k128, m16n8k4,
m16n8k8, "mma.m16n8k16 with floating point type", "... with integer type", m16n8k32, m16n8k64,
m16n8k128 and m16n8k256.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dotcu.simulator.machine.chunk import WARP, Array


class Fragment(Protocol):
    """Registers of a warp that hold a matrix.

    Attributes:
        registers: Of each lane.
        transposed: What is gathered are the matrix's columns, where rows are wanted.
    """

    @property
    def registers(self) -> int: ...

    @property
    def transposed(self) -> bool: ...

    def gather(self, registers: Sequence[Array]) -> Array:
        """From registers, whole warps each, to words by matrix, row and word of the row."""

    def scatter(self, words: Array) -> list[Array]:
        """The way back, to fresh arrays."""


class Layout(NamedTuple):
    """A fragment that is a permutation of axes.

    Attributes:
        places: Of each register, in the axes of registers.
        lanes: Sizes of the axes of lanes.
        order: From the matrix's axes, warps first, to those of registers, warps and lanes.
        shape: Sizes of the matrix's axes, without the warps.
        rows: Rows of one matrix.
        words: Words of a row.
    """

    places: tuple[tuple[int, ...], ...]
    lanes: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]
    rows: int
    words: int
    transposed: bool = False

    @property
    def registers(self) -> int:
        """Registers of each lane."""
        return len(self.places)

    def gather(self, registers: Sequence[Array]) -> Array:
        """From registers to words by matrix, row and word of the row."""
        warps = len(registers[0]) // WARP
        words = np.empty((warps, *self.shape), registers[0].dtype)
        view = words.transpose(self.order)
        for place, register in zip(self.places, registers, strict=True):
            view[place] = register.reshape(warps, *self.lanes)
        return words.reshape(-1, self.rows, self.words)

    def scatter(self, words: Array) -> list[Array]:
        """From words by matrix, row and word of the row to registers."""
        view = words.reshape(-1, *self.shape).transpose(self.order)
        return [view[place].reshape(-1) for place in self.places]


def layout(text: str, *, transposed: bool = False, **sizes: int) -> Layout:
    """Read a layout such as "k m | g t | m g | k t".

    Args:
        sizes: How many each letter counts; g is 8 and t is 4 unless told.
    """
    sizes = {"g": 8, "t": 4, **sizes}
    held, lanes, rows, words = [part.split() for part in text.split("|")]
    matrices = [axis for axis in lanes if axis not in rows + words]
    wanted = ["warp", *matrices, *rows, *words]
    return Layout(
        places=tuple(np.ndindex(tuple(sizes[a] for a in held))),
        lanes=tuple(sizes[a] for a in lanes),
        order=tuple(wanted.index(a) for a in (*held, "warp", *lanes)),
        shape=tuple(sizes[a] for a in wanted[1:]),
        rows=math.prod(sizes[a] for a in rows),
        words=math.prod(sizes[a] for a in words),
        transposed=transposed,
    )


def multiplicand_a(m: int, k: int, bits: int) -> Layout:
    """A of an mma, its rows along k."""
    return layout("k m | g t | m g | k t", m=m // 8, k=k * bits // (4 * word_bits(bits)))


def multiplicand_b(k: int, bits: int) -> Layout:
    """B of an mma with eight columns, its columns along k."""
    return layout("k | g t | g | k t", transposed=True, k=k * bits // (4 * word_bits(bits)))


def accumulator(m: int, bits: int) -> Layout:
    """C or D of an mma with eight columns: each lane has two neighbours of a row."""
    if bits == 16:
        return layout("m | g t | m g | t", m=m // 8)
    return layout("m c | g t | m g | t c", m=m // 8, c=2)


def word_bits(bits: int) -> int:
    """Bits of the registers that hold elements."""
    return max(32, bits)


# mma.m8n8k4 of f16: four products a warp, each of eight lanes, q of 0..3: h is the high group,
# and u, v are the bits of a lane's place in its group; x, y, z those of the register.
_ALONG_LANES = "j | h q l | h l | j"
_ACROSS_LANES = "j | h q l | l | h j"


def quad_multiplicand(*, along_k: bool, is_b: bool) -> Layout:
    """A or B of mma.m8n8k4.f16: a lane has four elements along k, or four across it."""
    text = _ALONG_LANES if along_k else _ACROSS_LANES
    return layout(text, transposed=along_k == is_b, j=2, h=2, q=4, l=4)


def quad_accumulator(bits: int) -> Layout:
    """C or D of mma.m8n8k4.f16."""
    if bits == 16:
        return layout(_ALONG_LANES, j=4, h=2, q=4, l=4)
    return layout("x y z | h q u v | h y v | x u z", x=2, y=2, z=2, h=2, q=4, u=2, v=2)
