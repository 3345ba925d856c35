"""A line more in a package's `__init__.py`, `from mylib.NAME import NAME as NAME`; nothing else changes."""

from __future__ import annotations

import ast
import os
from pathlib import Path

from dotcu.errors import UsageError
from dotcu.scaffold import project
from dotcu.scaffold.project import ScaffoldPlan

_LINE = 88
"""Characters of a line that any formatter keeps as one."""


def bound(text: str, path: Path) -> set[str]:
    """The names that a module binds at its top.

    Raises:
        UsageError: It is not valid Python.
    """
    names: set[str] = set()
    for node in _parsed(text, path).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def with_import(text: str, path: Path, package: str, name: str) -> str:
    """Add the line that imports an operator, at its place among the package's own imports, which are sorted.

    Args:
        text: The package's `__init__.py`.

    Raises:
        UsageError: The line cannot be put in without touching something else; has the line.
    """
    statement = f"from {package}.{name} import {name} as {name}"
    if len(statement) > _LINE:  # the form that formatters leave as it is
        statement = f"from {package}.{name} import (\n    {name} as {name},\n)"
    lines = text.split("\n")
    at = _place(_parsed(text, path), package, f"{package}.{name}")
    if lines[-1] and at == len(lines):
        lines.append("")  # the last line had no end
    end = "\r" if "\r\n" in text else ""
    lines[at:at] = [line + end for line in statement.split("\n")]
    after = "\n".join(lines)
    if not _differs_by(statement, text, after):
        raise UsageError(
            f"{path} cannot be changed safely: a line where another belongs is shared by two statements.\n"
            f"Put each on its own line, then try again. What would be added is\n    {statement}"
        )
    return after


def _place(tree: ast.Module, package: str, module: str) -> int:
    """Return how many lines come before the new one."""
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    own = [
        node
        for node in imports
        if isinstance(node, ast.ImportFrom)
        and (node.level == 1 or f"{node.module}.".startswith(f"{package}."))
    ]
    for node in own:
        if node.level == 0 and str(node.module) > module:
            return node.lineno - 1
    docstring = tree.body[:1] if ast.get_docstring(tree, clean=False) is not None else []
    before = own or imports or docstring
    return (before[-1].end_lineno or 0) if before else 0


def _differs_by(statement: str, before: str, after: str) -> bool:
    """Return whether that statement is the one difference."""
    (added,) = ast.parse(statement).body
    try:
        now = [ast.dump(node) for node in ast.parse(after).body]
    except SyntaxError:
        return False
    if ast.dump(added) not in now:
        return False
    now.remove(ast.dump(added))
    return now == [ast.dump(node) for node in ast.parse(before).body]


def _parsed(text: str, path: Path) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        where = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise UsageError(f"{path}{where} is not valid Python: {error}.\nCorrect it first.") from error


# Plan another operator in a project: new files, and a line in the package's `__init__.py`.


def plan_operator(name: str, start: Path, *, tile: bool = False) -> ScaffoldPlan:
    """Plan an operator for a project.

    Args:
        name: The operator's.
        start: A folder in the project.
        tile: With a tile kernel, of CUDA Tile C++.

    Raises:
        UsageError: There is no project, it has such an operator, or none can have that name; or the
            package's `__init__.py` cannot be changed safely.
    """
    home = project.find(start)
    path = home.package_folder / "__init__.py"
    try:
        before = path.read_bytes().decode("utf-8")  # line ends as they are
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.\nCorrect it first.") from error
    _require_new(name, home, bound(before, path))
    refusal = project.operator_refusal(name)
    if refusal:
        raise UsageError(
            f"an operator cannot be named {name!r}: {refusal}.\n"
            f"Type: dotcu new-op {project.suggested(name, '_op')}"
        )
    if home.native and tile:
        raise UsageError(
            f"The launchers of {home.package} are C++, which launches no tile kernels.\n"
            f"Type: dotcu new-op {name}"
        )
    table = project.TILE_OPERATOR if tile else project.OPERATOR
    table = project.NATIVE_OPERATOR if home.native else table
    files = project.filled(table, {"package": home.package, "operator": name})
    if home.sources != "src":
        files = {each.removeprefix("src/"): text for each, text in files.items()}
    for each in files:
        if os.path.lexists(home.folder / each):
            raise UsageError(f"{home.folder / each} exists already.\nChoose another name, or move it.")
    after = with_import(before, path, home.package, name)
    changed = {path.relative_to(home.folder).as_posix(): (before, after)}
    return ScaffoldPlan(name=name, package=home.package, folder=home.folder, files=files, changed=changed)


def _require_new(name: str, home: project.Home, taken: set[str]) -> None:
    """Refuse a name that the package has, or nearly has: some file systems ignore case."""
    paths = home.package_folder.iterdir()
    stems = {path.stem for path in paths if path.is_dir() or path.suffix in (".py", ".cu")}
    for other in sorted(taken | stems):
        if project.alike(other) == project.alike(name):
            near = "" if other == name else ", which differs in case, - or _ alone"
            raise UsageError(
                f"{home.package} has {other!r} already{near}.\n"
                f"Choose another name; its files are in {home.package_folder}"
            )
