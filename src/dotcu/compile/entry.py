"""A cache entry: one directory that a person can open, and that proves itself whole.

entry.json    what was compiled, the symbols in it, a sha256 of every other file and of itself
kernel.ptx    kernel.cubin (of a `sm_` target)    log.txt

An entry of another kind, an object file say, has other files beside the same index.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

FORMAT = 1
_INDEX = "entry.json"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a compile left for later.

    Attributes:
        about: What a person wants to know of it: source, target, names, compiler.
        lowered: Symbol of each name expression, probes included.
    """

    about: Mapping[str, str]
    lowered: Mapping[str, str]
    ptx: str
    cubin: bytes | None
    log: str

    def files(self) -> dict[str, bytes]:
        """The files of the entry's directory, by name."""
        files = {"kernel.ptx": self.ptx.encode("utf-8", "surrogateescape"), "log.txt": self.log.encode()}
        if self.cubin is not None:
            files["kernel.cubin"] = self.cubin
        return sealed(files, about=self.about, lowered=self.lowered)


class Writable(Protocol):
    """What can be an entry: it gives all its files, the index among them."""

    def files(self) -> dict[str, bytes]: ...


class Damaged(Exception):
    """A directory is no whole entry."""


def sealed(
    files: Mapping[str, bytes], *, about: Mapping[str, str], **more: Mapping[str, str]
) -> dict[str, bytes]:
    """An entry's files with the index, by which they prove themselves whole."""
    index: dict[str, Any] = {
        "format": FORMAT,
        "about": dict(about),
        **{name: dict(value) for name, value in more.items()},
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
    }
    index["itself"] = _digest(index)
    return {**files, _INDEX: json.dumps(index, indent=1).encode()}


def _digest(index: Mapping[str, Any]) -> str:
    body = {key: value for key, value in index.items() if key != "itself"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def write(folder: Path, entry: Writable) -> int:
    """Write an entry's files into an empty folder, down to the disk, and return their size."""
    size = 0
    for name, data in entry.files().items():
        with (folder / name).open("wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        size += len(data)
    sync(folder)
    return size


def sync(folder: Path) -> None:
    """Bring a folder's list of names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(folder: Path) -> Entry | None:
    """Read an entry of `build()`, None where there is none.

    Raises:
        Damaged: A file of it is missing or is not what was written.
        OSError: It cannot be read.
    """
    found = opened(folder)
    if found is None:
        return None
    index, files = found
    return Entry(
        about=index["about"],
        lowered=index["lowered"],
        ptx=files["kernel.ptx"].decode("utf-8", "surrogateescape"),
        cubin=files.get("kernel.cubin"),
        log=files["log.txt"].decode(),
    )


def opened(folder: Path) -> tuple[Mapping[str, Any], dict[str, bytes]] | None:
    """The index and the files of an entry of any kind, None where there is none.

    Raises:
        Damaged: A file of it is missing or is not what was written.
        OSError: It cannot be read.
    """
    try:
        raw = (folder / _INDEX).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        if folder.is_dir():
            raise Damaged(f"{_INDEX} is missing") from error
        return None
    index = _index(raw)
    return index, {name: _file(folder, name, digest) for name, digest in index["sha256"].items()}


def read_about(folder: Path) -> Mapping[str, str]:
    """What an entry says of itself, without its files; empty where it is damaged."""
    try:
        about: Mapping[str, str] = _index((folder / _INDEX).read_bytes())["about"]
    except (OSError, Damaged):
        return {}
    return about


def _index(raw: bytes) -> dict[str, Any]:
    try:
        index = json.loads(raw)
        whole = index["itself"] == _digest(index) and index["format"] == FORMAT
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{_INDEX} cannot be read") from error
    if not whole:
        raise Damaged(f"{_INDEX} is not what was written")
    checked: dict[str, Any] = index
    return checked


def _file(folder: Path, name: str, digest: str) -> bytes:
    try:
        data = (folder / name).read_bytes()
    except FileNotFoundError as error:
        raise Damaged(f"{name} is missing") from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise Damaged(f"{name} is not what was written")
    return data
