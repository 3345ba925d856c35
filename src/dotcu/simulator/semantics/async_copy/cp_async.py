"""cp.async: copies of 4, 8 or 16 bytes from global to shared memory that land later.

The source is read, and both addresses are checked, when the copy is issued; `in_flight` says
when it lands.

Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async, cp.async.commit_group,
cp.async.wait_group, cp.async.mbarrier.arrive".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import Immediate, Operand, Predicate, Register
from dotcu.simulator.decoding.inlining import FlatInstruction
from dotcu.simulator.machine.async_copies import CopySignal, active_lanes, in_flight
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.machine.shape import Array
from dotcu.simulator.sanitizers.unwritten import check_in_flight
from dotcu.simulator.semantics.async_copy.bulk import bind_bulk, bind_reduce
from dotcu.simulator.semantics.async_copy.mbarrier import ARRIVES, find_objects, object_access, touch
from dotcu.simulator.semantics.async_copy.tensor import bind_tensor
from dotcu.simulator.semantics.memory.access import WEAK, Access, resolve
from dotcu.simulator.semantics.memory.load_store import load
from dotcu.simulator.semantics.table import NotExecuted, Step, unsigned

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding

# How many bytes each lane reads of the source; None: all.
_Length = Callable[[Chunk], Array]
_SIZES = {"ca": (4, 8, 16), "cg": (16,)}


def bind_cp(placed: FlatInstruction, binding: Binding) -> Step:
    """cp.async, cp.async.bulk and cp.reduce.async.bulk."""
    flags = placed.instruction.flags
    if flags[:2] == ("reduce", "async"):
        return bind_reduce(placed, binding)
    if flags[:3] == ("async", "bulk", "tensor"):
        return bind_tensor(placed, binding)
    if flags[:2] == ("async", "bulk"):
        return bind_bulk(placed, binding)
    if flags[:2] == ("async", "mbarrier"):
        return _bind_arrive(placed, binding)
    if flags[:1] == ("async",) and flags[1:] in (("commit_group",), ("wait_group",), ("wait_all",)):
        return _bind_group(placed, binding)
    if flags[:1] == ("async",) and flags[1] in _SIZES:
        return _bind_copy(placed, binding)
    raise NotExecuted


# The copy


def _bind_copy(placed: FlatInstruction, binding: Binding) -> Step:
    instruction = placed.instruction
    cache, target_space, source_space = instruction.flags[1], instruction.flags[2], instruction.flags[3]
    to, source, count = instruction.operands[0], instruction.operands[1], instruction.operands[2]
    hints, more = instruction.flags[4:], list(instruction.operands[3:])
    if not isinstance(count, Immediate) or count.value not in _SIZES[cache]:
        raise NotExecuted
    if target_space not in ("shared", "shared::cta") or source_space != "global":
        raise NotExecuted
    if not all(hint.startswith("L2::") for hint in hints):
        raise NotExecuted
    if "L2::cache_hint" in hints:
        more = more[:-1]
    size = count.value
    target = _access(placed, to, "shared", size, "write", binding)
    fetch = _fetch(_access(placed, source, "global", size, "read", binding), size, more, binding)

    def step(chunk: Chunk) -> None:
        values = fetch(chunk)
        lanes = chunk.numbers()
        for part in resolve(chunk, target):
            positions = np.arange(len(lanes)) if part.positions is None else part.positions
            indices = np.broadcast_to(part.indices, len(positions))
            index = indices[:, None] + np.arange(target.elements)
            check_in_flight(chunk, target, part, index)
            in_flight(chunk).issue(target, lanes[positions], indices, values[positions], size, "async")

    return step


def _access(
    placed: FlatInstruction, operand: Operand, space: str, size: int, action: str, binding: Binding
) -> Access:
    access = object_access(placed, operand, space, binding, WEAK, action)
    width = min(size, 8)
    return access._replace(width=width, elements=size // width)


def _fetch(source: Access, size: int, more: list[Operand], binding: Binding) -> Callable[[Chunk], Array]:
    """Return the function that reads the source: a row of elements for each lane."""
    length = _length(size, more, binding)

    def whole(chunk: Chunk) -> Array:
        values = np.empty((chunk.count(), source.elements), unsigned(source.width))
        for element, value in enumerate(load(chunk, source)):
            values[:, element] = value
        return values

    if length is None:
        return whole

    def partly(chunk: Chunk) -> Array:
        lengths = np.broadcast_to(length(chunk), chunk.count())
        over = lengths > size
        if over.any():
            _report_length(chunk, source, over, int(lengths[over][0]), size)
        values = np.zeros((len(lengths), size), np.uint8)
        lanes = chunk.numbers()
        for taken in np.unique(np.minimum(lengths, size)).tolist():
            here = np.minimum(lengths, size) == taken
            with active_lanes(chunk, lanes[here]):
                values[here, :taken] = (
                    whole(chunk).view(np.uint8) if taken == size else _head(chunk, source, taken)
                )
        return values.view(unsigned(source.width))

    return partly


def _length(size: int, more: list[Operand], binding: Binding) -> _Length | None:
    """Return the function that gives how many bytes to read, before zeros; None: all of the source."""
    if not more or more == [Immediate(size, "int")]:
        return None
    if len(more) > 1:
        raise NotExecuted
    operand = more[0]
    if isinstance(operand, Predicate) or (isinstance(operand, Register) and operand.type == "pred"):
        ignored = binding.source(operand, "pred")

        return lambda chunk: np.where(ignored.read(chunk), 0, size)
    slot = binding.source(operand, "u32").slot
    return lambda chunk: chunk.read(slot).view(np.uint32).astype(np.int64)


def _head(chunk: Chunk, source: Access, length: int) -> Array:
    """The first bytes of the source, a row for each lane, read in aligned pieces."""
    values = np.zeros((chunk.count(), length), np.uint8)
    offset = 0
    while offset < length:
        left = length - offset
        width = min(8, 1 << (left.bit_length() - 1))
        piece = source._replace(offset=source.offset + offset, width=width, elements=1)
        value = np.broadcast_to(load(chunk, piece)[0], chunk.count())
        values[:, offset : offset + width] = np.ascontiguousarray(value).view(np.uint8).reshape(-1, width)
        offset += width
    return values


def _report_length(chunk: Chunk, source: Access, over: Array, length: int, size: int) -> None:
    message = (
        f"out-of-bounds: a copy of {size} bytes is to read {length} bytes of its source. "
        f"Let the source's size be at most {size}."
    )
    chunk.report("out-of-bounds", source.placed, chunk.numbers()[over], message)


# Groups


def _bind_group(placed: FlatInstruction, binding: Binding) -> Step:
    """commit_group, wait_group and wait_all."""
    kind = placed.instruction.flags[1]
    operands = placed.instruction.operands
    if kind != "wait_group":
        return _commit if kind == "commit_group" else _wait_all
    if len(operands) != 1 or not isinstance(operands[0], Immediate):
        raise NotExecuted
    pending = operands[0].value

    def wait(chunk: Chunk) -> None:
        if chunk.in_flight is not None:
            chunk.in_flight.wait("async", pending)

    return wait


def _commit(chunk: Chunk) -> None:
    in_flight(chunk).commit("async")


def _wait_all(chunk: Chunk) -> None:
    in_flight(chunk).commit("async")
    in_flight(chunk).wait("async", 0)


def _bind_arrive(placed: FlatInstruction, binding: Binding) -> Step:
    """cp.async.mbarrier.arrive: an arrival once the lane's copies so far have landed."""
    flags = [f for f in placed.instruction.flags[2:] if f != "noinc"]
    counted = "noinc" in placed.instruction.flags
    if flags not in (["arrive"], ["arrive", "shared"], ["arrive", "shared::cta"]):
        raise NotExecuted
    space = "generic" if len(flags) == 1 else "shared"
    access = object_access(placed, placed.instruction.operands[0], space, binding, ARRIVES)

    def step(chunk: Chunk) -> None:
        positions, objects = find_objects(chunk, access)
        lanes = chunk.numbers()[positions]
        with active_lanes(chunk, lanes):
            touch(chunk, access, objects)
        if not counted:  # one arrival more is pending: the lowest bits of the word count them
            np.add.at(chunk.shared.views[8], objects, np.uint64(1))
        flight = in_flight(chunk)
        flight.signals.append(CopySignal(access=access, lanes=lanes, objects=objects, serial=flight.serial))

    return step
