"""cp.async.bulk: copies of many bytes between global and shared memory, as one lane asks.

Into shared memory, the copy lands when a lane reads the mbarrier that it completes. Out
of it, the bytes are taken at once, which is as early as they may be; until the lane waits for
its group, no lane may write over them.

Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk,
cp.reduce.async.bulk, cp.async.bulk.prefetch, cp.async.bulk.commit_group,
cp.async.bulk.wait_group".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.decoding.inlining import FlatInstruction
from dotcu.simulator.machine.async_copies import active_lanes, in_flight
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.machine.memory import WRITTEN
from dotcu.simulator.machine.shape import Array
from dotcu.simulator.sanitizers import bounds
from dotcu.simulator.sanitizers.races import check_atomic, check_read, check_write
from dotcu.simulator.sanitizers.unwritten import check_in_flight, check_written, mark_written
from dotcu.simulator.semantics.arithmetic.rounding import flush
from dotcu.simulator.semantics.async_copy.mbarrier import ARRIVES, object_access, signal
from dotcu.simulator.semantics.memory.access import WEAK, Access, AccessPart, order_of, resolve
from dotcu.simulator.semantics.memory.atomic import UPDATES
from dotcu.simulator.semantics.table import NotExecuted, SourceOperand, Step, dtype_of

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding


Reduce = Callable[[Array, Array], Array]
_TARGETS = ("shared::cluster", "shared::cta")


def bind_bulk(placed: FlatInstruction, binding: Binding) -> Step:
    """Bind cp.async.bulk without a tensor map."""
    flags = placed.instruction.flags[2:]
    hinted = flags[-1:] == ("L2::cache_hint",)
    flags = flags[:-1] if hinted else flags
    if flags == ("prefetch", "L2", "global"):
        return lambda chunk: None  # a hint
    if flags[:2] in [(to, "global") for to in _TARGETS] and flags[2:] == ("mbarrier::complete_tx::bytes",):
        return _bind_in(placed, binding, hinted)
    if flags == ("global", "shared::cta", "bulk_group"):
        return _bind_out(placed, binding, hinted, _copied)
    raise NotExecuted


def _bulk_access(placed: FlatInstruction, number: int, space: str, action: str, binding: Binding) -> Access:
    """The access to the first 16 bytes, by which alignment is checked."""
    return object_access(placed, placed.instruction.operands[number], space, binding, action=action, size=16)


def _by_size(placed: FlatInstruction, source: SourceOperand, move: Callable[[Chunk, int], None]) -> Step:
    """A step that moves bytes for the lanes of each size at once; sizes that are not allowed are reported."""

    def step(chunk: Chunk) -> None:
        sizes = np.broadcast_to(chunk.read(source.slot), chunk.count())
        lanes = chunk.numbers()
        odd: Array = sizes % 16 != 0
        if odd.any():
            message = (
                f"misaligned size of {sizes[odd][0]} bytes: a bulk copy takes a multiple of 16. "
                "Copy the rest by ordinary loads and stores."
            )
            chunk.report("misaligned", placed, lanes[odd], message)
        for size in np.unique(sizes[~odd]).tolist():
            if size:
                with active_lanes(chunk, lanes[sizes == size]):
                    move(chunk, size)

    return step


# Global to shared memory


def _bind_in(placed: FlatInstruction, binding: Binding, hinted: bool) -> Step:
    if len(placed.instruction.operands) != 4 + hinted:
        raise NotExecuted
    target = _bulk_access(placed, 0, "shared", "write", binding)
    source = _bulk_access(placed, 1, "global", "read", binding)
    count = binding.source(placed.instruction.operands[2], "u32")
    barrier = object_access(placed, placed.instruction.operands[3], "shared", binding, order=ARRIVES)

    def issue(chunk: Chunk, size: int) -> None:
        lanes = chunk.numbers()
        values = np.zeros((len(lanes), size // WIDTH), np.uint64)
        for part, positions in spans(chunk, source, size):
            values[positions] = read_rows(chunk, source, part, size)
        serial = 0
        for part, positions in spans(chunk, target, size):
            check_in_flight(chunk, target, part, part.indices[:, None] + np.arange(size // WIDTH))
            serial = in_flight(chunk).issue(
                target, lanes[positions], part.indices, values[positions], size, "mbarrier"
            )
        signal(chunk, barrier, copy=serial, tx_bytes=size)

    return _by_size(placed, count, issue)


# Shared to global memory


def _bind_out(placed: FlatInstruction, binding: Binding, hinted: bool, reduce: Reduce) -> Step:
    if len(placed.instruction.operands) != 3 + hinted:
        raise NotExecuted
    is_copy = reduce is _copied
    order = WEAK if is_copy else order_of(("relaxed", "gpu"))
    target = _bulk_access(placed, 0, "global", "write" if is_copy else "atomic", binding)
    target = target._replace(order=order)
    source = _bulk_access(placed, 1, "shared", "read", binding)
    count = binding.source(placed.instruction.operands[2], "u32")

    def send(chunk: Chunk, size: int) -> None:
        lanes = chunk.numbers()
        values = np.zeros((len(lanes), size // WIDTH), np.uint64)
        for part, positions in spans(chunk, source, size):
            values[positions] = read_rows(chunk, source, part, size)
            in_flight(chunk).issue(source, lanes[positions], part.indices, None, size, "bulk")
        for part, positions in spans(chunk, target, size):
            if not is_copy:
                read_rows(chunk, target, part, size)
            _write_rows(chunk, target, part, values[positions], reduce)

    return _by_size(placed, count, send)


def _write_rows(chunk: Chunk, target: Access, part: AccessPart, values: Array, reduce: Reduce) -> None:
    """Write, or combine, a row for each lane; lanes one after the other, as they may overlap."""
    columns = np.arange(values.shape[1])
    if part.races is not None and reduce is _copied:
        with _each_element(chunk, part, part.indices[:, None] + columns) as (whole, indices):
            check_write(chunk, target, whole, indices, values.reshape(-1))
    chunk.grid.progress += 1
    for place, row in zip(part.indices, values, strict=True):
        index = place + columns
        part.view[index] = reduce(part.view[index], row)
        mark_written(target, part, index)


def _copied(old: Array, new: Array) -> Array:
    return new


# Reductions


_INTEGERS = ("u32", "s32", "u64", "s64")
_REDUCTIONS: Mapping[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "f32", "f64"),
    **dict.fromkeys(("min", "max"), _INTEGERS),
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    **dict.fromkeys(("and", "or", "xor"), ("b32", "b64")),
}


def bind_reduce(placed: FlatInstruction, binding: Binding) -> Step:
    """cp.reduce.async.bulk from shared to global memory."""
    flags = placed.instruction.flags[2:]
    *where, name = [f for f in flags if f != "L2::cache_hint"]
    (type_,) = placed.instruction.types
    if where != ["bulk", "global", "shared::cta", "bulk_group"] or type_ not in _REDUCTIONS[name]:
        raise NotExecuted
    function: Reduce = UPDATES[name]
    if type_ == "f32":
        function = _flushed_sum
    dtype = dtype_of(type_)

    def reduce(old: Array, new: Array) -> Array:
        return np.ascontiguousarray(function(old.view(dtype), new.view(dtype))).view(np.uint64)

    return _bind_out(placed, binding, "L2::cache_hint" in flags, reduce)


def _flushed_sum(old: Array, new: Array) -> Array:
    return flush(flush(old) + flush(new))


# Rows of bytes: what one lane's bulk copy reads or writes, as elements of one array.


WIDTH = 8


def spans(chunk: Chunk, access: Access, size: int) -> list[tuple[AccessPart, Array]]:
    """Return where the active lanes' rows begin, for those whose `size` bytes are in bounds and aligned.

    Args:
        access: To the first 16 bytes of each row.

    Returns:
        Parts with one place for each lane, and which of the active lanes these are.
    """
    found = []
    for part in resolve(chunk, access):
        positions = np.arange(chunk.count()) if part.positions is None else part.positions
        indices = np.broadcast_to(part.indices, len(positions))
        if part.region is not None:
            address = indices * WIDTH + part.region.view(WIDTH)[1]
            fits = address - part.region.base + size <= part.region.size
        else:
            bases = chunk.shared.bases.view(np.int64)
            address = indices * WIDTH - (bases if bases.size == 1 else bases[chunk.numbers()[positions]])
            fits = address + size <= chunk.shared.size
        if not fits.all():
            whole, missed = access._replace(elements=size // WIDTH), positions[~fits]
            if part.region is not None:
                bounds.report_unmapped(chunk, whole, address[~fits], missed)
            else:
                bounds.report_private(chunk, whole, chunk.shared, address[~fits], missed)
            indices, positions = indices[fits], positions[fits]
        if len(positions):
            found.append((part._replace(indices=indices, positions=positions), positions))
    return found


def read_rows(chunk: Chunk, access: Access, part: AccessPart, size: int) -> Array:
    """The elements of each row; those that nothing wrote, or that are on their way, are reported.

    Args:
        chunk: The blocks that run together; its active lanes take part.
        access: The access of the instruction.
        part: The lanes whose access is in one array.
        size: Bytes of each row.
    """
    index = part.indices[:, None] + np.arange(size // WIDTH)
    if not check_in_flight(chunk, access, part, index) and part.shadow is not None:
        bad = part.shadow[index] != WRITTEN[WIDTH]
        rows = bad.any(axis=1)
        if rows.any():
            first = index[rows, bad[rows].argmax(axis=1)]
            positions = None if part.positions is None else part.positions[rows]
            check_written(chunk, access, part._replace(positions=positions), first)
    if part.races is not None:
        with _each_element(chunk, part, index) as (whole, indices):
            if access.order.strong:
                check_atomic(chunk, access, whole, indices, None)
            else:
                check_read(chunk, access, whole, indices)
    return part.view[index]


@contextmanager
def _each_element(chunk: Chunk, part: AccessPart, index: Array) -> Iterator[tuple[AccessPart, Array]]:
    """A part whose lanes touch a row of elements each, as one whose lanes touch an element each."""
    lanes = chunk.numbers()
    if part.positions is not None:
        lanes = lanes[part.positions]
    indices = index.reshape(-1)
    with active_lanes(chunk, np.repeat(lanes, index.shape[1])):
        yield part._replace(indices=indices, positions=None), indices
