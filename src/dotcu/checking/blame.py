"""Where in a user's Python an error comes from: `ops.py:12: ZeroDivisionError: division by zero`."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dotcu.errors import DotcuError

_OURS = Path(__file__).parents[1]
_INSTALLED = tuple(Path(path) for name, path in sysconfig.get_paths().items() if name.endswith("lib"))


@contextmanager
def blaming(kind: type[DotcuError], happened: str, remedy: str) -> Iterator[None]:
    """Turn what a user's code raises into an error of `kind` that says where; an error of dotcu's passes.

    `sys.exit` counts as an error: a file that ends the process has told nothing of its operators.
    """
    try:
        yield
    except DotcuError:
        raise
    except (Exception, SystemExit) as error:
        raise kind(f"{happened}:\n    {located(error)}\n{remedy}") from error


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
    files = [frame for frame in frames if not frame[0].startswith("<") and not _below(frame[0], _OURS)]
    own = [frame for frame in files if not any(_below(frame[0], folder) for folder in _INSTALLED)]
    return own[-1] if own else files[-1] if files else None


def _below(file: str, folder: Path) -> bool:
    return Path(file).is_relative_to(folder)
