"""Faults: reports of accesses that miss their memory, and the words for places in it.

The hardware traps on such an access, or reads and writes other memory. A report takes the addresses at fault,
and their positions among the batch's active threads.
"""

from __future__ import annotations

import numpy as np

from dotcu.simulator.machine.memory import NULL_PAGE, RANK_BIT, Buffer, PrivateMemory
from dotcu.simulator.machine.state import Access, AccessPart, AccessSpan, Batch, LaunchState
from dotcu.simulator.program.variables import UNKNOWN, AddressOrigin, display_name, is_local_frame
from dotcu.simulator.run import Array

FOREIGN = (
    "An address stored in memory, or in the bytes of a struct, is unknown to the simulator. Pass the tensors "
    "themselves: in a list for an array of pointers, in a dataclass for a struct."
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


def refuse_misaligned(batch: Batch, access: Access, address: Array, positions: Array) -> Array:
    """Report threads whose address is not a multiple of the access; the mask of all others.

    Args:
        batch, access: The blocks that run together, and the access of their active threads.
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
            "Begin at an aligned element, or use narrower accesses."
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
        batch, access, address, positions: As of `refuse_misaligned`.
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
        message = describe_miss(said, access.bytes, access.width, region, (first, memory.find(first)))
    name = region.name if region else ""
    batch.report("out-of-bounds", access.instruction, batch.numbers(positions), message, address_of=name)


def describe_miss(
    said: str,
    nbytes: int,
    width: int,
    region: Buffer,
    place: tuple[int, Buffer | None],
    remedy: str = "Guard the access by the size.",
) -> str:
    """Return the message for an access that misses a region.

    Args:
        said, nbytes, width: The access, as `describe_access` does, its bytes, and those of one element.
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
        batch, access, address, positions: As of `refuse_misaligned`.
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
        batch, access, positions: As of `refuse_misaligned`.
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
