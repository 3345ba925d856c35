"""Counters of this process, and OpenTelemetry spans, for those who watch machines.

A span is recorded where the application has imported `opentelemetry.trace`. Each compile is a log record too:
see `dotcu.compile.build`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

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
        amount: What to add.
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
