"""Where Nsight Compute is found."""

from __future__ import annotations

from pathlib import Path

import pytest

import ncu_pages
from dotcu.profiling import tool


@pytest.fixture(autouse=True)
def _nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "INSTALLED", (tmp_path / "opt", tmp_path / "cuda"))
    monkeypatch.setattr(tool, "find_tool", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


def program(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return ncu_pages.program(folder, None)[0]


def with_module(folder: Path) -> Path:
    inside = folder / "extras" / "python"
    inside.mkdir(parents=True)
    (inside / tool.MODULE).write_text("")
    return inside


def test_where_there_is_none_there_is_none() -> None:
    assert tool.find() is None


def test_the_one_on_path_is_taken_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path / "bin")
    monkeypatch.setattr(tool, "find_tool", lambda name: path)
    assert tool.find() == tool.Tool(path=path, module=None, version="2025.3.1.0")


def test_of_those_that_are_installed_the_newest_is_taken(tmp_path: Path) -> None:
    for version in ("2024.10.2", "2025.3.1", "2025.3.0"):
        program(tmp_path / "opt" / version)
    found = tool.find()
    assert found is not None
    assert found.path.parent.name == "2025.3.1"


def test_the_module_lies_beside_the_program(tmp_path: Path) -> None:
    path = program(tmp_path / "opt" / "2025.3.1")
    assert tool.module_of(path) is None
    inside = with_module(path.parent)
    assert tool.module_of(path) == inside
    link = tmp_path / "ncu"
    link.symlink_to(path)
    assert tool.module_of(link) == inside


def test_the_module_of_a_toolkits_program_lies_in_the_toolkit(tmp_path: Path) -> None:
    path = program(tmp_path / "cuda-13.0" / "bin")
    inside = with_module(tmp_path / "cuda-13.0" / "nsight-compute-2025.3.1")
    assert tool.module_of(path) == inside


def test_a_program_without_one_gets_that_of_an_installed_version(tmp_path: Path) -> None:
    inside = with_module(tmp_path / "opt" / "2025.3.1")
    assert tool.module_of(program(tmp_path / "elsewhere")) == inside
