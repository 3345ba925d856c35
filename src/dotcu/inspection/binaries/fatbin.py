"""Fatbins: containers of device code for several architectures, read by their headers alone.

A container is a header of 16 bytes (magic, version, the header's size, the size of what follows) and entries,
each a header and its payload, padded to 8 bytes. Several stand one after another in a section, one for each
file that nvcc compiled. Kernels in compressed entries are listed by NVIDIA's tool, in bounded parts.

Source: `fatBinaryHeader` and `fatBinaryCodeKind` in the fatbinary.h of CUDA 9; the entry's header as open
loaders read it (ZLUDA, Cricket); later kinds in the words of cuobjdump 13.5; the flags of an architecture's
suffix and of compression as seen of CUDA 11.8 to 13.4, and compared with what cuobjdump lists.
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dotcu import elf, process
from dotcu.compile import toolchain
from dotcu.compile.cubin import BinaryKernel, own_smem_bytes, read_cubin
from dotcu.compile.target import Version
from dotcu.elf import Image
from dotcu.errors import EnvironmentFault, UsageError

MAGIC = 0xBA55ED50
SECTIONS = {".nv_fatbin": False, "__nv_relfatbin": True}
"""The ELF sections with fatbins, and whether their code is relocatable (not linked yet)."""

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

_CONTAINER = struct.Struct("<IHHQ")
# kind, version, header's size, payload with padding, compressed size, offset of options, minor, major,
# architecture, offset and size of the name, flags, nothing, size before compression
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")

PART_BYTES = 128 << 20
"""The most uncompressed code of one run of cuobjdump, which keeps all of it in memory."""
_TIMEOUT_S = 300.0

# Source: seen with cuobjdump 13.5, -res-usage.
_RESOURCES = re.compile(
    r"^ Function (\S+):\n\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:\d+(?: \S+)*? CONSTANT\[0\]:(\d+)",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FatbinEntry:
    """Code for one architecture.

    Attributes:
        kind: "elf" (a cubin) or "ptx", more rarely another of `KINDS`.
        arch: `sm_90`, `sm_90a`, `sm_100f`: of PTX too, whose own name for it is `compute_90`.
        version: Of PTX, its ISA's; of a cubin, its format's.
        header: Where the entry begins in the file, header and all.
        offset: Where its payload begins; end: where that ends, with its padding.
        size: What the payload takes in the file, in bytes; uncompressed, padding to 8 bytes is part of it.
        uncompressed_size: What it has when it is unpacked, in bytes.
    """

    kind: str
    arch: str
    version: Version
    header: int
    offset: int
    end: int
    size: int
    compressed: bool
    uncompressed_size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Fatbin:
    """A container: the code of one compiled file, or of one device link.

    Attributes:
        relocatable: The code has to be linked before it can be loaded.
    """

    relocatable: bool
    entries: tuple[FatbinEntry, ...]


def in_file(image: Image) -> tuple[Fatbin, ...]:
    """Return the containers of a .fatbin file."""
    return tuple(_containers(image, 0, len(image.data)))


def in_elf(image: Image) -> tuple[Fatbin, ...]:
    """Return the containers of a library, a program or an object file; empty if it has no device code.

    Code that a library keeps as data of its own and loads itself, as cuFFT does, is not seen; cuobjdump does
    not see it either.
    """
    return tuple(
        fatbin
        for section in elf.read_sections(image)
        if section.name in SECTIONS and section.type != elf.NOBITS
        for fatbin in _containers(
            image, section.offset, section.offset + section.size, relocatable=SECTIONS[section.name]
        )
    )


def _containers(image: Image, position: int, end: int, *, relocatable: bool = False) -> Iterator[Fatbin]:
    while (position := _behind_padding(image, position, end)) < end:
        magic, _, header, size = image.unpack(_CONTAINER, position, "a fatbin's header")
        if magic != MAGIC:
            raise UsageError(
                f"{image.name} has no fatbin at byte {position}: {magic:#010x} stands there.\n"
                f"Required: {MAGIC:#010x}, as fatbinary has written it since CUDA 4."
            )
        if header < _CONTAINER.size:
            raise UsageError(
                f"{image.name} is damaged: the fatbin at byte {position} has a header of {header} bytes.\n"
                f"Required: {_CONTAINER.size} bytes. Copy, download or build it again."
            )
        first, after = position + header, position + header + size
        image.require(after, f"the fatbin at byte {position}")
        yield Fatbin(relocatable=relocatable, entries=tuple(_entries(image, first, after)))
        position = after


_CHUNK_BYTES = 1 << 20


def _behind_padding(image: Image, position: int, end: int) -> int:
    """Return where something stands again, in steps of 8 bytes; the end where nothing does."""
    while position < end:
        part = image.data[position : min(position + _CHUNK_BYTES, end)]
        padding = len(part) - len(part.lstrip(b"\0"))
        if padding < len(part):
            return position + padding // 8 * 8
        position += len(part)
    return end


def _entries(image: Image, position: int, end: int) -> Iterator[FatbinEntry]:
    while position < end:
        fields = image.unpack(_ENTRY, position, "a fatbin entry's header")
        kind, _, header, padded, stored, _, minor, major, arch, _, _, flags, _, unpacked = fields
        after = position + header + padded
        if header < _ENTRY.size or after > end:
            raise UsageError(
                f"{image.name} is damaged: the fatbin entry at byte {position} has a header of {header} "
                f"bytes and {padded} bytes of code, and its container ends at byte {end}.\n"
                "Required: the file as its compiler wrote it. Copy, download or build it again."
            )
        compressed = bool(flags & _COMPRESSED)
        suffix = "".join(letter for flag, letter in _SUFFIXES.items() if flags & flag)
        yield FatbinEntry(
            kind=KINDS.get(kind, f"kind {kind:#x}"),
            arch=f"sm_{arch}{suffix}",
            version=(major, minor),
            header=position,
            offset=position + header,
            end=after,
            size=stored if compressed else padded,
            compressed=compressed,
            uncompressed_size=unpacked if compressed else padded,
        )
        position = after


def list_kernels(image: Image, entries: Iterable[FatbinEntry]) -> tuple[BinaryKernel, ...]:
    """Return the kernels in cubins of a file, for one architecture; other entries are skipped.

    Raises:
        EnvironmentFault: Some are compressed, and cuobjdump is missing or does not know the architecture.
    """
    kernels: list[BinaryKernel] = []
    for part in _parts(entry for entry in entries if entry.kind == "elf"):
        if part[0].compressed:
            kernels += _compressed(image, part)
        else:
            (entry,) = part
            name = f"{image.name}, {entry.arch} at byte {entry.offset}"
            data = image.take(entry.offset, entry.size, f"code for {entry.arch}")
            kernels += read_cubin(Image(name=name, data=data))[2]
    return tuple(kernels)


def _parts(entries: Iterable[FatbinEntry]) -> Iterator[list[FatbinEntry]]:
    """Yield runs of compressed entries that are small enough together, and uncompressed ones one by one."""
    part: list[FatbinEntry] = []
    size = 0
    for entry in entries:
        size += entry.uncompressed_size
        if part and not (entry.compressed and part[0].compressed and size <= PART_BYTES):
            yield part
            part, size = [], entry.uncompressed_size
        part.append(entry)
    if part:
        yield part


def _compressed(image: Image, part: Sequence[FatbinEntry]) -> Iterator[BinaryKernel]:
    tool = toolchain.find_tool("cuobjdump")
    if tool is None:
        raise EnvironmentFault(
            f"{image.name}: the code for {part[0].arch} is compressed, and cuobjdump, which reads it, "
            "was not found.\n"
            'Type: pip install "dotcu[tools]"'
        )
    bodies = [image.take(entry.header, entry.end - entry.header, "a fatbin entry") for entry in part]
    head = _CONTAINER.pack(MAGIC, 1, _CONTAINER.size, sum(map(len, bodies)))
    with tempfile.TemporaryDirectory(prefix="dotcu-") as folder:
        file = Path(folder) / "part.fatbin"
        file.write_bytes(b"".join([head, *bodies]))
        done = process.run([tool, "-res-usage", file], timeout_s=_TIMEOUT_S)
    if done.status != 0:
        raise EnvironmentFault(
            f"{image.name}: cuobjdump cannot read the code for {part[0].arch}: "
            f"{(done.stderr or done.stdout).strip()}\n"
            f"Required: one that knows the architecture; this is {tool}.\n"
            f"Use the one of the toolkit that compiled it: cuobjdump -res-usage {image.name}"
        )
    for symbol, registers, stack, shared, constant in _RESOURCES.findall(done.stdout):
        yield BinaryKernel(
            symbol=symbol,
            registers=int(registers),
            stack_bytes=int(stack),
            smem_bytes=own_smem_bytes(part[0].arch, int(shared)),
            constant_bytes=int(constant),
        )
