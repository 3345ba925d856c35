"""Counters of this process, and OpenTelemetry spans, for those who watch machines.

A span is recorded where the application has imported `opentelemetry.trace`; each compile is a log record too,
by `dotcu.compile.build`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict
from contextlib import AbstractContextManager, nullcontext

_COMPILES = ("dotcu_compiles_total", "dotcu_compile_seconds_total")
_HITS = tuple(f'dotcu_cache_hits_total{{place="{place}"}}' for place in ("memory", "disk", "layer", "store"))
_REFUSED = ("dotcu_store_refused_total", "dotcu_store_failed_total")

_counts: defaultdict[str, float] = defaultdict(float)
_lock = threading.Lock()
_NO_SPAN = nullcontext()


def _after_fork() -> None:
    """Make a new lock: one that another thread held at the fork would never be released in the child."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


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
        amount: What to add.
        place: Of a hit, where it was.
    """
    label = f'{{place="{place}"}}' if place else ""
    with _lock:
        _counts[f"dotcu_{name}_total{label}"] += amount


def span(name: str, **attributes: str) -> AbstractContextManager[object]:
    """Return a span to be active while a block runs; nothing where the application does not trace."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return _NO_SPAN
    named = {f"dotcu.{key}": value for key, value in attributes.items()}
    started: AbstractContextManager[object] = trace.get_tracer("dotcu").start_as_current_span(
        f"dotcu.{name}", attributes=named
    )
    return started
