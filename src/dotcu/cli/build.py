"""`dotcu build` of a project with native code: one wheel for every Python and torch of a platform."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from dotcu import settings
from dotcu.cli import console, progress
from dotcu.errors import EXIT_FELL_SHORT, UsageError

if TYPE_CHECKING:
    from dotcu.shipping.building import WheelPlan
    from dotcu.shipping.clean import CleanRun
    from dotcu.shipping.contents import Contents
    from dotcu.shipping.native_wheel import NativeWheel


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `dotcu build` for native code."""

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


def build_native(folder: Path, options: Options, *, as_json: bool) -> None:
    """Compile, make the wheel, audit it, and print what was found.

    Args:
        folder: The project's.
        options: As the command line gives them.
        as_json: Whether to print JSON.
    """
    with ExitStack() as asked:
        if options.arch is not None:
            asked.enter_context(settings.override(arch_list=options.arch))
        if options.cpu_only:
            asked.enter_context(settings.override(use_cuda=False))
        made = _make_native(folder, options)
        checked = _check_native(made) if options.check and made.audit.passed else None
    if as_json:
        values = {"compiled_with": made.compiled_with, **made.audit.to_json()}
        console.as_json({**values, "checked": checked.to_json() if checked else None})
    else:
        _show_native(made, checked)
    if not made.audit.passed or (checked is not None and not checked.passed):
        raise typer.Exit(EXIT_FELL_SHORT)


def _make_native(folder: Path, options: Options) -> NativeWheel:
    from dotcu.shipping import building, native_library, native_wheel, project
    from dotcu.shipping.audit import require_tools

    described = project.find(folder.absolute())
    require_tools()
    planned = native_library.prepare(described)
    out = described.root / options.out
    with building.folder_for(out):
        built = native_library.build(planned)
        return native_wheel.make(planned, built, out, isolated=options.isolated)


def _check_native(made: NativeWheel) -> CleanRun:
    from dotcu.shipping.clean import check_by_tests

    return check_by_tests(made.audit.wheel, made.planned.project.root)


def _show_native(made: NativeWheel, checked: CleanRun | None) -> None:
    console.print_line(made.compiled_with)
    console.show(made.audit)
    if not made.audit.passed:
        console.print_error("the audit refuses this wheel, and it is not kept.")
    elif checked is not None:
        console.show(checked)
    else:
        console.print_line(f"{made.audit.wheel}\nTo test it as users install it, type: dotcu build --check")
        console.print_line(f"To publish it, type: {made.audit.upload}")


# `dotcu build`: one wheel for every Python and torch; of kernels alone, for every CPU too.


def command(
    folder: Annotated[Path, typer.Argument(help="the project; default: the current folder")] = Path(),
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
        typer.Option("--isolation/--no-isolation", help="build in an isolated environment of pip"),
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
        bool, typer.Option("--cpu-only", help="native code: leave out the .cu files; needs no nvcc")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
) -> None:
    """Build one wheel for every Python and torch; without native code, for every CPU too."""
    from dotcu.shipping import building, project

    described = project.find(folder.absolute())
    arch_list = ",".join(arch) if arch is not None else None
    if described.native is not None:
        given = {"--nvrtc": nvrtc is not None, "--locked": locked, "--cubins": cubins is not None}
        given["--cpp"] = cpp
        refuse(given, "a project with native code, whose wheel holds a library")
        options = Options(out=out, arch=arch_list, isolated=isolation, check=check, cpu_only=cpu_only)
        build_native(folder, options, as_json=as_json)
        return
    refuse({"--cpu-only": cpu_only}, "a project of kernels, whose wheel needs no compiler")
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
    if checked is not None and not checked.passed:
        raise typer.Exit(EXIT_FELL_SHORT)


def _make(
    folder: Path, out: Path, cubins: Path | None, *, cpp: bool, locked: bool, isolated: bool
) -> tuple[WheelPlan, Contents]:
    from dotcu.shipping import assembling, building, project
    from dotcu.shipping.cpp import library

    described = project.find(folder.absolute())
    building.require_folder(described.root / out)
    planned = building.prepare(described, locked=locked)
    with progress.counting(len(planned.jobs), "compiling") as report_job:
        made = building.compile_kernels(planned, report_job)
    if cubins is not None:
        assembling.export(made, cubins)
    if not cpp:
        return planned, building.make_wheel(planned, described.root / out, isolated=isolated)
    written = library.write(planned, made)
    for note in written.notes:
        console.note(note)
    return planned, library.make(planned, written, described.root / out, isolated=isolated)


def _check(wheel: Path, planned: WheelPlan) -> CleanRun:
    from dotcu.shipping.clean import check

    return check(wheel, planned.project.modules)


def _values(planned: WheelPlan, made: Contents, checked: CleanRun | None) -> dict[str, object]:
    return {
        "version": 1,
        "operators": [operator.qualified_name for operator in planned.operators],
        "notes": list(planned.notes),
        "lock": planned.change,
        **made.to_json(),
        "checked": checked.to_json() if checked else None,
    }


def _show(planned: WheelPlan, made: Contents, checked: CleanRun | None) -> None:
    for note in planned.notes:
        console.note(note)
    console.print_line(planned.change)
    console.show(made)
    if checked is not None:
        console.show(checked)
    else:
        console.print_line(f"{made.wheel}\nTo test it as users install it, type: dotcu build --check")
