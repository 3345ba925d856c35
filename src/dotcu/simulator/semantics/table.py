"""The shape of the semantics tables, and how a row becomes a step.

An elementwise row gives a function of NumPy arrays; everything about lanes, masks and
registers is done here, once. Arrays have one element per lane, or a single one where all
lanes hold the same value. A function must return a fresh array, never its argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dotcu.ptx.instructions import Instruction

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding
    from dotcu.simulator.machine.chunk import Chunk

Array = NDArray[Any]
Step = Callable[["Chunk"], None]

_UNSIGNED: Mapping[int, np.dtype[Any]] = {n: np.dtype(f"u{n}") for n in (1, 2, 4, 8)}
_SIGNED: Mapping[int, np.dtype[Any]] = {n: np.dtype(f"i{n}") for n in (1, 2, 4, 8)}

# A .b128 value: the low and the high 64 bits.
WIDE = np.dtype([("low", np.uint64), ("high", np.uint64)])

INTEGERS = frozenset(f"{kind}{bits}" for kind in "us" for bits in (16, 32, 64))
BITS = frozenset({"b16", "b32", "b64"})


def unsigned(size: int) -> np.dtype[Any]:
    """The unsigned dtype of `size` bytes."""
    return _UNSIGNED[size]


def dtype_of(type_: str) -> np.dtype[Any]:
    """The dtype that a PTX type is computed in; types that NumPy lacks stay bits."""
    if type_ == "pred":
        return np.dtype(bool)
    if type_ == "f32":
        return np.dtype(np.float32)
    if type_ == "f64":
        return np.dtype(np.float64)
    if type_ in ("f16x2", "bf16x2", "tf32", "u16x2", "s16x2"):
        return _UNSIGNED[4]
    if type_ in ("f16", "bf16", "e4m3x2", "e5m2x2"):
        return _UNSIGNED[2]
    size = int(type_[1:]) // 8
    return _SIGNED[size] if type_[0] == "s" else _UNSIGNED[size]


class InstructionForm(NamedTuple):
    """The spelling of an instruction."""

    opcode: str
    flags: frozenset[str]
    types: tuple[str, ...]
    order: tuple[str, ...]

    @property
    def type(self) -> str:
        """The type that the instruction is named for: its last."""
        return self.types[-1]


class Operation(NamedTuple):
    """An elementwise computation.

    Attributes:
        function: From arrays of the dtypes of `sources` to an array of the dtype of `result`.
        result: PTX type of the destination.
        sources: PTX types of the operands.
    """

    function: Callable[..., Array]
    result: str
    sources: tuple[str, ...]


class SemanticsRow(NamedTuple):
    """One row of a table of elementwise instructions.

    Attributes:
        types: Types that the row is for.
        flags: Modifiers that it takes; an instruction with another one is not its.
        section: Where the PTX ISA says what it does.
        make: From a form to the operation; None if it does not have that form after all.
    """

    types: frozenset[str]
    flags: frozenset[str]
    section: str
    make: Callable[[InstructionForm], Operation | None]


Table = Mapping[str, tuple[SemanticsRow, ...]]


class SourceOperand(NamedTuple):
    """The register slot of an operand, and its conversion to the wanted dtype (None: as it is)."""

    slot: int
    adapt: Callable[[Array], Array] | None

    def read(self, chunk: Chunk) -> Array:
        """Return the value in the active lanes; one element if all have the same."""
        value = chunk.read(self.slot)
        return value if self.adapt is None else self.adapt(value)


class DestinationOperand(NamedTuple):
    """The register slot of a result, and its dtype."""

    slot: int
    dtype: np.dtype[Any]


class NotExecuted(Exception):
    """No table has a row for an instruction."""


def form_of(instruction: Instruction) -> InstructionForm:
    """The spelling of an instruction."""
    return InstructionForm(
        instruction.opcode, frozenset(instruction.flags), instruction.types, instruction.flags
    )


def find_operation(table: Table, form: InstructionForm) -> Operation:
    """The operation of the first row that takes the form.

    Raises:
        NotExecuted: There is none.
    """
    for row in table.get(form.opcode, ()):
        if form.types and form.types[-1] in row.types and form.flags <= row.flags:
            operation = row.make(form)
            if operation is not None:
                return operation
    raise NotExecuted


def bind_elementwise(operation: Operation, instruction: Instruction, binding: Binding) -> Step:
    """The step that applies an operation to an instruction's operands.

    Args:
        operation: The computation.
        instruction: The instruction.
        binding: Finds the registers of operands.
    """
    destination, *operands = instruction.operands
    if len(operands) != len(operation.sources):
        raise NotExecuted
    sources = [binding.source(o, t) for o, t in zip(operands, operation.sources, strict=True)]
    return step_of(operation, binding.destination(destination), sources)


def step_of(operation: Operation, target: DestinationOperand, sources: list[SourceOperand]) -> Step:
    """The step that applies an operation to registers.

    Args:
        operation: The computation.
        target: The register of the result.
        sources: The registers of the operands.
    """
    function = adapted(operation.function, [s.adapt for s in sources])
    function = stored(function, dtype_of(operation.result), target.dtype)
    return _STEPS[len(sources)](function, target.slot, *(s.slot for s in sources))


def stored(
    function: Callable[..., Array], computed: np.dtype[Any], dtype: np.dtype[Any]
) -> Callable[..., Array]:
    """The function, with its result in the dtype that a register keeps.

    Args:
        function: The function of arrays.
        computed: The dtype that the function returns.
        dtype: The dtype of the register.
    """
    if computed == dtype:
        return function
    if computed.itemsize == dtype.itemsize:
        return lambda *arrays: function(*arrays).view(dtype)
    same_size = _SIGNED[dtype.itemsize] if computed.kind == "i" else _UNSIGNED[dtype.itemsize]
    if computed.kind not in "iu":
        raise NotExecuted
    return lambda *arrays: function(*arrays).astype(same_size).view(dtype)


def adapted(
    function: Callable[..., Array], adapts: list[Callable[[Array], Array] | None]
) -> Callable[..., Array]:
    """The function, with each argument adapted first where it must be."""
    if not any(adapts):
        return function
    first = adapts[0]
    if len(adapts) == 1 and first is not None:
        return lambda a: function(first(a))
    if len(adapts) == 2:
        second = adapts[1]
        if first is not None and second is not None:
            return lambda a, b: function(first(a), second(b))
        if first is not None:
            return lambda a, b: function(first(a), b)
        if second is not None:
            return lambda a, b: function(a, second(b))
    return lambda *arrays: function(*[a if f is None else f(a) for f, a in zip(adapts, arrays, strict=True)])


def _unary(function: Callable[..., Array], d: int, a: int) -> Step:
    def step(chunk: Chunk) -> None:
        x = chunk.registers[a]
        active = chunk.active
        if active is None:
            chunk.registers[d] = function(x)
        else:
            chunk.write(d, function(x if x.size == 1 else x[active]))

    return step


def _binary(function: Callable[..., Array], d: int, a: int, b: int) -> Step:
    def step(chunk: Chunk) -> None:
        registers, active = chunk.registers, chunk.active
        x, y = registers[a], registers[b]
        if active is None:
            registers[d] = function(x, y)
        else:
            chunk.write(d, function(x if x.size == 1 else x[active], y if y.size == 1 else y[active]))

    return step


def _ternary(function: Callable[..., Array], d: int, a: int, b: int, c: int) -> Step:
    def step(chunk: Chunk) -> None:
        registers, active = chunk.registers, chunk.active
        x, y, z = registers[a], registers[b], registers[c]
        if active is None:
            registers[d] = function(x, y, z)
        else:
            chunk.write(
                d,
                function(
                    x if x.size == 1 else x[active],
                    y if y.size == 1 else y[active],
                    z if z.size == 1 else z[active],
                ),
            )

    return step


def _general(function: Callable[..., Array], d: int, *slots: int) -> Step:
    def step(chunk: Chunk) -> None:
        chunk.write(d, function(*[chunk.read(slot) for slot in slots]))

    return step


_STEPS: Mapping[int, Callable[..., Step]] = {
    1: _unary,
    2: _binary,
    3: _ternary,
    4: _general,
    5: _general,
}
