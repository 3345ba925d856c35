"""What the directives of a PTX file say: its version, its target, its kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dotcu.compile.target import Version
from dotcu.errors import UsageError
from dotcu.inspection.binaries.image import Image
from dotcu.inspection.binaries.kernel import Kernel

# Source: PTX ISA, "PTX Module Directives" and "Kernel and Function Directives: .entry".
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_VERSION = re.compile(rb"\.version\s+(\d+)\.(\d+)")
_TARGET = re.compile(rb"\.target\s+(sm_\d+[af]?)")
_ENTRY = re.compile(rb"\.entry\s+([\w$%]+)")


@dataclass(frozen=True, kw_only=True)
class Ptx:
    """A module in PTX."""

    version: Version
    arch: str
    kernels: tuple[Kernel, ...]


def read_ptx(image: Image) -> Ptx:
    """Read a PTX file's directives.

    Raises:
        UsageError: It has no target.
    """
    text = _COMMENT.sub(b" ", bytes(image.data))
    version, target = _VERSION.search(text), _TARGET.search(text)
    if version is None or target is None:
        raise UsageError(
            f"{image.name} is no whole PTX file: it has no .{'target' if version else 'version'} directive.\n"
            "Required: the file as its compiler wrote it, which begins with .version, .target, .address_size."
        )
    return Ptx(
        version=(int(version[1]), int(version[2])),
        arch=target[1].decode(),
        kernels=tuple(Kernel(symbol=name.decode()) for name in dict.fromkeys(_ENTRY.findall(text))),
    )
