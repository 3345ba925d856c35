"""Files that others may have written: read within bounds, and looked for in the user's own project alone.

What is read may have been swapped for a FIFO, a device or ten gigabytes, and a folder above a project may
belong to someone else. So one function reads, and one goes up from a folder.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

MAX_BYTES = 256 << 20
"""The most bytes that are read of a file, unless its reader has a reason for more."""

_CHUNK = 1 << 20
_ROOTS = (".git", ".hg", ".svn")
"""What the root of a repository has. A project ends there."""


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Return the descriptor of a regular file, without waiting for one that is a FIFO or a device.

    Raises:
        OSError: It cannot be opened, or is not a regular file.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, 0o600)
    if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
        os.close(descriptor)
        reason = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(reason, os.strerror(reason) if stat.S_ISDIR(mode) else "Not a regular file", str(path))
    return descriptor


def read_file(path: str | os.PathLike[str], most_bytes: int = MAX_BYTES, *, is_mine: bool = False) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        OSError: It is missing, cannot be read, is not a regular file, or is too large.
    """
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if is_mine and not is_trusted(status):
            raise OSError(errno.EPERM, f"It belongs to {owner(status)}", str(path))
        parts, left = [], most_bytes + 1
        if status.st_size < left:
            while left and (part := file.read(min(_CHUNK, left))):
                parts.append(part)
                left -= len(part)
    if not left or status.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"It has more than {most_bytes:,} bytes", str(path))
    return b"".join(parts)


def read_ends(path: str | os.PathLike[str], count: int) -> bytes:
    """Return the first and the last `count` bytes of a regular file, which overlap in a short one.

    Raises:
        OSError: It is missing, cannot be read, or is not a regular file.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        head = file.read(count)
        file.seek(max(0, os.fstat(file.fileno()).st_size - count))
        return head + file.read(count)


def read_text(path: str | os.PathLike[str], errors: str = "strict") -> str:
    """Return the text of a regular file in UTF-8, its line ends as one character each.

    Raises:
        OSError: As `read_file`.
        UnicodeDecodeError: It is not UTF-8, and `errors` does not say what to do.
    """
    return read_file(path).decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")


def is_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is there, for this user: in a folder that may not be entered there is none."""
    return os.path.isfile(path)  # noqa: PTH113 - before Python 3.14, Path raises PermissionError


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder is there, for this user."""
    return os.path.isdir(path)  # noqa: PTH112 - as above


def matching(folder: Path, pattern: str) -> list[Path]:
    """Return what matches a pattern in a folder, sorted; of a folder that may not be read, nothing."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def is_trusted(status: os.stat_result) -> bool:
    """Return whether a file belongs to the user of this process, or to root, who can replace any file."""
    return status.st_uid in (os.geteuid(), 0)


def owner(status: os.stat_result) -> str:
    """Return the name of a file's owner, or the number of one without a name."""
    import pwd

    try:
        return pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        return f"user {status.st_uid}"


def others(path: Path) -> str:
    """Return the owner of a file, or of a link to it, if that is another user; else ""."""
    for status in (path.lstat(), path.stat()):
        if not is_trusted(status):
            return owner(status)
    return ""


def upwards(folder: Path) -> Iterator[Path]:
    """Yield a folder and those around it that may belong to the same project, the nearest first.

    The last one is the root of a repository. No folder of another user is among them, nor a shared one where
    any user may put files, such as /tmp.
    """
    for each in (folder, *folder.parents):
        try:
            status = each.stat()
        except OSError:
            continue
        if not is_trusted(status) or (status.st_mode & stat.S_IWOTH and status.st_mode & stat.S_ISVTX):
            return
        yield each
        if any((each / name).exists() for name in _ROOTS):
            return
