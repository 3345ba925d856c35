"""Accesses to bytes that are not there yet: nothing wrote them, or an asynchronous copy is under way.

One shadow byte for each byte says whether it was written.
"""

from __future__ import annotations

import numpy as np

from dotcu.simulator.machine.access import describe_access, describe_element
from dotcu.simulator.machine.async_copies import AsyncCopy, CopiesInFlight, in_flight
from dotcu.simulator.machine.memory import COPIED, WRITTEN
from dotcu.simulator.machine.shape import Threads
from dotcu.simulator.machine.state import Access, AccessPart, Batch, LaunchState
from dotcu.simulator.machine.undefined import PADDING, PARTLY, HeldCheck, HeldLoad
from dotcu.simulator.machine.warpgroups import CHUNK_BYTES, Warpgroups, warpgroups
from dotcu.simulator.program.inlining import chain_of
from dotcu.simulator.run import Array
from dotcu.simulator.sanitizers.proxies import is_async


class Unwritten:
    """Observes the accesses of a launch, and reports those to bytes that are not there yet."""

    def __init__(self, launch: LaunchState) -> None:
        on = launch.on
        on.read.append(self.read)
        on.write.append(lambda part, index, value: self.claim(part, index))
        on.atomic.append(lambda part, index, order: self.read(part, index, 0, None))
        on.mbarrier.append(lambda part: self.claim(part, part.indices))
        on.matrix.append(self.matrix)
        on.async_read.append(lambda part, index: self.read(part, index, 0, None))
        on.target.append(self.claim)
        on.async_write.append(self.async_write)

    def read(self, part: AccessPart, index: Array, element: int, held: list[HeldLoad] | None) -> None:
        """Check that threads read elements that something wrote, and that no copy holds."""
        if not _check_in_flight(
            part, index
        ):  # what was reported of the copy says why they may not be written
            _check_written(part, index, element, held)

    def claim(self, part: AccessPart, index: Array) -> None:
        """Check that no copy holds what threads write, or what a copy of theirs will write."""
        _check_in_flight(part, index)

    def async_write(self, part: AccessPart, index: Array, value: Array) -> list[int]:
        """Check that a bulk copy that updates what is there finds what something wrote."""
        if part.access.action == "atomic":
            _check_written(part, index)
        return []

    def matrix(self, batch: Batch, access: Access, groups: Array, places: Array) -> bool:
        """Check that what wgmma reads is there; return whether a copy holds it, which is reported."""
        state, flight = warpgroups(batch), in_flight(batch)
        if flight.copies and flight.targets[CHUNK_BYTES].take(places).any():
            with state.reading(access, groups, places) as part:
                _check_in_flight(part, part.indices)
            return True
        if not batch.shared.is_written:
            with state.reading(access, groups, places) as part:
                _check_written(part, part.indices)
        return False


def _check_written(
    part: AccessPart, index: Array, element: int = 0, held: list[HeldLoad] | None = None
) -> None:
    """Check that threads read elements that something wrote.

    Args:
        part, index: The threads of an access that one buffer holds, and the elements that they read.
        element: The number of these elements in the vectors that the threads load.
        held: Gets those that nothing wrote, of which something may come to depend; None: they are reported.
    """
    batch, width = part.batch, part.access.width
    if part.shadow is None:
        return
    state = part.shadow.take(index)
    full = WRITTEN[width]
    if not (state != full).any():
        return
    threads = batch.numbers(part.positions)
    if held is None:
        bad = np.flatnonzero(state != full)
        _report_unwritten(part, index[bad], np.unique(threads[bad]) if index.size > 1 else threads)
        return
    state = np.broadcast_to(state, threads.shape)
    bad = np.flatnonzero(state != full)
    own, places = threads[bad], np.broadcast_to(index, threads.shape)[bad]
    is_undefined = np.ascontiguousarray(state[bad]).view(np.uint8) != 1
    bits = (is_undefined * np.uint8(0xFF)).view(state.dtype)
    is_copy = part.access.instruction.ptx.opcode != "ldmatrix"  # which copies no structs
    addresses = np.full(batch.threads, PARTLY if is_copy else 0, np.int64)
    addresses[own] = places * width + _start(part)
    if is_copy:
        addresses[own] = np.where(_is_partly_written(part)[bad], PARTLY, addresses[own])
    if part.access.is_padding:
        addresses[own] = PADDING

    def report(used: Threads) -> None:
        _report_unwritten(part, places[np.searchsorted(own, used)], used)

    check = batch.undefined.hold(HeldCheck(report, own, np.zeros(batch.threads, bool), place=addresses))
    held.append(HeldLoad(element, own, bits, check))


def _start(part: AccessPart) -> int:
    """Return the address of the first element of a part's view."""
    return 0 if part.region is None else part.region.view(part.access.width)[1]


def _is_partly_written(part: AccessPart) -> Array:
    """Return the mask of threads of which some of the bytes that they load were written."""
    assert part.shadow is not None
    full = WRITTEN[part.access.width]
    written = [part.shadow.take(part.indices + each) & full != 0 for each in range(part.access.elements)]
    count = part.batch.count() if part.positions is None else len(part.positions)
    return np.broadcast_to(np.any(written, axis=0), count)


def _report_unwritten(part: AccessPart, index: Array, threads: Threads) -> None:
    access = part.access
    assert part.shadow is not None
    name, shown = describe_element(part, int(index[0]))
    copied = WRITTEN[access.width] * COPIED & int(part.shadow[int(index[0])])
    why = "holds a copy of memory that nothing has written" if copied else "nothing has written"
    message = (
        f"read of {access.width} bytes at {shown}, which {why}. Write it before it is "
        "read: set the initial value, or let every thread that should store do so."
    )
    part.batch.report("uninitialized-read", access.instruction, threads, message, address_of=name)


_REMEDIES = {
    "async": "wait for it first by cp.async.wait_group (__pipeline_wait_prior), then __syncthreads()",
    "bulk": "wait for it first by cp.async.bulk.wait_group (.read will do), then __syncthreads()",
    "mbarrier": "wait first for the mbarrier that it completes (mbarrier.try_wait)",
}


def _check_in_flight(part: AccessPart, index: Array) -> bool:
    """Report threads that touch what a copy holds; whether there are any.

    The index has one element for each thread, one for all of them, or a row for each.
    """
    batch, access = part.batch, part.access
    if access.action != "read" and (groups := batch.find(Warpgroups)) is not None:
        groups.check_write(part, index)
    flight = batch.find(CopiesInFlight)
    if flight is None or not flight.copies or part.view is not batch.shared.views[access.width]:
        return False
    mask, copy = flight.conflicts(index, access.width, writes=access.action != "read")
    if copy is None:
        return False
    threads = batch.numbers(part.positions)
    rows = np.any(mask.reshape(mask.shape[0], -1), axis=1)
    name, shown = describe_element(part, int(index[mask][0]))
    message = (
        f"{describe_access(access._replace(elements=1))} at {shown} while "
        f"{_describe_copy(batch, access, copy)}. The copy may come before or after it: "
        f"{_REMEDIES[copy.kind]}."
    )
    kind = "proxy-fence" if is_async(copy.access.instruction.ptx) else "race"
    batch.report(
        kind,
        access.instruction,
        np.unique(threads[rows]) if len(rows) > 1 else threads,
        message,
        address_of=name,
    )
    return True


def _describe_copy(batch: Batch, access: Access, copy: AsyncCopy) -> str:
    location_of, instruction = batch.launch.decoded.location_of, copy.access.instruction
    file, line = location_of(instruction)
    where = f"line {line}" if file == location_of(access.instruction)[0] else f"{file}:{line}"
    location = instruction.ptx.location
    caller = chain_of(location, instruction.calls)[-1]  # the outermost place
    if caller.line not in (0, line) and caller.file == location.file:
        where += f", called from line {caller.line}"
    does = "may not have arrived" if copy.values is not None else "may still read them"
    return f"the copy at {where} (`{instruction.ptx.text}`) {does}"
