"""ELF files, held against readelf and nm, and damaged ones."""

from __future__ import annotations

import re
import shutil
import struct
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
import torch

from dotcu import process
from dotcu.elf import NOBITS, HostBinary, Image, read_host_binary, read_sections
from dotcu.errors import UsageError
from helpers.binary_files import RELOCATABLE, elf


@pytest.fixture(scope="module")
def library() -> Path:
    """A small shared library of C++ that is wherever torch is."""
    path = Path(torch.__file__).parent / "lib" / "libc10.so"
    if not path.is_file():
        pytest.skip(f"needs torch's {path.name}")
    return path


def tool(name: str) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"needs binutils' {name}")
    return name


@pytest.fixture(scope="module")
def binary(library: Path) -> HostBinary:
    return read_host_binary(Image(name=str(library), data=library.read_bytes()))


def test_needed_libraries_and_names_are_those_of_readelf(binary: HostBinary, library: Path) -> None:
    said = process.run([tool("readelf"), "-dW", library]).stdout
    assert list(binary.needed) == re.findall(r"\(NEEDED\).*\[(.+)\]", said)
    assert [binary.soname] == re.findall(r"\(SONAME\).*\[(.+)\]", said)
    found = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.+)\]", said)
    assert list(binary.search) == [folder for text in found[:1] for folder in text.split(":")]


def test_needed_versions_are_those_of_readelf(binary: HostBinary, library: Path) -> None:
    said = process.run([tool("readelf"), "-VW", library]).stdout
    needs = said.partition(".gnu.version_r")[2]
    theirs: dict[str, set[str]] = {}
    for file, name in re.findall(r"File: (\S+)|Name: (\S+)", needs):
        last = file or list(theirs)[-1]
        theirs.setdefault(last, set()).update({name} - {""})
    assert {name: set(versions) for name, versions in binary.versions.items()} == theirs
    assert any(version.startswith("GLIBC_") for versions in theirs.values() for version in versions)


def test_symbols_and_their_letters_are_those_of_nm(binary: HostBinary, library: Path) -> None:
    said = process.run([tool("nm"), "-D", library]).stdout
    theirs = Counter(re.findall(r"^[0-9a-f ]{16} (\S) ([^@\n]+)", said, re.MULTILINE))
    assert Counter((s.letter, s.symbol.partition("@")[0]) for s in binary.symbols) == theirs


def test_symbols_have_the_versions_that_nm_shows(binary: HostBinary, library: Path) -> None:
    said = process.run([tool("nm"), "-D", library]).stdout
    theirs = set(re.findall(r"^.{18} (\S+?)@@?(\S+)$", said, re.MULTILINE))
    assert theirs
    assert {(s.symbol, s.version) for s in binary.symbols if s.version} == theirs


def test_what_is_defined_and_what_is_needed_are_apart(binary: HostBinary) -> None:
    assert any(symbol.name.startswith("c10::") for symbol in binary.defined)
    assert any(symbol.name == "malloc" for symbol in binary.undefined)
    assert len(binary.defined) + len(binary.undefined) == len(binary.symbols)


def test_a_symbol_prints_as_a_line(binary: HostBinary) -> None:
    (line,) = [str(symbol) for symbol in binary.undefined if symbol.symbol == "malloc"]
    assert re.fullmatch(r"U malloc@GLIBC_2\.\d+(\.\d+)?", line)


def test_a_library_is_one_though_it_can_be_started(binary: HostBinary) -> None:
    assert (binary.kind, binary.machine) in {("shared library", m) for m in ("x86_64", "aarch64")}


def test_the_interpreter_is_a_program() -> None:
    python = Path(sys.executable).resolve()
    assert read_host_binary(Image(name=str(python), data=python.read_bytes())).kind == "program"


def test_an_object_file_has_no_system_yet() -> None:
    found = read_host_binary(Image(name="it", data=elf({".text": b"code"}, kind=RELOCATABLE)))
    assert (found.kind, found.is_linked, found.needed) == ("object file", False, ())


def test_a_library_cut_short_is_refused(library: Path) -> None:
    data = library.read_bytes()
    with pytest.raises(UsageError, match="it is cut short"):
        read_host_binary(Image(name="it", data=data[: len(data) // 2]))


def test_every_section_is_found_with_its_bytes() -> None:
    data = elf({".text": b"code", ".bss": 4096, ".rodata": b"constants"})
    found = {section.name: section for section in read_sections(Image(name="it", data=data))}
    assert set(found) == {"", ".text", ".bss", ".rodata", ".shstrtab"}
    code = found[".rodata"]
    assert data[code.offset : code.offset + code.size] == b"constants"
    assert (found[".bss"].type, found[".bss"].size) == (NOBITS, 4096)


@pytest.mark.parametrize("cut", [30, 70, 200])
def test_a_file_cut_short_anywhere_is_refused(cut: int) -> None:
    whole = elf({".text": bytes(100)})
    assert cut < len(whole)
    with pytest.raises(UsageError, match=r"it is cut short: .* should end at byte \d+, and there are"):
        read_sections(Image(name="it", data=whole[:cut]))


def test_a_section_beyond_the_end_is_reported_by_name() -> None:
    whole = bytearray(elf({".text": b"code"}))
    (table,) = struct.unpack_from("<Q", whole, 40)
    struct.pack_into("<Q", whole, table + 64 + 32, 1 << 30)  # the size of the first section
    with pytest.raises(UsageError, match=r"its section \.text should end at byte 1073741888"):
        read_sections(Image(name="it", data=bytes(whole)))


def test_names_in_a_section_that_is_not_there_are_damage() -> None:
    data = bytearray(elf({".text": b"code"}))
    struct.pack_into("<H", data, 62, 40)
    with pytest.raises(UsageError, match=r"it is damaged: it refers to section 40, and there are 3"):
        read_sections(Image(name="it", data=bytes(data)))


def test_a_table_with_more_sections_than_the_header_can_count_is_read() -> None:
    """As in cubins with tens of thousands of kernels: the numbers are then in the table's first row."""
    data = bytearray(elf({".text": b"code"}))
    (table,) = struct.unpack_from("<Q", data, 40)
    count, names = struct.unpack_from("<HH", data, 60)
    struct.pack_into("<HH", data, 60, 0, 0xFFFF)
    struct.pack_into("<Q", data, table + 32, count)
    struct.pack_into("<I", data, table + 40, names)
    assert [s.name for s in read_sections(Image(name="it", data=bytes(data)))] == ["", ".text", ".shstrtab"]


def test_a_file_for_another_kind_of_host_is_refused() -> None:
    data = bytearray(elf({}))
    data[4] = 1  # 32 bits
    with pytest.raises(UsageError, match=r"it is not a 64-bit little-endian ELF file.*7f 45 4c 46 01 01"):
        read_sections(Image(name="it", data=bytes(data)))


def many_sections(size: int, *, overlap: bool) -> bytes:
    """A file of many sections, each named by the rest of one text; or each the whole of that text."""
    count = size // 2 // 64
    text = b"A" * (size - count * 64 - 64)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64 + len(text), 0, 64, 0, 0, 64, count, 0)
    rows = [
        struct.pack("<IIQQQQIIQQ", n, 3, 0, 0, 64, len(text) if overlap or not n else 0, 0, 0, 1, 0)
        for n in range(count)
    ]
    return ident + head + text + b"".join(rows)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_small_file_whose_parts_overlap_is_damaged_and_takes_no_memory(overlap: bool) -> None:
    data = many_sections(1 << 18, overlap=overlap)
    tracemalloc.start()
    with pytest.raises(UsageError, match="overlap each other"):
        read_host_binary(Image(name="it", data=data))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 32 * len(data)
