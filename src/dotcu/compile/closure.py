"""What a source reaches: every user header in every branch, and the names that lead elsewhere.

The compiler sees this set and nothing else, so a header that the key does not cover cannot be
included. User headers are read, and hashed, at every build; headers of dotcu and of the toolkit
are only named here and are read when something is really compiled.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dotcu.compile.headers import Include, Shelf, rewrite, scan
from dotcu.compile.host_code import HostLine, with_host_code
from dotcu.compile.options import CompileOptions
from dotcu.compile.source import Source, read_text

if TYPE_CHECKING:
    from dotcu.compile.host_part import LeftOut

ROOT = "/dotcu"


@dataclass(frozen=True, kw_only=True)
class UserFile:
    """A user's source or header.

    Attributes:
        text: What is compiled of it: all but its host part, with its lines and columns.
        rewritten: The same with every `#include` led to a virtual name.
        whole: As the user wrote it.
    """

    virtual: str
    path: Path | None
    text: str
    rewritten: str
    whole: str


@dataclass(frozen=True, kw_only=True)
class Closure:
    """A source and every header that it reaches.

    Attributes:
        main: The source.
        headers: The user headers, by virtual name.
        system: Headers of dotcu and the toolkit that user files name, by virtual name.
        absent: Names that lead nowhere: host headers in a branch not taken, mostly.
        edges: (including file, spelled name, where it leads) for each; "system" where not to a user file.
        digest: Of names, texts and edges; holds no path of this machine.
        left_out: Declarations of the host part, by the virtual name of their file.
        unclear: Lines that kept a host part from being told, by virtual name.
    """

    main: UserFile
    headers: Mapping[str, UserFile]
    system: tuple[str, ...]
    absent: tuple[str, ...]
    edges: tuple[tuple[str, str, str], ...]
    digest: str
    left_out: tuple[tuple[str, LeftOut], ...] = ()
    unclear: tuple[tuple[str, HostLine], ...] = ()

    @property
    def files(self) -> tuple[UserFile, ...]:
        return (self.main, *self.headers.values())


def closure(
    source: Source,
    shelf: Shelf,
    extra: Mapping[str, tuple[str, ...]] | None = None,
    *,
    options: CompileOptions,
    parted: bool = False,
) -> Closure:
    """Follow every `#include` of a source through the user's files, and leave out their host part.

    Args:
        shelf: The headers of dotcu and the toolkit.
        extra: More names that a file includes, by its virtual name: what no scan can see, such as a
            name that macros put together.
        parted: Look for a host part even where no sign of one is seen.
    """
    found = _Walk(source, shelf, extra or {}).run()
    if options.all_is_device:
        return found
    names, texts = [file.virtual for file in found.files], tuple(file.text for file in found.files)
    looked = frozenset(range(len(texts))) if parted else with_host_code(texts, options.defined)
    if not looked:
        return found
    from dotcu.compile.host_part import device_parts

    parts = device_parts(texts, options.defined, looked)
    if parts.texts != texts:
        found = _Walk(source, shelf, extra or {}, dict(zip(names, parts.texts, strict=True))).run()
    return replace(
        found,
        left_out=tuple((names[one.file], one) for one in parts.left_out),
        unclear=tuple((names[file], line) for file, line in parts.unclear),
    )


class _Walk:
    """The walk's state: files found, files waiting, edges."""

    def __init__(
        self,
        source: Source,
        shelf: Shelf,
        extra: Mapping[str, tuple[str, ...]],
        parts: Mapping[str, str] | None = None,
    ) -> None:
        self.source, self.shelf, self.extra, self.parts = source, shelf, extra, parts or {}
        self.folder = source.path.parent if source.path else None
        self.virtual: dict[Path, str] = {}
        self.headers: dict[str, UserFile] = {}
        self.waiting: list[tuple[str, Path]] = []
        self.edges: list[tuple[str, str, str]] = []
        self.system: dict[str, None] = {}
        self.absent: dict[str, None] = {}

    def run(self) -> Closure:
        main_name = f"{ROOT}/{self.source.name.lstrip('/')}"
        if self.source.path:
            self.virtual[self.source.path.resolve()] = main_name
        main = self.file(main_name, self.source.path, self.source.text)
        while self.waiting:
            virtual, path = self.waiting.pop()
            self.headers[virtual] = self.file(virtual, path, read_text(path))
        headers = dict(sorted(self.headers.items()))
        edges = tuple(sorted(set(self.edges)))
        return Closure(
            main=main, headers=headers, system=tuple(sorted(self.system)), absent=tuple(sorted(self.absent)),
            edges=edges, digest=_digest((main, *headers.values()), edges),
        )  # fmt: skip

    def file(self, virtual: str, path: Path | None, whole: str) -> UserFile:
        text = self.parts.get(virtual, whole)
        includes = scan(text)
        leads = {include: self.follow(virtual, path, include) for include in includes}
        for spelled in self.extra.get(virtual, ()):
            self.follow(virtual, path, Include(spelled, True, 0, 0, False))
        return UserFile(
            virtual=virtual, path=path, text=text, rewritten=rewrite(text, includes, leads.get), whole=whole
        )

    def follow(self, including: str, path: Path | None, include: Include) -> str | None:
        """Where an `#include` leads, as a virtual name."""
        real = self.user_file(path, include) if include.quoted else None
        target = None if real else self.shelf.find(include.spelled)
        own = target is not None and not target.startswith(f"{ROOT}/@cuda")
        if real is None and not own:
            real = self.in_folders(include.spelled)
        if real is not None:
            name = self.name(real)
            self.edges.append((including, include.spelled, name))
            return name
        self.edges.append((including, include.spelled, "system"))
        (self.system if target else self.absent)[target or include.spelled] = None
        return target

    def user_file(self, including: Path | None, include: Include) -> Path | None:
        folder = including.parent if including else None
        if folder is None:
            return None
        beside = folder / include.spelled
        return beside if beside.is_file() else None

    def in_folders(self, spelled: str) -> Path | None:
        for folder in self.source.include:
            if (folder / spelled).is_file():
                return folder / spelled
        return None

    def name(self, path: Path) -> str:
        """The virtual name of a user header: one for each real file, however it is reached."""
        real = path.resolve()
        if real not in self.virtual:
            self.virtual[real] = self.place(real)
            self.waiting.append((self.virtual[real], real))
        return self.virtual[real]

    def place(self, real: Path) -> str:
        """A name from where the file lies to the source or an include folder, never from its whole path."""
        roots = [(self.folder, ROOT)] if self.folder else []
        roots += [(folder, f"{ROOT}/@include{i}") for i, folder in enumerate(self.source.include)]
        for folder, virtual in roots:
            if real.is_relative_to(folder.resolve()):
                return posixpath.join(virtual, real.relative_to(folder.resolve()).as_posix())
        relative = Path(os.path.relpath(real, roots[0][0].resolve())).as_posix()
        return f"{roots[0][1]}/" + relative.replace("../", "@up/")


def _digest(files: tuple[UserFile, ...], edges: tuple[tuple[str, str, str], ...]) -> str:
    digest = hashlib.sha256()
    for file in files:
        for part in (file.virtual, file.text):
            data = part.encode("utf-8", "surrogateescape")
            digest.update(len(data).to_bytes(8, "little") + data)
    digest.update(repr(edges).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
