"""What is said of a launch that does not end: who waits where, or where it was when time ran out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dotcu.simulator.machine.chunk import Chunk, Lanes

if TYPE_CHECKING:
    from dotcu.ptx.link import Placed
    from dotcu.simulator.machine.grid import Grid

_ADVICE = (
    "Each waits for others that never come: let all threads that a barrier or a mask names reach it, "
    "and whoever is to set a flag or release a lock get there."
)


class _Wait(NamedTuple):
    chunk: Chunk
    lanes: Lanes
    placed: Placed
    how: str


def report_deadlock(grid: Grid, chunks: Sequence[Chunk]) -> None:
    """Report that no thread of these chunks can go on."""
    waits = [wait for chunk in chunks for wait in _waits(grid, chunk)]
    counts: Counter[str] = Counter()
    for wait in waits:
        line = grid.decoded.place(wait.placed)[1]
        counts[f"at line {line} {wait.how} in `{wait.placed.instruction.text}`"] += len(wait.lanes)
    told = "; ".join(
        f"{count} {'thread' if count == 1 else 'threads'} {where}" for where, count in counts.items()
    )
    grid.report(
        waits[0].chunk,
        "deadlock",
        waits[0].placed,
        waits[0].lanes,
        message=f"no thread can go on: {told}. {_ADVICE}",
        count=sum(len(wait.lanes) for wait in waits),
    )


def _waits(grid: Grid, chunk: Chunk) -> list[_Wait]:
    found = []
    for number, lanes in chunk.ready.items():
        placed = chunk.waits_on or grid.decoded.blocks[number].placed
        found.append(_Wait(chunk, chunk.everyone() if lanes is None else lanes, placed, "spin"))
    for number, lanes in chunk.stalled.items():
        found.append(_Wait(chunk, lanes, grid.decoded.blocks[number].placed, "wait for their warp"))
    for lanes, placed in chunk.barriers.waiters():
        found.append(_Wait(chunk, lanes, placed, "wait"))
    return found


def report_over_limit(grid: Grid, chunk: Chunk, placed: Placed) -> None:
    """Report that a chunk ran for longer than it may."""
    lanes = chunk.everyone() if chunk.active is None else chunk.active
    grid.report(
        chunk,
        "step-limit",
        placed,
        np.asarray(lanes),
        message=f"still running after {grid.run.step_limit} steps: a loop that does not end, or a "
        "wait for something that never comes. If the kernel is only long, try a smaller grid.",
    )
