"""Entries of the cache for other machines: in packs, and in a store that machines share.

A pack has entries in one tar archive, which has the same bytes wherever it is made:

    v1/entries/ab/ab12.../entry.json, kernel.ptx, ...     in this order: by key, by name

Unpacked or mounted, it is a layer as it lies. A store holds each entry as a pack of its own. Only what dotcu
writes is read: plain files under such names. Nothing is unpacked that was not checked.

A store, `DOTCU_CACHE_REMOTE`, is asked before a compile, under the lock of the entry:

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
import logging
import os
import queue
import re
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from dotcu import files as regular
from dotcu import settings
from dotcu.compile import cache
from dotcu.compile.cache import LAYOUT, CacheEntry, DamagedEntry, Store
from dotcu.errors import CacheError, UsageError, quoted
from dotcu.files import read_file
from dotcu.telemetry import count

_log = logging.getLogger("dotcu")

MAX_BYTES = regular.MAX_BYTES
"""The most that an entry, or what a store sends, may take."""

_BLOCK = 512
_NAME_IN_PACK = re.compile(
    rf"{LAYOUT}/entries/(?P<group>[0-9a-f]{{2}})/(?P<digest>(?P=group)[0-9a-f]{{62}})/([^/]+)"
)


def write_pack(out: BinaryIO, entries: Mapping[str, Mapping[str, bytes]]) -> None:
    """Write entries, their files by name, as a pack."""
    for digest, files in sorted(entries.items()):
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(f"{LAYOUT}/entries/{digest[:2]}/{digest}/{name}")
            info.size = len(data)
            out.write(info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict"))
            out.write(data + bytes(-len(data) % _BLOCK))
    out.write(bytes(2 * _BLOCK))


def read_pack(pack: BinaryIO) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield the entries of a pack: the key and the files, index included, none of them checked.

    Raises:
        DamagedEntry: It is not a pack, or is cut short.
    """
    for digest, members in groupby(_members(pack), key=lambda member: member[0]):
        files: dict[str, bytes] = {}
        left = MAX_BYTES
        for _, name, data in members:
            left -= len(data)
            if left < 0 or len(files) > cache.MAX_FILES:
                raise DamagedEntry(f"the entry {digest[:16]} is larger than any that dotcu writes")
            files[name] = data
        yield digest, files


def _members(pack: BinaryIO) -> Iterator[tuple[str, str, bytes]]:
    while True:
        head = pack.read(_BLOCK)
        if head == bytes(_BLOCK):
            return
        if len(head) != _BLOCK:
            raise DamagedEntry("it is cut short")
        try:
            info = tarfile.TarInfo.frombuf(head, "utf-8", "strict")
        except (tarfile.TarError, ValueError) as error:
            raise DamagedEntry("it is no archive of dotcu's") from error
        if info.isdir():  # of an archive that someone made of the unpacked one
            continue
        match = _NAME_IN_PACK.fullmatch(info.name.removeprefix("./"))
        if match is None or not info.isreg() or not 0 <= info.size <= MAX_BYTES:
            raise DamagedEntry(f"it has {info.name!r}, which is no file of an entry")
        data = pack.read(info.size + -info.size % _BLOCK)
        if len(data) < info.size:
            raise DamagedEntry("it is cut short")
        yield match["digest"], match[3], data[: info.size]


def checked(digest: str, files: Mapping[str, bytes]) -> Mapping[str, Any]:
    """Return the index of an entry of a pack.

    Raises:
        DamagedEntry: It is another one, or not whole, or has a file that its index does not name.
    """
    opened = cache.open_files(files.get)
    if opened is None:
        raise DamagedEntry("entry.json is missing")
    index, named = opened
    if index["about"].get("build_digest", digest) != digest:
        raise DamagedEntry("it is another entry")
    if len(files) > len(named) + 1:
        raise DamagedEntry("it has a file that its index does not name")
    return index


def damages(pack: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the content digest of each whole entry of a pack, and what is wrong with each other, by key.

    Raises:
        UsageError: It cannot be read.
    """
    whole: dict[str, str] = {}
    damaged: dict[str, str] = {}
    for digest, files in _entries(pack):
        try:
            whole[digest] = checked(digest, files)["itself"]
        except DamagedEntry as damage:
            damaged[digest] = str(damage)
            whole.pop(digest, None)
    return whole, damaged


def unpack(pack: Path, directory: Path, *, private: bool = True) -> tuple[int, int]:
    """Add the entries of a pack to a cache, or to a layer; those that are there, and whole, stay.

    Args:
        private: It is the user's cache, which nobody else may read, and which has a bound.

    Returns:
        How many were added, and how many were there.

    Raises:
        UsageError: The pack cannot be read, or an entry is damaged: then nothing is added.
        CacheError: There is no room for it, or it cannot be written: then nothing is added.
    """
    whole, damaged = damages(pack)
    if damaged:
        digest, why = next(iter(damaged.items()))
        raise UsageError(
            f"{pack} is damaged: in the entry {digest[:16]}, {why}. Nothing was unpacked.\n"
            f"Copy it again, or list what is wrong: dotcu cache verify {quoted(pack)}"
        )
    if private:
        _require_room(pack)
    store, kept = Store(directory, private=private), 0
    read = functools.partial(cache.open_entry, is_mine=private)
    added: list[Path] = []
    for digest, files in _entries(pack):
        with store.lock(digest) as locked:
            # what is whole stays: this machine may have compiled it, and whose the pack is nobody knows
            if store.get(digest, read, again=True) is not None:
                kept += 1
            elif not _is_still(whole, digest, files):
                _take_back(store, added)
                raise UsageError(
                    f"{pack} was changed while it was unpacked. Nothing was added.\n"
                    f"Once it is written, type: dotcu cache unpack {quoted(pack)}"
                )
            elif store.put(digest, files, locked=locked):
                added.append(store.path(digest))
            else:
                _take_back(store, added)
                raise CacheError(
                    f"The entry {digest[:16]} of {pack} cannot be written to {directory}: see the warning. "
                    "Nothing was added.\n"
                    f"Make room there, see it with: df -h {quoted(directory.parent)}\n"
                    f"Or choose another folder: dotcu cache unpack {quoted(pack)} --into FOLDER"
                )
    return len(added), kept


def _is_still(whole: Mapping[str, str], digest: str, files: Mapping[str, bytes]) -> bool:
    """Return whether an entry is the one that was checked: the pack is read twice."""
    with contextlib.suppress(DamagedEntry):
        return bool(whole.get(digest) == checked(digest, files)["itself"])
    return False


def _take_back(store: Store, added: Iterable[Path]) -> None:
    for folder in added:
        with contextlib.suppress(OSError):
            store.remove(folder)


def _require_room(pack: Path) -> None:
    """Refuse a pack that the cache would not keep whole."""
    limit, size = settings.current().cache_bytes, pack.stat().st_size
    if size > limit:
        raise CacheError(
            f"{pack} has {size} bytes, and the cache keeps {limit}: entries would be removed again.\n"
            f"Let it keep more: export DOTCU_CACHE_BYTES={2 * size}\n"
            f"Or make a layer of it, which has no bound: dotcu cache unpack {quoted(pack)} --into FOLDER"
        )


def _entries(pack: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    try:
        with os.fdopen(regular.open_regular(pack), "rb") as file:
            yield from read_pack(file)
    except (OSError, DamagedEntry) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"{pack} cannot be read as a pack: {reason.lower()}.\n"
            "Copy it again, or write one: dotcu cache pack TARGET --out FILE"
        ) from error


# The store that machines share.


REST_S = 60.0
"""The time for which a store that failed is left alone."""

ABSENT_S = 10.0
"""The time for which processes that compile believe another one that the store lacks an entry."""

_CHUNK = 1 << 20
_BUSY = {429, 500, 502, 503, 504}
"""Answers after which the same request may succeed (RFC 9110); fsspec's stores try again by themselves."""

_PAUSES_S = (0.1, 0.4)
_HTTP = ("http://", "https://")
_T = TypeVar("_T")

_said: dict[tuple[str, str], object] = {}
_left_alone: dict[str, float] = {}
"""By store, until when, by the clock of the machine."""


def fetch(
    store: Store, digest: str, expected: str | None, fits: Callable[[CacheEntry], bool]
) -> CacheEntry | None:
    """Return an entry of the store that machines share, put into the cache as well; None if it gives none.

    Args:
        store: The cache; its lock for the entry is held.
    """
    url = settings.current().cache_remote
    if not url or _rests(store, url):
        return None
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
    """Put an entry into the store that machines share, if `DOTCU_CACHE_REMOTE_WRITE` asks for that."""
    now = settings.current()
    url = now.cache_remote
    if not url or not now.cache_remote_write or _rests(store, url):
        return
    pack = io.BytesIO()
    write_pack(pack, {digest: files})
    _ask(store, url, lambda: _write(url, _name(digest), pack.getvalue()))


def _opened(data: bytes, digest: str, expected: str | None) -> tuple[CacheEntry, dict[str, bytes]]:
    """Return the entry in what a store sent.

    Raises:
        DamagedEntry: It is not that entry, or not whole.
    """
    entries = list(read_pack(io.BytesIO(data)))
    if len(entries) != 1 or entries[0][0] != digest:
        raise DamagedEntry("it is another entry")
    files = entries[0][1]
    index = checked(digest, files)
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


# Asking, and leaving alone.


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


# Its files.


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
        if total > MAX_BYTES:
            raise ValueError(f"it sends more than {MAX_BYTES >> 20} MiB for an entry")
    return b"".join(parts)
