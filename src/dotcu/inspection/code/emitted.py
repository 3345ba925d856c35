"""What was really emitted: the instructions of a kernel by kind, counted, with their source lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dotcu.inspection.code import features
from dotcu.inspection.code.features import CONSTANT, LOCAL, MNEMONIC, WIDTH, Feature
from dotcu.inspection.code.places import Place, user_place
from dotcu.inspection.code.ptx import PtxLine
from dotcu.inspection.code.sass import SPILL, Instruction
from dotcu.kernel.mangling import shown_name
from dotcu.ptx.instructions import TYPE_BYTES

NEVER = ("@!PT", "@!UPT")
"""Guards of instructions that no lane executes. ptxas places some on purpose, before LDGSTS say."""

_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_REGISTER_BYTES = 4
_REGISTER = re.compile(r"U?R\d+\b")
_INDEXED = re.compile(r"c\[0x[03]\]\s*\[U?R\d")  # bank 4 is the compiler's own
_VECTOR = re.compile(r"\.v([248])\b")


@dataclass(frozen=True, kw_only=True)
class Emitted:
    """Instructions of one kind.

    Attributes:
        group: What they are listed under.
        label: What they are called.
        meaning: What they do.
        count: How many stand in the code, executed or not.
        places: The source lines that they come from, and how many of each; the most first.
    """

    group: str
    label: str
    meaning: str
    count: int
    places: tuple[tuple[Place, int], ...]


def width_bytes(instruction: Instruction) -> int:
    """What each lane loads or stores."""
    return next((_WIDTHS[word] for word in instruction.modifiers if word in _WIDTHS), _REGISTER_BYTES)


def ptx_width_bytes(opcode: str) -> int:
    """What each lane loads or stores by a PTX instruction: 16 of ld.global.v4.f32."""
    vector = _VECTOR.search(opcode)
    size = TYPE_BYTES.get(opcode.rpartition(".")[2], _REGISTER_BYTES)
    return size * (int(vector[1]) if vector else 1)


def is_executed(instruction: Instruction) -> bool:
    """Whether its guard lets any lane execute it."""
    return instruction.predicate not in NEVER


def is_move(instruction: Instruction) -> bool:
    """Whether it only brings a constant into a register: HFMA2.MMA R4, -RZ, RZ, 0, 0 computes nothing."""
    zero = {"RZ", "-RZ"}
    return instruction.opcode == "HFMA2" and zero.issuperset(instruction.operands[1:3])


def of_sass(
    instructions: Sequence[Instruction], home: str, callees: Mapping[int, str] | None = None
) -> tuple[Emitted, ...]:
    """The machine instructions of a kernel, by kind.

    Args:
        callees: The functions that lines of its PTX call by name.
    """
    return _grouped(_kinds(instructions, home, callees or {}))


def of_ptx(lines: Sequence[PtxLine], home: str) -> tuple[Emitted, ...]:
    """The PTX instructions of a kernel, by kind: what ptxas was given, for want of a disassembler."""
    return _grouped(_ptx_kinds(lines, home))


Found = tuple[Feature, str, Place | None]


def _kinds(instructions: Sequence[Instruction], home: str, callees: Mapping[int, str]) -> Iterator[Found]:
    for instruction in instructions:
        if not is_executed(instruction) or is_move(instruction):
            continue
        for feature in features.SASS:
            if feature.opcode.fullmatch(instruction.opcode) and _is_one(feature, instruction):
                yield feature, _label(feature, instruction, callees), user_place(instruction.chain, home)
                break


def _is_one(feature: Feature, instruction: Instruction) -> bool:
    """Whether an opcode is enough; a parameter comes by LDC too, at an address that is known."""
    return feature.group != CONSTANT or any(map(_INDEXED.search, instruction.operands))


def _label(feature: Feature, instruction: Instruction, callees: Mapping[int, str]) -> str:
    text = feature.label.replace(MNEMONIC, instruction.mnemonic)
    if "{target}" in text:
        text = text.replace("{target}", _callee(instruction, callees))
    text = text.replace(WIDTH, str(width_bytes(instruction)))
    spilled = feature.group == LOCAL and instruction.note == SPILL
    return f"spill {text}" if spilled else text


def _callee(instruction: Instruction, callees: Mapping[int, str]) -> str:
    """What is called, without what ptxas puts before it; a register says where, if it is an operand.

    A function that the driver brings, such as malloc, is called through a register; its PTX has the name.
    """
    if any(_REGISTER.match(operand) for operand in instruction.operands[:1]):
        named = callees.get(instruction.ptx_line)
        return shown_name(named) if named else "a function by its address"
    target = re.sub(r"^\$__internal_\d+_\$|^\$.*\$", "", instruction.target)
    return shown_name(target) if target else "a function by its address"


def _ptx_kinds(lines: Sequence[PtxLine], home: str) -> Iterator[Found]:
    for line in lines:
        for opcode in line.opcodes:
            for feature in features.PTX:
                if feature.opcode.match(opcode):
                    text = feature.label.replace(MNEMONIC, opcode)
                    text = text.replace(WIDTH, str(ptx_width_bytes(opcode)))
                    yield feature, text, user_place(line.chain, home)
                    break


def _grouped(found: Iterable[Found]) -> tuple[Emitted, ...]:
    places: dict[tuple[str, str, str], Counter[Place | None]] = {}
    for feature, label, place in found:
        places.setdefault((feature.group, label, feature.meaning), Counter())[place] += 1
    ordered = sorted(places.items(), key=lambda item: (features.GROUPS.index(item[0][0]), item[0][1]))
    return tuple(
        Emitted(
            group=group,
            label=label,
            meaning=meaning,
            count=sum(counts.values()),
            places=tuple((place, count) for place, count in counts.most_common() if place is not None),
        )
        for (group, label, meaning), counts in ordered
    )
