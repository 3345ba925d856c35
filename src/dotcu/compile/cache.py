"""The content-addressed store of compiled code.

    <cache>/v1/entries/ab/ab12...    an entry: see `entry.py`
    <cache>/v1/locks/ab.lock         held while an entry whose key begins with ab is made
    <cache>/v1/temporary/ab/...      entries being written; whoever holds the lock removes what lies there
    <cache>/v1/recent/...            what each source was last built from, to say why it is built again

An entry appears by one rename, whole or not at all. Two that want the same one wait for each
other and compile once. Everything is checked when it is read. A directory that cannot be
written, or is full, costs one warning and the reuse, never the result.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dotcu import settings
from dotcu.compile import entry as entries_on_disk
from dotcu.compile.entry import Damaged, Entry, Writable
from dotcu.errors import CacheError

_log = logging.getLogger("dotcu")

Found = TypeVar("Found")

LAYOUT = "v1"
TRIM_TO = 0.8
"""A cache that is too large is trimmed to this part of its bound, so that not every build has to."""

STALE_S = 3600.0
_WAIT_S = 0.01


def location() -> Path:
    """The directory that the cache is in, whether or not it is there yet."""
    configured = settings.current().cache_dir
    if configured:
        return configured.absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("dotcu", appauthor=False))


def precompiled_location() -> Path:
    """The directory of precompiled headers, a cache of its own: each is as large as all else together."""
    return location() / "precompiled"


def _roots() -> tuple[Path, ...]:
    return location() / LAYOUT, precompiled_location() / LAYOUT


@dataclass(frozen=True, kw_only=True)
class Listed:
    """An entry as `dotcu cache list` shows it.

    Attributes:
        about: Source, target, names and compiler; empty where the entry is damaged.
        used: When it was last used, in seconds since the epoch.
    """

    digest: str
    path: Path
    size_bytes: int
    used: float
    about: Mapping[str, str]


def entries() -> list[Listed]:
    """Every entry, last used first."""
    listed = [
        Listed(
            digest=path.name,
            path=path,
            size_bytes=_size(path),
            used=used,
            about=entries_on_disk.read_about(path),
        )
        for root in _roots()
        for path, used in _folders(root / "entries")
    ]
    return sorted(listed, key=lambda item: -item.used)


def size() -> int:
    """The bytes that all entries take."""
    return sum(_size(path) for root in _roots() for path, _ in _folders(root / "entries"))


def clear() -> int:
    """Remove every entry and return how many there were; builds that run meanwhile are not disturbed.

    Raises:
        CacheError: An entry cannot be removed.
    """
    removed = sum(_clear(Store(directory)) for directory in (location(), precompiled_location()))
    forget()
    return removed


def _clear(store: Store) -> int:
    removed = 0
    for path, _ in _folders(store.root / "entries"):
        try:
            store.remove(path)
        except OSError as error:
            raise CacheError(
                f"{path} cannot be removed: {error.strerror}.\nIts owner has to: ls -ld {path}"
            ) from error
        removed += 1
    for notes in ("recent", "logs"):
        shutil.rmtree(store.root / notes, ignore_errors=True)
    return removed


def _folders(root: Path) -> Iterator[tuple[Path, float]]:
    """Each entry's folder, and when it was last used."""
    with contextlib.suppress(OSError):
        for group in sorted(root.iterdir()):
            with contextlib.suppress(OSError):
                for folder in sorted(group.iterdir()):
                    with contextlib.suppress(OSError):
                        yield folder, folder.stat().st_mtime


def _size(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):
        total = sum(file.stat().st_size for file in folder.iterdir())
    return total


_warned: set[Path] = set()
_written: dict[Path, int] = {}


class Store:
    """The entries below one directory. Its methods lose nothing where the disk fails: they warn once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.root = directory / LAYOUT

    def path(self, digest: str) -> Path:
        return self.root / "entries" / digest[:2] / digest

    def get(self, digest: str, *, again: bool = False) -> Entry | None:
        """The entry of a key, None where there is no whole one; counts as its use.

        Args:
            again: It was asked for before: do not warn of damage a second time.
        """
        return self.find(digest, entries_on_disk.read, again=again)

    def find(self, digest: str, read: Callable[[Path], Found | None], *, again: bool = False) -> Found | None:
        """As `get`, of an entry of any kind, by what reads that kind."""
        folder = self.path(digest)
        try:
            found = read(folder)
        except Damaged as damage:
            if not again:
                _log.warning("The cache entry %s is damaged (%s): it is made again.", folder, damage)
            return None
        except OSError as error:
            self.warn("read", error)
            return None
        if found is not None:
            with contextlib.suppress(OSError):
                os.utime(folder)
        return found

    def put(self, digest: str, made: Writable, *, locked: bool) -> bool:
        """Publish an entry; False where it could not be written.

        Args:
            locked: What `lock()` gave: only under the lock are leftovers of its group certainly nobody's.
        """
        try:
            if locked:
                shutil.rmtree(self.root / "temporary" / digest[:2], ignore_errors=True)
            self._publish(digest, made)
        except OSError as error:
            self.warn("write", error)
            return False
        self._bound()
        return True

    def _publish(self, digest: str, made: Writable) -> None:
        group, final = self.root / "temporary" / digest[:2], self.path(digest)
        temporary = group / f"{digest}.{_unique(4)}"
        temporary.mkdir(parents=True)
        try:
            _written[self.root] = _written.get(self.root, 0) + entries_on_disk.write(temporary, made)
            final.parent.mkdir(parents=True, exist_ok=True)
            self.remove(final)  # a damaged one: a whole one would have been taken
            temporary.rename(final)
            entries_on_disk.sync(final.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for a compiler to write into; it is gone when the block ends.

        Raises:
            CacheError: The cache cannot be written.
        """
        folder = self.root / "temporary" / f"scratch.{_unique(8)}"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise CacheError(
                f"{folder} cannot be made: {error.strerror}.\n"
                "Choose another directory: export DOTCU_CACHE_DIR=DIRECTORY"
            ) from error
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def remove(self, folder: Path) -> None:
        """Take an entry away: by one rename first, so that no reader finds half of it."""
        trash = self.root / "temporary" / f"trash.{_unique(8)}"
        trash.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            folder.rename(trash)
            shutil.rmtree(trash) if trash.is_dir() else trash.unlink()

    @contextlib.contextmanager
    def lock(self, digest: str) -> Iterator[bool]:
        """Hold the right to make entries of this key's group, against threads and processes.

        The operating system lets go of it when a holder dies. Where the directory takes no lock
        this gives False and nobody waits: a compile may then be done twice.
        """
        import filelock  # twelve modules, which a launch from the cache needs none of

        locked = False
        with contextlib.ExitStack() as held:
            held.enter_context(_thread_lock(self.path(digest)))
            path = self.root / "locks" / f"{digest[:2]}.lock"
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                held.enter_context(filelock.FileLock(path, thread_local=False).acquire(poll_interval=_WAIT_S))
                locked = True
            except (OSError, NotImplementedError) as error:
                self.warn("lock", error)
            yield locked

    def _bound(self) -> None:
        """Keep the size within its bound; looks only when this process may have passed it."""
        limit = settings.current().cache_bytes
        known = _written.get(self.root, 0)
        if self.root in _measured and _measured[self.root] + known <= limit:
            return
        _measured[self.root], _written[self.root] = self.trim(limit), 0

    def trim(self, limit: int) -> int:
        """Remove entries, least recently used first, until they fit; returns what is left in bytes."""
        self._sweep()
        folders = sorted(_folders(self.root / "entries"), key=lambda item: item[1])
        sizes = {path: _size(path) for path, _ in folders}
        total = sum(sizes.values())
        goal = total if total <= limit else int(limit * TRIM_TO)
        for path, _ in folders[:-1]:  # the newest stays, even where it alone is too large
            if total <= goal:
                break
            with contextlib.suppress(OSError):
                self.remove(path)
                total -= sizes[path]
        return total

    def _sweep(self) -> None:
        """Remove what writers that died long ago left behind."""
        with contextlib.suppress(OSError):
            for group in (self.root / "temporary").iterdir():
                if time.time() - group.stat().st_mtime > STALE_S:
                    shutil.rmtree(group, ignore_errors=True)

    def remember(self, source: str, record: Mapping[str, Any]) -> None:
        """Note what a source was built from; nothing depends on it but the reason in the log."""
        folder = self.root / "recent"
        temporary = folder / f"{source}.{_unique(4)}"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            records = [record, *(old for old in self.recall(source) if old != record)][:8]
            temporary.write_text(json.dumps(records))
            temporary.replace(folder / source)

    def recall(self, source: str) -> list[Mapping[str, Any]]:
        """What `remember` noted of a source, newest first."""
        try:
            records = json.loads((self.root / "recent" / source).read_text())
        except (OSError, ValueError):
            return []
        return [record for record in records if isinstance(record, dict)] if isinstance(records, list) else []

    def warn(self, doing: str, error: BaseException) -> None:
        """Say once for each directory that it cannot be used, and what to do."""
        reason = getattr(error, "strerror", None) or str(error)
        if self.directory not in _warned:
            _warned.add(self.directory)
            _log.warning(
                "The cache %s: cannot %s: %s. Kernels are compiled all the same, and again in the next "
                "process. Choose another directory with: export DOTCU_CACHE_DIR=DIRECTORY",
                self.directory, doing, reason.lower(),
            )  # fmt: skip


def _unique(size_bytes: int) -> str:
    """A part of a name that no other writer has."""
    return os.urandom(size_bytes).hex()


_measured: dict[Path, int] = {}
_guard = threading.Lock()
_thread_locks: dict[Path, threading.Lock] = {}


def _thread_lock(path: Path) -> threading.Lock:
    with _guard:
        return _thread_locks.setdefault(path, threading.Lock())


def _after_fork() -> None:
    """A lock that another thread held at the fork would never be let go in the child."""
    global _guard
    _guard = threading.Lock()
    _thread_locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_memory: dict[tuple[Path, str], object] = {}


def recollect(directory: Path, digest: str) -> object | None:
    """What this process has built or read before under a key."""
    return _memory.get((directory, digest))


def keep(directory: Path, digest: str, made: object) -> None:
    """Hold on to a build for the life of the process."""
    _memory[directory, digest] = made


def forget() -> None:
    """Drop what this process holds in memory; entries on disk stay."""
    _memory.clear()
