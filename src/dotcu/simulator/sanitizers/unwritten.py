"""Accesses to bytes that are not there yet: nothing wrote them, or an asynchronous copy is under way.

One shadow byte for each byte says whether it was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.decoding.inlining import chain_of
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.machine.memory import WRITTEN
from dotcu.simulator.machine.shape import Array
from dotcu.simulator.sanitizers.bounds import describe_access, describe_element
from dotcu.simulator.sanitizers.proxies import is_async

if TYPE_CHECKING:
    from dotcu.simulator.machine.async_copies import AsyncCopy
    from dotcu.simulator.semantics.memory.access import Access, AccessPart


def check_written(part: AccessPart, index: Array, element: int = 0) -> None:
    """Report lanes that read elements that nothing wrote.

    Of a vector with other elements that are written, one that the kernel may drop is no fault: the padding
    of a row.

    Args:
        part, index: The lanes of an access that one buffer holds, and the elements that they read.
        element: The number of these elements in the vectors that the lanes load.
    """
    chunk, access = part.chunk, part.access
    assert part.shadow is not None
    state = part.shadow.take(index)
    full = WRITTEN[access.width]
    if int(state.min()) == full:
        return
    if part.region is None and chunk.grid.decoded.location_of.is_library(access.placed):
        return  # CUB reads a key past its tile, and drops it
    bad = np.flatnonzero(state != full)
    if access.may_drop is not None and access.may_drop(element):
        states = [part.shadow.take(part.indices + each) == full for each in range(access.elements)]
        bad = bad[~np.any(states, axis=0).reshape(-1)[bad]]
        if not len(bad):
            return
    lanes = chunk.numbers(part.positions)
    if index.size > 1:
        lanes = lanes[bad]
    name, shown = describe_element(part, int(index[bad[0]]))
    message = (
        f"read of {access.width} bytes at {shown}, which nothing has written. Write it before it is "
        "read: set the initial value, or let every thread that should store do so."
    )
    chunk.report("uninitialized-read", access.placed, lanes, message, address_of=name)


def mark_written(part: AccessPart, index: Array) -> None:
    """Note that elements are written, also for other buffers of the same bytes."""
    region, width = part.region, part.access.width
    if part.shadow is not None:
        part.shadow[index] = WRITTEN[width]
    if region is not None and region.aliases:
        region.mark_aliases(index * width + region.view(width)[1], width)


_REMEDIES = {
    "async": "wait for it first by cp.async.wait_group (__pipeline_wait_prior), then __syncthreads()",
    "bulk": "wait for it first by cp.async.bulk.wait_group (.read will do), then __syncthreads()",
    "mbarrier": "wait first for the mbarrier that it completes (mbarrier.try_wait)",
}


def check_in_flight(part: AccessPart, index: Array) -> bool:
    """Report lanes that touch what a copy holds; whether there are any.

    The index has one element for each lane, one for all of them, or a row for each.
    """
    chunk, access = part.chunk, part.access
    if chunk.warpgroups is not None and access.action != "read":
        chunk.warpgroups.check_write(part, index)
    flight = chunk.in_flight
    if flight is None or not flight.copies or part.view is not chunk.shared.views[access.width]:
        return False
    mask, copy = flight.conflicts(index, access.width, writes=access.action != "read")
    if copy is None:
        return False
    lanes = chunk.numbers(part.positions)
    rows = np.any(mask.reshape(mask.shape[0], -1), axis=1)
    name, shown = describe_element(part, int(index[mask][0]))
    message = (
        f"{describe_access(access._replace(elements=1))} at {shown} while "
        f"{_describe_copy(chunk, access, copy)}. The copy may come before or after it: "
        f"{_REMEDIES[copy.kind]}."
    )
    kind = "proxy-fence" if is_async(copy.access.placed.instruction) else "race"
    chunk.report(kind, access.placed, lanes[rows] if len(rows) > 1 else lanes, message, address_of=name)
    return True


def _describe_copy(chunk: Chunk, access: Access, copy: AsyncCopy) -> str:
    location_of, placed = chunk.grid.decoded.location_of, copy.access.placed
    file, line = location_of(placed)
    where = f"line {line}" if file == location_of(access.placed)[0] else f"{file}:{line}"
    location = placed.instruction.location
    caller = chain_of(location, placed.calls)[-1]  # the outermost place
    if caller.line not in (0, line) and caller.file == location.file:
        where += f", called from line {caller.line}"
    does = "is still on its way there" if copy.values is not None else "may still read them"
    return f"the copy at {where} (`{placed.instruction.text}`) {does}"
