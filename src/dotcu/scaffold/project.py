"""Plan a project: a folder that is not there yet, and the files in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dotcu.errors import UsageError
from dotcu.pyproject import enclosing
from dotcu.scaffold import names, template

FIRST = "scale_add"
"""The operator that a project begins with."""


@dataclass(frozen=True, kw_only=True)
class ProjectPlan:
    """A project to be written.

    Attributes:
        name: As pip knows it.
        package: As Python imports it.
        folder: Where it goes; nothing is there yet.
        files: Paths in that folder, with the texts.
    """

    name: str
    package: str
    folder: Path
    files: Mapping[str, str]


def plan_project(place: str | Path, *, native: bool = False) -> ProjectPlan:
    """Plan a project.

    Args:
        place: Its name, or a path whose last part is the name.
        native: With launchers in C++, on torch's stable ABI.

    Raises:
        UsageError: It cannot have that name, or that place.
    """
    folder = Path(os.path.abspath(place))  # noqa: PTH100  (a link stays a link)
    name = folder.name
    _require_place(folder)
    command = "dotcu new --native" if native else "dotcu new"
    refusal = names.project_refusal(name)
    if refusal:
        instead = folder.with_name(names.suggested(name, "_ops")) if name else "NAME"
        raise UsageError(
            f"a project cannot be named {name!r}: {refusal}.\nType: {command} {_as_typed(instead, place)}"
        )
    package = names.package_of(name)
    filling = {"project": name, "package": package, "operator": FIRST}
    if native:
        table = template.NATIVE_PROJECT | template.NATIVE_FIRST_OPERATOR
    else:
        table = template.PROJECT | template.FIRST_OPERATOR
    files = template.filled(table, filling)
    return ProjectPlan(name=name, package=package, folder=folder, files=files)


def _require_place(folder: Path) -> None:
    if os.path.lexists(folder):
        raise UsageError(
            f"{folder} exists already.\ndotcu new makes a folder that is not there yet: choose another name."
        )
    parent = folder.parent
    if not parent.is_dir():
        what = "is not a folder" if os.path.lexists(parent) else "does not exist"
        raise UsageError(f"{parent} {what}.\nMake it first: mkdir -p {parent}")
    around = enclosing(parent)
    if around is not None:
        raise UsageError(
            f"{folder} would lie inside the project {around}.\n"
            "For another operator in it, type: dotcu new-op NAME\n"
            "For another project, give a path outside of it: dotcu new PATH/NAME"
        )


def _as_typed(path: Path | str, place: str | Path) -> str:
    """The path as short as the one that was given."""
    return str(path) if Path(place).is_absolute() else os.path.relpath(path)
