"""Worker processes: a function of a module, run in its own process and asked in lines of JSON.

What a kernel destroys there (CUDA's context, the whole process, its own way to an end) ends the worker alone:
the caller gets a crash report. The asking side:

    worker = Worker("package.module:function")
    worker.send(request)                                    # starts the process where none runs
    while (reply := worker.receive(limit_s)) is not None:   # None: the request is finished
        ...

The function in the worker, which finds the modules that the asking process finds:

    def function(request: Any, channel: Channel) -> None:   # the request as `serialize.plain` has it
        with channel.step("a name", limit_s=120):
            channel.reply(value)

What the function raises of dotcu's errors, `receive` raises. What code prints in a worker goes to stderr,
of which a crash report has the end.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import math
import os
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, NoReturn, TypeVar

from dotcu import errors, process, serialize
from dotcu.errors import DotcuError
from dotcu.tracebacks import is_user_file

T = TypeVar("T")
R = TypeVar("R")

RequestHandler = Callable[[Any, "Channel"], None]
"""A function that a worker runs for each request."""


# ------------------------------------------------------------------ the side that asks

_LAST_OUTPUT_S = 20.0
"""A tool that runs a worker prints its summary within this, once the worker has ended."""


class WorkerCrash(Exception):
    """A worker ended, or was ended, before it had finished a request; raised in a worker, it ends it.

    Attributes:
        reason: How it ended, in one line.
        evidence: The end of what it wrote to stderr, without frames of dotcu and of installed packages.
    """

    def __init__(self, reason: str, evidence: str = "") -> None:
        super().__init__(reason)
        self.reason, self.evidence = reason, evidence


class Worker:
    """A worker process, started at the first request, and again at the first one after it has ended.

    Args:
        entry: The function that takes requests: `package.module:function`.
        tool: The words of a command that runs the process: those of `ncu` and its options, for example.
        prelude: Python statements to run before anything is imported.
        on_output: Takes each line on stdout that is not the worker's: what such a tool prints.

    Attributes:
        ready: Whether the process is there and has imported its module, which takes seconds.
        closed: Whether `close` was called.
    """

    def __init__(
        self,
        entry: str,
        *,
        tool: Sequence[str] = (),
        prelude: str = "",
        on_output: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._entry, self._tool, self._prelude = entry, tuple(tool), prelude
        self._on_output = on_output
        self._child: process.Child | None = None
        self._lock = threading.Lock()
        self.ready = self.closed = False

    def start(self) -> process.Child:
        """Start the process, unless it runs."""
        with self._lock:
            if self.closed:
                raise WorkerCrash("the worker was closed")
            if self._child is None:
                self.ready = False
                early = None if self._tool or self._prelude else _early.pop(self._entry, None)
                self._child = early or process.Child((*self._tool, *_command(self._entry, self._prelude)))
            return self._child

    def is_ready(self) -> bool:
        """Return whether the process has imported its module, without waiting for that."""
        if not self.ready and self._child is not None:
            with suppress(TimeoutError):
                self.ready = self._child.read_line(0) is not None
        return self.ready

    def send(self, request: Any) -> None:
        """Ask for something: any value that `serialize` takes."""
        self.start().write_line(serialize.to_json(request))

    def receive(self, timeout_s: float | None = None) -> Any:
        """Return the next reply, None once the request is finished.

        Raises:
            WorkerCrash: The process ended, or no reply came in time and it was killed.
            DotcuError: The request raised it in the worker.
        """
        child = self._child
        if child is None:
            raise WorkerCrash("the worker was closed")
        while True:
            message = self._message(child, timeout_s)
            if "reply" in message:
                return message["reply"]
            if "done" in message:
                return None
            if "raise" in message:
                name, text = message["raise"]
                raise getattr(errors, name, DotcuError)(text)
            if "unusable" in message:
                self.finish(_LAST_OUTPUT_S)
                raise WorkerCrash("the kernel left the GPU unusable", message["unusable"])
            self.ready = True

    def kill(self) -> None:
        """End the process at once, from any thread; `receive` then raises."""
        child = self._child
        if child is not None:
            child.kill()

    def finish(self, timeout_s: float) -> None:
        """Send no more requests, and wait for the process to end by itself: then tools sum up."""
        if self._child is None:
            return
        self._child.close_stdin()
        self.drain(timeout_s)
        self._discard()

    def drain(self, quiet_s: float) -> None:
        """Take what a tool still prints on the last request, until no line comes for some seconds."""
        with suppress(TimeoutError):
            while self._child is not None and (line := self._child.read_line(quiet_s)) is not None:
                self._on_output(line)

    def close(self) -> None:
        """End the process, for good. May be called again."""
        self.closed = True
        self._discard()

    def _discard(self) -> None:
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.end()

    def _message(self, child: process.Child, timeout_s: float | None) -> dict[str, Any]:
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                line = child.read_line(None if timeout_s is None else max(0.0, until - time.monotonic()))
            except TimeoutError:
                child.kill()
                child.status()
                self._crash(child, f"it did not end within {timeout_s:g} s")
            if line is None:
                self._crash(child, f"the process died: {ending(child.status())}")
            if line.startswith("{"):
                message: dict[str, Any] = json.loads(line)
                return message
            self._on_output(line)

    def _crash(self, child: process.Child, reason: str) -> NoReturn:
        evidence = relevant_output(child.stderr_tail())
        self._discard()
        raise WorkerCrash(reason, evidence)


def ending(status: int | None) -> str:
    """Say how a process ended, by its `Child.status`."""
    if status is None:
        return "it closed its output"
    if status >= 0:
        return f"exit status {status}"
    return signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"


def _command(entry: str, prelude: str = "") -> tuple[str, ...]:
    """Return the command that starts a worker, which finds the modules that this process finds.

    `python -m` would search the working directory first, where a file may be called random.py.
    """
    path = f"import sys; sys.path[:] = sys.argv.pop().split({os.pathsep!r})"
    begin = f"{path}\n{prelude}\nfrom dotcu.workers import main; main({entry!r})"
    return (sys.executable, "-u", "-c", begin, os.pathsep.join(sys.path))


_early: dict[str, process.Child] = {}


@contextmanager
def started_early(entry: str) -> Iterator[None]:
    """Start a process for the first `Worker` of an entry; at the end of the block it is killed if unused."""
    _early[entry] = process.Child(_command(entry))
    try:
        yield
    finally:
        child = _early.pop(entry, None)
        if child is not None:
            child.end()


def run_pool(
    workers: Sequence[Worker], tasks: Iterable[T], run: Callable[[Worker, T], Iterator[R]]
) -> Iterator[R]:
    """Yield what several workers make of tasks, in the order in which it comes. Closes them at the end.

    Args:
        workers: Each takes the next task when it has finished one.
        tasks: May be taken from while this runs: a queue, or a generator.
        run: Yields the results of one task; runs in a thread for each worker.

    Raises:
        Exception: What `run` raises.
    """
    outbox: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    source, lock = iter(tasks), threading.Lock()

    def next_task() -> T | None:
        with lock:
            return next(source, None)

    def work(worker: Worker) -> None:
        try:
            while (task := next_task()) is not None and not worker.closed:
                for result in run(worker, task):
                    outbox.put(("result", result))
            outbox.put(("end", None))
        except BaseException as error:  # for the thread that waits
            outbox.put(("error", error))

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield from _arriving(outbox, len(threads))
    finally:
        for worker in workers:
            worker.close()
        for thread in threads:
            thread.join()


def _arriving(outbox: queue.SimpleQueue[tuple[str, Any]], running: int) -> Iterator[Any]:
    while running:
        kind, value = outbox.get()
        if kind == "error":
            raise value
        if kind == "result":
            yield value
        running -= kind == "end"


# ------------------------------------------------------------------ what a worker wrote before its end

_MARK = "-- dotcu: step "
"""The prefix of a line that a worker writes to stderr before each step; text before it is older."""

_FRAME = re.compile(r'  File "[^"]+", line \d+ in ')
_THREAD = re.compile(r"(Current thread|Thread) 0x")
_INNERMOST = 5
"""The frames that are shown of a crash none of whose frames is in the user's code."""


def relevant_output(stderr: str) -> str:
    """Return the lines of the last step; of Python's own report of a crash, the frames in the user's code.

    Where there are none, the innermost frames of the thread that crashed.
    """
    told: list[str] = []
    stacks: list[tuple[str, list[str]]] = [("", [])]
    for line in stderr.splitlines():
        if line.startswith(_MARK):
            told, stacks = [], [("", [])]
        elif _FRAME.match(line):
            stacks[-1][1].append(line)
        elif thread := _THREAD.match(line):
            stacks.append((thread[1], []))
        elif line and not line.startswith("Extension modules: "):
            told.append(line)
    crashed = next((frames for thread, frames in stacks if thread == "Current thread"), stacks[-1][1])
    users = [frame for _, frames in stacks for frame in frames if is_user_file(frame.split('"')[1])]
    return "\n".join([*told, *users, *([] if set(users) & set(crashed) else crashed[:_INNERMOST])])


# ------------------------------------------------------------------ inside a worker

_STACK_S = 2.0
"""The time before its limit at which a step that hangs has its stack written to stderr."""


class Channel:
    """The way back to the process that asked."""

    def __init__(self, answers: IO[str], requests: queue.SimpleQueue[str | None]) -> None:
        self._answers, self._requests = answers, requests

    @property
    def superseded(self) -> bool:
        """True once another request has come."""
        return not self._requests.empty()

    def reply(self, value: Any) -> None:
        """Send a value that `serialize` takes."""
        self.send({"reply": value})

    @contextmanager
    def step(self, name: str, limit_s: float) -> Iterator[None]:
        """Mark a step and the seconds that the parent allows it: a crash report shows the last one."""
        os.write(2, f"{_MARK}{name}\n".encode())
        faulthandler.dump_traceback_later(limit_s - _STACK_S)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message of the protocol."""
        self._answers.write(serialize.to_json(message) + "\n")
        self._answers.flush()


def main(entry: str) -> None:
    """Import a module and have its function take requests, a line each, until stdin ends."""
    with process.collecting_rarely():
        _serve(entry)


def _serve(entry: str) -> None:
    source, answers = _take_standard_streams()
    module, _, name = entry.partition(":")
    handler: RequestHandler = getattr(importlib.import_module(module), name)
    faulthandler.enable()
    requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    busy = threading.Event()
    channel = Channel(answers, requests)

    def listen() -> None:
        for line in source:
            requests.put(line)
        requests.put(None)
        if busy.is_set():  # the asking process is gone, and the current request is dropped
            os._exit(1)

    channel.send({"ready": True})
    threading.Thread(target=listen, daemon=True).start()
    while (line := requests.get()) is not None:
        busy.set()
        try:
            handler(json.loads(line), channel)
            channel.send({"done": True})
        except DotcuError as error:
            channel.send({"raise": [type(error).__name__, str(error)]})
        except WorkerCrash as error:
            channel.send({"unusable": str(error)})
            os._exit(1)  # what tears CUDA down may hang or crash
        busy.clear()


def _take_standard_streams() -> tuple[IO[str], IO[str]]:
    """Keep stdin and stdout for the protocol; other code reads nothing, and writes to stderr."""
    kept_in, kept_out = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    return os.fdopen(kept_in, "r", encoding="utf-8"), os.fdopen(kept_out, "w", encoding="utf-8")
