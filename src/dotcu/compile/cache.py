"""The cache of compiled code: a content-addressed store on disk, and what this process holds in memory.

    <cache>/v1/entries/ab/ab12...    an entry: entry.json with kernel.ptx, kernel.cubin and log.txt
    <cache>/v1/locks/ab.lock         held while an entry whose key begins with ab is compiled
    <cache>/v1/locks/ab.holder       the process that took that lock last
    <cache>/v1/locks/tune-....lock   held by `dotcu tune`: for a GPU, or while it writes a file
    <cache>/v1/temporary/ab/...      entries being written; the holder of the lock removes leftovers
    <cache>/v1/recent/...            what each source was last built from, to say why it is built again

entry.json describes the build and has a sha256 of every other file and of itself. An entry of another
kind, such as an object file, has other files with the same index.

Below the directory lie layers: other such directories, `DOTCU_CACHE_DIRS`, which are read and never written.

An entry appears by one rename, whole or not at all. Two that want the same one wait for each
other and compile once. A directory that cannot be written, or is full, costs one warning and the
reuse, never the result.

Everything is checked when it is read, notes too: by its digest, as a regular file within a bound, and
as the user's own, since another user who may write here could have this one run any code. So `v1` is
made for its owner alone (0700), and one of another owner is not used.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import logging
import os
import re
import shutil
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dotcu import files as regular
from dotcu import settings
from dotcu.errors import CacheError, quoted
from dotcu.files import is_folder, read_file
from dotcu.locks import ForkSafeLock, holding

if TYPE_CHECKING:
    from dotcu.ptx.debug_info import TypeRow

_log = logging.getLogger("dotcu")

Entry = TypeVar("Entry")

FORMAT = 1
LAYOUT = "v1"
TRIM_TO = 0.8
"""A cache that is too large is trimmed to this part of its bound, so that not every build has to."""

STALE_S = 3600.0
MEMORY_BYTES = 64 << 20
"""The most that one process keeps in memory, without the code that its modules have loaded."""

MAX_FILES = 64
"""The most files that an entry has; the compiler's have six."""

_SKEW_S = 60.0
"""By how much clocks of machines that share a directory may differ."""

_INDEX = "entry.json"
_LAYOUTS = "layouts.json"
TILE_IR = "kernel.tileir"
_FILE_NAME = re.compile(r"(?!\.\.?$)[^/\0]+")
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)

NOTES_OF_A_SOURCE = 8
"""The latest notes about one source that are read."""

MAX_NOTE_BYTES = 2**16
"""The most bytes of the notes about one source, which each compile reads; of more, the latest notes stay."""

MAX_READ_OF_NOTES = 64 << 20
"""The most bytes of a file of notes that are read: a note may hold the device part of a long text."""

MAX_NOTES = 1000
"""The most notes about sources that are kept; of more, the newest three quarters stay."""


@dataclass(frozen=True, kw_only=True)
class CacheEntry:
    """The result of a compile.

    Attributes:
        about: A description for people: source, target, names, compiler; empty until it is kept.
        lowered: Symbol of each name expression, probes included.
        tile_ir: The bytecode of its tile kernels; empty if it has none.
        tile_cubin: Their machine code for this machine's processor; None where none was wanted.
        layouts: Instead of code, the types of the parameters of kernels, by name expression.
    """

    about: Mapping[str, str]
    lowered: Mapping[str, str]
    ptx: str
    cubin: bytes | None
    log: str
    tile_ir: bytes = b""
    tile_cubin: bytes | None = None
    layouts: Mapping[str, Sequence[TypeRow]] = field(default_factory=dict)

    def files(self) -> dict[str, bytes]:
        """Return the files of the entry's directory, by name."""
        files = {"kernel.ptx": self.ptx.encode("utf-8", "surrogateescape"), "log.txt": self.log.encode()}
        if self.cubin is not None:
            files["kernel.cubin"] = self.cubin
        if self.tile_ir:
            files[TILE_IR] = self.tile_ir
        if self.tile_cubin is not None:
            files["tile.cubin"] = self.tile_cubin
        if self.layouts:
            files[_LAYOUTS] = json.dumps(self.layouts, sort_keys=True).encode()
        return with_index(files, about=self.about, lowered=self.lowered)

    @property
    def digest(self) -> str:
        """The digest of its contents, as dotcu.lock has it: its index holds one of every file."""
        return str(json.loads(self.files()[_INDEX])["itself"])

    @property
    def size_bytes(self) -> int:
        """The memory that it takes."""
        code = len(self.cubin or b"") + len(self.tile_ir) + len(self.tile_cubin or b"")
        return len(self.ptx) + code + len(self.log)


class DamagedEntry(Exception):
    """A directory is not a whole entry."""


def location() -> Path:
    """Return the directory that the cache is in, which need not exist yet."""
    configured = settings.current().cache_dir
    return configured.absolute() if configured else _default_location()


@functools.cache
def _default_location() -> Path:
    """Return the user's folder; without a home, one of the temporary directory that is named by the user."""
    import platformdirs

    with contextlib.suppress(RuntimeError):  # neither HOME nor an entry in the system's list of users
        folder = Path(platformdirs.user_cache_dir("dotcu", appauthor=False))
        if folder.is_absolute():  # before platformdirs 4.12, it begins with a literal "~"
            return folder
    import tempfile

    place = "/tmp"
    with contextlib.suppress(FileNotFoundError):  # no folder for temporary files can be written
        place = tempfile.gettempdir()
    return Path(place) / f"dotcu-{os.geteuid()}"


def layers() -> tuple[Store, ...]:
    """Return the stores that are read after the one that is written, in order."""
    folders = settings.current().cache_dirs
    return _layers(folders) if folders else ()


@functools.lru_cache(maxsize=8)
def _layers(folders: tuple[Path, ...]) -> tuple[Store, ...]:
    found = tuple(Store(folder.absolute(), writable=False) for folder in folders)
    for store in found:
        if not os.access(store.root, os.R_OK | os.X_OK):
            _log.warning(
                "%s, of DOTCU_CACHE_DIRS, has no folder %s to read: it is no cache, or is not mounted. "
                "Its kernels are compiled here. See what it holds: ls -l %s",
                store.directory, LAYOUT, quoted(store.directory),
            )  # fmt: skip
    return found


def precompiled_location() -> Path:
    """Return the directory of precompiled headers, a separate cache: each is as large as all else."""
    return location() / "precompiled"


def entries() -> list[dict[str, Any]]:
    """Return every entry, last used first, as `dotcu cache --list --json` shows it.

    `used` is in seconds since the epoch; `about` has source, target, names and compiler, and is empty if the
    entry is damaged.
    """
    folders = [each for store in _stores() for each in store.folders()]
    return [
        {
            "digest": path.name, "path": str(path), "size_bytes": _size(path), "used": used,
            "about": read_about(path),
        }
        for path, used in sorted(folders, key=lambda each: -each[1])
    ]  # fmt: skip


def targets_of(source: str) -> list[str]:
    """Return the targets for which the cache and its layers hold code of a source; reads every index."""
    places = (Store(location()), *layers())
    found = [read_about(folder) for place in places for folder, _ in place.folders()]
    return sorted({about["target"] for about in found if about.get("source") == source})


def clear() -> int:
    """Remove every entry and return how many there were; builds that run meanwhile are not disturbed.

    Raises:
        CacheError: An entry cannot be removed.
    """
    removed = 0
    for store in _stores():
        for path, _ in store.folders():
            try:
                store.remove(path)
            except OSError as error:
                raise CacheError(
                    f"{path} cannot be removed: {error.strerror}.\nIts owner has to: ls -ld {quoted(path)}"
                ) from error
            removed += 1
        for notes in ("recent", "logs"):
            shutil.rmtree(store.root / notes, ignore_errors=True)
    forget()
    return removed


def _stores() -> tuple[Store, Store]:
    return Store(location()), Store(precompiled_location())


def _size(folder: Path) -> int:
    with contextlib.suppress(OSError):
        return sum(file.stat().st_size for file in folder.iterdir())
    return 0


_guard = ForkSafeLock()
_thread_locks: dict[Path, ForkSafeLock] = {}
_owners: set[tuple[int, int, Path]] = set()  # processes, threads, and the locks that they hold or wait for
# Under _guard, and by str: a Path is hashed in Python, so that other threads, or a fork, come in between.
_memory: OrderedDict[tuple[str, str], CacheEntry] = OrderedDict()


def get_from_memory(directory: Path, digest: str) -> CacheEntry | None:
    """Return the entry that this process has built or read before under a key."""
    key = (str(directory), digest)
    with _guard:
        entry = _memory.get(key)
        if entry is not None:
            _memory.move_to_end(key)  # the last one is the last used
        return entry


def keep_in_memory(directory: Path, digest: str, entry: CacheEntry) -> None:
    """Hold on to an entry until `MEMORY_BYTES` are needed for later ones."""
    key = (str(directory), digest)
    with _guard:
        _memory.pop(key, None)
        _memory[key] = entry
        total = sum(each.size_bytes for each in _memory.values())
        while total > MEMORY_BYTES and len(_memory) > 1:
            total -= _memory.popitem(last=False)[1].size_bytes


def forget() -> None:
    """Drop what this process holds in memory; entries on disk stay."""
    with _guard:
        _memory.clear()


def with_index(
    files: Mapping[str, bytes], *, about: Mapping[str, str], **more: Mapping[str, str]
) -> dict[str, bytes]:
    """Return an entry's files with the index, by which they prove themselves whole; `more` is in it, too."""
    index: dict[str, Any] = {
        "format": FORMAT,
        "about": dict(about),
        **{name: dict(value) for name, value in more.items()},
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
    }
    index["itself"] = _index_digest(index)
    return {**files, _INDEX: json.dumps(index, indent=1).encode()}


def _index_digest(index: Mapping[str, Any]) -> str:
    body = {key: value for key, value in index.items() if key != "itself"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def write_files(folder: Path, files: Mapping[str, bytes]) -> int:
    """Write files into an empty folder, down to the disk, and return their size in bytes."""
    for name, data in files.items():
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
    _sync_folder(folder)
    return sum(map(len, files.values()))


def _sync_folder(folder: Path) -> None:
    """Flush a folder's list of names to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_entry(folder: Path, *, is_mine: bool = False, expected: str | None = None) -> CacheEntry | None:
    """Read an entry of `build()` as `open_entry` does, None if there is none.

    Args:
        expected: The digest of its contents that dotcu.lock has, if any: no other entry is read.
    """
    opened = open_entry(folder, is_mine=is_mine)
    return None if opened is None else entry_of(*opened, digest=folder.name, expected=expected)


def entry_of(
    index: Mapping[str, Any], files: Mapping[str, bytes], *, digest: str, expected: str | None = None
) -> CacheEntry:
    """Return the entry of `build()` that some files are.

    Raises:
        DamagedEntry: They are another's, or of another kind.
    """
    if expected is not None and index["itself"] != expected:
        raise DamagedEntry("it is not the object that dotcu.lock has")
    try:
        about, lowered = index["about"], index["lowered"]
        is_its_own = about.get("build_digest", digest) == digest
        "".join([*lowered, *lowered.values()]).encode()
        layouts = json.loads(files.get(_LAYOUTS, b"{}"))
        entry = CacheEntry(
            about=about, lowered=lowered, ptx=files["kernel.ptx"].decode("utf-8", "surrogateescape"),
            cubin=files.get("kernel.cubin"), log=files["log.txt"].decode(),
            tile_ir=files.get(TILE_IR, b""), tile_cubin=files.get("tile.cubin"),
            layouts=_typed(layouts) if layouts else {},
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedEntry(f"{_INDEX} describes no compiled code") from error
    if not is_its_own:
        raise DamagedEntry(f"it is the entry {about['build_digest'][:16]}")
    return entry


_FIELDS = {"tag": str, "name": str, "size": int, "const": bool, "to": int, "length": int, "members": list}


def _typed(layouts: Any) -> Mapping[str, Sequence[TypeRow]]:
    """Return the layouts of an entry.

    Raises:
        ValueError: A row has a wrong type, leads out of the table, or contains itself.
    """
    from graphlib import TopologicalSorter  # few kernels take structs

    for rows in layouts.values():
        members = [[tuple(member) for member in row.get("members", ())] for row in rows]
        are_typed = all(isinstance(row[name], _FIELDS[name]) for row in rows for name in row)
        kinds = {tuple(map(type, member)) for each in members for member in each}
        leads = [[row["to"]] if "to" in row else [] for row in rows]
        inside = [
            [number for *_, number in each] + (to if row["tag"] == "array" else [])
            for row, each, to in zip(rows, members, leads, strict=True)
        ]
        known = {number for each in (*leads, *inside) for number in each} <= set(range(len(rows)))
        if not (are_typed and known and kinds <= {(str, int, bool, int)}):
            raise ValueError("a row has a wrong type, or leads out of the table")
        for graph in (leads, inside):
            TopologicalSorter(dict(enumerate(graph))).prepare()  # raises where there is a circle
    typed: Mapping[str, Sequence[TypeRow]] = layouts
    return typed


def open_entry(
    folder: Path, *, is_mine: bool = False, most_bytes: int = regular.MAX_BYTES, unread: str = ""
) -> tuple[Mapping[str, Any], dict[str, bytes]] | None:
    """Return the index and the files of an entry of any kind, None if there is none.

    Args:
        unread: A file that is neither read nor checked.

    Raises:
        DamagedEntry: A file of it is missing, is not what was written, or is not a regular file in bounds.
        OSError: It cannot be read.
    """

    def read(name: str) -> bytes | None:
        return _read_file(folder / name, is_mine=is_mine, most_bytes=most_bytes)

    opened = open_files(read, unread=unread)
    # where there is a folder now, another process may just have put it there
    if opened is None and is_folder(folder) and (opened := open_files(read, unread=unread)) is None:
        raise DamagedEntry(f"{_INDEX} is missing")
    return opened


def _read_file(path: Path, *, is_mine: bool, most_bytes: int = regular.MAX_BYTES) -> bytes | None:
    """Return a file of an entry, None if there is none.

    Raises:
        DamagedEntry: It is no file that was written as one of an entry.
        OSError: It cannot be read.
    """
    try:
        return read_file(path, most_bytes, is_mine=is_mine)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in _IN_PLACE_OF_A_FILE:
            raise DamagedEntry(f"{path.name}: {(error.strerror or str(error)).lower()}") from error
        raise


_IN_PLACE_OF_A_FILE = {errno.EINVAL, errno.EFBIG, errno.EISDIR, errno.ENXIO, errno.ELOOP}
"""Why `read_file` reads none: a FIFO, a device, a socket, a folder, a circle of links, too large a file."""


def open_files(
    read: Callable[[str], bytes | None], *, unread: str = ""
) -> tuple[Mapping[str, Any], dict[str, bytes]] | None:
    """Return the index and the files of an entry, checked; None if there is no index.

    Args:
        unread: A file that is left out.

    Raises:
        DamagedEntry: A file of it is missing or is not what was written.
    """
    if (raw := read(_INDEX)) is None:
        return None
    index, files = _read_index(raw), {}
    for name, digest in index["sha256"].items():
        if name == unread:
            continue
        data = read(name) if _FILE_NAME.fullmatch(name) else None
        if data is None:
            raise DamagedEntry(f"{name} is missing")
        if hashlib.sha256(data).hexdigest() != digest:
            raise DamagedEntry(f"{name} is not what was written")
        files[name] = data
    return index, files


def read_about(folder: Path) -> Mapping[str, str]:
    """Return the description of an entry, without its files; empty if it is damaged."""
    try:
        about: Mapping[str, str] = _read_index(read_file(folder / _INDEX))["about"]
    except (OSError, DamagedEntry):
        return {}
    return about


def _read_index(raw: bytes) -> dict[str, Any]:
    try:
        index: dict[str, Any] = json.loads(raw)
        is_whole = index["itself"] == _index_digest(index) and index["format"] == FORMAT
        is_whole &= isinstance(index["sha256"], dict) and isinstance(index["about"], dict)
        is_whole &= len(index["sha256"]) <= MAX_FILES
        # TypeError: one is no text; ValueError: one has half of a surrogate pair
        "".join([*index["about"], *index["about"].values()]).encode("utf-8", "surrogateescape")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedEntry(f"{_INDEX} cannot be read") from error
    if not is_whole:
        raise DamagedEntry(f"{_INDEX} is not what was written")
    return index


_WRONG_CONTENTS = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What a reader raises for contents that nobody has written, though their digests are right."""

_warned: set[Path] = set()
_measured: dict[Path, int] = {}  # by root, the size when it was last looked at
_written: dict[Path, int] = {}  # by root, the bytes that this process has written since


def _note(source: str, record: Mapping[str, Any]) -> str:
    """Return the line of a note, which proves itself whole: a note may hold text that is compiled."""
    body = json.dumps(record)
    return f"{_note_digest(source, body)} {body}\n"


def _note_digest(source: str, body: str) -> str:
    return hashlib.sha256(f"{source} {body}".encode()).hexdigest()[:32]


def _remove(path: Path) -> None:
    """Remove a folder, or what lies in its place, as far as that is allowed."""
    with contextlib.suppress(OSError):
        if is_folder(path) and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


class Store:
    """The entries below one directory. Where the disk fails, its methods warn once and raise nothing.

    Args:
        writable: Else an entry's use leaves no mark, by which the oldest are found.
        private: Nobody but the user may write or read it, and its size is bounded; False for a layer.
    """

    def __init__(self, directory: Path, *, writable: bool = True, private: bool = True) -> None:
        self.directory = directory
        self.writable = writable
        self.private = private and writable
        self.root = directory / LAYOUT

    def _is_usable(self) -> bool:
        """Return whether nobody else can have put anything here; warn where someone can.

        Permissions of others to write, which earlier versions of dotcu gave by the umask, are taken away.
        """
        if not self.private:
            return True
        try:
            status = self.root.stat()
            if owner := regular.others(self.root):
                raise PermissionError(errno.EPERM, f"{LAYOUT} belongs to {owner}")
            if status.st_uid == os.geteuid() and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                self.root.chmod(stat.S_IMODE(status.st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError as error:
            self.warn("use", error)
            return False
        return True

    def make(self, folder: Path) -> None:
        """Make a folder, and what is missing above it: for the user alone, or for nobody else to write.

        Raises:
            OSError: It cannot be made, or is another user's.
        """
        if not self._is_usable():
            raise PermissionError(errno.EPERM, "It belongs to another user", str(self.root))
        for each in reversed((folder, *folder.parents)):
            if not is_folder(each):
                each.mkdir(mode=0o700 if self.private else 0o755, exist_ok=True)

    def path(self, digest: str) -> Path:
        return self.root / "entries" / digest[:2] / digest

    def lock_file(self, digest: str) -> Path:
        return self.root / "locks" / f"{digest[:2]}.lock"

    def folders(self) -> Iterator[tuple[Path, float]]:
        """Yield each entry's folder, and when it was last used."""
        with contextlib.suppress(OSError):
            for group in sorted((self.root / "entries").iterdir()):
                with contextlib.suppress(OSError):
                    for folder in sorted(group.iterdir()):
                        with contextlib.suppress(OSError):
                            yield folder, folder.stat().st_mtime

    def get(self, digest: str, read: Callable[[Path], Entry | None], *, again: bool = False) -> Entry | None:
        """Return the entry of a key, None if there is no whole one; counts as its use.

        Args:
            again: This is the second try: do not warn of damage again.
        """
        folder = self.path(digest)
        try:
            entry = read(folder) if self._is_usable() else None
        except (DamagedEntry, *_WRONG_CONTENTS) as damage:
            if not again:
                why = damage if isinstance(damage, DamagedEntry) else "it does not hold what it should"
                _log.warning("The cache entry %s is damaged (%s): it is compiled again.", folder, why)
            return None
        except OSError as error:
            self.warn("read", error)
            return None
        if entry is not None and self.writable:
            with contextlib.suppress(OSError):
                os.utime(folder)
        return entry

    def put(self, digest: str, files: Mapping[str, bytes], *, locked: bool) -> bool:
        """Publish an entry; False where it could not be written.

        Args:
            locked: The result of `lock()`: only under the lock are leftovers of its group certainly unused.
        """
        group, final = self.root / "temporary" / digest[:2], self.path(digest)
        temporary = group / f"{digest}.{os.urandom(4).hex()}"
        try:
            if locked:
                _remove(group)
            self.make(temporary)
            _written[self.root] = _written.get(self.root, 0) + write_files(temporary, files)
            self.make(final.parent)
            self.remove(final)  # a damaged one: a whole one would have been taken
            temporary.rename(final)
            _sync_folder(final.parent)
        except OSError as error:
            self.warn("write", error)
            return False
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        if not self.private:
            return True
        # the size is looked at only when this process may have passed the bound
        limit = settings.current().cache_bytes
        if self.root not in _measured or _measured[self.root] + _written[self.root] > limit:
            _measured[self.root], _written[self.root] = self.trim(limit, last=final), 0
        return True

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Make a folder for a compiler to write into; it is removed when the block ends.

        Raises:
            CacheError: The cache cannot be written.
        """
        folder = self.root / "temporary" / f"scratch.{os.urandom(8).hex()}"
        doing = "created"
        try:
            self.make(folder)
            doing = "written"
            yield folder
        except OSError as error:
            if doing == "written" and error.errno not in _OF_THE_DISK:
                raise
            raise CacheError(
                f"{folder} cannot be {doing}: {error.strerror}.\n"
                "Make room, or choose another directory: export DOTCU_CACHE_DIR=DIRECTORY"
            ) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def remove(self, folder: Path) -> None:
        """Take an entry away: by one rename first, so that no reader finds half of it."""
        trash = self.root / "temporary" / f"trash.{os.urandom(8).hex()}"
        self.make(trash.parent)
        with contextlib.suppress(FileNotFoundError):
            folder.rename(trash)
            shutil.rmtree(trash) if is_folder(trash) and not trash.is_symlink() else trash.unlink()

    @contextlib.contextmanager
    def lock(self, digest: str, until: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Hold the right to make entries of this key's group, against threads and processes.

        The operating system releases it when a holder dies. Where the directory takes no lock, or a holder
        keeps it too long, as one that was stopped does, this gives False: a compile may then be done twice.

        Args:
            until: Ends the wait for another process when it returns True, such as when the entry is there.
        """
        locked, path = False, self.lock_file(digest)
        own = (os.getpid(), threading.get_ident(), path)
        with contextlib.ExitStack() as stack:
            with _guard:
                thread_lock = _thread_locks.setdefault(self.path(digest), ForkSafeLock())
            if own in _owners:  # a signal's handler, in the thread that it has interrupted
                yield False
                return
            stack.enter_context(thread_lock)
            _owners.add(own)
            stack.callback(_owners.discard, own)
            try:
                self.make(path.parent)
                locked = stack.enter_context(holding(path, until))
            except OSError as error:
                self.warn("lock", error)
            yield locked

    def trim(self, limit: int, *, last: Path | None = None) -> int:
        """Remove entries, least recently used first, until they fit; returns what is left in bytes.

        Args:
            last: The entry that was just put, which stays even where it alone is too large. Its date tells
                the time by the clock of the disk: entries of a later date, of a clock that was wrong, are the
                first to go.
        """
        with contextlib.suppress(OSError):  # what writers that died long ago left behind
            for group in (self.root / "temporary").iterdir():
                if abs(time.time() - group.lstat().st_mtime) > STALE_S:
                    _remove(group)
        dates = dict(self.folders())
        now = max(time.time(), dates.get(last, 0.0) if last is not None else 0.0) + _SKEW_S
        order = {path: (path == last, date if date <= now else 0.0) for path, date in dates.items()}
        folders = sorted(order, key=order.__getitem__)
        sizes = {path: _size(path) for path in folders}
        total = sum(sizes.values())
        goal = total if total <= limit else int(limit * TRIM_TO)
        for path in folders[:-1]:  # the newest stays, even where it alone is too large
            if total <= goal:
                break
            with contextlib.suppress(OSError):
                self.remove(path)
                total -= sizes[path]
        return total

    def add_history(self, source: str, record: Mapping[str, Any]) -> None:
        """Note what a source was built from: a line at the end of a file, so that several processes may."""
        folder = self.root / "recent"
        with contextlib.suppress(OSError):
            self.make(folder)
            known = self.history(source)
            if record in known[:1]:
                return
            descriptor = regular.open_regular(folder / source, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            with os.fdopen(descriptor, "a", encoding="ascii") as file:
                file.write(_note(source, record))
                is_long = file.tell() > MAX_NOTE_BYTES
            if is_long:
                temporary = folder / f"{source}.{os.urandom(4).hex()}"
                temporary.write_text("".join(_note(source, each) for each in reversed([record, *known])))
                temporary.replace(folder / source)
            with os.scandir(folder) as found:
                notes = list(found)
            if len(notes) > MAX_NOTES:
                notes.sort(key=lambda note: note.stat().st_mtime)
                for old in notes[: -MAX_NOTES * 3 // 4]:
                    Path(old).unlink(missing_ok=True)

    def history(self, source: str) -> list[Mapping[str, Any]]:
        """Return the latest records of `add_history` for a source, each once, newest first."""
        records: list[Mapping[str, Any]] = []
        if not self._is_usable():
            return records
        with contextlib.suppress(OSError):
            text = read_file(self.root / "recent" / source, MAX_READ_OF_NOTES, is_mine=self.private)
            for line in reversed(text.decode("ascii", "replace").splitlines()):
                if len(records) == NOTES_OF_A_SOURCE:
                    break
                digest, _, body = line.partition(" ")
                if digest != _note_digest(source, body):
                    continue
                with contextlib.suppress(ValueError, RecursionError):
                    record = json.loads(body)
                    if isinstance(record, dict) and record not in records:
                        records.append(record)
        return records

    def warn(self, doing: str, error: BaseException) -> None:
        """Warn once for each directory that it cannot be used, and what to do."""
        reason = getattr(error, "strerror", None) or str(error)
        if self.directory not in _warned:
            _warned.add(self.directory)
            remedy = (
                "Choose another directory with: export DOTCU_CACHE_DIR=DIRECTORY" if self.writable
                else f"It is a layer, of DOTCU_CACHE_DIRS. See whose it is: ls -l {quoted(self.directory)}"
            )  # fmt: skip
            _log.warning(
                "The cache %s: cannot %s: %s. Kernels are compiled all the same, and again in the next "
                "process. %s", self.directory, doing, reason.lower(), remedy,
            )  # fmt: skip
