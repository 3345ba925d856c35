"""Registers, variables and functions that instructions name, and the functions that a kernel reaches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dotcu.ptx.instructions import (
    Address,
    Arguments,
    Operand,
    Pair,
    Predicate,
    Register,
    Symbol,
    Vector,
)
from dotcu.ptx.module import PtxModule


def registers_of(operand: Operand) -> list[Register]:
    """Return the registers that an operand names."""
    if isinstance(operand, Register):
        return [operand]
    if isinstance(operand, Predicate):
        return [operand.register]
    if isinstance(operand, Address):
        return [operand.base] if isinstance(operand.base, Register) else []
    if isinstance(operand, Pair):
        return [*registers_of(operand.first), *registers_of(operand.second)]
    if not isinstance(operand, Vector):
        return []
    return [register for e in operand.elements for register in registers_of(e)]


def symbols_of(operands: Iterable[Operand]) -> list[Symbol]:
    """Return the symbols whose addresses operands take, as values or in vectors."""
    found: list[Symbol] = []
    for operand in operands:
        if isinstance(operand, Symbol):
            found.append(operand)
        elif isinstance(operand, Vector):
            found += symbols_of(operand.elements)
    return found


def names_of(operands: Iterable[Operand]) -> set[str]:
    """Return the names of all registers, variables and functions in operands."""
    found: set[str] = set()
    for operand in operands:
        if isinstance(operand, Arguments):
            found.update(operand.names)
        elif isinstance(operand, Vector):
            found |= names_of(operand.elements)
        elif isinstance(operand, Address) and isinstance(operand.base, Symbol):
            found.add(operand.base.name)
        elif isinstance(operand, Symbol):
            found.add(operand.name)
        else:
            found.update(register.name for register in registers_of(operand))
    return found


class InstructionNames(NamedTuple):
    """The names that an instruction uses.

    Attributes:
        opcode: With its modifiers that name no type, such as "cp.async.bulk".
        names: Of registers, variables and functions in its operands.
        results: Those in its first operand.
    """

    opcode: str
    names: set[str]
    results: set[str]


def reached_functions(module: PtxModule, entry: str) -> dict[str, list[InstructionNames]]:
    """Return the instructions of a kernel and of every function that it names, directly or not.

    Raises:
        SimulationError: A body is not well formed.
    """
    found: dict[str, list[InstructionNames]] = {}
    pending = [entry]
    while pending:
        function = pending.pop()
        if function not in found:
            found[function] = rows = [
                InstructionNames(
                    ".".join((i.opcode, *i.flags)), names_of(i.operands), names_of(i.operands[:1])
                )
                for i in module.body(function).instructions
            ]
            pending += sorted(set().union(*(row.names for row in rows)) & module.bodies.keys())
    return found
