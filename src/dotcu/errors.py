"""Every error that dotcu raises, in one tree.

    DotcuError
    ├── SourceError              the .cu text is at fault
    │   ├── SourceNotFound       no readable file there                     (also OSError)
    │   ├── HostCodeError        host code in a file of kernels
    │   ├── TileCodeError        Tile IR that cannot be read                (also ValueError)
    │   ├── CompileError         the compiler refused it; .diagnostics, .log, .command
    │   └── KernelNotFound       no kernel or variable of that name         (also AttributeError, KeyError)
    ├── ArgumentError            a value does not fit a kernel's parameter  (also TypeError, ValueError)
    ├── LaunchError              a launch was refused or failed             (also RuntimeError)
    │   ├── LaunchConfigError    the configuration breaks a limit           (also ValueError)
    │   ├── TracedLaunchError    a launch that a trace would lose
    │   └── CaptureError         something would have to be loaded while a CUDA graph is captured
    ├── OperatorError            an operator is declared or used wrongly
    │   ├── SchemaError          annotations that make no schema            (also TypeError)
    │   ├── BodyError            a body that breaks its contract            (also TypeError)
    │   ├── DuplicateOperator    the name is taken by another file          (also ValueError)
    │   ├── ReferenceMismatch    reference and body differ in shape or dtype (also ValueError)
    │   └── GradientError        a derivative that does not exist           (also RuntimeError)
    ├── SimulationError          the simulator stopped                      (also RuntimeError)
    │   ├── FindingError         a finding was raised; .finding
    │   └── UnsupportedInstruction   an instruction it does not execute
    ├── NotCovered               a wheel would lack a kernel that a body reaches
    ├── UsageError               a command was used wrongly; exit code 2    (also ValueError)
    └── EnvironmentFault         the machine lacks something; exit code 3   (also RuntimeError)
        ├── ToolchainError       no compiler, or parts that do not fit
        │   └── UnsupportedPlatform  no compiler is published for this platform
        ├── CacheError           the cache cannot be used
        ├── PrebuiltCodeError    the code in a wheel is damaged, or of a later format
        └── JitDisabled          code is not there and DOTCU_JIT=error forbids compiling it

    PerformanceWarning           calls and launches take a slower way, and why (a UserWarning)

Catch `DotcuError` for all of them. Bad input is always a ValueError or a TypeError as
well, so code that knows nothing of dotcu can catch it.

A message has three parts, a line or more each: what happened, with the values; what is
required; what to type next.
"""

from __future__ import annotations

import logging
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3


class PerformanceWarning(UserWarning):
    """Calls and launches take a slower way than they could."""


def quoted(word: object) -> str:
    """Return a path, or a target, as a word of a command to type: in quotes where a shell needs them."""
    return shlex.quote(str(word))


def reason(error: Exception) -> str:
    """Return why something failed, without the number and the path that an OSError's text has."""
    return getattr(error, "strerror", None) or str(error)


_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|\r(?!\n)"
)


def escaped(text: str) -> str:
    """Return text to show, with an escape for each character that could change what is around it.

    These are control characters, by which a name or a source could move the cursor, hide what was printed or
    write on the clipboard, and those that turn the direction of text. Line ends and tabs stay.
    """
    if text.strip(" ").isprintable():  # most are, and some are padding of 100,000 blanks
        return text
    return _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], text)


def _escape_record(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    if _HIDDEN.search(message):
        record.msg, record.args = escaped(message), ()
    return True


logging.getLogger("dotcu").addFilter(_escape_record)


_debugs: list[Callable[[], bool]] = []


def tell_of_debugging(is_on: Callable[[], bool]) -> None:
    """Take from the settings, which stand above, whether errors show Python's own traceback."""
    _debugs.append(is_on)


class DotcuError(Exception):
    """Base of every error that dotcu raises on purpose."""

    exit_code = EXIT_FAILED

    def __str__(self) -> str:
        return escaped(Exception.__str__(self))  # KeyError's own would be a quoted repr

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: the lines of the notebook that led to it, and what it says.

        Under DOTCU_DEBUG=1 they are those of Python's own traceback.
        """
        shell = sys.modules["IPython"].get_ipython()
        if any(is_on() for is_on in _debugs):
            whole = shell.InteractiveTB.structured_traceback(type(self), self, self.__traceback__)
            return [*whole]
        plain = str(getattr(shell, "colors", "")).lower() == "nocolor"
        kind = type(self).__name__
        head = kind if plain else f"\x1b[1;31m{kind}\x1b[0m"
        return [*_notebook_frames(self, shell), f"{head}: {self}"]


_MAGIC = "get_ipython().run_cell_magic("
"""IPython's own line for a cell that begins with %%; the user did not write it."""

_NOT_THE_USERS = ("dotcu", "torch", "IPython", "ipykernel", "os")
"""Packages between the user's lines and the error, of which none is shown; `os` stands for Python's own."""


def _notebook_frames(error: DotcuError, shell: Any) -> Iterator[str]:
    """Yield the lines of the notebook, and of the user's files, that led to an error."""
    import linecache
    import traceback

    files = [sys.modules[name].__file__ for name in _NOT_THE_USERS if name in sys.modules]
    folders = [Path(file).parent for file in files if file]
    for frame, number in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        text = linecache.getline(file, number, frame.f_globals).strip()
        if text.startswith(_MAGIC) or any(Path(file).is_relative_to(folder) for folder in folders):
            continue
        cell = shell.compile.format_code_name(file)
        where = f"{cell[0]} {cell[1]}" if cell else file
        yield f"{where}, line {number}" + (f"\n    {text}" if text else "")


class SourceError(DotcuError):
    """The source text is at fault."""


class SourceNotFound(SourceError, OSError):
    """A source file is missing or cannot be read."""


class HostCodeError(SourceError):
    """A file of kernels holds host code, which the device compiler cannot take."""


class TileCodeError(SourceError, ValueError):
    """The code of a tile kernel cannot be read: it is damaged, or of a version that is not known."""


_WIDTH = 160
"""Characters of a line that are shown; of a longer one, those around the caret."""


def line_window(source: str, column: int) -> tuple[str, int]:
    """Return the shown part of a line, and the column of the caret in it."""
    if len(source) <= _WIDTH:
        return source, column
    start = max(0, min(column - 1 - _WIDTH // 2, len(source) - _WIDTH))
    before, after = "... " if start else "", " ..." if start + _WIDTH < len(source) else ""
    shown = f"{before}{source[start : start + _WIDTH]}{after}"
    return shown, column - start + len(before) if column else 0


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """A message of the compiler.

    Attributes:
        severity: "error", "warning", "remark" or "note".
        file: The user's file, or the name to show for one that is not on disk.
        line: Counted from 1; 0 if the compiler named no line.
        column: Counted from 1; 0 if the compiler gave none.
        source: The line as the user wrote it.
        notes: The lines that the compiler added: the instantiation context, mostly.
    """

    severity: str
    file: str
    line: int
    column: int
    message: str
    source: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        text = [f"{place}: {self.severity}: {self.message}" if place else f"{self.severity}: {self.message}"]
        if self.source:
            source, column = line_window(self.source, self.column)
            text.append(f"    {source}")
            if column:
                # the tabs of the line above are kept, so that the caret stands right
                text.append("    " + re.sub(r"[^\t]", " ", source[: column - 1]) + "^")
        return "\n".join([*text, *(f"  {note}" for note in self.notes)])


class CompileError(SourceError):
    """The compiler refused the source.

    Attributes:
        diagnostics: The compiler's messages, parsed, in its order; user files by their real path.
        log: The compiler's whole output.
        command: The options as a command line that can be pasted.
    """

    def __init__(
        self, message: str, *, diagnostics: Sequence[Diagnostic] = (), log: str = "", command: str = ""
    ) -> None:
        super().__init__(message)
        self.diagnostics = tuple(diagnostics)
        self.log = log
        self.command = command


class KernelNotFound(SourceError, AttributeError, KeyError):
    """A module has no kernel, or no variable, of that name."""


class ArgumentError(DotcuError, TypeError, ValueError):
    """A value does not fit a kernel's parameter."""


class LaunchError(DotcuError, RuntimeError):
    """A launch was refused, or the driver reported that it failed."""


class LaunchConfigError(LaunchError, ValueError):
    """Grid, block, cluster or shared memory break a limit of the kernel or the device."""


class TracedLaunchError(LaunchError):
    """A launch on tensors that are being traced or transformed: it would be lost silently."""


class CaptureError(LaunchError):
    """A kernel would have to be loaded, or a variable written, while a CUDA graph is captured."""


class OperatorError(DotcuError):
    """An operator is declared or used wrongly."""


class SchemaError(OperatorError, TypeError):
    """torch cannot turn the annotations of a body into a schema."""


class BodyError(OperatorError, TypeError):
    """A body broke its contract: it returned no tensor, for example."""


class DuplicateOperator(OperatorError, ValueError):
    """Another module has registered an operator of that name."""


class ReferenceMismatch(OperatorError, ValueError):
    """A reference's result has another shape or dtype than the body's."""


class GradientError(OperatorError, RuntimeError):
    """A derivative was asked for that the operator does not have."""


class SimulationError(DotcuError, RuntimeError):
    """The simulator stopped."""


class FindingError(SimulationError):
    """The simulator found faults in kernels.

    Attributes:
        finding: The first fault: a `Finding` of the simulator, with kind, file, line, block and thread.
        findings: All of them; more than one where a run collects them.
    """

    def __init__(self, *findings: Any) -> None:
        super().__init__("\n".join(map(str, findings)))
        self.finding = findings[0]
        self.findings = findings


class UnsupportedInstruction(SimulationError):
    """The simulator does not execute this instruction; the message has its text and line."""


class NotCovered(DotcuError):
    """A wheel would lack a kernel that a body of its operators reaches."""


class UsageError(DotcuError, ValueError):
    """A command or a function was called with arguments that make no sense together."""

    exit_code = EXIT_USAGE


class EnvironmentFault(DotcuError, RuntimeError):
    """The machine lacks something that is needed.

    Attributes:
        count: The number of them so far, in this process.
    """

    exit_code = EXIT_ENVIRONMENT
    count = 0

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        EnvironmentFault.count += 1


def without_torch(what: str) -> EnvironmentFault:
    """Return the error of what needs torch, where torch is not installed."""
    return EnvironmentFault(
        f"{what} needs torch, which is not installed.\n"
        "dotcu works with any build of torch 2.11 or later; which one is your choice.\n"
        "    pip install torch\n"
        "or, for a machine without a GPU, the smaller build:\n"
        "    pip install torch --index-url https://download.pytorch.org/whl/cpu"
    )


class ToolchainError(EnvironmentFault):
    """A compiler, header or library is missing, or two of them do not fit each other."""


class UnsupportedPlatform(ToolchainError):
    """No CUDA compiler is published for this platform."""


class CacheError(EnvironmentFault):
    """The cache directory cannot be used."""


class PrebuiltCodeError(EnvironmentFault):
    """The compiled code of an installed wheel was changed, or is of the format of a later dotcu."""


class JitDisabled(EnvironmentFault):
    """Compiled code is missing and DOTCU_JIT=error forbids compiling it.

    Attributes:
        key: The key in the cache of what is missing; empty where no cache was asked.
    """

    key: str = ""
