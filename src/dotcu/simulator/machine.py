"""The machine: a grid of blocks, run chunk by chunk, lowest basic block first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from dotcu.simulator.barrier import Barriers
from dotcu.simulator.chunk import Array, Chunk, Lanes, Private, Shape
from dotcu.simulator.finding import Finding
from dotcu.simulator.memory import Memory
from dotcu.simulator.run import Run
from dotcu.simulator.semantics.special import special_arrays

if TYPE_CHECKING:
    from dotcu.simulator.decode import Decoded
    from dotcu.simulator.ptx.link import Placed

# Lanes that run together: enough to hide Python's cost per step, few enough for the caches.
CHUNK_LANES = 1 << 16
CHUNK_BYTES = 1 << 28
# After so many basic blocks, while some lanes stand ready elsewhere, those get their turns:
# they may hold the lock that the others spin on.
SPIN_TURNS = 1 << 10
FAIR_TURNS = 1 << 6


class Grid:
    """One launch: what all its chunks share."""

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
        self.visits = [0] * len(decoded.blocks)
        self.steps: int = 0
        self._barriers: Barriers | None = None

    @property
    def shared_bytes(self) -> int:
        """Shared memory that one block has."""
        return self.decoded.dynamic_offset + self.smem_bytes

    def shapes(self) -> Iterator[Shape]:
        """The launch cut into chunks."""
        total = self.extent[0] * self.extent[1] * self.extent[2]
        one = Shape(grid=self.extent, block=self.block, first=0, blocks=1)
        bytes_each = 2 * (self.shared_bytes + one.pitch * self.decoded.local_bytes) + 1
        each = max(1, min(CHUNK_LANES // one.pitch, CHUNK_BYTES // bytes_each))
        for at in range(0, total, each):
            yield Shape(grid=self.extent, block=self.block, first=at, blocks=min(each, total - at))

    def execute(self) -> None:
        """Run every block."""
        with np.errstate(all="ignore"):
            for shape in self.shapes():
                if not self._run_chunk(self._chunk(shape)):
                    break

    def barriers(self, chunk: Chunk) -> Barriers:
        """The barriers of the chunk that runs."""
        if self._barriers is None or self._barriers.chunk is not chunk:
            self._barriers = Barriers(chunk)
        return self._barriers

    def _chunk(self, shape: Shape) -> Chunk:
        chunk = Chunk(self, shape)
        chunk.registers = list(self.decoded.constants)
        for slot, param in self.decoded.params:
            chunk.registers[slot] = np.frombuffer(self.params, param.dtype, 1, param.offset)
        special_arrays(chunk, self.decoded.specials)
        chunk.shared = Private(shape.blocks, shape.lanes, self.shared_bytes)
        chunk.local = Private(shape.lanes, shape.lanes, self.decoded.local_bytes)
        return chunk

    def _run_chunk(self, chunk: Chunk) -> bool:
        """Run a chunk to its end; whether the launch can go on."""
        blocks, visits, ready = self.decoded.blocks, self.visits, chunk.ready
        ready[0] = None if chunk.living == chunk.lanes else np.flatnonzero(chunk.live)
        limit = self.steps + self.run.step_limit
        turns = 0
        while True:
            if not ready and not self._resume(chunk):
                return True
            number = next(iter(ready)) if len(ready) == 1 else min(ready)
            turns = 0 if len(ready) == 1 else turns + 1
            if turns > SPIN_TURNS:
                number = max(ready)
                turns = 0 if turns > SPIN_TURNS + FAIR_TURNS else turns
            chunk.active = active = ready.pop(number)
            block = blocks[number]
            if chunk.stalled and number in chunk.stalled:
                chunk.send(number, chunk.stalled.pop(number))
                chunk.send(number, active)
                chunk.active = active = ready.pop(number)
            if block.admit is not None and not block.admit(chunk):
                continue
            self.steps += len(block.steps)
            if self.steps > limit:
                return self._over_limit(chunk, block.placed)
            visits[number] += chunk.lanes if active is None else len(active)
            for step in block.steps:
                step(chunk)
            block.end(chunk)

    def _resume(self, chunk: Chunk) -> bool:
        """Nothing is ready: end, or give those who wait in warps another look, or report."""
        if chunk.stalled and chunk.steps != self.steps:
            chunk.steps = self.steps
            for number, lanes in chunk.stalled.items():
                chunk.ready[number] = lanes
            chunk.stalled.clear()
            return True
        if chunk.stalled or self.barriers(chunk).waiting:
            self._deadlock(chunk)
        return False

    def _deadlock(self, chunk: Chunk) -> None:
        waits = self.barriers(chunk).waiters()
        for number, lanes in chunk.stalled.items():
            waits.append((int(lanes[0]), len(lanes), self.decoded.blocks[number].placed))
        told = "; ".join(
            f"{count} threads at line {self.decoded.place(placed)[1]} in `{placed.instruction.text}`"
            for _, count, placed in waits
        )
        lanes = np.array([lane for lane, _, _ in waits])
        self.report(
            chunk,
            "deadlock",
            waits[0][2],
            lanes,
            message=f"no thread can go on: {told}. Each waits for others that never come: let all "
            "threads that a barrier or a mask names reach it.",
            count=sum(count for _, count, _ in waits),
        )

    def _over_limit(self, chunk: Chunk, placed: Placed) -> bool:
        self.report(
            chunk,
            "step-limit",
            placed,
            chunk.numbers(),
            message=f"still running after {self.run.step_limit} steps: a loop that does not end, or a "
            "wait for something that never comes. If the kernel is only long, try a smaller grid.",
        )
        return False

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
        counters = self.run.counters
        counters.launches += 1
        counters.steps += self.steps
        for visited, block in zip(self.visits, self.decoded.blocks, strict=True):
            if visited:
                for tally in block.tallies:
                    counters.add(
                        tally.opcode,
                        tally.place,
                        visited * tally.times,
                        visited * tally.loaded_bytes,
                        visited * tally.stored_bytes,
                    )
