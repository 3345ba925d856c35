"""From a file to a report on it; what needs a tool that is missing is left out, with a note."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from dotcu import elf
from dotcu.compile.cubin import BinaryKernel, read_cubin
from dotcu.compile.target import Version
from dotcu.elf import Image, read_host_binary
from dotcu.errors import EnvironmentFault, SimulationError, UsageError
from dotcu.inspection.binaries import fatbin
from dotcu.inspection.binaries import wheel as wheels
from dotcu.inspection.binaries.fatbin import Fatbin, FatbinEntry, list_kernels
from dotcu.inspection.binaries.report import BinaryReport, Kind
from dotcu.ptx.module import parse_module

_ZIP = b"PK\x03\x04"
_PTX_VERSION = re.compile(rb"(?:\A|[;\n])\s*\.version\s+\d+\.\d+")
_PTX_HEAD_BYTES = 1 << 16
_EXPECTED = "Required: a .so, .cubin, .ptx, .fatbin or .whl file; or a .cu of kernels, or a .py of operators."


def read(path: Path, *, kernels: Collection[str] = ()) -> BinaryReport:
    """Read a .so, .cubin, .ptx, .fatbin or .whl file; its bytes decide which it is, not its name.

    The kernels of a cubin and a PTX file are listed, of another file those for the architectures `kernels`.

    Raises:
        UsageError: There is no such file, it is of no such kind, damaged or cut short, or it has no code for
            one of the architectures; those that it has are listed.
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
            return _image_report(image, kind, archs)
    return _wheel_report(path, archs)


@contextmanager
def mapped(path: Path, name: str) -> Iterator[Image]:
    """Map a file, which errors call `name`, into memory until the block ends.

    Raises:
        UsageError: There is no such file, it cannot be read, or it is empty.
    """
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise UsageError(f"{name} is empty.\n{_EXPECTED}")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.\n{_EXPECTED}") from error
    with data:
        yield Image(name=name, data=data)


def kind_of(image: Image) -> Kind:
    """Return a file's kind by its first bytes.

    Raises:
        UsageError: It is of no kind that holds device code.
    """
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
        notes=tuple(notes),
    )


def read_ptx(image: Image) -> tuple[Version, str, tuple[BinaryKernel, ...]]:
    """Return the ISA version of a PTX file, its architecture and its kernels.

    Raises:
        UsageError: It is damaged, or has no target.
    """
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
    with wheels.archive(path) as archive:
        for name, file in wheels.unpacked(archive):
            try:
                if isinstance(file, UsageError):
                    raise file
                members.append(_report(file, name, archs))
            except UsageError as error:  # the others are still reported
                damaged.append(str(error))
        hosts = {member.path: member.host for member in members if member.host}
        wheel = wheels.read_wheel(archive, path, hosts)
    return BinaryReport(
        path=str(path), kind="wheel", size=path.stat().st_size, kernels={}, wheel=wheel,
        members=tuple(members), damaged=tuple(damaged),
    )  # fmt: skip
