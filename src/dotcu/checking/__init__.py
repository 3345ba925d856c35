"""Checks of operators: `dotcu check` and `dotcu.check`.

    target -> subjects -> planning.plan -> trials -> running.run, here or in workers -> results -> report

Benchmark, inspection, shipping and watching also use `target` (find operators), `subject` (an overload on
a device), `cases` (its samples, and calls derived from them), `numerics` (the oracle, bounds, closeness),
`memory` (guarded copies, poison, bits, plain results), `running` (trials, here and in workers).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dotcu.checking.checker import check
    from dotcu.checking.pytest_plugin import checks
    from dotcu.checking.report import CheckReport

__all__ = ["CheckReport", "check", "checks"]

_MODULES = {"CheckReport": "report", "check": "checker", "checks": "pytest_plugin"}


def __getattr__(name: str) -> Any:
    """Import a name's module when it is first used: pytest loads the plugin, and is to load no torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
