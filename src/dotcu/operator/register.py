"""The dispatcher: the only module that registers anything with torch.

Each overload is defined and implemented through its own `torch.library.Library` fragment (not
`custom_op`, which costs three times as much per call), so that it can be removed as a whole when
a notebook or `dotcu watch` defines it again.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.library import Library

from dotcu import torch_compat
from dotcu.errors import DuplicateOperator, UsageError
from dotcu.operator.schema import OperatorBody, Signature
from dotcu.operator.sharding import CallRules

_DECOMPOSES = "CompositeImplicitAutograd"
"""The key of a kernel that calls torch's operators, for every device and purpose."""

AUTOGRAD = ("Autograd", "AutogradCUDA", "AutogradCPU", _DECOMPOSES)
"""The keys of kernels for autograd, and of one that torch differentiates through."""

BATCHING = ("FuncTorchBatched", _DECOMPOSES)
"""The keys of a batching rule, and of a kernel that torch batches through."""


@dataclass(frozen=True, kw_only=True)
class Definition:
    """The place of an operator's definition in the source."""

    module: str
    qualname: str
    file: str
    line: int

    @staticmethod
    def of(body: OperatorBody) -> Definition:
        """Return the place of a function."""
        code = inspect.unwrap(body).__code__
        return Definition(
            module=body.__module__, qualname=body.__qualname__,
            file=code.co_filename, line=code.co_firstlineno,
        )  # fmt: skip

    @staticmethod
    def of_caller() -> Definition:
        """Return the place of the code that calls the function that asks."""
        frame = sys._getframe(2)
        module = frame.f_globals.get("__name__", "__main__")
        return Definition(module=module, qualname="", file=frame.f_code.co_filename, line=frame.f_lineno)

    def replaces(self, other: Definition) -> bool:
        """Return True if a definition here is that function again: of the same file, or of a notebook's cell.

        Two files may have one module name: `ops.py` of two folders. A cell has its own file name each
        time, and no file.
        """
        same = (self.module, self.qualname) == (other.module, other.qualname)
        return same and (
            self.file == other.file or not (Path(self.file).exists() and Path(other.file).exists())
        )

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(kw_only=True)
class Registration:
    """One overload in the dispatcher, until `withdraw`."""

    signature: Signature
    origin: Definition
    library: Library

    @property
    def operator(self) -> Any:
        """The `torch._ops.OpOverload`."""
        packet = getattr(getattr(torch.ops, self.signature.namespace), self.signature.name)
        return getattr(packet, self.signature.overload or "default")

    @property
    def keyword_tensors(self) -> list[str]:
        """The keyword-only arguments that are tensors or lists of them."""
        arguments = self.operator._schema.arguments
        return [a.name for a in arguments if a.kwarg_only and "Tensor" in str(a.type)]

    def has(self, keys: Iterable[str]) -> bool:
        """Return True if a kernel is registered for one of some dispatch keys."""
        return any(torch_compat.has_kernel(self.signature.qualified_name, key) for key in keys)

    @property
    def autocasts(self) -> bool:
        """True if a kernel for autocast is registered."""
        return self.has(torch_compat.AUTOCAST_KEYS.values())

    @property
    def has_own_fake(self) -> bool:
        """True if a fake kernel is registered; torch takes no second one."""
        return torch_compat.has_fake(self.signature.qualified_name) or self.has(("Meta", _DECOMPOSES))

    @property
    def fakes(self) -> bool:
        """True if torch can infer a result's shape: by a fake, or by a kernel for every device."""
        return self.has_own_fake or self.has(("CompositeExplicitAutograd",))

    def implement(self, key: str, kernel: Callable[..., Any]) -> None:
        """Register a kernel for a dispatch key."""
        self.library.impl(_implementation_name(self.signature), kernel, key)

    def implement_fake(self, fake: Callable[..., Any]) -> None:
        """Register the fake kernel, for the Meta key and for fake tensors."""
        met: dict[Any, None] = {}

        def announced(*args: Any, **kwargs: Any) -> Any:
            # torch keeps the object that it met first, and an added overload makes another
            met[self.operator] = None
            implement_waiting_shardings()
            torch_compat.announce_to_inductor(tuple(met))
            return fake(*args, **kwargs)

        torch.library.register_fake(
            self.signature.qualified_name, announced, lib=self.library, allow_override=True
        )

    def implement_vmap(self, rule: Callable[..., Any]) -> None:
        """Register a batching rule, with torch.library.register_vmap's meaning."""
        torch.library.register_vmap(self.signature.qualified_name, rule, lib=self.library)

    def implement_autocast(self, dtype: torch.dtype) -> None:
        """Cast floating inputs to `dtype` in regions of autocast, on CUDA and on the CPU."""
        for device, key in torch_compat.AUTOCAST_KEYS.items():
            self.implement(key, _autocast(self, device, key, dtype))

    def implement_sharding(self, rules: CallRules) -> None:
        """Give DTensor the strategies of an operator.

        DTensor takes a second to import. Until something else imports it, an operator of dotcu's waits: its
        kernel for autograd sees calls on DTensors first, and its fake kernel those of inference mode.
        """
        _waiting[self.signature.qualified_name] = lambda: _implement_sharding(self, rules)
        if self.signature.qualified_name not in _live:
            import_module(_DTENSOR)
        implement_waiting_shardings()


_live: dict[str, Registration] = {}


def define(signature: Signature, origin: Definition, tags: Sequence[torch.Tag]) -> Registration:
    """Define an overload; an earlier definition of the same function is replaced.

    Raises:
        DuplicateOperator: Another file or function has defined it; names both.
    """
    name = signature.qualified_name
    before = _live.get(name)
    if before is not None:
        if not origin.replaces(before.origin):
            raise DuplicateOperator(_duplicate(name, str(before.origin), str(origin)))
        family = [r for r in _live.values() if r.signature.packet_name == name and r is not before]
        for live in [before, *family]:  # a default overload takes those that were added to it along
            withdraw(live)
    library = Library(signature.namespace, "FRAGMENT")
    try:
        library.define(_implementation_name(signature) + signature.text, tags=tuple(tags))
    except RuntimeError as error:
        raise DuplicateOperator(_duplicate(name, "a library other than dotcu", str(origin))) from error
    registration = Registration(signature=signature, origin=origin, library=library)
    _live[name] = registration
    return registration


def withdraw(registration: Registration) -> None:
    """Remove an overload from the dispatcher."""
    _waiting.pop(registration.signature.qualified_name, None)
    torch_compat.forget_strategy(registration.operator)
    torch_compat.destroy(registration.library)
    _live.pop(registration.signature.qualified_name, None)


def is_live(registration: Registration) -> bool:
    """Return whether an overload is the one in force of its name."""
    return _live.get(registration.signature.qualified_name) is registration


def origins() -> dict[str, Definition]:
    """Return where each operator that is in force was defined, by its qualified name."""
    return {name: registration.origin for name, registration in _live.items()}


def withdraw_of(modules: Container[str]) -> None:
    """Remove every overload that functions of some modules define, and what these modules added to others."""
    for registration in [each for each in _live.values() if each.origin.module in modules]:
        withdraw(registration)
        refresh(registration.signature)
    _drop([each for each in _adopted if each.origin.module in modules])


# Operators of other libraries.


_adopted: list[Registration] = []


def adopt(signature: Signature, origin: Definition) -> Registration:
    """Return a registration for an operator of another library, in place of an earlier one from here."""
    name = signature.qualified_name
    _drop([r for r in _adopted if r.signature.qualified_name == name and origin.replaces(r.origin)])
    library = Library(signature.namespace, "FRAGMENT")
    registration = Registration(signature=signature, origin=origin, library=library)
    _adopted.append(registration)
    return registration


def _drop(adopted: Iterable[Registration]) -> None:
    for registration in adopted:
        _adopted.remove(registration)
        torch_compat.destroy(registration.library)


def find(namespace: str, name: str, overload: str) -> Any:
    """Return the `torch._ops.OpOverload` that another library has registered.

    Raises:
        UsageError: There is none, or dotcu.op has defined it; lists the existing ones.
    """
    own = next((r for r in _live.values() if r.signature.packet_name == f"{namespace}::{name}"), None)
    if own is not None:
        raise UsageError(
            f"{namespace}::{name} is defined by @dotcu.op, at {own.origin}.\n"
            "Use the object that it made there: it has its own reference, samples and fake."
        )
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if packet is None:
        raise UsageError(_unknown(namespace, name))
    if (overload or "default") not in packet.overloads():
        names = [f"{namespace}::{name}.{each}".removesuffix(".default") for each in packet.overloads()]
        missing = f"overload {overload!r}" if overload else "overload without a name"
        raise UsageError(
            f"{namespace}::{name} has no {missing}; it has {', '.join(names)}.\n"
            f'Type: dotcu.op.existing("{(difflib.get_close_matches(overload, names, 1) or names)[0]}")'
        )
    return getattr(packet, overload or "default")


def _unknown(namespace: str, name: str) -> str:
    every = {each.partition(".")[0] for each in torch_compat.operator_names()}
    known = sorted(each for each in every if each.startswith(f"{namespace}::"))
    happened = f"no library of this process has registered {namespace}::{name}"
    load = 'Load the library first: dotcu.load_cpp("lib.cpp"), or torch.ops.load_library("lib.so").'
    if not known:
        return f"{happened}, nor anything else of {namespace!r}.\n{load}"
    near = difflib.get_close_matches(f"{namespace}::{name}", known, 3) or known[:3]
    more = f" and {len(known) - len(near)} more" if len(known) > len(near) else ""
    return (
        f"{happened}; of {namespace!r} there is {', '.join(near)}{more}.\n"
        f'Type: dotcu.op.existing("{near[0]}")\n'
        f"Or, if it is of another library: {load[0].lower()}{load[1:]}"
    )


def packet(signature: Signature) -> Any:
    """Return the `torch._ops.OpOverloadPacket` that chooses among the present overloads of a name."""
    return getattr(getattr(torch.ops, signature.namespace), signature.name)


def refresh(signature: Signature) -> None:
    """Make `torch.ops` forget what it cached of a name, so that a new overload is found."""
    torch_compat.forget_packet(signature.namespace, signature.name)


# DTensor: its strategies are registered once it is imported.


_DTENSOR = "torch.distributed.tensor"
_waiting: dict[str, Callable[[], None]] = {}


def implement_waiting_shardings() -> None:
    """Give DTensor the strategies that were declared before it was imported."""
    while _waiting and _DTENSOR in sys.modules:
        _waiting.popitem()[1]()


def _implement_sharding(registration: Registration, rules: CallRules) -> None:
    from dotcu.operator import dtensor

    operator, signature = registration.operator, registration.signature
    strategy, info = dtensor.strategy(signature, rules), dtensor.schema_info(operator)
    torch_compat.register_strategy(
        operator, strategy, info, dtensor.writing(signature) if signature.mutates else None
    )


def _implementation_name(signature: Signature) -> str:
    return f"{signature.name}.{signature.overload}" if signature.overload else signature.name


def _duplicate(name: str, first: str, second: str) -> str:
    return (
        f"the operator {name} is defined twice: by {first} and by {second}.\n"
        "A name belongs to one function: rename one of the two, or remove it."
    )


def _autocast(registration: Registration, device: str, key: str, dtype: torch.dtype) -> Callable[..., Any]:
    def cast(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            casts = value.is_floating_point() and value.device.type == device and value.dtype != torch.float64
            return value.to(dtype) if casts else value
        return type(value)(map(cast, value)) if isinstance(value, (list, tuple)) else value

    def autocast(*args: Any, **kwargs: Any) -> Any:
        with torch_compat.below_autocast(key):
            return registration.operator(*map(cast, args), **{name: cast(v) for name, v in kwargs.items()})

    return autocast
