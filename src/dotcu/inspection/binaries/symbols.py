"""The symbols of an ELF file, with nm's letters.

The table is unpacked in one go: pyelftools, which makes objects of every field, takes ten seconds for the
half million symbols of a large library.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from dotcu.inspection.binaries.demangle import demangle
from dotcu.inspection.binaries.image import Image
from dotcu.inspection.binaries.sections import NOBITS, Section, names_of, string, symbol_rows

# Source: the ELF-64 object file format, "Symbol table", and the System V ABI's GNU extensions.
_INDEX = struct.Struct("<H")
_LOCAL, _WEAK, _UNIQUE = 0, 2, 10
_OBJECT, _SECTION, _FILE, _INDIRECT = 1, 3, 4, 10
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_WRITABLE, _ALLOCATED, _EXECUTABLE = 1, 2, 4
_HIDDEN_VERSION = 0x8000
UNDEFINED_LETTERS = frozenset("Uwv")


class Symbol(NamedTuple):
    """A symbol.

    Attributes:
        letter: As nm prints it: T and t are code, D and d data, B and b zeroed data, R and r constants, W and
            V weak, u unique, i chosen when it is loaded; U is what others must define, w and v what they may.
        symbol: The mangled name.
        version: `GLIBC_2.17`, "" where it has none.
    """

    letter: str
    symbol: str
    version: str

    @property
    def name(self) -> str:
        """The name as C++ spells it."""
        return demangle(self.symbol)

    def __str__(self) -> str:
        return f"{self.letter} {self.name}{f'@{self.version}' if self.version else ''}"

    @property
    def is_undefined(self) -> bool:
        """Another library must define it."""
        return self.letter in UNDEFINED_LETTERS


def read_symbols(
    image: Image, sections: Sequence[Section], table: str, versions: Mapping[int, str]
) -> tuple[Symbol, ...]:
    """The symbols of a table, `.dynsym` or `.symtab`, in its order; those of sections and files left out.

    Args:
        versions: The name of each version that the file defines or needs, by its index.
    """
    found = next((section for section in sections if section.name == table and section.type != NOBITS), None)
    return tuple(_symbols(image, sections, found, versions)) if found else ()


def _symbols(
    image: Image, sections: Sequence[Section], table: Section, versions: Mapping[int, str]
) -> Iterator[Symbol]:
    text = names_of(image, sections, table)
    indices = _version_indices(image, sections) if table.name == ".dynsym" else iter(())
    letters = [_of_section(section) for section in sections]
    rows = symbol_rows(image, table)
    for (name, info, _, where, _, _), index in zip(rows, chain(indices, repeat(0)), strict=False):
        if name and info & 0xF not in (_SECTION, _FILE):
            version = versions.get(index & ~_HIDDEN_VERSION, "")
            yield Symbol(_letter(info, where, letters), string(text, name), version)


def _version_indices(image: Image, sections: Sequence[Section]) -> Iterator[int]:
    """The version of each symbol of the dynamic table, by its index."""
    for section in sections:
        if section.name == ".gnu.version":
            size = section.size - section.size % _INDEX.size
            indices = image.take(section.offset, size, "the versions of its symbols")
            return (index for (index,) in _INDEX.iter_unpack(indices))
    return iter(())


def _letter(info: int, where: int, letters: Sequence[str]) -> str:
    """Source: binutils, `bfd_decode_symclass`."""
    binding, kind = info >> 4, info & 0xF
    if where == _COMMON:
        return "C"
    if where == _UNDEFINED:
        return ("v" if kind == _OBJECT else "w") if binding == _WEAK else "U"
    if kind == _INDIRECT:
        return "i"
    if binding == _WEAK:
        return "V" if kind == _OBJECT else "W"
    if binding == _UNIQUE:
        return "u"
    letter = "a" if where == _ABSOLUTE else letters[where] if where < len(letters) else "?"
    return letter if binding == _LOCAL else letter.upper()


def _of_section(section: Section) -> str:
    if not section.flags & _ALLOCATED:
        return "n"
    if section.flags & _EXECUTABLE:
        return "t"
    if section.type == NOBITS:
        return "b"
    return "d" if section.flags & _WRITABLE else "r"
