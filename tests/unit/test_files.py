"""One reader takes regular files within a bound; one search for a project's files stays in the project."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dotcu import files, settings
from dotcu.compile import inline_source, toolchain, toolchain_report
from dotcu.errors import SourceNotFound

Give = Callable[[Path], None]


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345678")
    assert files.read_file(file, 8) == b"12345678"
    with pytest.raises(OSError, match="more than 7 bytes"):
        files.read_file(file, 7)


def test_both_ends_of_a_file_are_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345678")
    assert files.read_ends(file, 3) == b"123678"
    assert files.read_ends(file, 6) == b"123456345678"
    with pytest.raises(OSError, match="directory"):
        files.read_ends(tmp_path, 3)


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


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder that may not be read or entered, with a file in it."""
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "file").touch()
    folder.chmod(0)
    if os.access(folder, os.X_OK):
        folder.chmod(0o700)
        pytest.skip("needs a user who is not root, whom nothing is denied")
    yield folder
    folder.chmod(0o700)


def test_in_a_folder_that_may_not_be_entered_there_is_nothing(closed: Path) -> None:
    assert not files.is_file(closed / "file")
    assert not files.is_folder(closed / "file")
    assert files.matching(closed, "nvidia/*") == []
    with pytest.raises(SourceNotFound, match=r"cannot be read: permission denied.\n.*ls -ld"):
        inline_source("", include=[closed])


def test_a_compiler_is_found_beside_folders_that_may_not_be_entered(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for clear in (toolchain._nvrtc, toolchain._compilers):
        clear.cache_clear()
    monkeypatch.setattr(sys, "path", [str(closed), *sys.path])
    with settings.override(cuda_home=closed):
        assert toolchain.nvrtc().path
        assert toolchain_report.report()
