"""Asynchronous copies: accesses to bytes that are still on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import Location
from dotcu.ptx.link import Placed
from dotcu.simulator.machine.chunk import Array, Chunk
from dotcu.simulator.machine.in_flight import Copy
from dotcu.simulator.sanitizers.places import place_of

if TYPE_CHECKING:
    from dotcu.simulator.semantics.spaces import Access, Part

_REMEDIES = {
    "async": "wait for it first by cp.async.wait_group (__pipeline_wait_prior), then __syncthreads()",
    "bulk": "wait for it first by cp.async.bulk.wait_group (.read will do), then __syncthreads()",
    "mbarrier": "wait first for the mbarrier that it completes (mbarrier.try_wait)",
}
_PREPOSITION = {"read": "of", "write": "of", "atomic": "on"}


def check_in_flight(chunk: Chunk, access: Access, part: Part, index: Array) -> bool:
    """Report lanes that touch what a copy holds; whether there are any.

    Args:
        index: Elements of the part's view: one a lane, one for all, or a row for each lane.
    """
    flight = chunk.in_flight
    if flight is None or not flight.copies or part.view is not chunk.shared.views[access.width]:
        return False
    mask, copy = flight.conflicts(index, access.width, writes=access.action != "read")
    if copy is None:
        return False
    lanes = chunk.numbers()
    if part.positions is not None:
        lanes = lanes[part.positions]
    rows = np.any(mask.reshape(mask.shape[0], -1), axis=1)
    name, shown = place_of(chunk, access, part, int(index[mask][0]))
    chunk.grid.report(
        chunk,
        "race",
        access.placed,
        lanes[rows] if len(rows) > 1 else lanes,
        address_of=name,
        message=f"{access.action} {_PREPOSITION[access.action]} {access.width} bytes at {shown} while "
        f"{_told(chunk, access, copy)}. The copy may come before or after it: {_REMEDIES[copy.kind]}.",
    )
    return True


def _told(chunk: Chunk, access: Access, copy: Copy) -> str:
    decoded = chunk.grid.decoded
    placed = copy.access.placed
    file, line = decoded.place(placed)
    own_file, _ = decoded.place(access.placed)
    where = f"line {line}" if file == own_file else f"{file}:{line}"
    caller = _caller(placed)
    if caller.line not in (0, line) and caller.file == placed.instruction.location.file:
        where += f", called from line {caller.line}"
    does = "is still on its way there" if copy.values is not None else "may still read them"
    return f"the copy at {where} (`{placed.instruction.text}`) {does}"


def _caller(placed: Placed) -> Location:
    """The outermost place that an instruction was inlined into, or called from."""
    at = placed.calls[-1] if placed.calls else placed.instruction.location
    while at.inlined_at is not None:
        at = at.inlined_at
    return at
