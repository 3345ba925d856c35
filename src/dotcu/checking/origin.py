"""Where another process finds an operator: the other direction of target.py."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import torch

from dotcu.checking.protocol import Request
from dotcu.checking.subject import Subject
from dotcu.checking.target import _PREFIX, operators
from dotcu.operator import Overload


def target_of(overload: Overload) -> str | None:
    """A target that gives the operator of an overload in a fresh process with this one's `sys.path`.

    Returns:
        `package.module:name` or `/path/ops.py:name`. None where there is none: the operator is of
        `__main__`, was made in a function, or is not what its module has by that name any more.
    """
    module = sys.modules.get(overload.__module__)
    place = None if module is None else _place(module)
    if module is None or place is None:
        return None
    for name, operator in operators(module):
        if any(one is overload for one in operator.overloads.values()):
            return f"{place}:{name}"
    return None


def _place(module: ModuleType) -> str | None:
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or not file or not Path(file).is_file():
        return None
    if module.__name__.startswith(_PREFIX):
        return None if ":" in file else file
    return module.__name__ if _is_imported_from(module.__name__, Path(file)) else None


def _is_imported_from(name: str, file: Path) -> bool:
    """Whether an import by that name, where nothing is imported yet, reaches that file."""
    spec: ModuleSpec | None = None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        inside = None if spec is None else spec.submodule_search_locations
        if spec is not None and inside is None:
            return False
        spec = _find(".".join(parts[:end]), inside)
        if spec is None:
            return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file.resolve()


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """What the finders say; `importlib.util.find_spec` would say what is imported already."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = None if find is None else find(name, path)
        if isinstance(spec, ModuleSpec):
            return spec
    return None


def request_for(subject: Subject) -> Request | None:
    """What requests for a subject's trials have in common; None where a fresh process cannot find it."""
    target = target_of(subject.overload)
    if target is None:
        return None
    return Request(
        target=target,
        overload=subject.name,
        device=str(subject.device),
        level=int(subject.level),
        seed=subject.seed,
        trials=(),
        threads=torch.get_num_threads(),
    )
