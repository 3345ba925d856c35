"""Libraries of the host, held against readelf and nm."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from binary_files import RELOCATABLE, elf
from dotcu import process
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.inspection.binaries.elf import Binary, read_binary
from dotcu.inspection.binaries.image import Image, opened


def tool(name: str) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"needs binutils' {name}")
    return name


@pytest.fixture
def binary(library: Path) -> Binary:
    with opened(library, str(library)) as image:
        return read_binary(image)


def test_needed_libraries_and_names_are_those_of_readelf(binary: Binary, library: Path) -> None:
    said = process.run([tool("readelf"), "-dW", library]).stdout
    assert list(binary.needed) == re.findall(r"\(NEEDED\).*\[(.+)\]", said)
    assert [binary.soname] == re.findall(r"\(SONAME\).*\[(.+)\]", said)
    found = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.+)\]", said)
    assert list(binary.search) == [folder for text in found[:1] for folder in text.split(":")]


def test_needed_versions_are_those_of_readelf(binary: Binary, library: Path) -> None:
    said = process.run([tool("readelf"), "-VW", library]).stdout
    needs = said.partition(".gnu.version_r")[2]
    theirs: dict[str, set[str]] = {}
    for file, name in re.findall(r"File: (\S+)|Name: (\S+)", needs):
        last = file or list(theirs)[-1]
        theirs.setdefault(last, set()).update({name} - {""})
    assert {name: set(versions) for name, versions in binary.versions.items()} == theirs
    assert any(version.startswith("GLIBC_") for versions in theirs.values() for version in versions)


@pytest.mark.parametrize("table", ["symbols", "static_symbols"])
def test_symbols_and_their_letters_are_those_of_nm(binary: Binary, library: Path, table: str) -> None:
    options = ["-D"] if table == "symbols" else []
    said = process.run([tool("nm"), *options, library]).stdout
    theirs = Counter(re.findall(r"^[0-9a-f ]{16} (\S) ([^@\n]+)", said, re.MULTILINE))
    assert Counter((s.letter, s.symbol.partition("@")[0]) for s in getattr(binary, table)) == theirs


def test_symbols_have_the_versions_that_nm_shows(binary: Binary, library: Path) -> None:
    said = process.run([tool("nm"), "-D", library]).stdout
    theirs = set(re.findall(r"^.{18} (\S+?)@@?(\S+)$", said, re.MULTILINE))
    assert theirs
    assert {(s.symbol, s.version) for s in binary.symbols if s.version} == theirs


def test_what_is_defined_and_what_is_needed_are_apart(binary: Binary) -> None:
    assert any(symbol.name.startswith("c10::") for symbol in binary.defined)
    assert any(symbol.name == "malloc" for symbol in binary.undefined)
    assert len(binary.defined) + len(binary.undefined) == len(binary.symbols)


def test_a_symbol_prints_as_a_line(binary: Binary) -> None:
    (line,) = [str(symbol) for symbol in binary.undefined if symbol.symbol == "malloc"]
    assert re.fullmatch(r"U malloc@GLIBC_2\.\d+(\.\d+)?", line)


def test_a_library_is_one_though_it_can_be_started(binary: Binary) -> None:
    assert (binary.kind, binary.machine) in {("shared library", m) for m in ("x86_64", "aarch64")}


def test_the_interpreter_is_a_program() -> None:
    python = Path(sys.executable).resolve()
    with opened(python, str(python)) as image:
        assert read_binary(image).kind == "program"


def test_an_object_file_has_no_system_yet() -> None:
    found = read_binary(Image(name="it", data=elf({".text": b"code"}, kind=RELOCATABLE)))
    assert (found.kind, found.floor, found.needed) == ("object file", None, ())


def test_without_pyelftools_the_line_to_type_is_told(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "elftools.elf.elffile", None)
    with (
        pytest.raises(EnvironmentFault, match=r'pyelftools.*\nType: pip install "dotcu\[tools\]"'),
        opened(library, "it") as image,
    ):
        read_binary(image)


def test_a_library_cut_short_is_refused(library: Path) -> None:
    data = library.read_bytes()
    with pytest.raises(UsageError, match="it is cut short"):
        read_binary(Image(name="it", data=data[: len(data) // 2]))
