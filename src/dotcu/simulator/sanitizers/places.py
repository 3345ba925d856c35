"""What an element of memory is called in a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.decoding.layout import is_local_frame
from dotcu.simulator.machine.chunk import Chunk

if TYPE_CHECKING:
    from dotcu.simulator.semantics.spaces import Access, Part


def place_of(chunk: Chunk, access: Access, part: Part, index: int) -> tuple[str, str]:
    """The variable or tensor that an element of a part's view lies in, and the words for the place."""
    region = part.region
    if region is not None:
        size = region.buffer.itemsize or access.width
        byte = region.view(access.width)[1] + index * access.width - region.base
        return region.name, f"`{region.name}`[{byte // size}]"
    is_shared = np.may_share_memory(part.view, chunk.shared.data)
    private, space = (chunk.shared, "shared") if is_shared else (chunk.local, "local")
    byte = int(index) * access.width % private.pitch
    name = chunk.grid.decoded.variable_before(space, byte)
    if not name or is_local_frame(name):
        return "", f"byte {byte} of {space} memory"
    start = chunk.grid.decoded.variable_start(space, name)
    return name, f"`{name}` + {byte - start} bytes in {space} memory"
