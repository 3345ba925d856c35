"""The layout of a kernel's variables, and the variable or tensor that each address is meant to be in.

An index that runs off one array lands in the next one, or in a tensor that shares the allocation,
where reads and writes are possible and wrong. To detect that, every register gets the set of all
variables and parameters that went into it, through whatever instructions. Where just one of these is
an array, an access has to stay in it. Where there are several, or where the register went through
memory of the lane's own, nothing is known, and nothing is checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dotcu.ptx.dataflow import registers_of
from dotcu.ptx.instructions import (
    TYPE_BYTES,
    Address,
    Instruction,
    Operand,
    Pair,
    Predicate,
    Register,
    Symbol,
    Variable,
    Vector,
)
from dotcu.simulator.decoding.inlining import FlatKernel
from dotcu.simulator.machine.memory import Region

if TYPE_CHECKING:
    from dotcu.simulator.machine.grid import LaunchState


# Bytes of each lane in which the calls of recursive functions keep their registers and variables.
STACK_BYTES = 1 << 15
STACK_ALIGNMENT = 16


def display_name(symbol: str) -> str:
    """A variable's name without its mangling: _ZZ6kernelPfE4tile is tile."""
    tail = symbol.split("@")[0].split(":")[-1]
    for match in re.finditer(r"(?<!\d)(\d{1,5})(?=[A-Za-z_])", tail) if tail.startswith("_Z") else ():
        length, start = int(match.group(1)), match.end()
        name = tail[start : start + length]
        rest = tail[start + length :]
        if len(name) == length and (not rest or re.fullmatch(r"_\d+|E", rest)):
            return name
    return tail


def is_local_frame(name: str) -> bool:
    """Return whether a variable is the compiler's frame that holds all local arrays of a function."""
    return name.startswith("__local_depot")


@dataclass(frozen=True, kw_only=True)
class StackFrames:
    """The stack frames of recursive functions, one for each call.

    Attributes:
        offsets: For each variable its function, and its offset in the function's frame.
        sizes: Bytes of each function's frame.
        base: Where the stack begins in a lane's local memory.
    """

    offsets: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    base: int = 0


def layout_frames(linked: FlatKernel, local_bytes: int) -> StackFrames:
    """The frames of a kernel's recursive functions, behind its other local memory."""
    offsets: dict[str, tuple[str, int]] = {}
    sizes: dict[str, int] = {}
    for name, function in linked.functions.items():
        if function.recursive:
            placed, end = _place_all([(v, linked.local[v]) for v in function.variables])
            offsets.update({variable: (name, start) for start, variable in placed})
            sizes[name] = _align(end, STACK_ALIGNMENT)
    return StackFrames(offsets=offsets, sizes=sizes, base=_align(local_bytes, STACK_ALIGNMENT))


def layout_variables(
    linked: FlatKernel, shared: Mapping[str, Variable]
) -> tuple[dict[str, list[tuple[int, str]]], int, int]:
    """Return each variable's start by space, that of dynamic shared memory, and the bytes of local memory."""
    used = _symbols(linked)
    everything = {**linked.shared, **{n: v for n, v in shared.items() if n in used}}
    static = [(n, v) for n, v in everything.items() if not v.extern]
    dynamic = [(n, v) for n, v in everything.items() if v.extern]
    blocks, end = _place_all(static)
    end = _align(end, max([16, *(v.align for _, v in dynamic)])) if dynamic else end
    blocks += [(end, name) for name, _ in dynamic]
    framed = {v for f in linked.functions.values() if f.recursive for v in f.variables}
    lanes, local_bytes = _place_all([(n, v) for n, v in linked.local.items() if n not in framed])
    return {"shared": blocks, "local": lanes}, end, local_bytes


def extents(
    linked: FlatKernel, shared: Mapping[str, Variable], positions: Mapping[str, int]
) -> dict[str, Extent]:
    """Return the extent of each variable of shared and local memory, by its name in PTX.

    Args:
        linked: The flat kernel.
        shared: Module-scope shared variables.
        positions: Offsets of the variables.
    """
    variables = {**linked.local, **shared, **linked.shared}
    return {
        name: (start, None if variables[name].extern else start + variables[name].size)
        for name, start in positions.items()
    }


def _place_all(variables: Sequence[tuple[str, Variable]]) -> tuple[list[tuple[int, str]], int]:
    placed, end = [], 0
    for name, variable in variables:
        start = _align(end, max(1, variable.align))
        placed.append((start, name))
        end = start + variable.size
    return placed, end


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _symbols(linked: FlatKernel) -> set[str]:
    found = set()
    for placed in linked.code:
        for operand in placed.instruction.operands:
            if isinstance(operand, Symbol):
                found.add(operand.name)
            elif isinstance(operand, Address) and isinstance(operand.base, Symbol):
                found.add(operand.base.name)
    return found


_READS_ALL = frozenset({"st", "red", "bar", "barrier", "bra", "brx", "call", "enter", "assertfail"})


def read_names(linked: FlatKernel) -> frozenset[str]:
    found: set[str] = set()
    for placed in linked.code:
        instruction = placed.instruction
        if instruction.guard is not None:
            found.add(instruction.guard.register.name)
        stores = instruction.opcode in _READS_ALL
        for operand in instruction.operands if stores else instruction.operands[1:]:
            found.update(r.name for r in registers_of(operand))
        if instruction.operands and isinstance(instruction.operands[0], Address):
            found.update(r.name for r in registers_of(instruction.operands[0]))
    return frozenset(found)


def swapped_addresses(linked: FlatKernel) -> frozenset[tuple[str, int]]:
    """Addresses (register, offset) of compare-and-swap: a read of one only guesses what is there."""
    copies = _copies(linked)
    found = set()
    for placed in linked.code:
        instruction = placed.instruction
        if instruction.opcode == "atom" and "cas" in instruction.flags and len(instruction.operands) > 1:
            address = instruction.operands[1]
            if isinstance(address, Address) and isinstance(address.base, Register):
                root = copies.get(address.base.name, address.base.name)
                names = {root, *(name for name, origin in copies.items() if origin == root)}
                found |= {(name, address.offset) for name in names}
    return frozenset(found)


def _copies(linked: FlatKernel) -> dict[str, str]:
    """Registers that hold another's address, as mov and cvta leave it: name to the first one's name."""
    origin: dict[str, str] = {}
    for placed in linked.code:
        instruction = placed.instruction
        if instruction.opcode in ("mov", "cvta") and len(instruction.operands) == 2:
            target, source = instruction.operands
            if isinstance(target, Register) and isinstance(source, Register):
                origin[target.name] = origin.get(source.name, source.name)
    return origin


# Which variable or tensor an address is meant to be in: what its register was computed from.


# Names of variables, and offsets of kernel parameters.
Origin = frozenset[str | int]
NONE: Origin = frozenset()
UNKNOWN = ""
# They have no result: what stands first is read.
_NO_RESULT = frozenset({"st", "red", "bra", "brx", "ret", "exit", "bar", "barrier", "cp", "membar", "fence"})


Extent = tuple[int, int | None]
"""The start and end of a variable of shared or local memory.

The end is None if it runs to the end of its space, as dynamic shared memory does.
"""


class AccessSpan(NamedTuple):
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


def trace_origins(linked: FlatKernel, parameters: Mapping[str, int]) -> Mapping[str, Origin]:
    """Return the variables and parameters that each register is computed from.

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
    """Return the origins that an instruction adds, and the registers whose origins it passes on."""
    if instruction.opcode in ("ld", "ldu"):
        return _loaded(instruction, parameters), []
    if instruction.opcode == "atom":
        return NONE, []
    sources = instruction.operands[1:]
    symbols = frozenset(o.name for o in sources if isinstance(o, Symbol))
    return symbols, [name for o in sources for name in _registers(o)]


def _loaded(instruction: Instruction, parameters: Mapping[str, int]) -> Origin:
    """Return the origins of a loaded value: a parameter, or unknown from the lane's own memory."""
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
    elif isinstance(operand, Predicate):
        return
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from _registers(element)
    elif isinstance(operand, Pair):
        yield from _registers(operand.first)
        yield from _registers(operand.second)


# At a launch: the one array among what an address was computed from


def span_of(grid: LaunchState, origin: Origin) -> AccessSpan | None:
    """Return the bytes that an access has to stay in; None if that is not known."""
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
        return AccessSpan(only.base, only.base + only.size, "", only)
    return None if only is None else _variable(grid, only)


def _largest(grid: LaunchState, base: int) -> Region | None:
    """The largest region that begins at an address."""
    return max((r for r in grid.memory.regions if r.base == base), key=lambda r: r.size, default=None)


def _variable(grid: LaunchState, name: str) -> AccessSpan | None:
    extent = grid.decoded.extents.get(name)
    if extent is None:
        return None
    start, end = extent
    return AccessSpan(start, grid.shared_bytes if end is None else end, name, None)
