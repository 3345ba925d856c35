"""Programs are found and run; what they print and how they end comes back as a value."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dotcu import process
from dotcu.errors import ToolchainError


def test_a_program_that_ran_gives_status_and_both_outputs() -> None:
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(4)"
    done = process.run([sys.executable, "-c", script])
    assert (done.status, done.stdout, done.stderr) == (4, "out\n", "err\n")


def test_the_command_comes_back_as_a_line_to_paste() -> None:
    done = process.run([sys.executable, "-c", "print('a b')"])
    assert done.line.endswith("""-c 'print('"'"'a b'"'"')'""")


def test_bytes_that_are_no_text_do_not_stop_the_reader() -> None:
    done = process.run([sys.executable, "-c", r"import sys; sys.stdout.buffer.write(b'\xff')"])
    assert done.stdout == "\N{REPLACEMENT CHARACTER}"


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(ToolchainError, match="no-such-program could not be started"):
        process.run(["no-such-program"])


def test_a_program_that_does_not_end_is_stopped_and_named() -> None:
    with pytest.raises(ToolchainError, match=r"did not end within 0\.2 s"):
        process.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.2)


def test_named_folders_are_searched_in_order_and_before_the_path(tmp_path: Path) -> None:
    folders = [tmp_path / "empty", tmp_path / "first", tmp_path / "second"]
    for folder in folders[1:]:
        folder.mkdir()
        (folder / "sh").write_text("")
        (folder / "sh").chmod(0o755)
    assert process.find("sh", folders) == tmp_path / "first" / "sh"
    assert process.find("sh") not in (None, tmp_path / "first" / "sh")


def test_a_program_that_is_nowhere_is_none() -> None:
    assert process.find("no-such-program") is None
