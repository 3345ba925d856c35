"""The state of a launch that runs: its batches of blocks, their accesses, and and the observers of events.

A batch holds whole blocks. Its threads stand in one row, block after block, each block padded
to whole warps; padding threads never run. `active` names the threads of the step at hand: an
ascending array of thread numbers, or None for every thread there is, which is the fast path.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dotcu.simulator.machine.clocks import AcquiredReleases, VectorClocks
from dotcu.simulator.machine.memory import RANK_BIT, WRITTEN, Buffer, LocatedAddresses, Memory, PrivateMemory
from dotcu.simulator.machine.shape import WARP, BatchShape, Threads, merged
from dotcu.simulator.machine.undefined import HeldLoad, UndefinedValues
from dotcu.simulator.program.basic_blocks import EXIT
from dotcu.simulator.program.binding import Binding
from dotcu.simulator.program.inlining import FlatInstruction, SourceLocations
from dotcu.simulator.program.loads import LoadedValues
from dotcu.simulator.program.variables import NONE, AddressOrigin, VariableLayout, VariableSpot
from dotcu.simulator.run import OF_RACES, Array, Coordinates, Finding, Run

# Threads that run together: enough to hide Python's cost per step, few enough for the caches.
BATCH_THREADS = 1 << 16
BATCH_BYTES = 1 << 28
# Clocks of a batch with clusters, where each thread has one for each warp of its cluster.
CLUSTER_CLOCKS = 1 << 19
# Shared memory that the system keeps for itself in each block; cooperative groups count in it.
RESERVED_BYTES = 1 << 10


# Registers whose addresses a batch remembers, and sets of threads for each.
REMEMBERED = 32
# Opcodes of kernels whose warps do different things, so that each has to be known apart.
_BY_WARP = frozenset({"mbarrier", "wgmma"})


BatchPart = TypeVar("BatchPart")
InstructionStep = Callable[["Batch"], None]
BlockWork = Counter[tuple[tuple[str, int], bool, tuple[str, str, int]]]
"""How often a block has an instruction of a source line, which is or is not a branch, and does some work."""


_WORDS = {
    "numba": {
        "__syncthreads()": "cuda.syncthreads()",
        "__syncwarp()": "cuda.syncwarp()",
        "__threadfence()": "cuda.threadfence()",
        "__threadfence_block()": "cuda.threadfence_block()",
        "__threadfence_system()": "cuda.threadfence_system()",
        "cluster.sync()": "a barrier of the cluster",
        "Use an atomic": "Use cuda.atomic.add or another atomic",
        "use an atomic": "use cuda.atomic.add or another atomic",
        "write to a tensor": "write to an array",
    }
}
"""How a language says what messages say in that of CUDA C++."""


def in_words_of(language: str, message: str) -> str:
    """Return a message in the words of a kernel's language."""
    for word, own in _WORDS.get(language, {}).items():
        message = message.replace(word, own)
    return message


@dataclass(frozen=True, kw_only=True)
class DecodedBlock:
    """A basic block as steps.

    Attributes:
        admit: For a rendezvous: keeps back the threads whose warp is not there; whether any go on.
        end: Sends the threads where they go next.
        instruction: Its first instruction.
        work: What its instructions are counted as.
        reads: It has an instruction whose result may be undefined: a load, or a shuffle.
        carriers: Returns the steps that carry undefined values along, its last instruction with the registers
            that its end depends on, and those that are read later.
    """

    steps: tuple[InstructionStep, ...]
    end: InstructionStep
    admit: Callable[[Any], bool] | None
    instruction: FlatInstruction
    work: BlockWork
    reads: bool
    carriers: Callable[
        [], tuple[tuple[InstructionStep, ...], tuple[FlatInstruction, tuple[int, ...]], frozenset[int]]
    ]


@dataclass(frozen=True, kw_only=True)
class DecodedKernel:
    """A kernel that is ready to run.

    Attributes:
        binding: What each register holds at the start, and which ones hold launch parameters and the like.
        layout: The places of its variables.
        location_of: Finds the source file and line of an instruction, as the user knows them.
        opcodes: Of its instructions.
        releases: One of them is a fence, or a release, that hands on what its thread did.
        meets_in_part: One of them is a barrier of some threads of a block.
        is_debug: It was compiled for debugging, and registers hold the source's variables.
        unset: The slots of registers that may be read before they are written, where they hold variables: in
            code for debugging. Other code reads what it then drops.
        language: That of its source: "cuda", "triton" or "numba".
        loaded_values: Where loaded values end; None where each thread computes something of its own.
    """

    blocks: tuple[DecodedBlock, ...]
    binding: Binding
    layout: VariableLayout
    location_of: SourceLocations
    opcodes: frozenset[str]
    releases: bool
    meets_in_part: bool
    is_debug: bool
    unset: tuple[int, ...]
    language: str = "cuda"
    loaded_values: LoadedValues | None = None


class MemoryOrder(NamedTuple):
    """The memory ordering of an access.

    Attributes:
        strong: It is volatile, relaxed or stronger, or atomic: no race with others of its kind.
        acquire: What follows it sees what came before the release that it observed.
        release: Threads that acquire it see what came before.
        scope: "cta", "cluster", "gpu" or "sys": the threads that it holds for.
        exchange: It is a volatile read of a value, not of a flag.
        for_block: It acquires and releases within its block alone, as .cta says, though mbarriers are atomic
            for all of the cluster.

    Source: PTX ISA, "Memory Consistency Model" (chapter 8).
    """

    strong: bool = False
    acquire: bool = False
    release: bool = False
    scope: str = "sys"
    exchange: bool = False
    for_block: bool = False


WEAK = MemoryOrder()


class Access(NamedTuple):
    """One instruction's access to memory.

    Attributes:
        number: Of the instruction; keys what a batch remembers of it.
        space: "global", "const", "shared", "local", "param" or "generic".
        slot, offset: The register that holds the address, and what is added to it.
        width, elements: Bytes of one element, and how many of them one thread touches.
        action: "read", "write" or "atomic".
        order: What it promises to other threads.
        origin: What its address was computed from.
        unused: Elements that are loaded and that nothing reads: compilers widen loads.
        dropped: Elements that the kernel may drop in the same basic block, without an effect.
        is_padding: It loads single bytes beside wider values, as C++ does with the padding of a struct.
        near: Its shared memory is the block's own (.shared::cta), not that of any block of the cluster.
    """

    number: int
    instruction: FlatInstruction
    space: str
    slot: int
    offset: int
    width: int
    elements: int
    action: str
    order: MemoryOrder = WEAK
    origin: AddressOrigin = NONE
    unused: frozenset[int] = frozenset()
    dropped: frozenset[int] = frozenset()
    is_padding: bool = False
    near: bool = False

    @property
    def bytes(self) -> int:
        """Bytes that one thread touches; its address must be a multiple of this."""
        return self.width * self.elements


class AccessPart(NamedTuple):
    """Threads whose access is in one array.

    Attributes:
        batch, access: The blocks that run together, of whose active threads these are some, and the access.
        view: The space's bytes as elements.
        shadow: Its written bytes, in step with the view; None where all are written.
        indices: For each thread the element; a single one if all threads touch the same.
        positions: Which of the active threads these are; None for all of them.
        region: The region of global memory; None for shared and local memory.
    """

    batch: Batch
    access: Access
    view: Array
    shadow: Array | None
    indices: Array
    positions: Array | None
    region: Buffer | None

    def spread(self) -> Array:
        """Return the elements, one for each thread."""
        count = self.batch.count() if self.positions is None else len(self.positions)
        return np.broadcast_to(self.indices, count)

    def rows(self) -> Array:
        """Return the places of all elements, a row for each thread."""
        return self.spread()[:, None] + np.arange(self.access.elements)

    def mark_written(self, index: Array) -> None:
        """Note that elements are written, also for other buffers of the same bytes."""
        region, width = self.region, self.access.width
        if self.shadow is not None:
            self.shadow[index] = WRITTEN[width]
        if region is not None and region.aliases:
            region.mark_aliases(index * width + region.view(width)[1], width)


class AccessSpan(NamedTuple):
    """The bytes that an access has to stay in.

    Attributes:
        start, end: The address of the first one and that after the last one, from the window's beginning for
            shared and local memory.
        variable, region: The variable, or nothing and the tensor's region.
    """

    start: int
    end: int
    variable: str
    region: Buffer | None


@dataclass(eq=False)
class Observers:
    """The events of a launch, each with its observers.

    Sanitizers and counters add functions to these lists. What is on no list costs nothing.

    Attributes:
        begin, end: A batch begins to run, or all of its threads have ended.
        block: The active threads run a basic block, by its number.
        branch: Threads of so many warps part at an instruction, by its number.
        skip: The guard of an instruction, by its number, keeps so many threads out.
        resolve: An access of the active threads, with the parts of it that are in bounds and aligned.
        touch: A part of an access, before it is made.
        read: An element of a part is read: the part, its places, which of the vector it is, and where to put
            the checks that wait until something depends on the value; None: they are made now.
        write, stored: Values are about to be written at places of a part, or were written there.
        atomic: Places are updated, by threads in an order; None if no thread learns what it found.
        mbarrier: mbarriers are initialised, changed or waited for.
        matrix: wgmma reads 16-byte chunks of shared memory, a row for each warpgroup; True: ask no other.
        async_read: A bulk copy reads elements of a part.
        async_write: A bulk copy writes to global memory; gives the numbers by which `complete` names it.
        tensor_map: A copy reads its tensor map, at an address.
        source: A copy reads a part from now on; gives a check that is made when it has landed for some
            threads.
        target: A copy is about to be issued to shared memory, a row of places for each thread.
        issue: A copy, waited for by an mbarrier, may write places of shared memory from now on.
        land: A copy has landed at places: with the values if it may not have written them before.
        complete: The active threads have waited for an `async_write`.
        remote: Threads access the shared memory of other blocks of the batch, at offsets.
        barrier: All threads of the blocks of some threads have passed a barrier; None: of all blocks.
        arrive: Threads of clusters are the first to arrive at their barrier; gives a mark of that moment.
        leave: Threads leave the barrier of their cluster; what came before its mark is settled.
        publish: mbarriers, as words of shared memory, were initialised before all that follows.
        fence: The active threads pass a fence between some proxies.
        wait: The active threads have waited for the launch before.
    """

    begin: list[Callable[[Batch], None]] = field(default_factory=list)
    end: list[Callable[[Batch], None]] = field(default_factory=list)
    block: list[Callable[[Batch, int], None]] = field(default_factory=list)
    branch: list[Callable[[int, FlatInstruction, int], None]] = field(default_factory=list)
    skip: list[Callable[[int, FlatInstruction, int], None]] = field(default_factory=list)
    resolve: list[Callable[[Batch, Access, Sequence[AccessPart]], None]] = field(default_factory=list)
    touch: list[Callable[[AccessPart], None]] = field(default_factory=list)
    read: list[Callable[[AccessPart, Array, int, list[HeldLoad] | None], None]] = field(default_factory=list)
    write: list[Callable[[AccessPart, Array, Array], None]] = field(default_factory=list)
    stored: list[Callable[[AccessPart, Array, Array], None]] = field(default_factory=list)
    atomic: list[Callable[[AccessPart, Array, Array | None], None]] = field(default_factory=list)
    mbarrier: list[Callable[[AccessPart], None]] = field(default_factory=list)
    matrix: list[Callable[[Batch, Access, Array, Array], bool]] = field(default_factory=list)
    async_read: list[Callable[[AccessPart, Array], None]] = field(default_factory=list)
    async_write: list[Callable[[AccessPart, Array, Array], list[int]]] = field(default_factory=list)
    tensor_map: list[Callable[[AccessPart, int], None]] = field(default_factory=list)
    source: list[Callable[[AccessPart], SourceCheck | None]] = field(default_factory=list)
    target: list[Callable[[AccessPart, Array], None]] = field(default_factory=list)
    issue: list[Callable[[AccessPart, Array], None]] = field(default_factory=list)
    land: list[Callable[[AccessPart, Array, Array | None], None]] = field(default_factory=list)
    complete: list[Callable[[Batch, int], None]] = field(default_factory=list)
    remote: list[Callable[[Batch, Access, Threads, Array, Array], None]] = field(default_factory=list)
    barrier: list[Callable[[Batch, Threads | None], None]] = field(default_factory=list)
    arrive: list[Callable[[Batch], Any]] = field(default_factory=list)
    leave: list[Callable[[Batch, Threads, Any], None]] = field(default_factory=list)
    publish: list[Callable[[Batch, Array], None]] = field(default_factory=list)
    fence: list[Callable[[Batch, frozenset[str]], None]] = field(default_factory=list)
    wait: list[Callable[[Batch], None]] = field(default_factory=list)

    def clear(self) -> None:
        """Tell nobody any more: what observers hold of a launch is free once it has ended."""
        for functions in vars(self).values():
            functions.clear()


SourceCheck = Callable[[Threads], None]
"""Checks what a copy read, once it has landed for some threads."""


@dataclass(eq=False, kw_only=True)
class LaunchState:
    """One launch: what all its batches share.

    Attributes:
        caller: Returns `Finding.caller` for an `address_of`.
        extent, block: Blocks and threads in x, y, z.
        others: The parameters of the other ranks of a launch on several GPUs; rank 0 has `params`.
        cluster: Blocks of a cluster in x, y, z; None without clusters, where each block is one.
        workspace: Address of the memory of a cooperative launch's barrier; 0 for another launch.
        asks_workspace: The kernel has read that address, as grid.sync() does.
        registers: Registers that a thread has at the start; 0: it is not known.
        heap: Buffers that malloc() gave, in this launch or an earlier one, and free() did not take back.
        on: The observers of each event.
        raced: By the identity of an instruction, how many threads of it were found to race.
        turn: That of the last handover; see `Handovers`.
        visits: For each basic block, the threads that have run it.
        progress: Goes up whenever something changes that another thread may wait for.
        tries: How often each wait on an mbarrier found its copies still under way.
        strong_reads: Strong reads so far: other threads may change the value meanwhile.
        steps, ended: Instructions issued so far, in all batches, and threads that have ended.
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
    progress: int = 0
    tries: Counter[int] = field(default_factory=Counter)
    strong_reads: int = 0
    steps: int = 0
    ended: int = 0
    on: Observers = field(default_factory=lambda: Observers())
    raced: Counter[int] = field(default_factory=Counter)
    turn: int = 0
    spans: dict[int, AccessSpan | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.visits = [0] * len(self.decoded.blocks)
        blocks = math.prod(self.extent) * (1 + len(self.others))
        follows = self.decoded.releases and 1 < blocks <= AcquiredReleases.LIMIT_BLOCKS
        self.acquired = AcquiredReleases(blocks) if follows else None
        self.checks_races = "race" in self.run.checks

    def next_turn(self) -> int:
        """Return the turn that begins now."""
        self.turn += 1
        return self.turn

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

    def shapes(self) -> Iterator[BatchShape]:
        """The launch cut into batches."""
        total = math.prod(self.extent)
        one = BatchShape(
            grid=self.extent, block=self.block, first=0, blocks=1, cluster=self.cluster or (1, 1, 1)
        )
        bytes_each = 2 * (self.allotted_bytes + one.pitch * self.decoded.layout.local_bytes) + 1
        each = min(BATCH_THREADS // one.pitch, BATCH_BYTES // bytes_each)
        if one.cluster_blocks > 1:
            each = min(each, CLUSTER_CLOCKS * WARP // (one.cluster_threads * one.pitch))
        each = max(1, each // one.cluster_blocks) * one.cluster_blocks
        for rank in range(1 + len(self.others)):
            for at in range(0, total, each):
                yield replace(one, first=rank * total + at, blocks=min(each, total - at))


class Batch:
    """The state of the blocks that run together."""

    def __init__(self, launch: LaunchState, shape: BatchShape) -> None:
        self.launch: LaunchState = launch
        self.shape = shape
        self.threads = shape.threads
        self.registers: list[Array] = []
        self.active: Threads | None = None
        self.hints: dict[int, Buffer] = {}
        self.shared: PrivateMemory
        self.local: PrivateMemory
        self.params: PrivateMemory
        self.on = launch.on
        # Barriers, copies in flight and the like, each by its class; and what is called when threads end.
        self.parts: dict[Any, Any] = {}
        self.at_exit: list[Callable[[Threads], None]] = []
        self.steps = 0
        self.ready: dict[int, Threads | None] = {}
        self.stalled: dict[int, Threads] = {}
        self.existing = np.tile(np.arange(shape.pitch) < shape.block_threads, shape.blocks)
        self.live = self.existing.copy()
        self.living = shape.block_threads * shape.blocks
        self.undefined = UndefinedValues(self.threads)
        # A step is tried for what it would give: it reports nothing.
        self.repeats = False
        self.clocks = VectorClocks(
            shape,
            by_warp=not launch.decoded.opcodes.isdisjoint(_BY_WARP),
            next_turn=launch.next_turn if launch.decoded.releases else None,
            acquired=launch.acquired,
        )
        self.located: dict[int, dict[int, LocatedAddresses]] = {}
        self.waits_on: FlatInstruction | None = None
        self.lacking: Callable[[], str] | None = None
        # Basic blocks that have run, and how many of them had when each block ended.
        self.rounds = 0
        self.ended = np.zeros(shape.blocks, np.int64)
        # Threads, and mbarriers of blocks that had ended at which they have arrived.
        self.left_arrivals: set[tuple[int, int]] = set()

    def part(self, make: Callable[[Batch], BatchPart]) -> BatchPart:
        """Return the part of the batch that a class makes, which is made when it is first asked for."""
        found: BatchPart | None = self.parts.get(make)
        if found is None:
            found = self.parts[make] = make(self)
        return found

    def find(self, made_by: type[BatchPart]) -> BatchPart | None:
        """Return the part of a class; None while there is none."""
        found: BatchPart | None = self.parts.get(made_by)
        return found

    def read(self, slot: int) -> Array:
        """A register's value in the active threads; one element if all have the same."""
        value = self.registers[slot]
        return value if self.active is None or value.size == 1 else value[self.active]

    def write(self, slot: int, value: Array) -> None:
        """Set a register in the active threads."""
        active = self.active
        if active is None:
            self.registers[slot] = value
            return
        register = self.registers[slot]
        if register.size == 1:
            register = self.registers[slot] = np.full(self.threads, register[0], register.dtype)
        else:
            self.located.pop(id(register), None)
        register[active] = value

    def unify(self) -> None:
        """Keep one element of each register that has the same bits in all threads, after these ran apart."""
        for slot, register in enumerate(self.registers):
            bits = register.view(f"u{register.itemsize}")
            if bits.size > 1 and bits[0] == bits[-1] and (bits == bits[0]).all():
                self.registers[slot] = register[:1].copy()

    def numbers(self, positions: Array | None = None) -> Threads:
        """The active threads' numbers, or those at some positions among them."""
        threads = self._every_number if self.active is None else self.active
        return threads if positions is None else threads[positions]

    @cached_property
    def _every_number(self) -> Threads:
        return np.arange(self.threads)

    def everyone(self) -> Threads:
        """The threads that live."""
        return np.flatnonzero(self.live)

    def count(self) -> int:
        """Return the number of active threads."""
        return self.threads if self.active is None else len(self.active)

    @cached_property
    def stamps(self) -> Array:
        """The launch-wide number of each thread."""
        first = self.shape.first * self.shape.pitch
        return (np.arange(first, first + self.threads) & 0xFFFFFFFF).astype(np.uint64)

    @cached_property
    def ranks(self) -> Array:
        """The rank of each thread's block in its cluster, as u32."""
        return np.repeat(self.shape.numbers()[1].astype(np.uint32), self.shape.pitch)

    @cached_property
    def own_starts(self) -> Array:
        """The start of each thread's own shared memory in the shared window, as u64, in a cluster."""
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

    def byte_offsets(self, spot: VariableSpot, threads: Threads) -> Array:
        """Return the offset of a variable in the bytes of local memory, for each thread."""
        offset, slot = spot
        start = self.local.bases[threads] + np.uint64(offset)
        if slot is not None:
            frame = self.registers[slot]
            start = start + (frame if frame.size == 1 else frame[threads])
        return start.astype(np.int64)

    def watch(self, instruction: FlatInstruction) -> None:
        """Threads read what others may change meanwhile: perhaps they wait for that."""
        self.launch.strong_reads += 1
        self.waits_on, self.lacking = instruction, None

    def fence_proxies(self, *crosses: str) -> None:
        """The active threads pass a fence between some proxies."""
        for note in self.on.fence:
            note(self, frozenset(crosses))

    def report(
        self,
        kind: str,
        instruction: FlatInstruction,
        threads: Array,
        message: str,
        *,
        address_of: str = "",
        count: int | None = None,
    ) -> None:
        """Report a finding of some threads at an instruction.

        Args:
            address_of: The variable or argument whose memory it was.
            count: How many threads were at fault, if more than these.
        """
        if self.repeats:
            return
        launch = self.launch
        if kind in OF_RACES:
            launch.raced[id(instruction)] += len(threads)
        file, line = launch.decoded.location_of(instruction)
        first, is_program = int(threads.min()), launch.decoded.language == "triton"
        block, thread = self.shape.coordinates(first)
        finding = Finding(
            kind=kind,
            kernel=launch.kernel,
            file=file,
            line=line,
            block=self.shape.program(first) if is_program else block,
            thread=thread,
            lanes=len(threads) if count is None else count,
            address_of=address_of,
            message=in_words_of(launch.decoded.language, message),
            source=launch.source_line(file, line) if line else "",
            caller=launch.caller(address_of),
            rank=self.shape.rank if launch.others else None,
            program=is_program,
        )
        launch.run.report(finding, instruction.ptx.text)

    def send(self, block: int, threads: Threads | None) -> None:
        """Add threads to those that are ready to run a basic block; at EXIT they end."""
        if threads is not None:
            if len(threads) == 0:
                return
            if block in self.ready:
                there = self.ready[block]
                assert there is not None
                threads = merged(there, threads)
            if len(threads) == self.threads:
                threads = None
        if block == EXIT:
            self._leave(threads)
        else:
            self.ready[block] = threads

    def _leave(self, threads: Threads | None) -> None:
        """Threads end: they returned, or were stopped."""
        ended = self.everyone() if threads is None and self.at_exit else threads
        self.launch.ended += self.living if threads is None else len(threads)
        if threads is None:
            self.live[:] = False
            self.living = 0
        else:
            self.live[threads] = False
            self.living -= len(threads)
        if self.shape.cluster_blocks > 1:
            self.ended[slice(None) if threads is None else threads // self.shape.pitch] = self.rounds
        self.launch.progress += 1
        if ended is not None:
            for leave in self.at_exit:
                leave(ended)

    def retire(self) -> None:
        """Free registers and memory, once all threads have ended.

        References that remain, such as recorded reads, need none of it.
        """
        self.registers.clear()
        self.located.clear()
        del self.shared, self.local
        self.parts.clear()
        self.at_exit.clear()

    def stall(self, block: int, threads: Threads) -> None:
        """Threads wait at a rendezvous for others of their warp."""
        self.stalled[block] = merged(self.stalled[block], threads) if block in self.stalled else threads

    def warp_bits(self, threads: Threads | None) -> Array:
        """Return for each warp its threads among some threads, as 32 bits."""
        if threads is None:
            return np.full(self.threads // WARP, 0xFFFFFFFF, np.uint32)
        flags = np.zeros(self.threads, bool)
        flags[threads] = True
        return pack_bits(flags)


@contextmanager
def active_threads(batch: Batch, threads: Threads | None) -> Iterator[None]:
    """Have only some threads of a batch active within the `with` statement; None: every thread."""
    previous = batch.active
    batch.active = threads
    try:
        yield
    finally:
        batch.active = previous


def pack_bits(flags: Array) -> Array:
    """Booleans, one a thread, to 32 bits a warp; lane 0 is bit 0."""
    return np.packbits(flags, bitorder="little").view(np.uint32)
