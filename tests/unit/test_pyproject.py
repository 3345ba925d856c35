"""The project that a folder is in: the user's own, and no file that another user has put above it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dotcu import pyproject
from dotcu.errors import UsageError

Give = Callable[[Path], None]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder below one whose pyproject.toml names modules to import."""
    (tmp_path / "pyproject.toml").write_text('[tool.dotcu]\nmodules = ["mylib"]\n')
    folder = tmp_path / "mine" / "work"
    folder.mkdir(parents=True)
    return folder


def test_a_project_is_found_from_a_folder_in_it(work: Path) -> None:
    assert pyproject.enclosing(work) == work.parents[1]


def test_a_project_of_another_user_above_is_not_followed(work: Path, of_another_user: Give) -> None:
    planted = work.parents[1] / "pyproject.toml"
    of_another_user(planted)
    assert pyproject.enclosing(work) is None
    with pytest.raises(UsageError, match=f"{planted} belongs to .*\n.*sudo chown -R .* {planted.parent}"):
        pyproject.required(work, "Make one.")
    planted.write_text("broken [")  # nor does it stop anyone's work
    assert pyproject.enclosing(work) is None


def test_a_project_in_a_folder_of_another_user_is_not_followed(work: Path, of_another_user: Give) -> None:
    of_another_user(work.parents[1])
    assert pyproject.enclosing(work) is None


def test_a_link_of_another_user_to_a_file_of_mine_is_not_followed(work: Path, of_another_user: Give) -> None:
    (work / "pyproject.toml").symlink_to(work.parents[1] / "pyproject.toml")
    assert pyproject.enclosing(work) == work
    of_another_user(work / "pyproject.toml")
    assert pyproject.enclosing(work) == work.parents[1]


def test_a_project_above_the_root_of_a_repository_is_another_one(work: Path) -> None:
    (work.parent / ".git").mkdir()
    assert pyproject.enclosing(work) is None


@pytest.mark.parametrize("text", ["broken [", "a = " + "[" * 5000, "a = \udcff"])
def test_a_broken_file_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text, errors="surrogateescape")
    with pytest.raises(UsageError, match=r"pyproject.toml cannot be read"):
        pyproject.section(tmp_path / "pyproject.toml")


def test_a_file_that_is_too_large_is_said_to_be_so_once(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.touch()
    os.truncate(file, 1 << 34)
    with pytest.raises(UsageError) as caught:
        pyproject.section(file)
    told = "It has more than 16,777,216 bytes"
    assert str(caught.value) == f"{file} cannot be read: {told}.\nCorrect it first."
