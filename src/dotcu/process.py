"""The one door to other programs."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dotcu.errors import ToolchainError


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A program that ran: its command, exit status and output."""

    command: tuple[str, ...]
    status: int
    stdout: str
    stderr: str

    @property
    def line(self) -> str:
        """The command as a line that can be pasted into a shell."""
        return shlex.join(self.command)


def find(program: str, folders: Sequence[Path] = ()) -> Path | None:
    """Find a program in `folders`, in order, then on PATH."""
    for folder in folders:
        found = shutil.which(program, path=str(folder))
        if found:
            return Path(found)
    found = shutil.which(program)
    return Path(found) if found else None


def run(command: Sequence[str | Path], *, timeout_s: float = 60.0) -> Finished:
    """Run a program to its end and return what it printed; a failing status is not an error here.

    Raises:
        ToolchainError: The program cannot be started, or did not end within `timeout_s` seconds.
    """
    words = tuple(str(word) for word in command)
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False
        )
    except OSError as error:
        raise ToolchainError(f"{words[0]} could not be started: {error.strerror}.") from error
    except subprocess.TimeoutExpired as error:
        raise ToolchainError(
            f"{shlex.join(words)} was stopped: it did not end within {timeout_s:g} s."
        ) from error
    return Finished(command=words, status=done.returncode, stdout=done.stdout, stderr=done.stderr)
