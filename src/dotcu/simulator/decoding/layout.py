"""Where the variables of a kernel lie, and which registers it reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dotcu.ptx.instructions import Address, Register, Symbol, Variable
from dotcu.ptx.link import Linked
from dotcu.ptx.names import registers_of
from dotcu.simulator.decoding.provenance import Extent

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
    """Whether a variable is the compiler's own, in which all local arrays of a function lie."""
    return name.startswith("__local_depot")


@dataclass(frozen=True, kw_only=True)
class Frames:
    """Where the variables of recursive functions lie: in a frame of the stack, one for each call.

    Attributes:
        offsets: For each variable its function, and its offset in the function's frame.
        sizes: Bytes of each function's frame.
        base: Where the stack begins in a lane's local memory.
    """

    offsets: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    base: int = 0


def lay_out_frames(linked: Linked, local_bytes: int) -> Frames:
    """The frames of a kernel's recursive functions, behind its other local memory."""
    offsets: dict[str, tuple[str, int]] = {}
    sizes: dict[str, int] = {}
    for name, function in linked.functions.items():
        if function.recursive:
            placed, end = _place_all([(v, linked.local[v]) for v in function.variables])
            offsets.update({variable: (name, start) for start, variable in placed})
            sizes[name] = _align(end, STACK_ALIGNMENT)
    return Frames(offsets=offsets, sizes=sizes, base=_align(local_bytes, STACK_ALIGNMENT))


def lay_out(
    linked: Linked, shared: Mapping[str, Variable]
) -> tuple[dict[str, list[tuple[int, str]]], int, int]:
    """Where each variable begins, by space; where dynamic shared memory begins; bytes of local memory."""
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
    linked: Linked, shared: Mapping[str, Variable], positions: Mapping[str, int]
) -> dict[str, Extent]:
    """Where each variable of shared and local memory lies, by its name in PTX."""
    variables = {**linked.local, **shared, **linked.shared}
    return {
        name: Extent(start, None if variables[name].extern else start + variables[name].size)
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


def _symbols(linked: Linked) -> set[str]:
    found = set()
    for placed in linked.code:
        for operand in placed.instruction.operands:
            if isinstance(operand, Symbol):
                found.add(operand.name)
            elif isinstance(operand, Address) and isinstance(operand.base, Symbol):
                found.add(operand.base.name)
    return found


_READS_ALL = frozenset({"st", "red", "bar", "barrier", "bra", "brx", "call", "enter", "assertfail"})


def read_names(linked: Linked) -> frozenset[str]:
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


def swapped_addresses(linked: Linked) -> frozenset[tuple[str, int]]:
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


def _copies(linked: Linked) -> dict[str, str]:
    """Registers that hold another's address, as mov and cvta leave it: name to the first one's name."""
    origin: dict[str, str] = {}
    for placed in linked.code:
        instruction = placed.instruction
        if instruction.opcode in ("mov", "cvta") and len(instruction.operands) == 2:
            target, source = instruction.operands
            if isinstance(target, Register) and isinstance(source, Register):
                origin[target.name] = origin.get(source.name, source.name)
    return origin
