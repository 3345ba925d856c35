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
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.library import Library

from dotcu.errors import DuplicateOperator, UsageError
from dotcu.operator.schema import Body, Signature

if TYPE_CHECKING:
    from dotcu.operator.dtensor import Rules

Kernel = Callable[..., Any]

_AUTOCAST_KEYS = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}
_DECOMPOSES = "CompositeImplicitAutograd"
"""The key of a kernel that calls torch's operators, for every device and purpose."""

AUTOGRAD = ("Autograd", "AutogradCUDA", "AutogradCPU", _DECOMPOSES)
"""The keys of kernels for autograd, and of one that torch differentiates through."""

BATCHING = ("FuncTorchBatched", _DECOMPOSES)
"""The keys of a batching rule, and of a kernel that torch batches through."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The place of an operator's definition in the source."""

    module: str
    qualname: str
    file: str
    line: int

    @staticmethod
    def of(body: Body) -> Origin:
        """Return the place of a function."""
        code = inspect.unwrap(body).__code__
        return Origin(
            module=body.__module__, qualname=body.__qualname__,
            file=code.co_filename, line=code.co_firstlineno,
        )  # fmt: skip

    @staticmethod
    def of_caller() -> Origin:
        """Return the place of the code that calls the function that asks."""
        frame = sys._getframe(2)
        module = frame.f_globals.get("__name__", "__main__")
        return Origin(module=module, qualname="", file=frame.f_code.co_filename, line=frame.f_lineno)

    def replaces(self, other: Origin) -> bool:
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
    origin: Origin
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
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        return any(has(self.signature.qualified_name, key) for key in keys)

    @property
    def autocasts(self) -> bool:
        """True if a kernel for autocast is registered."""
        return self.has(_AUTOCAST_KEYS.values())

    @property
    def has_own_fake(self) -> bool:
        """True if a fake kernel is registered; torch takes no second one."""
        name = self.signature.qualified_name
        fake = torch._library.simple_registry.singleton.find(name).fake_impl.kernel
        return fake is not None or self.has(("Meta", _DECOMPOSES))

    @property
    def fakes(self) -> bool:
        """True if torch can infer a result's shape: by a fake, or by a kernel for every device."""
        return self.has_own_fake or self.has(("CompositeExplicitAutograd",))

    def implement(self, key: str, kernel: Kernel) -> None:
        """Register a kernel for a dispatch key."""
        self.library.impl(_implementation_name(self.signature), kernel, key)

    def implement_fake(self, fake: Kernel) -> None:
        """Register the fake kernel, for the Meta key and for fake tensors."""
        met: dict[Any, None] = {}

        def announced(*args: Any, **kwargs: Any) -> Any:
            # torch keeps the object that it met first, and an added overload makes another
            met[self.operator] = None
            _announce_to_inductor(tuple(met))
            return fake(*args, **kwargs)

        torch.library.register_fake(
            self.signature.qualified_name, announced, lib=self.library, allow_override=True
        )

    def implement_vmap(self, rule: Kernel) -> None:
        """Register a batching rule, with torch.library.register_vmap's meaning."""
        torch.library.register_vmap(self.signature.qualified_name, rule, lib=self.library)

    def implement_autocast(self, dtype: torch.dtype) -> None:
        """Cast floating inputs to `dtype` in regions of autocast, on CUDA and on the CPU."""
        for device, key in _AUTOCAST_KEYS.items():
            self.implement(key, _autocast(self, device, key, dtype))

    def implement_sharding(self, rules: Rules) -> None:
        """Give DTensor the strategies of an operator, once DTensor is imported, which takes a second."""
        name = self.signature.qualified_name
        _of_dtensor[name] = lambda: _implement_sharding(self, rules)
        if _DTENSOR in sys.modules:
            _of_dtensor.pop(name)()
        elif _waiting not in sys.meta_path:
            sys.meta_path.insert(0, _waiting)


_live: dict[str, Registration] = {}


def define(signature: Signature, origin: Origin, tags: Sequence[torch.Tag]) -> Registration:
    """Define an overload; an earlier definition of the same function is replaced.

    Args:
        origin: The place of its definition.

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
    """Remove an overload from the dispatcher, and the entries before what torch calls for it."""
    _of_dtensor.pop(registration.signature.qualified_name, None)
    for operator in (registration.operator, packet(registration.signature)):
        operator._op = getattr(operator._op, "fallback", operator._op)
    registration.library._destroy()
    _live.pop(registration.signature.qualified_name, None)


def is_live(registration: Registration) -> bool:
    """Return whether an overload is the one in force of its name."""
    return _live.get(registration.signature.qualified_name) is registration


def origins() -> dict[str, Origin]:
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


def adopt(signature: Signature, origin: Origin) -> Registration:
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
        registration.library._destroy()


def find(namespace: str, name: str, overload: str) -> Any:
    """Return the `torch._ops.OpOverload` that another library has registered.

    Args:
        overload: The overload's name; empty for the default one.

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


def packet(signature: Signature) -> Any:
    """Return the `torch._ops.OpOverloadPacket` that chooses among the present overloads of a name."""
    return getattr(getattr(torch.ops, signature.namespace), signature.name)


def refresh(signature: Signature) -> None:
    """Make `torch.ops` forget what it cached of a name, so that a new overload is found."""
    vars(getattr(torch.ops, signature.namespace)).pop(signature.name, None)


def put_before(operator: Any, entry: Callable[[Kernel], Kernel]) -> None:
    """Put an entry before what torch calls for an OpOverload or a packet of them, in place of an earlier one.

    Args:
        operator: The OpOverload or the packet.
        entry: Makes the entry, from the function that torch calls, which the entry falls back to.
    """
    called = getattr(operator._op, "fallback", operator._op)
    function = entry(called)
    name = torch.jit._builtins._find_builtin(called)
    if name is not None:  # TorchScript knows operators by what they call
        torch.jit._builtins._register_builtin(function, name)
    operator._op = function


def _announce_to_inductor(operators: Iterable[Any]) -> None:
    """Tell Inductor in a compile to call operators as they are, before Inductor meets them in its graph.

    An operator that it has not heard of, Inductor treats the same way, but torch 2.11 writes the arguments
    out first, as text for its log, whether or not anyone reads it: the text of an argument has that of all
    that it depends on, and doubles with each operator that takes two results of others. The forward of
    twelve layers did not end in four minutes.

    Whoever registers a lowering or a decomposition with Inductor has precedence. So nothing is announced
    outside of a compile, where only shapes are asked for and a lowering may still come. torch's own
    operators are left to Inductor, which makes their inputs contiguous in a backward.
    Source: torch 2.11 and 2.13, torch/_inductor/graph.py, GraphLowering.call_function.
    """
    lowering: Any = sys.modules.get("torch._inductor.lowering")
    make_fallback = getattr(lowering, "make_fallback", None)  # None while another thread imports the module
    if make_fallback is None or torch._guards.TracingContext.try_get() is None:
        return
    for operator in operators:
        known = operator in lowering.lowerings or operator in lowering.decompositions
        if not known and not torch._library.utils.is_builtin(operator):
            tag = torch._library.utils.get_layout_constraint_tag(operator)
            make_fallback(operator, layout_constraint=lowering.tag_to_layout_constraint(tag), warn=False)


# DTensor: its strategies are registered when it is first imported.


_DTENSOR = "torch.distributed.tensor"
_of_dtensor: dict[str, Callable[[], None]] = {}


def _find_dtensor(name: str, path: Any = None, target: Any = None) -> Any:
    """Find DTensor as Python does, and give it strategies once it is there (`MetaPathFinder.find_spec`)."""
    if name != _DTENSOR:
        return None
    sys.meta_path.remove(_waiting)
    spec = find_spec(name)
    loader: Any = None if spec is None else spec.loader
    if loader is not None:
        execute = loader.exec_module

        def execute_and_register(module: Any) -> None:
            execute(module)
            while _of_dtensor:
                _of_dtensor.popitem()[1]()

        loader.exec_module = execute_and_register
    return spec


_waiting: Any = SimpleNamespace(find_spec=_find_dtensor)
"""Stands before Python's own finders of modules until DTensor is imported."""


def _implement_sharding(registration: Registration, rules: Rules) -> None:
    dtensor: Any = import_module("dotcu.operator.dtensor")
    operator, signature = registration.operator, registration.signature
    dispatcher: Any = dtensor.DTensor._op_dispatcher
    strategy, info = dtensor.strategy(signature, rules), dtensor.schema_info(operator)
    dispatcher.sharding_propagator.register_op_strategy(operator, strategy, info)
    if signature.mutates:
        dispatcher._custom_op_handlers[operator] = dtensor.writing(signature)


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
