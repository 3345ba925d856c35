"""A source: text, the name it goes by, and where its headers are."""

from __future__ import annotations

import codecs
import dataclasses
import difflib
import os
import posixpath
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dotcu.errors import SourceNotFound, UsageError, quoted
from dotcu.files import MAX_BYTES, is_file, is_folder, matching, read_file

PREBUILT = "__dotcu__"
"""The folder next to a source in which a wheel has the code that was compiled of it."""

PTX, CUBIN = ".ptx", ".cubin"
"""The endings of files that a compiler has written."""
_ELF = b"\x7fELF"


@dataclass(frozen=True)
class Source:
    """CUDA C++ text; or PTX, or a cubin, which others have compiled.

    Attributes:
        name: The file's name, or the name of an inline source.
        path: Where it was read, absolute; None for an inline source.
        include: Folders that its headers are looked for in, in order, absolute.
        shown: The name in messages, if that is not its path or name. Compiled code does not depend on it.
        cubin: Machine code, in place of text.
    """

    name: str
    text: str
    path: Path | None = None
    include: tuple[Path, ...] = ()
    shown: str = ""
    cubin: bytes = b""

    @property
    def is_compiled(self) -> bool:
        """It is PTX or a cubin, and goes to no compiler of CUDA C++."""
        return bool(self.cubin) or self.name.endswith(PTX)

    @property
    def display(self) -> str:
        """The source as messages call it."""
        return self.shown or str(self.path or self.name)

    def with_headers(self, headers: Sequence[str]) -> Source:
        """Return the source with some more headers included.

        They stand behind the text, so that its lines keep their numbers: a name expression is looked
        up at the end of the file, and a template's operators when it is instantiated.
        """
        lines = "".join(f"\n#include <{header}>" for header in headers)
        return dataclasses.replace(self, text=f"{self.text}{lines}\n") if headers else self

    def __repr__(self) -> str:
        return f"Source({self.display!r}, {self.text.count(chr(10)) + 1} lines)"


def read_source(
    path: str | Path,
    include: Sequence[str | Path] = (),
    *,
    base: Path | None = None,
    is_compiled: Callable[[Path], bool] = lambda _: False,
) -> Source:
    """Read a source from disk.

    Args:
        base: The folder that relative paths count from; None for the working directory.
        is_compiled: Tells whether a source is prebuilt: its include folders may then be missing.

    Raises:
        SourceNotFound: There is no such file, or it cannot be read as text.
        UsageError: The path, or an include folder, is not a path.
    """
    full = _absolute(path, "path", 'load("kernels.cu")', base)
    if full.suffix in (PTX, CUBIN):
        return _read_compiled(full)
    text = read_text(full)
    return Source(full.name, text, full, _folders(include, base, required=not is_compiled(full)))


def inline_source(
    text: str, name: str = "inline.cu", include: Sequence[str | Path] = (), *, base: Path | None = None
) -> Source:
    """Make a source of text that is on no disk; quoted headers are looked for in `include` alone.

    Args:
        text: CUDA C++.
        name: The name in messages.
        include: Folders of headers.
        base: The folder that relative folders count from; None for the working directory.

    Raises:
        SourceNotFound: An include folder is not there, or there is a NUL character in the text.
        UsageError: The text is not a str, or has half of a surrogate pair; an include folder is not a path.
    """
    value: object = text
    if not isinstance(value, str):
        remedy = 'load_inline("__global__ void fill(float* out) { out[threadIdx.x] = 1; }")'
        if isinstance(value, (bytes, bytearray)):
            remedy = "load_inline(source.decode())"
        elif isinstance(value, Path):
            remedy = f"load({str(value)!r})"
        raise UsageError(
            f"load_inline takes the text of a source, a str; got {type(value).__name__}.\nWrite {remedy}."
        )
    _require_text(text, name)
    text = text.removeprefix("\ufeff")  # a byte order mark, as `read_text` leaves it out
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"The source has half of a surrogate pair, {text[error.start]!a}, at index {error.start}: "
            "UTF-8 has no bytes for it.\n"
            'Leave it out: load_inline(source.encode("utf-8", "replace").decode())'
        ) from error
    return Source(name, text, None, _folders(include, base))


def _absolute(path: object, what: str, example: str, base: Path | None) -> Path:
    if not isinstance(path, (str, Path)):
        raise UsageError(f"{what} is a str or a Path, got {path!r}.\nFor example: {example}")
    if "\0" in str(path):
        raise UsageError(
            f"{what} has a NUL character in it, got {str(path)!r}: no file's name has one.\n"
            f"For example: {example}"
        )
    try:
        return ((base or Path()) / Path(path).expanduser()).absolute()
    except RuntimeError as error:  # "~name" of a user that does not exist
        raise SourceNotFound(
            f"There is no home folder for {str(path)!r}.\nWrite the path in full: {example}"
        ) from error


def _folders(include: object, base: Path | None, *, required: bool = True) -> tuple[Path, ...]:
    if isinstance(include, (str, bytes, Path)) or not isinstance(include, Iterable):
        shown = str(include) if isinstance(include, (str, Path)) else "include"
        raise UsageError(f"include is a list of folders, got {include!r}.\nWrite include=[{shown!r}].")
    folders = tuple(_absolute(folder, "include", 'include=["include"]', base) for folder in include)
    for folder in folders:
        if not required or in_archive(folder / "header"):
            continue
        if not is_folder(folder):
            raise SourceNotFound(
                f"The include folder {folder} does not exist.\n"
                "It was named in include=[...]; load() counts a relative one from the folder of the file "
                "that calls it."
            )
        if not os.access(folder, os.X_OK):
            raise SourceNotFound(
                f"The include folder {folder} cannot be read: permission denied.\n"
                f"It was named in include=[...]. See whose it is, and what you may: ls -ld {quoted(folder)}"
            )
    return folders


def _read_compiled(path: Path) -> Source:
    """Read PTX or a cubin; the bytes decide which it is."""
    data = _read_bytes(path, "PTX or a cubin is")
    if data.startswith(_ELF):
        return Source(path.name, "", path, cubin=data)
    if path.suffix == CUBIN or b"\0" in data:
        is_text = b".version" in data and b"\0" not in data
        told = "PTX, and not an ELF file" if is_text else "neither PTX nor an ELF file"
        raise SourceNotFound(
            f"{path} is {told}: it begins with {data[:8]!r}.\n"
            "load() takes PTX in a .ptx file, and machine code in a .cubin file.\n"
            + (
                f"Rename it: mv {quoted(path)} {quoted(path.with_suffix(PTX))}"
                if is_text
                else f"See what is in it: dotcu inspect {quoted(path)}"
            )
        )
    return Source(path.name, data.decode("utf-8", "replace"), path)


def read_text(path: Path) -> str:
    """Return a file's text; bytes that are not UTF-8 survive the way to the compiler.

    Raises:
        SourceNotFound: It is missing, a folder, without permission, or not text.
    """
    data = _read_bytes(path, "A text file of CUDA C++ is")
    text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    _require_text(text, str(path))
    return text


def _read_bytes(path: Path, what_is: str) -> bytes:
    data = archived(path)
    try:
        return read_file(path) if data is None else data
    except FileNotFoundError as error:
        raise SourceNotFound(_missing(path)) from error
    except OSError as error:
        if isinstance(error, NotADirectoryError) and in_archive(path):
            raise SourceNotFound(_missing(path)) from error
        raise SourceNotFound(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}.\n"
            f"{what_is} required there; see it with: ls -ld {quoted(path)}"
        ) from error


def in_archive(path: Path) -> bool:
    """Return whether a path leads into a zip archive, which a package may be imported from."""
    return _archive(path) is not None


def _archive(path: Path) -> Path | None:
    for parent in path.parents:
        if is_folder(parent):
            return None
        if is_file(parent):
            import zipfile  # most sources are in folders

            return parent if zipfile.is_zipfile(parent) else None
    return None


def archived(path: Path) -> bytes | None:
    """Return the bytes of a file in a zip archive; None for others, and where it has no such file.

    Raises:
        SourceNotFound: The archive is damaged, or the file is too large.
    """
    archive = _archive(path)
    if archive is None:
        return None
    import zipfile
    import zlib

    try:
        with zipfile.ZipFile(archive) as members, suppress(KeyError):
            member = members.getinfo(posixpath.normpath(path.relative_to(archive).as_posix()))
            if member.file_size > MAX_BYTES:
                raise SourceNotFound(
                    f"{path} cannot be read: it has more than {MAX_BYTES:,} bytes.\n"
                    f"A text file of CUDA C++ is required there; see it with: unzip -l {quoted(archive)}"
                )
            return members.read(member)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise SourceNotFound(
            f"{path} cannot be read: the archive is damaged ({error}).\n"
            f"Make it again, and see what is wrong with it: unzip -t {quoted(archive)}"
        ) from error
    return None


def _require_text(text: str, name: str) -> None:
    if "\0" in text:
        raise SourceNotFound(
            f"{name} is not text: there is a NUL byte in it.\n"
            f"UTF-8 is required. If it is UTF-16: iconv -f UTF-16 -t UTF-8 {name}"
        )


def printable(text: str) -> str:
    """Return text to show: bytes that are not UTF-8 become what the compiler's log has for them."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _missing(path: Path) -> str:
    """Return the message for a file that is not there, with the nearest names where it should be."""
    if any(mark in str(path) for mark in ("__global__", "\n", "{")):
        return (
            f"There is no file {str(path)[:200]!r}, which looks like the text of a source.\n"
            "Type: dotcu.load_inline(source)"
        )
    folder = next(parent for parent in path.parents if is_folder(parent))
    by_name: dict[str, Path] = {}
    with suppress(OSError):
        for file in sorted(
            {*matching(folder, "*.cu"), *matching(folder, "*.cuh"), *matching(folder, "*/*.cu")}
        ):
            by_name.setdefault(file.name, file)
    near = difflib.get_close_matches(path.name, by_name, n=3, cutoff=0.4) or list(by_name)[:3]
    if near:
        listed = "\n".join(f"    {by_name[name]}" for name in near)
        return f"There is no file {path}.\nThe nearest names there are:\n{listed}"
    return (
        f"There is no file {path}, and no .cu file in {folder}.\n"
        "dotcu.load takes a path from the file that calls it on, a command from where you are.\n"
        f"See what is there: ls {quoted(folder)}"
    )
