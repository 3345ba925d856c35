"""One worker after the other: what each is asked, what it answers, and what its end means."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from dotcu import errors, process
from dotcu.checking.last_words import shortened
from dotcu.checking.outcome import FellShort, Result, Skipped
from dotcu.checking.pieces import MOST_DEATHS, Piece, Pieces
from dotcu.checking.protocol import START_S, limit_s
from dotcu.checking.trial import Trial


def command(worker: str = "dotcu.checking.worker") -> list[str]:
    """The command that starts a worker, which finds the modules that this process finds.

    `python -m` would search the working directory first, where a file may be called random.py.

    Args:
        worker: The module whose `main` it runs.
    """
    path = f"import sys; sys.path[:] = sys.argv.pop().split({os.pathsep!r})"
    begin = f"{path}; from {worker} import main; main()"
    return [sys.executable, "-u", "-c", begin, os.pathsep.join(sys.path)]


@dataclass(frozen=True, kw_only=True)
class Death:
    """How a worker ended."""

    reason: str
    evidence: str


class Attendant:
    """Has pieces of work done by a worker, and by a new one after each that ends."""

    def __init__(self, work: Pieces) -> None:
        self._work = work
        self._child: process.Child | None = None
        self._stack = ExitStack()

    def results(self) -> Iterator[Result]:
        """The results of pieces, until none is left.

        Raises:
            UsageError, EnvironmentFault, OperatorError: A worker says that no trial can make sense.
        """
        with self._stack:
            for piece in self._work:
                yield from self.do(piece)

    def close(self) -> None:
        """End the worker, which is waiting for work."""
        self._child = None
        self._stack.close()

    def kill(self) -> None:
        """End what is under way, from another thread."""
        child = self._child
        if child is not None:
            child.kill()

    def do(self, piece: Piece) -> Iterator[Result]:
        """The results of one piece. The worker then waits for another, until `close`."""
        waiting = dict(piece.trials)
        while waiting and not self._work.stopped:
            if self._work.given_up(piece.request.overload):
                yield from _said_of(waiting, f"other trials of it ended their process {MOST_DEATHS} times")
                return
            yield from self._ask(piece, waiting)

    def _ask(self, piece: Piece, waiting: dict[str, Trial]) -> Iterator[Result]:
        """Ask for what is waiting, and take out of it what was begun."""
        child = self._child = self._child or self._stack.enter_context(process.started(command()))
        child.tell(replace(piece.request, trials=tuple(waiting)).to_json())
        trial, fell, start = None, False, time.perf_counter()
        while isinstance(answer := _answer(child, trial), dict):
            if "begin" in answer:
                trial, fell, start = piece.trials[answer["begin"]], False, time.perf_counter()
                waiting.pop(trial.name, None)
            elif "result" in answer:
                result = Result.from_json(answer["result"])
                fell = fell or isinstance(result.outcome, FellShort)
                yield result
            elif "end" in answer:
                trial = None
            else:
                yield from _done(answer, waiting)
                return
        self._bury(piece.request.overload)
        if not fell and not self._work.stopped:
            trial = trial or waiting.pop(next(iter(waiting)))  # it died over the plan, or between two trials
            outcome = FellShort(reason=answer.reason, evidence=answer.evidence)
            yield _result(trial, trial.checks[0], outcome, time.perf_counter() - start)

    def _bury(self, overload: str) -> None:
        self.close()
        self._work.died(overload)


def _answer(child: process.Child, trial: Trial | None) -> dict[str, Any] | Death:
    """What a worker says next, or how it ended."""
    limit = START_S if trial is None else limit_s(trial.kind)
    try:
        line = child.line(limit)
    except TimeoutError:
        child.kill()
        child.status()
        return Death(reason=f"it did not end within {limit:g} s", evidence=shortened(child.last_words()))
    if line is None:
        reason = f"the process died: {ending(child.status())}"
        return Death(reason=reason, evidence=shortened(child.last_words()))
    answer: dict[str, Any] = json.loads(line)
    if "unusable" in answer:
        return Death(reason="the kernel left the GPU unusable", evidence=answer["unusable"])
    return answer


def ending(status: int | None) -> str:
    """How a process ended, by what `Child.status` says, in words."""
    if status is None:
        return "it closed its output"
    if status >= 0:
        return f"exit status {status}"
    return signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"


def _done(answer: dict[str, Any], waiting: dict[str, Trial]) -> Iterator[Result]:
    """What the last answer to a request means for what was not begun."""
    if "raise" in answer:
        name, message = answer["raise"]
        kind = getattr(errors, name, errors.DotcuError)
        raise kind(message)
    yield from _said_of(
        waiting, "another process plans no such trial: samples must be the same whenever torch's seed is"
    )
    waiting.clear()


def _said_of(trials: Mapping[str, Trial], why: str) -> Iterator[Result]:
    """Why trials were not tried."""
    for trial in trials.values():
        yield from (_result(trial, check, Skipped(why=why)) for check in trial.checks)


def _result(trial: Trial, check: str, outcome: FellShort | Skipped, seconds: float = 0.0) -> Result:
    return Result(overload=trial.overload, check=check, trial=trial.name, outcome=outcome, seconds=seconds)
