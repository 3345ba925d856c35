"""Plan another operator in a project: new files, and a line in the package's `__init__.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dotcu.errors import UsageError
from dotcu.scaffold import home, names, template
from dotcu.scaffold.importing import bound, with_import


@dataclass(frozen=True, kw_only=True)
class OperatorPlan:
    """An operator to be written.

    Attributes:
        name: Its name, in Python and of its kernel.
        package: The package that it belongs to.
        folder: The project's.
        files: Paths in that folder that are not there yet, with the texts.
        changed: Paths in that folder that are there, with the texts before and after.
    """

    name: str
    package: str
    folder: Path
    files: Mapping[str, str]
    changed: Mapping[str, tuple[str, str]]


def plan_operator(name: str, start: Path) -> OperatorPlan:
    """Plan an operator for the project that `start` lies in.

    Raises:
        UsageError: There is no project, it has such an operator, or none can have that name; or the
            package's `__init__.py` cannot be changed safely.
    """
    found = home.find(start)
    path = found.package_folder / "__init__.py"
    before = _read(path)
    _require_new(name, found, bound(before, path))
    refusal = names.operator_refusal(name)
    if refusal:
        raise UsageError(
            f"an operator cannot be named {name!r}: {refusal}.\n"
            f"Type: dotcu new-op {names.suggested(name, '_op')}"
        )
    files = _files(found, name)
    for each in files:
        if os.path.lexists(found.folder / each):
            raise UsageError(f"{found.folder / each} exists already.\nChoose another name, or move it.")
    after = with_import(before, path, found.package, name)
    changed = {path.relative_to(found.folder).as_posix(): (before, after)}
    return OperatorPlan(name=name, package=found.package, folder=found.folder, files=files, changed=changed)


def _files(found: home.Home, name: str) -> dict[str, str]:
    table = template.NATIVE_OPERATOR if found.native else template.OPERATOR
    filled = template.filled(table, {"package": found.package, "operator": name})
    if found.sources == "src":
        return filled
    return {path.removeprefix("src/"): text for path, text in filled.items()}


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")  # line ends as they are
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.\nCorrect it first.") from error


def _require_new(name: str, found: home.Home, taken: set[str]) -> None:
    """Refuse a name that the package has, or nearly has: some file systems do not tell cases apart."""
    for other in sorted({*taken, *_stems(found.package_folder)}):
        if names.alike(other) == names.alike(name):
            near = "" if other == name else ", which differs in case, - or _ alone"
            raise UsageError(
                f"{found.package} has {other!r} already{near}.\n"
                f"Choose another name; what there is lies in {found.package_folder}"
            )


def _stems(folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        if path.is_dir() or path.suffix in (".py", ".cu"):
            yield path.stem
