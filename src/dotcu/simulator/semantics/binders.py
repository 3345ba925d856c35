"""From an instruction to its step: the elementwise tables first, then those that touch more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dotcu.simulator.chunk import Chunk
from dotcu.simulator.ptx.link import Placed
from dotcu.simulator.semantics.atomic import bind_atom
from dotcu.simulator.semantics.bits import BIT_FIELDS
from dotcu.simulator.semantics.calls import bind_call
from dotcu.simulator.semantics.carry import bind_carry
from dotcu.simulator.semantics.cluster import bind_getctarank, bind_mapa
from dotcu.simulator.semantics.compare import COMPARE, bind_setp
from dotcu.simulator.semantics.convert import bind_cvt
from dotcu.simulator.semantics.copies import bind_cp
from dotcu.simulator.semantics.float import FLOAT
from dotcu.simulator.semantics.half import HALF
from dotcu.simulator.semantics.integer import INTEGER
from dotcu.simulator.semantics.matrix.instructions import MATRIX_INSTRUCTIONS
from dotcu.simulator.semantics.mbarrier import bind_mbarrier
from dotcu.simulator.semantics.memory import bind_cvta, bind_isspacep, bind_ld, bind_st
from dotcu.simulator.semantics.move import bind_mov
from dotcu.simulator.semantics.table import (
    NotExecuted,
    Step,
    Table,
    bind_elementwise,
    find_operation,
    form_of,
)
from dotcu.simulator.semantics.warp import WARP_INSTRUCTIONS, Rendezvous, bind_activemask

if TYPE_CHECKING:
    from dotcu.simulator.binding import Binding

Bind = Callable[[Placed, "Binding"], Step | Rendezvous]


def _nothing(placed: Placed, binding: Binding) -> Step:
    """What orders memory, waits, or hints: one step at a time is in order already."""

    def step(chunk: Chunk) -> None:
        pass

    return step


def bind_fence(placed: Placed, binding: Binding) -> Step:
    """membar and fence: what was seen holds from here on, what was done can be published."""
    flags = placed.instruction.flags
    scope = "cta" if "cta" in flags else "gpu"

    def step(chunk: Chunk) -> None:
        chunk.clocks.fence(chunk.active, scope)

    return step


def _setp(placed: Placed, binding: Binding) -> Step:
    return bind_setp(placed.instruction, binding)


def trap(placed: Placed) -> Step:
    """trap: the kernel stops itself."""

    def step(chunk: Chunk) -> None:
        chunk.grid.report(
            chunk,
            "trap",
            placed,
            chunk.numbers(),
            message="the kernel stopped itself by __trap(). Look at the condition that led here.",
        )

    return step


_MORE: Mapping[str, Bind] = {
    "mov": bind_mov,
    "cvt": bind_cvt,
    "cvta": bind_cvta,
    "setp": _setp,
    "ld": bind_ld,
    "ldu": bind_ld,
    "st": bind_st,
    "atom": bind_atom,
    "red": bind_atom,
    "cp": bind_cp,
    "mbarrier": bind_mbarrier,
    "mapa": bind_mapa,
    "getctarank": bind_getctarank,
    "call": bind_call,
    "isspacep": bind_isspacep,
    "activemask": bind_activemask,
    "membar": bind_fence,
    "fence": bind_fence,
    "addc": bind_carry,
    "subc": bind_carry,
    "madc": bind_carry,
    **WARP_INSTRUCTIONS,
    **MATRIX_INSTRUCTIONS,
    **dict.fromkeys(
        (
            "nanosleep",
            "prefetch",
            "prefetchu",
            "applypriority",
            "discard",
            "griddepcontrol",
            "setmaxnreg",
            "pmevent",
        ),
        _nothing,
    ),
}
_ELEMENTWISE: tuple[Table, ...] = (INTEGER, FLOAT, HALF, COMPARE, BIT_FIELDS)


def bind(placed: Placed, binding: Binding) -> Step | Rendezvous:
    """The step of an instruction.

    Raises:
        NotExecuted: No table has a row for it.
    """
    instruction = placed.instruction
    if "cc" in instruction.flags:
        return bind_carry(placed, binding)
    more = _MORE.get(instruction.opcode)
    if more is not None:
        return more(placed, binding)
    form = form_of(instruction)
    for table in _ELEMENTWISE:
        try:
            operation = find_operation(table, form)
        except NotExecuted:
            continue
        return bind_elementwise(operation, instruction, binding)
    raise NotExecuted


__all__ = ["Rendezvous", "bind", "bind_call", "trap"]
