"""`dotcu build`: one wheel for every Python and torch; of kernels alone, for every CPU too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dotcu import settings
from dotcu.cli import AsJson, File, Strings, Word, console, progress
from dotcu.errors import EXIT_FAILED, UsageError

if TYPE_CHECKING:
    from dotcu.shipping.project import Project
    from dotcu.shipping.wheel import Contents, WheelPlan
    from dotcu.shipping.wheel_check import CleanRun


def command(
    folder: Annotated[Path, typer.Argument(help="the project; default: the current folder")] = Path(),
    arch: Annotated[
        Strings,
        typer.Option(metavar="LIST", help="8.0,9.0a,12.0+PTX or Ampere,Hopper instead of the project's"),
    ] = None,
    nvrtc: Annotated[
        Word,
        typer.Option(metavar="VERSION", help="compile with this one, such as 12.8, for older drivers"),
    ] = None,
    out: Annotated[Path, typer.Option(help="where the wheel goes")] = Path("dist"),
    locked: Annotated[bool, typer.Option("--locked", help="refuse what dotcu.lock does not have")] = False,
    lock_only: Annotated[
        bool, typer.Option("--lock-only", help="write dotcu.lock, compile no wheel")
    ] = False,
    isolation: Annotated[
        bool, typer.Option("--isolation/--no-isolation", help="build in an isolated environment of pip")
    ] = True,
    check: Annotated[
        bool, typer.Option("--check", help="run the wheel's operators in a clean environment")
    ] = False,
    cubins: Annotated[
        File,
        typer.Option(metavar="FOLDER", help="write the code as plain files, too, for programs in C++"),
    ] = None,
    cpp: Annotated[
        bool, typer.Option("--cpp", help="write the operators in C++, too, for programs without Python")
    ] = False,
    cpu_only: Annotated[
        bool, typer.Option("--cpu-only", help="C++: leave out the .cu files; needs no nvcc")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build one wheel for every Python and torch; without C++, for every CPU too."""
    from dotcu.shipping import project, wheel, wheel_check

    folder = folder.absolute()
    has_cpp = project.find(folder).cpp is not None  # inside an override it is read again, with --arch
    overrides: dict[str, Any] = {} if arch is None else {"arch_list": ",".join(arch)}
    if has_cpp:
        given = {
            "--nvrtc": nvrtc is not None,
            "--locked": locked,
            "--cubins": cubins is not None,
            "--cpp": cpp,
            "--lock-only": lock_only,
        }
        _refuse(given, "a project with C++, whose wheel holds a library")
        if cpu_only:
            overrides["use_cuda"] = False
        with settings.override(**overrides):
            passed = _build_cpp(project.find(folder), out, isolated=isolation, check=check, as_json=as_json)
        if not passed:
            raise typer.Exit(EXIT_FAILED)
        return
    _refuse({"--cpu-only": cpu_only}, "a project of kernels, whose wheel needs no compiler")
    if nvrtc is not None:
        overrides["nvrtc"] = wheel.nvrtc_of_version(nvrtc)
    if lock_only:
        given = {"--locked": locked, "--check": check, "--cubins": cubins is not None, "--cpp": cpp}
        _refuse(given, "--lock-only, which compiles no wheel")
        with settings.override(**overrides):
            _lock(project.find(folder), as_json=as_json)
        return
    with settings.override(**overrides):
        planned, contents = _make(
            project.find(folder), out, cubins, cpp=cpp, locked=locked, isolated=isolation
        )
        checked = wheel_check.check(contents.wheel, planned.project.modules) if check else None
    if as_json:
        console.as_json({
            "operators": [operator.qualified_name for operator in planned.operators],
            "notes": list(planned.notes),
            "lock": planned.change,
            **contents.to_json(),
            "checked": checked.to_json() if checked else None,
        })  # fmt: skip
    else:
        _show(planned, contents, checked)
    if checked is not None and not checked.passed:
        raise typer.Exit(EXIT_FAILED)


def _refuse(given: Mapping[str, bool], useless_for: str) -> None:
    for option, is_given in given.items():
        if is_given:
            raise UsageError(f"{option} is not for {useless_for}.\nLeave it out: dotcu build")


def _build_cpp(described: Project, out: Path, *, isolated: bool, check: bool, as_json: bool) -> bool:
    """Compile C++, make the wheel, audit it, print the results; return whether all passed."""
    from dotcu.cpp.build import build_request
    from dotcu.shipping import project, wheel, wheel_check
    from dotcu.shipping.audit import make_wheel, require_tools

    require_tools()
    request, tools = project.cpp_build(described)
    with wheel.folder_for(described.root / out):
        built = build_request(request, tools)
        audit = make_wheel(described.root, request.compiled, built, described.root / out, isolated=isolated)
    compiled_with = project.compiled_with(request, tools)
    checked = wheel_check.check_by_tests(audit.wheel, described.root) if check and audit.passed else None
    if as_json:
        values = {"compiled_with": compiled_with, **audit.to_json()}
        console.as_json({**values, "checked": checked.to_json() if checked else None})
        return audit.passed and (checked is None or checked.passed)
    console.print_line(compiled_with)
    console.show(audit)
    if not audit.passed:
        console.print_error("the audit refuses this wheel, and it is not kept.")
    elif checked is not None:
        console.show(checked)
    else:
        console.print_line(f"{audit.wheel}\nTo test it as users install it, type: dotcu build --check")
        console.print_line(f"To publish it, type: {audit.upload}")
    return audit.passed and (checked is None or checked.passed)


def _lock(described: Project, *, as_json: bool) -> None:
    """Write the lock, and print what became of it."""
    from dotcu.shipping import wheel

    with progress.counting(None, "tracing") as report:
        planned = wheel.prepare(described, report=report)
    wheel.write_lock(planned)
    if as_json:
        console.as_json({"notes": list(planned.notes), "lock": planned.change})
        return
    for note in planned.notes:
        console.note(note)
    console.print_line(planned.change)


def _make(
    described: Project, out: Path, cubins: Path | None, *, cpp: bool, locked: bool, isolated: bool
) -> tuple[WheelPlan, Contents]:
    from dotcu.shipping import assembling, wheel

    wheel.require_folder(described.root / out)
    with progress.counting(None, "tracing") as report_target:
        planned = wheel.prepare(described, locked=locked, report=report_target)
    with progress.counting(len(planned.jobs), "compiling") as report_job:
        kernels = wheel.compile_kernels(planned, report_job)
    if cubins is not None:
        assembling.export(kernels, cubins)
    if not cpp:
        return planned, wheel.make_wheel(planned, described.root / out, isolated=isolated)
    from dotcu.shipping.operator_library import writing

    written, notes = writing.write_library(planned, kernels)
    for note in notes:
        console.note(note)
    return planned, writing.make_wheel(planned, written, described.root / out, isolated=isolated)


def _show(planned: WheelPlan, contents: Contents, checked: CleanRun | None) -> None:
    for note in planned.notes:
        console.note(note)
    console.print_line(planned.change)
    console.show(contents)
    if checked is not None:
        console.show(checked)
    else:
        console.print_line(f"{contents.wheel}\nTo test it as users install it, type: dotcu build --check")
