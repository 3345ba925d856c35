"""cp.async: copies of 4, 8 or 16 bytes from global to shared memory that land later.

The source is read, and both addresses are checked, when the copy is issued; `in_flight` says
when it lands.

Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async, cp.async.commit_group,
cp.async.wait_group, cp.async.mbarrier.arrive".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dotcu.ptx.instructions import TYPE_BYTES, Immediate, Operand, Predicate, Register
from dotcu.simulator.machine.access import resolve
from dotcu.simulator.machine.async_copies import CopiesInFlight, in_flight
from dotcu.simulator.machine.state import (
    Access,
    AccessPart,
    Batch,
    InstructionStep,
    SourceCheck,
    active_threads,
)
from dotcu.simulator.program.binding import MANY, Binding, chosen, counted, immediate, only, require, unsigned
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.async_copy.bulk import bind_bulk, bind_reduce, bind_tensor
from dotcu.simulator.semantics.async_copy.mbarrier import ARRIVES, object_access, signal, touch
from dotcu.simulator.semantics.atomic import bind_atom
from dotcu.simulator.semantics.load_store import access_of, elements_of, load_parts

_SIZES = {"ca": (4, 8, 16), "cg": (16,)}
_GROUPS = (("commit_group",), ("wait_group",), ("wait_group", "read"), ("wait_all",))


def bind_cp(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """cp.async, cp.async.bulk and cp.reduce.async.bulk."""
    first, *more = counted(instruction.ptx.flags, 2, MANY)
    if first == "reduce" and more[0] == "async":
        return bind_reduce(instruction, binding)
    require(first == "async")
    kind = "bulk" if more[0] == "bulk" else "async"
    group = tuple(more[1:] if kind == "bulk" else more)
    if group in _GROUPS:
        return _bind_group(instruction, kind, group)
    if kind == "bulk":
        return (
            bind_tensor(instruction, binding) if more[1:2] == ["tensor"] else bind_bulk(instruction, binding)
        )
    return _bind_arrive(instruction, binding) if more[0] == "mbarrier" else _bind_copy(instruction, binding)


def _bind_group(instruction: FlatInstruction, kind: str, group: tuple[str, ...]) -> InstructionStep:
    """Bind the instructions that close a group of copies, or wait for groups."""
    if group == ("commit_group",):
        return lambda batch: in_flight(batch).commit(kind)
    if group == ("wait_all",):
        require(kind != "bulk")

        def wait_all(batch: Batch) -> None:
            in_flight(batch).commit(kind)
            in_flight(batch).wait(kind, 0)

        return wait_all
    operand = only(instruction.ptx.operands)
    require(kind == "bulk" or len(group) == 1)
    pending = immediate(operand)

    def wait(batch: Batch) -> None:
        if (flight := batch.find(CopiesInFlight)) is not None:
            flight.wait(kind, pending, reads="read" in group)

    return wait


def _bind_copy(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    ptx = instruction.ptx
    _, cache, *spaces = counted(ptx.flags[:4], 4)
    to, source, count, *more = counted(ptx.operands, 3, 5)
    hints = ptx.flags[4:]
    size = immediate(count)
    require(size in chosen(_SIZES, cache))
    require(spaces in (["shared", "global"], ["shared::cta", "global"]))
    require(all(hint.startswith("L2::") for hint in hints))
    if "L2::cache_hint" in hints:
        more = more[:-1]
    target = object_access(instruction, to, "shared", binding, action="write", size=size)
    fetch = _fetch(
        object_access(instruction, source, "global", binding, action="read", size=size), more, binding
    )

    def step(batch: Batch) -> None:
        sources: list[SourceCheck] = []
        values = fetch(batch, sources)
        _issue(batch, target, values, "async", sources)

    return step


def _issue(
    batch: Batch, target: Access, values: Array, kind: str, sources: Sequence[SourceCheck] = ()
) -> tuple[int, AccessPart | None]:
    """Issue a copy of a row of elements for each active thread; its serial number, and where it goes.

    Args:
        values, sources: What is copied, and the parts of global memory that it is read from.
    """
    serial, part = 0, None
    for part in resolve(batch, target):
        part = part._replace(indices=part.spread())
        given = values if part.positions is None else values[part.positions]
        serial = in_flight(batch).issue(part, given, kind, sources=tuple(sources))
    return serial, part


Fetch = Callable[[Batch, list[SourceCheck]], Array]
"""Reads a copy's source, for each thread a row of elements filled up by zeros; notes where."""


def _fetch(source: Access, more: list[Operand], binding: Binding) -> Fetch:
    """Return the function that reads the source."""
    size = source.bytes
    length = _length(size, more, binding)

    def whole(batch: Batch, sources: list[SourceCheck]) -> Array:
        values = np.empty((batch.count(), source.elements), unsigned(source.width))
        for element, value in enumerate(_load(batch, source, sources)):
            values[:, element] = value
        return values

    if length is None:
        return whole

    def partly(batch: Batch, sources: list[SourceCheck]) -> Array:
        lengths = np.broadcast_to(length(batch), batch.count())
        over = lengths > size
        if over.any():
            message = (
                f"out-of-bounds: a copy of {size} bytes is to read {lengths[over][0]} bytes of its source. "
                f"Let the source's size be at most {size}."
            )
            batch.report("out-of-bounds", source.instruction, batch.numbers()[over], message)
        lengths = np.minimum(lengths, size)
        values = np.zeros((len(lengths), size), np.uint8)
        threads = batch.numbers()
        for taken in np.unique(lengths).tolist():
            here = lengths == taken
            with active_threads(batch, threads[here]):
                if taken == size:
                    values[here] = whole(batch, sources).view(np.uint8)
                else:
                    values[here, :taken] = _head(batch, source, taken, sources)
        return values.view(unsigned(source.width))

    return partly


def _load(batch: Batch, source: Access, sources: list[SourceCheck]) -> list[Array]:
    """Read elements of the source, and note the parts of memory that they are in."""
    parts = resolve(batch, source)
    checks = [note(part) for part in parts for note in batch.on.source]
    sources += [check for check in checks if check is not None]
    return load_parts(batch, source, parts)


def _length(size: int, more: list[Operand], binding: Binding) -> Callable[[Batch], Array] | None:
    """Return the function that gives how many bytes to read, before zeros; None: all of the source."""
    if not more or more == [Immediate(size, "int")]:
        return None
    operand = only(more)
    if isinstance(operand, Predicate) or (isinstance(operand, Register) and operand.type == "pred"):
        ignored = binding.source(operand, "pred")
        return lambda batch: np.where(ignored.read(batch), 0, size)
    slot = binding.source(operand, "u32").slot
    return lambda batch: batch.read(slot).view(np.uint32).astype(np.int64)


def _head(batch: Batch, source: Access, length: int, sources: list[SourceCheck]) -> Array:
    """The first bytes of the source, a row for each thread, read in aligned pieces."""
    values = np.zeros((batch.count(), length), np.uint8)
    offset = 0
    while offset < length:
        left = length - offset
        width = min(8, 1 << (left.bit_length() - 1))
        piece = source._replace(offset=source.offset + offset, width=width, elements=1)
        value = np.broadcast_to(_load(batch, piece, sources)[0], batch.count())
        values[:, offset : offset + width] = np.ascontiguousarray(value).view(np.uint8).reshape(-1, width)
        offset += width
    return values


def _bind_arrive(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """cp.async.mbarrier.arrive: an arrival once the thread's copies so far have landed."""
    flags = [f for f in instruction.ptx.flags[2:] if f != "noinc"]
    counted = "noinc" in instruction.ptx.flags
    require(flags in (["arrive"], ["arrive", "shared"], ["arrive", "shared::cta"]))
    space = "generic" if len(flags) == 1 else "shared"
    access = object_access(instruction, only(instruction.ptx.operands), space, binding, order=ARRIVES)
    access = access._replace(near=True)

    def step(batch: Batch) -> None:
        part = signal(batch, access)
        touch(part)
        if not counted:  # one arrival more is pending: the lowest bits of the word count them
            np.add.at(part.view, part.indices, np.uint64(1))

    return step


# Stores and updates of another block's shared memory that complete transactions of an mbarrier there.
#
# Source: PTX ISA, "Data Movement and Conversion Instructions: st.async", "Parallel Synchronization and
# Communication Instructions: red.async".


_TRACKED = "mbarrier::complete_tx::bytes"


def bind_async_store(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """st.async: elements that land when a thread reads the mbarrier that they complete."""
    ptx = instruction.ptx
    allowed = {"async", "weak", _TRACKED, "shared::cluster", "v2", "v4"}
    require(allowed.issuperset(ptx.flags) and _TRACKED in ptx.flags)
    to, value, at = counted(ptx.operands, 3)
    elements = elements_of(value)
    target = access_of(instruction, to, "shared", len(elements), "write", binding)
    sources = [binding.narrow_source(e, ptx.type) for e in elements]
    barrier = object_access(instruction, at, "shared", binding, order=ARRIVES)

    def step(batch: Batch) -> None:
        columns = [np.broadcast_to(source.read(batch), batch.count()) for source in sources]
        serial, part = _issue(batch, target, np.stack(columns, axis=1), "mbarrier")
        signal(batch, barrier, copy=serial, tx_bytes=target.bytes, beside=part)

    return step


def bind_async_update(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """red.async: an update, which takes effect at once, and the transaction that it completes."""
    ptx = instruction.ptx
    require(_TRACKED in ptx.flags)
    to, value, at = counted(ptx.operands, 3)
    flags = tuple(f for f in ptx.flags if f not in ("async", _TRACKED))
    update = bind_atom(instruction._replace(ptx=ptx._replace(flags=flags, operands=(to, value))), binding)
    barrier = object_access(instruction, at, "shared", binding, order=ARRIVES)
    tx_bytes = TYPE_BYTES[ptx.type]

    def step(batch: Batch) -> None:
        update(batch)
        signal(batch, barrier, copy=0, tx_bytes=tx_bytes)

    return step
