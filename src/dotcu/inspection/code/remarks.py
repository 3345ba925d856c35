"""What is worth a look in a kernel, each with its source line: what was emitted, and what was counted.

Nothing here says that a kernel is slow: it says what stands in the code, and what the simulator saw.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dotcu.compile.lexing import without_comments
from dotcu.inspection.code.emitted import is_executed, width_bytes
from dotcu.inspection.code.places import Place, user_place
from dotcu.inspection.code.ptx import PtxLine
from dotcu.inspection.code.sass import SPILL, Function, Instruction
from dotcu.inspection.code.slow import DOUBLE, LOOPING_ATOMIC, NATIVE_ATOMIC, RANGE_REDUCTION, TABLE, SlowPath
from dotcu.inspection.code.units import KernelCode

_DOUBLE = re.compile(r"\bdouble\b")
_PLAIN = re.compile(
    r"(const|volatile|unsigned|signed|char|short|int|long|float|bool|__half2?|__nv_bfloat16\d?|__nv_fp8\w*"
    r"|dotcu::tensor|[\s<>*,\d])*"
)


@dataclass(frozen=True, kw_only=True)
class Remark:
    """Something that is worth a look. `str()` begins with its place.

    Attributes:
        kind: A few words that a program can look for: "integer division", "spill", "uncoalesced".
        place: The source line; None where it is of the whole kernel.
        near: The compiler tells no line of it, and this is the nearest one before it.
    """

    kind: str
    place: Place | None
    message: str
    near: bool = False

    def __str__(self) -> str:
        near = "near " if self.near else ""
        return f"{near}{self.place}: {self.message}" if self.place else self.message


def of_code(code: KernelCode, function: Function | None) -> tuple[Remark, ...]:
    """What the code of a kernel shows.

    Args:
        function: Its machine code; None where there is no disassembler, and PTX has to do.
    """
    found = [*_slow_paths(code, function), *_local_memory(code, function)]
    return tuple(sorted(found, key=lambda remark: (remark.place or Place("", 0), remark.kind)))


@dataclass
class _Site:
    """The PTX instructions of one kind on one source line, and what was made of them."""

    opcodes: Counter[str] = field(default_factory=Counter)
    lines: set[int] = field(default_factory=set)


def _slow_paths(code: KernelCode, function: Function | None) -> Iterator[Remark]:
    sites: dict[tuple[SlowPath, Place | None, bool], _Site] = {}
    unwanted = _wants_no_double(code)
    for line, place in _placed(code):
        for opcode, statement in zip(line.opcodes, line.statements, strict=True):
            for path in TABLE:
                if path.ptx.match(opcode) and _applies(path, statement, unwanted):
                    site = sites.setdefault((path, place, not line.chain), _Site())
                    site.opcodes[opcode] += 1
                    site.lines.add(line.number)
    for (path, place, untold), site in sites.items():
        made = _made(function, site.lines) if function is not None else []
        shown = path.sass is None or any(path.sass.match(i.mnemonic) for i in made)
        if shown:
            opcodes = ", ".join(
                f"{count} {name}" if count > 1 else name for name, count in site.opcodes.items()
            )
            text = path.message.format(ptx=opcodes, sass=_only_in_shared(made) + _told(function, made))
            where = f" (PTX line {min(site.lines)}; the compiler tells no source line)" if untold else ""
            near = untold and place is not None
            yield Remark(kind=path.kind, place=place, message=text + where, near=near)


def _placed(code: KernelCode) -> Iterator[tuple[PtxLine, Place | None]]:
    """The lines of PTX with their source line, or with the nearest one before it in the same function."""
    last, number = None, 0
    for line in code.ptx:
        if line.number != number + 1:
            last = None
        last, number = user_place(line.chain, code.home) or last, line.number
        yield line, last


def _applies(path: SlowPath, statement: str, unwanted: bool) -> bool:
    """Whether a statement is one: doubles are, only where nothing says that they are meant."""
    return path.kind != DOUBLE or (unwanted and RANGE_REDUCTION not in statement)


def _wants_no_double(code: KernelCode) -> bool:
    """Whether nothing that is known of a kernel asks for doubles: name, parameters, own lines."""
    meant = _DOUBLE.search(code.name) or _DOUBLE.search(_own_source(code))
    return not meant and _takes_no_double(code)


def _own_source(code: KernelCode) -> str:
    """The lines of its file that a kernel's code comes from, without comments."""
    own = {place.line for line in code.ptx for place in line.chain if place.file == code.home}
    text = without_comments(code.texts.get(code.home, "")).splitlines()
    return "\n".join(text[number - 1] for number in sorted(own) if number <= len(text))


def _takes_no_double(code: KernelCode) -> bool:
    """Whether every parameter is known to be, and to lead to, something else than doubles."""
    if code.parameters is None:
        return False
    return all(_PLAIN.fullmatch(text) for text in code.parameters)


def _made(function: Function, lines: set[int]) -> list[Instruction]:
    """The machine instructions that ptxas made of some PTX lines."""
    return [i for i in function.instructions if i.ptx_line in lines and is_executed(i)]


def _only_in_shared(made: Sequence[Instruction]) -> str:
    """What an atomic at a generic address adds: it has its native form too, for global memory."""
    native = any(NATIVE_ATOMIC.match(i.mnemonic) for i in made)
    loops = {i.opcode for i in made if LOOPING_ATOMIC.match(i.mnemonic)}
    return " for an address in shared memory" if native and loops == {"ATOMS"} else ""


def _told(function: Function | None, made: Sequence[Instruction]) -> str:
    """`: 31 instructions and a call of a subroutine of 83`; empty without a disassembler."""
    if function is None or not made:
        return ""
    calls = dict.fromkeys(i.target for i in made if i.opcode == "CALL" and i.target in function.routines)
    sizes = [str(len(function.of_routine(name))) for name in calls]
    count = f"{len(made)} instruction{'s' if len(made) > 1 else ''}"
    return f", {count}" + (f" and a call of a subroutine of {' and of '.join(sizes)}" if sizes else "")


_LOCAL = {"LDL": "load", "STL": "store"}


def _local_memory(code: KernelCode, function: Function | None) -> Iterator[Remark]:
    if function is None:
        taken = code.resources
        if taken is not None and taken.spill_store_bytes + taken.spill_load_bytes:
            told = f"{taken.spill_store_bytes} B of stores and {taken.spill_load_bytes} B of loads"
            yield Remark(kind="spill", place=None, message=f"registers are spilled to local memory: {told}")
        return
    for spilled, kind, what in (
        (True, "spill", "of registers that did not fit"),
        (False, "local memory", "of an array, an argument or a frame of a call"),
    ):
        sites: dict[Place | None, list[Instruction]] = {}
        for i in function.instructions:
            if i.opcode in _LOCAL and is_executed(i) and (i.note == SPILL) is spilled:
                sites.setdefault(user_place(i.chain, code.home), []).append(i)
        for place, some in sites.items():
            yield Remark(kind=kind, place=place, message=f"local memory: {_accesses(some)} {what}")


def _accesses(instructions: Sequence[Instruction]) -> str:
    """`2 stores (8 B) and 1 load (4 B)`, a lane's bytes."""
    told = []
    for opcode in ("STL", "LDL"):
        some = [i for i in instructions if i.opcode == opcode]
        if some:
            word = _LOCAL[opcode] + ("s" if len(some) > 1 else "")
            told.append(f"{len(some)} {word} ({sum(map(width_bytes, some))} B)")
    return " and ".join(told)
