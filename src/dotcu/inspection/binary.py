"""A report on a binary, as values and as text.

libscale.so: shared library for x86_64, 1.2 MB
  sm_80   SASS          2 modules  61 KB, 180 KB unpacked
  sm_90a  SASS and PTX  2 modules  90 KB, 301 KB unpacked  PTX 9.0: drivers since CUDA 13.0
  natively on    8.0 (A100), 8.6 (A10, RTX 30), 8.9 (L4, L40S, RTX 40), 9.0 (H100, H200)
  not on         7.5 (T4, RTX 20), ...
  libraries      libcudart.so.13, libc.so.6
  system         glibc 2.14, manylinux_2_17_x86_64
  symbols        3 defined, 21 needed
"""

from __future__ import annotations

import errno
import functools
import mmap
import os
import posixpath
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from email.parser import Parser
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu import elf, report_base, serialize
from dotcu.compile import prebuilt
from dotcu.compile.cubin import BinaryKernel, read_cubin
from dotcu.compile.target import Version, dotted
from dotcu.demangler import demangle_all
from dotcu.elf import HostBinary, Image, read_host_binary
from dotcu.errors import DotcuError, EnvironmentFault, PrebuiltCodeError, SimulationError, UsageError
from dotcu.files import open_regular
from dotcu.inspection import fatbin
from dotcu.inspection.fatbin import (
    GPUS,
    Fatbin,
    FatbinEntry,
    GpuSupport,
    capability,
    gpu_support,
    list_kernels,
    ptx_since,
)
from dotcu.inspection.manylinux import floor_of, glibc_minor_of
from dotcu.ptx.module import parse_module

VERSION = 2
"""The version of the JSON form."""

Kind: TypeAlias = Literal["cubin", "ptx", "fatbin", "elf", "wheel"]

_HOW = {"native": "natively on", "jit": "by JIT on", "no": "not on"}
HOST_CODE_RUNS = "it runs in the process that loads it, with that process's permissions"
_LABEL = 13  # characters of the first column of every table of words
_FILES = {"cubin": "cubin", "ptx": "PTX", "fatbin": "fatbin", "wheel": "wheel", "elf": "ELF file"}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The code for one architecture.

    Attributes:
        relocatable: It has to be linked before it can be loaded.
        sass, ptx: The numbers of modules with machine code for it, and with PTX.
        others: The numbers of entries of other kinds.
        ptx_version: The newest of the PTX, None if there is none.
        stored_bytes, unpacked_bytes: Its size in the file, and without compression.
    """

    arch: str
    relocatable: bool
    sass: int
    ptx: int
    others: Mapping[str, int]
    ptx_version: Version | None
    stored_bytes: int
    unpacked_bytes: int

    @property
    def holds(self) -> str:
        """`SASS`, `PTX`, `SASS and PTX`, or the names of the other kinds."""
        kinds = [name for name, count in (("SASS", self.sass), ("PTX", self.ptx)) if count]
        return " and ".join(kinds or self.others)


@dataclass(frozen=True, kw_only=True)
class BinaryReport(report_base.Report):
    """The contents of a binary.

    Attributes:
        path: The file; of a member of a wheel, its name in there.
        size: In bytes.
        modules: The device code; of a cubin or a PTX file, one module with one entry; of a wheel, none.
        kernels: By architecture, of those that were requested; of a cubin or a PTX file always.
        host: The host's side, None if there is none.
        host_code: Of a cubin of tile kernels, the processor that its host code is for, such as `x86_64`.
        members: The binaries in a wheel.
        damaged: What is wrong with each member of a wheel that cannot be read.
        notes: What could not be read without a tool, and the line to type for it.
    """

    path: str
    kind: Kind
    size: int
    modules: tuple[Fatbin, ...] = ()
    kernels: Mapping[str, tuple[BinaryKernel, ...]]
    host: HostBinary | None = None
    host_code: str = ""
    wheel: Wheel | None = None
    members: tuple[BinaryReport, ...] = ()
    damaged: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def all_modules(self) -> tuple[Fatbin, ...]:
        """The modules, those of a wheel's members too."""
        return self.modules + tuple(module for member in self.members for module in member.all_modules)

    @property
    def architectures(self) -> tuple[Architecture, ...]:
        """The device code by architecture, oldest first, linked code before relocatable."""
        groups: dict[tuple[bool, Version, str], list[FatbinEntry]] = {}
        for module in self.all_modules:
            for entry in module.entries:
                key = module.relocatable, capability(entry.arch), entry.arch
                groups.setdefault(key, []).append(entry)
        return tuple(
            Architecture(
                arch=arch,
                relocatable=relocatable,
                sass=sum(entry.kind == "elf" for entry in entries),
                ptx=sum(entry.kind == "ptx" for entry in entries),
                others=dict(Counter(entry.kind for entry in entries if entry.kind not in ("elf", "ptx"))),
                ptx_version=max((entry.version for entry in entries if entry.kind == "ptx"), default=None),
                stored_bytes=sum(entry.size for entry in entries),
                unpacked_bytes=sum(entry.uncompressed_size for entry in entries),
            )
            for (relocatable, _, arch), entries in sorted(groups.items(), key=lambda group: group[0])
        )

    def runs_on(self, gpu: Version) -> GpuSupport:
        """Return how the device code runs on a GPU of a compute capability."""
        return gpu_support(self.all_modules, gpu)

    def __rich__(self) -> RenderableType:
        kind = f"{self.host.kind} for {self.host.machine}" if self.host else _FILES[self.kind]
        code = "" if self.architectures else ", no device code"
        head = Text.assemble((self.path, "bold"), f": {kind}, {_bytes(self.size)}{code}")
        return Group(head, *(Padding(part, (0, 0, 0, 2)) for part in _parts(self)))

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values, with a `version` that changes when their meaning does."""
        return {
            "version": VERSION,
            "path": self.path,
            "kind": self.kind,
            "size": self.size,
            "architectures": [asdict(architecture) for architecture in self.architectures],
            "runs_on": {dotted(gpu): asdict(self.runs_on(gpu)) for gpu in GPUS},
            "kernels": {
                arch: [{"name": kernel.name, **asdict(kernel)} for kernel in found]
                for arch, found in self.kernels.items()
            },
            "host": _host_json(self.host) if self.host else None,
            "host_code": self.host_code,
            "wheel": asdict(self.wheel) if self.wheel else None,
            "members": [member.to_json() for member in self.members],
            "damaged": list(self.damaged),
            "notes": list(self.notes),
        }


def _host_json(host: HostBinary) -> dict[str, Any]:
    demangle_all(one.symbol for one in host.symbols)
    symbols = [
        {"letter": one.letter, "symbol": one.symbol, "name": one.name, "version": one.version}
        for one in host.symbols
    ]
    values: dict[str, Any] = serialize.plain(replace(host, symbols=()))
    del values["is_linked"], values["symbols"]
    return {**values, "floor": serialize.plain(floor_of(host)), "symbols": symbols}


def _parts(report: BinaryReport) -> Iterator[RenderableType]:
    if report.architectures and len(report.members) != 1:  # a lone member shows them itself
        code = _grid()
        for architecture in report.architectures:
            code.add_row(*_architecture_cells(architecture))
        yield code
        yield _gpus(report)
    wheel = report.wheel
    rows = [*_host_rows(report.host)] if report.host else []
    rows += [("host code", f"for {report.host_code}: {HOST_CODE_RUNS}")] if report.host_code else []
    rows += [("tags", ", ".join(wheel.tags) or "none")] if wheel else []
    rows += [("lowest tag", wheel.lowest)] if wheel and wheel.lowest else []
    if rows:
        yield _labelled(rows)
    yield from (Text(problem, style="red") for problem in (wheel.problems if wheel else ()))
    for arch, kernels in report.kernels.items():
        grid = _grid()
        grid.add_row(f"{len(kernels)} kernel{'' if len(kernels) == 1 else 's'} for {arch}")
        for kernel in kernels:
            grid.add_row(Text(f"  {kernel.name}", overflow="fold"), kernel.resources)
        yield grid
    yield from (Text(line, style="red") for line in report.damaged)
    yield from (Text(line, style="yellow") for line in report.notes)
    yield from (member.__rich__() for member in report.members)


def _grid() -> Table:
    return Table.grid(padding=(0, 2, 0, 0))


def _labelled(rows: Sequence[tuple[str, str]]) -> RenderableType:
    grid = _grid()
    grid.add_column(min_width=_LABEL)
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*map(Text, row))
    return grid


def _architecture_cells(one: Architecture) -> tuple[str, ...]:
    modules = max(one.sass, one.ptx, *one.others.values(), 0)
    unpacked = f", {_bytes(one.unpacked_bytes)} unpacked" if one.unpacked_bytes > one.stored_bytes else ""
    version = one.ptx_version
    return (
        one.arch,
        one.holds + (", to be linked" if one.relocatable else ""),
        f"{modules} module{'' if modules == 1 else 's'}",
        _bytes(one.stored_bytes) + unpacked,
        f"PTX {dotted(version)}: drivers since CUDA {dotted(ptx_since(version))}" if version else "",
    )


def _gpus(report: BinaryReport) -> RenderableType:
    named: dict[str, list[str]] = {how: [] for how in _HOW}
    for gpu, examples in GPUS.items():
        support = report.runs_on(gpu)
        run = support.native + support.jit
        share = f"; {run} of {run + support.none} modules" if support.none and run else ""
        named[support.how].append(f"{dotted(gpu)} ({examples}{share})")
    return _labelled([(_HOW[how], ", ".join(some)) for how, some in named.items() if some])


def _host_rows(host: HostBinary) -> Iterator[tuple[str, str]]:
    if host.needed:
        yield "libraries", ", ".join(host.needed)
    if host.search:
        yield "search path", ", ".join(host.search)
    floor = floor_of(host)
    if floor:
        named = (("glibc", floor.glibc), ("libstdc++ with GLIBCXX", floor.libstdcxx))
        versions = [f"{library} {version}" for library, version in named if version]
        yield "system", ", ".join([*versions, floor.tag or "no manylinux"])
    yield "symbols", f"{len(host.defined)} defined, {len(host.undefined)} needed"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


_ZIP = b"PK\x03\x04"
_PTX_VERSION = re.compile(rb"(?:\A|[;\n])\s*\.version\s+\d+\.\d+")
_PTX_HEAD_BYTES = 1 << 16
_EXPECTED = "Required: a .so, .cubin, .ptx, .fatbin or .whl file; or a .cu of kernels, or a .py of operators."


def read(path: Path, *, kernels: Collection[str] = ()) -> BinaryReport:
    """Read a .so, .cubin, .ptx, .fatbin or .whl file; its bytes decide which it is, not its name.

    The kernels of a cubin and a PTX file are listed, of another file those for the architectures `kernels`.

    Raises:
        UsageError: The file is missing, of another kind, damaged or cut short, or has no code for one of the
            architectures; those that it has are listed.
    """
    report = _report(path, str(path), frozenset(kernels))
    has = [architecture.arch for architecture in report.architectures]
    for arch in kernels:
        if arch not in has:
            others = ", ".join(dict.fromkeys(has)) or "no GPU"
            raise UsageError(f"{path} has no code for {arch}.\nIt has code for {others}.")
    return report


def _report(path: Path, name: str, archs: frozenset[str]) -> BinaryReport:
    with mapped(path, name) as image:
        kind = kind_of(image)
        if kind != "wheel":
            with _reporting_damage(name, "read"):
                return _image_report(image, kind, archs)
    if name != str(path):  # a binary in a wheel that has become one since
        raise UsageError(f"{name} is a wheel in a wheel.\n{_EXPECTED}")
    return _wheel_report(path, archs)


@contextmanager
def mapped(path: Path, name: str) -> Iterator[Image]:
    """Map a file, which errors call `name`, into memory until the block ends.

    Raises:
        UsageError: There is no such file, it cannot be read, or it is empty.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            if path.stat().st_size == 0:
                raise UsageError(f"{name} is empty.\n{_EXPECTED}")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.\n{_EXPECTED}") from error
    with data:
        yield Image(name=name, data=data)


def kind_of(image: Image) -> Kind:
    """Return a file's kind by its first bytes."""
    head = image.data[:4]
    if head == elf.MAGIC:
        (machine,) = image.unpack(struct.Struct("<H"), 18, "the ELF header")
        return "cubin" if machine == elf.CUDA_MACHINE else "elf"
    if head == fatbin.MAGIC.to_bytes(4, "little"):
        return "fatbin"
    if head == _ZIP:
        return "wheel"
    if _PTX_VERSION.search(image.data[:_PTX_HEAD_BYTES]):
        return "ptx"
    raise UsageError(
        f"{image.name} is not an ELF file, fatbin, wheel or PTX: it begins with the bytes {head.hex(' ')}.\n"
        f"{_EXPECTED}"
    )


def _image_report(image: Image, kind: Kind, archs: frozenset[str]) -> BinaryReport:
    modules: tuple[Fatbin, ...]
    kernels: dict[str, tuple[BinaryKernel, ...]] = {}
    notes = []
    if kind in ("elf", "fatbin"):
        modules = fatbin.in_elf(image) if kind == "elf" else fatbin.in_file(image)
        for arch in sorted(archs):
            entries = [entry for module in modules for entry in module.entries if entry.arch == arch]
            try:
                if entries:
                    kernels[arch] = list_kernels(image, entries)
            except EnvironmentFault as fault:
                notes.append(str(fault))
    else:  # one module with one entry
        if kind == "cubin":
            version = (1, 0)
            arch, relocatable, listed = read_cubin(image)
        else:
            relocatable = False
            version, arch, listed = read_ptx(image)
        kernels[arch] = listed
        size = len(image.data)
        entry = FatbinEntry(
            kind="ptx" if kind == "ptx" else "elf", arch=arch, version=version, header=0, offset=0, end=size,
            size=size, compressed=False, uncompressed_size=size,
        )  # fmt: skip
        modules = (Fatbin(relocatable=relocatable, entries=(entry,)),)
    return BinaryReport(
        path=image.name,
        kind=kind,
        size=len(image.data),
        modules=modules,
        kernels=kernels,
        host=read_host_binary(image) if kind == "elf" else None,
        host_code=elf.machine_within(image.data, elf.HOST_CODE) if kind == "cubin" else "",
        notes=tuple(notes),
    )


def read_ptx(image: Image) -> tuple[Version, str, tuple[BinaryKernel, ...]]:
    """Return the ISA version of a PTX file, its architecture and its kernels."""
    try:
        module = parse_module(bytes(image.data).decode("utf-8", "replace"))
    except SimulationError as error:
        raise _no_ptx(image, str(error).partition("\n")[0].rstrip(".")) from error
    version = re.fullmatch(r"(\d+)\.(\d+)", module.version)
    arch = re.fullmatch(r"sm_\d+[af]?", module.target)
    if version is None or arch is None:
        raise _no_ptx(image, f"it has no .{'target' if version else 'version'} directive")
    kernels = tuple(BinaryKernel(symbol=name) for name in module.entries)
    return (int(version[1]), int(version[2])), arch[0], kernels


def _no_ptx(image: Image, reason: str) -> UsageError:
    return UsageError(
        f"{image.name} is not a complete PTX file: {reason}.\n"
        "Required: the file as its compiler wrote it, which begins with .version, .target, .address_size."
    )


def _wheel_report(path: Path, archs: frozenset[str]) -> BinaryReport:
    members, damaged = [], []
    with opened_wheel(path) as archive:
        for name, file in unpacked(archive):
            try:
                if isinstance(file, UsageError):
                    raise file
                members.append(_report(file, name, archs))
            except UsageError as error:  # the others are still reported
                damaged.append(str(error))
        hosts = {member.path: member.host for member in members if member.host}
        wheel = read_wheel(archive, path, hosts)
    return BinaryReport(
        path=str(path), kind="wheel", size=path.stat().st_size, kernels={}, wheel=wheel,
        members=tuple(members), damaged=tuple(damaged),
    )  # fmt: skip


_BINARY_HEADS = (b"\x7fELF", bytes.fromhex("50ed55ba"))
_PTX_SUFFIX = ".ptx"
_CHUNK_BYTES = 1 << 20
_LINUX_MACHINE = re.compile(r"(?:many|musl)?linux\w*?_(x86_64|aarch64|i686|armv7l|ppc64le|s390x|riscv64)")
_EXTENSION = re.compile(r"\.cpython-(\d+)-")


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """The name and the tags of a wheel.

    Attributes:
        lowest: The lowest manylinux tag that fits all of its binaries; empty if there is none.
        problems: Where its contents contradict the tags, a sentence each.
    """

    name: str
    version: str
    tags: tuple[str, ...]
    lowest: str
    problems: tuple[str, ...]


MAX_UNPACKED_BYTES = 8 << 30
"""The most that a member of a wheel may have, unpacked."""

_MAX_TEXT_BYTES = 64 << 20
_MAX_GROWTH = 1100
"""How many times as long as what is packed a member may be: deflate gets to 1032."""


@contextmanager
def opened_wheel(path: Path) -> Iterator[zipfile.ZipFile]:
    with _reporting_damage(path):
        opened = zipfile.ZipFile(path)
    with opened:
        # a bomb has members share what is packed, so that they are longer together than the file
        if sum(info.compress_size for info in opened.infolist()) > path.stat().st_size:
            raise UsageError(f"{path} cannot be unpacked: its members overlap each other.\n{_WHOLE}")
        yield opened


def unpacked(wheel: zipfile.ZipFile) -> Iterator[tuple[str, Path | UsageError]]:
    """Yield the binaries in a wheel by name; each is on disk only until the next one is requested.

    A damaged member, which may be a binary, is its error.
    """
    with tempfile.TemporaryDirectory(prefix="dotcu-") as folder:
        for number, info in enumerate(wheel.infolist()):
            path = Path(folder) / f"member{number}"
            try:
                wanted = not info.is_dir() and _unpack(wheel, info, path)
            except UsageError as error:
                yield info.filename, error
                continue
            if wanted:
                yield info.filename, path
                path.unlink()
        path = Path(folder) / "code"
        for name in wheel.namelist():
            parent, file = posixpath.split(name)
            if file == prebuilt.INDEX and posixpath.basename(parent) == prebuilt.FOLDER:
                try:
                    for member, code in _prebuilt(wheel, parent):
                        path.write_bytes(code)
                        yield member, path
                except (PrebuiltCodeError, UsageError) as error:
                    yield name, UsageError(f"{name} and the files next to it cannot be read: {error}")


def _unpack(wheel: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> bool:
    """Write a member to a file if it is a binary; return whether it is."""
    with _opened(wheel, info) as packed:
        head = packed.read(4)
        if head not in _BINARY_HEADS and not info.filename.endswith(_PTX_SUFFIX):
            return False
        if info.file_size > min(MAX_UNPACKED_BYTES, _MAX_GROWTH * info.compress_size):
            raise ValueError(f"it has {info.file_size} bytes, packed into {info.compress_size}")
        with path.open("wb") as out:
            out.write(head)
            shutil.copyfileobj(packed, out, _CHUNK_BYTES)
        return True


_WHOLE = "Required: a whole wheel, as it was built. Download or build it again."


@contextmanager
def _reporting_damage(path: object, doing: str = "unpacked") -> Iterator[None]:
    """Turn the many errors that a damaged file leads to into one."""
    try:
        yield
    except DotcuError:
        raise
    except (*_OF_ARCHIVES, *_OF_VALUES) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # the folder of temporary files is full, and nothing is damaged
        said = str(error) or type(error).__name__
        raise UsageError(f"{path} cannot be {doing}: {said}.\n{_WHOLE}") from error


_OF_ARCHIVES = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError)
_OF_VALUES = (ValueError, LookupError, struct.error, TypeError, AttributeError, ArithmeticError)
"""What an archive, and values that no compiler writes, lead to; RecursionError is a RuntimeError."""


@contextmanager
def _opened(wheel: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    with _reporting_damage(f"{info.filename} in {wheel.filename}"):
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"it is packed by the method {info.compress_type}, and wheels are by deflate")
        with wheel.open(info) as packed:
            yield packed


def _text(wheel: zipfile.ZipFile, name: str) -> bytes:
    with _reporting_damage(f"{name} in {wheel.filename}"):
        info = wheel.getinfo(name)
    with _opened(wheel, info) as packed:
        data = packed.read(_MAX_TEXT_BYTES + 1)
        if len(data) > _MAX_TEXT_BYTES:
            raise ValueError(f"it has more than {_MAX_TEXT_BYTES} bytes")
        return data


def _prebuilt(wheel: zipfile.ZipFile, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield the code that `dotcu build` packed for drivers, named by kernels and target."""
    described = prebuilt.parse_manifest(
        _text(wheel, f"{folder}/{prebuilt.INDEX}"), Path(folder) / prebuilt.INDEX
    )

    @functools.lru_cache(maxsize=1)  # all of them together may be large
    def pack(name: str) -> bytes:
        return prebuilt.decompress_records(_text(wheel, f"{folder}/{name}"), Path(folder) / name, described)

    kernels = [built for loads in described.sources.values() for load in loads for built in load.kernels]
    for built in kernels:
        for variant in (variant for variant in built.variants if not variant.simulated):
            pack_name, data = described.record_in(pack, variant.record, Path(folder))
            record = prebuilt.read_record(data, variant.target, Path(folder), pack_name)
            name = f"{folder}/{', '.join(built.names)}.{variant.target}"
            if record.cubin is not None:
                yield f"{name}.cubin", record.cubin
            elif not record.tile_cubins:
                yield f"{name}.ptx", record.ptx.encode()
            for host, cubin in record.tile_cubins.items():
                yield f"{name}.{host}.cubin", cubin


def read_wheel(wheel: zipfile.ZipFile, path: Path, binaries: Mapping[str, HostBinary]) -> Wheel:
    """Read the tags in a wheel and its name, and compare its binaries with them."""
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
            text = _text(wheel, name).decode("utf-8", "replace")
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
