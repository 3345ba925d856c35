"""The headers that come with dotcu and with the CUDA toolkit, in memory and under fixed names.

Each is handed to the compiler by a virtual name such as `/dotcu/@cuda/cuda_fp16.h`, and every
`#include` in it is rewritten to the virtual name that it leads to. So no search happens inside
the compiler, two headers of one spelling stay two, and no install path gets into the code.
"""

from __future__ import annotations

import functools
import hashlib
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dotcu.compile.includes import Include, rewrite, scan


@dataclass(frozen=True)
class Root:
    """A folder of headers and the virtual folder that it appears as."""

    virtual: str
    folder: Path


@dataclass(frozen=True)
class Header:
    """A header as the compiler gets it, and the headers that it names."""

    text: bytes
    leads_to: tuple[str, ...]


OWN = (
    Root("/dotcu/@nvrtc", Path(__file__).parent.parent / "include" / "nvrtc"),
    Root("/dotcu/@dotcu", Path(__file__).parent.parent / "include"),
)
"""dotcu's headers. The stand-ins for host headers are first, and are for NVRTC alone."""


class Shelf:
    """The headers of a few roots, read when first asked for and kept."""

    def __init__(self, roots: Iterable[Root]) -> None:
        self.roots = tuple(roots)
        self._found: dict[str, str | None] = {}
        self._headers: dict[str, Header] = {}

    def find(self, spelled: str) -> str | None:
        """The virtual name that `#include <spelled>` leads to, None where no root has it."""
        if spelled not in self._found:
            self._found[spelled] = next(
                (
                    posixpath.normpath(f"{root.virtual}/{spelled}")
                    for root in self.roots
                    if (root.folder / spelled).is_file()
                ),
                None,
            )
        return self._found[spelled]

    def path(self, virtual: str) -> Path | None:
        """The file behind a virtual name."""
        for root in self.roots:
            if virtual.startswith(root.virtual + "/"):
                return root.folder / virtual[len(root.virtual) + 1 :]
        return None

    def closure(self, names: Iterable[str]) -> dict[str, bytes]:
        """The named headers and all that they reach, by virtual name."""
        reached: dict[str, bytes] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in reached:
                header = self._header(name)
                reached[name] = header.text
                waiting.extend(header.leads_to)
        return reached

    def _header(self, virtual: str) -> Header:
        header = self._headers.get(virtual)
        if header is None:
            header = self._headers[virtual] = self._read(virtual)
        return header

    def _read(self, virtual: str) -> Header:
        path = self.path(virtual)
        assert path is not None, virtual
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        folder = posixpath.dirname(virtual)
        leads: dict[Include, str] = {}
        for include in scan(text, exact=False):
            target = self._resolve(include, folder)
            if target is not None:
                leads[include] = target
        body = rewrite(text, tuple(leads), leads.get)
        return Header(body.encode("utf-8", "surrogateescape"), tuple(dict.fromkeys(leads.values())))

    def _resolve(self, include: Include, folder: str) -> str | None:
        if include.quoted:
            beside = posixpath.normpath(f"{folder}/{include.spelled}")
            path = self.path(beside)
            if path is not None and path.is_file():
                return beside
        return self.find(include.spelled)


@functools.cache
def shelf(folders: tuple[Path, ...]) -> Shelf:
    """dotcu's headers before those of a toolkit's include folders."""
    return Shelf((*OWN, *(Root(f"/dotcu/@cuda{i or ''}", folder) for i, folder in enumerate(folders))))


@functools.cache
def own_identity() -> str:
    """A digest of all that dotcu brings, read once in a process."""
    digest = hashlib.sha256()
    folder = OWN[1].folder
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
