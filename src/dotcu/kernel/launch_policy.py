"""The policy of launches: whether one happens, what observes it, and refusals where it would be lost.

Bodies, traces and launches share one piece of state, `current_scope()`. Outside any operator a launch runs
(`LaunchPolicy.OUTSIDE`), unless a trace, a transform or autograd would lose it: a launch is not a torch
operator. In a body that computes it runs (`BODY`). In a body that runs only for its shapes it is skipped
(`SKIP`). In a backward it is refused (`REFUSE`): a second derivative would not include it. While a CUDA
graph is captured, loading code and writing variables are refused before the driver is asked: it forbids
both, and a failed try would spoil the capture. The state belongs to the thread and task that set it.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from dotcu import torch_compat
from dotcu.errors import CaptureError, GradientError, TracedLaunchError
from dotcu.kernel.arguments.memory import count_writes, is_plain
from dotcu.kernel.config import BlockConfig
from dotcu.locks import ForkSafeLock

Subscriber = TypeVar("Subscriber")


class LaunchPolicy(enum.Enum):
    """The fate of a launch."""

    OUTSIDE = "outside any operator: it runs, and is refused where a trace would lose it"
    BODY = "in the body of an operator that computes: it runs"
    SKIP = "in the body of an operator that is asked for shapes: it is skipped"
    REFUSE = "in a backward or elsewhere that launches are not allowed: it is refused"


class LaunchRecorder(Protocol):
    """Records a body that runs without its launches, and answers its questions about tensors and GPU."""

    def launched(self, kernel: Any, args: Sequence[Any], grid: Any, shape: BlockConfig) -> None:
        """Record a launch that is skipped."""

    def aligned(self, tensor: Tensor, bytes: int) -> bool:
        """Return whether a tensor is aligned to `bytes`, which the recording then depends on."""

    def multiprocessors(self, count: int) -> int:
        """Return a number that stands for any GPU's; `count` is that of the GPU that is asked for."""

    def asked_device(self) -> None:
        """Note that the call depends on the GPU's compute capability."""

    def hint(self, size: int) -> int:
        """Return what a symbolic size is in this call, without a guard."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The operator whose code is running, and what becomes of a launch in it.

    Attributes:
        reason: Why launches are refused, for the message.
        recording: Records the body, where its launches are skipped.
        gpu: The index of the GPU of the call's tensors; None outside a body and on the CPU.
        keeps: False where a body's choices hold for this call alone.
    """

    policy: LaunchPolicy
    operator: str = ""
    reason: str = ""
    recording: LaunchRecorder | None = None
    gpu: int | None = None
    keeps: bool = True


OUTSIDE = Scope(policy=LaunchPolicy.OUTSIDE)
scope_variable: ContextVar[Scope] = ContextVar("dotcu_scope", default=OUTSIDE)
"""Set and reset directly where `entering_scope` would cost too much."""

current_scope = scope_variable.get
"""Return the scope that this thread is in."""


@functools.cache
def in_body(operator: str, gpu: int | None) -> Scope:
    """Return the scope of a body that computes, on the GPU of an index; None or less than 0 for the CPU."""
    on_gpu = gpu is not None and gpu >= 0
    return Scope(policy=LaunchPolicy.BODY, operator=operator, gpu=gpu if on_gpu else None)


@contextmanager
def entering_scope(policy: LaunchPolicy, **attributes: Any) -> Iterator[None]:
    """Set the scope, with this policy and other attributes of `Scope`, until the block ends."""
    token = scope_variable.set(Scope(policy=policy, **attributes))
    try:
        with observing_every_call() if policy is LaunchPolicy.SKIP else nullcontext():
            yield
    finally:
        scope_variable.reset(token)


# Observers. Native code looks at no subscriber, so while a block needs to see every call and launch, each
# goes through Python.


_observers = 0
_on_change: list[Callable[[int], object]] = []
_lock = ForkSafeLock()


def watch_observers(callback: Callable[[int], object]) -> None:
    """Call back with the number of blocks that must see every call, on all threads; then with each change."""
    with _lock:
        callback(_observers)
        _on_change.append(callback)


def change_observers(by: int) -> None:
    """Add to the number of blocks that must see every call."""
    global _observers
    with _lock:
        _observers += by
        for callback in _on_change:
            callback(by)


def is_observed() -> bool:
    """Return whether some block must see every call."""
    return _observers > 0


@contextmanager
def observing_every_call() -> Iterator[None]:
    """Let every call and launch go through Python, on any thread, until the block ends."""
    change_observers(1)
    try:
        yield
    finally:
        change_observers(-1)


@contextmanager
def subscribed(to: ContextVar[tuple[Subscriber, ...]], subscriber: Subscriber) -> Iterator[None]:
    token = to.set((*to.get(), subscriber))
    try:
        with observing_every_call():
            yield
    finally:
        to.reset(token)


@dataclass(frozen=True, kw_only=True)
class LaunchRecord:
    """One launch that happened.

    Attributes:
        kernel: The kernel with its template arguments.
        where: `cuda:0`, or `simulator`.
        digest: The build digest of the code that ran.
        compile_s: Seconds that compiling it took, by this process or the one that filled the cache.
        cached: Whether the code came from the cache.
        files: Real path, or name to show, of each file name in its line table.
    """

    kernel: str
    where: str
    digest: str
    compile_s: float
    cached: bool
    files: Mapping[str, str]


_watchers: ContextVar[tuple[list[LaunchRecord], ...]] = ContextVar("dotcu_watchers", default=())

launch_watchers = _watchers.get
"""Return the lists that a launch is added to."""


@contextmanager
def watching_launches() -> Iterator[list[LaunchRecord]]:
    """Collect this thread's launches until the block ends."""
    launches: list[LaunchRecord] = []
    with subscribed(_watchers, launches):
        yield launches


def count_launch_writes(written: Sequence[Tensor]) -> None:
    """Bump the versions of what a launch outside any operator may have written.

    In a body the operator's schema says what is written, and the operator counts it.
    """
    if current_scope().policy is LaunchPolicy.OUTSIDE:
        count_writes(written)


# Refusals: traces, transforms, and gradients that nothing records.


@torch_compat.constant_for_dynamo
def refuse_compiled(kernel: str) -> None:
    """Raise in the middle of Dynamo's trace, so that `torch.compile` and export fail by name.

    Raises:
        TracedLaunchError: Always. It is Dynamo's own kind of error as well, which Dynamo lets through.

    Note:
        Marked as constant: Dynamo calls it while it traces instead of looking inside.
    """
    base = torch_compat.dynamo_error()
    name, module = TracedLaunchError.__name__, TracedLaunchError.__module__
    kind: Any = type(name, (TracedLaunchError, base), {"__module__": module})
    message = _lost_launch(kernel, "torch.compile traces this code")
    raise kind(message, first_useful_frame=None)


def _lost_launch(kernel: str, why: str) -> str:
    return (
        f"{kernel} was launched where a trace would lose it: {why}.\n"
        "A launch is not a torch operator, so no graph holds it.\n"
        "Wrap this launch in @dotcu.op, and call the operator here."
    )


def refuse_launch(kernel: str, scope: Scope) -> NoReturn:
    """Raise where an operator's code must not launch."""
    raise TracedLaunchError(
        f"{kernel} was launched{_where(scope)}.\n"
        "A launch there has no derivative and cannot be part of a graph.\n"
        "Wrap this launch in @dotcu.op, and call the operator here."
    )


def refuse_write(variable: str, scope: Scope) -> NoReturn:
    """Raise where an operator's code must not write a variable."""
    raise TracedLaunchError(
        f"{variable} was written{_where(scope)}.\n"
        "A write there cannot be part of a graph, and kernels that ran before it would not see it.\n"
        "Write it before the operator is called, or pass the kernels a tensor instead."
    )


def _where(scope: Scope) -> str:
    operator = f" in {scope.operator}" if scope.operator else ""
    return f"{operator} {scope.reason or 'where launches are not allowed'}"


def require_seen(kernel: str, tensors: Sequence[Tensor]) -> None:
    """Refuse a launch outside any operator that a trace, a transform or autograd would lose."""
    why = torch_compat.active_trace()
    if why is not None:
        raise TracedLaunchError(_lost_launch(kernel, why))
    for tensor in tensors:
        wrapped = None if is_plain(tensor) else torch_compat.trace_wrapper(tensor)
        if wrapped is not None:
            raise TracedLaunchError(_lost_launch(kernel, f"it was given {wrapped}"))
        if tensor.requires_grad and torch.is_grad_enabled():
            raise _no_gradient(kernel, "a tensor that requires grad", "with torch.no_grad()")
        if torch_compat.dual_level() and forward_ad.unpack_dual(tensor).tangent is not None:
            raise _no_gradient(kernel, "a dual tensor of forward-mode AD", "forward_ad.unpack_dual(t).primal")


def _no_gradient(kernel: str, got: str, instead: str) -> GradientError:
    return GradientError(
        f"{kernel} was launched on {got}: its gradient would miss the launch.\n"
        f"If no gradient is needed, launch on t.detach(), or use {instead}.\n"
        "If one is needed, wrap this launch in @dotcu.op and give the operator a backward."
    )


# Refusals while a CUDA graph is captured.


def refuse_captured_load(kernel: str, file: str, index: int) -> NoReturn:
    """Raise for a kernel of a file that is not loaded on a GPU yet."""
    operator = current_scope().operator
    name = operator.partition("::")[2].partition(".")[0] or "op"
    by = f", launched by {operator}," if operator else ""
    raise CaptureError(
        f"{kernel} of {file}{by} is not loaded on cuda:{index}, and torch's current stream is being captured "
        "in a CUDA graph.\n"
        "Code can only be loaded before a capture. Nothing was tried, so the capture can be ended.\n"
        f"Before it, type: {name}.warm() for what an operator's samples reach, kernels.warm() for a file's "
        "kernels and the instantiations used so far; or call it once, as in the warm-up that a capture "
        "by torch.cuda.graph needs anyway."
    )


def refuse_captured_write(variable: str, file: str) -> NoReturn:
    """Raise for a write of a variable."""
    raise CaptureError(
        f"{variable} of {file} was written while torch's current stream is being captured in a CUDA graph.\n"
        "A write waits for the GPU, and a replay would not repeat it. Nothing was written.\n"
        f'Before the capture, type: kernels.variable("{variable}").write(tensor)\n'
        "or pass the kernel a tensor instead."
    )


def refuse_captured_warming(what: str) -> NoReturn:
    """Raise where an operator is warmed too late."""
    raise CaptureError(
        f"{what}.warm() was called while torch's current stream is being captured in a CUDA graph.\n"
        "It calls the operator, and waits for the GPU.\n"
        f"Before the capture, type: {what}.warm()"
    )
