"""Fragments of wmma: which elements of its matrix each lane holds.

NVIDIA leaves this open; any layout will do that load, mma and store agree on. Here a matrix is
cut, line after line as it lies in memory, into one piece for each lane: a lane's registers hold
neighbours. A and B lie by rows or by columns as .row or .col says, and so does their fragment;
C and D are held by rows, however they lie. Where a fragment has more room than its matrix has
elements, lanes in the later part of the warp hold the pieces once more, so that every element
appears as often as the registers' number says. Element-wise work on fragments is therefore right;
code that takes an element's place for granted is not portable, here or elsewhere.

Source: PTX ISA, "Matrix Fragments for WMMA" (registers of each fragment), "Matrix Storage for
WMMA" (alignment, strides); CUDA Programming Guide, "Warp Matrix Functions" (ldm in 16 bytes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dotcu.simulator.machine.chunk import WARP, Array
from dotcu.simulator.semantics.table import NotExecuted

# Bits of each type of element in memory, and in registers.
ELEMENT_BITS: Mapping[str, int] = {
    **dict.fromkeys(("f16", "bf16"), 16),
    **dict.fromkeys(("tf32", "f32", "s32"), 32),
    "f64": 64,
    **dict.fromkeys(("s8", "u8"), 8),
    **dict.fromkeys(("s4", "u4"), 4),
    "b1": 1,
}
_CHUNK_BYTES = 16


class Lines(NamedTuple):
    """A fragment of wmma.

    Attributes:
        lines: How many rows, or columns, one after the other, make the matrix.
        length: Elements of each.
        bits: Of an element.
        registers: Of each lane.
        transposed: The lines are columns where rows are wanted.
    """

    lines: int
    length: int
    bits: int
    registers: int
    transposed: bool = False

    @property
    def word_bytes(self) -> int:
        """Bytes of a register."""
        return max(4, self.bits // 8)

    @property
    def piece_bytes(self) -> int:
        """Bytes that a lane holds."""
        return self.registers * self.word_bytes

    @property
    def line_bytes(self) -> int:
        """Bytes of a line."""
        return self.length * self.bits // 8

    @property
    def pieces(self) -> int:
        """Lanes that hold the matrix once."""
        return self.lines * self.line_bytes // self.piece_bytes

    def gather(self, registers: Sequence[Array]) -> Array:
        """From registers to words by warp, line and word of the line."""
        words = np.stack(registers, axis=-1).reshape(-1, WARP, self.registers)[:, : self.pieces]
        return words.reshape(-1, self.lines, self.line_bytes // self.word_bytes)

    def scatter(self, words: Array) -> list[Array]:
        """From words by warp, line and word of the line to registers."""
        once = words.reshape(-1, self.pieces, self.registers)
        lanes = np.tile(once, (1, WARP // self.pieces, 1))
        return [lanes[:, :, register].reshape(-1) for register in range(self.registers)]

    def turned(self, words: Array) -> Array:
        """The words of the transposed matrix, of lines as many as these are long."""
        elements = words.view(f"u{self.bits // 8}").reshape(-1, self.lines, self.length)
        return np.ascontiguousarray(elements.swapaxes(1, 2)).view(words.dtype)


class Move(NamedTuple):
    """One access of up to 16 bytes that each lane with a piece of its own makes.

    Attributes:
        line: For each of these lanes the line.
        byte: And the byte in it.
        width: Bytes of one element of the access.
        elements: How many.
        words: Which words of the piece these are.
    """

    line: Array
    byte: Array
    width: int
    elements: int
    words: slice


def moves_of(fragment: Lines) -> list[Move]:
    """The accesses that move a fragment."""
    size = min(_CHUNK_BYTES, fragment.piece_bytes, fragment.line_bytes)
    per_word = fragment.word_bytes
    moves = []
    for start in range(0, fragment.piece_bytes, size):
        byte = np.arange(fragment.pieces) * fragment.piece_bytes + start
        line, rest = np.divmod(byte.astype(np.uint64), np.uint64(fragment.line_bytes))
        words = slice(start // per_word, (start + size) // per_word)
        width = min(8, size)
        moves.append(Move(line, rest, width, size // width, words))
    return moves


# Registers of each fragment: matrix and type to a number, or to one for each shape.
_COUNTS: Mapping[tuple[str, str], Mapping[str, int]] = {
    ("ab", "f16"): {"m16n16k16": 8, "m32n8k16": 8, "m8n32k16": 8},
    ("a", "bf16"): {"m16n16k16": 4, "m32n8k16": 8, "m8n32k16": 2},
    ("b", "bf16"): {"m16n16k16": 4, "m32n8k16": 2, "m8n32k16": 8},
    ("a", "8"): {"m16n16k16": 2, "m32n8k16": 4, "m8n32k16": 1},
    ("b", "8"): {"m16n16k16": 2, "m32n8k16": 1, "m8n32k16": 4},
    ("ab", "tf32"): {"m16n16k8": 4},
    ("ab", "f64"): {"m8n8k4": 1},
    ("ab", "4"): {"m8n8k32": 1},
    ("ab", "1"): {"m8n8k128": 1},
    ("cd", "f16"): {"m16n16k16": 4, "m32n8k16": 4, "m8n32k16": 4},
    ("cd", "f32"): {"m16n16k16": 8, "m32n8k16": 8, "m8n32k16": 8, "m16n16k8": 8},
    ("cd", "s32"): {"m16n16k16": 8, "m32n8k16": 8, "m8n32k16": 8, "m8n8k32": 2, "m8n8k128": 2},
    ("cd", "f64"): {"m8n8k4": 2},
}


def lines_of(matrix: str, type_: str, shape: str, sizes: tuple[int, int, int], order: str) -> Lines:
    """The fragment of a matrix.

    Args:
        matrix: "a", "b", "c" or "d".
        sizes: M, N and K of the shape.
        order: "row" or "col": how the matrix lies.
    """
    m, n, k = sizes
    rows, columns = {"a": (m, k), "b": (k, n)}.get(matrix, (m, n))
    if ELEMENT_BITS[type_] < 8 and (matrix, order) not in (("a", "row"), ("b", "col")):
        raise NotExecuted
    kind = type_ if type_ not in ("s8", "u8", "s4", "u4", "b1") else type_[1:]
    for (matrices, types), counts in _COUNTS.items():
        if matrix in matrices and kind == types and shape in counts:
            by_rows = order == "row"
            lines, length = (rows, columns) if by_rows else (columns, rows)
            return Lines(lines, length, ELEMENT_BITS[type_], counts[shape], not by_rows)
    raise NotExecuted
