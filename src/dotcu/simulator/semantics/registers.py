"""mov in all its forms: values, addresses, packing and unpacking, clocks.

Source: PTX ISA, "Data Movement and Conversion Instructions: mov".
"""

from __future__ import annotations

import numpy as np

from dotcu.ptx.instructions import TYPE_BYTES, Instruction, Sink, Special, Vector
from dotcu.simulator.machine.special_registers import CLOCKS
from dotcu.simulator.machine.state import Batch, InstructionStep
from dotcu.simulator.program.binding import Binding, counted, require, unsigned, vector
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.table import Operation, bind_elementwise, step_of


def copied(a: Array) -> Array:
    """The value, in an array of its own; a single element is never written to, so it is shared."""
    return a if a.size == 1 else a.copy()


def bind_mov(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """mov."""
    ptx = instruction.ptx
    require(len(ptx.operands) == 2 and len(ptx.types) == 1 and not ptx.flags)
    target, source = ptx.operands
    if isinstance(source, Vector):
        return _pack(ptx, source, binding)
    if isinstance(target, Vector):
        return _unpack(ptx, target, binding)
    type_ = ptx.types[0]
    to = binding.destination(target)
    if isinstance(source, Special) and source.name in CLOCKS:
        read, dtype = CLOCKS[source.name], unsigned(TYPE_BYTES[type_])
        return lambda batch: to.write(batch, np.full(1, read(batch), np.uint64).astype(dtype))
    operation = Operation(copied, type_, (type_,))
    if isinstance(source, Special) and type_[0] in "bus":  # a mov that is narrower than it takes its low bits
        return step_of(operation, to, [binding.wide_source(source, type_)])
    return bind_elementwise(operation, ptx, binding)


def _pack(ptx: Instruction, vector: Vector, binding: Binding) -> InstructionStep:
    """mov.b32 d, {a, b}: the first element is the lowest."""
    size = TYPE_BYTES[ptx.types[0]]
    count = len(vector.elements)
    require(count > 0 and size % count == 0 and size <= 8)
    width = 8 * size // count
    whole = unsigned(size)
    sources = [binding.narrow_source(e, f"b{width}") for e in vector.elements]
    target = binding.destination(ptx.operands[0])

    def step(batch: Batch) -> None:
        result: Array = np.zeros(1, whole)
        for place, source in enumerate(sources):
            value = source.read(batch).astype(whole)
            result = result | (value << whole.type(width * place))
        target.write(batch, result)

    return step


def _unpack(ptx: Instruction, target: Vector, binding: Binding) -> InstructionStep:
    """mov.b32 {a, b}, d; an element `_` is dropped."""
    type_ = ptx.types[0]
    size = TYPE_BYTES[type_]
    count = len(target.elements)
    require(count > 0 and size % count == 0 and size <= 8)
    part = unsigned(size // count)
    source = binding.narrow_source(ptx.operands[1], f"b{8 * size}")
    moves = [
        (place, binding.destination(element))
        for place, element in enumerate(target.elements)
        if not isinstance(element, Sink)
    ]

    def step(batch: Batch) -> None:
        parts = np.ascontiguousarray(source.read(batch)).view(part).reshape(-1, count)
        for place, to in moves:
            to.write(batch, parts[:, place].copy())

    return step


def bind_mov_wide(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """mov.b128: a copy, or two 64-bit registers packed or unpacked; the first one is low."""
    to, given = [vector(operand) for operand in counted(instruction.ptx.operands, 2)]
    targets = [binding.destination(element) for element in to]
    sources = [binding.source(element, "b64") for element in given]
    require(len(sources) == 2 and all(target.dtype.itemsize == 8 for target in targets))

    def step(batch: Batch) -> None:
        values = [copied(source.read(batch)) for source in sources]
        for target, value in zip(targets, values, strict=True):
            batch.write(target.slot, value.view(target.dtype))

    return step
