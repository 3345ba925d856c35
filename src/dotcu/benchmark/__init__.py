"""Benchmarks: figures that a skeptic would accept, against the limit of this GPU."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dotcu.benchmark.bencher import bench
    from dotcu.benchmark.reports.report import BenchReport
    from dotcu.benchmark.results import Protocol

__all__ = ["BenchReport", "Protocol", "bench"]

_HOMES = {"BenchReport": "reports.report", "Protocol": "results", "bench": "bencher"}


def __getattr__(name: str) -> Any:
    """Fetch a name when it is first used: the process that measures a first call must not pay for it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
