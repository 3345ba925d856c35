"""Which variable or tensor an address is meant to lie in: what its register was computed from.

An index that runs off one array lands in the next one, or in a tensor that shares the
allocation, where reads and writes are possible and wrong. To tell, every register gets the
set of all variables and parameters that went into it, through whatever instructions. Where
just one of these is an array, an access has to stay in it. Where there are several, or where
the register went through memory of the lane's own, nothing is known, and nothing is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from dotcu.ptx.instructions import (
    TYPE_BYTES,
    Address,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
)
from dotcu.ptx.link import Linked
from dotcu.simulator.machine.memory import Region

if TYPE_CHECKING:
    from dotcu.simulator.machine.grid import Grid

# Names of variables, and offsets of kernel parameters.
Origin = frozenset[str | int]
NONE: Origin = frozenset()
UNKNOWN = ""
# They have no result: what stands first is read.
_NO_RESULT = frozenset({"st", "red", "bra", "brx", "ret", "exit", "bar", "barrier", "cp", "membar", "fence"})


class Extent(NamedTuple):
    """Where a variable of shared or local memory lies.

    Attributes:
        end: After its last byte; None if it runs to the end of its space, as dynamic shared memory does.
    """

    start: int
    end: int | None


class Span(NamedTuple):
    """The bytes that an access has to stay in.

    Attributes:
        start: Address of the first one; from the window's beginning for shared and local memory.
        end: Address after the last one.
        name: The variable; empty for a tensor.
        region: The tensor's region; None for a variable.
    """

    start: int
    end: int
    name: str
    region: Region | None


# Before a launch: what each register was computed from


def trace(linked: Linked, parameters: Mapping[str, int]) -> Mapping[str, Origin]:
    """What went into each register, wherever in the kernel it is set.

    Args:
        parameters: Offset of each kernel parameter.
    """
    rows = [(_targets(i), *_sources(i, parameters)) for i in (p.instruction for p in linked.code)]
    rows = [row for row in rows if row[0]]
    origins: dict[str, Origin] = {}
    changed = True
    while changed:
        changed = False
        for targets, own, registers in rows:
            origin = own.union(*[origins.get(name, NONE) for name in registers])
            for name in targets:
                known = origins.get(name, NONE)
                if not origin <= known:
                    origins[name] = known | origin
                    changed = True
    return origins


def _targets(instruction: Instruction) -> list[str]:
    if instruction.opcode in _NO_RESULT or not instruction.operands:
        return []
    return list(_registers(instruction.operands[0]))


def _sources(instruction: Instruction, parameters: Mapping[str, int]) -> tuple[Origin, list[str]]:
    """What an instruction brings in itself, and the registers whose origins it hands on."""
    if instruction.opcode in ("ld", "ldu"):
        return _loaded(instruction, parameters), []
    if instruction.opcode == "atom":
        return NONE, []
    sources = instruction.operands[1:]
    symbols = frozenset(o.name for o in sources if isinstance(o, Symbol))
    return symbols, [name for o in sources for name in _registers(o)]


def _loaded(instruction: Instruction, parameters: Mapping[str, int]) -> Origin:
    """What a load brings in: a parameter, or, from the lane's own memory, who knows what."""
    if len(instruction.operands) < 2 or not instruction.types:  # it is refused when it is bound
        return frozenset({UNKNOWN})
    address = instruction.operands[1]
    if "param" not in instruction.flags:
        return NONE if {"global", "shared", "const"} & set(instruction.flags) else frozenset({UNKNOWN})
    if not isinstance(address, Address) or not isinstance(address.base, Symbol):
        return frozenset({UNKNOWN})
    start = parameters.get(address.base.name)
    if start is None:  # a parameter of a call
        return frozenset({UNKNOWN})
    size = TYPE_BYTES[instruction.types[-1]]
    count = len(list(_registers(instruction.operands[0])))
    first = start + address.base.offset + address.offset
    return frozenset(first + k * size for k in range(count)) if size == 8 else NONE


def _registers(operand: Operand) -> Iterator[str]:
    if isinstance(operand, Register):
        if operand.type != "pred":
            yield operand.name
    elif isinstance(operand, Negated):
        return
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from _registers(element)
    elif isinstance(operand, Pair):
        yield from _registers(operand.first)
        yield from _registers(operand.second)


# At a launch: the one array among what an address was computed from


def span_of(grid: Grid, origin: Origin) -> Span | None:
    """Where an access has to stay; None where that is not known."""
    if not origin or UNKNOWN in origin:
        return None
    found: set[str | Region | None] = set()
    for source in origin:
        if isinstance(source, str):
            found.add(source)
        else:
            value = int.from_bytes(grid.params[source : source + 8], "little")
            if grid.memory.find(value) is not None:  # else it is a number
                found.add(_largest(grid, value))
    if len(found) != 1:
        return None
    (only,) = found
    if isinstance(only, Region):
        return Span(only.base, only.base + only.size, "", only)
    return None if only is None else _variable(grid, only)


def _largest(grid: Grid, base: int) -> Region | None:
    """The largest region that begins at an address."""
    return max((r for r in grid.memory.regions if r.base == base), key=lambda r: r.size, default=None)


def _variable(grid: Grid, name: str) -> Span | None:
    extent = grid.decoded.extents.get(name)
    if extent is None:
        return None
    return Span(extent.start, grid.shared_bytes if extent.end is None else extent.end, name, None)
