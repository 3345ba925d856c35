"""Blocks that run together: their lanes, registers and memory, and where lanes wait.

A chunk holds whole blocks. Its lanes stand in one row, block after block, each block padded
to whole warps; padding lanes never run. `active` names the lanes of the step at hand: an
ascending array of lane numbers, or None for every lane there is, which is the fast path.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.decoding.basic_blocks import EXIT
from dotcu.simulator.machine.memory import RANK_BIT, Buffer, LocatedAddresses, PrivateMemory
from dotcu.simulator.machine.shape import WARP, Array, ChunkShape, Lanes, merged
from dotcu.simulator.run import OF_RACES, Finding, shown_coordinates
from dotcu.simulator.sanitizers.clocks import NEVER, ClockTimes, VectorClocks, picked
from dotcu.simulator.sanitizers.undefined import UndefinedValues

if TYPE_CHECKING:
    from dotcu.simulator.decoding.inlining import FlatInstruction
    from dotcu.simulator.decoding.variables import VariableSpot
    from dotcu.simulator.machine.async_copies import CopiesInFlight
    from dotcu.simulator.machine.barriers import BlockBarriers
    from dotcu.simulator.machine.grid import LaunchState
    from dotcu.simulator.machine.schedule import Scheduler
    from dotcu.simulator.machine.warpgroups import Warpgroups
    from dotcu.simulator.semantics.control import CallStack
    from dotcu.simulator.semantics.memory.access import Access


# Registers whose addresses a chunk remembers, and sets of lanes for each.
REMEMBERED = 32
# Opcodes of kernels whose warps do different things, so that each has to be known apart.
_BY_WARP = frozenset({"mbarrier", "wgmma"})


class Chunk:
    """The state of the blocks that run together."""

    def __init__(self, grid: LaunchState, shape: ChunkShape) -> None:
        self.grid: LaunchState = grid
        self.shape = shape
        self.lanes = shape.lanes
        self.registers: list[Array] = []
        self.active: Lanes | None = None
        self.hints: dict[int, Buffer] = {}
        self.shared: PrivateMemory
        self.local: PrivateMemory
        self.barriers: BlockBarriers
        self.scheduler: Scheduler
        self.in_flight: CopiesInFlight | None = None
        self.warpgroups: Warpgroups | None = None
        self.params: PrivateMemory
        self.steps = 0
        self.ready: dict[int, Lanes | None] = {}
        self.stalled: dict[int, Lanes] = {}
        self.stack: CallStack | None = None
        self.existing = np.tile(np.arange(shape.pitch) < shape.threads, shape.blocks)
        self.live = self.existing.copy()
        self.living = shape.threads * shape.blocks
        self.undefined = UndefinedValues(self.lanes)
        # A step is tried for what it would give: it reports nothing.
        self.repeats = False
        self.clocks = VectorClocks(
            shape,
            by_warp=not grid.decoded.opcodes.isdisjoint(_BY_WARP),
            next_turn=grid.events.next_turn if grid.decoded.releases else None,
            acquired=grid.acquired,
        )
        self.located: dict[int, dict[int, LocatedAddresses]] = {}
        self.waits_on: FlatInstruction | None = None
        self.lacking: Callable[[], str] | None = None
        # By access: for each block, and warp of its cluster, the time of its last access to that block's
        # shared memory. And for each block what its threads knew when they ended.
        self._reached: dict[int, tuple[Access, Array]] = {}
        self._known_at_end: Array | None = None
        # By place of a mbarrier of another block: the last access to it, and for each lane its time.
        self._arrivals: dict[int, tuple[Access, Array]] = {}
        # Basic blocks that have run, and how many of them had when each block ended.
        self.rounds = 0
        self.ended = np.zeros(shape.blocks, np.int64)
        # Lanes, and mbarriers of blocks that had ended at which they have arrived.
        self.left_arrivals: set[tuple[int, int]] = set()
        # The lanes that a wait for the launch before is ordered before.
        self.waited = np.zeros(shape.lanes, bool)
        # For each access its last event: the times, the lanes, how often events were forgotten, its number.
        self.events: dict[int, tuple[ClockTimes, Lanes | None, tuple[int, int], int]] = {}

    def read(self, slot: int) -> Array:
        """A register's value in the active lanes; one element if all have the same."""
        value = self.registers[slot]
        return value if self.active is None or value.size == 1 else value[self.active]

    def write(self, slot: int, value: Array) -> None:
        """Set a register in the active lanes."""
        active = self.active
        if active is None:
            self.registers[slot] = value
            return
        register = self.registers[slot]
        if register.size == 1:
            register = self.registers[slot] = np.full(self.lanes, register[0], register.dtype)
        else:
            self.located.pop(id(register), None)
        register[active] = value

    def unify(self) -> None:
        """Keep one element of each register that has the same bits in all lanes, after these ran apart."""
        for slot, register in enumerate(self.registers):
            bits = register.view(f"u{register.itemsize}")
            if bits.size > 1 and bits[0] == bits[-1] and (bits == bits[0]).all():
                self.registers[slot] = register[:1].copy()

    def numbers(self, positions: Array | None = None) -> Lanes:
        """The active lanes' numbers, or those at some positions among them."""
        lanes = self._every_number if self.active is None else self.active
        return lanes if positions is None else lanes[positions]

    @cached_property
    def _every_number(self) -> Lanes:
        return np.arange(self.lanes)

    def everyone(self) -> Lanes:
        """The lanes that live."""
        return np.flatnonzero(self.live)

    def count(self) -> int:
        """Return the number of active lanes."""
        return self.lanes if self.active is None else len(self.active)

    @cached_property
    def stamps(self) -> Array:
        """The launch-wide number of each lane."""
        first = self.shape.first * self.shape.pitch
        return (np.arange(first, first + self.lanes) & 0xFFFFFFFF).astype(np.uint64)

    @cached_property
    def ranks(self) -> Array:
        """The rank of each lane's block in its cluster, as u32."""
        return np.repeat(self.shape.numbers()[1].astype(np.uint32), self.shape.pitch)

    @cached_property
    def own_starts(self) -> Array:
        """The start of each lane's own shared memory in the shared window, as u64, in a cluster."""
        return self.ranks.astype(np.uint64) << np.uint64(RANK_BIT)

    def is_running(self, blocks: Array) -> Array:
        """Return for each of some blocks whether any of its threads has not exited."""
        return self.live.reshape(self.shape.blocks, -1).any(axis=1)[blocks]

    def locate(self, slot: int) -> LocatedAddresses:
        """Return the addresses in a register, located; remembered until the register changes."""
        register, active = self.registers[slot], self.active
        by_lanes = self.located.get(id(register))
        if by_lanes is None:
            if len(self.located) >= REMEMBERED:
                self.located.clear()
            by_lanes = self.located[id(register)] = {}
        addresses = by_lanes.get(id(active))
        if addresses is None:
            if len(by_lanes) >= REMEMBERED:
                by_lanes.clear()
            addresses = by_lanes[id(active)] = LocatedAddresses(register, active)
        return addresses

    def byte_offsets(self, spot: VariableSpot, lanes: Lanes) -> Array:
        """Return the offset of a variable in the bytes of local memory, for each lane."""
        offset, slot = spot
        start = self.local.bases[lanes] + np.uint64(offset)
        if slot is not None:
            frame = self.registers[slot]
            start = start + (frame if frame.size == 1 else frame[lanes])
        return start.astype(np.int64)

    def watch(self, placed: FlatInstruction) -> None:
        """Lanes read what others may change meanwhile: perhaps they wait for that."""
        self.grid.strong_reads += 1
        self.waits_on, self.lacking = placed, None

    def report(
        self,
        kind: str,
        placed: FlatInstruction,
        lanes: Array,
        message: str,
        *,
        address_of: str = "",
        count: int | None = None,
    ) -> None:
        """Report a finding of some lanes at an instruction.

        Args:
            kind, message: As `Finding` has them.
            placed, lanes: The instruction, and the lanes at fault; the finding names the first of them.
            address_of: The variable or argument whose memory it was.
            count: How many lanes were at fault, if more than these.
        """
        if self.repeats:
            return
        grid = self.grid
        if kind in OF_RACES:
            grid.events.raced[id(placed)] += len(lanes)
        file, line = grid.decoded.location_of(placed)
        block, thread = self.shape.coordinates(int(lanes.min()))
        finding = Finding(
            kind=kind,
            kernel=grid.kernel,
            file=file,
            line=line,
            block=block,
            thread=thread,
            lanes=len(lanes) if count is None else count,
            address_of=address_of,
            message=message,
            source=grid.source_line(file, line) if line else "",
            caller=grid.caller(address_of),
            rank=self.shape.rank if grid.others else None,
        )
        grid.run.report(finding, placed.instruction.text)

    def send(self, block: int, lanes: Lanes | None) -> None:
        """Add lanes to those that are ready to run a basic block; at EXIT they end."""
        if lanes is not None:
            if len(lanes) == 0:
                return
            if block in self.ready:
                there = self.ready[block]
                assert there is not None
                lanes = merged(there, lanes)
            if len(lanes) == self.lanes:
                lanes = None
        if block == EXIT:
            self._leave(lanes)
        else:
            self.ready[block] = lanes

    def reach(self, access: Access, lanes: Lanes, owners: Array, offsets: Array) -> None:
        """Note that lanes access the shared memory of other blocks, which have to be there until then.

        Args:
            access, lanes: The access, and who makes it.
            owners, offsets: For each lane the block of the chunk whose memory it is, and the place in it.
        """
        far = owners != lanes // self.shape.pitch
        if self.shared.races is None or not far.any():
            return
        lanes, owners = lanes[far], owners[far]
        times = np.broadcast_to(picked(self.clocks.times.block, lanes), lanes.shape)
        if access.placed.instruction.opcode != "mbarrier":
            self._note_reached(access, lanes, owners, times)
            return
        # Who waits for an arrival has not ended; pipelines leave a lane's last one at an mbarrier unawaited.
        places = (
            offsets[far].astype(np.int64) * self.shape.cluster_blocks + owners % self.shape.cluster_blocks
        )
        for place in np.unique(places).tolist():
            here = places == place
            by, before = self._arrivals.get(place, (access, np.full(self.lanes, NEVER, np.int64)))
            again = here & (before[lanes] > NEVER)
            if again.any():
                self._note_reached(by, lanes[again], owners[again], before[lanes[again]])
            before[lanes[here]] = times[here]
            self._arrivals[place] = access, before

    def _note_reached(self, access: Access, lanes: Lanes, owners: Array, times: Array) -> None:
        if access.number not in self._reached:
            warps = self.shape.cluster_lanes // WARP
            self._reached[access.number] = (access, np.full((self.shape.blocks, warps), NEVER, np.int64))
        _, table = self._reached[access.number]
        np.maximum.at(table, (owners, lanes % self.shape.cluster_lanes // WARP), times)

    def _judge_end(self, lanes: Lanes) -> None:
        """Report accesses to shared memory of blocks that end, if nothing orders the end after them."""
        known = self.clocks.known.block
        if self._known_at_end is None:
            self._known_at_end = np.full((self.shape.blocks, known.shape[1]), NEVER, np.int64)
        blocks = lanes // self.shape.pitch
        np.maximum.at(self._known_at_end, blocks, known[lanes])
        ended = np.unique(blocks)
        for block in ended[~self.is_running(ended)].tolist():
            for access, table in self._reached.values():
                late = np.flatnonzero(table[block] >= np.maximum(self._known_at_end[block], 0))
                if len(late):
                    first = block - block % self.shape.cluster_blocks
                    report_early_exit(self, access, first * self.shape.pitch + late * WARP, block)

    def _leave(self, lanes: Lanes | None) -> None:
        """Lanes end: they returned, or were stopped."""
        ended = lanes
        if ended is None and (self._reached or self.warpgroups is not None):
            ended = self.everyone()
        self.grid.ended += self.living if lanes is None else len(lanes)
        if lanes is None:
            self.live[:] = False
            self.living = 0
        else:
            self.live[lanes] = False
            self.living -= len(lanes)
        if self._reached and ended is not None:
            self._judge_end(ended)
        if self.shape.cluster_blocks > 1:
            self.ended[slice(None) if lanes is None else lanes // self.shape.pitch] = self.rounds
        if self.warpgroups is not None and ended is not None:
            self.warpgroups.leave(ended)
        self.grid.progress += 1
        self.barriers.recheck()

    def retire(self) -> None:
        """Free registers and memory, once all lanes have ended.

        References that remain, such as recorded reads, need none of it.
        """
        self.registers.clear()
        self.located.clear()
        del self.shared, self.local, self.barriers
        self.in_flight = self.warpgroups = None

    def stall(self, block: int, lanes: Lanes) -> None:
        """Lanes wait at a rendezvous for others of their warp."""
        self.stalled[block] = merged(self.stalled[block], lanes) if block in self.stalled else lanes

    def warp_bits(self, lanes: Lanes | None) -> Array:
        """Return for each warp its lanes among some lanes, as 32 bits."""
        if lanes is None:
            return np.full(self.lanes // WARP, 0xFFFFFFFF, np.uint32)
        flags = np.zeros(self.lanes, bool)
        flags[lanes] = True
        return pack_bits(flags)


def report_early_exit(chunk: Chunk, access: Access, lanes: Lanes, block: int) -> None:
    """Report that a block may end before lanes have accessed its shared memory.

    Args:
        chunk, access, lanes: The blocks that run together, the access, and who makes it.
        block: The block of the chunk that ends.
    """
    shown = shown_coordinates(chunk.shape.coordinates(block * chunk.shape.pitch)[0])
    message = (
        f"exited-block: {access.action} of {access.bytes} bytes in shared memory of block {shown} of the "
        "cluster, which may end before: nothing orders its end after this access. Let every block wait for "
        "the others, by cluster.sync(), before it ends."
    )
    chunk.report("exited-block", access.placed, lanes, message)


def pack_bits(flags: Array) -> Array:
    """Booleans, one a lane, to 32 bits a warp; lane 0 is bit 0."""
    return np.packbits(flags, bitorder="little").view(np.uint32)
