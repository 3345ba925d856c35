"""Programmatic dependent launches: what the launch before wrote is there after griddepcontrol.wait alone.

Launches run one after the other here. On a GPU, one with the programmatic attribute may start while the
one before it runs, and what a thread reads of its results before the wait may be old. The wait of one
thread holds for the others that it is ordered before.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: griddepcontrol"; CUDA C++
Programming Guide, "Programmatic Dependent Launch and Synchronization".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.machine.shape import Array
from dotcu.simulator.sanitizers.bounds import describe_element
from dotcu.simulator.sanitizers.proxies import is_later

if TYPE_CHECKING:
    from dotcu.simulator.machine.chunk import Chunk
    from dotcu.simulator.machine.grid import LaunchState
    from dotcu.simulator.machine.memory import Buffer
    from dotcu.simulator.semantics.memory.access import AccessPart

WAITED = "grid"
"""The name of the waits among the fences of a launch."""


EarlierLaunch = tuple[str, tuple[tuple[int, int, Array], ...]]
"""A launch's kernel, and the memory that it wrote.

That is, where bytes lie in this process, how many a granule has, and the stamps of the granules' writes.
"""


def writes_of(state: LaunchState) -> EarlierLaunch:
    """Return what a launch that has ended wrote, as far as its races were checked."""
    spans = {}
    for region in state.memory.regions:
        shadow, _ = state.races(region, 1)
        if shadow is not None and shadow.writes is not None and id(shadow) not in spans:
            start = _host(region) - (region.base - shadow.base)
            spans[id(shadow)] = (start, shadow.granule, shadow.writes)
    return state.kernel, tuple(spans.values())


def _host(region: Buffer) -> int:
    """Return where a region's bytes lie in this process."""
    return int(region.data.__array_interface__["data"][0])


def check_earlier(part: AccessPart) -> None:
    """Report lanes that touch what the launch before wrote, and that no wait for it is ordered before."""
    chunk, region, width = part.chunk, part.region, part.access.width
    if region is None or chunk.grid.earlier is None or part.access.order.strong:
        return
    lanes = chunk.numbers(part.positions)
    early = ~chunk.waited[lanes]
    if not early.any():
        return
    for index in {
        0: part.indices,
        part.access.elements - 1: part.indices + part.access.elements - 1,
    }.values():
        places = np.broadcast_to(index, lanes.shape) * width + (region.view(width)[1] - region.base)
        bad = early & _is_written(chunk.grid.earlier, places + _host(region))
        if bad.any():
            bad[bad] = ~_are_after_a_wait(chunk, lanes[bad])
        if bad.any():
            _report(part, int(np.broadcast_to(index, lanes.shape)[bad][0]), lanes[bad])
            return


def _is_written(earlier: EarlierLaunch, addresses: Array) -> Array:
    written = np.zeros(len(addresses), bool)
    for start, granule, stamps in earlier[1]:
        at = (addresses - start) // granule
        inside = (at >= 0) & (at < len(stamps))
        written[inside] |= stamps[at[inside]] != 0
    return written


def _are_after_a_wait(chunk: Chunk, lanes: Array) -> Array:
    """Return the mask of lanes that some lane's wait is ordered before, which is remembered."""
    after, known = np.zeros(len(lanes), bool), chunk.clocks.known.of(lanes)
    for fence in chunk.grid.events.fences:
        if WAITED in fence.crosses:
            for number, lane in enumerate(fence.lanes.tolist()):
                first = (fence.shape, np.full(len(lanes), lane), fence.times.of(np.full(len(lanes), number)))
                after |= ~is_later(first, (chunk.shape, lanes, known))
    chunk.waited[lanes[after]] = True
    return after


_DOES = {"read": "reads", "write": "writes", "atomic": "updates"}


def _report(part: AccessPart, index: int, lanes: Array) -> None:
    chunk, earlier = part.chunk, part.chunk.grid.earlier
    assert earlier is not None
    name, shown = describe_element(part, index)
    message = (
        f"race: it {_DOES[part.access.action]} {shown}, which the previous launch, `{earlier[0]}`, writes. "
        "This launch is programmatic, so it may start while that one runs. Call dotcu::wait_for_earlier(), "
        "or cudaGridDependencySynchronize(), in each thread before it touches that memory."
    )
    chunk.report("race", part.access.placed, np.unique(lanes), message, address_of=name)
