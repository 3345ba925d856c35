"""One command that says whether an operator is right."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dotcu.checking.checker import check
    from dotcu.checking.pytest_plugin import checks
    from dotcu.checking.report import CheckReport

__all__ = ["CheckReport", "check", "checks"]

_HOMES = {"CheckReport": "report", "check": "checker", "checks": "pytest_plugin"}


def __getattr__(name: str) -> Any:
    """Fetch a name from its home when it is first used: pytest loads the plugin, and is to load no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
