"""A linked kernel as steps: every operand resolved once, so that a step costs little Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dotcu.ptx.instructions import Variable
from dotcu.simulator.counting.counters import work_of
from dotcu.simulator.decoding.basic_blocks import BasicBlock, basic_blocks, ends_block
from dotcu.simulator.decoding.binding import Binding, LaunchConstant
from dotcu.simulator.decoding.inlining import FlatInstruction, FlatKernel, SourceLocations, unsupported
from dotcu.simulator.decoding.variables import (
    VariableLayout,
    layout_variables,
    read_names,
    swapped_addresses,
    trace_origins,
)
from dotcu.simulator.semantics.control import ENDINGS, guarded, jump
from dotcu.simulator.semantics.dispatch import bind
from dotcu.simulator.semantics.table import Array, NotExecuted, Step
from dotcu.simulator.semantics.warp import Rendezvous

BlockWork = Counter[tuple[tuple[str, int], bool, tuple[str, str, int]]]
"""How often a block has an instruction of a source line, which is or is not a branch, and does some work."""


@dataclass(frozen=True, kw_only=True)
class DecodedBlock:
    """A basic block as steps.

    Attributes:
        admit: For a rendezvous: keeps back the lanes whose warp is not there; whether any go on.
        end: Sends the lanes where they go next.
        placed: Its first instruction.
        work: What its instructions are counted as.
    """

    steps: tuple[Step, ...]
    end: Step
    admit: Callable[[Any], bool] | None
    placed: FlatInstruction
    work: BlockWork


@dataclass(frozen=True, kw_only=True)
class DecodedKernel:
    """A kernel that is ready to run.

    Attributes:
        constants: What each register holds at the start.
        specials: Special registers and the registers that keep them.
        params: Registers that hold launch parameters.
        layout: The places of its variables.
        location_of: Finds the source file and line of an instruction, as the user knows them.
    """

    blocks: tuple[DecodedBlock, ...]
    constants: tuple[Array, ...]
    specials: tuple[tuple[str, int], ...]
    params: tuple[tuple[LaunchConstant, int], ...]
    layout: VariableLayout
    location_of: SourceLocations


def decode(
    linked: FlatKernel,
    *,
    parameters: Mapping[str, int],
    addresses: Mapping[str, int],
    shared: Mapping[str, Variable],
    location_of: SourceLocations,
) -> DecodedKernel:
    """Turn a kernel into steps.

    Args:
        parameters: Offset of each kernel parameter.
        addresses: Address of each module variable.
        shared: Module-scope shared variables.
        location_of: Finds the source file and line of an instruction.

    Raises:
        UnsupportedInstruction: Names every kind of instruction that is not executed, with its line.
        SimulationError: The kernel's variables do not fit local memory.
    """
    layout = layout_variables(linked, shared)
    binding = Binding(
        linked,
        parameters,
        addresses,
        layout,
        read_names=read_names(linked),
        swapped=swapped_addresses(linked),
        origins=trace_origins(linked, parameters),
    )
    plan = basic_blocks(linked.code)
    refused: dict[str, str] = {}
    blocks = [_block(number, block, binding, location_of, refused) for number, block in enumerate(plan)]
    if refused:
        raise unsupported("\n    ".join(refused.values()))
    return DecodedKernel(
        blocks=tuple(blocks),
        constants=tuple(binding.constants),
        specials=tuple(binding.specials.items()),
        params=tuple(binding.params.items()),
        layout=layout,
        location_of=location_of,
    )


# What a binder raises for an instruction that it has no row for, or whose operands are of
# another number or kind than the instruction takes.
_UNFIT = (NotExecuted, LookupError, TypeError, ValueError, AttributeError, OverflowError)


def _block(
    number: int,
    plan: BasicBlock,
    binding: Binding,
    location_of: SourceLocations,
    refused: dict[str, str],
) -> DecodedBlock:
    """Bind a block's instructions; note the first of each opcode that is not executed in `refused`."""
    code = binding.linked.code[plan.first : plan.last]
    steps: list[Step] = []
    end = jump(plan.through)
    admit = None
    for placed in code:
        try:
            if placed is code[-1] and ends_block(placed.instruction):
                end = ENDINGS[placed.instruction.opcode](placed, plan, binding)
                continue
            step = bind(placed, binding)
            if isinstance(step, Rendezvous):
                admit, step = step.admit(number), step.step
            steps.append(guarded(step, placed, binding))
        except _UNFIT:
            file, line = location_of(placed)
            at = f"{file}:{line}" if line else "no source line"
            refused.setdefault(placed.instruction.opcode, f"{at}: {placed.instruction.text}")
    return DecodedBlock(
        steps=tuple(steps),
        end=end,
        admit=admit,
        placed=code[0],
        work=Counter(
            (location_of(p), p.instruction.opcode in _BRANCHES, work_of(p.instruction)) for p in code
        ),
    )


_BRANCHES = frozenset({"bra", "brx", "ret", "exit"})
