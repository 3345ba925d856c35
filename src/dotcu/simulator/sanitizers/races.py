"""Races: two accesses of the same bytes by different threads, one of them a write, in no order.

Lockstep hides them: all threads of a batch do the same thing at the same time, and a kernel
without its barriers gives the right answer. So every access of shared and global memory is
compared with the last accesses of those bytes, by the clocks of both threads.

No race: strong accesses (atomic, volatile, relaxed or stronger) among each other, within
their scope; and a write of the very bytes that are there already. Threads of one warp that pass values,
not flags, through volatile shared memory rely on running in step, as they did before Volta: that is
reported as a race, though each access is whole.

Source: PTX ISA, "Memory Consistency Model: Data races, Morally strong operations".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dotcu.simulator.machine.access import describe_element
from dotcu.simulator.machine.clocks import NEVER, ClockTimes, picked
from dotcu.simulator.machine.memory import Memory
from dotcu.simulator.machine.shape import WARP, BatchShape, Threads
from dotcu.simulator.machine.state import Access, AccessPart, Batch, LaunchState, SourceCheck, active_threads
from dotcu.simulator.machine.undefined import HeldCheck, HeldLoad
from dotcu.simulator.machine.warpgroups import CHUNK_BYTES, GROUP, warpgroups
from dotcu.simulator.run import Array, LaunchWrites
from dotcu.simulator.sanitizers.proxies import Moment, ProxyFence, is_async, is_later, known_of
from dotcu.simulator.sanitizers.race_reports import (
    check_overlap,
    name_of,
    report_proxy,
    report_race,
    report_source,
    report_unawaited,
    shown_line,
)
from dotcu.simulator.sanitizers.replicas import Replicas
from dotcu.simulator.sanitizers.shadow import (
    LANE,
    STRONG,
    EventLog,
    MemoryEvent,
    ShadowMemory,
    StampedPlaces,
    ThreadAccess,
    event_of,
)


class Races:
    """Observes the accesses of a launch, and compares each with those before it.

    Attributes:
        events: The events of the launch.
    """

    def __init__(self, launch: LaunchState) -> None:
        self.events = EventLog(launch)
        values = launch.decoded.loaded_values
        self._replicas = None if values is None else Replicas(values)
        if self._replicas is not None:
            self.events.keep_back = self._replicas.keep_back
        self._memory = launch.memory
        pitch = BatchShape(grid=launch.extent, block=launch.block, first=0, blocks=1).pitch
        self._global = _shadows_of(launch.memory, self.events, pitch if launch.acquired is not None else 0)
        self._shared: dict[int, ShadowMemory] = {}
        self._group = WARP if launch.decoded.meets_in_part else 0
        # By wgmma and batch, the stamp of the write that each warpgroup was last compared with.
        self._compared: dict[tuple[int, int], Array] = {}
        on = launch.on
        on.begin.append(self.begin)
        on.end.append(self.end)
        on.read.insert(0, self.read)
        on.write.append(self.write)
        on.stored.append(self.stored)
        on.atomic.append(self.atomic)
        on.mbarrier.append(self.mbarrier)
        on.matrix.append(self.matrix)
        on.async_read.append(self.async_read)
        on.async_write.append(self.async_write)
        on.tensor_map.append(self.tensor_map)
        on.source.append(self.source)
        on.issue.append(self.issue)
        on.land.append(self.land)
        on.complete.append(self.complete)
        on.barrier.append(self.barrier)
        on.arrive.append(lambda batch: self._shared[id(batch)].mark())
        on.leave.append(self.leave)
        on.publish.append(lambda batch, words: self._shared[id(batch)].settle_writes(words))
        on.fence.append(self.events.fence_proxies)

    def begin(self, batch: Batch) -> None:
        """Give a batch stamps for its shared memory."""
        size = int(batch.shared.data.size)
        self._shared[id(batch)] = ShadowMemory(0, size, self.events, group=self._group)

    def end(self, batch: Batch) -> None:
        """Forget a batch."""
        if self._replicas is not None:
            self._replicas.judge(batch)
        del self._shared[id(batch)]
        self.events.renew(batch)
        self._compared = {key: stamps for key, stamps in self._compared.items() if key[1] != id(batch)}

    def writes(self, kernel: str) -> tuple[LaunchWrites, ...]:
        """Return what the launch has written."""
        spans = {}
        for region in self._memory.regions:
            shadow = self._global.get(id(region))
            if shadow is not None and shadow.writes is not None:
                start = int(region.data.__array_interface__["data"][0]) - (region.base - shadow.base)
                spans[id(shadow)] = LaunchWrites(kernel, start, shadow.granule, shadow.writes)
        return tuple(spans.values())

    def _at(self, part: AccessPart, index: Array) -> ThreadAccess | None:
        """Return the threads that make a part of an access, and when; None if no race can be there."""
        batch, access, region = part.batch, part.access, part.region
        if region is not None:
            shadow = self._global.get(id(region))
            if shadow is None:
                return None
            skew = (region.view(access.width)[1] - shadow.base) // access.width
        elif part.view is batch.shared.views[access.width]:
            shadow, skew = self._shared[id(batch)], 0
        else:
            return None
        threads = batch.active if part.positions is None else batch.numbers(part.positions)
        return ThreadAccess(
            shadow, batch, access, batch.clocks.times, threads, index, skew, batch.launch.turn
        )

    def read(self, part: AccessPart, index: Array, element: int, held: list[HeldLoad] | None) -> None:
        """Check a read of elements against the writes before it, and record it for those after it."""
        at = self._at(part, index)
        if at is None:
            return
        if held is not None and element in part.access.dropped:
            held.append(_hold_read(at, part, index, element))
            return
        _check_read(at, part, index)

    def async_read(self, part: AccessPart, index: Array) -> None:
        """Check a read through the async proxy."""
        at = self._at(part, index)
        if at is not None:
            _check_proxy(at, part, index)
            _check_read(at, part, index)

    def matrix(self, batch: Batch, access: Access, groups: Array, places: Array) -> bool:
        """Check the chunks that warpgroups read through the async proxy against the writes before."""
        shadow = self._shared[id(batch)]
        if shadow.writes is None:
            return False
        state = warpgroups(batch)
        stamps = shadow.writes.take(places * (CHUNK_BYTES // shadow.granule))
        same = (stamps == stamps[:, :1]).all(axis=1)
        compared = self._compared.setdefault((access.number, id(batch)), np.zeros(state.count, np.uint64))
        fresh = same & (stamps[:, 0] != compared[groups])
        compared[groups[same]] = stamps[same, 0]
        # One chunk for each of the four warps, which have to know of the write.
        for rows, columns in ((fresh, slice(GROUP // WARP)), (~same, slice(None))):
            if not rows.any():
                continue
            with state.reading(access, groups[rows], places[rows, columns]) as part:
                at = self._at(part, part.indices)
                assert at is not None
                for touch in shadow.touches(at) if shadow.dirty else ():
                    _compare_with(at, part, touch, shadow.writes, "write")
                _check_proxy(at, part, part.indices)
        return False

    def write(self, part: AccessPart, index: Array, value: Array) -> None:
        """Check a write against all accesses before it; `value` is what it is about to store."""
        if self._replicas is not None:
            self._replicas.store(part)
        at = self._at(part, index)
        if at is not None:
            _check_write(at, part, index, value)

    def stored(self, part: AccessPart, index: Array, value: Array) -> None:
        """Report threads of one instruction that stored different values at one place, after the store."""
        if part.access.order.strong or value.size == 1 or self._at(part, index) is None:
            return
        if self._replicas is not None and part.region is None:
            return  # threads that compute the same, in another order of rounding
        if not self.events.has_finding(part):
            check_overlap(part, index, value)

    def atomic(self, part: AccessPart, index: Array, order: Array | None) -> None:
        """Check an atomic against the weak accesses before it; it sees what came before, then publishes."""
        at = self._at(part, index)
        if at is not None:
            _check_atomic(at, part, order)

    def mbarrier(self, part: AccessPart) -> None:
        """Check an access to mbarriers; each comes after the initialization, whatever came in between."""
        index = part.indices
        at = self._at(part, index)
        assert at is not None
        shadow = at.shadow
        if part.access.order.strong:
            for touch in shadow.touches(at) if shadow.inits is not None else ():
                _compare_with(at, part, touch, shadow.inits, "write")
            _check_atomic(at, part, np.arange(len(index)))
            return
        _check_write(at, part, index, np.zeros(1, np.uint64))
        for touch in shadow.touches(at):
            shadow.stamp_init(touch)

    def async_write(self, part: AccessPart, index: Array, value: Array) -> list[int]:
        """Check the writes, or the atomics, of a bulk copy to global memory; return the event."""
        at = self._at(part, index)
        if at is None:
            return []
        self.events.renew(part.batch, part.access.number)  # each copy is waited for on its own
        _check_proxy(at, part, index)
        if part.access.order.strong:
            _check_atomic(at, part, None)
        else:
            _check_write(at, part, index, value)
        number = self.events.number(at)
        at.shadow.awaited, self.events.completions[number] = True, []
        return [number]

    def complete(self, batch: Batch, number: int) -> None:
        """Note that the active threads have waited for a copy to global memory."""
        wait = ProxyFence.of(batch, len(self.events.known))
        self.events.completions.setdefault(number, []).append(wait)

    def issue(self, part: AccessPart, index: Array) -> None:
        """Check a copy that may write from now on, and that lands later, against all accesses before it."""
        at = self._at(part, index)
        assert at is not None
        if is_async(part.access.instruction.ptx):
            _check_proxy(at, part, index)
        at.shadow.settle()
        for touch in at.shadow.touches(at):
            _compare_with_all(at, part, touch)

    def land(self, part: AccessPart, index: Array, value: Array | None) -> None:
        """Record a copy that has landed; one that may not have written before is checked now."""
        at = self._at(part, index)
        assert at is not None
        if value is not None:
            _check_write(at, part, index, value)
        elif part.access.action == "read":
            at.shadow.note(at)
        else:
            at.shadow.settle()
            for touch in at.shadow.touches(at):
                at.shadow.stamp_write(touch)

    def source(self, part: AccessPart) -> SourceCheck | None:
        """Return what reports writes to a part of memory from now on, until the copy of it is waited for."""
        at, first, since = self._at(part, part.spread()), part.spread(), len(self.events.known)
        forgotten, issuers = self.events.forgotten, part.batch.numbers(part.positions)
        if at is None:
            return None

        def check(threads: Threads) -> None:
            here = np.isin(issuers, threads)
            if not here.any() or self.events.forgotten != forgotten:
                return
            batch, own = part.batch, issuers[here]
            for element in range(part.access.elements):
                now = at._replace(
                    times=batch.clocks.times,
                    threads=own,
                    indices=first[here] + element,
                    turn=batch.launch.turn,
                )
                now.shadow.note(now)
                for places, _ in now.shadow.touches(now):
                    if now.shadow.writes is None:
                        break
                    old = now.shadow.writes.take(places)
                    bad = event_of(old) >= since
                    if bad.any():
                        report_source(now, part, int(old[bad][0]), own[bad], int(now.indices[bad][0]))
                        return

        return check

    def tensor_map(self, part: AccessPart, address: int) -> None:
        """Report a copy by a tensor map that was written by the generic proxy, without the fences of maps."""
        at = self._at(part, part.indices)
        if at is not None and at.shadow.writes is not None:
            _check_tensor_map(at, part, address)

    def leave(self, batch: Batch, threads: Threads, mark: tuple[int, int, int]) -> None:
        """Settle what came before the arrivals at a barrier of clusters, which a mark tells."""
        self._shared[id(batch)].raise_floor(threads, batch.threads, mark)

    def barrier(self, batch: Batch, threads: Threads | None) -> None:
        """Settle what came before a barrier of whole blocks: other blocks of a cluster may still touch it."""
        shadow = self._shared[id(batch)]
        if batch.shape.cluster_blocks > 1:
            shadow.raise_block_floor(threads, batch.threads)
        else:
            shadow.raise_floor(threads, batch.threads)


def _shadows_of(memory: Memory, events: EventLog, group: int) -> dict[int, ShadowMemory]:
    """Stamps for each region that anything can write; regions of the same bytes share them."""
    shadows: dict[int, ShadowMemory] = {}
    for region in memory.regions:
        same = [region, *region.aliases]
        shadow = next((shadows[id(r)] for r in same if id(r) in shadows), None)
        if shadow is None and not all(r.read_only for r in same):
            low = min(r.base for r in same) & ~255
            size = max(r.base + r.size for r in same) - low
            shadow = ShadowMemory(low, size, events, shared=any(r.shared for r in same), group=group)
        if shadow is not None:
            shadows[id(region)] = shadow
    return shadows


def _check_read(at: ThreadAccess, part: AccessPart, index: Array) -> None:
    shadow, is_strong = at.shadow, part.access.order.strong
    if shadow.awaited:
        _check_completion(at, part, index)
    if shadow.writes is not None and "nc" in part.access.instruction.ptx.flags:
        _check_unchanged(at, part)
        return
    if is_strong or (shadow.writes is not None and shadow.dirty):
        for touch in shadow.touches(at):
            _compare_with(at, part, touch, shadow.writes, "write")
            if is_strong:
                shadow.stamp_readers(touch, strong=True)
                if (found := shadow.found(touch.granules)) is not None:
                    _see(at, shadow, touch.granules, *found)
    if not is_strong:
        shadow.note(at)


def _check_unchanged(at: ThreadAccess, part: AccessPart) -> None:
    """Report threads that read through the read-only cache what the launch has written, in whatever order."""
    shadow, threads = at.shadow, part.batch.numbers(part.positions)
    shadow.note(at)
    for places, _ in () if shadow.events.has_finding(at) else shadow.touches(at):
        assert shadow.writes is not None
        old = np.broadcast_to(shadow.writes.take(places), threads.shape)
        bad = np.flatnonzero(old)
        if not len(bad):
            continue
        event = shadow.events[int(event_of(old[bad[:1]])[0])]
        writer = int(old[bad[0]] & LANE) - event.shape.first * event.shape.pitch
        name, shown = describe_element(part, int(np.broadcast_to(at.indices, threads.shape)[bad[0]]))
        message = (
            f"race: this line reads {shown} by ld.global.nc, for data that nothing writes during the launch, "
            f"and {name_of(event.shape, writer)} writes it at {shown_line(at, event)}: the read may give the "
            "old value, whatever orders the two. Read it without __ldg(), and without const __restrict__ on "
            "the parameter, or pass a tensor that the kernel does not write."
        )
        part.batch.report("race", part.access.instruction, threads[bad], message, address_of=name)
        return


def _hold_read(at: ThreadAccess, part: AccessPart, index: Array, element: int) -> HeldLoad:
    """Hold the check of a read back until it is known which threads keep its value."""
    batch, active = part.batch, part.batch.active
    threads = batch.numbers(part.positions)

    def report(used: Threads) -> None:
        where = np.searchsorted(threads, used)
        positions = where if part.positions is None else part.positions[where]
        indices = picked(np.atleast_1d(index), where)
        narrow = part._replace(indices=indices, positions=positions)
        with active_threads(batch, active):
            _check_read(at._replace(threads=used, indices=indices), narrow, indices)

    check = batch.undefined.hold(HeldCheck(report, threads, np.zeros(batch.threads, bool), within_block=True))
    bits = np.full(len(threads), (1 << 8 * part.access.width) - 1, f"u{part.access.width}")
    return HeldLoad(element, threads, bits, check)


def _check_proxy(at: ThreadAccess, part: AccessPart, index: Array) -> None:
    """Report async accesses of bytes that were written by the generic proxy, with no fence on the way.

    The two are ordered; otherwise they would be a race. The reverse, an access by the generic proxy of what a
    copy wrote, needs no fence but the wait for its completion.
    """
    batch, shadow = part.batch, at.shadow
    if shadow.writes is None or shadow.events.has_finding(part):
        return
    threads = batch.numbers(part.positions)
    space = "shared::cta" if part.region is None else "global"
    for places, _ in shadow.touches(at):
        old = np.broadcast_to(shadow.writes.take(places), threads.shape)
        # One of all places that the same thread wrote by the same event, and the same thread accesses now.
        _, spots = np.unique(
            np.unique(old, return_inverse=True)[1] * batch.threads + threads, return_index=True
        )
        spots = spots[old[spots] != 0]
        numbers = event_of(old[spots])
        events = {number: shadow.events[number] for number in np.unique(numbers).tolist()}
        events = {n: event for n, event in events.items() if not is_async(event.access.instruction.ptx)}
        for shape in {id(event.shape): event.shape for event in events.values()}.values():
            alike = [number for number, event in events.items() if event.shape is shape]
            here = np.isin(numbers, alike)
            at_event = np.searchsorted(alike, numbers[here])
            writers = (old[spots[here]] & LANE).astype(np.int64) - shape.first * shape.pitch
            times = _times_at([events[number] for number in alike], at_event, writers)
            known = batch.clocks.known.of(threads[spots[here]])
            first = Moment(shape, writers, times)
            second = Moment(batch.shape, threads[spots[here]], known)
            bad = ~is_later(first, second)
            owners = None
            if part.region is None and shape.cluster_blocks > 1:
                owners = (
                    np.broadcast_to(places, threads.shape)[spots[here]] * shadow.granule // batch.shared.pitch
                )
                of_threads = np.stack((writers, threads[spots[here]])) // shape.pitch
                owners = owners if (of_threads != owners).any() else None
            bad &= ~shadow.events.are_joined(numbers[here], first, second, space, owners)
            if bad.any():
                number = int(numbers[here][bad].min())
                bad &= numbers[here] == number
                spot, writer = int(index[spots[here][bad]][0]), int(writers[bad][0])
                report_proxy(at, part, events[number], writer, np.unique(second[1][bad]), spot)
                return


def _check_tensor_map(at: ThreadAccess, part: AccessPart, address: int) -> None:
    batch, shadow = part.batch, at.shadow
    assert shadow.writes is not None
    threads, index = batch.numbers(), part.indices
    for places, _ in shadow.touches(at):
        for number, event, here in _events_at(shadow, places):
            first, second = _moments(at, event, shadow.writes.take(places)[here], threads[here])
            ordered, fences = ~is_later(first, second), shadow.events
            missing = ordered & ~fences.are_joined(number, first, second, "tensormap")
            if "cp_fenceproxy" in event.access.instruction.ptx.flags:  # the fence is its own
                missing = np.zeros(len(ordered), bool)
            what, who = "fence.proxy.tensormap::generic.release.gpu", "Who changes it passes"
            if not missing.any():
                missing = ordered & ~fences.are_joined(number, first, second, f"tensormap {address}")
                what, who = "fence.proxy.tensormap::generic.acquire.gpu [map], 128", "Who copies passes"
            if missing.any():
                name, shown = describe_element(part, int(index[here][missing][0]))
                writer = name_of(event.shape, int(first[1][missing][0]))
                message = (
                    f"proxy-fence: this copy reads its tensor map at {shown}, which {writer} writes at "
                    f"{shown_line(at, event)}, through another proxy, which keeps the old map. "
                    f"{who} {what}, between the two."
                )
                batch.report(
                    "proxy-fence", at.access.instruction, np.unique(threads), message, address_of=name
                )
                return


def _check_completion(at: ThreadAccess, part: AccessPart, index: Array) -> None:
    """Report accesses of global memory that a bulk copy writes and whose end its thread has not awaited."""
    batch, shadow = part.batch, at.shadow
    if shadow.writes is None or part.access.order.strong:
        return
    if part.access.action == "write" and is_async(part.access.instruction.ptx):
        return
    threads = batch.numbers(part.positions)
    for places, _ in shadow.touches(at):
        places = np.broadcast_to(places, threads.shape)
        for number, event, here in _events_at(shadow, places):
            waits = shadow.events.completions.get(number)
            if waits is None:
                continue
            first, second = _moments(at, event, shadow.writes.take(places)[here], threads[here])
            late = is_later(first, second)
            if late.any():
                return  # a race, which is reported as that
            bad = ~late
            for wait in waits:
                bad &= ~wait.releases(first, second)
            if bad.any():
                report_unawaited(at, part, event, int(first[1][bad][0]), second[1][bad], index)
                return


def _check_write(at: ThreadAccess, part: AccessPart, index: Array, value: Array) -> None:
    shadow = at.shadow
    if shadow.awaited:
        _check_completion(at, part, index)
    own = shadow.settle(but=at)
    for touch in shadow.touches(at):
        _compare_with(at, part, touch, shadow.writes, "write", value)
        is_shared = shadow.stamp_write(touch)
        while is_shared and own:
            shadow.stamp_read(own.pop())
        _compare_with_readers(at, part, touch)
        _publish(at, shadow, touch)


def _check_atomic(at: ThreadAccess, part: AccessPart, order: Array | None) -> None:
    shadow = at.shadow
    shadow.settle()
    for touch in shadow.touches(at):
        _compare_with_all(at, part, touch)
        before = shadow.found(touch.granules)
        own = _publish(at, shadow, touch)
        if order is not None and (before or own):
            both = zip(before or _NOTHING, own or _NOTHING, strict=True)
            _see(at, shadow, touch.granules, *(_found(b, o, touch.granules, order) for b, o in both))
        # The last thread owns the place: it may well reset a counter that it alone has filled.
        last = touch
        if order is not None:
            last = StampedPlaces(touch.granules[order], touch.stamps[order])
        shadow.stamp_write(last)
        if shadow.is_narrow(part.access.order):
            _compare_with(at, part, touch, shadow.writes, "write")


def _times_at(events: Sequence[MemoryEvent], of_event: Array, threads: Array) -> ClockTimes:
    """Return the times of threads, each at one of some events.

    Args:
        of_event: For each thread which of the events.
    """
    at_once = list({id(event.times): event for event in events}.values())
    if len(at_once) == 1:
        return events[0].times_of(threads)
    numbers = {id(event.times): number for number, event in enumerate(at_once)}
    of_event = np.array([numbers[id(event.times)] for event in events])[of_event]
    then = ClockTimes(*np.empty((3, len(threads)), np.int64))
    by_event = np.argsort(of_event, kind="stable")
    ends = np.searchsorted(of_event[by_event], np.arange(len(at_once) + 1))
    for event, low, high in zip(at_once, ends, ends[1:], strict=False):
        here = by_event[low:high]
        for times, values in zip(then, event.times_of(threads[here]), strict=True):
            times[here] = values
    return then


def _events_at(shadow: ShadowMemory, places: Array) -> Iterator[tuple[int, MemoryEvent, Array]]:
    """Yield the events that wrote places last, each with the mask of its places."""
    assert shadow.writes is not None
    numbers = event_of(shadow.writes.take(places))
    for number in np.unique(numbers).tolist():
        if number:
            yield number, shadow.events[number], numbers == number


def _moments(at: ThreadAccess, event: MemoryEvent, old: Array, threads: Array) -> tuple[Moment, Moment]:
    """The threads of an earlier event, and those of now, as pairs that differ."""
    writers = (old & LANE).astype(np.int64) - event.shape.first * event.shape.pitch
    clocks = at.batch.clocks
    now = Moment(at.batch.shape, threads, clocks.known.of(threads))
    return Moment(event.shape, writers, event.times_of(writers)), now


_NOTHING = (np.full(1, NEVER),) * 3


def _found(before: Array, own: Array, indices: Array, order: Array) -> Array:
    """Return the time that each thread finds published: the one before, or that of threads ahead of it."""
    columns = max(before.shape[1:], own.shape[1:], key=len)
    before, own = (
        np.broadcast_to(v if v.ndim > len(columns) else v[:, None], (len(indices), *columns))[order]
        for v in (before, own)
    )
    group = np.cumsum(np.diff(indices[order], prepend=-1) != 0) << 40
    group = group[:, None] if columns else group
    latest = np.maximum.accumulate(group + own + 1)
    ahead = np.concatenate((np.broadcast_to(group[:1], latest[:1].shape), latest[:-1]))
    ahead = np.maximum(ahead, group) - group - 1
    found = np.empty((len(indices), *columns), np.int64)
    found[order] = np.maximum(before, ahead)
    return found


def _see(
    at: ThreadAccess, shadow: ShadowMemory, places: Array, grid: Array, block: Array, turn: Array
) -> None:
    """Take what was published at the places: at once for an acquire, else when a fence follows."""
    if block.ndim > 1:
        order = at.access.order
        if order.release and not order.acquire and at.access.instruction.ptx.opcode == "mbarrier":
            return  # an arrival learns nothing
        near, far = block[:, : block.shape[1] // 2], block[:, block.shape[1] // 2 :]
        near = np.where(_is_own(at, shadow, places)[:, None], near, NEVER)
        block = near if order.scope == "cta" or order.for_block else np.maximum(near, far)
    if shadow.shared:
        at.batch.clocks.see_system(
            at.threads, grid + 1, at_once=at.access.order.acquire and not shadow.is_narrow(at.access.order)
        )
        grid = np.full(1, NEVER)
    if int(block.max()) != NEVER:
        if _is_between_blocks(at, shadow):
            at.batch.clocks.acquire(at.threads, turn)
        at.batch.clocks.see(at.threads, grid + 1, block + 1, at_once=at.access.order.acquire, turn=turn)


def _publish(
    at: ThreadAccess, shadow: ShadowMemory, touch: StampedPlaces
) -> tuple[Array, Array, Array] | None:
    """Publish what a release, or a strong write after a fence, makes known."""
    order, clocks = at.access.order, at.batch.clocks
    if not order.strong:
        return None
    grid, block, _ = clocks.released.of(at.threads)
    if shadow.shared:
        grid = picked(clocks.released_system, at.threads)
    if order.release:
        own_grid, block = clocks.published(at.threads)
        grid = grid if shadow.is_narrow(order) else own_grid
        clocks.release(at.threads)
    elif all(values.size == 1 and values.flat[0] == NEVER for values in (grid, block)):
        return None
    turns = np.full(len(touch.stamps), NEVER)
    releases = np.broadcast_to(_are_there(grid) | _are_there(block), turns.shape)
    threads = np.arange(at.batch.threads) if at.threads is None else at.threads
    if releases.any():
        turns[releases] = clocks.hand_out(threads[releases])
        if clocks.acquired is not None and _is_between_blocks(at, shadow):
            places = np.broadcast_to(touch.granules, turns.shape)[releases]
            clocks.acquired.join(turns[releases], places, shadow.turns_at(places))
    if block.ndim > 1 and shadow.is_global:
        block = block.max(axis=1)
    elif block.ndim > 1:
        # Apart from each other: what threads of the block see whose memory it is, and all of the cluster.
        warps = at.batch.shape.cluster_threads // WARP
        rows = np.broadcast_to(block, (len(touch.stamps), block.shape[1]))
        near = np.where(_is_own(at, shadow, touch.granules)[:, None], rows[:, :warps], NEVER)
        far = np.where(order.scope == "cta" or order.for_block, NEVER, rows[:, -warps:])
        block = np.concatenate((near, far), axis=1)
    shadow.publish(touch, (grid, block), turns)
    return grid, block, turns


def _is_between_blocks(at: ThreadAccess, shadow: ShadowMemory) -> bool:
    """Return whether other blocks reach the memory."""
    return shadow.is_global or at.batch.shape.cluster_blocks > 1


def _are_there(times: Array) -> Array:
    """Return the mask of threads that have a time, or a row with one."""
    there = times if times.ndim == 1 else times.max(axis=1)
    return np.asarray(there != NEVER)


def _is_own(at: ThreadAccess, shadow: ShadowMemory, places: Array) -> Array:
    """Return for each thread whether its place is in the shared memory of its own block."""
    batch = at.batch
    threads = np.arange(batch.threads) if at.threads is None else at.threads
    return places * shadow.granule // batch.shared.pitch == threads // batch.shape.pitch


def _compare_with_all(at: ThreadAccess, part: AccessPart, touch: StampedPlaces) -> None:
    """Report the threads that the writes and the reads of the same bytes are not ordered before."""
    _compare_with(at, part, touch, at.shadow.writes, "write")
    _compare_with_readers(at, part, touch)


def _compare_with_readers(at: ThreadAccess, part: AccessPart, touch: StampedPlaces) -> None:
    """Report the threads that the reads of the same bytes are not ordered before."""
    for readers in at.shadow.readers or ():
        _compare_with(at, part, touch, readers, "read")
    places, own = touch
    if at.shadow.group and (others := at.shadow.others(places)) is not None:
        positions, stamps = others
        if len(places) < len(own):  # one place for all threads
            positions, stamps = np.repeat(np.arange(len(own)), len(stamps)), np.tile(stamps, len(own))
        threads = (np.arange(at.batch.threads) if at.threads is None else at.threads)[positions]
        each = at._replace(threads=threads, indices=picked(at.indices, positions))
        _compare_with(
            each, part, StampedPlaces(picked(places, positions), own[positions]), None, "read", old=stamps
        )


def _compare_with(
    at: ThreadAccess,
    part: AccessPart,
    touch: StampedPlaces,
    stamps: Array | None,
    action: str,
    value: Array | None = None,
    old: Array | None = None,
) -> None:
    """Report the threads that an earlier access of the same bytes is not ordered before.

    A store of a `value` that is there already does not race. `old` has the stamp of each thread's place, in
    place of the `stamps` of all granules.
    """
    shadow, order = at.shadow, at.access.order
    if (stamps is None and old is None) or shadow.events.has_finding(at):
        return
    places, own = touch
    old = stamps.take(places) if stamps is not None else old
    assert old is not None
    suspect = old >= picked(shadow.floor, at.threads)
    if not suspect.any():
        return
    suspect = suspect & ((old ^ own) & LANE != 0)
    if shadow.block_floor is not None and suspect.any():
        pitch = np.uint64(at.batch.shape.pitch)
        same_block = (old & LANE) // pitch == (own & LANE) // pitch
        suspect &= ~(same_block & (old < picked(shadow.block_floor, at.threads)))
    in_step = order.exchange and part.region is None
    if order.strong and not shadow.is_narrow(order):
        near = np.uint64(at.batch.shape.pitch if _is_apart(at.indices) else WARP)
        suspect &= ((old & STRONG) == 0) | (
            (old & LANE) // near == (own & LANE) // near if in_step else False
        )
    if value is not None and suspect.any():
        suspect &= part.view.take(at.indices) != value
    if not suspect.any():
        return
    old, indices = (np.broadcast_to(values, suspect.shape)[suspect] for values in (old, places))
    threads = (np.arange(at.batch.threads) if at.threads is None else at.threads)[suspect]
    numbers, of_event = np.unique(event_of(old), return_inverse=True)
    events = [shadow.events[number] for number in numbers.tolist()]
    starts = np.array([event.shape.first * event.shape.pitch for event in events])
    first = (old & LANE).astype(np.int64) - starts[of_event]
    bad = _unordered(at, shadow, events, of_event, first, threads, in_step=in_step)
    for number in np.flatnonzero(np.bincount(of_event[bad])).tolist():
        here = bad & (of_event == number)
        _report_pairs(at, part, events[number], action, first[here], threads[here], indices[here])


def _report_pairs(
    at: ThreadAccess,
    part: AccessPart,
    event: MemoryEvent,
    action: str,
    first: Array,
    second: Threads,
    indices: Array,
) -> None:
    """Report pairs of threads that race, those that `keep_back` keeps back once it has judged them."""

    def report(some: Array) -> None:
        index = int(indices[some][0]) * at.shadow.granule // at.access.width - at.skew
        report_race(at, part, event, action, int(first[some][0]), second[some], index)

    certain = np.ones(len(first), bool)
    if at.shadow.events.keep_back is not None:
        certain = at.shadow.events.keep_back(at, event, action, first, second, report)
    if certain.any():
        report(certain)


def _is_apart(indices: Array) -> bool:
    """Return whether threads access several places: they exchange no flag, or counter, that all read."""
    return indices.size > 1 and bool((indices != indices[0]).any())


def _unordered(
    at: ThreadAccess,
    shadow: ShadowMemory,
    events: list[MemoryEvent],
    of_event: Array,
    first: Array,
    second: Threads,
    *,
    in_step: bool,
) -> Array:
    """Return the mask of pairs, of an earlier event's thread and a thread of this access, without an order.

    Args:
        events, of_event: The earlier events, and for each pair which of them it is.
        first, second: The threads of the events, and of this access.
        in_step: This access reads a value that threads of a warp may exchange.
    """
    shape, order, known = at.batch.shape, at.access.order, at.batch.clocks.known
    then = _times_at(events, of_event, first)
    foreign = np.array([event.shape is not shape for event in events])
    if foreign.all():
        result = is_later(Moment(events[0].shape, first, then), Moment(shape, second, known.of(second)))
    else:
        own = known_of(known, second, shape, first)
        result = is_later(Moment(shape, first, then), Moment(shape, second, own))
        result |= at.batch.clocks.left_out(first, then, second, own.block)
        if foreign.any():
            result = np.where(foreign[of_event], then.grid >= picked(known.grid, second), result)
    if at.batch.clocks.handovers is not None:
        result = result | _is_unheard(at, events, of_event, first, second, ~result)
    if not order.strong:
        return result
    promises = [event.access.order for event in events]
    strong = np.array([each.strong for each in promises])[of_event]
    far = not shadow.is_narrow(order)
    wide = np.array([far and not shadow.is_narrow(each) for each in promises])[of_event]
    same = ~foreign[of_event]
    allowed = wide | (same & (first // shape.pitch == second // shape.pitch))
    if shape.cluster_blocks > 1 and order.scope != "cta":
        near = same & (first // shape.cluster_threads == second // shape.cluster_threads)
        allowed |= near & np.array([each.scope != "cta" for each in promises])[of_event]
    writes = np.array([event.access.action == "write" for event in events])[of_event]
    near_threads = shape.pitch if _is_apart(at.indices) else WARP
    relies = same & (first // near_threads == second // near_threads) & writes & np.bool_(in_step)
    return result & (relies | ~(strong & allowed))


def _is_unheard(
    at: ThreadAccess,
    events: list[MemoryEvent],
    of_event: Array,
    first: Array,
    second: Threads,
    ordered: Array,
) -> Array:
    """Return the mask of ordered pairs whose first thread handed nothing on that the second has heard of.

    Args:
        ordered: The mask of pairs to look at.
    """
    unheard, clocks, shape = np.zeros(len(first), bool), at.batch.clocks, at.batch.shape
    for number, event in enumerate(events):
        handovers, opcode = event.handovers, event.access.instruction.ptx.opcode
        if handovers is None or opcode not in ("ld", "st", "atom", "red"):
            continue
        here = np.flatnonzero(ordered & (of_event == number))
        threads, own = first[here], second[here]
        if event.shape is shape:
            here = here[(threads != own) & (clocks.are_apart(threads, own))]
            threads, own = first[here], second[here]
            is_near = threads // shape.pitch == own // shape.pitch
        else:
            is_near = np.zeros(len(here), bool)
        if len(here):
            grid, block = (np.broadcast_to(picked(values, own), own.shape) for values in clocks.heard)
            blocks = threads // shape.pitch
            far = ~is_near
            if clocks.acquired is not None and far.any():
                of_blocks = own[far] // shape.pitch + shape.first, blocks[far] + event.shape.first
                grid = grid.copy()
                grid[far] = np.minimum(grid[far], clocks.acquired.turns[of_blocks])
            unheard[here[is_near]] = ~handovers.are_before(threads[is_near], event.turn, block[is_near])
            unheard[here[far]] = ~handovers.are_before(threads[far], event.turn, grid[far], blocks[far])
    return unheard
