"""The contents of a built wheel: bytes by architecture and by kernel, against what PyPI takes."""

from __future__ import annotations

import posixpath
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dotcu import report_base
from dotcu.compile import prebuilt
from dotcu.compile.prebuilt import FOLDER, INDEX, PrebuiltKernels, PrebuiltManifest

PYPI_BYTES = 100 * 2**20
"""The largest file that PyPI takes without asking. Source: docs.pypi.org, "Storage limits"."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """A wheel in bytes, compressed as they are in it.

    Attributes:
        by_architecture: Of device code; PTX for drivers and for the simulator is one.
        by_kernel: The same by what is before a template's arguments, largest first.
        instantiations: How many kernels there are; one for several targets counts once.
        compiler: The NVRTC's CUDA version; None if the wheel holds no code of dotcu's.
    """

    wheel: Path
    size_bytes: int
    by_architecture: Mapping[str, int]
    by_kernel: Mapping[str, int]
    instantiations: int
    compiler: tuple[int, int] | None

    def __rich__(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("code for", "bytes", "kernel", "bytes"):
            table.add_column(name, justify="right" if name == "bytes" else "left")
        pairs = zip_longest(self.by_architecture.items(), self.by_kernel.items(), fillvalue=("", None))
        for (arch, of_arch), (kernel, of_kernel) in pairs:
            table.add_row(arch, _grouped(of_arch), kernel, _grouped(of_kernel))
        share = self.size_bytes / PYPI_BYTES
        size = f"{self.wheel.name}: {self.size_bytes:,} bytes, {share:.2%} of the 100 MB that PyPI takes"
        return Group(table, Text(), Text(size), *self._needs())

    def _needs(self) -> list[Text]:
        if self.compiler is None:
            return []
        major, minor = self.compiler
        free = "No Python, torch or CPU is asked for." if self.wheel.name.endswith("-none-any.whl") else ""
        return [
            Text(f"{self.instantiations} instantiations; machine code needs a driver of CUDA {major}.0, "),
            Text(f"PTX one of CUDA {major}.{minor}. {free}".rstrip()),
        ]

    def __str__(self) -> str:
        return report_base.text(self)

    def to_json(self) -> dict[str, Any]:
        """The same as values."""
        return {
            "wheel": str(self.wheel),
            "size_bytes": self.size_bytes,
            "by_architecture": dict(self.by_architecture),
            "by_kernel": dict(self.by_kernel),
            "instantiations": self.instantiations,
            "compiler": list(self.compiler) if self.compiler else None,
        }


def _grouped(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def contents(wheel: Path) -> Contents:
    """Read what a wheel holds.

    Raises:
        PrebuiltCodeError: A manifest in it is damaged.
    """
    by_architecture: Counter[str] = Counter()
    by_kernel: Counter[str] = Counter()
    instantiations, compiler = 0, None
    with zipfile.ZipFile(wheel) as opened:
        sizes = {info.filename: info.compress_size for info in opened.infolist()}
        for name in sizes:
            folder, file = posixpath.split(name)
            if file != INDEX or posixpath.basename(folder) != FOLDER:
                continue
            found = prebuilt.parse_manifest(opened.read(name), Path(name))
            compiler = found.compiler
            instantiations += sum(len(row.names) for row in _rows(found))
            packs = {pack: sizes[posixpath.join(folder, pack)] for pack in found.packs}
            for label, arch, share in _shares(found, packs):
                by_kernel[label] += share
                by_architecture[arch] += share
    return Contents(
        wheel=wheel, size_bytes=wheel.stat().st_size, by_architecture=dict(sorted(by_architecture.items())),
        by_kernel=dict(by_kernel.most_common()), instantiations=instantiations, compiler=compiler,
    )  # fmt: skip


def _rows(found: PrebuiltManifest) -> Iterator[PrebuiltKernels]:
    for loads in found.sources.values():
        for load in loads:
            yield from load.kernels


def _shares(found: PrebuiltManifest, packs: Mapping[str, int]) -> Iterator[tuple[str, str, int]]:
    """Kernel, architecture and bytes: each pack's are shared out by the length of the records in it."""
    whole: Counter[str] = Counter()
    for pack, _, length in found.positions:
        whole[pack] += length
    seen: set[int] = set()
    for row in _rows(found):
        label = ", ".join(dict.fromkeys(name.split("<")[0] for name in row.names))
        for variant in row.variants:
            if variant.record not in seen:
                seen.add(variant.record)
                pack, _, length = found.positions[variant.record]
                yield label, str(variant.target), round(packs[pack] * length / whole[pack])
