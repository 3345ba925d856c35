"""A kernel with every function it calls put in its place.

Each call becomes a copy of the callee's body with names of its own, so that the machine
sees one flat list of instructions. The callee's parameters become the caller's .param
variables, to which they would be copied anyway. Recursion cannot be flattened; it is refused.

Source: PTX ISA, "Control Flow Instructions: call".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dotcu.errors import UnsupportedInstruction
from dotcu.simulator.ptx.headers import Outline
from dotcu.simulator.ptx.instructions import (
    Address,
    Arguments,
    Body,
    Instruction,
    Location,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Symbol,
    Variable,
    Vector,
)

MAX_INSTRUCTIONS = 1_000_000


class Placed(NamedTuple):
    """An instruction in the flat list.

    Attributes:
        calls: The source locations of the calls around it, innermost first.
        targets: For brx.idx, the flat indices that it may go to.
    """

    instruction: Instruction
    calls: tuple[Location, ...] = ()
    targets: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Linked:
    """A kernel without calls, but for those that the simulator answers itself.

    Attributes:
        code: Instructions; branch targets are indices into this.
        local: Variables of each lane (.local, and .param of calls), by name.
        shared: Variables of each block, by name.
        module: Variables declared inside bodies that belong to the module (.global, .const).
    """

    code: tuple[Placed, ...]
    local: Mapping[str, Variable]
    shared: Mapping[str, Variable]
    module: Mapping[str, Variable]


BodyOf = Callable[[str], Body]


@dataclass
class _Linker:
    outlined: Outline
    body_of: BodyOf
    builtins: frozenset[str]
    code: list[Placed] = field(default_factory=list)
    local: dict[str, Variable] = field(default_factory=dict)
    shared: dict[str, Variable] = field(default_factory=dict)
    module: dict[str, Variable] = field(default_factory=dict)
    instances: int = 0

    def place(
        self, name: str, renamed: Mapping[str, str], calls: tuple[Location, ...], stack: tuple[str, ...]
    ) -> None:
        body = self.body_of(name)
        prefix = f"{name}#{self.instances}:" if stack else ""
        self.instances += 1
        names = _Names(prefix, {**renamed, **self._declare(body, prefix, name)})
        starts: list[int] = []
        first = len(self.code)
        for instruction in body.instructions:
            starts.append(len(self.code))
            if len(self.code) > MAX_INSTRUCTIONS:
                raise _refused(instruction, f"{name} grows without bound when its calls are put in place")
            if instruction.opcode == "call":
                self._call(instruction, names, calls, (*stack, name))
            else:
                self.code.append(Placed(names.rename(instruction), calls))
        starts.append(len(self.code))
        self._retarget(first, starts, body, bool(stack))

    def _declare(self, body: Body, prefix: str, function: str) -> dict[str, str]:
        renamed: dict[str, str] = {}
        for variable in body.variables.values():
            if variable.space in ("local", "param"):
                unique = prefix + variable.name
                self.local[unique] = variable._replace(name=unique)
            else:
                unique = variable.name
                table = self.shared if variable.space == "shared" else self.module
                while unique in table and table[unique] is not variable:
                    unique += f"@{function}"
                table[unique] = variable
            renamed[variable.name] = unique
        return renamed

    def _call(
        self,
        call: Instruction,
        names: _Names,
        calls: tuple[Location, ...],
        stack: tuple[str, ...],
    ) -> None:
        returns, target, arguments = _signature(call)
        if target in self.builtins:
            kept = names.rename(call)
            if target == "__assertfail":  # no lane comes back from it
                kept = kept._replace(opcode="assertfail")
            self.code.append(Placed(kept, calls))
            return
        if call.guard is not None:
            raise _refused(call, "a call under a predicate")
        if target not in self.outlined.bodies:
            raise _refused(call, f"a call of {target}, whose code is not in this file")
        if target in stack:
            raise _refused(call, f"a recursive call of {target}")
        header = self.outlined.headers[target]
        formal = [p.name for p in (*header.returns, *header.params)]
        actual = [names.of(name) for name in (*returns, *arguments)]
        if len(formal) != len(actual) or not all(name in self.local for name in actual):
            raise _refused(call, "a call that does not pass its arguments in .param variables")
        self.place(target, dict(zip(formal, actual, strict=True)), (call.location, *calls), stack)

    def _retarget(self, first: int, starts: list[int], body: Body, inlined: bool) -> None:
        """Turn targets within the body into targets within the flat list."""
        end = starts[-1]
        own = {start: index for index, start in enumerate(starts[:-1])}
        for at in range(first, end):
            index = own.get(at)
            if index is None or body.instructions[index].opcode == "call":
                continue
            placed = self.code[at]
            instruction = placed.instruction
            if instruction.opcode == "bra":
                instruction = instruction._replace(target=starts[instruction.target])
            elif instruction.opcode == "ret" and inlined:
                instruction = instruction._replace(opcode="bra", target=end)
            elif instruction.opcode == "brx":
                table = instruction.operands[1]
                labels = body.tables.get(table.name) if isinstance(table, Symbol) else None
                if labels is None:
                    raise _refused(instruction, "a brx.idx without its table of targets")
                placed = placed._replace(targets=tuple(starts[label] for label in labels))
            self.code[at] = placed._replace(instruction=instruction)


class _Names:
    """How one instance of a function calls its registers and variables."""

    def __init__(self, prefix: str, symbols: Mapping[str, str]) -> None:
        self.prefix = prefix
        self.symbols = symbols
        self.plain = not prefix and all(a == b for a, b in symbols.items())

    def of(self, name: str) -> str:
        return self.symbols.get(name, name)

    def rename(self, instruction: Instruction) -> Instruction:
        if self.plain:
            return instruction
        guard = instruction.guard
        if guard is not None:
            guard = guard._replace(register=self._register(guard.register))
        operands = tuple([self._operand(o) for o in instruction.operands])
        return instruction._replace(operands=operands, guard=guard)

    def _register(self, register: Register) -> Register:
        return Register(self.prefix + register.name, register.type)

    def _operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Register):
            return self._register(operand)
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
            return Negated(self._register(operand.register))
        if isinstance(operand, Arguments):
            return Arguments(tuple([self.of(name) for name in operand.names]))
        return operand


def _signature(call: Instruction) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    operands = [o for o in call.operands if not isinstance(o, Sink)]
    returns: tuple[str, ...] = ()
    if operands and isinstance(operands[0], Arguments):
        returns = operands[0].names
        operands = operands[1:]
    if not operands or not isinstance(operands[0], Symbol):
        raise _refused(call, "a call through a function pointer")
    arguments = operands[1].names if len(operands) > 1 and isinstance(operands[1], Arguments) else ()
    return returns, operands[0].name, arguments


class Refusal(UnsupportedInstruction):
    """An instruction that is refused; where it stands is added by whoever knows the files."""

    def __init__(self, instruction: Instruction, what: str) -> None:
        super().__init__(what)
        self.instruction = instruction
        self.what = what


def _refused(instruction: Instruction, what: str) -> Refusal:
    return Refusal(instruction, what)


def link(outlined: Outline, body_of: BodyOf, entry: str, builtins: frozenset[str]) -> Linked:
    """Flatten a kernel.

    Args:
        body_of: Gives the parsed body of a function of the file.
        builtins: Functions that the simulator answers itself; calls of them stay.

    Raises:
        Refusal: A call that cannot be put in its place.
    """
    linker = _Linker(outlined, body_of, builtins)
    linker.place(entry, {}, (), ())
    return Linked(code=tuple(linker.code), local=linker.local, shared=linker.shared, module=linker.module)
