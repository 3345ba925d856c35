"""Tiles of 8 by 8 elements of 16 bits: ldmatrix, stmatrix, movmatrix.

A tile's row is 16 bytes in shared memory; lane 8 * j + i gives the address of row i of tile j.
In registers, lane 4 * i + p has the pair p of row i.

Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix", "... store instruction:
stmatrix", "... transpose instruction: movmatrix". The shapes of 8 and fewer bits need sm_100.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from dotcu.ptx.instructions import Instruction, Operand, Sink
from dotcu.simulator.machine.memory import SHARED_WINDOW
from dotcu.simulator.machine.shape import WARP, Threads
from dotcu.simulator.machine.state import Access, Batch, InstructionStep, active_threads
from dotcu.simulator.machine.undefined import NOBODY, HeldLoad
from dotcu.simulator.program.binding import Binding, DestinationOperand, SourceOperand, counted, require
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.load_store import elements_of, load, store_elements
from dotcu.simulator.semantics.warp import Rendezvous, RendezvousBinder

_COUNTS: Mapping[str, int] = {"x1": 1, "x2": 2, "x4": 4}
_MODIFIERS = frozenset({"sync", "aligned", "m8n8", "trans", "shared", "shared::cta", *_COUNTS})
_NEEDED = frozenset({"sync", "aligned", "m8n8"})


def _count_of(ptx: Instruction) -> int:
    """Return the number of tiles that ldmatrix or stmatrix moves."""
    flags = frozenset(ptx.flags)
    counts = flags & _COUNTS.keys()
    require(_NEEDED <= flags <= _MODIFIERS and len(counts) == 1 and ptx.types == ("b16",))
    return _COUNTS[next(iter(counts))]


def _rows_access(
    instruction: FlatInstruction, operand: Operand, action: str, binding: Binding
) -> tuple[Access, InstructionStep]:
    """The access to rows of 16 bytes in shared memory, and what makes its address ready."""
    is_generic = not any(f.startswith("shared") for f in instruction.ptx.flags)
    slot, offset, _ = binding.address(operand, "generic" if is_generic else "shared")
    place = binding.constant(np.zeros(1, np.uint64)) if is_generic else slot

    def prepare(batch: Batch) -> None:
        # An address outside the window wraps to one that no block has, and is reported as such.
        if is_generic:
            batch.write(place, batch.read(slot) - np.uint64(SHARED_WINDOW))

    return Access(binding.next_access(), instruction, "shared", place, offset, 8, 2, action), prepare


def _row_lanes(batch: Batch, count: int) -> AbstractContextManager[None]:
    """Have those lanes active that give the addresses of `count` tiles."""
    if 8 * count == WARP:
        return nullcontext()
    return active_threads(batch, batch.numbers().reshape(-1, WARP)[:, : 8 * count].reshape(-1))


def _transposed(words: Array) -> Array:
    """Tiles of words, each transposed: (..., 8 rows, 4 words)."""
    halves = words.view(np.uint16)
    return np.ascontiguousarray(halves.swapaxes(-1, -2)).view(np.uint32)


def bind_ldmatrix(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """ldmatrix.m8n8.b16."""
    ptx = instruction.ptx
    count = _count_of(ptx)
    to, source = counted(ptx.operands, 2)
    targets = targets_of(to, count, 4, binding)
    access, prepare = _rows_access(instruction, source, "read", binding)
    transpose = "trans" in ptx.flags

    def step(batch: Batch) -> None:
        prepare(batch)
        held: list[HeldLoad] = []
        with _row_lanes(batch, count):
            givers = batch.numbers()
            halves = [np.broadcast_to(half, batch.count()) for half in load(batch, access, held)]
        rows = np.stack(halves, axis=1)
        words = rows.view(np.uint32).reshape(-1, count, 8, 4)
        if transpose:
            words = _transposed(words)
        tiles = words.reshape(-1, count, WARP)
        for tile, target in enumerate(targets):
            target.write(batch, tiles[:, tile].reshape(-1))
        if held:
            _keep_undefined(batch, held, givers, targets, transpose=transpose)

    return step


def _keep_undefined(
    batch: Batch,
    held: list[HeldLoad],
    givers: Threads,
    targets: Sequence[DestinationOperand],
    *,
    transpose: bool,
) -> None:
    """Keep what is undefined of tiles, each of whose rows was loaded at the address that a lane gave."""
    count = len(targets)
    halves, checks = np.zeros((len(givers), 8), np.uint16), np.full((len(givers), 8), NOBODY, np.int32)
    for element, lanes, bits, check in held:
        rows, columns = np.searchsorted(givers, lanes), slice(4 * element, 4 * element + 4)
        halves[rows, columns] = np.ascontiguousarray(bits).view(np.uint16).reshape(-1, 4)
        checks[rows, columns] = check
    tiles, numbers = halves.reshape(-1, count, 8, 8), checks.reshape(-1, count, 8, 8)
    if transpose:
        tiles, numbers = tiles.swapaxes(-1, -2), numbers.swapaxes(-1, -2)
    words = np.ascontiguousarray(tiles).view(np.uint32).reshape(-1, count, WARP)
    latest = numbers.reshape(-1, count, WARP, 2).max(axis=-1)
    for tile, target in enumerate(targets):
        own = words[:, tile].reshape(-1), latest[:, tile].reshape(-1)
        batch.undefined.put(target.slot, batch.numbers(), *own)


def bind_stmatrix(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """stmatrix.m8n8.b16."""
    ptx = instruction.ptx
    count = _count_of(ptx)
    to, source = counted(ptx.operands, 2)
    access, prepare = _rows_access(instruction, to, "write", binding)
    sources = sources_of(source, count, "b32", binding)
    transpose = "trans" in ptx.flags

    def step(batch: Batch) -> None:
        prepare(batch)
        words = np.stack([value.reshape(-1, 8, 4) for value in read(batch, sources)], axis=1)
        if transpose:
            words = _transposed(words)
        rows = words.view(np.uint64).reshape(-1, 2)
        with _row_lanes(batch, count):
            store_elements(batch, access, [rows[:, 0], rows[:, 1]])

    return step


def bind_movmatrix(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """movmatrix: a tile in registers, transposed."""
    ptx = instruction.ptx
    target, source = counted(ptx.operands, 2)
    require(ptx.flags == ("sync", "aligned", "m8n8", "trans") and ptx.types == ("b16",))
    (to,) = targets_of(target, 1, 4, binding)
    sources = sources_of(source, 1, "b32", binding)

    def step(batch: Batch) -> None:
        (value,) = read(batch, sources)
        to.write(batch, _transposed(value.reshape(-1, 8, 4)).reshape(-1))

    return step


# Whole warps, which every matrix instruction requires.
#
# All 32 lanes hold parts of the matrices, so all of them take part. A lane that is still elsewhere is
# waited for; one that has returned, or that never existed, is a finding, and its warp does not take part.
#
# Source: PTX ISA, "Warp Level Matrix Instructions": .sync and .aligned.


_EVERYONE = np.uint32(0xFFFFFFFF)


def of_whole_warps(bind: Callable[[FlatInstruction, Binding], InstructionStep]) -> RendezvousBinder:
    """Make an instruction's step a rendezvous of all 32 lanes, which is run with whole warps only."""

    def bound(instruction: FlatInstruction, binding: Binding) -> Rendezvous:
        step = bind(instruction, binding)

        def run(batch: Batch) -> None:
            active = batch.active
            if active is None or are_whole(active):
                step(batch)
                return
            whole = _whole_only(batch, instruction, active)
            if len(whole):
                with active_threads(batch, whole):
                    step(batch)

        return Rendezvous(run, instruction, binding.constant(np.array([_EVERYONE])))

    return bound


def are_whole(lanes: Threads) -> bool:
    """Return whether ascending lanes make up whole warps."""
    if len(lanes) % WARP:
        return False
    first, last = lanes[::WARP], lanes[WARP - 1 :: WARP]
    return bool(((first % WARP == 0) & (last - first == WARP - 1)).all())


def _whole_only(batch: Batch, instruction: FlatInstruction, lanes: Threads) -> Threads:
    """Report the lanes whose warp lacks some; the others."""
    whole = (batch.warp_bits(lanes) == _EVERYONE)[lanes // WARP]
    partial = lanes[~whole]
    here = int(np.count_nonzero(partial // WARP == partial[0] // WARP))
    message = (
        f"a matrix instruction that only {here} of a warp's {WARP} threads execute; every "
        "thread holds a part of the matrices, so all have to. The others returned, are kept out by a "
        "condition, or do not exist: take it out of the condition, and let the block be a multiple of "
        f"{WARP} threads."
    )
    batch.report("barrier", instruction, partial, message)
    return lanes[whole]


def sources_of(operand: Operand, count: int, type_: str, binding: Binding) -> list[SourceOperand]:
    """The registers of a fragment that is read.

    Args:
        type_, binding: The PTX type, and where registers are.

    Raises:
        NotExecuted: Their number is not that of the fragment.
    """
    elements = elements_of(operand)
    require(len(elements) == count)
    return [binding.source(element, type_) for element in elements]


def targets_of(operand: Operand, count: int, word_bytes: int, binding: Binding) -> list[DestinationOperand]:
    """The registers of a fragment that is written, as `sources_of`.

    Args:
        word_bytes: Bytes of a register.
    """
    elements = elements_of(operand)
    targets = [binding.destination(element) for element in elements]
    sizes = {t.dtype.itemsize for t, e in zip(targets, elements, strict=True) if not isinstance(e, Sink)}
    require(len(elements) == count and sizes <= {word_bytes})
    return targets


def read(batch: Batch, sources: Sequence[SourceOperand]) -> list[Array]:
    """The active lanes' values, one element a lane."""
    count = batch.count()
    values = [source.read(batch) for source in sources]
    return [value if value.size == count else np.repeat(value, count) for value in values]
