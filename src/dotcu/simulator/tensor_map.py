"""Tensor maps as the simulator has them: 128 bytes of its own, in a kernel's parameters.

A GPU's format is not published, and only TMA reads it.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

BYTES = 128
_MAGIC = b"dotcumap"
_RANK = 5
_LAYOUT = struct.Struct(f"<8sQ{_RANK}Q{_RANK - 1}Q{_RANK}H{_RANK}BBBH")


@dataclass(frozen=True, kw_only=True)
class Map:
    """A tensor as TMA sees it: the innermost dimension first, as the hardware counts.

    Attributes:
        strides_bytes: Of every dimension except the innermost.
        box: What a copy spans in each dimension, in elements of the tensor.
        steps: Every how many of these elements is copied.
        swizzle: The bytes within which 16-byte chunks change places; 0: none.
    """

    address: int
    sizes: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    itemsize: int
    swizzle: int

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def copied(self) -> tuple[int, ...]:
        """The elements of a copy in each dimension."""
        return tuple(-(-size // step) for size, step in zip(self.box, self.steps, strict=True))

    def encode(self) -> bytes:
        """The bytes that stand for it."""
        address, sizes, strides, box, steps, *rest = astuple(self)
        counts = ((sizes, _RANK), (strides, _RANK - 1), (box, _RANK), (steps, _RANK))
        fields = [field for values, count in counts for field in (*values, *[0] * (count - len(values)))]
        return _LAYOUT.pack(_MAGIC, address, *fields, self.rank, *rest).ljust(BYTES, b"\0")


def decode(data: bytes) -> Map | None:
    """The map that some bytes stand for; None where `Map.encode` did not make them."""
    magic, address, *fields = _LAYOUT.unpack_from(data)
    if magic != _MAGIC:
        return None
    *_, rank, itemsize, swizzle = fields
    return Map(
        address=address,
        sizes=tuple(fields[:rank]),
        strides_bytes=tuple(fields[_RANK : _RANK + rank - 1]),
        box=tuple(fields[2 * _RANK - 1 :][:rank]),
        steps=tuple(fields[3 * _RANK - 1 :][:rank]),
        itemsize=itemsize,
        swizzle=swizzle,
    )
