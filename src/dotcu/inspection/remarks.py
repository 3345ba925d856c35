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
from typing import TypeAlias

from dotcu.compile.source.lexer import without_comments
from dotcu.inspection.assembly import SPILL, SassFunction, SassInstruction, routines, shown_location
from dotcu.inspection.build import KernelCode
from dotcu.inspection.instruction_kinds import is_executed, width_bytes
from dotcu.simulator import LineCounters
from dotcu.tile_ir.module import SourceLocation

_DOUBLE_WORD = re.compile(r"\bdouble\b")
_NO_DOUBLES = re.compile(
    r"(const|volatile|unsigned|signed|char|short|int|long|float|bool|__half2?|__nv_bfloat16\d?|__nv_fp8\w*"
    r"|dotcu::tensor|[\s<>*,\d])*"
)
_LOCAL = {"STL": "store", "LDL": "load"}
_SECTOR_BYTES = 32
_WIDEST = 16

FEW_REQUESTS = 8
"""The least requests of a line for a remark: fewer show only the edges of a small call."""

POOR_SECTORS = 0.75
"""Ideal number of sectors over those touched: a line below it gets a remark."""

MANY_WAVEFRONTS = 1.25
"""Wavefronts over those without bank conflicts: a line with more gets a remark."""

FEW_LANES, MUCH_WORK = 16.0, 0.05
"""A line gets a remark below this average of active lanes, from this share of issued instructions on."""

ALL_BUT_IDEAL = 0.99


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A finding that is worth a look. `str()` begins with its location.

    Attributes:
        kind: "integer division", "spill", "uncoalesced", ...
        location: The source line; None for the whole kernel.
        near: The compiler gives no line for it, and this is the nearest one before it.
    """

    kind: str
    location: SourceLocation | None
    message: str
    near: bool = False

    def __str__(self) -> str:
        near = "near " if self.near else ""
        return f"{near}{self.location}: {self.message}" if self.location else self.message


SlowPath: TypeAlias = tuple[str, re.Pattern[str], re.Pattern[str] | None, str]
"""A kind of PTX instruction that costs more than it looks: many instructions, a call or a loop.

Its name; what the opcode begins with; the machine instruction that shows it, None if the PTX is enough; the
remark, in which `{ptx}` stands for the opcodes and `{sass}` for what was made of them.
"""


def _row(kind: str, ptx: str, sass: str | None, message: str) -> SlowPath:
    return kind, re.compile(ptx), re.compile(sass) if sass else None, message


_ARITHMETIC = "add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|ex2|min|max|setp|set"
_LOOP = r"ATOM[SG]?\..*\b(CAS|SPIN)\b"
DOUBLE = "double"

# Source: what ptxas of CUDA 13.0 makes of each, for sm_75 to sm_120a.
SLOW_PATHS = (
    _row(
        "integer division", r"(div|rem)\.[su](16|32|64)$", None,
        "{ptx} by a value known only at run time{sass}",
    ),
    _row(
        DOUBLE, rf"({_ARITHMETIC})\..*f64$", None,
        "{ptx}, though no parameter is a double{sass}: "
        "is a constant missing its f suffix, or is there a float form of the function?",
    ),
    _row("division", r"div\.rn(\.ftz)?\.f32$", r"CALL", "{ptx}, with IEEE 754 rounding{sass}"),
    _row("square root", r"sqrt\.rn(\.ftz)?\.f32$", r"CALL", "{ptx}, with IEEE 754 rounding{sass}"),
    _row(
        "fp8 product", r"mma\..*\.(e4m3|e5m2)", r"F2FP\..*UNPACK",
        "{ptx} is not native here: operands are unpacked to f16 for HMMA{sass}",
    ),
    _row(
        "atomic by a loop", r"(atom|red)\..*\b(add|min|max|inc|dec|and|or|xor)\b", _LOOP,
        "{ptx} is a compare-and-swap loop{sass}",
    ),
)  # fmt: skip

RANGE_REDUCTION = "0d3BF921FB54442D19"
"""pi / 2 * 2^-64: the one double that sinf, cosf and tanf compute with, for large angles only."""

LOOPING_ATOMIC = re.compile(_LOOP)
"""An attempt to swap, which a loop repeats."""

NATIVE_ATOMIC = re.compile(r"(ATOM|RED)G?\.(?!.*\b(CAS|SPIN)\b)")
"""An atomic of global or generic memory that is not such an attempt."""


def code_remarks(code: KernelCode, function: SassFunction | None) -> tuple[Remark, ...]:
    """Return the remarks on the code of a kernel; without a disassembler, by its PTX."""
    remarks = [*_slow_paths(code, function), *_local_memory(code, function)]
    return tuple(sorted(remarks, key=lambda remark: (remark.location or SourceLocation("", 0), remark.kind)))


def _slow_paths(code: KernelCode, function: SassFunction | None) -> Iterator[Remark]:
    # The opcodes and PTX lines of each kind, by source line and whether the compiler gives that line.
    sites: dict[tuple[SlowPath, SourceLocation | None, bool], list[tuple[str, int]]] = {}
    wants_no_double = _wants_no_double(code)
    location: SourceLocation | None = None
    number = 0
    for line in code.ptx:  # at its source line, or at the nearest one before it in the function
        location = shown_location(line.chain, code.file) or (location if line.number == number + 1 else None)
        number = line.number
        for opcode, statement in zip(line.opcodes, line.statements, strict=True):
            for path in SLOW_PATHS:
                kind, pattern, _, _ = path
                meant = kind == DOUBLE and (not wants_no_double or RANGE_REDUCTION in statement)
                if pattern.match(opcode) and not meant:
                    sites.setdefault((path, location, not line.chain), []).append((opcode, line.number))
    for ((kind, _, shown, message), at, without_line), site in sites.items():
        lines = {number for _, number in site}
        emitted = [i for i in function or () if i.ptx_line in lines and is_executed(i)]
        if shown is not None and not any(shown.match(i.mnemonic) for i in emitted):
            continue
        counts = Counter(opcode for opcode, _ in site)
        opcodes = ", ".join(f"{count} {name}" if count > 1 else name for name, count in counts.items())
        text = message.format(ptx=opcodes, sass=_emitted(function, emitted))
        if without_line:
            text += f" (PTX line {min(lines)}; the compiler gives no source line)"
        yield Remark(kind=kind, location=at, message=text, near=without_line and at is not None)


def _wants_no_double(code: KernelCode) -> bool:
    """Return whether nothing known of a kernel asks for doubles: name, own lines, every parameter."""
    own = {at.line for line in code.ptx for at in line.chain if at.file == code.file}
    text = without_comments(code.texts.get(code.file, "")).splitlines()
    source = "\n".join(text[number - 1] for number in sorted(own) if number <= len(text))
    if _DOUBLE_WORD.search(code.name) or _DOUBLE_WORD.search(source) or code.parameters is None:
        return False
    return all(_NO_DOUBLES.fullmatch(parameter) for parameter in code.parameters)


def _emitted(function: SassFunction | None, emitted: Sequence[SassInstruction]) -> str:
    """Return `, 31 instructions and a call of a subroutine of 83`; empty without a disassembler."""
    if function is None or not emitted:
        return ""
    # An atomic at a generic address that has a native form for global memory, and a loop for the rest.
    native = any(NATIVE_ATOMIC.match(i.mnemonic) for i in emitted)
    loops = {i.opcode for i in emitted if LOOPING_ATOMIC.match(i.mnemonic)}
    text = " for an address in shared memory" if native and loops == {"ATOMS"} else ""
    text += f", {len(emitted)} instruction{'s' if len(emitted) > 1 else ''}"
    counts = routines(function)
    calls = dict.fromkeys(i.target for i in emitted if i.opcode == "CALL" and i.target in counts)
    sizes = " and of ".join(str(counts[name]) for name in calls)
    return text + (f" and a call of a subroutine of {sizes}" if sizes else "")


def _local_memory(code: KernelCode, function: SassFunction | None) -> Iterator[Remark]:
    if function is None:
        used = code.resources
        if used is not None and used.spill_store_bytes + used.spill_load_bytes:
            amounts = f"{used.spill_store_bytes} B of stores and {used.spill_load_bytes} B of loads"
            yield Remark(
                kind="spill", location=None, message=f"registers are spilled to local memory: {amounts}"
            )
        return
    sites: dict[tuple[bool, SourceLocation | None], list[SassInstruction]] = {}
    for i in function:
        if i.opcode in _LOCAL and is_executed(i):
            sites.setdefault((i.note == SPILL, shown_location(i.chain, code.file)), []).append(i)
    for (spilled, location), instructions in sites.items():
        accesses = []  # `2 stores (8 B)`, of each thread
        for opcode, word in _LOCAL.items():
            some = [i for i in instructions if i.opcode == opcode]
            if some:
                plural = "s" if len(some) > 1 else ""
                accesses.append(f"{len(some)} {word}{plural} ({sum(map(width_bytes, some))} B)")
        purpose = "registers that did not fit" if spilled else "an array, an argument or a frame of a call"
        yield Remark(
            kind="spill" if spilled else "local memory",
            location=location,
            message=f"local memory: {' and '.join(accesses)} of {purpose}",
        )


def count_remarks(
    total: LineCounters,
    lines: Mapping[SourceLocation, LineCounters],
    sass: Sequence[SassInstruction],
    file: str,
) -> tuple[Remark, ...]:
    """Return the remarks on the counts of a simulated call; `sass` has the widths of accesses."""
    return tuple(
        Remark(kind=kind, location=at, message=message)
        for at, line in sorted(lines.items())
        for kind, message in (
            *_count_remarks(line, total),
            *_narrow(line, [i for i in sass if shown_location(i.chain, file) == at]),
        )
    )


def _count_remarks(line: LineCounters, total: LineCounters) -> Iterator[tuple[str, str]]:
    if line.global_requests >= FEW_REQUESTS and line.sector_efficiency < POOR_SECTORS:
        had, ideal = line.sectors_per_request, line.ideal_sectors / line.global_requests
        counts = f"{had:.1f} sectors per request, where {ideal:.1f} would be enough"
        used = f"{line.sector_efficiency:.0%} of the bytes moved are used"
        yield "uncoalesced", f"global memory: {counts} ({used})"
    wavefronts = line.shared_wavefronts / line.ideal_wavefronts if line.ideal_wavefronts else 0.0
    if line.shared_requests >= FEW_REQUESTS and wavefronts >= MANY_WAVEFRONTS:
        counts = f"{wavefronts:.1f} times as many wavefronts as without bank conflicts"
        yield "bank conflicts", f"shared memory: {counts}"
    issued = line.warp_instructions / total.warp_instructions if total.warp_instructions else 0.0
    if issued >= MUCH_WORK and line.active_lanes < FEW_LANES:
        lanes = f"{line.active_lanes:.1f} of 32 threads per warp active on average"
        yield "idle lanes", f"{lanes}, in {issued:.0%} of the issued instructions"


def _narrow(line: LineCounters, sass: Sequence[SassInstruction]) -> Iterator[tuple[str, str]]:
    """Remark on adjacent threads that access adjacent elements, a few bytes each."""
    widths = sorted({width_bytes(i) for i in sass if i.opcode in ("LDG", "STG") and is_executed(i)})
    side_by_side = (
        line.global_requests >= FEW_REQUESTS
        and line.sector_efficiency >= ALL_BUT_IDEAL
        and line.ideal_sectors * _SECTOR_BYTES >= ALL_BUT_IDEAL * line.global_bytes
        and line.atomics == 0
    )
    if widths and widths[-1] * 2 <= _WIDEST and side_by_side:
        now = f"{' and '.join(f'{width} B' for width in widths)} per thread, adjacent"
        fewer = f"{_WIDEST} B per thread needs {_WIDEST // widths[-1]} times fewer accesses"
        yield "narrow access", f"global memory: {now}; {fewer}, if layout and alignment allow it"
