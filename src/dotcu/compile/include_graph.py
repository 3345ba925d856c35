"""The headers that a source reaches: those of dotcu and the toolkit, and the user's files.

The compiler sees the headers that a source reaches and nothing else, so a header that the cache's key does
not cover cannot be included. User headers are read, and hashed, at every build. Headers of dotcu and of the
toolkit are read when something is really compiled.

Each header is handed to the compiler by a virtual name such as `/dotcu/@cuda/cuda_fp16.h`, and every
`#include` in it is rewritten to the virtual name that it leads to. So no search happens inside
the compiler, two headers of one spelling stay two, and no install path gets into the code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dotcu.compile import cache
from dotcu.compile.host_split.detect import (
    BUNDLED_FOLDER,
    NO_HOST_CODE,
    STAND_INS,
    DeviceParts,
    Refusal,
    Texts,
    files_with_host_code,
    is_host_include,
    stand_ins,
)
from dotcu.compile.options import CompileOptions
from dotcu.compile.source.lexer import Include, blanks, rewrite_includes, scan_includes
from dotcu.compile.source.source import Source, archived, in_archive, read_text
from dotcu.files import is_file, read_file

VIRTUAL_ROOT = "/dotcu"
_SHORT_NAMES = re.compile(r"\b(ssize_t|uint|ushort|ulong|u_char|u_short|u_int|u_long|u_int(8|16|32|64)_t)\b")
"""Types that nvcc knows without an `#include`. Source: glibc's sys/types.h."""

_ANNOTATIONS = r"__(?:host|device|forceinline|noinline|inline)__"
_MACRO_OF_ANNOTATIONS = re.compile(
    rf"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(?:{_ANNOTATIONS}|inline|[ \t])+\r?$", re.MULTILINE
)


NOTED_LENGTH = 50_000
"""The split of texts with more characters is noted for the next process: it takes tens of milliseconds."""


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
            roots = (name for name, folder in self._roots.items() if is_file(folder / spelled))
            root = next(roots, None)
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
        text = read_file(path).decode("utf-8", "surrogateescape")
        folder = posixpath.dirname(virtual)
        leads = {}
        for include in scan_includes(text, exact=False):
            sibling = posixpath.normpath(f"{folder}/{include.spelled}")
            beside = self.path(sibling) if include.quoted else None
            is_beside = beside is not None and is_file(beside)
            leads[include] = sibling if is_beside else self.find(include.spelled)
        body = rewrite_includes(text, leads)
        return body.encode("utf-8", "surrogateescape"), tuple(dict.fromkeys(filter(None, leads.values())))


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
    for file in sorted(path for path in BUNDLED_FOLDER.rglob("*") if is_file(path)):
        name = file.relative_to(BUNDLED_FOLDER).as_posix()
        digest.update(name.encode() + b"\0" + read_file(file) + b"\0")
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
        optional: Names that a condition asks for: `#if __has_include(<name>)`.
        edges: (including file, spelled name, where it leads) for each; "system" where not to a user file.
        digest: Of names, texts and edges; holds no path of this machine.
        parts: What is left of the files without their host code.
    """

    main: UserFile
    headers: Mapping[str, UserFile]
    system: tuple[str, ...]
    missing: tuple[str, ...]
    optional: frozenset[str]
    edges: tuple[tuple[str, str, str], ...]
    digest: str
    parts: DeviceParts = NO_HOST_CODE

    @property
    def files(self) -> tuple[UserFile, ...]:
        return (self.main, *self.headers.values())


def include_graph(
    source: Source,
    headers: SystemHeaders,
    extra: Mapping[str, tuple[str, ...]] | None = None,
    *,
    options: CompileOptions,
    suspects: frozenset[str] = frozenset(),
    refused: frozenset[Refusal] = frozenset(),
    wanted: frozenset[str] = frozenset(),
) -> IncludeGraph:
    """Follow every `#include` of a source through the user's files, and leave out their host code.

    Args:
        extra: More names that a file includes, by its virtual name: what no scan can see, such as a
            name that macros put together.
        suspects: The virtual names of files with host code, whether or not a sign of it is seen.
        refused: Pieces that the compiler did not take.
        wanted: Names of types and constants that stay although no device code names them.
    """
    if options.all_is_device:
        return _GraphBuilder(source, headers, extra or {}, {}).build()
    # a host's header that the user has is read only if a file without host code includes it: PyTorch's
    # headers alone are thousands, and are left out of the rest
    for reads_hosts in (False, True):
        first = _GraphBuilder(source, headers, extra or {}, {}, reads_hosts=reads_hosts)
        graph = first.build()
        texts = tuple((file.virtual, file.text) for file in graph.files)
        parts = _split(texts, options.defined, suspects.intersection(dict(texts)), refused, wanted)
        if first.unread or parts.texts:
            graph = _GraphBuilder(source, headers, extra or {}, parts.texts).build()
        if dict(texts).keys() >= {file.virtual for file in graph.files}:
            break
    return dataclasses.replace(graph, parts=parts)


@functools.lru_cache(maxsize=16)
def _split(
    texts: Texts,
    defined: frozenset[str],
    suspects: frozenset[str],
    refused: frozenset[Refusal],
    wanted: frozenset[str],
) -> DeviceParts:
    """Return the device parts of some texts; noted if they are long."""
    store, name, is_long = (
        cache.Store(cache.location()),
        "",
        sum(len(text) for _, text in texts) > NOTED_LENGTH,
    )
    if is_long:
        from dotcu import serialize  # a launch of short texts does not import it

        name = _note_name(texts, repr([sorted(each) for each in (defined, suspects, refused, wanted)]))
        for noted in store.history(name):
            with contextlib.suppress(serialize.Misfit):
                return serialize.from_plain(DeviceParts, noted)
    looked = files_with_host_code(texts, defined) | suspects
    if not looked:
        return NO_HOST_CODE
    from dotcu.compile.host_split.select import device_parts  # a file of kernels alone does without

    parts = device_parts(texts, defined, looked, refused, wanted)
    if is_long:
        store.add_history(name, serialize.plain(parts))
    return parts


def _note_name(texts: Texts, asked: str) -> str:
    digest = hashlib.sha256(_splitter_identity())
    for part in (asked, *itertools.chain(*texts)):
        data = part.encode("utf-8", "surrogateescape")
        digest.update(len(data).to_bytes(8, "little") + data)
    return f"split-{digest.hexdigest()}"


@functools.cache
def _splitter_identity() -> bytes:
    """Return the code that decides what host code is."""
    folder = Path(__file__).parent
    files = sorted([*folder.glob("host_split/*.py"), *folder.glob("source/*.py")])
    parts = [read_file(file) for file in (*files, folder / "diagnostics.py")]
    return b"\0".join([*parts, bundled_headers_identity().encode()])


def _for_lambdas(main: UserFile, headers: Mapping[str, UserFile]) -> tuple[UserFile, dict[str, UserFile]]:
    """Blank the annotations of lambdas in what is compiled.

    NVRTC takes none, as nvcc without `--extended-lambda`, and a lambda in device code needs none.
    """
    files = (main, *headers.values())
    named = {name for file in files for name in _MACRO_OF_ANNOTATIONS.findall(file.text)}
    word = "|".join([_ANNOTATIONS, *(rf"\b{re.escape(name)}\b" for name in sorted(named))])
    # behind an attribute, `[[nodiscard]] __device__`, stands a function's; a macro may end with a lambda's
    pattern = re.compile(
        rf"(?<=\])\s*(?:(?:{word})\s*)+(?=[({{]|mutable\b|noexcept\b|->)"
        rf"|(?<=[^\]]\])[ \t]*(?:(?:{word})[ \t]*)+(?=\\?\r?$)",
        re.MULTILINE,
    )
    changed = [
        dataclasses.replace(file, rewritten=pattern.sub(lambda match: blanks(match[0]), file.rewritten))
        for file in files
    ]
    return changed[0], {file.virtual: file for file in changed[1:]}


def _quotable(name: str) -> str:
    """Return a name as it stands between quotes, in an `#include` and in PTX: some characters as `%22`."""
    return _UNQUOTABLE.sub(lambda found: f"%{ord(found[0]):02X}", name)


_UNQUOTABLE = re.compile(r'["\\%\x00-\x1f\x7f]')


@dataclass
class _GraphBuilder:
    """A walk over the files that a source reaches.

    Attributes:
        reads_hosts: Follow what `is_host_include` matches.
        unread: There was some, and it was not followed.
    """

    source: Source
    system_headers: SystemHeaders
    extra: Mapping[str, tuple[str, ...]]
    device_texts: Mapping[str, str]
    virtual: dict[Path, str] = field(default_factory=dict)
    found: dict[tuple[Path, str], bool] = field(default_factory=dict)
    archived: dict[Path, bool] = field(default_factory=dict)
    real: dict[Path, Path] = field(default_factory=dict)
    headers: dict[str, UserFile] = field(default_factory=dict)
    waiting: list[tuple[str, Path]] = field(default_factory=list)
    edges: set[tuple[str, str, str]] = field(default_factory=set)
    system: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    optional: set[str] = field(default_factory=set)
    reads_hosts: bool = True
    unread: bool = False

    def build(self) -> IncludeGraph:
        main_name = f"{VIRTUAL_ROOT}/{_quotable(self.source.name.lstrip('/'))}"
        if self.source.path:
            self.virtual[self.source.path.resolve()] = main_name
        main = self.file(main_name, self.source.path, self.source.text)
        while self.waiting:
            virtual, path = self.waiting.pop()
            self.headers[virtual] = self.file(virtual, path, read_text(path))
        headers = dict(sorted(self.headers.items()))
        main, headers = _for_lambdas(main, headers)
        types = self.system_headers.find("sys/types.h")
        if types and any(_SHORT_NAMES.search(file.text) for file in (main, *headers.values())):
            self.system.add(types)
            rewritten = f'#include "{types}"\n#line 1\n{main.rewritten}'
            main = dataclasses.replace(main, rewritten=rewritten)
        edges = tuple(sorted(self.edges))
        digest = hashlib.sha256()
        for file in (main, *headers.values()):
            for part in (file.virtual, file.text):
                data = part.encode("utf-8", "surrogateescape")
                digest.update(len(data).to_bytes(8, "little") + data)
        digest.update(repr(edges).encode("utf-8", "surrogateescape"))
        return IncludeGraph(
            main=main, headers=headers, system=tuple(sorted(self.system)),
            missing=tuple(sorted(self.missing)), optional=frozenset(self.optional), edges=edges,
            digest=digest.hexdigest(),
        )  # fmt: skip

    def file(self, virtual: str, path: Path | None, original: str) -> UserFile:
        text = self.device_texts.get(virtual, original)
        leads = {include: self.follow(virtual, path, include) for include in scan_includes(text)}
        for spelled in self.extra.get(virtual, ()):
            include = Include(spelled=spelled, quoted=True, start=0, end=0, needed=False)
            self.follow(virtual, path, include)
        rewritten = rewrite_includes(text, leads)
        return UserFile(virtual=virtual, path=path, text=text, rewritten=rewritten, original=original)

    def follow(self, including: str, path: Path | None, include: Include) -> str | None:
        """Return the virtual name that an `#include` leads to, and note the edge."""
        folders = [path.parent] if include.quoted and path is not None else []
        target = None
        if not include.needed:
            self.optional.add(include.spelled)
        if not self.reads_hosts and is_host_include(include.spelled, include.quoted, stand_ins()):
            self.unread = True
            return None
        if not any(self.is_file(folder, include.spelled) for folder in folders):
            target = self.system_headers.find(include.spelled)
        if target is None or target.startswith(f"{VIRTUAL_ROOT}/@cuda"):
            folders += self.source.include
        folder = next((one for one in folders if self.is_file(one, include.spelled)), None)
        if folder is not None:
            name = self.name(folder / include.spelled)
            self.edges.add((including, include.spelled, name))
            return name
        self.edges.add((including, include.spelled, "system"))
        if target:
            self.system.add(target)
        else:
            self.missing.add(include.spelled)
        return target

    def is_file(self, folder: Path, spelled: str) -> bool:
        """Return whether a folder has a file, looked up once."""
        key = (folder, spelled)
        if key not in self.found:
            path = folder / spelled
            if folder not in self.archived:
                self.archived[folder] = in_archive(path)
            self.found[key] = is_file(path) or (self.archived[folder] and archived(path) is not None)
        return self.found[key]

    @functools.cached_property
    def roots(self) -> list[tuple[Path, str]]:
        """The folder of the source and those of `include`, with the beginnings of their virtual names."""
        roots = [(self.source.path.parent, VIRTUAL_ROOT)] if self.source.path else []
        roots += [(folder, f"{VIRTUAL_ROOT}/@include{i}") for i, folder in enumerate(self.source.include)]
        return [(folder.resolve(), root) for folder, root in roots]

    def name(self, path: Path) -> str:
        """Return the virtual name of a user header: one for each real file, however it is reached.

        It is relative to the source or an include folder, never made of the whole path.
        """
        if path not in self.real:
            self.real[path] = path.resolve()
        real = self.real[path]
        if real not in self.virtual:
            inside = (one for one in self.roots if real.is_relative_to(one[0]))
            folder, root = next(inside, self.roots[0])
            relative = Path(os.path.relpath(real, folder)).as_posix().replace("../", "@up/")
            self.virtual[real] = f"{root}/{_quotable(relative)}"
            self.waiting.append((self.virtual[real], real))
        return self.virtual[real]
