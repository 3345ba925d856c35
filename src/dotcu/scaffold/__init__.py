"""A project, or another operator in one, from templates: «package», «project», «operator» stand for names.

What is planned is written into a folder next to the goal, which is renamed, so that no part is ever missing.
"""

from __future__ import annotations

import ast
import keyword
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from dotcu.errors import EnvironmentFault, UsageError, quoted, reason
from dotcu.files import is_file, is_folder, read_file, read_text
from dotcu.pyproject import FILE, enclosing, required, section

__all__ = ["ScaffoldPlan", "add", "create", "plan_operator", "plan_project"]

_FOLDER = Path(__file__).parent / "template"

_FIRST_OPERATOR = "src/«package»/ops.py"

PROJECT = {
    **{name: name for name in ("pyproject.toml", "README.md", "Makefile")},
    **{name: f".{name}" for name in ("gitignore", "clang-format", "pre-commit-config.yaml")},
    "workflow.yml": ".github/workflows/test.yml",
    **{name: name for name in ("Containerfile", "Containerfile.gpu")},
    "third_party.md": "third_party/README.md",
    "init.py": "src/«package»/__init__.py",
    "py.typed": "src/«package»/py.typed",
}
"""Template -> where it goes in a project, once."""

_TRIED = {"test_operator.py": "tests/test_«operator».py", "benchmark.py": "benchmarks/«operator».py"}
_SOURCES = {f"operator.{kind}": f"src/«package»/«operator».{kind}" for kind in ("cu", "py")}

OPERATOR = _SOURCES | _TRIED
"""Template -> where it goes, once for each operator."""

FIRST_OPERATOR = OPERATOR | {"operator.py": _FIRST_OPERATOR}

# The same with tile kernels, `dotcu new --tile`.
TILE_OPERATOR = {f"tile/{name}": path for name, path in _SOURCES.items()} | _TRIED
TILE_FIRST_OPERATOR = TILE_OPERATOR | {"tile/operator.py": _FIRST_OPERATOR}

# The same with launchers in C++, `dotcu new --cpp`.
_PLAIN_TOO = ("gitignore", "pre-commit-config.yaml", "Containerfile.gpu", "py.typed")
CPP_PROJECT = {
    **{name if name in _PLAIN_TOO else f"cpp/{name}": path for name, path in PROJECT.items()},
    "cpp/library.py": "src/«package»/_library.py",
    **{f"cpp/{name}": f"src/«package»/csrc/{name}" for name in ("library.cpp", "stable.h", "launch.h")},
}

CPP_OPERATOR = {
    **{f"cpp/operator.{kind}": f"src/«package»/csrc/«operator».{kind}" for kind in ("cpp", "cu")},
    "cpp/operator.py": "src/«package»/«operator».py",
    **{f"cpp/{name}": path for name, path in _TRIED.items()},
}
CPP_FIRST_OPERATOR = CPP_OPERATOR | {"cpp/operator.py": _FIRST_OPERATOR}


def filled(table: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {_fill(path, names): _fill(_read(template), names) for template, path in table.items()}


def own_names() -> set[str]:
    """The names that an operator's templates use themselves, so that no operator can have them.

    In C++ and CUDA with host code an operator's name is text, or has more letters.
    """
    names: set[str] = set()
    for template in (*OPERATOR, *TILE_OPERATOR, *CPP_OPERATOR):
        text = _fill(_read(template), {"package": "_", "operator": "_"})
        if template.endswith(".py"):
            names.update(_python_names(text))
        elif template in OPERATOR or template in TILE_OPERATOR:
            names.update(re.findall(r"[A-Za-z_]\w*", re.sub(r"//.*|#include.*", "", text)))
    return (names | {name.removeprefix("test_") for name in names}) - {"_"}  # test_NAME is made, too


def _read(template: str) -> str:
    return read_text(_FOLDER / f"{template}.template")


def _fill(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"«{name}»", value)
    return text


def _python_names(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.FunctionDef):
            yield node.name


# The project that a folder belongs to: its pyproject.toml, and what [tool.dotcu] there says.


def find(folder: Path) -> tuple[Path, Path, bool]:
    """Find the project that a folder belongs to.

    Returns:
        The folder of its pyproject.toml; that of the package with its operators; and whether its launchers
        are C++.
    """
    root = required(folder, "Go to one, or make one: dotcu new NAME")
    table = section(root / FILE) or {}
    modules = table.get("modules")
    names = [each for each in modules if isinstance(each, str)] if isinstance(modules, list) else []
    package = next(filter(str.isidentifier, names), None)  # its own names count among the modules
    if package is None:
        raise UsageError(
            f"modules in [tool.dotcu] of {root / FILE} names no package (got {modules!r}).\n"
            'A new operator is imported by the package, so let it have that: modules = ["NAME"]'
        )
    for sources in ("src", "."):
        if is_file(root / sources / package / "__init__.py"):
            return root, root / sources / package, "cpp" in table
    raise UsageError(
        f"{root / FILE} names the package {package}, and there is no src/{package}/__init__.py or "
        f"{package}/__init__.py next to it.\nCorrect modules in [tool.dotcu], or make that file."
    )


# Plan a project: a folder that is not there yet, and the files in it.


FIRST = "scale_add"
"""The operator that a project begins with."""


@dataclass(frozen=True, kw_only=True)
class ScaffoldPlan:
    """A project to be written, or another operator of one.

    Attributes:
        name: Of the project, as pip knows it; or of the operator, in Python and of its kernel.
        package: The package, as Python imports it.
        folder: The project's.
        files: Paths in that folder that are not there yet, with the texts.
        changed: Paths in that folder that are there, with the texts before and after.
    """

    name: str
    package: str
    folder: Path
    files: Mapping[str, str]
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)


# What a project with tile kernels has more. Its CI and its container have a torch that pins no NVRTC.
_WITH_TILES = {
    ".github/workflows/test.yml": ("--group dev", '--group dev "dotcu[tile]"'),
    "Containerfile": ("--group dev", '--group dev "dotcu[tile]"'),
    "README.md": (
        "make test\n",
        "dotcu doctor               # how to install the compiler of tile kernels\nmake test\n",
    ),
}


def plan_project(place: str | Path, *, cpp: bool = False, tile: bool = False) -> ScaffoldPlan:
    """Plan a project.

    Args:
        place: Its name, or a path whose last part is the name.
        cpp: With launchers in C++, on torch's stable ABI.
        tile: With a tile kernel, of CUDA Tile C++.

    Raises:
        UsageError: It cannot have that name, or that place; or launchers in C++ are to launch tile kernels.
    """
    if cpp and tile:
        raise UsageError(
            "Launchers in C++ launch no tile kernels: --cpp and --tile do not go together.\n"
            "Type: dotcu new --tile NAME"
        )
    folder = Path(os.path.abspath(place))  # noqa: PTH100  (a link stays a link)
    name = folder.name
    _require_place(folder)
    command = f"dotcu new{' --cpp' * cpp}{' --tile' * tile}"
    refusal = project_refusal(name)
    if refusal:
        instead = folder.with_name(suggested(name, "_ops")) if name else "NAME"
        typed = instead if Path(place).is_absolute() else os.path.relpath(instead)
        raise UsageError(f"a project cannot be named {name!r}: {refusal}.\nType: {command} {typed}")
    package = package_of(name)
    table = PROJECT | (TILE_FIRST_OPERATOR if tile else FIRST_OPERATOR)
    if cpp:
        table = CPP_PROJECT | CPP_FIRST_OPERATOR
    files = filled(table, {"project": name, "package": package, "operator": FIRST})
    for path, (plain, more) in _WITH_TILES.items() if tile else ():
        files[path] = files[path].replace(plain, more)
    return ScaffoldPlan(name=name, package=package, folder=folder, files=files)


def _require_place(folder: Path) -> None:
    if os.path.lexists(folder):
        raise UsageError(f"{folder} exists already.\ndotcu new creates a new folder: choose another name.")
    parent = folder.parent
    if not is_folder(parent):
        problem = "is not a folder" if os.path.lexists(parent) else "does not exist"
        raise UsageError(f"{parent} {problem}.\nMake it first: mkdir -p {quoted(parent)}")
    around = enclosing(parent)
    if around is not None:
        raise UsageError(
            f"{folder} would lie inside the project {around}.\n"
            "For another operator in it, type: dotcu new-op NAME\n"
            "For another project, give a path outside of it: dotcu new PATH/NAME"
        )


# Names of projects and operators: which there can be, and why not the others.


LONGEST = 40
"""Characters of a name: then no line of what is made is too long."""

_PROJECT = re.compile(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?", re.ASCII)
_OPERATOR = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NEEDED = _words(
    """
    cuda dotcu ml_dtypes numpy platformdirs pytest rich torch triton typer benchmarks src test tests
    """
)
"""What a project imports, or has itself: a module of that name would hide it."""

_TORCH_NAMESPACES = _words("aten c10d higher_order inductor onednn prim prims profiler quantized")

_MODULE_NAMES = _words(
    """
    compile contents instantiate instantiation kernels missing name options source units variable warm
    """
)
"""The attributes of a dotcu.Module that are not kernels."""

_CPP = _words(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export extern
    false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public register reinterpret_cast requires return short signed
    sizeof static static_assert static_cast struct switch template this thread_local throw true try
    typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
    """
)


_CUDA = _words(
    """
    EOF NULL blockDim blockIdx gridDim threadIdx warpSize size_t ptrdiff_t int8_t int16_t int32_t
    int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t dim3
    """
) | {
    f"{kind}{width}"
    for kind in _words("char uchar short ushort int uint long ulong longlong ulonglong float double")
    for width in (1, 2, 3, 4)
}
"""What a kernel file has without an #include, as variables, types and macros. Functions do no harm."""


def project_refusal(name: str) -> str:
    package = package_of(name)
    if not _PROJECT.fullmatch(name):
        return "it must begin with a letter, end with a letter or digit, and contain only those, - and _"
    if package in _TORCH_NAMESPACES:
        return "torch has operators under that name"
    return _refusal(package)


def operator_refusal(name: str) -> str:
    if not _OPERATOR.fullmatch(name):
        return "it must begin with a letter and contain only letters, digits and _"
    if name in _CPP:
        return "it is a keyword of C++"
    if name in _CUDA:
        return "it means something else in CUDA"
    if name in _MODULE_NAMES or name in own_names():
        return "the operator's own files use that name for something else"
    return _refusal(name)


def _refusal(name: str) -> str:
    if len(name) > LONGEST:
        return f"it has {len(name)} characters, and at most {LONGEST} are allowed"
    if keyword.iskeyword(name):
        return "it is a keyword of Python"
    if name in sys.stdlib_module_names:
        return "it would hide a module of Python's standard library"
    if name in _NEEDED:
        return f"it would hide {name}, which the project needs"
    return ""


def package_of(project: str) -> str:
    """The importable name of a project: `my_lib` for `my-lib`."""
    return project.replace("-", "_")


def alike(name: str) -> str:
    """Return a text that names share if they differ in case, or in - and _, alone."""
    return package_of(name).lower()


def suggested(name: str, ending: str) -> str:
    """A name that can be, near to one that cannot."""
    clean = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    clean = clean if clean[:1].isalpha() else f"my_{clean}".strip("_")
    clean = clean[: LONGEST - len(ending)].strip("_")
    return f"{clean}{ending}" if project_refusal(clean) or operator_refusal(clean) else clean


def create(plan: ScaffoldPlan) -> None:
    """Make a project's folder, by one rename.

    Raises:
        UsageError: Something came to be there in the meantime.
        EnvironmentFault: It cannot be written.
    """
    with _explained(plan.folder.parent), _stage(plan.folder) as stage:
        whole = stage / plan.folder.name
        _write(whole, plan.files)
        _require_free(plan.folder)
        whole.rename(plan.folder)


def add(plan: ScaffoldPlan) -> None:
    """Put an operator's files into its project, and then change those that name it; all or nothing.

    Raises:
        UsageError: A file came to be there, or was changed, in the meantime.
        EnvironmentFault: They cannot be written.
    """
    with _explained(plan.folder), _stage(plan.folder / plan.name) as stage, _undone_on_failure() as created:
        _write(stage / "new", plan.files)
        _write(stage / "changed", {path: after for path, (_, after) in plan.changed.items()})
        for path in plan.files:
            goal = plan.folder / path
            for folder in reversed([folder for folder in goal.parents if not folder.exists()]):
                created.append(folder)  # before, so that an interrupt in between finds it
                folder.mkdir()
            _require_free(goal)
            created.append(goal)
            (stage / "new" / path).rename(goal)
        for path, (before, _) in plan.changed.items():
            goal, staged = plan.folder / path, stage / "changed" / path
            if read_file(goal) != before.encode("utf-8"):
                raise UsageError(f"{goal} was changed just now.\nType the command again.")
            shutil.copymode(goal, staged)
            staged.replace(goal.resolve())  # where it is a link, what that leads to


def _require_free(goal: Path) -> None:
    if os.path.lexists(goal):
        raise UsageError(f"{goal} exists now: another program created it.\nChoose another name.")


@contextmanager
def _stage(goal: Path) -> Iterator[Path]:
    """A folder next to the goal, on the same file system; it is gone after the block."""
    stage = Path(tempfile.mkdtemp(prefix=f".{goal.name}.", dir=goal.parent))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def _undone_on_failure() -> Iterator[list[Path]]:
    """List what the block creates; where that fails or is interrupted, it is removed, last first."""
    created: list[Path] = []
    try:
        yield created
    except BaseException:
        for path in reversed(created):
            with suppress(OSError):
                path.rmdir() if is_folder(path) else path.unlink()
        raise


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(
            f"{folder} cannot be written: {str(error.strerror).lower()}; nothing is left in it.\n"
            "Choose another folder, or change its permissions."
        ) from error


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode("utf-8"))  # line ends as they are


_LINE = 88
"""Characters of a line that any formatter keeps as one."""


def bound(text: str, path: Path) -> set[str]:
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
    """Add to a package's `__init__.py` the line that imports an operator, in its place among the others."""
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
    root, folder, cpp = find(start)
    path, package = folder / "__init__.py", folder.name
    try:
        before = read_file(path).decode("utf-8")  # line ends as they are
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {reason(error)}.\nCorrect it first.") from error
    _require_new(name, folder, bound(before, path))
    refusal = operator_refusal(name)
    if refusal:
        raise UsageError(
            f"an operator cannot be named {name!r}: {refusal}.\nType: dotcu new-op {suggested(name, '_op')}"
        )
    if cpp and tile:
        raise UsageError(
            f"The launchers of {package} are C++, which launches no tile kernels.\nType: dotcu new-op {name}"
        )
    table = CPP_OPERATOR if cpp else TILE_OPERATOR if tile else OPERATOR
    files = filled(table, {"package": package, "operator": name})
    if folder.parent == root:
        files = {each.removeprefix("src/"): text for each, text in files.items()}
    for each in files:
        if os.path.lexists(root / each):
            raise UsageError(f"{root / each} exists already.\nChoose another name, or move it.")
    after = with_import(before, path, package, name)
    changed = {path.relative_to(root).as_posix(): (before, after)}
    return ScaffoldPlan(name=name, package=package, folder=root, files=files, changed=changed)


def _require_new(name: str, package: Path, taken: set[str]) -> None:
    """Refuse a name that the package has, or nearly has: some file systems ignore case."""
    stems = {path.stem for path in package.iterdir() if is_folder(path) or path.suffix in (".py", ".cu")}
    for other in sorted(taken | stems):
        if alike(other) == alike(name):
            near = "" if other == name else ", which differs in case, - or _ alone"
            raise UsageError(
                f"{package.name} has {other!r} already{near}.\n"
                f"Choose another name; its files are in {package}"
            )
