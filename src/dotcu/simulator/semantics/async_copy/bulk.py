"""cp.async.bulk: copies of many bytes between global and shared memory, or of boxes, as one thread asks.

Into shared memory, the copy lands when a thread reads the mbarrier that it completes. Out
of it, the bytes are taken at once, which is as early as they may be; until the thread waits for
its group, no thread may write over them.

Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk,
cp.reduce.async.bulk, cp.async.bulk.prefetch, cp.async.bulk.commit_group,
cp.async.bulk.wait_group".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import numpy as np

from dotcu.ptx.dataflow import registers_of
from dotcu.ptx.instructions import Instruction, Operand
from dotcu.simulator.machine.access import (
    of_rank,
    order_of,
    region_part,
    report_private,
    report_read_only,
    report_unmapped,
    resolve,
)
from dotcu.simulator.machine.async_copies import in_flight
from dotcu.simulator.machine.memory import PARAM_WINDOW, RANK_BIT, WINDOW_BYTES
from dotcu.simulator.machine.shape import WARP, Threads
from dotcu.simulator.machine.state import WEAK, Access, AccessPart, Batch, InstructionStep, active_threads
from dotcu.simulator.machine.warpgroups import warpgroups
from dotcu.simulator.program.binding import (
    MANY,
    Binding,
    NotExecuted,
    SourceOperand,
    chosen,
    counted,
    dtype_of,
    only,
    require,
    vector,
)
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.arithmetic.float import HALF
from dotcu.simulator.semantics.arithmetic.rounding import canonical
from dotcu.simulator.semantics.async_copy.mbarrier import ARRIVES, object_access, signal
from dotcu.simulator.semantics.async_copy.tensormap import check_map, map_access, read_map
from dotcu.simulator.semantics.atomic import UPDATES, add_in_global
from dotcu.simulator.semantics.matrix.tiles import are_whole
from dotcu.simulator.semantics.table import find_operation
from dotcu.simulator.tensor_map import Map, decode

Reduce = Callable[[Array, Array], Array]
_TARGETS = ("shared::cluster", "shared::cta")
_TRACKED = ("mbarrier::complete_tx::bytes",)


def bind_bulk(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """Bind cp.async.bulk without a tensor map."""
    flags = instruction.ptx.flags[2:]
    hinted = flags[-1:] == ("L2::cache_hint",)
    flags = flags[:-1] if hinted else flags
    if flags == ("prefetch", "L2", "global") or flags[:2] == ("prefetch", "tensor"):
        require(not {"tile::gather4", "im2col::w", "im2col::w::128"} & {*flags})
        return lambda batch: None  # a hint
    multicast = flags[-1:] == ("multicast::cluster",)
    if flags[:2] in [(to, "global") for to in _TARGETS] and flags[2 : len(flags) - multicast] == _TRACKED:
        return _bind_in(instruction, binding, "global", multicast, hinted)
    if flags == ("shared::cluster", "shared::cta", *_TRACKED):
        return _bind_in(instruction, binding, "shared", False, hinted)
    if flags == ("global", "shared::cta", "bulk_group"):
        return _bind_out(instruction, binding, hinted, _copied)
    raise NotExecuted


def _bulk_access(
    instruction: FlatInstruction, number: int, space: str, action: str, binding: Binding
) -> Access:
    """The access to the first 16 bytes, by which alignment is checked."""
    return object_access(
        instruction, instruction.ptx.operands[number], space, binding, action=action, size=16
    )


def _by_size(
    instruction: FlatInstruction, source: SourceOperand, move: Callable[[Batch, int], None]
) -> InstructionStep:
    """A step that moves bytes for the threads of each size at once; sizes not allowed are reported."""

    def step(batch: Batch) -> None:
        sizes = np.broadcast_to(batch.read(source.slot), batch.count())
        threads = batch.numbers()
        odd: Array = sizes % 16 != 0
        if odd.any():
            message = (
                f"misaligned size of {sizes[odd][0]} bytes: a bulk copy takes a multiple of 16. "
                "Copy the rest by ordinary loads and stores."
            )
            batch.report("misaligned", instruction, threads[odd], message)
        for size in np.unique(sizes[~odd]).tolist():
            if size:
                with active_threads(batch, threads[sizes == size]):
                    move(batch, size)

    return step


Delivery = Callable[[Array, Access, Access], None]
"""Takes which of the active threads copy, and the accesses to where they copy and to the mbarrier."""


def _deliver(
    instruction: FlatInstruction, target: Access, barrier: Access, mask: Operand | None, binding: Binding
) -> Callable[[Batch, Delivery], None]:
    """Deliver a copy where it names, or with a mask to the same place in each block of it, signal and all.

    Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk" (.multicast::cluster).
    """
    if mask is None:
        return lambda batch, deliver: deliver(np.arange(batch.count()), target, barrier)
    ranks = binding.narrow_source(mask, "b16")
    slots = [binding.constant(np.zeros(1, np.uint64)) for _ in range(2)]
    moved = [access._replace(slot=slot) for access, slot in zip((target, barrier), slots, strict=True)]

    def to_each(batch: Batch, deliver: Delivery) -> None:
        masks = np.broadcast_to(ranks.read(batch), batch.count()).astype(np.int64)
        threads, size = batch.numbers(), batch.shape.cluster_blocks
        beyond = masks >> size != 0
        if beyond.any():
            message = (
                f"out-of-bounds multicast to the blocks of {masks[beyond][0]:#x} by a cluster of {size}. Set "
                f"only bits below {size}: one for the rank of each block that is to get the copy."
            )
            batch.report("out-of-bounds", instruction, threads[beyond], message)
        for rank in range(size):
            rows = np.flatnonzero(masks >> rank & 1)
            if len(rows):
                with active_threads(batch, threads[rows]):
                    for access, slot in zip((target, barrier), slots, strict=True):
                        address = batch.read(access.slot).astype(np.uint64)
                        there = of_rank(address, np.full(1, rank, np.uint32)) if size > 1 else address
                        batch.write(slot, np.broadcast_to(there, len(rows)).copy())
                    deliver(rows, *moved)

    return to_each


def _bind_in(
    instruction: FlatInstruction, binding: Binding, space: str, multicast: bool, hinted: bool
) -> InstructionStep:
    require(len(instruction.ptx.operands) == 4 + multicast + hinted)
    target = _bulk_access(instruction, 0, "shared", "write", binding)
    source = _bulk_access(instruction, 1, space, "read", binding)._replace(near=True)
    sizes = binding.source(instruction.ptx.operands[2], "u32")
    barrier = object_access(instruction, instruction.ptx.operands[3], "shared", binding, order=ARRIVES)
    mask = instruction.ptx.operands[4] if multicast else None
    to_each = _deliver(instruction, target, barrier, mask, binding)

    def issue(batch: Batch, size: int) -> None:
        values = np.zeros((batch.count(), size // _WIDTH), np.uint64)
        for part in _spans(batch, source, size):
            values[part.positions] = _read_rows(part)

        def deliver(rows: Array, target: Access, barrier: Access) -> None:
            serial, part = 0, None
            for part in _spans(batch, target, size):
                serial = in_flight(batch).issue(part, values[rows[part.positions]], "mbarrier")
            signal(batch, barrier, copy=serial, tx_bytes=size, beside=part)

        to_each(batch, deliver)

    return _by_size(instruction, sizes, issue)


def _bind_out(
    instruction: FlatInstruction, binding: Binding, hinted: bool, reduce: Reduce
) -> InstructionStep:
    require(len(instruction.ptx.operands) == 3 + hinted)
    is_copy = reduce is _copied
    order = WEAK if is_copy else order_of(("relaxed", "gpu"))
    target = _bulk_access(instruction, 0, "global", "write" if is_copy else "atomic", binding)
    target = target._replace(order=order)
    source = _bulk_access(instruction, 1, "shared", "read", binding)
    count = binding.source(instruction.ptx.operands[2], "u32")

    def send(batch: Batch, size: int) -> None:
        values = np.zeros((batch.count(), size // _WIDTH), np.uint64)
        taken = _spans(batch, source, size)
        for part in taken:
            values[part.positions] = _read_rows(part)
        writes = []
        for part in _spans(batch, target, size):
            writes += _write_rows(part, values[part.positions], reduce)
        for part in taken:
            in_flight(batch).issue(part, None, "bulk", writes=tuple(writes))

    return _by_size(instruction, count, send)


def _write_rows(part: AccessPart, values: Array, reduce: Reduce) -> list[int]:
    """Write, or combine, a row for each thread; threads one after the other, as they may overlap.

    Returns:
        The event of the writes, if they are recorded.
    """
    rows = part.rows()
    with _each_element(part, rows) as (whole, indices):
        events = _told(whole, indices, values.reshape(-1))
    part.batch.launch.progress += 1
    for index, row in zip(rows, values, strict=True):
        part.view[index] = reduce(part.view[index], row)
        part.mark_written(index)
    return events


def _copied(old: Array, new: Array) -> Array:
    return new


_INTEGERS = ("u32", "s32", "u64", "s64")
_HALVES = ("f16", "bf16")
_REDUCTIONS: Mapping[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "f32", "f64", *_HALVES),
    **dict.fromkeys(("min", "max"), (*_INTEGERS, *_HALVES)),
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    **dict.fromkeys(("and", "or", "xor"), ("b32", "b64")),
}
_BITWISE = {"b32": ("u32", "s32"), "b64": ("u64", "s64")}
"""The element types of a map that operations on bits take."""


def bind_reduce(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """cp.reduce.async.bulk from shared to global memory, with a tensor map or without."""
    flags = [f for f in instruction.ptx.flags[2:] if f not in ("L2::cache_hint", "noftz")]
    hinted = "L2::cache_hint" in instruction.ptx.flags
    if flags[:2] == ["bulk", "tensor"]:
        named = [f for f in flags[2:] if f not in ("tile", _IM2COL_OUT)]
        _, *where, operation, group = counted(named, 3, MANY)
        require(where == ["global", "shared::cta"] and group == "bulk_group" and operation in _REDUCTIONS)
        operands = list(instruction.ptx.operands)
        by_im2col = _IM2COL_OUT in flags
        operands = operands[:-1] if hinted else operands
        return _bind_box_out(instruction, operands, by_im2col, binding, operation)
    *where, operation = counted(flags, 1, MANY)
    type_ = only(instruction.ptx.types)
    require(where == ["bulk", "global", "shared::cta", "bulk_group"])
    require(
        type_ in chosen(_REDUCTIONS, operation)
        and ("noftz" in instruction.ptx.flags) == (type_ in _HALVES and operation == "add")
    )
    return _bind_out(instruction, binding, hinted, _reduction(instruction.ptx, operation, type_))


def _reduction(ptx: Instruction, operation: str, type_: str) -> Reduce:
    """The function of the words that are there and those that arrive, of any width."""
    function: Reduce = UPDATES[operation]
    if type_ in _HALVES:
        function = find_operation([HALF], ptx._replace(opcode=operation, flags=(), types=(type_,))).function
    elif type_ in ("f32", "f64"):
        function = _add
    dtype = dtype_of(type_)

    def reduce(old: Array, new: Array) -> Array:
        return np.ascontiguousarray(function(old.view(dtype), new.view(dtype))).view(old.dtype)

    return reduce


def _add(old: Array, new: Array) -> Array:
    """The sum of f32, with subnormals, unlike `atom`'s, or of f64 (measured: H200, CUDA 13.0)."""
    return canonical(old + new) if old.dtype == np.float32 else add_in_global(old, new)


# Rows of bytes: what one thread's bulk copy reads or writes, as elements of one array.


_WIDTH = 8


def _spans(batch: Batch, access: Access, size: int) -> list[AccessPart]:
    """Return where the active threads' rows begin, for those whose `size` bytes are in bounds and aligned.

    The access is to the first 16 bytes of each row; that of the parts, which have one place for each thread,
    is to the whole row.
    """
    rows, whole = [], access._replace(elements=size // _WIDTH)
    for part in resolve(batch, access):
        positions = np.arange(batch.count()) if part.positions is None else part.positions
        indices = part.spread()
        if part.region is not None:
            address = indices * _WIDTH + part.region.view(_WIDTH)[1]
            fits = address - part.region.base + size <= part.region.size
        else:
            address = indices * _WIDTH % batch.shared.pitch
            fits = address + size <= batch.shared.size
        if not fits.all():
            missed = positions[~fits]
            if part.region is not None:
                report_unmapped(batch, whole, address[~fits], missed)
            else:
                report_private(batch, whole, batch.shared, address[~fits], missed)
            indices, positions = indices[fits], positions[fits]
        if len(positions):
            rows.append(part._replace(access=whole, indices=indices, positions=positions))
    return rows


def _read_rows(part: AccessPart) -> Array:
    """The elements of each row."""
    index = part.rows()
    with _each_element(part, index) as (whole, indices):
        _check_read(whole, indices)
    return part.view[index]


def _check_read(part: AccessPart, index: Array) -> None:
    for check in part.batch.on.async_read:
        check(part, index)


def _told(part: AccessPart, index: Array, value: Array) -> list[int]:
    """Tell observers of a write to global memory; return the numbers by which `complete` names it."""
    return [number for note in part.batch.on.async_write for number in note(part, index, value)]


@contextmanager
def _each_element(part: AccessPart, index: Array) -> Iterator[tuple[AccessPart, Array]]:
    """A part whose threads touch a row of elements each, as a part with one element for each thread."""
    threads, indices = part.batch.numbers(part.positions), index.reshape(-1)
    with active_threads(part.batch, np.repeat(threads, index.shape[1])):
        yield part._replace(indices=indices, positions=None), indices


# Copies of boxes of a tensor, by a tensor map in the kernel's parameters.
#
# Each thread's box is moved on its own, as 16-byte chunks of shared memory and elements of the tensor.
# They land, and are waited for, as other bulk copies.
#
# Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk.tensor". That the innermost
# coordinate is at a multiple of 16 bytes: triton-lang/triton issue 7385. That no coordinate of a store is
# negative: CUDA Programming Guide, "Using TMA to transfer multi-dimensional arrays". Both are an illegal
# instruction (seen: H200, driver 580, CUDA 13.0, 2026-11); tests/gpu/test_tensor_map_rules.py asks the
# hardware.


_ALIGNMENT = 128
"""Of a box in shared memory."""
_IM2COL_OUT = "im2col_no_offs"
"""What stores and reductions call the mode im2col."""

Boxes = Callable[[Batch], Iterator["tuple[CopyBox, Array]"]]
"""Yields the boxes that the active threads ask for, with the threads active whose boxes are of one shape.

With a box, which is the first thread's, comes how far in memory each thread's is from it, in bytes.
"""


def bind_tensor(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """cp.async.bulk.tensor, of boxes or by im2col."""
    _, *way = counted([f for f in instruction.ptx.flags[3:] if f != "tile"], 2, MANY)
    modes = [way.pop(way.index(mode)) for mode in ("im2col", _IM2COL_OUT) if mode in way]
    operands = list(instruction.ptx.operands)
    if way[-1:] == ["L2::cache_hint"]:
        way.pop()
        operands.pop()
    mask = None
    if way[-1:] == ["multicast::cluster"]:
        way.pop()
        mask = operands.pop()
    if way[1:] == ["global", *_TRACKED] and way[0] in _TARGETS and modes in ([], ["im2col"]):
        offsets = operands.pop() if modes else None
        return _bind_box_in(instruction, operands, offsets, mask, binding)
    require(mask is None)
    if way == ["global", "shared::cta", "bulk_group"] and modes in ([], [_IM2COL_OUT]):
        return _bind_box_out(instruction, operands, bool(modes), binding)
    raise NotExecuted


def _rank_of(instruction: FlatInstruction) -> int:
    """The dimensions of the tensor, as a modifier such as .2d says."""
    return only([int(f[0]) for f in instruction.ptx.flags if f in ("1d", "2d", "3d", "4d", "5d")])


def _boxes(
    instruction: FlatInstruction,
    operand: Operand,
    offsets: Sequence[Operand] | None,
    access: Access,
    chosen: Callable[[Batch], Threads],
    binding: Binding,
) -> Boxes:
    """Bind the map and the coordinates of an instruction, which PTX writes as [map, {x, y}].

    Args:
        offsets: Of im2col, which a store has none of; None where the instruction copies boxes.
        chosen: Which of the active threads ask for boxes.
    """
    address, coordinates = vector(operand, 2)
    stores = access.action == "read"
    halves = map_access(instruction, address, "generic", binding, action="read")
    sources = [binding.source(c, "s32") for c in vector(coordinates, _rank_of(instruction))]
    moves = None if offsets is None else [binding.source(offset, "u16") for offset in offsets]

    one = _one_box(instruction, halves, sources, moves, stores)
    alike = _alike_boxes(halves, sources, access)

    def boxes(batch: Batch) -> Iterator[tuple[CopyBox, Array]]:
        together = None if stores or moves is not None else alike(batch)
        if together is not None:
            yield together
            return
        for thread in chosen(batch).tolist():
            with active_threads(batch, np.array([thread])):
                box = one(batch)
                if box is not None:
                    yield box, np.zeros(1, np.int64)

    return boxes


def _one_box(
    instruction: FlatInstruction,
    halves: Sequence[Access],
    sources: Sequence[SourceOperand],
    moves: Sequence[SourceOperand] | None,
    stores: bool,
) -> Callable[[Batch], CopyBox | None]:
    """Return what gives the box that the one active thread asks for; None if that is reported."""

    def box(batch: Batch) -> CopyBox | None:
        data = read_map(batch, halves)
        check_map(batch, halves[0])
        tensor = decode(data)
        by_im2col = moves is not None
        if tensor is None or tensor.rank != len(sources) or by_im2col != bool(tensor.lower_corner):
            _report_map(batch, instruction, tensor, len(sources), is_empty=not any(data))
            return None
        at = tuple(int(c.read(batch)[0]) for c in sources)
        moved = tuple(int(move.read(batch)[0]) for move in moves or ())
        fault = _fault(tensor, at, stores) or (_pixel_fault(tensor, at, moved, stores) if by_im2col else None)
        if fault is not None:
            kind, message = fault
            region = batch.launch.memory.find(tensor.address)
            name = region.name if region else ""
            batch.report(kind, instruction, batch.numbers(), message, address_of=name)
            return None
        return pixels_at(tensor, at, moved) if by_im2col else box_at(tensor, at)

    return box


def _alike_boxes(
    halves: Sequence[Access], sources: Sequence[SourceOperand], access: Access
) -> Callable[[Batch], tuple[CopyBox, Array] | None]:
    """Return what gives the boxes of one thread of each of some blocks, by one map and all inside its tensor.

    Most kernels copy so. It gives None where threads have to be looked at one by one, such as for a fault.
    """

    def boxes(batch: Batch) -> tuple[CopyBox, Array] | None:
        address, threads = batch.read(halves[0].slot), batch.numbers()
        is_param = int(address[0]) - PARAM_WINDOW in range(WINDOW_BYTES)
        if len(threads) < 2 or not is_param or (address != address[0]).any():
            return None
        apart = len(np.unique(threads // batch.shape.pitch)) == len(threads)
        if not apart or ((batch.read(access.slot).astype(np.int64) + access.offset) % _ALIGNMENT).any():
            return None
        with active_threads(batch, threads[:1]):
            tensor = decode(read_map(batch, halves))
        if tensor is None or tensor.rank != len(sources) or tensor.lower_corner:
            return None
        inside, distance = np.ones(len(threads), bool), np.zeros(len(threads), np.int64)
        at = [np.broadcast_to(c.read(batch), len(threads)).astype(np.int64) for c in sources]
        strides = (tensor.itemsize, *tensor.strides_bytes)
        for first, size, stride, count, step in zip(
            at, tensor.sizes, strides, tensor.copied, tensor.steps, strict=True
        ):
            inside &= (first >= 0) & (first + (count - 1) * step < size)
            distance += (first - first[0]) * stride
        if not inside.all() or (at[0] * tensor.itemsize % CHUNK).any():
            return None
        box = box_at(tensor, tuple(int(first[0]) for first in at))
        low, end = box.addresses.min() + distance.min(), box.addresses.max() + box.length + distance.max()
        region = batch.launch.memory.find(int(low))
        return None if region is None or end > region.base + region.size else (box, distance)

    return boxes


def _report_map(
    batch: Batch, instruction: FlatInstruction, tensor: Map | None, rank: int, *, is_empty: bool
) -> None:
    kind, what = "trap", "reads 128 bytes that are not a tensor map. Pass dotcu.tensor_map(t, box=...)"
    if tensor is not None and tensor.rank == rank:
        what = "copies by im2col, and its map is of boxes. Pass dotcu.tensor_map(t, lower_corner=...)"
        if tensor.lower_corner:
            what = "copies a box, and its map is for im2col. Pass dotcu.tensor_map(t, box=...)"
    elif tensor is not None:
        what = f"has {rank} coordinates, and the tensor of its map {tensor.rank} dimensions"
    elif is_empty:
        kind, what = "null-pointer", "reads a map of zeros: its tensor is empty. Launch no block for it"
    batch.report(kind, instruction, batch.numbers(), f"`{instruction.ptx.text}` {what}.")


def _fault(tensor: Map, at: tuple[int, ...], stores: bool) -> tuple[str, str] | None:
    """The kind of finding and the message for coordinates that TMA does not take."""
    if at[0] * tensor.itemsize % CHUNK:
        return "misaligned", (
            f"misaligned box: its innermost coordinate is {at[0]}, {at[0] * tensor.itemsize} bytes "
            f"into a row, and TMA needs a multiple of {CHUNK}. Begin at a multiple of "
            f"{CHUNK // tensor.itemsize} elements, with a box that is wide enough."
        )
    if not stores or min(at) >= 0:
        return None
    outermost_first = at[::-1]
    dim, first = next((dim, first) for dim, first in enumerate(outermost_first) if first < 0)
    return "out-of-bounds", (
        f"out-of-bounds store of a box at {outermost_first}: its coordinate in dimension {dim} is {first}, "
        "and TMA stores no box that begins before the tensor. Begin at 0 or later, and write what is "
        "left of such a tile by plain stores."
    )


def _pixel_fault(
    tensor: Map, at: tuple[int, ...], offsets: tuple[int, ...], stores: bool
) -> tuple[str, str] | None:
    """The same for rules that only im2col has.

    Args:
        offsets: From the filter's first pixel, in W, H and D; none of a store.
    """
    first, last = tensor.lower_corner[::-1], _last_pixel(tensor)[::-1]
    base, limit = at[1:-1][::-1], 1 << 16 // len(first)
    if any(not low <= n <= high for low, n, high in zip(first, base, last, strict=True)):
        return "out-of-bounds", (
            f"out-of-bounds column of pixels: the filter begins at {base}, and the map's corners allow "
            f"{first} to {last}. Begin at the lower corner plus whole steps, within these."
        )
    if max(offsets, default=0) >= limit:
        return "out-of-bounds", (
            f"out-of-bounds im2col offsets {offsets[::-1]}: of {tensor.rank} dimensions they are less than "
            f"{limit}. Move the corners of the map instead."
        )
    if stores and (min(first) < 0 or max(tensor.upper_corner) > 0):
        return "out-of-bounds", (
            f"out-of-bounds store of pixels from {first} to {last}: TMA stores none outside the tensor. "
            "Pass a map whose lower_corner is not negative and whose upper_corner is not positive."
        )
    return None


def _last_pixel(tensor: Map) -> tuple[int, ...]:
    """Return the start of the last filter of an im2col map, in W, H and D."""
    return tuple(
        size - 1 + corner for size, corner in zip(tensor.sizes[1:-1], tensor.upper_corner, strict=True)
    )


def _one_of_each_warp(operand: Operand, access: Access, binding: Binding) -> Callable[[Batch], Threads]:
    """Choose one thread of each warp where all of its threads ask for the same store, else all threads.

    A warp in step issues it once, after all that its threads have done: kernels of cuDNN rely on it.
    """
    slots = [access.slot, *(binding.register(r).slot for r in registers_of(operand))]

    def chosen(batch: Batch) -> Threads:
        threads = batch.numbers()
        values = (batch.read(slot) for slot in slots) if are_whole(threads) else ()
        rows = [value.reshape(-1, WARP) for value in values if value.size > 1]
        if not are_whole(threads) or any((row != row[:, :1]).any() for row in rows):
            return threads
        batch.clocks.warp(batch.active, np.full(1, 0xFFFFFFFF, np.uint32))
        return threads[::WARP]

    return chosen


def _bind_box_in(
    instruction: FlatInstruction,
    operands: list[Operand],
    offsets: Operand | None,
    mask: Operand | None,
    binding: Binding,
) -> InstructionStep:
    """A box that is loaded, or, where there are offsets, a column of pixels by im2col.

    Args:
        operands: Shared memory, the map with coordinates, and the mbarrier.
        offsets, mask: Of im2col, and of multicast.
    """
    to, box_operand, barrier_operand = counted(operands, 3)
    moves = None if offsets is None else vector(offsets, _rank_of(instruction) - 2)
    require(moves != ())
    target = object_access(instruction, to, "shared", binding, action="write", size=CHUNK)
    boxes = _boxes(instruction, box_operand, moves, target, Batch.numbers, binding)
    source = Access(binding.next_access(), instruction, "global", -1, 0, 1, 1, "read")
    barrier = object_access(instruction, barrier_operand, "shared", binding, order=ARRIVES)
    to_each = _deliver(instruction, target, barrier, mask, binding)
    for_wgmma = bool(binding.of_wgmma)

    def load(batch: Batch, box: CopyBox, distance: Array) -> None:
        data = box.fill(_read_elements(batch, source, box, distance)).view(np.uint64)
        data = data.reshape(len(distance), -1, CHUNK // _WIDTH)
        places = _places(batch, target, box)
        if places is None:
            return

        def deliver(rows: Array, target: Access, barrier: Access) -> None:
            copy, part = 0, None
            for part in _spans(batch, target, int(places.max()) * _WIDTH + CHUNK):
                chosen = rows[part.positions]
                indices = (part.indices[:, None] + places[chosen]).reshape(-1)
                with active_threads(batch, np.repeat(batch.numbers(part.positions), places.shape[1])):
                    whole = part._replace(access=target, indices=indices, positions=None)
                    taken = data[chosen].reshape(-1, CHUNK // _WIDTH)
                    copy = in_flight(batch).issue(whole, taken, "mbarrier")
                if for_wgmma:
                    warpgroups(batch).note_layout(indices * _WIDTH, box.swizzle)
            if part is not None:
                signal(batch, barrier, copy=copy, tx_bytes=box.size, beside=part)

        to_each(batch, deliver)

    def step(batch: Batch) -> None:
        for box, distance in boxes(batch):
            load(batch, box, distance)

    return step


def _read_elements(batch: Batch, access: Access, box: CopyBox, distance: Array) -> Array:
    part = _elements(batch, access, box, distance)
    if part is None:
        return np.zeros((len(box.rows), box.length), np.uint8)
    with _each(part):
        _check_read(part, part.indices)
    return part.view[part.indices]


def _each(part: AccessPart) -> AbstractContextManager[None]:
    """Have each active thread active once for each of its places in a part."""
    threads = part.batch.numbers()
    return active_threads(part.batch, np.repeat(threads, part.indices.size // len(threads)))


def _bind_box_out(
    instruction: FlatInstruction,
    operands: list[Operand],
    by_im2col: bool,
    binding: Binding,
    operation: str = "",
) -> InstructionStep:
    """A box, or a column of pixels, that is stored, or combined with what is there by an operation."""
    box_operand, given = counted(operands, 2)
    require(not by_im2col or _rank_of(instruction) > 2)
    source = object_access(instruction, given, "shared", binding, action="read", size=CHUNK)
    chosen = Batch.numbers if operation else _one_of_each_warp(box_operand, source, binding)
    boxes = _boxes(instruction, box_operand, () if by_im2col else None, source, chosen, binding)
    target = Access(binding.next_access(), instruction, "global", -1, 0, 1, 1, "write")
    if operation:
        target = target._replace(action="atomic", order=order_of(("relaxed", "gpu")))

    def store(batch: Batch, box: CopyBox) -> None:
        reduce = _box_reduction(batch, instruction, operation, box.type) if operation else _copied
        places = None if reduce is None else _places(batch, source, box)
        if reduce is None or places is None:
            return
        inside = box.chunks_inside()
        data = np.zeros((len(inside), CHUNK), np.uint8)
        for part in _spans(batch, source, int(places.max()) * _WIDTH + CHUNK):
            part = part._replace(access=source, indices=part.indices + places[0, inside], positions=None)
            with _each(part):
                data[inside] = np.ascontiguousarray(_read_rows(part)).view(np.uint8)
            writes = _write_elements(batch, target, box, box.cut(data).reshape(-1), reduce)
            with _each(part):
                in_flight(batch).issue(part, None, "bulk", writes=tuple(writes))

    def step(batch: Batch) -> None:
        for box, _ in boxes(batch):
            store(batch, box)

    return step


def _box_reduction(batch: Batch, instruction: FlatInstruction, operation: str, type_: str) -> Reduce | None:
    """The function of an operation on a map's elements; None if they have none, which is reported."""
    allowed = [e for t in _REDUCTIONS[operation] if t != "f64" for e in _BITWISE.get(t, (t,))]
    if type_ in allowed:
        return _reduction(instruction.ptx, operation, type_)
    message = (
        f"`{instruction.ptx.text}` by a map of {type_} elements: TMA's {operation} is of "
        f"{', '.join(allowed)}. Pass a map of a tensor of one of these."
    )
    batch.report("trap", instruction, batch.numbers(), message)
    return None


def _write_elements(batch: Batch, access: Access, box: CopyBox, values: Array, reduce: Reduce) -> list[int]:
    """Write, or combine, a box's elements; the event of the writes, if they are recorded."""
    part = _elements(batch, access, box, np.zeros(1, np.int64))
    if part is None:
        return []
    with _each(part):
        events = _told(part, part.indices, values)
    batch.launch.progress += 1
    part.view[part.indices] = reduce(part.view[part.indices], values)
    part.mark_written(part.indices)
    return events


def _places(batch: Batch, access: Access, box: CopyBox) -> Array | None:
    """For each active thread the places of a box's chunks, from its address; None if that is misaligned."""
    starts = np.broadcast_to(batch.read(access.slot), batch.count()).astype(np.int64) + access.offset
    starts &= (1 << RANK_BIT) - 1
    start = int(starts[0])
    if start % _ALIGNMENT:
        name = batch.launch.decoded.layout.variable_before("shared", start)
        message = (
            f"misaligned {access.action} of a box at byte {start} of shared memory"
            f"{f', in `{name}`' if name else ''}: TMA needs a multiple of {_ALIGNMENT}. "
            f"Declare the array alignas({_ALIGNMENT}), and begin at such a place."
        )
        batch.report("misaligned", access.instruction, batch.numbers(), message, address_of=name)
        return None
    unique, which = np.unique(starts, return_inverse=True)
    return np.stack([chunk_offsets(each, box) for each in unique.tolist()])[which] // _WIDTH


def _elements(batch: Batch, access: Access, box: CopyBox, distance: Array) -> AccessPart | None:
    """The tensor's memory with the places of boxes' elements; None if there are none."""
    if not len(box.rows):
        return None
    access = access._replace(width=box.unit)
    addresses = (box.elements().reshape(-1) + distance[:, None]).reshape(-1)
    low, end = int(addresses.min()), int(addresses.max()) + box.unit
    region = batch.launch.memory.find(low)
    near = (region, *region.aliases) if region else ()
    regions = [r for r in near if r.base <= low and end <= r.base + r.size]
    allowed = [r for r in regions if access.action == "read" or not r.read_only]
    if allowed:
        part = region_part(batch, access, allowed[0], addresses.view(np.uint64), None)
        with _each(part):
            for touch in batch.on.touch:
                touch(part)
        return part
    first, thread = addresses[:1].view(np.uint64), np.zeros(1, np.int64)
    if regions:
        report_read_only(batch, access, regions[0], first, thread)
    else:
        report_unmapped(batch, access, first, thread)
    return None


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
        skip, length: How many bytes of each row come before that, and lie in the tensor.
        row_bytes, count: Bytes of a row of the box, and its rows.
        swizzle: Bytes within which the 16-byte chunks of the box are permuted; 0: none.
        type: Of its elements.
    """

    rows: Array
    addresses: Array
    skip: int
    length: int
    row_bytes: int
    count: int
    swizzle: int
    type: str

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
        """The bytes of the whole box, or of several, with zeros outside the tensor."""
        inside, each = np.ascontiguousarray(values).view(np.uint8).reshape(-1), len(self.rows) * self.length
        if each in (0, self.size):
            return inside if each else np.zeros(self.size, np.uint8)
        rows = inside.reshape(-1, len(self.rows), self.length)
        box = np.zeros((len(rows), self.count, self.row_bytes), np.uint8)
        box[:, self.rows, self.skip : self.skip + self.length] = rows
        return box.reshape(-1)

    def chunks_inside(self) -> Array:
        """Return the mask of the 16-byte chunks that have any byte in the tensor: a store reads no others."""
        box = np.zeros((self.count, self.row_bytes), bool)
        box[self.rows, self.skip : self.skip + self.length] = True
        return np.asarray(box.reshape(-1, CHUNK).any(axis=1))

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
    return _rows_at(tensor, at[0], starts, inside)


def pixels_at(tensor: Map, at: tuple[int, ...], offsets: tuple[int, ...]) -> CopyBox:
    """The pixels of an im2col map from some coordinates on, as a box with a row for each.

    The filter walks along W, then H, D and N: past the upper corner it begins again at the lower one.

    Source: PTX ISA, "Tensors: im2col mode" (chapter 5). What a start between two steps gives is not said
    there: here the steps go on from it, to the end of its line.

    Args:
        offsets: Of the pixel from there, in W, H and D; none of a store.
    """
    lines = list(zip(tensor.steps[1:-1], tensor.lower_corner, _last_pixel(tensor), strict=True))
    filters, base = [], list(at[1:])
    for _ in range(tensor.box[1]):
        filters.append(tuple(base))
        for dim, (step, first, last) in enumerate(lines):
            base[dim] += step
            if base[dim] <= last:
                break
            base[dim] = first
        else:
            base[-1] += 1
    pixels = np.array(filters, np.int64)
    pixels[:, : len(offsets)] += np.array(offsets, np.int64)
    inside = np.asarray(((pixels >= 0) & (pixels < np.array(tensor.sizes[1:], np.int64))).all(axis=1))
    return _rows_at(tensor, at[0], pixels @ np.array(tensor.strides_bytes, np.int64), inside)


def _rows_at(tensor: Map, first: int, starts: Array, inside: Array) -> CopyBox:
    """A box of the rows that begin at some offsets, from an element on.

    Args:
        starts, inside: For each row its bytes from the tensor's address, and whether it is in the tensor.
    """
    low, high = max(0, -first), min(tensor.box[0], tensor.sizes[0] - first)
    rows = np.flatnonzero(inside) if high > low else np.zeros(0, np.int64)
    return CopyBox(
        rows=rows,
        addresses=tensor.address + starts[rows] + (first + low) * tensor.itemsize,
        skip=low * tensor.itemsize,
        length=max(0, high - low) * tensor.itemsize,
        row_bytes=tensor.box[0] * tensor.itemsize,
        count=len(starts),
        swizzle=tensor.swizzle,
        type=tensor.type,
    )


def chunk_offsets(start: int, box: CopyBox) -> Array:
    """Return the offset of each 16-byte chunk of a box, in bytes from its address in shared memory."""
    row_bytes, swizzle = box.row_bytes, box.swizzle
    begins = start + max(row_bytes, swizzle) * np.arange(box.count, dtype=np.int64)
    address = (begins[:, None] + np.arange(0, row_bytes, CHUNK, dtype=np.int64)).reshape(-1)
    chunks = max(1, swizzle // CHUNK)
    return np.asarray((address ^ ((address >> _LINE_BITS) % chunks * CHUNK)) - start)
