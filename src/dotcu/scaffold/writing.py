"""Write what is planned into a folder next to the goal, and rename it, so that no part is ever missing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from dotcu.errors import EnvironmentFault, UsageError
from dotcu.scaffold.project import ScaffoldPlan


def create(plan: ScaffoldPlan) -> None:
    """Make a project's folder, by one rename.

    Raises:
        UsageError: Something came to be there in the meantime.
        EnvironmentFault: It cannot be written.
    """
    with _explained(plan.folder.parent), _stage(plan.folder) as stage:
        whole = stage / plan.folder.name
        _write(whole, plan.files)
        _require_free(plan.folder)
        whole.rename(plan.folder)


def add(plan: ScaffoldPlan) -> None:
    """Put an operator's files into its project, and then change those that name it; all or nothing.

    Raises:
        UsageError: A file came to be there, or was changed, in the meantime.
        EnvironmentFault: They cannot be written.
    """
    with _explained(plan.folder), _stage(plan.folder / plan.name) as stage, _undone_on_failure() as created:
        _write(stage / "new", plan.files)
        _write(stage / "changed", {path: after for path, (_, after) in plan.changed.items()})
        for path in plan.files:
            goal = plan.folder / path
            for folder in reversed([folder for folder in goal.parents if not folder.exists()]):
                created.append(folder)  # before, so that an interrupt in between finds it
                folder.mkdir()
            _require_free(goal)
            created.append(goal)
            (stage / "new" / path).rename(goal)
        for path, (before, _) in plan.changed.items():
            goal, staged = plan.folder / path, stage / "changed" / path
            if goal.read_bytes() != before.encode("utf-8"):
                raise UsageError(f"{goal} was changed just now.\nType the command again.")
            shutil.copymode(goal, staged)
            staged.replace(goal.resolve())  # where it is a link, what that leads to


def _require_free(goal: Path) -> None:
    if os.path.lexists(goal):
        raise UsageError(f"{goal} exists now: another program created it.\nChoose another name.")


@contextmanager
def _stage(goal: Path) -> Iterator[Path]:
    """A folder next to the goal, on the same file system; it is gone after the block."""
    stage = Path(tempfile.mkdtemp(prefix=f".{goal.name}.", dir=goal.parent))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def _undone_on_failure() -> Iterator[list[Path]]:
    """List what the block creates; where that fails or is interrupted, it is removed, last first."""
    created: list[Path] = []
    try:
        yield created
    except BaseException:
        for path in reversed(created):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        raise


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(
            f"{folder} cannot be written: {str(error.strerror).lower()}; nothing is left in it.\n"
            "Choose another folder, or change its permissions."
        ) from error


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode("utf-8"))  # line ends as they are
