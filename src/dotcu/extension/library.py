"""A built library in this process: its operators registered, its Python module imported."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from dotcu.errors import CompileError, DuplicateOperator

_NAMESPACE = re.compile(r"^[ \t]*(?:STABLE_)?TORCH_LIBRARY\s*\(\s*(\w+)\s*,", re.MULTILINE)
_OPERATOR = re.compile(r"\.\s*def\s*\(\s*\"(?:\w+::)?(\w+)")
_UNDEFINED = re.compile(r"undefined symbol: (\S+)")


@dataclass(frozen=True, kw_only=True)
class NativeLibrary:
    """A library of operators, loaded.

    Attributes:
        path: The file.
        operators: The qualified names that it registered, `ns::name` or `ns::name.overload`.
        cuda: Whether its `.cu` files are in it.
        left_out: The sources that are not, since CUDA was off.
    """

    path: Path
    operators: tuple[str, ...]
    cuda: bool
    left_out: tuple[Path, ...]


_loaded: dict[Path, tuple[str, ...]] = {}
_namespaces: dict[str, Path] = {}
_modules: dict[Path, ModuleType] = {}
_lock = threading.Lock()


def load(path: Path, texts: Sequence[str]) -> tuple[str, ...]:
    """Load a library, once, and return the operators that it registered.

    Args:
        texts: Its sources, in which the namespaces that it defines are looked for.

    Raises:
        DuplicateOperator: This process has a library of the same namespace. Torch forgets none.
        CompileError: It cannot be loaded: a symbol is defined nowhere.
    """
    with _lock:
        if path not in _loaded:
            names = {name for text in texts for name in _NAMESPACE.findall(text)}
            _require_free(path, names)
            _require_new(path, names, {name for text in texts for name in _OPERATOR.findall(text)})
            _loaded[path] = _load(path)
            _namespaces.update(dict.fromkeys(names, path))
        return _loaded[path]


def library_of(operator: str) -> Path | None:
    """The library that registered an operator, by its qualified name; None where it was not loaded here."""
    return next((path for path, operators in _loaded.items() if operator in operators), None)


def _require_free(path: Path, names: set[str]) -> None:
    for name in sorted(names & set(_namespaces)):
        raise DuplicateOperator(
            f"{path.name} defines the operators of {name!r}, and so does what this process has loaded "
            f"before:\n    {_namespaces[name]}\n"
            "Torch takes a namespace from one library, and forgets none until the process ends.\n"
            "After an edit start Python again: what is compiled already is loaded in a moment"
        )


def _require_new(path: Path, namespaces: set[str], operators: set[str]) -> None:
    """Refuse what torch would end the process for: it cannot refuse while a library is being loaded."""
    taken = {name.partition(".")[0] for name in _registered()}
    for name in sorted({f"{one}::{operator}" for one in namespaces for operator in operators} & taken):
        raise DuplicateOperator(
            f"{path.name} defines {name}, which is an operator of this process already.\n"
            "Give one of them another name, or load only one of them."
        )


def _load(path: Path) -> tuple[str, ...]:
    import torch

    before = _registered()
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise CompileError(_refused(path, str(error.__cause__ or error)), log=str(error)) from error
    return tuple(sorted(_registered() - before))


def _refused(path: Path, reason: str) -> str:
    match = _UNDEFINED.search(reason)
    if match is None:
        return f"{path.name} is compiled, and cannot be loaded: {reason}"
    return (
        f"{path.name} is compiled, and cannot be loaded: {match[1]} is used and defined nowhere.\n"
        "Add the source, or the library by link_flags=['-l...'], that defines it.\n"
        f"Its name in C++, type: c++filt {match[1]}"
    )


def _registered() -> set[str]:
    import torch

    return set(torch._C._dispatch_get_all_op_names())


def module(path: Path, name: str) -> ModuleType | None:
    """The Python module that a loaded library is, None where it is none."""
    with _lock:
        if path not in _modules and hasattr(ctypes.CDLL(str(path)), f"PyInit_{name}"):
            _modules[path] = _import(path, name)
        return _modules.get(path)


def _import(path: Path, name: str) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    loader.exec_module(made)
    return made
