"""Fatbins: containers of device code for several architectures, and the GPUs that run that code.

Only their headers are read.

A container is a header of 16 bytes (magic, version, the header's size, the size of what follows) and entries,
each a header and its payload, padded to 8 bytes. Several stand one after another in a section, one for each
file that nvcc compiled. Kernels in compressed entries are listed by NVIDIA's tool, in bounded parts.

Source: `fatBinaryHeader` and `fatBinaryCodeKind` in the fatbinary.h of CUDA 9; the entry's header as open
loaders read it (ZLUDA, Cricket); later kinds in the words of cuobjdump 13.5; the flags of an architecture's
suffix and of compression as seen of CUDA 11.8 to 13.4, and compared with what cuobjdump lists.
"""

from __future__ import annotations

import operator
import re
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dotcu import elf, process
from dotcu.compile import toolchain
from dotcu.compile.cubin import BinaryKernel, own_smem_bytes, read_cubin
from dotcu.compile.target import Version, dotted
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
        arch: `sm_90a`: of PTX too, whose own name for it is `compute_90a`.
        version: Of PTX, its ISA's; of a cubin, its format's.
        header, offset, end: Where the entry, its payload, and the padding behind it begin or end in the file.
        size: Bytes of the payload in the file; uncompressed, padding to 8 bytes is part of it.
        uncompressed_size: Bytes of the payload when it is unpacked.
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
    """A container: the code of one compiled file, or of one device link, linked or relocatable."""

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


# By family-specific target, the capabilities that it runs on.
# Source: CUDA Programming Guide 13.4, "Feature Set Compiler Targets", table "Family-Specific Compatibility".
FAMILIES: dict[Version, tuple[Version, ...]] = {
    (10, 0): ((10, 0), (10, 3), (10, 7)),
    (10, 3): ((10, 3), (10, 7)),
    (10, 7): ((10, 7),),
    (11, 0): ((11, 0),),
    (12, 0): ((12, 0), (12, 1)),
    (12, 1): ((12, 1),),
}

# Capabilities of Tegra (Jetson, DRIVE), whose machine code is promised to fit no other, nor another's them.
# Source: CUDA C++ Programming Guide 13.0, "Binary Compatibility", note; "CUDA GPU Compute Capability".
TEGRA: frozenset[Version] = frozenset({(3, 2), (5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)})

# GPUs of each capability, a few of many. Source: developer.nvidia.com/cuda-gpus.
GPUS: dict[Version, str] = {
    (7, 5): "T4, RTX 20",
    (8, 0): "A100",
    (8, 6): "A10, RTX 30",
    (8, 7): "Jetson Orin",
    (8, 9): "L4, L40S, RTX 40",
    (9, 0): "H100, H200",
    (10, 0): "B200",
    (10, 3): "B300",
    (11, 0): "Jetson Thor",
    (12, 0): "RTX 50, RTX PRO Blackwell",
    (12, 1): "DGX Spark",
}

# By version of PTX, the CUDA version since which drivers read it.
# Source: PTX ISA 9.5, "Release Notes", table "PTX Release History".
PTX_SINCE: dict[Version, Version] = {
    (5, 0): (8, 0),
    (6, 0): (9, 0), (6, 1): (9, 1), (6, 2): (9, 2), (6, 3): (10, 0), (6, 4): (10, 1), (6, 5): (10, 2),
    (7, 0): (11, 0), (7, 1): (11, 1), (7, 2): (11, 2), (7, 3): (11, 3), (7, 4): (11, 4), (7, 5): (11, 5),
    (7, 6): (11, 6), (7, 7): (11, 7), (7, 8): (11, 8),
    (8, 0): (12, 0), (8, 1): (12, 1), (8, 2): (12, 2), (8, 3): (12, 3), (8, 4): (12, 4), (8, 5): (12, 5),
    (8, 6): (12, 7), (8, 7): (12, 8), (8, 8): (12, 9),
    (9, 0): (13, 0), (9, 1): (13, 1), (9, 2): (13, 2), (9, 3): (13, 3), (9, 4): (13, 4), (9, 5): (13, 5),
}  # fmt: skip


def _same_major(code: Version, gpu: Version) -> bool:
    return code == gpu or (code[0] == gpu[0] and code[1] < gpu[1] and TEGRA.isdisjoint((code, gpu)))


def _family(code: Version, gpu: Version) -> bool:
    return gpu in FAMILIES.get(code, (code,))


# By kind of code and suffix of its architecture: the GPUs that it runs on, as a test and in words.
# Source: CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility"; CUDA Programming Guide,
# "Feature Set Compiler Targets"; nvcc's documentation, `ptxas --gpu-name`.
RULES: Mapping[tuple[str, str], tuple[Callable[[Version, Version], bool], str]] = {
    ("elf", ""): (_same_major, "GPUs of the same major and no lower minor version, except Tegra"),
    ("elf", "f"): (_family, "GPUs of its family"),
    ("elf", "a"): (operator.eq, "that GPU only"),
    ("ptx", ""): (operator.le, "that GPU and later ones"),
    ("ptx", "f"): (_family, "GPUs of its family"),
    ("ptx", "a"): (operator.eq, "that GPU only"),
}
_KINDS = {"elf": "machine code", "ptx": "PTX"}
_MAX_REASONS = 2


@dataclass(frozen=True, kw_only=True)
class GpuSupport:
    """A binary's modules by the way they run on a GPU.

    Attributes:
        how: "native" if most of the modules that run have machine code for it, "jit" if the driver compiles
            most of them, "no" if none runs.
        native, jit, none: The numbers of modules with machine code for it, with only PTX, and with neither.
        driver: The CUDA version that the driver must have for the PTX, None if none is compiled.
        why: The counts, and what there is in the modules that do not run, in a sentence.
    """

    how: Literal["native", "jit", "no"]
    native: int
    jit: int
    none: int
    driver: Version | None
    why: str


def gpu_support(modules: Iterable[Fatbin], gpu: Version) -> GpuSupport:
    """Return how the modules of a binary run on a GPU of a compute capability."""
    filled = [module for module in modules if module.entries]
    loaded = [module for module in filled if not module.relocatable] or filled  # a program loads linked ones
    chosen = [choose(module.entries, gpu) for module in loaded]
    native = sum(entry is not None and entry.kind == "elf" for entry in chosen)
    compiled = [entry for entry in chosen if entry is not None and entry.kind == "ptx"]
    left = [module for module, entry in zip(loaded, chosen, strict=True) if entry is None]
    kinds = (("machine code", native), ("only PTX", len(compiled)), ("nothing that fits", len(left)))
    counts = ", ".join(f"{count} of {len(loaded)} modules have {kind}" for kind, count in kinds if count)
    why = f"For compute capability {dotted(gpu)}: {counts}{_reasons(left, gpu)}."
    return GpuSupport(
        how="no" if len(left) == len(chosen) else "native" if native >= len(compiled) else "jit",
        native=native,
        jit=len(compiled),
        none=len(left),
        driver=max((ptx_since(entry.version) for entry in compiled), default=None),
        why=why if loaded else "There is no device code in it.",
    )


def choose(entries: Iterable[FatbinEntry], gpu: Version) -> FatbinEntry | None:
    """Return the entry of a module that the driver loads: machine code first, the nearest architecture."""
    fitting = [entry for entry in entries if not _mismatch(entry, gpu)]
    return max(fitting, key=lambda e: (e.kind == "elf", capability(e.arch), e.arch), default=None)


def _mismatch(entry: FatbinEntry, gpu: Version) -> str:
    """Return why an entry does not run on a GPU, "" where it does."""
    rule = RULES.get((entry.kind, entry.arch.lstrip("sm_0123456789")))
    if rule is None:
        return f"{entry.kind} for {entry.arch} cannot be loaded without linking"
    fits, gpus = rule
    return (
        "" if fits(capability(entry.arch), gpu) else f"{_KINDS[entry.kind]} for {entry.arch} runs on {gpus}"
    )


def ptx_since(version: Version) -> Version:
    """Return the CUDA version since which drivers read a version of PTX; beyond the table, a guess."""
    return PTX_SINCE.get(version, (version[0] + 4, version[1]))


def capability(arch: str) -> Version:
    """Return (9, 0) for `sm_90a`."""
    major, minor = divmod(int(arch.strip("sm_af")), 10)
    return major, minor


def _reasons(left: Sequence[Fatbin], gpu: Version) -> str:
    """Return why modules do not run: each reason where they are few, else what there is."""
    entries = [entry for module in left for entry in module.entries]
    reasons = dict.fromkeys(_mismatch(entry, gpu) for entry in entries)
    if len(reasons) <= _MAX_REASONS:
        return ": " + "; ".join(reasons) if reasons else ""
    by_kind: dict[str, set[str]] = {}
    for entry in entries:
        by_kind.setdefault(_KINDS.get(entry.kind, entry.kind), set()).add(entry.arch)
    return ": there is " + "; ".join(
        f"{kind} for {', '.join(sorted(archs, key=lambda arch: (capability(arch), arch)))}"
        for kind, archs in by_kind.items()
    )
