"""What would lose a launch: traces, transforms, and gradients that nobody records.

A launch is no torch operator, so a graph that is being traced does not see it and autograd
does not either. Outside an operator it is refused there, by name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad

from dotcu.errors import GradientError, TracedLaunchError
from dotcu.kernel.tensors import is_plain, wrapping

_Mode = torch._C._TorchDispatchModeKey
_MODES = (
    (_Mode.PROXY, "make_fx or torch.export traces this code"),
    (_Mode.FAKE, "a FakeTensorMode is active: tensors made here have no memory"),
    (_Mode.FUNCTIONAL, "this code is being functionalized"),
)


def refuse_compiled(kernel: str) -> None:
    """Raise in the middle of Dynamo's trace, so that `torch.compile` and export fail by name.

    Raises:
        TracedLaunchError: Always. It is Dynamo's own kind of error as well, which Dynamo lets through.

    Note:
        Marked as constant: Dynamo calls it while it traces instead of looking inside.
    """
    raise _for_dynamo(_lost(kernel, "torch.compile traces this code"))


refuse_compiled._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _for_dynamo(message: str) -> TracedLaunchError:
    shortened = sys.modules["torch._dynamo.exc"].ShortenTraceback
    name, module = TracedLaunchError.__name__, TracedLaunchError.__module__
    made: Any = type(name, (TracedLaunchError, shortened), {"__module__": module})
    error: TracedLaunchError = made(message, first_useful_frame=None)
    return error


def _lost(kernel: str, why: str) -> str:
    return (
        f"{kernel} was launched where a trace would lose it: {why}.\n"
        "A launch is no torch operator, so no graph holds it.\n"
        "Wrap this launch in @dotcu.op, and call the operator here."
    )


def refuse_place(kernel: str, operator: str, reason: str) -> NoReturn:
    """Raise where an operator's code must not launch."""
    raise TracedLaunchError(
        f"{kernel} was launched{_where(operator, reason)}.\n"
        "A launch there has no derivative and no place in a graph.\n"
        "Wrap this launch in @dotcu.op, and call the operator here."
    )


def refuse_write(variable: str, operator: str, reason: str) -> NoReturn:
    """Raise where an operator's code must not write a variable."""
    raise TracedLaunchError(
        f"{variable} was written{_where(operator, reason)}.\n"
        "A write there has no place in a graph, and kernels that ran before it would not see it.\n"
        "Write it before the operator is called, or pass the kernels a tensor instead."
    )


def _where(operator: str, reason: str) -> str:
    return f"{f' in {operator}' if operator else ''} {reason or 'in a place that must not launch'}"


def require_seen(kernel: str, tensors: Sequence[Tensor]) -> None:
    """Refuse a launch outside any operator that a trace or autograd would lose.

    Raises:
        TracedLaunchError: A trace or transform is under way.
        GradientError: A tensor takes part in a differentiation.
    """
    why = _trace()
    if why is not None:
        raise TracedLaunchError(_lost(kernel, why))
    for tensor in tensors:
        wrapped = None if is_plain(tensor) else wrapping(tensor)
        if wrapped is not None:
            raise TracedLaunchError(_lost(kernel, f"it was given {wrapped}"))
        if tensor.requires_grad and torch.is_grad_enabled():
            raise _no_gradient(kernel, "a tensor that requires grad", "with torch.no_grad()")
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
            raise _no_gradient(kernel, "a dual tensor of forward-mode AD", "forward_ad.unpack_dual(t).primal")


def _trace() -> str | None:
    if torch.compiler.is_compiling():
        return "torch.compile or torch.export traces this code"
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace traces this code"
    for key, why in _MODES:
        if torch._C._get_dispatch_mode(key) is not None:
            return why
    if torch._ops._len_torch_dispatch_stack_pre_dispatch():
        return "make_fx or torch.export traces this code"
    return None


def _no_gradient(kernel: str, got: str, instead: str) -> GradientError:
    return GradientError(
        f"{kernel} was launched on {got}: the launch would leave no trace in its gradient.\n"
        f"If no gradient is wanted, launch on t.detach(), or use {instead}.\n"
        "If one is wanted, wrap this launch in @dotcu.op and give the operator a backward."
    )
