"""A function's body to instructions as values.

Source: PTX ISA, "Syntax", "State Spaces, Types, and Variables", "Instruction Operands"
(chapters 4 to 6), and "Directives" for .loc, .branchtargets and .callprototype.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from dotcu.ptx.instructions import (
    NOWHERE,
    SPECIAL_REGISTERS,
    TYPE_BYTES,
    Address,
    Arguments,
    FunctionBody,
    Immediate,
    Instruction,
    Location,
    Operand,
    Predicate,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)
from dotcu.ptx.lexer import Tokens, tokenize

_MAX_DEPTH = 256  # of nested scopes
_MAX_DIGITS = 9  # of a register's number in its family
_SPACES = ("local", "shared", "param", "global", "const")
_LOC = re.compile(r"^\s*\.loc\b", re.MULTILINE)
_PART = re.compile(r"[bh]\d+")  # of a register, in video instructions
_COMPONENTS = {"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}


At = tuple[int, int, int]
"""File, line and column, as a `.loc` has them."""


class Locations:
    """Follows the `.loc` directives of one body.

    Attributes:
        current: The source line of the instructions from here on, and where it was inlined.
    """

    def __init__(self) -> None:
        self.current = NOWHERE
        self._known: dict[At, Location] = {}

    def move(self, at: At, inlined_at: At | None = None) -> None:
        """Take in a directive; the place that it was inlined at is one of those before it."""
        if at[1] == 0:  # line 0 belongs to no source line: stay where we are
            return
        outer = None
        if inlined_at is not None:
            outer = self._known.get(inlined_at) or Location(inlined_at[0], inlined_at[1])
        self.current = self._known[at] = Location(at[0], at[1], outer)


@dataclass
class _Scope:
    """Names declared between two braces."""

    number: int
    parent: _Scope | None
    depth: int = 0
    names: dict[str, Operand] = field(default_factory=dict)
    families: dict[str, tuple[str, int]] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)


class _BodyParser:
    def __init__(
        self, text: str, span: tuple[int, int], params: tuple[Variable, ...], own_lines: bool
    ) -> None:
        self.text = text
        self.breaks = [match.start() for match in re.finditer("\n", text)] if own_lines else None
        self.tokens = Tokens(text, *tokenize(text, *span))
        self.scope = _Scope(0, None)
        self.scopes = 1
        self.locations = Locations()
        self.variables: dict[str, Variable] = {}
        self.instructions: list[Instruction] = []
        self.branches: list[tuple[int, str, _Scope]] = []
        self.tables: dict[str, tuple[tuple[str, ...], _Scope]] = {}
        for param in params:
            self.scope.names[param.name] = Symbol(param.name)

    def parse(self) -> FunctionBody:
        tokens, words = self.tokens, self.tokens.words
        while tokens.index < len(words):
            word = words[tokens.index]
            handler = _STATEMENTS.get(word)
            if handler is not None:
                tokens.index += 1
                handler(self)
            elif tokens.peek(1) == ":":
                self._label(word)
            else:
                self._instruction()
        if self.scope.parent is not None:
            raise tokens.error("the end of a body inside a { block")
        return self._resolved()

    def _open(self) -> None:
        self.scope = _Scope(self.scopes, self.scope, self.scope.depth + 1)
        self.scopes += 1
        if self.scope.depth > _MAX_DEPTH:
            raise self.tokens.error(f"more than {_MAX_DEPTH} nested {{ blocks")

    def _close(self) -> None:
        if self.scope.parent is None:
            raise self.tokens.error("a } without its {")
        self.scope = self.scope.parent

    def _registers(self) -> None:
        tokens = self.tokens
        lanes = int(tokens.take()[2:]) if tokens.peek() in (".v2", ".v4") else 1
        kind = tokens.type()
        while True:
            name = tokens.take()
            if tokens.skip("<"):
                self.scope.families[name] = (kind, tokens.integer())
                tokens.expect(">")
            else:
                self.scope.names[name] = self._declared(name, kind, self.scope, lanes)
            if not tokens.skip(","):
                break
        tokens.expect(";")

    def _declared(self, name: str, kind: str, scope: _Scope, lanes: int = 1) -> Operand:
        unique = self._unique(name, scope)
        if kind == "b128":  # its low and its high half
            lanes, kind = 2 * lanes, "b64"
        if lanes == 1:
            return Register(unique, kind)
        return Vector(tuple(Register(f"{unique}.{i}", kind) for i in range(lanes)))

    @staticmethod
    def _unique(name: str, scope: _Scope) -> str:
        return name if scope.number == 0 else f"{name}@{scope.number}"

    def _space(self, space: str) -> None:
        for variable in self.tokens.variables(space):
            unique = self._unique(variable.name, self.scope)
            self.variables[unique] = variable._replace(name=unique)
            self.scope.names[variable.name] = Symbol(unique)

    def _loc(self) -> None:
        tokens = self.tokens
        at, outer = self._at(), None
        while tokens.skip(","):
            word = tokens.take()
            if word == "inlined_at":
                outer = self._at()
            elif word == "function_name":
                tokens.take()
                if tokens.skip("+"):
                    tokens.integer()
            else:
                raise tokens.error(f"{word!r} in a .loc")
        self.locations.move(at, outer)

    def _at(self) -> At:
        return self.tokens.integer(), self.tokens.integer(), self.tokens.integer()

    def _label(self, name: str) -> None:
        tokens = self.tokens
        tokens.index += 2
        if tokens.skip(".branchtargets"):
            names = [tokens.take()]
            while tokens.skip(","):
                names.append(tokens.take())
            tokens.expect(";")
            self.tables[name] = (tuple(names), self.scope)
        elif tokens.peek() in (".callprototype", ".calltargets"):
            tokens.until(";")
        else:
            self.scope.labels[name] = len(self.instructions)

    def _guard(self) -> Predicate | None:
        tokens = self.tokens
        if not tokens.skip("@"):
            return None
        negated = tokens.skip("!")
        register = self._name(tokens.take())
        if not isinstance(register, Register) or register.type != "pred":
            raise tokens.error("a guard that is not a predicate")
        return Predicate(register, negated)

    def _instruction(self) -> None:
        tokens = self.tokens
        start = tokens.place()
        if self.breaks is not None:
            self.locations.move((0, bisect_left(self.breaks, start) + 1, 0))
        guard = self._guard()
        word = tokens.take()
        if not (word[0].isalpha() or word[0] == "_"):
            tokens.index -= 1
            raise tokens.error(f"{word!r} where an instruction is expected")
        opcode, *modifiers = word.split(".")
        operands: list[Operand] = []
        while not tokens.skip(";"):
            operands.append(self._operand())
            if not tokens.skip(","):
                tokens.expect(";")
                break
        text = " ".join(self.text[start : tokens.places[tokens.index - 1]].split())
        if opcode == "bra" and operands and isinstance(operands[0], Symbol):
            self.branches.append((len(self.instructions), operands[0].name, self.scope))
        self.instructions.append(
            Instruction(
                opcode,
                tuple([m for m in modifiers if m not in TYPE_BYTES]),
                tuple([m for m in modifiers if m in TYPE_BYTES]),
                tuple(operands),
                guard,
                self.locations.current,
                text,
            )
        )

    def _operand(self) -> Operand:
        tokens = self.tokens
        first = tokens.peek()[:1]
        if first in _BRACKETED:
            return _BRACKETED[first](self)
        if first == "!":
            tokens.take()
            register = self._name(tokens.take())
            if not isinstance(register, Register):
                raise tokens.error("a ! before an operand that is not a predicate")
            return Predicate(register, negated=True)
        if first == "-" or first.isdigit():
            return tokens.literal()
        operand = self._name(tokens.take())
        if tokens.peek() == "|":
            tokens.take()
            return Vector((operand, self._name(tokens.take())))
        if isinstance(operand, Symbol) and tokens.peek() in ("+", "-"):
            return operand._replace(offset=self._offset())
        return operand

    def _offset(self) -> int:
        offset = 0
        while self.tokens.peek() in ("+", "-"):
            self.tokens.skip("+")
            offset += self.tokens.integer()
        return offset

    def _address(self) -> Address | Vector:
        """[base + offset], or with coordinates, as of a tensor map or a texture: [map, {x, y}]."""
        tokens = self.tokens
        tokens.expect("[")
        word = tokens.peek()
        is_number = word == "-" or word[:1].isdigit()
        base = Immediate(tokens.integer(), "int") if is_number else self._name(tokens.take())
        if not isinstance(base, (Register, Symbol, Immediate)):
            raise tokens.error("an address that is neither a register nor a variable")
        address = Address(base, self._offset())
        coordinates: list[Operand] = []
        while tokens.skip(","):
            coordinates.append(self._operand())
        tokens.expect("]")
        return Vector((address, *coordinates)) if coordinates else address

    def _vector(self) -> Vector:
        tokens = self.tokens
        tokens.expect("{")
        elements: list[Operand] = []
        while not tokens.skip("}"):
            if tokens.peek() == "{":
                raise tokens.error("a vector in a vector")
            elements.append(self._operand())
            tokens.skip(",")
        return Vector(tuple(elements))

    def _arguments(self) -> Arguments:
        tokens = self.tokens
        tokens.expect("(")
        names: list[str] = []
        while not tokens.skip(")"):
            if tokens.peek() == "(":
                raise tokens.error("a list in a list of arguments")
            operand = self._operand()
            if not isinstance(operand, (Symbol, Register)):
                raise tokens.error("a call whose argument is neither a .param nor a register")
            names.append(operand.name)
            tokens.skip(",")
        return Arguments(tuple(names))

    def _name(self, word: str) -> Operand:
        scope: _Scope | None = self.scope
        while scope is not None:
            operand = scope.names.get(word)
            if operand is None and scope.families:
                operand = self._member(word, scope)
            if operand is not None:
                return operand
            scope = scope.parent
        return self._outside(word)

    def _member(self, word: str, scope: _Scope) -> Operand | None:
        for digits in range(1, min(_MAX_DIGITS, len(word)) + 1):
            number = word[-digits:]
            if not ("0" <= number[0] <= "9"):
                break
            family = scope.families.get(word[:-digits])
            if family is not None and int(number) < family[1]:
                operand = scope.names[word] = self._declared(word, family[0], scope)
                return operand
        return None

    def _outside(self, word: str) -> Operand:
        if word == "_":
            return Sink()
        if word == "WARP_SZ":
            return Immediate(32, "int")
        if word[0] == "%":
            if word[1:] in SPECIAL_REGISTERS:
                return Special(word[1:])
            return self._component(word)
        if not (word[0].isalpha() or word[0] in "_$"):
            raise self.tokens.error(f"{word!r} where an operand is expected")
        return Symbol(word)

    def _component(self, word: str) -> Operand:
        """%v.x: an element of a vector register."""
        base, _, component = word.partition(".")
        whole = self._name(base) if component in _COMPONENTS or _PART.fullmatch(component) else None
        if isinstance(whole, Vector) and _COMPONENTS.get(component, 4) < len(whole.elements):
            return whole.elements[_COMPONENTS[component]]
        if isinstance(whole, Register) and component not in _COMPONENTS:
            return Symbol(word)  # a byte or half, which only instructions take that are not executed
        raise self.tokens.error(f"the register {word}, which is not declared,")

    def _resolved(self) -> FunctionBody:
        for index, name, scope in self.branches:
            target = self._target(name, scope)
            self.instructions[index] = self.instructions[index]._replace(target=target)
        tables = {
            name: tuple(self._target(label, scope) for label in labels)
            for name, (labels, scope) in self.tables.items()
        }
        return FunctionBody(instructions=tuple(self.instructions), variables=self.variables, tables=tables)

    def _target(self, label: str, scope: _Scope | None) -> int:
        while scope is not None:
            if label in scope.labels:
                return scope.labels[label]
            scope = scope.parent
        raise self.tokens.error(f"a branch to {label!r}, which is not there,")


_BRACKETED: Mapping[str, Callable[[_BodyParser], Operand]] = {
    "[": _BodyParser._address,
    "{": _BodyParser._vector,
    "(": _BodyParser._arguments,
}
_STATEMENTS: Mapping[str, Callable[[_BodyParser], None]] = {
    "{": _BodyParser._open,
    "}": _BodyParser._close,
    ";": lambda parser: None,
    ".reg": _BodyParser._registers,
    ".loc": _BodyParser._loc,
    ".pragma": lambda parser: parser.tokens.until(";"),
    **{f".{space}": partial(_BodyParser._space, space=space) for space in _SPACES},
}


def parse_body(
    text: str, span: tuple[int, int], params: tuple[Variable, ...], *, own_lines: bool = False
) -> FunctionBody:
    """Parse the body that is at `span` of a PTX file.

    Args:
        text: The text of the PTX file.
        span: The first and last character of the body.
        params: The parameters of the function.
        own_lines: Where no `.loc` names a source line, take those of the PTX, as file 0.

    Raises:
        SimulationError: The body is not well formed; names the line of PTX.
    """
    own_lines = own_lines and _LOC.search(text, *span) is None
    return _BodyParser(text, span, params, own_lines).parse()
