"""Kernels of other languages in `simulate()`: an adapter for each package that compiles and launches them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module

ADAPTERS = {
    "triton": "triton_kernels",
    "numba.cuda": "numba_kernels",
    "tilelang": "tilelang_kernels",
    "cuda.tile": "cutile_kernels",
}
"""The module here that takes the launches of a package into the simulator, by its function `simulated`."""


@contextmanager
def simulated() -> Iterator[None]:
    """Take the launches of each package that is imported into the simulator, in threads that have a run.

    A version of a package that its adapter cannot use, such as the older Triton that some torch brings, is
    left alone: it refuses CPU tensors itself, and dotcu's own kernels run.
    """
    with ExitStack() as stack:
        for package, name in ADAPTERS.items():
            if package in sys.modules:
                with suppress(ImportError, AttributeError):
                    adapter = import_module(f"{__name__}.{name}")
                    stack.enter_context(adapter.simulated())
        yield
