"""What a process wrote to stderr before it died, without what tells a user nothing."""

from __future__ import annotations

import re

from dotcu.checking.blame import _INSTALLED, _OURS, _below

MARK = "-- dotcu: trial "
"""Begins a line that a worker writes before each trial: what stands before it is of earlier ones."""

_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line \d+ in ')
_NOISE = re.compile(r"Extension modules: |(Current thread|Thread) 0x|$")


def shortened(words: str) -> str:
    """The lines of the last trial; of Python's own account of a crash, the frames in the user's code."""
    lines = words.splitlines()
    marks = [number for number, line in enumerate(lines) if line.startswith(MARK)]
    own = lines[marks[-1] + 1 :] if marks else lines
    return "\n".join(line for line in own if not _NOISE.match(line) and not _is_foreign(line))


def _is_foreign(line: str) -> bool:
    frame = _FRAME.match(line)
    if frame is None:
        return False
    file = frame["file"]
    return file.startswith("<") or any(_below(file, folder) for folder in (_OURS, *_INSTALLED))
