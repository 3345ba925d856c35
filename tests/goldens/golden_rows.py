"""Every row of the semantics tables, for the test that each is in a golden kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dotcu.ptx.instructions import NOWHERE, Instruction
from dotcu.simulator.program.binding import NotExecuted
from dotcu.simulator.semantics import atomic, dispatch, warp
from dotcu.simulator.semantics.arithmetic import compare, convert
from dotcu.simulator.semantics.table import SemanticsRow

_SCALARS = (*(f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64)), "f16", "bf16", "f32", "f64")
_PACKED = ("f16x2", "bf16x2", *convert._FP8)
_CVT_PAIRS = (
    *((to, source) for to in _SCALARS for source in _SCALARS),
    *((to, source) for to in _PACKED for source in ("f32", *_PACKED) if to != source),
    ("tf32", "f32"),
)
# Modifiers of which at least one set fits each conversion.
_CVT_MODIFIERS = ((), ("rn",), ("rni",), ("rn", "satfinite"))


class Elementwise(NamedTuple):
    """A row of an elementwise table, and where it stands."""

    opcode: str
    number: int
    row: SemanticsRow


def elementwise() -> Iterator[Elementwise]:
    """The rows of all elementwise tables, in the order in which they are asked."""
    seen: dict[str, int] = {}
    for table in dispatch._ELEMENTWISE:
        for opcode, row in table.items():
            yield Elementwise(opcode, seen.get(opcode, 0), row)
            seen[opcode] = seen.get(opcode, 0) + 1


def row_of(instruction: Instruction) -> Elementwise | None:
    """The row that executes an instruction; None where it is not elementwise."""
    for entry in elementwise():
        row = entry.row
        fits = entry.opcode == instruction.opcode and instruction.types and instruction.type in row.types
        if fits and row.flags.issuperset(instruction.flags) and _makes(row, instruction):
            return entry
    return None


def _makes(row: SemanticsRow, instruction: Instruction) -> bool:
    try:
        return row.make(instruction) is not None
    except (NotExecuted, ValueError):
        return False


def other_opcodes() -> frozenset[str]:
    """The opcodes that have a binder of their own."""
    return frozenset(dispatch._MORE)


def conversions() -> frozenset[tuple[str, str]]:
    """The pairs of types, to and from, that cvt takes."""
    return frozenset((to, source) for to, source in _CVT_PAIRS if _converts(to, source))


def _converts(to: str, source: str) -> bool:
    for modifiers in _CVT_MODIFIERS:
        try:
            convert.conversion(Instruction("cvt", modifiers, (to, source), (), None, NOWHERE, "cvt"))
        except (NotExecuted, KeyError, ValueError):
            continue
        return True
    return False


def comparisons() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Names of the comparisons of integers and of floats, and of what combines them with a predicate."""
    return frozenset(compare._INTEGER), frozenset(compare._FLOAT), frozenset(compare._COMBINE)


def atomic_operations() -> tuple[frozenset[str], frozenset[str]]:
    """Names of the atomic operations on integers, cas among them, and on floats."""
    return frozenset(atomic.UPDATES) | {"cas"}, frozenset(atomic._FLOAT)


def warp_modes() -> dict[str, frozenset[str]]:
    """The modes of shfl and redux."""
    return {"shfl": frozenset(warp._SHUFFLES), "redux": frozenset(warp._REDUCE)}
