"""wmma: matrices of a warp from memory, multiplied, and to memory.

Source: PTX ISA, "Warp-level Matrix Load Instruction: wmma.load", "... Store Instruction:
wmma.store", "... Multiply-and-Accumulate Instruction: wmma.mma". How fragments are held: `lines`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dotcu.ptx.instructions import Address, Operand
from dotcu.ptx.link import Placed
from dotcu.simulator.machine.chunk import WARP, Array, Chunk
from dotcu.simulator.machine.memory import SHARED_WINDOW, WINDOW_BYTES
from dotcu.simulator.sanitizers import bounds
from dotcu.simulator.semantics.matrix.lines import Lines, Move, lines_of, moves_of
from dotcu.simulator.semantics.matrix.mma import Fragments, form_of, multiply_step, sizes_of
from dotcu.simulator.semantics.matrix.warps import of_whole_warps, read, sources_of, targets_of, write
from dotcu.simulator.semantics.memory import load, save
from dotcu.simulator.semantics.spaces import Access
from dotcu.simulator.semantics.table import NotExecuted, unsigned
from dotcu.simulator.semantics.warp import Rendezvous

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding

_SPACES = frozenset({"global", "shared", "shared::cta"})
_MATRICES = {"load": frozenset("abc"), "store": frozenset("d")}


def bind_wmma(placed: Placed, binding: Binding) -> Rendezvous:
    """wmma.load, wmma.mma or wmma.store."""
    flags = placed.instruction.flags
    if flags[:1] == ("load",):
        return _bind_load(placed, binding)
    if flags[:1] == ("store",):
        return _bind_store(placed, binding)
    if flags[:1] == ("mma",):
        return _bind_mma(placed, binding)
    raise NotExecuted


def _bind_mma(placed: Placed, binding: Binding) -> Rendezvous:
    types = placed.instruction.types
    if len(types) == 2:  # those of D and C; A and B are f16
        types = (types[0], "f16", "f16", types[1])
    form = form_of(placed.instruction.flags, types, wmma=True)
    parts = (("d", form.d, "row"), ("a", form.a, form.layouts[0]))
    more = (("b", form.b, form.layouts[1]), ("c", form.c, "row"))
    fragments = Fragments(
        *(lines_of(matrix, type_, form.shape, form.sizes, order) for matrix, type_, order in parts + more)
    )
    step = multiply_step(form, fragments, placed.instruction.operands, binding)
    return of_whole_warps(step, placed, binding)


# Memory


class _Place(NamedTuple):
    """Where a matrix lies.

    Attributes:
        base: The register with its address.
        address: A register of our own, for the addresses of the pieces.
        stride: From line to line: a register, with elements.
        whole: The access to the first line's part of a fragment, for its alignment.
        moves: The accesses to the parts of each piece.
    """

    fragment: Lines
    base: int
    address: int
    stride: int
    whole: Access
    moves: list[tuple[Move, Access]]


class _Spelled(NamedTuple):
    """What the modifiers of a load or store say."""

    matrix: str
    order: str
    fragment: Lines
    space: str


def _spelled(placed: Placed) -> _Spelled:
    if len(placed.instruction.flags) < 2 or len(placed.instruction.operands) not in (2, 3):
        raise NotExecuted
    action, matrix, *flags = placed.instruction.flags
    order = [f for f in flags if f in ("row", "col")]
    spaces = [f for f in flags if f in _SPACES]
    shapes = [f for f in flags if f not in ("sync", "aligned", *order, *spaces)]
    types = placed.instruction.types
    if matrix not in _MATRICES[action] or len(types) != 1 or "sync" not in flags or "aligned" not in flags:
        raise NotExecuted
    if len(order) != 1 or len(shapes) != 1 or len(spaces) > 1:
        raise NotExecuted
    fragment = lines_of(matrix, types[0], shapes[0], sizes_of(shapes[0]), order[0])
    space = spaces[0].split("::")[0] if spaces else "generic"
    return _Spelled(matrix, order[0], fragment, space)


def _place(
    placed: Placed, spelled: _Spelled, address: Operand, stride: tuple[Operand, ...], binding: Binding
) -> _Place:
    if not isinstance(address, Address):
        raise NotExecuted
    fragment = spelled.fragment
    base, offset, space = binding.address(address, spelled.space)
    if stride:
        given = binding.source(stride[0], "u32").slot
    else:
        given = binding.constant(np.array([fragment.length], np.uint32))
    action = "write" if spelled.matrix == "d" else "read"
    place = binding.constant(np.zeros(1, np.uint64))
    moves = []
    for move in moves_of(fragment):
        number = binding.next_access()
        access = Access(number, placed, space, place, offset, move.width, move.elements, action)
        moves.append((move, access))
    whole = moves[0][1]._replace(width=fragment.word_bytes, elements=fragment.registers)
    return _Place(fragment, base, place, given, whole, moves)


def _check_alignment(chunk: Chunk, place: _Place) -> None:
    """Report matrices that do not begin at a multiple of their fragment's size."""
    address = chunk.read(place.base) + np.uint64(place.whole.offset & 0xFFFFFFFFFFFFFFFF)
    if not int(np.bitwise_or.reduce(address)) & (place.whole.bytes - 1):
        return
    address = address.astype(np.uint64)
    access = place.whole
    first = int(address[0])
    if access.space == "generic" and SHARED_WINDOW <= first < SHARED_WINDOW + WINDOW_BYTES:
        access, address = access._replace(space="shared"), address - np.uint64(SHARED_WINDOW)
    lanes = chunk.count()
    spread = np.repeat(address, lanes) if address.size == 1 else address
    bounds.refuse_misaligned(chunk, access, spread, np.arange(lanes))


def _visited(chunk: Chunk, place: _Place) -> Iterator[tuple[Move, Access]]:
    """Each part of the pieces in turn, with the lanes active that move it, and its addresses ready."""
    whole = chunk.active
    pieces = place.fragment.pieces
    warps = chunk.count() // WARP
    if pieces != WARP:
        chunk.active = chunk.numbers().reshape(-1, WARP)[:, :pieces].reshape(-1)
    base = chunk.read(place.base)
    stride = chunk.read(place.stride).astype(np.uint64)
    for move, access in place.moves:
        line, byte = (np.tile(part, warps) for part in (move.line, move.byte))
        address = base + (line * stride * np.uint64(place.fragment.bits) // np.uint64(8) + byte)
        # A 32-bit address wraps as the hardware's adder does.
        chunk.write(place.address, address & np.uint64(0xFFFFFFFF) if base.itemsize == 4 else address)
        yield move, access
    chunk.active = whole


def _bind_load(placed: Placed, binding: Binding) -> Rendezvous:
    spelled = _spelled(placed)
    fragment = spelled.fragment
    target, address, *stride = placed.instruction.operands
    targets = targets_of(target, fragment.registers, fragment.word_bytes, binding)
    place = _place(placed, spelled, address, tuple(stride), binding)
    held = _held(spelled)
    word = unsigned(fragment.word_bytes)

    def step(chunk: Chunk) -> None:
        _check_alignment(chunk, place)
        lanes = chunk.count() // WARP * fragment.pieces
        words = np.empty((lanes, fragment.registers), word)
        for move, access in _visited(chunk, place):
            words[:, move.words] = _words(load(chunk, access), lanes, word)
        if held is not fragment:
            words = fragment.turned(words.reshape(-1, fragment.line_bytes // word.itemsize))
        write(chunk, targets, held.scatter(words))

    return of_whole_warps(step, placed, binding)


def _bind_store(placed: Placed, binding: Binding) -> Rendezvous:
    spelled = _spelled(placed)
    fragment = spelled.fragment
    address, source, *stride = placed.instruction.operands
    held = _held(spelled)
    sources = sources_of(source, fragment.registers, f"b{8 * fragment.word_bytes}", binding)
    place = _place(placed, spelled, address, tuple(stride), binding)

    def step(chunk: Chunk) -> None:
        _check_alignment(chunk, place)
        words = held.gather(read(chunk, sources))
        if held is not fragment:
            words = held.turned(words)
        pieces = words.reshape(-1, fragment.registers)
        for move, access in _visited(chunk, place):
            part = np.ascontiguousarray(pieces[:, move.words]).view(unsigned(access.width))
            save(chunk, access, list(part.T))

    return of_whole_warps(step, placed, binding)


def _held(spelled: _Spelled) -> Lines:
    """The fragment as registers hold it: an accumulator by rows."""
    fragment = spelled.fragment
    if spelled.matrix not in "cd" or spelled.order == "row":
        return fragment
    return fragment._replace(lines=fragment.length, length=fragment.lines, transposed=False)


def _words(values: list[Array], lanes: int, word: np.dtype[np.unsignedinteger]) -> Array:
    """Loaded elements, side by side for each lane, as words."""
    both = np.empty((lanes, len(values)), values[0].dtype)
    for element, value in enumerate(values):
        both[:, element] = value
    return both.view(word)
