"""A function of a package is replaced while a run is in force, and is the package's own again after it."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from dotcu.kernel.languages.replacing import Replacement


def own() -> str:
    return "own"


def test_function_is_replaced_until_the_last_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("launches")
    module.launch = own  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "launches", module)
    replacement = Replacement(("launches",), "launch", lambda: f"not {replacement.original()}")
    with replacement.in_force():
        with replacement.in_force():
            assert module.launch() == "not own"
        assert module.launch() == "not own"
    assert module.launch is own
