"""Tables of opcodes: the oldest architecture that has one, what it counts as, why one is not executed.

Source: PTX ISA, "Target ISA Notes" of each instruction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from dotcu.errors import UnsupportedInstruction
from dotcu.ptx.instructions import Instruction
from dotcu.simulator.program.inlining import FlatKernel, unsupported


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


def needed_by(ptx: Instruction) -> int:
    """Return the oldest architecture that has an instruction, as 90 for sm_90; 0 if all have it."""
    needed = 0
    for row in _BY_OPCODE.get(ptx.opcode, ()):
        words = row.words.isdisjoint(ptx.flags) if row.words else False
        types = row.types.isdisjoint(ptx.types) if row.types else False
        if not words and not types:
            needed = max(needed, row.needed)
    return needed


# The class of an instruction, and the arithmetic operations that it counts as.
#
# An add or a multiply is one operation, a fused multiply-add two, each element of a packed pair counts, and
# a matrix instruction of M x N x K is 2 M N K for its warp. Minima, comparisons, conversions and moves are
# none.
#
# Source: PTX ISA, "Instruction Set" for the groups; NVIDIA, "Matrix Multiplication Background User's
# Guide" for the counts.


_WARP = 32
_FLOATS = frozenset({"f32", "f64", "f32x2"})
_HALVES = frozenset({"f16", "f16x2", "bf16", "bf16x2"})
_PACKED = frozenset({"f16x2", "bf16x2", "f32x2"})

_OPCODES_BY_CLASS = {
    "move": "mov selp slct cvta isspacep mapa getctarank prmt createpolicy alloca stacksave stackrestore",
    "convert": "cvt szext",
    "memory": "ld ldu st prefetch prefetchu applypriority discard",
    "atomic": "atom red multimem",
    "async": "cp mbarrier tensormap",
    "matrix": "mma wmma ldmatrix stmatrix movmatrix wgmma tcgen05",
    "warp": "shfl vote match redux activemask elect",
    "barrier": "bar barrier membar fence griddepcontrol nanosleep",
    "control": "bra brx ret exit call trap brkpt assertfail setmaxnreg pmevent",
}
CLASSES: Mapping[str, str] = {
    opcode: kind for kind, opcodes in _OPCODES_BY_CLASS.items() for opcode in opcodes.split()
}
"""Opcodes that are of one class whatever their type; all others are arithmetic of their type."""

# Functions of the special-function units where they are approximate.
_SPECIAL = frozenset({"rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"})
# Arithmetic operations of one element.
OPERATIONS: Mapping[str, int] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "atom", "red", *_SPECIAL), 1),
    **dict.fromkeys(("fma", "mad"), 2),
}
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")


def work_of(ptx: Instruction) -> tuple[str, str, int]:
    """Return the class of an instruction, the type of its operations, and how many a thread executes.

    The class is that of its opcode, or of the type that it computes in. The type is without the x2 of a
    pair, and empty if there are no operations. Those of a matrix instruction are divided among the threads
    of its warp.
    """
    opcode, type_ = ptx.opcode, ptx.types[-1] if ptx.types else ""
    is_half, is_float = type_ in _HALVES, type_ in _FLOATS
    kind = CLASSES.get(opcode, "half" if is_half else "float" if is_float else "integer")
    if opcode in _SPECIAL and "approx" in ptx.flags:
        kind = "special"
    if kind == "matrix":
        return _matrix(ptx)
    count = OPERATIONS.get(opcode, 0) * (2 if type_ in _PACKED else 1)
    if not count or not (is_half or is_float) or (kind == "atomic" and "add" not in ptx.flags):
        return kind, "", 0
    return kind, type_.removesuffix("x2"), count


def _matrix(ptx: Instruction) -> tuple[str, str, int]:
    shape = next(filter(None, map(_SHAPE.match, ptx.flags)), None)
    if shape is None or not {"mma", "mma_async"} & {ptx.opcode, *ptx.flags}:
        return "matrix", "", 0
    m, n, k = map(int, shape.groups())
    # d, a, b and c; wgmma's d is c as well; wmma of halves names d and c only.
    type_ = ptx.types[1] if len(ptx.types) > 2 else "f16"
    # The one shape of which a warp computes four at once (PTX ISA, "mma.m8n8k4").
    times = 4 if (m, n, k) == (8, 8, 4) and type_ == "f16" else 1
    threads = 4 * _WARP if ptx.opcode == "wgmma" else _WARP
    return "matrix", type_, times * 2 * m * n * k // threads


# Refusals: a kernel that holds what its architecture lacks, or what the simulator does not execute.


Refused = dict[str, list[tuple[str, int, Instruction]]]
"""For each spelling of an instruction that is not executed, its places: file, line and instruction."""


def refusal(refused: Refused, kernel: str) -> UnsupportedInstruction:
    """Return the error that names the instructions of a kernel that are not executed."""
    return unsupported("\n    ".join(_shown(places) for places in refused.values()), kernel)


_NEWEST = 1 << 16


def refuse_newer(linked: FlatKernel, target: str, kernel: str) -> None:
    """Refuse a kernel with instructions that its architecture lacks; PTX that names none has all.

    Raises:
        UnsupportedInstruction: Names them, and the oldest architecture that has all of them.
    """
    digits = re.search(r"\d+", target)
    own = int(digits[0]) if digits else _NEWEST
    lacking: Refused = {}
    oldest = own
    for instruction in linked.code:
        needed = needed_by(instruction.ptx)
        if needed > own:
            oldest = max(oldest, needed)
            spelling = ".".join((instruction.ptx.opcode, *instruction.ptx.flags))
            lacking.setdefault(spelling, []).append((*linked.location_of(instruction), instruction.ptx))
    if lacking:
        shown = "\n    ".join(_shown(places) for places in lacking.values())
        raise UnsupportedInstruction(
            f"{kernel} is compiled for {target}, which lacks:\n    {shown}\n"
            f"These instructions need sm_{oldest} or newer; no assembler takes them for {target}.\n"
            f'Simulate that one: dotcu.simulate(arch="sm_{oldest}"), or keep them behind '
            f"#if __CUDA_ARCH__ >= {oldest}0"
        )


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
    file, line, ptx = places[0]
    at = f"{file}:{line}" if line else "no source line"
    lines = [str(n) if f == file else f"{f}:{n}" for f, n, _ in places if n and (f, n) != (file, line)]
    others = list(dict.fromkeys(lines))
    more = f" and {len(others) - _SHOWN_LINES} more" if len(others) > _SHOWN_LINES else ""
    also = f" (also line{'s' * (len(others) > 1)} {', '.join(others[:_SHOWN_LINES])}{more})" if others else ""
    names = (ptx.opcode, *ptx.flags)
    why = next((f": {_REASONS[name]}" for name in names if name in _REASONS), "")
    return f"{at}: {ptx.text}{also}{why}"
