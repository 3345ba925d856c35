"""TARGET, as every command takes it: a file or a module, with `:name` for one operator."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from dotcu.errors import UsageError
from dotcu.operator import Operator


def resolve(target: str) -> list[tuple[str, Operator]]:
    """The operators that a target names, with their Python names, in the order of their definition.

    Args:
        target: `ops.py`, `package.module`, or either with `:name`.

    Raises:
        UsageError: There is no such file, module or operator; answered with the nearest name.
    """
    place, _, name = target.partition(":")
    found = operators(_module(place))
    if not found:
        raise UsageError(
            f"{place} defines no operator.\nA function becomes one with @dotcu.op; TARGET names the file or "
            "module that has it."
        )
    if not name:
        return found
    chosen = [(python_name, operator) for python_name, operator in found if python_name == name]
    if not chosen:
        names = [python_name for python_name, _ in found]
        nearest = difflib.get_close_matches(name, names, n=1, cutoff=0) or names
        raise UsageError(
            f"{place} has no operator {name!r}; it has {', '.join(names)}.\n"
            f"Type: dotcu check {place}:{nearest[0]}"
        )
    return chosen


def operators(module: ModuleType) -> list[tuple[str, Operator]]:
    """The operators among a module's names."""
    unique: dict[str, tuple[str, Operator]] = {}
    for name, value in vars(module).items():
        if isinstance(value, Operator):
            unique.setdefault(value.qualified_name, (name, value))
    return list(unique.values())


def _module(place: str) -> ModuleType:
    path = Path(place)
    if path.suffix == ".py" or path.is_file():
        return _from_file(path)
    try:
        spec = importlib.util.find_spec(place)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise UsageError(
            f"there is no file and no importable module {place!r}.\n"
            "TARGET is a file such as ops.py, or a module such as dotcu.gallery."
        )
    return importlib.import_module(place)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}.{_nearest(path)}")
    if path.suffix != ".py":
        raise UsageError(
            f"{path} is not a Python file, so it has no operators to check.\n"
            "Name the file that loads it and defines operators with @dotcu.op."
        )
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def _nearest(path: Path) -> str:
    names: Sequence[str] = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"\nDid you mean {path.parent / close[0]}?" if close else ""
