"""Barriers: 16 for each block, and one for each cluster, with the lanes that wait at each.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: bar, barrier,
barrier.cluster"; CUDA Programming Guide, "Synchronization Functions".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dotcu.simulator.machine.clocks import NEVER
from dotcu.simulator.machine.shape import WARP, Lanes
from dotcu.simulator.machine.state import Chunk
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array

BARRIERS = 16
Finish = Callable[[Lanes, Array, Array], None]
_NOWHERE = -1


class BlockBarriers:
    """The barriers of a chunk's blocks.

    A lane that waits has the number of its barrier, how many threads that barrier is to
    gather (0: all of the block), and the basic block where it goes on.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.waiting = 0
        self.key = np.full(chunk.lanes, _NOWHERE, np.int64)
        self.wanted = np.zeros(chunk.lanes, np.int64)
        self.resume = np.zeros(chunk.lanes, np.int64)
        self.votes = np.zeros(chunk.lanes, bool)
        # They waited, when others completed their barrier.
        self._left = np.zeros(chunk.lanes, bool)
        self.finish: dict[int, Finish] = {}
        self.place: dict[int, FlatInstruction] = {}
        self.arrived: Array | None = None
        # Beyond what all passed together: how many barriers of the block each lane passed.
        self.passed = np.zeros(chunk.lanes, np.int64)
        # The last lanes of each block that were released from several places at once, and those places.
        self._apart: dict[int, tuple[Lanes, Array]] = {}
        self.cluster = ClusterBarriers(chunk)
        chunk.at_exit.append(lambda lanes: self.recheck())

    def wait(
        self,
        placed: FlatInstruction,
        resume: int,
        number: Array,
        count: Array | None,
        vote: Array | None = None,
        finish: Finish | None = None,
    ) -> None:
        """Make the active lanes wait at a barrier of their block, and go on at `resume`.

        Args:
            vote: What each lane contributes to a reduction.
            finish: Takes, for lanes that are released, how many voted yes and how many there were.
        """
        chunk = self.chunk
        everyone = chunk.count() == chunk.lanes and number.size == 1 and finish is None
        if everyone and count is None and not self.waiting and self.arrived is None:
            chunk.clocks.barrier(None, None, whole=True)
            self._passed(None)
            chunk.send(resume, None)
            return
        lanes = chunk.numbers()
        self.place[resume] = placed
        if vote is not None and finish is not None:
            self.votes[lanes] = vote
            self.finish[resume] = finish
        self.key[lanes] = self._keys(number)
        self.wanted[lanes] = 0 if count is None else count
        self.resume[lanes] = resume
        self.waiting += len(lanes)
        self.recheck()

    def arrive(self, number: Array, count: Array) -> None:
        """Make the active lanes arrive at a barrier without waiting for it.

        Where as many arrive as it counts, and none waits, it completes: who waits later, waits for others.
        """
        chunk = self.chunk
        if self.arrived is None:
            self.arrived = np.zeros(chunk.shape.blocks * BARRIERS, np.int64)
        keys = self._keys(number)
        chunk.clocks.post(chunk.numbers(), keys)
        chunk.grid.progress += 1
        np.add.at(self.arrived, keys, 1)
        self.recheck()
        wanted = np.zeros(len(self.arrived), np.int64)
        wanted[keys] = count
        alone = (self.arrived >= wanted) & (wanted > 0)
        alone[self.key[self.key != _NOWHERE]] = False
        if alone.any():
            self.arrived[alone] %= wanted[alone]
            chunk.clocks.forget(np.flatnonzero(alone))

    def _keys(self, number: Array) -> Array:
        """Return the barrier of each active lane, counted over all blocks."""
        block: Array = self.chunk.numbers() // self.chunk.shape.pitch
        return block * BARRIERS + number.astype(np.int64) % BARRIERS

    def recheck(self) -> None:
        """Release every barrier that has gathered all the threads that it waits for."""
        self.cluster.recheck()
        if not self.waiting:
            return
        chunk = self.chunk
        lanes = np.flatnonzero(self.key != _NOWHERE)
        keys = self.key[lanes]
        total = chunk.shape.blocks * BARRIERS
        here = np.bincount(keys, minlength=total)
        gathered = here if self.arrived is None else here + self.arrived
        wanted = np.zeros(total, np.int64)
        np.maximum.at(wanted, keys, self.wanted[lanes])
        living = chunk.live.reshape(chunk.shape.blocks, -1).sum(axis=1)
        default = (wanted == 0) & (here > 0)
        need = np.where(default, np.repeat(living, BARRIERS), wanted)
        complete = (here > 0) & (gathered >= need)
        if complete.any():
            used = None
            if self.arrived is not None:  # of more arrivals than there is room for, some are the next round's
                rest = np.maximum(need - here, 0)
                used = np.where((self.arrived < need) | default, self.arrived, rest)
            ready = lanes[complete[keys]]
            first = self._first(ready, need, default, used)
            self._release(first, default)
            self._left[ready] = True
            self._left[first] = False
            if self.arrived is not None and used is not None:
                self.arrived[complete] -= used[complete]

    def _first(self, lanes: Lanes, need: Array, default: Array, used: Array | None) -> Lanes:
        """Return as many lanes as a barrier counts; the others wait for its next round.

        Args:
            need: By barrier, how many threads it counts.
            default: By barrier, whether these are all of its block.
            used: By barrier, the arrivals among them.
        """
        keys = self.key[lanes]
        if default[keys].all():
            return lanes
        order = np.argsort(keys, kind="stable")
        starts = np.searchsorted(keys[order], keys[order])
        room = need if used is None else need - used
        fits = np.empty(len(lanes), bool)
        fits[order] = np.arange(len(lanes)) - starts < room[keys[order]]
        return lanes[fits | default[keys]]

    def _report_surplus(self, lanes: Lanes) -> None:
        """Report lanes that waited at a barrier while others completed it: they might as well have."""
        count, number = self.wanted[lanes[0]], self.key[lanes[0]] % BARRIERS
        message = (
            f"more threads than the {count} that it counts wait at barrier {number} at once: it is undefined "
            "which of them meet. Use another number for each group of threads, or count them all."
        )
        self.chunk.report("barrier", self.place[int(self.resume[lanes[0]])], lanes, message)

    def _passed(self, lanes: Lanes | None) -> None:
        """All threads of some blocks have passed a barrier: what was before it is settled.

        That alone is no progress: a block may spin in a loop through a barrier.
        """
        chunk = self.chunk
        chunk.shared.look()
        for settle in chunk.on.barrier:
            settle(chunk, lanes)

    def _release(self, lanes: Lanes, default: Array) -> None:
        self._judge(lanes, default)
        if (surplus := self._left[lanes]).any():
            self._report_surplus(lanes[surplus])
        if self.finish:
            self._reduce(lanes)
        whole = lanes[default[self.key[lanes]]]
        if len(whole) and "divergence" in self.chunk.grid.run.checks:
            self._judge_divergence(whole)
        self.chunk.clocks.barrier(lanes, self.key[lanes], whole=len(whole) == len(lanes))
        self._passed(None if len(whole) == self.chunk.living else whole)
        self.key[lanes] = _NOWHERE
        self.waiting -= len(lanes)
        for resume in np.unique(self.resume[lanes]).tolist():
            self.chunk.send(resume, lanes[self.resume[lanes] == resume])

    def _judge_divergence(self, lanes: Lanes) -> None:
        """Report barriers of whole blocks that a part of a warp reaches, or that threads reach at two places.

        Source: CUDA C++ Programming Guide, "Synchronization Functions": __syncthreads() in conditional code
        only if the condition is the same across the block; PTX ISA, "bar": .aligned.
        """
        chunk, pitch = self.chunk, self.chunk.shape.pitch
        gone = (chunk.warp_bits(np.flatnonzero(chunk.existing & ~chunk.live)) != 0)[lanes // WARP]
        if gone.any():
            part = lanes[gone]
            message = (
                "divergent-barrier: some threads of this warp have ended, and the others meet at a barrier "
                "of the block. Hardware waits for these alone; the CUDA guide asks that all threads of the "
                "block reach __syncthreads(), or none. Let threads without work reach it, too."
            )
            chunk.report("divergent-barrier", self.place[int(self.resume[part[0]])], part, message)
        first = np.full(chunk.shape.blocks, np.iinfo(np.int64).max)
        np.minimum.at(first, lanes // pitch, self.resume[lanes])
        apart = self.resume[lanes] != first[lanes // pitch]
        if apart.any():
            others = lanes[apart]
            place = self.place[int(first[others[0] // pitch])]
            line = chunk.grid.decoded.location_of(place)[1]
            message = (
                "divergent-barrier: threads meet at this barrier with others of their block that are at "
                f"line {line}. Hardware takes both for one barrier; the CUDA guide asks that all threads of "
                "the block reach the same __syncthreads(). Take it out of the condition."
            )
            chunk.report("divergent-barrier", self.place[int(self.resume[others[0]])], others, message)

    def _reduce(self, lanes: Lanes) -> None:
        """Give lanes that wait for a reduction what their barrier gathered."""
        keys = self.key[lanes]
        everyone = np.bincount(keys)
        yes = np.bincount(keys, weights=self.votes[lanes]).astype(np.int64)
        for resume, finish in self.finish.items():
            here = self.resume[lanes] == resume
            if here.any():
                finish(lanes[here], yes[keys[here]], everyone[keys[here]])

    def _judge(self, lanes: Lanes, default: Array) -> None:
        """Report a warp whose threads are at two aligned barriers; note blocks whose warps are at several.

        Threads that have exited are not waited for, and warps may meet at different barriers of one number.
        Each warp has to take an aligned one as a whole, and all that met so as often as each other.

        Source: PTX ISA, "bar, barrier": it waits for "non-exited threads"; ".aligned": all threads of a warp
        execute the same instruction.
        """
        chunk = self.chunk
        lanes = lanes[default[self.key[lanes]]]
        self.passed[lanes] += 1
        resumes = self.resume[lanes]
        if not (resumes != resumes[:1]).any():
            return
        waits = [self.place[resume].instruction for resume in resumes.tolist()]
        aligned = np.array([each.opcode == "bar" or "aligned" in each.flags for each in waits])
        for resume in np.unique(resumes)[1:].tolist():
            here, others = resumes == resume, resumes < resume
            warps = np.intersect1d(lanes[here & aligned] // WARP, lanes[others & aligned] // WARP)
            mixed = np.isin(lanes // WARP, warps)
            if mixed.any():
                self._report_apart(
                    lanes[others & mixed], lanes[here & mixed], "threads of one warp wait here and others"
                )
        blocks = lanes // chunk.shape.pitch
        for block in np.unique(blocks).tolist():
            own = blocks == block
            if (resumes[own] != resumes[own][0]).any():
                self._apart[block] = (lanes[own], resumes[own])

    def judge_counts(self) -> None:
        """Report blocks whose warps met at different barriers, and not equally often in the end.

        Warps may leave before the others have met for the last time, unless all have the same last barrier.
        """
        for lanes, resumes in self._apart.values():
            passed, last = self.passed[lanes], self.resume[lanes]
            goes_on = passed == passed.max()
            if np.isin(last[~goes_on], last[goes_on]).any():
                here = resumes == resumes.min()
                counts = " and ".join(map(str, np.unique(passed).tolist()))
                self.resume[lanes] = resumes
                what = f"warps of one block, which reach {counts} barriers in all, wait here and others"
                self._report_apart(lanes[here], lanes[~here], what)

    def _report_apart(self, lanes: Lanes, others: Lanes, what: str) -> None:
        placed, other = (self.place[int(self.resume[side[0]])] for side in (lanes, others))
        message = (
            f"{what} at line {self.chunk.grid.decoded.location_of(other)[1]}, at the same time. "
            "All threads of a block have to reach the same __syncthreads(), equally often: "
            "take it out of the condition."
        )
        self.chunk.report("barrier", placed, lanes, message)

    def state(self) -> tuple[Array, ...]:
        """Return which lanes wait at which barrier, and what has arrived."""
        arrived = () if self.arrived is None else (self.arrived,)
        cluster = (self.cluster.resume, self.cluster.owes) if self.cluster.is_used else ()
        return (self.key, self.wanted, self.resume, self.votes, *arrived, *cluster)

    def lanes(self) -> Lanes:
        """Return the lanes that wait."""
        return np.flatnonzero((self.key != _NOWHERE) | (self.cluster.resume != _NOWHERE))

    def waiters(self) -> list[tuple[Lanes, FlatInstruction]]:
        """Return the lanes that wait, by instruction."""
        own = np.where(self.key != _NOWHERE, self.resume, _NOWHERE)
        rows = ((own, self.place), (self.cluster.resume, self.cluster.place))
        return [
            (np.flatnonzero(resumes == resume), place[resume])
            for resumes, place in rows
            for resume in np.unique(resumes[resumes != _NOWHERE]).tolist()
        ]


class ClusterBarriers:
    """The barrier of each cluster of a chunk: all threads that have not exited arrive, and later wait.

    Attributes:
        waiting: How many lanes wait.
        is_used: A lane has arrived at it.
        owes: For each lane the phase in which it arrived and has not waited yet; -1: none.
        resume: For each lane that waits, the basic block where it goes on; -1: it does not wait.
        place: The instructions that wait, by that block.
    """

    def __init__(self, chunk: Chunk) -> None:
        shape = chunk.shape
        clusters = shape.blocks // shape.cluster_blocks
        self.chunk = chunk
        self.waiting = 0
        self.is_used = False
        self.owes = np.full(chunk.lanes, _NOWHERE, np.int64)
        self.resume = np.full(chunk.lanes, _NOWHERE, np.int64)
        self.place: dict[int, FlatInstruction] = {}
        self._arrived = np.zeros(chunk.lanes, bool)
        self._phase = np.zeros(clusters, np.int64)
        warps = shape.cluster_lanes // WARP if shape.cluster_blocks > 1 else 0
        # For each cluster what arrivals released in this phase, and in the one before.
        shapes: tuple[tuple[int, ...], ...] = ((clusters,), (clusters,), (clusters, warps))
        self._released, self._known = ([np.full(s, NEVER, np.int64) for s in shapes] for _ in range(2))
        # For each cluster the marks of its first arrival; none after a relaxed one.
        self._marks: dict[int, list[Any]] = {}
        self._settled: dict[int, list[Any]] = {}
        # mbarriers that lanes initialised; in the end, those that their fence has released.
        self._inits: list[tuple[Lanes, Array]] = []
        self._fenced: list[tuple[Lanes, Array]] = []

    def _cluster(self, lanes: Lanes) -> Array:
        return lanes // self.chunk.shape.cluster_lanes

    def arrive(self, placed: FlatInstruction, *, relaxed: bool) -> None:
        """Make the active lanes arrive."""
        chunk, lanes = self.chunk, self.chunk.numbers()
        self.is_used = True
        again = self.owes[lanes] != _NOWHERE
        if again.any():
            message = (
                "an arrival at the cluster's barrier by a thread that has not waited since its last one. Put "
                "barrier.cluster.wait (cluster.barrier_wait()) between two arrivals."
            )
            chunk.report("barrier", placed, lanes[again], message)
            lanes = lanes[~again]
        cluster = self._cluster(lanes)
        self.owes[lanes], self._arrived[lanes] = self._phase[cluster], True
        if chunk.shape.cluster_blocks > 1:
            released = chunk.clocks.arrive(lanes, relaxed=relaxed)
            for highest, times in zip(self._released, released, strict=True):
                np.maximum.at(highest, cluster, times)
            marks = [] if relaxed else [mark(chunk) for mark in chunk.on.arrive]
            for number in np.unique(cluster).tolist():
                self._marks[number] = marks and self._marks.get(number, marks)
        chunk.grid.progress += 1
        self.recheck()

    def wait(self, placed: FlatInstruction, resume: int) -> None:
        """Make the active lanes wait until all of their cluster have arrived, and go on at `resume`."""
        chunk, lanes = self.chunk, self.chunk.numbers()
        without = self.owes[lanes] == _NOWHERE
        if without.any():
            message = (
                "a wait at the cluster's barrier by a thread that has not arrived there. Put "
                "barrier.cluster.arrive (cluster.barrier_arrive()) before it."
            )
            chunk.report("barrier", placed, lanes[without], message)
            with_arrival, chunk.active = chunk.active, lanes[without]
            self.arrive(placed, relaxed=True)
            chunk.active = with_arrival
        self.place[resume] = placed
        self.resume[lanes] = resume
        self.waiting += len(lanes)
        self._let_go()

    def recheck(self) -> None:
        """Complete the phase of every cluster all of whose living threads have arrived."""
        if not self.is_used:
            return
        rows = len(self._phase), -1
        arrived = self._arrived.reshape(rows)
        complete = (arrived | ~self.chunk.live.reshape(rows)).all(axis=1) & arrived.any(axis=1)
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
        """Let the lanes go on whose phase is over."""
        if not self.waiting:
            return
        chunk, waiting = self.chunk, np.flatnonzero(self.resume != _NOWHERE)
        lanes = waiting[self.owes[waiting] < self._phase[self._cluster(waiting)]]
        if not len(lanes):
            return
        cluster = self._cluster(lanes)
        self.owes[lanes] = _NOWHERE
        self.waiting -= len(lanes)
        chunk.shared.look()
        if chunk.shape.cluster_blocks > 1:
            chunk.clocks.leave(lanes, *(known[cluster] for known in self._known))
            for number in np.unique(cluster).tolist():
                for leave, mark in zip(chunk.on.leave, self._settled.get(number, []), strict=False):
                    leave(chunk, lanes[cluster == number], mark)
        resumes = self.resume[lanes]
        self.resume[lanes] = _NOWHERE
        for resume in np.unique(resumes).tolist():
            chunk.send(resume, lanes[resumes == resume])

    def note_inits(self, lanes: Lanes, objects: Array) -> None:
        """Note mbarriers, as 8-byte elements of shared memory, that lanes have initialised."""
        if self.chunk.shape.cluster_blocks > 1:
            self._inits.append((lanes, objects))

    def release_inits(self) -> None:
        """The active lanes release the mbarriers that they initialised, for all who leave the next barrier.

        Source: PTX ISA, "Parallel Synchronization and Communication Instructions: membar, fence"
        (fence.mbarrier_init).
        """
        active, kept = self.chunk.numbers(), []
        for lanes, objects in self._inits:
            here = np.isin(lanes, active)
            self._fenced.append((lanes[here], objects[here]))
            kept.append((lanes[~here], objects[~here]))
        self._inits = [pair for pair in kept if len(pair[0])]

    def _settle_inits(self, complete: Array) -> None:
        kept = []
        for lanes, objects in self._fenced:
            here = complete[self._cluster(lanes)]
            for publish in self.chunk.on.publish:
                publish(self.chunk, objects[here])
            kept.append((lanes[~here], objects[~here]))
        self._fenced = [pair for pair in kept if len(pair[0])]


def barriers(chunk: Chunk) -> BlockBarriers:
    """The barriers of a chunk's blocks."""
    return chunk.part(BlockBarriers)
