"""Instructions in which the lanes of a warp take part together.

Each is a rendezvous: a lane waits until every living lane that its member mask names stands
at the same instruction. Only then does any of them go on.

Source: PTX ISA, "Data Movement and Conversion Instructions: shfl.sync", "Parallel
Synchronization and Communication Instructions: vote.sync, match.sync, redux.sync, activemask,
elect.sync, bar.warp.sync".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dotcu.ptx.instructions import Operand, Pair, Sink
from dotcu.simulator.decoding.inlining import FlatInstruction
from dotcu.simulator.machine.chunk import Chunk, pack_bits
from dotcu.simulator.machine.shape import WARP, Array
from dotcu.simulator.semantics.table import DestinationOperand, NotExecuted, Step, dtype_of

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding

_LANES = np.arange(WARP, dtype=np.uint32)
_BITS = np.uint32(1) << _LANES


class Rendezvous(NamedTuple):
    """A step, and who has to be there for it.

    Attributes:
        mask: The register or constant that holds the member mask.
    """

    step: Step
    placed: FlatInstruction
    mask: int

    def admit(self, number: int) -> Callable[[Chunk], bool]:
        """Return the function that admits lanes to the basic block of that number."""
        placed, slot = self.placed, self.mask

        def admit(chunk: Chunk) -> bool:
            active = chunk.active
            if active is None:
                mask = chunk.registers[slot]
                if mask.size == 1 and mask[0] == 0xFFFFFFFF:
                    chunk.clocks.hand_on(None, mask)
                    return True
            if not _gather(chunk, placed, number, chunk.read(slot)):
                return False
            chunk.clocks.hand_on(chunk.active, chunk.read(slot))
            return True

        return admit


def _gather(chunk: Chunk, placed: FlatInstruction, number: int, mask: Array) -> bool:
    """Keep back lanes whose mask names living lanes that are elsewhere; whether any go on."""
    lanes = chunk.numbers()
    warps = lanes // WARP
    here = chunk.warp_bits(chunk.active)[warps]
    living = pack_bits(chunk.live)[warps]
    outside = (mask & _BITS[lanes % WARP]) == 0
    if outside.any():
        message = (
            "a thread executes this with a member mask that does not name it. "
            "The mask has to name every thread that takes part: 0xffffffff, or __activemask() before "
            "the condition."
        )
        chunk.report("barrier", placed, lanes[outside], message)
    absent = (mask & living & ~here) != 0
    if absent.any():
        chunk.stall(number, lanes[absent])
        chunk.active = lanes[~absent]
        return bool(len(chunk.active))
    return True


# Rows of 32: a value for every lane of every warp


def _rows(chunk: Chunk, value: Array, fill: int = 0) -> Array:
    """The active lanes' values as rows of warps, the other lanes filled."""
    if value.size == chunk.lanes:
        return value.reshape(-1, WARP)
    if chunk.active is None:
        return np.broadcast_to(value, chunk.lanes).reshape(-1, WARP)
    spread = np.full(chunk.lanes, fill, value.dtype)
    spread[chunk.active] = value
    return spread.reshape(-1, WARP)


def _given_back(chunk: Chunk, slot: int, values: Array) -> None:
    """Write rows of warps to the active lanes."""
    flat = values.reshape(-1)
    chunk.write(slot, flat if chunk.active is None else flat[chunk.active])


def _members(placed: FlatInstruction, binding: Binding) -> int:
    source = binding.source(placed.instruction.operands[-1], "u32")
    if source.adapt is not None:
        raise NotExecuted
    return source.slot


def _word(destination: DestinationOperand) -> DestinationOperand:
    """A destination of 32 bits."""
    if destination.dtype.itemsize != 4:
        raise NotExecuted
    return destination


# shfl


def bind_shfl(placed: FlatInstruction, binding: Binding) -> Rendezvous:
    """shfl.sync: each lane reads a register of another lane of its segment."""
    instruction = placed.instruction
    mode = next((f for f in instruction.flags if f in _SHUFFLES), "")
    if "sync" not in instruction.flags or not mode or len(instruction.operands) != 5:
        raise NotExecuted
    target, inside = _both(instruction.operands[0], binding)
    _word(target)
    a, b, c = [binding.source(o, "u32") for o in instruction.operands[1:4]]
    move = _SHUFFLES[mode]

    def step(chunk: Chunk) -> None:
        value = _rows(chunk, a.read(chunk))
        offset, control = b.read(chunk), c.read(chunk)
        if offset.size == control.size == 1:  # every warp does the same
            source, holds = _sources(move, offset, control)
            result = value[:, source]
        else:
            source, holds = _sources(move, _rows(chunk, offset), _rows(chunk, control))
            result = np.take_along_axis(value, source, axis=1)
        _given_back(chunk, target.slot, result.view(target.dtype))
        if inside is not None:
            _given_back(chunk, inside.slot, np.broadcast_to(holds, result.shape))

    return Rendezvous(step, placed, _members(placed, binding))


def _sources(
    move: Callable[[Array, Array], tuple[Array, Array]], offset: Array, control: Array
) -> tuple[Array, Array]:
    """The lane that each lane reads: itself where it would read outside its segment; and where not."""
    source, holds = move(offset & np.uint32(31), control)
    return np.where(holds, source, _LANES).astype(np.int64), holds


def _both(operand: Operand, binding: Binding) -> tuple[DestinationOperand, DestinationOperand | None]:
    if not isinstance(operand, Pair):
        return binding.destination(operand), None
    second = None if isinstance(operand.second, Sink) else binding.destination(operand.second)
    return binding.destination(operand.first), second


def _segment(control: Array) -> tuple[Array, Array]:
    """The lowest and highest lane that a lane's segment and clamp allow."""
    clamp, segments = control & np.uint32(31), (control >> np.uint32(8)) & np.uint32(31)
    lowest = _LANES & segments
    return lowest, lowest | (clamp & ~segments)


def _up(offset: Array, control: Array) -> tuple[Array, Array]:
    _, highest = _segment(control)
    source = _LANES.astype(np.int64) - offset
    return source, source >= highest


def _down(offset: Array, control: Array) -> tuple[Array, Array]:
    _, highest = _segment(control)
    source = _LANES + offset
    return source, source <= highest


def _butterfly(offset: Array, control: Array) -> tuple[Array, Array]:
    _, highest = _segment(control)
    source = _LANES ^ offset
    return source, source <= highest


def _indexed(offset: Array, control: Array) -> tuple[Array, Array]:
    lowest, highest = _segment(control)
    segments = (control >> np.uint32(8)) & np.uint32(31)
    source = lowest | (offset & ~segments)
    return source, source <= highest


_SHUFFLES: Mapping[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "up": _up,
    "down": _down,
    "bfly": _butterfly,
    "idx": _indexed,
}


# vote, match, redux


def _named(chunk: Chunk, mask: Array) -> Array:
    """For each lane of each warp, the member mask as 32 booleans: rows of warps, lanes, members."""
    present = _rows(chunk, np.ones(1 if chunk.active is None else len(chunk.active), bool))
    masks = _rows(chunk, mask)
    return ((masks[:, :, None] & _BITS) != 0) & present[:, None, :]


def bind_vote(placed: FlatInstruction, binding: Binding) -> Rendezvous:
    """vote.sync: all, any, uni or ballot of a predicate."""
    instruction = placed.instruction
    mode = next((f for f in instruction.flags if f in ("all", "any", "uni", "ballot")), "")
    if "sync" not in instruction.flags or not mode or len(instruction.operands) != 3:
        raise NotExecuted
    target = binding.destination(instruction.operands[0])
    source = binding.source(instruction.operands[1], "pred")
    members = _members(placed, binding)

    def step(chunk: Chunk) -> None:
        mask = chunk.read(members)
        present = _rows(chunk, np.ones(1 if chunk.active is None else len(chunk.active), bool))
        yes = _rows(chunk, source.read(chunk)) & present
        ballot = pack_bits(np.ascontiguousarray(yes))[:, None]
        here = pack_bits(np.ascontiguousarray(present))[:, None]
        named = _rows(chunk, mask)
        votes, voters = ballot & named, here & named
        if mode == "ballot":
            result: Array = votes
        elif mode == "all":
            result = votes == voters
        elif mode == "any":
            result = votes != 0
        else:
            result = (votes == voters) | (votes == 0)
        _given_back(chunk, target.slot, result)

    return Rendezvous(step, placed, members)


def bind_match(placed: FlatInstruction, binding: Binding) -> Rendezvous:
    """match.sync: which members hold the same value."""
    instruction = placed.instruction
    everyone = "all" in instruction.flags
    if "sync" not in instruction.flags or everyone == ("any" in instruction.flags):
        raise NotExecuted
    target, same = _both(instruction.operands[0], binding)
    source = binding.source(instruction.operands[1], instruction.types[0].replace("b", "u"))
    members = _members(placed, binding)

    def step(chunk: Chunk) -> None:
        value = _rows(chunk, source.read(chunk))
        named = _named(chunk, chunk.read(members))
        equal = (value[:, :, None] == value[:, None, :]) & named
        bits = np.packbits(equal, axis=-1, bitorder="little").view(np.uint32)[..., 0]
        if everyone:
            agreed = (equal == named).all(axis=-1)
            bits = np.where(agreed, bits, np.uint32(0))
            if same is not None:
                _given_back(chunk, same.slot, agreed)
        _given_back(chunk, target.slot, bits)

    return Rendezvous(step, placed, members)


_REDUCE: Mapping[str, tuple[np.ufunc, Callable[[np.dtype[np.int32]], int]]] = {
    "add": (np.add, lambda t: 0),
    "and": (np.bitwise_and, lambda t: int(np.iinfo(t).max) if t.kind == "u" else -1),
    "or": (np.bitwise_or, lambda t: 0),
    "xor": (np.bitwise_xor, lambda t: 0),
    "min": (np.minimum, lambda t: int(np.iinfo(t).max)),
    "max": (np.maximum, lambda t: int(np.iinfo(t).min)),
}


def bind_redux(placed: FlatInstruction, binding: Binding) -> Rendezvous:
    """redux.sync: a reduction over the members."""
    instruction = placed.instruction
    mode = next((f for f in instruction.flags if f in _REDUCE), "")
    type_ = instruction.types[0]
    if not mode or type_ not in ("u32", "s32", "b32") or len(instruction.flags) != 2:
        raise NotExecuted
    dtype = dtype_of(type_)
    ufunc, neutral = _REDUCE[mode][0], dtype.type(_REDUCE[mode][1](dtype))
    target = _word(binding.destination(instruction.operands[0]))
    source = binding.source(instruction.operands[1], type_)
    members = _members(placed, binding)

    def step(chunk: Chunk) -> None:
        value = _rows(chunk, source.read(chunk))
        named = _named(chunk, chunk.read(members))
        filled = np.where(named, value[:, None, :], neutral)
        result = ufunc.reduce(filled, axis=-1, dtype=dtype)
        _given_back(chunk, target.slot, result.view(target.dtype))

    return Rendezvous(step, placed, members)


def bind_elect(placed: FlatInstruction, binding: Binding) -> Rendezvous:
    """elect.sync: the lowest member is elected."""
    target, elected = _both(placed.instruction.operands[0], binding)
    members = _members(placed, binding)

    def step(chunk: Chunk) -> None:
        named = _named(chunk, chunk.read(members))
        leader = named.argmax(axis=-1).astype(np.uint32)
        _given_back(
            chunk,
            target.slot,
            leader.view(target.dtype) if target.dtype.itemsize == 4 else leader.astype(target.dtype),
        )
        if elected is not None:
            _given_back(chunk, elected.slot, leader == _LANES)

    return Rendezvous(step, placed, members)


def bind_warp_barrier(placed: FlatInstruction, binding: Binding) -> Rendezvous:
    """bar.warp.sync: the rendezvous, and order between what its members did and will do."""
    members = _members(placed, binding)

    def step(chunk: Chunk) -> None:
        chunk.clocks.warp(chunk.active, chunk.read(members))

    return Rendezvous(step, placed, members)


def bind_activemask(placed: FlatInstruction, binding: Binding) -> Step:
    """activemask: which lanes of the warp run this instruction together."""
    target = binding.destination(placed.instruction.operands[0])

    def step(chunk: Chunk) -> None:
        bits = np.repeat(chunk.warp_bits(chunk.active), WARP)
        _given_back(chunk, target.slot, bits)

    return step


WARP_INSTRUCTIONS: Mapping[str, Callable[[FlatInstruction, Binding], Rendezvous]] = {
    "shfl": bind_shfl,
    "vote": bind_vote,
    "match": bind_match,
    "redux": bind_redux,
    "elect": bind_elect,
    "bar": bind_warp_barrier,
}
