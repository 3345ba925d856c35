"""One reader takes regular files within a bound; one search for a project's files stays in the project."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dotcu import files

Give = Callable[[Path], None]


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345678")
    assert files.read_file(file, 8) == b"12345678"
    with pytest.raises(OSError, match="more than 7 bytes"):
        files.read_file(file, 7)


def test_ten_gigabytes_of_nothing_are_not_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    os.truncate(file, 10 << 30)
    with pytest.raises(OSError, match="more than"):
        files.read_file(file)


def test_a_file_that_is_longer_than_it_says_is_bounded_too() -> None:
    with pytest.raises(OSError, match="more than 10 bytes"):
        files.read_file("/proc/self/status", 10)  # its size is 0


def test_no_fifo_device_or_folder_is_read_or_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(OSError, match="Not a regular file"):
            files.read_file(path)
    with pytest.raises(IsADirectoryError):
        files.read_file(tmp_path)


def test_a_file_of_another_user_is_not_read_as_mine(tmp_path: Path, of_another_user: Give) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"1")
    assert files.read_file(file, is_mine=True) == b"1"
    of_another_user(file)
    with pytest.raises(PermissionError, match="belongs to"):
        files.read_file(file, is_mine=True)


def test_a_project_ends_at_its_repository_and_at_folders_of_others(
    tmp_path: Path, of_another_user: Give
) -> None:
    inner = tmp_path / "theirs" / "repository" / "src" / "deep"
    inner.mkdir(parents=True)
    assert tmp_path in files.upwards(inner)
    of_another_user(tmp_path / "theirs")
    assert list(files.upwards(inner)) == [inner, inner.parent, inner.parents[1]]
    (inner.parents[1] / ".git").mkdir()
    assert list(files.upwards(inner)) == [inner, inner.parent, inner.parents[1]]
    (inner.parent / ".git").touch()  # as in a submodule or a work tree
    assert list(files.upwards(inner)) == [inner, inner.parent]


def test_a_folder_in_which_any_user_may_put_files_is_in_no_project(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "shared" / "own"
    own.mkdir(parents=True)
    shared.chmod(0o1777)
    assert list(files.upwards(own)) == [own]
