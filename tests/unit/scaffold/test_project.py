"""A project is planned as a list of files, and refused where it cannot be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dotcu import scaffold
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.scaffold import create, plan_project

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILES = {
    ".clang-format",
    ".github/workflows/test.yml",
    ".gitignore",
    ".pre-commit-config.yaml",
    "Containerfile",
    "Containerfile.gpu",
    "Makefile",
    "README.md",
    "benchmarks/scale_add.py",
    "pyproject.toml",
    "src/my_lib/__init__.py",
    "src/my_lib/ops.py",
    "src/my_lib/py.typed",
    "src/my_lib/scale_add.cu",
    "tests/test_scale_add.py",
    "third_party/README.md",
}


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_files_of_a_project(inside: Path) -> None:
    plan = plan_project("my-lib")
    assert (plan.name, plan.package, plan.folder) == ("my-lib", "my_lib", inside / "my-lib")
    assert set(plan.files) == FILES
    assert list(inside.iterdir()) == []  # a plan writes nothing


def test_what_is_made_is_what_was_planned(tmp_path: Path) -> None:
    plan = plan_project(tmp_path / "my-lib")
    create(plan)
    made = {path.relative_to(plan.folder).as_posix() for path in plan.folder.rglob("*") if path.is_file()}
    assert made == FILES
    assert all((plan.folder / path).read_text() == text for path, text in plan.files.items())
    assert list(tmp_path.iterdir()) == [plan.folder]  # nothing else is left


def test_folders_have_the_permissions_of_any_new_folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    create(plan_project(tmp_path / "mylib"))
    assert (tmp_path / "mylib").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_no_placeholder_is_left(tmp_path: Path) -> None:
    files = plan_project(tmp_path / "mylib").files
    assert [path for path, text in files.items() if re.search("[«»]", path + text)] == []


def test_pyproject_says_what_dotcu_build_needs(tmp_path: Path) -> None:
    said = tomllib.loads(plan_project(tmp_path / "my-lib").files["pyproject.toml"])
    assert said["project"]["name"] == "my-lib"
    assert said["tool"]["dotcu"] == {
        "modules": ["my_lib"],
        "architectures": ["8.0", "8.6", "8.9", "9.0", "10.0", "12.0"],
    }
    assert said["tool"]["hatch"]["build"]["hooks"]["dotcu"] == {}
    assert not any(need.startswith("torch") for need in said["project"]["dependencies"])


@pytest.mark.parametrize("name", ["mylib", "a-lib-whose-name-is-the-longest-that-is"])
def test_what_is_made_is_formatted(name: str, tmp_path: Path) -> None:
    """At a short name and at a long one, since both change where lines break."""
    folder = tmp_path / name
    create(plan_project(folder))
    for words in (["ruff", "check", "."], ["ruff", "format", "--check", "."]):
        done = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


# ------------------------------------------------------------------ what is refused


def test_a_bad_name_is_refused_with_the_line_to_type(inside: Path) -> None:
    with pytest.raises(UsageError, match="named 'json': it would hide") as refused:
        plan_project("json")
    assert str(refused.value).endswith("\nType: dotcu new json_ops")


def test_the_line_to_type_keeps_the_path(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"Type: dotcu new {tmp_path}/my_ops"):
        plan_project(tmp_path / "my ops")


@pytest.mark.parametrize("kind", ["file", "empty folder", "folder", "dangling link"])
def test_what_is_there_already_stays_as_it_is(kind: str, tmp_path: Path) -> None:
    goal = tmp_path / "mylib"
    if kind == "file":
        goal.write_text("mine")
    elif kind == "dangling link":
        goal.symlink_to("nowhere")
    else:
        goal.mkdir()
    if kind == "folder":
        (goal / "mine").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="exists already"):
        plan_project(goal)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_folder_around_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"does not exist.\nMake it first: mkdir -p {tmp_path}/no/where"):
        plan_project(tmp_path / "no" / "where" / "mylib")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is not a folder"):
        plan_project(tmp_path / "file" / "mylib")


def test_no_project_lies_inside_another(tmp_path: Path) -> None:
    create(plan_project(tmp_path / "outer"))
    with pytest.raises(UsageError, match=r"inside the project .*outer.\n.*dotcu new-op NAME"):
        plan_project(tmp_path / "outer" / "src" / "inner")


def test_a_project_may_lie_beside_others_in_a_repository_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    assert plan_project(tmp_path / "mylib").package == "mylib"


def test_a_parent_that_cannot_be_written_is_reported() -> None:
    with pytest.raises(EnvironmentFault, match=r"/proc cannot be written: .*; nothing is left in it"):
        create(plan_project("/proc/mylib"))


# ------------------------------------------------------------------ what is left after a failure


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=repr)
def test_nothing_is_left_where_writing_ends_early(
    failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    write = Path.write_bytes

    def write_some(path: Path, data: bytes) -> int:
        if len(written) == 3:
            raise failure
        written.append(path)
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_some)
    with pytest.raises((KeyboardInterrupt, EnvironmentFault)):
        create(plan_project(tmp_path / "mylib"))
    assert len(written) == 3
    assert list(tmp_path.iterdir()) == []


def test_what_comes_to_be_there_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_project(tmp_path / "mylib")
    write = scaffold._write

    def write_beside_another(folder: Path, files: dict[str, str]) -> None:
        write(folder, files)
        plan.folder.mkdir()
        (plan.folder / "mine").write_text("mine")

    monkeypatch.setattr(scaffold, "_write", write_beside_another)
    with pytest.raises(UsageError, match="exists now"):
        create(plan)
    assert [path.name for path in tmp_path.rglob("*")] == ["mylib", "mine"]
