"""A store that machines share, `DOTCU_CACHE_REMOTE`: asked before a compile, under the lock of the entry.

    <store>/v1/ab/ab12....tar     an entry: a pack of one

It is given nothing but time: what it sends is checked by digests and never executed or unpickled. Where
dotcu.lock has the digest of an object, only that object is taken; elsewhere `DOTCU_CACHE_TRUST` has to name
the store. A store that fails, denies or does not answer is left alone, by every process of the machine for a
minute, after one warning. For a few seconds, it is asked once for an entry that it lacks: of the processes of
a machine that start at once, one asks.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from dotcu import files as regular
from dotcu import settings
from dotcu.compile import cache, packs
from dotcu.compile.cache import LAYOUT, CacheEntry, DamagedEntry, Store
from dotcu.errors import quoted
from dotcu.files import is_file, read_file
from dotcu.pyproject import FILE
from dotcu.telemetry import count

_log = logging.getLogger("dotcu")

LOCK = "dotcu.lock"
REST_S = 60.0
"""The time for which a store that failed is left alone."""

ABSENT_S = 10.0
"""The time for which processes that compile believe another one that the store lacks an entry."""

_CHUNK = 1 << 20
_MAX_OF_LOCK = 64 << 20
_BUSY = {429, 500, 502, 503, 504}
"""Answers after which the same request may succeed (RFC 9110); fsspec's stores try again by themselves."""

_PAUSES_S = (0.1, 0.4)
_HTTP = ("http://", "https://")
_T = TypeVar("_T")

_said: dict[tuple[str, str], object] = {}
_left_alone: dict[str, float] = {}
"""By store, until when, by the clock of the machine."""


def fetch(
    store: Store, digest: str, source: Path | None, fits: Callable[[CacheEntry], bool]
) -> CacheEntry | None:
    """Return an entry of the store that machines share, put into the cache as well; None if it gives none.

    Args:
        store: The cache; its lock for the entry is held.
        digest: The key.
        source: The file of the kernels, next to or above which dotcu.lock is looked for.
        fits: Returns whether an entry holds what is wanted.
    """
    url = settings.current().cache_remote
    if not url or _rests(store, url):
        return None
    expected = locked_digest(source, digest)
    if expected is None and not _is_trusted(url):
        _say(
            url, "trust", "The store %s is not asked for kernels whose digest is in no dotcu.lock. Lock "
            "them, dotcu cache pack; or run what it sends, whoever wrote it: export DOTCU_CACHE_TRUST=%s",
            shown(url), shown(url),
        )  # fmt: skip
        return None
    if settings.current().jit != "error" and _is_absent(store, url, digest):
        return None
    data = _ask(store, url, lambda: _read(url, _name(digest)))
    if data is None:
        _note_absent(store, url, digest)
        return None
    try:
        entry, files = _opened(data, digest, expected)
        if not fits(entry):
            raise DamagedEntry("it lacks a kernel, or is for another processor")
    except DamagedEntry as damage:
        count("store_refused")
        _say(
            url, digest, "The store %s has a wrong entry %s (%s): it is not used. Remove it there: %s",
            shown(url), digest[:16], damage, _name(digest),
        )  # fmt: skip
        return None
    count("cache_hits", place="store")
    store.put(digest, files, locked=True)
    return entry


def push(store: Store, digest: str, files: Mapping[str, bytes]) -> None:
    """Put an entry into the store that machines share, if `DOTCU_CACHE_REMOTE_WRITE` asks for that.

    Args:
        store: The cache.
        digest: The key.
        files: The entry's files, index included.
    """
    now = settings.current()
    url = now.cache_remote
    if not url or not now.cache_remote_write or _rests(store, url):
        return
    pack = io.BytesIO()
    packs.write(pack, {digest: files})
    _ask(store, url, lambda: _write(url, _name(digest), pack.getvalue()))


def _opened(data: bytes, digest: str, expected: str | None) -> tuple[CacheEntry, dict[str, bytes]]:
    """Return the entry in what a store sent.

    Raises:
        DamagedEntry: It is not that entry, or not whole.
    """
    entries = list(packs.read(io.BytesIO(data)))
    if len(entries) != 1 or entries[0][0] != digest:
        raise DamagedEntry("it is another entry")
    files = entries[0][1]
    index = packs.checked(digest, files)
    if "build_digest" not in index["about"]:
        raise DamagedEntry("it is another entry")
    return cache.entry_of(index, files, digest=digest, expected=expected), files


def _name(digest: str) -> str:
    return f"{LAYOUT}/{digest[:2]}/{digest}.tar"


def shown(url: str) -> str:
    """Return a store's address without a user and a password in it."""
    return re.sub(r"//[^/]*@", "//", url)


def _is_trusted(url: str) -> bool:
    """Return whether `DOTCU_CACHE_TRUST` names a store, by whichever user it is asked."""
    return shown(settings.current().cache_trust or "").rstrip("/") == shown(url).rstrip("/")


def locked_digest(source: Path | None, digest: str) -> str | None:
    """Return the content digest that the lock of a source's project has for a key, if any."""
    folder = lock_folder(source)
    with contextlib.suppress(OSError):
        return _objects(folder / LOCK, (folder / LOCK).stat().st_mtime_ns).get(digest) if folder else None
    return None


def lock_folder(source: Path | None) -> Path | None:
    """Return the nearest folder around a source that has a dotcu.lock, up to the project's root.

    That is the folder of a pyproject.toml or the root of a repository. A lock that another user may have put
    there gives no right to what a store sends: it is left out, with a warning.
    """
    if source is None or not any(is_file(folder / LOCK) for folder in source.parents):
        return None  # most sources have none, and pay for nothing else
    for folder in regular.upwards(source.parent):
        lock = folder / LOCK
        if is_file(lock):
            owner = regular.others(lock)
            if not owner:
                return folder
            _say(
                str(lock), "owner", "%s belongs to %s, so it is not used. If you trust it, make it yours: "
                "sudo chown $(id -un) %s", lock, owner, lock,
            )  # fmt: skip
            return None
        if is_file(folder / FILE):
            return None
    return None


@functools.lru_cache(maxsize=16)
def _objects(lock: Path, changed_ns: int) -> Mapping[str, str]:
    """Return the digests of objects in a lock, by key; none if it cannot be read."""
    try:
        sources = json.loads(read_file(lock, _MAX_OF_LOCK, is_mine=True))["sources"]
        return {key: str(value) for each in sources for key, value in each.get("objects", {}).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        _log.warning(
            "%s cannot be read (%s), so it covers no object. Write it again: dotcu build", lock, error
        )
        return {}


# ------------------------------------------------------------------ asking, and leaving alone


def _ask(store: Store, url: str, work: Callable[[], _T]) -> _T | None:
    """Do something with a store within the time-out; None where that fails."""
    limit_s = settings.current().cache_timeout_s
    outcome: queue.SimpleQueue[tuple[_T | None, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((work(), None))
        except Exception as error:
            outcome.put((None, error))

    threading.Thread(target=run, name="dotcu store", daemon=True).start()  # one that hangs keeps no process
    try:
        value, error = outcome.get(timeout=limit_s)
    except queue.Empty:
        value, error = None, TimeoutError()
    if error is None:
        return value
    count("store_failed")
    is_slow = isinstance(error, TimeoutError)
    _left_alone[url] = time.time() + REST_S
    with contextlib.suppress(OSError):
        mark = _mark(store, url)
        store.make(mark.parent)
        mark.touch()
    reason = f"it did not answer within {limit_s} s" if is_slow else str(error) or type(error).__name__
    _say(
        url, "failed", "The store %s is left alone: %s. Kernels that are missing are compiled. "
        "Do without it: unset DOTCU_CACHE_REMOTE",
        shown(url), reason,
    )  # fmt: skip
    return None


def _rests(store: Store, url: str) -> bool:
    """Return whether a store failed a short while ago, for this process or another one of the machine."""
    if url in _left_alone:
        return time.time() < _left_alone[url]
    with contextlib.suppress(OSError):
        return 0 <= time.time() - _mark(store, url).stat().st_mtime < REST_S
    return False


def _mark(store: Store, url: str) -> Path:
    return store.root / "locks" / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.failed"


def _absence(url: str, digest: str) -> bytes:
    return f"{digest} is not in {hashlib.sha256(url.encode()).hexdigest()[:16]}".encode()


def _note_absent(store: Store, url: str, digest: str) -> None:
    """Tell the next holder of an entry's lock, in the file that is locked, that the store lacks the entry."""
    with contextlib.suppress(OSError):
        descriptor = regular.open_regular(store.lock_file(digest), os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_absence(url, digest))


def _is_absent(store: Store, url: str, digest: str) -> bool:
    """Return whether another process has just asked: of those that start at once, one compiles at once."""
    file = store.lock_file(digest)
    with contextlib.suppress(OSError):
        is_new = 0 <= time.time() - file.stat().st_mtime < ABSENT_S
        return is_new and read_file(file) == _absence(url, digest)
    return False


def _say(url: str, what: str, message: str, *values: object) -> None:
    own = object()
    if _said.setdefault((url, what), own) is own:  # of threads that fail at once, one says it
        _log.warning(message, *values)


# ------------------------------------------------------------------ the store


def _read(url: str, name: str) -> bytes | None:
    """Return a file of a store; None if it has none.

    Raises:
        Exception: The store, or the library for it, failed in its own way.
    """
    with contextlib.suppress(FileNotFoundError):
        if _is_http(url):
            return _http(url, name)
        files, root = _file_system(url)
        with files.open(f"{root}/{name}", "rb") as file:
            return _bounded(file)
    return None


def _write(url: str, name: str, data: bytes) -> None:
    """Put a file into a store, whole or not at all; raises as `_read` does."""
    if _is_http(url):
        _http(url, name, data)
        return
    files, root = _file_system(url)
    path = f"{root}/{name}"
    if "file" not in (files.protocol if isinstance(files.protocol, tuple) else (files.protocol,)):
        files.pipe_file(path, data)
        return
    files.makedirs(path.rpartition("/")[0], exist_ok=True)
    new = f"{path}.{os.urandom(4).hex()}"
    files.pipe_file(new, data)
    files.mv(new, path)


def _is_http(url: str) -> bool:
    return url.lower().startswith(_HTTP)


def _file_system(url: str) -> tuple[Any, str]:
    """Return the file system of an address that is not HTTP's, and the path of the store in it.

    Raises:
        PermissionError: It reads by HTTP all the same, as `simplecache::https://...`: fsspec's client goes
            wherever a server sends it on to.
    """
    if through := [part for part in url.split("::") if _is_http(part)]:
        raise PermissionError(
            "fsspec reads a web server and follows it to other hosts, which the address does not name. Name "
            f"the server itself: export DOTCU_CACHE_REMOTE={quoted(shown(through[0]))}"
        )
    from fsspec.core import url_to_fs  # torch requires it; none is imported where no store is asked

    files, root = url_to_fs(url)
    return files, root.rstrip("/")


def _http(url: str, name: str, data: bytes | None = None) -> bytes:
    """Get a file by HTTP, or put one: fsspec's own client wants a package more, and reads without a bound.

    A user and a password in the address are sent as basic authentication (RFC 7617).
    """
    import urllib.error  # forty modules, which no process without such a store needs
    import urllib.request

    class SamePlace(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, request: Any, *given: Any) -> Any:
            _require_same_place(request.full_url, given[-1])
            return super().redirect_request(request, *given)

    request = urllib.request.Request(
        f"{shown(url).rstrip('/')}/{name}", data=data, method="PUT" if data else "GET", headers=_user(url)
    )
    opener = urllib.request.build_opener(SamePlace)
    for pause_s in (*_PAUSES_S, None):
        try:
            with opener.open(request, timeout=settings.current().cache_timeout_s + 1) as reply:
                return _bounded(reply)
        except urllib.error.HTTPError as error:
            error.close()  # it holds the reply
            if error.code in {404, 410} and data is None:
                raise FileNotFoundError(name) from error
            if pause_s is None or error.code not in _BUSY:
                raise
            time.sleep(pause_s)
    raise AssertionError


def _user(url: str) -> dict[str, str]:
    """Return the header that names the user of an address, if it has one."""
    import base64
    from urllib.parse import unquote, urlsplit

    user, at, _ = urlsplit(url).netloc.rpartition("@")
    name, _, password = user.partition(":")
    pair = f"{unquote(name)}:{unquote(password)}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"} if at else {}


def _require_same_place(before: str, after: str) -> None:
    """Refuse to be sent on: trust is in one host, and in https where its address says so.

    Raises:
        PermissionError: The new address is on another host or port, or not as safe.
    """
    from urllib.parse import urlsplit

    old, new = urlsplit(before), urlsplit(after)
    is_safer = (old.scheme, new.scheme) == ("http", "https")
    is_same = (old.scheme, old.port) == (new.scheme, new.port)
    if old.hostname != new.hostname or not (is_safer or is_same):
        raise PermissionError(
            f"it leads to {new.scheme}://{new.hostname}, which is not the place that was named. If you know "
            "that place, name it itself: export DOTCU_CACHE_REMOTE=ADDRESS"
        )


def _bounded(file: Any) -> bytes:
    parts, total = [], 0
    until = time.monotonic() + settings.current().cache_timeout_s  # by then nobody waits for it
    while part := getattr(file, "read1", file.read)(_CHUNK):
        if time.monotonic() > until:
            raise TimeoutError
        parts.append(part)
        total += len(part)
        if total > packs.MAX_BYTES:
            raise ValueError(f"it sends more than {packs.MAX_BYTES >> 20} MiB for an entry")
    return b"".join(parts)
