"""Which files of some folders have other contents than before.

What a file system tells is only a reason to look: editors write in many ways, and some file systems tell
nothing, so there is a look every second in any case.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dotcu.errors import EnvironmentFault

SUFFIXES = {".py", ".cu", ".cuh", ".h", ".hpp", ".hh", ".inc", ".inl"}
"""Of the files that are looked at."""

STEP_MS = 10
"""Files that are saved within so long of each other are taken together."""

LOOK_MS = 1000
"""So often there is a look, whatever the file system tells."""

CLOCK_STEP_S = 0.05
"""More than the step of a file system's clock: two saves within one step have the same time."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A file as it was seen.

    Attributes:
        stamp: Its inode, time and size.
        is_settled: Whether another save would have given it another stamp: then the same stamp means the
            same contents. Clocks of file systems have steps.
    """

    stamp: tuple[int, int, int]
    digest: bytes
    is_settled: bool

    @property
    def saved_s(self) -> float:
        """When it was written, in seconds since the epoch."""
        return self.stamp[1] / 1e9


Snapshot = Mapping[Path, Seen]


def look(folders: Collection[Path], before: Snapshot) -> Snapshot:
    """The files of folders as they are now; those in the folders themselves alone."""
    files = (file for folder in folders for file in _files(folder))
    seen = ((file, _seen(file, before.get(file))) for file in files)
    return {file: each for file, each in seen if each is not None}


def changed(before: Snapshot, after: Snapshot) -> list[Path]:
    """Files that are new, gone, or have other contents."""
    unlike = [
        file for file, seen in after.items() if file not in before or before[file].digest != seen.digest
    ]
    return sorted([*unlike, *(before.keys() - after.keys())])


def _files(folder: Path) -> Iterator[Path]:
    try:
        yield from (file for file in folder.iterdir() if file.suffix in SUFFIXES)
    except OSError:  # the folder is gone
        return


def _seen(file: Path, before: Seen | None) -> Seen | None:
    try:
        status = file.stat()
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        if before is not None and before.stamp == stamp and before.is_settled:
            return before
        settled = time.time() - status.st_mtime > CLOCK_STEP_S
        return Seen(stamp=stamp, digest=hashlib.sha256(file.read_bytes()).digest(), is_settled=settled)
    except OSError:  # gone meanwhile, or a folder with such a name
        return None


class Notices:
    """Tells that something may have changed in some folders, from a thread of its own.

    Raises:
        EnvironmentFault: watchfiles is not installed.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        try:
            import watchfiles
        except ModuleNotFoundError as error:
            raise EnvironmentFault(
                "dotcu watch needs watchfiles, which is not installed.\nIt comes with the tools: "
                'pip install "dotcu[tools]"'
            ) from error
        self._watch = watchfiles.watch
        self._tell = tell
        self._stop = threading.Event()
        self._followed: set[Path] = set()

    def follow(self, folders: Collection[Path]) -> None:
        """Tell of these folders, as far as they exist, and of no others."""
        here = {folder for folder in folders if folder.is_dir()}
        if here == self._followed:
            return
        self.close()
        self._stop, self._followed = threading.Event(), here
        threading.Thread(target=self._follow, args=(here, self._stop), daemon=True).start()

    def close(self) -> None:
        """Tell no more."""
        self._stop.set()

    def _follow(self, folders: Collection[Path], stop: threading.Event) -> None:
        if not folders:
            return
        notices = self._watch(
            *folders, watch_filter=None, step=STEP_MS, debounce=10 * STEP_MS, stop_event=stop,
            rust_timeout=LOOK_MS, yield_on_timeout=True, recursive=False, raise_interrupt=False,
        )  # fmt: skip
        for _ in notices:
            if not stop.is_set():
                self._tell()
