"""The code of a kernel line by line, with the source lines that it comes from: PTX, Tile IR and SASS.

SASS is nvdisasm's text, not its JSON: that one (schema 13.5) has no source lines, no labels and no notes.

Source: CUDA Binary Utilities 13.0, "nvdisasm"; what it prints for the code of sm_75 to sm_121.
"""

from __future__ import annotations

import functools
import math
import re
import tempfile
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dotcu import process
from dotcu.compile import toolchain
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.ptx.instructions import Location
from dotcu.ptx.module import PtxModule, parse_module
from dotcu.ptx.parser import Locations
from dotcu.tile_ir import TileFunction, TileOperation
from dotcu.tile_ir.module import Region, SourceLocation, describe_operation

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
    """One line of PTX, or of the Tile IR of a tile kernel.

    Attributes:
        number: In the file or the kernel, from 1.
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


def ptx_lines(ptx: str, symbol: str, files: Mapping[str, str]) -> tuple[PtxLine, ...]:
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


def only_entries(ptx: str, symbols: Container[str]) -> str:
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
            if match is not None:  # not a directive, a label or a brace
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


def tile_lines(function: TileFunction, files: Mapping[str, str]) -> tuple[PtxLine, ...]:
    """Return the lines of a tile kernel; `files` has the names to show for those that its operations name."""
    parameters = ", ".join(f"%{value}: {function.types[value]}" for value in function.body.arguments)
    heads = [(f"entry @{function.name}({parameters}) {{", None)]
    rows = [*heads, *_tile_rows(function, function.body, "  "), ("}", None)]
    return tuple(
        PtxLine(number=number, text=text)
        if operation is None
        else PtxLine(
            number=number,
            text=text,
            chain=tuple(SourceLocation(files.get(at.file, at.file), at.line) for at in operation.lines),
            statements=(text.strip(),),
            opcodes=(operation.name,),
        )
        for number, (text, operation) in enumerate(rows, 1)
    )


def _tile_rows(
    function: TileFunction, block: Region, indent: str
) -> Iterator[tuple[str, TileOperation | None]]:
    """Yield the text of each operation, and of the braces around those that it runs."""
    for operation in block.operations:
        head = indent + describe_operation(operation, function)
        for number, region in enumerate(operation.regions):
            arguments = ", ".join(f"%{value}: {function.types[value]}" for value in region.arguments)
            opening = f"({arguments}) {{" if arguments else "{"
            yield (f"{head} {opening}", operation) if number == 0 else (f"{indent}}} else {opening}", None)
            yield from _tile_rows(function, region, indent + "  ")
        yield (f"{indent}}}", None) if operation.regions else (head, operation)


SPILL = "SpillRefill"
"""nvdisasm's note on an instruction that writes a spilled register, or reads it back."""

_OPTIONS = ("-c", "-gi", "-gp", "-hex")  # only code; source lines with inlining; PTX lines; encodings
_LIMIT_S = 300.0

_SECTION = re.compile(r"^\.text\.(\S+):")
_LABEL = re.compile(r"^([.$\w][\w$.@]*):\s*$")
_FILE = re.compile(r'"([^"]*)", line (\d+)')
_PTX = ".nv_debug_ptx_txt"
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+([^/]\S.*)")
_SECOND_HALF = re.compile(r"\n\s+(/\* 0x[0-9a-f]{16} \*/)[ \t]*(?=\n|$)")
"""Of an instruction's encoding, the half that is on a line of its own."""
_ENCODING = re.compile(r"/\* 0x([0-9a-f]{16}) \*/(?: /\* 0x([0-9a-f]{16}) \*/)?\s*$")
_NOTE = re.compile(r'\s*\(\*"?([^"*]*)"?\*\)')
_GUARD = re.compile(r"(@!?U?P\w+)\s+")
_TARGET = re.compile(r"`\(([^)]+)\)")

_CONTROL_BIT = 105
_NO_SCOREBOARD = 7  # of the six scoreboards, 0 to 5
_SCOREBOARDS = 6


@dataclass(frozen=True, kw_only=True)
class SassInstruction:
    """One machine instruction.

    Attributes:
        text: As nvdisasm spells it, guard included.
        predicate: Its guard, `@!P0`; empty if it has none.
        opcode, modifiers: Of `LDG.E.128`: `LDG` and `("E", "128")`.
        ptx_line: The line of the PTX, from 1; 0 if it is not known.
        labels: Those that are before it.
        routine: The subroutine that it belongs to; empty in the kernel itself.
        note: nvdisasm's remark, such as `SpillRefill`.
        control: Its control bits as `control_text` writes them; empty if the encoding is not known.
    """

    address: int
    text: str
    predicate: str
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]
    chain: LocationChain = ()
    ptx_line: int = 0
    labels: tuple[str, ...] = ()
    routine: str = ""
    note: str = ""
    control: str = ""

    @property
    def mnemonic(self) -> str:
        """Opcode and modifiers: `LDG.E.128`."""
        return ".".join((self.opcode, *self.modifiers))

    @property
    def target(self) -> str:
        """The label or routine that a branch or call goes to; empty for another instruction."""
        match = _TARGET.search(self.text)
        return match[1] if match else ""


SassFunction = tuple[SassInstruction, ...]
"""A kernel's machine code with the subroutines in it, without the padding at its end."""


def routines(function: SassFunction) -> Counter[str]:
    """Return the number of instructions of each subroutine, in order."""
    return Counter(i.routine for i in function if i.routine)


def disassembler() -> Path:
    tool = toolchain.find_tool("nvdisasm")
    if tool is None:
        raise EnvironmentFault(
            "SASS needs nvdisasm, which was not found: neither pip's, nor in CUDA_HOME, nor on PATH.\n"
            f"Install it: pip install {toolchain.TOOLS['nvdisasm']}"
        )
    return tool


def disassemble(cubin: bytes, files: Mapping[str, str]) -> dict[str, SassFunction]:
    """Return the functions of a cubin by symbol; `files` has the names to show for those of its line table.

    Raises:
        EnvironmentFault: There is no nvdisasm.
        UsageError: nvdisasm cannot read the bytes.
    """
    return parse_sass(_printed(disassembler(), cubin), files)


@functools.lru_cache(maxsize=64)
def _printed(tool: Path, cubin: bytes) -> str:
    """Return nvdisasm's output, kept: it takes a third of a second for a small cubin."""
    with tempfile.TemporaryDirectory(prefix="dotcu-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = process.run([tool, *_OPTIONS, path], timeout_s=_LIMIT_S)
    if done.status != 0:
        output = (line.strip() for line in (done.stderr or done.stdout).splitlines())
        raise UsageError(
            f"nvdisasm cannot read these {len(cubin)} bytes as a cubin; it says: "
            f"{next(filter(None, output), 'nothing')}\n"
            "A whole cubin is required, of an architecture that this nvdisasm knows.\n"
            f"See which: {tool} --help; for a newer one: pip install -U {toolchain.TOOLS['nvdisasm']}"
        )
    return done.stdout


def parse_sass(text: str, files: Mapping[str, str]) -> dict[str, SassFunction]:
    """Read the output of `nvdisasm -c -gi -gp -hex` for a cubin, as `disassemble` returns it."""
    parser = _SassParser(files)
    for line in _SECOND_HALF.sub(r" \1", text).splitlines():
        parser.read(line)
    for instructions in parser.functions.values():
        # ptxas fills a kernel's end with a branch to itself, then NOPs.
        while instructions and instructions[-1].opcode == "NOP":
            instructions.pop()
        last = instructions[-1] if instructions else None
        if last and last.opcode == "BRA" and not last.predicate and last.target in last.labels:
            instructions.pop()
    return {symbol: tuple(instructions) for symbol, instructions in parser.functions.items()}


@dataclass
class _SassParser:
    """The state at a line of nvdisasm's output."""

    files: Mapping[str, str]
    functions: dict[str, list[SassInstruction]] = field(default_factory=dict)
    current: list[SassInstruction] | None = None
    symbol: str = ""
    routine: str = ""
    labels: list[str] = field(default_factory=list)
    chain: LocationChain = ()
    ptx_line: int = 0
    after_location: bool = False

    def read(self, line: str) -> None:
        if "//## File" in line:
            file, number = _FILE.findall(line)[0]
            if file.startswith(_PTX):
                self.ptx_line = int(number)
                return
            location = SourceLocation(self.files.get(file, file), int(number))
            self.chain = (*self.chain, location) if self.after_location else (location,)
            self.after_location = True  # the next such line, if it follows at once, is where this was inlined
            return
        self.after_location = False
        instruction = _INSTRUCTION.match(line)
        if instruction is None or self.current is None:
            self._mark(line)
            return
        self.current.append(self._instruction(int(instruction[1], 16), instruction[2]))
        self.labels = []

    def _mark(self, line: str) -> None:
        section, label = _SECTION.match(line), _LABEL.match(line)
        if section is not None:
            self.symbol, self.routine = section[1], ""
            self.current = self.functions.setdefault(self.symbol, [])
            self._forget()
        elif line.startswith("\t.section"):
            self.current = None
        elif label is not None and self.current is not None:
            if label[1].startswith("$"):
                self.routine = label[1]
                self._forget()  # the line table has no rows for code that the compiler adds
            if label[1] != self.symbol:
                self.labels.append(label[1])

    def _forget(self) -> None:
        self.chain, self.ptx_line, self.labels = (), 0, []

    def _instruction(self, address: int, text: str) -> SassInstruction:
        encoding = _ENCODING.search(text)
        text = text[: encoding.start() if encoding else None].strip().rstrip(";")
        note = _NOTE.search(text)
        text = _NOTE.sub("", text).strip("{} ").strip()
        guard = _GUARD.match(text)
        word, _, operands = (text[guard.end() :] if guard else text).partition(" ")
        opcode, *modifiers = word.split(".")
        return SassInstruction(
            address=address,
            text=text,
            predicate=guard[1] if guard else "",
            opcode=opcode,
            modifiers=tuple(modifiers),
            operands=tuple(operands.strip().split(", ")) if operands else (),
            chain=self.chain,
            ptx_line=self.ptx_line,
            labels=tuple(self.labels),
            routine=self.routine,
            note=note[1] if note else "",
            control=control_text(int(encoding[2] + encoding[1], 16)) if encoding and encoding[2] else "",
        )


def control_text(encoding: int) -> str:
    """Return the control bits of an instruction's 128 bits: `B0-----:R-:W1:-:S04`.

    B: the scoreboards that it waits for; R and W: the scoreboard that it releases when its operands are read,
    and when its result is written; Y: the scheduler is to prefer another warp; S: the cycles to stall.

    NVIDIA does not document it. Since Volta they are bits 105 to 121. Source: Jia, Maggioni, Staiger,
    Scarpazza, "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018, section 2.1. Seen
    to hold, in what ptxas of CUDA 13.0 emits for sm_75 to sm_121, for the scoreboards: an instruction that
    reads a loaded value waits for the scoreboard that the load sets.
    """
    bits = encoding >> _CONTROL_BIT
    write, read, mask = bits >> 5 & 7, bits >> 8 & 7, bits >> 11 & 63
    waits = "".join(str(i) if mask >> i & 1 else "-" for i in range(_SCOREBOARDS))
    read_text, write_text = ("-" if board == _NO_SCOREBOARD else str(board) for board in (read, write))
    return f"B{waits}:R{read_text}:W{write_text}:{'-' if bits >> 4 & 1 else 'Y'}:S{bits & 15:02d}"


def without_guessed_lines(function: SassFunction, unknown: Container[int]) -> SassFunction:
    """Return the function without source lines where ptxas compiled the PTX lines `unknown`.

    Where the compiler gives no line, ptxas goes on with the one before, which may be far off.
    """
    return tuple(replace(i, chain=()) if i.ptx_line in unknown else i for i in function)
