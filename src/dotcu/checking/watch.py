"""A worker under one of compute-sanitizer's tools, and what the tool prints while it makes each call."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dotcu import process
from dotcu.checking.attendant import command
from dotcu.checking.outcome import FellShort, Held, Outcome, Result, Skipped
from dotcu.checking.protocol import Request
from dotcu.checking.records import PREFIX, Record, parse, trouble

LIMIT_S = 150.0
"""Of a tool, for all overloads."""

SETTLE_S = 0.5
"""A tool is a process of its own: what it has to say of a call comes within this, once the call is done."""

MOST_STARTS = 3
"""A call may end the worker: then the tool starts again, for the calls that are left."""

ENDING_S = 20.0
"""A tool ends within this once its program has nothing to do."""

FIRST_PORT, PORTS = 49152, 20
"""Of a tool's way to its program: no two tools may have the same."""


@dataclass
class Heard:
    """What was heard of one overload's call.

    Attributes:
        lines: Of the tool, while the call was made.
        late: What came after that, and is probably of it.
        kernels: What the call launched.
        called: Whether the call was made, to its end.
        failure: Why there was none, or none to its end.
    """

    lines: list[str] = field(default_factory=list)
    late: list[Record] = field(default_factory=list)
    kernels: set[str] = field(default_factory=set)
    called: bool = False
    failure: str = ""


class Watch:
    """One tool.

    Args:
        number: Of the tools that run at the same time.
    """

    def __init__(self, tool: str, options: Sequence[str], path: Path, number: int) -> None:
        self.tool = tool
        # torch reads this; `env` sets it, since dotcu's own environment is none of its business.
        self._command = [
            "env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1", str(path), "--tool", tool, *options,
            "--port", str(FIRST_PORT + number * PORTS), "--launch-timeout", str(int(LIMIT_S)),
            "--target-processes", "application-only", "--destroy-on-device-error", "kernel",
            "--show-backtrace", "device", "--print-limit", "10000",
        ]  # fmt: skip
        self._child: process.Child | None = None
        self._killed = False
        self._late: list[str] = []

    def kill(self) -> None:
        """End it, from another thread."""
        self._killed = True
        if self._child is not None:
            self._child.kill()

    def outcomes(self, requests: Sequence[Request]) -> Iterator[tuple[str, Outcome]]:
        """What the tool says of each overload."""
        heard = {request.overload: Heard() for request in requests}
        left, until = list(requests), time.monotonic() + LIMIT_S
        for _ in range(MOST_STARTS):
            if left and not self._killed and time.monotonic() < until:
                self._run(left, heard, until)
        for request in left:
            heard[request.overload].failure = f"{self.tool} did not get to it in {LIMIT_S:g} s"
        self._spread(heard)
        for name, each in heard.items():
            yield name, self._outcome(each)

    def _run(self, left: list[Request], heard: Mapping[str, Heard], until: float) -> None:
        """Start the tool, and have it make the calls that are left; what was tried is left no more."""
        with process.started([*self._command, *command()]) as child:
            self._child = child
            alive = True
            while left and alive and time.monotonic() < until:
                request = left.pop(0)
                child.tell(replace(request, bare=True).to_json())
                alive = self._hear(child, heard[request.overload], until)
            child.hush()  # then a tool sums up what it found
            if alive:
                self._late += _rest(child)

    def _hear(self, child: process.Child, own: Heard, until: float) -> bool:
        """Listen to one call. Whether there can be another."""
        done = False
        while True:
            try:
                line = child.line(SETTLE_S if done else max(0.0, until - time.monotonic()))
            except TimeoutError:
                own.failure = own.failure or ("" if done else f"{self.tool} took more than {LIMIT_S:g} s")
                return done
            if line is None:
                own.failure = own.failure or f"{self.tool} ended: {child.last_words().rpartition(chr(10))[2]}"
                return False
            if line.startswith(PREFIX):
                own.lines.append(line)
            elif line.startswith("{"):
                done = _note(json.loads(line), own) or done

    def _spread(self, heard: Mapping[str, Heard]) -> None:
        """Give what came too late to those whose kernel it names, or to all where it names none."""
        for record in parse(self._late):
            named = [each for each in heard.values() if any(name in str(record) for name in each.kernels)]
            for each in named or heard.values():
                each.late.append(record)

    def _outcome(self, own: Heard) -> Outcome:
        records = parse(own.lines) + own.late
        wrong = [record for record in records if not record.is_warning]
        if wrong:
            count = f", and {len(wrong) - 1} more such reports" if len(wrong) > 1 else ""
            return FellShort(reason=f"{self.tool}: {wrong[0].headline}{count}", evidence=str(wrong[0]))
        failure = trouble(own.lines) or own.failure
        if failure or not own.called:
            return Skipped(why=failure or "no sample without empty tensors")
        return Held(note="; ".join(record.headline for record in records))


def _note(answer: dict[str, Any], own: Heard) -> bool:
    """Note what a worker says of a call; whether it is the last."""
    if "result" in answer:
        outcome = Result.from_json(answer["result"]).outcome
        if isinstance(outcome, FellShort):
            own.failure = f"the call fails: {outcome.reason}: {outcome.evidence}".rstrip(": ")
        elif isinstance(outcome, Held):
            own.kernels = set(outcome.note.split())
    elif "raise" in answer:
        own.failure = answer["raise"][1]
    elif "unusable" in answer:
        own.failure = own.failure or answer["unusable"]
    own.called = own.called or "end" in answer
    return "done" in answer or "raise" in answer


def _rest(child: process.Child) -> list[str]:
    """What a tool still prints once it has nothing to do."""
    found: list[str] = []
    with suppress(TimeoutError):
        while (line := child.line(ENDING_S)) is not None:
            found += [line] if line.startswith(PREFIX) else []
    return found
