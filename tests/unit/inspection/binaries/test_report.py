"""What a report on a binary says to people."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dotcu.compile import toolchain
from dotcu.inspection.binaries import read
from helpers.binary_files import elf, entry, fatbin, wheel_file

DATA = Path(__file__).parent / "data"


def line(text: str, start: str) -> str:
    """The line that begins so, without that; blanks together."""
    (found,) = [one.strip() for one in text.splitlines() if one.strip().startswith(start)]
    return " ".join(found.removeprefix(start).split())


def test_a_fatbin_is_a_row_for_each_architecture_and_the_gpus_that_run_it() -> None:
    said = str(read(DATA / "zstandard.fatbin"))
    assert line(said, "sm_90a").startswith("SASS and PTX 1 module ")
    assert line(said, "sm_90a").endswith("PTX 9.0: drivers since CUDA 13.0")
    assert "8.0 (A100), 8.6 (A10, RTX 30)" in line(said, "natively on")
    assert "8.7 (Jetson Orin)" in line(said, "by JIT on")
    assert line(said, "not on") == "7.5 (T4, RTX 20)"


def test_a_gpu_that_runs_a_part_of_the_modules_is_reported_how_many(tmp_path: Path) -> None:
    path = tmp_path / "it.fatbin"
    path.write_bytes(fatbin(entry(2, 80)) + fatbin(entry(2, 89)) + fatbin(entry(2, 89)))
    assert line(str(read(path)), "natively on").startswith("8.0 (A100; 1 of 3 modules), 8.6")


def test_a_library_reports_what_it_needs_of_the_system(library: Path) -> None:
    said = str(read(library))
    assert re.match(r".*libc10\.so: shared library for \w+, [\d.]+ MB, no device code\n", said)
    assert "libc.so.6" in line(said, "libraries")
    assert re.search(
        r"glibc 2\.\d+, libstdc\+\+ with GLIBCXX 3\.4\.\d+, manylinux_2_\d+_\w+", line(said, "system")
    )
    assert re.fullmatch(r"\d+ defined, \d+ needed", line(said, "symbols"))


def test_kernels_are_listed_with_what_they_take(cuobjdump: Path) -> None:
    said = str(read(DATA / "zstandard.fatbin", kernels=["sm_90a"]))
    assert "2 kernels for sm_90a" in said
    assert re.fullmatch(r"\d+ registers, 512 bytes shared", line(said, "void turn<double>(double*)"))


def test_what_could_not_be_read_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    said = str(read(DATA / "zstandard.fatbin", kernels=["sm_90a"]))
    assert 'Type: pip install "dotcu[tools]"' in said


def test_a_wheel_reports_its_problems_and_its_members(tmp_path: Path) -> None:
    members = {"a[b].so": elf({".nv_fatbin": fatbin(entry(2, 90))}), "c.so": elf({})}
    said = str(read(wheel_file(tmp_path, "py3-none-any", members)))
    assert (
        "a[b].so and 1 more: code for x86_64 in a wheel whose tag says that it is for any platform." in said
    )
    assert re.search(r"^  a\[b\]\.so: shared library for x86_64", said, re.MULTILINE)
    assert re.search(r"^  c\.so: .*, no device code$", said, re.MULTILINE)


def test_the_code_of_a_wheel_with_one_binary_is_reported_once(tmp_path: Path) -> None:
    members = {"lib.so": elf({".nv_fatbin": fatbin(entry(2, 90))})}
    said = str(read(wheel_file(tmp_path, "py3-none-manylinux_2_17_x86_64", members)))
    assert said.count("sm_90") == 1
