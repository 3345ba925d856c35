"""Tiles of 8 by 8 elements of 16 bits: ldmatrix, stmatrix, movmatrix.

A tile's row is 16 bytes in shared memory; lane 8 * j + i gives the address of row i of tile j.
In registers, lane 4 * i + p has the pair p of row i.

Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix", "... store instruction:
stmatrix", "... transpose instruction: movmatrix". The shapes of 8 and fewer bits need sm_100.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import Address, Instruction, Operand
from dotcu.ptx.link import Placed
from dotcu.simulator.machine.chunk import WARP, Array, Chunk
from dotcu.simulator.machine.memory import SHARED_WINDOW
from dotcu.simulator.semantics.matrix.warps import of_whole_warps, read, sources_of, targets_of, write
from dotcu.simulator.semantics.memory import load, save
from dotcu.simulator.semantics.spaces import Access
from dotcu.simulator.semantics.table import NotExecuted, Step
from dotcu.simulator.semantics.warp import Rendezvous

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding

_COUNTS: Mapping[str, int] = {"x1": 1, "x2": 2, "x4": 4}
_MODIFIERS = frozenset({"sync", "aligned", "m8n8", "trans", "shared", "shared::cta", *_COUNTS})
_NEEDED = frozenset({"sync", "aligned", "m8n8"})


def _count_of(instruction: Instruction) -> int:
    """How many tiles ldmatrix or stmatrix moves."""
    flags = frozenset(instruction.flags)
    counts = flags & _COUNTS.keys()
    if not _NEEDED <= flags <= _MODIFIERS or len(counts) != 1 or instruction.types != ("b16",):
        raise NotExecuted
    return _COUNTS[next(iter(counts))]


def _rows_access(placed: Placed, operand: Operand, action: str, binding: Binding) -> tuple[Access, Step]:
    """The access to rows of 16 bytes in shared memory, and what makes its address ready."""
    if not isinstance(operand, Address):
        raise NotExecuted
    is_generic = not any(f.startswith("shared") for f in placed.instruction.flags)
    slot, offset, _ = binding.address(operand, "generic" if is_generic else "shared")
    place = binding.constant(np.zeros(1, np.uint64)) if is_generic else slot

    def prepare(chunk: Chunk) -> None:
        # An address outside the window wraps to one that no block has, and is reported as such.
        if is_generic:
            chunk.write(place, chunk.read(slot) - np.uint64(SHARED_WINDOW))

    return Access(binding.next_access(), placed, "shared", place, offset, 8, 2, action), prepare


def _with_row_lanes(chunk: Chunk, count: int, work: Callable[[], None]) -> None:
    """Do something with those lanes active that give the addresses of `count` tiles."""
    whole = chunk.active
    if 8 * count != WARP:
        chunk.active = chunk.numbers().reshape(-1, WARP)[:, : 8 * count].reshape(-1)
    work()
    chunk.active = whole


def _transposed(words: Array) -> Array:
    """Tiles of words, each transposed: (..., 8 rows, 4 words)."""
    halves = words.view(np.uint16)
    return np.ascontiguousarray(halves.swapaxes(-1, -2)).view(np.uint32)


def bind_ldmatrix(placed: Placed, binding: Binding) -> Rendezvous:
    """ldmatrix.m8n8.b16."""
    instruction = placed.instruction
    count = _count_of(instruction)
    targets = targets_of(instruction.operands[0], count, 4, binding)
    access, prepare = _rows_access(placed, instruction.operands[1], "read", binding)
    transpose = "trans" in instruction.flags

    def step(chunk: Chunk) -> None:
        warps = chunk.count() // WARP
        rows = np.empty((warps * count * 8, 2), np.uint64)

        def fill() -> None:
            prepare(chunk)
            rows[:, 0], rows[:, 1] = load(chunk, access)

        _with_row_lanes(chunk, count, fill)
        words = rows.view(np.uint32).reshape(warps, count, 8, 4)
        if transpose:
            words = _transposed(words)
        tiles = words.reshape(warps, count, WARP)
        write(chunk, targets, [tiles[:, tile].reshape(-1) for tile in range(count)])

    return of_whole_warps(step, placed, binding)


def bind_stmatrix(placed: Placed, binding: Binding) -> Rendezvous:
    """stmatrix.m8n8.b16."""
    instruction = placed.instruction
    count = _count_of(instruction)
    access, prepare = _rows_access(placed, instruction.operands[0], "write", binding)
    sources = sources_of(instruction.operands[1], count, "b32", binding)
    transpose = "trans" in instruction.flags

    def step(chunk: Chunk) -> None:
        tiles = [value.reshape(-1, 8, 4) for value in read(chunk, sources)]
        words = np.stack(tiles, axis=1)
        if transpose:
            words = _transposed(words)
        rows = words.view(np.uint64).reshape(-1, 2)

        def empty() -> None:
            prepare(chunk)
            save(chunk, access, [rows[:, 0], rows[:, 1]])

        _with_row_lanes(chunk, count, empty)

    return of_whole_warps(step, placed, binding)


def bind_movmatrix(placed: Placed, binding: Binding) -> Rendezvous:
    """movmatrix: a tile in registers, transposed."""
    instruction = placed.instruction
    flags = ("sync", "aligned", "m8n8", "trans")
    if instruction.flags != flags or instruction.types != ("b16",) or len(instruction.operands) != 2:
        raise NotExecuted
    targets = targets_of(instruction.operands[0], 1, 4, binding)
    sources = sources_of(instruction.operands[1], 1, "b32", binding)

    def step(chunk: Chunk) -> None:
        (value,) = read(chunk, sources)
        write(chunk, targets, [_transposed(value.reshape(-1, 8, 4)).reshape(-1)])

    return of_whole_warps(step, placed, binding)
