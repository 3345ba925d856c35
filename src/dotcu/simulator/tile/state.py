"""The state of a tile kernel: its operations while they are bound, and a launch of it.

Values are numbered over the kernel, so that a launch keeps all of them in one list. An operation whose
operands are the same for every tile block (constants, parameters, and what is computed of them alone) runs
once in a launch, at its first turn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dotcu.errors import SimulationError, UnsupportedInstruction
from dotcu.simulator.machine.memory import Buffer, Memory, allocate
from dotcu.simulator.program.binding import NotExecuted, chosen
from dotcu.simulator.run import PATIENCE_STEPS, REVERSED, AccessCost, Coordinates, Finding, Run
from dotcu.simulator.tile.operations import COMPUTED, from_bits, work_of
from dotcu.simulator.tile.races import BlockOrder, TileAccess, shadows_of
from dotcu.tile_ir.module import (
    ELEMENT_BITS,
    Region,
    TileFunction,
    TileOperation,
    TileType,
    describe_operation,
)

VIEWS = ("make_partition_view", "make_strided_view", "make_gather_scatter_view")
_PURE = frozenset({
    *COMPUTED, *VIEWS, "constant", "offset", "reduce", "scan", "get_num_tile_blocks", "assume", "make_token",
    "make_tensor_view", "get_tensor_shape", "get_index_space_shape", "get_global", "join_tokens",
})  # fmt: skip
"""The operations that depend on their operands alone."""


@dataclass(eq=False, kw_only=True)
class TileCode:
    """A region, ready to run.

    Attributes:
        arguments: The values that it is started with.
        steps, varying: Its operations, and those of them that have to run each time.
        work, elements: The numbers of its operations, and how many elements they have on average.
        ending: The operation that ends it, and the values that it passes on.
    """

    arguments: tuple[int, ...]
    steps: tuple[TileStep, ...]
    varying: tuple[TileStep, ...]
    work: tuple[int, ...]
    elements: int
    ending: tuple[str, tuple[int, ...]]


@dataclass(eq=False)
class TileDecoder:
    """A kernel while its operations are bound, and what is known of it then.

    Attributes:
        operations: Its operations by number.
        uniform: The values that are the same for every tile block.
        body: The kernel's code.
        used: The values that an operation takes.
        works: For each operation what it counts as.
        origins: The parameters, and values that are the same as one: the parameter's number.
    """

    function: TileFunction
    binders: Mapping[str, Binder]
    operations: list[TileOperation] = field(default_factory=list)
    uniform: set[int] = field(default_factory=set)
    works: list[tuple[str, str, int, int]] = field(default_factory=list)
    origins: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.uniform.update(self.function.body.arguments)
        self.origins.update((value, number) for number, value in enumerate(self.function.body.arguments))
        self.used = {value for operation in self.function.operations() for value in operation.inputs}
        self.body = self.region(self.function.body)

    def region(self, region: Region) -> TileCode:
        """Bind the operations of a region."""
        steps, varying, work = [], [], []
        *operations, last = region.operations
        for operation in operations:
            number = self.number(operation)
            try:
                step = chosen(self.binders, operation.name)(self, operation)
            except NotExecuted:
                raise UnsupportedInstruction(self.refusal(operation)) from None
            steps.append(step)
            if not self._is_uniform(operation):
                varying.append(step)
            work.append(number)
        work.append(self.number(last))
        return TileCode(
            arguments=region.arguments,
            steps=tuple(steps),
            varying=tuple(varying),
            work=tuple(work),
            elements=sum(self.works[number][3] for number in work) // len(work),
            ending=(last.name, last.inputs),
        )

    def idle_axes(self) -> tuple[str, ...]:
        """Return the axes of the grid that nothing in the kernel depends on."""
        places = [each.results for each in self.operations if each.name == "get_tile_block_id"]
        return tuple(
            axis for at, axis in enumerate("xyz") if all(results[at] not in self.used for results in places)
        )

    def may_wait(self) -> bool:
        """Return whether a loop may wait for another tile block: it looks at memory that others change."""
        loops = [each.regions[0] for each in self.function.operations() if each.name == "loop"]
        while loops:
            for inner in loops.pop().operations:
                loops += inner.regions
                if inner.attributes.get("memory_ordering_semantics", "weak") != "weak":
                    return True
        return False

    def refusal(self, operation: TileOperation) -> str:
        """Return the message for an operation that is not executed."""
        place = operation.line
        where = f"{place.file}:{place.line}: " if place else ""
        shown = describe_operation(operation, self.function)
        return (
            f"{where}the simulator does not execute `{operation.name}`: `{shown}`.\n"
            "It executes the operations that CUDA Tile C++ of CUDA 13.5 needs for one GPU.\n"
            "Launch on CUDA tensors, or write the step without it."
        )

    def require_whole_bytes(self, operation: TileOperation, type_: TileType) -> None:
        """Refuse an access to elements of half a byte, of which C++ has one in each."""
        if ELEMENT_BITS.get(type_.element) == 4:
            raise UnsupportedInstruction(self.refusal(operation))

    def number(self, operation: TileOperation) -> int:
        """Number an operation."""
        self.operations.append(operation)
        self.works.append(work_of(operation, self.function))
        return len(self.operations) - 1

    def _is_uniform(self, operation: TileOperation) -> bool:
        if operation.name not in _PURE or not self.uniform.issuperset(operation.inputs):
            return False
        if operation.regions:
            known = set(self.uniform)
            for region in operation.regions:
                known.update(region.arguments)
                for inner in region.operations:
                    if not known.issuperset(inner.inputs):
                        return False
                    known.update(inner.results)
        self.uniform.update(operation.results)
        return True


@dataclass(eq=False, kw_only=True)
class TileLaunch:
    """One launch of a tile kernel.

    Attributes:
        addresses: Of the program's variables.
        place, source_line: Return the file and line of an operation, and the text of a line.
        values: The kernel's values, by number.
        seen: The regions that have run, by id.
        names: Of the parameters, for findings.
        block, extent: The tile block that runs, and tile blocks in x, y, z.
        shadows: The stamps of regions that blocks may race for.
        order: The accesses so far, and which of them come before the current block.
    """

    addresses: Mapping[str, int]
    place: Callable[[TileOperation], tuple[str, int]]
    source_line: Callable[[str, int], str]
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
            self.run.progress(self.kernel, number, count)
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
            run.watch(steps, code.elements, lambda: "{}:{}".format(*self.place(first)))
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
            operation, elements: The operation, and how many elements were at fault.
            address_of: The argument or variable whose memory it was.
        """
        file, line = self.place(operation)
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
            source=self.source_line(file, line) if line else "",
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
                for line in counters.both(self.place(operations[number])):
                    line.lane_instructions += visits * elements
                    line.warp_instructions += visits
                    line.classes[kind] += visits * elements
                    if count:
                        line.operations[type_] += visits * count
        for access, cost in self._costs.values():
            for line in counters.both(self.place(access.operation)):
                line.add_accesses(access.action, access.bytes, {"global": cost})


RegionEnd = tuple[str, tuple[Any, ...]]
"""How a region ended: the name of the operation that ended it, and the values that it passed on."""
TileStep = Callable[[TileLaunch], RegionEnd | None]
Binder = Callable[[TileDecoder, TileOperation], TileStep]


def run_region(launch: TileLaunch, code: TileCode) -> RegionEnd:
    """Run a region, and return how it ended."""
    seen = launch.seen
    first = id(code) not in seen
    launch.enter(code)
    for step in code.steps if first else code.varying:
        outcome = step(launch)
        if outcome is not None:
            return outcome
    if first:
        seen.add(id(code))
    values = launch.values
    return code.ending[0], tuple([values[each] for each in code.ending[1]])
