"""Registers that are read later, and loaded values that a kernel may still drop in the same basic block.

Compilers move loads out of their guards where the address is always valid, and select afterwards. Such a
load reads nothing for the lanes that drop its value.
"""

from __future__ import annotations

from collections.abc import Sequence

from dotcu.ptx.dataflow import names_of
from dotcu.ptx.instructions import Address, Instruction
from dotcu.simulator.decoding.basic_blocks import BasicBlock
from dotcu.simulator.decoding.inlining import FlatInstruction

# They have no result: what stands first is read.
NO_RESULT = frozenset(
    {"st", "red", "bra", "brx", "ret", "exit", "bar", "barrier", "cp", "membar", "fence", "stackrestore"}
    | {"call", "enter", "assertfail", "mbarrier", "wgmma", "wmma", "stmatrix"}
)

# Some of them do write operands, which ones depends on the modifiers.
_WRITE_OPERANDS = frozenset({"bar", "barrier", "mbarrier", "wgmma", "wmma", "call", "enter"})


def has_result(instruction: Instruction) -> bool:
    """Return whether an instruction's first operand is written and not read."""
    if instruction.opcode in NO_RESULT or not instruction.operands:
        return False
    return not isinstance(instruction.operands[0], Address)


def read_by(instruction: Instruction) -> set[str]:
    """Return the names that an instruction reads, its guard among them."""
    operands = instruction.operands[1:] if has_result(instruction) else instruction.operands
    names = names_of(operands)
    if instruction.guard is not None:
        names.add(instruction.guard.register.name)
    return names


def live_out(
    code: Sequence[FlatInstruction], plans: Sequence[BasicBlock]
) -> tuple[list[frozenset[str]], frozenset[str]]:
    """Return for each basic block the names that are read after it, and those that are read before any write.

    The latter are read so on some way through the code, which no lane may take.
    """
    gained, killed = [], []
    for plan in plans:
        reads: set[str] = set()
        writes: set[str] = set()
        for placed in code[plan.first : plan.last]:
            instruction = placed.instruction
            reads |= read_by(instruction) - writes
            if has_result(instruction) and instruction.guard is None:
                writes |= names_of(instruction.operands[:1])
        gained.append(reads)
        killed.append(writes)
    before: list[set[str]] = [set(reads) for reads in gained]
    after: list[set[str]] = [set() for _ in plans]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(plans))):
            plan = plans[number]
            ways = {way for way in (*plan.following, plan.through) if way >= 0}
            behind: set[str] = set().union(*(before[way] for way in ways)) if ways else set()
            if len(behind) > len(after[number]):
                after[number] = behind
                before[number] = gained[number] | (behind - killed[number])
                changed = True
    unset = before[0]
    for instruction in (placed.instruction for placed in code):
        if instruction.opcode in _WRITE_OPERANDS:
            unset -= names_of(instruction.operands)
    return [frozenset(names) for names in after], frozenset(unset)


def droppable(code: Sequence[FlatInstruction], after: frozenset[str]) -> frozenset[str]:
    """Return the names in a basic block that affect what follows through a select or a logical and, or alone.

    Args:
        code: The instructions of the block.
        after: The names that are read after it.
    """
    firm, soft = set(after), set[str]()
    for placed in reversed(code):
        instruction = placed.instruction
        if not has_result(instruction):
            firm |= read_by(instruction)
            continue
        targets = names_of(instruction.operands[:1])
        firm |= names_of(operand for operand in instruction.operands if isinstance(operand, Address))
        if instruction.guard is not None:
            firm.add(instruction.guard.register.name)
        sources = instruction.operands[1:]
        if targets.isdisjoint(firm | soft) and instruction.opcode != "atom":
            continue
        chosen = _chosen(instruction)
        soft |= names_of(sources[:chosen])
        rest = names_of(sources[chosen:])
        if targets.isdisjoint(firm) and instruction.opcode != "atom":
            soft |= rest
        else:
            firm |= rest
    return frozenset(soft - firm)


def _chosen(instruction: Instruction) -> int:
    """Return how many of the first sources an instruction may take no notice of."""
    if instruction.opcode == "selp":
        return 2
    if instruction.opcode in ("and", "or") and instruction.types == ("pred",):
        return 2
    return 3 if instruction.opcode in ("setp", "set") and len(instruction.operands) > 3 else 0
