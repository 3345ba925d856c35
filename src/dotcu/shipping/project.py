"""A project that is to become a wheel: its pyproject.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dotcu import pyproject, settings
from dotcu.errors import UsageError
from dotcu.extension import project as native_code
from dotcu.extension.project import Native
from dotcu.shipping import architectures

_TABLE = """\
    [tool.dotcu]
    modules = ["mylib"]                 # where its operators are
    architectures = ["8.0", "9.0"]      # may be left out

    [tool.hatch.build.hooks.dotcu]"""


@dataclass(frozen=True, kw_only=True)
class Project:
    """What `[tool.dotcu]` says.

    Attributes:
        root: The folder of its pyproject.toml.
        modules: The modules that define its operators.
        architectures: Those to compile for, as they are named.
        native: Its native code, None where the kernels are all there is.
    """

    root: Path
    modules: tuple[str, ...]
    architectures: tuple[str, ...]
    native: Native | None = None


def find(start: Path) -> Project:
    """The project that a folder lies in.

    Raises:
        UsageError: There is none, or its pyproject.toml does not say what is needed.
    """
    root = pyproject.enclosing(start)
    if root is None:
        raise UsageError(
            f"{start} is in no project of dotcu's: no pyproject.toml here or above has [tool.dotcu].\n"
            f"Make a project, dotcu new mylib, or write into the pyproject.toml that there is:\n{_TABLE}"
        )
    return read(root)


def read(root: Path) -> Project:
    """Read a project's pyproject.toml.

    Raises:
        UsageError: It cannot be read, or does not say what is needed.
    """
    file = root / pyproject.FILE
    table = pyproject.section(file)
    if table is None:
        raise UsageError(f"{file} has no table [tool.dotcu].\nWrite into it:\n{_TABLE}")
    return Project(
        root=root,
        modules=_strings(file, table, "modules"),
        architectures=_architectures(file, table),
        native=native_code.read(root),
    )


def _architectures(file: Path, table: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of TORCH_CUDA_ARCH_LIST, else of the project, else those of today."""
    asked = settings.current().arch_list
    if asked is not None:
        return architectures.split(asked)
    return _strings(file, table, "architectures") if "architectures" in table else architectures.DEFAULT


def _strings(file: Path, table: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = table.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise UsageError(
            f"{file}: {name} of [tool.dotcu] is a list of strings, got {value!r}.\nWrite into it:\n{_TABLE}"
        )
    return tuple(value)
