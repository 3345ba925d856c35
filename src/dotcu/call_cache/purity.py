"""Whether a body can be followed at all: it must read nothing but its arguments and what never changes.

What a body is made of is looked at before it runs: its bytecode, and that of the functions that it
reaches. A name from outside must stand for something that carries no state from one call to the
next. What could be bound to something else later is given back, for the caller to check that it
still is the same.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import torch

from dotcu.call_cache.allowed import attributes, is_allowed, is_constant
from dotcu.call_cache.bytecode import Load, facts
from dotcu.call_cache.plan import Read, Unfollowed
from dotcu.kernel import Kernel, Module
from dotcu.kernel.queries import ByLayout

_NEVER_REBOUND = ("torch", "dotcu", "math")
_MODULES = (*_NEVER_REBOUND, "dotcu.errors")


class _Refused(Exception):
    """Why a body is refused."""


def reads(body: Callable[..., Any]) -> tuple[Read, ...] | Unfollowed:
    """What a body reads from outside; or why it cannot be followed, whatever its arguments.

    While each of the reads still gives the same object, the answer stands.
    """
    reader = _Reader()
    try:
        reader.function(body)
    except _Refused as reason:
        return Unfollowed(reason=f"{reason}.", always=True)
    return tuple(reader.found.values())


def tells_tensors_apart(body: Callable[..., Any]) -> bool:
    """Whether a body may behave otherwise where two of its arguments are the same tensor."""
    reader = _Reader()
    try:
        reader.function(body)
    except _Refused:
        return True
    return reader.compares


_OF_DEVICES = {"is_cuda", "is_cpu", "get_device", "type", "index"}


def asks_device(body: Callable[..., Any]) -> str:
    """What a body asks that may tell it which device it is on; empty where it asks nothing such."""
    reader = _Reader()
    try:
        reader.function(body)
    except _Refused as reason:
        return str(reason)
    if any(read.value is torch.cuda.get_device_capability for read in reader.found.values()):
        return "get_device_capability"
    return next((f".{name}" for name in sorted(reader.attributes & _OF_DEVICES)), "")


class _Reader:
    """Goes through a body and the functions that it reaches.

    Attributes:
        found: What they read, by where it is.
        compares: Whether they may compare tensors by identity.
        attributes: What they read of values that come about in them.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[int, str], Read] = {}
        self.compares = False
        self.attributes: set[str] = set()
        self._seen: set[int] = set()

    def function(self, function: Any) -> None:
        """Go through a function, once."""
        if not isinstance(function, FunctionType):
            raise _Refused(f"it is {_describe(function)}, not a plain function")
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        for part in ("__code__", "__defaults__"):  # what a tool that reloads modules in place puts anew
            self._read(function, part, getattr(function, part))
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._value(default, f"a default of {function.__name__}", ())
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for code in _codes(function.__code__):
            self._code(code, function, cells)

    def _code(self, code: CodeType, function: FunctionType, cells: Mapping[str, CellType]) -> None:
        found = facts(code)
        if found.refusal is not None:
            raise _Refused(found.refusal)
        self.compares |= found.compares
        self.attributes.update(found.attributes)
        for name in found.stores:
            if name in cells:
                raise _Refused(f"it sets {name}, which outlives the call")
        for load in found.loads:
            if load.is_global:
                self._global(load, function)
            elif load.name in cells:
                self._cell(load, cells[load.name])
            else:
                for name in load.attributes:
                    _require_attribute(name, load.name)
        for name in found.attributes:
            _require_attribute(name, "a value")

    def _global(self, load: Load, function: FunctionType) -> None:
        names = function.__globals__
        if load.name in names:
            value = names[load.name]
            if not (isinstance(value, ModuleType) and value.__name__ in _NEVER_REBOUND):
                self._read(names, load.name, value)
        elif hasattr(builtins, load.name):
            value = getattr(builtins, load.name)
            self.compares |= value is dict
        else:
            raise _Refused(f"it reads {load.name}, which is not there")
        self._value(value, load.name, load.attributes)

    def _cell(self, load: Load, cell: CellType) -> None:
        try:
            value = cell.cell_contents
        except ValueError:
            raise _Refused(f"it reads {load.name}, which is not there") from None
        self._read(cell, "", value)
        self._value(value, load.name, load.attributes)

    def _read(self, names: object, name: str, value: object) -> None:
        self.found[id(names), name] = Read(names=names, name=name, value=value)

    def _value(self, value: Any, name: str, chain: tuple[str, ...]) -> None:
        """Judge what a name stands for, and the attributes that are read of it."""
        if isinstance(value, ModuleType):
            self._module(value, name, chain)
            return
        if type(value) is Module and chain:
            self._kernel_of(value, name, chain)
            return
        if isinstance(value, ByLayout):  # which runs the function where a body is followed
            value = value.function
        if isinstance(value, FunctionType) and not is_allowed(value) and not _is_torchs(value):
            self.function(value)
            if chain:
                raise _Refused(f"it reads {name}.{chain[0]}, which can change")
            return
        if not (is_allowed(value) or is_constant(value) or type(value) in (Kernel, Module)):
            raise _Refused(_why(value, name))
        if isinstance(value, type) and chain:
            raise _Refused(f"it reads {name}.{chain[0]}, of a class")
        for attribute in chain:
            _require_attribute(attribute, name)

    def _module(self, module: ModuleType, name: str, chain: tuple[str, ...]) -> None:
        if not chain:
            raise _Refused(f"it passes the module {name} around")
        known = module.__name__ in _MODULES
        try:
            value = getattr(module, chain[0]) if known else vars(module)[chain[0]]
        except (AttributeError, KeyError):
            raise _Refused(f"it reads {name}.{chain[0]}, which is not there") from None
        if not known:
            self._read(vars(module), chain[0], value)
        if isinstance(value, ModuleType) and known and value.__name__ not in _MODULES:
            raise _Refused(f"it reads {'.'.join((name, *chain))}, which may hang on more than the call")
        self._value(value, f"{name}.{chain[0]}", chain[1:])

    def _kernel_of(self, module: Module, name: str, chain: tuple[str, ...]) -> None:
        """Judge `kernels.add`, which is a kernel, and `kernels.kernels[...]`."""
        if chain[0] != "kernels" and chain[0] not in module.kernels:
            raise _Refused(f"it uses {name}.{chain[0]}, which is no kernel")
        for attribute in chain[1:]:
            _require_attribute(attribute, f"{name}.{chain[0]}")


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in facts(code).inner:
        yield from _codes(inner)


def _require_attribute(name: str, of: str) -> None:
    if name not in attributes():
        raise _Refused(f"it reads .{name} of {of}, which may hang on more than the call")


def _is_torchs(function: FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] == "torch"


def _describe(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _why(value: Any, name: str) -> str:
    """Why a value from outside is refused, and what to do about it."""
    if hasattr(type(value), "torch_op") or type(value).__module__ == "torch._ops":
        return f"it calls the operator {name}, and a plan holds launches alone"
    if isinstance(value, (list, dict, set, bytearray)):
        return f"it reads the {type(value).__name__} {name}, which can change; make it a tuple"
    if callable(value):
        return f"it uses {name}, which may do or read more than its arguments say"
    return f"it reads {name}, {_describe(value)}, which can change; pass it as an argument"
