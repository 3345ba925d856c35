"""Where in a user's Python an error comes from: `ops.py:12: ZeroDivisionError: division by zero`.

In an error that stops a command, the way there as well, of which the user's own lines are shown:

    ops.py:3: in <module>
        from shapes import LARGEST
    shapes.py:1: in <module>
        LARGEST = 2**31 / 0
    shapes.py:1: ZeroDivisionError: division by zero
"""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dotcu.errors import DotcuError

_OURS = Path(__file__).parents[1]
_INSTALLED = tuple(Path(path) for name, path in sysconfig.get_paths().items() if name.endswith("lib"))
_FRAMES = 8
"""How many frames are shown; of more, such as a recursion has, the outermost and the innermost half."""


@contextmanager
def blaming(kind: type[DotcuError], happened: str, remedy: str) -> Iterator[None]:
    """Turn what a user's code raises into an error of `kind` that shows the way there; one of dotcu's passes.

    `sys.exit` counts as an error: a file that ends the process has told nothing of its operators.
    """
    try:
        yield
    except DotcuError:
        raise
    except (Exception, SystemExit) as error:
        told = "\n".join(f"    {line}".rstrip() for line in traced(error).splitlines())
        raise kind(f"{happened}:\n{told}\n{remedy}") from error


def traced(error: BaseException) -> str:
    """The traceback, shortened to the user's own frames; `located` is its last line."""
    entries = [
        (at(frame.f_code.co_filename, line), frame.f_code.co_name, _code(frame.f_code.co_filename, line))
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_own(frame.f_code.co_filename)
    ]
    frames = [f"{place}: in {function}{code}" for place, function, code in entries]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        frames.append(f"{at(error.filename, error.lineno)}:{_code(error.filename, error.lineno)}")
    left_out = len(frames) - _FRAMES
    if left_out > 0:
        frames[_FRAMES // 2 : -_FRAMES // 2] = [f"... {left_out} frames ..."]
    return "\n".join([*frames, located(error)])


def _code(file: str, line: int) -> str:
    text = linecache.getline(file, line).strip()
    return f"\n    {text}" if text else ""


def located(error: BaseException) -> str:
    """The error in one line or more, behind the user's file and line."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{at(error.filename, error.lineno)}: {type(error).__name__}: {error.msg}"
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    place = _deepest(frames)
    return (f"{at(*place)}: " if place else "") + f"{type(error).__name__}: {error}"


def at(file: str, line: int | None) -> str:
    """`file:line`, the file as seen from the working directory where it lies below it."""
    path = Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{line}" if line else str(shown)


def _deepest(frames: Iterable[tuple[str, int]]) -> tuple[str, int] | None:
    """The last frame that is in the user's own code; where there is none, the last that has a file."""
    files = [frame for frame in frames if _has_file(frame[0])]
    own = [frame for frame in files if is_own(frame[0])]
    return own[-1] if own else files[-1] if files else None


def is_own(file: str) -> bool:
    """Whether a file is the user's own: neither dotcu's nor installed."""
    return _has_file(file) and not any(_below(file, folder) for folder in _INSTALLED)


def _has_file(file: str) -> bool:
    return not file.startswith("<") and not _below(file, _OURS)


def _below(file: str, folder: Path) -> bool:
    return Path(file).is_relative_to(folder)
