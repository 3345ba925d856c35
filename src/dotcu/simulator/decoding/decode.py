"""A linked kernel as steps: every operand resolved once, so that a step costs little Python."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dotcu.demangler import demangle
from dotcu.errors import UnsupportedInstruction
from dotcu.ptx.dataflow import registers_of
from dotcu.ptx.instructions import TYPE_BYTES, Instruction
from dotcu.ptx.module import PtxModule
from dotcu.simulator.counting.counters import work_of
from dotcu.simulator.decoding.architectures import needed_by
from dotcu.simulator.decoding.basic_blocks import BasicBlock, basic_blocks, ends_block
from dotcu.simulator.decoding.binding import Binding, place_of
from dotcu.simulator.decoding.inlining import FlatInstruction, FlatKernel, SourceLocations, unsupported
from dotcu.simulator.decoding.liveness import droppable, live_out
from dotcu.simulator.decoding.variables import (
    VariableLayout,
    layout_variables,
    parameter_offsets,
    read_names,
    swapped_addresses,
    trace_origins,
)
from dotcu.simulator.sanitizers.undefined import MAY_BE_UNDEFINED, carrier, registers_read
from dotcu.simulator.semantics.control import ENDINGS, guarded, jump
from dotcu.simulator.semantics.dispatch import bind
from dotcu.simulator.semantics.matrix.wgmma import watched, wgmma_registers
from dotcu.simulator.semantics.table import NotExecuted, Step
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
        reads: It has an instruction whose result may be undefined: a load, or a shuffle.
        carriers: Returns the steps that carry undefined values along, its last instruction with the registers
            that its end depends on, and those that are read later.
    """

    steps: tuple[Step, ...]
    end: Step
    admit: Callable[[Any], bool] | None
    placed: FlatInstruction
    work: BlockWork
    reads: bool
    carriers: Callable[[], tuple[tuple[Step, ...], tuple[FlatInstruction, tuple[int, ...]], frozenset[int]]]


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


def decode(linked: FlatKernel, module: PtxModule, name: str, addresses: Mapping[str, int]) -> DecodedKernel:
    """Turn a kernel into steps.

    Args:
        linked, name: The kernel, with its calls inlined, and its name.
        module, addresses: The PTX that it is of, and the address of each module variable.

    Raises:
        UnsupportedInstruction: Names every instruction that is not executed, with all of its lines.
        SimulationError: The kernel's variables do not fit local memory.
    """
    parameters = parameter_offsets(module.headers[name])
    shared = {n: v for n, v in module.variables.items() if v.space == "shared"}
    binding = Binding(
        linked,
        parameters,
        addresses,
        layout_variables(linked, shared),
        read_names=read_names(linked),
        swapped=swapped_addresses(linked),
        origins=trace_origins(linked, parameters),
        of_wgmma=wgmma_registers(linked.code),
    )
    refused: Refused = {}
    plans = basic_blocks(linked.code)
    lives, unset = live_out(linked.code, plans)
    _refuse_newer(linked, module, demangle(name))
    blocks = [
        _block(number, plan, binding, refused, live)
        for number, (plan, live) in enumerate(zip(plans, lives, strict=True))
    ]
    if refused:
        raise unsupported("\n    ".join(_shown(places) for places in refused.values()), demangle(name))
    return DecodedKernel(
        blocks=tuple(blocks),
        binding=binding,
        layout=binding.layout,
        location_of=linked.location_of,
        opcodes=frozenset(placed.instruction.opcode for placed in linked.code),
        releases=any(_is_release(placed.instruction) for placed in linked.code),
        meets_in_part=any(_meets_in_part(placed.instruction) for placed in linked.code),
        is_debug=module.is_debug,
        unset=_slots_of(unset, linked, binding) if module.is_debug else (),
    )


def _slots_of(names: frozenset[str], linked: FlatKernel, binding: Binding) -> tuple[int, ...]:
    """Return the slots of the registers among some names."""
    operands = (operand for placed in linked.code for operand in placed.instruction.operands)
    registers = {register.name: register for operand in operands for register in registers_of(operand)}
    return tuple(binding.register(registers[name]).slot for name in sorted(names) if name in registers)


def _meets_in_part(instruction: Instruction) -> bool:
    opcode, operands = instruction.opcode, instruction.operands
    if opcode in ("bar", "barrier"):
        return "warp" in instruction.flags or "arrive" in instruction.flags or len(operands) > 1
    return opcode == "mbarrier"


def _is_release(instruction: Instruction) -> bool:
    orders = {"release", "acq_rel"}
    return instruction.opcode in ("fence", "membar") or not orders.isdisjoint(instruction.flags)


def _refuse_newer(linked: FlatKernel, module: PtxModule, kernel: str) -> None:
    """Refuse a kernel with instructions that its architecture lacks; PTX that names none has all.

    Raises:
        UnsupportedInstruction: Names them, and the oldest architecture that has all of them.
    """
    digits = re.search(r"\d+", module.target)
    own = int(digits[0]) if digits else _NEWEST
    lacking: Refused = {}
    oldest = own
    for placed in linked.code:
        needed = needed_by(placed.instruction)
        if needed > own:
            oldest = max(oldest, needed)
            spelling = ".".join((placed.instruction.opcode, *placed.instruction.flags))
            lacking.setdefault(spelling, []).append((*linked.location_of(placed), placed.instruction))
    if lacking:
        shown = "\n    ".join(_shown(places) for places in lacking.values())
        raise UnsupportedInstruction(
            f"{kernel} is compiled for {module.target}, which lacks:\n    {shown}\n"
            f"These instructions need sm_{oldest} or newer; no assembler takes them for {module.target}.\n"
            f'Simulate that one: dotcu.simulate(arch="sm_{oldest}"), or keep them behind '
            f"#if __CUDA_ARCH__ >= {oldest}0"
        )


_NEWEST = 1 << 16


# What a binder raises for an instruction that it has no row for, or whose operands are of
# another number or kind than the instruction takes.
_UNFIT = (NotExecuted, LookupError, TypeError, ValueError, AttributeError, OverflowError)


Refused = dict[str, list[tuple[str, int, Instruction]]]
"""For each spelling of an instruction that is not executed, its places: file, line and instruction."""

_SHOWN_LINES = 12
_REASONS: Mapping[str, str] = {
    "multimem": "its addresses are of the memory of several GPUs, and the simulator is one",
    "tcgen05": "it needs an architecture after sm_90",
    "tile::gather4": "it needs an architecture after sm_90",
    "tile::scatter4": "it needs an architecture after sm_90",
    "im2col::w": "it needs an architecture after sm_90",
    "im2col::w::128": "it needs an architecture after sm_90",
    "tex": "the simulator has no textures",
    "tld4": "the simulator has no textures",
    "suld": "the simulator has no surfaces",
    "sust": "the simulator has no surfaces",
    "sured": "the simulator has no surfaces",
}
"""Why an opcode, or an instruction with a modifier, is not executed."""


def _shown(places: list[tuple[str, int, Instruction]]) -> str:
    """The first place of an instruction, its text, its other lines, and why it is not executed."""
    file, line, instruction = places[0]
    at = f"{file}:{line}" if line else "no source line"
    lines = [str(n) if f == file else f"{f}:{n}" for f, n, _ in places if n and (f, n) != (file, line)]
    others = list(dict.fromkeys(lines))
    more = f" and {len(others) - _SHOWN_LINES} more" if len(others) > _SHOWN_LINES else ""
    also = f" (also line{'s' * (len(others) > 1)} {', '.join(others[:_SHOWN_LINES])}{more})" if others else ""
    names = (instruction.opcode, *instruction.flags)
    why = next((f": {_REASONS[name]}" for name in names if name in _REASONS), "")
    return f"{at}: {instruction.text}{also}{why}"


def _block(
    number: int, plan: BasicBlock, binding: Binding, refused: Refused, live: frozenset[str]
) -> DecodedBlock:
    """Bind a block's instructions, behind which some names are read; note those not executed in `refused`."""
    code, location_of = binding.linked.code[plan.first : plan.last], binding.linked.location_of
    binding.droppable = droppable(code, live)
    wide = (p.instruction for p in code if TYPE_BYTES.get((p.instruction.types or ("b8",))[-1], 1) > 1)
    binding.wider = frozenset(place for each in wide if (place := place_of(each)) is not None)
    steps: list[Step] = []
    rows: list[tuple[FlatInstruction, Step, Step]] = []
    end = jump(plan.through)
    admit = None
    for placed in code:
        try:
            if placed is code[-1] and ends_block(placed.instruction):
                end = ENDINGS[placed.instruction.opcode](placed, plan, binding)
                continue
            step = bind(placed, binding)
            if isinstance(step, Rendezvous):
                admit, step = step.admit(number, binding.guard(placed.instruction)), step.step
            if binding.of_wgmma:
                step = watched(step, placed, binding.of_wgmma, binding)
            steps.append(guarded(step, placed, binding))
            rows.append((placed, step, steps[-1]))
        except _UNFIT:
            instruction = placed.instruction
            spelling = ".".join((instruction.opcode, *instruction.flags, *instruction.types))
            refused.setdefault(spelling, []).append((*location_of(placed), instruction))

    @functools.cache
    def carriers() -> tuple[tuple[Step, ...], tuple[FlatInstruction, tuple[int, ...]], frozenset[int]]:
        last = code[-1]
        ending = registers_read(last.instruction, binding) if len(rows) < len(code) else ()
        kept = frozenset(slot for name in live if (slot := binding.slots.get(name)) is not None)
        return tuple(carrier(*row, binding) for row in rows), (last, ending), kept

    return DecodedBlock(
        carriers=carriers,
        reads=any(p.instruction.opcode in MAY_BE_UNDEFINED for p in code),
        steps=tuple(steps),
        end=end,
        admit=admit,
        placed=code[0],
        work=Counter(
            (location_of(p), p.instruction.opcode in _BRANCHES, work_of(p.instruction)) for p in code
        ),
    )


_BRANCHES = frozenset({"bra", "brx", "ret", "exit"})
