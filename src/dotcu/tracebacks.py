"""Errors of a user's Python code, located there: `ops.py:12: ZeroDivisionError: division by zero`.

An error that stops a command shows the user's own lines that led to it as well:

    ops.py:3: in <module>
        from shapes import LARGEST
    shapes.py:1: in <module>
        LARGEST = 2**31 / 0
    shapes.py:1: ZeroDivisionError: division by zero
"""

from __future__ import annotations

import dis
import linecache
import logging
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Literal, ParamSpec, TypeVar

from dotcu import settings
from dotcu.errors import DotcuError, EnvironmentFault, UsageError

_OURS = Path(__file__).parent
_INSTALLED = tuple(
    Path(path, "share" if name == "data" else "")
    for name, path in sysconfig.get_paths().items()
    if name.endswith(("lib", "scripts", "data"))
)
_TORCH = tuple(path / "torch" for path in _INSTALLED)
_STANDARD_LIBRARY = Path(traceback.__file__).parent
_P = ParamSpec("_P")
_R = TypeVar("_R")
_FRAMES = 8
"""The number of frames that are shown; of more, as in a recursion, the outermost and innermost half."""


@contextmanager
def as_user_error(kind: type[DotcuError], happened: str, remedy: str) -> Iterator[None]:
    """Turn what a user's code raises into an error of `kind` that shows the traceback; dotcu's own pass.

    `sys.exit` counts as an error: a file that ends the process has defined no operators.

    Args:
        happened: The first line of the message.
        remedy: Its last lines.
    """
    try:
        yield
    except DotcuError:
        raise
    except (Exception, SystemExit) as error:
        shown = "\n".join(f"    {line}".rstrip() for line in user_traceback(error).splitlines())
        debug = settings.current().debug
        raise kind(f"{happened}:\n{shown}\n{remedy}") from (error if debug else None)


def shorten(error: Exception) -> None:
    """Take dotcu's frames out of an error's traceback, with those of torch and Python that they called.

    A public function does this to what it catches, and raises it again: the traceback then leads from one
    of the user's lines to the next. The frames stay under DOTCU_DEBUG=1, and where dotcu itself is at fault.
    """
    if settings.current().debug:
        return
    kept, innermost = _by_owner(error)
    if innermost == "dotcu" and not isinstance(error, DotcuError):
        return
    shown = None
    for step in reversed(kept):
        shown = TracebackType(shown, step.tb_frame, step.tb_lasti, step.tb_lineno)
    error.__traceback__ = shown


def _by_owner(error: BaseException) -> tuple[list[TracebackType], Literal["dotcu", "torch", "user"]]:
    """Return the steps of a traceback that are not dotcu's, and who is at the innermost one.

    Steps of torch and Python are those of the code that called them.
    """
    users: list[TracebackType] = []
    step, inside, of_torch = error.__traceback__, False, False
    while step is not None:
        file = Path(step.tb_frame.f_code.co_filename)
        of_torch = any(map(file.is_relative_to, _TORCH))
        if file.is_relative_to(_OURS) and not file.is_relative_to(_OURS / "gallery"):
            inside = True
        elif not of_torch and file.parent != _STANDARD_LIBRARY:
            inside = False
        if not inside:
            users.append(step)
        step = step.tb_next
    return users, "torch" if of_torch else "dotcu" if inside else "user"


_BUGS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError,
)  # fmt: skip
"""The errors by which Python code is wrong; C++ of torch and the system raise RuntimeError and OSError."""


def own_fault(error: BaseException) -> BaseException | None:
    """Return what of an error and its causes is a bug of dotcu; None if the error is somebody else's.

    A function in C leaves no frame: what a call by `*args` raises, as dotcu calls bodies and references, is
    not dotcu's.
    """
    for link in _causes(error):
        if isinstance(link, DotcuError):
            return None
        if isinstance(link, _BUGS) and _by_owner(link)[1] == "dotcu":
            return None if _passes_on(link) else link
    return None


def _passes_on(error: BaseException) -> bool:
    """Return whether an error came out of a call by `*args` of the innermost frame."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return step is not None and step.tb_frame.f_code.co_code[step.tb_lasti] == dis.opmap["CALL_FUNCTION_EX"]


def with_frames(error: BaseException) -> str:
    """Return an error with the whole traceback, for a report of a bug."""
    return "".join(traceback.format_exception(error)).rstrip()


def shortens_tracebacks(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a public function, whose errors then have short tracebacks."""

    @wraps(function)
    def shortening(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            __tracebackhide__ = True
            shorten(error)
            raise error  # DOTCU_DEBUG=1 shows the frames of dotcu

    return shortening


def user_traceback(error: BaseException) -> str:
    """Return the traceback, shortened to the user's own frames; its last line is `describe`."""
    frames = [
        f"{file_line(file, line)}: in {frame.f_code.co_name}{_code(file, line)}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_user_file(file := frame.f_code.co_filename)
    ]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        frames.append(f"{file_line(error.filename, error.lineno)}:{_code(error.filename, error.lineno)}")
    left_out = len(frames) - _FRAMES
    if left_out > 0:
        frames[_FRAMES // 2 : -_FRAMES // 2] = [f"... {left_out} frames ..."]
    return "\n".join([*frames, describe(error)])


def _code(file: str, line: int) -> str:
    text = linecache.getline(file, line).strip()
    return f"\n    {text}" if text else ""


def describe(error: BaseException) -> str:
    """Return the error in one line or more, behind the user's file and line."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{file_line(error.filename, error.lineno)}: {type(error).__name__}: {error.msg}"
    files = [frame for frame in _frames(error) if _has_file(frame[0])]
    # the last frame in the user's own code; if there is none, the last that has a file, but for torch's
    deepest = [frame for frame in files if is_user_file(frame[0])][-1:] or [
        frame for frame in files[-1:] if not any(map(Path(frame[0]).is_relative_to, _TORCH))
    ]
    return "".join(f"{file_line(*place)}: " for place in deepest) + f"{type(error).__name__}: {error}"


def _frames(error: BaseException) -> list[tuple[str, int]]:
    return [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]


def user_line(error: BaseException) -> str:
    """Return `file:line` of the user's innermost line that raised an error; empty without one."""
    return "".join([file_line(*place) for place in _frames(error) if is_user_file(place[0])][-1:])


def _user_frames(error: BaseException) -> bool:
    return any(is_user_file(file) for file, _ in _frames(error))


def caller_line() -> str:
    """Return `file:line` of the innermost frame on the stack that is in the user's code, or in a notebook.

    Without one, that of the process or thread that `called_from` names.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    for frame, line in traceback.walk_stack(sys._getframe(1)):
        file = frame.f_code.co_filename
        if shell is not None and (cell := shell.compile.format_code_name(file)):
            return f"<cell {cell[1]}>:{line}"
        if is_user_file(file):
            return file_line(file, line)
    return _caller.get()


_caller = ContextVar("_caller", default="")


@contextmanager
def called_from(line: str) -> Iterator[None]:
    """Take a line for that of the user, while a block works for another process or thread."""
    token = _caller.set(line)
    try:
        yield
    finally:
        _caller.reset(token)


def file_line(file: str, line: int | None) -> str:
    """Return `file:line`, the file relative to the working directory where it lies below it."""
    path = Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{line}" if line else str(shown)


def is_user_file(file: str) -> bool:
    """Return whether a frame's file is the user's own: neither dotcu's nor installed."""
    return _has_file(file) and not any(map(Path(file).is_relative_to, _INSTALLED))


def _has_file(file: str) -> bool:
    return not file.startswith("<") and not Path(file).is_relative_to(_OURS)


# ------------------------------- what went wrong inside of torch, in a few lines: its own messages fill pages

MAX_LINES = 5
MAX_COLUMNS = 360

_STACK = re.compile(r"Exception raised from|User Stack|from user code:|Traceback \(most recent call")
"""The text that begins torch's frames."""

_HINTS = (
    "Explanation:", "Hint:", "Developer debug context:", "For more ", "For extended logs", "consider using ",
    "If you suspect ", "For C++ stack trace",
)  # fmt: skip
"""How lines of torch's compiler begin that say nothing of the user's code."""

_LOGGERS = ("torch._subclasses.fake_tensor", "torch._dynamo", "torch.fx.experimental.symbolic_shapes")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep torch from logging what it stumbles over in a trial, until the block ends: the verdict says it."""
    levels = {logger: logger.level for logger in map(logging.getLogger, _LOGGERS)}
    try:
        _set_levels(dict.fromkeys(levels, logging.CRITICAL))
        yield
    finally:
        _set_levels(levels)


def _set_levels(levels: Mapping[logging.Logger, int]) -> None:
    """Set levels of loggers, by one call of `setLevel`: each empties what all loggers remember of levels."""
    for logger, level in levels.items():
        logger.level = level
    logger.setLevel(level)


def brief(error: BaseException) -> str:
    """The first lines of an error, behind the user's file and line, and of what it was first raised from.

    Raises:
        UsageError, EnvironmentFault: It is one, or was raised from one: then no trial can make sense.
    """
    for link in _causes(error):
        if isinstance(link, (UsageError, EnvironmentFault)):
            raise link
    root = root_of(error)
    told, cause = first_lines(error), first_lines(root)
    if error is root or told == cause:
        return told
    return cause if one_line(error) == one_line(root) else f"{told}\ncaused by {cause}"


def root_of(error: BaseException) -> BaseException:
    """Return what an error was first raised from; torch hides what a user's own code raised."""
    last = _causes(error)[-1]
    root: BaseException | None = last
    while root is not None and not _user_frames(root):
        root = root.__context__
    return root or last


def _causes(error: BaseException) -> list[BaseException]:
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    return chain


def first_lines(error: BaseException) -> str:
    """The first lines of an error, behind the user's file and line, each cut to a length."""
    text = _STACK.split(describe(error))[0]
    lines = [
        line.rstrip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(_HINTS)
    ]
    shown = [line if len(line) <= MAX_COLUMNS else f"{line[:MAX_COLUMNS]}..." for line in lines[:MAX_LINES]]
    return "\n".join([*shown, "..."] if len(lines) > MAX_LINES else shown)


def one_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).strip().partition("\n")[0]
