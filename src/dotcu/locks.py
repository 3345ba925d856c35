"""Locks: of threads, which a fork does not leave locked, and of files, among processes."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from dotcu.files import open_regular, read_file

_log = logging.getLogger("dotcu")


class ForkSafeLock:
    """A reentrant lock; a forked child gets a new one, since the owner's thread is not in it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.RLock()
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


_PYTHON_S = 5.0
"""The longest wait of a fork for a lock of Python's: its holder may itself wait for the thread that forks."""


def _let_python_unlock() -> None:
    """Wait before a fork until no other thread of dotcu's has a lock of Python's own.

    Python has one for each module that is being imported, and before 3.12 one for each `cached_property`. In
    a forked child it stays locked: the child would wait for ever where it imports that module, or computes
    that property.
    """
    own, until = threading.get_ident(), time.monotonic() + _PYTHON_S
    while time.monotonic() < until:
        if not any(_is_within_a_lock(frame) for frame in _innermost_frames(own)):
            return
        time.sleep(0.001)


def _innermost_frames(own: int) -> list[FrameType]:
    return [frame for thread, frame in sys._current_frames().items() if thread != own]


def _is_within_a_lock(frame: FrameType | None) -> bool:
    """Return whether dotcu is imported, or has something imported or computed once, around a frame."""
    locks = False
    while frame is not None:
        code = frame.f_code
        if str(frame.f_globals.get("__name__")).partition(".")[0] == "dotcu":
            if locks or code.co_name == "<module>":
                return True
        elif code.co_filename.startswith("<frozen importlib"):
            locks = True
        elif sys.version_info < (3, 12) and code.co_name == "__get__":
            locks = locks or code.co_filename == functools.__file__
        frame = frame.f_back
    return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_let_python_unlock)


_WAIT_S, _LOOK_S, _LONGEST_WAIT_S = 0.01, 0.03, 0.32

_TELL_S = 1.0
"""The wait for a lock after which the log says who holds it."""

_LIMITS_S = {"stopped": 10.0, "elsewhere": 60.0, "running": 600.0}
"""The longest wait for a lock, by what its holder does: then the same is compiled twice."""

_NOTE_OF = ".holder"
_NOTE, _NOTE_BYTES = re.compile(rb"(\d{1,10}) ([\w.-]+)"), 300
"""The contents of the file beside a lock: the number of the process that took it last, and its machine."""

_locked: set[IO[bytes]] = set()


def _unlock(file: IO[bytes]) -> None:
    """Unlock, which closing alone would not do where a child that was just forked has the file open."""
    _locked.discard(file)
    if not file.closed:
        fcntl.flock(file, fcntl.LOCK_UN)


def _after_fork() -> None:
    for file in _locked:  # a file that stays open keeps the lock when the parent dies
        file.close()
    _locked.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def holding(path: Path, until: Callable[[], bool] = lambda: False) -> Iterator[bool]:
    """Hold the lock of a file, among processes, and give whether it is held: see `Store.lock` of the cache.

    Raises:
        OSError: The file cannot be opened, is not a regular one, or cannot be locked.
    """
    with open(path, "ab", opener=open_regular) as file:
        if not _take(file, path, until):
            yield False
            return
        _locked.add(file)
        try:
            yield True
        finally:
            _unlock(file)


def _take(file: IO[bytes], path: Path, until: Callable[[], bool]) -> bool:
    """Lock a file and note beside it who has; False once `until` holds, or the wait is too long."""
    began, wait_s, told = time.monotonic(), _WAIT_S, logging.NOTSET
    while not _try_to_take(file, path):
        tried = time.monotonic()  # a hundred may wait for one compile: a look costs less
        while not (done := until()) and time.monotonic() < tried + wait_s:
            time.sleep(min(wait_s, _LOOK_S))
        if done:
            return False
        wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
        if (waited := time.monotonic() - began) < _TELL_S:
            continue
        found = holder(path)
        if waited >= _LIMITS_S[found.state]:
            _log.warning("%s after %.0f s: this process goes on without it.", found, waited)
            return False
        level = logging.WARNING if found.state == "stopped" else logging.INFO
        if level > told:
            _log.log(level, "%s: this process waits for it, at most %g s.", found, _LIMITS_S[found.state])
            told = level
    return True


def _try_to_take(file: IO[bytes], path: Path) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    with contextlib.suppress(OSError):  # a full disk
        descriptor = open_regular(path.with_suffix(_NOTE_OF), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(descriptor, "wb") as note:
            note.write(f"{os.getpid()} {os.uname().nodename}".encode())
    return True


@dataclass(frozen=True, kw_only=True)
class LockHolder:
    """The process that holds a lock.

    Attributes:
        state: A key of `_LIMITS_S`.
    """

    lock: Path
    process: str
    state: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.process} holds the lock {self.lock}{self.remedy}"


def holder(path: Path) -> LockHolder:
    """Return who holds the lock of a file, by the note beside it, if anyone does."""
    note = b""
    with contextlib.suppress(OSError):
        note = read_file(path.with_suffix(_NOTE_OF), _NOTE_BYTES)
    match = _NOTE.fullmatch(note)
    if match is None:
        return LockHolder(lock=path, process="Another process", state="elsewhere")
    pid, host = match[1].decode(), match[2].decode()
    if host != os.uname().nodename:
        return LockHolder(lock=path, process=f"Process {pid} on {host}", state="elsewhere")
    with contextlib.suppress(OSError, IndexError):
        if read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] in (b"T", b"t"):
            remedy = f" and is stopped (to let it go on: kill -CONT {pid})"
            return LockHolder(lock=path, process=f"Process {pid}", state="stopped", remedy=remedy)
    return LockHolder(lock=path, process=f"Process {pid}", state="running")
