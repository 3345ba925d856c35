"""The instructions of a kernel by kind, counted, with their source lines.

The kinds are those that a person looks for in a listing, as tables.

Sources: CUDA Binary Utilities 13.0, "Instruction Set Reference", for the names of machine
instructions; PTX ISA 9.0, "Instruction Set"; and what ptxas of CUDA 13.0 makes of the PTX that is named, for
sm_75, sm_80, sm_89, sm_90a, sm_100a and sm_120a.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dotcu.inspection.assembly import SPILL, PtxLine, SassInstruction, shown_location
from dotcu.kernel.arguments.signature import shown_name
from dotcu.ptx.instructions import TYPE_BYTES
from dotcu.tile_ir.module import SourceLocation

MNEMONIC, LOAD, STORE = "{mnemonic}", "load, {bytes} B per thread", "store, {bytes} B per thread"
"""Labels, with slots for the instruction and the bytes that each thread loads or stores."""


class InstructionKind(NamedTuple):
    """A kind of instruction: `opcode` matches a whole machine opcode, or the beginning of one of PTX."""

    group: str
    opcode: re.Pattern[str]
    label: str
    meaning: str


GLOBAL, SHARED, LOCAL, GENERIC = "global memory", "shared memory", "local memory", "generic memory"
MATRIX, ASYNC, ATOMIC, BARRIER = "matrix", "asynchronous copies", "atomics", "barriers and fences"
CONSTANT = "constant memory"
WARP, SPECIAL, DOUBLE, HALF = "warp", "special functions", "double precision", "half precision"
CONVERT, CALL, TEXTURE = "conversions", "calls", "textures"

# The order in which a report lists them.
GROUPS = (
    MATRIX, ASYNC, GLOBAL, TEXTURE, SHARED, LOCAL, GENERIC, CONSTANT, ATOMIC, BARRIER, WARP, HALF, DOUBLE,
    SPECIAL, CONVERT, CALL,
)  # fmt: skip


def _rows(*rows: tuple[str, str, str, str]) -> tuple[InstructionKind, ...]:
    return tuple(
        InstructionKind(group, re.compile(opcode), label, meaning) for group, opcode, label, meaning in rows
    )


SASS = _rows(
    (MATRIX, r"HMMA", MNEMONIC, "product of halves or tf32 on the tensor cores, by a warp (mma.sync, wmma)"),
    (MATRIX, r"IMMA|BMMA", MNEMONIC, "product of integers on the tensor cores, by a warp (mma.sync, wmma)"),
    (MATRIX, r"DMMA", MNEMONIC, "product of doubles on the tensor cores, by a warp (mma.sync, wmma)"),
    (MATRIX, r"QMMA|OMMA", MNEMONIC,
     "product of 8 or 4-bit floats on the tensor cores, by a warp (mma.sync)"),
    (MATRIX, r"[HIQB]GMMA", MNEMONIC, "product on the tensor cores, by a group of four warps (wgmma)"),
    (MATRIX, r"UTC[HIQO]MMA", MNEMONIC, "product on the tensor cores, into tensor memory (tcgen05.mma)"),
    (MATRIX, r"LDSM", MNEMONIC, "tiles from shared memory to registers (ldmatrix)"),
    (MATRIX, r"STSM", MNEMONIC, "tiles from registers to shared memory (stmatrix)"),
    (MATRIX, r"LDTM|STTM", MNEMONIC, "tensor memory to registers, or back (tcgen05.ld, tcgen05.st)"),
    (MATRIX, r"UTCCP", MNEMONIC, "shared memory to tensor memory (tcgen05.cp)"),
    (ASYNC, r"LDGSTS", "LDGSTS, {bytes} B per thread",
     "global to shared memory, past the registers (cp.async)"),
    (ASYNC, r"UTMALDG", MNEMONIC, "a box of a tensor to shared memory, by the TMA (cp.async.bulk.tensor)"),
    (ASYNC, r"UTMASTG", MNEMONIC, "a box of a tensor from shared memory, by the TMA (cp.async.bulk.tensor)"),
    (ASYNC, r"UTMAREDG", MNEMONIC, "a reduction into a box, by the TMA (cp.reduce.async.bulk.tensor)"),
    (ASYNC, r"UTMAPF", MNEMONIC, "a box prefetched to L2 (cp.async.bulk.prefetch.tensor)"),
    (ASYNC, r"UBLKCP", MNEMONIC, "a run of bytes by the TMA (cp.async.bulk)"),
    (ASYNC, r"UBLKRED", MNEMONIC, "a reduction into a run of elements, by the TMA (cp.reduce.async.bulk)"),
    (ASYNC, r"UBLKPF", MNEMONIC, "a run of bytes prefetched to L2 (cp.async.bulk.prefetch)"),
    (ASYNC, r"STAS", MNEMONIC, "a store to another block's shared memory (st.async)"),
    (GLOBAL, r"LDG", LOAD, "from global memory to registers"),
    (GLOBAL, r"STG", STORE, "from registers to global memory"),
    (GLOBAL, r"LDGMC", MNEMONIC, "a reduction over the GPUs of a multicast address (multimem.ld_reduce)"),
    (SHARED, r"LDS", LOAD, "from shared memory to registers"),
    (SHARED, r"STS", STORE, "from registers to shared memory"),
    (TEXTURE, r"TEX|TLD4?|TMML|TXD|TXQ", MNEMONIC, "a read through the texture unit (tex, tld4)"),
    (TEXTURE, r"SULD|SUST|SURED|SUATOM", MNEMONIC, "a surface, read or written (suld, sust)"),
    (LOCAL, r"LDL", LOAD,
     "from the thread's own memory, which lies in global memory"),
    (LOCAL, r"STL", STORE,
     "to the thread's own memory, which lies in global memory"),
    (GENERIC, r"LD", LOAD, "from a generic address, or another block's shared memory"),
    (GENERIC, r"ST", STORE, "to a generic address, or another block's shared memory"),
    (CONSTANT, r"LDCU?", LOAD,
     "at an index, from a __constant__ variable or an array among the parameters"),
    (ATOMIC, r"ATOMG", MNEMONIC, "atomic in global memory that gives the value before"),
    (ATOMIC, r"REDG?", MNEMONIC, "atomic that gives nothing back"),
    (ATOMIC, r"ATOM", MNEMONIC, "atomic at a generic address"),
    (ATOMIC, r"ATOMS", MNEMONIC, "atomic in shared memory"),
    (BARRIER, r"BAR", MNEMONIC, "barrier of a block (bar.sync, __syncthreads)"),
    (BARRIER, r"SYNCS", MNEMONIC, "barrier object in shared memory (mbarrier)"),
    (BARRIER, r"UCGABAR_ARV|UCGABAR_WAIT", MNEMONIC, "barrier of a cluster (barrier.cluster)"),
    (BARRIER, r"WARPGROUP", MNEMONIC, "fence or wait of wgmma"),
    (BARRIER, r"WARPSYNC", MNEMONIC, "barrier of a warp"),
    (BARRIER, r"MEMBAR|FENCE", MNEMONIC, "fence (membar, fence)"),
    (WARP, r"SHFL", MNEMONIC, "register of another lane (shfl.sync)"),
    (WARP, r"VOTEU?|MATCH", MNEMONIC, "vote or match over a warp (vote.sync, match.sync)"),
    (WARP, r"C?REDUX", MNEMONIC, "reduction of integers over a warp (redux.sync)"),
    (HALF, r"HADD2|HMUL2|HFMA2|HMNMX2|HSETP2|HSET2", MNEMONIC, "arithmetic of pairs of halves"),
    (DOUBLE, r"DADD|DMUL|DFMA|DSETP|DMNMX", MNEMONIC, "arithmetic of doubles"),
    (SPECIAL, r"MUFU", MNEMONIC, "approximate reciprocal, root, exponential, logarithm, sine, cosine, tanh"),
    (CONVERT, r"I2F|I2FP|F2I|F2IP|F2F|F2FP|I2I|I2IP|FRND", MNEMONIC, "conversion of a type"),
    (CALL, r"CALL", "call of {target}", "a call of a function, or of a slow path"),
)  # fmt: skip

# Without a disassembler. ptxas still chooses: it may merge, split or drop what stands here.
TILE = _rows(
    (MATRIX, r"mma[fi]", MNEMONIC, "product of tiles"),
    (GLOBAL, r"load_", MNEMONIC, "a load of a tile"),
    (GLOBAL, r"store_", MNEMONIC, "a store of a tile"),
    (ATOMIC, r"atomic_", MNEMONIC, "read and write as one"),
)
"""The kinds of operations of Tile IR."""

PTX = _rows(
    (MATRIX, r"wgmma\.mma", MNEMONIC, "product on the tensor cores, by a group of four warps"),
    (MATRIX, r"w?mma\.(?!load|store)", MNEMONIC, "product on the tensor cores, by a warp"),
    (MATRIX, r"tcgen05\.(mma|ld|st|cp)\b", MNEMONIC, "tensor memory and the products in it"),
    (MATRIX, r"(ldmatrix|stmatrix|wmma\.load|wmma\.store)\b", MNEMONIC, "tiles, to or from registers"),
    (ASYNC, r"cp(\.reduce)?\.async\.bulk\.(?!commit|wait)", MNEMONIC, "a copy or a reduction by the TMA"),
    (ASYNC, r"cp\.async\.c[ag]\b", MNEMONIC, "global to shared memory, past the registers"),
    (GLOBAL, r"ldu?\b.*\.global\b", LOAD, "from global memory"),
    (GLOBAL, r"st\b.*\.global\b", STORE, "to global memory"),
    (SHARED, r"ld\b.*\.shared\b", LOAD, "from shared memory"),
    (SHARED, r"st\b.*\.shared\b", STORE, "to shared memory"),
    (TEXTURE, r"(tex|tld4|suld|sust|sured)\.", MNEMONIC, "a texture or a surface"),
    (LOCAL, r"ld\b.*\.local\b", LOAD, "from the thread's own memory"),
    (LOCAL, r"st\b.*\.local\b", STORE, "to the thread's own memory"),
    (CONSTANT, r"ld\b.*\.const\b", LOAD, "from a __constant__ variable"),
    (GENERIC, r"ld\.(?!.*\b(param|const)\b)", LOAD, "from a generic address"),
    (GENERIC, r"st\.(?!.*\bparam\b)", STORE, "to a generic address"),
    (ATOMIC, r"(atom|red|multimem)\.", MNEMONIC, "atomic"),
    (BARRIER, r"(bar|barrier|mbarrier|membar|fence)\.", MNEMONIC, "barrier or fence"),
    (WARP, r"(shfl|vote|match|redux)\.", MNEMONIC, "exchange in a warp"),
    (HALF, r"(add|sub|mul|fma|min|max)\..*b?f16(x2)?$", MNEMONIC, "arithmetic of halves"),
    (DOUBLE, r"(add|sub|mul|fma|div|rcp|sqrt|rsqrt|min|max|setp)\..*f64$", MNEMONIC, "arithmetic of doubles"),
    (SPECIAL, r"(rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh)\.approx", MNEMONIC, "approximate function"),
    (CONVERT, r"cvt\..*f(16|32|64)", MNEMONIC, "conversion of a type"),
    (CALL, r"call\b", "call", "a call of a function"),
)


NEVER = ("@!PT", "@!UPT")
"""Guards of instructions that no thread executes. ptxas emits some on purpose, as before LDGSTS."""

_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_REGISTER_BYTES = 4
_REGISTER = re.compile(r"U?R\d+\b")
_INDEXED = re.compile(r"c\[0x[03]\]\s*\[U?R\d")  # bank 4 is the compiler's own
_VECTOR = re.compile(r"\.v([248])\b")


@dataclass(frozen=True, kw_only=True)
class InstructionCount:
    """The instructions of one kind in a kernel's code, and how many come from which source line."""

    group: str
    label: str
    meaning: str
    count: int
    locations: tuple[tuple[SourceLocation, int], ...]


_Counted = tuple[InstructionKind, str, "SourceLocation | None"]
"""The kind of an instruction, its label, and the line that it is shown at."""


def count_sass(
    instructions: Sequence[SassInstruction], file: str, callees: Mapping[int, str]
) -> tuple[InstructionCount, ...]:
    """Count machine instructions of a kernel by kind; `callees` has what lines of its PTX call by name."""
    counted: list[_Counted] = []
    for instruction in instructions:
        kind = kind_of(instruction) if is_executed(instruction) and not _is_move(instruction) else None
        # A parameter is loaded by LDC too, at an address that is known.
        if kind and (kind.group != CONSTANT or any(map(_INDEXED.search, instruction.operands))):
            label = _label(kind, instruction, callees)
            counted.append((kind, label, shown_location(instruction.chain, file)))
    return _grouped(counted)


def count_ptx(
    lines: Sequence[PtxLine], file: str, kinds: Sequence[InstructionKind] = PTX
) -> tuple[InstructionCount, ...]:
    """Count instructions of a kernel's PTX, or of a tile kernel's Tile IR, where there is no disassembler."""
    counted: list[_Counted] = []
    for line in lines:
        for opcode in line.opcodes:
            kind = next((kind for kind in kinds if kind.opcode.match(opcode)), None)
            if kind is not None:
                vector = _VECTOR.search(opcode)
                size = TYPE_BYTES.get(opcode.rpartition(".")[2], _REGISTER_BYTES)
                text = kind.label.format(mnemonic=opcode, bytes=size * (int(vector[1]) if vector else 1))
                counted.append((kind, text, shown_location(line.chain, file)))
    return _grouped(counted)


def width_bytes(instruction: SassInstruction) -> int:
    """Return the bytes that each thread loads or stores."""
    return next((_WIDTHS[word] for word in instruction.modifiers if word in _WIDTHS), _REGISTER_BYTES)


def is_executed(instruction: SassInstruction) -> bool:
    """Return whether its guard lets any thread execute it."""
    return instruction.predicate not in NEVER


def kind_of(instruction: SassInstruction) -> InstructionKind | None:
    """Return the kind of a machine instruction; None if no kind has its opcode."""
    return next((kind for kind in SASS if kind.opcode.fullmatch(instruction.opcode)), None)


def _is_move(instruction: SassInstruction) -> bool:
    """Return whether it only loads a constant: HFMA2.MMA R4, -RZ, RZ, 0, 0 computes nothing."""
    return instruction.opcode == "HFMA2" and {"RZ", "-RZ"}.issuperset(instruction.operands[1:3])


def _label(kind: InstructionKind, instruction: SassInstruction, callees: Mapping[int, str]) -> str:
    target = _callee(instruction, callees) if kind.group == CALL else ""
    bytes = width_bytes(instruction)
    text = kind.label.format(mnemonic=instruction.mnemonic, bytes=bytes, target=target)
    return f"spill {text}" if kind.group == LOCAL and instruction.note == SPILL else text


def _callee(instruction: SassInstruction, callees: Mapping[int, str]) -> str:
    """Return the name of the called function, without what ptxas puts before it.

    A function of the driver, such as malloc, is called through a register; its PTX has the name.
    """
    if any(_REGISTER.match(operand) for operand in instruction.operands[:1]):
        named = callees.get(instruction.ptx_line)
        return shown_name(named) if named else "a function by its address"
    target = re.sub(r"^\$__internal_\d+_\$|^\$.*\$", "", instruction.target)
    return shown_name(target) if target else "a function by its address"


def _grouped(counted: Sequence[_Counted]) -> tuple[InstructionCount, ...]:
    by_label: dict[tuple[str, str, str], Counter[SourceLocation | None]] = {}
    for kind, label, location in counted:
        by_label.setdefault((kind.group, label, kind.meaning), Counter())[location] += 1
    ordered = sorted(by_label.items(), key=lambda item: (GROUPS.index(item[0][0]), item[0][1]))
    return tuple(
        InstructionCount(
            group=group,
            label=label,
            meaning=meaning,
            count=sum(counts.values()),
            locations=tuple((at, count) for at, count in counts.most_common() if at is not None),
        )
        for (group, label, meaning), counts in ordered
    )
