"""Programmatic dependent launches: what the launch before wrote is there after griddepcontrol.wait alone.

Launches run one after the other here. On a GPU, one with the programmatic attribute may start while the
one before it runs, and what a thread reads of its results before the wait may be old. The wait of one
thread holds for the others that it is ordered before.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: griddepcontrol"; CUDA C++
Programming Guide, "Programmatic Dependent Launch and Synchronization".
"""

from __future__ import annotations

import numpy as np

from dotcu.simulator.machine.faults import describe_element
from dotcu.simulator.machine.state import AccessPart, Chunk, LaunchState
from dotcu.simulator.run import Array, LaunchWrites
from dotcu.simulator.sanitizers.proxies import ProxyFence, is_later

_DOES = {"read": "reads", "write": "writes", "atomic": "updates"}


class DependentLaunch:
    """Observes a programmatic launch: who touches what the launch before wrote, and who has waited."""

    def __init__(self, grid: LaunchState, earlier: tuple[LaunchWrites, ...]) -> None:
        self._earlier = earlier
        self._waits: list[ProxyFence] = []
        # By batch, the lanes that a wait is ordered before.
        self._waited: dict[int, Array] = {}
        grid.on.begin.append(self.begin)
        grid.on.end.append(self.end)
        grid.on.wait.append(self.wait)
        grid.on.touch.append(self.touch)

    def begin(self, chunk: Chunk) -> None:
        """Note that no lane of a batch has waited."""
        self._waited[id(chunk)] = np.zeros(chunk.lanes, bool)

    def end(self, chunk: Chunk) -> None:
        """Forget a batch."""
        del self._waited[id(chunk)]

    def wait(self, chunk: Chunk) -> None:
        """Note that the active lanes have waited."""
        self._waited[id(chunk)][chunk.numbers()] = True
        self._waits.append(ProxyFence.of(chunk, 0))

    def touch(self, part: AccessPart) -> None:
        """Report lanes that touch what the launch before wrote, and that no wait for it is ordered before."""
        chunk, region, width = part.chunk, part.region, part.access.width
        if region is None or part.access.order.strong:
            return
        lanes = chunk.numbers(part.positions)
        early = ~self._waited[id(chunk)][lanes]
        if not early.any():
            return
        host = int(region.data.__array_interface__["data"][0])
        for element in {0, part.access.elements - 1}:
            index = part.indices + element
            places = np.broadcast_to(index, lanes.shape) * width + (region.view(width)[1] - region.base)
            bad = early & self._is_written(places + host)
            if bad.any():
                bad[bad] = ~self._are_after_a_wait(chunk, lanes[bad])
            if bad.any():
                self._report(part, int(np.broadcast_to(index, lanes.shape)[bad][0]), lanes[bad])
                return

    def _is_written(self, addresses: Array) -> Array:
        written = np.zeros(len(addresses), bool)
        for _, start, granule, stamps in self._earlier:
            at = (addresses - start) // granule
            inside = (at >= 0) & (at < len(stamps))
            written[inside] |= stamps[at[inside]] != 0
        return written

    def _are_after_a_wait(self, chunk: Chunk, lanes: Array) -> Array:
        """Return the mask of lanes that some lane's wait is ordered before, which is remembered."""
        after, known = np.zeros(len(lanes), bool), chunk.clocks.known.of(lanes)
        for wait in self._waits:
            for number, lane in enumerate(wait.lanes.tolist()):
                first = (wait.shape, np.full(len(lanes), lane), wait.times.of(np.full(len(lanes), number)))
                after |= ~is_later(first, (chunk.shape, lanes, known))
        self._waited[id(chunk)][lanes[after]] = True
        return after

    def _report(self, part: AccessPart, index: int, lanes: Array) -> None:
        name, shown = describe_element(part, index)
        message = (
            f"race: it {_DOES[part.access.action]} {shown}, which the previous launch, "
            f"`{self._earlier[0].kernel}`, writes. This launch is programmatic, so it may start while that "
            "one runs. Call dotcu::wait_for_earlier(), or cudaGridDependencySynchronize(), in each thread "
            "before it touches that memory."
        )
        part.chunk.report("race", part.access.placed, np.unique(lanes), message, address_of=name)
