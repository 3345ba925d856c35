"""A linked kernel as steps: every operand resolved once, so that a step costs little Python."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping

from dotcu.demangler import demangle
from dotcu.ptx.dataflow import registers_of
from dotcu.ptx.instructions import TYPE_BYTES, Instruction
from dotcu.ptx.module import PtxModule
from dotcu.simulator.machine.special_registers import SPECIAL_VALUES
from dotcu.simulator.machine.state import DecodedBlock, DecodedKernel, InstructionStep
from dotcu.simulator.program.basic_blocks import BasicBlock, basic_blocks, droppable, ends_block, live_out
from dotcu.simulator.program.binding import Binding, NotExecuted, place_of
from dotcu.simulator.program.inlining import FlatInstruction, FlatKernel
from dotcu.simulator.program.loads import loaded_values
from dotcu.simulator.program.opcodes import Refused, refusal, refuse_newer, work_of
from dotcu.simulator.program.variables import (
    layout_variables,
    parameter_offsets,
    read_names,
    swapped_addresses,
    trace_origins,
)
from dotcu.simulator.semantics.control import ENDINGS, guarded, jump
from dotcu.simulator.semantics.dispatch import bind
from dotcu.simulator.semantics.matrix.wgmma import watched, wgmma_registers
from dotcu.simulator.semantics.undefined import MAY_BE_UNDEFINED, carrier, registers_read
from dotcu.simulator.semantics.warp import Rendezvous


def decode(
    linked: FlatKernel, module: PtxModule, name: str, addresses: Mapping[str, int], language: str = "cuda"
) -> DecodedKernel:
    """Turn a kernel into steps.

    Args:
        linked, name: The kernel, with its calls inlined, and its name.
        module, addresses: The PTX of the kernel, and the address of each module variable.
        language: The language of its source.

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
        SPECIAL_VALUES,
        read_names=read_names(linked),
        swapped=swapped_addresses(linked),
        origins=trace_origins(linked, parameters),
        of_wgmma=wgmma_registers(linked.code),
    )
    refused: Refused = {}
    plans = basic_blocks(linked.code)
    lives, unset = live_out(linked.code, plans)
    refuse_newer(linked, module.target, demangle(name))
    blocks = [
        _block(number, plan, binding, refused, live)
        for number, (plan, live) in enumerate(zip(plans, lives, strict=True))
    ]
    if refused:
        raise refusal(refused, demangle(name))
    return DecodedKernel(
        blocks=tuple(blocks),
        binding=binding,
        layout=binding.layout,
        location_of=linked.location_of,
        opcodes=frozenset(instruction.ptx.opcode for instruction in linked.code),
        releases=any(_is_release(instruction.ptx) for instruction in linked.code),
        meets_in_part=any(_meets_in_part(instruction.ptx) for instruction in linked.code),
        is_debug=module.is_debug,
        unset=_slots_of(unset, linked, binding) if module.is_debug else (),
        language=language,
        loaded_values=loaded_values(linked.code) if language == "triton" else None,
    )


def _slots_of(names: frozenset[str], linked: FlatKernel, binding: Binding) -> tuple[int, ...]:
    """Return the slots of the registers among some names."""
    operands = (operand for instruction in linked.code for operand in instruction.ptx.operands)
    registers = {register.name: register for operand in operands for register in registers_of(operand)}
    return tuple(binding.register(registers[name]).slot for name in sorted(names) if name in registers)


def _meets_in_part(ptx: Instruction) -> bool:
    opcode, operands = ptx.opcode, ptx.operands
    if opcode in ("bar", "barrier"):
        return "warp" in ptx.flags or "arrive" in ptx.flags or len(operands) > 1
    return opcode == "mbarrier"


def _is_release(ptx: Instruction) -> bool:
    orders = {"release", "acq_rel"}
    return ptx.opcode in ("fence", "membar") or not orders.isdisjoint(ptx.flags)


def _block(
    number: int, plan: BasicBlock, binding: Binding, refused: Refused, live: frozenset[str]
) -> DecodedBlock:
    """Bind a block's instructions, behind which some names are read; note those not executed in `refused`."""
    code, location_of = binding.linked.code[plan.first : plan.last], binding.linked.location_of
    binding.droppable = droppable(code, live)
    wide = (p.ptx for p in code if TYPE_BYTES.get((p.ptx.types or ("b8",))[-1], 1) > 1)
    binding.wider = frozenset(place for each in wide if (place := place_of(each)) is not None)
    steps: list[InstructionStep] = []
    rows: list[tuple[FlatInstruction, InstructionStep, InstructionStep]] = []
    end = jump(plan.through)
    admit = None
    for instruction in code:
        try:
            if instruction is code[-1] and ends_block(instruction.ptx):
                end = ENDINGS[instruction.ptx.opcode](instruction, plan, binding)
                continue
            step = bind(instruction, binding)
            if isinstance(step, Rendezvous):
                admit, step = step.admit(number, binding.guard(instruction.ptx)), step.step
            if binding.of_wgmma:
                step = watched(step, instruction, binding.of_wgmma, binding)
            steps.append(guarded(step, instruction, binding))
            rows.append((instruction, step, steps[-1]))
        except NotExecuted:
            ptx = instruction.ptx
            spelling = ".".join((ptx.opcode, *ptx.flags, *ptx.types))
            refused.setdefault(spelling, []).append((*location_of(instruction), ptx))

    @functools.cache
    def carriers() -> tuple[
        tuple[InstructionStep, ...], tuple[FlatInstruction, tuple[int, ...]], frozenset[int]
    ]:
        last = code[-1]
        ending = registers_read(last.ptx, binding) if len(rows) < len(code) else ()
        kept = frozenset(slot for name in live if (slot := binding.slots.get(name)) is not None)
        return tuple(carrier(*row, binding) for row in rows), (last, ending), kept

    return DecodedBlock(
        carriers=carriers,
        reads=any(p.ptx.opcode in MAY_BE_UNDEFINED for p in code),
        steps=tuple(steps),
        end=end,
        admit=admit,
        instruction=code[0],
        work=Counter((location_of(p), p.ptx.opcode in _BRANCHES, work_of(p.ptx)) for p in code),
    )


_BRANCHES = frozenset({"bra", "brx", "ret", "exit"})
