"""Where time goes: steps tell whoever listens when they begin and end; nearly free while nobody does."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Literal

Step = Literal[
    "build", "cache", "nvrtc", "compile", "store", "ptx", "bindings", "library", "kernel", "jit", "launch",
    "replay", "decode", "simulate",
]  # fmt: skip
"""What tells of itself. But for `launch` and `simulate`, a process, a source or a kernel has it once."""


class Stopwatch:
    """Time by phase. It is always in one phase alone, so phases are disjoint and add up to all of its time.

    Args:
        phase: What it begins in, and returns to from every step.
        since: When that began, by `time.perf_counter`; now, where it is left out.

    Attributes:
        phase: What it is in.
        times: How often it has come to each phase.
    """

    def __init__(self, phase: str, since: float | None = None) -> None:
        self.times: Counter[str] = Counter({phase: 1})
        self._seconds: dict[str, float] = {phase: 0.0}
        self.phase = phase
        self._since = time.perf_counter() if since is None else since

    def switch(self, phase: str, at: float | None = None) -> None:
        """Go on in another phase, from now or from a moment that has been."""
        self.times[phase] += phase != self.phase
        self._count(phase, time.perf_counter() if at is None else at)

    @contextmanager
    def within(self, step: str) -> Iterator[None]:
        """Count the block's time to a step, but for that of the steps inside of it."""
        before = self.phase
        self.switch(step)
        try:
            yield
        finally:
            self._count(before, time.perf_counter())

    def read(self) -> tuple[dict[str, float], float]:
        """The seconds of each phase until now, and the moment that this now is."""
        now = time.perf_counter()
        self._count(self.phase, now)
        return dict(self._seconds), now

    def _count(self, phase: str, now: float) -> None:
        self._seconds[self.phase] += now - self._since
        self._seconds.setdefault(phase, 0.0)
        self.phase, self._since = phase, now


_listening: ContextVar[Stopwatch | None] = ContextVar("dotcu_stopwatch", default=None)
_NOBODY = nullcontext()


@contextmanager
def listening(watch: Stopwatch) -> Iterator[None]:
    """Let this thread's steps tell of themselves until the block ends."""
    token = _listening.set(watch)
    try:
        yield
    finally:
        _listening.reset(token)


def during(step: Step) -> AbstractContextManager[None]:
    """Tell that the block is a step, where somebody listens on this thread."""
    watch = _listening.get()
    return _NOBODY if watch is None else watch.within(step)
