"""A user's pyproject.toml: where it is, and what is in it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dotcu.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "pyproject.toml"

parse_toml: Callable[[str], dict[str, Any]] = tomllib.loads
"""Return the values of a TOML text. Raises ValueError for what is none."""


def enclosing(folder: Path) -> Path | None:
    """Return the nearest folder, this one or around it, whose pyproject.toml has [tool.dotcu]."""
    for each in (folder, *folder.parents):
        if (each / FILE).is_file() and section(each / FILE) is not None:
            return each
    return None


def section(path: Path) -> dict[str, Any] | None:
    """[tool.dotcu] of a pyproject.toml; None if it has none.

    Raises:
        UsageError: The file cannot be read.
    """
    try:
        tool = parse_toml(path.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError) as error:  # ValueError: no TOML, or no UTF-8
        raise UsageError(f"{path} cannot be read: {error}.\nCorrect it first.") from error
    table = tool.get("dotcu") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None
