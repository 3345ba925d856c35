"""The memory of a launch: its parameters and its configuration, as the driver reads them.

One piece of memory holds both, so that what changes between two calls (fields, grid, stream) is
written by a single `struct.Struct.pack_into`.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dotcu.replay.plan import Launch

_ALIGNMENT = 16


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, in cuda.h; the value is a union."""

    _fields_ = (("id", ctypes.c_int32), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig, in cuda.h, the same since CUDA 12.0."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("smem_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_uint64),
        ("attribute_count", ctypes.c_uint32),
    )


# CUlaunchAttributeID, in cuda.h.
_CLUSTER, _COOPERATIVE, _PROGRAMMATIC = 4, 2, 6


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The memory of a launch before a call writes to it: parameters, then the configuration.

    Attributes:
        config: Where the configuration begins.
        offsets: Where each parameter begins.
    """

    memory: bytes
    config: int
    offsets: tuple[int, ...]
    attributes: tuple[tuple[int, tuple[int, ...]], ...]

    def grid(self, axis: int) -> int:
        """Where the number of blocks along an axis stands."""
        return int(self.config + _Config.grid.offset + 4 * axis)

    @property
    def stream(self) -> int:
        """Where the stream stands."""
        return int(self.config + _Config.stream.offset)


def frame(launch: Launch, grid: Sequence[int]) -> Frame:
    """The memory of a launch, with a grid that calls may write over."""
    config = _Config(grid=tuple(grid), block=launch.block, smem_bytes=launch.smem_bytes)
    parameters = launch.parameters.ljust(-(-len(launch.parameters) // _ALIGNMENT) * _ALIGNMENT, b"\0")
    return Frame(
        memory=parameters + bytes(config),
        config=len(parameters),
        offsets=launch.offsets,
        attributes=tuple(_attributes(launch)),
    )


def _attributes(launch: Launch) -> Iterator[tuple[int, tuple[int, ...]]]:
    if launch.cluster is not None:
        yield _CLUSTER, launch.cluster
    if launch.cooperative:
        yield _COOPERATIVE, (1,)
    if launch.programmatic:
        yield _PROGRAMMATIC, (1,)


def allocate(frame: Frame) -> tuple[Any, Any, Any]:
    """Memory for one launch at a time.

    Returns:
        A view to write to, and what the driver takes: the configuration, and pointers to the parameters.
    """
    memory = (ctypes.c_char * len(frame.memory)).from_buffer_copy(frame.memory)
    start = ctypes.addressof(memory)
    attributes = (_Attribute * max(1, len(frame.attributes)))()
    for made, (identifier, value) in zip(attributes, frame.attributes, strict=False):
        made.id = identifier
        made.value[: len(value)] = value
    config = _Config.from_buffer(memory, frame.config)
    config.attributes = ctypes.addressof(attributes)
    config.attribute_count = len(frame.attributes)
    config.kept = attributes  # what it points to lives as long
    pointers = (ctypes.c_void_p * max(1, len(frame.offsets)))(*(start + at for at in frame.offsets))
    return memoryview(memory).cast("B"), ctypes.byref(config), pointers


class Item(NamedTuple):
    """Something that a call writes: where, its code in `struct`, and the expression that gives it."""

    offset: int
    code: str
    text: str


class Packing(NamedTuple):
    """A `struct` format that writes every item, and between them what was there.

    Attributes:
        values: Expressions, and constant bytes.
    """

    format: str
    start: int
    values: tuple[str | bytes, ...]


def packing(memory: bytes, items: Sequence[Item]) -> Packing:
    """How to write items, which do not overlap, in one go."""
    ordered = sorted(items)
    codes, values, at = ["<"], list[str | bytes](), ordered[0].offset
    for item in ordered:
        gap = memory[at : item.offset]
        if any(gap):
            values.append(gap)
        codes.append(f"{len(gap)}{'s' if any(gap) else 'x'}" if gap else "")
        codes.append(item.code)
        values.append(item.text)
        at = item.offset + struct.calcsize("<" + item.code)
    return Packing("".join(codes), ordered[0].offset, tuple(values))
