"""A source: text, the name it goes by, and where its headers are."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dotcu.errors import SourceNotFound


@dataclass(frozen=True)
class Source:
    """CUDA C++ text.

    Attributes:
        name: The file's name, or the one that an inline source was given.
        path: Where it was read, absolute; None for an inline source.
        include: Folders that its headers are looked for in, in order, absolute.
    """

    name: str
    text: str
    path: Path | None = None
    include: tuple[Path, ...] = ()

    def __repr__(self) -> str:
        return f"Source({str(self.path or self.name)!r}, {self.text.count(chr(10)) + 1} lines)"


def read_source(path: str | Path, include: Sequence[str | Path] = ()) -> Source:
    """Read a source from disk.

    Raises:
        SourceNotFound: There is no such file, or it cannot be read as text.
    """
    path = Path(path).expanduser().absolute()
    return Source(path.name, read_text(path), path, _folders(include))


def inline_source(text: str, name: str = "inline.cu", include: Sequence[str | Path] = ()) -> Source:
    """Make a source of text that is on no disk; quoted headers are looked for in `include` alone."""
    _require_text(text, name)
    return Source(name, text, None, _folders(include))


def _folders(include: Sequence[str | Path]) -> tuple[Path, ...]:
    folders = tuple(Path(folder).expanduser().absolute() for folder in include)
    for folder in folders:
        if not folder.is_dir():
            raise SourceNotFound(
                f"The include folder {folder} is not there.\n"
                "It was named in include=[...]; a relative one counts from the working directory."
            )
    return folders


def read_text(path: Path) -> str:
    """A file's text; bytes that are not UTF-8 survive the way to the compiler.

    Raises:
        SourceNotFound: It is missing, a folder, without permission, or not text.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise SourceNotFound(_missing(path)) from error
    except OSError as error:
        raise SourceNotFound(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}.\n"
            f"A text file of CUDA C++ is required there; see it with: ls -ld {path}"
        ) from error
    text = data.decode("utf-8-sig", "surrogateescape")
    _require_text(text, str(path))
    return text


def _require_text(text: str, name: str) -> None:
    if "\0" in text:
        raise SourceNotFound(
            f"{name} is not text: there is a NUL byte in it.\n"
            f"UTF-8 is required. If it is UTF-16: iconv -f UTF-16 -t UTF-8 {name}"
        )


def _missing(path: Path) -> str:
    near = nearest(path)
    if near:
        listed = "\n".join(f"    {file}" for file in near)
        return f"There is no file {path}.\nThe nearest names there are:\n{listed}"
    folder = next(parent for parent in path.parents if parent.is_dir())
    return (
        f"There is no file {path}, and no .cu file in {folder}.\n"
        "load() takes a path relative to the file that calls it; see what is there with: "
        f"ls {folder}"
    )


def nearest(path: Path, limit: int = 3) -> tuple[Path, ...]:
    """Existing `.cu` files whose names come nearest, in the folder where `path` should be or just below."""
    folder = next(parent for parent in path.parents if parent.is_dir())
    try:
        files = sorted({*folder.glob("*.cu"), *folder.glob("*.cuh"), *folder.glob("*/*.cu")})
    except OSError:
        return ()
    by_name: dict[str, Path] = {}
    for file in files:
        by_name.setdefault(file.name, file)
    names = difflib.get_close_matches(path.name, by_name, n=limit, cutoff=0.4) or list(by_name)[:limit]
    return tuple(by_name[name] for name in names)
