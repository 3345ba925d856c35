"""Bounds and alignment: what is said of accesses that miss their memory.

The hardware traps on such an access, or reads and writes what belongs to someone else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.decoding.layout import display_name, is_local_frame
from dotcu.simulator.machine.chunk import Array, Chunk, Private
from dotcu.simulator.machine.memory import NULL_PAGE, Region

if TYPE_CHECKING:
    from dotcu.simulator.decoding.provenance import Span
    from dotcu.simulator.semantics.spaces import Access

_FOREIGN = (
    "An address stored in memory or in a struct is the host's: the simulator knows only tensors that are "
    "passed as arguments."
)
_PREPOSITION = {"read": "of", "write": "of", "atomic": "on"}


def _what(access: Access) -> str:
    return f"{access.action} {_PREPOSITION[access.action]} {access.bytes} bytes"


def refuse_misaligned(chunk: Chunk, access: Access, address: Array, positions: Array) -> Array:
    """Report lanes whose address is not a multiple of the access; the mask of all others."""
    bad = (address & np.uint64(access.bytes - 1)) != 0
    if bad.any():
        first = int(address[bad][0])
        name, where = _place(chunk, access, first)
        chunk.grid.report(
            chunk,
            "misaligned",
            access.placed,
            chunk.numbers()[positions[bad]],
            address_of=name,
            message=f"misaligned {_what(access)} {where}: the address is a multiple of "
            f"{first & -first}, and a {access.bytes}-byte access needs a multiple of {access.bytes}. "
            "Begin at an aligned element, or use narrower accesses.",
        )
    result: Array = ~bad
    return result


def report_unmapped(
    chunk: Chunk, access: Access, address: Array, positions: Array, meant: Region | None = None
) -> None:
    """Report accesses outside every tensor, or the one that is meant, null pointers apart from the others."""
    null = address < NULL_PAGE
    if null.any():
        _report_null(chunk, access, address[null], positions[null])
        address, positions = address[~null], positions[~null]
    if not len(address):
        return
    first = int(address[0])
    memory = chunk.grid.memory
    region = meant or (None if memory.is_foreign(first) else memory.nearest(first))
    message = (
        f"out-of-bounds {_what(access)} at {first:#x}, where nothing is mapped. {_FOREIGN}"
        if region is None
        else _missed(access, region, first, memory.find(first))
    )
    chunk.grid.report(
        chunk,
        "out-of-bounds",
        access.placed,
        chunk.numbers()[positions],
        address_of=region.name if region else "",
        message=message,
    )


def _missed(access: Access, region: Region, address: int, hit: Region | None) -> str:
    size = region.buffer.itemsize or access.width
    offset = address - region.base
    index, rest = divmod(offset, size)
    at = f"`{region.name}`[{index}]" + (f" + {rest} bytes" if rest else "")
    if offset < 0:
        how = f"{-offset} bytes before its first byte"
    elif offset >= region.size:
        past = offset - region.size
        how = f"{past} bytes past its end" if past else "just past its end"
    else:
        how = f"{offset + access.bytes - region.size} of the bytes past its end"
    if hit is not None and hit is not region:
        how += f", in `{hit.name}`"
    return (
        f"out-of-bounds {_what(access)} at {at} ({how}); `{region.name}` holds "
        f"{region.size // size} elements of {size} bytes. Guard the access by the size."
    )


def _report_null(chunk: Chunk, access: Access, address: Array, positions: Array) -> None:
    offset = int(address[0])
    at = f"null + {offset} bytes" if offset else "a null pointer"
    chunk.grid.report(
        chunk,
        "null-pointer",
        access.placed,
        chunk.numbers()[positions],
        message=f"{_what(access)} through {at}. Pass a tensor, or test the pointer before its use.",
    )


def report_read_only(chunk: Chunk, access: Access, region: Region, address: Array, positions: Array) -> None:
    """Report writes to what the kernel promised not to write."""
    size = region.buffer.itemsize or access.width
    index = (int(address[0]) - region.base) // size
    chunk.grid.report(
        chunk,
        "read-only",
        access.placed,
        chunk.numbers()[positions],
        address_of=region.name,
        message=f"{_what(access)} at `{region.name}`[{index}], which is read-only: it was passed for a "
        "pointer to const. Take the parameter as a pointer to non-const.",
    )


def report_private(chunk: Chunk, access: Access, private: Private, address: Array, positions: Array) -> None:
    """Report accesses outside the shared memory of a block, the local memory of a lane, or one variable."""
    is_shared = private is chunk.shared
    space = "shared" if is_shared else "parameter" if private is chunk.params else "local"
    owner = {"shared": "block", "local": "thread", "parameter": "kernel"}[space]
    first = _signed(int(address[0]))
    span = chunk.grid.span(access)
    name = display_name(span.name) if span is not None else chunk.grid.decoded.variable_before(space, first)
    name = "" if is_local_frame(name) else name
    at = f"at byte {first} of {space} memory" + (f" near `{name}`" if name else "")
    size = f"the {owner} has {private.size} bytes"
    if span is not None and name:
        at = f"at byte {first - span.start} of `{name}`{_neighbour(chunk, space, span, first)}"
        size = f"`{name}` has {span.end - span.start} bytes of {space} memory"
    advice = "Guard the index by the array's size"
    if is_shared and (span is None or chunk.grid.decoded.extents[span.name].end is None):
        advice += ", or ask for more by smem_bytes if the array is dynamic"
    chunk.grid.report(
        chunk,
        "out-of-bounds",
        access.placed,
        chunk.numbers()[positions],
        address_of=name,
        message=f"out-of-bounds {_what(access)} {at}; {size}. {advice}.",
    )


def _signed(address: int) -> int:
    if address < 1 << 31:
        return address
    return address - (1 << (32 if address < 1 << 32 else 64))


def _neighbour(chunk: Chunk, space: str, span: Span, address: int) -> str:
    """The words for another variable that an address lies in."""
    decoded = chunk.grid.decoded
    for start, name in decoded.layout.get(space, ()):
        extent = decoded.extents[name]
        if name != span.name and start <= address and (extent.end is None or address < extent.end):
            return f", which is in `{display_name(name)}`"
    return ""


def report_parameter_write(chunk: Chunk, access: Access, positions: Array) -> None:
    """Report writes to the kernel's own parameters."""
    chunk.grid.report(
        chunk,
        "read-only",
        access.placed,
        chunk.numbers()[positions],
        message=f"{_what(access)} at a parameter of the kernel, which a kernel only reads. "
        "Copy the parameter to a variable, and write that.",
    )


def _place(chunk: Chunk, access: Access, address: int) -> tuple[str, str]:
    """The name of the variable that an address lies in, and the words for the place."""
    region = chunk.grid.memory.find(address)
    if region is not None:
        return region.name, f"at byte {address - region.base} of `{region.name}`"
    space = access.space
    name = chunk.grid.decoded.variable_before(space, address)
    return name, f"at byte {address} of {space} memory" + (f", in `{name}`" if name else "")
