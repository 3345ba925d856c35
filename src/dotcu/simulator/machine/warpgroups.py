"""Warpgroups: four warps that multiply matrices together, and what their wgmma have left unfinished.

On hardware, a wgmma may take its operands from shared memory, and write its accumulators, at any time until
its warpgroup waits for its group. Here it takes them at once and writes as late as it may: the
registers keep their old values. The sums stay beside the registers as matrices, also when they are
complete, until an instruction that is no wgmma touches such a register; which ones do is known when the
kernel is decoded, so that other instructions pay nothing.

For each 16 bytes of shared memory, the last group that reads them is kept, by which writes that come too
early are found: before the warpgroup has waited, or by a thread that does not know that it has. A
warp's wait counts for its warpgroup: it ends when the wgmma of all four warps have read their operands, also
where one of them starts 20,000 cycles late (measured: H100, CUDA 13.0, 2026-11).

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async, wgmma.fence,
wgmma.commit_group, wgmma.wait_group".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from dotcu.simulator.machine.access import describe_element, shared_part
from dotcu.simulator.machine.async_copies import in_flight
from dotcu.simulator.machine.shape import WARP, Threads
from dotcu.simulator.machine.state import Access, AccessPart, Batch, active_threads
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array

GROUP = 4 * WARP
CHUNK_BYTES = 16
# Groups of a warpgroup whose completion is remembered.
_REMEMBERED = 64
# Rows of D that one warpgroup has.
ROWS = 64


@dataclass(eq=False, kw_only=True)
class Accumulators:
    """The sums that some registers of each warpgroup hold, or will hold.

    Attributes:
        slots: The registers, in the order of the instruction.
        values: For each warpgroup a matrix of 64 rows.
        scatter: From matrices to the registers' values, thread by thread.
        held: For each warpgroup whether its matrix is newer than the registers.
        instruction, group: The last wgmma, and for each warpgroup its group.
        shared: Others that have some of the registers, too.
    """

    slots: tuple[int, ...]
    values: Array
    scatter: Callable[[Array], Sequence[Array]]
    held: Array
    group: Array
    instruction: FlatInstruction
    shared: list[Accumulators]


class Warpgroups:
    """The warpgroups of a batch: block by block, four warps each.

    Attributes:
        each: Warpgroups of a block, the last of which may be incomplete.
        is_debug: The code is for debugging. There the compiler copies sums between two wgmma, so that ptxas
            lets each wait for the one before, and nothing is touched too early.
        committed, done: Groups that each has committed, and has waited for.
        fenced: Whether it has passed a wgmma.fence.
        open: Its last wgmma that is in no group yet, as a number in `places`; -1: there is none.
        places: Instructions by number.
        registers: Registers that each thread has; 0: it is not known.
        layouts: For each 16 bytes of shared memory the swizzle by which a tensor map brought them, and 1;
            0: something else wrote them.
        leading: By access, the leading offset in the descriptors of each rank of a cluster; -1: none yet.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.each = -(-batch.shape.pitch // GROUP)
        count = self.count = batch.shape.blocks * self.each
        self.committed, self.done = np.zeros((2, count), np.int64)
        self.fenced = np.zeros(count, bool)
        self.open = np.full(count, -1, np.int64)
        self.places: list[FlatInstruction] = []
        self.accumulators: dict[tuple[int, ...], Accumulators] = {}
        self.is_held = False
        self._touched: dict[int, Array] = {}
        self._fragments: dict[int, tuple[Array, FlatInstruction]] = {}
        # Registers to which an accumulator in flight was copied: the group, by warpgroup, and the wgmma.
        self._copies: dict[int, tuple[Array, FlatInstruction]] = {}
        self._numbers: dict[int, int] = {}
        chunks = int(batch.shared.data.size) // CHUNK_BYTES
        self._pitch = batch.shared.pitch // CHUNK_BYTES
        # For each warpgroup of a block: the last group, and 1, that reads each 16 bytes.
        self._readers = np.zeros((self.each, chunks), np.int32)
        self._reads = False
        self._times = np.zeros((count, _REMEMBERED), np.int64)
        self._reading = np.zeros((count, _REMEMBERED), np.int64)
        self.layouts = np.zeros(chunks, np.uint8)
        self.leading: dict[int, Array] = {}
        self._active: tuple[Threads | None, Array] | None = None
        self.registers = np.full(count, batch.launch.registers, np.int64)
        self._grown = np.full(count, -1, np.int64)
        self.is_debug = batch.launch.decoded.is_debug
        in_flight(batch)  # every store asks it first
        batch.at_exit.insert(0, self.leave)

    def of(self, threads: Threads) -> Array:
        """The warpgroup of each thread."""
        pitch = self.batch.shape.pitch
        return np.asarray(threads // pitch * self.each + threads % pitch // GROUP)

    def active(self) -> Array:
        """The warpgroups that have any active thread."""
        threads = self.batch.active
        if self._active is None or self._active[0] is not threads:
            self._active = (threads, np.unique(self.of(self.batch.numbers())))
        return self._active[1]

    def firsts(self, groups: Array) -> Threads:
        """The first thread of each warpgroup."""
        return groups // self.each * self.batch.shape.pitch + groups % self.each * GROUP

    def threads(self, groups: Array) -> Threads:
        """The threads of warpgroups, one after the other."""
        return (self.firsts(groups)[:, None] + np.arange(GROUP)).reshape(-1)

    def rows(self, groups: Array) -> slice | Array:
        """An index for the values of warpgroups: a slice where they follow each other."""
        first, last = int(groups[0]), int(groups[-1])
        return slice(first, last + 1) if last - first + 1 == len(groups) else groups

    def report(
        self, instruction: FlatInstruction, groups: Array, message: str, *, address_of: str = ""
    ) -> None:
        """Report a misuse by some warpgroups."""
        if len(groups):
            self.batch.report(
                "wgmma", instruction, self.threads(np.sort(groups)), message, address_of=address_of
            )

    def line(self, instruction: FlatInstruction) -> str:
        """An instruction's place and spelling, as messages have it."""
        text = instruction.ptx.text
        head, _, _ = text.partition(" ")
        return f"line {self.batch.launch.decoded.location_of(instruction)[1]} (`{head}`)"

    # Groups

    def fence(self, groups: Array) -> None:
        """wgmma.fence: accesses to registers so far come before the next wgmma."""
        self.fenced[groups] = True
        for slot, touched in list(self._touched.items()):
            touched[groups] = False
            if not touched.any():
                del self._touched[slot]

    def commit(self, groups: Array) -> None:
        """wgmma.commit_group: what was issued so far is a group."""
        self.committed[groups] += 1
        self.open[groups] = -1

    def wait(self, instruction: FlatInstruction, groups: Array, pending: int) -> None:
        """wgmma.wait_group: all groups but the `pending` latest are complete.

        Args:
            pending: How many groups of theirs may be left.
        """
        if pending == 0 and (missing := groups[self.open[groups] >= 0]).size:
            issued = self.places[int(self.open[missing[0]])]
            self.report(
                instruction,
                missing,
                f"wgmma: this waits for committed groups, and the wgmma at {self.line(issued)} is in none. "
                "Put wgmma.commit_group.sync.aligned after the last wgmma and before the wait.",
            )
            self.commit(missing)
        done = np.maximum(self.done[groups], self.committed[groups] - pending)
        if self._reads and self.batch.launch.checks_races:
            now = self.batch.clocks.leap(self.threads(groups))
            for more in range(int((done - self.done[groups]).max())):
                group = self.done[groups] + more
                self._times[groups[group < done], group[group < done] % _REMEMBERED] = now
        self.done[groups] = done
        for slot, (group, _) in list(self._fragments.items()):
            if (group < self.done).all():
                del self._fragments[slot]

    def leave(self, threads: Threads) -> None:
        """Threads have ended: their wgmma have to be in groups, and what they took in the block's pool."""
        groups = np.unique(self.of(threads))
        missing = groups[self.open[groups] >= 0]
        for number in np.unique(self.open[missing]).tolist():
            here = missing[self.open[missing] == number]
            self.report(
                self.places[number],
                here,
                "wgmma: the kernel ends, and this wgmma is in no group. "
                "Put wgmma.commit_group.sync.aligned after it, then wgmma.wait_group.",
            )
            self.open[here] = -1
        if (self._grown[groups] >= 0).any():
            self._judge_registers(np.unique(groups // self.each))

    def resize(self, instruction: FlatInstruction, groups: Array, wanted: int, *, grows: bool) -> None:
        """setmaxnreg: warpgroups have another number of registers a thread from now on."""
        had = self.registers[groups]
        odd = (had > wanted if grows else had < wanted) & (had > 0)
        if odd.any():
            verb, direction = ("inc", "more") if grows else ("dec", "fewer")
            message = (
                f"setmaxnreg: .{verb} to {wanted} registers a thread, of which it has {had[odd][0]}: "
                f".{verb} is for {direction} registers than before."
            )
            self.batch.report("setmaxnreg", instruction, self.threads(groups[odd]), message)
        self.registers[groups] = wanted
        if grows:
            self._grown[groups] = self._number(instruction)

    def _judge_registers(self, blocks: Array) -> None:
        """Report blocks that have ended, whose warpgroups have more registers than it was launched with."""
        batch, launched = self.batch, self.batch.launch.registers
        blocks = blocks[~batch.live.reshape(batch.shape.blocks, -1)[blocks].any(axis=1)]
        each = self.registers.reshape(-1, self.each)[blocks]
        over = (each.sum(axis=1) > launched * self.each) & (launched > 0)
        for block, sizes in zip(blocks[over].tolist(), each[over].tolist(), strict=True):
            groups = np.arange(block * self.each, (block + 1) * self.each)
            groups = groups[self._grown[groups] >= 0]
            message = (
                f"setmaxnreg: the warpgroups of a block want {' + '.join(map(str, sizes))} = {sum(sizes)} "
                f"registers a thread, and have {self.each} times {launched} from the launch: one of them "
                "waits forever. Let the others give more away (setmaxnreg.dec), or ask for fewer."
            )
            instruction = self.places[int(self._grown[groups[-1]])]
            batch.report("setmaxnreg", instruction, self.threads(groups), message)

    def _number(self, instruction: FlatInstruction) -> int:
        """The number of an instruction in `places`."""
        number = self._numbers.get(id(instruction))
        if number is None:
            number = self._numbers[id(instruction)] = len(self.places)
            self.places.append(instruction)
        return number

    # Registers

    def issue(
        self, instruction: FlatInstruction, groups: Array, sums: Accumulators, fragment: Sequence[int]
    ) -> None:
        """Note a wgmma: its sums, and the registers that hold its A, are not to be touched.

        Args:
            sums, fragment: Its sums, and the registers of A; none if it is in shared memory.
        """
        number = self._number(instruction)
        self.open[groups] = number
        sums.held[groups] = True
        sums.group[groups] = self.committed[groups]
        sums.instruction = instruction
        self.is_held = True
        self._reading[groups, self.committed[groups] % _REMEMBERED] = number
        for slot in fragment:
            group, _ = self._fragments.get(slot, (np.full(self.count, -1, np.int64), instruction))
            group[groups] = self.committed[groups]
            self._fragments[slot] = (group, instruction)

    def sums_of(
        self,
        instruction: FlatInstruction,
        slots: tuple[int, ...],
        values: Callable[[int], Array],
        scatter: Callable[[Array], Sequence[Array]],
    ) -> Accumulators:
        """Return the sums in some registers.

        Args:
            values: Makes matrices for some number of warpgroups.
            scatter: From matrices to the registers' values.
        """
        sums = self.accumulators.get(slots)
        if sums is None:
            shared = [other for other in self.accumulators.values() if set(other.slots) & set(slots)]
            sums = self.accumulators[slots] = Accumulators(
                slots=slots,
                values=values(self.count),
                scatter=scatter,
                held=np.zeros(self.count, bool),
                group=np.full(self.count, -1, np.int64),
                instruction=instruction,
                shared=shared,
            )
            for other in shared:
                other.shared.append(sums)
        return sums

    def settle(
        self,
        instruction: FlatInstruction,
        sums: Iterable[Accumulators],
        groups: Array,
        *,
        silent: bool = False,
    ) -> None:
        """Write sums that are complete to their registers; report the others.

        Args:
            sums, silent: The sums that are in them, and whether nothing is reported.
        """
        for each in sums:
            held = groups[each.held[groups]]
            if not len(held):
                continue
            late = each.group[held] >= self.done[held]
            if self.is_debug:
                late[:] = False
            if late.any() and not silent:
                self._report_early(instruction, each.instruction, held[late], each.group)
            self._write(each, held[~late])
        self.is_held = any(each.held.any() for each in self.accumulators.values())

    def _report_early(
        self, instruction: FlatInstruction, other: FlatInstruction, groups: Array, group: Array
    ) -> None:
        """Report warpgroups that touch what another instruction, in their group, may still be adding to."""
        is_open = bool((group[groups] >= self.committed[groups]).any())
        remedy = "wait first: wgmma.wait_group.sync.aligned 0"
        if is_open:
            remedy = (
                "it is in no group yet: wgmma.commit_group.sync.aligned, then wgmma.wait_group.sync.aligned 0"
            )
        self.report(
            instruction,
            groups,
            f"wgmma: a register of the accumulator is touched that the wgmma at {self.line(other)} "
            f"may still be adding to; {remedy}.",
        )

    def _write(self, sums: Accumulators, groups: Array) -> None:
        if not len(groups):
            return
        batch, threads = self.batch, self.threads(groups)
        previous, batch.active = batch.active, None if len(threads) == batch.threads else threads
        for slot, row in zip(sums.slots, sums.scatter(sums.values[groups]), strict=True):
            batch.write(slot, row.view(batch.registers[slot].dtype))
        batch.active = previous
        sums.held[groups] = False

    def touch(
        self, instruction: FlatInstruction, reads: frozenset[int], writes: frozenset[int], *, copies: bool
    ) -> None:
        """The active threads are about to touch registers of some wgmma by an instruction other than a wgmma.

        Args:
            copies: It is a copy, which a compiler puts anywhere: it finds what the wgmma will give.
        """
        if self.is_held:
            for slots in (reads, writes):
                sums = [s for s in self.accumulators.values() if slots.intersection(s.slots)]
                if sums:
                    self.settle(instruction, sums, self.active(), silent=copies and slots is reads)
        for slot in (reads | writes) & self._copies.keys():
            group, other = self._copies[slot]
            groups = self.active()
            if slot in reads and not copies:
                self._report_early(instruction, other, groups[group[groups] >= self.done[groups]], group)
            if slot in writes:
                group[groups] = -1
        for slot in writes:
            if slot in self._fragments and not self.is_debug:
                group, other = self._fragments[slot]
                groups = self.active()
                self.report(
                    instruction,
                    groups[group[groups] >= self.done[groups]],
                    f"wgmma: a register is written whose old value the wgmma at {self.line(other)} may still "
                    "have to read, as a part of A; wait first: wgmma.wait_group.sync.aligned 0.",
                )
            if not copies:
                self._touched.setdefault(slot, np.zeros(self.count, bool))[self.active()] = True

    def late_value(self, slot: int) -> tuple[Threads, Array] | None:
        """Return what a register will hold in active threads in which a wgmma is still adding to it."""
        groups = self.active()
        for sums in self.accumulators.values():
            if self.is_held and slot in sums.slots:
                late = groups[sums.held[groups] & (sums.group[groups] >= self.done[groups])]
                if len(late):
                    row = sums.scatter(sums.values[late])[sums.slots.index(slot)]
                    threads = self.threads(late)
                    here = np.isin(threads, self.batch.numbers())
                    return threads[here], row[here]
        return None

    def note_copy(self, slot: int, target: int) -> None:
        """Note that the active threads copied a register: one in flight may not be used, nor may its copy."""
        if not self.is_held and slot not in self._copies:
            return
        groups = self.active()
        held = [(s.group, s.held, s.instruction) for s in self.accumulators.values() if slot in s.slots]
        if slot in self._copies:
            held.append((self._copies[slot][0], np.ones(self.count, bool), self._copies[slot][1]))
        for group, is_held, instruction in held:
            late = groups[is_held[groups] & (group[groups] >= self.done[groups])]
            if len(late):
                known = self._copies.get(target, (np.full(self.count, -1, np.int64), instruction))[0]
                known[late] = group[late]
                self._copies[target] = known, instruction

    def require_fence(self, instruction: FlatInstruction, groups: Array, slots: Iterable[int]) -> None:
        """Report warpgroups whose registers were touched since their last wgmma.fence, or that had none."""
        missing = groups[~self.fenced[groups]]
        self.report(
            instruction,
            missing,
            "wgmma: the first wgmma of a warpgroup needs a wgmma.fence before it. "
            "Put wgmma.fence.sync.aligned in front of it.",
        )
        self.fenced[missing] = True
        if not self._touched:
            return
        for slot in slots:
            touched = self._touched.get(slot)
            if touched is not None and touched[groups].any():
                self.report(
                    instruction,
                    groups[touched[groups]],
                    "wgmma: registers of this wgmma were written since the last wgmma.fence, and nothing "
                    "orders it after that. Put wgmma.fence.sync.aligned between them.",
                )
                return

    # Shared memory

    def read_chunks(self, groups: Array, chunks: Array) -> None:
        """Note that warpgroups read 16 bytes of shared memory each, a row for each of them."""
        self._reads = True
        group = (self.committed[groups] + 1).astype(np.int32)
        ranks = groups % self.each
        for rank in np.unique(ranks).tolist():
            here = ranks == rank
            self._readers[rank][chunks[here]] = group[here, None]

    @contextmanager
    def reading(self, access: Access, groups: Array, places: Array) -> Iterator[AccessPart]:
        """Chunks of shared memory as a part of an access by the first threads of warps, in turn."""
        warps = np.arange(places.shape[1]) % (GROUP // WARP) * WARP
        with active_threads(self.batch, (self.firsts(groups)[:, None] + warps).reshape(-1)):
            yield shared_part(self.batch, access, places.reshape(-1) * (CHUNK_BYTES // access.width))

    def note_layout(self, offsets: Array, swizzle: int) -> None:
        """Note the swizzle by which a tensor map brings chunks of shared memory, at offsets in bytes."""
        self.layouts[offsets // CHUNK_BYTES] = swizzle + 1

    def check_write(self, part: AccessPart, index: Array) -> None:
        """Report writes to shared memory that a wgmma may still have to read; note what wrote it."""
        batch, access = self.batch, part.access
        if part.view is not batch.shared.views[access.width]:
            return
        rows = (
            np.broadcast_to(index, part.batch.count())
            if index.size == 1 and part.positions is None
            else index
        )
        places = (rows * access.width // CHUNK_BYTES).reshape(len(rows), -1)
        self.layouts[places] = 0
        if not self._reads:
            return
        threads = batch.numbers(part.positions)
        for rank in range(self.each):
            readers = self._readers[rank].take(places)
            if readers.any():
                self._check_readers(part, index, threads, readers, places // self._pitch * self.each + rank)
                self._readers[rank][places] = 0

    def _check_readers(
        self, part: AccessPart, index: Array, threads: Threads, readers: Array, owners: Array
    ) -> None:
        batch = self.batch
        # Neighbouring places mostly have one writer, and one reader.
        keys = np.stack([np.broadcast_to(threads[:, None], owners.shape), owners, readers]).reshape(3, -1)
        begins = np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0))
        late = self._is_late(*keys[:, begins])[np.cumsum(begins) - 1].reshape(owners.shape)
        group = readers.astype(np.int64) - 1
        if not late.any():
            return
        first = np.argwhere(late)[0]
        owner = int(owners[tuple(first)])
        number = int(self._reading[owner, int(group[tuple(first)]) % _REMEMBERED])
        flat = index.reshape(len(index), -1)
        name, shown = describe_element(part, int(flat[first[0] if len(flat) > 1 else 0, 0]))
        batch.report(
            "wgmma",
            part.access.instruction,
            np.unique(threads[late.any(axis=1)]),
            f"wgmma: this writes {shown}, which the wgmma at {self.line(self.places[number])} may still have "
            "to read: nothing orders it after the wait. Let its warpgroup wait (wgmma.wait_group) "
            "before it says that the memory is free, and wait for that here.",
            address_of=name,
        )

    def _is_late(self, threads: Array, owners: Array, readers: Array) -> Array:
        """Return whether the groups that read places may still do so when threads write there.

        Args:
            readers: For each thread and the warpgroup that owns a place its group that reads it, and 1; or 0.
        """
        group = readers - 1
        late = group >= self.done[owners]
        if self.batch.launch.checks_races:
            known = self.batch.clocks.known.block  # by warps, where there are warpgroups
            warps = self.firsts(owners)[:, None] // WARP + np.arange(GROUP // WARP)
            best = known[threads[:, None], np.minimum(warps % known.shape[1], known.shape[1] - 1)].max(axis=1)
            recent = self.done[owners] - group <= _REMEMBERED
            others = self.of(threads) != owners
            late |= recent & others & (self._times[owners, group % _REMEMBERED] >= best)
        return late & (readers != 0)


def warpgroups(batch: Batch) -> Warpgroups:
    """The warpgroups of a batch."""
    return batch.part(Warpgroups)
