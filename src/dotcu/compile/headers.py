"""The headers that a text names, and those of dotcu and the CUDA toolkit, in memory and under fixed names.

Each of the latter is handed to the compiler by a virtual name such as `/dotcu/@cuda/cuda_fp16.h`, and every
`#include` in it is rewritten to the virtual name that it leads to. So no search happens inside
the compiler, two headers of one spelling stay two, and no install path gets into the code.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import posixpath
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from dotcu.compile.lexing import without_comments

_NAME = r"(?:\"(?P<quoted>[^\"\n]+)\"|<(?P<angled>[^>\n]+)>)"
_INCLUDE = re.compile(rf"(?m)^[ \t]*#[ \t]*include\b[ \t]*(?:{_NAME}|(?P<macro>[A-Za-z_]\w*))")
_HAS_INCLUDE = re.compile(rf"__has_include[ \t]*\([ \t]*{_NAME}[ \t]*\)")
_HEADER_MACRO = re.compile(rf"(?m)^[ \t]*#[ \t]*define[ \t]+(?P<macro>\w+)[ \t]+{_NAME}[ \t]*\r?$")

# Macros that Thrust puts its header names together with, and what NVRTC makes of them.
# Source: thrust/detail/config/{device,host}_system.h of CCCL 2 and 3.
ROOTS = {
    "__THRUST_DEVICE_SYSTEM_ROOT": "thrust/system/cuda",
    "__THRUST_HOST_SYSTEM_ROOT": "thrust/system/cpp",
}


@dataclass(frozen=True)
class Include:
    """A header's name as it stands in a text.

    Attributes:
        spelled: The name between quotes or angles.
        start, end: Where it stands, delimiters included; a macro that stands for it counts.
        needed: False for `__has_include` and for a macro's value, which only may be included.
    """

    spelled: str
    quoted: bool
    start: int
    end: int
    needed: bool


def scan(text: str, *, exact: bool = True) -> tuple[Include, ...]:
    """Every header that a text names, whatever `#if` it stands in.

    Args:
        exact: Leave out what stands in comments. The toolkit's headers do without: they are large,
            and a name too many does no harm there.
    """
    bare = without_comments(text) if exact else text
    directives = list(_INCLUDE.finditer(bare))
    found = [_include(match, True) for match in directives if match["macro"] is None]
    found += _by_macro(bare, [match for match in directives if match["macro"] is not None])
    if "__has_include" in bare:
        found += [_include(match, False) for match in _HAS_INCLUDE.finditer(bare)]
    return tuple(sorted(found, key=lambda include: include.start))


def _by_macro(text: str, directives: list[re.Match[str]]) -> list[Include]:
    """What `#include MACRO` names: at the directive where the text has one value, else at each value."""
    if not directives:
        return []
    values: dict[str, list[re.Match[str]]] = {}
    for value in _HEADER_MACRO.finditer(text):
        values.setdefault(value["macro"], []).append(value)
    found = []
    for directive in directives:
        named = values.get(directive["macro"], [])
        if len(named) == 1:
            include = _include(named[0], True)
            found.append(
                dataclasses.replace(include, start=directive.start("macro"), end=directive.end("macro"))
            )
        else:
            found += [_include(value, False) for value in named]
    return list(dict.fromkeys(found))


def _include(match: re.Match[str], needed: bool) -> Include:
    group = "quoted" if match["quoted"] is not None else "angled"
    spelled = match[group].strip()
    root, slash, rest = spelled.partition("/")
    return Include(
        ROOTS.get(root, root) + slash + rest, group == "quoted", match.start(group) - 1, match.end(group) + 1,
        needed,
    )  # fmt: skip


def rewrite(text: str, includes: tuple[Include, ...], target: Callable[[Include], str | None]) -> str:
    """Replace each name by the virtual one it leads to; names that lead nowhere stay as they are."""
    pieces: list[str] = []
    position = 0
    for include in includes:
        virtual = target(include)
        if virtual is None:
            continue
        pieces += [text[position : include.start], f'"{virtual}"']
        position = include.end
    return "".join([*pieces, text[position:]])


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
