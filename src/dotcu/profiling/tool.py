"""Where Nsight Compute is: the program, and its Python module that reads reports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dotcu import process
from dotcu.compile.toolchain import find_tool
from dotcu.errors import ToolchainError

INSTALLED = (Path("/opt/nvidia/nsight-compute"), Path("/usr/local/cuda/bin"))
"""Where installers put it: a folder for each version, or a link. Neither need be on PATH."""

MODULE = "ncu_report.py"
HOW_TO_GET = (
    "with the CUDA toolkit, or alone from its repository:\n    sudo apt install nsight-compute-2025.3.1",
    "with conda:\n    conda install -c nvidia nsight-compute",
    "for anything else: https://developer.nvidia.com/nsight-compute",
)  # fmt: skip

_VERSION = re.compile(r"Version (\d+(?:\.\d+)*)")


@dataclass(frozen=True, kw_only=True)
class Tool:
    """An installed Nsight Compute.

    Attributes:
        module: The folder of its Python module; None where it has none.
        version: Empty where it does not tell.
    """

    path: Path
    module: Path | None
    version: str


def find() -> Tool | None:
    """The one that is used: CUDA_HOME's or PATH's, else the newest that is installed."""
    path = find_tool("ncu") or process.find("ncu", _folders())
    if path is None:
        return None
    try:
        said = _VERSION.search(process.run([path, "--version"], timeout_s=60).stdout)
    except ToolchainError:
        said = None
    return Tool(path=path, module=module_of(path), version=said[1] if said else "")


def _folders() -> list[Path]:
    first, *others = INSTALLED
    return [*newest_first(first.glob("*")), *others]


def newest_first(folders: Iterator[Path]) -> list[Path]:
    """Folders with versions for names, the newest first."""

    def version(folder: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", folder.name)]

    return sorted(folders, key=version, reverse=True)


def module_of(path: Path) -> Path | None:
    """The folder of the Python module that belongs to a program; else that of the newest that is installed.

    The program may be a script beside `extras/`, one in the `bin` of a toolkit, whose root has a folder
    `nsight-compute-VERSION`, or deep in `target/`.
    """
    real = path.resolve()
    near = [real.parent, *real.parents[1:4]]
    beside = [
        folder for parent in real.parents[:2] for folder in newest_first(parent.glob("nsight-compute-*"))
    ]
    for folder in (*near, *beside, *_folders()):
        inside = folder / "extras" / "python"
        if (inside / MODULE).is_file():
            return inside
    return None
