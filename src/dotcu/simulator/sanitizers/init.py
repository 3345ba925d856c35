"""Initialisation: reads of bytes that nothing wrote, by one shadow byte for each byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.machine.chunk import Array, Chunk
from dotcu.simulator.sanitizers.places import place_of

if TYPE_CHECKING:
    from dotcu.simulator.semantics.spaces import Access, Part

# A shadow element all of whose bytes are written, by width.
WRITTEN = {width: int.from_bytes(b"\x01" * width, "little") for width in (1, 2, 4, 8)}


def check_written(chunk: Chunk, access: Access, part: Part, index: Array) -> None:
    """Report lanes that read what nothing wrote."""
    assert part.shadow is not None
    state = part.shadow.take(index)
    full = WRITTEN[access.width]
    if int(state.min()) == full:
        return
    if part.region is None and chunk.grid.decoded.is_library(access.placed):
        return  # CUB reads a key past its tile, and drops it
    bad = np.flatnonzero(state != full)
    lanes = chunk.numbers()
    if part.positions is not None:
        lanes = lanes[part.positions]
    if index.size > 1:
        lanes = lanes[bad]
    name, shown = place_of(chunk, access, part, int(index[bad[0]]))
    chunk.grid.report(
        chunk,
        "uninitialized-read",
        access.placed,
        lanes,
        address_of=name,
        message=f"read of {access.width} bytes at {shown}, which nothing has written. Write it before it is "
        "read: set the initial value, or let every thread that should store do so.",
    )


def mark_written(access: Access, part: Part, index: Array) -> None:
    """Note that elements are written, also for other buffers of the same bytes."""
    if part.shadow is not None:
        part.shadow[index] = WRITTEN[access.width]
    region = part.region
    if region is None or not region.aliases:
        return
    address = index * access.width + region.view(access.width)[1]
    for alias in region.aliases:
        if alias.written is None or alias.written is region.written:
            continue
        for byte in range(access.width):
            at = address + byte - alias.base
            alias.written[at[(at >= 0) & (at < alias.size)]] = 1
