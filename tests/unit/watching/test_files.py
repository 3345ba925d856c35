"""Which files have changed."""

from __future__ import annotations

import os
from pathlib import Path

from dotcu.watching.watcher import changed, look


def test_contents_count_and_times_do_not(tmp_path: Path) -> None:
    kept, edited = tmp_path / "kept.py", tmp_path / "edited.cu"
    kept.write_text("a")
    edited.write_text("a")
    before = look([tmp_path])
    os.utime(kept, (1, 1))
    edited.write_text("b")
    assert changed(before, look([tmp_path])) == [edited]


def test_new_files_and_lost_ones_are_changes(tmp_path: Path) -> None:
    (tmp_path / "lost.py").write_text("a")
    before = look([tmp_path])
    (tmp_path / "lost.py").unlink()
    (tmp_path / "new.cuh").write_text("a")
    (tmp_path / "ops.py~").write_text("a")
    assert [file.name for file in changed(before, look([tmp_path]))] == ["lost.py", "new.cuh"]


def test_a_second_save_within_a_step_of_the_clock_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.cu"
    path.write_text("a")
    before = look([tmp_path])
    status = path.stat()
    path.write_text("b")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert changed(before, look([tmp_path])) == [path]


def test_a_folder_that_is_gone_has_no_files(tmp_path: Path) -> None:
    assert look([tmp_path / "gone"]) == {}
