"""Races: two accesses of the same bytes by different threads, one of them a write, in no order.

Lockstep hides them: all lanes of a chunk do the same thing at the same time, and a kernel
without its barriers gives the right answer. So every access of shared and global memory is
compared with the last accesses of those bytes, by the clocks of both lanes.

No race: strong accesses (atomic, volatile, relaxed or stronger) among each other, within
their scope; and a write of the very bytes that are there already.

Source: PTX ISA, "Memory Consistency Model: Data races, Morally strong operations".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.machine.shape import WARP, Array, Lanes
from dotcu.simulator.sanitizers.bounds import describe_element
from dotcu.simulator.sanitizers.clocks import NEVER, picked
from dotcu.simulator.sanitizers.shadow import LANE, STRONG, MemoryEvent, ShadowMemory, StampedAccess, event_of

if TYPE_CHECKING:
    from dotcu.simulator.semantics.memory.access import Access, AccessPart

_VERB = {"read": "reads", "write": "writes", "atomic": "atomically updates"}


def lanes_of(chunk: Chunk, part: AccessPart) -> Lanes | None:
    """The lanes of a part; None for all of the chunk's."""
    if part.positions is None:
        return chunk.active
    return chunk.numbers()[part.positions]


def check_read(chunk: Chunk, access: Access, part: AccessPart, index: Array) -> None:
    """Check a read against the writes before it, and record it for those after it.

    Args:
        chunk: The blocks that run together; its active lanes take part.
        access: The access of the instruction.
        part: The lanes whose access is in one array.
        index: The elements of the view that the lanes touch.
    """
    shadow = part.races
    assert shadow is not None
    lanes = lanes_of(chunk, part)
    if not access.order.strong and (shadow.writes is None or not shadow.dirty):
        shadow.note(chunk, access, lanes, index, part.skew)
        return
    for touch in shadow.touches(chunk, access, chunk.clocks.times, lanes, index, part.skew):
        _compare_with(chunk, access, part, shadow, touch, shadow.writes, "write")
        if access.order.strong:
            shadow.stamp_readers(touch)
            if shadow.published is not None:
                grid, block = (published.take(touch.indices) for published in shadow.published)
                _see(chunk, access, touch, grid, block)
    if not access.order.strong:
        shadow.note(chunk, access, lanes, index, part.skew)


def check_write(chunk: Chunk, access: Access, part: AccessPart, index: Array, value: Array) -> None:
    """Check a write against all accesses before it; `value` is what it is about to store.

    Args:
        chunk: The blocks that run together; its active lanes take part.
        access: The access of the instruction.
        part: The lanes whose access is in one array.
        index: The elements of the view that the lanes touch.
        value: The stored bits, one a lane, or one for all.
    """
    shadow = part.races
    assert shadow is not None
    lanes = lanes_of(chunk, part)
    own = shadow.settle(but=(lanes, index, part.skew))
    for touch in shadow.touches(chunk, access, chunk.clocks.times, lanes, index, part.skew):
        _compare_with(chunk, access, part, shadow, touch, shadow.writes, "write", (index, value))
        is_shared = shadow.stamp_write(touch)
        while is_shared and own:
            shadow.stamp_read(own.pop())
        for readers in shadow.readers or ():
            _compare_with(chunk, access, part, shadow, touch, readers, "read")
        _publish(chunk, access, shadow, touch)


def check_overlap(chunk: Chunk, access: Access, part: AccessPart, index: Array, value: Array) -> None:
    """Report lanes of one instruction that stored different values at one place, after the store.

    Args:
        chunk: The blocks that run together; its active lanes take part.
        access: The access of the instruction.
        part: The lanes whose access is in one array.
        index: The elements of the view that the lanes touch.
        value: The stored bits, one a lane, or one for all.
    """
    if access.order.strong or value.size == 1:
        return
    beaten = np.flatnonzero(part.view.take(index) != value)
    if not len(beaten):
        return
    lanes = (chunk.numbers() if part.positions is None else chunk.numbers()[part.positions])[beaten]
    name, shown = describe_element(chunk, access, part, int(index[beaten[0]] if index.size > 1 else index[0]))
    message = (
        f"race: several threads store different values to {shown} "
        "in this instruction, and it is undefined which one remains. Let one thread store, or use an atomic."
    )
    chunk.report("race", access.placed, lanes, message, address_of=name)


def check_atomic(chunk: Chunk, access: Access, part: AccessPart, index: Array, order: Array | None) -> None:
    """Check an atomic against the weak accesses before it; it sees what came before, then publishes.

    Args:
        index: One element for each lane.
        order: The order in which the lanes take effect; None if none learns what it found.
    """
    shadow = part.races
    assert shadow is not None
    lanes = lanes_of(chunk, part)
    shadow.settle()
    for touch in shadow.touches(chunk, access, chunk.clocks.times, lanes, index, part.skew):
        _compare_with(chunk, access, part, shadow, touch, shadow.writes, "write")
        for readers in shadow.readers or ():
            _compare_with(chunk, access, part, shadow, touch, readers, "read")
        before = shadow.published
        before = before and (before[0].take(touch.indices), before[1].take(touch.indices))
        own = _publish(chunk, access, shadow, touch)
        if order is not None and (before or own):
            grid, block = (
                _found(b, o, touch.indices, order)
                for b, o in zip(before or _NOTHING, own or _NOTHING, strict=True)
            )
            _see(chunk, access, touch, grid, block)
        # Who came last owns the place: it may well reset a counter that it alone has filled.
        last = (
            touch
            if order is None
            else touch._replace(indices=touch.indices[order], stamps=touch.stamps[order])
        )
        shadow.stamp_write(last)
        if access.order.scope == "cta":
            _compare_with(chunk, access, part, shadow, touch, shadow.writes, "write")


_NOTHING = (np.full(1, NEVER), np.full(1, NEVER))


def _found(before: Array, own: Array, indices: Array, order: Array) -> Array:
    """Return the time that each lane finds published: the one before, or that of lanes ahead of it."""
    before, own = (np.broadcast_to(values, indices.shape)[order] for values in (before, own))
    group = np.cumsum(np.diff(indices[order], prepend=-1) != 0) << 40
    latest = np.maximum.accumulate(group + own + 1)
    ahead = np.maximum(np.concatenate((group[:1], latest[:-1])), group) - group - 1
    found = np.empty(len(indices), np.int64)
    found[order] = np.maximum(before, ahead)
    return found


# Clocks at locations


def _see(chunk: Chunk, access: Access, touch: StampedAccess, grid: Array, block: Array) -> None:
    """Take what was published at the places: at once for an acquire, else when a fence follows."""
    if int(block.max()) != NEVER:
        chunk.clocks.see(touch.lanes, grid + 1, block + 1, at_once=access.order.acquire)


def _publish(
    chunk: Chunk, access: Access, shadow: ShadowMemory, touch: StampedAccess
) -> tuple[Array, Array] | None:
    """Publish what a release, or a strong write after a fence, makes known."""
    order, clocks = access.order, chunk.clocks
    if not order.strong:
        return None
    grid, block = (picked(values, touch.lanes) for values in clocks.released)
    if order.release:
        own_grid, block = clocks.published(touch.lanes)
        grid = grid if order.scope == "cta" else own_grid
        clocks.tick(touch.lanes)
    elif all(values.size == 1 and values[0] == NEVER for values in (grid, block)):
        return None
    shadow.publish(touch, grid, block)
    return grid, block


# Conflicts


def _compare_with(
    chunk: Chunk,
    access: Access,
    part: AccessPart,
    shadow: ShadowMemory,
    touch: StampedAccess,
    stamps: Array | None,
    action: str,
    stored: tuple[Array, Array] | None = None,
) -> None:
    """Report the lanes that an earlier access of the same bytes is not ordered before."""
    if stamps is None:
        return
    old = stamps.take(touch.indices)
    floor = picked(shadow.floor, touch.lanes)
    suspect = ((old ^ touch.stamps) & LANE != 0) & (old >= floor) & (old != 0)
    order = access.order
    if order.strong and order.scope != "cta":
        suspect &= (old & STRONG) == 0
    at = np.flatnonzero(suspect)
    if len(at) and stored is not None:
        at = at[_changes(part, at, *stored)]
    if not len(at):
        return
    old = np.broadcast_to(old, suspect.shape)[at]
    lanes = (np.arange(chunk.lanes) if touch.lanes is None else touch.lanes)[at]
    indices = np.broadcast_to(touch.indices, suspect.shape)[at]
    numbers = event_of(old)
    for number in np.unique(numbers).tolist():
        here = numbers == number
        event = shadow.events[number]
        first = (old[here] & LANE).astype(np.int64)
        bad = _unordered(chunk, access, event, first, lanes[here])
        if bad.any():
            _report(
                chunk,
                access,
                part,
                shadow,
                event,
                action,
                first[bad],
                lanes[here][bad],
                int(indices[here][bad][0]),
            )


def _changes(part: AccessPart, at: Array, index: Array, value: Array) -> Array:
    """Return the mask of the stores that change the stored value."""
    old = part.view.take(index)
    old = old if old.size == 1 else old[at]
    result: Array = old != (value if value.size == 1 else value[at])
    return result


def _unordered(chunk: Chunk, access: Access, event: MemoryEvent, first: Array, second: Lanes) -> Array:
    """Return the mask of pairs, of an earlier event's lane and a lane of this access, without an order."""
    shape = event.shape
    first = first - shape.first * shape.pitch
    clocks, then = chunk.clocks, event.times_of(first)
    late_grid = then.grid >= picked(clocks.known.grid, second)
    if shape is not chunk.shape:
        if event.order.strong and access.order.strong and _wide(event) and access.order.scope != "cta":
            return np.zeros(len(second), bool)
        return np.broadcast_to(late_grid, second.shape)
    late_block = then.block >= clocks.knows_block(second, first)
    late_warp = late_block & (then.warp >= clocks.knows_warp(second, first))
    same_block = first // shape.pitch == second // shape.pitch
    same_warp = first // WARP == second // WARP
    result: Array = np.where(same_warp, late_warp, np.where(same_block, late_block, late_grid))
    if event.order.strong and access.order.strong:
        covered = same_block if access.order.scope == "cta" or not _wide(event) else np.ones(1, bool)
        result = result & ~covered
    return result


def _wide(event: MemoryEvent) -> bool:
    return event.order.scope != "cta"


# Words


def _report(
    chunk: Chunk,
    access: Access,
    part: AccessPart,
    shadow: ShadowMemory,
    event: MemoryEvent,
    action: str,
    first: Array,
    second: Lanes,
    place: int,
) -> None:
    shape = event.shape
    other = int(first[0]) - shape.first * shape.pitch
    block, thread = shape.coordinates(other)
    file, line = chunk.grid.decoded.location_of(event.placed)
    own_file, own_line = chunk.grid.decoded.location_of(access.placed)
    where = "the same line" if (file, line) == (own_file, own_line) else f"line {line}" + _of(file, own_file)
    index = (place * shadow.granule) // access.width - part.skew
    name, shown = describe_element(chunk, access, part, index)
    done = event.action if event.action == "atomic" else action
    message = (
        f"race: it {_VERB[access.action]} {shown}, which thread "
        f"{_tuple(thread)} of block {_tuple(block)} {_VERB[done]} at {where}, and nothing orders the two. "
        f"{_remedy(chunk, event, access, other, int(second[0]))}"
    )
    chunk.report("race", access.placed, second, message, address_of=name)


def _of(file: str, own: str) -> str:
    return "" if file == own else f" of {file}"


def _remedy(chunk: Chunk, event: MemoryEvent, access: Access, other: int, own: int) -> str:
    is_same_line = event.placed.instruction.location == access.placed.instruction.location
    is_same_block = event.shape is chunk.shape and other // event.shape.pitch == own // event.shape.pitch
    if not is_same_block:
        if event.order.strong and access.order.strong:
            return "Both are atomic only within a block: use the plain atomics, not those that end in _block."
        return (
            "Blocks run in any order: use an atomic, write to another tensor than is read, publish by a flag "
            "with __threadfence() before it is set and after it is seen, or split the kernel in two."
        )
    if is_same_line and access.action == "write" and event.action != "atomic":
        return "Use an atomic where several threads change the same place, or put __syncthreads() between."
    if "volatile" in (*event.placed.instruction.flags, *access.placed.instruction.flags):
        return "Make both sides volatile or atomic, with __threadfence_block() before and after."
    if other // WARP == own // WARP and chunk.shape.pitch == WARP:
        return "Put __syncwarp() between them (or __syncthreads())."
    return "Put __syncthreads() between them (or __syncwarp(), if all is within one warp)."


def _tuple(coordinates: tuple[int, int, int]) -> str:
    return "({},{},{})".format(*coordinates)
