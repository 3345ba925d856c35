"""The command `dotcu`: builds the parser, and turns errors into a message and an exit code.

Exit codes: 0 passed, 1 what was checked failed, 2 the command was used wrongly, 3 the
environment lacks something. As shells have it, 130 after an interrupt, 143 after SIGTERM, 129
after SIGHUP, and 141 where the reader of a pipe has left.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from dotcu import errors, process, settings
from dotcu.__about__ import __version__
from dotcu.cli import (
    bench,
    build,
    cache,
    check,
    console,
    doctor,
    inspect,
    new,
    profile,
    run,
    sanitize,
    tune,
    watch,
)

Verb = tuple[str, Callable[..., None], str]
"""A command: its word, its function, and what it does."""

_VERBS: tuple[Verb, ...] = (
    ("check", check.command, "Check operators for wrong values, memory errors, races and more."),
    ("sanitize", sanitize.command, "Run a Python script, and report the faults of its kernels."),
    ("bench", bench.command, "Time operators, and compare with the least possible time."),
    ("inspect", inspect.command, "Show kernels' resources and code, or a binary's contents."),
    ("profile", profile.command, "Profile a call: what the GPU does, and where it waits."),
    ("tune", tune.command, "Choose the fastest configurations, and write them into a file."),
    ("watch", watch.command, "Check, time and compare operators at each save."),
    ("new", new.project, "Create a project with one operator that passes its checks."),
    ("new-op", new.operator, "Add an operator to a project: kernel, Python, test, benchmark."),
    ("build", build.command, "Build one wheel for every Python and torch."),
    ("run", run.command, "Compile and run a program: a .cu file with a main."),
    ("doctor", doctor.command, "Report compilers, GPUs, packages, faults and remedies."),
)

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_INTERRUPTED = 130  # 128 + SIGINT
_READER_LEFT = 141  # 128 + SIGPIPE


def main(words: Sequence[str] | None = None, verbs: Sequence[Verb] = _VERBS) -> None:
    """Run the command line, and end the process with its exit code.

    Args:
        words: Those behind `dotcu`; by default this process's own.
        verbs: The commands that there are.
    """
    words = sys.argv[1:] if words is None else words
    console.never_fail_on_letters()
    channel = None
    try:
        with _unwound_by_signals():
            channel = _channel()
            if channel is None and _is_program() and (verb := _verb_with_code(words)):
                sys.exit(_run_apart(verb, words))
            with process.collecting_rarely():
                parser(verbs)([*words], prog_name="dotcu")
    except SystemExit as end:
        _end(end, words)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        console.hang_up()
        sys.exit(_READER_LEFT)
    except Exception as error:
        if _debugging():
            raise
        sys.exit(_explain(error, words))
    finally:
        if channel is not None:
            process.say_end(channel, _status(sys.exc_info()[1]))


def _status(error: BaseException | None) -> int:
    """Return the exit status of a Python that ends with an exception, or without one."""
    code = error.code if isinstance(error, SystemExit) else int(error is not None)
    return code if isinstance(code, int) else int(code is not None)


_CHANNEL = "DOTCU_CHANNEL"


def _channel() -> int | None:
    """Return the descriptor on which this process says that it ends, if it is one of `_run_apart`."""
    text = settings.current().channel
    if text is None:
        return None
    process.adopt_channel(_CHANNEL, int(text))
    return int(text)


def _is_program() -> bool:
    """Return whether this process is the command itself, and not one that calls `main`."""
    file = Path(getattr(sys.modules["__main__"], "__file__", None) or "")
    return file.name == "dotcu" or file.parts[-2:] == ("dotcu", "__main__.py")


def _verb_with_code(words: Sequence[str]) -> str:
    """Return the verb of a command line that runs the user's Python in its process; "" if none does."""
    verb, *others = [word for word in words if not word.startswith("-")] or [""]
    own = (
        words[: words.index(others[0])] if verb == "sanitize" and others else words
    )  # the rest is a script's
    if {"-h", "--help"} & {*own}:
        return ""
    if verb == "inspect":
        suffixes = {Path(word.partition(":")[0]).suffix for word in others}
        runs = ".py" in suffixes or not suffixes & {*inspect.BINARIES, *inspect.COMPILED_HERE}
    else:
        runs = verb in _WITH_CODE or (verb == "cache" and others[:1] in (["plan"], ["pack"]))
    return verb if runs else ""


_WITH_CODE = ("check", "sanitize", "bench", "profile", "tune", "build")


_BEGIN = f"""import sys
sys.path[:] = sys.argv.pop(1).split({os.pathsep!r})
import runpy
runpy.run_module("dotcu", run_name="__main__", alter_sys=True)
"""


def _run_apart(verb: str, words: Sequence[str]) -> int:
    """Run this command in another process, so that code that ends it or crashes is not a command that passed.

    A check is done again after a crash, with each trial in a worker: then the report names the trial.
    """
    # `python -m` would search the working directory first, where a file may be called random.py
    command = [sys.executable, "-c", _BEGIN, os.pathsep.join(sys.path), *words]
    status, has_ended = process.supervise(command, _CHANNEL)
    if has_ended or -status in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        return status if status >= 0 else 128 - status
    if verb != "check":
        return _report_end(
            f"Code that it runs ended `dotcu {verb}` ({_how(status)}) before its work was done.", words
        )
    console.note(
        f"the code that is checked ended the process of the check ({_how(status)}); "
        "the check begins again, with each trial in a process of its own"
    )
    status, has_ended = process.supervise(command, _CHANNEL, {"DOTCU_CHECK_APART": "1"})
    if not has_ended:
        return _report_end(
            f"The code that is checked ended the process of the check again ({_how(status)}): there is no "
            "report.",
            words,
        )
    return status or errors.EXIT_FAILED  # what ended the process once does not pass


def _report_end(what: str, words: Sequence[str]) -> int:
    """Print that code has ended the process that ran it; returns the exit code."""
    message = (
        f"{what}\nRequired: a module and samples that let the process live. Look for os._exit there, or for "
        "the crash: python -X faulthandler FILE"
    )
    _explain_as_json("ProcessEnded", message, words)
    console.print_error(message)
    return errors.EXIT_FAILED


def _how(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"


class _Ended(BaseException):
    """A signal asks this process to end, which is no error of a user's code, nor its sys.exit."""

    status = 0
    is_heard = False


@contextlib.contextmanager
def _unwound_by_signals() -> Iterator[None]:
    """Have signals that ask this process to end raise, so that all is cleared up, and exit by them."""
    heard = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]  # not under nohup
    for number in heard:
        signal.signal(number, _unwind)
    try:
        yield
    except _Ended as asked:
        _Ended.is_heard = True
        sys.exit(asked.status)
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


def _unwind(number: int, frame: FrameType | None) -> NoReturn:
    """End this command as an error does, workers and cursor included; a second signal ends it at once."""
    signal.signal(number, signal.SIG_DFL)
    _Ended.status, _Ended.is_heard = 128 + number, False
    _thread.start_new_thread(_insist, (_thread.get_ident(),))
    raise _Ended


_INSIST_S = 0.5


def _insist(thread: int) -> None:
    """Raise `_Ended` in a thread again where it was lost, as in a callback of Python's or in a library's C.

    Nobody may ask a second time: a service manager waits, and kills in the end.
    """
    import ctypes

    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    while not _Ended.is_heard:
        time.sleep(_INSIST_S)
        found: Any = sys._current_exceptions().get(thread)
        error = found[1] if isinstance(found, tuple) else found  # a tuple before Python 3.12
        while error is not None and not isinstance(error, _Ended):
            error = error.__context__
        if error is None and not _Ended.is_heard:
            raise_in(ctypes.c_ulong(thread), ctypes.py_object(_Ended))


def _end(end: SystemExit, words: Sequence[str]) -> NoReturn:
    """End the process as the parser says; report here an error that the parser has caught."""
    caught = end.__context__
    if isinstance(caught, BrokenPipeError):
        console.hang_up()
        sys.exit(_READER_LEFT)
    message = getattr(caught, "format_message", None)  # the parser's own complaint, now on standard error
    if message is not None:
        _explain_as_json("UsageError", message(), words)
    raise end


def parser(verbs: Sequence[Verb] = _VERBS) -> typer.Typer:
    """Build the parser: the global options, and one command a verb."""
    app = typer.Typer(
        name="dotcu",
        help="From a .cu file to a PyTorch operator.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help, which a pipe takes as well as a terminal
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    for name, command, short_help in verbs:
        context = sanitize.SETTINGS if command is sanitize.command else None
        app.command(name, short_help=short_help, context_settings=context)(command)
    app.add_typer(
        cache.group(), name="cache", short_help="Show, clear, pack or explain the cache of compiled code."
    )
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print_line(f"dotcu {__version__}")
        raise typer.Exit


def _global_options(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show each compile: options, cache hit or miss, time.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("dotcu: %(message)s"))
    logger = logging.getLogger("dotcu")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO if verbose else logging.WARNING)


def _debugging() -> bool:
    try:
        return settings.current().debug
    except errors.UsageError:  # another variable has a value that it does not take
        return False


def _explain(error: Exception, words: Sequence[str]) -> int:
    """Print what went wrong; returns the exit code."""
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        error = errors.without_torch("This command")
    if isinstance(error, OSError) and error.errno in _FULL:
        console.hang_up()
        console.print_error(_full(error))
        return errors.EXIT_ENVIRONMENT
    _explain_as_json(type(error).__name__, str(error), words)
    if isinstance(error, errors.DotcuError):
        console.print_error(str(error))
        return error.exit_code
    console.print_error(
        f"{type(error).__name__}: {error}\n"
        "dotcu did not expect this error. To see where it comes from, run the command again with\n"
        "    DOTCU_DEBUG=1"
    )
    return errors.EXIT_FAILED


_LEAST_FREE_BYTES = 1 << 16


def _full(error: OSError) -> str:
    """Return what to do where a disk is full: that of temporary files, or that of the output."""
    folder = tempfile.gettempdir()
    if shutil.disk_usage(folder).free >= _LEAST_FREE_BYTES:
        return f"{error.filename or 'the output'} could not be written: {error.strerror}."
    return (
        f"{folder}, the folder of temporary files, is full.\n"
        "Make room there, or choose another: export TMPDIR=FOLDER"
    )


def _explain_as_json(kind: str, message: str, words: Sequence[str]) -> None:
    """Print an error as JSON, too, if the command line has `--json`."""
    if "--json" in words:
        with contextlib.suppress(OSError):
            console.as_json({"error": {"type": kind, "message": message}})
