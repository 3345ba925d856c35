"""cp.async.bulk.tensor: copies of boxes of a tensor, by a tensor map in the kernel's parameters.

Each lane's box is moved on its own, as 16-byte chunks of shared memory and elements of the tensor.
They land, and are waited for, as other bulk copies.

Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk.tensor". That the innermost
coordinate is at a multiple of 16 bytes: triton-lang/triton issue 7385. That no coordinate of a store is
negative: CUDA Programming Guide, "Using TMA to transfer multi-dimensional arrays". Both are an illegal
instruction (seen: H200, driver 580, CUDA 13.0, 2026-11); tests/gpu/test_tensor_map_rules.py asks the
hardware.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import Operand, Vector
from dotcu.simulator.decoding.inlining import FlatInstruction
from dotcu.simulator.machine.async_copies import CopySignal, active_lanes, in_flight
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.machine.memory import Region
from dotcu.simulator.machine.shape import Array
from dotcu.simulator.sanitizers import bounds
from dotcu.simulator.sanitizers.races import check_read, check_write
from dotcu.simulator.sanitizers.unwritten import check_in_flight, check_written, mark_written
from dotcu.simulator.semantics.async_copy.bulk import WIDTH, read_rows, spans
from dotcu.simulator.semantics.async_copy.mbarrier import ARRIVES, find_objects, object_access, operand_values
from dotcu.simulator.semantics.memory.access import WEAK, Access, AccessPart
from dotcu.simulator.semantics.memory.load_store import load
from dotcu.simulator.semantics.table import NotExecuted, SourceOperand, Step
from dotcu.simulator.tensor_map import BYTES, Map, decode

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding


_IN = ("mbarrier::complete_tx::bytes",)
_OUT = ("bulk_group",)
_ALIGNMENT = 128
"""Of a box in shared memory."""


def bind_tensor(placed: FlatInstruction, binding: Binding) -> Step:
    """cp.async.bulk.tensor in tiled mode, without multicast."""
    rank, *flags = [f for f in placed.instruction.flags[3:] if f != "tile"]
    hinted = flags[-1:] == ["L2::cache_hint"]
    way = tuple(flags[:-1] if hinted else flags)
    operands = placed.instruction.operands[: -1 if hinted else None]
    if way in [(to, "global", *_IN) for to in ("shared::cluster", "shared::cta")] and len(operands) == 3:
        return _bind_in(placed, operands, int(rank[0]), binding)
    if way == ("global", "shared::cta", *_OUT) and len(operands) == 2:
        return _bind_out(placed, operands, int(rank[0]), binding)
    raise NotExecuted


# Maps and coordinates


class _BoxRequest:
    """The map and the coordinates of an instruction, which PTX writes as [map, {x, y}]."""

    def __init__(
        self, placed: FlatInstruction, operand: Operand, rank: int, binding: Binding, *, stores: bool
    ) -> None:
        if not isinstance(operand, Vector) or len(operand.elements) != 2:
            raise NotExecuted
        address, coordinates = operand.elements
        if not isinstance(coordinates, Vector) or len(coordinates.elements) != rank:
            raise NotExecuted
        self.placed, self.rank, self.stores = placed, rank, stores
        half = object_access(placed, address, "generic", binding, WEAK, "read")._replace(elements=8)
        self._halves = (half, half._replace(number=binding.next_access(), offset=half.offset + BYTES // 2))
        self._coordinates: list[SourceOperand] = [binding.source(c, "s32") for c in coordinates.elements]

    def read(self, chunk: Chunk) -> tuple[Map, CopyBox] | None:
        """The map of the one active lane and the box that it asks for; None if that is reported."""
        words = [int(word[0]) for half in self._halves for word in load(chunk, half)]
        data = b"".join(word.to_bytes(8, "little") for word in words)
        tensor = decode(data)
        if tensor is None or tensor.rank != self.rank:
            self._report(chunk, tensor, any(data))
            return None
        at = tuple(int(operand_values(chunk, c, np.zeros(1, np.int64))[0]) for c in self._coordinates)
        if at[0] * tensor.itemsize % CHUNK:
            self._report_misaligned(chunk, tensor, at[0])
            return None
        if self.stores and min(at) < 0:
            self._report_before(chunk, tensor, at[::-1])
            return None
        return tensor, box_at(tensor, at)

    def _report_before(self, chunk: Chunk, tensor: Map, at: tuple[int, ...]) -> None:
        dim, first = next((dim, first) for dim, first in enumerate(at) if first < 0)
        message = (
            f"out-of-bounds store of a box at {at}: its coordinate in dimension {dim} is {first}, "
            "and TMA stores no box that begins before the tensor. Begin at 0 or later, and write what is "
            "left of such a tile by plain stores."
        )
        chunk.report("out-of-bounds", self.placed, chunk.numbers(), message, address_of=_name(chunk, tensor))

    def _report_misaligned(self, chunk: Chunk, tensor: Map, first: int) -> None:
        message = (
            f"misaligned box: its innermost coordinate is {first}, {first * tensor.itemsize} bytes "
            f"into a row, and TMA needs a multiple of {CHUNK}. Begin at a multiple of "
            f"{CHUNK // tensor.itemsize} elements, with a box that is wide enough."
        )
        chunk.report("misaligned", self.placed, chunk.numbers(), message, address_of=_name(chunk, tensor))

    def _report(self, chunk: Chunk, tensor: Map | None, is_something: bool) -> None:
        kind, what = "trap", "reads 128 bytes that are not a tensor map. Pass dotcu.tensor_map(t, box=...)"
        if tensor is not None:
            what = f"has {self.rank} coordinates, and the tensor of its map {tensor.rank} dimensions"
        elif not is_something:
            kind, what = "null-pointer", "reads a map of zeros: its tensor is empty. Launch no block for it"
        message = f"`{self.placed.instruction.text}` {what}."
        chunk.report(kind, self.placed, chunk.numbers(), message)


def _name(chunk: Chunk, tensor: Map) -> str:
    region = chunk.grid.memory.find(tensor.address)
    return region.name if region else ""


# Global to shared memory


def _bind_in(placed: FlatInstruction, operands: tuple[Operand, ...], rank: int, binding: Binding) -> Step:
    target = _shared_access(placed, operands[0], "write", binding)
    asked = _BoxRequest(placed, operands[1], rank, binding, stores=False)
    source = _global_access(placed, "read", binding)
    barrier = object_access(placed, operands[2], "shared", binding, ARRIVES)

    def move(chunk: Chunk) -> None:
        found = asked.read(chunk)
        if found is not None:
            _load_box(chunk, target, source, barrier, *found)

    return _lane_by_lane(move)


def _load_box(
    chunk: Chunk, target: Access, source: Access, barrier: Access, tensor: Map, box: CopyBox
) -> None:
    """The one active lane begins to copy a box into shared memory."""
    data = box.fill(_read_elements(chunk, source, tensor, box))
    part = _chunks(chunk, target, tensor, box)
    if part is None:
        return
    lanes, flight = chunk.numbers(), in_flight(chunk)
    each = np.repeat(lanes, len(part.indices))
    with active_lanes(chunk, each):
        check_in_flight(chunk, target, part, part.indices[:, None] + np.arange(CHUNK // WIDTH))
        values = data.view(np.uint64).reshape(-1, CHUNK // WIDTH)
        copy = flight.issue(target, each, part.indices, values, CHUNK, "mbarrier")
    positions, objects = find_objects(chunk, barrier)
    flight.signals.append(
        CopySignal(
            access=barrier,
            lanes=lanes[positions],
            objects=objects,
            serial=flight.serial,
            copy=copy,
            tx_bytes=box.size,
        )
    )


def _read_elements(chunk: Chunk, access: Access, tensor: Map, box: CopyBox) -> Array:
    found = _elements(chunk, access, tensor, box)
    if found is None:
        return np.zeros((len(box.rows), box.length), np.uint8)
    access, part = found
    with active_lanes(chunk, np.repeat(chunk.numbers(), len(part.indices))):
        if part.shadow is not None:
            check_written(chunk, access, part, part.indices)
        if part.races is not None:
            check_read(chunk, access, part, part.indices)
    return np.asarray(part.view[part.indices])


# Shared to global memory


def _bind_out(placed: FlatInstruction, operands: tuple[Operand, ...], rank: int, binding: Binding) -> Step:
    asked = _BoxRequest(placed, operands[0], rank, binding, stores=True)
    source = _shared_access(placed, operands[1], "read", binding)
    target = _global_access(placed, "write", binding)

    def move(chunk: Chunk) -> None:
        found = asked.read(chunk)
        if found is not None:
            _store_box(chunk, target, source, *found)

    return _lane_by_lane(move)


def _store_box(chunk: Chunk, target: Access, source: Access, tensor: Map, box: CopyBox) -> None:
    """The one active lane copies a box out of shared memory."""
    part = _chunks(chunk, source, tensor, box)
    if part is None:
        return
    each = np.repeat(chunk.numbers(), len(part.indices))
    with active_lanes(chunk, each):
        data = np.ascontiguousarray(read_rows(chunk, source, part, CHUNK)).view(np.uint8)
        in_flight(chunk).issue(source, each, part.indices, None, CHUNK, "bulk")
    found = _elements(chunk, target, tensor, box)
    if found is not None:
        _write_elements(chunk, *found, box.cut(data).reshape(-1))


def _write_elements(chunk: Chunk, access: Access, part: AccessPart, values: Array) -> None:
    if part.races is not None:
        with active_lanes(chunk, np.repeat(chunk.numbers(), len(part.indices))):
            check_write(chunk, access, part, part.indices, values)
    chunk.grid.progress += 1
    part.view[part.indices] = values
    mark_written(access, part, part.indices)


# Places


def _lane_by_lane(move: Step) -> Step:
    """A step that has the active lanes active one by one."""

    def step(chunk: Chunk) -> None:
        for lane in chunk.numbers().tolist():
            with active_lanes(chunk, np.array([lane])):
                move(chunk)

    return step


def _shared_access(placed: FlatInstruction, operand: Operand, action: str, binding: Binding) -> Access:
    access = object_access(placed, operand, "shared", binding, WEAK, action)
    return access._replace(width=WIDTH, elements=CHUNK // WIDTH)


def _global_access(placed: FlatInstruction, action: str, binding: Binding) -> Access:
    return Access(binding.next_access(), placed, "global", -1, 0, 1, 1, action, WEAK)


def _chunks(chunk: Chunk, access: Access, tensor: Map, box: CopyBox) -> AccessPart | None:
    """Shared memory with the places of a box's chunks; None if it does not lie there."""
    start = (int(chunk.read(access.slot)[0]) + access.offset) & 0xFFFFFFFF
    if start % _ALIGNMENT:
        _report_misaligned(chunk, access, start)
        return None
    offsets = chunk_offsets(start, box.count, box.row_bytes, tensor.swizzle)
    for part, _ in spans(chunk, access, int(offsets.max()) + CHUNK):
        return part._replace(indices=part.indices[0] + offsets // WIDTH, positions=None)
    return None


def _report_misaligned(chunk: Chunk, access: Access, start: int) -> None:
    name = chunk.grid.decoded.variable_before("shared", start)
    message = (
        f"misaligned {access.action} of a box at byte {start} of shared memory"
        f"{f', in `{name}`' if name else ''}: TMA needs a multiple of {_ALIGNMENT}. "
        f"Declare the array alignas({_ALIGNMENT}), and begin at such a place."
    )
    chunk.report("misaligned", access.placed, chunk.numbers(), message, address_of=name)


def _elements(chunk: Chunk, access: Access, tensor: Map, box: CopyBox) -> tuple[Access, AccessPart] | None:
    """The tensor's memory with the places of a box's elements; None if there are none."""
    if not len(box.rows):
        return None
    access = access._replace(width=box.unit)
    addresses = box.elements().reshape(-1)
    low, end = int(addresses.min()), int(addresses.max()) + box.unit
    found = chunk.grid.memory.find(low)
    regions = (
        [r for r in (found, *found.aliases) if r.base <= low and end <= r.base + r.size] if found else []
    )
    writable = [r for r in regions if not r.read_only]
    if not regions:
        bounds.report_unmapped(chunk, access, _unsigned(addresses), np.zeros(1, np.int64))
    elif access.action != "read" and not writable:
        bounds.report_read_only(chunk, access, regions[0], _unsigned(addresses), np.zeros(1, np.int64))
    else:
        region = regions[0] if access.action == "read" else writable[0]
        return access, _region_part(chunk, region, addresses, box.unit)
    return None


def _unsigned(addresses: Array) -> Array:
    return addresses[:1].astype(np.uint64)


def _region_part(chunk: Chunk, region: Region, addresses: Array, width: int) -> AccessPart:
    view, first = region.view(width)
    races, skew = chunk.grid.races(region, first, width)
    indices = (addresses - first) // width
    return AccessPart(view, region.shadow(width), indices, None, region, races, skew)


# Boxes of a tensor: the bytes that a copy by a tensor map moves, and their places in shared memory.
#
# In shared memory the rows of a box lie one after the other, the innermost dimension first. With a
# swizzle each row has that many bytes, 32, 64 or 128, however short it is: its 16-byte chunks are
# permuted within them, by bits of the address itself, and the others stay as they are.
#
# Source: PTX ISA, "Tensors: Tiled Mode, Out of Boundary Access, Swizzling Modes" (chapter 5). Rows shorter
# than the swizzle: CUDA Programming Guide, "TMA Swizzle"; measured: H200, driver 580, CUDA 13.0, 2026-11,
# for 128 (tests/gpu/test_tensor_map_rules.py).


CHUNK = 16
_LINE_BITS = 7


@dataclass(frozen=True, kw_only=True)
class CopyBox:
    """The elements that one copy moves.

    Attributes:
        rows: The rows that are in the tensor at all.
        addresses: For each of these, the address of its first byte that is in the tensor.
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
        """Bytes of the copy, which its mbarrier counts."""
        return self.count * self.row_bytes

    @property
    def unit(self) -> int:
        """The widest elements, up to 8 bytes, that all of the tensor's part is made of."""
        return math.gcd(8, self.length, *(int(address) & 7 for address in self.addresses[:1]))

    def elements(self) -> Array:
        """For each row, the addresses of its elements that are in the tensor."""
        steps = np.arange(0, self.length, self.unit, dtype=np.int64)
        return np.asarray(self.addresses[:, None] + steps)

    def fill(self, values: Array) -> Array:
        """The bytes of the whole box, with zeros outside the tensor."""
        box = np.zeros((self.count, self.row_bytes), np.uint8)
        inside = np.ascontiguousarray(values).view(np.uint8).reshape(len(self.rows), self.length)
        box[self.rows, self.skip : self.skip + self.length] = inside
        return box.reshape(-1)

    def cut(self, data: Array) -> Array:
        """Of the bytes of the whole box, the elements that are in the tensor."""
        box = data.reshape(self.count, self.row_bytes)[self.rows, self.skip : self.skip + self.length]
        return np.ascontiguousarray(box).view(f"u{self.unit}")


def box_at(tensor: Map, at: tuple[int, ...]) -> CopyBox:
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
    return CopyBox(
        rows=rows,
        addresses=tensor.address + starts[rows] + (at[0] + low) * tensor.itemsize,
        skip=low * tensor.itemsize,
        length=max(0, high - low) * tensor.itemsize,
        row_bytes=tensor.box[0] * tensor.itemsize,
        count=len(starts),
    )


def chunk_offsets(start: int, rows: int, row_bytes: int, swizzle: int) -> Array:
    """Return the offset of each 16-byte chunk of a box, in bytes from the box's address in shared memory.

    Args:
        start: The box's address in shared memory.
        rows: How many rows the box has.
        row_bytes: Bytes of a row.
        swizzle: Bytes within which chunks are permuted; 0: none.
    """
    begins = start + max(row_bytes, swizzle) * np.arange(rows, dtype=np.int64)
    address = (begins[:, None] + np.arange(0, row_bytes, CHUNK, dtype=np.int64)).reshape(-1)
    chunks = max(1, swizzle // CHUNK)
    return np.asarray((address ^ ((address >> _LINE_BITS) % chunks * CHUNK)) - start)
