"""A wheel: its tags, the binaries and prebuilt kernels in it, and where the two disagree."""

from __future__ import annotations

import posixpath
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

from dotcu.compile import prebuilt
from dotcu.elf import HostBinary
from dotcu.errors import PrebuiltCodeError, UsageError
from dotcu.inspection.binaries.runs_on import floor_of, glibc_minor_of

_BINARY_HEADS = (b"\x7fELF", bytes.fromhex("50ed55ba"))
_PTX_SUFFIX = ".ptx"
_CHUNK_BYTES = 1 << 20
_LINUX_MACHINE = re.compile(r"(?:many|musl)?linux\w*?_(x86_64|aarch64|i686|armv7l|ppc64le|s390x|riscv64)")
_EXTENSION = re.compile(r"\.cpython-(\d+)-")


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """The name and the tags of a wheel.

    Attributes:
        tags: Each on its own: `py3-none-manylinux_2_28_x86_64`.
        lowest: The lowest manylinux tag that fits all of its binaries; "" if there are none, or one fits
            no such tag.
        problems: Where its contents contradict the tags, a sentence each.
    """

    name: str
    version: str
    tags: tuple[str, ...]
    lowest: str
    problems: tuple[str, ...]


@contextmanager
def archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a wheel's archive.

    Raises:
        UsageError: It is damaged or cut short.
    """
    with _reporting_damage(path):
        opened = zipfile.ZipFile(path)
    with opened:
        yield opened


def unpacked(wheel: zipfile.ZipFile) -> Iterator[tuple[str, Path | UsageError]]:
    """Yield the binaries in a wheel by name; each is on disk only until the next one is requested.

    A damaged member, which may be a binary, is its error.
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
    with tempfile.TemporaryDirectory(prefix="dotcu-") as folder:
        path = Path(folder) / "code"
        for name in wheel.namelist():
            parent, file = posixpath.split(name)
            if file == prebuilt.INDEX and posixpath.basename(parent) == prebuilt.FOLDER:
                try:
                    for member, code in _prebuilt(wheel, parent):
                        path.write_bytes(code)
                        yield member, path
                except (PrebuiltCodeError, KeyError) as error:
                    yield name, UsageError(f"{name} and the files next to it cannot be read: {error}")


def _unpack(wheel: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> bool:
    """Write a member to a file, unless it is not a binary."""
    with _reporting_damage(f"{info.filename} in {wheel.filename}"), wheel.open(info) as packed:
        head = packed.read(4)
        if head not in _BINARY_HEADS and not info.filename.endswith(_PTX_SUFFIX):
            return False
        with path.open("wb") as out:
            out.write(head)
            shutil.copyfileobj(packed, out, _CHUNK_BYTES)
        return True


@contextmanager
def _reporting_damage(path: object) -> Iterator[None]:
    """Turn the many errors that zipfile raises for a damaged file into one."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, IndexError, OSError) as error:
        raise UsageError(
            f"{path} cannot be unpacked: {error}.\n"
            "Required: a whole wheel, as it was built. Download or build it again."
        ) from error


def _prebuilt(wheel: zipfile.ZipFile, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield the code that `dotcu build` packed for drivers, named by kernels and target."""
    described = prebuilt.parse_manifest(
        wheel.read(f"{folder}/{prebuilt.INDEX}"), Path(folder) / prebuilt.INDEX
    )
    packs = {
        name: prebuilt.decompress_records(wheel.read(f"{folder}/{name}"), Path(folder) / name, described)
        for name in described.packs
    }
    kernels = [built for loads in described.sources.values() for load in loads for built in load.kernels]
    for built in kernels:
        for variant in (variant for variant in built.variants if not variant.simulated):
            pack, start, length = described.positions[variant.record]
            record = prebuilt.PrebuiltCode.from_bytes(packs[pack][start : start + length])
            name = f"{folder}/{', '.join(built.names)}.{variant.target}"
            if record.cubin is not None:
                yield f"{name}.cubin", record.cubin
            elif not record.tile_cubins:
                yield f"{name}.ptx", record.ptx.encode()
            for host, cubin in record.tile_cubins.items():
                yield f"{name}.{host}.cubin", cubin


def read_wheel(wheel: zipfile.ZipFile, path: Path, binaries: Mapping[str, HostBinary]) -> Wheel:
    """Read a wheel's tags, and compare its contents with them.

    Args:
        wheel: Its archive.
        path: The file, whose name has tags too.
        binaries: By name.
    """
    # Source: PyPA, "Binary distribution format".
    stem, named = path.name.removesuffix(".whl"), list[str]()
    name, version, *rest = stem.split("-") if stem.count("-") in (4, 5) else (stem, "")
    if rest:
        pythons, abis, platforms = (part.split(".") for part in rest[-3:])
        named = sorted(f"{p}-{a}-{where}" for p in pythons for a in abis for where in platforms)
    inside = _tags_inside(wheel)
    problems = []
    if not inside:
        problems.append("It has no .dist-info/WHEEL with tags: pip cannot install such an archive.")
    elif named and named != inside:
        problems.append(f"The name has the tags {', '.join(named)}, and its WHEEL file {', '.join(inside)}.")
    minors = {floor.tag: glibc_minor_of(floor.tag) for floor in map(floor_of, binaries.values()) if floor}
    known = {tag: minor for tag, minor in minors.items() if minor is not None}
    return Wheel(
        name=name,
        version=version,
        tags=tuple(inside or named),
        lowest=max(known, key=lambda tag: known[tag]) if known and len(known) == len(minors) else "",
        problems=(*problems, *_problems(inside or named, binaries)),
    )


def _tags_inside(wheel: zipfile.ZipFile) -> list[str]:
    for name in wheel.namelist():
        if re.fullmatch(r"[^/]+\.dist-info/WHEEL", name):
            with _reporting_damage(wheel.filename):
                text = wheel.read(name).decode("utf-8", "replace")
            return sorted(Parser().parsestr(text).get_all("Tag") or ())
    return []


def _problems(tags: Iterable[str], binaries: Mapping[str, HostBinary]) -> Iterator[str]:
    """Yield the problems of the binaries; those with the same one together."""
    platforms = {tag.rpartition("-")[2] for tag in tags}
    pythons = {tag.partition("-")[0] for tag in tags}
    names: dict[str, list[str]] = {}
    for name, binary in binaries.items():
        for problem in _of_platform(binary, platforms):
            names.setdefault(problem, []).append(name)
        extension = _EXTENSION.search(name)
        if extension and f"cp{extension[1]}" not in pythons:
            python, tagged = f"cp{extension[1]}", ", ".join(sorted(pythons))
            problem = f"an extension for {python} in a wheel whose tags are for {tagged}"
            names.setdefault(problem, []).append(name)
    for problem, (first, *others) in names.items():
        yield f"{first}{f' and {len(others)} more' if others else ''}: {problem}."


def _of_platform(binary: HostBinary, platforms: set[str]) -> Iterator[str]:
    if "any" in platforms:
        yield f"code for {binary.machine} in a wheel whose tag says that it is for any platform"
    machines = {match[1] for match in map(_LINUX_MACHINE.fullmatch, platforms) if match}
    if machines and binary.machine not in machines:
        yield f"code for {binary.machine} in a wheel whose tags are for {', '.join(sorted(machines))}"
    promised = [minor for minor in map(glibc_minor_of, platforms) if minor is not None]
    floor = floor_of(binary)
    needed = glibc_minor_of(floor.tag) if floor else None
    if floor and promised and needed is not None and needed > min(promised):
        families = (("GLIBC", floor.glibc), ("GLIBCXX", floor.libstdcxx))
        versions = " and ".join(f"{family}_{version}" for family, version in families if version)
        yield f"needs {versions}, so {floor.tag}, and a tag promises manylinux_2_{min(promised)}"
