"""mbarrier objects in shared memory: found, checked, changed, and told of what has landed.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import Address, Operand
from dotcu.ptx.link import Placed
from dotcu.simulator.machine.chunk import Array, Chunk
from dotcu.simulator.machine.in_flight import acting
from dotcu.simulator.sanitizers.in_flight import check_in_flight
from dotcu.simulator.sanitizers.init import WRITTEN
from dotcu.simulator.sanitizers.race import check_atomic, check_write
from dotcu.simulator.semantics.phases import Change, advance, are_objects, unpack
from dotcu.simulator.semantics.spaces import Access, Order, Part, resolve
from dotcu.simulator.semantics.table import NotExecuted

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding

ARRIVES = Order(strong=True, release=True, scope="cta")
WAITS = Order(strong=True, acquire=True, scope="cta")
RELAXED = Order(strong=True, scope="cta")


def object_access(
    placed: Placed, operand: Operand, space: str, binding: Binding, order: Order, action: str = "atomic"
) -> Access:
    """The access that an instruction makes to an mbarrier."""
    if not isinstance(operand, Address):
        raise NotExecuted
    slot, offset, space = binding.address(operand, space)
    return Access(binding.next_access(), placed, space, slot, offset, 8, 1, action, order)


def find(chunk: Chunk, access: Access) -> tuple[Array, Array]:
    """Which of the active lanes reach shared memory, and the element that each names."""
    positions: list[Array] = []
    objects: list[Array] = []
    for part in resolve(chunk, access):
        where = np.arange(chunk.count()) if part.positions is None else part.positions
        if part.view is chunk.shared.views[8]:
            positions.append(where)
            objects.append(np.broadcast_to(part.places, len(where)))
        else:
            report_misuse(chunk, access, where, "is not in shared memory. An mbarrier has to lie there")
    if not positions:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate(positions), np.concatenate(objects)


def find_objects(chunk: Chunk, access: Access) -> tuple[Array, Array]:
    """The same, of those that name an mbarrier; the others are reported."""
    positions, objects = find(chunk, access)
    shared = chunk.shared
    good = (shared.shadows[8][objects] == WRITTEN[8]) & are_objects(shared.views[8][objects])
    if not good.all():
        _report_uninitialised(chunk, access, positions[~good], int(objects[~good][0]))
        positions, objects = positions[good], objects[good]
    return positions, objects


def touch(chunk: Chunk, access: Access, objects: Array) -> None:
    """Every access to mbarriers goes through here, with the lanes that make it active.

    Args:
        objects: For each active lane, the 8-byte element of shared memory.
    """
    if not len(objects):
        return
    shared = chunk.shared
    part = Part(shared.views[8], shared.shadows[8], objects, None, None, shared.races)
    check_in_flight(chunk, access, part, objects)
    if shared.races is None:
        return
    if access.order.strong:
        check_atomic(chunk, access, part, objects, np.arange(len(objects)))
    else:
        check_write(chunk, access, part, objects, np.zeros(1, np.uint64))


def change(chunk: Chunk, access: Access, objects: Array, by: Change) -> Array:
    """Arrive, expect or complete: each active lane at its object; the words that they found."""
    touch(chunk, access, objects)
    chunk.grid.progress += 1
    seen, refused = advance(chunk.shared.views[8], objects, by)
    if refused.any():
        limit = f"the phase waits for {int(unpack(seen[refused][:1]).pending[0])}"
        report_misuse(
            chunk,
            access,
            np.flatnonzero(refused),
            f"gets more arrivals, or bytes of transactions, than it can count: {limit}. Initialise it with "
            "the number of arrivals of one phase, and let each thread wait before it arrives again",
        )
    return seen


def settle(chunk: Chunk, objects: Array) -> None:
    """Let land what some mbarriers track, and tell them."""
    flight = chunk.in_flight
    if flight is None or not flight.signals:
        return
    for signal in flight.due(objects):
        flight.complete(signal)
        with acting(chunk, signal.lanes):
            by = Change(tx=-signal.tx_bytes) if signal.tx_bytes else Change(arrive=1)
            change(chunk, signal.access, signal.objects, by)


def report_misuse(chunk: Chunk, access: Access, positions: Array, what: str) -> None:
    chunk.grid.report(
        chunk,
        "barrier",
        access.placed,
        chunk.numbers()[positions],
        message=f"an mbarrier in `{access.placed.instruction.text}` {what}.",
    )


def _report_uninitialised(chunk: Chunk, access: Access, positions: Array, element: int) -> None:
    byte = element * 8 % chunk.shared.pitch
    name = chunk.grid.decoded.variable_before("shared", byte)
    shown = f"`{name}`" if name else f"byte {byte} of shared memory"
    chunk.grid.report(
        chunk,
        "uninitialized-read",
        access.placed,
        chunk.numbers()[positions],
        address_of=name,
        message=f"{shown} is used as an mbarrier, but no mbarrier.init made it one, or it was overwritten or "
        "invalidated since. Let one thread init() it, then __syncthreads(), before anybody uses it.",
    )
