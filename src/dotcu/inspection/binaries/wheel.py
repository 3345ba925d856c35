"""A wheel: its tags, the binaries in it, and whether the one keep what the other promise."""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

from dotcu.errors import UsageError
from dotcu.inspection.binaries.brought import brought
from dotcu.inspection.binaries.elf import Binary
from dotcu.inspection.binaries.manylinux import glibc_minor_of

_BINARY_HEADS = (b"\x7fELF", bytes.fromhex("50ed55ba"))
_PTX_SUFFIX = ".ptx"
_CHUNK_BYTES = 1 << 20
_LINUX_MACHINE = re.compile(r"(?:many|musl)?linux\w*?_(x86_64|aarch64|i686|armv7l|ppc64le|s390x|riscv64)")
_EXTENSION = re.compile(r"\.cpython-(\d+)-")


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """What a wheel says of itself.

    Attributes:
        tags: Each on its own: `py3-none-manylinux_2_28_x86_64`.
        lowest: The lowest manylinux tag that all of its binaries keep to; "" where there are none, or one
            keeps to no such tag.
        problems: Where what is in it does not keep to the tags, a sentence each.
    """

    name: str
    version: str
    tags: tuple[str, ...]
    lowest: str
    problems: tuple[str, ...]


@contextmanager
def archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """A wheel's archive, open.

    Raises:
        UsageError: It is damaged or cut short.
    """
    with _unharmed(path):
        opened = zipfile.ZipFile(path)
    with opened:
        yield opened


def unpacked(wheel: zipfile.ZipFile) -> Iterator[tuple[str, Path | UsageError]]:
    """The binaries in a wheel, by name: each is on disk until the next one is asked for, and no longer.

    Of a member that is damaged, and so may be one, the error that says how.
    """
    for info in wheel.infolist():
        with tempfile.TemporaryDirectory(prefix="dotcu-") as folder:
            path = Path(folder) / (Path(info.filename).name or "member")
            try:
                wanted = not info.is_dir() and _unpack(wheel, info, path)
            except UsageError as error:
                yield info.filename, error
                continue
            if wanted:
                yield info.filename, path
    for name, code in brought(wheel):
        with tempfile.TemporaryDirectory(prefix="dotcu-") as folder:
            path = Path(folder) / "code"
            if isinstance(code, bytes):
                path.write_bytes(code)
            yield name, path if isinstance(code, bytes) else code


def _unpack(wheel: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> bool:
    """Write a member to a file, unless it is no binary."""
    with _unharmed(f"{info.filename} in {wheel.filename}"):
        if not _is_binary(wheel, info):
            return False
        with wheel.open(info) as packed, path.open("wb") as out:
            shutil.copyfileobj(packed, out, _CHUNK_BYTES)
        return True


@contextmanager
def _unharmed(path: object) -> Iterator[None]:
    """Tell what zipfile cannot make sense of as damage; it fails in many ways."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, IndexError, OSError) as error:
        raise UsageError(
            f"{path} cannot be unpacked: {error}.\n"
            "Required: a whole wheel, as it was built. Download or build it again."
        ) from error


def _is_binary(wheel: zipfile.ZipFile, info: zipfile.ZipInfo) -> bool:
    if info.filename.endswith(_PTX_SUFFIX):
        return True
    with wheel.open(info) as packed:
        return packed.read(4) in _BINARY_HEADS


def read_wheel(wheel: zipfile.ZipFile, path: Path, binaries: Mapping[str, Binary]) -> Wheel:
    """Read a wheel's tags, and hold what is in it against them.

    Args:
        binaries: By name, the host's binaries in it.
    """
    name, version, named = _of_name(path)
    inside = _of_metadata(wheel)
    return Wheel(
        name=name,
        version=version,
        tags=inside or named,
        lowest=_lowest([binary.floor.tag for binary in binaries.values() if binary.floor]),
        problems=(*_between(named, inside), *_problems(inside or named, binaries)),
    )


def _of_name(path: Path) -> tuple[str, str, tuple[str, ...]]:
    """Name, version and tags by the file's name. Source: PyPA, "Binary distribution format"."""
    parts = path.name.removesuffix(".whl").split("-")
    if len(parts) not in (5, 6):
        return path.name.removesuffix(".whl"), "", ()
    pythons, abis, platforms = (part.split(".") for part in parts[-3:])
    tags = (f"{p}-{a}-{where}" for p in pythons for a in abis for where in platforms)
    return parts[0], parts[1], tuple(sorted(tags))


def _of_metadata(wheel: zipfile.ZipFile) -> tuple[str, ...]:
    for name in wheel.namelist():
        if re.fullmatch(r"[^/]+\.dist-info/WHEEL", name):
            with _unharmed(wheel.filename):
                text = wheel.read(name).decode("utf-8", "replace")
            message = Parser().parsestr(text)
            return tuple(sorted(message.get_all("Tag") or ()))
    return ()


def _lowest(tags: Sequence[str]) -> str:
    """The newest of the tags that binaries need."""
    minors = {tag: glibc_minor_of(tag) for tag in tags}
    known = {tag: minor for tag, minor in minors.items() if minor is not None}
    return max(known, key=lambda tag: known[tag]) if known and len(known) == len(minors) else ""


def _between(named: Iterable[str], inside: Iterable[str]) -> Iterator[str]:
    if not inside:
        yield "It has no .dist-info/WHEEL with tags: pip installs no such archive."
    elif named and tuple(named) != tuple(inside):
        yield f"The name has the tags {', '.join(named)}, and its WHEEL file {', '.join(inside)}."


def _problems(tags: Iterable[str], binaries: Mapping[str, Binary]) -> Iterator[str]:
    """The problems of the binaries; those with the same one together."""
    platforms = {tag.rpartition("-")[2] for tag in tags}
    pythons = {tag.partition("-")[0] for tag in tags}
    names: dict[str, list[str]] = {}
    for name, binary in binaries.items():
        for problem in (*_of_platform(binary, platforms), *_of_python(name, pythons)):
            names.setdefault(problem, []).append(name)
    for problem, (first, *others) in names.items():
        yield f"{first}{f' and {len(others)} more' if others else ''}: {problem}."


def _of_platform(binary: Binary, platforms: set[str]) -> Iterator[str]:
    if "any" in platforms:
        yield f"code for {binary.machine} in a wheel whose tag says that it is for any platform"
    machines = {match[1] for match in map(_LINUX_MACHINE.fullmatch, platforms) if match}
    if machines and binary.machine not in machines:
        yield f"code for {binary.machine} in a wheel whose tags are for {', '.join(sorted(machines))}"
    promised = [minor for minor in map(glibc_minor_of, platforms) if minor is not None]
    floor = binary.floor
    needed = glibc_minor_of(floor.tag) if floor else None
    if floor and promised and needed is not None and needed > min(promised):
        families = (("GLIBC", floor.glibc), ("GLIBCXX", floor.libstdcxx))
        versions = " and ".join(f"{family}_{version}" for family, version in families if version)
        yield f"needs {versions}, so {floor.tag}, and a tag promises manylinux_2_{min(promised)}"


def _of_python(name: str, pythons: set[str]) -> Iterator[str]:
    extension = _EXTENSION.search(name)
    if extension and f"cp{extension[1]}" not in pythons:
        yield f"an extension for cp{extension[1]} in a wheel whose tags are for {', '.join(sorted(pythons))}"
