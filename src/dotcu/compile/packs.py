"""Packs: entries of a cache in one tar archive, which has the same bytes wherever it is made.

    v1/entries/ab/ab12.../entry.json, kernel.ptx, ...     in this order: by key, by name

Unpacked or mounted, it is a layer as it lies. A store holds each entry as a pack of its own.

Only what dotcu writes is read: plain files under such names. Nothing is unpacked that was not checked.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from dotcu import files as regular
from dotcu import settings
from dotcu.compile import cache
from dotcu.compile.cache import LAYOUT, DamagedEntry, Store
from dotcu.errors import CacheError, UsageError, quoted

MAX_BYTES = regular.MAX_BYTES
"""The most that an entry, or what a store sends, may take."""

_BLOCK = 512
_NAME = re.compile(rf"{LAYOUT}/entries/(?P<group>[0-9a-f]{{2}})/(?P<digest>(?P=group)[0-9a-f]{{62}})/([^/]+)")


def write(out: BinaryIO, entries: Mapping[str, Mapping[str, bytes]]) -> None:
    """Write entries, their files by name, as a pack.

    Args:
        out: The file to write to.
        entries: The entries' files, index included, by key.
    """
    for digest, files in sorted(entries.items()):
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(f"{LAYOUT}/entries/{digest[:2]}/{digest}/{name}")
            info.size = len(data)
            out.write(info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict"))
            out.write(data + bytes(-len(data) % _BLOCK))
    out.write(bytes(2 * _BLOCK))


def read(pack: BinaryIO) -> Iterator[tuple[str, dict[str, bytes]]]:
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
        match = _NAME.fullmatch(info.name.removeprefix("./"))
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
        pack: The file.
        directory: The cache's, or the layer's.
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
            yield from read(file)
    except (OSError, DamagedEntry) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"{pack} cannot be read as a pack: {reason.lower()}.\n"
            "Copy it again, or write one: dotcu cache pack TARGET --out FILE"
        ) from error
