"""mov in all its forms: values, addresses, packing and unpacking, clocks.

Source: PTX ISA, "Data Movement and Conversion Instructions: mov".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import TYPE_BYTES, Instruction, Sink, Special, Vector
from dotcu.ptx.link import Placed
from dotcu.simulator.machine.chunk import Array, Chunk
from dotcu.simulator.semantics.special import CLOCKS
from dotcu.simulator.semantics.table import (
    NotExecuted,
    Operation,
    Step,
    bind_elementwise,
    step_of,
    stored,
    unsigned,
)

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding


def copied(a: Array) -> Array:
    """The value, in an array of its own; a single element is never written to, so it is shared."""
    return a if a.size == 1 else a.copy()


def bind_mov(placed: Placed, binding: Binding) -> Step:
    """mov."""
    instruction = placed.instruction
    if len(instruction.operands) != 2 or len(instruction.types) != 1 or instruction.flags:
        raise NotExecuted
    target, source = instruction.operands
    if isinstance(source, Vector):
        return _pack(instruction, source, binding)
    if isinstance(target, Vector):
        return _unpack(instruction, target, binding)
    if isinstance(source, Special) and source.name in CLOCKS:
        return _clock(instruction, source.name, binding)
    type_ = instruction.types[0]
    if isinstance(source, Special) and type_[0] in "bus":
        return _special(instruction, source, binding)
    return bind_elementwise(Operation(copied, type_, (type_,)), instruction, binding)


def _special(instruction: Instruction, source: Special, binding: Binding) -> Step:
    """A special register; a mov that is narrower than it takes its low bits."""
    type_ = instruction.types[0]
    target = binding.destination(instruction.operands[0])
    return step_of(Operation(copied, type_, (type_,)), target, [binding.wide_source(source, type_)])


def _clock(instruction: Instruction, name: str, binding: Binding) -> Step:
    read = CLOCKS[name]
    dtype = unsigned(TYPE_BYTES[instruction.types[0]])
    target = binding.destination(instruction.operands[0])
    finish = stored(copied, dtype, target.dtype)

    def step(chunk: Chunk) -> None:
        chunk.write(target.slot, finish(np.full(1, read(chunk), np.uint64).astype(dtype)))

    return step


def _pack(instruction: Instruction, source: Vector, binding: Binding) -> Step:
    """mov.b32 d, {a, b}: the first element is the lowest."""
    size = TYPE_BYTES[instruction.types[0]]
    count = len(source.elements)
    if count == 0 or size % count or size > 8:
        raise NotExecuted
    width = 8 * size // count
    whole = unsigned(size)
    sources = [binding.narrow_source(e, f"b{width}") for e in source.elements]
    target = binding.destination(instruction.operands[0])
    finish = stored(copied, whole, target.dtype)

    def step(chunk: Chunk) -> None:
        result: Array = np.zeros(1, whole)
        for place, (slot, adapt) in enumerate(sources):
            value = chunk.read(slot)
            value = (value if adapt is None else adapt(value)).astype(whole)
            result = result | (value << whole.type(width * place))
        chunk.write(target.slot, finish(result))

    return step


def _unpack(instruction: Instruction, target: Vector, binding: Binding) -> Step:
    """mov.b32 {a, b}, d; an element `_` is dropped."""
    type_ = instruction.types[0]
    size = TYPE_BYTES[type_]
    count = len(target.elements)
    if count == 0 or size % count or size > 8:
        raise NotExecuted
    part = unsigned(size // count)
    source = binding.narrow_source(instruction.operands[1], f"b{8 * size}")
    moves = []
    for place, element in enumerate(target.elements):
        if not isinstance(element, Sink):
            to = binding.destination(element)
            moves.append((to.slot, place, stored(copied, part, to.dtype)))

    def step(chunk: Chunk) -> None:
        value = chunk.read(source.slot)
        value = value if source.adapt is None else source.adapt(value)
        parts = np.ascontiguousarray(value).view(part).reshape(-1, count)
        for slot, place, finish in moves:
            chunk.write(slot, finish(parts[:, place].copy()))

    return step
