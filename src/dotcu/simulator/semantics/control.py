"""Control flow: how a basic block ends, and guards on single instructions.

Source: PTX ISA, "Control Flow Instructions", "Predicated Execution".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dotcu.simulator.counting.traffic import common_warps
from dotcu.simulator.decoding.basic_blocks import BasicBlock
from dotcu.simulator.decoding.binding import Binding
from dotcu.simulator.decoding.inlining import FlatInstruction
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.machine.shape import Array, Lanes
from dotcu.simulator.semantics.builtins import bind_call
from dotcu.simulator.semantics.function_calls import enter, leave
from dotcu.simulator.semantics.table import Step, require

Ending = Callable[[FlatInstruction, BasicBlock, Binding], Step]


def jump(target: int) -> Step:
    """All active lanes go to one block."""
    return lambda chunk: chunk.send(target, chunk.active)


def guarded(step: Step, placed: FlatInstruction, binding: Binding) -> Step:
    """The step, run only in lanes where the instruction's predicate holds; the other lanes are counted.

    Args:
        step: The step of the instruction.
        placed: The instruction.
        binding: Finds the register of the predicate.
    """
    slot, negated = binding.guard(placed.instruction)
    if slot < 0:
        return step
    number = binding.next_access()

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


def _branch(placed: FlatInstruction, plan: BasicBlock, binding: Binding) -> Step:
    """bra, ret and exit: lanes where the predicate holds go the first way, the others the last."""
    slot, negated = binding.guard(placed.instruction)
    target, through = plan.following[0], plan.following[-1]
    if slot < 0:
        return jump(target)
    if negated:
        target, through = through, target
    number = binding.next_access()

    def end(chunk: Chunk) -> None:
        active = chunk.active
        taken = chunk.read(slot)
        if taken.size == 1 or taken.all():
            chunk.send(target if taken[0] else through, active)
        elif not taken.any():
            chunk.send(through, active)
        else:
            if active is None:
                there, here = np.flatnonzero(taken), np.flatnonzero(~taken)
            else:
                there, here = active[taken], active[~taken]
            chunk.grid.traffic.split(number, placed, common_warps(there, here))
            chunk.send(target, there)
            chunk.send(through, here)

    return end


def _table_branch(placed: FlatInstruction, plan: BasicBlock, binding: Binding) -> Step:
    """brx.idx: each lane goes to the block that its index names."""
    require(placed.instruction.guard is None)
    slot, targets = binding.source(placed.instruction.operands[0], "u32").slot, plan.following
    number = binding.next_access()

    def end(chunk: Chunk) -> None:
        index = chunk.read(slot)
        lanes = chunk.numbers()
        if index.size == 1:
            chunk.send(targets[min(int(index[0]), len(targets) - 1)], chunk.active)
            return
        clipped = np.minimum(index, len(targets) - 1)
        groups = [(targets[choice], lanes[clipped == choice]) for choice in np.unique(clipped).tolist()]
        chunk.grid.traffic.split(number, placed, common_warps(*(there for _, there in groups)))
        for target, there in groups:
            chunk.send(target, there)

    return end


_STOPS = {
    "trap": "the kernel stopped itself by __trap(). Look at the condition that led here.",
    "brkpt": "the kernel stopped at a breakpoint (brkpt). Take it out where no debugger is attached.",
}


def _trap(placed: FlatInstruction) -> Step:
    message = _STOPS[placed.instruction.opcode]
    return lambda chunk: chunk.report("trap", placed, chunk.numbers(), message)


def _stop(placed: FlatInstruction, plan: BasicBlock, binding: Binding) -> Step:
    """trap, brkpt and a failed assertion: it is reported, and its lanes leave."""
    leave = _branch(placed, plan, binding)
    is_assert = placed.instruction.opcode == "assertfail"
    report = guarded(bind_call(placed, binding) if is_assert else _trap(placed), placed, binding)

    def end(chunk: Chunk) -> None:
        report(chunk)
        leave(chunk)

    return end


def _barrier(placed: FlatInstruction, plan: BasicBlock, binding: Binding) -> Step:
    """bar and barrier: the active lanes wait for their block.

    Source: PTX ISA, "Parallel Synchronization and Communication Instructions: bar".
    """
    instruction, resume = placed.instruction, plan.through
    kind = [f for f in instruction.flags if f not in ("cta", "aligned")]
    if kind[:1] == ["red"] and instruction.guard is None:
        return _reduction(placed, kind[1:], resume, binding)
    number, *counts = [binding.source(operand, "u32").slot for operand in instruction.operands]
    require((kind == ["sync"] and len(counts) <= 1) or (kind == ["arrive"] and len(counts) == 1))

    def end(chunk: Chunk) -> None:
        barriers = chunk.barriers
        if kind == ["sync"]:
            expected = chunk.read(counts[0]).astype(np.int64) if counts else None
            barriers.wait(placed, resume, chunk.read(number), expected)
        else:
            chunk.send(resume, chunk.active)
            barriers.arrive(chunk.read(number))

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
    require(len(counts) <= 1)

    def end(chunk: Chunk) -> None:
        def finish(lanes: Lanes, yes: Array, everyone: Array) -> None:
            chunk.active = lanes
            target.write(chunk, reduce(yes, everyone))

        expected = chunk.read(counts[0]).astype(np.int64) if counts else None
        chunk.barriers.wait(placed, resume, chunk.read(number), expected, vote.read(chunk), finish)

    return end


def _or_through(bind: Ending) -> Ending:
    """Make lanes whose predicate does not hold go on behind the block."""

    def bind_guarded(placed: FlatInstruction, plan: BasicBlock, binding: Binding) -> Step:
        end = bind(placed, plan, binding)
        slot, negated = binding.guard(placed.instruction)

        def guarded_end(chunk: Chunk) -> None:
            lanes = chunk.numbers()
            holds = np.broadcast_to(chunk.read(slot) ^ negated, lanes.shape)
            chunk.send(plan.through, lanes[~holds])
            chunk.active = lanes[holds]
            if len(chunk.active):
                end(chunk)

        return end if slot < 0 else guarded_end

    return bind_guarded


# How instructions end a basic block.
ENDINGS: Mapping[str, Ending] = {
    **dict.fromkeys(("bra", "ret", "exit"), _branch),
    "brx": _table_branch,
    "enter": enter,
    "return": _or_through(leave),
    **dict.fromkeys(("trap", "brkpt", "assertfail"), _stop),
    **dict.fromkeys(("bar", "barrier"), _or_through(_barrier)),
}
