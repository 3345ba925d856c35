"""Barriers: 16 for each block, and one for each cluster, with the threads that wait at each.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: bar, barrier,
barrier.cluster"; CUDA Programming Guide, "Synchronization Functions".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dotcu.simulator.machine.clocks import NEVER
from dotcu.simulator.machine.shape import WARP, Threads
from dotcu.simulator.machine.state import Batch
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array

BARRIERS = 16
Finish = Callable[[Threads, Array, Array], None]
_NOWHERE = -1


class BlockBarriers:
    """The barriers of a batch's blocks.

    A thread that waits has the number of its barrier, how many threads that barrier is to
    gather (0: all of the block), and the basic block where it goes on.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.waiting = 0
        self.key = np.full(batch.threads, _NOWHERE, np.int64)
        self.wanted = np.zeros(batch.threads, np.int64)
        self.resume = np.zeros(batch.threads, np.int64)
        self.votes = np.zeros(batch.threads, bool)
        # They waited, when others completed their barrier.
        self._left = np.zeros(batch.threads, bool)
        self.finish: dict[int, Finish] = {}
        self.place: dict[int, FlatInstruction] = {}
        self.arrived: Array | None = None
        # Beyond what all passed together: how many barriers of the block each thread passed.
        self.passed = np.zeros(batch.threads, np.int64)
        # The last threads of each block that were released from several places at once, and those places.
        self._apart: dict[int, tuple[Threads, Array]] = {}
        self.cluster = ClusterBarriers(batch)
        batch.at_exit.append(lambda threads: self.recheck())

    def wait(
        self,
        instruction: FlatInstruction,
        resume: int,
        number: Array,
        count: Array | None,
        vote: Array | None = None,
        finish: Finish | None = None,
    ) -> None:
        """Make the active threads wait at a barrier of their block, and go on at `resume`.

        Args:
            vote: What each thread contributes to a reduction.
            finish: Takes, for threads that are released, how many voted yes and how many there were.
        """
        batch = self.batch
        everyone = batch.count() == batch.threads and number.size == 1 and finish is None
        if everyone and count is None and not self.waiting and self.arrived is None:
            batch.clocks.barrier(None, None, whole=True)
            self._passed(None)
            batch.send(resume, None)
            return
        threads = batch.numbers()
        self.place[resume] = instruction
        if vote is not None and finish is not None:
            self.votes[threads] = vote
            self.finish[resume] = finish
        self.key[threads] = self._keys(number)
        self.wanted[threads] = 0 if count is None else count
        self.resume[threads] = resume
        self.waiting += len(threads)
        self.recheck()

    def arrive(self, number: Array, count: Array) -> None:
        """Make the active threads arrive at a barrier without waiting for it.

        It completes if the number of arrivals that it counts has come and no thread waits: one that waits
        later waits for other arrivals.
        """
        batch = self.batch
        if self.arrived is None:
            self.arrived = np.zeros(batch.shape.blocks * BARRIERS, np.int64)
        keys = self._keys(number)
        batch.clocks.post(batch.numbers(), keys)
        batch.launch.progress += 1
        np.add.at(self.arrived, keys, 1)
        self.recheck()
        wanted = np.zeros(len(self.arrived), np.int64)
        wanted[keys] = count
        unawaited = (self.arrived >= wanted) & (wanted > 0)
        unawaited[self.key[self.key != _NOWHERE]] = False
        if unawaited.any():
            self.arrived[unawaited] %= wanted[unawaited]
            batch.clocks.forget(np.flatnonzero(unawaited))

    def _keys(self, number: Array) -> Array:
        """Return the barrier of each active thread, counted over all blocks."""
        block: Array = self.batch.numbers() // self.batch.shape.pitch
        return block * BARRIERS + number.astype(np.int64) % BARRIERS

    def recheck(self) -> None:
        """Release every barrier that has gathered all the threads that it waits for."""
        self.cluster.recheck()
        if not self.waiting:
            return
        batch = self.batch
        threads = np.flatnonzero(self.key != _NOWHERE)
        keys = self.key[threads]
        total = batch.shape.blocks * BARRIERS
        here = np.bincount(keys, minlength=total)
        gathered = here if self.arrived is None else here + self.arrived
        wanted = np.zeros(total, np.int64)
        np.maximum.at(wanted, keys, self.wanted[threads])
        living = batch.live.reshape(batch.shape.blocks, -1).sum(axis=1)
        default = (wanted == 0) & (here > 0)
        need = np.where(default, np.repeat(living, BARRIERS), wanted)
        complete = (here > 0) & (gathered >= need)
        if complete.any():
            used = None
            if self.arrived is not None:  # of more arrivals than there is room for, some are the next round's
                rest = np.maximum(need - here, 0)
                used = np.where((self.arrived < need) | default, self.arrived, rest)
            ready = threads[complete[keys]]
            first = self._first(ready, need, default, used)
            self._release(first, default)
            self._left[ready] = True
            self._left[first] = False
            if self.arrived is not None and used is not None:
                self.arrived[complete] -= used[complete]

    def _first(self, threads: Threads, need: Array, default: Array, used: Array | None) -> Threads:
        """Return as many threads as a barrier counts; the others wait for its next round.

        Args:
            need: By barrier, how many threads it counts.
            default: By barrier, whether these are all of its block.
            used: By barrier, the arrivals among them.
        """
        keys = self.key[threads]
        if default[keys].all():
            return threads
        order = np.argsort(keys, kind="stable")
        starts = np.searchsorted(keys[order], keys[order])
        room = need if used is None else need - used
        fits = np.empty(len(threads), bool)
        fits[order] = np.arange(len(threads)) - starts < room[keys[order]]
        return threads[fits | default[keys]]

    def _report_surplus(self, threads: Threads) -> None:
        """Report threads that waited at a barrier while others completed it: they might as well have."""
        count, number = self.wanted[threads[0]], self.key[threads[0]] % BARRIERS
        message = (
            f"more threads than the {count} that it counts wait at barrier {number} at once: it is undefined "
            "which of them meet. Use another number for each group of threads, or count them all."
        )
        self.batch.report("barrier", self.place[int(self.resume[threads[0]])], threads, message)

    def _passed(self, threads: Threads | None) -> None:
        """All threads of some blocks have passed a barrier: what was before it is settled.

        That alone is no progress: a block may spin in a loop through a barrier.
        """
        batch = self.batch
        batch.shared.look()
        for settle in batch.on.barrier:
            settle(batch, threads)

    def _release(self, threads: Threads, default: Array) -> None:
        self._judge(threads, default)
        if (surplus := self._left[threads]).any():
            self._report_surplus(threads[surplus])
        if self.finish:
            self._reduce(threads)
        whole = threads[default[self.key[threads]]]
        if len(whole) and "divergence" in self.batch.launch.run.checks:
            self._judge_divergence(whole)
        self.batch.clocks.barrier(threads, self.key[threads], whole=len(whole) == len(threads))
        self._passed(None if len(whole) == self.batch.living else whole)
        self.key[threads] = _NOWHERE
        self.waiting -= len(threads)
        for resume in np.unique(self.resume[threads]).tolist():
            self.batch.send(resume, threads[self.resume[threads] == resume])

    def _judge_divergence(self, threads: Threads) -> None:
        """Report barriers of whole blocks that a part of a warp reaches, or that threads reach at two places.

        Source: CUDA C++ Programming Guide, "Synchronization Functions": __syncthreads() in conditional code
        only if the condition is the same across the block; PTX ISA, "bar": .aligned.
        """
        batch, pitch = self.batch, self.batch.shape.pitch
        gone = (batch.warp_bits(np.flatnonzero(batch.existing & ~batch.live)) != 0)[threads // WARP]
        if gone.any():
            part = threads[gone]
            message = (
                "divergent-barrier: some threads of this warp have ended, and the others meet at a barrier "
                "of the block. Hardware waits for these alone; the CUDA guide asks that all threads of the "
                "block reach __syncthreads(), or none. Let threads without work reach it, too."
            )
            batch.report("divergent-barrier", self.place[int(self.resume[part[0]])], part, message)
        first = np.full(batch.shape.blocks, np.iinfo(np.int64).max)
        np.minimum.at(first, threads // pitch, self.resume[threads])
        apart = self.resume[threads] != first[threads // pitch]
        if apart.any():
            others = threads[apart]
            place = self.place[int(first[others[0] // pitch])]
            line = batch.launch.decoded.location_of(place)[1]
            message = (
                "divergent-barrier: threads meet at this barrier with others of their block that are at "
                f"line {line}. Hardware takes both for one barrier; the CUDA guide asks that all threads of "
                "the block reach the same __syncthreads(). Take it out of the condition."
            )
            batch.report("divergent-barrier", self.place[int(self.resume[others[0]])], others, message)

    def _reduce(self, threads: Threads) -> None:
        """Give threads that wait for a reduction what their barrier gathered."""
        keys = self.key[threads]
        everyone = np.bincount(keys)
        yes = np.bincount(keys, weights=self.votes[threads]).astype(np.int64)
        for resume, finish in self.finish.items():
            here = self.resume[threads] == resume
            if here.any():
                finish(threads[here], yes[keys[here]], everyone[keys[here]])

    def _judge(self, threads: Threads, default: Array) -> None:
        """Report a warp whose threads are at two aligned barriers; note blocks whose warps are at several.

        Threads that have exited are not waited for, and warps may meet at different barriers of one number.
        Each warp has to take an aligned one as a whole, and all that met so as often as each other.

        Source: PTX ISA, "bar, barrier": it waits for "non-exited threads"; ".aligned": all threads of a warp
        execute the same instruction.
        """
        batch = self.batch
        threads = threads[default[self.key[threads]]]
        self.passed[threads] += 1
        resumes = self.resume[threads]
        if not (resumes != resumes[:1]).any():
            return
        waits = [self.place[resume].ptx for resume in resumes.tolist()]
        aligned = np.array([each.opcode == "bar" or "aligned" in each.flags for each in waits])
        for resume in np.unique(resumes)[1:].tolist():
            here, others = resumes == resume, resumes < resume
            warps = np.intersect1d(threads[here & aligned] // WARP, threads[others & aligned] // WARP)
            mixed = np.isin(threads // WARP, warps)
            if mixed.any():
                self._report_apart(
                    threads[others & mixed], threads[here & mixed], "threads of one warp wait here and others"
                )
        blocks = threads // batch.shape.pitch
        for block in np.unique(blocks).tolist():
            own = blocks == block
            if (resumes[own] != resumes[own][0]).any():
                self._apart[block] = (threads[own], resumes[own])

    def judge_counts(self) -> None:
        """Report blocks whose warps met at different barriers, and not equally often in the end.

        Warps may leave before the others have met for the last time, unless all have the same last barrier.
        """
        for threads, resumes in self._apart.values():
            passed, last = self.passed[threads], self.resume[threads]
            goes_on = passed == passed.max()
            if np.isin(last[~goes_on], last[goes_on]).any():
                here = resumes == resumes.min()
                counts = " and ".join(map(str, np.unique(passed).tolist()))
                self.resume[threads] = resumes
                what = f"warps of one block, which reach {counts} barriers in all, wait here and others"
                self._report_apart(threads[here], threads[~here], what)

    def _report_apart(self, threads: Threads, others: Threads, what: str) -> None:
        instruction, other = (self.place[int(self.resume[side[0]])] for side in (threads, others))
        message = (
            f"{what} at line {self.batch.launch.decoded.location_of(other)[1]}, at the same time. "
            "All threads of a block have to reach the same __syncthreads(), equally often: "
            "take it out of the condition."
        )
        self.batch.report("barrier", instruction, threads, message)

    def state(self) -> tuple[Array, ...]:
        """Return which threads wait at which barrier, and what has arrived."""
        arrived = () if self.arrived is None else (self.arrived,)
        cluster = (self.cluster.resume, self.cluster.owes) if self.cluster.is_used else ()
        return (self.key, self.wanted, self.resume, self.votes, *arrived, *cluster)

    def threads(self) -> Threads:
        """Return the threads that wait."""
        return np.flatnonzero((self.key != _NOWHERE) | (self.cluster.resume != _NOWHERE))

    def waiters(self) -> list[tuple[Threads, FlatInstruction]]:
        """Return the threads that wait, by instruction."""
        own = np.where(self.key != _NOWHERE, self.resume, _NOWHERE)
        rows = ((own, self.place), (self.cluster.resume, self.cluster.place))
        return [
            (np.flatnonzero(resumes == resume), place[resume])
            for resumes, place in rows
            for resume in np.unique(resumes[resumes != _NOWHERE]).tolist()
        ]


class ClusterBarriers:
    """The barrier of each cluster of a batch: all threads that have not exited arrive, and later wait.

    Attributes:
        waiting: How many threads wait.
        is_used: A thread has arrived at it.
        owes: For each thread the phase in which it arrived and has not waited yet; -1: none.
        resume: For each thread that waits, the basic block where it goes on; -1: it does not wait.
        place: The instructions that wait, by that block.
    """

    def __init__(self, batch: Batch) -> None:
        shape = batch.shape
        clusters = shape.blocks // shape.cluster_blocks
        self.batch = batch
        self.waiting = 0
        self.is_used = False
        self.owes = np.full(batch.threads, _NOWHERE, np.int64)
        self.resume = np.full(batch.threads, _NOWHERE, np.int64)
        self.place: dict[int, FlatInstruction] = {}
        self._arrived = np.zeros(batch.threads, bool)
        self._phase = np.zeros(clusters, np.int64)
        warps = shape.cluster_threads // WARP if shape.cluster_blocks > 1 else 0
        # For each cluster what arrivals released in this phase, and in the one before.
        shapes: tuple[tuple[int, ...], ...] = ((clusters,), (clusters,), (clusters, warps))
        self._released, self._known = ([np.full(s, NEVER, np.int64) for s in shapes] for _ in range(2))
        # For each cluster the marks of its first arrival; none after a relaxed one.
        self._marks: dict[int, list[Any]] = {}
        self._settled: dict[int, list[Any]] = {}
        # mbarriers that threads initialised; in the end, those that their fence has released.
        self._inits: list[tuple[Threads, Array]] = []
        self._fenced: list[tuple[Threads, Array]] = []

    def _cluster(self, threads: Threads) -> Array:
        return threads // self.batch.shape.cluster_threads

    def arrive(self, instruction: FlatInstruction, *, relaxed: bool) -> None:
        """Make the active threads arrive."""
        batch, threads = self.batch, self.batch.numbers()
        self.is_used = True
        again = self.owes[threads] != _NOWHERE
        if again.any():
            message = (
                "an arrival at the cluster's barrier by a thread that has not waited since its last one. Put "
                "barrier.cluster.wait (cluster.barrier_wait()) between two arrivals."
            )
            batch.report("barrier", instruction, threads[again], message)
            threads = threads[~again]
        cluster = self._cluster(threads)
        self.owes[threads], self._arrived[threads] = self._phase[cluster], True
        if batch.shape.cluster_blocks > 1:
            released = batch.clocks.arrive(threads, relaxed=relaxed)
            for highest, times in zip(self._released, released, strict=True):
                np.maximum.at(highest, cluster, times)
            marks = [] if relaxed else [mark(batch) for mark in batch.on.arrive]
            for number in np.unique(cluster).tolist():
                self._marks[number] = marks and self._marks.get(number, marks)
        batch.launch.progress += 1
        self.recheck()

    def wait(self, instruction: FlatInstruction, resume: int) -> None:
        """Make the active threads wait until all of their cluster have arrived, and go on at `resume`."""
        batch, threads = self.batch, self.batch.numbers()
        without = self.owes[threads] == _NOWHERE
        if without.any():
            message = (
                "a wait at the cluster's barrier by a thread that has not arrived there. Put "
                "barrier.cluster.arrive (cluster.barrier_arrive()) before it."
            )
            batch.report("barrier", instruction, threads[without], message)
            with_arrival, batch.active = batch.active, threads[without]
            self.arrive(instruction, relaxed=True)
            batch.active = with_arrival
        self.place[resume] = instruction
        self.resume[threads] = resume
        self.waiting += len(threads)
        self._let_go()

    def recheck(self) -> None:
        """Complete the phase of every cluster all of whose living threads have arrived."""
        if not self.is_used:
            return
        rows = len(self._phase), -1
        arrived = self._arrived.reshape(rows)
        complete = (arrived | ~self.batch.live.reshape(rows)).all(axis=1) & arrived.any(axis=1)
        if not complete.any():
            return
        self._phase[complete] += 1
        arrived[complete] = False
        for known, released in zip(self._known, self._released, strict=True):
            known[complete], released[complete] = released[complete], NEVER
        for number in np.flatnonzero(complete).tolist():
            self._settled[number] = self._marks.pop(number, [])
        self._settle_inits(complete)
        self._let_go()

    def _let_go(self) -> None:
        """Let the threads go on whose phase is over."""
        if not self.waiting:
            return
        batch, waiting = self.batch, np.flatnonzero(self.resume != _NOWHERE)
        threads = waiting[self.owes[waiting] < self._phase[self._cluster(waiting)]]
        if not len(threads):
            return
        cluster = self._cluster(threads)
        self.owes[threads] = _NOWHERE
        self.waiting -= len(threads)
        batch.shared.look()
        if batch.shape.cluster_blocks > 1:
            batch.clocks.leave(threads, *(known[cluster] for known in self._known))
            for number in np.unique(cluster).tolist():
                for leave, mark in zip(batch.on.leave, self._settled.get(number, []), strict=False):
                    leave(batch, threads[cluster == number], mark)
        resumes = self.resume[threads]
        self.resume[threads] = _NOWHERE
        for resume in np.unique(resumes).tolist():
            batch.send(resume, threads[resumes == resume])

    def note_inits(self, threads: Threads, objects: Array) -> None:
        """Note mbarriers, as 8-byte elements of shared memory, that threads have initialised."""
        if self.batch.shape.cluster_blocks > 1:
            self._inits.append((threads, objects))

    def release_inits(self) -> None:
        """The active threads release the mbarriers that they initialised to all that leave the next barrier.

        Source: PTX ISA, "Parallel Synchronization and Communication Instructions: membar, fence"
        (fence.mbarrier_init).
        """
        active, kept = self.batch.numbers(), []
        for threads, objects in self._inits:
            here = np.isin(threads, active)
            self._fenced.append((threads[here], objects[here]))
            kept.append((threads[~here], objects[~here]))
        self._inits = [pair for pair in kept if len(pair[0])]

    def _settle_inits(self, complete: Array) -> None:
        kept = []
        for threads, objects in self._fenced:
            here = complete[self._cluster(threads)]
            for publish in self.batch.on.publish:
                publish(self.batch, objects[here])
            kept.append((threads[~here], objects[~here]))
        self._fenced = [pair for pair in kept if len(pair[0])]


def barriers(batch: Batch) -> BlockBarriers:
    """The barriers of a batch's blocks."""
    return batch.part(BlockBarriers)
