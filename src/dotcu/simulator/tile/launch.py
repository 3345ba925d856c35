"""Tile kernels in the simulated device: a program that is loaded once, and its launches, block by block."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dotcu import telemetry
from dotcu.errors import DotcuError, SimulationError
from dotcu.locks import ForkSafeLock
from dotcu.simulator.counting.traffic import AccessCost
from dotcu.simulator.machine.memory import Buffer, Bytes, Memory, allocate
from dotcu.simulator.program import line_reader, name_buffers
from dotcu.simulator.run import PATIENCE_STEPS, REVERSED, Coordinates, Finding, Run
from dotcu.simulator.tile.access import TileAccess
from dotcu.simulator.tile.decode import TileCode, TileDecoder, run_region
from dotcu.simulator.tile.elements import from_bits
from dotcu.simulator.tile.races import BlockOrder, shadows_of
from dotcu.tile_ir.module import TileModule, TileOperation, describe_operation
from dotcu.tile_ir.reader import read

_LARGEST_GRID = (1 << 31) - 1


class TileProgram:
    """A file of Tile IR that kernels are launched from, and decoded at their first launch.

    Attributes:
        addresses, variables: Of each variable its address, and its bytes; writable.
    """

    def __init__(self, module: TileModule, files: Mapping[str, str], texts: Mapping[str, str]) -> None:
        self.module = module
        self._files, self.source_line = files, line_reader(texts)
        self.addresses = {name: allocate() for name in module.variables}
        self.variables: dict[str, Bytes] = {}
        for name, (type_, data, _) in module.variables.items():
            times = type_.size if len(data) == type_.itemsize else 1
            self.variables[name] = np.frombuffer(data * times, np.uint8).copy()
        self._decoded: dict[str, TileDecoder] = {}
        self._lock = ForkSafeLock()

    @classmethod
    def parse(
        cls, data: bytes, files: Mapping[str, str] | None = None, texts: Mapping[str, str] | None = None
    ) -> TileProgram:
        """Read a Tile IR file.

        Args:
            data, files, texts: The file, and names and texts as of `Program.parse`.

        Raises:
            TileCodeError: The file is not well-formed Tile IR.
        """
        return cls(read(data), files or {}, texts or {})

    def place(self, operation: TileOperation) -> tuple[str, int]:
        """Return the file and the line of an operation; 0 if none is known."""
        line = operation.line
        return ("", 0) if line is None else (self._files.get(line.file, line.file), line.line)

    def regions(self) -> list[Buffer]:
        """Return the variables as regions of global memory."""
        constants, addresses = self.module.variables, self.addresses
        return [
            Buffer(name=name, data=data, read_only=constants[name].read_only, base=addresses[name])
            for name, data in self.variables.items()
            if data.size
        ]

    def decoded(self, name: str) -> TileDecoder:
        """Return a kernel, ready to run.

        Raises:
            SimulationError: There is none of that name.
            UnsupportedInstruction: It holds an operation that is not executed.
        """
        if name not in self.module.functions:
            raise SimulationError(
                f"The Tile IR has no kernel {name!r}.\nIt has {', '.join(self.module.functions) or 'none'}.\n"
                "Name one of those."
            )
        with self._lock:
            if name not in self._decoded:
                self._decoded[name] = TileDecoder(self.module.functions[name])
            return self._decoded[name]


@dataclass(eq=False, kw_only=True)
class TileLaunch:
    """One launch of a tile kernel.

    Attributes:
        values: The kernel's values, by number.
        seen: The regions that have run, by id.
        names: Of the parameters, for findings.
        block, extent: The tile block that runs, and tile blocks in x, y, z.
        shadows: The stamps of regions that blocks may race for.
        order: The accesses so far, and which of them come before the current block.
    """

    program: TileProgram
    decoded: TileDecoder
    memory: Memory
    extent: Coordinates
    run: Run
    kernel: str
    caller: Callable[[str], str]
    names: Sequence[str]
    block: Coordinates = (0, 0, 0)
    seen: set[int] = field(default_factory=set)
    order: BlockOrder = field(default_factory=BlockOrder)
    _steps: int = 0
    _block_steps: int = 0
    _visits: Counter[int] = field(default_factory=Counter)
    _codes: dict[int, TileCode] = field(default_factory=dict)
    _costs: dict[int, tuple[TileAccess, AccessCost]] = field(default_factory=dict)
    _hint: Buffer | None = None
    _allotted: list[Buffer] = field(default_factory=list)
    _homes: dict[int, Buffer | None] = field(default_factory=dict)
    _sequence: Sequence[int] = ()

    def __post_init__(self) -> None:
        self.values: list[Any] = [None] * len(self.decoded.function.types)
        judges = "race" in self.run.checks and math.prod(self.extent) > 1
        self.shadows = shadows_of(self.memory.regions, self.order) if judges else {}

    def start(self, params: Sequence[bytes]) -> None:
        """Set the parameters."""
        function = self.decoded.function
        for value, type_, data in zip(function.body.arguments, function.parameters, params, strict=True):
            if len(data) != type_.itemsize:
                raise SimulationError(
                    f"The parameter {value} of {self.kernel} takes {type_.itemsize} bytes; got {len(data)}.\n"
                    "Pack the value in the size that the kernel declares."
                )
            if type_.is_pointer:
                self.values[value] = np.int64(int.from_bytes(data, "little", signed=True))
            else:
                self.values[value] = from_bits(np.frombuffer(data, f"<u{len(data)}"), type_.element)[0]

    def execute(self) -> None:
        """Run all tile blocks, in the order that the run's seed gives if none waits for another."""
        count = math.prod(self.extent)
        self._sequence = range(count)
        if self.run.seed == REVERSED and not self.decoded.may_wait():
            self._sequence = range(count)[::-1]
        elif self.run.seed is not None and not self.decoded.may_wait():
            self._sequence = np.random.default_rng(self.run.seed).permutation(count).tolist()
        for number in range(count):
            self.block = self.coordinates(number)
            self._block_steps = 0
            self.order.begin()
            run_region(self, self.decoded.body)
            while self._allotted:
                self.memory.remove(self._allotted.pop())

    def coordinates(self, turn: int) -> Coordinates:
        """Return the coordinates of the tile block that runs at a turn, from 0."""
        x, y, _ = self.extent
        number = self._sequence[turn]
        return number % x, number // x % y, number // (x * y)

    def enter(self, code: TileCode) -> None:
        """Count a visit of a region, and see whether the launch may go on."""
        self._visits[id(code)] += 1
        self._codes[id(code)] = code
        steps = len(code.work)
        self._steps += steps
        self._block_steps += steps
        run = self.run
        if run.watch is not None:
            first = self.decoded.operations[code.work[0]]
            run.watch(steps, code.elements, lambda: "{}:{}".format(*self.program.place(first)))
        limit = run.step_limit or run.patience or PATIENCE_STEPS
        if (self._steps if run.step_limit else self._block_steps) > limit:
            remedy = run.remedy or f"pass a higher limit: dotcu.simulate(step_limit={10 * limit})."
            message = (
                f"still running after {limit} operations: a loop that does not end, or a wait for a tile "
                f"block that has not run yet: they run in turn. If the kernel is only long, {remedy}"
            )
            self.report("step-limit", self.decoded.operations[code.work[0]], 1, message)
            raise StopIteration

    # Memory

    def find(self, address: int) -> Buffer | None:
        """Return the region that holds an address, or None."""
        hint = self._hint
        if hint is None or not hint.base <= address < hint.base + hint.size:
            self._hint = hint = self.memory.find(address)
        return hint

    def home(self, address: int) -> Buffer | None:
        """Return the region that begins at an address, the largest of several; None if none does."""
        if address not in self._homes:
            begins = [region for region in self.memory.regions if region.base == address]
            self._homes[address] = max(begins, key=lambda region: region.size, default=None)
        return self._homes[address]

    def name_at(self, address: int) -> str:
        """Return the name of the region that an address is in; empty if it is in none."""
        region = self.memory.find(address)
        return region.name if region is not None else ""

    def allot(self, size: int) -> int:
        """Return the address of memory of the current block, which nothing has written yet."""
        base = allocate()
        data, written = np.zeros(max(size, 1), np.uint8), np.zeros(max(size, 1), np.uint8)
        region = Buffer(name="memory of the tile block", data=data, written=written, base=base)
        self.memory.insert(region)
        self._allotted.append(region)
        return base

    # Reports and counts

    def report(
        self, kind: str, operation: TileOperation, elements: int, message: str, address_of: str = ""
    ) -> None:
        """Report a finding at an operation.

        Args:
            kind, message: As `Finding` has them.
            operation, elements: The operation, and how many elements were at fault.
            address_of: The argument or variable whose memory it was.
        """
        file, line = self.program.place(operation)
        finding = Finding(
            kind=kind,
            kernel=self.kernel,
            file=file,
            line=line,
            block=self.block,
            thread=(0, 0, 0),
            lanes=elements,
            address_of=address_of,
            message=message,
            source=self.program.source_line(file, line) if line else "",
            caller=self.caller(address_of),
            tile=True,
        )
        self.run.report(finding, describe_operation(operation, self.decoded.function))

    def count_bytes(self, access: TileAccess, elements: int) -> None:
        """Count the elements of an access."""
        _, cost = self._costs.get(access.number, (access, AccessCost()))
        self._costs[access.number] = access, AccessCost(cost.lanes + elements, cost.requests + 1)

    def count(self) -> None:
        """Add what ran to the run's counters."""
        counters, operations = self.run.counters, self.decoded.operations
        counters.launches += 1
        counters.steps += self._steps
        for key, visits in self._visits.items():
            for number in self._codes[key].work:
                kind, type_, count, elements = self.decoded.works[number]
                for line in counters.both(self.program.place(operations[number])):
                    line.lane_instructions += visits * elements
                    line.warp_instructions += visits
                    line.classes[kind] += visits * elements
                    if count:
                        line.operations[type_] += visits * count
        for access, cost in self._costs.values():
            for line in counters.both(self.program.place(access.operation)):
                line.add_accesses(access, {"global": cost})


def launch_tile(
    program: TileProgram,
    entry: str,
    *,
    params: Sequence[bytes],
    memory: Memory,
    grid: Coordinates,
    run: Run,
    kernel: str,
    parameter_names: tuple[str, ...] = (),
    caller: Callable[[str], str] = lambda name: "",
) -> None:
    """Run a tile kernel over its whole grid, and note findings and counts in `run`.

    Args:
        program, entry, params, memory, run, kernel, parameter_names, caller: As of `dotcu.simulator.launch`.
        grid: Tile blocks in x, y, z.

    Raises:
        FindingError: A fault was found and the run stops at the first.
        UnsupportedInstruction: The kernel holds an operation that is not executed; nothing ran.
        SimulationError: No such kernel, or parameters or a grid that do not fit it.
    """
    with telemetry.during("decode"), _whole(kernel):
        decoded = program.decoded(entry)
    count = len(decoded.function.parameters)
    if len(params) != count:
        raise SimulationError(
            f"The kernel {kernel} takes {count} parameters; got {len(params)}.\n"
            "Pass the bytes of each, in order."
        )
    if min(grid) < 0 or math.prod(grid) > _LARGEST_GRID:
        raise SimulationError(
            f"The kernel {kernel} cannot be launched with grid {grid}.\n"
            f"A grid counts tile blocks: 0 to {_LARGEST_GRID} in all.\nFor example: grid=(64, 1, 1)."
        )
    name_buffers(memory, params, parameter_names)
    device_memory = Memory()
    for region in (*memory.regions, *program.regions()):
        device_memory.insert(region)
    launch = TileLaunch(
        program=program,
        decoded=decoded,
        memory=device_memory,
        extent=grid,
        run=run,
        kernel=kernel,
        caller=caller,
        names=parameter_names,
    )
    with _whole(kernel):
        launch.start(params)
    if 0 in grid:
        return
    with telemetry.during("simulate"), np.errstate(all="ignore"), _whole(kernel):
        try:
            launch.execute()
        except StopIteration:
            pass
        finally:
            launch.count()


@contextmanager
def _whole(kernel: str) -> Iterator[None]:
    """Refuse code whose operations do not fit each other."""
    try:
        yield
    except DotcuError:
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
        raise SimulationError(
            f"The tile kernel {kernel} is not well-formed: {error}.\n"
            "The types of its operations have to fit each other, and its tiles into memory.\n"
            "Compile the source again."
        ) from error
