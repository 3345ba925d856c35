"""The doors of the house: who may print, start programs, read the environment, touch the dispatcher.

What linters check elsewhere (the direction of imports) is not repeated here. Every rule is also
shown a line that breaks it, so that none of them can pass by seeing nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dotcu

PACKAGE = Path(dotcu.__file__).parent
ROOT = Path(__file__).parents[2]
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
PROGRAM_STARTERS = {"subprocess", "pty", "multiprocessing", "pexpect"}
OS_STARTERS = {"system", "popen", "fork", "forkpty", "posix_spawn"} | {
    f"{verb}{how}" for verb in ("exec", "spawn") for how in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")
}

Rule = Callable[[ast.AST], bool]


def name_of(node: ast.AST) -> str:
    """The dotted name that an expression spells, or "" where it spells none."""
    if isinstance(node, ast.Attribute):
        inner = name_of(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""


def imported(node: ast.AST) -> set[str]:
    """Every module or name that an import statement brings, dotted."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {f"{node.module}.{alias.name}" for alias in node.names}
    return set()


def prints(node: ast.AST) -> bool:
    doors = {"sys.stdout", "sys.stderr", "rich.print", "typer.echo", "click.echo"}
    called = isinstance(node, ast.Call) and name_of(node.func) == "print"
    return called or name_of(node) in doors or bool(imported(node) & doors)


def starts_a_program(node: ast.AST) -> bool:
    if name_of(node) in {f"os.{verb}" for verb in OS_STARTERS}:
        return True
    return any(name.split(".")[0] in PROGRAM_STARTERS for name in imported(node))


def reads_the_environment(node: ast.AST) -> bool:
    doors = {"os.environ", "os.environb", "os.getenv", "os.getenvb"}
    return name_of(node) in doors or bool(imported(node) & doors)


def touches_the_dispatcher(node: ast.AST) -> bool:
    doors = {"torch.library.Library", "torch.library.custom_op", "torch.library.triton_op"}
    return name_of(node) in doors or bool(imported(node) & doors)


DOORS: dict[str, tuple[Rule, tuple[str, ...], str]] = {
    # kernel/simulated.py passes on what a kernel's own printf says, as the driver does on a GPU
    "only cli prints": (prints, ("cli/", "kernel/simulated.py"), "print('x')"),
    "only process.py starts programs": (starts_a_program, ("process.py",), "import subprocess"),
    "only settings.py reads the environment": (reads_the_environment, ("settings.py",), "os.environ['HOME']"),
    "only operator/register.py touches the dispatcher": (
        touches_the_dispatcher,
        ("operator/register.py",),
        "torch.library.Library('x', 'DEF')",
    ),
}


def breaches(rule: Rule, doors: tuple[str, ...]) -> Iterator[str]:
    for path in MODULES:
        relative = path.relative_to(PACKAGE).as_posix()
        if relative.startswith(doors):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if rule(node):
                yield f"{relative}:{getattr(node, 'lineno', 0)}"


@pytest.mark.parametrize("promise", DOORS)
def test_door(promise: str) -> None:
    rule, doors, _ = DOORS[promise]
    assert list(breaches(rule, doors)) == []


@pytest.mark.parametrize("promise", DOORS)
def test_the_rule_sees_a_line_that_breaks_it(promise: str) -> None:
    rule, _, breach = DOORS[promise]
    assert any(rule(node) for node in ast.walk(ast.parse(breach)))


@pytest.mark.parametrize("promise", DOORS)
def test_the_door_itself_is_used(promise: str) -> None:
    rule, doors, _ = DOORS[promise]
    behind = [path for path in MODULES if path.relative_to(PACKAGE).as_posix().startswith(doors)]
    assert any(
        rule(node) for path in behind for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )


def private_imports(text: str) -> list[str]:
    """What a text takes from dotcu that is not a public name."""
    taken = [name for node in ast.walk(ast.parse(text)) for name in sorted(imported(node))]
    public = {"dotcu", *(f"dotcu.{name}" for name in dotcu.__all__)}
    own = ("dotcu.gallery", "dotcu.errors.")
    return [n for n in taken if n.split(".")[0] == "dotcu" and n not in public and not n.startswith(own)]


USERS = sorted([*(PACKAGE / "gallery").rglob("*.py"), *(ROOT / "examples").rglob("*.py")])


@pytest.mark.parametrize("path", USERS, ids=lambda path: path.relative_to(path.parents[2]).as_posix())
def test_gallery_and_examples_use_public_names_alone(path: Path) -> None:
    assert private_imports(path.read_text(encoding="utf-8")) == []


def test_a_private_import_is_seen() -> None:
    text = (
        "import dotcu\nfrom dotcu import load\nfrom dotcu.kernel.module import Module\nimport dotcu.settings"
    )
    assert private_imports(text) == ["dotcu.kernel.module.Module", "dotcu.settings"]


def imports_at_the_top(tree: ast.Module) -> Iterator[str]:
    """What importing a module imports: not what its functions do, nor what only a type checker sees."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        yield from imported(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and name_of(node.test) == "TYPE_CHECKING":
            continue
        pending.extend(ast.iter_child_nodes(node))


def test_the_compiler_package_imports_without_torch() -> None:
    for path in (PACKAGE / "compile").rglob("*.py"):
        names = imports_at_the_top(ast.parse(path.read_text(encoding="utf-8")))
        assert not any(name.split(".")[0] == "torch" for name in names), path


def test_verbs_import_heavy_packages_only_when_they_run() -> None:
    heavy = {"torch", "numpy"} | {
        f"dotcu.{part}" for part in ("benchmark", "checking", "operator", "kernel", "profiling", "simulator")
    }
    for path in (PACKAGE / "cli").rglob("*.py"):
        names = imports_at_the_top(ast.parse(path.read_text(encoding="utf-8")))
        assert not any(name == part or name.startswith(f"{part}.") for name in names for part in heavy), path


def test_every_module_says_what_it_is_for() -> None:
    silent = [path for path in MODULES if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert silent == []
