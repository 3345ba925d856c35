"""Execution of a body, with its launches or without, and checks of its result."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from dotcu import settings, torch_compat
from dotcu.errors import BodyError, LaunchError
from dotcu.kernel import active_run
from dotcu.kernel.arguments.memory import count_writes
from dotcu.kernel.cuda import fault_story
from dotcu.kernel.launch_policy import (
    LaunchPolicy,
    current_scope,
    entering_scope,
    in_body,
    observing_every_call,
    scope_variable,
)
from dotcu.operator.samples import describe
from dotcu.operator.schema import OperatorBody, Signature
from dotcu.tracebacks import caller_line


def skipping() -> bool:
    """Return True inside an operator that runs for its shapes alone."""
    return current_scope().policy is LaunchPolicy.SKIP


def plain(value: Any) -> Any:
    """Return an argument with tensors of a subclass without `__torch_dispatch__` as plain tensors."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    if not isinstance(value, torch.Tensor) or type(value) in (torch.Tensor, torch.nn.Parameter):
        return value
    names_only = type(value).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return value.as_subclass(torch.Tensor) if names_only else value


def device_of(args: Sequence[Any], kwargs: dict[str, Any]) -> torch.device:
    """Return the device of a call's first tensor."""
    devices = (v.device for v in tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor))
    return next(devices, torch.device("cpu"))


def simulating() -> bool:
    """Return True if the simulator computes calls on CPU tensors now."""
    return active_run() is not None or settings.current().simulate


def warn_of_thread(name: str) -> None:
    """Warn that a call computes its reference while another thread is in `simulate()`."""
    place = caller_line()
    warnings.warn(
        f"{name}{f', called at {place},' if place else ''} computes its reference: this thread is not in the "
        "dotcu.simulate() that another one is in.\n"
        "To run its kernels here too, start the thread's work in a copy of the context:\n"
        "contextvars.copy_context().run(function, *args), or set DOTCU_SIMULATE=1 for the whole process.",
        RuntimeWarning,
        stacklevel=2,
    )


_Make = Callable[[], AbstractContextManager[object]]
_around: ContextVar[_Make] = ContextVar("dotcu_around_bodies", default=nullcontext)
_around_skipped: ContextVar[_Make] = ContextVar("dotcu_around_skipped_bodies", default=nullcontext)


@contextmanager
def around_bodies(make: _Make, *, skipped: bool = False) -> Iterator[None]:
    """Run every body that computes inside a context manager, on this thread, until the block ends.

    Native code runs bodies without, so meanwhile every call goes through Python.

    Args:
        make: Returns the context manager for one body.
        skipped: True to include the bodies that run without their launches.
    """
    token = _around.set(make)
    skipped_token = _around_skipped.set(make if skipped else _around_skipped.get())
    try:
        with observing_every_call():
            yield
    finally:
        _around.reset(token)
        _around_skipped.reset(skipped_token)


def explain(name: str, error: BaseException) -> None:
    """Raise a `LaunchError` for an error that torch found in a body, if a kernel before it failed."""
    story = fault_story(error)
    if story is not None:
        raise LaunchError(f"The body of {name} failed.\n{story}") from error


def compute(signature: Signature, body: OperatorBody, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run a body with its launches, and check its result.

    Raises:
        LaunchError: torch found in the body that a kernel before it had failed.
        BodyError: Its result does not fit its schema.
    """
    name = signature.qualified_name
    token = scope_variable.set(in_body(name, device_of(args, kwargs).index))
    try:
        with _around.get()():
            result = body(*args, **kwargs)
    except torch.AcceleratorError as error:
        explain(name, error)
        raise
    finally:
        scope_variable.reset(token)
    if signature.mutates:
        tensors = tree_leaves(signature.written(args, kwargs))
        count_writes([tensor for tensor in tensors if isinstance(tensor, torch.Tensor)])
    return checked(signature, result, args, kwargs)


def allocate(signature: Signature, body: OperatorBody, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run a body without its launches, for the shapes, layouts and dtypes of its outputs."""
    with entering_scope(LaunchPolicy.SKIP, operator=signature.qualified_name):
        with _around_skipped.get()():
            result = body(*args, **kwargs)
        return checked(signature, result, args, kwargs)


def checked(signature: Signature, result: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return a body's result if it fits its schema; several values as a plain tuple.

    Raises:
        BodyError: It returned another number of tensors, something else, or memory that is not new.
    """
    if signature.lists == (True,) and isinstance(result, tuple):
        result = list(result)
    several = signature.returns > 1 and isinstance(result, (tuple, list))
    if several:
        pairs = zip(result, signature.lists, strict=False)
        result = (
            *(list(v) if of and isinstance(v, tuple) else v for v, of in pairs),
            *result[len(signature.lists) :],
        )
    values = tuple(result) if several else () if result is None else (result,)
    fits = len(values) == signature.returns and all(map(_fits, values, signature.lists))
    if not fits:
        shown = result if isinstance(result, tuple) else values
        got = ", ".join(type(value).__name__ for value in shown) or "nothing"
        raise BodyError(
            f"the body of {signature} returned {got}.\n"
            f"Its schema promises {signature.returns or 'no'} tensor(s): "
            + (f"end it with `return {_names(signature.returns)}`." if signature.returns else "return none.")
        )
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    _require_new(signature, flat, [v for v in tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)])
    return values if several else result


def _names(count: int) -> str:
    return "out" if count == 1 else ", ".join(f"out{i}" for i in range(count))


def _fits(value: Any, is_list: bool) -> bool:
    if is_list:
        return isinstance(value, list) and all(isinstance(item, torch.Tensor) for item in value)
    return isinstance(value, torch.Tensor)


def _require_new(signature: Signature, results: Sequence[Any], inputs: Sequence[torch.Tensor]) -> None:
    taken = {torch_compat.storage_of(tensor): "one of its inputs" for tensor in inputs}
    for value in results:
        memory = torch_compat.storage_of(value)
        if memory in taken:
            raise BodyError(
                f"the body of {signature} returned memory of {taken[memory]}, as {describe(value)}.\n"
                "An operator's result is new memory, else a later write changes both: "
                "return a copy (`.clone()`)."
            )
        taken[memory] = "another of its results"
