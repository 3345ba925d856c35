"""Programmatic dependent launches: what the launch before wrote is there after griddepcontrol.wait alone.

Launches run one after the other here. On a GPU, one with the programmatic attribute may start while the
one before it runs, and what a thread reads of its results before the wait may be old. The wait of one
thread holds for the others that it is ordered before.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: griddepcontrol"; CUDA C++
Programming Guide, "Programmatic Dependent Launch and Synchronization".
"""

from __future__ import annotations

import numpy as np

from dotcu.simulator.machine.access import describe_element
from dotcu.simulator.machine.state import AccessPart, Batch, LaunchState
from dotcu.simulator.run import Array, LaunchWrites
from dotcu.simulator.sanitizers.proxies import Moment, ProxyFence, is_later

_DOES = {"read": "reads", "write": "writes", "atomic": "updates"}


class DependentLaunch:
    """Observes a programmatic launch: accesses of what the launch before wrote, and the waits for it."""

    def __init__(self, launch: LaunchState, earlier: tuple[LaunchWrites, ...]) -> None:
        self._earlier = earlier
        self._waits: list[ProxyFence] = []
        # By batch, the threads that a wait is ordered before.
        self._waited: dict[int, Array] = {}
        launch.on.begin.append(self.begin)
        launch.on.end.append(self.end)
        launch.on.wait.append(self.wait)
        launch.on.touch.append(self.touch)

    def begin(self, batch: Batch) -> None:
        """Note that no thread of a batch has waited."""
        self._waited[id(batch)] = np.zeros(batch.threads, bool)

    def end(self, batch: Batch) -> None:
        """Forget a batch."""
        del self._waited[id(batch)]

    def wait(self, batch: Batch) -> None:
        """Note that the active threads have waited."""
        self._waited[id(batch)][batch.numbers()] = True
        self._waits.append(ProxyFence.of(batch, 0))

    def touch(self, part: AccessPart) -> None:
        """Report threads that touch what the launch before wrote, before a wait for it."""
        batch, region, width = part.batch, part.region, part.access.width
        if region is None or part.access.order.strong:
            return
        threads = batch.numbers(part.positions)
        early = ~self._waited[id(batch)][threads]
        if not early.any():
            return
        host = int(region.data.__array_interface__["data"][0])
        for element in {0, part.access.elements - 1}:
            index = part.indices + element
            places = np.broadcast_to(index, threads.shape) * width + (region.view(width)[1] - region.base)
            bad = early & self._is_written(places + host)
            if bad.any():
                bad[bad] = ~self._are_after_a_wait(batch, threads[bad])
            if bad.any():
                self._report(part, int(np.broadcast_to(index, threads.shape)[bad][0]), threads[bad])
                return

    def _is_written(self, addresses: Array) -> Array:
        written = np.zeros(len(addresses), bool)
        for _, start, granule, stamps in self._earlier:
            at = (addresses - start) // granule
            inside = (at >= 0) & (at < len(stamps))
            written[inside] |= stamps[at[inside]] != 0
        return written

    def _are_after_a_wait(self, batch: Batch, threads: Array) -> Array:
        """Return the mask of threads that some thread's wait is ordered before, which is remembered."""
        after, known = np.zeros(len(threads), bool), batch.clocks.known.of(threads)
        for wait in self._waits:
            for number, thread in enumerate(wait.threads.tolist()):
                times = wait.times.of(np.full(len(threads), number))
                first = Moment(wait.shape, np.full(len(threads), thread), times)
                after |= ~is_later(first, Moment(batch.shape, threads, known))
        self._waited[id(batch)][threads[after]] = True
        return after

    def _report(self, part: AccessPart, index: int, threads: Array) -> None:
        name, shown = describe_element(part, index)
        message = (
            f"race: this line {_DOES[part.access.action]} {shown}, which the previous launch, "
            f"`{self._earlier[0].kernel}`, writes. This launch is programmatic, so it may start while that "
            "one runs. Call dotcu::wait_for_earlier(), or cudaGridDependencySynchronize(), in each thread "
            "before it touches that memory."
        )
        part.batch.report("race", part.access.instruction, np.unique(threads), message, address_of=name)
