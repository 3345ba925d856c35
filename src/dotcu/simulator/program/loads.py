"""The end of each loaded value: stores alone, or also what decides, addresses or is exchanged.

Triton gives an element to several threads where a block has more threads than elements. All of them load
it and compute with it, and one stores the result. The loads of the others have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dotcu.ptx.dataflow import names_of
from dotcu.ptx.instructions import Address
from dotcu.simulator.program.basic_blocks import has_result, read_by
from dotcu.simulator.program.inlining import FlatInstruction

_EXCHANGES = frozenset({"shfl", "redux"})
_OTHER_EFFECTS = frozenset(
    {
        "ld",
        "atom",
        "call",
        "vote",
        "match",
        "activemask",
        "elect",
        "mma",
        "ldmatrix",
        "movmatrix",
        "tex",
        "mapa",
    }
)
"""Instructions whose result depends on more than the values that their thread gives them."""


class LoadEnds(NamedTuple):
    """The end of a loaded value that ends in nothing but stores.

    Attributes:
        position: Of the load in the code.
        stores: The stores, by `id`.
        exchanges: Positions of instructions that pass it to threads of the warp.
    """

    position: int
    stores: frozenset[int]
    exchanges: tuple[int, ...]


class LoadedValues(NamedTuple):
    """The loads of a kernel whose values end in stores alone, by `id`, and each instruction's position."""

    ends: Mapping[int, LoadEnds]
    positions: Mapping[int, int]


def loaded_values(code: Sequence[FlatInstruction]) -> LoadedValues:
    """Return the loads whose values nothing but a store can show."""
    readers: dict[str, list[int]] = {}
    for position, instruction in enumerate(code):
        for name in read_by(instruction.ptx):
            readers.setdefault(name, []).append(position)
    ends = {}
    for position, instruction in enumerate(code):
        if instruction.ptx.opcode == "ld":
            found = _ends_of(position, code, readers)
            if found is not None:
                ends[id(instruction)] = found
    return LoadedValues(ends, {id(instruction): position for position, instruction in enumerate(code)})


def _ends_of(
    load: int, code: Sequence[FlatInstruction], readers: Mapping[str, Sequence[int]]
) -> LoadEnds | None:
    stores, exchanges = set(), set()
    pending = sorted(names_of(code[load].ptx.operands[:1]))
    known = set(pending)
    while pending:
        name = pending.pop()
        for position in readers.get(name, ()):
            ptx = code[position].ptx
            if ptx.opcode == "st":
                address = [operand for operand in ptx.operands if isinstance(operand, Address)]
                if name in names_of(address) or (ptx.guard is not None and name == ptx.guard.register.name):
                    return None
                stores.add(id(code[position]))
                continue
            if not has_result(ptx) or ptx.opcode in _OTHER_EFFECTS:
                return None
            if ptx.opcode in _EXCHANGES:
                exchanges.add(position)
            fresh = names_of(ptx.operands[:1]) - known
            known |= fresh
            pending += sorted(fresh)
    return LoadEnds(load, frozenset(stores), tuple(sorted(exchanges)))
