"""A user's pyproject.toml: where it is, and what is in it."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from dotcu import files
from dotcu.errors import UsageError, reason
from dotcu.files import is_file, read_file

FILE = "pyproject.toml"

MAX_BYTES = 16 << 20


def parse_toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML text.

    Raises:
        ValueError: The text is not TOML, or is nested too deeply.
    """
    if sys.version_info >= (3, 11):  # a launch does not import it
        import tomllib
    else:
        import tomli as tomllib
    try:
        values: dict[str, Any] = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error
    return values


def enclosing(folder: Path) -> Path | None:
    """Return the nearest folder, this one or around it, whose pyproject.toml has [tool.dotcu].

    Its modules are imported, so none that another user may have written is taken: see `files.upwards`.
    """
    for each in files.upwards(folder):
        file = each / FILE
        if is_file(file) and not files.others(file) and section(file) is not None:
            return each
    return None


def required(folder: Path, remedy: str) -> Path:
    """Return what `enclosing` does.

    Args:
        remedy: What to do where there is none, for the error.

    Raises:
        UsageError: There is none.
    """
    root = enclosing(folder)
    if root is not None:
        return root
    why = "no pyproject.toml here or above has [tool.dotcu]"
    for each in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            owner = files.others(each) or files.others(each / FILE)
            if owner and is_file(each / FILE):
                why = f"{each / FILE} belongs to {owner}, so it is not followed"
                remedy = f"If you trust it, make it yours: sudo chown -R $(id -un) {each}\n{remedy}"
                break
    raise UsageError(f"{folder} is not in a dotcu project: {why}.\n{remedy}")


def section(path: Path) -> dict[str, Any] | None:
    """[tool.dotcu] of a pyproject.toml; None if it has none.

    Raises:
        UsageError: The file cannot be read.
    """
    try:
        tool = parse_toml(read_file(path, MAX_BYTES).decode("utf-8")).get("tool", {})
    except (OSError, ValueError) as error:  # ValueError: no TOML, or no UTF-8
        raise UsageError(f"{path} cannot be read: {reason(error)}.\nCorrect it first.") from error
    table = tool.get("dotcu") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None
