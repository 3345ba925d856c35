"""The contents of a built wheel: bytes by architecture and by kernel, against what PyPI takes."""

from __future__ import annotations

import posixpath
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dotcu import report_base, serialize
from dotcu.compile import prebuilt
from dotcu.compile.prebuilt import FOLDER, INDEX

PYPI_BYTES = 100 * 2**20
"""The largest file that PyPI takes without asking. Source: docs.pypi.org, "Storage limits"."""


def size_line(wheel: Path, size_bytes: int) -> str:
    share = size_bytes / PYPI_BYTES
    return f"{wheel.name}: {size_bytes:,} bytes, {share:.2%} of the 100 MB that PyPI takes"


@dataclass(frozen=True, kw_only=True)
class Contents(report_base.Report):
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
        pairs = zip_longest(self.by_architecture.items(), self.by_kernel.items(), fillvalue=("", ""))
        for row in pairs:
            table.add_row(*(f"{cell:,}" if isinstance(cell, int) else cell for pair in row for cell in pair))
        lines = [size_line(self.wheel, self.size_bytes)]
        if self.compiler is not None:
            major, minor = self.compiler
            free = (
                " No Python, torch or CPU is asked for." if self.wheel.name.endswith("-none-any.whl") else ""
            )
            lines += [
                f"{self.instantiations} instantiations; machine code needs a driver of CUDA {major}.0, ",
                f"PTX one of CUDA {major}.{minor}.{free}",
            ]
        return Group(table, Text(), *map(Text, lines))

    def to_json(self) -> dict[str, Any]:
        """Return the same as values."""
        values: dict[str, Any] = serialize.plain(self)
        return values


def contents(wheel: Path) -> Contents:
    """Read the contents of a wheel.

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
            manifest = prebuilt.parse_manifest(opened.read(name), Path(name))
            compiler = manifest.compiler
            kernels = [row for loads in manifest.sources.values() for load in loads for row in load.kernels]
            instantiations += sum(len(row.names) + len(row.late) for row in kernels)
            whole: Counter[str] = Counter()  # a pack's bytes are shared out by the length of its records
            for pack, _, length in manifest.positions:
                whole[pack] += length
            seen: set[int] = set()
            variants = [(row, variant) for row in kernels for variant in row.variants]
            for row, variant in variants:
                if variant.record in seen:
                    continue
                seen.add(variant.record)
                pack, _, length = manifest.positions[variant.record]
                share = round(sizes[posixpath.join(folder, pack)] * length / whole[pack])
                shown = dict.fromkeys(each.split("<")[0] for each in (*row.names, *row.late))
                by_kernel[", ".join(shown) or "variables"] += share
                by_architecture[str(variant.target)] += share
    return Contents(
        wheel=wheel, size_bytes=wheel.stat().st_size, by_architecture=dict(sorted(by_architecture.items())),
        by_kernel=dict(by_kernel.most_common()), instantiations=instantiations, compiler=compiler,
    )  # fmt: skip
