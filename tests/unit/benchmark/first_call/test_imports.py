"""Imports inside of a call are counted, and leave modules as they would be."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from dotcu.benchmark.first_call.imports import counted
from dotcu.stopwatch import Stopwatch


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package, and a module that imports it and takes its time."""
    (tmp_path / "counted_package").mkdir()
    (tmp_path / "counted_package" / "__init__.py").write_text("import csv\n")
    (tmp_path / "counted_package" / "inner.py").write_text("value = 1\n")
    (tmp_path / "counted_module.py").write_text(
        "import time\ntime.sleep(0.05)\nfrom counted_package import inner\n"
    )
    (tmp_path / "counted_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.startswith("counted_")]:
        del sys.modules[name]


def test_an_import_counts_with_all_that_it_imports_in_turn() -> None:
    watch = Stopwatch("call")
    with counted(watch, "call", "imports") as names:
        module = importlib.import_module("counted_module")
    assert names == ["counted_module"]
    assert watch.read()[0]["imports"] > 0.05
    assert module.inner.value == 1


def test_what_is_imported_looks_as_if_nobody_had_counted() -> None:
    before = list(sys.meta_path)
    with counted(Stopwatch("call"), "call", "imports"):
        module = importlib.import_module("counted_module")
    assert type(module.__loader__) is SourceFileLoader
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    assert sys.meta_path == before


def test_a_module_that_is_there_costs_nothing_and_one_that_is_nowhere_is_missing() -> None:
    watch = Stopwatch("call")
    with counted(watch, "call", "imports") as names:
        importlib.import_module("json")
        assert names == []
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("counted_nowhere")
    assert watch.phase == "call"


def test_a_module_that_fails_ends_the_count() -> None:
    watch = Stopwatch("call")
    with counted(watch, "call", "imports"), pytest.raises(ZeroDivisionError):
        importlib.import_module("counted_broken")
    assert watch.phase == "call"
    assert "counted_broken" not in sys.modules


def test_within_another_step_an_import_is_part_of_that() -> None:
    watch = Stopwatch("call")
    with counted(watch, "call", "imports") as names, watch.within("bindings"):
        importlib.import_module("counted_module")
    assert names == []
    assert "imports" not in watch.read()[0]
    assert watch.read()[0]["bindings"] > 0.05


def test_an_import_of_another_thread_does_not_count() -> None:
    watch = Stopwatch("call")
    with counted(watch, "call", "imports") as names:
        thread = threading.Thread(target=importlib.import_module, args=["counted_module"])
        thread.start()
        thread.join()
    assert names == []
    assert "counted_module" in sys.modules
