"""`dotcu new` and `dotcu new-op`: what is printed, and that what is made holds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from helpers import forked_scripts


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def test_new_says_what_it_made_and_what_to_type(tmp_path: Path) -> None:
    done = forked_scripts.here("new", "my-lib", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "created my-lib: 16 files, with the package my_lib:"
    assert "    src/my_lib/scale_add.cu" in lines
    assert "    cd my-lib" in lines
    assert "    make test                      # every check as a test; needs no GPU" in lines


def test_new_names_pytest_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytest", None)
    done = forked_scripts.here("new", "mylib", folder=tmp_path)
    assert done.returncode == 0
    assert "    pip install pytest            # not installed here; runs the tests" in done.stdout


def test_new_op_says_what_it_added_and_what_to_type(tmp_path: Path) -> None:
    forked_scripts.here("new", "mylib", folder=tmp_path)
    done = forked_scripts.here("new-op", "clip", folder=tmp_path / "mylib" / "tests")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "added mylib.clip, which computes a + alpha * b until you change it:"
    assert "    src/mylib/__init__.py  (one line added)" in lines
    assert any(line.startswith("    dotcu watch ../src/mylib/clip.py") for line in lines)
    assert any(line.startswith("    make -C .. test") for line in lines)


def test_json(tmp_path: Path) -> None:
    made = json.loads(forked_scripts.here("new", "mylib", "--json", folder=tmp_path).stdout)
    assert made["project"] == {"name": "mylib", "package": "mylib", "folder": str(tmp_path / "mylib")}
    assert "pyproject.toml" in made["files"]
    assert made["next"][0] == "cd mylib"
    added = json.loads(forked_scripts.here("new-op", "clip", "--json", folder=tmp_path / "mylib").stdout)
    assert added["operator"]["name"] == "clip"
    assert added["changed"] == ["src/mylib/__init__.py"]
    assert (tmp_path / "mylib" / added["files"][0]).is_file()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("new", "json"), "Type: dotcu new json_ops"),
        (("new", "two/parts"), "Make it first: mkdir -p "),
        (("new-op", "clip"), "Go to one, or make one: dotcu new NAME"),
    ],
)
def test_a_refusal_is_wrong_usage_and_leaves_nothing(
    words: tuple[str, ...], line: str, tmp_path: Path
) -> None:
    done = forked_scripts.here(*words, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(line)
    assert list(tmp_path.iterdir()) == []


def test_nothing_heavy_is_loaded(tmp_path: Path) -> None:
    script = (
        "import sys; sys.argv = ['dotcu', 'new', 'mylib']\n"
        "from dotcu.cli.main import main\n"
        "try: main()\n"
        "finally: print('\\n', *sorted(sys.modules))"
    )
    done = run(sys.executable, "-c", script, folder=tmp_path)
    assert {"torch", "numpy", "cuda"}.isdisjoint(done.stdout.splitlines()[-1].split())
    assert (tmp_path / "mylib").is_dir()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_alone_lists_the_targets(tmp_path: Path) -> None:
    forked_scripts.here("new", "mylib", folder=tmp_path)
    listed = run("make", folder=tmp_path / "mylib").stdout
    assert [line.split()[1] for line in listed.splitlines()] == [
        "help", "test", "check", "watch", "bench", "lint", "format", "build", "clean",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_project_passes_its_own_checks_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests, lint and checks of a new project with a second operator, by its own Makefile."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    forked_scripts.here("new", "my-lib", folder=tmp_path)
    project = tmp_path / "my-lib"
    forked_scripts.here("new-op", "soft_clip", folder=project)
    python = f"PYTHON={sys.executable}"

    tested = run("make", python, "test", folder=project)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "failed" not in tested.stdout
    assert int(tested.stdout.split(" passed")[0].split()[-1]) > 100

    checked = run("make", python, "check", folder=project)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "passed: 2 overloads" in checked.stdout

    if shutil.which("clang-format"):
        linted = run("make", python, "lint", folder=project)
        assert linted.returncode == 0, linted.stdout + linted.stderr

    benched = run("make", python, "bench", folder=project)
    assert benched.returncode == 0, benched.stdout + benched.stderr
    if not torch.cuda.is_available():
        assert benched.stdout.count("bounds for H200, no measurements") == 2


@pytest.mark.slow
def test_a_wrong_kernel_fails_the_project_s_tests(tmp_path: Path) -> None:
    forked_scripts.here("new", "mylib", folder=tmp_path)
    kernel = tmp_path / "mylib" / "src" / "mylib" / "scale_add.cu"
    kernel.write_text(kernel.read_text().replace("i < n; ++i", "i + 1 < n; ++i"))
    done = run(sys.executable, "-m", "pytest", "-q", folder=tmp_path / "mylib")
    assert done.returncode == 1
    assert "unwritten" in done.stdout
