"""Vector clocks: the order that synchronization gives the accesses of a batch's threads.

Each thread has a time of its own, and knows of the others' times up to some point. Both exist
at each distance: towards threads of other blocks (grid), of its block (block: warps of it may meet
without the others, so that each is known apart) and of its warp (warp: the same for its threads).
When one thread waits for another, it learns all that the other did so far.
In a cluster each warp is known apart at once: its blocks synchronize in pairs and by barriers of some of
their warps, and one time for all would hide whom a barrier with too low a count left out.
So an earlier access is ordered before a later one only if its time is below what the later
thread knows; if it is not, nothing ordered them. The reverse does not hold: knowledge of one
thread's time may cover another's by chance, and such a race is missed.

Where warps are known apart, what one thread releases covers what it did itself, and what the others did
before the warp's last common instruction: __syncwarp, and any .sync whose operands they passed on.
The threads of a warp have one time towards others, so that `left_out` looks at those that took no part.

One time towards others cannot tell which threads a release covers. So turns are counted, too: a thread's
meetings and releases are its `handovers`, and it has `heard` of the turn of the last release that reached it.
If the first handover of a thread after its access is later than what the other has heard of, the two are not
ordered. Between blocks, the releases that the other's block has acquired count, too (`acquired`).

A fence sets aside the time that a later strong write publishes with its location; a strong
read of that location sees it, and takes it over at the next fence or barrier.

Source: PTX ISA, "Memory Consistency Model" (chapter 8: release and acquire patterns, causality
order); L. Lamport, "Time, Clocks, and the Ordering of Observers in a Distributed System" (1978).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dotcu.simulator.machine.shape import WARP, BatchShape, Threads
from dotcu.simulator.run import Array

NEVER = -1
# A thread advances less often, between two leaps, than two to this power.
_LEAP_BITS = 20
# Releases by some threads of a warp that are remembered for each warp.
_RELEASES = 4
_LAST_TURN = np.iinfo(np.int64).max
_BLOCK_BITS = 8


class ClockTimes(NamedTuple):
    """The threads' own times: one element for each, or a single one for all.

    A value is never changed in place: what keeps a reference keeps the time.
    """

    grid: Array
    block: Array
    warp: Array

    def of(self, threads: Threads | None) -> ClockTimes:
        """The times of some threads."""
        return ClockTimes(*(picked(values, threads) for values in self))


def picked(values: Array, threads: Threads | None) -> Array:
    """The elements of some threads; a single one if all threads share it."""
    return values if threads is None or len(values) == 1 else values[threads]


def _at_least(known: Array, times: Array) -> Array:
    """Return knowledge that reaches at least some times."""
    return np.maximum(known, times if known.ndim == times.ndim else times[:, None])


class Handovers:
    """The turns at which threads of a batch handed on what they did: meetings, and releases of their own.

    Only the last of them are kept, within limits; what came before counts as handed on.
    """

    LIMIT_BYTES = 1 << 26
    LIMIT_RELEASES = 1 << 12

    def __init__(self) -> None:
        self._turns: deque[int] = deque()
        self._lanes: deque[Threads | None] = deque()
        self._bytes = 0
        self._dropped = NEVER
        # The turns of the releases of each block that reach other blocks.
        self._releases: dict[int, list[int]] = {}

    def add(self, turn: int, threads: Threads | None) -> None:
        """Note that threads, or all of them, hand on what they did before a turn."""
        self._turns.append(turn)
        self._lanes.append(threads)
        self._bytes += 64 if threads is None else 64 + threads.nbytes
        while self._bytes > self.LIMIT_BYTES:
            dropped = self._lanes.popleft()
            self._dropped = self._turns.popleft()
            self._bytes -= 64 if dropped is None else 64 + dropped.nbytes

    def add_release(self, turn: int, block: int) -> None:
        """Note that a thread of a block releases to other blocks what it knows at a turn."""
        turns = self._releases.setdefault(block, [])
        turns.append(turn)
        if len(turns) > self.LIMIT_RELEASES:
            self._dropped = max(self._dropped, turns[len(turns) // 2])
            del turns[: len(turns) // 2]

    def are_before(self, threads: Threads, since: int, until: Array, blocks: Array | None = None) -> Array:
        """Return the mask of threads that handed something on after a turn and no later than one of each.

        Args:
            until: For each thread the last turn that counts.
            blocks: The threads' blocks, of which one that knows it has to release it by then; None: it stays
                in the block.
        """
        first = np.full(len(threads), _LAST_TURN)
        last = int(until.max(initial=NEVER))
        for turn, own in zip(reversed(self._turns), reversed(self._lanes), strict=True):
            if turn <= since:
                break
            if turn <= last:
                first[slice(None) if own is None else np.isin(threads, own)] = turn
        found: Array = first <= until
        if blocks is not None:
            for block in np.unique(blocks[found]).tolist():
                here, turns = np.flatnonzero(found & (blocks == block)), self._releases.get(block, [])
                at = np.searchsorted(turns, until[here], side="right")
                found[here] = np.array([NEVER, *turns])[at] >= first[here]
        return found | (since < self._dropped)


# Acquired releases: those of each block that others of a launch know, directly or by way of others.
#
# A thread has one time towards all other blocks, so that acquiring from one of them looks like acquiring from
# all that released before. Here each block has, for each other one, the turn of the last release that it has
# acquired, and each release keeps what its block had acquired by then: a vector clock for each block, instead
# of one for each thread. Threads of a block are not told apart, and what is not followed counts as acquired.
#
# Source: C. Flanagan, S. N. Freund, "FastTrack: Efficient and Precise Dynamic Race Detection" (2009).


class AcquiredReleases:
    """For each block of a launch, the turns of the releases that it has acquired; see `Handovers`.

    Attributes:
        turns: A row for each block, with the turn of the last release of each other block.
    """

    LIMIT_BLOCKS = 1 << _BLOCK_BITS
    LIMIT_BYTES = 1 << 25
    # Places at which one instruction releases, or pairs of a block and a release that one acquires.
    LIMIT_PAIRS = 1 << 10

    def __init__(self, blocks: int) -> None:
        self.turns = np.full((blocks, blocks), NEVER, np.int64)
        # By turn of a release: what a thread that acquires it knows.
        self._releases: dict[int, Array] = {}
        # Turns and blocks that acquired their releases.
        self._seen: set[int] = set()
        # For each block the turn that it acquired last, as in each round of a loop that waits.
        self._last = np.full(blocks, NEVER, np.int64)
        self._now = NEVER

    def release(self, blocks: Array, turns: Array) -> None:
        """Blocks release what they know, each at a turn of its own."""
        rows = self.turns[blocks]
        rows[np.arange(len(blocks)), blocks] = turns
        self._releases.update(zip(turns.tolist(), rows, strict=True))
        self._now = int(turns[-1])
        while len(self._releases) * self.turns.shape[1] * 8 > self.LIMIT_BYTES:
            del self._releases[next(iter(self._releases))]

    def join(self, turns: Array, places: Array, before: Array) -> None:
        """Let releases at a place go on from those before them there, and from those of the same instruction.

        Args:
            turns, places: For each thread, those of its release.
            before: The turn of the last release at its place; `NEVER`: none.
        """
        if (places == places[0]).all():
            self._join({*turns.tolist()}, int(before.max()))
            return
        order = np.argsort(places, kind="stable")
        starts = np.flatnonzero(np.diff(places[order])) + 1
        if len(starts) > self.LIMIT_PAIRS:
            for turn in np.unique(turns).tolist():
                self._releases.pop(turn, None)
            return
        for part in np.split(order, starts):
            self._join({*turns[part].tolist()}, int(before[part[0]]))

    def _join(self, turns: set[int], before: int) -> None:
        if len(turns) == 1 and before == NEVER:
            return
        rows = [row for turn in turns if (row := self._releases.get(turn)) is not None]
        earlier = [] if before == NEVER else [self._known_of(before)]
        joint = np.max([*rows, *earlier], axis=0)
        for row in rows:
            np.maximum(row, joint, out=row)

    def _known_of(self, turn: int) -> Array:
        known = self._releases.get(turn)
        return np.full(len(self.turns), self._now, np.int64) if known is None else known

    def acquire(self, blocks: Array, turns: Array) -> None:
        """Blocks, one for each thread, acquire releases of some turns; `NEVER`: none."""
        turns = np.broadcast_to(turns, blocks.shape)
        if (self._last[blocks] == turns).all():
            return
        self._last[blocks] = turns
        keys = np.unique((turns << _BLOCK_BITS | blocks)[turns != NEVER])
        if len(keys) > self.LIMIT_PAIRS:
            self.acquire_all(blocks, self._now)
            return
        fresh = {*keys.tolist()} - self._seen
        for key in fresh:
            turn, block = divmod(key, 1 << _BLOCK_BITS)
            np.maximum(self.turns[block], self._known_of(turn), out=self.turns[block])
        self._seen |= fresh

    def acquire_all(self, blocks: Array, turn: int) -> None:
        """Blocks acquire all that was released up to a turn."""
        here = np.bincount(blocks, minlength=len(self.turns)) > 0
        self.turns[here] = np.maximum(self.turns[here], turn)


class VectorClocks:
    """The clocks of a batch's threads, and what they have released and seen.

    Attributes:
        times: Their own times.
        known: Up to which time they know others. Once only some warps of a block have met, or if there are
            clusters, `block` has a row for each thread: a time for each warp of its cluster. `warp` has one
            for each thread of its warp once only some of those have met.
        released: The times towards the grid and the block that a strong write publishes; NEVER without a
            fence. Where there are clusters, `block` has two times for each warp: by fences of any scope, for
            the thread's own block, and by those for the cluster.
        seen: Knowledge of both from strong reads that no fence has taken over yet.
        released_system: The times that a strong write publishes to other GPUs: by fences of the system.
        seen_system: Knowledge from memory that other GPUs reach, which such a fence takes over.
        handovers: Of the threads; None in a kernel that releases nothing.
        acquired: By whole blocks, those of the launch; None where that is not followed.
        heard: The turns up to which they know of other blocks' handovers, and of those of their own block.
    """

    def __init__(
        self,
        shape: BatchShape,
        *,
        by_warp: bool = False,
        next_turn: Callable[[], int] | None = None,
        acquired: AcquiredReleases | None = None,
    ) -> None:
        self.shape = shape
        self.acquired = acquired
        self.handovers = None if next_turn is None else Handovers()
        self._next_turn = next_turn
        self.heard = (np.zeros(1, np.int64), np.zeros(1, np.int64))
        self._seen_turn = np.zeros(1, np.int64)
        self.times = self.known = self.seen = ClockTimes(*np.zeros((3, 1), np.int64))
        self.released = ClockTimes(*np.full((3, 1), NEVER, np.int64))
        self.released_system, self.seen_system = np.full(1, NEVER, np.int64), np.zeros(1, np.int64)
        self._posted: dict[int, tuple[Array, Array, Array, Array]] = {}
        self._leaps = 0
        self._by_warp = by_warp or shape.cluster_blocks > 1
        # Warps whose threads may know of different things, where there are clusters.
        self._uneven = np.zeros(shape.threads // WARP, bool)
        if self._by_warp:
            warps = shape.cluster_threads // WARP
            self.known = self.known._replace(block=np.zeros((shape.threads, warps), np.int64))
            self.seen = self.seen._replace(block=np.zeros((1, 1), np.int64))
            self.released = self.released._replace(block=np.full((1, 2 * warps), NEVER, np.int64))
            # Of each thread: its time in the warp after the last common instruction, that of its last
            # release.
            self._together = np.zeros(shape.threads, np.int64)
            self._own = np.full(shape.threads, NEVER, np.int64)
            # Of each warp: the times of its last releases by some threads, and `_together` of all threads
            # then.
            count = shape.threads // WARP
            self._partial = np.full((count, _RELEASES), NEVER, np.int64)
            self._before = np.zeros((count, _RELEASES, WARP), np.int64)
            self._turn = np.zeros(count, np.int64)

    def published(self, threads: Threads | None) -> tuple[Array, Array]:
        """All that threads did and know, as times (grid, block) to publish."""
        grid, block = picked(self.known.grid, threads), picked(self.known.block, threads)
        times = self.times.of(threads)
        grid = np.maximum(times.grid, grid - 1)
        if self._by_warp:
            threads = np.arange(self.shape.threads) if threads is None else threads
            rows, own = block - 1, (np.arange(len(threads)), self._warps_of(threads))
            rows[own] = np.maximum(rows[own], times.block)
            return grid, rows
        block = block if block.ndim == 1 else block.max(axis=1)
        return grid, np.maximum(times.block, block - 1)

    def release(self, threads: Threads | None) -> None:
        """Threads have published what they did and know: their time goes on."""
        if self._by_warp:
            threads = np.arange(self.shape.threads) if threads is None else threads
            warps, first, count = np.unique(threads // WARP, return_index=True, return_counts=True)
            times = np.broadcast_to(self.times.of(threads).block, threads.shape)
            self._own[threads] = times
            some = count < WARP
            warps, turn = warps[some], self._turn[warps[some]] % _RELEASES
            self._partial[warps, turn] = times[first[some]]
            self._before[warps, turn] = self._together.reshape(-1, WARP)[warps]
            self._turn[warps] += 1
        self.tick(threads)

    def hand_over(self, threads: Threads | None) -> int:
        """Note that threads hand on what they did; return the turn."""
        if self.handovers is None or self._next_turn is None:
            return 0
        turn = self._next_turn()
        self.handovers.add(turn, threads)
        return turn

    def hand_out(self, threads: Threads | None) -> Array:
        """Note that threads release what they know to other blocks; return for each thread the turn.

        Blocks that do so in one instruction have turns one after the other.
        """
        first = self.hand_over(threads)
        if self.handovers is None or self._next_turn is None:
            return np.full(1, first)
        blocks = (np.arange(self.shape.threads) if threads is None else threads) // self.shape.pitch
        own, rank = np.unique(blocks, return_inverse=True)
        turns = [first, *(self._next_turn() for _ in own[1:])][: len(own)]
        for turn, block in zip(turns, own.tolist(), strict=True):
            self.handovers.add_release(turn, block)
        if self.acquired is not None and len(own):
            self.acquired.release(own + self.shape.first, np.array(turns, np.int64))
        return np.array(turns, np.int64)[rank]

    def _hear(self, threads: Threads | None, turn: Array, *, of_grid: bool) -> None:
        """Let threads know of the handovers up to a turn, of their block alone or of all."""
        grid, block = self.heard
        block = self._put(block, threads, np.maximum(picked(block, threads), turn))
        if of_grid:
            grid = self._put(grid, threads, np.maximum(picked(grid, threads), turn))
        self.heard = grid, block

    def _meet_at(self, threads: Threads | None) -> None:
        """Threads meet: they hand on what they did, and know of all handovers of their block."""
        if self.handovers is not None:
            self._hear(threads, np.full(1, self.hand_over(threads)), of_grid=False)

    def left_out(self, threads: Array, then: ClockTimes, others: Array, known: Array) -> Array:
        """Return the mask of pairs of threads of two warps, ordered by a release that does not cover the
        first.

        Args:
            threads, then: The first threads, and their times when they accessed.
            others: The second threads, of the same blocks as far as it matters.
            known: The times up to which these know the warps of the first.
        """
        if not self._by_warp:
            return np.zeros(len(threads), bool)
        warps, cluster = threads // WARP, self.shape.cluster_threads
        same = self._partial[warps] == (known - 1)[:, None]
        out: Array = same.any(axis=1) & (self._own[threads] < then.block)
        if out.any():
            out &= (warps != others // WARP) & (threads // cluster == others // cluster)
            out &= then.warp >= self._before[warps, same.argmax(axis=1), threads % WARP]
        return out

    def are_apart(self, threads: Threads, others: Threads) -> Array:
        """Return the mask of pairs of threads of which `left_out` does not judge."""
        if not self._by_warp:
            return np.ones(len(threads), bool)
        return threads // self.shape.cluster_threads != others // self.shape.cluster_threads

    def fence(self, threads: Threads | None, scope: str) -> None:
        """Threads pass a fence: what they saw holds from now on, what they did can be published."""
        wide = scope not in ("cta", "cluster")
        self._take_over(threads, wide=wide)
        if scope == "sys":
            self._raise("known", threads, grid=picked(self.seen_system, threads))
        grid, block = self.published(threads)
        if scope == "sys":
            self.released_system = self._put(self.released_system, threads, grid)
        if wide:
            self._set("released", threads, grid=grid)
        if self._by_warp:
            far = picked(self.released.block, threads)[:, block.shape[1] :] if scope == "cta" else block
            block = np.concatenate((block, np.broadcast_to(far, block.shape)), axis=1)
            self._own[slice(None) if threads is None else threads] = self.times.of(threads).block
        self._set("released", threads, block=block)
        self._note_uneven(threads)
        self.tick(threads)

    def see(
        self, threads: Threads | None, grid: Array, block: Array, *, at_once: bool, turn: Array | None = None
    ) -> None:
        """Threads read what was published; an acquire knows it at once, another read after a fence.

        Args:
            grid: The times up to which they know other blocks now.
            block: The same for their own block.
            turn: That of the releases that they read; None: all so far.
        """
        if self.handovers is not None and self._next_turn is not None:
            if turn is None:
                self.acquire(threads, None)
            seen = np.maximum(picked(self._seen_turn, threads), self._next_turn() if turn is None else turn)
            self._seen_turn = self._put(self._seen_turn, threads, seen)
        if self._by_warp and block.ndim == 1:
            block = block[:, None]
        self._note_uneven(threads)
        self._raise("seen", threads, grid=grid, block=block)
        if at_once:
            self._take_over(threads, wide=True)

    def acquire(self, threads: Threads | None, turn: Array | None) -> None:
        """Let the threads' blocks acquire the releases of some turns; None: all so far."""
        if self.acquired is None or self._next_turn is None:
            return
        blocks = (
            np.arange(self.shape.threads) if threads is None else threads
        ) // self.shape.pitch + self.shape.first
        if turn is None:
            self.acquired.acquire_all(blocks, self._next_turn())
        else:
            self.acquired.acquire(blocks, turn)

    def see_system(self, threads: Threads | None, grid: Array, *, at_once: bool) -> None:
        """Threads read what other GPUs may publish; a fence of the system, or an acquire, takes it over.

        Args:
            grid: The times up to which they know others now.
            at_once: Whether it is an acquire of the system's scope.
        """
        if self._next_turn is not None:
            self.acquire(threads, None)
            self._hear(threads, np.full(1, self._next_turn()), of_grid=True)
        seen = np.maximum(picked(self.seen_system, threads), grid)
        self.seen_system = self._put(self.seen_system, threads, seen)
        if at_once:
            self._raise("known", threads, grid=seen)

    def tick(self, threads: Threads | None) -> None:
        """Advance the threads' times: later accesses are after those that they have just published."""
        grid, block, _ = self.times.of(threads)
        self._note_uneven(threads)
        self._set("times", threads, grid=grid + 1, block=block + 1)

    def _take_over(self, threads: Threads | None, *, wide: bool) -> None:
        seen = self.seen.of(threads)
        if self.handovers is not None:
            self._hear(threads, picked(self._seen_turn, threads), of_grid=wide)
        self._set("known", threads, block=_at_least(picked(self.known.block, threads), seen.block))
        if wide:
            self._raise("known", threads, grid=seen.grid)

    def barrier(self, threads: Threads | None, keys: Array | None, *, whole: bool) -> None:
        """Threads leave a barrier together with all of the same key (None: of the same block).

        Args:
            whole: All threads of their blocks are there.
        """
        self._meet_at(threads)
        if threads is None or keys is None:
            everyone = np.arange(self.shape.threads)
            if not self._by_warp:
                self._meet(None, everyone // self.shape.pitch, self.shape.blocks)
                return
            threads, keys = everyone, everyone // self.shape.pitch
        unique, group = np.unique(keys, return_inverse=True)
        posted = [self._posted.pop(key, None) for key in unique.tolist()] if self._posted else []
        if whole and not self._by_warp and not any(posted):
            self._meet(threads, group, len(unique))
            return
        self._share(threads, group, len(unique))
        known = self._met_warps(threads, group)
        self._come_together(threads)
        self._set("times", threads, block=picked(self.times.block, threads) + 1)
        self._set("known", threads, block=known)
        for number, post in enumerate(posted):
            if post is not None:
                own, (grid, released_grid, released_block, known) = threads[group == number], post
                self._raise("known", own, grid=grid + 1, block=known)
                self._raise("released", own, grid=released_grid, block=released_block)

    def post(self, threads: Threads, keys: Array) -> None:
        """Threads arrive at a barrier without waiting; threads that leave it know what they did."""
        self.hand_over(threads)
        grid, _ = self.published(threads)
        values = [grid, *self.released.of(threads)[:2]]
        values = [np.broadcast_to(value, (len(threads), *value.shape[1:])) for value in values]
        for key in np.unique(keys).tolist():
            here = keys == key
            own = threads[here]
            first, second, third = (value[here].max(axis=0) for value in values)
            post = (first, second, third, self._met_warps(own, np.zeros(len(own), np.int64))[0])
            known = self._posted.get(key, post)
            a, b, c, d = (np.maximum(old, new) for old, new in zip(known, post, strict=True))
            self._posted[key] = (a, b, c, d)
        self._come_together(threads)
        self.tick(threads)

    def forget(self, keys: Array) -> None:
        """Forget arrivals at barriers that are complete and at which no thread waited."""
        for key in keys.tolist():
            self._posted.pop(key, None)

    def arrive(self, threads: Threads, *, relaxed: bool) -> tuple[Array, Array, Array]:
        """Threads arrive at a barrier of their cluster.

        Args:
            relaxed: They release no more than a fence did before.

        Returns:
            The threads' times towards other clusters, and the times (grid, block) that threads know when
            they leave the barrier.
        """
        self.hand_out(threads)
        times, (_, block) = self.times.of(threads).grid, self.published(threads)
        grid = picked(self.known.grid, threads) - 1
        if relaxed:
            grid, released, _ = self.released.of(threads)
            times, block = np.zeros(1, np.int64), released[:, block.shape[1] :]
        self._come_together(threads)
        self.tick(threads)
        return times, grid, block

    def leave(self, threads: Threads, times: Array, grid: Array, block: Array) -> None:
        """Threads leave a barrier of their cluster, and know what the threads that arrived there released."""
        self.see(threads, grid + 1, block + 1, at_once=True)
        self._raise("times", threads, grid=times)

    def hand_on(self, threads: Threads | None, mask: Array) -> None:
        """Threads of a warp exchange values: each knows what any of them has acquired, not what it did.

        PTX does not say so; cooperative groups rely on it, as does one thread that waits for all.
        """
        self._meet_at(threads)
        self._come_together(threads)
        if self._by_warp:
            threads, mask = self._uneven_lanes(threads, mask)
            if not len(threads):
                return
        if len(self.known.grid) > 1 or len(self.known.block) > 1 or len(self.heard[0]) > 1:
            self._share_knowledge(threads, *self._warps(threads, mask))

    def warp(self, threads: Threads | None, mask: Array) -> None:
        """Threads of a warp meet, each with those of the same mask."""
        self._meet_at(threads)
        group, count = self._warps(threads, mask)
        if not self._by_warp:
            self._share(threads, group, count)
        elif len((uneven := self._uneven_lanes(threads, mask))[0]):
            self._share(uneven[0], *self._warps(*uneven))
            self._uneven[uneven[0][np.broadcast_to(uneven[1] == 0xFFFFFFFF, len(uneven[0]))] // WARP] = False
        if self.known.warp.ndim == 1 and (mask == 0xFFFFFFFF).all():
            now = _latest(self.times.warp, threads, group, count) + 1
            self._set("times", threads, warp=now)
            self._set("known", threads, warp=now)
            return
        threads = np.arange(self.shape.threads) if threads is None else threads
        known = self._met(self.known.warp, self.times.warp, threads, group, threads % WARP, WARP)
        self._set("times", threads, warp=picked(self.times.warp, threads) + 1)
        self._set("known", threads, warp=known)

    def _come_together(self, threads: Threads | None) -> None:
        """Threads of a warp execute a common instruction: what they do next is behind it."""
        if not self._by_warp:
            return
        self._set("times", threads, warp=self.times.of(threads).warp + 1)
        self._together[slice(None) if threads is None else threads] = self.times.of(threads).warp

    def _note_uneven(self, threads: Threads | None) -> None:
        if self._by_warp:
            self._uneven[slice(None) if threads is None else threads // WARP] = True

    def _uneven_lanes(self, threads: Threads | None, mask: Array) -> tuple[Threads, Array]:
        """Return the threads among some whose warps are uneven, with their masks."""
        threads = np.arange(self.shape.threads) if threads is None else threads
        uneven = self._uneven[threads // WARP]
        return threads[uneven], mask if mask.size == 1 else mask[uneven]

    def _warps_of(self, threads: Threads) -> Array:
        """The number of each thread's warp in its cluster."""
        return threads % self.shape.cluster_threads // WARP

    def leap(self, threads: Threads) -> int:
        """Advance threads to a time that no thread has come to on its own; return it."""
        self._leaps += 1
        self.hand_out(threads)
        now = self._leaps << _LEAP_BITS
        self._set("times", threads, block=np.full(1, now))
        self._come_together(threads)
        return now

    def _warps(self, threads: Threads | None, mask: Array) -> tuple[Array, int]:
        """Return for each thread the number of its group, the threads of its warp with its mask; how many."""
        if threads is None and mask.size == 1:
            return np.arange(self.shape.threads) // WARP, self.shape.threads // WARP
        threads = np.arange(self.shape.threads) if threads is None else threads
        keys = (threads // WARP << 32) | np.broadcast_to(mask, threads.shape).astype(np.int64)
        unique, group = np.unique(keys, return_inverse=True)
        return group, len(unique)

    def _meet(self, threads: Threads | None, group: Array, count: int) -> None:
        """All threads of a block meet: each knows all that any of them did."""
        self._share(threads, group, count)
        now = _latest(self.times.block, threads, group, count) + 1
        self._set("times", threads, block=now)
        self._set("known", threads, block=_at_least(picked(self.known.block, threads), now))

    def _share(self, threads: Threads | None, group: Array, count: int) -> None:
        """Threads have the latest knowledge, fences and times of their group: one publishes for all."""
        self._take_over(threads, wide=True)
        self._set("times", threads, grid=_latest(self.times.grid, threads, group, count))
        if len(self.times.block) > 1:
            self._set("times", threads, block=_latest(self.times.block, threads, group, count))
        self._share_knowledge(threads, group, count)
        grid, block = (_latest(values, threads, group, count) for values in self.released[:2])
        self._set("released", threads, grid=grid, block=block)
        if len(self.released_system) > 1:
            system = _latest(self.released_system, threads, group, count)
            self.released_system = self._put(self.released_system, threads, system)

    def _share_knowledge(self, threads: Threads | None, group: Array, count: int) -> None:
        grid, block = (_latest(values, threads, group, count) for values in self.known[:2])
        self._set("known", threads, grid=grid, block=block)
        if self.handovers is not None:
            own, inner = (_latest(values, threads, group, count) for values in self.heard)
            self.heard = self._put(self.heard[0], threads, own), self._put(self.heard[1], threads, inner)

    def _met_warps(self, threads: Threads, group: Array) -> Array:
        """Return what threads know of their cluster's warps, once a group has met without others."""
        warps = self.shape.cluster_threads // WARP
        return self._met(self.known.block, self.times.block, threads, group, self._warps_of(threads), warps)

    def _met(
        self, known: Array, times: Array, threads: Threads, group: Array, columns: Array, width: int
    ) -> Array:
        """Return the threads' knowledge, a row for each, after those of a group have met without others."""
        if known.ndim == 1:
            known = np.repeat(np.broadcast_to(known, self.shape.threads)[threads, None], width, axis=1)
        else:
            known = known[threads]
        best = _highest(known, group, int(group.max()) + 1)
        np.maximum.at(best, (group, columns), picked(times, threads) + 1)
        return best[group]

    def _raise(self, clock: str, threads: Threads | None, **least: Array) -> None:
        """Set some of a clock's times to at least those given."""
        old = getattr(self, clock)
        new = {name: np.maximum(picked(getattr(old, name), threads), value) for name, value in least.items()}
        self._set(clock, threads, **new)

    def _set(self, clock: str, threads: Threads | None, **new: Array) -> None:
        old = getattr(self, clock)
        put = {name: self._put(getattr(old, name), threads, value) for name, value in new.items()}
        setattr(self, clock, old._replace(**put))

    def _put(self, values: Array, threads: Threads | None, new: Array) -> Array:
        """The values with new ones in some threads; a single one where all are the same."""
        if threads is None:
            return new[:1] if len(new) > 1 and bool((new == new[0]).all()) and new.ndim == 1 else new
        if len(values) == 1 and bool((new == values[0]).all()):
            return values
        if values.ndim > 1 and len(values) == self.shape.threads and values.flags.owndata:
            values[threads] = new  # rows are no event's times: nobody else keeps them
            return values
        values = values if values.ndim == new.ndim else values[:, None]
        spread: Array = np.broadcast_to(values, (self.shape.threads, *new.shape[1:])).copy()
        spread[threads] = new
        return spread


def _latest(values: Array, threads: Threads | None, group: Array, count: int) -> Array:
    """Return for each thread the highest value of its group."""
    if len(values) == 1:
        return values
    return _highest(picked(values, threads), group, count)[group]


def _highest(values: Array, group: Array, count: int) -> Array:
    """Return the highest value of each group, or for each column if the values are rows; none is empty."""
    if values.ndim == 1:
        best = np.full(count, NEVER, np.int64)
        np.maximum.at(best, group, values)
        return best
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(count))
    return np.maximum.reduceat(values[order], starts, axis=0)
