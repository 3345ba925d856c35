"""Accesses to bytes that are not there yet: nothing wrote them, or an asynchronous copy is under way.

One shadow byte for each byte says whether it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.decoding.inlining import chain_of
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.machine.memory import COPIED, WRITTEN
from dotcu.simulator.machine.shape import Array, Lanes
from dotcu.simulator.sanitizers.bounds import describe_access, describe_element
from dotcu.simulator.sanitizers.proxies import is_async
from dotcu.simulator.sanitizers.undefined import PADDING, PARTLY, HeldCheck, UndefinedBits

if TYPE_CHECKING:
    from dotcu.simulator.machine.async_copies import AsyncCopy
    from dotcu.simulator.semantics.memory.access import Access, AccessPart


HeldLoad = tuple[int, Lanes, Array, int]
"""The number of an element in its vector, lanes, their undefined bits of it, and the check that is due."""


def check_written(
    part: AccessPart, index: Array, element: int = 0, held: list[HeldLoad] | None = None
) -> None:
    """Check that lanes read elements that something wrote.

    Args:
        part, index: The lanes of an access that one buffer holds, and the elements that they read.
        element: The number of these elements in the vectors that the lanes load.
        held: Gets those that nothing wrote, of which something may come to depend; None: they are reported.
    """
    chunk, width = part.chunk, part.access.width
    assert part.shadow is not None
    state = part.shadow.take(index)
    full = WRITTEN[width]
    if not (state != full).any():
        return
    lanes = chunk.numbers(part.positions)
    if held is None:
        bad = np.flatnonzero(state != full)
        _report_unwritten(part, index[bad], lanes[bad] if index.size > 1 else lanes)
        return
    state = np.broadcast_to(state, lanes.shape)
    bad = np.flatnonzero(state != full)
    own, places = lanes[bad], np.broadcast_to(index, lanes.shape)[bad]
    is_undefined = np.ascontiguousarray(state[bad]).view(np.uint8) != 1
    bits = (is_undefined * np.uint8(0xFF)).view(state.dtype)
    is_copy = part.access.placed.instruction.opcode != "ldmatrix"  # which copies no structs
    addresses = np.full(chunk.lanes, PARTLY if is_copy else 0, np.int64)
    addresses[own] = places * width + _start(part)
    if is_copy:
        addresses[own] = np.where(_is_partly_written(part)[bad], PARTLY, addresses[own])
    if part.access.is_padding:
        addresses[own] = PADDING

    def report(used: Lanes) -> None:
        _report_unwritten(part, places[np.searchsorted(own, used)], used)

    held.append(
        (
            element,
            own,
            bits,
            chunk.undefined.hold(HeldCheck(report, own, np.zeros(chunk.lanes, bool), place=addresses)),
        )
    )


def _start(part: AccessPart) -> int:
    """Return the address of the first element of a part's view."""
    return 0 if part.region is None else part.region.view(part.access.width)[1]


def _is_partly_written(part: AccessPart) -> Array:
    """Return the mask of lanes of which some of the bytes that they load were written."""
    assert part.shadow is not None
    full = WRITTEN[part.access.width]
    written = [part.shadow.take(part.indices + each) & full != 0 for each in range(part.access.elements)]
    count = part.chunk.count() if part.positions is None else len(part.positions)
    return np.broadcast_to(np.any(written, axis=0), count)


def _report_unwritten(part: AccessPart, index: Array, lanes: Lanes) -> None:
    access = part.access
    assert part.shadow is not None
    name, shown = describe_element(part, int(index[0]))
    copied = WRITTEN[access.width] * COPIED & int(part.shadow[int(index[0])])
    why = "holds a copy of memory that nothing has written" if copied else "nothing has written"
    message = (
        f"read of {access.width} bytes at {shown}, which {why}. Write it before it is "
        "read: set the initial value, or let every thread that should store do so."
    )
    part.chunk.report("uninitialized-read", access.placed, lanes, message, address_of=name)


def store_undefined(part: AccessPart, undefined: Sequence[UndefinedBits]) -> None:
    """Note that bytes that lanes have just stored are undefined; in global memory, such a result is a fault.

    A copy of what is written in part is none, since it may be padding; nor is the rest of a word that a store
    to a bit-field leaves as it was.
    """
    chunk, width = part.chunk, part.access.width
    lanes = chunk.numbers(part.positions)
    full = (1 << 8 * width) - 1
    rows = [known if part.positions is None else known.of(part.positions) for known in undefined]
    rows = [UndefinedBits(known.bits.astype(f"u{width}"), known.checks) for known in rows]
    if part.region is not None:
        some = np.any([known.bits != full for known in rows], axis=0)
        for element, (bits, checks) in enumerate(rows):
            places = (part.spread() + element) * width + _start(part)
            loaded = chunk.undefined.places(checks, lanes)
            bad = (bits != 0) & np.where(
                loaded == PARTLY, (bits == full) & ~some, (loaded != places) | (bits == full)
            )
            bad &= (loaded != PADDING) | (width > 1)
            chunk.undefined.settle(checks[bad], lanes[bad])
            bits[bad] = 0
    shadow, unknown = part.shadow, np.uint8(COPIED if part.region is None else 0)
    if part.region is None and shadow is None:
        private = chunk.shared if part.view is chunk.shared.views[width] else chunk.local
        shadow, private.is_written = private.shadows[width], False
    if shadow is None:
        return
    for element, (bits, _) in enumerate(rows):
        index = part.spread() + element
        undefined_bytes = np.ascontiguousarray(bits).view(np.uint8) == 0xFF
        shadow[index] = np.where(undefined_bytes, unknown, np.uint8(1)).view(f"u{width}")


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
    does = "may not have arrived" if copy.values is not None else "may still read them"
    return f"the copy at {where} (`{placed.instruction.text}`) {does}"
