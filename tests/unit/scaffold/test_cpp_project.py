"""A project with launchers in C++: its files, its settings, and another operator in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dotcu.cpp import plan, tools
from dotcu.cpp.plan import CppRequest, CppTools, link_words
from dotcu.cpp.tools import HostCompiler
from dotcu.errors import UsageError
from dotcu.scaffold import add, create, plan_operator, plan_project

LONGEST = "a-lib-whose-name-is-the-longest-that-is-"[:39] + "x"
HOST = HostCompiler(words=("c++",), version="", identity="")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    create(plan_project(tmp_path / "mylib", cpp=True))
    return tmp_path / "mylib"


def test_the_files_beside_those_that_every_project_has(tmp_path: Path) -> None:
    plain, cpp = (set(plan_project(tmp_path / "mylib", cpp=each).files) for each in (False, True))
    assert plain - cpp == {"src/mylib/scale_add.cu"}
    assert cpp - plain == {
        "src/mylib/_library.py",
        *(f"src/mylib/csrc/{name}" for name in ("library.cpp", "stable.h", "launch.h")),
        *(f"src/mylib/csrc/scale_add.{suffix}" for suffix in ("cpp", "cu")),
    }


def test_no_placeholder_is_left(tmp_path: Path) -> None:
    files = plan_project(tmp_path / "mylib", cpp=True).files
    assert [path for path, text in files.items() if "«" in path + text or "»" in path + text] == []


def test_there_is_one_library_and_a_fragment_for_each_operator(made: Path) -> None:
    add(plan_operator("soft_clip", made))
    texts = {path.name: path.read_text() for path in (made / "src" / "mylib" / "csrc").iterdir()}
    assert [name for name, text in texts.items() if "STABLE_TORCH_LIBRARY(mylib" in text] == ["library.cpp"]
    fragments = {name for name, text in texts.items() if "STABLE_TORCH_LIBRARY_FRAGMENT(mylib" in text}
    assert fragments == {"scale_add.cpp", "soft_clip.cpp"}
    assert (
        "from mylib.soft_clip import soft_clip as soft_clip"
        in (made / "src" / "mylib" / "__init__.py").read_text()
    )


def test_a_launcher_has_device_guard_current_stream_and_launch_check(made: Path) -> None:
    text = (made / "src" / "mylib" / "csrc" / "scale_add.cu").read_text()
    for word in ("DeviceGuard guard(", "current_stream(out)", "STD_CUDA_KERNEL_LAUNCH_CHECK();"):
        assert word in text


def test_pyproject_names_every_source(made: Path) -> None:
    add(plan_operator("soft_clip", made))
    found = plan.read_project(made)
    assert found is not None
    assert [path.name for path in found.sources] == [
        "library.cpp", "scale_add.cpp", "soft_clip.cpp", "scale_add.cu", "soft_clip.cu",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('sources = ["csrc/*.cc"]', r"'csrc/\*\.cc' of sources in .* matches no file"),
        ('sources = "csrc"', "sources of .* is a list of strings, got 'csrc'"),
        ("sources = []", "names no file"),
        ('source = ["a.cpp"]', "has no 'source'"),
        ('sources = ["/etc/*.conf"]', "matches no file"),
    ],
)
def test_a_table_that_cannot_be_is_reported(tmp_path: Path, lines: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.dotcu.cpp]\n{lines}\n")
    with pytest.raises(UsageError, match=said):
        plan.read_project(tmp_path)


@pytest.mark.parametrize("name", ["mylib", LONGEST])
def test_what_is_made_is_formatted(name: str, tmp_path: Path) -> None:
    """Python and C++, at a short name and at a long one."""
    folder = tmp_path / name
    create(plan_project(folder, cpp=True))
    add(plan_operator(LONGEST.replace("-", "_")[::-1].strip("_"), folder))
    cpp = [str(path) for path in folder.rglob("*") if path.suffix in (".cpp", ".cu", ".h")]
    clang_format = shutil.which("clang-format", path=str(Path(sys.executable).parent)) or "clang-format"
    for words in (
        [sys.executable, "-m", "ruff", "check", "."],
        [sys.executable, "-m", "ruff", "format", "--check", "."],
        [clang_format, "--dry-run", "-Werror", *cpp],
    ):
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_bad_name_is_refused_with_the_line_to_type(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"Type: dotcu new --cpp {tmp_path}/json_ops"):
        plan_project(tmp_path / "json", cpp=True)


def test_load_cpp_takes_the_table_of_a_pyproject_and_what_else_is_asked_for(made: Path) -> None:
    torch = tools.find_torch()
    asked = CppRequest(name="x", sources=(made / "pyproject.toml",), flags=("-DMORE",))
    request = plan.request_of_project(asked, torch)
    assert request.portable
    assert request.flags[-1] == "-DMORE"
    assert {path.name for path in request.sources} == {"library.cpp", "scale_add.cpp", "scale_add.cu"}
    words = link_words(request, CppTools(host=HOST, nvcc=None, torch=torch))
    assert words.index("-lstdc++") < words.index("-ltorch")
    assert not {"-lc10", "-ltorch_cpu", "-ltorch_python"} & set(words)
    (made / "pyproject.toml").write_text("[tool.dotcu]\n")
    with pytest.raises(UsageError, match=r"names no C\+\+ sources"):
        plan.request_of_project(asked, torch)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("c++"), reason="needs c++, which is not on PATH")
def test_its_own_tests_hold_before_anything_is_built(made: Path) -> None:
    add(plan_operator("soft_clip", made))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=made, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
