"""The kernels in a fatbin's machine code; what is compressed is read by NVIDIA's tool, in bounded parts."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from dotcu import process
from dotcu.compile import toolchain
from dotcu.errors import EnvironmentFault
from dotcu.inspection.binaries.cubin import CubinKernel, own_smem_bytes, read_cubin
from dotcu.inspection.binaries.fatbin import CONTAINER, ENTRY, MAGIC, FatbinEntry
from dotcu.inspection.binaries.image import Image

PART_BYTES = 128 << 20
"""How much uncompressed code one run of the tool is given: it keeps all of it in memory."""
_TIMEOUT_S = 300.0

# Source: seen with cuobjdump 13.5, -res-usage.
_RESOURCES = re.compile(
    r"^ Function (\S+):\n\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:\d+(?: \S+)*? CONSTANT\[0\]:(\d+)",
    re.MULTILINE,
)


def list_kernels(image: Image, entries: Iterable[FatbinEntry]) -> tuple[CubinKernel, ...]:
    """The kernels in cubins of a file, in the order of their entries.

    Args:
        entries: Of one architecture; those that are no cubins are passed over.

    Raises:
        EnvironmentFault: Some are compressed, and cuobjdump is missing or does not know the architecture.
    """
    found: list[CubinKernel] = []
    for part in _parts(entry for entry in entries if entry.kind == "elf"):
        found += _compressed(image, part) if part[0].compressed else _plain(image, part[0])
    return tuple(found)


def _parts(entries: Iterable[FatbinEntry]) -> Iterator[list[FatbinEntry]]:
    """Runs of compressed entries that are small enough together, and uncompressed ones one by one."""
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


def _plain(image: Image, entry: FatbinEntry) -> tuple[CubinKernel, ...]:
    data = image.take(entry.offset, entry.size, f"code for {entry.arch}")
    return read_cubin(Image(name=f"{image.name}, {entry.arch} at byte {entry.offset}", data=data)).kernels


def _compressed(image: Image, part: list[FatbinEntry]) -> Iterator[CubinKernel]:
    tool = toolchain.find_tool("cuobjdump")
    if tool is None:
        raise EnvironmentFault(
            f"{image.name}: the code for {part[0].arch} is compressed, and cuobjdump, which reads it, "
            "was not found.\n"
            'Type: pip install "dotcu[tools]"'
        )
    with tempfile.TemporaryDirectory(prefix="dotcu-") as folder:
        file = Path(folder) / "part.fatbin"
        _write(image, part, file)
        done = process.run([tool, "-res-usage", file], timeout_s=_TIMEOUT_S)
    if done.status != 0:
        raise EnvironmentFault(
            f"{image.name}: cuobjdump cannot read the code for {part[0].arch}: "
            f"{(done.stderr or done.stdout).strip()}\n"
            f"Required: one that knows the architecture; this is {tool}.\n"
            f"Ask that of the toolkit that compiled it: cuobjdump -res-usage {image.name}"
        )
    return _parsed(done.stdout, part[0].arch)


def _write(image: Image, part: list[FatbinEntry], file: Path) -> None:
    """Write entries, as they are, as one container."""
    bodies = [_whole(image, entry.header) for entry in part]
    with file.open("wb") as out:
        out.write(CONTAINER.pack(MAGIC, 1, CONTAINER.size, sum(map(len, bodies))))
        out.writelines(bodies)


def _whole(image: Image, position: int) -> bytes:
    """An entry with its header and its padding."""
    _, _, header, padded, *_ = image.unpack(ENTRY, position, "a fatbin entry's header")
    return image.take(position, header + padded, "a fatbin entry")


def _parsed(text: str, arch: str) -> Iterator[CubinKernel]:
    for symbol, registers, stack, shared, constant in _RESOURCES.findall(text):
        yield CubinKernel(
            symbol=symbol,
            registers=int(registers),
            stack_bytes=int(stack),
            smem_bytes=own_smem_bytes(arch, int(shared)),
            constant_bytes=int(constant),
            barriers=None,
        )
