"""Registers, variables and functions that instructions name, and the functions that a kernel reaches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dotcu.ptx.instructions import (
    Address,
    Arguments,
    Operand,
    Predicate,
    Register,
    Symbol,
    Vector,
)
from dotcu.ptx.module import PtxModule


def _leaves(operand: Operand) -> Iterator[Operand]:
    """Yield the parts of an operand that have no parts."""
    parts: Iterable[Operand] = ()
    if isinstance(operand, (Predicate, Address)):
        parts = operand[:1]
    elif isinstance(operand, Vector):
        parts = operand.elements
    else:
        yield operand
    for part in parts:
        yield from _leaves(part)


def registers_of(operand: Operand) -> list[Register]:
    """Return the registers that an operand names."""
    if isinstance(operand, Register):  # which most are
        return [operand]
    return [leaf for leaf in _leaves(operand) if isinstance(leaf, Register)]


def symbols_of(operands: Iterable[Operand]) -> list[Symbol]:
    """Return the symbols whose addresses operands take, as values or in vectors."""
    values = (operand for operand in operands if not isinstance(operand, Address))
    return [leaf for value in values for leaf in _leaves(value) if isinstance(leaf, Symbol)]


def names_of(operands: Iterable[Operand]) -> set[str]:
    """Return the names of all registers, variables and functions in operands."""
    found: set[str] = set()
    for leaf in (leaf for operand in operands for leaf in _leaves(operand)):
        if isinstance(leaf, Arguments):
            found.update(leaf.names)
        elif isinstance(leaf, (Symbol, Register)):
            found.add(leaf.name)
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
