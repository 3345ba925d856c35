"""wmma: matrices of a warp from memory, multiplied, and to memory.

Source: PTX ISA, "Warp-level Matrix Load Instruction: wmma.load", "... Store Instruction:
wmma.store", "... Multiply-and-Accumulate Instruction: wmma.mma".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from dotcu.ptx.instructions import Operand
from dotcu.simulator.machine.access import refuse_misaligned
from dotcu.simulator.machine.memory import SHARED_WINDOW, WINDOW_BYTES
from dotcu.simulator.machine.shape import WARP
from dotcu.simulator.machine.state import Access, Batch, InstructionStep, active_threads
from dotcu.simulator.program.binding import MANY, Binding, chosen, counted, only, require, unsigned
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.semantics.load_store import load, store_elements
from dotcu.simulator.semantics.matrix.mma import (
    ELEMENT_BITS,
    FAMILIES,
    WmmaFragment,
    form_of,
    multiply_step,
    sizes_of,
)
from dotcu.simulator.semantics.matrix.tiles import read, sources_of, targets_of

_SPACES = frozenset({"global", "shared", "shared::cta"})
_MATRICES = {"load": frozenset("abc"), "store": frozenset("d")}


def bind_wmma(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """wmma.load, wmma.mma or wmma.store."""
    return chosen(_KINDS, counted(instruction.ptx.flags, 2, MANY)[0])(instruction, binding)


def _bind_mma(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    types = instruction.ptx.types
    if len(types) == 2:  # those of D and C; A and B are f16
        types = (types[0], "f16", "f16", types[1])
    form = form_of(instruction.ptx.flags, types, "wmma")
    spelled = zip("dabc", (form.d, form.a, form.b, form.c), ("row", *form.layouts, "row"), strict=True)
    fragments = [_fragment_of(matrix, type_, form.shape, order) for matrix, type_, order in spelled]
    return multiply_step(form, fragments, instruction.ptx.operands, binding)


Visit = Callable[[Batch], Iterator[tuple[Access, slice]]]
"""Yields the accesses to the parts of each piece, of up to 16 bytes, and which of its words they are, with
those lanes active that move them and the addresses ready."""


def _matrix_in_memory(
    instruction: FlatInstruction, operands: Sequence[Operand], binding: Binding
) -> tuple[WmmaFragment, WmmaFragment, Visit]:
    """Read the modifiers of a load or store, and its address and stride operands.

    Returns:
        The fragment as it lies in memory, as registers hold it (an accumulator by rows), and its accesses.
    """
    action, matrix, *flags = counted(instruction.ptx.flags, 2, MANY)
    order = [f for f in flags if f in ("row", "col")]
    spaces = [f for f in flags if f in _SPACES]
    shapes = [f for f in flags if f not in ("sync", "aligned", *order, *spaces)]
    type_, layout, shape = only(instruction.ptx.types), only(order), only(shapes)
    require(matrix in _MATRICES[action] and {"sync", "aligned"}.issubset(flags) and len(spaces) <= 1)
    pointer, *strides = counted(operands, 1, 2)
    fragment = _fragment_of(matrix, type_, shape, layout)
    base, offset, space = binding.address(pointer, spaces[0].split("::")[0] if spaces else "generic")
    if strides:
        stride = binding.source(strides[0], "u32").slot
    else:
        stride = binding.constant(np.array([fragment.length], np.uint32))
    address = binding.constant(np.zeros(1, np.uint64))
    kind = "write" if matrix == "d" else "read"
    size = min(_CHUNK_BYTES, fragment.piece_bytes, fragment.line_bytes)
    width, word, pieces = min(8, size), fragment.word_bytes, fragment.pieces
    moves = []
    for start in range(0, fragment.piece_bytes, size):
        access = Access(
            binding.next_access(), instruction, space, address, offset, width, size // width, kind
        )
        byte = np.arange(pieces) * fragment.piece_bytes + start
        line, rest = np.divmod(byte.astype(np.uint64), np.uint64(fragment.line_bytes))
        moves.append((access, line, rest, slice(start // word, (start + size) // word)))
    whole = moves[0][0]._replace(width=word, elements=fragment.registers)

    def visit(batch: Batch) -> Iterator[tuple[Access, slice]]:
        _check_alignment(batch, whole, base)
        active, warps = batch.active, batch.count() // WARP
        if pieces != WARP:
            active = batch.numbers().reshape(-1, WARP)[:, :pieces].reshape(-1)
        with active_threads(batch, active):
            start, pitch = batch.read(base), batch.read(stride).astype(np.uint64)
            for access, *places, words in moves:
                line, byte = (np.tile(part, warps) for part in places)
                at = start + (line * pitch * np.uint64(fragment.bits) // np.uint64(8) + byte)
                # A 32-bit address wraps as the hardware's adder does.
                batch.write(address, at & np.uint64(0xFFFFFFFF) if start.itemsize == 4 else at)
                yield access, words

    in_registers = fragment
    if matrix in "cd" and layout == "col":
        in_registers = fragment._replace(lines=fragment.length, length=fragment.lines, transposed=False)
    return fragment, in_registers, visit


def _check_alignment(batch: Batch, access: Access, base: int) -> None:
    """Report matrices that do not begin at a multiple of their fragment's size."""
    address = batch.read(base) + np.uint64(access.offset & 0xFFFFFFFFFFFFFFFF)
    if not int(np.bitwise_or.reduce(address)) & (access.bytes - 1):
        return
    address = np.broadcast_to(address.astype(np.uint64), batch.count())
    if access.space == "generic" and SHARED_WINDOW <= int(address[0]) < SHARED_WINDOW + WINDOW_BYTES:
        access, address = access._replace(space="shared"), address - np.uint64(SHARED_WINDOW)
    refuse_misaligned(batch, access, address, np.arange(len(address)))


def _bind_load(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    target, *operands = counted(instruction.ptx.operands, 2, 3)
    fragment, in_registers, visit = _matrix_in_memory(instruction, operands, binding)
    targets = targets_of(target, fragment.registers, fragment.word_bytes, binding)
    word = unsigned(fragment.word_bytes)

    def step(batch: Batch) -> None:
        lanes = batch.count() // WARP * fragment.pieces
        words = np.empty((lanes, fragment.registers), word)
        for access, part in visit(batch):
            elements = [np.broadcast_to(value, lanes) for value in load(batch, access)]
            words[:, part] = np.stack(elements, axis=1).view(word)
        if in_registers is not fragment:
            words = fragment.transpose(words.reshape(-1, fragment.line_bytes // word.itemsize))
        for to, value in zip(targets, in_registers.scatter(words), strict=True):
            to.write(batch, value)

    return step


def _bind_store(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    address, source, *stride = counted(instruction.ptx.operands, 2, 3)
    fragment, in_registers, visit = _matrix_in_memory(instruction, (address, *stride), binding)
    sources = sources_of(source, fragment.registers, f"b{8 * fragment.word_bytes}", binding)

    def step(batch: Batch) -> None:
        words = in_registers.gather(read(batch, sources))
        if in_registers is not fragment:
            words = in_registers.transpose(words)
        pieces = words.reshape(-1, fragment.registers)
        for access, part in visit(batch):
            moved = np.ascontiguousarray(pieces[:, part]).view(unsigned(access.width))
            store_elements(batch, access, list(moved.T))

    return step


_KINDS: Mapping[str, Callable[[FlatInstruction, Binding], InstructionStep]] = {
    "load": _bind_load,
    "store": _bind_store,
    "mma": _bind_mma,
}


_CHUNK_BYTES = 16


def _fragment_of(matrix: str, type_: str, shape: str, order: str) -> WmmaFragment:
    """The fragment of a matrix, "a" to "d", of a product of some shape; `order` says how it lies."""
    multiplies, bits = matrix in "ab", chosen(ELEMENT_BITS, type_)
    column = "types" if multiplies else "sums"
    known = any(shape in family["wmma"] and type_ in family[column] for _, family, _ in FAMILIES)
    require(known and (bits >= 8 or (matrix, order) in (("a", "row"), ("b", "col"))))
    m, n, k = sizes_of(shape)
    rows, columns = {"a": (m, k), "b": (k, n)}.get(matrix, (m, n))
    lines, length = (rows, columns) if order == "row" else (columns, rows)
    # As many as the elements need; A and B of f16 have 8 in every shape, in which elements may repeat.
    registers = 8 if multiplies and type_ == "f16" else rows * columns * bits // (WARP * max(32, bits))
    return WmmaFragment(lines, length, bits, registers, order != "row")
