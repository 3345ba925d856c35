"""Scheduling: the lowest basic block runs first, and threads that wait for others do not starve them.

Running the lowest block first makes threads meet again after a branch. Alone it would never end where
threads spin on what others have yet to do, so spinning is detected: rounds pass in which memory is read
that others may change, and nothing changes. Blocks of such a loop then run only when no other can;
threads elsewhere in the batch go on, and after them other batches. When every batch spins, and its state
repeats with nothing changed since, no thread can ever go on: that is a deadlock.

With a seed, warps run at different speeds: now and then some are paused until the others can do no more, or
have run ahead for a while. Half as many threads cost more than half as much, so most steps are of all.
Threads in a loop that waits take their turn, so that some see each change before the next. The seed
`REVERSED` lets the last blocks, and of these the last warps, run as far as they can before the others.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from dotcu.simulator.machine.barriers import BlockBarriers, barriers
from dotcu.simulator.machine.memory import PrivateMemory
from dotcu.simulator.machine.shape import WARP, BatchShape, Threads, merged
from dotcu.simulator.machine.special_registers import special_arrays
from dotcu.simulator.machine.state import Batch, DecodedBlock, LaunchState
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
# With the seed REVERSED: groups of a batch's warps that run one after the other, the last first.
REVERSED_GROUPS = 16
# Steps that most of the later batches begin with in step.
STEPS_IN_STEP = 512
# Rounds that a batch spins before others run; a prime, so that it stops at any point of a loop.
SPIN_ROUNDS = 257
# The same where there are several ranks, each of which mostly waits for the others.
SPIN_ROUNDS_OF_RANKS = 13
# Rounds after which the threads of the last block run once, whether or not anything spins.
FAIR_ROUNDS = 1 << 10


def execute(launch: LaunchState) -> None:
    """Run every block of a launch to its end, or until it is known that there is none."""
    shapes = launch.shapes() if launch.run.seed != REVERSED else reversed([*launch.shapes()])
    parked: deque[Scheduler] = deque()
    ended, blocks = 0, math.prod(launch.extent) * (1 + len(launch.others))
    while True:
        launch.run.progress(launch.kernel, ended, blocks)
        shape = next(shapes, None)
        if shape is None and not parked:
            return
        scheduler = parked.popleft() if shape is None else Scheduler(launch, begin(launch, shape))
        outcome, batch = scheduler.run(), scheduler.batch
        if outcome == "stopped":
            return
        if outcome == "done":
            if (met := batch.find(BlockBarriers)) is not None:
                met.judge_counts()
            for note in batch.on.end:
                note(batch)
            batch.retire()
            ended += batch.shape.blocks
            continue
        scheduler.park()
        parked.append(scheduler)
        if shape is None and all(each.stuck_since == launch.progress for each in parked):
            report_deadlock(launch, [each.batch for each in parked])
            return


def begin(launch: LaunchState, shape: BatchShape) -> Batch:
    """Blocks, ready to run."""
    batch = Batch(launch, shape)
    params = (launch.params, *launch.others)[shape.rank]
    binding = launch.decoded.binding
    batch.registers = list(binding.constants)
    for (offset, dtype), slot in binding.params.items():
        batch.registers[slot] = np.frombuffer(params, dtype, 1, offset)
    special_arrays(batch, binding.specials)
    batch.shared = PrivateMemory(shape.blocks, shape.threads, launch.allotted_bytes)
    if shape.cluster_blocks > 1:
        batch.shared.bases = batch.shared.bases - batch.own_starts
        for slot in binding.shared_addresses:
            address = batch.registers[slot]
            batch.registers[slot] = address + batch.own_starts.astype(address.dtype)
    batch.shared.written.reshape(shape.blocks, -1)[:, launch.reserved_offset :] = 1
    batch.local = PrivateMemory(shape.threads, shape.threads, launch.decoded.layout.local_bytes)
    batch.ready[0] = None if batch.living == batch.threads else batch.everyone()
    batch.params = PrivateMemory.holding(params)
    if launch.decoded.unset and "init" in launch.run.checks:
        _hold_unset(batch, launch.decoded.unset)
    for note in batch.on.begin:
        note(batch)
    return batch


def _hold_unset(batch: Batch, slots: Sequence[int]) -> None:
    """Note that no thread of a batch that begins has set some registers, which hold variables."""
    threads, undefined = batch.everyone(), batch.undefined

    def report(used: Threads) -> None:
        assert undefined.user is not None
        message = (
            "read of a variable that the thread has not set: what is done here depends on its value, which "
            "is undefined. Give it a value where it is declared, or set it on every path that leads here."
        )
        batch.report("uninitialized-read", undefined.user, used, message)

    for slot in slots:
        nowhere = np.zeros(batch.threads, np.int64)  # of memory it is nothing
        check = HeldCheck(report, threads, np.zeros(batch.threads, bool), place=nowhere)
        bits = np.full(
            len(threads), full_bits(batch.registers[slot].dtype), f"u{batch.registers[slot].dtype.itemsize}"
        )
        undefined.put(slot, threads, bits, undefined.hold(check))


class Scheduler:
    """Chooses which basic block of a batch runs next, and detects that a batch only waits.

    Attributes:
        spinning: Basic blocks of loops that spin, with the round in which each last ran.
        stuck_since: The launch's progress at which the batch's state repeated; -1 if it never did.
        random: Chooses which warps run; None without a seed, or if the last ones run first.
        is_reversed: The last ones run first.
        awake, paused: For each warp whether it may run, None: all; threads of the others, by basic block.
    """

    def __init__(self, launch: LaunchState, batch: Batch) -> None:
        self.launch, self.batch = launch, batch
        self.spinning: dict[int, int] = {}
        self.stuck_since = -1
        seed = launch.run.seed
        self.is_reversed = seed == REVERSED
        self.random = None if seed in (None, REVERSED) else np.random.default_rng((seed, batch.shape.first))
        self.awake: Array | None = None
        self._were_apart = False
        # The first blocks are always shuffled; most of the others, which do the same, begin in step.
        self._steps_ahead = 0.0
        if self.random is not None and batch.shape.first and self.random.random() > SHARE_AHEAD:
            self._steps_ahead = STEPS_IN_STEP * SHARE_AHEAD
        self.paused: dict[int, Threads] = {}
        self._spin_rounds = self._until = 0
        self._digests: set[int] = set()
        self._digests_since = -1
        self._retried_at_step = -1
        self._limit = launch.run.step_limit or self._patience
        self._advanced = (0, len(launch.visits))
        self._progress = self._reads = self._idle = self._crowded = 0

    def run(self) -> Literal["done", "spinning", "stopped"]:
        """Run the batch until it has ended or spins, or the launch's limit of steps is reached."""
        launch, batch, blocks = self.launch, self.batch, self.launch.decoded.blocks
        self._progress, self._reads = launch.progress, launch.strong_reads
        self._idle = self._crowded = 0
        self._retry_stalled()
        while batch.ready or self._resume():
            if self.random is not None:
                self._let_run_ahead()
            elif self.is_reversed:
                self._let_last_run()
            number = self._next()
            block = blocks[number]
            if not self._admit(block, number):
                continue
            batch.steps += len(block.steps) + 1
            batch.rounds += 1
            self._steps_ahead += (len(block.steps) + 1) * (self.awake is not None)
            launch.steps += len(block.steps)
            if launch.run.watch:
                self._tell_watch(block)
            if batch.steps > self._limit:
                if not self._advances():
                    _report_over_limit(launch, batch, block.instruction)
                    return "stopped"
                self._limit = batch.steps + self._patience
            if self._were_apart and batch.active is None:
                self._were_apart = False
                batch.unify()
            launch.visits[number] += batch.count()
            self._run_block(block, number)
            if self._only_spins(number):
                return "spinning"
        return "done"

    def _run_block(self, block: DecodedBlock, number: int) -> None:
        """Run the steps of a basic block; from the first undefined value on, those that carry it along."""
        batch, undefined = self.batch, self.batch.undefined.slots
        for note in batch.on.block:
            note(batch, number)
        if undefined:
            _carry_on(batch, block, 0)
        elif not block.reads:
            for step in block.steps:
                step(batch)
        else:
            for done, step in enumerate(block.steps, 1):
                step(batch)
                if undefined:
                    _carry_on(batch, block, done)
                    break
        block.end(batch)

    @property
    def _patience(self) -> int:
        return self.launch.run.patience or PATIENCE_STEPS

    def _tell_watch(self, block: DecodedBlock) -> None:
        """Tell the run's watch of the basic block that is next."""
        launch, batch = self.launch, self.batch
        threads = batch.threads if batch.active is None else len(batch.active)

        def where() -> str:
            return "{}:{}".format(*launch.decoded.location_of(block.instruction)[:2])

        assert launch.run.watch is not None
        launch.run.watch(len(block.steps) + 1, threads, where)

    def _advances(self) -> bool:
        """Return whether threads of the launch ended, or code was first reached, since the last call."""
        was, self._advanced = self._advanced, (self.launch.ended, self.launch.visits.count(0))
        return self.launch.run.step_limit is None and self._advanced != was

    def park(self) -> None:
        """Record the state of a batch that spins, and whether it repeats since anything changed."""
        if self._digests_since != self.launch.progress:
            self._digests_since, self._digests = self.launch.progress, set()
        digest = self._digest()
        if digest in self._digests:
            self.stuck_since = self.launch.progress
        self._digests.add(digest)

    def _digest(self) -> int:
        """Return a digest of where threads stand or wait, and of their registers and local memory."""
        batch = self.batch
        digest = zlib.crc32(batch.local.data.tobytes())
        for state in barriers(batch).state():
            digest = zlib.crc32(state.tobytes(), digest)
        places = [(n, at[n]) for at in (batch.ready, batch.stalled) for n in sorted(at)]
        for number, threads in (*places, (-1, barriers(batch).threads())):
            digest = zlib.crc32(b"%d" % number, digest)
            for register in batch.registers:
                own = register if threads is None or register.size == 1 else register[threads]
                digest = zlib.crc32(own.tobytes(), digest)
            digest = digest if threads is None else zlib.crc32(threads.tobytes(), digest)
        return digest

    def _next(self) -> int:
        """Return the block to run: the lowest that does not spin, else the one that waited longest."""
        ready, spinning = self.batch.ready, self.spinning
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
            return int(self.random.choice([*ready]))  # threads that wait may see each change before the next
        others = [number for number in ready if number not in spinning]
        return min(others) if others else min(ready, key=lambda number: spinning[number])

    def _admit(self, block: DecodedBlock, number: int) -> bool:
        """Activate the threads that are at a block; return whether any of them can run it now."""
        batch = self.batch
        batch.active = batch.ready.pop(number)
        if batch.stalled and number in batch.stalled:
            batch.send(number, batch.active)
            batch.send(number, batch.stalled.pop(number))
            batch.active = batch.ready.pop(number)
        if self.awake is not None:
            batch.active = self._pause_warps(number, batch.active, self.awake)
            if not len(batch.active):
                return False
        return block.admit is None or block.admit(batch)

    def _only_spins(self, number: int) -> bool:
        """Return, after a round, whether the batch only waits for what others have to do."""
        launch = self.launch
        if launch.progress != self._progress:
            self._progress, self._reads, self._idle = launch.progress, launch.strong_reads, 0
            return False
        self._idle += 1
        patience = PATIENCE_WITH_SPINNERS if number in self.spinning else PATIENCE
        if self._idle < patience or launch.strong_reads == self._reads:
            return False
        self._spin_rounds += 1
        self.spinning[number] = self._spin_rounds
        if self.paused:
            self._wake_warps()
            self._idle = 1
        return self._idle > (SPIN_ROUNDS_OF_RANKS if launch.others else SPIN_ROUNDS)

    def _resume(self) -> bool:
        """Find threads to run when none is ready: paused warps, then stalled ones; else report a deadlock."""
        batch = self.batch
        if self.paused:
            first = self._last_of(self.paused) if self.is_reversed else 0
            self._wake_warps()
            if self.is_reversed:
                self._wake_from(first)
            return True
        if batch.stalled and self._retried_at_step != batch.steps:
            self._retried_at_step = batch.steps
            self._retry_stalled()
            return True
        if batch.stalled or len(barriers(batch).threads()):
            report_deadlock(self.launch, [batch])
        return False

    def _retry_stalled(self) -> None:
        """Make threads that wait for their warp ready, to see whether it has come or ended."""
        for number, threads in self.batch.stalled.items():
            self.batch.send(number, threads)
        self.batch.stalled.clear()

    def _let_run_ahead(self) -> None:
        """Pause some warps for the rounds to come, or wake them after those."""
        assert self.random is not None
        self._until -= 1
        if self.awake is not None and self._until <= 0:
            self._wake_warps()
        elif self.spinning and self._idle:
            return  # whether all wait is to be seen
        elif self.awake is None and self._steps_ahead <= SHARE_AHEAD * self.batch.steps:
            self.awake = self.random.random(self.batch.threads // WARP) < 0.5
            self._until = int(self.random.integers(1, ROUNDS_AHEAD))

    def _let_last_run(self) -> None:
        """Pause all warps but the last ones that can run, unless some wait in a loop for others."""
        self._until -= 1
        if self.awake is None and self._until <= 0 and not self.spinning:
            self._wake_from(self._last_of(self.batch.ready))

    def _wake_from(self, first: int) -> None:
        """Let the warps from a group on run; all of them do for a round at least before others are paused."""
        groups = np.arange(self.batch.threads // WARP) // self._group_warps
        self.awake, self._until = (groups >= first if first else None), 2

    @property
    def _group_warps(self) -> int:
        return -(-self.batch.threads // WARP // REVERSED_GROUPS)

    def _last_of(self, lanes_at: Mapping[int, Threads | None]) -> int:
        """Return the last group of warps among threads at some basic blocks."""
        last = max(
            self.batch.threads - 1 if threads is None else int(threads[-1]) for threads in lanes_at.values()
        )
        return last // WARP // self._group_warps

    def _pause_warps(self, number: int, threads: Threads | None, awake: Array) -> Threads:
        """Pause the threads whose warps are not to run now; return the others."""
        threads = self.batch.everyone() if threads is None else threads
        runs = awake[threads // WARP]
        if runs.all():
            return threads
        paused = threads[~runs]
        self.paused[number] = merged(self.paused[number], paused) if number in self.paused else paused
        return threads[runs]

    def _wake_warps(self) -> None:
        """Make paused threads ready, and let all warps run."""
        paused, self.paused, self.awake, self._were_apart = self.paused, {}, None, True
        for number, threads in paused.items():
            self.batch.send(number, threads)


def _carry_on(batch: Batch, block: DecodedBlock, first: int) -> None:
    """Run the rest of a block's steps with the undefined bits carried along.

    Args:
        first: The index of the first of these steps.
    """
    carriers, (last, ending), kept = block.carriers()
    for carrier in carriers[first:]:
        carrier(batch)
    threads = batch.numbers()
    batch.undefined.user = last
    for slot in ending:
        batch.undefined.use(slot, threads)
    batch.undefined.end_block(threads, kept)


def report_deadlock(launch: LaunchState, batches: Sequence[Batch]) -> None:
    """Report that no thread of these batches can go on."""
    waits = [(batch, *wait) for batch in batches for wait in _waits(batch)]
    counts: Counter[tuple[str, str]] = Counter()
    for batch, threads, instruction, verb in waits:
        line = launch.decoded.location_of(instruction)[1]
        of_rank = f" of rank {batch.shape.rank}" if launch.others else ""
        counts[of_rank, f"at line {line} {verb} in `{instruction.ptx.text}`"] += len(threads)
    summary = "; ".join(
        f"{count} {'thread' if count == 1 else 'threads'}{rank} {where}"
        for (rank, where), count in counts.items()
    )
    batch, threads, instruction, _ = next((wait for wait in waits if _is_apart(*wait)), waits[0])
    if _is_apart(batch, threads, instruction, ""):
        kind = instruction.ptx.opcode
        message = (
            f"{kind}: the warps of a warpgroup are apart: {summary}. All four have to execute the same "
            f"{kind} instructions: take them out of conditions that differ within 128 threads."
        )
        batch.report(kind, instruction, threads, message, count=counts.total())
        return
    lacking = "".join(each.lacking() for each in batches[:1] if each.lacking is not None)
    message = (
        f"no thread can continue: {summary}. {lacking}Each waits for others that never arrive: let all "
        "threads that a barrier or a mask names reach it, and let the thread that sets a flag or releases a "
        "lock get there."
    )
    batch.report("deadlock", instruction, threads, message, count=counts.total())


def _is_apart(batch: Batch, threads: Threads, instruction: FlatInstruction, _verb: str) -> bool:
    """Return whether threads wait for their warpgroup, whose other threads wait elsewhere and do not spin."""
    groups = batch.find(Warpgroups)
    if groups is None or instruction.ptx.opcode not in ("wgmma", "setmaxnreg"):
        return False
    ready = [batch.everyone() if each is None else each for each in batch.ready.values()]
    return not any(np.isin(groups.of(threads), groups.of(each)).any() for each in ready)


def _waits(batch: Batch) -> Iterator[tuple[Threads, FlatInstruction, str]]:
    """Yield the threads that wait, where, and the verb that says how."""
    blocks = batch.launch.decoded.blocks
    for number, threads in batch.ready.items():
        instruction = batch.waits_on or blocks[number].instruction
        yield batch.everyone() if threads is None else threads, instruction, "spin"
    for number, stalled in batch.stalled.items():
        yield stalled, blocks[number].instruction, "wait for their warp"
    for waiting, instruction in barriers(batch).waiters():
        yield waiting, instruction, "wait"


def _report_over_limit(launch: LaunchState, batch: Batch, instruction: FlatInstruction) -> None:
    """Report that a batch ran for longer than it may."""
    threads = batch.everyone() if batch.active is None else batch.active
    steps = min(batch.steps, launch.run.step_limit or launch.run.patience or PATIENCE_STEPS)
    remedy = launch.run.remedy or f"pass a higher limit: dotcu.simulate(step_limit={10 * steps})."
    message = (
        f"still running after {steps} steps: a loop that does not end, or a wait for something "
        f"that never happens. If the kernel is only long, {remedy}"
    )
    batch.report("step-limit", instruction, threads, message)
