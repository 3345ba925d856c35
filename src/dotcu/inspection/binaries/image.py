"""A file's bytes, mapped and not read, and what kind of file they are."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from dotcu.errors import UsageError

Data: TypeAlias = bytes | mmap.mmap
Kind: TypeAlias = Literal["cubin", "ptx", "fatbin", "elf", "wheel"]

_ELF = b"\x7fELF"
_FATBIN = bytes.fromhex("50ed55ba")
_ZIP = b"PK\x03\x04"
_CUDA_MACHINE = 190
"""e_machine of device code. Source: the ELF specification's registry, EM_CUDA."""
_PTX_VERSION = re.compile(rb"(?:\A|[;\n])\s*\.version\s+\d+\.\d+")
_PTX_HEAD_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Image:
    """Bytes, and the name that errors call them by."""

    name: str
    data: Data

    def take(self, offset: int, size: int, what: str) -> bytes:
        """A copy of a part.

        Raises:
            UsageError: The part, which is `what`, lies beyond the end: the file is cut short.
        """
        self.require(offset + size, what)
        return self.data[offset : offset + size]

    def unpack(self, layout: struct.Struct, offset: int, what: str) -> tuple[Any, ...]:
        """The fields at a place, checked as by `take`."""
        self.require(offset + layout.size, what)
        return layout.unpack_from(self.data, offset)

    def require(self, end: int, what: str) -> None:
        """Raise where the bytes end before a part of them does."""
        if end > len(self.data):
            raise UsageError(
                f"{self.name} is cut short: {what} should end at byte {end}, "
                f"and there are {len(self.data)}.\n"
                "Required: the whole file. Copy, download or build it again."
            )


@contextmanager
def opened(path: Path, name: str) -> Iterator[Image]:
    """Map a file until the block ends.

    Args:
        name: What errors call it.

    Raises:
        UsageError: There is no such file, it cannot be read, or it is empty.
    """
    with _mapped(path, name) as data:
        yield Image(name=name, data=data)


def _mapped(path: Path, name: str) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise UsageError(f"{name} is empty.\n{_EXPECTED}")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.\n{_EXPECTED}") from error


_EXPECTED = "Required: a .so, .cubin, .ptx, .fatbin or .whl file; or a .cu of kernels, or a .py of operators."


def kind_of(image: Image) -> Kind:
    """Tell a file's kind by its first bytes; its name says nothing.

    Raises:
        UsageError: It is none that holds device code.
    """
    head = image.data[:4]
    if head == _ELF:
        (machine,) = image.unpack(struct.Struct("<H"), 18, "the ELF header")
        return "cubin" if machine == _CUDA_MACHINE else "elf"
    if head == _FATBIN:
        return "fatbin"
    if head == _ZIP:
        return "wheel"
    if _PTX_VERSION.search(image.data[:_PTX_HEAD_BYTES]):
        return "ptx"
    raise UsageError(
        f"{image.name} is no ELF file, fatbin, wheel or PTX: it begins with the bytes {head.hex(' ')}.\n"
        f"{_EXPECTED}"
    )
