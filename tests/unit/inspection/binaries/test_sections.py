"""Section tables of ELF files."""

from __future__ import annotations

import struct

import pytest

from binary_files import elf
from dotcu.errors import UsageError
from dotcu.inspection.binaries.image import Image
from dotcu.inspection.binaries.sections import NOBITS, read_sections


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


def test_a_section_beyond_the_end_is_told_by_name() -> None:
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
    with pytest.raises(UsageError, match=r"it is no ELF file of 64 bits.*7f 45 4c 46 01 01"):
        read_sections(Image(name="it", data=bytes(data)))
