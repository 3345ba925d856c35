"""Findings in a kernel that are worth a look, each with its source line: emitted code, and simulated counts.

A remark does not say that a kernel is slow: it says what is in the code, and what the simulator saw.
Counts hold for the call that was simulated, and for the PTX that the simulator ran: ptxas may merge or move
accesses. Sectors and wavefronts are the hardware's, as `dotcu.simulate` counts them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dotcu.compile.source.lexer import without_comments
from dotcu.inspection.code.build import KernelCode
from dotcu.inspection.code.instruction_kinds import is_executed, width_bytes
from dotcu.inspection.code.locations import SourceLocation, shown_location
from dotcu.inspection.code.ptx import PtxLine
from dotcu.inspection.code.sass import SPILL, SassFunction, SassInstruction
from dotcu.simulator import LineCounters

_DOUBLE_WORD = re.compile(r"\bdouble\b")
_NO_DOUBLES = re.compile(
    r"(const|volatile|unsigned|signed|char|short|int|long|float|bool|__half2?|__nv_bfloat16\d?|__nv_fp8\w*"
    r"|dotcu::tensor|[\s<>*,\d])*"
)
_LOCAL = {"LDL": "load", "STL": "store"}
_SECTOR_BYTES = 32
_WIDEST = 16

FEW_REQUESTS = 8
"""The least requests of a line for a remark: fewer show only the edges of a small call."""

POOR_SECTORS = 0.75
"""Ideal number of sectors over those touched: a line below it gets a remark."""

MANY_WAVEFRONTS = 1.25
"""Wavefronts over those without bank conflicts: a line from here on gets a remark."""

FEW_LANES, MUCH_WORK = 16.0, 0.05
"""A line gets a remark below this average of active lanes, from this share of issued instructions on."""

ALL_BUT_IDEAL = 0.99


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A finding that is worth a look. `str()` begins with its location.

    Attributes:
        kind: A few words that a program can look for: "integer division", "spill", "uncoalesced".
        location: The source line; None if it is of the whole kernel.
        near: The compiler gives no line for it, and this is the nearest one before it.
    """

    kind: str
    location: SourceLocation | None
    message: str
    near: bool = False

    def __str__(self) -> str:
        near = "near " if self.near else ""
        return f"{near}{self.location}: {self.message}" if self.location else self.message


@dataclass(frozen=True)
class SlowPath:
    """A kind of PTX instruction that costs more than it looks: many instructions, a call or a loop.

    Attributes:
        ptx: Matches the beginning of its opcode.
        sass: Matches a machine instruction that shows it; None if the PTX is enough.
        message: The remark: `{ptx}` stands for the opcodes, `{sass}` for what was made of them.
    """

    kind: str
    ptx: re.Pattern[str]
    sass: re.Pattern[str] | None
    message: str


def _row(kind: str, ptx: str, sass: str | None, message: str) -> SlowPath:
    return SlowPath(kind, re.compile(ptx), re.compile(sass) if sass else None, message)


_ARITHMETIC = "add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|ex2|min|max|setp|set"
_LOOP = r"ATOM[SG]?\..*\b(CAS|SPIN)\b"
DOUBLE = "double"

# Source: what ptxas of CUDA 13.0 makes of each, for sm_75 to sm_120a.
SLOW_PATHS = (
    _row(
        "integer division", r"(div|rem)\.[su](16|32|64)$", None,
        "{ptx} by a value that is known only at run time{sass}",
    ),
    _row(
        DOUBLE, rf"({_ARITHMETIC})\..*f64$", None,
        "{ptx} and no parameter is a double{sass}: "
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
"""pi / 2 * 2^-64: the one double that sinf, cosf and tanf compute with, for large angles only."""

LOOPING_ATOMIC = re.compile(_LOOP)
"""An attempt to swap, which a loop repeats."""

NATIVE_ATOMIC = re.compile(r"(ATOM|RED)G?\.(?!.*\b(CAS|SPIN)\b)")
"""An atomic of global or generic memory that is not such an attempt."""


def code_remarks(code: KernelCode, function: SassFunction | None) -> tuple[Remark, ...]:
    """Return the remarks on the code of a kernel.

    Args:
        code: The compiled kernel.
        function: Its machine code; None if there is no disassembler, and PTX has to do.
    """
    found = [*_slow_paths(code, function), *_local_memory(code, function)]
    return tuple(sorted(found, key=lambda remark: (remark.location or SourceLocation("", 0), remark.kind)))


def _slow_paths(code: KernelCode, function: SassFunction | None) -> Iterator[Remark]:
    # The opcodes and PTX lines of each kind, by source line and whether the compiler gives that line.
    sites: dict[tuple[SlowPath, SourceLocation | None, bool], list[tuple[str, int]]] = {}
    wants_no_double = _wants_no_double(code)
    for line, location in _located(code):
        for opcode, statement in zip(line.opcodes, line.statements, strict=True):
            for path in SLOW_PATHS:
                meant = path.kind == DOUBLE and (not wants_no_double or RANGE_REDUCTION in statement)
                if path.ptx.match(opcode) and not meant:
                    sites.setdefault((path, location, not line.chain), []).append((opcode, line.number))
    for (path, location, without_line), site in sites.items():
        lines = {number for _, number in site}
        emitted = _emitted(function, lines) if function is not None else []
        if path.sass is not None and not any(path.sass.match(i.mnemonic) for i in emitted):
            continue
        counts = Counter(opcode for opcode, _ in site)
        opcodes = ", ".join(f"{count} {name}" if count > 1 else name for name, count in counts.items())
        text = path.message.format(ptx=opcodes, sass=_only_in_shared(emitted) + _size(function, emitted))
        if without_line:
            text += f" (PTX line {min(lines)}; the compiler gives no source line)"
        near = without_line and location is not None
        yield Remark(kind=path.kind, location=location, message=text, near=near)


def _located(code: KernelCode) -> Iterator[tuple[PtxLine, SourceLocation | None]]:
    """Yield the lines of PTX with their source line, or with the nearest one before it in the function."""
    last, number = None, 0
    for line in code.ptx:
        if line.number != number + 1:
            last = None
        last, number = shown_location(line.chain, code.file) or last, line.number
        yield line, last


def _wants_no_double(code: KernelCode) -> bool:
    """Return whether nothing known of a kernel asks for doubles: name, own lines, every parameter."""
    own = {at.line for line in code.ptx for at in line.chain if at.file == code.file}
    text = without_comments(code.texts.get(code.file, "")).splitlines()
    source = "\n".join(text[number - 1] for number in sorted(own) if number <= len(text))
    if _DOUBLE_WORD.search(code.name) or _DOUBLE_WORD.search(source) or code.parameters is None:
        return False
    return all(_NO_DOUBLES.fullmatch(parameter) for parameter in code.parameters)


def _emitted(function: SassFunction, lines: set[int]) -> list[SassInstruction]:
    """Return the machine instructions that ptxas made of some PTX lines."""
    return [i for i in function.instructions if i.ptx_line in lines and is_executed(i)]


def _only_in_shared(emitted: Sequence[SassInstruction]) -> str:
    """Return what to add for an atomic at a generic address: for global memory it has a native form too."""
    native = any(NATIVE_ATOMIC.match(i.mnemonic) for i in emitted)
    loops = {i.opcode for i in emitted if LOOPING_ATOMIC.match(i.mnemonic)}
    return " for an address in shared memory" if native and loops == {"ATOMS"} else ""


def _size(function: SassFunction | None, emitted: Sequence[SassInstruction]) -> str:
    """Return `, 31 instructions and a call of a subroutine of 83`; empty without a disassembler."""
    if function is None or not emitted:
        return ""
    calls = dict.fromkeys(i.target for i in emitted if i.opcode == "CALL" and i.target in function.routines)
    sizes = [str(len(function.of_routine(name))) for name in calls]
    count = f"{len(emitted)} instruction{'s' if len(emitted) > 1 else ''}"
    return f", {count}" + (f" and a call of a subroutine of {' and of '.join(sizes)}" if sizes else "")


def _local_memory(code: KernelCode, function: SassFunction | None) -> Iterator[Remark]:
    if function is None:
        used = code.resources
        if used is not None and used.spill_store_bytes + used.spill_load_bytes:
            amounts = f"{used.spill_store_bytes} B of stores and {used.spill_load_bytes} B of loads"
            yield Remark(
                kind="spill", location=None, message=f"registers are spilled to local memory: {amounts}"
            )
        return
    for spilled, kind, what in (
        (True, "spill", "of registers that did not fit"),
        (False, "local memory", "of an array, an argument or a frame of a call"),
    ):
        sites: dict[SourceLocation | None, list[SassInstruction]] = {}
        for i in function.instructions:
            if i.opcode in _LOCAL and is_executed(i) and (i.note == SPILL) is spilled:
                sites.setdefault(shown_location(i.chain, code.file), []).append(i)
        for location, some in sites.items():
            yield Remark(kind=kind, location=location, message=f"local memory: {_accesses(some)} {what}")


def _accesses(instructions: Sequence[SassInstruction]) -> str:
    """Return `2 stores (8 B) and 1 load (4 B)`, a lane's bytes."""
    parts = []
    for opcode in ("STL", "LDL"):
        some = [i for i in instructions if i.opcode == opcode]
        if some:
            word = _LOCAL[opcode] + ("s" if len(some) > 1 else "")
            parts.append(f"{len(some)} {word} ({sum(map(width_bytes, some))} B)")
    return " and ".join(parts)


def count_remarks(
    total: LineCounters,
    lines: Mapping[SourceLocation, LineCounters],
    sass: Sequence[SassInstruction],
    file: str,
) -> tuple[Remark, ...]:
    """Return the remarks on the counts of a simulated call.

    Args:
        total: Of all lines together.
        lines: By source line.
        sass: The machine instructions, for the widths that were emitted; empty if there are none.
        file: The kernel's own file.
    """
    found: list[Remark] = []
    for at, line in sorted(lines.items()):
        found += [*_sectors(at, line), *_banks(at, line), *_lanes(at, line, total)]
        found += _narrow(at, line, [i for i in sass if shown_location(i.chain, file) == at])
    return tuple(found)


def _sectors(at: SourceLocation, line: LineCounters) -> Iterator[Remark]:
    if line.global_requests < FEW_REQUESTS or line.sector_efficiency >= POOR_SECTORS:
        return
    had, ideal = line.sectors_per_request, line.ideal_sectors / line.global_requests
    counts = f"{had:.1f} sectors a request, where {ideal:.1f} would hold the same bytes"
    used = f"{line.sector_efficiency:.0%} of the moved bytes are used"
    yield Remark(kind="uncoalesced", location=at, message=f"global memory: {counts} ({used})")


def _banks(at: SourceLocation, line: LineCounters) -> Iterator[Remark]:
    if line.shared_requests < FEW_REQUESTS or not line.ideal_wavefronts:
        return
    ratio = line.shared_wavefronts / line.ideal_wavefronts
    if ratio >= MANY_WAVEFRONTS:
        counts = f"{ratio:.1f} times the wavefronts that it would take without bank conflicts"
        yield Remark(kind="bank conflicts", location=at, message=f"shared memory: {counts}")


def _lanes(at: SourceLocation, line: LineCounters, total: LineCounters) -> Iterator[Remark]:
    issued = line.warp_instructions / total.warp_instructions if total.warp_instructions else 0.0
    if issued >= MUCH_WORK and line.active_lanes < FEW_LANES:
        yield Remark(
            kind="idle lanes",
            location=at,
            message=f"{line.active_lanes:.1f} of 32 lanes at work on average, in {issued:.0%} of the "
            "instructions that were issued",
        )


def _narrow(at: SourceLocation, line: LineCounters, sass: Sequence[SassInstruction]) -> Iterator[Remark]:
    """Remark on neighbouring lanes that access neighbouring elements, a few bytes each."""
    accesses = [i for i in sass if i.opcode in ("LDG", "STG") and is_executed(i)]
    widths = sorted({width_bytes(i) for i in accesses})
    side_by_side = (
        line.global_requests >= FEW_REQUESTS
        and line.sector_efficiency >= ALL_BUT_IDEAL
        and line.ideal_sectors * _SECTOR_BYTES >= ALL_BUT_IDEAL * line.global_bytes
        and line.atomics == 0
    )
    if widths and widths[-1] * 2 <= _WIDEST and side_by_side:
        emitted = " and ".join(f"{width} B" for width in widths)
        yield Remark(
            kind="narrow access",
            location=at,
            message=f"global memory: {emitted} a lane, side by side; {_WIDEST} B a lane would be "
            f"{_WIDEST // widths[-1]} times fewer accesses, where layout and alignment allow it",
        )
