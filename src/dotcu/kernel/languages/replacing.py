"""Functions of other packages that dotcu stands in for while a run is in force."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from dotcu.locks import ForkSafeLock


class Replacement:
    """A function of a package, replaced under its public names while at least one run is in force.

    Attributes:
        original: The package's own function, which a thread without a run calls.
    """

    def __init__(self, modules: Sequence[str], name: str, function: Callable[..., Any]) -> None:
        self._modules, self._name, self._function = modules, name, function
        self._lock, self._runs = ForkSafeLock(), 0
        self.original: Any = None

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Replace the function, and put the package's own back after the last run."""
        with self._lock:
            self._runs += 1
            if self._runs == 1:
                self.original = getattr(import_module(self._modules[0]), self._name)
                self._set(self._function)
        try:
            yield
        finally:
            with self._lock:
                self._runs -= 1
                if not self._runs:
                    self._set(self.original)

    def _set(self, function: Any) -> None:
        for module in self._modules:
            setattr(import_module(module), self._name, function)
