"""`dotcu build` to its end: the wheel that pip makes, and what its users get."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pytest

from dotcu import process
from dotcu.cli.main import parser
from dotcu.shipping.wheel import contents
from dotcu.shipping.wheel_check import PROGRAM
from helpers import projects

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> projects.Made:
    """A project, and its wheel in dist."""
    made = projects.make(tmp_path_factory.mktemp("project"), architectures=("8.0", "9.0"))
    run("build", made.root, "--no-isolation")
    return made


def run(*words: object) -> str:
    done = process.run([sys.executable, "-m", "dotcu", *map(str, words)], timeout_s=600)
    assert done.status == 0, done.stderr
    return done.stdout


def wheel(made: projects.Made) -> Path:
    return next((made.root / "dist").glob("*.whl"))


def test_it_is_for_every_python_and_platform(made: projects.Made) -> None:
    assert wheel(made).name == f"{made.name}-0.1-py3-none-any.whl"
    assert [path.name for path in (made.root / "dist").iterdir()] == [wheel(made).name]


def test_it_is_the_same_bit_for_bit_when_it_is_built_again(made: projects.Made) -> None:
    first = wheel(made).read_bytes()
    run("cache", "--clear")
    run("build", made.root, "--no-isolation", "--locked", "--out", "again")
    assert (made.root / "again" / wheel(made).name).read_bytes() == first


def test_sizes_are_those_of_the_file(made: projects.Made) -> None:
    found = contents(wheel(made))
    with zipfile.ZipFile(wheel(made)) as opened:
        packs = [info for info in opened.infolist() if info.filename.endswith(".xz")]
    assert found.size_bytes == wheel(made).stat().st_size < 100_000
    assert abs(sum(found.by_architecture.values()) - sum(info.compress_size for info in packs)) < 8
    assert set(found.by_architecture) == {"sm_80", "sm_90", "compute_80"}
    assert set(found.by_kernel) == {"scale"}


def test_it_runs_in_another_process_without_a_compiler(made: projects.Made, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel(made)) as opened:
        opened.extractall(tmp_path / "site")
    done = process.run(
        [sys.executable, "-c", PROGRAM, made.name],
        timeout_s=300,
        folder=tmp_path,
        environment={
            "PYTHONPATH": str(tmp_path / "site"), "DOTCU_JIT": "0", "DOTCU_NVRTC": str(tmp_path / "none"),
            "DOTCU_CACHE_DIR": str(tmp_path / "cache"),
        },
    )  # fmt: skip
    assert done.status == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["operator"], row["samples"], row["fault"]) == (f"{made.name}::scale", 1, "")


def test_what_pip_cannot_build_is_reported_in_pips_words_and_leaves_nothing(tmp_path: Path) -> None:
    made = projects.make(tmp_path)
    file = made.root / "pyproject.toml"
    file.write_text(file.read_text().replace('version = "0.1"', 'version = "no version"'))
    words = [sys.executable, "-m", "dotcu", "build", str(made.root), "--no-isolation"]
    done = process.run(words, timeout_s=300)
    assert done.status == 3
    assert "pip could not build the wheel" in done.stderr
    assert "no version" in done.stderr
    assert list((made.root / "dist").iterdir()) == []


def test_architectures_may_be_named_one_after_the_other(tmp_path: Path) -> None:
    made = projects.make(tmp_path)
    run("build", made.root, "--no-isolation", "--arch", "8.0", "--arch", "9.0")
    (wheel,) = (made.root / "dist").glob("*.whl")
    assert {"sm_80", "sm_90"} <= contents(wheel).by_architecture.keys()


def test_the_command_is_in_the_help() -> None:
    assert "build" in {command.name for command in parser().registered_commands}
