"""What a project's pyproject.toml says of its native code: [tool.dotcu.native]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dotcu import pyproject
from dotcu.errors import UsageError
from dotcu.extension.torch_parts import TorchParts
from dotcu.extension.units import Request

NAME = "_native"
"""The library's, in the package: `_native.abi3.so`."""

_TABLE = """\
    [tool.dotcu.native]
    sources = ["src/mylib/csrc/*.cpp", "src/mylib/csrc/*.cu"]
    include = ["third_party/cutlass/include"]   # may be left out, as what follows
    flags = []                                  # for the host compiler
    cuda-flags = []                             # for nvcc
    link-flags = ["-lcublas"]"""

_KEYS = ("sources", "include", "flags", "cuda-flags", "link-flags")


@dataclass(frozen=True, kw_only=True)
class Native:
    """A project's native code.

    Attributes:
        root: The folder of its pyproject.toml.
        sources: Every file that the patterns match, sorted.
        include: Folders, absolute.
    """

    root: Path
    sources: tuple[Path, ...]
    include: tuple[Path, ...]
    flags: tuple[str, ...]
    cuda_flags: tuple[str, ...]
    link_flags: tuple[str, ...]

    def request(self, *, torch: TorchParts, debug: bool = False) -> Request:
        """Compile it as every torch and every machine can have it.

        Nothing of the library is visible but what has to be, and paths in it begin at the project.
        """
        here = (self.root, torch.include[0])
        words = ("-fvisibility=hidden", *(f"-ffile-prefix-map={folder}/=" for folder in here))
        stripped = () if debug else ("-Xlinker", "--strip-all")
        return Request(
            name=NAME, sources=self.sources, include=self.include, flags=(*words, *self.flags),
            cuda_flags=(*(part for word in words for part in ("-Xcompiler", word)), *self.cuda_flags),
            link_flags=(*stripped, *self.link_flags), debug=debug, portable=True,
        )  # fmt: skip


def read(root: Path) -> Native | None:
    """Read [tool.dotcu.native] of a project; None where it has none.

    Raises:
        UsageError: It cannot be read, says what is not understood, or a pattern matches no file.
    """
    file = root / pyproject.FILE
    table = (pyproject.section(file) or {}).get("native")
    if table is None:
        return None
    if not isinstance(table, dict):
        raise UsageError(f"{file}: native of [tool.dotcu] is a table, got {table!r}.\nWrite:\n{_TABLE}")
    for key in table:
        if key not in _KEYS:
            raise UsageError(f"{file}: [tool.dotcu.native] has no {key!r}.\nIt takes:\n{_TABLE}")
    said = {key: _strings(file, table, key) for key in _KEYS}
    return Native(
        root=root,
        sources=tuple(_matched(file, said["sources"])),
        include=tuple((root / folder).resolve() for folder in said["include"]),
        flags=said["flags"],
        cuda_flags=said["cuda-flags"],
        link_flags=said["link-flags"],
    )


def named_by(asked: Request, torch: TorchParts) -> Request:
    """The request of the pyproject.toml that is its only source, with what else was asked for.

    Raises:
        UsageError: It names no sources.
    """
    (file,) = asked.sources
    found = read(file.parent)
    if found is None:
        raise UsageError(f"{file} does not say what its native code is.\nWrite into it:\n{_TABLE}")
    own = found.request(torch=torch, debug=asked.debug)
    return replace(
        own,
        include=own.include + asked.include,
        flags=own.flags + asked.flags,
        cuda_flags=own.cuda_flags + asked.cuda_flags,
        link_flags=own.link_flags + asked.link_flags,
    )


def _strings(file: Path, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(
            f"{file}: {key} of [tool.dotcu.native] is a list of strings, got {value!r}.\nWrite:\n{_TABLE}"
        )
    return tuple(value)


def _matched(file: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """The files of each pattern, sorted within it, each once."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        paths = _files(file.parent, pattern)
        if not paths:
            raise UsageError(
                f"{file}: {pattern!r} of sources in [tool.dotcu.native] matches no file.\n"
                f"It is taken from {file.parent}; ** stands for any folders."
            )
        found.update(dict.fromkeys(path.resolve() for path in paths))
    if not found:
        raise UsageError(f"{file}: sources of [tool.dotcu.native] names no file.\nWrite:\n{_TABLE}")
    yield from found


def _files(root: Path, pattern: str) -> list[Path]:
    try:
        return sorted(path for path in root.glob(pattern) if path.is_file())
    except (ValueError, NotImplementedError):  # an empty one, and one that is no path in the folder
        return []
