"""128-bit values: mov, ld, st and atom of .b128, kept as two 64-bit halves.

Source: PTX ISA, "Data Movement and Conversion Instructions: mov, ld, st"; "Parallel Synchronization
and Communication Instructions: atom".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import Instruction, Operand, Register, Sink, Vector
from dotcu.simulator.decoding.inlining import FlatInstruction
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.machine.shape import Array
from dotcu.simulator.sanitizers.races import check_atomic
from dotcu.simulator.sanitizers.unwritten import check_written, mark_written
from dotcu.simulator.semantics.memory.access import Access, AccessPart, order_of, resolve
from dotcu.simulator.semantics.memory.atomic import grouped, spelled
from dotcu.simulator.semantics.memory.load_store import access_of, load, space_of, store_elements
from dotcu.simulator.semantics.table import WIDE, NotExecuted, Step

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding


def halves(value: Array) -> list[Array]:
    """A 128-bit value as its low and its high 64 bits."""
    parts = np.ascontiguousarray(value).view(np.uint64).reshape(-1, 2)
    return [parts[:, 0].copy(), parts[:, 1].copy()]


def joined(low: Array, high: Array) -> Array:
    """Two 64-bit values as one 128-bit value."""
    parts = np.stack(np.broadcast_arrays(low, high), axis=-1)
    return np.ascontiguousarray(parts).view(WIDE).reshape(-1)


def wide_register(operand: Operand, binding: Binding) -> int:
    """The slot of a .b128 register.

    Raises:
        NotExecuted: The operand is something else.
    """
    if not isinstance(operand, Register) or operand.type != "b128":
        raise NotExecuted
    return binding.register(operand).slot


def bind_mov_wide(placed: FlatInstruction, binding: Binding) -> Step:
    """mov.b128: a copy, or two 64-bit registers packed or unpacked; the first one is low."""
    target, source = placed.instruction.operands
    if isinstance(source, Vector):
        return _pack(target, source, binding)
    if isinstance(target, Vector):
        return _unpack(target, source, binding)
    to, slot = wide_register(target, binding), wide_register(source, binding)

    def step(chunk: Chunk) -> None:
        chunk.write(to, chunk.read(slot).copy())

    return step


def _pack(target: Operand, source: Vector, binding: Binding) -> Step:
    if len(source.elements) != 2:
        raise NotExecuted
    to = wide_register(target, binding)
    low, high = [binding.source(e, "b64") for e in source.elements]

    def step(chunk: Chunk) -> None:
        chunk.write(to, joined(low.read(chunk), high.read(chunk)))

    return step


def _unpack(target: Vector, source: Operand, binding: Binding) -> Step:
    if len(target.elements) != 2:
        raise NotExecuted
    slot = wide_register(source, binding)
    moves = [
        (half, binding.destination(element))
        for half, element in enumerate(target.elements)
        if not isinstance(element, Sink)
    ]
    if any(to.dtype.itemsize != 8 for _, to in moves):
        raise NotExecuted

    def step(chunk: Chunk) -> None:
        parts = halves(chunk.read(slot))
        for half, to in moves:
            chunk.write(to.slot, parts[half].view(to.dtype))

    return step


def as_halves(placed: FlatInstruction) -> FlatInstruction:
    """The instruction as one on two 64-bit elements."""
    instruction: Instruction = placed.instruction
    return placed._replace(instruction=instruction._replace(types=("b64",)))


def bind_ld_wide(placed: FlatInstruction, binding: Binding) -> Step:
    """ld.b128."""
    target, address, *_ = placed.instruction.operands
    to = wide_register(target, binding)
    space = space_of(placed.instruction)
    if space == "param" and binding.parameter(address) is not None:
        raise NotExecuted
    access = access_of(as_halves(placed), address, space, 2, "read", binding)

    def step(chunk: Chunk) -> None:
        low, high = load(chunk, access)
        chunk.write(to, joined(low, high))

    return step


def bind_st_wide(placed: FlatInstruction, binding: Binding) -> Step:
    """st.b128."""
    address, source, *_ = placed.instruction.operands
    slot = wide_register(source, binding)
    space = space_of(placed.instruction)
    access = access_of(as_halves(placed), address, space, 2, "write", binding)

    def step(chunk: Chunk) -> None:
        store_elements(chunk, access, halves(chunk.read(slot)))

    return step


def bind_atom_wide(placed: FlatInstruction, binding: Binding) -> Step:
    """atom.exch.b128 and atom.cas.b128, one lane after the other."""
    target, address, *given = placed.instruction.operands
    space, operation = spelled(placed.instruction.flags)
    if (operation, len(given)) not in (("exch", 1), ("cas", 2)):
        raise NotExecuted
    to = None if isinstance(target, Sink) else wide_register(target, binding)
    slots = [wide_register(o, binding) for o in given]
    order = order_of(("relaxed", *placed.instruction.flags))
    access = access_of(as_halves(placed), address, space, 2, "atomic", binding, order)

    def step(chunk: Chunk) -> None:
        values = [np.broadcast_to(chunk.read(slot), chunk.count()) for slot in slots]
        old = np.zeros(chunk.count(), WIDE)
        for part in resolve(chunk, access):
            _exchange(chunk, access, part, values, old)
        if to is not None:
            chunk.write(to, old)

    return step


def _exchange(chunk: Chunk, access: Access, part: AccessPart, values: list[Array], old: Array) -> None:
    """Each lane takes what is there, and puts its last value if what is there equals its first."""
    count = chunk.count() if part.positions is None else len(part.positions)
    index = np.broadcast_to(part.indices, count)
    for half in range(2) if part.shadow is not None else ():
        check_written(chunk, access, part, index + half)
    order, _ = grouped(chunk, index)
    for half in range(2) if part.races is not None else ():
        check_atomic(chunk, access, part, index + half, order)
    chunk.watch(access.placed)
    for at in order.tolist():
        lane = at if part.positions is None else int(part.positions[at])
        there = part.view[index[at] : index[at] + 2]
        old[lane] = (there[0], there[1])
        new = values[-1][lane]
        if len(values) == 1 or values[0][lane] == old[lane]:
            there[:] = new.item()
            chunk.grid.progress += int(new != old[lane])
    for half in range(2):
        mark_written(access, part, index + half)
