"""Who calls whom: which calls can be put in place, and which must be made while the kernel runs.

A function that may call itself, directly or through others, and one that a pointer may call,
is placed once and entered; every other one is copied to where it is called.

Source: PTX ISA, "Control Flow Instructions: call".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from dotcu.ptx.headers import Outline
from dotcu.ptx.instructions import (
    Arguments,
    Body,
    Header,
    Instruction,
    Operand,
    Part,
    Register,
    Sink,
    Symbol,
    Variable,
    Vector,
)

BodyOf = Callable[[str], Body]


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The operands of a call.

    Attributes:
        target: The function, or the register that points to it; None where it is neither.
    """

    returns: tuple[str, ...]
    target: Symbol | Register | None
    arguments: tuple[str, ...]


def signature(call: Instruction) -> Signature:
    """The operands of a call, by what they are for."""
    operands = [o for o in call.operands if not isinstance(o, Sink)]
    returns: tuple[str, ...] = ()
    if operands and isinstance(operands[0], Arguments):
        returns, operands = operands[0].names, operands[1:]
    target = operands[0] if operands else None
    arguments = operands[1].names if len(operands) > 1 and isinstance(operands[1], Arguments) else ()
    return Signature(
        returns=returns,
        target=target if isinstance(target, (Symbol, Register)) else None,
        arguments=arguments,
    )


@dataclass(frozen=True, kw_only=True)
class CallGraph:
    """The functions that a kernel reaches.

    Attributes:
        reaches: For each function, those that it calls, and those that these call, and so on.
        taken: Functions whose address is taken.
        pointed: Functions that a call through a pointer may mean.
    """

    reaches: Mapping[str, frozenset[str]]
    taken: frozenset[str]
    pointed: frozenset[str]

    def is_recursive(self, name: str) -> bool:
        """Whether a function may be called while it runs."""
        return name in self.reaches[name]


@dataclass
class _Explorer:
    outlined: Outline
    body_of: BodyOf
    taken: set[str] = field(default_factory=set)
    edges: dict[str, set[str]] = field(default_factory=dict)
    pointers: dict[str, list[tuple[Body, Signature]]] = field(default_factory=dict)

    def explore(self, entry: str) -> None:
        for variable in self.outlined.variables.values():
            self.taken.update(self._functions(_initial_symbols(variable)))
        pending = {entry}
        while pending:
            for name in sorted(pending):
                self._read(name)
            pending = set().union(*self.edges.values())
            if any(self.pointers.values()):
                pending |= self.taken
            pending -= self.edges.keys()

    def _read(self, name: str) -> None:
        body = self.body_of(name)
        self.edges[name], self.pointers[name] = set(), []
        for instruction in body.instructions:
            if instruction.opcode != "call":
                self.taken.update(self._functions(_symbols(instruction.operands)))
                continue
            called = signature(instruction)
            if isinstance(called.target, Register):
                self.pointers[name].append((body, called))
            elif called.target is not None:
                self.edges[name].update(self._functions([called.target]))

    def _functions(self, symbols: Iterable[Symbol]) -> set[str]:
        return {s.name for s in symbols if s.name in self.outlined.bodies}

    def graph(self) -> CallGraph:
        pointed: set[str] = set()
        for name, calls in self.pointers.items():
            for body, called in calls:
                found = set(candidates(self.outlined, self.taken, body, called))
                self.edges[name] |= found
                pointed |= found
        return CallGraph(
            reaches={name: frozenset(self._reached(name)) for name in self.edges},
            taken=frozenset(self.taken),
            pointed=frozenset(pointed),
        )

    def _reached(self, name: str) -> set[str]:
        seen: set[str] = set()
        pending = list(self.edges[name])
        while pending:
            found = pending.pop()
            if found not in seen:
                seen.add(found)
                pending.extend(self.edges[found])
        return seen


def _initial_symbols(variable: Variable) -> list[Symbol]:
    """The symbols whose addresses a variable begins with."""
    elements = [e.symbol if isinstance(e, Part) else e for e in variable.initial]
    return [e for e in elements if isinstance(e, Symbol)]


def _symbols(operands: Iterable[Operand]) -> list[Symbol]:
    found: list[Symbol] = []
    for operand in operands:
        if isinstance(operand, Symbol):
            found.append(operand)
        elif isinstance(operand, Vector):
            found += _symbols(operand.elements)
    return found


def candidates(outlined: Outline, taken: Iterable[str], body: Body, called: Signature) -> list[str]:
    """Functions whose address is taken and that take and return what a call passes, by size."""
    variables = body.variables
    passed = (
        [variables[n].size for n in called.returns if n in variables],
        [variables[n].size for n in called.arguments if n in variables],
    )
    return [name for name in sorted(taken) if _sizes(outlined.headers[name]) == passed]


def _sizes(header: Header) -> tuple[list[int], list[int]]:
    return [v.size for v in header.returns], [v.size for v in header.params]


def call_graph(outlined: Outline, body_of: BodyOf, entry: str) -> CallGraph:
    """What a kernel calls.

    Args:
        body_of: Gives the parsed body of a function of the file.
    """
    explorer = _Explorer(outlined, body_of)
    explorer.explore(entry)
    return explorer.graph()
