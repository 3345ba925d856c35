"""The machine: what all chunks of one launch share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.counting.counters import work_of
from dotcu.simulator.counting.traffic import TrafficCounters
from dotcu.simulator.decoding.variables import AccessSpan, span_of
from dotcu.simulator.machine.barriers import BlockBarriers
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.machine.memory import Buffer, Memory, PrivateMemory
from dotcu.simulator.machine.schedule import Scheduler
from dotcu.simulator.machine.shape import WARP, ChunkShape
from dotcu.simulator.run import Coordinates, Run
from dotcu.simulator.sanitizers.acquired import AcquiredReleases
from dotcu.simulator.sanitizers.shadow import EventLog, ShadowMemory
from dotcu.simulator.sanitizers.undefined import hold_unset
from dotcu.simulator.semantics.memory.registers import special_arrays

if TYPE_CHECKING:
    from dotcu.simulator.decoding.decode import DecodedKernel
    from dotcu.simulator.sanitizers.earlier import EarlierLaunch
    from dotcu.simulator.semantics.memory.access import Access

# Lanes that run together: enough to hide Python's cost per step, few enough for the caches.
CHUNK_LANES = 1 << 16
CHUNK_BYTES = 1 << 28
# Clocks of a chunk with clusters, where each lane has one for each warp of its cluster.
CLUSTER_CLOCKS = 1 << 19
# Shared memory that the system keeps for itself in each block; cooperative groups count in it.
RESERVED_BYTES = 1 << 10


@dataclass(eq=False, kw_only=True)
class LaunchState:
    """One launch: what all its chunks share.

    Attributes:
        caller: Returns what `Finding.caller` says, for what `Finding.address_of` names.
        extent, block: Blocks and threads in x, y, z.
        others: The parameters of the other ranks of a launch on several GPUs; rank 0 has `params`.
        cluster: Blocks of a cluster in x, y, z; None without clusters, where each block is one.
        workspace: Address of the memory of a cooperative launch's barrier; 0 for another launch.
        asks_workspace: The kernel has read that address, as grid.sync() does.
        registers: Registers that a thread has at the start; 0: it is not known.
        heap: Buffers that malloc() gave, in this launch or an earlier one, and free() did not take back.
        earlier: What the launch before wrote, if this one may start before that one ends.
        progress: Goes up whenever something changes that another lane may wait for.
        tries: How often each wait on an mbarrier found its copies still under way.
        strong_reads: Reads so far of what other lanes may change meanwhile.
        steps, ended: Instructions issued so far, in all chunks, and threads that have ended.
    """

    decoded: DecodedKernel
    source_line: Callable[[str, int], str]
    caller: Callable[[str], str]
    memory: Memory
    run: Run
    kernel: str
    extent: Coordinates
    block: Coordinates
    smem_bytes: int
    params: bytes
    others: tuple[bytes, ...] = ()
    cluster: Coordinates | None = None
    workspace: int = 0
    asks_workspace: bool = False
    registers: int = 0
    heap: list[Buffer] = field(default_factory=list)
    earlier: EarlierLaunch | None = None
    progress: int = 0
    tries: Counter[int] = field(default_factory=Counter)
    strong_reads: int = 0
    steps: int = 0
    ended: int = 0
    traffic: TrafficCounters = field(default_factory=TrafficCounters)
    events: EventLog = field(default_factory=EventLog)
    _spans: dict[int, AccessSpan | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.visits = [0] * len(self.decoded.blocks)
        self.issues = [0] * len(self.decoded.blocks)
        blocks = math.prod(self.extent) * (1 + len(self.others))
        follows = self.decoded.releases and 1 < blocks <= AcquiredReleases.LIMIT_BLOCKS
        self.acquired = AcquiredReleases(blocks) if follows else None
        pitch = ChunkShape(grid=self.extent, block=self.block, first=0, blocks=1).pitch
        group = pitch if follows else 0
        self._shadows = _shadows_of(self.memory, self.events, group) if "race" in self.run.checks else {}

    @property
    def shared_bytes(self) -> int:
        """Shared memory that one block has."""
        return self.decoded.layout.dynamic_offset + self.smem_bytes

    @property
    def reserved_offset(self) -> int:
        """Offset of the shared memory that the system reserves: behind the block's own."""
        return -(-self.shared_bytes // 16) * 16

    @property
    def allotted_bytes(self) -> int:
        """Shared memory of one block, with what the system keeps if the kernel asks where that is."""
        asks = any(name.startswith("reserved_smem") for name in self.decoded.binding.specials)
        return self.reserved_offset + RESERVED_BYTES if asks else self.shared_bytes

    def shapes(self) -> Iterator[ChunkShape]:
        """The launch cut into chunks."""
        total = math.prod(self.extent)
        one = ChunkShape(
            grid=self.extent, block=self.block, first=0, blocks=1, cluster=self.cluster or (1, 1, 1)
        )
        bytes_each = 2 * (self.allotted_bytes + one.pitch * self.decoded.layout.local_bytes) + 1
        each = min(CHUNK_LANES // one.pitch, CHUNK_BYTES // bytes_each)
        if one.cluster_blocks > 1:
            each = min(each, CLUSTER_CLOCKS * WARP // (one.cluster_lanes * one.pitch))
        each = max(1, each // one.cluster_blocks) * one.cluster_blocks
        for rank in range(1 + len(self.others)):
            for at in range(0, total, each):
                yield replace(one, first=rank * total + at, blocks=min(each, total - at))

    def races(self, region: Buffer, width: int) -> tuple[ShadowMemory | None, int]:
        """The stamps of a region, and how far its elements of a width are from the first stamp."""
        shadow = self._shadows.get(id(region))
        return (None, 0) if shadow is None else (shadow, (region.view(width)[1] - shadow.base) // width)

    def span(self, access: Access) -> AccessSpan | None:
        """The variable or tensor that an access has to stay in; None if that is not known."""
        if access.number not in self._spans:  # a parameter of several ranks is of several tensors
            self._spans[access.number] = None if self.others else span_of(self, access.origin)
        return self._spans[access.number]

    def chunk(self, shape: ChunkShape) -> Chunk:
        """Blocks, ready to run."""
        chunk = Chunk(self, shape)
        params = (self.params, *self.others)[shape.rank]
        binding = self.decoded.binding
        chunk.registers = list(binding.constants)
        for (offset, dtype), slot in binding.params.items():
            chunk.registers[slot] = np.frombuffer(params, dtype, 1, offset)
        special_arrays(chunk, binding.specials)
        chunk.shared = PrivateMemory(shape.blocks, shape.lanes, self.allotted_bytes)
        if shape.cluster_blocks > 1:
            chunk.shared.bases = chunk.shared.bases - chunk.own_starts
            for slot in binding.shared_addresses:
                address = chunk.registers[slot]
                chunk.registers[slot] = address + chunk.own_starts.astype(address.dtype)
        chunk.shared.written.reshape(shape.blocks, -1)[:, self.reserved_offset :] = 1
        if "race" in self.run.checks:
            group = WARP if self.decoded.meets_in_part else 0
            chunk.shared.races = ShadowMemory(0, chunk.shared.data.size, self.events, group=group)
        chunk.local = PrivateMemory(shape.lanes, shape.lanes, self.decoded.layout.local_bytes)
        chunk.barriers = BlockBarriers(chunk)
        chunk.scheduler = Scheduler(self, chunk)
        chunk.ready[0] = None if chunk.living == chunk.lanes else chunk.everyone()
        chunk.params = PrivateMemory.holding(params)
        if self.decoded.unset and "init" in self.run.checks:
            hold_unset(chunk, self.decoded.unset)
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

    def count(self) -> None:
        """Add what ran to the run's counters."""
        counters, place = self.run.counters, self.decoded.location_of
        counters.launches += 1
        counters.steps += self.steps
        for lanes, warps, block in zip(self.visits, self.issues, self.decoded.blocks, strict=True):
            for (at, is_branch, work), times in block.work.items() if lanes else ():
                for line in counters.both(at):
                    line.add_work(work, times * lanes)
                    line.warp_instructions += times * warps
                    line.branches += times * warps * is_branch
        for placed, lanes in self.traffic.skipped.values():
            for line in counters.both(place(placed)):
                line.add_work(work_of(placed.instruction), -lanes)
        for placed, warps in self.traffic.splits.values():
            for line in counters.both(place(placed)):
                line.divergent_branches += warps
        for access, costs in self.traffic.accesses.values():
            for line in counters.both(place(access.placed)):
                line.add_accesses(access, costs)


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
