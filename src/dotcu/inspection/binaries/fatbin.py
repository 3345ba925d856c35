"""Fatbins: containers of device code for several architectures, read by their headers alone.

A container is a header of 16 bytes (magic, version, the header's size, the size of what follows) and entries,
each a header and its payload, padded to 8 bytes. Several stand one after another in a section, one for each
file that nvcc compiled.

Source: `fatBinaryHeader` and `fatBinaryCodeKind` in the fatbinary.h of CUDA 9; the entry's header as open
loaders read it (ZLUDA, Cricket); later kinds in the words of cuobjdump 13.5; the flags of an architecture's
suffix and of compression as seen of CUDA 11.8 to 13.4, and held against what cuobjdump lists.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from dotcu.compile.target import Version
from dotcu.errors import UsageError
from dotcu.inspection.binaries.image import Image
from dotcu.inspection.binaries.sections import NOBITS, read_sections

MAGIC = 0xBA55ED50
SECTIONS = {".nv_fatbin": False, "__nv_relfatbin": True}
"""Where an ELF file keeps fatbins, and whether the code in them is relocatable: not linked yet."""

KINDS = {
    0x01: "ptx",
    0x02: "elf",
    0x04: "old cubin",
    0x08: "ir",  # for link-time optimization
    0x20: "index",
    0x40: "relocatable ptx",
    0x80: "tile ir",
}
_SUFFIXES = {0x10_0000: "a", 0x20_0000: "f"}
_COMPRESSED = 0x1000 | 0x2000 | 0x8000  # two of LZ4's kind, and Zstandard

CONTAINER = struct.Struct("<IHHQ")
# kind, version, header's size, payload with padding, compressed size, offset of options, minor, major,
# architecture, offset and size of the name, flags, nothing, size before compression
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")


@dataclass(frozen=True, kw_only=True, slots=True)
class FatbinEntry:
    """Code for one architecture.

    Attributes:
        kind: "elf" (a cubin) or "ptx", more rarely another of `KINDS`.
        arch: `sm_90`, `sm_90a`, `sm_100f`: of PTX too, whose own name for it is `compute_90`.
        version: Of PTX, its ISA's; of a cubin, its format's.
        header: Where the entry begins in the file, header and all.
        offset: Where its payload begins.
        size: What the payload takes in the file, in bytes; uncompressed, padding to 8 bytes is part of it.
        uncompressed_size: What it has when it is unpacked, in bytes.
    """

    kind: str
    arch: str
    version: Version
    header: int
    offset: int
    size: int
    compressed: bool
    uncompressed_size: int
    flags: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Fatbin:
    """A container: what one compiled file, or one device link, brought.

    Attributes:
        relocatable: The code has to be linked before it can be loaded.
    """

    offset: int
    relocatable: bool
    entries: tuple[FatbinEntry, ...]


def in_file(image: Image) -> tuple[Fatbin, ...]:
    """The containers of a .fatbin file."""
    return tuple(containers(image, 0, len(image.data)))


def in_elf(image: Image) -> tuple[Fatbin, ...]:
    """The containers of a library, a program or an object file; empty where it has no device code.

    What a library keeps as data of its own and loads itself, as cuFFT does, is not seen; cuobjdump sees it
    neither.
    """
    return tuple(
        fatbin
        for section in read_sections(image)
        if section.name in SECTIONS and section.type != NOBITS
        for fatbin in containers(
            image, section.offset, section.offset + section.size, relocatable=SECTIONS[section.name]
        )
    )


def containers(image: Image, start: int, end: int, *, relocatable: bool = False) -> Iterator[Fatbin]:
    """The containers between two places of a file; nothing is decompressed.

    Raises:
        UsageError: What is there is no container, or it is cut short.
    """
    position = start
    while position < end:
        if not any(image.data[position : position + 8]):  # padding
            position += 8
            continue
        magic, _, header, size = image.unpack(CONTAINER, position, "a fatbin's header")
        if magic != MAGIC:
            raise UsageError(
                f"{image.name} holds no fatbin at byte {position}: {magic:#010x} stands there.\n"
                f"Required: {MAGIC:#010x}, as fatbinary has written it since CUDA 4."
            )
        if header < CONTAINER.size:
            raise UsageError(
                f"{image.name} is damaged: the fatbin at byte {position} has a header of {header} bytes.\n"
                f"Required: {CONTAINER.size} bytes. Copy, download or build it again."
            )
        first, position_after = position + header, position + header + size
        image.require(position_after, f"the fatbin at byte {position}")
        entries = tuple(_entries(image, first, position_after))
        yield Fatbin(offset=position, relocatable=relocatable, entries=entries)
        position = position_after


def _entries(image: Image, position: int, end: int) -> Iterator[FatbinEntry]:
    while position < end:
        fields = image.unpack(ENTRY, position, "a fatbin entry's header")
        after = position + fields[2] + fields[3]
        if fields[2] < ENTRY.size or after > end:
            raise UsageError(
                f"{image.name} is damaged: the fatbin entry at byte {position} has a header of {fields[2]} "
                f"bytes and {fields[3]} bytes of code, and its container ends at byte {end}.\n"
                "Required: the file as its compiler wrote it. Copy, download or build it again."
            )
        yield _entry(position, fields)
        position = after


def _entry(position: int, fields: tuple[int, ...]) -> FatbinEntry:
    kind, _, header, padded, stored, _, minor, major, arch, _, _, flags, _, unpacked = fields
    compressed = bool(flags & _COMPRESSED)
    suffix = "".join(letter for flag, letter in _SUFFIXES.items() if flags & flag)
    return FatbinEntry(
        kind=KINDS.get(kind, f"kind {kind:#x}"),
        arch=f"sm_{arch}{suffix}",
        version=(major, minor),
        header=position,
        offset=position + header,
        size=stored if compressed else padded,
        compressed=compressed,
        uncompressed_size=unpacked if compressed else padded,
        flags=flags,
    )
