"""PTX that becomes many instructions, a call or a loop, as a table: the slow paths of a listing.

A row holds for a PTX instruction; where it names machine instructions too, only if ptxas made such of it.

Source: what ptxas of CUDA 13.0 makes of each, for sm_75 to sm_120a.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ARITHMETIC = "add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|ex2|min|max|setp|set"


@dataclass(frozen=True)
class SlowPath:
    """A kind of PTX instruction that costs more than it looks.

    Attributes:
        ptx: Matches the beginning of its opcode.
        sass: Matches a machine instruction that shows it; None where the PTX is enough.
        message: What it becomes: `{ptx}` stands for the opcodes, `{sass}` for what was made of them.
    """

    kind: str
    ptx: re.Pattern[str]
    sass: re.Pattern[str] | None
    message: str


def _row(kind: str, ptx: str, sass: str | None, message: str) -> SlowPath:
    return SlowPath(kind, re.compile(ptx), re.compile(sass) if sass else None, message)


_LOOP = r"ATOM[SG]?\..*\b(CAS|SPIN)\b"

DOUBLE = "double"
TABLE = (
    _row(
        "integer division", r"(div|rem)\.[su](16|32|64)$", None,
        "{ptx} by a value that is known only at run time{sass}",
    ),
    _row(
        DOUBLE, rf"({_ARITHMETIC})\..*f64$", None,
        "{ptx} though no parameter is a double{sass}: "
        "does a constant lack its f, or a function have a form for float?",
    ),
    _row("division", r"div\.rn(\.ftz)?\.f32$", r"CALL", "{ptx}, rounded as IEEE 754 says{sass}"),
    _row("square root", r"sqrt\.rn(\.ftz)?\.f32$", r"CALL", "{ptx}, rounded as IEEE 754 says{sass}"),
    _row(
        "fp8 product", r"mma\..*\.(e4m3|e5m2)", r"F2FP\..*UNPACK",
        "{ptx} is not native here: operands are unpacked to f16 for HMMA{sass}",
    ),
    _row(
        "atomic by a loop", r"(atom|red)\..*\b(add|min|max|inc|dec|and|or|xor)\b", _LOOP,
        "{ptx} has a loop of compare-and-swap{sass}",
    ),
)  # fmt: skip

RANGE_REDUCTION = "0d3BF921FB54442D19"
"""pi / 2 * 2^-64: the one double that sinf, cosf and tanf compute with, for large angles alone."""

LOOPING_ATOMIC = re.compile(_LOOP)
"""An attempt to swap, which a loop repeats."""

NATIVE_ATOMIC = re.compile(r"(ATOM|RED)G?\.(?!.*\b(CAS|SPIN)\b)")
"""An atomic of global or generic memory that is no such attempt."""
