"""Imports that happen inside of a call: torch leaves many of its modules for when they are first needed.

A finder in `sys.meta_path` has the others find each module, and counts the time of loading it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from dotcu.stopwatch import Stopwatch


@contextmanager
def counted(watch: Stopwatch, phase: str, step: str) -> Iterator[list[str]]:
    """Count imports of this thread to a step while the stopwatch is in a phase, until the block ends.

    Within a step that tells of itself they are part of that.

    Yields:
        The modules that were asked for, without those that these import in turn.
    """
    finder = _Finder(watch, phase, step)
    sys.meta_path.insert(0, finder)
    try:
        yield finder.names
    finally:
        sys.meta_path.remove(finder)


class _Finder:
    """Finds what the finders after it find."""

    def __init__(self, watch: Stopwatch, phase: str, step: str) -> None:
        self._watch, self._phase, self._step = watch, phase, step
        self._thread = threading.get_ident()
        self.names: list[str] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if self.counts:
            self.names.append(name)
        with self.counting():
            spec = self._found(name, path, target)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]
        return spec

    def _found(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(name, path, target)
            if spec is not None:
                return spec
        return None

    @property
    def counts(self) -> bool:
        """Whether the stopwatch is in the phase and this is its thread."""
        return threading.get_ident() == self._thread and self._watch.phase == self._phase

    def counting(self) -> AbstractContextManager[None]:
        """Count the block, where that is so."""
        return self._watch.within(self._step) if self.counts else nullcontext()


class _Loader:
    """Loads as another loader does, and leaves the module to that one."""

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        with self._finder.counting():
            spec.loader = self._loader
            made: ModuleType | None = self._loader.create_module(spec)
            spec.loader = self  # type: ignore[assignment]
            return made

    def exec_module(self, module: ModuleType) -> None:
        with suppress(AttributeError):  # what a loader makes need not be a module
            module.__loader__ = self._loader
            module.__spec__.loader = self._loader  # type: ignore[union-attr]
        with self._finder.counting():
            self._loader.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
