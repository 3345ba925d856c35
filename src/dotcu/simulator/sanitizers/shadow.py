"""Shadow memory: stamps of the last accesses of each byte that threads share.

A stamp is 64 bits: the event (which instruction, at which clocks), whether the access was
strong, and the thread. For each granule of memory there is the stamp of the last write and
those of two readers; of more warps or blocks that read the same, stamps are kept in a list.
Reads are only written down at first; most are never looked at, since no thread writes there
before the next barrier, and then they are dropped unseen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple
from weakref import WeakSet

import numpy as np

from dotcu.simulator.machine.clocks import NEVER, ClockTimes, Handovers, picked
from dotcu.simulator.machine.shape import BatchShape, Threads
from dotcu.simulator.machine.state import Access, AccessPart, Batch, LaunchState, MemoryOrder
from dotcu.simulator.run import ENOUGH_LANES, Array
from dotcu.simulator.sanitizers.proxies import Moment, ProxyFence

NARROW = ("cta", "cluster")
"""Scopes that hold for some blocks only."""
STRONG = np.uint64(1 << 32)
LANE = np.uint64((1 << 32) - 1)
EVENT_BITS = 33
# Reads that are written down, in bytes, before they become stamps after all.
_LOG_BYTES = 1 << 27
# Bytes of clocks that fences may hold; what was written before the oldest that is kept is not judged.
_FENCE_BYTES = 1 << 26
# Readers beside two that a shadow keeps at most, and how many of them may wait to be sorted.
_CROWD = 1 << 14
_UNSORTED = 1 << 15


class ThreadAccess(NamedTuple):
    """An access of some threads, which are at some times, to one element each.

    Attributes:
        shadow: The stamps of the memory that they access.
        threads: None for all of the batch.
        indices: Where each thread's element begins, in units of the access's width.
        skew: Added to the indices to count from a shadow's base.
        turn: That of the last handover before it, which may be over when it is compared.
    """

    shadow: ShadowMemory
    batch: Batch
    access: Access
    times: ClockTimes
    threads: Threads | None
    indices: Array
    skew: int
    turn: int

    def only(self, mask: Array) -> ThreadAccess:
        """Return the access of some of its threads; times are those of all threads of the batch."""
        threads = np.flatnonzero(mask) if self.threads is None else self.threads[mask]
        return self._replace(threads=threads, indices=picked(self.indices, np.flatnonzero(mask)))

    def is_like(self, other: ThreadAccess) -> bool:
        """Return whether the same threads access the same places."""
        if self.indices is other.indices and self.threads is other.threads:
            return self.skew == other.skew
        if self.indices.shape != other.indices.shape or (self.threads is None) != (other.threads is None):
            return False
        if self.threads is not other.threads and not np.array_equal(self.threads, other.threads):  # type: ignore[arg-type]
            return False
        return bool((self.indices == (other.indices + (other.skew - self.skew))).all())


class MemoryEvent(NamedTuple):
    """An instruction that ran, at the times of its threads.

    Attributes:
        threads: Whose times they are; None where all threads have the same.
        turn, handovers: That of the last handover before it, and those of the threads of its batch.
    """

    access: Access
    shape: BatchShape
    threads: Threads | None
    times: ClockTimes
    turn: int
    handovers: Handovers | None

    def times_of(self, threads: Array) -> ClockTimes:
        """The times of some of its threads."""
        return self.times.of(threads if self.threads is None else np.searchsorted(self.threads, threads))


KeepBack = Callable[["ThreadAccess", MemoryEvent, str, Array, Array, Callable[[Array], None]], Array]
"""Takes an access, an earlier one, its action, the threads of both, and what reports some of these pairs."""


class EventLog:
    """The events of a launch, numbered from 1.

    Attributes:
        shadows: Whose stamps hold these numbers.
        fences: The fences of proxies so far; in `judged`, from which event on all are there.
        completions: For each event of an async write to global memory, the waits for it.
        forgotten: How often all was forgotten, so that long launches stay small.
        keep_back: Returns which pairs of threads race for certain, and judges the others later; None: all do.
    """

    LIMIT = 1 << 18

    def __init__(self, launch: LaunchState) -> None:
        self.launch = launch
        self.keep_back: KeepBack | None = None
        self.known: list[MemoryEvent | None] = [None]
        self.shadows: WeakSet[ShadowMemory] = WeakSet()
        self.fences: deque[ProxyFence] = deque()
        self.judged = 0
        self.completions: dict[int, list[ProxyFence]] = {}
        self.forgotten = 0
        self._fence_bytes = 0
        # By batch and access, its last event: times, threads, how often events were forgotten, its number.
        self._latest: dict[int, dict[int, tuple[ClockTimes, Threads | None, tuple[int, int], int]]] = {}
        # The last times of all threads, some of these, and their times.
        self._last: tuple[ClockTimes, Threads | None, ClockTimes] | None = None

    def number(self, at: ThreadAccess) -> int:
        """Return the number of the event that an access is."""
        batch, times, threads, key = at.batch, at.times, at.threads, at.access.number
        latest = self._latest.setdefault(id(batch), {})
        last = latest.get(key)
        if (
            last is not None
            and last[0] is times
            and last[1] is threads
            and last[2] == (self.forgotten, at.turn)
        ):
            return last[3]
        if len(self.known) > self.LIMIT:
            self.forgotten += 1
            self.known = [None]
            self.fences.clear()
            self.completions.clear()
            self.judged = self._fence_bytes = 0
            for shadow in self.shadows:
                shadow.forget()
        is_uniform = all(values.size == 1 for values in times)
        own: tuple[Threads | None, ClockTimes] = (None, times)
        if not is_uniform and self._last is not None and self._last[0] is times and self._last[1] is threads:
            own = threads, self._last[2]  # the same one, as for each store of an unrolled loop
        elif not is_uniform:
            own = threads, times.of(threads)
            self._last = (times, threads, own[1])
        self.known.append(MemoryEvent(at.access, batch.shape, *own, at.turn, batch.clocks.handovers))
        latest[key] = (times, threads, (self.forgotten, at.turn), len(self.known) - 1)
        return len(self.known) - 1

    def __getitem__(self, number: int) -> MemoryEvent:
        event = self.known[number]
        assert event is not None
        return event

    def has_finding(self, at: ThreadAccess | AccessPart) -> bool:
        """Return whether an instruction was found to race often enough, so that it is not checked again."""
        return self.launch.raced.get(id(at.access.instruction), 0) >= ENOUGH_LANES

    def renew(self, batch: Batch, number: int | None = None) -> None:
        """Let what a batch's instructions do next, or the one of an access, be other events than before."""
        if number is None:
            self._latest.pop(id(batch), None)
        else:
            self._latest.get(id(batch), {}).pop(number, None)

    def next_stamp(self) -> int:
        """Return a lower bound of every later stamp."""
        return len(self.known) << EVENT_BITS

    def fence_proxies(self, batch: Batch, crosses: Iterable[str]) -> None:
        """Note that the active threads pass a fence of proxies; see `ProxyFence.crosses`."""
        fence = ProxyFence.of(batch, len(self.known), crosses)
        self.fences.append(fence)
        self._fence_bytes += fence.nbytes
        while self._fence_bytes > _FENCE_BYTES and len(self.fences) > 1:
            oldest = self.fences.popleft()
            self._fence_bytes -= oldest.nbytes
            self.judged = oldest.number
        self.renew(batch)  # a write by the same instruction is another event from now on

    def are_joined(
        self,
        number: int | Array,
        first: Moment,
        second: Moment,
        crosses: str,
        owners: Array | None = None,
    ) -> Array:
        """Return the mask of pairs with a fence between an event of the first and the second.

        Args:
            number: Of the event; one for each pair, of which none is twice there, or one for all.
            first, second: Threads as they were then, and for each of them a thread of now.
            crosses, owners: What the fence has to join; see `ProxyFence.in_blocks`.
        """
        (shape, threads, times), (own_shape, own, known) = first, second
        numbers, all_pairs = np.broadcast_to(number, threads.shape), None
        if isinstance(number, int):
            _, pairs, all_pairs = np.unique(threads << 32 | own, return_index=True, return_inverse=True)
            first = Moment(shape, threads[pairs], times.of(pairs))
            second = Moment(own_shape, own[pairs], known.of(pairs))
            numbers = numbers[pairs]
        joined = numbers < self.judged
        oldest = int(numbers.min(initial=len(self.known)))
        later = [f for f in reversed(self.fences) if f.number > oldest and crosses in f.crosses]
        for joins in (ProxyFence.joins, ProxyFence.joins_by_others):
            for fence in later:
                for part, reached in fence.in_blocks(owners):
                    open_ = ~joined & (numbers < fence.number) & reached
                    if open_.any():
                        joined[open_] = joins(part, *(_some(moment, open_) for moment in (first, second)))
        return joined if all_pairs is None else joined[all_pairs]


def _some(moment: Moment, mask: Array) -> Moment:
    """The threads of a mask."""
    shape, threads, clocks = moment
    return Moment(shape, threads[mask], clocks.of(np.flatnonzero(mask)))


def event_of(stamps: Array) -> Array:
    """The numbers of the events of stamps."""
    return (stamps >> np.uint64(EVENT_BITS)).astype(np.int64)


class StampedPlaces(NamedTuple):
    """Granules of a shadow, one for each thread of an access or one for all, and the threads' stamps."""

    granules: Array
    stamps: Array


_NO_STAMPS = StampedPlaces(np.zeros(0, np.int64), np.zeros(0, np.uint64))


def _refined(stamped: StampedPlaces, parts: int) -> StampedPlaces:
    """Return the stamps of granules for each of the parts of these."""
    places, stamps = stamped
    return StampedPlaces((places[:, None] * parts + np.arange(parts)).reshape(-1), np.repeat(stamps, parts))


class ShadowMemory:
    """Stamps for one range of addresses.

    Attributes:
        base, size: The address of its first byte, and its bytes.
        granule: Bytes of a granule: the narrowest access so far.
        writes: Stamp of the last write of each granule; None while there was none.
        inits: Stamp of the last initialization of each granule of an mbarrier; None without any.
        readers: Stamps of two readers of each granule, of different threads where there were two.
        group: Threads that count as one reader of a granule that others have read, too, if they are more than
            two; 0: no more than two are kept. It is a power of two.
        turns: The turn of the last release at each granule; None while there was none.
        published: Clocks (grid, block) that strong writes published there. In place of the second, numbers
            of rows where there are clusters.
        floor: Stamps below it lie before a barrier that everyone has passed; 0 is of no access.
        block_floor: The same for stamps of the thread's own block, where there are clusters.
        dirty, awaited: Something was written since then; a bulk copy wrote here, whose end has to be awaited.
        shared: Several GPUs reach it: what is promised to one of them orders nothing.
    """

    def __init__(
        self, base: int, size: int, events: EventLog, *, shared: bool = False, group: int = 0
    ) -> None:
        self.shared = shared
        self.group = group & -group
        self.base = base
        self.size = size
        self.events = events
        self.granule = 0
        self.writes: Array | None = None
        self.inits: Array | None = None
        self.readers: tuple[Array, Array] | None = None
        self.published: tuple[Array, Array] | None = None
        self.turns: Array | None = None
        self.floor: Array = np.ones(1, np.uint64)
        self.block_floor: Array | None = None
        self.dirty = False
        self.awaited = False
        self._rows: Array | None = None
        self._row_count = 0
        self._flushes = 0
        self._log: list[ThreadAccess] = []
        self._log_bytes = 0
        self._settled: Array | None = None
        # Granules and stamps of readers beside the two, sorted by granule; those that are not sorted in yet.
        self._crowd = _NO_STAMPS
        self._crowding: list[StampedPlaces] = []
        self._crowding_count = 0
        events.shadows.add(self)

    @property
    def is_global(self) -> bool:
        """True for global memory, where no address is 0."""
        return self.base > 0

    def is_narrow(self, order: MemoryOrder) -> bool:
        """Return whether an access here has a narrower scope than the threads that reach the memory."""
        return order.scope in NARROW or (self.shared and order.scope == "gpu")

    def forget(self) -> None:
        """Drop all stamps."""
        self.writes = self.inits = self.readers = self.block_floor = None
        self._crowd, self._crowding = _NO_STAMPS, []
        self.floor = np.ones(1, np.uint64)

    def touches(self, at: ThreadAccess) -> list[StampedPlaces]:
        """The granules of an access, and the stamps that it leaves: one for each granule of an element."""
        width, order, stamps = at.access.width, at.access.order, at.batch.stamps
        self._refine(width)
        strong = int(order.strong and not self.is_narrow(order))
        head = np.uint64(self.events.number(at) << EVENT_BITS | strong << 32)
        marked = (stamps if at.threads is None else stamps[at.threads]) | head
        each = width // self.granule
        first = (at.indices + at.skew) * each if each > 1 or at.skew else at.indices
        return [StampedPlaces(first + k if k else first, marked) for k in range(each)]

    def _refine(self, width: int) -> None:
        if self.granule and self.granule <= width:
            return
        parts = self.granule // width
        self.granule = width
        if parts:
            self.writes = None if self.writes is None else np.repeat(self.writes, parts)
            self.inits = None if self.inits is None else np.repeat(self.inits, parts)
            self.turns = None if self.turns is None else np.repeat(self.turns, parts)
            self.readers, self.published = (
                (np.repeat(pair[0], parts), np.repeat(pair[1], parts)) if pair is not None else None
                for pair in (self.readers, self.published)
            )
            crowds = (each for each in (self._crowd, *self._crowding) if len(each[0]))
            self._crowd, self._crowding = _NO_STAMPS, [_refined(each, parts) for each in crowds]
            self._crowding_count *= parts

    def _blank(self) -> Array:
        return np.zeros(self.size // self.granule + 1, np.uint64)

    def note(self, read: ThreadAccess) -> None:
        """Write a read down."""
        self._log.append(read)
        self._log_bytes += read.indices.nbytes
        if self._log_bytes > _LOG_BYTES:
            self.settle()

    def settle(self, *, but: ThreadAccess | None = None) -> list[ThreadAccess]:
        """Turn recorded reads into stamps, but for those that a barrier has settled since.

        Args:
            but: A write that follows. Reads of the same threads at the same places are left out:
                where no two threads share a place, each of them comes before its own thread's write.

        Returns:
            The reads that were left out.
        """
        log, self._log, self._log_bytes = self._log, [], 0
        self._flushes += bool(log)
        settled, self._settled = self._settled, None
        left: list[ThreadAccess] = []
        for number, read in enumerate(log):
            if settled is not None:
                waiting = picked(settled, read.threads) <= number
                if not waiting.any():
                    continue
                read = read if waiting.all() else read.only(waiting)
            if but is not None and read.is_like(but):
                left.append(read)
            else:
                self.stamp_read(read)
        return left

    def stamp_read(self, read: ThreadAccess) -> None:
        """Keep the stamps of a read that was written down."""
        for touch in self.touches(read):
            self.stamp_readers(touch)

    def stamp_readers(self, touch: StampedPlaces, *, strong: bool = False) -> None:
        """Keep the stamps of readers: the last thread of each granule, and the first or the one before.

        Others are kept beside them, unless these are strong reads, as of threads that wait.
        """
        crowds = self.group and not strong
        if self.readers is None:
            self.readers = (self._blank(), self._blank())
        last, other = self.readers
        places, stamps = touch
        indices = np.broadcast_to(places, stamps.shape)
        before = last.take(indices)
        apart = np.flatnonzero(((before ^ stamps) & LANE) != 0)
        earlier = other.take(indices) if crowds else before
        other[indices[apart]] = before[apart]
        last[indices] = stamps
        beaten = np.flatnonzero(last.take(indices) != stamps)[::-1]
        other[indices[beaten]] = stamps[beaten]
        if crowds:
            lost = [StampedPlaces(indices[apart], earlier[apart])]
            if len(beaten):
                lost += [StampedPlaces(indices[beaten], each[beaten]) for each in (before, stamps)]
            self._keep_others(lost)

    def _keep_others(self, lost: Iterable[StampedPlaces]) -> None:
        """Keep those of some readers of granules that are weak, and of another group than the two there."""
        assert self.readers is not None
        floor = self.floor.min()
        for places, stamps in lost:
            left = np.flatnonzero((stamps >= floor) & ((stamps & STRONG) == 0))
            if not len(left):
                continue
            groups = LANE & ~np.uint64(self.group - 1)
            granules, stamps = places[left], stamps[left]
            is_other = np.all([(stamps ^ each.take(granules)) & groups != 0 for each in self.readers], axis=0)
            repeated = (granules[1:] == granules[:-1]) & (((stamps[1:] ^ stamps[:-1]) & groups) == 0)
            is_other[1:] &= ~repeated
            if is_other.any():
                self._crowding.append(StampedPlaces(granules[is_other], stamps[is_other]))
                self._crowding_count += int(np.count_nonzero(is_other))
        if self._crowding_count > _UNSORTED:
            self._sort_crowd()

    def others(self, places: Array) -> tuple[Array, Array] | None:
        """Return the readers of granules beside the two of `readers`, and forget them, since a write follows.

        Args:
            places: The granules, one for each thread of the write or one for all.

        Returns:
            For each such reader the position of its granule among the places, and its stamp. None: none.
        """
        if self._crowding:
            self._sort_crowd()
        granules, stamps = self._crowd
        if not len(granules) or int(places.max()) < granules[0] or int(places.min()) > granules[-1]:
            return None
        first, end = (np.searchsorted(granules, places, side) for side in ("left", "right"))
        count = end - first
        if not count.any():
            return None
        positions = np.repeat(np.arange(len(places)), count)
        rank = np.arange(len(positions)) - np.repeat(np.cumsum(count) - count, count)
        found = first[positions] + rank
        kept = np.ones(len(granules), bool)
        kept[found] = False
        self._crowd = StampedPlaces(granules[kept], stamps[kept])
        return positions, stamps[found]

    def _sort_crowd(self) -> None:
        """Sort the readers beside the two, and keep the latest of each group of threads."""
        parts, self._crowding, self._crowding_count = (self._crowd, *self._crowding), [], 0
        granules, stamps = (np.concatenate(values) for values in zip(*parts, strict=True))
        keys = granules << 32 | (stamps & LANE).astype(np.int64) & -self.group
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        latest = order[np.append(keys[1:] != keys[:-1], True)]
        self._crowd = StampedPlaces(granules[latest], stamps[latest])
        if len(self._crowd[0]) > _CROWD:
            self._crowd, self.group = _NO_STAMPS, 0

    def stamp_write(self, touch: StampedPlaces) -> bool:
        """Keep the stamps of a write; whether several threads share a place."""
        if self.writes is None:
            self.writes = self._blank()
        self.dirty = True
        indices, stamps = touch
        self.writes[indices] = stamps[-1:] if indices.size == 1 else stamps
        if indices.size == 1:
            return stamps.size > 1
        return bool((self.writes.take(indices) != stamps).any())

    def stamp_init(self, touch: StampedPlaces) -> None:
        """Keep the stamps of the initialization of mbarriers, which no arrival hides."""
        if self.inits is None:
            self.inits = self._blank()
        self.inits[touch[0]] = touch[1]

    def publish(self, touch: StampedPlaces, clocks: tuple[Array, Array], turns: Array) -> None:
        """Note the clocks (grid, block) that threads publish at places, where they are later than before.

        Args:
            touch, clocks: The places, with the threads' stamps, and the clocks.
            turns: Of the releases; see `Handovers`.
        """
        if self.published is None:
            count = self.size // self.granule + 1
            self.published = (np.full(count, NEVER, np.int64), np.full(count, NEVER, np.int64))
            self.turns = np.full(count, NEVER, np.int64)
        assert self.turns is not None
        indices, (grid, block) = np.broadcast_to(touch[0], touch[1].shape), clocks
        np.maximum.at(self.turns, indices, turns)
        np.maximum.at(self.published[0], indices, grid)
        if block.ndim == 1:
            np.maximum.at(self.published[1], indices, block)
            return
        rows = self._rows_for(np.unique(indices), block.shape[1])
        np.maximum.at(rows, self.published[1][indices], block)

    def _rows_for(self, places: Array, width: int) -> Array:
        """Return the rows of clocks, with one for each of some places."""
        assert self.published is not None
        numbers = self.published[1]
        fresh = places[numbers[places] == NEVER]
        first, self._row_count = self._row_count, self._row_count + len(fresh)
        numbers[fresh] = np.arange(first, self._row_count)
        if self._rows is None or len(self._rows) < self._row_count:
            grown = np.full((2 * self._row_count, width), NEVER, np.int64)
            if self._rows is not None:
                grown[:first] = self._rows[:first]
            self._rows = grown
        return self._rows

    def found(self, places: Array) -> tuple[Array, Array, Array] | None:
        """The clocks (grid, block) and turns published at places; None where nothing was published at all."""
        if self.published is None or self.turns is None:
            return None
        grid, block, turns = (published.take(places) for published in (*self.published, self.turns))
        if self._rows is None:
            return grid, block, turns
        rows = self._rows[block]
        rows[block == NEVER] = NEVER
        return grid, rows, turns

    def turns_at(self, places: Array) -> Array:
        """The turns of the last releases at places."""
        return np.full(places.shape, NEVER, np.int64) if self.turns is None else self.turns.take(places)

    def settle_writes(self, words: Array) -> None:
        """Drop the stamps of writes and initializations of some words of 8 bytes: what follows is later."""
        if not 0 < self.granule <= 8:
            return
        each = 8 // self.granule
        places = (words[:, None] * each + np.arange(each)).reshape(-1)
        for stamps in (self.writes, self.inits):
            if stamps is not None:
                stamps[places] = 0

    def mark(self) -> tuple[int, int, int]:
        """The present: what later stamps exceed, how often reads were settled, and how many are left."""
        return self.events.next_stamp(), self._flushes, len(self._log)

    def raise_block_floor(self, threads: Threads | None, total: int) -> None:
        """All threads of some blocks have passed a barrier, but other blocks can touch the same bytes."""
        floor = np.ones(total, np.uint64) if self.block_floor is None else self.block_floor.copy()
        floor[slice(None) if threads is None else threads] = self.events.next_stamp()
        self.block_floor = floor

    def raise_floor(
        self, threads: Threads | None, total: int, since: tuple[int, int, int] | None = None
    ) -> None:
        """All threads that could touch the same bytes as these have passed a barrier.

        Args:
            threads, total: These threads, None for all, and the number of the batch's.
            since: A mark that lies before all that may have followed the barrier; None: now.
        """
        if threads is None:
            self.floor = np.full(1, self.events.next_stamp(), np.uint64)
            self._log, self._log_bytes, self._settled, self.dirty = [], 0, None, False
            self._crowd, self._crowding = _NO_STAMPS, []
            return
        now, flushes, count = since or self.mark()
        if flushes == self._flushes and count:
            self._settled = np.zeros(total, np.int64) if self._settled is None else self._settled
            self._settled[threads] = count
        floor = np.broadcast_to(self.floor, total).copy()
        floor[threads] = now
        self.floor = floor
