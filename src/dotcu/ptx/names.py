"""Names in a linked kernel: each copy of a function has registers and variables of its own."""

from __future__ import annotations

from collections.abc import Mapping

from dotcu.ptx.instructions import (
    Address,
    Arguments,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
)


def registers_of(operand: Operand) -> list[Register]:
    """The registers that an operand names."""
    if isinstance(operand, Register):
        return [operand]
    if isinstance(operand, Negated):
        return [operand.register]
    if isinstance(operand, Address):
        return [operand.base] if isinstance(operand.base, Register) else []
    if isinstance(operand, Pair):
        return [*registers_of(operand.first), *registers_of(operand.second)]
    if not isinstance(operand, Vector):
        return []
    return [register for e in operand.elements for register in registers_of(e)]


class Names:
    """How one instance of a function calls its registers and variables."""

    def __init__(self, prefix: str, symbols: Mapping[str, str]) -> None:
        self.prefix = prefix
        self.symbols = symbols
        self.plain = not prefix and all(a == b for a, b in symbols.items())

    def of(self, name: str) -> str:
        """What a variable of the body is called in the linked kernel."""
        return self.symbols.get(name, name)

    def rename(self, instruction: Instruction) -> Instruction:
        """The instruction with the names of the linked kernel."""
        if self.plain:
            return instruction
        guard = instruction.guard
        if guard is not None:
            guard = guard._replace(register=self.register(guard.register))
        operands = tuple([self._operand(o) for o in instruction.operands])
        return instruction._replace(operands=operands, guard=guard)

    def register(self, register: Register) -> Register:
        """A register of the body, in the linked kernel."""
        return Register(self.prefix + register.name, register.type)

    def _operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Register):
            return self.register(operand)
        if isinstance(operand, Symbol):
            return operand._replace(name=self.of(operand.name))
        if isinstance(operand, Address):
            base = self._operand(operand.base)
            return operand._replace(base=base)  # type: ignore[arg-type]
        if isinstance(operand, Vector):
            return Vector(tuple([self._operand(o) for o in operand.elements]))
        if isinstance(operand, Pair):
            return Pair(self._operand(operand.first), self._operand(operand.second))
        if isinstance(operand, Negated):
            return Negated(self.register(operand.register))
        if isinstance(operand, Arguments):
            return Arguments(tuple([self.of(name) for name in operand.names]))
        return operand
