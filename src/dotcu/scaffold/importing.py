"""A line more in a package's `__init__.py`, `from mylib.NAME import NAME as NAME`; nothing else changes."""

from __future__ import annotations

import ast
from pathlib import Path

from dotcu.errors import UsageError

_LINE = 88
"""Characters of a line that any formatter keeps as one."""


def bound(text: str, path: Path) -> set[str]:
    """The names that a module binds at its top.

    Raises:
        UsageError: It is no Python.
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
    """The text with the line at its place among the package's own imports, which are kept sorted.

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
            f"Put each on a line of its own, then try again. What would be added is\n    {statement}"
        )
    return after


def _statement(module: str, name: str) -> str:
    """The import, in the form that formatters leave as it is."""
    line = f"from {module} import {name} as {name}"
    return line if len(line) <= _LINE else f"from {module} import (\n    {name} as {name},\n)"


def _place(tree: ast.Module, package: str, module: str) -> int:
    """How many lines come before the new one."""
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
    """Whether that statement is the one difference."""
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
        raise UsageError(f"{path}{where} is no Python: {error}.\nCorrect it first.") from error
