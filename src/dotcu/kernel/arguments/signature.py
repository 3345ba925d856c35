"""A kernel's parameter list, from the signature probe, the PTX entry and the source; mangled names.

The probe is an instantiation whose one template argument is the type of a pointer to the kernel, so that
its mangled name spells every parameter type. The `.param` lines of the entry have the sizes and alignments,
which a struct's name alone does not say; the source has the names.

Source: Itanium C++ ABI, section 5.1 (names, types, substitutions). Expressions and closure types cannot be
part of a probe and are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Union

from dotcu.errors import SourceError
from dotcu.ptx.instructions import Variable as PtxVariable

if TYPE_CHECKING:
    from dotcu.ptx.debug_info import TypeRow


@dataclass(frozen=True, kw_only=True)
class KernelParameter:
    """One parameter. `str()` gives its declaration.

    Attributes:
        ptx_type: The type of its `.param`; "b8" for a struct, which is an array of bytes.
    """

    index: int
    name: str
    ctype: CType
    size: int
    ptx_type: str

    def __str__(self) -> str:
        return spell(self.ctype, f" {self.name}" if self.name else "")

    @property
    def label(self) -> str:
        """Its name, or its position where the source gives it none."""
        return self.name or f"parameter {self.index + 1}"


def read_parameters(
    kernel: str, *, probe: str, names: Sequence[str], entry: Sequence[PtxVariable]
) -> tuple[KernelParameter, ...]:
    """Join the types of the probe, the sizes of the entry and the names of the source.

    Args:
        probe: The mangled name of the signature probe's instantiation.
        names: The parameters' names as in the source; may be empty or too short.
        entry: The `.param` lines of the kernel's PTX entry.

    Raises:
        SourceError: Probe and entry disagree, so that no argument could be placed safely.
    """
    types = parameter_types(probe)
    if len(types) != len(entry):
        raise SourceError(
            f"{kernel} has {len(types)} parameters by its type and {len(entry)} by its PTX entry, so its "
            "arguments cannot be placed.\nGive every parameter a type of known, nonzero size."
        )
    known = dict(enumerate(names)) if len(names) <= len(types) else {}
    return tuple(
        KernelParameter(
            index=index,
            name=known.get(index, ""),
            ctype=ctype,
            size=param.size,
            ptx_type=param.type.lstrip("."),
        )
        for index, (ctype, param) in enumerate(zip(types, entry, strict=True))
    )


TemplateArgument = Union["CType", int, bool, str]

_BUILTINS = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char",
    "s": "short", "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long",
    "m": "unsigned long", "x": "long long", "y": "unsigned long long", "n": "__int128",
    "o": "unsigned __int128", "f": "float", "d": "double", "e": "long double", "g": "__float128",
    "z": "...",
}  # fmt: skip
_BUILTINS_D = {
    "n": "decltype(nullptr)", "a": "auto", "c": "decltype(auto)", "i": "char32_t", "s": "char16_t",
    "u": "char8_t", "h": "_Float16",
}  # fmt: skip
_STD = {"a": "allocator", "b": "basic_string", "s": "string", "i": "istream", "o": "ostream", "d": "iostream"}


@dataclass(frozen=True, kw_only=True)
class CType:
    """A C++ type. `str()` spells it.

    Attributes:
        kind: "builtin", "named", "pointer", "reference", "array" or "function".
        name: Of a builtin or named type: its qualified name without template arguments.
        arguments: Of a named type: its template arguments. Of a function: its parameters.
        is_template: A named type has a template argument list, though it may be empty.
        target: What a pointer or reference leads to; an array's element; a function's result.
        length: Of an array: its number of elements, 0 if it is open.
    """

    kind: str
    name: str = ""
    arguments: tuple[TemplateArgument, ...] = ()
    is_template: bool = False
    target: CType | None = None
    length: int = 0
    const: bool = False
    volatile: bool = False

    @property
    def pointee(self) -> CType:
        """The type that a pointer leads to."""
        assert self.target is not None
        return self.target

    def __str__(self) -> str:
        return spell(self)


def spell(ctype: CType, declarator: str = "") -> str:
    """Write a type as C++ would, around a declarator."""
    cv = " ".join(word for word, on in (("const", ctype.const), ("volatile", ctype.volatile)) if on)
    if ctype.kind in ("pointer", "reference"):
        mark = "*" if ctype.kind == "pointer" else "&"
        inner = f"{mark}{' ' + cv if cv else ''}{declarator}"
        wrap = ctype.target is not None and ctype.target.kind in ("function", "array")
        return spell(ctype.pointee, f"({inner})" if wrap else inner)
    if ctype.kind == "array":
        return spell(ctype.pointee, f"{declarator}[{ctype.length or ''}]")
    if ctype.kind == "function":
        return spell(ctype.pointee, f"{declarator}({', '.join(map(_spell_argument, ctype.arguments))})")
    arguments = f"<{', '.join(map(_spell_argument, ctype.arguments))}>" if ctype.is_template else ""
    space = " " if declarator.startswith("(") else ""
    return f"{cv + ' ' if cv else ''}{ctype.name}{arguments}{space}{declarator}"


def _spell_argument(argument: TemplateArgument) -> str:
    return str(argument).lower() if isinstance(argument, bool) else str(argument)


def parameter_types(probe: str) -> tuple[CType, ...]:
    """Return the parameter types of the kernel that a signature probe was instantiated for."""
    name = _Demangler(probe).encoding_name()
    argument = name.arguments[0] if name.arguments else None
    if not isinstance(argument, CType) or argument.kind != "pointer" or argument.pointee.kind != "function":
        raise SourceError(f"The signature probe {probe!r} does not name a kernel's type.")
    return tuple(a for a in argument.pointee.arguments if isinstance(a, CType) and a.name != "void")


def qualified_name(symbol: str) -> tuple[str, bool]:
    """Return the qualified name of an entry, and whether it is an instantiation of a template."""
    if not symbol.startswith("_Z"):
        return symbol, False
    name = _Demangler(symbol).encoding_name()
    return name.name, name.is_template


def shown_name(symbol: str) -> str:
    """Return a function's name as a source would write it, with template arguments; else the symbol."""
    if not symbol.startswith("_Z"):
        return symbol
    try:
        return spell(_Demangler(symbol).encoding_name())
    except SourceError:
        return symbol


class _Demangler:
    """A recursive descent over one mangled name, with its table of substitutions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.seen: list[CType] = []

    def encoding_name(self) -> CType:
        if not self._take("_Z"):
            raise self._refusal()
        return self._name()

    def _refusal(self) -> SourceError:
        return SourceError(
            f"The mangled name {self.text!r} holds, at {self.text[self.at : self.at + 12]!r}, a type that "
            "no kernel parameter can have.\nGive the parameter a named type, a number or a pointer."
        )

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self, literal: str) -> bool:
        if self.text.startswith(literal, self.at):
            self.at += len(literal)
            return True
        return False

    def _remember(self, ctype: CType) -> CType:
        self.seen.append(ctype)
        return ctype

    def _number(self) -> int:
        start = self.at
        while self._peek().isdigit():
            self.at += 1
        if start == self.at:
            raise self._refusal()
        return int(self.text[start : self.at])

    def _source_name(self) -> str:
        self._take("L")  # internal linkage
        length = self._number()
        name = self.text[self.at : self.at + length]
        self.at += length
        while self._take("B"):  # ABI tags
            self.at += self._number()
        return "(anonymous namespace)" if name.startswith("_GLOBAL__N_") else name

    def _name(self) -> CType:
        """Read a name, nested or not, with its template arguments; each prefix is remembered."""
        if self._take("N"):
            return self._nested_name()
        if self._peek() == "S" and self.text[self.at : self.at + 2] != "St":
            return self._templated(self._substitution())
        prefix = "std::" if self._take("St") else ""
        ctype = CType(kind="named", name=prefix + self._source_name())
        if self._peek() == "I":
            return self._templated(self._remember(ctype))
        return ctype

    def _templated(self, ctype: CType) -> CType:
        if not self._take("I"):
            return ctype
        return replace(ctype, arguments=self._template_arguments(), is_template=True)

    def _nested_name(self) -> CType:
        while self._peek() in ("r", "V", "K"):
            self.at += 1
        ctype: CType | None = None
        while not self._take("E"):
            if ctype is None and self._take("St"):
                ctype = CType(kind="named", name="std")
                continue
            if ctype is None and self._peek() == "S":
                ctype = self._substitution()
                continue
            if ctype is not None and self._peek() == "I":
                ctype = self._templated(ctype)
            else:
                prefix = f"{spell(ctype)}::" if ctype is not None else ""
                ctype = CType(kind="named", name=prefix + self._source_name())
            if self._peek() != "E":  # the caller that reads a whole name remembers it
                self._remember(ctype)
        if ctype is None:
            raise self._refusal()
        return ctype

    def _substitution(self) -> CType:
        self._take("S")
        if self._take("_"):
            index = 0
        elif self._peek() in _STD:
            name = _STD[self._peek()]
            self.at += 1
            return CType(kind="named", name=f"std::{name}")
        else:
            end = self.text.find("_", self.at)
            index = int(self.text[self.at : end], 36) + 1 if end > self.at else -1
            self.at = end + 1
        if not 0 <= index < len(self.seen):
            raise self._refusal()
        return self.seen[index]

    def _template_arguments(self) -> tuple[TemplateArgument, ...]:
        """Read the arguments of a list, or of a pack in one, and its end."""
        arguments: list[TemplateArgument] = []
        while not self._take("E"):
            if self._take("J"):
                arguments += self._template_arguments()
            else:
                arguments.append(self._literal() if self._take("L") else self._type())
        return tuple(arguments)

    def _literal(self) -> TemplateArgument:
        ctype = self._type()
        end = self.text.find("E", self.at)
        value, self.at = self.text[self.at : end], end + 1
        if ctype.kind == "builtin" and value.lstrip("n").isdigit():
            number = int(value.replace("n", "-"))
            return bool(number) if ctype.name == "bool" else number
        return f"({ctype}){value.replace('n', '-')}"

    def _type(self) -> CType:
        code = self._peek()
        if code == "S" and self.text[self.at : self.at + 2] != "St":
            ctype = self._substitution()
            return self._remember(self._templated(ctype)) if self._peek() == "I" else ctype
        if code in ("r", "V", "K"):
            self._take("r")  # __restrict__ says nothing about what a parameter takes
            volatile, const = self._take("V"), self._take("K")
            inner = self._type()
            ctype = replace(inner, const=inner.const or const, volatile=inner.volatile or volatile)
        elif code in ("P", "R", "O"):
            self.at += 1
            ctype = CType(kind="pointer" if code == "P" else "reference", target=self._type())
        elif code == "F" or self.text.startswith("DoF", self.at):
            ctype = self._function()
        elif self._take("A"):
            length = self._number() if self._peek() != "_" else 0
            if not self._take("_"):
                raise self._refusal()
            ctype = CType(kind="array", length=length, target=self._type())
        elif code in ("N", "S") or code.isdigit():
            ctype = self._name()
        else:
            return self._builtin()
        return self._remember(ctype)

    def _function(self) -> CType:
        self._take("Do")
        self._take("F")
        self._take("Y")
        result = self._type()
        parameters: list[TemplateArgument] = []
        while not self._take("E"):
            parameters.append(self._type())
        is_empty = parameters == [CType(kind="builtin", name="void")]
        return CType(kind="function", target=result, arguments=() if is_empty else tuple(parameters))

    def _builtin(self) -> CType:
        code = self._peek()
        if code in _BUILTINS and code:
            self.at += 1
            return CType(kind="builtin", name=_BUILTINS[code])
        if self._take("DF"):
            bits = self._number()
            brain = self._take("b") or not self._take("_")
            return CType(kind="builtin", name="__bf16" if brain else f"_Float{bits}")
        if self._take("D") and self._peek() in _BUILTINS_D:
            self.at += 1
            return CType(kind="builtin", name=_BUILTINS_D[self.text[self.at - 1]])
        if self._take("u"):
            return self._remember(CType(kind="named", name=self._source_name()))
        raise self._refusal()


@dataclass(frozen=True)
class TypeLayout:
    """A type as the compiler lays it out: a row of `parameter_types`."""

    rows: Sequence[TypeRow]
    number: int

    @property
    def row(self) -> TypeRow:
        return self.rows[self.number]

    @property
    def size(self) -> int:
        """In bytes."""
        if self.row["tag"] == "array":
            return int(self.row["length"] * self.target.size)
        return int(self.row["size"]) or 8 * ("to" in self.row)

    @property
    def ptx_type(self) -> str:
        """As a parameter's: "b8" for a struct, a union or an array."""
        return "b8" if self.row["tag"] in ("struct", "union", "array") else f"u{8 * self.size}"

    @property
    def target(self) -> TypeLayout:
        """The type that a pointer leads to, or an array's element."""
        return TypeLayout(self.rows, self.row["to"])

    @property
    def ctype(self) -> CType:
        """The type without its members."""
        row, const = self.row, bool(self.row["const"])
        if row["tag"] == "array":
            return CType(kind="array", target=self.target.ctype, length=row["length"], const=const)
        if "to" in row:
            return CType(kind="pointer", target=self.target.ctype, const=const)
        kind = {"builtin": "builtin", "void": "builtin", "function type": "function"}.get(row["tag"], "named")
        target = CType(kind="builtin", name="void") if kind == "function" else None
        name = shown_name(row["name"])  # some are mangled; those of unnamed types no source can write
        name = f"an unnamed {row['tag']}" if not name or name.startswith(("_Z", "__C")) else name
        return CType(kind=kind, name=name, target=target, const=const)

    def members(self) -> Iterator[tuple[str, int, TypeLayout]]:
        """Yield the members of a struct or a union: name, offset in bytes, and type."""
        for name, offset, _, number in self.row.get("members", ()):
            yield name, offset, TypeLayout(self.rows, number)

    def bit_fields(self) -> list[str]:
        """Return the names of the members that are bit-fields."""
        return [name for name, _, is_bits, _ in self.row.get("members", ()) if is_bits]
