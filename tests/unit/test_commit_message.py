"""The hook that checks a commit's message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[2] / ".ci" / "commit_message.py"


def checked(folder: Path, message: str) -> subprocess.CompletedProcess[str]:
    file = folder / "COMMIT_EDITMSG"
    file.write_text(message)
    return subprocess.run([sys.executable, HOOK, file], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "message",
    [
        "Pass a tensor by its address\n",
        "Address the driver by its name\n\nIts handle changes.\n# Please enter the commit message\n",
        "Merge branch 'x' of a place with a very long name that nobody has shortened before it was merged.\n",
        "Focus on races\n\n    " + "a" * 100 + "\n",
    ],
)
def test_a_message_of_the_form_passes(message: str, tmp_path: Path) -> None:
    done = checked(tmp_path, message)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("", "capital letter"),
        ("add a test\n", "capital letter"),
        ("Add a test.\n", "full stop"),
        ("Added a test\n", 'begins with "Added"'),
        ("Adds a test\n", 'begins with "Adds"'),
        ("Adding a test\n", 'begins with "Adding"'),
        ("Add " + "a" * 69 + "\n", "73 characters; the most are 72"),
        ("Add a test\nfor hooks\n", "second line is empty"),
        ("Add a test\n\n" + "word " * 20 + "\n", "the most are 80"),
    ],
)
def test_what_is_wrong_with_another_is_said(message: str, said: str, tmp_path: Path) -> None:
    done = checked(tmp_path, message)
    assert done.returncode == 1
    assert said in done.stderr
