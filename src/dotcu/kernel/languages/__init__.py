"""Kernels of other languages in `simulate()`: an adapter for each package that compiles and launches them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module

ADAPTERS = {"triton": "triton_kernels"}
"""The module here that takes the launches of a package into the simulator, by its function `simulated`."""


@contextmanager
def simulated() -> Iterator[None]:
    """Take the launches of each package that is imported into the simulator, in threads that have a run."""
    with ExitStack() as stack:
        for package, adapter in ADAPTERS.items():
            if package in sys.modules:
                stack.enter_context(import_module(f"{__name__}.{adapter}").simulated())
        yield
