"""The PTX of a kernel, line by line, each with the source lines that it comes from."""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dotcu.inspection.code.places import Chain, Place
from dotcu.ptx.headers import Outline, outline
from dotcu.ptx.instructions import Location
from dotcu.ptx.locations import At, Locations

_AT = r"(\d+)\s+(\d+)\s+(\d+)"
_LOC = re.compile(rf"\.loc\s+{_AT}(?:.*inlined_at\s+{_AT})?")
_STATEMENT = re.compile(r"(?:@!?[%\w]+\s+)?(?P<opcode>[a-z][a-z0-9]*(?:[.:]+\w+)*)(?=\s|$)")
_COMMENT = re.compile(r"//.*")
_CALLEE = re.compile(r"\bcall(?:\.\w+)*\s+(?:\([^)]*\)\s*,\s*)?([A-Za-z_$][\w$]*)\s*[,;]")
_MOST_CALL_LINES = 4
"""In front of which a call's name stands: the instruction, what it returns, the name."""
_CALL = re.compile(r"\bcall\b[^;]*;")
_NAME = re.compile(r"[\w$]+")


@dataclass(frozen=True, kw_only=True)
class PtxLine:
    """One line of a PTX file.

    Attributes:
        number: In the file, from 1.
        chain: The source lines of its instructions, from the inside out; empty for another line, and
            where the compiler tells none, by a line 0.
        statements: Its instructions, each without its semicolon; inline assembly may put several on a line.
        opcodes: Of each, the opcode with its modifiers: `ld.global.v4.f32`.
    """

    number: int
    text: str
    chain: Chain = ()
    statements: tuple[str, ...] = ()
    opcodes: tuple[str, ...] = ()


@functools.lru_cache(maxsize=8)
def _outline(ptx: str) -> Outline:
    """The top level of a file, which is asked for once for each of its kernels."""
    return outline(ptx)


def lines_of(ptx: str, symbol: str, files: Mapping[str, str]) -> tuple[PtxLine, ...]:
    """The lines of a kernel, then those of the functions of the file that it calls.

    Args:
        files: What to call the files that its `.file` directives name.

    Raises:
        SimulationError: The text is not PTX.
    """
    found = _outline(ptx)
    names = {number: files.get(name, name) for number, name in found.files.items()}
    text = ptx.split("\n")
    return tuple(
        line
        for name in _reached(found, symbol)
        for line in _read(text, *_span(ptx, found, text, name), names)
    )


def only(ptx: str, symbols: Container[str]) -> str:
    """A file without the kernels of other names; the functions that they call stay.

    Raises:
        SimulationError: The text is not PTX.
    """
    found, text = _outline(ptx), ptx.split("\n")
    dropped: set[int] = set()
    for name, header in found.headers.items():
        if header.is_entry and name in found.bodies and name not in symbols:
            first, last = _span(ptx, found, text, name)
            dropped.update(range(first, last + 1))
            dropped.update(i for i, line in enumerate(text, start=1) if _announces(line, name))
    return "\n".join(line for number, line in enumerate(text, start=1) if number not in dropped)


def _announces(line: str, name: str) -> bool:
    """Whether it is the comment that the compiler puts before a kernel: `// .globl its_name`."""
    return line.lstrip().startswith("//") and line.split()[-1:] == [name]


def max_threads(ptx: str, symbol: str) -> tuple[int, bool]:
    """The most threads that its launch bounds allow, 0 without any; and whether there must be so many."""
    header = _outline(ptx).headers[symbol]
    sizes, product = header.required_threads or header.max_threads, 1
    for size in sizes:
        product *= size
    return (product if sizes else 0), bool(header.required_threads)


def callees(lines: Sequence[PtxLine]) -> dict[int, str]:
    """The function that each line calls by its name; the name may stand some lines below the instruction."""
    found = {}
    for index, line in enumerate(lines):
        if any(opcode.startswith("call") for opcode in line.opcodes):
            following = "\n".join(each.text for each in lines[index : index + _MOST_CALL_LINES])
            named = _CALLEE.search(_COMMENT.sub("", following))
            if named is not None:
                found[line.number] = named[1]
    return found


def takes_dynamic_smem(ptx: str, lines: Iterable[PtxLine]) -> bool:
    """Whether some lines name a variable in shared memory that has no size of its own."""
    unsized = {v.name for v in _outline(ptx).variables.values() if v.space == "shared" and v.extern}
    return any(unsized.intersection(_NAME.findall(text)) for line in lines for text in line.statements)


def _reached(found: Outline, symbol: str) -> Iterator[str]:
    """A kernel, and the functions with a body that it calls."""
    left, seen = [symbol], {symbol}
    while left:
        name = left.pop()
        yield name
        calls = _CALL.findall(found.text, *found.bodies[name])
        words = {word for call in calls for word in _NAME.findall(call)}
        for callee in sorted(words & found.bodies.keys() - seen):
            seen.add(callee)
            left.append(callee)


def _span(ptx: str, found: Outline, text: list[str], name: str) -> tuple[int, int]:
    """The numbers of a function's first line, where its header begins, and of its last one."""
    start, end = found.bodies[name]
    first = ptx.count("\n", 0, start) + 1
    while first > 1 and not re.search(r"\.(entry|func)\b", text[first - 1]):
        first -= 1
    return first, ptx.count("\n", 0, end) + 1


def _read(text: list[str], first: int, last: int, files: Mapping[int, str]) -> Iterator[PtxLine]:
    locations, told, in_body, goes_on = Locations(), False, False, False
    for number in range(first, last + 1):
        line = _COMMENT.sub("", text[number - 1])
        in_body = in_body or line.lstrip().startswith("{")
        loc = _LOC.search(line)
        if loc is not None:
            at, outer = _directive(loc)
            locations.move(at, outer)
            told = at[1] != 0
        is_code = in_body and loc is None and not goes_on
        statements, opcodes = _instructions(line) if is_code else ((), ())
        if loc is None and line.strip():
            goes_on = line.strip()[-1] not in ";{}:"
        chain = _chain(locations.current, files) if statements and told else ()
        yield PtxLine(
            number=number, text=text[number - 1], chain=chain, statements=statements, opcodes=opcodes
        )


def _directive(loc: re.Match[str]) -> tuple[At, At | None]:
    one, two, three, *outer = (int(digits) if digits else 0 for digits in loc.groups())
    inlined_at = (outer[0], outer[1], outer[2]) if loc[4] else None
    return (one, two, three), inlined_at


def _instructions(line: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The instructions of a line, and their opcodes; directives, labels and braces are none."""
    found = []
    for part in line.split(";"):
        statement = re.sub(r"^(\s*(?:[{}]|[\w$]+:))+\s*", "", part).strip().strip("}").strip()
        match = _STATEMENT.match(statement)
        if match is not None:
            found.append((" ".join(statement.split()), match["opcode"]))
    return tuple(text for text, _ in found), tuple(opcode for _, opcode in found)


def _chain(location: Location, files: Mapping[int, str]) -> Chain:
    chain: list[Place] = []
    at: Location | None = location
    while at is not None and at.line:
        chain.append(Place(files.get(at.file, ""), at.line))
        at = at.inlined_at
    return tuple(chain)
