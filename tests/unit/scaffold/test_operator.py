"""Another operator: new files and one line; or nothing at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dotcu.errors import EnvironmentFault, UsageError
from dotcu.scaffold import add, create, plan_operator, plan_project

INIT = "src/mylib/__init__.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    create(plan_project(tmp_path / "mylib"))
    return tmp_path / "mylib"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_an_operator_is_four_files_and_a_line(project: Path) -> None:
    before = (project / INIT).read_text()
    plan = plan_operator("soft_clip", project)
    add(plan)
    assert list(plan.files) == [
        "src/mylib/soft_clip.cu",
        "src/mylib/soft_clip.py",
        "tests/test_soft_clip.py",
        "benchmarks/soft_clip.py",
    ]
    assert all((project / path).read_text() == text for path, text in plan.files.items())
    assert (project / INIT).read_text() == before + "from mylib.soft_clip import soft_clip as soft_clip\n"
    assert not [path for path in project.iterdir() if path.name.startswith(".soft_clip")]


def test_the_project_is_found_from_any_folder_in_it(project: Path) -> None:
    assert plan_operator("soft_clip", project / "src" / "mylib").folder == project


def test_a_package_beside_pyproject_is_found_too(project: Path) -> None:
    (project / "src" / "mylib").rename(project / "mylib")
    plan = plan_operator("soft_clip", project)
    assert "mylib/soft_clip.cu" in plan.files
    assert list(plan.changed) == ["mylib/__init__.py"]


def test_folders_that_are_gone_are_made_again(project: Path) -> None:
    (project / "benchmarks" / "scale_add.py").unlink()
    (project / "benchmarks").rmdir()
    add(plan_operator("soft_clip", project))
    assert (project / "benchmarks" / "soft_clip.py").is_file()


@pytest.mark.parametrize("name", ["clip", "an_operator_whose_name_is_the_longest_of"])
def test_what_is_made_is_formatted(name: str, project: Path) -> None:
    add(plan_operator(name, project))
    cuda = f"src/mylib/{name}.cu"
    for words in (
        [sys.executable, "-m", "ruff", "check", "."],
        [sys.executable, "-m", "ruff", "format", "--check", "."],
        [Path(sys.executable).with_name("clang-format"), "--dry-run", "-Werror", cuda],
    ):
        done = subprocess.run(words, cwd=project, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("name", ["scale_add", "Scale_Add", "scale-add", "OPS", "py_typed", "ops"])
def test_a_name_that_is_there_or_nearly(name: str, project: Path) -> None:
    if name == "py_typed":
        (project / "src" / "mylib" / "PY_typed").mkdir()
    with pytest.raises(UsageError, match=r"mylib has '.*' already"):
        plan_operator(name, project)


def test_a_name_that_the_package_binds(project: Path) -> None:
    path = project / INIT
    path.write_text(path.read_text() + "\nfrom math import pi as tau, e\nclass Clip: ...\nlimit: int = 3\n")
    for name in ("tau", "e", "clip", "limit"):
        with pytest.raises(UsageError, match=r"mylib has '.*' already"):
            plan_operator(name, project)


@pytest.mark.parametrize("there", ["tests/test_clip.py", "benchmarks/clip.py"])
def test_a_file_that_is_there_is_kept(there: str, project: Path) -> None:
    (project / there).write_text("mine")
    before = contents(project)
    with pytest.raises(UsageError, match=f"{there} exists already"):
        plan_operator("clip", project)
    assert contents(project) == before


def test_a_bad_name_has_the_line_to_type(project: Path) -> None:
    with pytest.raises(UsageError, match=r"named 'x-y': .*\nType: dotcu new-op x_y"):
        plan_operator("x-y", project)


def test_outside_of_a_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    with pytest.raises(UsageError, match=r"is not in a dotcu project.*\n.*dotcu new NAME"):
        plan_operator("clip", tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[tool.dotcu]\n", "names no package"),
        ('[tool.dotcu]\nmodules = ["mylib.ops"]\n', 'modules = \\["NAME"\\]'),
        ('[tool.dotcu]\nmodules = ["gone"]\n', "there is no src/gone/__init__.py"),
        ("[tool.dotcu\n", "cannot be read"),
    ],
)
def test_a_pyproject_that_does_not_say_where(text: str, why: str, project: Path) -> None:
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=why):
        plan_operator("clip", project)


def test_an_init_that_is_no_python(project: Path) -> None:
    (project / INIT).write_text("import (\n")
    with pytest.raises(UsageError, match=r"__init__.py:1 is not valid Python"):
        plan_operator("clip", project)


# ------------------------------------------------------------------ what is left after a failure


def test_nothing_is_left_where_the_last_step_fails(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "benchmarks" / "scale_add.py").unlink()
    (project / "benchmarks").rmdir()
    before, folders = contents(project), sorted(project.rglob("*"))
    plan = plan_operator("clip", project)

    def full(path: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(EnvironmentFault, match="no space left on device; nothing is left"):
        add(plan)
    assert (contents(project), sorted(project.rglob("*"))) == (before, folders)


def test_an_interrupt_between_two_files_leaves_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(project)
    plan = plan_operator("clip", project)
    rename, placed = Path.rename, []

    def rename_two(path: Path, target: Path) -> Path:
        if len(placed) == 2:
            raise KeyboardInterrupt
        placed.append(target)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_two)
    with pytest.raises(KeyboardInterrupt):
        add(plan)
    assert len(placed) == 2
    assert contents(project) == before


def test_a_change_of_init_meanwhile_is_kept(project: Path) -> None:
    plan = plan_operator("clip", project)
    (project / INIT).write_text("mine = 1\n")
    before = contents(project)
    with pytest.raises(UsageError, match="was changed just now"):
        add(plan)
    assert contents(project) == before


def test_a_file_that_comes_to_be_there_meanwhile_is_kept(project: Path) -> None:
    plan = plan_operator("clip", project)
    (project / "tests" / "test_clip.py").write_text("mine")
    before = contents(project)
    with pytest.raises(UsageError, match="exists now"):
        add(plan)
    assert contents(project) == before
