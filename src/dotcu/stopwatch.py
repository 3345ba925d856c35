"""Time by step: a step reports its beginning and end to a stopwatch; without one it is nearly free."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Literal

Step = Literal[
    "build", "cache", "nvrtc", "compile", "store", "ptx", "bindings", "library", "kernel", "jit", "launch",
    "decode", "simulate",
]  # fmt: skip
"""The steps that are reported. All but `launch` and `simulate` occur once per process, source or kernel."""


class Stopwatch:
    """Time by phase. Phases are disjoint and add up to the whole time.

    Args:
        phase: The first one, to which it returns from every step.
        since: The time when that began, by `time.perf_counter`; by default now.

    Attributes:
        phase: The present one.
        times: The number of times that it has entered each phase.
    """

    def __init__(self, phase: str, since: float | None = None) -> None:
        self.times: Counter[str] = Counter({phase: 1})
        self._seconds: dict[str, float] = {phase: 0.0}
        self.phase = phase
        self._since = time.perf_counter() if since is None else since

    def switch(self, phase: str, at: float | None = None) -> None:
        """Enter another phase, now or at an earlier time."""
        self.times[phase] += phase != self.phase
        self._count(phase, time.perf_counter() if at is None else at)

    @contextmanager
    def within(self, step: str) -> Iterator[None]:
        """Count the block's time as that of a step, without the steps inside of it."""
        before = self.phase
        self.switch(step)
        try:
            yield
        finally:
            self._count(before, time.perf_counter())

    def read(self) -> tuple[dict[str, float], float]:
        """Return the seconds of each phase until now, and the present time."""
        now = time.perf_counter()
        self._count(self.phase, now)
        return dict(self._seconds), now

    def _count(self, phase: str, now: float) -> None:
        self._seconds[self.phase] += now - self._since
        self._seconds.setdefault(phase, 0.0)
        self.phase, self._since = phase, now


_listening: ContextVar[Stopwatch | None] = ContextVar("dotcu_stopwatch", default=None)
_NO_WATCH = nullcontext()


@contextmanager
def listening(watch: Stopwatch) -> Iterator[None]:
    """Report this thread's steps to a stopwatch until the block ends."""
    token = _listening.set(watch)
    try:
        yield
    finally:
        _listening.reset(token)


def during(step: Step) -> AbstractContextManager[None]:
    """Report the block as a step to the stopwatch that listens on this thread, if any."""
    watch = _listening.get()
    return _NO_WATCH if watch is None else watch.within(step)
