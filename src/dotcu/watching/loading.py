"""Loading a target again in the same process, as if it were the first time."""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from dotcu.checking.blame import is_own
from dotcu.checking.target import resolve
from dotcu.compile import Target, plan_build
from dotcu.errors import DotcuError
from dotcu.kernel.module import Module, made
from dotcu.operator import Operator, register
from dotcu.watching import absent

_ANY = Target.parse("compute_80")  # which headers a source reaches hangs on no target


class Loader:
    """Loads a target, each time from the files as they are.

    The user's own modules are imported anew, with all that they have defined; what is installed stays.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._place = target.partition(":")[0]
        self._before = frozenset(sys.modules)
        self._stale: WeakSet[Module] = WeakSet()
        self.loads = 0

    def load(self) -> list[tuple[str, Operator]]:
        """The operators of the target, with their Python names.

        Raises:
            DotcuError: As `checking.target.resolve`.
        """
        self._forget()
        self.loads += 1
        return resolve(self._target, verb="watch")

    def modules(self) -> list[Module]:
        """The kernels that were loaded for this version."""
        return [module for module in made if module not in self._stale]

    def folders(self, error: BaseException | None = None) -> tuple[str, ...]:
        """The folders of all files that were loaded for this version, and those where a save may mend it.

        Args:
            error: What loading it raised; None where it was loaded.
        """
        files = [Path(file) for _, file in self._own()]
        place = Path(self._place)
        files += [place] if place.suffix == ".py" else []
        found = {file.resolve().parent for file in (*files, *self._sources())}
        lacking = () if error is None else absent.of_error(error, place.resolve().parent)
        found |= {folder.resolve() for folder in lacking}
        return tuple(sorted(map(str, found)))

    def _sources(self) -> Iterator[Path]:
        for module in self.modules():
            yield from [module.source.path] if module.source.path else []
            yield from (folder / "any" for folder in module.source.include)
            with suppress(DotcuError):  # a header that is gone, say: the check tells
                yield from _headers(module)

    def _forget(self) -> None:
        names = [name for name, _ in self._own()]
        for name in names:
            del sys.modules[name]
        register.withdraw_of(names)
        self._stale.update(made)
        importlib.invalidate_caches()
        linecache.checkcache()

    def _own(self) -> Iterable[tuple[str, str]]:
        """The user's own modules that were imported for the target: their names and files."""
        for name in sorted(sys.modules.keys() - self._before):
            file = getattr(sys.modules[name], "__file__", None)
            if file and file.endswith(".py") and (is_own(file) or self._is_target(name)):
                yield name, file

    def _is_target(self, name: str) -> bool:
        return f"{name}.".startswith(f"{self._place}.")


def _headers(module: Module) -> Iterator[Path]:
    plan = plan_build(module.source, options=module.options, target=_ANY, names=())
    yield from (header.path for header in plan.closure.headers.values() if header.path)
    yield from (folder / "any" for folder in absent.of_headers(plan))
