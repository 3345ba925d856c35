"""Rules for the source that no linter checks: who may print, start programs, read the environment or touch
the dispatcher; how docstrings begin; that a class name means one thing; that modules form no circle, and
have their tests where a newcomer looks.

Import directions are import-linter's. Each rule is also shown a line that breaks it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import dotcu

PACKAGE = Path(dotcu.__file__).parent
ROOT = Path(__file__).parents[2]
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PROGRAM_STARTERS = {"subprocess", "pty", "multiprocessing", "pexpect"}
OS_STARTERS = {"system", "popen", "fork", "forkpty", "posix_spawn"} | {
    f"{verb}{how}" for verb in ("exec", "spawn") for how in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")
}

Rule = Callable[[ast.AST], bool]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


WORDS = re.compile(
    r"\b(?:print|stdout|stderr|echo|os|open|fdopen|read_bytes|read_text|environb?|getenvb?|Library|custom_op|triton_op|"
    rf"{'|'.join(PROGRAM_STARTERS)})\b"
)
"""Without one of them a file breaks no rule of `DOORS`."""


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return what names something or imports it: all that a rule looks at."""
    if not WORDS.search(path.read_text(encoding="utf-8")):
        return ()
    kinds = (ast.Attribute, ast.Name, ast.Call, ast.Import, ast.ImportFrom)
    return tuple(node for node in ast.walk(parsed(path)) if isinstance(node, kinds))


def documented(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a module, and the classes and functions in it."""
    yield tree
    for node in getattr(tree, "body", ()):
        if isinstance(node, DOCUMENTED):
            yield from documented(node)


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


READ_DESCRIPTORS = ("workers.py", "compile/nvrtc_server.py", "process.py")
"""They read pipes."""

READ_PARTS = ("compile/sharing.py", "inspection/binary.py")
"""They read what lies somewhere in a large file that `open_regular` has opened."""

MODE = re.compile(r"[rwaxbt+]+")


def reads_without_a_bound(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else name_of(node.func)
    if name in ("open", "fdopen"):
        given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
        texts = [str(each.value) for each in given if isinstance(each, ast.Constant)]
        modes = [text for text in texts if MODE.fullmatch(text)] or ["r"]
        return "r" in modes[0] and name_of(node.func) != "os.open"  # which gives a descriptor
    return isinstance(node.func, ast.Attribute) and name in ("read_bytes", "read_text")


DOORS: dict[str, tuple[Rule, tuple[str, ...], str]] = {
    # kernel/simulated_memory.py passes on what a kernel's own printf says, as the driver does on a GPU
    "only cli prints": (prints, ("cli/", "kernel/simulated_memory.py"), "print('x')"),
    "only process.py starts programs": (starts_a_program, ("process.py",), "import subprocess"),
    "only settings.py reads the environment": (reads_the_environment, ("settings.py",), "os.environ['HOME']"),
    "only operator/register.py touches the dispatcher": (
        touches_the_dispatcher,
        ("operator/register.py",),
        "torch.library.Library('x', 'DEF')",
    ),
    # page.py and writing.py read what dotcu itself brings, by importlib.resources
    "only files.py reads files": (
        reads_without_a_bound,
        (
            "files.py",
            "inspection/page.py",
            "shipping/operator_library/writing.py",
            *READ_DESCRIPTORS,
            *READ_PARTS,
        ),
        "Path('x').open()",
    ),
}


def breaches(rule: Rule, doors: tuple[str, ...]) -> Iterator[str]:
    for path in MODULES:
        relative = path.relative_to(PACKAGE).as_posix()
        if relative.startswith(doors):
            continue
        for node in nodes(path):
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
    assert any(rule(node) for path in behind for node in nodes(path))


def private_imports(text: str) -> list[str]:
    """What a text takes from dotcu that is not a public name."""
    taken = [name for node in ast.walk(ast.parse(text)) for name in sorted(imported(node))]
    public = {"dotcu", *(f"dotcu.{name}" for name in dotcu.__all__)}
    own = ("dotcu.gallery", "dotcu.errors.")
    return [n for n in taken if n.split(".")[0] == "dotcu" and n not in public and not n.startswith(own)]


def test_the_tests_that_the_threat_model_names_are_there() -> None:
    named = re.findall(r"`(tests/[^`]+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


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
        names = imports_at_the_top(parsed(path))
        assert not any(name.split(".")[0] == "torch" for name in names), path


def test_verbs_import_heavy_packages_only_when_they_run() -> None:
    heavy = {"torch", "numpy"} | {
        f"dotcu.{part}" for part in ("benchmark", "checking", "operator", "kernel", "profiling", "simulator")
    }
    for path in (PACKAGE / "cli").rglob("*.py"):
        names = imports_at_the_top(parsed(path))
        assert not any(name == part or name.startswith(f"{part}.") for name in names for part in heavy), path


def test_every_module_says_what_it_is_for() -> None:
    assert [path for path in MODULES if not ast.get_docstring(parsed(path))] == []


QUESTIONS = {"How", "What", "When", "Where", "Whether", "Which", "Who", "Why"}


def begins_with_a_question(node: ast.AST) -> bool:
    """True for a docstring that begins neither with a verb nor with a name for what it documents."""
    text = ast.get_docstring(node) if isinstance(node, DOCUMENTED) else None
    return bool(text) and text.split()[0] in QUESTIONS


def test_a_docstring_begins_with_a_verb_or_names_the_thing() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 1)}"
        for path in MODULES
        for node in documented(parsed(path))
        if begins_with_a_question(node)
    ]
    assert wrong == []
    assert begins_with_a_question(ast.parse('"""What a launch takes."""'))


def lacks_args(node: ast.AST) -> bool:
    """True for a public function of three parameters or more whose docstring does not list them."""
    if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
        return False
    names = {each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    text = ast.get_docstring(node)
    return len(names - {"self", "cls"}) >= 3 and text is not None and "Args:" not in text


def offered() -> set[str]:
    """Return the names that dotcu and its parts offer in `__all__`: types may say all of the others."""
    lists = [
        node.value
        for path in MODULES
        if path.name == "__init__.py"
        for node in parsed(path).body
        if isinstance(node, ast.Assign) and name_of(node.targets[0]) == "__all__"
        if isinstance(node.value, ast.List)
    ]
    return {name for each in lists for name in ast.literal_eval(each)}


def test_a_public_function_of_three_parameters_lists_them() -> None:
    names = offered()
    tops = [
        (path, node) for path in MODULES for node in parsed(path).body if getattr(node, "name", "") in names
    ]
    wrong = [
        f"{path.relative_to(PACKAGE)}:{function.lineno}: {function.name}"
        for path, top in tops
        for function in (top.body if isinstance(top, ast.ClassDef) else [top])
        if lacks_args(function)
    ]
    assert wrong == []
    assert {"load", "Kernel", "check", "Sample"} <= {top.name for _, top in tops}
    (function,) = ast.parse('def f(a, b, c):\n    """Do it."""').body
    assert lacks_args(function)


CIRCLES = {"benchmark": 8}
"""The number of modules of each part that import each other in a circle. It may only shrink."""


def circular(imports: dict[str, set[str]]) -> list[set[str]]:
    """Return the circles of modules, each with all that import each other through others."""
    reached = {module: set(direct) for module, direct in imports.items()}
    for middle in imports:
        for known in reached.values():
            if middle in known:
                known |= reached[middle]
    return [
        {other for other in known if module in reached[other]}
        for module, known in reached.items()
        if module in known and module == min(other for other in known if module in reached[other])
    ]


def test_modules_import_each_other_in_no_circle() -> None:
    grimp = pytest.importorskip("grimp", reason="import-linter's graph has the imports")
    graph = grimp.build_graph("dotcu", exclude_type_checking_imports=False, cache_dir=None)
    modules = graph.modules - {"dotcu"}  # it only fetches the public names when they are used
    circles = circular({each: graph.find_modules_directly_imported_by(each) & modules for each in modules})
    found: Counter[str] = Counter()
    for circle in circles:
        (part,) = {module.split(".")[1] for module in circle}
        found[part] += len(circle)
    assert {part: count for part, count in found.items() if count > CIRCLES.get(part, 0)} == {}
    assert circular({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]


UNTESTED = {
    "checking": 1, "cli": 1, "compile": 4, "profiling": 1, "shipping": 1, "simulator": 17,
    "tile_ir": 1, "tuning": 1,
}  # fmt: skip
"""The number of modules of each part that no test file of their folder names. It may only shrink."""


def names_module(test: Path, module: str) -> bool:
    """Tell whether a test file imports a module, or its docstring has the name of the file."""
    tree = parsed(test)
    if f"{module.rpartition('.')[2]}.py" in (ast.get_docstring(tree) or ""):
        return True
    return any(
        name == module or name.startswith(f"{module}.") for node in ast.walk(tree) for name in imported(node)
    )


def test_a_module_has_its_tests_at_the_mirrored_place() -> None:
    """Covered is `compile/cache.py` by `tests/unit/compile/test_cache.py`, or where a file there names it."""
    untested: dict[str, list[str]] = {}
    for path in MODULES:
        relative = path.relative_to(PACKAGE)
        folder = ROOT / "tests" / "unit" / relative.parent
        if path.name.startswith("__") or relative.parts[0] == "gallery":  # which has tests/gallery
            continue
        module = ".".join(("dotcu", *relative.with_suffix("").parts))
        beside = folder.rglob("test_*.py") if len(relative.parts) > 1 else folder.glob("test_*.py")
        if not (folder / f"test_{path.name}").exists() and not any(
            names_module(test, module) for test in beside
        ):
            untested.setdefault(relative.parts[0], []).append(str(relative))
    assert {part: names for part, names in untested.items() if len(names) > UNTESTED.get(part, 0)} == {}


def test_a_class_name_means_one_thing() -> None:
    classes = [n.name for path in MODULES for n in parsed(path).body if isinstance(n, ast.ClassDef)]
    assert [name for name, count in Counter(classes).items() if count > 1] == []


def test_a_path_in_a_command_to_type_is_quoted() -> None:
    command = re.compile(
        r"(?:\b(?:dotcu (?:check|bench|inspect|profile|watch|cache \w+|\{verb\})|ls(?: -ld?)?|make -C"
        r"|mkdir -p|chown|cd|cat|rm|cuobjdump -sass)|Type: (?:.* )?--(?:save|plot)) \{(?!quoted\()"
    )
    wrong = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in MODULES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if command.search(line)
    ]
    assert wrong == []
