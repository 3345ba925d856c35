"""`dotcu build` of a project with native code: one wheel for every Python and torch of a platform."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dotcu import settings
from dotcu.cli import console
from dotcu.errors import EXIT_FELL_SHORT, UsageError

if TYPE_CHECKING:
    from dotcu.shipping.clean import Checked
    from dotcu.shipping.native_wheel import Made


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was asked for."""

    out: Path
    arch: str | None
    isolated: bool
    check: bool
    cpu_only: bool


def refuse(given: Mapping[str, bool], what: str) -> None:
    """Refuse options that a project has no use for.

    Raises:
        UsageError: One of them was given.
    """
    for option, is_given in given.items():
        if is_given:
            raise UsageError(f"{option} is not for {what}.\nLeave it out: dotcu build")


def run(folder: Path, options: Options, *, as_json: bool) -> None:
    """Compile, make the wheel, audit it, and print what was found."""
    with ExitStack() as asked:
        if options.arch is not None:
            asked.enter_context(settings.override(arch_list=options.arch))
        if options.cpu_only:
            asked.enter_context(settings.override(use_cuda=False))
        made = _make(folder, options)
        checked = _check(made) if options.check and made.audit.held else None
    if as_json:
        values = {"compiled_with": made.compiled_with, **made.audit.to_json()}
        console.as_json({**values, "checked": checked.to_json() if checked else None})
    else:
        _show(made, checked)
    if not made.audit.held or (checked is not None and not checked.held):
        raise typer.Exit(EXIT_FELL_SHORT)


def _make(folder: Path, options: Options) -> Made:
    from dotcu.shipping import building, native, native_wheel, project
    from dotcu.shipping.audit import require_tools

    described = project.find(folder.absolute())
    require_tools()
    planned = native.prepare(described)
    out = described.root / options.out
    with building.folder_for(out):
        built = native.build(planned)
        return native_wheel.make(planned, built, out, isolated=options.isolated)


def _check(made: Made) -> Checked:
    from dotcu.shipping.clean import check_by_tests

    return check_by_tests(made.audit.wheel, made.planned.project.root)


def _show(made: Made, checked: Checked | None) -> None:
    console.say(made.compiled_with)
    console.show(made.audit)
    if not made.audit.held:
        console.complain("the audit refuses this wheel, and it is not kept.")
    elif checked is not None:
        console.show(checked)
    else:
        console.say(f"{made.audit.wheel}\nTo try it as its users will, type: dotcu build --check")
        console.say(f"To publish it, type: {made.audit.upload}")
