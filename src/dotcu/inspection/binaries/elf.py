"""What a library, a program or an object file defines and needs on the host."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from dotcu.errors import EnvironmentFault, UsageError
from dotcu.inspection.binaries import manylinux
from dotcu.inspection.binaries.image import Image
from dotcu.inspection.binaries.manylinux import Floor
from dotcu.inspection.binaries.sections import read_header, read_sections
from dotcu.inspection.binaries.symbols import Symbol, read_symbols

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
_NAMES_THE_FILE = 1  # VER_FLG_BASE
_SMALLEST_VERSION_BYTES = 8  # Elf64_Verdaux
_KINDS = {"ET_REL": "object file", "ET_EXEC": "program", "ET_DYN": "shared library"}


@dataclass(frozen=True, kw_only=True)
class Binary:
    """The host's side of an ELF file.

    Attributes:
        kind: "shared library", "program" or "object file".
        machine: `x86_64`, `aarch64`, or another as the ELF specification names it.
        soname: "" where it has none.
        needed: File names of the shared libraries that it needs, in their order.
        search: Folders to search for those, as it names them (DT_RUNPATH, or the older DT_RPATH).
        versions: By needed library, the versions of it that are asked for.
        symbols: What the loader sees; of an object file, which the linker still has to see, all.
        static_symbols: The full table beside it, with local names; empty where it was stripped.
        floor: The oldest system that it runs on; None of an object file, which has still to be linked.
    """

    kind: str
    machine: str
    soname: str
    needed: tuple[str, ...]
    search: tuple[str, ...]
    versions: Mapping[str, tuple[str, ...]]
    symbols: tuple[Symbol, ...]
    static_symbols: tuple[Symbol, ...]
    floor: Floor | None

    @property
    def defined(self) -> tuple[Symbol, ...]:
        """The symbols that it gives to others."""
        return tuple(symbol for symbol in self.symbols if not symbol.is_undefined)

    @property
    def undefined(self) -> tuple[Symbol, ...]:
        """The symbols that others must define."""
        return tuple(symbol for symbol in self.symbols if symbol.is_undefined)


def read_binary(image: Image) -> Binary:
    """Read what an ELF file of the host defines and needs.

    Raises:
        UsageError: It is no ELF file of 64 bits, it is cut short, or its tables are damaged.
        EnvironmentFault: pyelftools is not installed.
    """
    read_header(image)  # which refuses what is no ELF file in the words of every other kind
    reader = _reader(image)
    try:
        return _binary(image, reader(_stream(image)))
    except UsageError:
        raise
    except Exception as error:  # pyelftools fails in many ways on damaged tables
        raise UsageError(
            f"{image.name} is damaged: pyelftools cannot read its tables: {error}.\n"
            f"Required: the file as its linker wrote it. See what is there: readelf -a {image.name}"
        ) from error


def _reader(image: Image) -> type[ELFFile]:
    try:
        from elftools.elf.elffile import ELFFile
    except ImportError as error:
        raise EnvironmentFault(
            f"{image.name}: symbols and needed libraries are read by pyelftools, which is not installed.\n"
            'Type: pip install "dotcu[tools]"'
        ) from error
    return ELFFile


def _stream(image: Image) -> Any:
    return io.BytesIO(image.data) if isinstance(image.data, bytes) else image.data


def _binary(image: Image, elf: ELFFile) -> Binary:
    sections = read_sections(image)
    dynamic = list(_dynamic(elf))
    needed = tuple(text for tag, text in dynamic if tag == "DT_NEEDED")
    soname = next((text for tag, text in dynamic if tag == "DT_SONAME"), "")
    names, wanted = _versions(elf)
    tables = {table: read_symbols(image, sections, table, names) for table in (".dynsym", ".symtab")}
    has_dynamic = any(section.name == ".dynsym" for section in sections)
    machine = _MACHINES.get(elf["e_machine"], str(elf["e_machine"]))
    versions = [version for named in wanted.values() for version in named]
    return Binary(
        kind=_kind(elf, soname),
        machine=machine,
        soname=soname,
        needed=needed,
        search=_search(dynamic),
        versions=wanted,
        symbols=tables[".dynsym" if has_dynamic else ".symtab"],
        static_symbols=tables[".symtab"] if has_dynamic else (),
        floor=manylinux.floor(versions, needed, machine) if has_dynamic else None,
    )


def _kind(elf: ELFFile, soname: str) -> str:
    """A program that is loaded at any address has a library's type; some libraries can be started as well."""
    starts = any(segment["p_type"] == "PT_INTERP" for segment in elf.iter_segments())
    kind = str(elf["e_type"])
    return "program" if starts and not soname else _KINDS.get(kind, kind)


def _dynamic(elf: ELFFile) -> Iterator[tuple[str, str]]:
    """The entries of the dynamic section that are text, by their tag."""
    fields = {"DT_NEEDED": "needed", "DT_SONAME": "soname", "DT_RUNPATH": "runpath", "DT_RPATH": "rpath"}
    section: Any = elf.get_section_by_name(".dynamic")
    for tag in section.iter_tags() if section else ():
        name = str(tag.entry.d_tag)
        if name in fields:
            yield name, str(getattr(tag, fields[name]))


def _search(dynamic: list[tuple[str, str]]) -> tuple[str, ...]:
    for wanted in ("DT_RUNPATH", "DT_RPATH"):
        for tag, text in dynamic:
            if tag == wanted:
                return tuple(folder for folder in text.split(":") if folder)
    return ()


def _versions(elf: ELFFile) -> tuple[dict[int, str], dict[str, tuple[str, ...]]]:
    """The name of each version by its index, and those that are needed by library."""
    names: dict[int, str] = {}
    wanted: dict[str, tuple[str, ...]] = {}
    for version, parts in _records(elf, ".gnu.version_d"):
        if not version["vd_flags"] & _NAMES_THE_FILE:
            names[version["vd_ndx"]] = parts[0].name
    for library, parts in _records(elf, ".gnu.version_r"):
        versions = {part["vna_other"]: part.name for part in parts}
        names.update(versions)
        wanted[library.name] = tuple(versions.values())
    return names, wanted


def _records(elf: ELFFile, name: str) -> Iterator[tuple[Any, list[Any]]]:
    """The records of a section of versions, and their parts; no more than have room: damage makes circles."""
    section: Any = elf.get_section_by_name(name)
    room = section["sh_size"] // _SMALLEST_VERSION_BYTES if section else 0
    for version, parts in islice(section.iter_versions(), room) if section else ():
        yield version, list(islice(parts, room))
