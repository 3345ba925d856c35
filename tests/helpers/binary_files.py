"""ELF files, fatbins and wheels put together by hand, for the tests of what reads them."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

X86_64, CUDA = 62, 190
SHARED, RELOCATABLE = 3, 1
PROGBITS, NOBITS = 1, 8


def elf(
    sections: Mapping[str, bytes | int],
    *,
    machine: int = X86_64,
    kind: int = SHARED,
    abi: int = 0,
    flags: int = 0,
) -> bytes:
    """An ELF file with these sections; one that is a number has that size, and no bytes."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    body, rows = b"", [bytes(64)]
    for name, content in {**sections, ".shstrtab": names}.items():
        empty = isinstance(content, int)
        size = content if isinstance(content, int) else len(content)
        place = names.index(b"\0" + name.encode() + b"\0") + 1
        rows.append(
            struct.pack(
                "<IIQQQQIIQQ", place, NOBITS if empty else PROGBITS, 2, 0, 64 + len(body), size, 0, 0, 8, 0
            )
        )
        body += b"" if isinstance(content, int) else content + bytes(-len(content) % 8)
    ident = b"\x7fELF" + bytes([2, 1, 1, 0, abi]) + bytes(7)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, kind, machine, 1, 0, 0, 64 + len(body), flags, 64, 56, 0, 64, len(rows),
        len(rows) - 1,
    )  # fmt: skip
    return header + body + b"".join(rows)


def entry(kind: int, arch: int, *, flags: int = 0x11, version: tuple[int, int] = (9, 0)) -> bytes:
    """An entry of a fatbin, with a payload that is no code."""
    payload = b"nothing." * 2
    header = struct.pack(
        "<HHIQIIHHIIIQQQ",
        kind,
        0x101,
        64,
        len(payload),
        0,
        0,
        version[1],
        version[0],
        arch,
        0,
        0,
        flags,
        0,
        0,
    )
    return header + payload


def fatbin(*entries: bytes) -> bytes:
    """A fatbin of entries."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def wheel_file(folder: Path, tag: str, members: dict[str, bytes], *, inside: str | None = None) -> Path:
    """A wheel with these members, tagged so in its name, and inside too unless said otherwise."""
    path = folder / f"thing-1.2-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members.items():
            made.writestr(name, data)
        tags = "".join(f"Tag: {one}\n" for one in (inside or tag).split(","))
        made.writestr("thing-1.2.dist-info/WHEEL", f"Wheel-Version: 1.0\n{tags}")
    return path


def archs(found: Sequence[object]) -> list[tuple[str, str]]:
    """Kind and architecture of every entry of some fatbins, in their order."""
    return [(e.kind, e.arch) for module in found for e in module.entries]  # type: ignore[attr-defined]
