"""Blocks of a cluster that end while others may still access their shared memory, or copies write it.

Source: CUDA C++ Programming Guide, "Distributed Shared Memory".
"""

from __future__ import annotations

import numpy as np

from dotcu.simulator.machine.access import describe_element
from dotcu.simulator.machine.async_copies import CopiesInFlight
from dotcu.simulator.machine.clocks import NEVER, picked
from dotcu.simulator.machine.shape import WARP, Threads
from dotcu.simulator.machine.state import Access, Batch, LaunchState
from dotcu.simulator.run import Array, shown_coordinates


def watch_exits(launch: LaunchState) -> None:
    """Report accesses and copies to shared memory of blocks whose end nothing orders after them."""
    launch.on.end.append(_judge_copies)
    if launch.checks_races:
        launch.on.remote.append(
            lambda batch, access, threads, owners, offsets: batch.part(RemoteAccesses).note(
                access, threads, owners, offsets
            )
        )


class RemoteAccesses:
    """The accesses of a batch's threads to the shared memory of other blocks."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        # By access: for each block, and warp of its cluster, the time of its last access to that block's
        # shared memory. And for each block what its threads knew when they ended.
        self._reached: dict[int, tuple[Access, Array]] = {}
        self._known_at_end: Array | None = None
        # By place of a mbarrier of another block: the last access to it, and for each thread its time.
        self._arrivals: dict[int, tuple[Access, Array]] = {}
        batch.at_exit.insert(0, self._judge_end)

    def note(self, access: Access, threads: Threads, owners: Array, offsets: Array) -> None:
        """Note that threads access the shared memory of other blocks, which have to be there until then.

        Args:
            owners, offsets: For each thread the block of the batch whose memory it is, and the place in it.
        """
        shape = self.batch.shape
        far = owners != threads // shape.pitch
        if not far.any():
            return
        threads, owners = threads[far], owners[far]
        times = np.broadcast_to(picked(self.batch.clocks.times.block, threads), threads.shape)
        if access.instruction.ptx.opcode != "mbarrier":
            self._note(access, threads, owners, times)
            return
        # A thread that waits for an arrival has not ended; pipelines leave a thread's last one at an mbarrier
        # unawaited.
        places = offsets[far].astype(np.int64) * shape.cluster_blocks + owners % shape.cluster_blocks
        for place in np.unique(places).tolist():
            here = places == place
            by, before = self._arrivals.get(place, (access, np.full(self.batch.threads, NEVER, np.int64)))
            again = here & (before[threads] > NEVER)
            if again.any():
                self._note(by, threads[again], owners[again], before[threads[again]])
            before[threads[here]] = times[here]
            self._arrivals[place] = access, before

    def _note(self, access: Access, threads: Threads, owners: Array, times: Array) -> None:
        shape = self.batch.shape
        if access.number not in self._reached:
            warps = shape.cluster_threads // WARP
            self._reached[access.number] = (access, np.full((shape.blocks, warps), NEVER, np.int64))
        _, table = self._reached[access.number]
        np.maximum.at(table, (owners, threads % shape.cluster_threads // WARP), times)

    def _judge_end(self, threads: Threads) -> None:
        """Report accesses to shared memory of blocks that end, if nothing orders the end after them."""
        if not self._reached:
            return
        batch, shape, known = self.batch, self.batch.shape, self.batch.clocks.known.block
        if self._known_at_end is None:
            self._known_at_end = np.full((shape.blocks, known.shape[1]), NEVER, np.int64)
        blocks = threads // shape.pitch
        np.maximum.at(self._known_at_end, blocks, known[threads])
        ended = np.unique(blocks)
        for block in ended[~batch.is_running(ended)].tolist():
            for access, table in self._reached.values():
                late = np.flatnonzero(table[block] >= np.maximum(self._known_at_end[block], 0))
                if len(late):
                    first = block - block % shape.cluster_blocks
                    _report_early_exit(batch, access, first * shape.pitch + late * WARP, block)


def _report_early_exit(batch: Batch, access: Access, threads: Threads, block: int) -> None:
    """Report that a block may end before threads have accessed its shared memory."""
    shown = shown_coordinates(batch.shape.coordinates(block * batch.shape.pitch)[0])
    message = (
        f"exited-block: {access.action} of {access.bytes} bytes in shared memory of block {shown} of the "
        "cluster, which may end before: nothing orders its end after this access. Let every block wait for "
        "the others, by cluster.sync(), before it ends."
    )
    batch.report("exited-block", access.instruction, threads, message)


def _judge_copies(batch: Batch) -> None:
    """Report copies that no thread has waited for, once all have ended; not behind another finding."""
    flight = batch.find(CopiesInFlight)
    copies = [copy for copy in flight.copies.values() if copy.kind == "mbarrier"] if flight else []
    if not copies or any(finding.kernel == batch.launch.kernel for finding in batch.launch.run.findings):
        return
    assert flight is not None
    for copy in copies:
        with flight.elements(copy) as (part, indices):
            name, shown = describe_element(part, int(indices[0]))
        batch.report(
            "exited-block",
            copy.access.instruction,
            copy.threads,
            f"exited-block: this copy writes {shown}, and the threads of that block have ended without a "
            "wait for it: it may come when the memory belongs to another block. Wait on its mbarrier for "
            "the phase that it completes, or do not start it.",
            address_of=name,
        )
