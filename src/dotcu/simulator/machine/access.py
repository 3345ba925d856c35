"""From addresses to bytes: every state space as elements of one flat array; reports of accesses that miss.

`resolve` checks an access and gives the parts that may go on. Usually that is one part for
all active threads; the checks are then a few reductions. What fails them is sorted out thread
by thread, reported and left out: the hardware traps on such an access, or reads and writes other memory.

Source: PTX ISA, "State Spaces", "Generic Addressing".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dotcu.simulator.machine.memory import (
    LOCAL_WINDOW,
    NULL_PAGE,
    PARAM_WINDOW,
    RANK_BIT,
    SHARED_WINDOW,
    WINDOW_BYTES,
    Buffer,
    LocatedAddresses,
    PrivateMemory,
)
from dotcu.simulator.machine.state import Access, AccessPart, AccessSpan, Batch, LaunchState, MemoryOrder
from dotcu.simulator.program.variables import UNKNOWN, AddressOrigin, display_name, is_local_frame
from dotcu.simulator.run import Array

FOREIGN = (
    "An address stored in memory, or in the bytes of a struct, is unknown to the simulator, unless "
    "data_ptr() returned it within simulate() and its tensor still exists. Pass the tensors themselves: "
    "in a list for an array of pointers, in a dataclass for a struct."
)


def span_of(launch: LaunchState, access: Access) -> AccessSpan | None:
    """Return the bytes that an access has to stay in; None if that is not known."""
    if access.number not in launch.spans:  # a parameter of several ranks is of several tensors
        launch.spans[access.number] = None if launch.others else _span(launch, access.origin)
    return launch.spans[access.number]


def _span(launch: LaunchState, origin: AddressOrigin) -> AccessSpan | None:
    if not origin or UNKNOWN in origin:
        return None
    arrays: set[str | Buffer | None] = set()
    for source in origin:
        if isinstance(source, str):
            arrays.add(source)
            continue
        value = int.from_bytes(launch.params[source : source + 8], "little")
        if launch.memory.find(value) is not None:  # else it is a number
            tensors = [region for region in launch.memory.regions if region.base == value]
            arrays.add(max(tensors, key=lambda region: region.size, default=None))
    only = arrays.pop() if len(arrays) == 1 else None
    if isinstance(only, Buffer):
        return AccessSpan(only.base, only.base + only.size, "", only)
    if only is None or only not in launch.decoded.layout.extents:
        return None
    _, start, end = launch.decoded.layout.extents[only]
    return AccessSpan(start, launch.shared_bytes if end is None else end, only, None)


PREPOSITIONS = {"read": "of", "write": "of", "atomic": "on"}


def describe_access(access: Access) -> str:
    """Return the words for an access: `read of 4 bytes`."""
    return f"{access.action} {PREPOSITIONS[access.action]} {access.bytes} bytes"


_ALIGNED = {
    "cuda": "Begin at an aligned element, or use narrower accesses.",
    "triton": "Take back the tl.multiple_of() or tl.max_contiguous() that does not hold.",
    "numba": "Begin at an aligned element, or use a type of fewer bytes.",
}
_GUARDED = {
    "cuda": "Guard the access by the size.",
    "triton": "Pass mask= for the elements that are there, as in mask=offsets < n.",
    "numba": "Guard the access by the size, as in if i < x.size.",
}
"""What to do about a misaligned access, and about one outside its tensor, by the language of the source."""


def refuse_misaligned(batch: Batch, access: Access, address: Array, positions: Array) -> Array:
    """Report threads whose address is not a multiple of the access; the mask of all others.

    Args:
        address, positions: The addresses, and which of the active threads these are.
    """
    bad = (address & np.uint64(access.bytes - 1)) != 0
    if bad.any():
        first = int(address[bad][0])
        first = first % (1 << RANK_BIT) if access.space == "shared" else first
        region = batch.launch.memory.find(first)
        if region is not None:
            name, where = region.name, f"at byte {first - region.base} of `{region.name}`"
        else:
            name = batch.launch.decoded.layout.variable_before(access.space, first)
            where = f"at byte {first} of {access.space} memory" + (f", in `{name}`" if name else "")
        message = (
            f"misaligned {describe_access(access)} {where}: the address is a multiple of "
            f"{first & -first}, and a {access.bytes}-byte access needs a multiple of {access.bytes}. "
            f"{_ALIGNED[batch.launch.decoded.language]}"
        )
        batch.report(
            "misaligned", access.instruction, batch.numbers(positions[bad]), message, address_of=name
        )
    return ~bad


def report_unmapped(
    batch: Batch, access: Access, address: Array, positions: Array, meant: Buffer | None = None
) -> None:
    """Report accesses outside every tensor, or the one that is meant, null pointers apart from the others.

    Args:
        meant: The region that the access has to stay in, if known.
    """
    null = address < NULL_PAGE
    if null.any():
        offset = int(address[null][0])
        at = f"null + {offset} bytes" if offset else "a null pointer"
        message = (
            f"{describe_access(access)} through {at}. Pass a tensor, or test the pointer before its use."
        )
        batch.report("null-pointer", access.instruction, batch.numbers(positions[null]), message)
        address, positions = address[~null], positions[~null]
    if not len(address):
        return
    first = int(address[0])
    memory = batch.launch.memory
    region = meant or (None if memory.is_foreign(first) else memory.nearest(first))
    said = describe_access(access)
    if region is None:
        message = f"out-of-bounds {said} at {first:#x}, where nothing is mapped. {FOREIGN}"
    else:
        place, remedy = (first, memory.find(first)), _GUARDED[batch.launch.decoded.language]
        message = describe_miss(said, access.bytes, access.width, region, place, remedy)
    name = region.name if region else ""
    batch.report("out-of-bounds", access.instruction, batch.numbers(positions), message, address_of=name)


def describe_miss(
    said: str,
    nbytes: int,
    width: int,
    region: Buffer,
    place: tuple[int, Buffer | None],
    remedy: str,
) -> str:
    """Return the message for an access that misses a region.

    Args:
        region, place: The region that it had to stay in; the address, and the region that is there instead.
        remedy: What to do.
    """
    (address, hit), itemsize = place, region.itemsize or width
    other = f", in `{hit.name}`" if hit is not None and hit is not region else ""
    at = element_of(region.name, address - region.base, itemsize)
    how = _how_far(nbytes, address - region.base, region.size)
    return (
        f"out-of-bounds {said} at {at} ({how}{other}); `{region.name}` holds "
        f"{region.size // itemsize} elements of {itemsize} bytes. {remedy}"
    )


def element_of(name: str, offset: int, itemsize: int) -> str:
    """Return the words for a place in a tensor or an array, counted in elements: `s`[128].

    Args:
        name: Of the tensor or array.
        offset, itemsize: Bytes from its beginning, and of an element.
    """
    index, rest = divmod(offset, itemsize)
    return f"`{name}`[{index}]" + (f" + {rest} bytes" if rest else "")


def _how_far(nbytes: int, offset: int, size: int) -> str:
    past = offset - size
    if offset < 0:
        return f"{-offset} bytes before its first byte"
    if past >= 0:
        return f"{past} bytes past its end" if past else "just past its end"
    return f"{past + nbytes} of the bytes past its end"


def report_read_only(batch: Batch, access: Access, region: Buffer, address: Array, positions: Array) -> None:
    index = (int(address[0]) - region.base) // (region.itemsize or access.width)
    why = region.why_read_only
    if batch.launch.others and not region.constant and region.storage is None:
        why = (
            "each GPU has a variable of its own, and the simulator one for all ranks. Pass a tensor instead."
        )
    message = f"{describe_access(access)} at `{region.name}`[{index}], which is read-only: {why}"
    batch.report("read-only", access.instruction, batch.numbers(positions), message, address_of=region.name)


def report_parameter_write(batch: Batch, access: Access, positions: Array) -> None:
    message = (
        f"{describe_access(access)} at a parameter of the kernel, which a kernel only reads. "
        "Copy the parameter to a variable, and write that."
    )
    batch.report("read-only", access.instruction, batch.numbers(positions), message)


def report_private(
    batch: Batch, access: Access, private: PrivateMemory, address: Array, positions: Array
) -> None:
    """Report accesses outside the shared memory of a block, the local memory of a thread, or one variable.

    Args:
        private: The shared, local or parameter memory.
    """
    is_shared, layout = private is batch.shared, batch.launch.decoded.layout
    space = "shared" if is_shared else "parameter" if private is batch.params else "local"
    owner = {"shared": "block", "local": "thread", "parameter": "kernel"}[space]
    first = int(address[0])
    if first >= 1 << 31:  # a negative number, of 32 or of 64 bits
        first -= 1 << (32 if first < 1 << 32 else 64)
    span, width = span_of(batch.launch, access), access.width
    name = display_name(span.variable) if span is not None else layout.variable_before(space, first)
    name = "" if is_local_frame(name) else name
    at = f"at byte {first} of {space} memory"
    if name:
        at += f", {element_of(name, first - layout.variable_start(space, name), width)}"
    size = f"the {owner} has {private.size} bytes"
    if span is not None and name:
        begin, end, variable = span.start, span.end, span.variable
        hit = next(
            (
                f", in `{display_name(other)}`"
                for other, (where, start, stop) in layout.extents.items()
                if where == space and other != variable and start <= first < (stop or first + 1)
            ),
            "",
        )
        offset, extent = first - begin, end - begin
        at = f"at {element_of(name, offset, width)} ({_how_far(access.bytes, offset, extent)}{hit})"
        size = f"`{name}` has {extent} bytes of {space} memory, {extent // width} elements of {width}"
    advice = "Guard the index by the array's size"
    if is_shared and (span is None or layout.extents[span.variable][2] is None):
        advice += ", or ask for more by smem_bytes if the array is dynamic"
    message = f"out-of-bounds {describe_access(access)} {at}; {size}. {advice}."
    batch.report("out-of-bounds", access.instruction, batch.numbers(positions), message, address_of=name)


_OTHER_BLOCKS = {
    "absent": (
        "out-of-bounds",
        "which the cluster does not have. Take the rank modulo the number of blocks in the cluster.",
    ),
    "far": (
        "out-of-bounds",
        "by an instruction for the block's own (.shared::cta). Use .shared::cluster, or a generic address.",
    ),
    "exited": (
        "exited-block",
        "whose threads have all exited. Let all blocks wait for each other by cluster.sync() at their end.",
    ),
}
"""By fault of an access to a cluster's shared memory: the kind of finding, and what is wrong with that block.

Source: CUDA C++ Programming Guide, "Distributed Shared Memory".
"""


def report_other_block(batch: Batch, access: Access, ranks: Array, positions: Array, fault: str) -> None:
    """Report accesses to shared memory of blocks of the cluster that must not be accessed so.

    Args:
        ranks, fault: The ranks in the addresses, and a key of `_OTHER_BLOCKS`.
    """
    kind, what = _OTHER_BLOCKS[fault]
    opening = kind if kind == "out-of-bounds" else f"{kind}:"
    message = (
        f"{opening} {describe_access(access)} in shared memory of block {ranks[0]} of the cluster, {what}"
    )
    batch.report(kind, access.instruction, batch.numbers(positions), message)


def describe_element(part: AccessPart, index: int) -> tuple[str, str]:
    """The variable or tensor that an element of a part's view is in, and the words for the place."""
    batch, region, width = part.batch, part.region, part.access.width
    if region is not None:
        byte = region.view(width)[1] + index * width - region.base
        return region.name, f"`{region.name}`[{byte // (region.itemsize or width)}]"
    is_shared, layout = np.may_share_memory(part.view, batch.shared.data), batch.launch.decoded.layout
    private, space = (batch.shared, "shared") if is_shared else (batch.local, "local")
    if not is_shared and "param" in part.access.instruction.ptx.flags:
        return "", "an argument or the result of a function"
    byte = index * width % private.pitch
    name = layout.variable_before(space, byte)
    if not name or is_local_frame(name):
        return "", f"byte {byte} of {space} memory"
    place = element_of(name, byte - layout.variable_start(space, name), part.access.width)
    return name, f"{place} in {space} memory"


# Resolve an access.


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
        report_parameter_write(batch, access, positions)
        return []
    aligned = refuse_misaligned(batch, access, address, positions)
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
            report_other_block(batch, access, ranks[bad], positions[bad], fault)
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
            report_unmapped(batch, access, address[here], positions[here])
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
        report_unmapped(batch, access, address[~fits], positions[~fits], region)
        address, positions = address[fits], positions[fits]
    if not len(address):
        return []
    if access.action != "read" and region.read_only and all(a.read_only for a in region.aliases):
        report_read_only(batch, access, region, address, positions)
        return []
    return [region_part(batch, access, region, address, positions)]


def region_part(
    batch: Batch, access: Access, region: Buffer, address: Array, positions: Array | None
) -> AccessPart:
    """The part of an access that is in a region of global memory.

    Args:
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
        report_private(batch, access, private, address[~fits], positions[~fits])
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
