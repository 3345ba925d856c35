"""A line more in a package's `__init__.py`, `from mylib.NAME import NAME as NAME`; nothing else changes."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dotcu.errors import UsageError
from dotcu.scaffold import project

_LINE = 88
"""Characters of a line that any formatter keeps as one."""


def bound(text: str, path: Path) -> set[str]:
    """The names that a module binds at its top.

    Raises:
        UsageError: It is not valid Python.
    """
    found: set[str] = set()
    for node in _parsed(text, path).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def with_import(text: str, path: Path, package: str, name: str) -> str:
    """Add the line that imports an operator, at its place among the package's own imports, which are sorted.

    Args:
        text: The package's `__init__.py`.
        path: Its path, for messages.
        package: The package's name.
        name: The operator's.

    Raises:
        UsageError: The line cannot be put in without touching something else; has the line.
    """
    statement = _statement(f"{package}.{name}", name)
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


def _statement(module: str, name: str) -> str:
    """The import, in the form that formatters leave as it is."""
    line = f"from {module} import {name} as {name}"
    return line if len(line) <= _LINE else f"from {module} import (\n    {name} as {name},\n)"


def _place(tree: ast.Module, package: str, module: str) -> int:
    """Return how many lines come before the new one."""
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    own = [node for node in imports if isinstance(node, ast.ImportFrom) and _is_own(node, package)]
    for node in own:
        if node.level == 0 and str(node.module) > module:
            return node.lineno - 1
    before = own or imports or _docstring(tree)
    return (before[-1].end_lineno or 0) if before else 0


def _is_own(node: ast.ImportFrom, package: str) -> bool:
    return node.level == 1 or f"{node.module}.".startswith(f"{package}.")


def _docstring(tree: ast.Module) -> list[ast.stmt]:
    return tree.body[:1] if ast.get_docstring(tree, clean=False) is not None else []


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
    """Plan an operator for the project that `start` is in.

    Raises:
        UsageError: There is no project, it has such an operator, or none can have that name; or the
            package's `__init__.py` cannot be changed safely.
    """
    found = project.find(start)
    path = found.package_folder / "__init__.py"
    before = _read(path)
    _require_new(name, found, bound(before, path))
    refusal = project.operator_refusal(name)
    if refusal:
        raise UsageError(
            f"an operator cannot be named {name!r}: {refusal}.\n"
            f"Type: dotcu new-op {project.suggested(name, '_op')}"
        )
    files = _files(found, name)
    for each in files:
        if os.path.lexists(found.folder / each):
            raise UsageError(f"{found.folder / each} exists already.\nChoose another name, or move it.")
    after = with_import(before, path, found.package, name)
    changed = {path.relative_to(found.folder).as_posix(): (before, after)}
    return OperatorPlan(name=name, package=found.package, folder=found.folder, files=files, changed=changed)


def _files(found: project.Home, name: str) -> dict[str, str]:
    table = project.NATIVE_OPERATOR if found.native else project.OPERATOR
    filled = project.filled(table, {"package": found.package, "operator": name})
    if found.sources == "src":
        return filled
    return {path.removeprefix("src/"): text for path, text in filled.items()}


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")  # line ends as they are
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.\nCorrect it first.") from error


def _require_new(name: str, found: project.Home, taken: set[str]) -> None:
    """Refuse a name that the package has, or nearly has: some file systems ignore case."""
    for other in sorted({*taken, *_stems(found.package_folder)}):
        if project.alike(other) == project.alike(name):
            near = "" if other == name else ", which differs in case, - or _ alone"
            raise UsageError(
                f"{found.package} has {other!r} already{near}.\n"
                f"Choose another name; its files are in {found.package_folder}"
            )


def _stems(folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        if path.is_dir() or path.suffix in (".py", ".cu"):
            yield path.stem
