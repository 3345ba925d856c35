"""Boxes of a tensor: which bytes a copy by a tensor map moves, and where each lies in shared memory.

In shared memory the rows of a box lie one after the other, the innermost dimension first. With a
swizzle each row has that many bytes, 32, 64 or 128, however short it is: its 16-byte chunks change
places within them, by bits of the address itself, and the others stay as they are.

Source: PTX ISA, "Tensors: Tiled Mode, Out of Boundary Access, Swizzling Modes" (chapter 5). Rows shorter
than the swizzle: CUDA Programming Guide, "TMA Swizzle"; seen: H200, driver 580, CUDA 13.0, 2026-11, for
128 (tests/gpu/test_tensor_map_rules.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dotcu.simulator.machine.chunk import Array
from dotcu.simulator.tensor_map import Map

CHUNK = 16
_LINE_BITS = 7


@dataclass(frozen=True, kw_only=True)
class Box:
    """What one copy moves.

    Attributes:
        rows: The rows that lie in the tensor at all.
        addresses: For each of these, the address of its first byte that lies in the tensor.
        skip: How many bytes of each row come before that.
        length: How many bytes of each row lie in the tensor.
        row_bytes: Bytes of a row of the box.
        count: Rows of the box.
    """

    rows: Array
    addresses: Array
    skip: int
    length: int
    row_bytes: int
    count: int

    @property
    def size(self) -> int:
        """Bytes of the copy, which are those that its barrier is told of."""
        return self.count * self.row_bytes

    @property
    def unit(self) -> int:
        """The widest elements, up to 8 bytes, that all of the tensor's part is made of."""
        return math.gcd(8, self.length, *(int(address) & 7 for address in self.addresses[:1]))

    def elements(self) -> Array:
        """For each row, the addresses of its elements that lie in the tensor."""
        steps = np.arange(0, self.length, self.unit, dtype=np.int64)
        return np.asarray(self.addresses[:, None] + steps)

    def fill(self, values: Array) -> Array:
        """The bytes of the whole box, with zeros outside the tensor."""
        box = np.zeros((self.count, self.row_bytes), np.uint8)
        inside = np.ascontiguousarray(values).view(np.uint8).reshape(len(self.rows), self.length)
        box[self.rows, self.skip : self.skip + self.length] = inside
        return box.reshape(-1)

    def cut(self, data: Array) -> Array:
        """Of the bytes of the whole box, the elements that lie in the tensor."""
        box = data.reshape(self.count, self.row_bytes)[self.rows, self.skip : self.skip + self.length]
        return np.ascontiguousarray(box).view(f"u{self.unit}")


def box_at(tensor: Map, at: tuple[int, ...]) -> Box:
    """The box whose first element has some coordinates, the innermost first; they may lie outside."""
    starts, inside = np.zeros(1, np.int64), np.ones(1, bool)
    outer = zip(
        at[1:], tensor.sizes[1:], tensor.strides_bytes, tensor.copied[1:], tensor.steps[1:], strict=True
    )
    for first, size, stride, count, step in outer:
        index = first + step * np.arange(count, dtype=np.int64)
        within = (index >= 0) & (index < size)
        starts = (np.where(within, index, 0)[:, None] * stride + starts).reshape(-1)
        inside = (within[:, None] & inside).reshape(-1)
    low, high = max(0, -at[0]), min(tensor.box[0], tensor.sizes[0] - at[0])
    rows = np.flatnonzero(inside) if high > low else np.zeros(0, np.int64)
    return Box(
        rows=rows,
        addresses=tensor.address + starts[rows] + (at[0] + low) * tensor.itemsize,
        skip=low * tensor.itemsize,
        length=max(0, high - low) * tensor.itemsize,
        row_bytes=tensor.box[0] * tensor.itemsize,
        count=len(starts),
    )


def chunk_offsets(start: int, rows: int, row_bytes: int, swizzle: int) -> Array:
    """Where each 16-byte chunk of a box lies, in bytes from the box's address in shared memory."""
    begins = start + max(row_bytes, swizzle) * np.arange(rows, dtype=np.int64)
    address = (begins[:, None] + np.arange(0, row_bytes, CHUNK, dtype=np.int64)).reshape(-1)
    chunks = max(1, swizzle // CHUNK)
    return np.asarray((address ^ ((address >> _LINE_BITS) % chunks * CHUNK)) - start)
