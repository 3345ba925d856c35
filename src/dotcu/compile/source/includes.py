"""The `#include`s of a text, and where they lead: headers of dotcu and the toolkit, and the user's files.

The compiler sees the headers that a source reaches and nothing else, so a header that the cache's key does
not cover cannot be included. User headers are read, and hashed, at every build. Headers of dotcu and of the
toolkit are read when something is really compiled.

Each header is handed to the compiler by a virtual name such as `/dotcu/@cuda/cuda_fp16.h`, and every
`#include` in it is rewritten to the virtual name that it leads to. So no search happens inside
the compiler, two headers of one spelling stay two, and no install path gets into the code.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dotcu.compile.host_split.detect import HostLine, files_with_host_code
from dotcu.compile.options import CompileOptions
from dotcu.compile.source.lexer import without_comments
from dotcu.compile.source.source import Source, read_text

if TYPE_CHECKING:
    from dotcu.compile.host_split.select import RemovedDeclaration


_NAME = r"(?:\"(?P<quoted>[^\"\n]+)\"|<(?P<angled>[^>\n]+)>)"
_INCLUDE = re.compile(rf"(?m)^[ \t]*#[ \t]*include\b[ \t]*(?:{_NAME}|(?P<macro>[A-Za-z_]\w*))")
_HAS_INCLUDE = re.compile(rf"__has_include[ \t]*\([ \t]*{_NAME}[ \t]*\)")
_HEADER_MACRO = re.compile(rf"(?m)^[ \t]*#[ \t]*define[ \t]+(?P<macro>\w+)[ \t]+{_NAME}[ \t]*\r?$")

# Macros that Thrust puts its header names together with, and what NVRTC makes of them.
# Source: thrust/detail/config/{device,host}_system.h of CCCL 2 and 3.
THRUST_ROOTS = {
    "__THRUST_DEVICE_SYSTEM_ROOT": "thrust/system/cuda",
    "__THRUST_HOST_SYSTEM_ROOT": "thrust/system/cpp",
}


@dataclass(frozen=True)
class Include:
    """A header's name in a text.

    Attributes:
        spelled: The name between quotes or angles.
        start, end: Its position, delimiters included; that of a macro which stands for it.
        needed: False for `__has_include` and for a macro's value, which only may be included.
    """

    spelled: str
    quoted: bool
    start: int
    end: int
    needed: bool


def scan_includes(text: str, *, exact: bool = True) -> tuple[Include, ...]:
    """Return every header that a text names, whatever `#if` it is in.

    Args:
        text: The text.
        exact: Leave out what is in comments. The toolkit's headers do without: they are large,
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
    """Return what `#include MACRO` names: at the directive if the text has one value, else at each value."""
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
        spelled=THRUST_ROOTS.get(root, root) + slash + rest,
        quoted=group == "quoted",
        start=match.start(group) - 1,
        end=match.end(group) + 1,
        needed=needed,
    )


def rewrite_includes(
    text: str, includes: tuple[Include, ...], target: Callable[[Include], str | None]
) -> str:
    """Replace each name by the virtual one it leads to; names that lead nowhere stay as they are.

    Args:
        text: The text.
        includes: The names in it.
        target: Returns the virtual name for each, or None.
    """
    pieces: list[str] = []
    position = 0
    for include in includes:
        virtual = target(include)
        if virtual is None:
            continue
        pieces += [text[position : include.start], f'"{virtual}"']
        position = include.end
    return "".join([*pieces, text[position:]])


BUNDLED_FOLDER = Path(__file__).parents[2] / "include"
STAND_INS = BUNDLED_FOLDER / "nvrtc"
"""Stand-ins for the host headers that NVRTC lacks; they are for NVRTC alone."""

VIRTUAL_ROOT = "/dotcu"


class SystemHeaders:
    """The headers of dotcu and a toolkit, read when first asked for and held in memory."""

    def __init__(self, roots: Mapping[str, Path]) -> None:
        """Search some folders, in order; each has the virtual name that is its key."""
        self._roots = dict(roots)
        self._found: dict[str, str | None] = {}
        self._headers: dict[str, tuple[bytes, tuple[str, ...]]] = {}  # text, and the headers that it names

    def find(self, spelled: str) -> str | None:
        """Return the virtual name that `#include <spelled>` leads to, None if no folder has it."""
        if spelled not in self._found:
            found = (name for name, folder in self._roots.items() if (folder / spelled).is_file())
            root = next(found, None)
            self._found[spelled] = root and posixpath.normpath(f"{root}/{spelled}")
        return self._found[spelled]

    def path(self, virtual: str) -> Path | None:
        """Return the file behind a virtual name."""
        for name, folder in self._roots.items():
            if virtual.startswith(f"{name}/"):
                return folder / virtual[len(name) + 1 :]
        return None

    def reachable(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the named headers and all that they reach, by virtual name."""
        reached: dict[str, bytes] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in reached:
                if name not in self._headers:
                    self._headers[name] = self._read(name)
                reached[name], leads_to = self._headers[name]
                waiting.extend(leads_to)
        return reached

    def _read(self, virtual: str) -> tuple[bytes, tuple[str, ...]]:
        path = self.path(virtual)
        assert path is not None, virtual
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        folder = posixpath.dirname(virtual)
        leads: dict[Include, str] = {}
        for include in scan_includes(text, exact=False):
            target = self._resolve(include, folder)
            if target is not None:
                leads[include] = target
        body = rewrite_includes(text, tuple(leads), leads.get)
        return body.encode("utf-8", "surrogateescape"), tuple(dict.fromkeys(leads.values()))

    def _resolve(self, include: Include, folder: str) -> str | None:
        if include.quoted:
            sibling = posixpath.normpath(f"{folder}/{include.spelled}")
            path = self.path(sibling)
            if path is not None and path.is_file():
                return sibling
        return self.find(include.spelled)


@functools.cache
def system_headers(folders: tuple[Path, ...]) -> SystemHeaders:
    """Return dotcu's headers, and behind them those of a toolkit's include folders."""
    bundled = {f"{VIRTUAL_ROOT}/@nvrtc": STAND_INS, f"{VIRTUAL_ROOT}/@dotcu": BUNDLED_FOLDER}
    return SystemHeaders(
        {**bundled, **{f"{VIRTUAL_ROOT}/@cuda{i or ''}": folder for i, folder in enumerate(folders)}}
    )


@functools.cache
def bundled_headers_identity() -> str:
    """Return a digest of all headers of dotcu, read once in a process."""
    digest = hashlib.sha256()
    for file in sorted(path for path in BUNDLED_FOLDER.rglob("*") if path.is_file()):
        name = file.relative_to(BUNDLED_FOLDER).as_posix()
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class UserFile:
    """A user's source or header.

    Attributes:
        virtual: Its name for the compiler.
        text: What is compiled of it: all but its host part, with its lines and columns.
        rewritten: The same with every `#include` led to a virtual name.
        original: As the user wrote it.
    """

    virtual: str
    path: Path | None
    text: str
    rewritten: str
    original: str


@dataclass(frozen=True, kw_only=True)
class IncludeGraph:
    """A source and every header that it reaches.

    Attributes:
        main: The source.
        headers: The user headers, by virtual name.
        system: Headers of dotcu and the toolkit that user files name, by virtual name.
        missing: Names that lead nowhere: host headers in a branch not taken, mostly.
        edges: (including file, spelled name, where it leads) for each; "system" where not to a user file.
        digest: Of names, texts and edges; holds no path of this machine.
        removed: Host declarations that are left out, with the virtual name of their file.
        unclear: Lines that are neither clearly host code nor clearly device code, by virtual name.
    """

    main: UserFile
    headers: Mapping[str, UserFile]
    system: tuple[str, ...]
    missing: tuple[str, ...]
    edges: tuple[tuple[str, str, str], ...]
    digest: str
    removed: tuple[tuple[str, RemovedDeclaration], ...] = ()
    unclear: tuple[tuple[str, HostLine], ...] = ()

    @property
    def files(self) -> tuple[UserFile, ...]:
        return (self.main, *self.headers.values())


def include_graph(
    source: Source,
    headers: SystemHeaders,
    extra: Mapping[str, tuple[str, ...]] | None = None,
    *,
    options: CompileOptions,
    always_split: bool = False,
) -> IncludeGraph:
    """Follow every `#include` of a source through the user's files, and leave out their host code.

    Args:
        source: The text.
        headers: The headers of dotcu and the toolkit.
        extra: More names that a file includes, by its virtual name: what no scan can see, such as a
            name that macros put together.
        options: They define macros.
        always_split: Look for host code even where no sign of it is seen.
    """
    found = _GraphBuilder(source, headers, extra or {}, {}).build()
    if options.all_is_device:
        return found
    names, texts = [file.virtual for file in found.files], tuple(file.text for file in found.files)
    looked = frozenset(range(len(texts))) if always_split else files_with_host_code(texts, options.defined)
    if not looked:
        return found
    from dotcu.compile.host_split.select import device_parts

    parts = device_parts(texts, options.defined, looked)
    if parts.texts != texts:
        device_texts = dict(zip(names, parts.texts, strict=True))
        found = _GraphBuilder(source, headers, extra or {}, device_texts).build()
    return dataclasses.replace(
        found,
        removed=tuple((names[one.file], one) for one in parts.removed),
        unclear=tuple((names[file], line) for file, line in parts.unclear),
    )


class _GraphBuilder:
    """A walk over the files that a source reaches."""

    def __init__(
        self,
        source: Source,
        headers: SystemHeaders,
        extra: Mapping[str, tuple[str, ...]],
        device_texts: Mapping[str, str],
    ) -> None:
        self.source, self.system_headers, self.extra, self.device_texts = source, headers, extra, device_texts
        self.folder = source.path.parent if source.path else None
        self.virtual: dict[Path, str] = {}
        self.headers: dict[str, UserFile] = {}
        self.waiting: list[tuple[str, Path]] = []
        self.edges: set[tuple[str, str, str]] = set()
        self.system: set[str] = set()
        self.missing: set[str] = set()

    def build(self) -> IncludeGraph:
        main_name = f"{VIRTUAL_ROOT}/{self.source.name.lstrip('/')}"
        if self.source.path:
            self.virtual[self.source.path.resolve()] = main_name
        main = self.file(main_name, self.source.path, self.source.text)
        while self.waiting:
            virtual, path = self.waiting.pop()
            self.headers[virtual] = self.file(virtual, path, read_text(path))
        headers = dict(sorted(self.headers.items()))
        edges = tuple(sorted(self.edges))
        return IncludeGraph(
            main=main, headers=headers, system=tuple(sorted(self.system)),
            missing=tuple(sorted(self.missing)), edges=edges,
            digest=_graph_digest((main, *headers.values()), edges),
        )  # fmt: skip

    def file(self, virtual: str, path: Path | None, original: str) -> UserFile:
        text = self.device_texts.get(virtual, original)
        includes = scan_includes(text)
        leads = {include: self.follow(virtual, path, include) for include in includes}
        for spelled in self.extra.get(virtual, ()):
            include = Include(spelled=spelled, quoted=True, start=0, end=0, needed=False)
            self.follow(virtual, path, include)
        rewritten = rewrite_includes(text, includes, leads.get)
        return UserFile(virtual=virtual, path=path, text=text, rewritten=rewritten, original=original)

    def follow(self, including: str, path: Path | None, include: Include) -> str | None:
        """Return the virtual name that an `#include` leads to, and note the edge."""
        real = self.sibling(path, include.spelled) if include.quoted else None
        target = None if real else self.system_headers.find(include.spelled)
        is_bundled = target is not None and not target.startswith(f"{VIRTUAL_ROOT}/@cuda")
        if real is None and not is_bundled:
            folders = (folder / include.spelled for folder in self.source.include)
            real = next((file for file in folders if file.is_file()), None)
        if real is not None:
            name = self.name(real)
            self.edges.add((including, include.spelled, name))
            return name
        self.edges.add((including, include.spelled, "system"))
        if target:
            self.system.add(target)
        else:
            self.missing.add(include.spelled)
        return target

    def sibling(self, including: Path | None, spelled: str) -> Path | None:
        file = including.parent / spelled if including else None
        return file if file is not None and file.is_file() else None

    def name(self, path: Path) -> str:
        """Return the virtual name of a user header: one for each real file, however it is reached."""
        real = path.resolve()
        if real not in self.virtual:
            self.virtual[real] = self.new_name(real)
            self.waiting.append((self.virtual[real], real))
        return self.virtual[real]

    def new_name(self, real: Path) -> str:
        """Return a name relative to the source or an include folder, never from the whole path."""
        roots = [(self.folder, VIRTUAL_ROOT)] if self.folder else []
        roots += [(folder, f"{VIRTUAL_ROOT}/@include{i}") for i, folder in enumerate(self.source.include)]
        for folder, virtual in roots:
            if real.is_relative_to(folder.resolve()):
                return posixpath.join(virtual, real.relative_to(folder.resolve()).as_posix())
        relative = Path(os.path.relpath(real, roots[0][0].resolve())).as_posix()
        return f"{roots[0][1]}/" + relative.replace("../", "@up/")


def _graph_digest(files: tuple[UserFile, ...], edges: tuple[tuple[str, str, str], ...]) -> str:
    digest = hashlib.sha256()
    for file in files:
        for part in (file.virtual, file.text):
            data = part.encode("utf-8", "surrogateescape")
            digest.update(len(data).to_bytes(8, "little") + data)
    digest.update(repr(edges).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
