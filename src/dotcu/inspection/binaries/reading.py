"""From a file to a report on it; what needs a tool that is missing is left out, and said so."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from dotcu.errors import EnvironmentFault, UsageError
from dotcu.inspection.binaries import fatbin
from dotcu.inspection.binaries import wheel as wheels
from dotcu.inspection.binaries.cubin import read_cubin
from dotcu.inspection.binaries.elf import Binary, read_binary
from dotcu.inspection.binaries.fatbin import Fatbin, FatbinEntry
from dotcu.inspection.binaries.image import Image, kind_of, opened
from dotcu.inspection.binaries.kernel import Kernel
from dotcu.inspection.binaries.kernels import list_kernels
from dotcu.inspection.binaries.ptx import read_ptx
from dotcu.inspection.binaries.report import BinaryReport


def read(path: Path, *, kernels: Collection[str] = ()) -> BinaryReport:
    """Read what a .so, .cubin, .ptx, .fatbin or .whl file holds; its kind is told by its bytes.

    Args:
        kernels: Architectures, such as `sm_90a`, whose kernels are to be listed: of compressed code that is
            work for cuobjdump. A cubin's and a PTX file's are listed without being asked for.

    Raises:
        UsageError: There is no such file, it is of no such kind, damaged or cut short, or it has no code for
            one of the architectures; those that it has are listed.
    """
    report = _report(path, str(path), frozenset(kernels))
    has = [architecture.arch for architecture in report.architectures]
    for arch in kernels:
        if arch not in has:
            told = ", ".join(dict.fromkeys(has)) or "no GPU"
            raise UsageError(f"{path} has no code for {arch}.\nIt has code for {told}.")
    return report


def _report(path: Path, name: str, kernels: frozenset[str]) -> BinaryReport:
    with opened(path, name) as image:
        kind = kind_of(image)
        if kind == "cubin":
            return _cubin(image)
        if kind == "ptx":
            return _ptx(image)
        if kind == "elf":
            return _elf(image, kernels)
        if kind == "fatbin":
            return _fatbin(image, kernels)
    return _wheel(path, kernels)


def _cubin(image: Image) -> BinaryReport:
    cubin, size = read_cubin(image), len(image.data)
    entry = _single("elf", cubin.arch, (1, 0), size)
    return BinaryReport(
        path=image.name, kind="cubin", size=size, kernels={cubin.arch: cubin.kernels},
        modules=(Fatbin(offset=0, relocatable=cubin.relocatable, entries=(entry,)),),
    )  # fmt: skip


def _ptx(image: Image) -> BinaryReport:
    ptx, size = read_ptx(image), len(image.data)
    entry = _single("ptx", ptx.arch, ptx.version, size)
    return BinaryReport(
        path=image.name, kind="ptx", size=size, kernels={ptx.arch: ptx.kernels},
        modules=(Fatbin(offset=0, relocatable=False, entries=(entry,)),),
    )  # fmt: skip


def _single(kind: str, arch: str, version: tuple[int, int], size: int) -> FatbinEntry:
    """The entry that a file of its own would have in a fatbin."""
    return FatbinEntry(
        kind=kind, arch=arch, version=version, header=0, offset=0, size=size, compressed=False,
        uncompressed_size=size, flags=0,
    )  # fmt: skip


def _fatbin(image: Image, kernels: frozenset[str]) -> BinaryReport:
    modules = fatbin.in_file(image)
    listed, untold = _listed(image, modules, kernels)
    return BinaryReport(
        path=image.name, kind="fatbin", size=len(image.data), modules=modules, kernels=listed, untold=untold
    )


def _elf(image: Image, kernels: frozenset[str]) -> BinaryReport:
    modules = fatbin.in_elf(image)
    listed, untold = _listed(image, modules, kernels)
    host: Binary | None = None
    try:
        host = read_binary(image)
    except EnvironmentFault as fault:
        untold = (*untold, str(fault))
    return BinaryReport(
        path=image.name, kind="elf", size=len(image.data), modules=modules, kernels=listed, host=host,
        untold=untold,
    )  # fmt: skip


def _listed(
    image: Image, modules: tuple[Fatbin, ...], kernels: frozenset[str]
) -> tuple[Mapping[str, tuple[Kernel, ...]], tuple[str, ...]]:
    """The kernels of each architecture, and why those of some cannot be listed."""
    listed: dict[str, tuple[Kernel, ...]] = {}
    untold: list[str] = []
    for arch in sorted(kernels):
        entries = [entry for module in modules for entry in module.entries if entry.arch == arch]
        try:
            if entries:
                listed[arch] = list_kernels(image, entries)
        except EnvironmentFault as fault:
            untold.append(str(fault))
    return listed, tuple(untold)


def _wheel(path: Path, kernels: frozenset[str]) -> BinaryReport:
    members, damaged = [], []
    with wheels.archive(path) as archive:
        for name, file in wheels.unpacked(archive):
            try:
                if isinstance(file, UsageError):
                    raise file
                members.append(_report(file, name, kernels))
            except UsageError as error:  # the others are still told
                damaged.append(str(error))
        hosts = {member.path: member.host for member in members if member.host}
        wheel = wheels.read_wheel(archive, path, hosts)
    return BinaryReport(
        path=str(path), kind="wheel", size=path.stat().st_size, kernels={}, wheel=wheel,
        members=tuple(members), damaged=tuple(damaged),
    )  # fmt: skip
