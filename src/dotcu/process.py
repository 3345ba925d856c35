"""The one door to other programs, and how a process of dotcu's own collects garbage."""

from __future__ import annotations

import gc
import math
import os
import queue
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dotcu import settings
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
        if self.command[1:3] == ("-c", _RUN_MODULE):
            return shlex.join((self.command[0], "-m", *self.command[3:]))
        return shlex.join(self.command)


_RUN_MODULE = (
    "import sys; sys.path[:] = filter(None, sys.path); import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def module_command(name: str, python: str | Path = sys.executable) -> tuple[str | Path, ...]:
    """Return the words that run a module as a program: its arguments follow.

    `python -m` would search the working directory first, where a file may be called random.py.
    """
    return python, "-c", _RUN_MODULE, name


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect garbage rarely in a process of dotcu's own, and leave to its end what is there then.

    What torch imports stays. To search it for garbage takes a fifth of the import, and as long at the end.
    Only Triton's library (3.9, which torch 2.15 brings) reports on stderr what is left at the end.
    """
    before = gc.get_threshold()
    gc.set_threshold(100_000, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if "triton._C.libtriton" not in sys.modules:
            gc.freeze()


def find(program: str, folders: Sequence[Path] = ()) -> Path | None:
    """Find a program in `folders`, in order, then on PATH."""
    for path in (*map(str, folders), None):
        executable = shutil.which(program, path=path)
        if executable:
            return Path(executable)
    return None


def run(
    command: Sequence[str | Path],
    *,
    timeout_s: float = 60.0,
    environment: Mapping[str, str] | None = None,
    folder: str | Path | None = None,
) -> Finished:
    """Run a program to its end and return what it printed; a failing status is not an error here.

    If an interrupt ends the wait, or the time is over, it and all that it has started are killed.

    Raises:
        ToolchainError: The program cannot be started, or did not end within `timeout_s` seconds.
    """
    words, pipe = tuple(str(word) for word in command), subprocess.PIPE
    try:
        program = subprocess.Popen(
            words, stdout=pipe, stderr=pipe, start_new_session=True, text=True, errors="replace",
            env=settings.with_variables(environment or {}), cwd=folder,
        )  # fmt: skip
    except OSError as error:
        raise ToolchainError(f"{words[0]} could not be started: {error.strerror}.") from error
    with program:
        try:
            _running.add(program)
            stdout, stderr = program.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ToolchainError(
                f"{shlex.join(words)} was stopped: it did not end within {timeout_s:g} s."
            ) from error
        finally:
            _running.discard(program)
            if program.returncode is None:
                _kill(program)
    return Finished(command=words, status=program.returncode, stdout=stdout, stderr=stderr)


_running: set[subprocess.Popen[str]] = set()


def kill_running() -> None:
    """Kill what `run` has under way in any thread, after an interrupt of the thread that waits for them."""
    for program in list(_running):
        _kill(program)


def _kill(program: subprocess.Popen[Any]) -> None:
    """Kill a program that leads a process group, and all in that group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, signal.SIGKILL)


def hand_over(command: Sequence[str | Path]) -> int:
    """Run a program on this process's input and output, to its end.

    Returns:
        Its exit status; as shells have it, 128 and the signal where one ended it.

    Raises:
        ToolchainError: It cannot be started.
    """
    words = tuple(str(word) for word in command)
    try:
        status = subprocess.run(words, check=False).returncode
    except OSError as error:
        raise ToolchainError(f"{words[0]} could not be started: {error.strerror}.") from error
    return status if status >= 0 else 128 - status


def supervise(
    command: Sequence[str | Path], variable: str, environment: Mapping[str, str] | None = None
) -> tuple[int, bool]:
    """Run a program on this process's input and output, and tell an end of its own from a crash.

    A signal that would end this process goes to the program, except for an interrupt of the terminal, which
    reaches it anyway.

    Args:
        variable: The environment variable with the descriptor that it gives to `say_end`.

    Returns:
        Its exit status as it said it, whatever code that it runs made of that; else as it was, or minus the
        signal that ended it. And whether it said that it ends, or a signal had asked for that: then the
        status is 128 and that signal, since an end in the midst of anything may be a crash.

    Raises:
        ToolchainError: It cannot be started.
    """
    reader, writer = os.pipe()
    given = settings.with_variables({**(environment or {}), variable: str(writer)})
    words = tuple(str(word) for word in command)

    def start() -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(words, pass_fds=(writer,), env=given)
        except OSError as error:
            raise ToolchainError(f"{words[0]} could not be started: {error.strerror}.") from error
        finally:
            os.close(writer)

    asked: list[int] = []
    with os.fdopen(reader, "rb", buffering=0) as said, _passing_signals_on(start, asked) as child:
        status = child.wait()
        os.set_blocking(reader, False)
        text = said.read() or b""  # None: a program that it has started has the other end
    if text.isdigit():
        return int(text), True
    return (128 + asked[0], True) if asked else (status, False)


@contextmanager
def _passing_signals_on(
    start: Callable[[], subprocess.Popen[bytes]], asked: list[int]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child, and send it the signals that ask this process to end; what is ignored stays ignored.

    Args:
        asked: Gets these signals.
    """
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def send(number: int, frame: object) -> None:
        asked.append(number)
        if number == signal.SIGINT and _is_in_foreground():
            return
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [number for number in ending if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, send) for number in heard}
    try:
        child = start()
        for number in early:
            child.send_signal(number)
        yield child
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_in_foreground() -> bool:
    """Return whether a terminal sends its interrupts to this process and those that it has started."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def adopt_channel(variable: str, descriptor: int) -> None:
    """Keep the descriptor of `supervise` from programs that this one starts, and end when its parent does."""
    settings.keep_from_others(variable)
    os.set_inheritable(descriptor, False)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)


_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG. Source: Linux, include/uapi/linux/prctl.h."""


def say_end(descriptor: int, status: int) -> None:
    """Tell the process that supervises this one that it ends by itself, not by code that it runs."""
    with suppress(OSError):
        os.write(descriptor, str(status & 0xFF).encode())


STDERR_LINES = 40
"""The number of last lines of a child's stderr that are kept."""

_LOOK_S = 0.2
_GOING_S = 10.0


@contextmanager
def started(command: Sequence[str | Path]) -> Iterator[Child]:
    """Start a program to talk with by lines; at the block's end it and all that it started are killed.

    Raises:
        ToolchainError: The program cannot be started.
    """
    child = Child(tuple(str(word) for word in command))
    try:
        yield child
    finally:
        child.end()


class Child:
    """A program under way, in a process group of its own. Its stdin stays open while this program lives."""

    def __init__(self, command: tuple[str, ...]) -> None:
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True,
                encoding="utf-8", errors="replace",
            )  # fmt: skip
        except OSError as error:
            raise ToolchainError(f"{command[0]} could not be started: {error.strerror}.") from error
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._tail: deque[str] = deque(maxlen=STDERR_LINES)
        self._ended = False
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, self._lines.put), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, self._tail.append), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe: IO[str], take: Callable[[str], None]) -> None:
        with suppress(ValueError, OSError):  # closed under this reader
            for line in pipe:
                take(line.rstrip("\n"))
        if pipe is self._process.stdout:
            self._lines.put(None)

    def write_line(self, line: str) -> None:
        """Write a line to its stdin. If it has ended already, `read_line` shows it."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def close_stdin(self) -> None:
        """Close its stdin: it gets no more lines."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.close()

    def read_line(self, timeout_s: float | None = None) -> str | None:
        """Return the next line of its stdout; None once it has ended.

        Raises:
            TimeoutError: None came in time.
        """
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not self._ended:
            dead = self._process.poll() is not None
            try:
                # What it started may hold its stdout open for longer than it lives.
                line = self._lines.get(timeout=max(0.0, min(_LOOK_S, until - time.monotonic())))
                self._ended = line is None
                return line
            except queue.Empty:
                self._ended = dead
            if not dead and time.monotonic() >= until:
                raise TimeoutError(f"no line came within {timeout_s:g} s")
        return None

    def status(self) -> int | None:
        """Return its exit status, or minus the signal that ended it; None if it lives on without a stdout."""
        try:
            return self._process.wait(timeout=_GOING_S)
        except subprocess.TimeoutExpired:
            return None

    def stderr_tail(self) -> str:
        """Return the last lines of its stderr, to the very last once it has ended."""
        self._readers[1].join(timeout=1.0 if self._process.poll() is not None else 0.0)
        return "\n".join(self._tail)

    def kill(self) -> None:
        """Kill it, and all that it has started and that has not left its process group."""
        _kill(self._process)

    def end(self) -> None:
        """Kill it and clear up. May be called again."""
        self.kill()
        with suppress(subprocess.TimeoutExpired):  # the driver may hold on to it for a while
            self._process.wait(timeout=_GOING_S)
        self.close_stdin()
        for reader, pipe in zip(self._readers, (self._process.stdout, self._process.stderr), strict=True):
            reader.join(timeout=1.0)
            if pipe is not None and not reader.is_alive():
                pipe.close()


_LENGTH_BYTES = 8
_CHUNK_BYTES = 1 << 20
_TAIL_BYTES = 1 << 12


class Server:
    """A program under way, in a session of its own, that answers requests one after the other.

    Requests and answers are bytes, each with its length in 8 bytes before it. No thread waits for an answer:
    a signal's handler that raises ends the wait, and a fork meets no lock. The program has to end when its
    stdin does.

    Raises:
        ToolchainError: It cannot be started.
    """

    def __init__(self, command: Sequence[str | Path]) -> None:
        words, pipe = tuple(str(word) for word in command), subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                words, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True, cwd="/"
            )
        except OSError as error:
            raise ToolchainError(f"{words[0]} could not be started: {error.strerror}.") from error
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._pipes = [each for each in pipes if each is not None]
        self._requests, self._answers, self._errors = (each.fileno() for each in self._pipes)
        self._tail = b""
        self._poll = select.poll()
        for source in (self._answers, self._errors):
            self._poll.register(source, select.POLLIN)

    def is_alive(self) -> bool:
        """Return whether it has not ended."""
        return self._process.poll() is None

    def ask(self, request: bytes) -> bytes | None:
        """Return the answer to a request; None if it ended without one.

        After an exception, such as an interrupt, that answer may still come: call `end`.
        """
        left = memoryview(len(request).to_bytes(_LENGTH_BYTES, "little") + request)
        try:
            while left:
                left = left[os.write(self._requests, left) :]
        except BrokenPipeError:
            return None
        return self.read()

    def read(self, timeout_s: float | None = None) -> bytes | None:
        """Return what it writes next, None if it has ended.

        Raises:
            TimeoutError: It wrote nothing for that long.
        """
        head = self._take(_LENGTH_BYTES, timeout_s)
        return None if head is None else self._take(int.from_bytes(head, "little"), timeout_s)

    def _take(self, count: int, timeout_s: float | None) -> bytes | None:
        taken = bytearray()
        while len(taken) < count:
            ready = [source for source, _ in self._poll.poll(None if timeout_s is None else timeout_s * 1e3)]
            if not ready:
                raise TimeoutError(f"nothing came within {timeout_s:g} s")
            if self._errors in ready:
                self._read_errors()
            if self._answers in ready:
                data = os.read(self._answers, min(count - len(taken), _CHUNK_BYTES))
                if not data:
                    return None
                taken += data
        return bytes(taken)

    def _read_errors(self) -> bool:
        """Keep the end of what it wrote to stderr; return whether there may be more."""
        data = os.read(self._errors, _CHUNK_BYTES)
        self._tail = (self._tail + data)[-_TAIL_BYTES:]
        if not data:
            self._poll.unregister(self._errors)
        return bool(data)

    def end(self) -> None:
        """Kill it and clear up."""
        _kill(self._process)
        self.ending()

    def ending(self) -> tuple[int | None, str]:
        """Wait for its end, clear up, and return its `Child.status` and the end of its stderr."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_GOING_S)
        while self._errors in [source for source, _ in self._poll.poll(0)] and self._read_errors():
            pass
        self._close()
        return self._process.returncode, self._tail.decode(errors="replace").strip()

    def forget(self) -> None:
        """Leave it to the process that started it: for a child that this one has forked."""
        self._close()
        self._process.returncode = 0  # nothing to wait for here

    def _close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
