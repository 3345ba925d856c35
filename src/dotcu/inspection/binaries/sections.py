"""The section table of an ELF file, read by itself so that device code is found without pyelftools."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dotcu.errors import UsageError
from dotcu.inspection.binaries.image import Image

# Source: the ELF-64 object file format, "ELF header", "Sections", "Symbol table".
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_CLASS_64, _LITTLE = 2, 1
_INDEX_ELSEWHERE = 0xFFFF
NOBITS = 8
"""The type of a section that has a size and no bytes in the file."""
SYMBOLS = 2
"""The type of the full symbol table."""


class Header(NamedTuple):
    """What of the file's header is used here."""

    abi_version: int
    type: int
    machine: int
    flags: int
    table: int
    sections: int
    names: int


class Section(NamedTuple):
    """A row of the table."""

    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int


def read_header(image: Image) -> Header:
    """Read the file's header.

    Raises:
        UsageError: It is no ELF file of 64 bits and little endian, or it is cut short.
    """
    ident, kind, machine, _, _, _, table, flags, *_, count, names = image.unpack(_HEADER, 0, "the ELF header")
    if ident[:4] != b"\x7fELF" or (ident[4], ident[5]) != (_CLASS_64, _LITTLE):
        raise UsageError(
            f"{image.name} is no ELF file of 64 bits, little endian: it begins with {ident[:6].hex(' ')}.\n"
            "CUDA code is made for 64-bit hosts alone: name a library or cubin of such a one."
        )
    return Header(ident[8], kind, machine, flags, table, count, names)


def read_sections(image: Image) -> tuple[Section, ...]:
    """Read the section table; empty where there is none.

    Raises:
        UsageError: As `read_header`, or a section lies beyond the end of the file.
    """
    header = read_header(image)
    if header.table == 0:
        return ()
    first = image.unpack(_SECTION, header.table, "the section table")
    # Where a number is too large for the header, it stands in the first, empty section.
    count = header.sections or first[5]
    names = first[6] if header.names == _INDEX_ELSEWHERE else header.names
    table = image.take(header.table, count * _SECTION.size, "the section table")
    rows = list(_SECTION.iter_unpack(table))
    if names >= len(rows):
        raise _damaged(image, names, len(rows))
    text = image.take(rows[names][4], rows[names][5], "the table of the sections' names")
    return tuple(_section(image, text, row) for row in rows)


def symbol_rows(image: Image, table: Section) -> Iterator[tuple[int, ...]]:
    """The rows of a symbol table: name, info, other, section, value, size."""
    rows = table.size - table.size % _SYMBOL.size
    return _SYMBOL.iter_unpack(image.take(table.offset, rows, f"its section {table.name}"))


def names_of(image: Image, sections: Sequence[Section], table: Section) -> bytes:
    """The string table that goes with a symbol table.

    Raises:
        UsageError: It names a section that is not there.
    """
    if table.link >= len(sections):
        raise _damaged(image, table.link, len(sections))
    names = sections[table.link]
    return image.take(names.offset, names.size, f"the names that go with {table.name}")


def _damaged(image: Image, index: int, count: int) -> UsageError:
    return UsageError(
        f"{image.name} is damaged: it refers to section {index}, and there are {count}.\n"
        "Required: the file as its linker wrote it. Copy, download or build it again."
    )


def _section(image: Image, text: bytes, row: tuple[int, ...]) -> Section:
    name, kind, flags, _, offset, size, link, info, _, _ = row
    section = Section(string(text, name), kind, flags, offset, size, link, info)
    if kind != NOBITS:
        image.require(offset + size, f"its section {section.name or 'without a name'}")
    return section


def string(text: bytes, offset: int) -> str:
    """The text at a place of a string table, "" where the place lies outside."""
    end = text.find(b"\0", offset)
    return text[offset : end if end >= 0 else None].decode("utf-8", "replace")
