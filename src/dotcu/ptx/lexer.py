"""PTX text to tokens, a cursor over them, and the declarations that headers and bodies share.

Source: PTX ISA, "Syntax" (chapter 4).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from dotcu.errors import SimulationError
from dotcu.ptx.instructions import TYPE_BYTES, Immediate, Symbol, Variable

# One capture: a token. Comments match without it, so that they fall away; any other visible
# character becomes its own token, which the parser then refuses.
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|(
        \.[A-Za-z_]\w*(?:::\w+)*                     # directive or type, also without a blank: .reg.b16
      | [%$_A-Za-z][\w$]*(?:(?:\.|::)[\w$]+)*       # word, opcode with its modifiers
      | 0[fF][0-9a-fA-F]{8}(?![\w$]) | 0[dD][0-9a-fA-F]{16}(?![\w$])
      | 0[xX][0-9a-fA-F]+U? | \d+\.\d*(?:[eE][+-]?\d+)? | \d+U?
      | "(?:\\"|[^"\n])*"
      | \S )""",
    re.VERBOSE | re.DOTALL,
)

_BRACE = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\"|[^"\n])*"|([{}])', re.DOTALL)

# Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" for local
# memory, shared memory and parameters of sm_90, rounded up; for the others, what a host can hold.
MAX_BYTES = {"local": 1 << 19, "shared": 1 << 18, "param": 1 << 16, "const": 1 << 20, "global": 1 << 34}
MAX_ALIGNMENT = 1 << 16
_MAX_DIMENSIONS = 16


def tokenize(text: str, start: int, end: int) -> tuple[list[str], list[int]]:
    """Tokens of text[start:end], and where each begins.

    Args:
        text: The text of the PTX file.
        start: The position of the first character.
        end: The position after the last character.
    """
    found = [m for m in _TOKEN.finditer(text, start, end) if m.lastindex]
    return [m.group(1) for m in found], [m.start(1) for m in found]


def braces(text: str) -> list[tuple[int, int]]:
    """Outermost pairs of braces: where each opens and closes.

    Raises:
        SimulationError: A brace has no partner.
    """
    pairs: list[tuple[int, int]] = []
    depth = opened = 0
    for match in _BRACE.finditer(text):
        brace = match.group(1)
        if brace == "{":
            opened = match.start() if depth == 0 else opened
            depth += 1
        elif brace == "}":
            depth -= 1
            if depth < 0:
                raise malformed(text, match.start(), "a } without its {")
            if depth == 0:
                pairs.append((opened, match.start()))
    if depth:
        raise malformed(text, opened, "a { without its }")
    return pairs


def malformed(text: str, position: int, what: str) -> SimulationError:
    """The error for PTX that is not well formed, with the line of PTX it is in.

    Args:
        text: The text of the PTX file.
        position: The position in the text.
        what: The problem, as a noun phrase.
    """
    line = text.count("\n", 0, position) + 1
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    shown = text[begin : end if end >= 0 else len(text)].strip()[:120]
    place, is_inline = _source_place(text[:position])
    remedy = (
        "The simulator reads the PTX that NVRTC or nvcc emits for sm_80 or later.\n"
        "Compile the source again; if it came from elsewhere, check it with `ptxas`."
    )
    if is_inline:
        remedy = f"It is inline assembly{place}: correct the asm statement there."
    elif "more than ." in what:
        remedy = "A kernel has arrays of that size: make them smaller, or pass a tensor for them."
    return SimulationError(f"Malformed PTX at its line {line}: got {what} in `{shown}`.\n{remedy}")


_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)", re.MULTILINE)
_INLINE = re.compile(r"// (begin|end) inline asm")


def _source_place(before: str) -> tuple[str, bool]:
    """Return the last line of the source that PTX names, ` at line 3`, and True if it ends in an asm."""
    lines, marks = _LOC.findall(before), _INLINE.findall(before)
    return (f" at line {lines[-1][1]} of the source" if lines else ""), marks[-1:] == ["begin"]


class Tokens:
    """Tokens, read one after the other. Reading past the end is an error, never a loop."""

    def __init__(self, text: str, words: list[str], places: list[int]) -> None:
        self.text = text
        self.words = words
        self.places = places
        self.index = 0

    def more(self) -> bool:
        """Return whether a token is left."""
        return self.index < len(self.words)

    def peek(self, ahead: int = 0) -> str:
        """The next token, without taking it; empty at the end."""
        at = self.index + ahead
        return self.words[at] if at < len(self.words) else ""

    def take(self) -> str:
        """Take the next token."""
        if self.index >= len(self.words):
            raise self.error("the end of the text in the middle of a statement")
        self.index += 1
        return self.words[self.index - 1]

    def skip(self, word: str) -> bool:
        """Take the next token if it is `word`."""
        if self.peek() == word:
            self.index += 1
            return True
        return False

    def expect(self, word: str) -> None:
        """Take the next token, which must be `word`."""
        got = self.take()
        if got != word:
            self.index -= 1
            raise self.error(f"{got!r} where {word!r} is expected")

    def until(self, word: str) -> None:
        """Take tokens up to and including `word`."""
        while self.take() != word:
            pass

    def drain(self) -> None:
        """Take all that is left."""
        self.index = len(self.words)

    def place(self) -> int:
        """Return the cursor's position in the text."""
        return self.places[min(self.index, len(self.places) - 1)] if self.places else 0

    def error(self, what: str) -> SimulationError:
        """The error for a token that does not belong here."""
        return malformed(self.text, self.place(), what)

    def integer(self) -> int:
        """Take an integer constant, with its sign."""
        literal = self.literal()
        if literal.type != "int":
            raise self.error("a float where an integer is expected")
        return literal.value

    def literal(self) -> Immediate:
        """Take a numeric constant (PTX ISA, "Constants"), with its sign."""
        negative = self.skip("-")
        word = self.take()
        try:
            return _literal(word, negative)
        except ValueError:
            self.index -= 1
            raise self.error(f"{word!r} where a constant is expected") from None

    def type(self) -> str:
        """Take a fundamental type."""
        word = self.take()
        if word[1:] not in TYPE_BYTES or word[0] != ".":
            self.index -= 1
            raise self.error(f"{word!r} where a type is expected")
        return word[1:]

    def variable(self, space: str, *, extern: bool = False) -> Variable:
        """Take one variable: [.align n] [.vN] .type [.ptr ...] name [dims]."""
        align, lanes = self._attributes()
        kind = self.type()
        is_pointer = self.peek() == ".ptr"
        while self.peek().startswith("."):  # .ptr .global .align 4
            if self.take() == ".align":
                self._alignment()
        return self._declarator(space, kind, align, lanes, extern)._replace(is_pointer=is_pointer)

    def variables(self, space: str, *, extern: bool = False) -> Iterator[Variable]:
        """Take variables of one type, up to the semicolon."""
        align, lanes = self._attributes()
        kind = self.type()
        while True:
            yield self._declarator(space, kind, align, lanes, extern)
            if not self.skip(","):
                break
        self.expect(";")

    def _attributes(self) -> tuple[int, int]:
        align, lanes = 0, 1
        while True:
            if self.skip(".align"):
                align = self._alignment()
            elif self.peek() in (".v2", ".v4"):
                lanes = int(self.take()[2:])
            elif self.skip(".attribute"):
                self.until(")")
            else:
                return align, lanes

    def _alignment(self) -> int:
        align = self.integer()
        if align < 1 or align & (align - 1) or align > MAX_ALIGNMENT:
            raise self.error(f"an alignment of {align}, which is not a power of two up to {MAX_ALIGNMENT},")
        return align

    def _declarator(self, space: str, kind: str, align: int, lanes: int, extern: bool) -> Variable:
        name = self.take()
        count, open_ended = lanes, False
        while self.skip("["):
            if self.skip("]"):
                open_ended = True
                continue
            count *= max(0, self.integer())
            self.expect("]")
        initial = tuple(self._initial()) if self.skip("=") else ()
        if open_ended:
            count *= len(initial)
        size = count * TYPE_BYTES[kind]
        if size > MAX_BYTES.get(space, MAX_BYTES["global"]):
            raise self.error(f"{size} bytes of {name!r}, more than .{space} has,")
        natural = TYPE_BYTES[kind] * lanes
        return Variable(
            name, space, kind, size, align or natural, initial, extern or (open_ended and not initial)
        )

    def _initial(self, depth: int = 0) -> Iterator[int | Symbol]:
        if depth > _MAX_DIMENSIONS:
            raise self.error("an initialiser of too many dimensions")
        if not self.skip("{"):
            yield self._initial_element()
            return
        while not self.skip("}"):
            if self.peek() == "{":
                yield from self._initial(depth + 1)
            else:
                yield self._initial_element()
            self.skip(",")

    def _initial_element(self) -> int | Symbol:
        word = self.peek()
        if word == "-" or word[:1].isdigit():
            value = self.literal().value
            if not self.skip("("):
                return value
            symbol = self._address()  # 0xFF00(name): the bytes of an address that a mask covers
            self.expect(")")
            return symbol._replace(mask=value)
        return self._address()

    def _address(self) -> Symbol:
        word, offset = self.take(), 0
        if word == "generic":
            self.expect("(")
            word = self.take()
            offset = self.integer() if self.skip("+") else 0
            self.expect(")")
        if self.skip("+"):
            offset += self.integer()
        return Symbol(word, offset)


def _literal(word: str, negative: bool) -> Immediate:
    prefix = word[:2].lower()
    if prefix == "0f" and len(word) == 10:
        return Immediate(int(word[2:], 16) ^ (0x80000000 if negative else 0), "f32")
    if prefix == "0d" and len(word) == 18:
        return Immediate(int(word[2:], 16) ^ (1 << 63 if negative else 0), "f64")
    if "." in word:
        value = -float(word) if negative else float(word)
        return Immediate(int.from_bytes(struct.pack("<d", value), "little"), "f64")
    digits = word.rstrip("U")
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
    number = int(digits, 8) if octal else int(digits, 0)
    if number >> 64:
        raise ValueError  # integer constants have 64 bits
    return Immediate(-number if negative else number, "int")
