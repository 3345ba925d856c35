"""`dotcu build`: one wheel for every Python and torch; of kernels alone, for every CPU too."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from dotcu import settings
from dotcu.cli import console, native_build, progress
from dotcu.errors import EXIT_FELL_SHORT

if TYPE_CHECKING:
    from dotcu.shipping.building import Plan
    from dotcu.shipping.clean import Checked
    from dotcu.shipping.contents import Contents


def command(
    folder: Annotated[Path, typer.Argument(help="the project; by default that of this folder")] = Path(),
    arch: Annotated[
        Optional[list[str]],  # noqa: UP045  (typer reads it at run time, also on Python 3.10)
        typer.Option(metavar="LIST", help="8.0,9.0a,12.0+PTX or Ampere,Hopper instead of the project's"),
    ] = None,
    nvrtc: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="VERSION", help="compile with this one, such as 12.8, for older drivers"),
    ] = None,
    out: Annotated[Path, typer.Option(help="where the wheel goes")] = Path("dist"),
    locked: Annotated[bool, typer.Option("--locked", help="refuse what dotcu.lock does not have")] = False,
    isolation: Annotated[
        bool,
        typer.Option("--isolation/--no-isolation", help="whether pip makes an environment for it"),
    ] = True,
    check: Annotated[
        bool, typer.Option("--check", help="run the wheel's operators in a clean environment")
    ] = False,
    cubins: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="write the code as plain files, too, for programs in C++"),
    ] = None,
    cpp: Annotated[
        bool, typer.Option("--cpp", help="write the operators in C++, too, for programs without Python")
    ] = False,
    cpu_only: Annotated[
        bool, typer.Option("--cpu-only", help="native code: leave out the .cu files, and need no nvcc")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
) -> None:
    """Make one wheel for every Python and torch; of kernels alone, for every CPU too."""
    from dotcu.shipping import building, project

    described = project.find(folder.absolute())
    arch_list = ",".join(arch) if arch is not None else None
    if described.native is not None:
        given = {"--nvrtc": nvrtc is not None, "--locked": locked, "--cubins": cubins is not None}
        given["--cpp"] = cpp
        native_build.refuse(given, "a project with native code, whose wheel holds a library")
        options = native_build.Options(
            out=out, arch=arch_list, isolated=isolation, check=check, cpu_only=cpu_only
        )
        native_build.run(folder, options, as_json=as_json)
        return
    native_build.refuse({"--cpu-only": cpu_only}, "a project of kernels, whose wheel needs no compiler")
    with ExitStack() as asked:
        if arch_list is not None:
            asked.enter_context(settings.override(arch_list=arch_list))
        if nvrtc is not None:
            asked.enter_context(settings.override(nvrtc=building.nvrtc_of_version(nvrtc)))
        planned, made = _make(folder, out, cubins, cpp=cpp, locked=locked, isolated=isolation)
        checked = _check(made.wheel, planned) if check else None
    if as_json:
        console.as_json(_values(planned, made, checked))
    else:
        _show(planned, made, checked)
    if checked is not None and not checked.held:
        raise typer.Exit(EXIT_FELL_SHORT)


def _make(
    folder: Path, out: Path, cubins: Path | None, *, cpp: bool, locked: bool, isolated: bool
) -> tuple[Plan, Contents]:
    from dotcu.shipping import building, exporting, project
    from dotcu.shipping.cpp import wheel

    described = project.find(folder.absolute())
    building.require_folder(described.root / out)
    planned = building.prepare(described, locked=locked)
    with progress.counting(len(planned.jobs), "compiling") as tell:
        made = building.compile_kernels(planned, tell)
    if cubins is not None:
        exporting.export(made, cubins)
    if not cpp:
        return planned, building.make_wheel(planned, described.root / out, isolated=isolated)
    written = wheel.write(planned, made)
    for note in written.notes:
        console.note(note)
    return planned, wheel.make(planned, written, described.root / out, isolated=isolated)


def _check(wheel: Path, planned: Plan) -> Checked:
    from dotcu.shipping.clean import check

    return check(wheel, planned.project.modules)


def _values(planned: Plan, made: Contents, checked: Checked | None) -> dict[str, object]:
    return {
        "version": 1,
        "operators": [operator.qualified_name for operator in planned.operators],
        "notes": list(planned.notes),
        "lock": planned.change,
        **made.to_json(),
        "checked": checked.to_json() if checked else None,
    }


def _show(planned: Plan, made: Contents, checked: Checked | None) -> None:
    for note in planned.notes:
        console.note(note)
    console.say(planned.change)
    console.show(made)
    if checked is not None:
        console.show(checked)
    else:
        console.say(f"{made.wheel}\nTo try it as its users will, type: dotcu build --check")
