"""What an instruction counts as: its class, and the arithmetic operations that it stands for.

An add or a multiply is one operation, a fused multiply-add two, each element of a packed pair
counts, and a matrix instruction of M x N x K is 2 M N K for its warp. Minima, comparisons,
conversions and moves are none.

Source: PTX ISA, "Instruction Set" for the groups; the operation counts are the usual ones, as
NVIDIA's "Matrix Multiplication Background User's Guide" has them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from dotcu.ptx.instructions import Instruction

WARP = 32
_FLOATS = frozenset({"f32", "f64", "f32x2"})
_HALVES = frozenset({"f16", "f16x2", "bf16", "bf16x2"})
_PACKED = frozenset({"f16x2", "bf16x2", "f32x2"})

# Opcodes that are of one class whatever their type; all others are arithmetic of their type.
CLASSES: Mapping[str, str] = {
    **dict.fromkeys(("mov", "selp", "slct", "cvta", "isspacep", "mapa", "getctarank", "prmt"), "move"),
    "createpolicy": "move",
    **dict.fromkeys(("cvt", "szext"), "convert"),
    **dict.fromkeys(("ld", "ldu", "st", "prefetch", "prefetchu", "applypriority", "discard"), "memory"),
    **dict.fromkeys(("atom", "red", "multimem"), "atomic"),
    **dict.fromkeys(("cp", "mbarrier", "tensormap"), "async"),
    **dict.fromkeys(
        ("mma", "wmma", "ldmatrix", "stmatrix", "movmatrix", "wgmma", "tcgen05"),
        "matrix",
    ),
    **dict.fromkeys(("shfl", "vote", "match", "redux", "activemask", "elect"), "warp"),
    **dict.fromkeys(("bar", "barrier", "membar", "fence", "griddepcontrol", "nanosleep"), "barrier"),
    **dict.fromkeys(
        ("bra", "brx", "ret", "exit", "call", "trap", "brkpt", "assertfail", "setmaxnreg", "pmevent"),
        "control",
    ),
}
# Functions of the special-function units where they are approximate.
_SPECIAL = frozenset({"rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"})
# Arithmetic operations of one element.
OPERATIONS: Mapping[str, int] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "atom", "red", *_SPECIAL), 1),
    **dict.fromkeys(("fma", "mad"), 2),
}
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")


class Work(NamedTuple):
    """What one lane's run of an instruction counts.

    Attributes:
        kind: Its class: "integer", "float", "half", "special", "move", "convert", "memory",
            "atomic", "async", "matrix", "warp", "barrier" or "control".
        type: The type of its operations, without the x2 of a pair; empty if it has none.
        operations: How many; a matrix instruction's are shared out among the lanes of its warp.
    """

    kind: str
    type: str = ""
    operations: int = 0


def work_of(instruction: Instruction) -> Work:
    """The class and the operations of an instruction."""
    kind = class_of(instruction)
    if kind == "matrix":
        return _matrix(instruction)
    type_ = instruction.types[-1] if instruction.types else ""
    adds = kind != "atomic" or "add" in instruction.flags
    if not adds or type_ not in _FLOATS | _HALVES:
        return Work(kind)
    count = OPERATIONS.get(instruction.opcode, 0) * (2 if type_ in _PACKED else 1)
    return Work(kind, type_.removesuffix("x2"), count) if count else Work(kind)


def class_of(instruction: Instruction) -> str:
    """The class of an instruction: that of its opcode, or of the type that it computes in."""
    fixed = CLASSES.get(instruction.opcode)
    if fixed is not None:
        return fixed
    if instruction.opcode in _SPECIAL and "approx" in instruction.flags:
        return "special"
    type_ = instruction.types[-1] if instruction.types else ""
    if type_ in _HALVES:
        return "half"
    return "float" if type_ in _FLOATS else "integer"


def _matrix(instruction: Instruction) -> Work:
    shape = next((found for f in instruction.flags if (found := _SHAPE.match(f))), None)
    if shape is None or not {instruction.opcode, *instruction.flags} & {"mma"}:
        return Work("matrix")
    m, n, k = map(int, shape.groups())
    # d, a, b and c; wmma of halves names d and c only.
    type_ = instruction.types[1] if len(instruction.types) == 4 else "f16"
    # The one shape of which a warp computes four at once (PTX ISA, "mma.m8n8k4").
    times = 4 if (m, n, k) == (8, 8, 4) and type_ == "f16" else 1
    return Work("matrix", type_, times * 2 * m * n * k // WARP)
