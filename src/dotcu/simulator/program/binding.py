"""Registers, constants and addresses of one kernel: where each operand's value stands."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from dotcu.ptx.dataflow import registers_of
from dotcu.ptx.instructions import (
    SPECIAL_REGISTERS,
    TYPE_BYTES,
    Address,
    Immediate,
    Instruction,
    Operand,
    Predicate,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from dotcu.simulator.program.inlining import FlatKernel
from dotcu.simulator.program.variables import (
    NONE,
    AddressOrigin,
    VariableLayout,
    VariableSpot,
    is_polled,
    parameter_offset,
    read_names,
)
from dotcu.simulator.run import Array

Item = TypeVar("Item")


class RegisterFile(Protocol):
    """The registers of the threads that execute an instruction together."""

    def read(self, slot: int) -> Array:
        """Return a register's value in each of the threads; one element if all have the same."""

    def write(self, slot: int, value: Array) -> None:
        """Set a register in these threads."""


def unsigned(size: int) -> np.dtype[Any]:
    """The unsigned dtype of `size` bytes."""
    return np.dtype(f"u{size}")


def dtype_of(type_: str) -> np.dtype[Any]:
    """The dtype that a PTX type is computed in; types that NumPy lacks stay bits."""
    kind = {"pred": "?", "f32": "f4", "f64": "f8"}.get(type_)
    require(TYPE_BYTES.get(type_, 16) <= 8)
    is_signed = type_[0] == "s" and not type_.endswith("x2")
    return np.dtype(kind or f"{'i' if is_signed else 'u'}{TYPE_BYTES[type_]}")


class SourceOperand(NamedTuple):
    """The register slot of an operand, and its conversion to the wanted dtype (None: as it is)."""

    slot: int
    adapt: Callable[[Array], Array] | None

    def read(self, registers: RegisterFile) -> Array:
        """Return the value in each thread; one element if all have the same."""
        value = registers.read(self.slot)
        return value if self.adapt is None else self.adapt(value)


class DestinationOperand(NamedTuple):
    """The register slot of a result, and its dtype."""

    slot: int
    dtype: np.dtype[Any]

    def write(self, registers: RegisterFile, value: Array) -> None:
        """Set the register in each thread to a fresh array, cut or extended to its size."""
        same = self.dtype.itemsize == value.dtype.itemsize
        registers.write(self.slot, value.view(self.dtype) if same else value.astype(self.dtype))


class NotExecuted(Exception):
    """No table has a row for an instruction."""


def require(holds: bool) -> None:
    """Refuse the instruction that is bound unless a condition on its form holds."""
    if not holds:
        raise NotExecuted


MANY = 1 << 10
"""No limit to how many operands there are."""


def counted(values: Sequence[Item], least: int, most: int | None = None) -> Sequence[Item]:
    """Return operands, types or modifiers, of which an instruction takes `least`, or as many up to `most`."""
    require(least <= len(values) <= (least if most is None else most))
    return values


def only(values: Sequence[Item]) -> Item:
    """Return the only one of operands, types or modifiers; with none, or more, the instruction is refused."""
    return counted(values, 1)[0]


def chosen(table: Mapping[str, Item], name: str) -> Item:
    """Return what a table has for a modifier or a type; an instruction with another one is refused."""
    if name not in table:
        raise NotExecuted
    return table[name]


def immediate(operand: Operand) -> int:
    """Return the integer that an operand is; an instruction with another one is refused."""
    if not isinstance(operand, Immediate):
        raise NotExecuted
    return operand.value


def vector(operand: Operand, count: int | None = None) -> tuple[Operand, ...]:
    """Return the elements of an operand, which has to be a vector, of so many if that is known."""
    if not isinstance(operand, Vector) or count not in (None, len(operand.elements)):
        raise NotExecuted
    return operand.elements


_REGISTER_DTYPES: Mapping[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "pred": np.dtype(bool),
}

PlaceOfLoad = tuple[str, int, int]
"""The register or variable of an address, and the offsets of the first byte and behind the last."""


def place_of(load: Instruction) -> PlaceOfLoad | None:
    """Return where a load reads; None for other instructions, and for an address that is a number."""
    if load.opcode != "ld" or len(load.operands) < 2 or not isinstance(load.operands[1], Address):
        return None
    base, offset = load.operands[1]
    if isinstance(base, Immediate):
        return None
    offset += base.offset if isinstance(base, Symbol) else 0
    first = load.operands[0]
    count = len(first.elements) if isinstance(first, Vector) else 1
    return base.name, offset, offset + count * TYPE_BYTES[load.types[-1]]


LaunchConstant = tuple[int, np.dtype[Any]]
"""Offset and dtype of a value in the launch's parameters."""


@dataclass
class Binding:
    """Gives the registers, constants and addresses of one kernel their slots."""

    linked: FlatKernel
    parameters: Mapping[str, int]
    addresses: Mapping[str, int]
    layout: VariableLayout
    special_registers: Container[str]
    constants: list[Array] = field(default_factory=list)
    slots: dict[Any, int] = field(default_factory=dict)
    specials: dict[str, int] = field(default_factory=dict)
    params: dict[LaunchConstant, int] = field(default_factory=dict)
    shared_addresses: list[int] = field(default_factory=list)
    accesses: int = 0
    read_names: frozenset[str] = frozenset()
    swapped: frozenset[tuple[str, int]] = frozenset()
    origins: Mapping[str, AddressOrigin] = field(default_factory=dict)
    of_wgmma: frozenset[str] = frozenset()
    droppable: frozenset[str] = frozenset()
    wider: frozenset[PlaceOfLoad] = frozenset()
    entered: list[Any] = field(default_factory=list)
    _values: frozenset[str] | None = None

    def constant(self, array: Array) -> int:
        """A new slot that begins with a value."""
        self.constants.append(array)
        return len(self.constants) - 1

    def register(self, register: Register) -> DestinationOperand:
        """The slot of a register, and the dtype that it keeps."""
        dtype = _REGISTER_DTYPES.get(register.type)
        if dtype is None:
            size = TYPE_BYTES[register.type]
            require(size <= 8)
            dtype = unsigned(size)
        if register.name not in self.slots:
            self.slots[register.name] = self.constant(np.zeros(1, dtype))
        return DestinationOperand(self.slots[register.name], dtype)

    def destination(self, operand: Operand) -> DestinationOperand:
        """Return the register of a result; a sink takes anything."""
        if isinstance(operand, Register):
            return self.register(operand)
        if isinstance(operand, Sink):
            return DestinationOperand(self.constant(np.zeros(1, np.uint64)), np.dtype(np.uint64))
        raise NotExecuted

    def source(self, operand: Operand, type_: str) -> SourceOperand:
        """Return the register of an operand, read as a type of the same size."""
        wanted = dtype_of(type_)
        if isinstance(operand, Immediate):
            return SourceOperand(self._immediate(operand, type_), None)
        if isinstance(operand, Symbol) and operand.name in self.layout.framed:
            function, offset = self.layout.framed[operand.name]
            start = np.uint64(offset + operand.offset)
            return SourceOperand(self.frame(function), lambda a: (a + start).astype(wanted))
        slot, dtype = self.register_of(operand, wanted)
        if isinstance(operand, Predicate):
            require(dtype == wanted == np.dtype(bool))
            return SourceOperand(slot, np.logical_not)
        if dtype == wanted:
            return SourceOperand(slot, None)
        require(dtype.itemsize == wanted.itemsize and bool not in (dtype.type, wanted.type))
        return SourceOperand(slot, lambda a: a.view(wanted))

    def narrow_source(self, operand: Operand, type_: str) -> SourceOperand:
        """The same for an operand that may be wider than the type, as bits of the type's size."""
        wanted = unsigned(TYPE_BYTES[type_])
        if isinstance(operand, Immediate):
            bits_of = type_ if type_[0] == "f" else f"b{wanted.itemsize * 8}"
            return SourceOperand(self._immediate(operand, bits_of, bits=True), None)
        slot, dtype = self.register_of(operand, wanted)
        if dtype.itemsize == wanted.itemsize:
            return SourceOperand(slot, None if dtype == wanted else lambda a: a.view(wanted))
        require(dtype.itemsize >= wanted.itemsize)
        whole = unsigned(dtype.itemsize)
        return SourceOperand(slot, lambda a: a.view(whole).astype(wanted))

    def wide_source(self, operand: Operand, type_: str) -> SourceOperand:
        """The same, as the type itself."""
        wanted = dtype_of(type_)
        if isinstance(operand, Immediate):
            return self.source(operand, type_)
        _, dtype = self.register_of(operand, wanted)
        if dtype.itemsize == wanted.itemsize or wanted.kind in "fb":
            return self.source(operand, type_)
        slot, narrow = self.narrow_source(operand, type_)
        if narrow is None or wanted.kind == "u":
            return SourceOperand(slot, narrow)
        return SourceOperand(slot, lambda a: narrow(a).view(wanted))

    def register_of(self, operand: Operand, wanted: np.dtype[Any]) -> tuple[int, np.dtype[Any]]:
        """The slot of an operand that is not a literal, and the dtype that it keeps."""
        if isinstance(operand, Register):
            return self.register(operand)
        if isinstance(operand, Predicate):
            return self.register(operand.register)
        if isinstance(operand, Special):
            return self.special(operand.name)
        if isinstance(operand, Symbol):
            size = wanted.itemsize if wanted.itemsize in (4, 8) else 8
            dtype = unsigned(size)
            return self._symbol_slot(operand, dtype), dtype
        raise NotExecuted

    def _symbol_slot(self, symbol: Symbol, dtype: np.dtype[Any]) -> int:
        """The slot that holds a variable's address; that of a shared one is of each block of a cluster."""
        key = ("symbol", symbol, dtype.itemsize)
        if key not in self.slots:
            value = self.symbol(symbol) & ((1 << (8 * dtype.itemsize)) - 1)
            slot = self._interned(key, np.array([value], dtype))
            if self.layout.extents.get(symbol.name, ("",))[0] == "shared":
                self.shared_addresses.append(slot)
        return self.slots[key]

    def special(self, name: str) -> tuple[int, np.dtype[Any]]:
        """The slot that keeps a special register."""
        dtype = dtype_of(SPECIAL_REGISTERS[name])
        require(name in self.special_registers)
        if name not in self.specials:
            self.specials[name] = self.constant(np.zeros(1, dtype))
        return self.specials[name], dtype

    def _immediate(self, literal: Immediate, type_: str, *, bits: bool = False) -> int:
        """The slot of a literal, as a value of a type; with `bits`, its bits as an unsigned integer."""
        dtype = unsigned(TYPE_BYTES[type_]) if bits else dtype_of(type_)
        array = _literal_array(literal, type_, dtype)
        return self._interned((array.tobytes(), dtype.str), array)

    def _interned(self, key: Any, array: Array) -> int:
        if key not in self.slots:
            self.slots[key] = self.constant(array)
        return self.slots[key]

    def guard(self, instruction: Instruction) -> tuple[int, bool]:
        """Return the slot of an instruction's predicate, -1 without one, and whether it is negated."""
        guard = instruction.guard
        return (-1, False) if guard is None else (self.register(guard.register).slot, guard.negated)

    def next_access(self) -> int:
        """A number for the next access."""
        self.accesses += 1
        return self.accesses

    def symbol(self, symbol: Symbol) -> int:
        """The address of a variable in its space."""
        if symbol.name in self.layout.extents:
            return self.layout.extents[symbol.name][1] + symbol.offset
        for table in (self.addresses, self.parameters):
            if symbol.name in table:
                return table[symbol.name] + symbol.offset
        raise NotExecuted

    def frame(self, function: str) -> int:
        """The slot that holds where the frame of a recursive function begins, in each thread."""
        return self.register(Register(f"{function}#frame", "b64")).slot

    def spot(self, name: str) -> VariableSpot:
        """Return the place of a thread's variable."""
        if name in self.layout.framed:
            function, start = self.layout.framed[name]
            return start, self.frame(function)
        return self.layout.extents[name][1], None

    def address(self, address: Operand, space: str) -> tuple[int, int, str]:
        """The slot and offset of an address operand, and the space that it means."""
        if not isinstance(address, Address):
            raise NotExecuted
        base, offset = address.base, address.offset
        if space == "param":
            layout = self.layout
            if isinstance(base, Symbol) and (base.name in layout.extents or base.name in layout.framed):
                space = "local"  # a .param variable of a call lies with the thread's variables
            elif not isinstance(base, Register):
                raise NotExecuted
        if isinstance(base, Symbol) and base.name in self.layout.framed:
            function, start = self.layout.framed[base.name]
            return self.frame(function), start + base.offset + offset, space
        if isinstance(base, Register):
            slot, dtype = self.register(base)
            sizes = (4, 8) if space in ("shared", "local") else (8,)
            require(dtype.kind == "u" and dtype.itemsize in sizes)
            return slot, offset, space
        if isinstance(base, Symbol) and space == "generic" and base.name not in self.addresses:
            raise NotExecuted  # its address in its space is not a generic one
        if isinstance(base, Symbol):
            return self._symbol_slot(base, np.dtype(np.uint64)), offset, space
        value = base.value & ((1 << 64) - 1)
        return self._interned(("address", value), np.array([value], np.uint64)), offset, space

    def origin(self, address: Operand) -> AddressOrigin:
        """Return the variables and parameters that an address was computed from."""
        base = address.base if isinstance(address, Address) else None
        if isinstance(base, Symbol):
            return frozenset({base.name})
        return self.origins.get(base.name, NONE) if isinstance(base, Register) else NONE

    def parameter(self, operand: Operand) -> int | None:
        """The offset in the launch's parameters that a static address means; None if it is another."""
        return parameter_offset(operand, self.parameters)

    def launch_constant(self, offset: int, dtype: np.dtype[Any]) -> int:
        """The slot that holds a launch parameter."""
        if (offset, dtype) not in self.params:
            self.params[offset, dtype] = self.constant(np.zeros(1, dtype))
        return self.params[offset, dtype]

    def is_swapped(self, operand: Operand) -> bool:
        """Return whether a compare-and-swap of the kernel has this address."""
        if not isinstance(operand, Address) or not isinstance(operand.base, Register):
            return False
        return (operand.base.name, operand.offset) in self.swapped

    def is_exchange(self, instruction: Instruction) -> bool:
        """Return whether a load is volatile and its value is more than a flag, which is only compared."""
        if "volatile" not in instruction.flags:
            return False
        if self._values is None:
            self._values = read_names(self.linked, but=("setp", "and", "or", "xor", "not", "selp", "cvt"))
        is_value = any(r.name in self._values for r in registers_of(instruction.operands[0]))
        return is_value and not is_polled(self.linked.code, instruction)

    def may_drop(self, operand: Operand) -> bool:
        """Return whether a register of the block at hand affects what follows through selects alone."""
        return isinstance(operand, Register) and operand.name in self.droppable

    def is_padding(self, load: Instruction) -> bool:
        """Return whether a load of bytes of the block at hand is side by side with one of wider values."""
        place = place_of(load)
        if place is None or TYPE_BYTES[load.types[-1]] > 1:
            return False
        base, first, end = place
        return any(of == base and (first == last or end == start) for of, start, last in self.wider)

    def is_read(self, operand: Operand) -> bool:
        """Return whether any instruction reads a register."""
        return isinstance(operand, Register) and operand.name in self.read_names


def _literal_array(literal: Immediate, type_: str, dtype: np.dtype[Any]) -> Array:
    """A literal as one element of a dtype, converted as PTX ISA, "Constants", says."""
    value, kind = literal
    if kind != "int" and type_ in ("f32", "f64") and kind != type_:
        wide = np.array([value], unsigned(TYPE_BYTES[kind])).view(dtype_of(kind))
        return wide.astype(dtype_of(type_)).view(dtype)
    if kind == "int" and dtype.kind == "b":
        return np.array([value != 0])
    if kind == "int" and dtype.kind == "f":
        return np.array([value], dtype)
    return np.array([value & ((1 << (8 * dtype.itemsize)) - 1)], unsigned(dtype.itemsize)).view(dtype)
