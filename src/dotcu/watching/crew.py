"""The worker that tries versions, and a spare one that takes over where it ends or does not let go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from dotcu import process
from dotcu.checking.attendant import command, ending
from dotcu.checking.last_words import shortened
from dotcu.watching.events import Broken, Request

MODULE = "dotcu.watching.worker"
_FOREVER_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Said:
    """A line that a worker has written, or how it ended."""

    by: Worker
    words: str | Broken


class Worker:
    """One process. What it says goes to `hear`, from a thread of its own.

    Attributes:
        ended: Whether it was killed, or has ended by itself.
        heard: Whether it has said anything: a process takes seconds to start.
    """

    def __init__(self, hear: Callable[[Said], None]) -> None:
        self._stack = ExitStack()
        self._child = self._stack.enter_context(process.started(command(MODULE)))
        self._hear = hear
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self.ended = self.heard = False
        self._thread.start()

    def ask(self, request: Request) -> None:
        """Have it try a version."""
        self._child.tell(request.to_json())

    def kill(self) -> None:
        """End it, whatever it does."""
        self.ended = True
        self._child.kill()

    def close(self) -> None:
        """End it, and wait until it has."""
        self.kill()
        self._thread.join()

    def _listen(self) -> None:
        with self._stack:
            while (line := self._line()) is not None:
                self._hear(Said(by=self, words=line))
            status, words = self._child.status(), shortened(self._child.last_words())
        reason = f"the process died: {ending(status)}"
        self._hear(Said(by=self, words=Broken(reason=reason, evidence=words)))

    def _line(self) -> str | None:
        while True:
            try:
                return self._child.line(_FOREVER_S)
            except TimeoutError:
                continue


class Crew:
    """One worker at work, and at most one spare."""

    def __init__(self, hear: Callable[[Said], None]) -> None:
        self._hear = hear
        self._spare: Worker | None = None
        self._all = [worker := Worker(hear)]
        self.worker = worker

    def ask(self, request: Request) -> Worker:
        """Have the worker try a version; where it has ended, another one, which is given back."""
        if self.worker.ended:
            self.replace()
        self.worker.ask(request)
        return self.worker

    def replace(self) -> None:
        """Go on with the spare, or with a new one."""
        self.worker.kill()
        self.worker, self._spare = self._spare or self._started(), None

    @property
    def has_spare(self) -> bool:
        """Whether another worker is ready to take over."""
        return self._spare is not None and self._spare.heard

    def prepare(self) -> None:
        """Start a spare, unless there is one: best while nobody waits."""
        self._spare = self._spare or self._started()

    def buried(self, worker: Worker) -> None:
        """Note that a worker has ended."""
        worker.ended = True
        self._all.remove(worker)
        if worker is self._spare:
            self._spare = None

    def close(self) -> None:
        """End all of them."""
        for worker in self._all:
            worker.kill()
        for worker in self._all:
            worker.close()

    def _started(self) -> Worker:
        self._all.append(worker := Worker(self._hear))
        return worker
