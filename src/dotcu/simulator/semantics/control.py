"""Control flow: how a basic block ends, and guards on single instructions.

Source: PTX ISA, "Control Flow Instructions", "Predicated Execution".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.chunk import Chunk, Lanes
from dotcu.simulator.flow import EXIT
from dotcu.simulator.ptx.link import Placed
from dotcu.simulator.semantics.table import NotExecuted, Step

if TYPE_CHECKING:
    from dotcu.simulator.binding import Binding


def go(chunk: Chunk, target: int, lanes: Lanes | None) -> None:
    """Send lanes to a basic block, or out."""
    if target != EXIT:
        chunk.send(target, lanes)
    elif lanes is None or len(lanes):
        chunk.leave(lanes)


def jump(target: int) -> Step:
    """All active lanes go to one block."""

    def end(chunk: Chunk) -> None:
        go(chunk, target, chunk.active)

    return end


def branch(slot: int, negated: bool, target: int, through: int) -> Step:
    """Lanes where the predicate holds go to `target`, the others go on."""
    if negated:
        target, through = through, target

    def end(chunk: Chunk) -> None:
        active = chunk.active
        taken = chunk.read(slot)
        if taken.size == 1 or taken.all():
            go(chunk, target if taken[0] else through, active)
        elif not taken.any():
            go(chunk, through, active)
        elif active is None:
            go(chunk, target, np.flatnonzero(taken))
            go(chunk, through, np.flatnonzero(~taken))
        else:
            go(chunk, target, active[taken])
            go(chunk, through, active[~taken])

    return end


def table_branch(slot: int, targets: tuple[int, ...]) -> Step:
    """brx.idx: each lane goes to the block that its index names."""

    def end(chunk: Chunk) -> None:
        index = chunk.read(slot)
        lanes = chunk.numbers()
        if index.size == 1:
            go(chunk, targets[min(int(index[0]), len(targets) - 1)], chunk.active)
            return
        clipped = np.minimum(index, len(targets) - 1)
        for choice in np.unique(clipped).tolist():
            go(chunk, targets[choice], lanes[clipped == choice])

    return end


def guarded(step: Step, slot: int, negated: bool) -> Step:
    """The step, run only in lanes where the predicate holds."""

    def run(chunk: Chunk) -> None:
        holds = chunk.read(slot)
        if holds.size == 1:
            if bool(holds[0]) != negated:
                step(chunk)
            return
        if negated:
            holds = ~holds
        if holds.all():
            step(chunk)
        elif holds.any():
            whole = chunk.active
            chunk.active = np.flatnonzero(holds) if whole is None else whole[holds]
            step(chunk)
            chunk.active = whole

    return run


def barrier(placed: Placed, resume: int, binding: Binding, guard: int, negated: bool) -> Step:
    """bar and barrier: the active lanes wait for their block, and go on at `resume`.

    Source: PTX ISA, "Parallel Synchronization and Communication Instructions: bar".
    """
    instruction = placed.instruction
    kind = [f for f in instruction.flags if f not in ("cta", "aligned")]
    if kind not in (["sync"], ["arrive"]) or not 1 <= len(instruction.operands) <= 2:
        raise NotExecuted
    number = binding.source(instruction.operands[0], "u32").slot
    counted = len(instruction.operands) == 2
    count = binding.source(instruction.operands[1], "u32").slot if counted else -1
    if kind == ["arrive"] and not counted:
        raise NotExecuted

    def wait(chunk: Chunk) -> None:
        barriers = chunk.grid.barriers(chunk)
        if kind == ["sync"]:
            expected = chunk.read(count).astype(np.int64) if counted else None
            barriers.wait(placed, resume, chunk.read(number), expected)
        else:
            go(chunk, resume, chunk.active)
            barriers.arrive(chunk.read(number))

    if guard < 0:
        return wait

    def end(chunk: Chunk) -> None:
        holds = chunk.read(guard) ^ negated
        lanes = chunk.numbers()
        holds = np.broadcast_to(holds, lanes.shape)
        go(chunk, resume, lanes[~holds])
        chunk.active = lanes[holds]
        if len(chunk.active):
            wait(chunk)

    return end
