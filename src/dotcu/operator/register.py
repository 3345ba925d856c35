"""The dispatcher: the only place that registers anything with torch.

Each overload is defined and implemented through its own `torch.library.Library` fragment (not
`custom_op`, which costs three times as much per call), so that it can be taken back whole when
a notebook or `dotcu watch` defines it again.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.library import Library

from dotcu.errors import DuplicateOperator, UsageError
from dotcu.operator.schema import Body, Signature

Kernel = Callable[..., Any]

_AUTOCAST_KEYS = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}
_AUTOGRAD_KEYS = ("Autograd", "AutogradCUDA", "AutogradCPU")
_DECOMPOSES = "CompositeImplicitAutograd"
"""The key of a kernel that calls torch's operators, whatever it is called for."""


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

    @staticmethod
    def of_caller(depth: int) -> Origin:
        """The place of the code that called, so many calls above who asks."""
        frame = sys._getframe(depth + 1)
        return Origin(
            module=frame.f_globals.get("__name__", "__main__"),
            qualname="",
            file=frame.f_code.co_filename,
            line=frame.f_lineno,
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

    def has(self, keys: Iterable[str]) -> bool:
        """Whether anybody has registered a kernel for one of some dispatch keys."""
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        return any(has(self.signature.qualified_name, key) for key in keys)

    @property
    def autocasts(self) -> bool:
        """Whether anybody has registered a kernel for autocast."""
        return self.has(_AUTOCAST_KEYS.values())

    @property
    def differentiates(self) -> bool:
        """Whether anybody has registered a kernel for autograd, or one that torch differentiates through."""
        return self.has((*_AUTOGRAD_KEYS, _DECOMPOSES))

    @property
    def batches(self) -> bool:
        """Whether anybody has registered a batching rule, or a kernel that torch batches through."""
        return self.has(("FuncTorchBatched", _DECOMPOSES))

    @property
    def has_own_fake(self) -> bool:
        """Whether anybody has registered what computes shapes, beside which torch takes no other."""
        name = self.signature.qualified_name
        told = torch._library.simple_registry.singleton.find(name).fake_impl.kernel
        return told is not None or self.has(("Meta", _DECOMPOSES))

    @property
    def fakes(self) -> bool:
        """Whether torch can tell what a call gives: by a fake, or by a kernel for every device."""
        return self.has_own_fake or self.has(("CompositeExplicitAutograd",))

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
    """Take out every overload that functions of some modules have defined, and what they gave to others."""
    for registration in [each for each in _live.values() if each.origin.module in modules]:
        withdraw(registration)
        refresh(registration.signature)
    for key in [each for each in _adopted if each[1] in modules]:
        _adopted.pop(key).library._destroy()


# ------------------------------------------------------------------ operators of other libraries


_adopted: dict[tuple[str, str], Registration] = {}
"""By qualified name, and the module that described the operator."""


def adopt(signature: Signature, origin: Origin) -> Registration:
    """Let more be registered for an operator that is there; what its module has given it before goes."""
    key = signature.qualified_name, origin.module
    if key in _adopted:
        _adopted.pop(key).library._destroy()
    library = Library(signature.namespace, "FRAGMENT")
    _adopted[key] = Registration(signature=signature, origin=origin, library=library)
    return _adopted[key]


def find(namespace: str, name: str, overload: str) -> Any:
    """The `torch._ops.OpOverload` that another library has registered.

    Raises:
        UsageError: There is none, or dotcu.op has defined it; says what there is.
    """
    own = next((r for r in _live.values() if r.signature.packet_name == f"{namespace}::{name}"), None)
    if own is not None:
        raise UsageError(
            f"{namespace}::{name} is defined by @dotcu.op, at {own.origin}.\n"
            "Use the object that it made there: it has a reference, samples and a fake of its own."
        )
    found = getattr(getattr(torch.ops, namespace), name, None)
    if found is None:
        raise UsageError(_unknown(namespace, name))
    if (overload or "default") not in found.overloads():
        names = [f"{namespace}::{name}.{each}".removesuffix(".default") for each in found.overloads()]
        what = f"overload {overload!r}" if overload else "overload without a name"
        raise UsageError(
            f"{namespace}::{name} has no {what}; it has {', '.join(names)}.\n"
            f'Type: dotcu.op.existing("{(difflib.get_close_matches(overload, names, 1) or names)[0]}")'
        )
    return getattr(found, overload or "default")


def _unknown(namespace: str, name: str) -> str:
    every = {each.partition(".")[0] for each in torch._C._dispatch_get_all_op_names()}
    known = sorted(each for each in every if each.startswith(f"{namespace}::"))
    happened = f"no library of this process has registered {namespace}::{name}"
    load = 'Load the library first: dotcu.load_native("lib.cpp"), or torch.ops.load_library("lib.so").'
    if not known:
        return f"{happened}, nor anything else of {namespace!r}.\n{load}"
    near = difflib.get_close_matches(f"{namespace}::{name}", known, 3) or known[:3]
    more = f" and {len(known) - len(near)} more" if len(known) > len(near) else ""
    return (
        f"{happened}; of {namespace!r} there is {', '.join(near)}{more}.\n"
        f'Type: dotcu.op.existing("{near[0]}")\n'
        f"Or, if it is of another library: {load[0].lower()}{load[1:]}"
    )


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
