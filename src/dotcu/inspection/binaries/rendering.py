"""A report on a binary as people read it.

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

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu.inspection.binaries.runs_on import GPUS, ptx_since

if TYPE_CHECKING:
    from dotcu.inspection.binaries.elf import Binary
    from dotcu.inspection.binaries.report import Architecture, BinaryReport
    from dotcu.inspection.binaries.wheel import Wheel

_WORDS = {"native": "natively on", "jit": "by JIT on", "no": "not on"}
_LABEL = 13  # characters of the first column of every table of words
_FILES = {"cubin": "cubin", "ptx": "PTX", "fatbin": "fatbin", "wheel": "wheel", "elf": "ELF file"}


def table(report: BinaryReport) -> RenderableType:
    """The whole report, a wheel's members below it."""
    parts: list[RenderableType] = [Text.assemble((report.path, "bold"), f": {_what(report)}")]
    parts += [_indented(part) for part in _parts(report)]
    return Group(*parts)


def _parts(report: BinaryReport) -> Iterator[RenderableType]:
    if report.architectures and len(report.members) != 1:  # a lone member shows them itself
        yield _code(report)
        yield _gpus(report)
    rows = [*_host(report.host)] if report.host else []
    rows += [*_wheel(report.wheel)] if report.wheel else []
    if rows:
        yield _labelled(rows)
    for problem in report.wheel.problems if report.wheel else ():
        yield Text(problem, style="red")
    yield from _kernels(report)
    yield from (Text(line, style="red") for line in report.damaged)
    yield from (Text(line, style="yellow") for line in report.untold)
    yield from (table(member) for member in report.members)


def _what(report: BinaryReport) -> str:
    host = report.host
    kind = f"{host.kind} for {host.machine}" if host else _FILES[report.kind]
    return f"{kind}, {_bytes(report.size)}" + ("" if report.architectures else ", no device code")


def _indented(part: RenderableType) -> RenderableType:
    return Padding(part, (0, 0, 0, 2))


def _grid() -> Table:
    return Table.grid(padding=(0, 2, 0, 0))


def _labelled(rows: Iterable[tuple[str, str]]) -> RenderableType:
    grid = _grid()
    grid.add_column(min_width=_LABEL)
    grid.add_column(overflow="fold")
    for label, words in rows:
        grid.add_row(Text(label), Text(words))
    return grid


def _code(report: BinaryReport) -> RenderableType:
    grid = _grid()
    for architecture in report.architectures:
        grid.add_row(*_row(architecture))
    return grid


def _row(architecture: Architecture) -> Iterator[str]:
    yield architecture.arch
    yield architecture.holds + (", to be linked" if architecture.relocatable else "")
    modules = max(architecture.sass, architecture.ptx, *architecture.others.values(), 0)
    yield f"{modules} module{'' if modules == 1 else 's'}"
    unpacked = f", {_bytes(architecture.unpacked_bytes)} unpacked"
    stored = _bytes(architecture.stored_bytes)
    yield stored + (unpacked if architecture.unpacked_bytes > architecture.stored_bytes else "")
    version = architecture.ptx_version
    yield f"PTX {_dotted(version)}: drivers since CUDA {_dotted(ptx_since(version))}" if version else ""


def _gpus(report: BinaryReport) -> RenderableType:
    verdicts = {gpu: report.runs_on(gpu) for gpu in GPUS}
    rows = []
    for how, words in _WORDS.items():
        named = [
            f"{_dotted(gpu)} ({GPUS[gpu]}{_part(verdict.none, verdict.native + verdict.jit)})"
            for gpu, verdict in verdicts.items()
            if verdict.how == how
        ]
        rows += [(words, ", ".join(named))] if named else []
    return _labelled(rows)


def _part(none: int, run: int) -> str:
    return f"; {run} of {run + none} modules" if none and run else ""


def _host(host: Binary) -> Iterator[tuple[str, str]]:
    if host.needed:
        yield "libraries", ", ".join(host.needed)
    if host.search:
        yield "looked for in", ", ".join(host.search)
    if host.floor:
        named = (("glibc", host.floor.glibc), ("libstdc++ with GLIBCXX", host.floor.libstdcxx))
        versions = [f"{library} {version}" for library, version in named if version]
        yield "system", ", ".join([*versions, host.floor.tag or "no manylinux"])
    yield "symbols", f"{len(host.defined)} defined, {len(host.undefined)} needed"


def _wheel(wheel: Wheel) -> Iterator[tuple[str, str]]:
    yield "tags", ", ".join(wheel.tags) or "none"
    if wheel.lowest:
        yield "kept to", wheel.lowest


def _kernels(report: BinaryReport) -> Iterator[RenderableType]:
    for arch, kernels in report.kernels.items():
        grid = _grid()
        grid.add_row(f"{len(kernels)} kernel{'' if len(kernels) == 1 else 's'} for {arch}")
        for kernel in kernels:
            grid.add_row(Text(f"  {kernel.name}", overflow="fold"), kernel.told)
        yield grid


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
