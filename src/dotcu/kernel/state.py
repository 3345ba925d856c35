"""`__device__` variables: which a kernel's PTX uses and may write, and who has a copy in use.

Every unit of compilation has its own copy of a variable, so two units may not both use one that
either of them writes.

A variable may be written where its address, or one reckoned from it, is stored to, updated by an
atomic, or handed on: stored somewhere itself, or passed to a function that is not inlined.

Source: PTX ISA, "Instructions" (chapter 9): the first operand of an instruction is its result,
but for those that write memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dotcu.errors import SourceError
from dotcu.kernel.elements import SPELLINGS

_FUNCTION = re.compile(r"^[^\n]*\.(?:entry|func)\b([^{;]*)\{(.*?)^\}", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"(?:\([^)]*\))?\s*([\w$]+)")
_WORD = re.compile(r"[%$\w]+")
_ASIDE = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*\.loc\b[^\n]*", re.DOTALL | re.MULTILINE)
_INSTRUCTION = re.compile(
    r"[\s{}]*(?:[\w$]+:(?!:)\s*)*(?:@!?%?\w+\s+)?([a-z][\w.:]*)\s+(.*)",
    re.DOTALL,  # braces and labels come before it where inline assembly has a block on one line
)
_READS = ("ld", "prefetch", "setp", "isspacep", "cp.async.ca", "cp.async.cg", "wmma.load")
_WRITES = ("st", "atom", "red", "call", "cp.", "multimem", "wmma.store")


@dataclass(frozen=True)
class Instruction:
    """One instruction of a body, as text."""

    opcode: str
    operands: str
    words: frozenset[str]

    @property
    def results(self) -> list[str]:
        """The registers that it sets."""
        first = re.match(r"\{[^}]*\}|[^,]*", self.operands)
        return _WORD.findall(first[0]) if first else []


def uses(ptx: str, entry: str, symbols: Sequence[str]) -> dict[str, bool]:
    """The variables that a kernel names, itself or in functions it calls; whether it may write each."""
    bodies = reached(ptx, entry).values()
    found = {}
    for symbol in symbols:
        named = [body for body in bodies if any(symbol in instruction.words for instruction in body)]
        if named:
            found[symbol] = any(_writes(body, symbol) for body in named)
    return found


def reached(ptx: str, entry: str) -> dict[str, list[Instruction]]:
    """The bodies of an entry and of every function that it names, directly or not, by name."""
    functions = {}
    for head, body in _FUNCTION.findall(_ASIDE.sub("", ptx)):
        name = _NAME.match(head.strip())
        if name:
            functions[name[1]] = list(_instructions(body))
    waiting, seen = [entry], {entry}
    while waiting:
        for instruction in functions.get(waiting.pop(), []):
            new = (instruction.words & functions.keys()) - seen
            seen |= new
            waiting += new
    return {name: body for name, body in functions.items() if name in seen}


def _instructions(body: str) -> Iterator[Instruction]:
    for text in re.split(r";|[{}]\s*\n", body):
        match = _INSTRUCTION.fullmatch(text)
        if match:
            yield Instruction(match[1], match[2], frozenset(_WORD.findall(match[2])))


def _writes(body: Sequence[Instruction], symbol: str) -> bool:
    """Whether memory may be written through an address that is reckoned from a variable's."""
    named = [instruction for instruction in body if not instruction.opcode.startswith(_READS)]
    addresses, before = {symbol}, 0
    while len(addresses) > before:
        before = len(addresses)
        for instruction in named:
            if addresses.isdisjoint(instruction.words):
                continue
            if instruction.opcode.startswith(_WRITES):
                return True
            addresses.update(instruction.results)
    return False


@dataclass(frozen=True)
class _Use:
    unit: object
    kernel: str
    writes: bool


@dataclass
class Users:
    """Which kernels of a module have used which variable, by target."""

    file: str
    _uses: dict[tuple[str, object], list[_Use]] = field(default_factory=dict)

    def claim(self, place: object, unit: object, kernel: str, used: Mapping[str, bool]) -> None:
        """Note that a kernel uses variables; for each, whether it may write it.

        Raises:
            SourceError: A kernel of another unit uses one too: its writes would not be seen.
        """
        for variable, writes in used.items():
            for other in self._uses.get((variable, place), []):
                if other.unit is not unit and (writes or other.writes):
                    raise SourceError(self._refusal(variable, place, kernel))
        for variable, writes in used.items():
            self._uses.setdefault((variable, place), []).append(_Use(unit, kernel, writes))

    def _refusal(self, variable: str, place: object, kernel: str) -> str:
        users = dict.fromkeys(use.kernel for use in self._uses[variable, place])
        return (
            f"{self.file}: {kernel} would get a copy of its own of the __device__ variable {variable}, which "
            f"{', '.join(users)} already uses: what one writes, the other would not see.\n"
            "Kernels that share a variable are compiled together: name the instantiations when you load.\n"
            f"Type: dotcu.load(..., instantiate={{{_rows([*users, kernel])}}})"
        )


def _rows(kernels: Sequence[str]) -> str:
    """The instantiations among some kernels, as `instantiate` takes them."""
    rows: dict[str, list[str]] = {}
    for kernel in kernels:
        name, opened, rest = kernel.partition("<")
        if opened:
            arguments = [_python(text) for text in _split(rest[:-1])]
            row = f"({', '.join(arguments)}{',' if len(arguments) == 1 else ''})"
            rows.setdefault(name, []).append(row)
    return ", ".join(f'"{name}": [{", ".join(found)}]' for name, found in rows.items())


def _split(text: str) -> list[str]:
    """Template arguments, told apart at the commas outside any brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<([{") - (character in ">)]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _python(text: str) -> str:
    """A template argument as a user of dotcu writes it."""
    dtypes = {spelling: str(dtype) for dtype, spelling in SPELLINGS.items()}
    plain = {"true": "True", "false": "False", **dtypes}
    return plain.get(text) or (text if text.lstrip("-").isdigit() else f'"{text}"')
