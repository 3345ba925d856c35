"""ELF files: sections, symbols with nm's letters, and what the dynamic linker reads.

One reader for cubins, object files and libraries. Only 64-bit little-endian files are read. Symbol tables are
unpacked at once, since a large library has half a million rows.

Source: System V ABI and the ELF-64 object file format ("ELF header", "Sections", "Symbol table", "Dynamic
section"); GNU extensions for symbol versions: the Linux Standard Base, "Symbol Versioning".
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

from dotcu.demangler import demangle
from dotcu.errors import UsageError

MAGIC = b"\x7fELF"
CUDA_MACHINE = 190
"""e_machine of device code (EM_CUDA)."""
NOBITS = 8
"""The type of a section that has a size and no bytes in the file (SHT_NOBITS)."""
SYMBOLS = 2
"""The type of the full symbol table (SHT_SYMTAB)."""
UNDEFINED_LETTERS = frozenset("Uwv")
HOST_CODE = ".nv.host"
"""The section of a cubin of tile kernels that has code for the processor of the host."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
"""A row of a symbol table: name, info, other, section, value, size."""
_INDEX = struct.Struct("<H")
_DYNAMIC = struct.Struct("<QQ")
_CLASS_64, _LITTLE = 2, 1
_INDEX_ELSEWHERE = 0xFFFF
_MACHINES = {3: "i386", 21: "ppc64le", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_KINDS = {1: "object file", 2: "program", 3: "shared library"}
_NEEDED, _SONAME, _RPATH, _RUNPATH = 1, 14, 15, 29

# A version's record, and each of its parts: the fields that are not read are padding.
_VERSION_DEFINED = struct.Struct("<2xHHH4xII")  # flags, index, count, aux, next
_DEFINED_NAME = struct.Struct("<II")  # name, next
_VERSION_NEEDED = struct.Struct("<2xHIII")  # count, file, aux, next
_NEEDED_NAME = struct.Struct("<6xHII")  # index, name, next
_NAMES_THE_FILE = 1  # VER_FLG_BASE
_HIDDEN_VERSION = 0x8000

_LOCAL, _WEAK, _UNIQUE = 0, 2, 10
_OBJECT, _SECTION_SYMBOL, _FILE, _INDIRECT = 1, 3, 4, 10
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_WRITABLE, _ALLOCATED, _EXECUTABLE = 1, 2, 4

_MAX_OVERLAP = 4
"""How many times as long as their table all names of it may be, or sections as their file."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """The bytes of a binary, and the name that errors have for it."""

    name: str
    data: bytes | mmap.mmap

    def take(self, offset: int, size: int, part: str) -> bytes:
        self.require(offset + size, part)
        return self.data[offset : offset + size]

    def unpack(self, layout: struct.Struct, offset: int, part: str) -> tuple[Any, ...]:
        self.require(offset + layout.size, part)
        return layout.unpack_from(self.data, offset)

    def require(self, end: int, part: str) -> None:
        """Raise a UsageError where the bytes end before a part of them does."""
        if end > len(self.data):
            raise UsageError(
                f"{self.name} is cut short: {part} should end at byte {end}, "
                f"and there are {len(self.data)}.\n"
                "Required: the whole file. Copy, download or build it again."
            )


class Header(NamedTuple):
    """The fields of a file's header that are used here."""

    abi_version: int
    type: int
    machine: int
    flags: int
    table: int
    sections: int
    names: int


class Section(NamedTuple):
    """A row of the section table."""

    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int


class ElfSymbol(NamedTuple):
    """A symbol.

    Attributes:
        letter: As nm prints it: T and t are code, D and d data, B and b zeroed data, R and r constants, W and
            V weak, u unique, i chosen when it is loaded; U is what others must define, w and v what they may.
        symbol: The mangled name.
        version: `GLIBC_2.17`, "" if it has none.
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


@dataclass(frozen=True, kw_only=True)
class HostBinary:
    """A library, a program or an object file of the host.

    Attributes:
        kind: "shared library", "program" or "object file".
        machine: `x86_64`, `aarch64`, or another processor.
        soname: "" if it has none.
        needed: File names of the shared libraries that it needs.
        search: Folders to search for those (DT_RUNPATH, or the older DT_RPATH).
        versions: By needed library, the versions of it that are needed.
        symbols: What the loader sees; of an object file, which the linker still has to see, all.
        is_linked: It has a dynamic symbol table; an object file has still to be linked.
    """

    kind: str
    machine: str
    soname: str
    needed: tuple[str, ...]
    search: tuple[str, ...]
    versions: Mapping[str, tuple[str, ...]]
    symbols: tuple[ElfSymbol, ...]
    is_linked: bool

    @property
    def defined(self) -> tuple[ElfSymbol, ...]:
        """The symbols that it gives to others."""
        return tuple(symbol for symbol in self.symbols if not symbol.is_undefined)

    @property
    def undefined(self) -> tuple[ElfSymbol, ...]:
        """The symbols that others must define."""
        return tuple(symbol for symbol in self.symbols if symbol.is_undefined)


def read_host_binary(image: Image) -> HostBinary:
    """Read what an ELF file of the host defines and needs.

    Raises:
        UsageError: It is not an ELF file of 64 bits, it is cut short, or its tables are damaged.
    """
    header, sections = read_header(image), read_sections(image)
    dynamic = list(_dynamic(image, sections))
    soname = next((text for tag, text in dynamic if tag == _SONAME), "")
    searched = [text for wanted in (_RUNPATH, _RPATH) for tag, text in dynamic if tag == wanted]
    names, versions = _versions(image, sections)
    is_linked = any(section.name == ".dynsym" for section in sections)
    # A position-independent program has a library's type, and some libraries can be started as well.
    is_program = not soname and any(section.name == ".interp" for section in sections)
    return HostBinary(
        kind="program" if is_program else _KINDS.get(header.type, f"ELF file of type {header.type}"),
        machine=_MACHINES.get(header.machine, f"machine {header.machine}"),
        soname=soname,
        needed=tuple(text for tag, text in dynamic if tag == _NEEDED),
        search=tuple(folder for folder in searched[0].split(":") if folder) if searched else (),
        versions=versions,
        symbols=tuple(_symbols(image, sections, ".dynsym" if is_linked else ".symtab", names)),
        is_linked=is_linked,
    )


def undefined_symbols(data: bytes) -> tuple[str, ...]:
    """Return the mangled names that an object file uses and does not define."""
    image = Image(name="the object file", data=data)
    symbols = _symbols(image, read_sections(image), ".symtab", {})
    return tuple(symbol.symbol for symbol in symbols if symbol.is_undefined)


def read_header(image: Image) -> Header:
    """Read the file's header.

    Raises:
        UsageError: It is not an ELF file of 64 bits and little endian, or it is cut short.
    """
    ident, kind, machine, _, _, _, table, flags, *_, count, names = image.unpack(_HEADER, 0, "the ELF header")
    if ident[:4] != MAGIC or (ident[4], ident[5]) != (_CLASS_64, _LITTLE):
        raise UsageError(
            f"{image.name} is not a 64-bit little-endian ELF file: it begins with {ident[:6].hex(' ')}.\n"
            "CUDA supports 64-bit hosts only: name a 64-bit library or cubin."
        )
    return Header(ident[8], kind, machine, flags, table, count, names)


def read_sections(image: Image) -> tuple[Section, ...]:
    """Read the section table; empty if there is none.

    Raises:
        UsageError: As `read_header`, or a section lies beyond the end of the file.
    """
    header = read_header(image)
    if header.table == 0:
        return ()
    first = image.unpack(_SECTION, header.table, "the section table")
    # Where a number is too large for the header, it is in the first, empty section.
    count = header.sections or first[5]
    names = first[6] if header.names == _INDEX_ELSEWHERE else header.names
    table = image.take(header.table, count * _SECTION.size, "the section table")
    rows = list(_SECTION.iter_unpack(table))
    if names >= len(rows):
        raise _damaged(image, f"it refers to section {names}, and there are {len(rows)}")
    text = StringTable(image, image.take(rows[names][4], rows[names][5], "the table of the sections' names"))
    sections = []
    for name, kind, flags, _, offset, size, link, _, _, _ in rows:
        section = Section(text.at(name), kind, flags, offset, size, link)
        if kind != NOBITS:
            image.require(offset + size, f"its section {section.name or 'without a name'}")
        sections.append(section)
    if sum(one.size for one in sections if one.type != NOBITS) > _MAX_OVERLAP * len(image.data):
        raise _damaged(image, "its sections overlap each other")
    return tuple(sections)


def machine_within(data: bytes | mmap.mmap, name: str) -> str:
    """Return the processor of the ELF file in a section, such as `x86_64`; "" without that section."""
    image = Image(name="the code", data=data)
    for section in read_sections(image):
        if section.name == name:
            inner = Image(name=f"the section {name}", data=image.take(section.offset, section.size, name))
            machine = read_header(inner).machine
            return _MACHINES.get(machine, f"machine {machine}")
    return ""


def section_bytes(data: bytes, name: str) -> int:
    """Return the size of a section in bytes, 0 if the file has none of that name."""
    return sum(one.size for one in read_sections(Image(name="the code", data=data)) if one.name == name)


class StringTable:
    """A table of names by their offset.

    Linkers let a name be the end of another. Names that overlap more than that would take memory by the
    square of the file's size.
    """

    def __init__(self, image: Image, text: bytes) -> None:
        self._image, self._text = image, text
        self._known: dict[int, str] = {}
        self._left = _MAX_OVERLAP * len(text) + 1

    def at(self, offset: int) -> str:
        """Return the text at an offset; empty where the offset is outside."""
        if offset not in self._known:
            end = self._text.find(b"\0", offset)
            found = self._text[offset : end if end >= 0 else None]
            self._left -= len(found)
            if self._left < 0:
                raise _damaged(self._image, "its names overlap each other")
            self._known[offset] = found.decode("utf-8", "replace")
        return self._known[offset]


def names_of(image: Image, sections: Sequence[Section], table: Section) -> StringTable:
    """Return the string table of a table of symbols, versions or dynamic entries."""
    if table.link >= len(sections):
        raise _damaged(image, f"it refers to section {table.link}, and there are {len(sections)}")
    names = sections[table.link]
    return StringTable(image, image.take(names.offset, names.size, f"the names that go with {table.name}"))


def rows_of(image: Image, table: Section, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
    size = table.size - table.size % layout.size
    return layout.iter_unpack(image.take(table.offset, size, f"its section {table.name}"))


def _named(sections: Sequence[Section], name: str) -> Section | None:
    """Return the section of a name, if it has bytes in the file."""
    return next((one for one in sections if one.name == name and one.type != NOBITS), None)


def _damaged(image: Image, reason: str) -> UsageError:
    return UsageError(
        f"{image.name} is damaged: {reason}.\n"
        "Required: the file as its linker wrote it. Copy, download or build it again."
    )


def _symbols(
    image: Image, sections: Sequence[Section], name_of_table: str, versions: Mapping[int, str]
) -> Iterator[ElfSymbol]:
    """Yield a table's symbols, but not those of sections and files; `versions` has names by index."""
    table = _named(sections, name_of_table)
    if table is None:
        return
    text = names_of(image, sections, table)
    of_versions = _named(sections, ".gnu.version") if name_of_table == ".dynsym" else None
    indices = (row[0] for row in rows_of(image, of_versions, _INDEX)) if of_versions else iter(())
    letters = [_letter_of_section(section) for section in sections]
    rows = rows_of(image, table, SYMBOL)
    for (name, info, _, where, _, _), index in zip(rows, chain(indices, repeat(0)), strict=False):
        if name and info & 0xF not in (_SECTION_SYMBOL, _FILE):
            version = versions.get(index & ~_HIDDEN_VERSION, "")
            yield ElfSymbol(_letter(info, where, letters), text.at(name), version)


def _letter(info: int, where: int, letters: Sequence[str]) -> str:
    """Return nm's letter of a symbol. Source: binutils, `bfd_decode_symclass`."""
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


def _letter_of_section(section: Section) -> str:
    if not section.flags & _ALLOCATED:
        return "n"
    if section.flags & _EXECUTABLE:
        return "t"
    if section.type == NOBITS:
        return "b"
    return "d" if section.flags & _WRITABLE else "r"


def _dynamic(image: Image, sections: Sequence[Section]) -> Iterator[tuple[int, str]]:
    """Yield the entries of the dynamic section that are text, by their tag."""
    table = _named(sections, ".dynamic")
    if table is None:
        return
    text = names_of(image, sections, table)
    for tag, value in rows_of(image, table, _DYNAMIC):
        if tag == 0:
            return
        if tag in (_NEEDED, _SONAME, _RPATH, _RUNPATH):
            yield tag, text.at(value)


def _versions(image: Image, sections: Sequence[Section]) -> tuple[dict[int, str], dict[str, tuple[str, ...]]]:
    """Return the name of each version by its index, and those that are needed by library."""
    names: dict[int, str] = {}
    needed: dict[str, tuple[str, ...]] = {}
    table = _named(sections, ".gnu.version_d")
    if table is not None:
        text = names_of(image, sections, table)
        for at, (flags, index, _, aux, _) in _linked(image, table, _VERSION_DEFINED, table.offset):
            if not flags & _NAMES_THE_FILE:
                names[index] = text.at(image.unpack(_DEFINED_NAME, at + aux, "the version names")[0])
    table = _named(sections, ".gnu.version_r")
    if table is not None:
        text = names_of(image, sections, table)
        left = table.size // _NEEDED_NAME.size  # damage may have the parts of each record be those of all
        for at, (count, file, aux, _) in _linked(image, table, _VERSION_NEEDED, table.offset):
            parts = [*islice(_linked(image, table, _NEEDED_NAME, at + aux), min(count, left))]
            versions = {index: text.at(name) for _, (index, name, _) in parts}
            left -= len(parts)
            names |= versions
            needed[text.at(file)] = tuple(versions.values())
    return names, needed


def _linked(
    image: Image, table: Section, layout: struct.Struct, start: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield records that each end with the distance to the next; damage may make a circle of them."""
    for _ in range(table.size // layout.size):
        fields = image.unpack(layout, start, f"its section {table.name}")
        yield start, fields
        if fields[-1] == 0:
            return
        start += fields[-1]
