"""The machine: what all chunks of one launch share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.counting.traffic import Traffic
from dotcu.simulator.counting.work import work_of
from dotcu.simulator.decoding.provenance import Span, span_of
from dotcu.simulator.finding import Finding
from dotcu.simulator.machine.barrier import Barriers
from dotcu.simulator.machine.chunk import WARP, Array, Chunk, Lanes, Private, Shape
from dotcu.simulator.machine.memory import Memory, Region
from dotcu.simulator.machine.schedule import execute
from dotcu.simulator.run import Run
from dotcu.simulator.sanitizers.shadow import Events, Shadow
from dotcu.simulator.semantics.special import special_arrays

if TYPE_CHECKING:
    from dotcu.ptx.link import Placed
    from dotcu.simulator.decoding.decode import Decoded
    from dotcu.simulator.semantics.spaces import Access

# Lanes that run together: enough to hide Python's cost per step, few enough for the caches.
CHUNK_LANES = 1 << 16
CHUNK_BYTES = 1 << 28
# Shared memory that the system keeps for itself in each block; cooperative groups count in it.
RESERVED_BYTES = 1 << 10


class Grid:
    """One launch: what all its chunks share.

    Attributes:
        progress: Goes up whenever something changes that another lane may wait for.
        strong_reads: Reads so far of what other lanes may change meanwhile.
        steps: Instructions issued so far, in all chunks.
    """

    def __init__(
        self,
        *,
        decoded: Decoded,
        source_line: Callable[[str, int], str],
        memory: Memory,
        run: Run,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        smem_bytes: int,
        params: bytes,
        workspace: int = 0,
    ) -> None:
        self.decoded = decoded
        self.source_line = source_line
        self.memory = memory
        self.run = run
        self.kernel = kernel
        self.extent = grid
        self.block = block
        self.smem_bytes: int = smem_bytes
        self.params = params
        self.workspace: int = workspace
        self.visits = [0] * len(decoded.blocks)
        self.issues = [0] * len(decoded.blocks)
        self.traffic = Traffic()
        self.steps: int = 0
        self.progress = 0
        self.strong_reads = 0
        self.events = Events()
        self._spans: dict[int, Span | None] = {}
        self._shadows = shadows_of(memory, self.events) if "race" in run.checks else {}

    @property
    def shared_bytes(self) -> int:
        """Shared memory that one block has."""
        return self.decoded.dynamic_offset + self.smem_bytes

    @property
    def reserved_offset(self) -> int:
        """Where shared memory that the system keeps for itself begins: behind the block's own."""
        return -(-self.shared_bytes // 16) * 16

    @property
    def allotted_bytes(self) -> int:
        """Shared memory of one block, with what the system keeps if the kernel asks where that is."""
        asks = any(name.startswith("reserved_smem") for name, _ in self.decoded.specials)
        return self.reserved_offset + RESERVED_BYTES if asks else self.shared_bytes

    def shapes(self) -> Iterator[Shape]:
        """The launch cut into chunks."""
        total = self.extent[0] * self.extent[1] * self.extent[2]
        one = Shape(grid=self.extent, block=self.block, first=0, blocks=1)
        bytes_each = 2 * (self.allotted_bytes + one.pitch * self.decoded.local_bytes) + 1
        each = max(1, min(CHUNK_LANES // one.pitch, CHUNK_BYTES // bytes_each))
        for at in range(0, total, each):
            yield Shape(grid=self.extent, block=self.block, first=at, blocks=min(each, total - at))

    def execute(self) -> None:
        """Run every block."""
        with np.errstate(all="ignore"):
            execute(self)

    def races(self, region: Region, first: int, width: int) -> tuple[Shadow | None, int]:
        """The stamps of a region, and how far its elements from `first` are from the first stamp."""
        shadow = self._shadows.get(id(region))
        return (None, 0) if shadow is None else (shadow, (first - shadow.base) // width)

    def span(self, access: Access) -> Span | None:
        """The variable or tensor that an access has to stay in; None where that is not known."""
        try:
            return self._spans[access.number]
        except KeyError:
            span = self._spans[access.number] = span_of(self, access.origin)
            return span

    def chunk(self, shape: Shape) -> Chunk:
        """Blocks, ready to run."""
        chunk = Chunk(self, shape)
        chunk.registers = list(self.decoded.constants)
        for slot, param in self.decoded.params:
            chunk.registers[slot] = np.frombuffer(self.params, param.dtype, 1, param.offset)
        special_arrays(chunk, self.decoded.specials)
        chunk.shared = Private(shape.blocks, shape.lanes, self.allotted_bytes)
        chunk.shared.written.reshape(shape.blocks, -1)[:, self.reserved_offset :] = 1
        if "race" in self.run.checks:
            chunk.shared.races = Shadow(0, chunk.shared.data.size, self.events)
        chunk.local = Private(shape.lanes, shape.lanes, self.decoded.local_bytes)
        chunk.barriers = Barriers(chunk)
        chunk.ready[0] = None if chunk.living == chunk.lanes else chunk.everyone()
        chunk.params = Private.holding(self.params)
        return chunk

    def visit(self, number: int, chunk: Chunk) -> None:
        """Count the lanes and the warps that run a basic block."""
        active = chunk.active
        if active is None:
            self.visits[number] += chunk.lanes
            self.issues[number] += chunk.lanes // WARP
        else:
            self.visits[number] += len(active)
            self.issues[number] += self.traffic.groups(active).count

    def report(
        self,
        chunk: Chunk,
        kind: str,
        placed: Placed,
        lanes: Lanes | Array,
        *,
        message: str,
        address_of: str = "",
        count: int | None = None,
    ) -> None:
        """Report a finding of some lanes at an instruction."""
        file, line = self.decoded.place(placed)
        block, thread = chunk.shape.coordinates(int(lanes.min()))
        self.run.report(
            Finding(
                kind=kind,
                kernel=self.kernel,
                file=file,
                line=line,
                block=block,
                thread=thread,
                lanes=len(lanes) if count is None else count,
                address_of=address_of,
                message=message,
                source=self.source_line(file, line) if line else "",
            ),
            placed.instruction.text,
        )

    def count(self) -> None:
        """Add what ran to the run's counters."""
        counters, place = self.run.counters, self.decoded.place
        counters.launches += 1
        counters.steps += self.steps
        for lanes, warps, block in zip(self.visits, self.issues, self.decoded.blocks, strict=True):
            for tally in block.tallies if lanes else ():
                for line in counters.both(tally.place):
                    line.add_visits(tally, lanes, warps)
        for placed, lanes in self.traffic.skipped.values():
            for line in counters.both(place(placed)):
                line.take_back(work_of(placed.instruction), lanes)
        for placed, warps in self.traffic.splits.values():
            for line in counters.both(place(placed)):
                line.divergent_branches += warps
        for site in self.traffic.sites.values():
            for line in counters.both(place(site.access.placed)):
                line.add_traffic(site)


def shadows_of(memory: Memory, events: Events) -> dict[int, Shadow]:
    """Stamps for each region that anything can write; regions of the same bytes share them."""
    shadows: dict[int, Shadow] = {}
    for region in memory.regions:
        group = [region, *region.aliases]
        known = next((shadows[id(r)] for r in group if id(r) in shadows), None)
        if known is None and all(r.read_only for r in group):
            continue
        if known is None:
            low = min(r.base for r in group) & ~255
            known = Shadow(low, max(r.base + r.size for r in group) - low, events)
        shadows[id(region)] = known
    return shadows
