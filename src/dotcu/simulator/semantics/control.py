"""Control flow: how a basic block ends, and guards on single instructions.

Source: PTX ISA, "Control Flow Instructions", "Predicated Execution".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.counting.traffic import common_warps
from dotcu.simulator.decoding.basic_blocks import EXIT
from dotcu.simulator.decoding.inlining import FlatInstruction
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.machine.shape import Array, Lanes
from dotcu.simulator.semantics.table import NotExecuted, Step

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding


def send_lanes(chunk: Chunk, target: int, lanes: Lanes | None) -> None:
    """Send lanes to a basic block, or out.

    Args:
        chunk: The blocks that run together; its active lanes take part.
        target: The basic block, or EXIT.
        lanes: The lanes; None for all of the chunk.
    """
    if target != EXIT:
        chunk.send(target, lanes)
    elif lanes is None or len(lanes):
        chunk.leave(lanes)


def jump(target: int) -> Step:
    """All active lanes go to one block."""

    def end(chunk: Chunk) -> None:
        send_lanes(chunk, target, chunk.active)

    return end


def branch(slot: int, negated: bool, ways: tuple[int, int], placed: FlatInstruction, number: int) -> Step:
    """Lanes where the predicate holds go the first way, the others the second; splits are counted.

    Args:
        slot: The register of the predicate.
        negated: True for a predicate under `!`.
        ways: The basic blocks if the predicate holds, and if not.
        placed: The instruction.
        number: The number of the instruction in counts.
    """
    target, through = reversed(ways) if negated else ways

    def end(chunk: Chunk) -> None:
        active = chunk.active
        taken = chunk.read(slot)
        if taken.size == 1 or taken.all():
            send_lanes(chunk, target if taken[0] else through, active)
        elif not taken.any():
            send_lanes(chunk, through, active)
        else:
            if active is None:
                there, here = np.flatnonzero(taken), np.flatnonzero(~taken)
            else:
                there, here = active[taken], active[~taken]
            chunk.grid.traffic.split(number, placed, common_warps(there, here))
            send_lanes(chunk, target, there)
            send_lanes(chunk, through, here)

    return end


def table_branch(slot: int, targets: tuple[int, ...], placed: FlatInstruction, number: int) -> Step:
    """brx.idx: each lane goes to the block that its index names.

    Args:
        slot: The register of the index.
        targets: The basic blocks by index.
        placed: The instruction.
        number: The number of the instruction in counts.
    """

    def end(chunk: Chunk) -> None:
        index = chunk.read(slot)
        lanes = chunk.numbers()
        if index.size == 1:
            send_lanes(chunk, targets[min(int(index[0]), len(targets) - 1)], chunk.active)
            return
        clipped = np.minimum(index, len(targets) - 1)
        groups = [(targets[choice], lanes[clipped == choice]) for choice in np.unique(clipped).tolist()]
        chunk.grid.traffic.split(number, placed, common_warps(*(there for _, there in groups)))
        for target, there in groups:
            send_lanes(chunk, target, there)

    return end


def guarded(step: Step, slot: int, negated: bool, placed: FlatInstruction, number: int) -> Step:
    """The step, run only in lanes where the predicate holds; the other lanes are counted.

    Args:
        step: The step of the instruction.
        slot: The register of the predicate.
        negated: True for a predicate under `!`.
        placed: The instruction.
        number: The number of the instruction in counts.
    """

    def run(chunk: Chunk) -> None:
        holds = chunk.read(slot)
        if holds.size == 1:
            if bool(holds[0]) != negated:
                step(chunk)
            else:
                chunk.grid.traffic.skip(number, placed, chunk.count())
            return
        if negated:
            holds = ~holds
        running = int(np.count_nonzero(holds))
        if running == len(holds):
            step(chunk)
            return
        chunk.grid.traffic.skip(number, placed, len(holds) - running)
        if running:
            whole = chunk.active
            chunk.active = np.flatnonzero(holds) if whole is None else whole[holds]
            step(chunk)
            chunk.active = whole

    return run


def barrier(placed: FlatInstruction, resume: int, binding: Binding, guard: int, negated: bool) -> Step:
    """bar and barrier: the active lanes wait for their block, and go on at `resume`.

    Args:
        placed: The instruction.
        resume: The basic block that follows.
        binding: Finds the registers of operands.
        guard: The register of the predicate; -1 without one.
        negated: True for a predicate under `!`.

    Source: PTX ISA, "Parallel Synchronization and Communication Instructions: bar".
    """
    instruction = placed.instruction
    kind = [f for f in instruction.flags if f not in ("cta", "aligned")]
    if kind[:1] == ["red"] and guard < 0:
        return _reduction(placed, kind[1:], resume, binding)
    number, *counts = [binding.source(operand, "u32").slot for operand in instruction.operands]
    if kind not in (["sync"], ["arrive"]) or len(counts) not in ((0, 1) if kind == ["sync"] else (1,)):
        raise NotExecuted

    def wait(chunk: Chunk) -> None:
        barriers = chunk.barriers
        if kind == ["sync"]:
            expected = chunk.read(counts[0]).astype(np.int64) if counts else None
            barriers.wait(placed, resume, chunk.read(number), expected)
        else:
            send_lanes(chunk, resume, chunk.active)
            barriers.arrive(chunk.read(number))

    if guard < 0:
        return wait

    def end(chunk: Chunk) -> None:
        lanes = chunk.numbers()
        holds = np.broadcast_to(chunk.read(guard) ^ negated, lanes.shape)
        send_lanes(chunk, resume, lanes[~holds])
        chunk.active = lanes[holds]
        if len(chunk.active):
            wait(chunk)

    return end


# How many said yes, and how many there were, to the result.
_REDUCTIONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "popc": lambda yes, everyone: yes.astype(np.uint32),
    "and": lambda yes, everyone: yes == everyone,
    "or": lambda yes, everyone: yes > 0,
}


def _reduction(placed: FlatInstruction, kind: list[str], resume: int, binding: Binding) -> Step:
    """Bind bar.red: a barrier after which all threads know how many of them, or whether all or any, agree."""
    (name,) = kind
    reduce = _REDUCTIONS[name]
    to, *given, predicate = placed.instruction.operands
    target, vote = binding.destination(to), binding.source(predicate, "pred")
    number, *counts = [binding.source(operand, "u32").slot for operand in given]
    if len(counts) > 1:
        raise NotExecuted

    def end(chunk: Chunk) -> None:
        def finish(lanes: Lanes, yes: Array, everyone: Array) -> None:
            chunk.active = lanes
            target.write(chunk, reduce(yes, everyone))

        expected = chunk.read(counts[0]).astype(np.int64) if counts else None
        chunk.barriers.wait(placed, resume, chunk.read(number), expected, vote.read(chunk), finish)

    return end
