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

from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import Operand, Vector
from dotcu.ptx.link import Placed
from dotcu.simulator.machine.chunk import Array, Chunk
from dotcu.simulator.machine.in_flight import Signal, acting, in_flight
from dotcu.simulator.machine.memory import Region
from dotcu.simulator.sanitizers import bounds
from dotcu.simulator.sanitizers.in_flight import check_in_flight
from dotcu.simulator.sanitizers.init import check_written, mark_written
from dotcu.simulator.sanitizers.race import check_read, check_write
from dotcu.simulator.semantics.boxes import CHUNK, Box, box_at, chunk_offsets
from dotcu.simulator.semantics.mbarrier import operand_values
from dotcu.simulator.semantics.mbarrier_objects import ARRIVES, find_objects, object_access
from dotcu.simulator.semantics.memory import load
from dotcu.simulator.semantics.spaces import WEAK, Access, Part
from dotcu.simulator.semantics.spans import WIDTH, read_rows, spans
from dotcu.simulator.semantics.table import NotExecuted, Source, Step
from dotcu.simulator.tensor_map import BYTES, Map, decode

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding

_IN = ("mbarrier::complete_tx::bytes",)
_OUT = ("bulk_group",)
_ALIGNMENT = 128
"""Of a box in shared memory."""


def bind_tensor(placed: Placed, binding: Binding) -> Step:
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


class _Asked:
    """The map and the coordinates of an instruction, which PTX writes as [map, {x, y}]."""

    def __init__(
        self, placed: Placed, operand: Operand, rank: int, binding: Binding, *, stores: bool
    ) -> None:
        if not isinstance(operand, Vector) or len(operand.elements) != 2:
            raise NotExecuted
        address, coordinates = operand.elements
        if not isinstance(coordinates, Vector) or len(coordinates.elements) != rank:
            raise NotExecuted
        self.placed, self.rank, self.stores = placed, rank, stores
        half = object_access(placed, address, "generic", binding, WEAK, "read")._replace(elements=8)
        self._halves = (half, half._replace(number=binding.next_access(), offset=half.offset + BYTES // 2))
        self._coordinates: list[Source] = [binding.source(c, "s32") for c in coordinates.elements]

    def read(self, chunk: Chunk) -> tuple[Map, Box] | None:
        """The map of the one active lane and the box that it asks for; None where that is reported."""
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
        chunk.grid.report(
            chunk,
            "out-of-bounds",
            self.placed,
            chunk.numbers(),
            address_of=_name(chunk, tensor),
            message=f"out-of-bounds store of a box at {at}: its coordinate in dimension {dim} is {first}, "
            "and TMA stores no box that begins before the tensor. Begin at 0 or later, and write what is "
            "left of such a tile by plain stores.",
        )

    def _report_misaligned(self, chunk: Chunk, tensor: Map, first: int) -> None:
        chunk.grid.report(
            chunk,
            "misaligned",
            self.placed,
            chunk.numbers(),
            address_of=_name(chunk, tensor),
            message=f"misaligned box: its innermost coordinate is {first}, {first * tensor.itemsize} bytes "
            f"into a row, and TMA needs a multiple of {CHUNK}. Begin at a multiple of "
            f"{CHUNK // tensor.itemsize} elements, with a box that is wide enough.",
        )

    def _report(self, chunk: Chunk, tensor: Map | None, is_something: bool) -> None:
        kind, what = "trap", "reads 128 bytes that are no tensor map. Pass dotcu.tensor_map(t, box=...)"
        if tensor is not None:
            what = f"has {self.rank} coordinates, and the tensor of its map {tensor.rank} dimensions"
        elif not is_something:
            kind, what = "null-pointer", "reads a map of zeros: its tensor is empty. Launch no block for it"
        message = f"`{self.placed.instruction.text}` {what}."
        chunk.grid.report(chunk, kind, self.placed, chunk.numbers(), message=message)


def _name(chunk: Chunk, tensor: Map) -> str:
    region = chunk.grid.memory.find(tensor.address)
    return region.name if region else ""


# Global to shared memory


def _bind_in(placed: Placed, operands: tuple[Operand, ...], rank: int, binding: Binding) -> Step:
    target = _shared_access(placed, operands[0], "write", binding)
    asked = _Asked(placed, operands[1], rank, binding, stores=False)
    source = _global_access(placed, "read", binding)
    barrier = object_access(placed, operands[2], "shared", binding, ARRIVES)

    def move(chunk: Chunk) -> None:
        found = asked.read(chunk)
        if found is not None:
            _load_box(chunk, target, source, barrier, *found)

    return _lane_by_lane(move)


def _load_box(chunk: Chunk, target: Access, source: Access, barrier: Access, tensor: Map, box: Box) -> None:
    """The one active lane begins to copy a box into shared memory."""
    data = box.fill(_read_elements(chunk, source, tensor, box))
    part = _chunks(chunk, target, tensor, box)
    if part is None:
        return
    lanes, flight = chunk.numbers(), in_flight(chunk)
    each = np.repeat(lanes, len(part.places))
    with acting(chunk, each):
        check_in_flight(chunk, target, part, part.places[:, None] + np.arange(CHUNK // WIDTH))
        values = data.view(np.uint64).reshape(-1, CHUNK // WIDTH)
        copy = flight.issue(target, each, part.places, values, CHUNK, "mbarrier")
    positions, objects = find_objects(chunk, barrier)
    flight.signals.append(
        Signal(
            access=barrier,
            lanes=lanes[positions],
            objects=objects,
            serial=flight.serial,
            copy=copy,
            tx_bytes=box.size,
        )
    )


def _read_elements(chunk: Chunk, access: Access, tensor: Map, box: Box) -> Array:
    found = _elements(chunk, access, tensor, box)
    if found is None:
        return np.zeros((len(box.rows), box.length), np.uint8)
    access, part = found
    with acting(chunk, np.repeat(chunk.numbers(), len(part.places))):
        if part.shadow is not None:
            check_written(chunk, access, part, part.places)
        if part.races is not None:
            check_read(chunk, access, part, part.places)
    return np.asarray(part.view[part.places])


# Shared to global memory


def _bind_out(placed: Placed, operands: tuple[Operand, ...], rank: int, binding: Binding) -> Step:
    asked = _Asked(placed, operands[0], rank, binding, stores=True)
    source = _shared_access(placed, operands[1], "read", binding)
    target = _global_access(placed, "write", binding)

    def move(chunk: Chunk) -> None:
        found = asked.read(chunk)
        if found is not None:
            _store_box(chunk, target, source, *found)

    return _lane_by_lane(move)


def _store_box(chunk: Chunk, target: Access, source: Access, tensor: Map, box: Box) -> None:
    """The one active lane copies a box out of shared memory."""
    part = _chunks(chunk, source, tensor, box)
    if part is None:
        return
    each = np.repeat(chunk.numbers(), len(part.places))
    with acting(chunk, each):
        data = np.ascontiguousarray(read_rows(chunk, source, part, CHUNK)).view(np.uint8)
        in_flight(chunk).issue(source, each, part.places, None, CHUNK, "bulk")
    found = _elements(chunk, target, tensor, box)
    if found is not None:
        _write_elements(chunk, *found, box.cut(data).reshape(-1))


def _write_elements(chunk: Chunk, access: Access, part: Part, values: Array) -> None:
    if part.races is not None:
        with acting(chunk, np.repeat(chunk.numbers(), len(part.places))):
            check_write(chunk, access, part, part.places, values)
    chunk.grid.progress += 1
    part.view[part.places] = values
    mark_written(access, part, part.places)


# Places


def _lane_by_lane(move: Step) -> Step:
    """A step that has the active lanes active one by one."""

    def step(chunk: Chunk) -> None:
        for lane in chunk.numbers().tolist():
            with acting(chunk, np.array([lane])):
                move(chunk)

    return step


def _shared_access(placed: Placed, operand: Operand, action: str, binding: Binding) -> Access:
    access = object_access(placed, operand, "shared", binding, WEAK, action)
    return access._replace(width=WIDTH, elements=CHUNK // WIDTH)


def _global_access(placed: Placed, action: str, binding: Binding) -> Access:
    return Access(binding.next_access(), placed, "global", -1, 0, 1, 1, action, WEAK)


def _chunks(chunk: Chunk, access: Access, tensor: Map, box: Box) -> Part | None:
    """Shared memory with the places of a box's chunks; None where it does not lie there."""
    start = (int(chunk.read(access.slot)[0]) + access.offset) & 0xFFFFFFFF
    if start % _ALIGNMENT:
        _report_misaligned(chunk, access, start)
        return None
    offsets = chunk_offsets(start, box.count, box.row_bytes, tensor.swizzle)
    for part, _ in spans(chunk, access, int(offsets.max()) + CHUNK):
        return part._replace(places=part.places[0] + offsets // WIDTH, positions=None)
    return None


def _report_misaligned(chunk: Chunk, access: Access, start: int) -> None:
    name = chunk.grid.decoded.variable_before("shared", start)
    chunk.grid.report(
        chunk,
        "misaligned",
        access.placed,
        chunk.numbers(),
        address_of=name,
        message=f"misaligned {access.action} of a box at byte {start} of shared memory"
        f"{f', in `{name}`' if name else ''}: TMA needs a multiple of {_ALIGNMENT}. "
        f"Declare the array alignas({_ALIGNMENT}), and begin at such a place.",
    )


def _elements(chunk: Chunk, access: Access, tensor: Map, box: Box) -> tuple[Access, Part] | None:
    """The tensor's memory with the places of a box's elements; None where there are none."""
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


def _region_part(chunk: Chunk, region: Region, addresses: Array, width: int) -> Part:
    view, first = region.view(width)
    races, skew = chunk.grid.races(region, first, width)
    places = (addresses - first) // width
    return Part(view, region.shadow(width), places, None, region, races, skew)
