"""What is said of a binary, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType

from dotcu import report_base
from dotcu.compile.target import Version
from dotcu.inspection.binaries import rendering, runs_on
from dotcu.inspection.binaries.elf import Binary
from dotcu.inspection.binaries.fatbin import Fatbin, FatbinEntry
from dotcu.inspection.binaries.image import Kind
from dotcu.inspection.binaries.kernel import Kernel
from dotcu.inspection.binaries.runs_on import Verdict
from dotcu.inspection.binaries.symbols import Symbol
from dotcu.inspection.binaries.wheel import Wheel


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What there is for one architecture.

    Attributes:
        arch: `sm_90a`.
        relocatable: It has to be linked before it can be loaded.
        sass, ptx: How many modules hold machine code for it, and PTX.
        others: How many entries of other kinds there are, by kind.
        ptx_version: The newest of the PTX, None where there is none.
        stored_bytes: What it takes in the file; unpacked_bytes: without compression.
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
    """What a binary holds.

    Attributes:
        path: The file; of a member of a wheel, its name in there.
        size: In bytes.
        modules: The device code; of a cubin or a PTX file, one module with one entry; of a wheel, none.
        kernels: By architecture, of those that were asked for; of a cubin or a PTX file always.
        host: The host's side, None where there is none or it could not be read.
        wheel: What a wheel says of itself.
        members: The binaries in a wheel.
        damaged: What is wrong with each member of a wheel that cannot be read.
        untold: What could not be read for want of a tool, and the line to type so that it can.
    """

    path: str
    kind: Kind
    size: int
    modules: tuple[Fatbin, ...] = ()
    kernels: Mapping[str, tuple[Kernel, ...]]
    host: Binary | None = None
    wheel: Wheel | None = None
    members: tuple[BinaryReport, ...] = ()
    damaged: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()

    @property
    def all_modules(self) -> tuple[Fatbin, ...]:
        """The modules, those of a wheel's members too."""
        return self.modules + tuple(module for member in self.members for module in member.all_modules)

    @property
    def architectures(self) -> tuple[Architecture, ...]:
        """The device code by architecture, oldest first, linked code before relocatable."""
        return by_architecture(self.all_modules)

    def runs_on(self, gpu: Version, driver: Version | None = None) -> Verdict:
        """How the device code runs on a GPU; see `runs_on.verdict`."""
        return runs_on.verdict(self.all_modules, gpu, driver)

    def __rich__(self) -> RenderableType:
        return rendering.table(self)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "path": self.path,
            "kind": self.kind,
            "size": self.size,
            "architectures": [asdict(architecture) for architecture in self.architectures],
            "runs_on": {_dotted(gpu): asdict(self.runs_on(gpu)) for gpu in runs_on.GPUS},
            "kernels": {arch: [_kernel(kernel) for kernel in found] for arch, found in self.kernels.items()},
            "host": _host(self.host) if self.host else None,
            "wheel": asdict(self.wheel) if self.wheel else None,
            "members": [member.to_json() for member in self.members],
            "damaged": list(self.damaged),
            "untold": list(self.untold),
        }


def by_architecture(modules: Iterable[Fatbin]) -> tuple[Architecture, ...]:
    """Group modules' entries by architecture."""
    groups: dict[tuple[bool, Version, str], list[FatbinEntry]] = {}
    for module in modules:
        for entry in module.entries:
            key = module.relocatable, runs_on.capability(entry.arch), entry.arch
            groups.setdefault(key, []).append(entry)
    return tuple(_architecture(key[2], key[0], groups[key]) for key in sorted(groups))


def _architecture(arch: str, relocatable: bool, entries: list[FatbinEntry]) -> Architecture:
    kinds = [entry.kind for entry in entries]
    return Architecture(
        arch=arch,
        relocatable=relocatable,
        sass=kinds.count("elf"),
        ptx=kinds.count("ptx"),
        others={kind: kinds.count(kind) for kind in dict.fromkeys(kinds) if kind not in ("elf", "ptx")},
        ptx_version=max((entry.version for entry in entries if entry.kind == "ptx"), default=None),
        stored_bytes=sum(entry.size for entry in entries),
        unpacked_bytes=sum(entry.uncompressed_size for entry in entries),
    )


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _kernel(kernel: Kernel) -> dict[str, Any]:
    return {"name": kernel.name, **asdict(kernel)}


def _host(host: Binary) -> dict[str, Any]:
    """The static symbols are left out: there may be half a million."""
    return {
        "kind": host.kind,
        "machine": host.machine,
        "soname": host.soname,
        "needed": list(host.needed),
        "search": list(host.search),
        "versions": {library: list(versions) for library, versions in host.versions.items()},
        "floor": asdict(host.floor) if host.floor else None,
        "symbols": [_symbol(symbol) for symbol in host.symbols],
    }


def _symbol(symbol: Symbol) -> dict[str, str]:
    return {"letter": symbol.letter, "symbol": symbol.symbol, "name": symbol.name, "version": symbol.version}
