"""Queries for operator bodies, on fakes and in the simulator too. They put no guard on symbolic sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Union
from weakref import WeakSet

import torch
from torch import Tensor

from dotcu import settings
from dotcu.errors import ArgumentError
from dotcu.kernel import cuda, native
from dotcu.kernel.arguments.memory import is_plain
from dotcu.kernel.config import limits
from dotcu.kernel.launch_policy import current_scope

Params = ParamSpec("Params")
Decision = TypeVar("Decision")
Int = TypeVar("Int", bound=Union[int, "torch.SymInt"])


def cdiv(a: Int, b: Int | int) -> Int:
    """Return the quotient of two whole numbers, rounded up: the number of blocks of b that cover a.

    Takes symbolic sizes and puts no guard on them.

    Raises:
        ArgumentError: One of them is a float.
    """
    if not (type(a) is int and type(b) is int) and any(isinstance(number, float) for number in (a, b)):
        raise ArgumentError(
            f"cdiv takes two whole numbers, got {a!r} and {b!r}.\nFor example: dotcu.cdiv(int(x), 256)"
        )
    return -(-a // b)  # type: ignore[return-value]


def is_aligned(tensor: Tensor, bytes: int) -> bool:
    """Return whether a tensor's first element is at an address divisible by `bytes`.

    A tensor without memory is as torch's allocator would make it: aligned. So a body must not
    let the shape of what it returns depend on this.
    """
    recording = current_scope().recording
    if recording is not None:
        return recording.aligned(tensor, bytes)
    return not is_plain(tensor) or tensor.data_ptr() % bytes == 0


def sm_count(tensor: Tensor | torch.device | str) -> int:
    """Return the number of multiprocessors of a tensor's device.

    On CPU tensors, and if there is no GPU, those of the GPU that the simulator stands for.

    Raises:
        ArgumentError: It is neither a tensor nor a device.
    """
    device, recording = _device_of(tensor, "sm_count"), current_scope().recording
    if recording is not None:
        return recording.multiprocessors(limits(*_simulated_capability()).multiprocessors)
    if device.type == "cuda" and cuda.available():
        return torch.cuda.get_device_properties(device).multi_processor_count
    return limits(*_simulated_capability()).multiprocessors


def capability(tensor: Tensor | torch.device | str) -> tuple[int, int]:
    """Return the compute capability of a tensor's device: (9, 0) for an H100.

    On CPU tensors, and if there is no GPU, that of the GPU that the simulator stands for.

    Raises:
        ArgumentError: It is neither a tensor nor a device.
    """
    device, recording = _device_of(tensor, "capability"), current_scope().recording
    if recording is not None:
        recording.asked_device()
    elif device.type == "cuda" and cuda.available():
        index: int | None = device.index  # torch annotates it as always there
        return cuda.capability(torch.cuda.current_device() if index is None else index)
    return _simulated_capability()


def _device_of(tensor: Tensor | torch.device | str, query: str) -> torch.device:
    try:
        return tensor.device if isinstance(tensor, Tensor) else torch.device(tensor)
    except (RuntimeError, TypeError) as error:
        raise ArgumentError(
            f'{query} takes a tensor or a device, got {tensor!r}.\nPass a tensor, "cuda:0" or "cpu".'
        ) from error


def _simulated_capability() -> tuple[int, int]:
    from dotcu.kernel.simulated_memory import active_run, capability_of
    from dotcu.kernel.simulation import DEFAULT_ARCH

    run = active_run()
    return capability_of(run.arch if run is not None else DEFAULT_ARCH)


MAX_LAYOUTS = 4096
"""The choices of one function that are kept; one more clears them."""


class _Choice:
    """A stand-in for the native part's type, where there is none."""

    choose: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.choose(*args, **kwargs)

    def keep_in(self, kept: dict[bytes, Any]) -> None:
        """Set the dict of what was chosen, by key: native code alone looks into it."""


_Base: Any = _Choice if native.missing() else native.library().Choice


class ByLayout(_Base, Generic[Params, Decision]):  # type: ignore[misc]  # a type of native code, or the one above
    """A function whose result is kept for each layout of its tensors; see `by_layout`."""

    if TYPE_CHECKING:

        def __call__(self, *args: Params.args, **kwargs: Params.kwargs) -> Decision: ...

    def __init__(self, function: Callable[Params, Decision]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._kept: dict[bytes, Decision] = {}
        self.keep_in(self._kept)
        _choices.add(self)

    def choose(self, *args: Params.args, **kwargs: Params.kwargs) -> Decision:
        """Return what the function chooses, from what is kept where that is possible."""
        scope = current_scope()  # only a body knows the GPU that `occupancy` is to answer for
        keeps = scope.gpu is not None and scope.keeps
        key = _layout_key(args) if keeps and not kwargs else None
        if key is None:
            return self.function(*args, **kwargs)
        choice = self._kept.get(key)
        if choice is None:
            if len(self._kept) >= MAX_LAYOUTS:
                self._kept.clear()
            choice = self._kept[key] = self.function(*args, **kwargs)
        return choice

    def forget(self) -> None:
        """Drop the choices: a constant that the function reads has changed."""
        self._kept.clear()


def by_layout(function: Callable[Params, Decision]) -> ByLayout[Params, Decision]:
    """Keep what a function chooses for tensors of one layout, so that a body computes it once.

    For example which vector width, tile and grid a launch takes. The function may depend on the shape,
    strides, dtype, device and alignment (up to 256 bytes) of its tensors and on numbers, dtypes and None
    beside them, on `kernel.occupancy`, `sm_count` and `capability`; not on values or addresses.

    Note:
        Choices are kept in the body of an operator, for plain CUDA tensors that are given by position, where
        the native part is in use. In every other call, such as with symbolic sizes, it runs. What it
        returns is shared by later calls. Constants that it reads must not change: where a test replaces one,
        call `.forget()`.

    Example:
        @dotcu.by_layout
        def tile(x: Tensor) -> tuple[int, int]: ...
    """
    return ByLayout(function)


_choices: WeakSet[ByLayout[..., Any]] = WeakSet()


def forget_choices() -> None:
    """Drop the choices of every function: what they depend on has changed."""
    for choice in tuple(_choices):
        choice.forget()


settings.watch(lambda before, after: forget_choices())


def _layout_key(args: tuple[Any, ...]) -> bytes | None:
    """Return a key of arguments without their values; None where native code has none."""
    key: bytes | None = native.library().layout_key(*args) if native.is_ready() else None
    return key
