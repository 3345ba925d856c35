"""`dotcu new NAME` and `dotcu new-op NAME`: a project, and another operator in one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dotcu.cli import console
from dotcu.errors import quoted

if TYPE_CHECKING:
    from dotcu.scaffold import ScaffoldPlan

_TILE = typer.Option("--tile", help="a tile kernel, of CUDA Tile C++, instead of one of threads")
_AS_JSON = typer.Option("--json", help="print the created files as JSON")


def project(
    name: Annotated[str, typer.Argument(help="the project's name, or a path that ends in it")],
    cpp: Annotated[
        bool, typer.Option("--cpp", help="launchers in C++, on torch's stable ABI; needs a C++ compiler")
    ] = False,
    tile: Annotated[bool, _TILE] = False,
    as_json: Annotated[bool, _AS_JSON] = False,
) -> None:
    """Create a project that passes its checks: package, tests, benchmark, CI, containers."""
    from dotcu.scaffold import create, plan_project

    plan = plan_project(name, cpp=cpp, tile=tile)
    create(plan)
    folder = _short(plan.folder)
    if cpp:
        then = {
            "make test": "compiles the library, and tests it; needs no GPU",
            "dotcu build --check": "one wheel for every Python and torch, audited and tested",
        }
    else:
        then = {
            "make test": "every check as a test; needs no GPU",
            f"dotcu watch src/{plan.package}/ops.py": "edit the kernel; each save is checked",
        }
    lacking = {} if find_spec("pytest") else {"pip install pytest": "not installed here; runs the tests"}
    if tile:
        from dotcu.compile import Rejected
        from dotcu.compile.tile import find

        compiler = find()
        if isinstance(compiler, Rejected):
            line = compiler.remedy.partition(": ")[2]
            lacking[line] = "not installed here; compiles tile kernels"
    after = {f"cd {quoted(folder)}": "", **lacking, **then, "dotcu new-op NAME": "another operator"}
    head = f"created {folder}: {len(plan.files)} files, with the package {plan.package}:"
    _report("project", plan, head, after, as_json=as_json)


def operator(
    name: Annotated[str, typer.Argument(help="the name of the operator and of its kernel")],
    tile: Annotated[bool, _TILE] = False,
    as_json: Annotated[bool, _AS_JSON] = False,
) -> None:
    """Add an operator to the project around this folder: kernel, Python, test, benchmark."""
    from dotcu.scaffold import add, plan_operator

    plan = plan_operator(name, Path.cwd(), tile=tile)
    add(plan)
    module = next(path for path in plan.files if path.endswith(f"{plan.package}/{name}.py"))
    make = "make" if plan.folder == Path.cwd() else f"make -C {quoted(_short(plan.folder))}"
    test = {f"{make} test": "every check as a test"}
    watch = {
        f"dotcu watch {quoted(_short(plan.folder / module))}": "edit kernel and Python; each save is checked"
    }
    after = test if any(path.endswith(".cpp") for path in plan.files) else watch | test
    head = f"added {plan.package}.{name}, which computes a + alpha * b until you change it:"
    _report("operator", plan, head, after, as_json=as_json)


def _report(kind: str, plan: ScaffoldPlan, head: str, after: Mapping[str, str], *, as_json: bool) -> None:
    """Print the files, and the lines to type next, each with what it is for."""
    if as_json:
        about = {"name": plan.name, "package": plan.package, "folder": str(plan.folder)}
        listed = {"files": list(plan.files), "changed": list(plan.changed), "next": list(after)}
        console.as_json({kind: about, **listed})
        return
    console.print_line(head)
    for path in plan.files:
        console.print_line(f"    {path}")
    for path in plan.changed:
        console.print_line(f"    {path}  (one line added)")
    console.print_line("next:")
    width = max(map(len, after)) + 2
    for line, meaning in after.items():
        console.print_line(f"    {line:{width}}{'# ' * bool(meaning)}{meaning}".rstrip())


def _short(path: Path) -> str:
    """A path as a person would type it: relative, unless that climbs."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("../..") else relative
