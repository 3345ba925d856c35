"""Machine instructions: a call of nvdisasm, and its output as values.

Its text is read, not its JSON: that one (schema 13.5) has no source lines, no labels and no notes.

Source: CUDA Binary Utilities 13.0, "nvdisasm"; what it prints for the code of sm_75 to sm_121.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dotcu import process
from dotcu.compile import toolchain
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.inspection.ptx import LocationChain
from dotcu.tile_ir.module import SourceLocation

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
    return parse(_printed(disassembler(), cubin), files)


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


def parse(text: str, files: Mapping[str, str]) -> dict[str, SassFunction]:
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
                self._forget()  # the line table has nothing of what the compiler adds
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
    """Return the function without source lines for what ptxas made of the PTX lines `unknown`.

    Where the compiler gives no line, ptxas goes on with the one before, which may be far off.
    """
    return tuple(replace(i, chain=()) if i.ptx_line in unknown else i for i in function)
