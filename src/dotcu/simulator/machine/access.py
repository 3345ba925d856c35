"""From addresses to bytes: every state space as elements of one flat array.

`resolve` checks an access and gives the parts that may go on. Usually that is one part for
all active threads; the checks are then a few reductions. What fails them is sorted out thread
by thread, reported by `sanitizers.bounds`, and left out.

Source: PTX ISA, "State Spaces", "Generic Addressing".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dotcu.simulator.machine import faults
from dotcu.simulator.machine.faults import span_of
from dotcu.simulator.machine.memory import (
    LOCAL_WINDOW,
    PARAM_WINDOW,
    RANK_BIT,
    SHARED_WINDOW,
    WINDOW_BYTES,
    Buffer,
    LocatedAddresses,
    PrivateMemory,
)
from dotcu.simulator.machine.state import Access, AccessPart, Batch, MemoryOrder
from dotcu.simulator.run import Array

GLOBAL_SPACES = frozenset({"global", "const"})
_LAST_WINDOW = PARAM_WINDOW + WINDOW_BYTES
# Rounds for which arrivals at mbarriers of a block that has exited are no fault, and have no effect, the
# first of each thread at each: pipelines leave the releases of their last stages unawaited, and the blocks of
# a cluster end together.
GRACE_ROUNDS = 256
# Ranks that an address can have.
RANKS = 1 << 8
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
_SPACE_OF_WINDOW = {window >> 40: space for space, window in WINDOWS.items()}


_STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"})


def order_of(flags: Sequence[str]) -> MemoryOrder:
    """The promise that an instruction's modifiers make."""
    both = "acq_rel" in flags
    return MemoryOrder(
        strong=not _STRONG.isdisjoint(flags),
        acquire=both or "acquire" in flags,
        release=both or "release" in flags,
        scope=next((f for f in flags if f in ("cta", "cluster", "gpu", "sys")), "sys"),
    )


def resolve(batch: Batch, access: Access) -> list[AccessPart]:
    """The parts of an access that are in bounds and aligned; the rest is reported."""
    part = _whole(batch, access)
    parts = [part] if part is not None else _checked(batch, access)
    for note in batch.on.resolve:
        note(batch, access, parts)
    for touch in batch.on.touch:
        for each in parts:
            touch(each)
    return parts


def _whole(batch: Batch, access: Access) -> AccessPart | None:
    """The access as one part, where all threads are aligned and in bounds of one memory."""
    located = batch.locate(access.slot)
    offset, size = access.offset, access.width * access.elements
    low, end = located.low + offset, located.high + offset + size
    if (located.bits | offset) & (size - 1):
        return None
    space = access.space
    if space == "generic":
        space = _SPACE_OF_WINDOW.get(low >> 40, "global")
    if space in GLOBAL_SPACES:
        return _whole_region(batch, access, located, low, end)
    private = {"shared": batch.shared, "local": batch.local, "param": batch.params}[space]
    if space == "param" and access.action != "read":
        return None
    window = WINDOWS[space] if access.space == "generic" else 0
    span = span_of(batch.launch, access)
    first, last = (0, private.size) if span is None else (span.start, span.end)
    if space == "shared" and batch.shape.cluster_blocks > 1:
        lowest, highest = located.range_from(batch.own_starts)
        low, end = lowest + offset, highest + offset + size
    if low < window + first or end > window + last:
        return None
    index = located.elements(private, access.width, window)
    shift = offset >> (access.width.bit_length() - 1)
    view, shadow = private.views[access.width], None if private.is_written else private.shadows[access.width]
    indices = index + shift if shift else index
    return AccessPart(batch, access, view, shadow, indices, None, None)


def _whole_region(
    batch: Batch, access: Access, located: LocatedAddresses, low: int, end: int
) -> AccessPart | None:
    region = batch.hints.get(access.number)
    if region is None:
        span = span_of(batch.launch, access)
        region = batch.launch.memory.find(low) if span is None else span.region
        if region is None:
            return None
        batch.hints[access.number] = region
    if low < region.base or end > region.base + region.size:
        return None
    if access.action != "read" and region.read_only:
        return None
    width = access.width
    index = located.elements(region, width)
    shift = access.offset >> (width.bit_length() - 1)
    view, _ = region.view(width)
    indices = index + shift if shift else index
    return AccessPart(batch, access, view, region.shadow(width), indices, None, region)


def _checked(batch: Batch, access: Access) -> list[AccessPart]:
    """The access thread by thread, each checked on its own; perhaps in several spaces."""
    address = batch.read(access.slot)
    if address.itemsize != 8:
        # A 32-bit address; its sum with the offset wraps as the hardware's adder does.
        address = (address + np.uint32(access.offset & 0xFFFFFFFF)).astype(np.uint64)
    elif access.offset:
        address = address + np.uint64(access.offset & 0xFFFFFFFFFFFFFFFF)
    if address.size == 1:
        address = np.repeat(address, batch.count())
    if access.space != "generic":
        return _in_space(batch, access, access.space, address, np.arange(len(address)))
    window = np.where(address < _LAST_WINDOW, address >> np.uint64(40), np.uint64(0))
    parts: list[AccessPart] = []
    for number in np.unique(window).tolist():
        positions = np.flatnonzero(window == number)
        space = _SPACE_OF_WINDOW.get(number, "global")
        base = np.uint64(WINDOWS.get(space, 0))
        parts += _in_space(batch, access, space, address[positions] - base, positions)
    return parts


def _in_space(batch: Batch, access: Access, space: str, address: Array, positions: Array) -> list[AccessPart]:
    """Threads of one access to one space; those that are not aligned are reported."""
    if space == "param" and access.action != "read":
        faults.report_parameter_write(batch, access, positions)
        return []
    aligned = faults.refuse_misaligned(batch, access, address, positions)
    address, positions = address[aligned], positions[aligned]
    if space in GLOBAL_SPACES:
        return _global(batch, access, address, positions)
    private = {"shared": batch.shared, "local": batch.local, "param": batch.params}[space]
    owners = None
    if space == "shared" and batch.shape.cluster_blocks > 1:
        address, positions, owners = _of_cluster(batch, access, address, positions)
    return _private(batch, access, private, address, positions, owners)


def _of_cluster(batch: Batch, access: Access, address: Array, positions: Array) -> tuple[Array, Array, Array]:
    """Return offsets in blocks of the cluster, and for each thread the block of the batch whose memory it is.

    Threads that may not reach that block are reported and left out.
    """
    size, threads = batch.shape.cluster_blocks, batch.numbers(positions)
    own = threads // batch.shape.pitch
    distance = (address - batch.own_starts[threads]).view(np.int64)
    ahead = (distance + (1 << RANK_BIT >> 1)) >> RANK_BIT  # what is just before a block's memory misses that
    ahead = np.where(np.abs(ahead) > RANKS, 0, ahead)
    ranks = (own % size + ahead) % RANKS
    absent = ranks >= size
    owners = np.where(absent, own, own - own % size + ranks)
    far = (owners != own) & access.near
    exited = ~far & ~batch.is_running(owners)
    late = exited
    if access.instruction.ptx.opcode == "mbarrier" and exited.any():
        late = exited & (batch.rounds - batch.ended[owners] > GRACE_ROUNDS)
        for at in np.flatnonzero(exited).tolist():
            place = int(threads[at]), int(address[at])
            late[at] |= place in batch.left_arrivals
            batch.left_arrivals.add(place)
    for bad, fault in ((absent, "absent"), (far, "far"), (late, "exited")):
        if bad.any():
            faults.report_other_block(batch, access, ranks[bad], positions[bad], fault)
    good = ~(absent | far | exited)
    offset = (distance - (ahead << RANK_BIT)).view(np.uint64)
    return offset[good], positions[good], owners[good]


def mapped(address: Array, regions: Iterable[Buffer]) -> Array:
    """Return the mask of addresses that are in one of some regions."""
    inside = np.zeros(address.shape, bool)
    for region in regions:
        inside |= address - np.uint64(region.base) < region.size
    return inside


def _global(batch: Batch, access: Access, address: Array, positions: Array) -> list[AccessPart]:
    """Find each thread's region; report those that have none."""
    span = span_of(batch.launch, access)
    if span is not None and span.region is not None and len(address):
        return _in_region(batch, access, span.region, address, positions)
    memory = batch.launch.memory
    parts: list[AccessPart] = []
    while len(address):
        region = memory.find(int(address[0]))
        if region is None:
            here = ~mapped(address, memory.regions)
            faults.report_unmapped(batch, access, address[here], positions[here])
        else:
            here = mapped(address, [region])
            parts += _in_region(batch, access, region, address[here], positions[here])
        address, positions = address[~here], positions[~here]
    return parts


def _in_region(
    batch: Batch, access: Access, region: Buffer, address: Array, positions: Array
) -> list[AccessPart]:
    relative = address - np.uint64(region.base)
    fits = (relative < region.size) & (relative + np.uint64(access.bytes) <= region.size)
    if not fits.all():
        faults.report_unmapped(batch, access, address[~fits], positions[~fits], region)
        address, positions = address[fits], positions[fits]
    if not len(address):
        return []
    if access.action != "read" and region.read_only and all(a.read_only for a in region.aliases):
        faults.report_read_only(batch, access, region, address, positions)
        return []
    return [region_part(batch, access, region, address, positions)]


def region_part(
    batch: Batch, access: Access, region: Buffer, address: Array, positions: Array | None
) -> AccessPart:
    """The part of an access that is in a region of global memory.

    Args:
        batch, access: The blocks that run together, and the access of their active threads.
        region, address: The region, and the addresses of the elements.
        positions: Which of the active threads these are; None for all of them.
    """
    width = access.width
    view, first = region.view(width)
    index = (address - np.uint64(first)).view(np.int64) >> (width.bit_length() - 1)
    return AccessPart(batch, access, view, region.shadow(width), index, positions, region)


def shared_part(batch: Batch, access: Access, indices: Array, positions: Array | None = None) -> AccessPart:
    """The part of an access that is in shared memory.

    Args:
        batch, access: The blocks that run together, and the access of their active threads.
        indices, positions: The elements, counted over all blocks, and which threads these are; None: all.
    """
    shared, width = batch.shared, access.width
    view, shadow = shared.views[width], shared.shadows[width]
    return AccessPart(batch, access, view, shadow, indices, positions, None)


def of_rank(address: Array, ranks: Array) -> Array:
    """Return addresses of the same places in shared memory of other blocks of the cluster, by rank."""
    word, bits = address.dtype.type, address.dtype.type(RANK_BIT)
    offset = address & ~(word(0xFF) << bits)
    # A block that is not there is reported where it is accessed.
    rank_bits = np.minimum(ranks, np.uint32(RANKS - 1)).astype(address.dtype)
    return offset | rank_bits << bits


def _private(
    batch: Batch,
    access: Access,
    private: PrivateMemory,
    address: Array,
    positions: Array,
    owners: Array | None = None,
) -> list[AccessPart]:
    """The threads that stay in the shared memory of a block, or in their own, or in one variable."""
    span = span_of(batch.launch, access)
    first, last = (0, private.size) if span is None else (span.start, span.end)
    fits = (address >= first) & (address < last) & (address + np.uint64(access.bytes) <= last)
    if not fits.all():
        faults.report_private(batch, access, private, address[~fits], positions[~fits])
        address, positions = address[fits], positions[fits]
        owners = None if owners is None else owners[fits]
    if not len(address):
        return []
    bases, width = private.bases, access.width
    if owners is not None:
        bases = (owners * private.pitch).astype(np.uint64)
        for reach in batch.on.remote:
            reach(batch, access, batch.numbers(positions), owners, address)
    elif bases.size != 1:
        bases = bases[batch.numbers()[positions]]
    index = (address + bases).view(np.int64) >> (width.bit_length() - 1)
    view, shadow = private.views[width], private.shadows[width]
    return [AccessPart(batch, access, view, shadow, index, positions, None)]
