"""The shape of the semantics tables, and how a row becomes a step.

An elementwise row gives a function of NumPy arrays; everything about threads, masks and
registers is done here, once. Arrays have one element per thread, or a single one where all
threads hold the same value. A function must return a fresh array, never its argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dotcu.ptx.instructions import Instruction, Sink
from dotcu.simulator.machine.state import Batch, InstructionStep
from dotcu.simulator.program.binding import (
    Binding,
    DestinationOperand,
    NotExecuted,
    SourceOperand,
    counted,
    dtype_of,
    require,
)
from dotcu.simulator.run import Array

_HALF = np.dtype(np.uint16)

INTEGERS = frozenset(f"{kind}{bits}" for kind in "us" for bits in (16, 32, 64))
BITS = frozenset({"b16", "b32", "b64"})
FLOATS = frozenset({"f32", "f64"})
HALVES = frozenset({"f16", "bf16"})
HALF_PAIRS = frozenset({"f16x2", "bf16x2"})


class Operation(NamedTuple):
    """An elementwise computation.

    Attributes:
        function: From arrays of the dtypes of `sources` to an array of the dtype of `result`.
        result, sources: PTX types of the destination and of the operands.
    """

    function: Callable[..., Array]
    result: str
    sources: tuple[str, ...]


OperationMaker = Callable[[Instruction], "Operation | None"]
"""From an instruction to its operation; None if it does not have that form after all."""


class SemanticsRow(NamedTuple):
    """One row of a table of elementwise instructions.

    Attributes:
        types: Types that the row is for.
        flags: Modifiers that it takes; an instruction with another one is not its.
        section: Where the PTX ISA says what it does.
    """

    types: frozenset[str]
    flags: frozenset[str]
    section: str
    make: OperationMaker


Table = Mapping[str, SemanticsRow]


def rows(section: str, *listed: tuple[str, Iterable[str], Iterable[str], OperationMaker]) -> Table:
    """Return a table of one section of the PTX ISA, from rows of opcodes, types, modifiers and maker."""
    return {
        opcode: SemanticsRow(frozenset(types), frozenset(flags), f"{section}: {opcode}", make)
        for opcodes, types, flags, make in listed
        for opcode in opcodes.split()
    }


def computed(function: Callable[..., Array], operands: str, result: str = "t") -> OperationMaker:
    """Make operations that are one function of arrays.

    Args:
        operands: PTX types of the operands; `t` is the instruction's own, `b` the bits of that.
        result: PTX type of the result.
    """

    def make(instruction: Instruction) -> Operation:
        own = instruction.type
        known = {"t": own, "b": own if own == "pred" else "b" + own.lstrip("bsu")}
        sources = tuple(known.get(o, o) for o in operands.split())
        return Operation(function, known.get(result, result), sources)

    return make


def on_halves(function: Callable[..., Array], dtype: np.dtype[Any] = _HALF) -> Callable[..., Array]:
    """The function on each 16-bit half of packed 32-bit values."""

    def packed(*arrays: Array) -> Array:
        size = max(a.size for a in arrays)
        halves = [np.ascontiguousarray(np.broadcast_to(a, size)).view(dtype) for a in arrays]
        return np.ascontiguousarray(function(*halves)).view(np.uint32)

    return packed


def find_operation(tables: Iterable[Table], instruction: Instruction) -> Operation:
    """The operation of the first row that takes the instruction.

    Raises:
        NotExecuted: There is none.
    """
    for table in tables:
        row = table.get(instruction.opcode)
        if (
            row
            and instruction.types
            and instruction.type in row.types
            and row.flags.issuperset(instruction.flags)
        ):
            try:
                operation = row.make(instruction)
            except NotExecuted:
                continue
            if operation is not None:
                return operation
    raise NotExecuted


def bind_elementwise(operation: Operation, instruction: Instruction, binding: Binding) -> InstructionStep:
    """The step that applies an operation to an instruction's operands."""
    destination, *operands = counted(instruction.operands, 1 + len(operation.sources))
    sources = [binding.source(o, t) for o, t in zip(operands, operation.sources, strict=True)]
    target = binding.destination(destination)
    require(isinstance(destination, Sink) or target.dtype.itemsize == dtype_of(operation.result).itemsize)
    return step_of(operation, target, sources)


def step_of(
    operation: Operation, target: DestinationOperand, sources: list[SourceOperand]
) -> InstructionStep:
    """The step that applies an operation to registers."""
    function = _adapted(operation.function, [s.adapt for s in sources])
    function = _stored(function, dtype_of(operation.result), target.dtype)
    return _STEPS[len(sources)](function, target.slot, *(s.slot for s in sources))


def _stored(
    function: Callable[..., Array], computed: np.dtype[Any], dtype: np.dtype[Any]
) -> Callable[..., Array]:
    """The function, with its result in the dtype that a register keeps."""
    if computed == dtype:
        return function
    if computed.itemsize == dtype.itemsize:
        return lambda *arrays: function(*arrays).view(dtype)
    require(computed.kind in "iu")
    same_size = np.dtype(f"{computed.kind}{dtype.itemsize}")
    return lambda *arrays: function(*arrays).astype(same_size).view(dtype)


def _adapted(
    function: Callable[..., Array], adapts: list[Callable[[Array], Array] | None]
) -> Callable[..., Array]:
    """The function, with each argument adapted first where it must be."""
    if not any(adapts):
        return function
    first, second = (*adapts, None)[:2]
    if len(adapts) <= 2 and first is not None:
        if second is not None:
            return lambda a, b: function(first(a), second(b))
        return lambda a, *b: function(first(a), *b)
    if len(adapts) == 2 and second is not None:
        return lambda a, b: function(a, second(b))
    return lambda *arrays: function(*[a if f is None else f(a) for f, a in zip(adapts, arrays, strict=True)])


def _unary(function: Callable[..., Array], d: int, a: int) -> InstructionStep:
    def step(batch: Batch) -> None:
        x = batch.registers[a]
        active = batch.active
        if active is None:
            batch.registers[d] = function(x)
        else:
            batch.write(d, function(x if x.size == 1 else x[active]))

    return step


def _binary(function: Callable[..., Array], d: int, a: int, b: int) -> InstructionStep:
    def step(batch: Batch) -> None:
        registers, active = batch.registers, batch.active
        x, y = registers[a], registers[b]
        if active is None:
            registers[d] = function(x, y)
        else:
            batch.write(d, function(x if x.size == 1 else x[active], y if y.size == 1 else y[active]))

    return step


def _ternary(function: Callable[..., Array], d: int, a: int, b: int, c: int) -> InstructionStep:
    def step(batch: Batch) -> None:
        registers, active = batch.registers, batch.active
        x, y, z = registers[a], registers[b], registers[c]
        if active is None:
            registers[d] = function(x, y, z)
        else:
            batch.write(
                d,
                function(
                    x if x.size == 1 else x[active],
                    y if y.size == 1 else y[active],
                    z if z.size == 1 else z[active],
                ),
            )

    return step


def _general(function: Callable[..., Array], d: int, *slots: int) -> InstructionStep:
    def step(batch: Batch) -> None:
        batch.write(d, function(*[batch.read(slot) for slot in slots]))

    return step


_STEPS: Mapping[int, Callable[..., InstructionStep]] = {
    1: _unary,
    2: _binary,
    3: _ternary,
    4: _general,
    5: _general,
}
