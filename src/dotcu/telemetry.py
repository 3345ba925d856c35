"""Counters of this process, OpenTelemetry spans, and the time of each step.

A span is recorded where the application has imported `opentelemetry.trace`. Each compile is a log record too:
see `dotcu.compile.build`.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Literal

from dotcu.__about__ import __version__
from dotcu.locks import ForkSafeLock

_COMPILES = ("dotcu_compiles_total", "dotcu_compile_seconds_total")
_HITS = tuple(f'dotcu_cache_hits_total{{place="{place}"}}' for place in ("memory", "disk", "layer", "store"))
_REFUSED = ("dotcu_store_refused_total", "dotcu_store_failed_total")

_counts: defaultdict[str, float] = defaultdict(float)
_lock = ForkSafeLock()


def metrics() -> dict[str, float]:
    """Return the counters of this process: compiles and their seconds, hits of the cache, wrong entries.

    Names are as Prometheus writes samples, so that this is all that an exporter returns:

        "".join(f"{name} {value}\\n" for name, value in dotcu.metrics().items())
    """
    return {name: _counts[name] for name in (*_COMPILES, *_HITS, *_REFUSED)}


def count(name: str, amount: float = 1, *, place: str = "") -> None:
    """Add to a counter.

    Args:
        name: Without `dotcu_` and `_total`.
        place: Of a hit, where it was.
    """
    label = f'{{place="{place}"}}' if place else ""
    with _lock:
        _counts[f"dotcu_{name}_total{label}"] += amount


@contextmanager
def span(name: str, **attributes: str) -> Iterator[dict[str, str]]:
    """Record a span while a block runs, where the application traces.

    Yields:
        More attributes, which the block may add to.
    """
    trace, later = sys.modules.get("opentelemetry.trace"), dict[str, str]()
    if trace is None:
        yield later
        return
    tracer = trace.get_tracer("dotcu", __version__)
    known = {f"dotcu.{key}": value for key, value in attributes.items()}  # samplers decide by them
    with tracer.start_as_current_span(f"dotcu.{name}", attributes=known) as active:
        yield later
        active.set_attributes({f"dotcu.{key}": value for key, value in later.items()})


# Time by step: a step reports its beginning and end to a stopwatch; without one it is nearly free.


TimedStep = Literal[
    "build", "cache", "nvrtc", "compile", "store", "ptx", "bindings", "library", "kernel", "jit", "launch",
    "decode", "simulate",
]  # fmt: skip
"""The steps. All but `launch` and `simulate` occur once per process, source or kernel."""


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
_UNSEEN = nullcontext(dict[str, str]())


@contextmanager
def listening(watch: Stopwatch) -> Iterator[None]:
    """Report this thread's steps to a stopwatch until the block ends."""
    token = _listening.set(watch)
    try:
        yield
    finally:
        _listening.reset(token)


def during(step: TimedStep, **attributes: str) -> AbstractContextManager[dict[str, str]]:
    """Report the block as a step to the stopwatch that listens on this thread, if any.

    With attributes it is a span of that name as well; the block may add to the dict that it gets.
    """
    watch = _listening.get()
    return _UNSEEN if watch is None and not attributes else _seen(watch, step, attributes)


@contextmanager
def _seen(watch: Stopwatch | None, step: TimedStep, attributes: dict[str, str]) -> Iterator[dict[str, str]]:
    with (
        nullcontext() if watch is None else watch.within(step),
        span(step, **attributes) if attributes else nullcontext(dict[str, str]()) as later,
    ):
        yield later
