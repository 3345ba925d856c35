"""Instructions in which the lanes of a warp take part together.

Each is a rendezvous: a lane waits until every living lane that its member mask names stands
at the same instruction. Only then does any of them go on.

Source: PTX ISA, "Data Movement and Conversion Instructions: shfl.sync", "Parallel
Synchronization and Communication Instructions: vote.sync, match.sync, redux.sync, activemask,
elect.sync, bar.warp.sync": the executing thread waits for "all non-exited threads" of the mask, and
a shuffle that reads an inactive one is undefined; so __syncwarp may name threads that have exited.
"CUDA C++ Guidelines for Robust and Safety-Critical Programming", 2.1 and 2.3: the mask of a vote, a
match or a shuffle has no thread that takes no part.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

import numpy as np

from dotcu.ptx.instructions import Instruction, Operand, Sink, Vector
from dotcu.simulator.machine.shape import WARP, Threads, merged
from dotcu.simulator.machine.state import Batch, InstructionStep, pack_bits
from dotcu.simulator.machine.undefined import HeldCheck
from dotcu.simulator.program.binding import (
    MANY,
    Binding,
    DestinationOperand,
    counted,
    dtype_of,
    only,
    require,
    vector,
)
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array

_LANES = np.arange(WARP, dtype=np.uint32)
_BITS = np.uint32(1) << _LANES


class Rendezvous(NamedTuple):
    """A step, and the threads that have to be there for it.

    Attributes:
        mask: The register or constant that holds the member mask.
        gather: Keeps back lanes that wait for more than their warp; returns whether any go on.
    """

    step: InstructionStep
    instruction: FlatInstruction
    mask: int
    gather: Callable[[Batch, FlatInstruction, int, Array], bool] | None = None

    def admit(self, number: int, guard: tuple[int, bool]) -> Callable[[Batch], bool]:
        """Return the function that admits lanes to the basic block of that number.

        Args:
            guard: The slot of the instruction's predicate, -1 without one, and whether it is negated. Threads
                where it does not hold take no part, and do not wait.
        """
        _, instruction, slot, gather = self
        predicate, negated = guard

        def admit(batch: Batch) -> bool:
            everyone = batch.active is None
            if gather is not None:
                return everyone or gather(batch, instruction, number, batch.registers[slot])
            mask = batch.registers[slot]
            if not (everyone and mask.size == 1 and mask[0] == 0xFFFFFFFF):
                if not _gather(batch, instruction, number, batch.read(slot)):
                    return False
                mask = batch.read(slot)
            batch.clocks.hand_on(batch.active, mask)
            return True

        def admit_guarded(batch: Batch) -> bool:
            lanes = batch.numbers()
            holds = np.broadcast_to(batch.read(predicate) ^ negated, lanes.shape)
            if holds.all():
                return admit(batch)
            batch.active = lanes[holds]
            takes_part = len(batch.active) > 0 and admit(batch)
            batch.active = merged(lanes[~holds], batch.numbers()) if takes_part else lanes[~holds]
            return True

        return admit if predicate < 0 else admit_guarded


def _gather(batch: Batch, instruction: FlatInstruction, number: int, mask: Array) -> bool:
    """Keep back lanes whose mask names living lanes that are elsewhere; whether any go on."""
    lanes = batch.numbers()
    warps = lanes // WARP
    here = batch.warp_bits(batch.active)[warps]
    living = pack_bits(batch.live)[warps]
    outside = (mask & _BITS[lanes % WARP]) == 0
    if outside.any():
        message = (
            "a thread executes this with a member mask that does not name it. "
            "The mask has to name every thread that takes part: 0xffffffff, or __activemask() before "
            "the condition."
        )
        batch.report("barrier", instruction, lanes[outside], message)
    if instruction.ptx.opcode in _RESULTS_OF_ALL:
        exited = pack_bits(batch.existing & ~batch.live)[warps]
        _check_members(batch, instruction, exited, np.broadcast_to(mask, lanes.shape))
    absent = (mask & living & ~here) != 0
    if absent.any():
        batch.stall(number, lanes[absent])
        batch.active = lanes[~absent]
        mask = mask if mask.size == 1 else mask[~absent]
    if mask.size > 1:
        _check_masks(batch, instruction, mask)
    return bool(len(batch.numbers()))


def _check_masks(batch: Batch, instruction: FlatInstruction, mask: Array) -> None:
    """Report lanes whose mask names a lane that passes another mask."""
    rows = _rows(batch, mask)
    present = _present(batch)
    apart = np.flatnonzero(((rows != rows.max(axis=1, keepdims=True)) & present).any(axis=1))
    if not len(apart):
        return
    rows, present = rows[apart], present[apart]
    named = ((rows[:, :, None] & _BITS) != 0) & present[:, :, None] & present[:, None, :]
    warps, lanes, others = np.nonzero(named & (rows[:, :, None] != rows[:, None, :]))
    if len(warps):
        first = rows[warps[0], lanes[0]], rows[warps[0], others[0]]
        message = (
            f"lane {lanes[0]} passes the mask {first[0]:#010x}, which names lane {others[0]}, which passes "
            f"{first[1]:#010x}. All lanes that a mask names have to pass the same one: compute it once, by "
            "__ballot_sync() before the condition, or by __match_any_sync()."
        )
        batch.report("barrier", instruction, np.unique(apart[warps] * WARP + lanes), message)


# Rows of 32: a value for every lane of every warp


def _rows(batch: Batch, value: Array, fill: int = 0) -> Array:
    """The active lanes' values as rows of warps, the other lanes filled."""
    if value.size == batch.threads:
        return value.reshape(-1, WARP)
    if batch.active is None:
        return np.broadcast_to(value, batch.threads).reshape(-1, WARP)
    spread = np.full(batch.threads, fill, value.dtype)
    spread[batch.active] = value
    return spread.reshape(-1, WARP)


def _give_back(batch: Batch, target: DestinationOperand, values: Array) -> None:
    """Write rows of warps to the active lanes."""
    flat = values.reshape(-1)
    target.write(batch, flat if batch.active is None else flat[batch.active])


RendezvousBinder = Callable[[FlatInstruction, Binding], Rendezvous]


def _of_members(bind: Callable[[FlatInstruction, Binding, int], InstructionStep]) -> RendezvousBinder:
    """Make an instruction's step a rendezvous of the lanes that its last operand names."""

    def bound(instruction: FlatInstruction, binding: Binding) -> Rendezvous:
        source = binding.source(counted(instruction.ptx.operands, 1, MANY)[-1], "u32")
        require(source.adapt is None)
        return Rendezvous(bind(instruction, binding, source.slot), instruction, source.slot)

    return bound


def _mode(ptx: Instruction, modes: Container[str]) -> str:
    """The one of some modes that an instruction names."""
    require("sync" in ptx.flags)
    return only([flag for flag in ptx.flags if flag in modes])


def _both(operand: Operand, binding: Binding) -> tuple[DestinationOperand, DestinationOperand | None]:
    """The one or the two results of an instruction."""
    if not isinstance(operand, Vector):
        return binding.destination(operand), None
    first, second = vector(operand, 2)
    return binding.destination(first), None if isinstance(second, Sink) else binding.destination(second)


def _shfl(instruction: FlatInstruction, binding: Binding, members: int) -> InstructionStep:
    """shfl.sync: each lane reads a register of another lane of its segment."""
    mode = _mode(instruction.ptx, _SHUFFLES)
    results, *operands, _ = counted(instruction.ptx.operands, 5)
    target, inside = _both(results, binding)
    require(target.dtype.itemsize == 4)
    a, b, c = [binding.source(o, "u32") for o in operands]

    def step(batch: Batch) -> None:
        value = _rows(batch, a.read(batch))
        offset, control = b.read(batch), c.read(batch)
        if offset.size == control.size == 1:  # every warp does the same
            source, holds = _sources(mode, offset, control)
            result = value[:, source]
        else:
            source, holds = _sources(mode, _rows(batch, offset), _rows(batch, control))
            result = np.take_along_axis(value, source, axis=1)
        _give_back(batch, target, result)
        mask = batch.read(members)
        if batch.active is not None or mask.size > 1 or mask[0] != 0xFFFFFFFF:
            _check_sources(batch, instruction, np.broadcast_to(source, result.shape), mask, target.slot)
        if inside is not None:
            _give_back(batch, inside, np.broadcast_to(holds, result.shape).copy())

    return step


def _check_sources(batch: Batch, instruction: FlatInstruction, source: Array, mask: Array, slot: int) -> None:
    """Hold a finding of lanes that get the value of a lane which is not there, or which their mask omits.

    Args:
        source, slot: The lane that each lane reads, and the register that gets the value.
    """
    lanes = batch.numbers()
    read = source.reshape(-1)[lanes]
    masks = np.broadcast_to(mask, lanes.shape)
    wrong = np.flatnonzero((batch.warp_bits(lanes)[lanes // WARP] & masks & _BITS[read]) == 0)
    if not len(wrong) or batch.repeats:
        return
    own, read, masks, live = lanes[wrong], read[wrong], masks[wrong], batch.live.copy()

    def report(used: Threads) -> None:
        at = int(np.searchsorted(own, used[0]))
        shown = _describe_mask(batch, live, int(used[0]), int(masks[at]))
        message = (
            f"lane {used[0] % WARP} reads from lane {read[at]}, which takes no part: {shown}. "
            f"What it gets is undefined. {_REMEDY}"
        )
        batch.report("barrier", instruction, used, message)

    check = batch.undefined.hold(HeldCheck(report, own, np.zeros(batch.threads, bool)))
    batch.undefined.put(slot, own, np.full(len(own), 0xFFFFFFFF, np.uint32), check)


def _check_members(batch: Batch, instruction: FlatInstruction, exited: Array, mask: Array) -> None:
    """Report lanes whose mask names lanes that have exited; a short last warp may name what it lacks."""
    lanes = batch.numbers()
    wrong = np.flatnonzero((mask & exited) != 0)
    if len(wrong):
        shown = _describe_mask(batch, batch.live, int(lanes[wrong[0]]), int(mask[wrong[0]]))
        message = f"{shown}. They have no say in the result. {_REMEDY}"
        batch.report("barrier", instruction, lanes[wrong], message)


_RESULTS_OF_ALL = frozenset({"vote", "match", "redux", "elect"})
_REMEDY = (
    "Let every lane that the mask names reach this: return after it, and let lanes without work pass a "
    "neutral value; or name only those that are left, by "
    "unsigned mask = __ballot_sync(0xffffffff, condition) before the others leave."
)


def _describe_mask(batch: Batch, live: Array, lane: int, mask: int) -> str:
    """Return the words for a mask, and for the lanes of it that have exited or are not there."""
    first = lane // WARP * WARP
    named = [k for k in range(WARP) if mask >> k & 1 and not live[first + k]]
    sides = [
        (f"lanes {_shown([k for k in named if batch.existing[first + k] == exists])}, which {why}", exists)
        for exists, why in ((True, "have exited"), (False, "the block does not have"))
    ]
    there = [words for words, exists in sides if any(batch.existing[first + k] == exists for k in named)]
    return f"the mask {mask:#010x} names {' and '.join(there) or 'other lanes'}"


def _shown(lanes: list[int]) -> str:
    """Return ascending lanes as ranges: `8 to 15, 31`."""
    starts = [lane for lane in lanes if lane - 1 not in lanes]
    ends = [lane for lane in lanes if lane + 1 not in lanes]
    pairs = zip(starts, ends, strict=True)
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in pairs)


def _sources(mode: str, offset: Array, control: Array) -> tuple[Array, Array]:
    """The lane that each lane reads: itself where it would read outside its segment; and where not."""
    clamp, segments = control & np.uint32(31), (control >> np.uint32(8)) & np.uint32(31)
    lowest = _LANES & segments
    limit = lowest | (clamp & ~segments)
    source = _SHUFFLES[mode](offset & np.uint32(31), lowest, segments)
    holds = source >= limit if mode == "up" else source <= limit
    return np.where(holds, source, _LANES).astype(np.int64), holds


# From the offset, the lowest lane of the segment, and the bits that name the segment.
_SHUFFLES: Mapping[str, Callable[[Array, Array, Array], Array]] = {
    "up": lambda offset, lowest, segments: _LANES.astype(np.int64) - offset,
    "down": lambda offset, lowest, segments: _LANES + offset,
    "bfly": lambda offset, lowest, segments: _LANES ^ offset,
    "idx": lambda offset, lowest, segments: lowest | (offset & ~segments),
}


def _present(batch: Batch) -> Array:
    """The active lanes as rows of warps."""
    return _rows(batch, np.ones(1 if batch.active is None else len(batch.active), bool))


def _named(batch: Batch, mask: Array) -> Array:
    """For each lane of each warp, the member mask as 32 booleans: rows of warps, lanes, members."""
    return ((_rows(batch, mask)[:, :, None] & _BITS) != 0) & _present(batch)[:, None, :]


# From the members that vote yes, and all members, both as bits.
_VOTES: Mapping[str, Callable[[Array, Array], Array]] = {
    "ballot": lambda votes, voters: votes,
    "all": lambda votes, voters: votes == voters,
    "any": lambda votes, voters: votes != 0,
    "uni": lambda votes, voters: (votes == voters) | (votes == 0),
}


def _vote(instruction: FlatInstruction, binding: Binding, members: int) -> InstructionStep:
    """vote.sync: all, any, uni or ballot of a predicate."""
    result = _VOTES[_mode(instruction.ptx, _VOTES)]
    to, predicate, _ = counted(instruction.ptx.operands, 3)
    target, source = binding.destination(to), binding.source(predicate, "pred")

    def step(batch: Batch) -> None:
        present = _present(batch)
        yes = _rows(batch, source.read(batch)) & present
        ballot = pack_bits(np.ascontiguousarray(yes))[:, None]
        here = pack_bits(np.ascontiguousarray(present))[:, None]
        named = _rows(batch, batch.read(members))
        _give_back(batch, target, result(ballot & named, here & named))

    return step


def _match(instruction: FlatInstruction, binding: Binding, members: int) -> InstructionStep:
    """match.sync: which members hold the same value."""
    ptx = instruction.ptx
    everyone = _mode(ptx, ("all", "any")) == "all"
    results, value, _ = counted(ptx.operands, 3)
    target, same = _both(results, binding)
    source = binding.source(value, only(ptx.types).replace("b", "u"))

    def step(batch: Batch) -> None:
        value = _rows(batch, source.read(batch))
        named = _named(batch, batch.read(members))
        equal = (value[:, :, None] == value[:, None, :]) & named
        bits = np.packbits(equal, axis=-1, bitorder="little").view(np.uint32)[..., 0]
        if everyone:
            agreed = (equal == named).all(axis=-1)
            bits = np.where(agreed, bits, np.uint32(0))
            if same is not None:
                _give_back(batch, same, agreed)
        _give_back(batch, target, bits)

    return step


_REDUCE: Mapping[str, tuple[np.ufunc, Callable[[np.dtype[np.int32]], int]]] = {
    "add": (np.add, lambda t: 0),
    "and": (np.bitwise_and, lambda t: int(np.iinfo(t).max) if t.kind == "u" else -1),
    "or": (np.bitwise_or, lambda t: 0),
    "xor": (np.bitwise_xor, lambda t: 0),
    "min": (np.minimum, lambda t: int(np.iinfo(t).max)),
    "max": (np.maximum, lambda t: int(np.iinfo(t).min)),
}


def _redux(instruction: FlatInstruction, binding: Binding, members: int) -> InstructionStep:
    """redux.sync: a reduction over the members."""
    ptx = instruction.ptx
    mode, type_ = _mode(ptx, _REDUCE), only(ptx.types)
    require(type_ in ("u32", "s32", "b32") and len(ptx.flags) == 2)
    dtype = dtype_of(type_)
    ufunc, neutral = _REDUCE[mode][0], dtype.type(_REDUCE[mode][1](dtype))
    to, value, _ = counted(ptx.operands, 3)
    target, source = binding.destination(to), binding.source(value, type_)
    require(target.dtype.itemsize == 4)

    def step(batch: Batch) -> None:
        value = _rows(batch, source.read(batch))
        named = _named(batch, batch.read(members))
        filled = np.where(named, value[:, None, :], neutral)
        _give_back(batch, target, ufunc.reduce(filled, axis=-1, dtype=dtype))

    return step


def _elect(instruction: FlatInstruction, binding: Binding, members: int) -> InstructionStep:
    """elect.sync: the lowest member is elected."""
    target, elected = _both(counted(instruction.ptx.operands, 2)[0], binding)

    def step(batch: Batch) -> None:
        leader = _named(batch, batch.read(members)).argmax(axis=-1).astype(np.uint32)
        _give_back(batch, target, leader)
        if elected is not None:
            _give_back(batch, elected, leader == _LANES)

    return step


def _barrier(instruction: FlatInstruction, binding: Binding, members: int) -> InstructionStep:
    """bar.warp.sync: the rendezvous, and order between what its members did and will do."""
    return lambda batch: batch.clocks.warp(batch.active, batch.read(members))


def bind_activemask(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """activemask: which lanes of the warp run this instruction together."""
    target = binding.destination(only(instruction.ptx.operands))

    return lambda batch: _give_back(batch, target, np.repeat(batch.warp_bits(batch.active), WARP))


WARP_INSTRUCTIONS: Mapping[str, RendezvousBinder] = {
    "shfl": _of_members(_shfl),
    "vote": _of_members(_vote),
    "match": _of_members(_match),
    "redux": _of_members(_redux),
    "elect": _of_members(_elect),
    "bar": _of_members(_barrier),
}
