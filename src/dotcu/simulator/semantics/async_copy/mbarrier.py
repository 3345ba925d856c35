"""mbarrier: barriers that are in shared memory, with phases, arrivals and transactions.

A test or try that fails gives false at once; the kernel's own loop waits. What an mbarrier
tracks lands when a thread reads it: copies, then the arrivals or transactions they make.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from dotcu.ptx.instructions import Operand, Sink
from dotcu.simulator.machine.access import resolve, shared_part
from dotcu.simulator.machine.async_copies import (
    CopiesInFlight,
    CopySignal,
    in_flight,
    of_threads,
)
from dotcu.simulator.machine.barriers import barriers
from dotcu.simulator.machine.memory import WRITTEN
from dotcu.simulator.machine.state import (
    WEAK,
    Access,
    AccessPart,
    Batch,
    InstructionStep,
    MemoryOrder,
    active_threads,
)
from dotcu.simulator.program.binding import MANY, Binding, SourceOperand, chosen, counted, require
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array

_SPACES = frozenset({"shared", "shared::cta", "shared::cluster"})
_MODIFIERS = _SPACES | {"release", "acquire", "relaxed", "cta", "cluster", "layout::v0"}


def bind_mbarrier(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """mbarrier, of any kind."""
    kind, *flags = counted(instruction.ptx.flags, 1, MANY)
    counts, bind = chosen(_KINDS, kind)
    require(len(instruction.ptx.operands) in counts)
    return bind(instruction, flags, binding)


def _access(
    instruction: FlatInstruction,
    operand: Operand,
    flags: list[str],
    binding: Binding,
    order: MemoryOrder,
    action: str = "atomic",
) -> Access:
    require(_MODIFIERS.issuperset(flags))
    if order != WEAK:
        order = RELAXED if "relaxed" in flags else order
        order = order._replace(for_block="cta" in flags)
    space = "generic" if _SPACES.isdisjoint(flags) else "shared"
    near = space == "shared" and "shared::cluster" not in flags
    return object_access(instruction, operand, space, binding, order=order, action=action)._replace(near=near)


def _values(part: AccessPart, source: SourceOperand) -> Array:
    """A register's values in the threads of a part, as int64."""
    wide: Array = source.read(part.batch).astype(np.int64)
    return np.broadcast_to(wide, len(part.indices)) if wide.size == 1 else wide[part.positions]


def _spread(part: AccessPart, values: Array, fill: int) -> Array:
    """Values of the threads of a part as values of all active threads."""
    positions, count = part.positions, part.batch.count()
    assert positions is not None
    if len(positions) == count and (positions[1:] > positions[:-1]).all():
        return values
    result = np.full(count, fill, values.dtype)
    result[positions] = values
    return result


def _bind_init(instruction: FlatInstruction, flags: list[str], binding: Binding) -> InstructionStep:
    address, count = instruction.ptx.operands
    access = _access(instruction, address, flags, binding, WEAK, "write")._replace(near=True)
    source = binding.source(count, "u32")

    def step(batch: Batch) -> None:
        part = _find(batch, access)
        counts = _values(part, source)
        good = (counts >= 1) & (counts <= MAX_COUNT)
        if not good.all():
            wrong = f"is to wait for {counts[~good][0]} arrivals. It takes 1 to {MAX_COUNT}"
            _report_misuse(_only(part, ~good), wrong)
            part, counts = _only(part, good), counts[good]
        touch(part)
        batch.shared.views[8][part.indices] = fresh(counts)
        batch.shared.shadows[8][part.indices] = WRITTEN[8]
        barriers(batch).cluster.note_inits(batch.numbers(part.positions), part.indices)

    return step


def _bind_inval(instruction: FlatInstruction, flags: list[str], binding: Binding) -> InstructionStep:
    access = _access(instruction, instruction.ptx.operands[0], flags, binding, WEAK, "write")
    access = access._replace(near=True)

    def step(batch: Batch) -> None:
        part = _find_objects(batch, access)
        if not batch.launch.decoded.location_of.is_library(instruction):
            touch(part)  # cuda::pipeline's last thread has counted its warp's others by match.sync alone
        batch.shared.views[8][part.indices] = 0
        batch.shared.shadows[8][part.indices] = 0

    return step


def _bind_arrive(instruction: FlatInstruction, flags: list[str], binding: Binding) -> InstructionStep:
    """arrive and arrive_drop; the third operand counts arrivals, or with .expect_tx bytes."""
    state, address, *counted = instruction.ptx.operands
    drops = instruction.ptx.flags[0] == "arrive_drop"
    form = flags.pop(0) if flags and flags[0] in ("expect_tx", "noComplete") else ""
    access = _access(instruction, address, flags, binding, ARRIVES)
    require(not form or bool(counted))
    source = binding.source(counted[0], "u32") if counted else None
    target = None if isinstance(state, Sink) else binding.destination(state)
    require(target is None or "shared::cluster" not in flags)  # the state of another block's is not given
    require(target is None or target.dtype == np.uint64)

    def step(batch: Batch) -> None:
        part = _find_objects(batch, access)
        number = 1 if source is None else _values(part, source)
        arrivals = 1 if form == "expect_tx" else number
        tx = number if form == "expect_tx" else 0
        seen = _change(part, arrivals, arrivals if drops else 0, tx)
        last = unpack(seen).pending <= arrivals
        if form == "noComplete" and last.any():
            what = "must not complete its phase by an arrival with .noComplete. Use arrive without it"
            _report_misuse(_only(part, last), what)
        if target is not None:
            batch.write(target.slot, _spread(part, seen, 0))

    return step


def _bind_transactions(instruction: FlatInstruction, flags: list[str], binding: Binding) -> InstructionStep:
    address, count = instruction.ptx.operands
    access = _access(instruction, address, flags, binding, RELAXED)
    source = binding.source(count, "u32")
    sign = 1 if instruction.ptx.flags[0] == "expect_tx" else -1

    def step(batch: Batch) -> None:
        part = _find_objects(batch, access)
        _change(part, tx=sign * _values(part, source))

    return step


def _bind_wait(instruction: FlatInstruction, flags: list[str], binding: Binding) -> InstructionStep:
    """test_wait and try_wait: whether the phase of a state, or of a parity, is over."""
    done, address, phase = instruction.ptx.operands[:3]  # a hint of how long to wait may follow
    by_parity = flags[:1] == ["parity"]
    require("shared::cluster" not in flags)
    access = _access(instruction, address, flags[1:] if by_parity else flags, binding, WAITS)._replace(
        near=True
    )
    source = binding.source(phase, "u32" if by_parity else "b64")
    target = binding.destination(done)

    def step(batch: Batch) -> None:
        batch.watch(instruction)
        part = _find_objects(batch, access)
        value = _values(part, source)
        waited = value & 1 if by_parity else unpack(value.astype(np.uint64)).parity
        over = unpack(part.view[part.indices]).parity != waited
        if not over.all():  # copies of a later phase land for the threads that wait for it alone
            _settle(batch, part.indices[~over], access)
            over = unpack(part.view[part.indices]).parity != waited
            if not over.all():
                batch.lacking = partial(_lacking, _only(part, ~over))
        touch(_only(part, over))
        target.write(batch, _spread(part, over, True))

    return step


def _lacking(part: AccessPart) -> str:
    """Return what the phases lack that some threads of the first block wait for, as sentences."""
    pitch, first = part.batch.shared.pitch, int(part.indices.min()) * 8 // part.batch.shared.pitch
    text = ""
    for index in np.unique(part.indices[part.indices * 8 // pitch == first]).tolist():
        parity, _, pending, tx = (int(field[0]) for field in unpack(part.view[index : index + 1]))
        name = part.batch.launch.decoded.layout.variable_before("shared", index * 8 % pitch)
        lacks = [f"{pending} arrival{'s' * (pending != 1)}"] if pending else []
        if tx:
            lacks.append(f"{tx} bytes of copies" if tx > 0 else f"an expect_tx of {-tx} bytes that have come")
        text += f"The mbarrier at byte {index * 8 % pitch}{f' (`{name}`)' if name else ''}, in its phase of "
        text += f"parity {parity}, lacks {' and '.join(lacks)}. "
    return text


def _bind_pending_count(instruction: FlatInstruction, flags: list[str], binding: Binding) -> InstructionStep:
    count, state = instruction.ptx.operands
    require(flags in ([], ["layout::v0"]))
    target = binding.destination(count)
    source = binding.source(state, "b64")

    return lambda batch: target.write(batch, unpack(batch.read(source.slot)).pending)


# By the first modifier: how many operands there may be, and what binds them.
_KINDS: Mapping[
    str, tuple[tuple[int, ...], Callable[[FlatInstruction, list[str], Binding], InstructionStep]]
] = {
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


# mbarrier objects in shared memory: found, checked, changed, and settled.


# Without a scope PTX says .cta, also for a barrier of another block: CUTLASS's pipelines release stages by
# such arrivals, so what names no scope counts as .cluster.
ARRIVES = MemoryOrder(strong=True, release=True, scope="cluster")
WAITS = MemoryOrder(strong=True, acquire=True, scope="cluster")
RELAXED = MemoryOrder(strong=True, scope="cluster")


def object_access(
    instruction: FlatInstruction,
    operand: Operand,
    space: str,
    binding: Binding,
    *,
    order: MemoryOrder = WEAK,
    action: str = "atomic",
    size: int = 8,
) -> Access:
    """The access that an instruction makes to an mbarrier, or to other bytes that copies move.

    Args:
        order, action: The memory ordering, and "read", "write" or "atomic".
        size: Bytes of each thread.
    """
    slot, offset, space = binding.address(operand, space)
    width = min(size, 8)
    return Access(
        binding.next_access(), instruction, space, slot, offset, width, size // width, action, order
    )


def _only(part: AccessPart, mask: Array) -> AccessPart:
    """The same, of some of its threads."""
    assert part.positions is not None
    return part._replace(indices=part.indices[mask], positions=part.positions[mask])


def _find(batch: Batch, access: Access) -> AccessPart:
    """Return the threads that reach shared memory; the others are reported."""
    positions = objects = np.zeros(0, np.int64)
    for part in resolve(batch, access):
        if part.view is batch.shared.views[8]:
            objects = np.append(objects, part.spread())
            where = np.arange(batch.count()) if part.positions is None else part.positions
            positions = np.append(positions, where)
        else:
            _report_misuse(part, "is not in shared memory. An mbarrier has to lie there")
    return shared_part(batch, access, objects, positions)


def _find_objects(batch: Batch, access: Access) -> AccessPart:
    """Return the threads that name an mbarrier; the others are reported."""
    part = _find(batch, access)
    words = part.view[part.indices]
    good = (batch.shared.shadows[8][part.indices] == WRITTEN[8]) & (words >> np.uint64(62) == _OBJECT)
    if good.all():
        return part
    wrong = _only(part, ~good)
    byte = int(wrong.indices[0]) * 8 % batch.shared.pitch
    name = batch.launch.decoded.layout.variable_before("shared", byte)
    shown = f"`{name}`" if name else f"byte {byte} of shared memory"
    message = (
        f"{shown} is used as an mbarrier, but no mbarrier.init made it one, or it was overwritten or "
        "invalidated since. Let one thread init() it, then __syncthreads(), before any thread uses it."
    )
    threads = batch.numbers(wrong.positions)
    batch.report("uninitialized-read", access.instruction, threads, message, address_of=name)
    return _only(part, good)


def touch(part: AccessPart) -> None:
    """Check an access to mbarriers; every one goes through here."""
    if not len(part.indices):
        return
    for check in part.batch.on.mbarrier:
        check(part)


def _change(part: AccessPart, arrive: Array | int = 0, drop: Array | int = 0, tx: Array | int = 0) -> Array:
    """Arrive, expect or complete: each thread at its object; the words that they found."""
    touch(part)
    part.batch.launch.progress += 1
    seen, refused = advance(part.view, part.indices, arrive=arrive, drop=drop, tx=tx)
    if refused.any():
        limit = f"the phase waits for {int(unpack(seen[refused][:1]).pending[0])}"
        what = (
            f"gets more arrivals, or bytes of transactions, than it can count: {limit}. Initialise it with "
            "the number of arrivals of one phase, and let each thread wait before it arrives again"
        )
        _report_misuse(_only(part, refused), what)
    return seen


def signal(
    batch: Batch,
    access: Access,
    *,
    copy: int | None = None,
    tx_bytes: int = 0,
    beside: AccessPart | None = None,
) -> AccessPart:
    """Note that the active threads' mbarriers are updated once copies have landed; return these mbarriers.

    Args:
        copy: The serial number of the one copy that is tracked; None: all of the threads' copies so far.
        tx_bytes: Completed transactions; 0: an arrival.
        beside: What the copy writes, in whose block the mbarrier has to be.
    """
    part, flight = _find_objects(batch, access), in_flight(batch)
    if beside is not None and batch.shape.cluster_blocks > 1:
        blocks, threads = np.full(batch.threads, -1), batch.numbers(part.positions)
        blocks[batch.numbers(beside.positions)] = beside.indices * beside.access.width // batch.shared.pitch
        apart = blocks[threads] != part.indices * 8 // batch.shared.pitch
        if (apart := apart & (blocks[threads] >= 0)).any():
            what = "is in another block than what is written. Both have to be in the same: map both by mapa"
            _report_misuse(_only(part, apart), what)
            part = _only(part, ~apart)
    flight.signals.append(
        CopySignal(
            access=access,
            threads=batch.numbers(part.positions),
            objects=part.indices,
            serial=flight.serial,
            copy=copy,
            tx_bytes=tx_bytes,
        )
    )
    return part


_FIRST_TRIES = 2
"""Tries of each wait in a launch that come before the copy has landed, so that one must try again."""


def _settle(batch: Batch, objects: Array, access: Access) -> None:
    """Land the copies that some mbarriers track, unless a wait first tries; update the mbarriers."""
    flight, tries = batch.find(CopiesInFlight), batch.launch.tries
    if flight is None or not flight.signals:
        return
    if tries[access.number] < _FIRST_TRIES and any(np.isin(s.objects, objects).any() for s in flight.signals):
        tries[access.number] += 1
        batch.launch.progress += 1
        return
    view = batch.shared.views[8]
    phases = dict(zip(objects.tolist(), unpack(view[objects]).parity.tolist(), strict=True))
    for group in _together(flight.due(objects)):
        access, tx_bytes = group[0].access, group[0].tx_bytes
        at, threads = (
            np.concatenate([getattr(each, name) for each in group]) for name in ("objects", "threads")
        )
        # What a phase does not wait for may land later, and does.
        state, earlier = unpack(view[at]), _earlier(at)
        waits = (state.pending > 0) | (earlier * tx_bytes < state.tx)
        if not tx_bytes:
            waits = (earlier < state.pending) | (state.tx > 0)
        is_open = waits & (state.parity == np.array([phases[each] for each in at.tolist()]))
        ends = np.cumsum([len(each.threads) for each in group])
        for signaled, mask in zip(group, np.split(is_open, ends[:-1]), strict=True):
            if not mask.all():
                flight.signals.append(of_threads(signaled, ~mask))
            if mask.any():
                flight.complete(of_threads(signaled, mask))
        if not is_open.any():
            continue
        at, threads = at[is_open], threads[is_open]
        ascending = np.argsort(threads, kind="stable")
        with active_threads(batch, threads[ascending]):
            part = shared_part(batch, access, at[ascending], np.arange(len(at)))
            _change(part, 0 if tx_bytes else 1, tx=-tx_bytes)


def _together(signals: Sequence[CopySignal]) -> list[list[CopySignal]]:
    """Signals in groups of one instruction each; those of one mbarrier are in groups in their order."""
    groups: dict[tuple[int, int, int], list[CopySignal]] = {}
    counts: dict[int, int] = {}
    for each in signals:
        objects = set(each.objects.tolist())
        turn = max(counts.get(at, 0) for at in objects)
        counts.update(dict.fromkeys(objects, turn + 1))
        groups.setdefault((turn, each.access.number, each.tx_bytes), []).append(each)
    return [groups[key] for key in sorted(groups, key=lambda key: key[0])]


def _earlier(objects: Array) -> Array:
    """Return for each thread how many threads before it have the same object."""
    order = np.argsort(objects, kind="stable")
    ordered = objects[order]
    earlier = np.empty(len(objects), np.int64)
    earlier[order] = np.arange(len(objects)) - np.searchsorted(ordered, ordered)
    return earlier


def _report_misuse(part: AccessPart, what: str) -> None:
    batch, instruction = part.batch, part.access.instruction
    message = f"an mbarrier in `{instruction.ptx.text}` {what}."
    batch.report("barrier", instruction, batch.numbers(part.positions), message)


# The arithmetic of mbarrier objects: phases, arrivals and transactions in one 64-bit word.
#
# A phase ends when no arrival is pending and no transaction is outstanding; the next one then expects the
# same number of arrivals. PTX leaves the layout of the word open. Here it is:
#
#     bits  0 to 19   arrivals that the phase still waits for
#     bits 20 to 39   arrivals that each phase expects
#     bits 40 to 60   bytes of transactions outstanding, in two's complement
#     bit  61         the phase's parity
#     bits 62 to 63   10, which distinguishes an object from other bytes
#
# Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier" (contents of the
# object; its phase; arrive-on, expect-tx and complete-tx operations).


MAX_COUNT = (1 << 20) - 1
_TX_BITS = 21
_TX_SIGN = 1 << (_TX_BITS - 1)
_OBJECT = 0b10


class PhaseState(NamedTuple):
    """Objects, field by field; each an array of int64."""

    parity: Array
    expected: Array
    pending: Array
    tx: Array


def _pack(state: PhaseState) -> Array:
    """States as words."""
    tx = state.tx & ((1 << _TX_BITS) - 1)
    low: Array = state.pending | state.expected << 20 | tx << 40 | state.parity << 61
    return low.astype(np.uint64) | np.uint64(_OBJECT << 62)


def unpack(words: Array) -> PhaseState:
    """Words as states."""

    def field(first: int, bits: int) -> Array:
        part: Array = words >> np.uint64(first) & np.uint64((1 << bits) - 1)
        return part.astype(np.int64)

    tx = field(40, _TX_BITS)
    return PhaseState(
        parity=field(61, 1),
        expected=field(20, 20),
        pending=field(0, 20),
        tx=(tx ^ _TX_SIGN) - _TX_SIGN,
    )


def fresh(count: Array) -> Array:
    """Objects in their first phase, which expects `count` arrivals."""
    count = count.astype(np.int64)
    return _pack(PhaseState(np.zeros_like(count), count, count, np.zeros_like(count)))


def advance(
    view: Array, index: Array, *, arrive: Array | int = 0, drop: Array | int = 0, tx: Array | int = 0
) -> tuple[Array, Array]:
    """Apply changes of many threads, one after the other where they share an object.

    Args:
        view, index: Words, which are updated, and for each thread its word.
        arrive, drop: Arrivals, of all threads or by thread, and those that later phases do not expect.
        tx: Bytes of transactions: expected above 0, completed below.

    Returns:
        For each thread the word that it found, and whether it was refused because the phase does
        not wait for so many arrivals, or cannot count so many bytes.
    """
    count = len(index)
    order = np.argsort(index, kind="stable")
    cells, starts = np.unique(index[order], return_index=True)
    owner = np.repeat(np.arange(len(cells)), np.diff(np.append(starts, count)))
    changes = [np.broadcast_to(np.asarray(c, np.int64), count)[order] for c in (arrive, drop, tx)]
    sums = np.stack([np.append(0, np.cumsum(change)) for change in changes])
    state, found, refused = _in_turn(unpack(view[cells]), starts, owner, sums)
    view[cells] = _pack(state)
    seen, bad = np.empty(count, np.uint64), np.empty(count, bool)
    seen[order], bad[order] = found, refused
    return seen, bad


def _in_turn(state: PhaseState, starts: Array, owner: Array, sums: Array) -> tuple[PhaseState, Array, Array]:
    """Apply changes by phases: in each round, all threads that the present phase takes in.

    Args:
        sums: Running sums of arrivals, drops and transactions over the threads in their order, from 0.
    """
    count = len(owner)
    indices, at = np.arange(count), starts
    ends = np.append(starts[1:], count)
    found, refused = np.zeros(count, np.uint64), np.zeros(count, bool)
    while (at < ends).any():
        reach = _reach(state, at, ends, sums)
        stuck = (reach == at) & (at < ends)
        arrived, dropped, tx = sums[:, reach] - sums[:, at]
        after = PhaseState(state.parity, state.expected - dropped, state.pending - arrived, state.tx + tx)
        stuck |= np.abs(after.tx) > MAX_COUNT
        reach = np.where(stuck, at + 1, reach)
        here = indices[(indices >= at[owner]) & (indices < reach[owner])]
        mine = owner[here]
        before = state.pending[mine] - (sums[0, here] - sums[0, at[mine]])
        found[here] = _pack(PhaseState(state.parity[mine], state.expected[mine], before, state.tx[mine]))
        refused[here] = stuck[mine]
        # The next phase begins where nothing is pending any more.
        done = (after.pending == 0) & (after.tx == 0)
        pending = np.where(done, after.expected, after.pending)
        after = after._replace(parity=after.parity ^ done, pending=pending)
        unchanged = stuck | (at == ends)
        state = PhaseState(*[np.where(unchanged, old, new) for old, new in zip(state, after, strict=True)])
        at = reach
    return state, found, refused


def _reach(state: PhaseState, at: Array, ends: Array, sums: Array) -> Array:
    """The thread, for each object, before which its present phase ends: at most the last."""
    taken: Array = np.searchsorted(sums[0, 1:], sums[0, at] + state.pending, side="right")
    following = np.minimum(at + 1, ends)
    arrives = sums[0, following] > sums[0, at]
    return np.where(arrives, np.minimum(taken, ends), following)
