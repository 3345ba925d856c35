"""Packs: entries of a cache in one tar archive, which has the same bytes wherever it is made.

    v1/entries/ab/ab12.../entry.json, kernel.ptx, ...     in this order: by key, by name

Unpacked or mounted, it is a layer as it lies. A store holds each entry as a pack of its own.

Only what dotcu writes is read: plain files under such names. Nothing is unpacked that was not checked.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from dotcu.compile import cache
from dotcu.compile.cache import LAYOUT, DamagedEntry, Store
from dotcu.errors import UsageError, quoted

MOST_BYTES = 256 << 20
"""The most that a file of an entry, or what a store sends, may take."""

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
        yield digest, {name: data for _, name, data in members}


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
        if match is None or not info.isreg() or not 0 <= info.size <= MOST_BYTES:
            raise DamagedEntry(f"it has {info.name!r}, which is no file of an entry")
        data = pack.read(info.size + -info.size % _BLOCK)
        if len(data) < info.size:
            raise DamagedEntry("it is cut short")
        yield match["digest"], match[3], data[: info.size]


def damages(pack: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the content digest of each whole entry of a pack, and what is wrong with each other, by key.

    Raises:
        UsageError: It cannot be read.
    """
    whole: dict[str, str] = {}
    damaged: dict[str, str] = {}
    for digest, files in _entries(pack):
        try:
            opened = cache.open_files(files.get)
            if opened is None:
                raise DamagedEntry("entry.json is missing")
            whole[digest] = opened[0]["itself"]
            if opened[0]["about"].get("build_digest", digest) != digest:
                raise DamagedEntry("it is another entry")
        except DamagedEntry as damage:
            damaged[digest] = str(damage)
            whole.pop(digest, None)
    return whole, damaged


def unpack(pack: Path, directory: Path) -> int:
    """Add the entries of a pack to a cache, and return their number.

    Raises:
        UsageError: The pack cannot be read, or an entry is damaged: then nothing is added.
    """
    _, damaged = damages(pack)
    if damaged:
        digest, why = next(iter(damaged.items()))
        raise UsageError(
            f"{pack} is damaged: in the entry {digest[:16]}, {why}. Nothing was unpacked.\n"
            f"Copy it again, or list what is wrong: dotcu cache verify {quoted(pack)}"
        )
    store, count = Store(directory), 0
    for digest, files in _entries(pack):
        with store.lock(digest) as locked:
            count += store.put(digest, files, locked=locked)
    return count


def _entries(pack: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    try:
        with pack.open("rb") as file:
            yield from read(file)
    except (OSError, DamagedEntry) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"{pack} cannot be read as a pack: {reason.lower()}.\n"
            "Copy it again, or write one: dotcu cache pack TARGET --out FILE"
        ) from error
