"""The private names of torch that dotcu uses, each with its reason.

Each row of `PRIVATE` says why no public name serves and what happens on a torch that lacks it. A missing name
makes a call slower or a message less precise; it never makes a result wrong. `dotcu doctor` lists what is
missing, and `tests/unit/test_torch_compat.py` holds the table to the installed torch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.multiprocessing.reductions import StorageWeakRef


@dataclass(frozen=True, kw_only=True)
class PrivateName:
    """A private name of torch.

    Attributes:
        path: Where it is: a module, then attributes.
        reason: Why no public name serves.
        without: What happens where it is missing.
        seen: The versions that have it.
    """

    path: str
    reason: str
    without: str
    seen: str = "2.11 to 2.15"


PRIVATE = (
    PrivateName(
        path="torch._C._len_torch_dispatch_stack",
        reason="tells whether a TorchDispatchMode is active on this thread, which must see each operator",
        without="calls go through the dispatcher twice, and bare launches through Python",
    ),
    PrivateName(
        path="torch._C._len_torch_function_stack",
        reason="tells whether a TorchFunctionMode is active on this thread, which must see each operator",
        without="an operator's Python object always calls through the dispatcher",
    ),
    PrivateName(
        path="torch._C._are_functorch_transforms_active",
        reason="tells whether a transform of torch.func is active on this thread",
        without="gradients are recorded as under a transform, and calls go through the dispatcher",
    ),
    PrivateName(
        path="torch._C._is_tracing",
        reason="torch.jit.is_tracing warns that torch.jit is deprecated",
        without="a bare launch in torch.jit.trace is not refused",
    ),
    PrivateName(
        path="torch._C._increment_version",
        reason="torch.autograd.graph.increment_version calls this one, and takes twice as long",
        without="a bare launch takes longer by a tenth",
    ),
    PrivateName(
        path="torch._C._get_dispatch_mode",
        reason="tells which trace is active: of fake tensors, of make_fx, of functionalization",
        without="a bare launch on plain tensors in a trace is not refused",
    ),
    PrivateName(
        path="torch._C._TorchDispatchModeKey",
        reason="names these traces",
        without="the same",
    ),
    PrivateName(
        path="torch._C._dispatch_tls_is_dispatch_key_included",
        reason="tells whether torch.export traces above autograd, as a dispatch key of this thread",
        without="a bare launch on plain tensors in such a trace is not refused",
    ),
    PrivateName(
        path="torch._C._autograd._profiler_enabled",
        reason="tells whether torch.profiler records, which gets a range for each launch",
        without="launches have no range of their own in a profile",
    ),
    PrivateName(
        path="torch.autograd.forward_ad._current_level",
        reason="tells whether a dual level is open, without a look at each tensor",
        without="each tensor is asked for its tangent, and calls go through Python",
    ),
    PrivateName(
        path="torch._C._dispatch_keys",
        reason="tells what wraps a tensor: torch.vmap, torch.func, functionalization",
        without="the error of a launch on such a tensor does not name the transform, and Python looks at "
        "each property of each tensor",
    ),
    PrivateName(
        path="torch._C._AutoDispatchBelowAutograd",
        reason="calls an operator below autograd, as kernels in C++ do",
        without="operators cannot be defined: no public name does this",
    ),
    PrivateName(
        path="torch._C._ExcludeDispatchKeyGuard",
        reason="calls an operator below autocast, as torch.library does",
        without="an operator with a rule for autocast cannot be defined",
    ),
    PrivateName(
        path="torch._C._SetExcludeDispatchKeyGuard",
        reason="lets autocast act on what a body calls in the simulator, whose dispatch mode hides it",
        without="in `dotcu.simulate()` a body does not see a region of autocast",
    ),
    PrivateName(
        path="torch.autograd.function._SingleLevelFunction",
        reason="records a call for one transform of torch.func, as torch.library does",
        without="torch.func.grad of an operator is refused",
    ),
    PrivateName(
        path="torch._functorch.autograd_function.enable_single_level_autograd_function",
        reason="the same",
        without="the same",
    ),
    PrivateName(
        path="torch._C._dispatch_has_kernel_for_dispatch_key",
        reason="tells what a library has registered for an operator",
        without="a second registration ends in torch's own error",
    ),
    PrivateName(
        path="torch._library.simple_registry.singleton",
        reason="tells whether an operator has a fake kernel",
        without="the same",
    ),
    PrivateName(
        path="torch._C._dispatch_get_all_op_names",
        reason="lists the operators that libraries have registered",
        without="an error about an unknown operator names no similar one",
    ),
    PrivateName(
        path="torch.library.Library._destroy",
        reason="takes an operator out of the dispatcher, to define it again in a notebook or `dotcu watch`",
        without="an operator cannot be defined a second time in one process",
    ),
    PrivateName(
        path="torch._C.parse_schema",
        reason="checks a schema before it is registered",
        without="a wrong schema ends in torch's own error",
    ),
)
"""The names that kernel/ and operator/ need at run time."""

LATER = (
    PrivateName(
        path="torch._inductor.lowering.make_fallback",
        reason="tells Inductor to call an operator as it is, before it meets it",
        without="torch 2.11 writes out, for its log, all that an operator depends on: minutes for a model",
    ),
    PrivateName(
        path="torch._library.utils.get_layout_constraint_tag",
        reason="tells which layouts Inductor may pass to an operator",
        without="the same",
    ),
    *(
        PrivateName(
            path=f"torch.distributed.tensor.{name}",
            reason="torch.distributed.tensor.experimental.register_sharding looks at integer arguments "
            "alone, takes no `out=`, and passes keyword tensors on wherever they are",
            without="calls on DTensors end in torch's error about a missing strategy",
        )
        for name in (
            "DTensor._op_dispatcher", "_dtensor_spec.DTensorSpec", "_op_schema.OpSchema", "_op_schema.OpSpec",
            "_op_schema.OpStrategy", "_op_schema.RuntimeSchemaInfo", "_op_schema.TupleStrategy",
            "_ops.utils.generate_redistribute_costs",
        )
    ),
    PrivateName(
        path="torch.distributed.tensor.debug._clear_sharding_prop_cache",
        reason="lets DTensor ask for strategies again, once an operator has declared another sharding",
        without="an operator that is defined again keeps the placements of its earlier calls on DTensors",
    ),
)  # fmt: skip
"""Those that are needed once something else has imported Inductor or DTensor, which takes seconds."""


def find(path: str) -> Any:
    """Return what a path leads to; None if this torch does not have it."""
    *parents, name = path.split(".")
    for count in range(len(parents), 0, -1):
        try:
            found: Any = import_module(".".join(parents[:count]))
        except ImportError:
            continue
        for attribute in (*parents[count:], name):
            found = getattr(found, attribute, None)
        return found
    return None


def missing() -> tuple[PrivateName, ...]:
    """Return the names that this torch lacks."""
    return tuple(row for row in PRIVATE if find(row.path) is None)


def _function(path: str, otherwise: Any) -> Callable[..., Any]:
    return find(path) or (lambda *args: otherwise)


# What watches a thread. Each is false while nothing does; a missing name says that something may.

dispatch_modes: Callable[[], int] = _function("torch._C._len_torch_dispatch_stack", 1)
function_modes: Callable[[], int] = _function("torch._C._len_torch_function_stack", 1)
transforms: Callable[[], bool] = _function("torch._C._are_functorch_transforms_active", True)
profiling: Callable[[], bool] = _function("torch._C._autograd._profiler_enabled", False)
jit_trace: Callable[[], bool] = _function("torch._C._is_tracing", False)
pre_dispatch: Callable[[], bool] = functools.partial(
    _function("torch._C._dispatch_tls_is_dispatch_key_included", False), torch._C.DispatchKey.PreDispatch
)


LEVEL_OF_DUAL_NUMBERS = (forward_ad, "_current_level")
"""Where the level of forward-mode AD is: negative while none is open."""


def dual_level() -> bool:
    """Return whether a level of forward-mode AD is open, or may be."""
    return bool(getattr(*LEVEL_OF_DUAL_NUMBERS, 0) >= 0)


increment_version: Callable[[tuple[Tensor, ...]], None] = (
    find("torch._C._increment_version") or torch.autograd.graph.increment_version
)
"""Count a write to each of some tensors, none of inference mode."""


def active_trace() -> str | None:
    """Name the trace that is active on this thread, for which a launch would be lost."""
    if torch.compiler.is_compiling():
        return "torch.compile or torch.export traces this code"
    if jit_trace():
        return "torch.jit.trace traces this code"
    if dispatch_modes():
        for key, why in _modes():
            if _dispatch_mode(key) is not None:
                return why
    return "make_fx or torch.export traces this code" if pre_dispatch() else None


@functools.cache
def _modes() -> tuple[tuple[Any, str], ...]:
    keys = find("torch._C._TorchDispatchModeKey")
    return tuple((getattr(keys, name), why) for name, why in _MODES if hasattr(keys, name))


_dispatch_mode = _function("torch._C._get_dispatch_mode", None)
_MODES = (
    ("PROXY", "make_fx or torch.export traces this code"),
    ("FAKE", "a FakeTensorMode is active: tensors made here have no memory"),
    ("FUNCTIONAL", "this code is being functionalized"),
)

_dispatch_keys = _function("torch._C._dispatch_keys", None)
_WRAPPERS = (
    ("FuncTorchBatched", "a tensor that torch.vmap batches"),
    ("FuncTorchGradWrapper", "a tensor that torch.func differentiates"),
    ("Functionalize", "a functional tensor"),
)


def trace_wrapper(tensor: Tensor) -> str | None:
    """Name what traces or transforms this tensor, so that a launch would be lost; None if nothing does."""
    name = type(tensor).__name__
    if name in ("FakeTensor", "FunctionalTensor"):
        return f"a {name}"
    held = _dispatch_keys(tensor)
    if held is None:
        return None
    return next((what for key, what in _WRAPPERS if held.has(getattr(torch._C.DispatchKey, key))), None)


def dispatch_keys(tensor: Tensor) -> int | None:
    """Return the set of a tensor's dispatch keys as a number: two tensors of one kind have the same."""
    held = _dispatch_keys(tensor)
    return None if held is None else int(held.raw_repr())


def storage_of(tensor: Tensor) -> int:
    """Return a number that two tensors share if they share a storage: no public name says so for fakes."""
    return int(tensor.untyped_storage()._cdata)


def storage_behind(reference: StorageWeakRef) -> torch.UntypedStorage:
    """Return the storage that a reference stands for and that still exists: no public name does so."""
    storage: torch.UntypedStorage = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
    return storage


def is_zero_tensor(tensor: Tensor) -> bool:
    """Return whether a tensor stands for zeros without memory, as forward-mode AD makes them."""
    return bool(tensor._is_zerotensor())


# Dispatch.


AUTOCAST_KEYS = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}
"""The dispatch keys of autocast, by the type of the device."""


def below_autograd() -> AbstractContextManager[object]:
    """Return a block whose calls go below autograd."""
    guard: Any = torch._C._AutoDispatchBelowAutograd()
    return guard  # type: ignore[no-any-return]


_regions: ContextVar[tuple[str, ...]] = ContextVar("dotcu_regions_of_autocast", default=())


@contextmanager
def below_autocast(key: str) -> Iterator[None]:
    """Let calls pass over a dispatch key of autocast, until the block ends."""
    token = _regions.set(tuple(each for each in _regions.get() if AUTOCAST_KEYS[each] != key))
    try:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))):
            yield
    finally:
        _regions.reset(token)


def keeping_autocast() -> AbstractContextManager[object]:
    """Return a block around a call of an operator, whose body can then ask for `autocast_as_kept`."""
    return _keeping_autocast() if dispatch_modes() else nullcontext()


@contextmanager
def _keeping_autocast() -> Iterator[None]:
    token = _regions.set(tuple(filter(torch.is_autocast_enabled, AUTOCAST_KEYS)))
    try:
        yield
    finally:
        _regions.reset(token)


@contextmanager
def autocast_as_kept() -> Iterator[None]:
    """Let autocast act on the calls in this block as it did around the dispatch mode that it runs in.

    torch lets what a mode calls pass over every key above it, autocast's too, and a region is nothing but
    this key. It has acted on the call that the mode sees, and not on those that the body makes.
    """
    with ExitStack() as blocks:
        for device in _regions.get():
            key = getattr(torch._C.DispatchKey, AUTOCAST_KEYS[device])
            blocks.enter_context(_set_excluded(key, False))
        yield


_set_excluded = _function("torch._C._SetExcludeDispatchKeyGuard", nullcontext())


def has_kernel(qualified_name: str, key: str) -> bool:
    """Return whether a kernel is registered for a dispatch key of an operator."""
    return bool(_function("torch._C._dispatch_has_kernel_for_dispatch_key", False)(qualified_name, key))


def has_fake(qualified_name: str) -> bool:
    """Return whether torch.library.register_fake was called for an operator."""
    registry = find("torch._library.simple_registry.singleton")
    return registry is not None and registry.find(qualified_name).fake_impl.kernel is not None


def operator_names() -> list[str]:
    """Return the qualified names of all registered operators."""
    return list(_function("torch._C._dispatch_get_all_op_names", ())())


def destroy(library: Any) -> None:
    """Take what a `torch.library` library has registered out of the dispatcher."""
    library._destroy()


def forget_packet(namespace: str, name: str) -> None:
    """Make `torch.ops` look a name up again, so that a new overload is found."""
    vars(getattr(torch.ops, namespace)).pop(name, None)


def parse_schema(text: str) -> Any:
    """Return torch's `FunctionSchema`.

    Raises:
        RuntimeError: torch does not understand it.
    """
    return torch._C.parse_schema(text)


# Autograd under the transforms of torch.func.


@functools.cache
def one_level_function() -> Any:
    """Return the base of an autograd function that records for one transform of torch.func."""
    return find("torch.autograd.function._SingleLevelFunction")


def recording_one_level() -> AbstractContextManager[object]:
    """Return a block in which such a function may be applied."""
    enable = find("torch._functorch.autograd_function.enable_single_level_autograd_function")
    block: AbstractContextManager[object] = enable() if enable is not None else nullcontext()
    return block


def forward_mode(enabled: bool) -> AbstractContextManager[object]:
    """Return a block in which forward-mode AD records, or does not."""
    block: AbstractContextManager[object] = forward_ad._set_fwd_grad_enabled(enabled)
    return block


# Inductor and DTensor.


def announce_to_inductor(operators: Iterable[Any]) -> None:
    """Tell Inductor in a compile to call operators as they are, before Inductor meets them in its graph.

    An operator that it has not heard of, Inductor treats the same way, but torch 2.11 writes the arguments
    out first, as text for its log, whether or not anyone reads it: the text of an argument contains the
    text of all that it depends on, and doubles with each operator that takes two results of others. The
    forward of twelve layers did not end in four minutes.

    Whoever registers a lowering or a decomposition with Inductor has precedence. So nothing is announced
    outside of a compile, where only shapes are asked for and a lowering may still come. torch's own
    operators are left to Inductor, which makes their inputs contiguous in a backward.
    Source: torch 2.11 and 2.13, torch/_inductor/graph.py, GraphLowering.call_function.
    """
    lowering: Any = sys.modules.get("torch._inductor.lowering")
    make_fallback = getattr(lowering, "make_fallback", None)  # None while another thread imports the module
    layout_tag = find("torch._library.utils.get_layout_constraint_tag")
    if make_fallback is None or layout_tag is None or torch._guards.TracingContext.try_get() is None:
        return
    for operator in operators:
        known = operator in lowering.lowerings or operator in lowering.decompositions
        if not known and not torch._library.utils.is_builtin(operator):
            constraint = lowering.tag_to_layout_constraint(layout_tag(operator))
            make_fallback(operator, layout_constraint=constraint, warn=False)


@functools.cache
def dtensor_parts() -> SimpleNamespace:
    """Return the classes and functions that DTensor makes its own strategies of, by name."""
    paths = [row.path for row in LATER if row.path.startswith("torch.distributed.tensor._")]
    return SimpleNamespace(**{path.rpartition(".")[2]: find(path) for path in paths})


def dtensor_dispatcher() -> Any:
    """Return what dispatches operators on DTensors."""
    return find("torch.distributed.tensor.DTensor._op_dispatcher")


def register_strategy(operator: Any, strategy: Any, info: Any, handler: Any) -> None:
    """Give DTensor the strategy of an operator.

    Args:
        operator, strategy, info: As DTensor's `register_op_strategy` takes them.
        handler: What computes a call in DTensor's place; None to leave it to DTensor.
    """
    dispatcher = dtensor_dispatcher()
    dispatcher.sharding_propagator.register_op_strategy(operator, strategy, info)
    if handler is not None:
        dispatcher._custom_op_handlers[operator] = handler
    _forget_placements()


def forget_strategy(operator: Any) -> None:
    """Take back what `register_strategy` gave: an operator of this name may come that declares nothing."""
    if "torch.distributed.tensor" not in sys.modules:
        return
    dispatcher = dtensor_dispatcher()
    for of_operator in (
        getattr(dispatcher.sharding_propagator, "op_strategy_funcs", {}),
        getattr(dispatcher.sharding_propagator, "op_to_schema_info", {}),
        dispatcher._custom_op_handlers,
    ):
        of_operator.pop(operator, None)
    _forget_placements()


def _forget_placements() -> None:
    """Let DTensor ask strategies again: it keeps what they answered, by operator and placements."""
    clear = find("torch.distributed.tensor.debug._clear_sharding_prop_cache")
    if clear is not None:
        clear()


# Dynamo.


def constant_for_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let Dynamo call a function while it traces, instead of looking inside."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def dynamo_error() -> type[BaseException]:
    """Return a kind of error that Dynamo lets through to the user as it is."""
    module: Any = sys.modules["torch._dynamo.exc"]
    base: type[BaseException] = getattr(module, "ShortenTraceback", RuntimeError)
    return base
