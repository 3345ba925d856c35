"""Kernels of other languages in `simulate()`: an adapter for each package that compiles and launches them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ADAPTERS = {
    "triton": "triton_kernels",
    "numba.cuda": "numba_kernels",
    "tilelang": "tilelang_kernels",
    "cuda.tile": "cutile_kernels",
}
"""The module here that takes the launches of a package into the simulator, by its function `simulated`."""


@contextmanager
def simulated() -> Iterator[None]:
    """Take the launches of each package into the simulator, in threads that have a run.

    A package that is imported later is taken as soon as it is there. A version of a package that its adapter
    cannot use, such as the older Triton that some torch brings, is left alone: it refuses CPU tensors itself,
    and dotcu's own kernels run.
    """
    with ExitStack() as stack:

        def take(package: str) -> None:
            with suppress(ImportError, AttributeError):
                adapter = import_module(f"{__name__}.{ADAPTERS[package]}")
                stack.enter_context(adapter.simulated())

        later = _AfterImport(take)
        for package in ADAPTERS:
            if package in sys.modules:
                take(package)
        sys.meta_path.insert(0, later)
        try:
            yield
        finally:
            sys.meta_path.remove(later)


class _AfterImport(MetaPathFinder):
    """A finder that finds a package where the finders after it do, and calls once it is imported."""

    def __init__(self, call: Callable[[str], None]) -> None:
        self._call = call

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in ADAPTERS or self not in sys.meta_path:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _CallingLoader(spec.loader, self._call)
                return spec
        return None


class _CallingLoader(Loader):
    """A package's own loader, and a call once it has run the package."""

    def __init__(self, own: Loader, call: Callable[[str], None]) -> None:
        self._own, self._call = own, call

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        module.__loader__ = self._own
        self._own.exec_module(module)
        self._call(module.__name__)
