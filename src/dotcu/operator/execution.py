"""Execution of a call: by the body, the body without its launches, or the reference.

`compute` runs the body with its launches, on CUDA tensors or in the simulator. `allocate` runs it with
its launches skipped, for the shapes and layouts of its results. `fill` copies the reference's values into
these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from dotcu import settings
from dotcu.errors import ArgumentError, BodyError, LaunchError, ReferenceMismatch
from dotcu.kernel import active_run
from dotcu.kernel.driver.cuda import fault_story
from dotcu.kernel.scope import (
    LaunchPolicy,
    current_scope,
    entering_scope,
    in_body,
    observing_every_call,
    scope_variable,
)
from dotcu.operator.samples import describe
from dotcu.operator.schema import Body, Signature


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


_Make = Callable[[], AbstractContextManager[object]]
_around: ContextVar[_Make] = ContextVar("dotcu_around_bodies", default=nullcontext)
_around_skipped: ContextVar[_Make] = ContextVar("dotcu_around_skipped_bodies", default=nullcontext)


@contextmanager
def around_bodies(make: _Make, *, skipped: bool = False) -> Iterator[None]:
    """Run every body that computes inside a context manager, on this thread, until the block ends.

    Cached calls run no body, so meanwhile every call runs its body.

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


def compute(signature: Signature, body: Body, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run a body with its launches, and check its result.

    Args:
        signature: The overload's signature.
        body: Its body.
        args: The positional arguments of the call.
        kwargs: Its keyword arguments.

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
    return checked(signature, result, args, kwargs)


def allocate(signature: Signature, body: Body, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run a body without its launches, for the shapes, layouts and dtypes of its outputs.

    Args:
        signature: The overload's signature.
        body: Its body.
        args: The positional arguments of the call.
        kwargs: Its keyword arguments.
    """
    with entering_scope(LaunchPolicy.SKIP, operator=signature.qualified_name):
        with _around_skipped.get()():
            result = body(*args, **kwargs)
        return checked(signature, result, args, kwargs)


def require_one_kind_of_device(signature: Signature, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise for a call with tensors on `meta` among others: torch would infer shapes, and run nothing.

    Args:
        signature: The overload's signature.
        args: The positional arguments of the call.
        kwargs: Its keyword arguments.

    Raises:
        ArgumentError: It is such a call.
    """
    plain_ones = [t for t in tree_leaves((args, kwargs)) if type(t) in (torch.Tensor, torch.nn.Parameter)]
    if len({tensor.is_meta for tensor in plain_ones}) > 1:
        got = ", ".join(f"{describe(tensor)} on {tensor.device}" for tensor in plain_ones)
        raise ArgumentError(
            f"{signature.qualified_name} got tensors with memory and tensors without: {got}.\n"
            "All must be on one device; those on 'meta' have no values: x.to(device) cannot give them any."
        )


def checked(signature: Signature, result: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return a body's result if it fits its schema; several values as a plain tuple.

    Args:
        signature: The overload's signature.
        result: The body's result.
        args: The positional arguments of the call.
        kwargs: Its keyword arguments.

    Raises:
        BodyError: It returned another number of tensors, something else, or memory that is not new.
    """
    several = signature.returns > 1 and isinstance(result, (tuple, list))
    values = tuple(result) if several else () if result is None else (result,)
    fits = len(values) == signature.returns and all(map(_fits, values, signature.lists))
    if not fits:
        shown = result if isinstance(result, tuple) else values
        got = ", ".join(type(value).__name__ for value in shown) or "nothing"
        raise BodyError(
            f"the body of {signature} returned {got}.\n"
            f"Its schema promises {signature.returns or 'no'} tensor(s): "
            + ("end it with `return out`." if signature.returns else "end it without a value.")
        )
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    _require_new(signature, flat, [v for v in tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)])
    return values if several else result


def _fits(value: Any, is_list: bool) -> bool:
    if is_list:
        return isinstance(value, list) and all(isinstance(item, torch.Tensor) for item in value)
    return isinstance(value, torch.Tensor)


def _require_new(signature: Signature, results: Sequence[Any], inputs: Sequence[torch.Tensor]) -> None:
    taken = {tensor.untyped_storage()._cdata: "one of its inputs" for tensor in inputs}
    for value in results:
        memory = value.untyped_storage()._cdata
        if memory in taken:
            raise BodyError(
                f"the body of {signature} returned memory of {taken[memory]}, as {describe(value)}.\n"
                "An operator's result is new memory, else a later write changes both: "
                "return a copy (`.clone()`)."
            )
        taken[memory] = "another of its results"


def refer_out(
    signature: Signature,
    body: Body,
    reference: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> None:
    """Compute a reference that returns its result, into the arguments that the overload writes.

    The body runs for its checks. It may overwrite an input that shares memory with an output, so the
    reference is computed before.

    Args:
        signature: The overload's signature.
        body: Its body.
        reference: The reference of the overload that returns the result.
        args: The positional arguments of the call.
        kwargs: Its keyword arguments.
    """
    inputs = {name: value for name, value in kwargs.items() if name not in signature.outs}
    values = reference(*args, **inputs)
    allocate(signature, body, args, kwargs)
    outs = tuple(kwargs[name] for name in signature.outs)
    fill(signature, outs[0] if len(outs) == 1 else outs, values)


def fill(signature: Signature, into: Any, values: Any) -> Any:
    """Copy a reference's values into tensors of the same structure, and return those.

    Args:
        signature: The overload's signature.
        into: A tensor, or tuples and lists of tensors.
        values: The reference's values, in the same structure.

    Raises:
        ReferenceMismatch: A shape or dtype differs.
    """
    targets, sources = _tensors(into), _tensors(values)
    same = len(targets) == len(sources) and all(
        isinstance(source, torch.Tensor) and source.shape == target.shape and source.dtype == target.dtype
        for target, source in zip(targets, sources, strict=True)
    )
    if not same:
        reference, body = (", ".join(map(describe, values)) for values in (sources, targets))
        raise ReferenceMismatch(
            f"{signature.qualified_name}: the reference gives {reference}, the body gives "
            f"{body}.\nBoth must agree in number, shape and dtype: correct the one that is wrong."
        )
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
    return into


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(item)]
    return [value]
