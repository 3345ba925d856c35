"""What nvdisasm prints, as values.

Its text, not its JSON: that one (schema 13.5) has no source lines, no labels and no notes.

Source: CUDA Binary Utilities 13.0, "nvdisasm"; what it prints for the code of sm_75 to sm_121.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace

from dotcu.inspection.code.control import Control, decode
from dotcu.inspection.code.places import Chain, Place

SPILL = "SpillRefill"
"""nvdisasm's note on an instruction that writes a spilled register, or brings it back."""

_SECTION = re.compile(r"^\.text\.(\S+):")
_LABEL = re.compile(r"^([.$\w][\w$.@]*):\s*$")
_FILE = re.compile(r'"([^"]*)", line (\d+)')
_PTX = ".nv_debug_ptx_txt"
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+([^/]\S.*)")
_ENCODING = re.compile(r"/\* 0x([0-9a-f]{16}) \*/\s*$")
_SECOND_HALF = re.compile(r"^\s+/\* 0x([0-9a-f]{16}) \*/\s*$")
_NOTE = re.compile(r'\s*\(\*"?([^"*]*)"?\*\)')
_GUARD = re.compile(r"(@!?U?P\w+)\s+")
_TARGET = re.compile(r"`\(([^)]+)\)")


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One machine instruction.

    Attributes:
        text: As nvdisasm spells it, guard included.
        predicate: Its guard, `@!P0`; empty where it has none.
        opcode: The first word, `LDG`.
        modifiers: What follows it, dot by dot: `("E", "128")`.
        line: The source line that it comes from; None where the line table has none.
        inlined_at: Where that line was inlined, from the inside out.
        ptx_line: The line of the PTX, from 1; 0 where it is not known.
        labels: Those that stand before it.
        routine: The subroutine that it belongs to; empty in the kernel itself.
        note: What nvdisasm remarks, such as `SpillRefill`.
        control: What it tells the scheduler; None where the encoding is not at hand.
    """

    address: int
    text: str
    predicate: str
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]
    line: Place | None = None
    inlined_at: Chain = ()
    ptx_line: int = 0
    labels: tuple[str, ...] = ()
    routine: str = ""
    note: str = ""
    control: Control | None = None

    @property
    def mnemonic(self) -> str:
        """Opcode and modifiers: `LDG.E.128`."""
        return ".".join((self.opcode, *self.modifiers))

    @property
    def chain(self) -> Chain:
        """Its line, and where that was inlined."""
        return () if self.line is None else (self.line, *self.inlined_at)

    @property
    def target(self) -> str:
        """The label or routine that a branch or call goes to; empty for another instruction."""
        found = _TARGET.search(self.text)
        return found[1] if found else ""


@dataclass(frozen=True, kw_only=True)
class Function:
    """A kernel's machine code with the subroutines in it, without the padding at its end."""

    symbol: str
    instructions: tuple[Instruction, ...]

    @property
    def routines(self) -> tuple[str, ...]:
        """The subroutines in it, in order."""
        return tuple(dict.fromkeys(i.routine for i in self.instructions if i.routine))

    def of_routine(self, name: str) -> tuple[Instruction, ...]:
        """The instructions of a subroutine."""
        return tuple(i for i in self.instructions if i.routine == name)


def without_guesses(function: Function, unknown: Container[int]) -> Function:
    """The function without source lines for what ptxas made of some lines of PTX.

    Where the compiler tells no line, ptxas goes on with the one before, which may be far off.

    Args:
        unknown: The numbers of PTX lines of which the compiler tells no source line.
    """
    return replace(
        function,
        instructions=tuple(
            replace(i, line=None, inlined_at=()) if i.ptx_line in unknown else i
            for i in function.instructions
        ),
    )


@dataclass
class _Reader:
    """What is known at a line of nvdisasm's output."""

    files: Mapping[str, str]
    functions: dict[str, list[Instruction]] = field(default_factory=dict)
    current: list[Instruction] | None = None
    symbol: str = ""
    routine: str = ""
    labels: list[str] = field(default_factory=list)
    chain: Chain = ()
    ptx_line: int = 0
    told: bool = False
    pending: tuple[int, str, int] | None = None

    def read(self, line: str) -> None:
        """Take in one line."""
        if "//## File" in line:
            self._place(line)
            return
        second = _SECOND_HALF.match(line)
        if second is not None:
            self.finish(int(second[1], 16))
            return
        self.told = False
        self.finish(None)
        found = _INSTRUCTION.match(line)
        if found is not None and self.current is not None:
            encoding = _ENCODING.search(line)
            text = line[found.start(2) : encoding.start() if encoding else None].strip().rstrip(";")
            self.pending = int(found[1], 16), text, int(encoding[1], 16) if encoding else 0
            return
        self._mark(line)

    def _mark(self, line: str) -> None:
        section = _SECTION.match(line)
        if section is not None:
            self.symbol, self.routine = section[1], ""
            self.current = self.functions.setdefault(self.symbol, [])
            self._forget()
        elif line.startswith("\t.section"):
            self.current = None
        else:
            label = _LABEL.match(line)
            if label is not None and self.current is not None:
                self._label(label[1])

    def _label(self, name: str) -> None:
        if name.startswith("$"):
            self.routine = name
            self._forget()  # the line table says nothing of what the compiler adds
            self.labels.append(name)
        elif name != self.symbol:
            self.labels.append(name)

    def _forget(self) -> None:
        self.chain, self.ptx_line, self.labels = (), 0, []

    def _place(self, line: str) -> None:
        file, number = _FILE.findall(line)[0]
        if file.startswith(_PTX):
            self.ptx_line = int(number)
            return
        place = Place(self.files.get(file, file), int(number))
        self.chain = (*self.chain, place) if self.told else (place,)
        self.told = True  # the next such line, if it follows at once, is where this one was inlined

    def finish(self, second: int | None) -> None:
        """Take in the instruction that was begun, with the second half of its encoding."""
        if self.pending is None or self.current is None:
            return
        (address, text, first), self.pending = self.pending, None
        control = decode(second << 64 | first) if second is not None else None
        self.current.append(self._instruction(address, text, control))
        self.labels = []

    def _instruction(self, address: int, text: str, control: Control | None) -> Instruction:
        note = _NOTE.search(text)
        text = _NOTE.sub("", text).strip("{} ").strip()
        guard = _GUARD.match(text)
        rest = text[guard.end() :] if guard else text
        word, _, operands = rest.partition(" ")
        opcode, *modifiers = word.split(".")
        return Instruction(
            address=address, text=text, predicate=guard[1] if guard else "", opcode=opcode,
            modifiers=tuple(modifiers), operands=tuple(operands.strip().split(", ")) if operands else (),
            line=self.chain[0] if self.chain else None, inlined_at=self.chain[1:], ptx_line=self.ptx_line,
            labels=tuple(self.labels), routine=self.routine, note=note[1] if note else "", control=control,
        )  # fmt: skip


def parse(text: str, files: Mapping[str, str]) -> dict[str, Function]:
    """Read what `nvdisasm -c -gi -gp -hex` prints of a cubin.

    Args:
        files: What to call the files of the line table, by their name in it.
    """
    reader = _Reader(files)
    for line in text.splitlines():
        reader.read(line)
    reader.finish(None)
    return {
        symbol: Function(symbol=symbol, instructions=tuple(_unpadded(found)))
        for symbol, found in reader.functions.items()
    }


def _unpadded(instructions: list[Instruction]) -> Iterator[Instruction]:
    """Leave out what ptxas fills a kernel's end with: a branch to itself, then NOPs."""
    end = len(instructions)
    while end and instructions[end - 1].opcode == "NOP":
        end -= 1
    if end and instructions[end - 1].opcode == "BRA" and _goes_to_itself(instructions[end - 1]):
        end -= 1
    yield from instructions[:end]


def _goes_to_itself(instruction: Instruction) -> bool:
    return not instruction.predicate and instruction.target in instruction.labels
