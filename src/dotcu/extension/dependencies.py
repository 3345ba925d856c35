"""The files that an object file depends on, by the compiler's depfile, and whether they have changed.

A depfile names every header that was read. The user's are compared by content, those of torch, the
toolkit and the system to size and time. What a compiler would have read had it been there is noted as
well: a header of the same name in a folder that is searched earlier, and the names in `__has_include`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SYSTEM = ("/usr/include", "/usr/lib", "/usr/share")
_HAS_INCLUDE = re.compile(r"__has_include\s*\(\s*[<\"]([^>\"]+)[>\"]")
_WORD = re.compile(r"(?:\\.|[^\s\\]|\\(?=\s))+")


@dataclass(frozen=True, kw_only=True)
class Dependencies:
    """The state of the files that a compile depends on.

    Attributes:
        user: The digest of the content of each of the user's files.
        system: Size in bytes and time in nanoseconds of each other.
        absent: Files that do not exist and would have been read.
    """

    user: Mapping[str, str]
    system: Mapping[str, tuple[int, int]]
    absent: tuple[str, ...]

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.user, *self.system)

    def changed(self) -> str:
        """Return the first file that is no longer what it was, "" where all are."""
        for path, digest in self.user.items():
            if content(path) != digest:
                return path
        for path, known in self.system.items():
            if _stat(path) != known:
                return path
        return next((path for path in self.absent if Path(path).exists()), "")

    def touched_since(self, time_ns: int) -> str:
        """Return a user's file that was written since a time, or is gone; "" if there is none."""
        return next((path for path in self.user if _stat(path)[1] >= time_ns or _stat(path)[0] < 0), "")


def content(path: str | Path) -> str:
    """Return the digest of a file, "" where it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def _stat(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 - thousands of files: a Path of each costs more than the call
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def read_depfile(depfile: str) -> tuple[str, ...]:
    """Return the files that a depfile names, in its order, each once."""
    _, _, after = depfile.replace("\\\n", " ").partition(": ")
    rule = after.partition("\n")[0]
    words = (re.sub(r"\\([\s\\#])", r"\1", word).replace("$$", "$") for word in _WORD.findall(rule))
    return tuple(dict.fromkeys(words))


def gather(files: Sequence[str], *, folders: Sequence[Path], toolkits: Sequence[Path]) -> Dependencies:
    """Note the state of the files of a depfile.

    Args:
        folders: The user's include folders, in the order of the search.
        toolkits: Folders whose files are not the user's: torch, CUDA, Python.
    """
    roots = tuple(f"{root}/" for root in (*_SYSTEM, *toolkits, *(path.resolve() for path in toolkits)))
    users = [file for file in files if not os.path.abspath(file).startswith(roots)]  # noqa: PTH100
    others = set(files).difference(users)
    return Dependencies(
        user={file: content(file) for file in users},
        system={file: _stat(file) for file in files if file in others},
        absent=tuple(sorted(_absent(users, files, folders))),
    )


def _absent(users: Sequence[str], files: Iterable[str], folders: Sequence[Path]) -> set[str]:
    """Return missing paths that come before a file that was found, or that `__has_include` names."""
    siblings = list(dict.fromkeys(str(Path(file).parent) for file in users))
    searched = list(map(str, folders))
    candidates = set()
    for file in users:
        with suppress(OSError):
            for name in _HAS_INCLUDE.findall(Path(file).read_text(errors="replace")):
                candidates |= {f"{place}/{name}" for place in (*siblings, *searched)}
    for file in files:
        index = next((index for index, place in enumerate(searched) if file.startswith(f"{place}/")), None)
        if index is not None:  # it could have been found before in these
            name = file[len(searched[index]) :]
            candidates |= {f"{place}{name}" for place in (*siblings, *searched[:index])}
    return {path for path in candidates if not os.path.exists(path)}  # noqa: PTH110
