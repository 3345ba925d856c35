"""Who runs next: the lowest basic block first, and a way out for those who wait for others.

Running the lowest block first makes lanes meet again after a branch. Alone it would never
end where lanes spin on what others have yet to do, so spinning is noticed: turns go by in
which memory is read that others may change, and nothing changes. Blocks of such a loop then
stand back behind all others; lanes elsewhere in the chunk go on, and after them other chunks.
When every chunk spins, and stands where it stood before with nothing changed since, no thread
can ever go on: that is a deadlock.

With a seed, warps run at different speeds: some are held back until the others can do no more.
"""

from __future__ import annotations

import enum
import zlib
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.machine.chunk import WARP, Chunk, Lanes
from dotcu.simulator.machine.deadlock import report_deadlock, report_over_limit

if TYPE_CHECKING:
    from dotcu.simulator.decoding.decode import Block
    from dotcu.simulator.machine.grid import Grid

# Turns (basic blocks run) without a change, after which a loop that reads others' memory spins.
PATIENCE = 48
# The same for a loop that has been seen to spin.
KNOWN = 8
# How often warps that are held back are chosen anew before none is.
LET_GO = 4
# Turns that a chunk spins before others run; a prime, so that it stops at any point of a loop.
SPIN_TURNS = 257
# Turns after which lanes that stand ready elsewhere get one, whether or not anything spins.
FAIR_TURNS = 1 << 10


class Outcome(enum.Enum):
    """How a chunk's turns ended."""

    DONE = enum.auto()
    SPINNING = enum.auto()
    STOPPED = enum.auto()


def execute(grid: Grid) -> None:
    """Run every block of a launch to its end, or until it is known that there is none."""
    fresh = grid.shapes()
    parked: deque[Chunk] = deque()
    while True:
        shape = next(fresh, None)
        if shape is None and not parked:
            return
        chunk = parked.popleft() if shape is None else grid.chunk(shape)
        outcome = _run(grid, chunk)
        if outcome is Outcome.STOPPED:
            return
        if outcome is Outcome.DONE:
            chunk.retire()
        if outcome is Outcome.SPINNING:
            _park(grid, chunk)
            parked.append(chunk)
            if shape is None and all(c.spin.proven == grid.progress for c in parked):
                report_deadlock(grid, list(parked))
                return


def _park(grid: Grid, chunk: Chunk) -> None:
    """Note how a chunk stands; whether it stood like that before since anything changed."""
    spin = chunk.spin
    if spin.since != grid.progress:
        spin.since, spin.digests = grid.progress, set()
    digest = _digest(chunk)
    if digest in spin.digests:
        spin.proven = grid.progress
    spin.digests.add(digest)


def _digest(chunk: Chunk) -> int:
    """Where the lanes stand or wait, and what their registers and memory of their own hold."""
    digest = zlib.crc32(chunk.local.data.tobytes())
    for own in chunk.barriers.standing():
        digest = zlib.crc32(own.tobytes(), digest)
    for places in (chunk.ready, chunk.stalled):
        for number in sorted(places):
            digest = _digest_of(chunk, places[number], zlib.crc32(b"%d" % number, digest))
    return _digest_of(chunk, chunk.barriers.lanes(), digest)


def _digest_of(chunk: Chunk, lanes: Lanes | None, digest: int) -> int:
    """A digest, carried on over what the registers of some lanes hold."""
    for register in chunk.registers:
        own = register if lanes is None or register.size == 1 else register[lanes]
        digest = zlib.crc32(own.tobytes(), digest)
    return digest if lanes is None else zlib.crc32(lanes.tobytes(), digest)


def _run(grid: Grid, chunk: Chunk) -> Outcome:
    """Run a chunk until it has ended or spins."""
    blocks, turns = grid.decoded.blocks, _Turns(grid, chunk)
    _look_again(chunk)
    while chunk.ready or _resume(grid, chunk):
        number = turns.next()
        block = blocks[number]
        if not _admitted(chunk, block, number):
            continue
        chunk.steps += len(block.steps) + 1
        grid.steps += len(block.steps)
        if chunk.steps > grid.run.step_limit:
            report_over_limit(grid, chunk, block.placed)
            return Outcome.STOPPED
        grid.visit(number, chunk)
        for step in block.steps:
            step(chunk)
        block.end(chunk)
        if turns.are_idle(number):
            return Outcome.SPINNING
    return Outcome.DONE


def _admitted(chunk: Chunk, block: Block, number: int) -> bool:
    """Take the lanes that stand at a block; whether any of them can run it now."""
    chunk.active = chunk.ready.pop(number)
    if chunk.stalled and number in chunk.stalled:
        chunk.send(number, chunk.active)
        chunk.send(number, chunk.stalled.pop(number))
        chunk.active = chunk.ready.pop(number)
    if chunk.spin.random is not None:
        chunk.active = _hold_back(chunk, number, chunk.active)
        if not len(chunk.active):
            return False
    return block.admit is None or block.admit(chunk)


class _Turns:
    """Chooses who runs next in a chunk, and notices when nothing comes of it."""

    def __init__(self, grid: Grid, chunk: Chunk) -> None:
        self.grid, self.chunk = grid, chunk
        self.progress, self.reads = grid.progress, grid.strong_reads
        self.idle = self.crowded = self.fruitless = 0

    def next(self) -> int:
        """The block to run: the lowest that does not spin, else the one that waited longest."""
        ready, spinning = self.chunk.ready, self.chunk.spin.blocks
        if len(ready) == 1:
            self.crowded = 0
            return next(iter(ready))
        self.crowded += 1
        if self.crowded > FAIR_TURNS:
            self.crowded = 0
            return max(ready)
        if not spinning:
            return min(ready)
        calm = [number for number in ready if number not in spinning]
        return min(calm) if calm else min(ready, key=lambda number: spinning[number])

    def are_idle(self, number: int) -> bool:
        """After a turn: whether the chunk only waits for what others have to do."""
        grid, spin = self.grid, self.chunk.spin
        if grid.progress != self.progress:
            self.progress, self.reads, self.idle, self.fruitless = grid.progress, grid.strong_reads, 0, 0
            return False
        self.idle += 1
        if self.idle < (KNOWN if number in spin.blocks else PATIENCE) or grid.strong_reads == self.reads:
            return False
        spin.turn += 1
        spin.blocks[number] = spin.turn
        if spin.held:
            self.fruitless += 1
            _release_held(self.chunk, everyone=self.fruitless > LET_GO)
            self.idle = 0
        return self.idle > SPIN_TURNS


def _resume(grid: Grid, chunk: Chunk) -> bool:
    """Nothing is ready: end, or give those who wait in warps another look, or report."""
    if chunk.spin.held:
        _release_held(chunk)
        return True
    if chunk.stalled and chunk.looked != chunk.steps:
        chunk.looked = chunk.steps
        _look_again(chunk)
        return True
    if chunk.stalled or chunk.barriers.waiting:
        report_deadlock(grid, [chunk])
    return False


def _look_again(chunk: Chunk) -> None:
    """Let lanes that wait for their warp see whether it has come, or has left."""
    for number, lanes in chunk.stalled.items():
        chunk.send(number, lanes)
    chunk.stalled.clear()


# Warps at different speeds


def _hold_back(chunk: Chunk, number: int, lanes: Lanes | None) -> Lanes:
    """The lanes whose warps are to run now; the others stand back."""
    spin = chunk.spin
    lanes = chunk.everyone() if lanes is None else lanes
    awake = spin.awake[lanes // WARP]
    if awake.all():
        return lanes
    held = lanes[~awake]
    if number in spin.held:
        held = np.concatenate((spin.held[number], held))
        held.sort()
    spin.held[number] = held
    return lanes[awake]


def _release_held(chunk: Chunk, *, everyone: bool = False) -> None:
    """Let lanes that were held back go on, and choose anew whose turn it is."""
    spin = chunk.spin
    assert spin.random is not None
    waiting = np.unique(np.concatenate(list(spin.held.values())) // WARP)
    spin.awake = spin.random.random(chunk.lanes // WARP) < (1.0 if everyone else 0.5)
    spin.awake[spin.random.choice(waiting)] = True
    held, spin.held = spin.held, {}
    for number, lanes in held.items():
        chunk.send(number, lanes)
