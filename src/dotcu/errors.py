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
        ├── UnsupportedPlatform  no compiler is published for this platform
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
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dotcu.compile.diagnostics import Diagnostic
    from dotcu.simulator.run import Finding

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


class DotcuError(Exception):
    """Base of every error that dotcu raises on purpose."""

    exit_code = EXIT_FAILED

    def __str__(self) -> str:
        return escaped(Exception.__str__(self))  # KeyError's own would be a quoted repr

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: the user's own lines and the message, none of dotcu's lines."""
        shown: list[str] = import_module("dotcu.tracebacks").notebook_lines(self)
        return shown


class SourceError(DotcuError):
    """The source text is at fault."""


class SourceNotFound(SourceError, OSError):
    """A source file is missing or cannot be read."""


class HostCodeError(SourceError):
    """A file of kernels holds host code, which the device compiler cannot take."""


class TileCodeError(SourceError, ValueError):
    """The code of a tile kernel cannot be read: it is damaged, or of a version that is not known."""


class CompileError(SourceError):
    """The compiler refused the source.

    Attributes:
        diagnostics: The compiler's messages, parsed, in its order; user files by their real path.
        log: The compiler's whole output.
        command: The options as a command line that can be pasted.
    """

    def __init__(
        self,
        message: str,
        *,
        diagnostics: Sequence[Diagnostic] = (),
        log: str = "",
        command: str = "",
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
    """The simulator found a fault in a kernel.

    Attributes:
        finding: The fault, with its kind, file, line, block and thread.
    """

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


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
