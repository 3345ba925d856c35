"""mbarrier: barriers that lie in shared memory, with phases, arrivals and transactions.

A test or try that fails gives false at once; the kernel's own loop waits. What an mbarrier
tracks lands when somebody looks at it: copies, then the arrivals or transactions they make.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import Operand, Sink
from dotcu.ptx.link import Placed
from dotcu.simulator.machine.chunk import Array, Chunk
from dotcu.simulator.machine.in_flight import acting
from dotcu.simulator.sanitizers.init import WRITTEN
from dotcu.simulator.semantics.mbarrier_objects import (
    ARRIVES,
    RELAXED,
    WAITS,
    change,
    find,
    find_objects,
    object_access,
    report_misuse,
    settle,
    touch,
)
from dotcu.simulator.semantics.phases import MAX_COUNT, Change, fresh, unpack
from dotcu.simulator.semantics.spaces import WEAK, Access, Order
from dotcu.simulator.semantics.table import NotExecuted, Source, Step

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding

_SPACES = frozenset({"shared", "shared::cta", "shared::cluster"})
# With clusters of one block, the scopes of the block and of the cluster are the same.
_MODIFIERS = _SPACES | {"release", "acquire", "relaxed", "cta", "cluster", "layout::v0"}


def bind_mbarrier(placed: Placed, binding: Binding) -> Step:
    """mbarrier, of any kind."""
    kind, *flags = placed.instruction.flags
    counts, bind = _KINDS[kind]
    if len(placed.instruction.operands) not in counts:
        raise NotExecuted
    return bind(placed, flags, binding)


def _access(
    placed: Placed,
    operand: Operand,
    flags: list[str],
    binding: Binding,
    order: Order,
    action: str = "atomic",
) -> Access:
    if not _MODIFIERS.issuperset(flags):
        raise NotExecuted
    if order != WEAK and "relaxed" in flags:
        order = RELAXED
    space = "generic" if _SPACES.isdisjoint(flags) else "shared"
    return object_access(placed, operand, space, binding, order, action)


# Operands


def operand_values(chunk: Chunk, source: Source, positions: Array) -> Array:
    """A register's values in some of the active lanes, as int64."""
    value = chunk.read(source.slot)
    value = value if source.adapt is None else source.adapt(value)
    wide: Array = value.astype(np.int64)
    return np.broadcast_to(wide, len(positions)) if wide.size == 1 else wide[positions]


def _spread(chunk: Chunk, positions: Array, values: Array, fill: int) -> Array:
    """Values of some of the active lanes as values of all."""
    if len(positions) == chunk.count() and (positions[1:] > positions[:-1]).all():
        return values
    result = np.full(chunk.count(), fill, values.dtype)
    result[positions] = values
    return result


# init, inval


def _bind_init(placed: Placed, flags: list[str], binding: Binding) -> Step:
    address, count = placed.instruction.operands
    access = _access(placed, address, flags, binding, WEAK, "write")
    source = binding.source(count, "u32")

    def step(chunk: Chunk) -> None:
        positions, objects = find(chunk, access)
        counts = operand_values(chunk, source, positions)
        good = (counts >= 1) & (counts <= MAX_COUNT)
        if not good.all():
            wrong = f"is to wait for {counts[~good][0]} arrivals. It takes 1 to {MAX_COUNT}"
            report_misuse(chunk, access, positions[~good], wrong)
            positions, objects, counts = positions[good], objects[good], counts[good]
        with acting(chunk, chunk.numbers()[positions]):
            touch(chunk, access, objects)
        chunk.shared.views[8][objects] = fresh(counts)
        chunk.shared.shadows[8][objects] = WRITTEN[8]

    return step


def _bind_inval(placed: Placed, flags: list[str], binding: Binding) -> Step:
    access = _access(placed, placed.instruction.operands[0], flags, binding, WEAK, "write")

    def step(chunk: Chunk) -> None:
        positions, objects = find_objects(chunk, access)
        with acting(chunk, chunk.numbers()[positions]):
            touch(chunk, access, objects)
        chunk.shared.views[8][objects] = 0
        chunk.shared.shadows[8][objects] = 0

    return step


# arrive, arrive_drop, expect_tx, complete_tx


def _bind_arrive(placed: Placed, flags: list[str], binding: Binding) -> Step:
    """arrive and arrive_drop; the third operand counts arrivals, or with .expect_tx bytes."""
    state, address, *counted = placed.instruction.operands
    drops = placed.instruction.flags[0] == "arrive_drop"
    form = flags.pop(0) if flags and flags[0] in ("expect_tx", "noComplete") else ""
    access = _access(placed, address, flags, binding, ARRIVES)
    if form and not counted:
        raise NotExecuted
    source = binding.source(counted[0], "u32") if counted else None
    target = None if isinstance(state, Sink) else binding.destination(state)
    if target is not None and target.dtype != np.uint64:
        raise NotExecuted

    def step(chunk: Chunk) -> None:
        positions, objects = find_objects(chunk, access)
        number = 1 if source is None else operand_values(chunk, source, positions)
        arrivals = 1 if form == "expect_tx" else number
        by = Change(arrivals, arrivals if drops else 0, number if form == "expect_tx" else 0)
        with acting(chunk, chunk.numbers()[positions]):
            seen = change(chunk, access, objects, by)
            if form == "noComplete":
                _check_incomplete(chunk, access, seen, arrivals)
        if target is not None:
            chunk.write(target.slot, _spread(chunk, positions, seen, 0))

    return step


def _check_incomplete(chunk: Chunk, access: Access, seen: Array, arrivals: Array | int) -> None:
    last = unpack(seen).pending <= arrivals
    if last.any():
        what = "must not complete its phase by an arrival with .noComplete. Use arrive without it"
        report_misuse(chunk, access, np.flatnonzero(last), what)


def _bind_transactions(placed: Placed, flags: list[str], binding: Binding) -> Step:
    address, count = placed.instruction.operands
    access = _access(placed, address, flags, binding, RELAXED)
    source = binding.source(count, "u32")
    sign = 1 if placed.instruction.flags[0] == "expect_tx" else -1

    def step(chunk: Chunk) -> None:
        positions, objects = find_objects(chunk, access)
        by = Change(tx=sign * operand_values(chunk, source, positions))
        with acting(chunk, chunk.numbers()[positions]):
            change(chunk, access, objects, by)

    return step


# test_wait, try_wait, pending_count


def _bind_wait(placed: Placed, flags: list[str], binding: Binding) -> Step:
    """test_wait and try_wait: whether the phase of a state, or of a parity, is over."""
    done, address, phase = placed.instruction.operands[:3]  # a hint of how long to wait may follow
    by_parity = flags[:1] == ["parity"]
    access = _access(placed, address, flags[1:] if by_parity else flags, binding, WAITS)
    source = binding.source(phase, "u32" if by_parity else "b64")
    target = binding.destination(done)

    def step(chunk: Chunk) -> None:
        chunk.watch(placed)
        positions, objects = find_objects(chunk, access)
        settle(chunk, objects)
        value = operand_values(chunk, source, positions)
        waited = value & 1 if by_parity else unpack(value.astype(np.uint64)).parity
        over = unpack(chunk.shared.views[8][objects]).parity != waited
        with acting(chunk, chunk.numbers()[positions[over]]):
            touch(chunk, access, objects[over])
        chunk.write(target.slot, _spread(chunk, positions, over, True).astype(target.dtype))

    return step


def _bind_pending_count(placed: Placed, flags: list[str], binding: Binding) -> Step:
    count, state = placed.instruction.operands
    if flags not in ([], ["layout::v0"]):
        raise NotExecuted
    target = binding.destination(count)
    source = binding.source(state, "b64")

    def step(chunk: Chunk) -> None:
        chunk.write(target.slot, unpack(chunk.read(source.slot)).pending.astype(target.dtype))

    return step


# By the first modifier: how many operands there may be, and what binds them.
_KINDS: Mapping[str, tuple[tuple[int, ...], Callable[[Placed, list[str], Binding], Step]]] = {
    "init": ((2,), _bind_init),
    "inval": ((1,), _bind_inval),
    "arrive": ((2, 3), _bind_arrive),
    "arrive_drop": ((2, 3), _bind_arrive),
    "expect_tx": ((2,), _bind_transactions),
    "complete_tx": ((2,), _bind_transactions),
    "test_wait": ((3,), _bind_wait),
    "try_wait": ((3, 4), _bind_wait),
    "pending_count": ((2,), _bind_pending_count),
}
