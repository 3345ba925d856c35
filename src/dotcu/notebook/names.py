"""Which names a cell's kernels get in the notebook."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

from dotcu.errors import UsageError
from dotcu.kernel.kernel import Kernel
from dotcu.kernel.module import Module

_of_cells: WeakSet[Kernel | Module] = WeakSet()
"""What cells have defined so far, and may define again. It outlives `%reload_ext`."""


def choose(module: Module, name: str, known: Mapping[str, Any]) -> dict[str, Kernel | Module]:
    """What to bind of a module.

    Args:
        name: Of the module itself; empty without one.
        known: The notebook's variables.

    Raises:
        UsageError: A name is taken by something that no cell of kernels defined; names the way out.
    """
    kernels = {kernel.name.rpartition("::")[2]: kernel for kernel in module.kernels.values()}
    taken = {each: why for each in kernels if (why := _taken(each, known))}
    if name and (why := _taken(name, known)):
        raise UsageError(f"%%cu {name}: {name} is {why}.\nTake another name, or first type: del {name}")
    if taken and not name:
        one, why = next(iter(taken.items()))
        raise UsageError(
            f"{module.name} has a kernel {one}, but {one} is {why}, and was left as it was.\n"
            f"Name the kernels together, and call kernels.{one}: %%cu kernels"
        )
    free: dict[str, Kernel | Module] = {each: kernels[each] for each in kernels if each not in taken}
    return free | ({name: module} if name else {})


def bind(chosen: Mapping[str, Kernel | Module], shell: Any) -> None:
    """Put them where the notebook's cells see them."""
    shell.push(dict(chosen))
    _of_cells.update(chosen.values())


def _taken(name: str, known: Mapping[str, Any]) -> str:
    """What a name means already; empty where a cell may have it."""
    if keyword.iskeyword(name):
        return "a word of Python's own"
    if name in known:
        value = known[name]
        is_of_cell = isinstance(value, (Kernel, Module)) and value in _of_cells
        return "" if is_of_cell else f"a variable of yours, of type {type(value).__name__}"
    return "a function of Python's own" if hasattr(builtins, name) else ""
