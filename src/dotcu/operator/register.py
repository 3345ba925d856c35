"""The dispatcher: the only place that registers anything with torch.

Each overload is defined and implemented through its own `torch.library.Library` fragment (not
`custom_op`, which costs three times as much per call), so that it can be taken back whole when
a notebook or `dotcu watch` defines it again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.library import Library

from dotcu.errors import DuplicateOperator
from dotcu.operator.schema import Body, Signature

Kernel = Callable[..., Any]

_AUTOCAST_KEYS = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where an operator was defined: two definitions of one origin replace each other."""

    module: str
    qualname: str
    file: str
    line: int

    @staticmethod
    def of(body: Body) -> Origin:
        """The place of a function in its source."""
        code = inspect.unwrap(body).__code__
        return Origin(
            module=body.__module__,
            qualname=body.__qualname__,
            file=code.co_filename,
            line=code.co_firstlineno,
        )

    def replaces(self, other: Origin) -> bool:
        """Whether a definition here is the same function as one there, written again."""
        return (self.module, self.qualname) == (other.module, other.qualname)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(kw_only=True)
class Registration:
    """One overload's place in the dispatcher, until `withdraw`."""

    signature: Signature
    origin: Origin
    library: Library

    @property
    def operator(self) -> Any:
        """The `torch._ops.OpOverload`."""
        packet = getattr(getattr(torch.ops, self.signature.namespace), self.signature.name)
        return getattr(packet, self.signature.overload or "default")

    @property
    def keyword_tensors(self) -> list[str]:
        """The arguments that are tensors, or lists of them, and given by keyword only."""
        arguments = self.operator._schema.arguments
        return [a.name for a in arguments if a.kwarg_only and "Tensor" in str(a.type)]

    @property
    def autocasts(self) -> bool:
        """Whether anybody has registered a kernel for autocast."""
        name = self.signature.qualified_name
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        return any(has(name, key) for key in _AUTOCAST_KEYS.values())

    def implement(self, key: str, kernel: Kernel) -> None:
        """Register a kernel for a dispatch key."""
        self.library.impl(_implementation_name(self.signature), kernel, key)

    def implement_fake(self, fake: Kernel) -> None:
        """Register what computes shapes, for the Meta key and for fake tensors."""
        torch.library.register_fake(
            self.signature.qualified_name, fake, lib=self.library, allow_override=True
        )

    def implement_vmap(self, rule: Kernel) -> None:
        """Register a batching rule, with torch.library.register_vmap's meaning."""
        torch.library.register_vmap(self.signature.qualified_name, rule, lib=self.library)

    def implement_autocast(self, dtype: torch.dtype) -> None:
        """Cast floating inputs to `dtype` in regions of autocast, on CUDA and on the CPU."""
        for device, key in _AUTOCAST_KEYS.items():
            self.implement(key, _autocast(self, device, key, dtype))


_live: dict[str, Registration] = {}


def define(signature: Signature, origin: Origin, tags: Sequence[torch.Tag]) -> Registration:
    """Define an overload; one from the same module and function is replaced.

    Raises:
        DuplicateOperator: Another place has defined it; names both.
    """
    name = signature.qualified_name
    before = _live.get(name)
    if before is not None:
        if not origin.replaces(before.origin):
            raise DuplicateOperator(_duplicate(name, str(before.origin), str(origin)))
        for live in [before, *_overloads_of(before)]:
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
    """Take an overload out of the dispatcher, and the entries from before what torch calls for it."""
    for operator in (registration.operator, packet(registration.signature)):
        operator._op = getattr(operator._op, "fallback", operator._op)
    registration.library._destroy()
    _live.pop(registration.signature.qualified_name, None)


def withdraw_of(modules: Container[str]) -> None:
    """Take out every overload that functions of some modules have defined."""
    for registration in [each for each in _live.values() if each.origin.module in modules]:
        withdraw(registration)
        refresh(registration.signature)


def _overloads_of(registration: Registration) -> list[Registration]:
    """What a default overload takes with it when it is defined again: the overloads added to it."""
    signature = registration.signature
    if signature.overload:
        return []
    return [
        r
        for r in _live.values()
        if r.signature.packet_name == signature.packet_name and r is not registration
    ]


def packet(signature: Signature) -> Any:
    """The `torch._ops.OpOverloadPacket` that picks among the overloads of a name, as they are now."""
    return getattr(getattr(torch.ops, signature.namespace), signature.name)


def refresh(signature: Signature) -> None:
    """Make `torch.ops` forget what it cached of a name, so that a new overload is found."""
    namespace = getattr(torch.ops, signature.namespace)
    vars(namespace).pop(signature.name, None)


def take_calls(operator: Any, entry: Callable[[Kernel], Kernel]) -> None:
    """Put an entry before what torch calls for an OpOverload or a packet of them, instead of one before.

    Args:
        entry: Makes it, from what torch calls: the entry leaves to that what it does not do itself.
    """
    called = getattr(operator._op, "fallback", operator._op)
    made = entry(called)
    name = torch.jit._builtins._find_builtin(called)
    if name is not None:  # TorchScript knows operators by what they call
        torch.jit._builtins._register_builtin(made, name)
    operator._op = made


def _implementation_name(signature: Signature) -> str:
    return f"{signature.name}.{signature.overload}" if signature.overload else signature.name


def _duplicate(name: str, first: str, second: str) -> str:
    return (
        f"the operator {name} is defined twice: by {first} and by {second}.\n"
        "A name belongs to one function: rename one of the two, or remove it."
    )


def _autocast(registration: Registration, device: str, key: str, dtype: torch.dtype) -> Kernel:
    def cast(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            casts = value.is_floating_point() and value.device.type == device and value.dtype != torch.float64
            return value.to(dtype) if casts else value
        return type(value)(map(cast, value)) if isinstance(value, (list, tuple)) else value

    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def autocast(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return registration.operator(*map(cast, args), **{name: cast(v) for name, v in kwargs.items()})

    return autocast
