"""Rows of bytes: what one lane's bulk copy reads or writes, as elements of one array.

Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from dotcu.simulator.machine.chunk import Array, Chunk
from dotcu.simulator.machine.in_flight import acting
from dotcu.simulator.sanitizers import bounds
from dotcu.simulator.sanitizers.in_flight import check_in_flight
from dotcu.simulator.sanitizers.init import WRITTEN, check_written
from dotcu.simulator.sanitizers.race import check_atomic, check_read
from dotcu.simulator.semantics.spaces import Access, Part, resolve

WIDTH = 8


def spans(chunk: Chunk, access: Access, size: int) -> list[tuple[Part, Array]]:
    """Where the active lanes' rows begin, for those whose `size` bytes are in bounds and aligned.

    Args:
        access: To the first 16 bytes of each row.

    Returns:
        Parts with one place for each lane, and which of the active lanes these are.
    """
    found = []
    for part in resolve(chunk, access):
        positions = np.arange(chunk.count()) if part.positions is None else part.positions
        places = np.broadcast_to(part.places, len(positions))
        address, start, room = _extent(chunk, part, places, positions)
        fits = start + size <= room
        if not fits.all():
            _report(chunk, access, part, address[~fits], positions[~fits], size)
            places, positions = places[fits], positions[fits]
        if len(positions):
            found.append((part._replace(places=places, positions=positions), positions))
    return found


def _extent(chunk: Chunk, part: Part, places: Array, positions: Array) -> tuple[Array, Array, int]:
    """Each row's address, its first byte within its memory, and the size of that."""
    region = part.region
    if region is not None:
        address = places * WIDTH + region.view(WIDTH)[1]
        return address, address - region.base, region.size
    private = chunk.shared
    bases = private.bases if private.bases.size == 1 else private.bases[chunk.numbers()[positions]]
    start = places * WIDTH - bases.view(np.int64)
    return start, start, private.size


def _report(chunk: Chunk, access: Access, part: Part, address: Array, positions: Array, size: int) -> None:
    whole = access._replace(elements=size // WIDTH)
    if part.region is not None:
        bounds.report_unmapped(chunk, whole, address, positions)
    else:
        bounds.report_private(chunk, whole, chunk.shared, address, positions)


def read_rows(chunk: Chunk, access: Access, part: Part, size: int) -> Array:
    """The elements of each row; those that nothing wrote, or that are on their way, are reported."""
    index = part.places[:, None] + np.arange(size // WIDTH)
    if not check_in_flight(chunk, access, part, index) and part.shadow is not None:
        bad = part.shadow[index] != WRITTEN[WIDTH]
        rows = bad.any(axis=1)
        if rows.any():
            first = index[rows, bad[rows].argmax(axis=1)]
            positions = None if part.positions is None else part.positions[rows]
            check_written(chunk, access, part._replace(positions=positions), first)
    if part.races is not None:
        with each_element(chunk, part, index) as (whole, places):
            if access.order.strong:
                check_atomic(chunk, access, whole, places, None)
            else:
                check_read(chunk, access, whole, places)
    result: Array = part.view[index]
    return result


@contextmanager
def each_element(chunk: Chunk, part: Part, index: Array) -> Iterator[tuple[Part, Array]]:
    """A part whose lanes touch a row of elements each, as one whose lanes touch an element each."""
    lanes = chunk.numbers()
    if part.positions is not None:
        lanes = lanes[part.positions]
    places = index.reshape(-1)
    with acting(chunk, np.repeat(lanes, index.shape[1])):
        yield part._replace(places=places, positions=None), places
