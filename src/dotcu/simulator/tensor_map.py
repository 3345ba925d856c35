"""Tensor maps as the simulator has them: 128 bytes of its own, in a kernel's parameters.

A GPU's format is not published, and only TMA reads it.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

BYTES = 128
ELEMENT_BYTES = {
    "u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f16": 2, "f32": 4, "f32.ftz": 4, "f64": 8,
    "bf16": 2, "tf32": 4, "tf32.ftz": 4,
}  # fmt: skip
"""The element types, with their bytes, in the order in which tensormap.replace numbers them.

Source: PTX ISA, "tensormap.replace", table "Tensormap new_val validity".
"""
_TYPES = tuple(ELEMENT_BYTES)
_MAGIC = b"dotcumap"
_RANK = 5
_LAYOUT = struct.Struct(f"<8sQ{_RANK}Q{_RANK - 1}Q{_RANK}H{_RANK}BBBH")
_CORNERS = struct.Struct(f"<B{2 * (_RANK - 2)}h")
"""Behind the others: how many numbers a corner has, and both, of an im2col map; zeros for one of boxes."""


@dataclass(frozen=True, kw_only=True)
class Map:
    """A tensor as TMA sees it: the innermost dimension first, as the hardware counts.

    Attributes:
        strides_bytes: Of every dimension except the innermost.
        box: What a copy spans in each dimension, in elements of the tensor.
        steps: Every how many of these elements is copied.
        type: Of the elements, in `ELEMENT_BYTES`.
        swizzle: The bytes within which 16-byte chunks change places; 0: none.
        lower_corner: Of an im2col map, whose box is its channels and pixels: where in W, H and D the first
            filter begins. Of a map of boxes, no numbers.
        upper_corner: Where the last one begins, counted from the last pixel.
    """

    address: int
    sizes: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    type: str
    swizzle: int
    lower_corner: tuple[int, ...] = ()
    upper_corner: tuple[int, ...] = ()

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ELEMENT_BYTES[self.type]

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def copied(self) -> tuple[int, ...]:
        """The elements of a copy of a box in each dimension."""
        return tuple(-(-size // step) for size, step in zip(self.box, self.steps, strict=True))

    def encode(self) -> bytes:
        """The bytes that stand for it."""
        address, sizes, strides, box, steps, type_, swizzle, *corners = astuple(self)
        counts = ((sizes, _RANK), (strides, _RANK - 1), (box, _RANK), (steps, _RANK))
        fields = [field for values, count in counts for field in (*values, *[0] * (count - len(values)))]
        data = _LAYOUT.pack(_MAGIC, address, *fields, self.rank, _TYPES.index(type_), swizzle)
        numbers = [n for corner in corners for n in (*corner, *[0] * (_RANK - 2 - len(corner)))]
        return (data + _CORNERS.pack(len(corners[0]), *numbers)).ljust(BYTES, b"\0")


def decode(data: bytes) -> Map | None:
    """The map that some bytes stand for; None where `Map.encode` did not make them."""
    magic, address, *fields = _LAYOUT.unpack_from(data)
    if magic != _MAGIC:
        return None
    *_, rank, number, swizzle = fields
    count, *corners = _CORNERS.unpack_from(data, _LAYOUT.size)
    return Map(
        address=address,
        sizes=tuple(fields[:rank]),
        strides_bytes=tuple(fields[_RANK : _RANK + rank - 1]),
        box=tuple(fields[2 * _RANK - 1 :][: 2 if count else rank]),
        steps=tuple(fields[3 * _RANK - 1 :][:rank]),
        type=_TYPES[number],
        swizzle=swizzle,
        lower_corner=tuple(corners[:count]),
        upper_corner=tuple(corners[_RANK - 2 :][:count]),
    )


FIELDS = {
    "global_address": 1, "rank": 1, "box_dim": _RANK, "global_dim": _RANK, "global_stride": _RANK - 1,
    "element_stride": _RANK, "elemtype": 1, "interleave_layout": 1, "swizzle_mode": 1, "fill_mode": 1,
}  # fmt: skip
"""The fields that tensormap.replace changes, with how many of each there are."""
_SWIZZLES = (0, 32, 64, 128)


def replaced(data: bytes, field: str, number: int, value: int) -> bytes | None:
    """The bytes of a map of boxes with another value in a field; None for another map, or if it does not fit.

    Args:
        data, value: The bytes of the map, and the value as tensormap.replace takes it.
        field, number: Its name, in `FIELDS`, and the dimension, for a field of several.
    """
    if data[_LAYOUT.size]:  # an im2col map, and tensormap.replace has the mode .tile alone
        return None
    values = list(_LAYOUT.unpack_from(data))
    if not any(data):  # a map that is made field by field begins as zeros
        values[0] = _MAGIC
    places = {
        "global_address": 1, "global_dim": 2, "global_stride": 2 + _RANK, "box_dim": 1 + 2 * _RANK,
        "element_stride": 1 + 3 * _RANK, "rank": -3, "elemtype": -2, "swizzle_mode": -1,
    }  # fmt: skip
    if field in ("interleave_layout", "fill_mode"):  # no map has another layout, or NaN outside the tensor
        return _LAYOUT.pack(*values).ljust(BYTES, b"\0") if values[0] == _MAGIC and value == 0 else None
    taken = {"swizzle_mode": len(_SWIZZLES), "elemtype": len(_TYPES), "rank": _RANK}
    if values[0] != _MAGIC or not 0 <= value < taken.get(field, 1 << 64):
        return None
    if field == "swizzle_mode":
        value = _SWIZZLES[value]
    values[places[field] + number] = value + 1 if field == "rank" else value
    return _LAYOUT.pack(*values).ljust(BYTES, b"\0")
