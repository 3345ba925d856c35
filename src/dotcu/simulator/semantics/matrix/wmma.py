"""wmma: matrices of a warp from memory, multiplied, and to memory.

Source: PTX ISA, "Warp-level Matrix Load Instruction: wmma.load", "... Store Instruction:
wmma.store", "... Multiply-and-Accumulate Instruction: wmma.mma".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dotcu.ptx.instructions import Address, Operand
from dotcu.simulator.decoding.inlining import FlatInstruction
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.machine.memory import SHARED_WINDOW, WINDOW_BYTES
from dotcu.simulator.machine.shape import WARP, Array
from dotcu.simulator.sanitizers import bounds
from dotcu.simulator.semantics.matrix.fragments import ELEMENT_BITS
from dotcu.simulator.semantics.matrix.mma import form_of, multiply_step, sizes_of
from dotcu.simulator.semantics.matrix.tiles import of_whole_warps, read, sources_of, targets_of, write
from dotcu.simulator.semantics.memory.access import Access
from dotcu.simulator.semantics.memory.load_store import load, store_elements
from dotcu.simulator.semantics.table import NotExecuted, unsigned
from dotcu.simulator.semantics.warp import Rendezvous

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding


_SPACES = frozenset({"global", "shared", "shared::cta"})
_MATRICES = {"load": frozenset("abc"), "store": frozenset("d")}


def bind_wmma(placed: FlatInstruction, binding: Binding) -> Rendezvous:
    """wmma.load, wmma.mma or wmma.store."""
    flags = placed.instruction.flags
    if flags[:1] == ("load",):
        return _bind_load(placed, binding)
    if flags[:1] == ("store",):
        return _bind_store(placed, binding)
    if flags[:1] == ("mma",):
        return _bind_mma(placed, binding)
    raise NotExecuted


def _bind_mma(placed: FlatInstruction, binding: Binding) -> Rendezvous:
    types = placed.instruction.types
    if len(types) == 2:  # those of D and C; A and B are f16
        types = (types[0], "f16", "f16", types[1])
    form = form_of(placed.instruction.flags, types, wmma=True)
    parts = (("d", form.d, "row"), ("a", form.a, form.layouts[0]))
    more = (("b", form.b, form.layouts[1]), ("c", form.c, "row"))
    fragments = [
        fragment_of(matrix, type_, form.shape, form.sizes, order) for matrix, type_, order in parts + more
    ]
    step = multiply_step(form, fragments, placed.instruction.operands, binding)
    return of_whole_warps(step, placed, binding)


# Memory


class _MatrixInMemory(NamedTuple):
    """The matrix of a load or store.

    Attributes:
        in_registers: The fragment as registers hold it: an accumulator by rows.
        base: The register with its address.
        address: A register of our own, for the addresses of the pieces.
        stride: From line to line: a register, with elements.
        whole: The access to the first line's part of a fragment, for its alignment.
        moves: The accesses to the parts of each piece.
    """

    fragment: WmmaFragment
    in_registers: WmmaFragment
    base: int
    address: int
    stride: int
    whole: Access
    moves: list[tuple[PieceAccess, Access]]


def _matrix_in_memory(
    placed: FlatInstruction, operands: Sequence[Operand], binding: Binding
) -> _MatrixInMemory:
    """Read the modifiers of a load or store, and its address and stride operands."""
    if len(placed.instruction.flags) < 2 or len(placed.instruction.operands) not in (2, 3):
        raise NotExecuted
    action, matrix, *flags = placed.instruction.flags
    order = [f for f in flags if f in ("row", "col")]
    spaces = [f for f in flags if f in _SPACES]
    shapes = [f for f in flags if f not in ("sync", "aligned", *order, *spaces)]
    types = placed.instruction.types
    if matrix not in _MATRICES[action] or len(types) != 1 or "sync" not in flags or "aligned" not in flags:
        raise NotExecuted
    if len(order) != 1 or len(shapes) != 1 or len(spaces) > 1 or not isinstance(operands[0], Address):
        raise NotExecuted
    fragment = fragment_of(matrix, types[0], shapes[0], sizes_of(shapes[0]), order[0])
    base, offset, space = binding.address(operands[0], spaces[0].split("::")[0] if spaces else "generic")
    if len(operands) > 1:
        stride = binding.source(operands[1], "u32").slot
    else:
        stride = binding.constant(np.array([fragment.length], np.uint32))
    address = binding.constant(np.zeros(1, np.uint64))
    moves = []
    for move in accesses_of(fragment):
        number = binding.next_access()
        kind = "write" if matrix == "d" else "read"
        access = Access(number, placed, space, address, offset, move.width, move.elements, kind)
        moves.append((move, access))
    whole = moves[0][1]._replace(width=fragment.word_bytes, elements=fragment.registers)
    in_registers = fragment
    if matrix in "cd" and order[0] == "col":
        in_registers = fragment._replace(lines=fragment.length, length=fragment.lines, transposed=False)
    return _MatrixInMemory(fragment, in_registers, base, address, stride, whole, moves)


def _check_alignment(chunk: Chunk, matrix: _MatrixInMemory) -> None:
    """Report matrices that do not begin at a multiple of their fragment's size."""
    address = chunk.read(matrix.base) + np.uint64(matrix.whole.offset & 0xFFFFFFFFFFFFFFFF)
    if not int(np.bitwise_or.reduce(address)) & (matrix.whole.bytes - 1):
        return
    address = address.astype(np.uint64)
    access = matrix.whole
    first = int(address[0])
    if access.space == "generic" and SHARED_WINDOW <= first < SHARED_WINDOW + WINDOW_BYTES:
        access, address = access._replace(space="shared"), address - np.uint64(SHARED_WINDOW)
    lanes = chunk.count()
    spread = np.repeat(address, lanes) if address.size == 1 else address
    bounds.refuse_misaligned(chunk, access, spread, np.arange(lanes))


def _visited(chunk: Chunk, matrix: _MatrixInMemory) -> Iterator[tuple[PieceAccess, Access]]:
    """Yield each part of the pieces, with the lanes active that move it, and its addresses ready."""
    whole = chunk.active
    pieces = matrix.fragment.pieces
    warps = chunk.count() // WARP
    if pieces != WARP:
        chunk.active = chunk.numbers().reshape(-1, WARP)[:, :pieces].reshape(-1)
    base = chunk.read(matrix.base)
    stride = chunk.read(matrix.stride).astype(np.uint64)
    for move, access in matrix.moves:
        line, byte = (np.tile(part, warps) for part in (move.line, move.byte))
        address = base + (line * stride * np.uint64(matrix.fragment.bits) // np.uint64(8) + byte)
        # A 32-bit address wraps as the hardware's adder does.
        chunk.write(matrix.address, address & np.uint64(0xFFFFFFFF) if base.itemsize == 4 else address)
        yield move, access
    chunk.active = whole


def _bind_load(placed: FlatInstruction, binding: Binding) -> Rendezvous:
    target, *operands = placed.instruction.operands
    matrix = _matrix_in_memory(placed, operands, binding)
    fragment, in_registers = matrix.fragment, matrix.in_registers
    targets = targets_of(target, fragment.registers, fragment.word_bytes, binding)
    word = unsigned(fragment.word_bytes)

    def step(chunk: Chunk) -> None:
        _check_alignment(chunk, matrix)
        lanes = chunk.count() // WARP * fragment.pieces
        words = np.empty((lanes, fragment.registers), word)
        for move, access in _visited(chunk, matrix):
            words[:, move.words] = _words(load(chunk, access), lanes, word)
        if in_registers is not fragment:
            words = fragment.transpose(words.reshape(-1, fragment.line_bytes // word.itemsize))
        write(chunk, targets, in_registers.scatter(words))

    return of_whole_warps(step, placed, binding)


def _bind_store(placed: FlatInstruction, binding: Binding) -> Rendezvous:
    address, source, *stride = placed.instruction.operands
    matrix = _matrix_in_memory(placed, (address, *stride), binding)
    fragment, in_registers = matrix.fragment, matrix.in_registers
    sources = sources_of(source, fragment.registers, f"b{8 * fragment.word_bytes}", binding)

    def step(chunk: Chunk) -> None:
        _check_alignment(chunk, matrix)
        words = in_registers.gather(read(chunk, sources))
        if in_registers is not fragment:
            words = in_registers.transpose(words)
        pieces = words.reshape(-1, fragment.registers)
        for move, access in _visited(chunk, matrix):
            part = np.ascontiguousarray(pieces[:, move.words]).view(unsigned(access.width))
            store_elements(chunk, access, list(part.T))

    return of_whole_warps(step, placed, binding)


def _words(values: list[Array], lanes: int, word: np.dtype[np.unsignedinteger]) -> Array:
    """Loaded elements, side by side for each lane, as words."""
    both = np.empty((lanes, len(values)), values[0].dtype)
    for element, value in enumerate(values):
        both[:, element] = value
    return both.view(word)


# Fragments of wmma: the elements of the matrix that each lane holds.
#
# NVIDIA leaves this open; any layout will do that load, mma and store agree on. Here a matrix is split,
# line after line as it is in memory, into one piece for each lane: a lane's registers hold neighbours.
# A and B lie by rows or by columns as .row or .col says, and so does their fragment; C and D are stored by
# rows, however they lie. Where a fragment has more room than its matrix has elements, lanes in the later
# part of the warp hold the pieces again, so that every element appears as often as the number of
# registers requires. Element-wise work on fragments is therefore right; code that relies on an element's
# place is not portable, here or elsewhere.
#
# Source: PTX ISA, "Matrix Fragments for WMMA" (registers of each fragment), "Matrix Storage for WMMA"
# (alignment, strides); CUDA Programming Guide, "Warp Matrix Functions" (ldm in 16 bytes).


_CHUNK_BYTES = 16


class WmmaFragment(NamedTuple):
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

    def transpose(self, words: Array) -> Array:
        """The words of the transposed matrix, of lines as many as these are long."""
        elements = words.view(f"u{self.bits // 8}").reshape(-1, self.lines, self.length)
        return np.ascontiguousarray(elements.swapaxes(1, 2)).view(words.dtype)


class PieceAccess(NamedTuple):
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


def accesses_of(fragment: WmmaFragment) -> list[PieceAccess]:
    """The accesses that move a fragment."""
    size = min(_CHUNK_BYTES, fragment.piece_bytes, fragment.line_bytes)
    per_word = fragment.word_bytes
    moves = []
    for start in range(0, fragment.piece_bytes, size):
        byte = np.arange(fragment.pieces) * fragment.piece_bytes + start
        line, rest = np.divmod(byte.astype(np.uint64), np.uint64(fragment.line_bytes))
        words = slice(start // per_word, (start + size) // per_word)
        width = min(8, size)
        moves.append(PieceAccess(line, rest, width, size // width, words))
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


def fragment_of(matrix: str, type_: str, shape: str, sizes: tuple[int, int, int], order: str) -> WmmaFragment:
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
            return WmmaFragment(lines, length, ELEMENT_BITS[type_], counts[shape], not by_rows)
    raise NotExecuted
