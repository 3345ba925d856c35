"""A linked kernel as steps: every operand resolved once, so that a step costs little Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dotcu.errors import SimulationError, UnsupportedInstruction
from dotcu.ptx.instructions import Instruction, Variable
from dotcu.ptx.lexer import MAX_BYTES
from dotcu.simulator.counting.counters import work_of
from dotcu.simulator.decoding.basic_blocks import EXIT, BasicBlock, basic_blocks, ends_block
from dotcu.simulator.decoding.binding import Binding, LaunchConstant
from dotcu.simulator.decoding.inlining import FlatInstruction, FlatKernel, LocationOf, unsupported
from dotcu.simulator.decoding.variables import (
    STACK_BYTES,
    Extent,
    display_name,
    extents,
    layout_frames,
    layout_variables,
    read_names,
    swapped_addresses,
    trace_origins,
)
from dotcu.simulator.semantics import dispatch
from dotcu.simulator.semantics.control import barrier, branch, guarded, jump, table_branch
from dotcu.simulator.semantics.function_calls import enter, leave
from dotcu.simulator.semantics.table import Array, NotExecuted, Step


class LineTally(NamedTuple):
    """The counts of one visit of a basic block at one source line, for each lane."""

    place: tuple[str, int]
    instructions: int
    branches: int
    classes: tuple[tuple[str, int], ...]
    operations: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class DecodedBlock:
    """A basic block as steps.

    Attributes:
        admit: For a rendezvous: keeps back the lanes whose warp is not there; whether any go on.
        end: Sends the lanes where they go next.
        placed: Its first instruction.
    """

    steps: tuple[Step, ...]
    end: Step
    admit: Callable[[Any], bool] | None
    placed: FlatInstruction
    tallies: tuple[LineTally, ...]


@dataclass(frozen=True, kw_only=True)
class DecodedKernel:
    """A kernel that is ready to run.

    Attributes:
        constants: What each register holds at the start.
        specials: Special registers and the registers that keep them.
        params: Registers that hold launch parameters.
        dynamic_offset: Where dynamic shared memory begins; static shared memory is before it.
        local_bytes: Local memory of each lane.
        layout: By space, where each variable begins.
        extents: Where each variable of shared and local memory lies.
        stack_base: Where the frames of recursive functions begin in local memory.
        location_of: The source file and line of an instruction, as the user knows them.
        is_library: Whether an instruction was written in a header of CUDA's own libraries.
    """

    blocks: tuple[DecodedBlock, ...]
    constants: tuple[Array, ...]
    specials: tuple[tuple[str, int], ...]
    params: tuple[tuple[int, LaunchConstant], ...]
    dynamic_offset: int
    local_bytes: int
    layout: Mapping[str, Sequence[tuple[int, str]]]
    extents: Mapping[str, Extent]
    location_of: LocationOf
    is_library: Callable[[FlatInstruction], bool]
    stack_base: int = 0

    def variable_before(self, space: str, address: int) -> str:
        """The variable that an address of a space is in or behind; empty if none."""
        best = ""
        for start, name in self.layout.get(space, ()):
            if start <= address:
                best = name
        return display_name(best)

    def variable_start(self, space: str, shown: str) -> int:
        """Return the start of the variable that has a display name."""
        return next((s for s, n in self.layout.get(space, ()) if display_name(n) == shown), 0)


def decode(
    linked: FlatKernel,
    *,
    parameters: Mapping[str, int],
    addresses: Mapping[str, int],
    shared: Mapping[str, Variable],
    location_of: LocationOf,
    is_library: Callable[[FlatInstruction], bool],
) -> DecodedKernel:
    """Turn a kernel into steps.

    Args:
        parameters: Offset of each kernel parameter.
        addresses: Address of each module variable.
        shared: Module-scope shared variables.
        location_of: The source file and line of an instruction.
        is_library: Whether an instruction was written in a header of CUDA's own libraries.

    Raises:
        UnsupportedInstruction: Names every kind of instruction that is not executed, with its line.
    """
    layout, dynamic_offset, local_bytes = layout_variables(linked, shared)
    positions = {name: start for table in layout.values() for start, name in table}
    if local_bytes > MAX_BYTES["local"]:
        raise SimulationError(
            f"The kernel's variables take {local_bytes} bytes of local memory in each thread.\n"
            f"A GPU gives a thread at most {MAX_BYTES['local']}.\n"
            "Make the arrays inside functions smaller, or keep them in global memory."
        )
    frames = layout_frames(linked, local_bytes)
    binding = Binding(
        linked,
        parameters,
        addresses,
        positions,
        read_names=read_names(linked),
        swapped=swapped_addresses(linked),
        origins=trace_origins(linked, parameters),
        frames=frames,
    )
    plan, leaders = basic_blocks(linked.code)
    refused: list[FlatInstruction] = []
    blocks = [_block(b, linked, leaders, binding, location_of, refused) for b in plan]
    if refused:
        raise _refused_instructions(refused, location_of)
    return DecodedKernel(
        blocks=tuple(blocks),
        constants=tuple(binding.constants),
        specials=tuple(binding.specials.items()),
        params=tuple(binding.params.items()),
        dynamic_offset=dynamic_offset,
        local_bytes=frames.base + STACK_BYTES if frames.sizes else local_bytes,
        layout=layout,
        extents=extents(linked, shared, positions),
        location_of=location_of,
        is_library=is_library,
        stack_base=frames.base,
    )


# What a binder raises for an instruction that it has no row for, or whose operands are of
# another number or kind than the instruction takes.
_UNFIT = (NotExecuted, LookupError, TypeError, ValueError, AttributeError, OverflowError)


def _block(
    plan: BasicBlock,
    linked: FlatKernel,
    leaders: Mapping[int, int],
    binding: Binding,
    location_of: LocationOf,
    refused: list[FlatInstruction],
) -> DecodedBlock:
    code = linked.code[plan.first : plan.last]
    last = code[-1]
    steps: list[Step] = []
    end: Step | None = None
    admit = None
    for placed in code:
        try:
            if placed is last and ends_block(last.instruction):
                end = _ENDINGS[last.instruction.opcode](last, plan, leaders, binding)
                continue
            step = dispatch.bind(placed, binding)
            if isinstance(step, dispatch.Rendezvous):
                admit, step = step.admit(leaders[plan.first]), step.step
            guard = placed.instruction.guard
            if guard is not None:
                slot = binding.register(guard.register).slot
                step = guarded(step, slot, guard.negated, placed, binding.next_access())
            steps.append(step)
        except _UNFIT:
            refused.append(placed)
    return DecodedBlock(
        steps=tuple(steps),
        end=end or jump(plan.following[0] if plan.following else EXIT),
        admit=admit,
        placed=code[0],
        tallies=_tallies(code, location_of),
    )


def _end_branch(
    placed: FlatInstruction, plan: BasicBlock, leaders: Mapping[int, int], binding: Binding
) -> Step:
    guard = placed.instruction.guard
    if guard is None:
        return jump(plan.following[0])
    slot = binding.register(guard.register).slot
    ways = plan.following[0], plan.following[-1]
    return branch(slot, guard.negated, ways, placed, binding.next_access())


def _end_table(
    placed: FlatInstruction, plan: BasicBlock, leaders: Mapping[int, int], binding: Binding
) -> Step:
    if placed.instruction.guard is not None:
        raise NotExecuted
    index = binding.source(placed.instruction.operands[0], "u32")
    return table_branch(index.slot, plan.following, placed, binding.next_access())


def _end_trap(
    placed: FlatInstruction, plan: BasicBlock, leaders: Mapping[int, int], binding: Binding
) -> Step:
    leave = _end_branch(placed, plan, leaders, binding)
    guard = placed.instruction.guard
    trap = dispatch.trap(placed)
    if guard is not None:
        slot = binding.register(guard.register).slot
        trap = guarded(trap, slot, guard.negated, placed, binding.next_access())

    def end(chunk: Any) -> None:
        trap(chunk)
        leave(chunk)

    return end


def _end_assert(
    placed: FlatInstruction, plan: BasicBlock, leaders: Mapping[int, int], binding: Binding
) -> Step:
    fail = dispatch.bind_call(placed, binding)
    leave = jump(plan.following[0])

    def end(chunk: Any) -> None:
        fail(chunk)
        leave(chunk)

    return end


def _end_barrier(
    placed: FlatInstruction, plan: BasicBlock, leaders: Mapping[int, int], binding: Binding
) -> Step:
    guard = placed.instruction.guard
    slot = -1 if guard is None else binding.register(guard.register).slot
    negated = guard is not None and guard.negated
    return barrier(placed, plan.following[0], binding, slot, negated)


_ENDINGS = {
    "bra": _end_branch,
    "brx": _end_table,
    "ret": _end_branch,
    "exit": _end_branch,
    "enter": enter,
    "return": leave,
    "trap": _end_trap,
    "brkpt": _end_trap,
    "assertfail": _end_assert,
    "bar": _end_barrier,
    "barrier": _end_barrier,
}


_BRANCHES = frozenset({"bra", "brx", "ret", "exit"})


def _tallies(code: Sequence[FlatInstruction], location_of: LocationOf) -> tuple[LineTally, ...]:
    lines: dict[tuple[str, int], list[Instruction]] = {}
    for placed in code:
        lines.setdefault(location_of(placed), []).append(placed.instruction)
    return tuple(_tally(at, instructions) for at, instructions in lines.items())


def _tally(place: tuple[str, int], instructions: Sequence[Instruction]) -> LineTally:
    classes: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    for instruction in instructions:
        kind, type_, count = work_of(instruction)
        classes[kind] += 1
        if count:
            operations[type_] += count
    branches = sum(i.opcode in _BRANCHES for i in instructions)
    return LineTally(place, len(instructions), branches, (*classes.items(),), (*operations.items(),))


def _refused_instructions(
    refused: Sequence[FlatInstruction], location_of: LocationOf
) -> UnsupportedInstruction:
    """Return the error that names every kind of instruction that is not executed."""
    shown: dict[str, str] = {}
    for placed in refused:
        file, line = location_of(placed)
        at = f"{file}:{line}" if line else "no source line"
        shown.setdefault(placed.instruction.opcode, f"{at}: {placed.instruction.text}")
    return unsupported("\n    ".join(shown.values()))
