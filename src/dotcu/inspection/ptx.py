"""The PTX of a kernel, line by line, each with the source locations that it comes from."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dotcu.ptx.instructions import Location
from dotcu.ptx.module import PtxModule, parse_module
from dotcu.ptx.parser import Locations
from dotcu.tile_ir.module import SourceLocation

_AT = r"(\d+)\s+(\d+)\s+(\d+)"
_LOC = re.compile(rf"\.loc\s+{_AT}(?:.*inlined_at\s+{_AT})?")
_STATEMENT = re.compile(r"(?:@!?[%\w]+\s+)?(?P<opcode>[a-z][a-z0-9]*(?:[.:]+\w+)*)(?=\s|$)")
_COMMENT = re.compile(r"//.*")
_CALLEE = re.compile(r"\bcall(?:\.\w+)*\s+(?:\([^)]*\)\s*,\s*)?([A-Za-z_$][\w$]*)\s*[,;]")
_MAX_CALL_LINES = 4
"""The most lines from a call to the name of its function: the instruction, its result, the name."""
_CALL = re.compile(r"\bcall\b[^;]*;")
_NAME = re.compile(r"[\w$]+")


LocationChain = tuple[SourceLocation, ...]
"""An instruction's own line, the line that this was inlined at, and so on outwards."""


def shown_location(chain: LocationChain, file: str) -> SourceLocation | None:
    """Return the line that an instruction is shown at: the innermost one in the kernel's own file.

    So the cost of a header's function is at the line that calls it, as in the simulator's counts.
    """
    return next((location for location in chain if location.file == file), chain[-1] if chain else None)


@dataclass(frozen=True, kw_only=True)
class PtxLine:
    """One line of a PTX file.

    Attributes:
        number: In the file, from 1.
        chain: The source lines of its instructions; empty for another line, and where the compiler gives
            line 0, which means none.
        statements: Its instructions, each without its semicolon; inline assembly may put several on a line.
        opcodes: Of each, the opcode with its modifiers: `ld.global.v4.f32`.
    """

    number: int
    text: str
    chain: LocationChain = ()
    statements: tuple[str, ...] = ()
    opcodes: tuple[str, ...] = ()


ptx_module = functools.lru_cache(maxsize=8)(parse_module)
"""`parse_module`, whose result is needed once for each of a file's kernels."""


def lines_of(ptx: str, symbol: str, files: Mapping[str, str]) -> tuple[PtxLine, ...]:
    """Return the lines of a kernel, then those of the functions of the file that it calls.

    `files` has the names to show for those of `.file` directives.

    Raises:
        SimulationError: The text is not PTX.
    """
    module, text = ptx_module(ptx), ptx.split("\n")
    files_by_number = {number: files.get(name, name) for number, name in module.files.items()}
    lines: list[PtxLine] = []
    left, seen = [symbol], {symbol}
    while left:
        name = left.pop()
        lines += _read(text, *_span(module, text, name), files_by_number)
        calls = _CALL.findall(module.text, *module.bodies[name])
        called = {word for call in calls for word in _NAME.findall(call)}
        callees = sorted(called & module.bodies.keys() - seen)
        seen.update(callees)
        left += callees
    return tuple(lines)


def only(ptx: str, symbols: Container[str]) -> str:
    """Return a file without the kernels of other names; the functions that they call stay."""
    module, text = ptx_module(ptx), ptx.split("\n")
    dropped: set[int] = set()
    for name in module.entries:
        if name not in symbols:
            first, last = _span(module, text, name)
            dropped.update(range(first, last + 1))
            # The compiler puts a comment before each kernel: `// .globl its_name`.
            comments = (i for i, line in enumerate(text, start=1) if line.lstrip().startswith("//"))
            dropped.update(i for i in comments if text[i - 1].split()[-1:] == [name])
    return "\n".join(line for number, line in enumerate(text, start=1) if number not in dropped)


def max_threads(ptx: str, symbol: str) -> tuple[int, bool]:
    """Return the most threads that the launch bounds allow, 0 without any; and whether that is exact."""
    header = ptx_module(ptx).headers[symbol]
    sizes = header.required_threads or header.max_threads
    return (math.prod(sizes) if sizes else 0), bool(header.required_threads)


def callees(lines: Sequence[PtxLine]) -> dict[int, str]:
    """Return the function that each line calls by its name, which may stand some lines below."""
    names = {}
    for index, line in enumerate(lines):
        if any(opcode.startswith("call") for opcode in line.opcodes):
            following = "\n".join(each.text for each in lines[index : index + _MAX_CALL_LINES])
            named = _CALLEE.search(_COMMENT.sub("", following))
            if named is not None:
                names[line.number] = named[1]
    return names


def takes_dynamic_smem(ptx: str, lines: Iterable[PtxLine]) -> bool:
    """Return whether some lines name a variable in shared memory that has no size of its own."""
    unsized = {v.name for v in ptx_module(ptx).variables.values() if v.space == "shared" and v.extern}
    return any(unsized.intersection(_NAME.findall(text)) for line in lines for text in line.statements)


def _span(module: PtxModule, text: Sequence[str], name: str) -> tuple[int, int]:
    """Return the numbers of a function's first line, where its header begins, and of its last one."""
    start, end = module.bodies[name]
    first = module.text.count("\n", 0, start) + 1
    while first > 1 and not re.search(r"\.(entry|func)\b", text[first - 1]):
        first -= 1
    return first, module.text.count("\n", 0, end) + 1


def _read(text: Sequence[str], first: int, last: int, files: Mapping[int, str]) -> Iterator[PtxLine]:
    locations, has_line, in_body, continues = Locations(), False, False, False
    for number in range(first, last + 1):
        line = _COMMENT.sub("", text[number - 1])
        in_body = in_body or line.lstrip().startswith("{")
        loc = _LOC.search(line)
        if loc is not None:
            file, row, column, *outer = (int(digits) if digits else 0 for digits in loc.groups())
            locations.move((file, row, column), (outer[0], outer[1], outer[2]) if loc[4] else None)
            has_line = row != 0
        statements, opcodes = [], []
        for part in line.split(";") if in_body and loc is None and not continues else ():
            statement = re.sub(r"^(\s*(?:[{}]|[\w$]+:))+\s*", "", part).strip().strip("}").strip()
            match = _STATEMENT.match(statement)
            if match is not None:  # a directive, a label or a brace is none
                statements.append(" ".join(statement.split()))
                opcodes.append(match["opcode"])
        if loc is None and line.strip():
            continues = line.strip()[-1] not in ";{}:"
        chain = _chain(locations.current, files) if statements and has_line else ()
        yield PtxLine(
            number=number, text=text[number - 1], chain=chain, statements=tuple(statements),
            opcodes=tuple(opcodes),
        )  # fmt: skip


def _chain(location: Location, files: Mapping[int, str]) -> LocationChain:
    chain: list[SourceLocation] = []
    at: Location | None = location
    while at is not None and at.line:
        chain.append(SourceLocation(files.get(at.file, ""), at.line))
        at = at.inlined_at
    return tuple(chain)
