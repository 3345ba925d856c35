"""Scheduling: the lowest basic block runs first, and lanes that wait for others do not starve them.

Running the lowest block first makes lanes meet again after a branch. Alone it would never end where
lanes spin on what others have yet to do, so spinning is detected: rounds pass in which memory is read
that others may change, and nothing changes. Blocks of such a loop then run only when no other can;
lanes elsewhere in the chunk go on, and after them other chunks. When every chunk spins, and its state
repeats with nothing changed since, no thread can ever go on: that is a deadlock.

With a seed, warps run at different speeds: now and then some are paused until the others can do no more, or
have run ahead for a while. Half as many lanes cost more than half as much, so most steps are of all. Lanes
in a loop that waits take their turn, so that some see each change before the next. The seed `REVERSED` lets
the last blocks, and of these the last warps, run as far as they can before the others.
"""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from dotcu.simulator.machine.barriers import BlockBarriers, barriers
from dotcu.simulator.machine.memory import PrivateMemory
from dotcu.simulator.machine.shape import WARP, ChunkShape, Lanes, merged
from dotcu.simulator.machine.special_registers import special_arrays
from dotcu.simulator.machine.state import Chunk, DecodedBlock, LaunchState
from dotcu.simulator.machine.undefined import HeldCheck, full_bits
from dotcu.simulator.machine.warpgroups import Warpgroups
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import PATIENCE_STEPS, REVERSED, Array

# Rounds (basic blocks run) without a change, after which a loop that reads others' memory spins.
PATIENCE = 48
# The same for a loop that was seen to spin before.
PATIENCE_WITH_SPINNERS = 8
# With a seed: rounds that some warps run ahead at most, and the share of steps that are such rounds.
ROUNDS_AHEAD = 16
SHARE_AHEAD = 0.15
# With the seed REVERSED: groups of a chunk's warps that run one after the other, the last first.
REVERSED_GROUPS = 16
# Steps that most of the later chunks begin with in step.
STEPS_IN_STEP = 512
# Rounds that a chunk spins before others run; a prime, so that it stops at any point of a loop.
SPIN_ROUNDS = 257
# The same where there are several ranks, each of which mostly waits for the others.
SPIN_ROUNDS_OF_RANKS = 13
# Rounds after which the lanes of the last block run once, whether or not anything spins.
FAIR_ROUNDS = 1 << 10


def execute(grid: LaunchState) -> None:
    """Run every block of a launch to its end, or until it is known that there is none."""
    shapes = grid.shapes() if grid.run.seed != REVERSED else reversed([*grid.shapes()])
    parked: deque[Scheduler] = deque()
    while True:
        shape = next(shapes, None)
        if shape is None and not parked:
            return
        scheduler = parked.popleft() if shape is None else Scheduler(grid, begin(grid, shape))
        outcome, chunk = scheduler.run(), scheduler.chunk
        if outcome == "stopped":
            return
        if outcome == "done":
            if (met := chunk.find(BlockBarriers)) is not None:
                met.judge_counts()
            for note in chunk.on.end:
                note(chunk)
            chunk.retire()
            continue
        scheduler.park()
        parked.append(scheduler)
        if shape is None and all(each.stuck_since == grid.progress for each in parked):
            report_deadlock(grid, [each.chunk for each in parked])
            return


def begin(grid: LaunchState, shape: ChunkShape) -> Chunk:
    """Blocks, ready to run."""
    chunk = Chunk(grid, shape)
    params = (grid.params, *grid.others)[shape.rank]
    binding = grid.decoded.binding
    chunk.registers = list(binding.constants)
    for (offset, dtype), slot in binding.params.items():
        chunk.registers[slot] = np.frombuffer(params, dtype, 1, offset)
    special_arrays(chunk, binding.specials)
    chunk.shared = PrivateMemory(shape.blocks, shape.lanes, grid.allotted_bytes)
    if shape.cluster_blocks > 1:
        chunk.shared.bases = chunk.shared.bases - chunk.own_starts
        for slot in binding.shared_addresses:
            address = chunk.registers[slot]
            chunk.registers[slot] = address + chunk.own_starts.astype(address.dtype)
    chunk.shared.written.reshape(shape.blocks, -1)[:, grid.reserved_offset :] = 1
    chunk.local = PrivateMemory(shape.lanes, shape.lanes, grid.decoded.layout.local_bytes)
    chunk.ready[0] = None if chunk.living == chunk.lanes else chunk.everyone()
    chunk.params = PrivateMemory.holding(params)
    if grid.decoded.unset and "init" in grid.run.checks:
        _hold_unset(chunk, grid.decoded.unset)
    for note in chunk.on.begin:
        note(chunk)
    return chunk


def _hold_unset(chunk: Chunk, slots: Sequence[int]) -> None:
    """Note that no lane of a chunk that begins has set some registers, which hold variables."""
    lanes, undefined = chunk.everyone(), chunk.undefined

    def report(used: Lanes) -> None:
        assert undefined.user is not None
        message = (
            "read of a variable that the thread has not set: what is done here depends on its value, which "
            "is undefined. Give it a value where it is declared, or set it on every path that leads here."
        )
        chunk.report("uninitialized-read", undefined.user, used, message)

    for slot in slots:
        nowhere = np.zeros(chunk.lanes, np.int64)  # of memory it is nothing
        check = HeldCheck(report, lanes, np.zeros(chunk.lanes, bool), place=nowhere)
        bits = np.full(
            len(lanes), full_bits(chunk.registers[slot].dtype), f"u{chunk.registers[slot].dtype.itemsize}"
        )
        undefined.put(slot, lanes, bits, undefined.hold(check))


class Scheduler:
    """Chooses which basic block of a chunk runs next, and detects that a chunk only waits.

    Attributes:
        spinning: Basic blocks of loops that spin, with the round in which each last ran.
        stuck_since: The launch's progress at which the chunk's state repeated; -1 if it never did.
        random: Chooses which warps run; None without a seed, or if the last ones run first.
        is_reversed: The last ones run first.
        awake, paused: For each warp whether it may run, None: all; lanes of the others, by basic block.
    """

    def __init__(self, grid: LaunchState, chunk: Chunk) -> None:
        self.grid, self.chunk = grid, chunk
        self.spinning: dict[int, int] = {}
        self.stuck_since = -1
        seed = grid.run.seed
        self.is_reversed = seed == REVERSED
        self.random = None if seed in (None, REVERSED) else np.random.default_rng((seed, chunk.shape.first))
        self.awake: Array | None = None
        self._were_apart = False
        # The first blocks are always shuffled; most of the others, which do the same, begin in step.
        self._steps_ahead = 0.0
        if self.random is not None and chunk.shape.first and self.random.random() > SHARE_AHEAD:
            self._steps_ahead = STEPS_IN_STEP * SHARE_AHEAD
        self.paused: dict[int, Lanes] = {}
        self._spin_rounds = self._until = 0
        self._digests: set[int] = set()
        self._digests_since = -1
        self._retried_at_step = -1
        self._limit = grid.run.step_limit or self._patience
        self._advanced = (0, len(grid.visits))
        self._progress = self._reads = self._idle = self._crowded = 0

    def run(self) -> Literal["done", "spinning", "stopped"]:
        """Run the chunk until it has ended or spins, or the launch's limit of steps is reached."""
        grid, chunk, blocks = self.grid, self.chunk, self.grid.decoded.blocks
        self._progress, self._reads = grid.progress, grid.strong_reads
        self._idle = self._crowded = 0
        self._retry_stalled()
        while chunk.ready or self._resume():
            if self.random is not None:
                self._let_run_ahead()
            elif self.is_reversed:
                self._let_last_run()
            number = self._next()
            block = blocks[number]
            if not self._admit(block, number):
                continue
            chunk.steps += len(block.steps) + 1
            chunk.rounds += 1
            self._steps_ahead += (len(block.steps) + 1) * (self.awake is not None)
            grid.steps += len(block.steps)
            if grid.run.watch:
                self._tell_watch(block)
            if chunk.steps > self._limit:
                if not self._advances():
                    _report_over_limit(grid, chunk, block.placed)
                    return "stopped"
                self._limit = chunk.steps + self._patience
            if self._were_apart and chunk.active is None:
                self._were_apart = False
                chunk.unify()
            grid.visits[number] += chunk.count()
            self._run_block(block, number)
            if self._only_spins(number):
                return "spinning"
        return "done"

    def _run_block(self, block: DecodedBlock, number: int) -> None:
        """Run the steps of a basic block; from the first undefined value on, those that carry it along."""
        chunk, undefined = self.chunk, self.chunk.undefined.slots
        for note in chunk.on.block:
            note(chunk, number)
        if undefined:
            _carry_on(chunk, block, 0)
        elif not block.reads:
            for step in block.steps:
                step(chunk)
        else:
            for done, step in enumerate(block.steps, 1):
                step(chunk)
                if undefined:
                    _carry_on(chunk, block, done)
                    break
        block.end(chunk)

    @property
    def _patience(self) -> int:
        return self.grid.run.patience or PATIENCE_STEPS

    def _tell_watch(self, block: DecodedBlock) -> None:
        """Tell the run's watch of the basic block that is next."""
        grid, chunk = self.grid, self.chunk
        lanes = chunk.lanes if chunk.active is None else len(chunk.active)

        def where() -> str:
            return "{}:{}".format(*grid.decoded.location_of(block.placed)[:2])

        assert grid.run.watch is not None
        grid.run.watch(len(block.steps) + 1, lanes, where)

    def _advances(self) -> bool:
        """Return whether threads of the launch ended, or code was first reached, since the last call."""
        was, self._advanced = self._advanced, (self.grid.ended, self.grid.visits.count(0))
        return self.grid.run.step_limit is None and self._advanced != was

    def park(self) -> None:
        """Record the state of a chunk that spins, and whether it repeats since anything changed."""
        if self._digests_since != self.grid.progress:
            self._digests_since, self._digests = self.grid.progress, set()
        digest = self._digest()
        if digest in self._digests:
            self.stuck_since = self.grid.progress
        self._digests.add(digest)

    def _digest(self) -> int:
        """Return a digest of where lanes stand or wait, and of their registers and local memory."""
        chunk = self.chunk
        digest = zlib.crc32(chunk.local.data.tobytes())
        for state in barriers(chunk).state():
            digest = zlib.crc32(state.tobytes(), digest)
        places = [(n, at[n]) for at in (chunk.ready, chunk.stalled) for n in sorted(at)]
        for number, lanes in (*places, (-1, barriers(chunk).lanes())):
            digest = zlib.crc32(b"%d" % number, digest)
            for register in chunk.registers:
                own = register if lanes is None or register.size == 1 else register[lanes]
                digest = zlib.crc32(own.tobytes(), digest)
            digest = digest if lanes is None else zlib.crc32(lanes.tobytes(), digest)
        return digest

    def _next(self) -> int:
        """Return the block to run: the lowest that does not spin, else the one that waited longest."""
        ready, spinning = self.chunk.ready, self.spinning
        if len(ready) == 1:
            self._crowded = 0
            return next(iter(ready))
        self._crowded += 1
        if self._crowded > FAIR_ROUNDS:
            self._crowded = 0
            return max(ready)
        if not spinning:
            return min(ready)
        if self.random is not None and self.random.random() < 0.5:
            return int(self.random.choice([*ready]))  # who waits may see each change before the next
        others = [number for number in ready if number not in spinning]
        return min(others) if others else min(ready, key=lambda number: spinning[number])

    def _admit(self, block: DecodedBlock, number: int) -> bool:
        """Activate the lanes that are at a block; return whether any of them can run it now."""
        chunk = self.chunk
        chunk.active = chunk.ready.pop(number)
        if chunk.stalled and number in chunk.stalled:
            chunk.send(number, chunk.active)
            chunk.send(number, chunk.stalled.pop(number))
            chunk.active = chunk.ready.pop(number)
        if self.awake is not None:
            chunk.active = self._pause_warps(number, chunk.active, self.awake)
            if not len(chunk.active):
                return False
        return block.admit is None or block.admit(chunk)

    def _only_spins(self, number: int) -> bool:
        """Return, after a round, whether the chunk only waits for what others have to do."""
        grid = self.grid
        if grid.progress != self._progress:
            self._progress, self._reads, self._idle = grid.progress, grid.strong_reads, 0
            return False
        self._idle += 1
        patience = PATIENCE_WITH_SPINNERS if number in self.spinning else PATIENCE
        if self._idle < patience or grid.strong_reads == self._reads:
            return False
        self._spin_rounds += 1
        self.spinning[number] = self._spin_rounds
        if self.paused:
            self._wake_warps()
            self._idle = 1
        return self._idle > (SPIN_ROUNDS_OF_RANKS if grid.others else SPIN_ROUNDS)

    def _resume(self) -> bool:
        """Find lanes to run when none is ready: paused warps, then stalled lanes; else report a deadlock."""
        chunk = self.chunk
        if self.paused:
            first = self._last_of(self.paused) if self.is_reversed else 0
            self._wake_warps()
            if self.is_reversed:
                self._wake_from(first)
            return True
        if chunk.stalled and self._retried_at_step != chunk.steps:
            self._retried_at_step = chunk.steps
            self._retry_stalled()
            return True
        if chunk.stalled or len(barriers(chunk).lanes()):
            report_deadlock(self.grid, [chunk])
        return False

    def _retry_stalled(self) -> None:
        """Make lanes that wait for their warp ready, to see whether it has come or ended."""
        for number, lanes in self.chunk.stalled.items():
            self.chunk.send(number, lanes)
        self.chunk.stalled.clear()

    def _let_run_ahead(self) -> None:
        """Pause some warps for the rounds to come, or wake them after those."""
        assert self.random is not None
        self._until -= 1
        if self.awake is not None and self._until <= 0:
            self._wake_warps()
        elif self.spinning and self._idle:
            return  # whether all wait is to be seen
        elif self.awake is None and self._steps_ahead <= SHARE_AHEAD * self.chunk.steps:
            self.awake = self.random.random(self.chunk.lanes // WARP) < 0.5
            self._until = int(self.random.integers(1, ROUNDS_AHEAD))

    def _let_last_run(self) -> None:
        """Pause all warps but the last ones that can run, unless some wait in a loop for others."""
        self._until -= 1
        if self.awake is None and self._until <= 0 and not self.spinning:
            self._wake_from(self._last_of(self.chunk.ready))

    def _wake_from(self, first: int) -> None:
        """Let the warps from a group on run; all of them do for a round at least before others are paused."""
        groups = np.arange(self.chunk.lanes // WARP) // self._group_warps
        self.awake, self._until = (groups >= first if first else None), 2

    @property
    def _group_warps(self) -> int:
        return -(-self.chunk.lanes // WARP // REVERSED_GROUPS)

    def _last_of(self, lanes_at: Mapping[int, Lanes | None]) -> int:
        """Return the last group of warps among lanes at some basic blocks."""
        last = max(self.chunk.lanes - 1 if lanes is None else int(lanes[-1]) for lanes in lanes_at.values())
        return last // WARP // self._group_warps

    def _pause_warps(self, number: int, lanes: Lanes | None, awake: Array) -> Lanes:
        """Pause the lanes whose warps are not to run now; return the others."""
        lanes = self.chunk.everyone() if lanes is None else lanes
        runs = awake[lanes // WARP]
        if runs.all():
            return lanes
        paused = lanes[~runs]
        self.paused[number] = merged(self.paused[number], paused) if number in self.paused else paused
        return lanes[runs]

    def _wake_warps(self) -> None:
        """Make paused lanes ready, and let all warps run."""
        paused, self.paused, self.awake, self._were_apart = self.paused, {}, None, True
        for number, lanes in paused.items():
            self.chunk.send(number, lanes)


def _carry_on(chunk: Chunk, block: DecodedBlock, first: int) -> None:
    """Run the rest of a block's steps with the undefined bits carried along.

    Args:
        chunk, block: The lanes, and their decoded block.
        first: The index of the first of these steps.
    """
    carriers, (last, ending), kept = block.carriers()
    for carrier in carriers[first:]:
        carrier(chunk)
    lanes = chunk.numbers()
    chunk.undefined.user = last
    for slot in ending:
        chunk.undefined.use(slot, lanes)
    chunk.undefined.end_block(lanes, kept)


def report_deadlock(grid: LaunchState, chunks: Sequence[Chunk]) -> None:
    """Report that no thread of these chunks can go on."""
    waits = [(chunk, *wait) for chunk in chunks for wait in _waits(chunk)]
    counts: Counter[tuple[str, str]] = Counter()
    for chunk, lanes, placed, verb in waits:
        line = grid.decoded.location_of(placed)[1]
        of_rank = f" of rank {chunk.shape.rank}" if grid.others else ""
        counts[of_rank, f"at line {line} {verb} in `{placed.instruction.text}`"] += len(lanes)
    summary = "; ".join(
        f"{count} {'thread' if count == 1 else 'threads'}{rank} {where}"
        for (rank, where), count in counts.items()
    )
    chunk, lanes, placed, _ = next((wait for wait in waits if _is_apart(*wait)), waits[0])
    if _is_apart(chunk, lanes, placed, ""):
        kind = placed.instruction.opcode
        message = (
            f"{kind}: the warps of a warpgroup are apart: {summary}. All four have to execute the same "
            f"{kind} instructions: take them out of conditions that differ within 128 threads."
        )
        chunk.report(kind, placed, lanes, message, count=counts.total())
        return
    lacking = "".join(each.lacking() for each in chunks[:1] if each.lacking is not None)
    message = (
        f"no thread can continue: {summary}. {lacking}Each waits for others that never arrive: let all "
        "threads that a barrier or a mask names reach it, and let the thread that sets a flag or releases a "
        "lock get there."
    )
    chunk.report("deadlock", placed, lanes, message, count=counts.total())


def _is_apart(chunk: Chunk, lanes: Lanes, placed: FlatInstruction, _verb: str) -> bool:
    """Return whether lanes wait for their warpgroup, whose other lanes wait elsewhere and do not spin."""
    groups = chunk.find(Warpgroups)
    if groups is None or placed.instruction.opcode not in ("wgmma", "setmaxnreg"):
        return False
    ready = [chunk.everyone() if each is None else each for each in chunk.ready.values()]
    return not any(np.isin(groups.of(lanes), groups.of(each)).any() for each in ready)


def _waits(chunk: Chunk) -> Iterator[tuple[Lanes, FlatInstruction, str]]:
    """Yield the lanes that wait, where, and the verb that says how."""
    blocks = chunk.grid.decoded.blocks
    for number, lanes in chunk.ready.items():
        placed = chunk.waits_on or blocks[number].placed
        yield chunk.everyone() if lanes is None else lanes, placed, "spin"
    for number, stalled in chunk.stalled.items():
        yield stalled, blocks[number].placed, "wait for their warp"
    for waiting, placed in barriers(chunk).waiters():
        yield waiting, placed, "wait"


def _report_over_limit(grid: LaunchState, chunk: Chunk, placed: FlatInstruction) -> None:
    """Report that a chunk ran for longer than it may."""
    lanes = chunk.everyone() if chunk.active is None else chunk.active
    steps = min(chunk.steps, grid.run.step_limit or grid.run.patience or PATIENCE_STEPS)
    remedy = grid.run.remedy or f"pass a higher limit: dotcu.simulate(step_limit={10 * steps})."
    message = (
        f"still running after {steps} steps: a loop that does not end, or a wait for something "
        f"that never happens. If the kernel is only long, {remedy}"
    )
    chunk.report("step-limit", placed, lanes, message)
