"""Fatbins: made by fatbinary of CUDA 13.0 (see data/make.sh), and put together by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from binary_files import archs, elf, entry, fatbin
from dotcu import process
from dotcu.errors import UsageError
from dotcu.inspection.binaries.fatbin import Fatbin, in_elf, in_file
from dotcu.inspection.binaries.image import Image

DATA = Path(__file__).parent / "data"
ELF, PTX, IR = 2, 1, 8


def recorded(name: str) -> tuple[Fatbin, ...]:
    return in_file(Image(name=name, data=(DATA / name).read_bytes()))


def test_each_entry_of_a_compressed_fatbin_is_listed_with_its_suffix() -> None:
    assert archs(recorded("zstandard.fatbin")) == [
        ("elf", "sm_80"), ("ptx", "sm_80"), ("elf", "sm_90a"), ("ptx", "sm_90a"),
        ("elf", "sm_100f"), ("ptx", "sm_100f"), ("ir", "sm_90"),
    ]  # fmt: skip


def test_sizes_are_those_before_and_after_compression() -> None:
    machine_code, ptx = recorded("lz4.fatbin")[0].entries
    assert not machine_code.compressed
    assert machine_code.size == machine_code.uncompressed_size
    assert ptx.compressed
    assert ptx.size < ptx.uncompressed_size
    data = (DATA / "lz4.fatbin").read_bytes()
    assert data[machine_code.offset : machine_code.offset + 4] == b"\x7fELF"


def test_ptx_has_the_version_of_its_language() -> None:
    assert {e.version for e in recorded("zstandard.fatbin")[0].entries if e.kind == "ptx"} == {(9, 0)}


@pytest.mark.parametrize("name", ["zstandard.fatbin", "lz4.fatbin"])
def test_the_listing_is_that_of_cuobjdump(name: str, cuobjdump: Path) -> None:
    listed = process.run([cuobjdump, "-lelf", "-lptx", DATA / name]).stdout
    theirs = re.findall(r"\.(sm_\d+)([af]?)\.(cubin|ptx)$", listed, re.MULTILINE)
    ours = [e for e in archs(recorded(name)) if e[0] != "ir"]
    # cuobjdump 13.5 leaves the f out of a cubin's name, not of a PTX's
    assert [(kind, arch + suffix) for arch, suffix, kind in theirs] == [
        ("cubin", arch.removesuffix("f")) if kind == "elf" else ("ptx", arch) for kind, arch in ours
    ]


def test_fatbins_of_several_files_stand_padded_in_one_section() -> None:
    first, second = fatbin(entry(ELF, 80)), fatbin(entry(PTX, 90), entry(ELF, 90, flags=0x100011))
    found = in_elf(Image(name="it", data=elf({".nv_fatbin": first + bytes(24) + second + bytes(8)})))
    assert archs(found) == [("elf", "sm_80"), ("ptx", "sm_90"), ("elf", "sm_90a")]
    assert [len(module.entries) for module in found] == [1, 2]


def test_code_that_has_to_be_linked_is_told_from_code_that_has_not() -> None:
    sections = {"__nv_relfatbin": fatbin(entry(ELF, 80)), ".nv_fatbin": fatbin(entry(ELF, 90))}
    found = in_elf(Image(name="it", data=elf(sections)))
    assert [(module.relocatable, archs([module])) for module in found] == [
        (True, [("elf", "sm_80")]), (False, [("elf", "sm_90")]),
    ]  # fmt: skip


def test_a_kind_that_nobody_knows_is_told_by_its_number() -> None:
    found = in_file(Image(name="it", data=fatbin(entry(0x80, 100), entry(0x400, 100))))
    assert [e.kind for e in found[0].entries] == ["tile ir", "kind 0x400"]


def test_a_library_without_device_code_has_no_fatbin() -> None:
    assert in_elf(Image(name="it", data=elf({".text": b"code", ".nv_fatbin": 64}))) == ()


@pytest.mark.parametrize("cut", [8, 20, 90])
def test_a_fatbin_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(UsageError, match="it is cut short"):
        in_file(Image(name="it", data=fatbin(entry(ELF, 80))[:cut]))


def test_an_entry_that_leaves_its_container_is_refused_with_its_place() -> None:
    data = bytearray(fatbin(entry(ELF, 80)))
    data[24] = 0xFF  # the payload's size
    with pytest.raises(UsageError, match=r"it is damaged: the fatbin entry at byte 16 .* ends at byte 96"):
        in_file(Image(name="it", data=bytes(data)))


def test_a_container_that_ends_before_it_begins_is_refused() -> None:
    data = bytearray(fatbin())
    data[6] = 0  # the header's size
    with pytest.raises(UsageError, match=r"it is damaged: the fatbin at byte 0 has a header of 0 bytes"):
        in_file(Image(name="it", data=bytes(data)))


def test_bytes_that_are_no_fatbin_are_refused_with_their_place() -> None:
    data = elf({".nv_fatbin": fatbin(entry(ELF, 80)) + b"something else."})
    with pytest.raises(UsageError, match=r"it holds no fatbin at byte \d+: 0x656d6f73 stands there"):
        in_elf(Image(name="it", data=data))
