"""The oldest architecture that has an instruction.

Source: PTX ISA, "Target ISA Notes" of each instruction.
"""

from __future__ import annotations

from typing import NamedTuple

from dotcu.ptx.instructions import Instruction


class _Row(NamedTuple):
    """Instructions that need an architecture.

    Attributes:
        needed: It, as 90 for sm_90.
        opcodes: Whose instructions these are.
        words: Modifiers and types of which they have one; empty: all instructions of the opcode.
        types: Types of which they have one, too; empty: any.
    """

    needed: int
    opcodes: frozenset[str]
    words: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


def _row(needed: int, opcodes: str, words: str = "", types: str = "") -> _Row:
    return _Row(needed, *(frozenset(text.split()) for text in (opcodes, words, types)))


_FP8 = "e4m3x2 e5m2x2 e4m3 e5m2"
_ROWS = (
    _row(90, "stmatrix mapa getctarank griddepcontrol elect wgmma setmaxnreg multimem tensormap"),
    _row(90, "barrier", "cluster"),
    _row(90, "fence", "async async::generic tensormap::generic mbarrier_init cluster"),
    _row(90, "cp", "bulk reduce"),
    _row(90, "st red", "async"),
    _row(90, "atom red", "v2 v4 v8 cluster shared::cluster"),
    _row(90, "atom", types="b128"),
    _row(90, "atom red", "noftz", "bf16 bf16x2"),
    _row(90, "mbarrier", "try_wait expect_tx complete_tx cluster shared::cluster"),
    _row(90, "isspacep ld st", "shared::cluster"),
    _row(90, "add sub mul ex2 tanh setp set", types="bf16 bf16x2"),
    _row(89, "cvt mma", types=_FP8),
    _row(86, "min max", "xorsign"),
    _row(80, "min max", "NaN"),
    _row(80, "redux mbarrier cp discard applypriority createpolicy"),
    _row(80, "fma min max neg abs mma", types="bf16 bf16x2 tf32"),
    _row(75, "ldmatrix movmatrix"),
)
_BY_OPCODE: dict[str, list[_Row]] = {}
for _each in _ROWS:
    for _opcode in _each.opcodes:
        _BY_OPCODE.setdefault(_opcode, []).append(_each)


def needed_by(instruction: Instruction) -> int:
    """Return the oldest architecture that has an instruction, as 90 for sm_90; 0 if all have it."""
    needed = 0
    for row in _BY_OPCODE.get(instruction.opcode, ()):
        words = row.words.isdisjoint(instruction.flags) if row.words else False
        types = row.types.isdisjoint(instruction.types) if row.types else False
        if not words and not types:
            needed = max(needed, row.needed)
    return needed
