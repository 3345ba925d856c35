"""What a body may ask: answers on fakes and in the simulator too, and no guard on a symbolic size."""

from __future__ import annotations

from typing import TypeVar, Union, cast

import torch
from torch import Tensor

from dotcu.errors import ArgumentError
from dotcu.kernel import context, cuda
from dotcu.kernel.occupancy import limits
from dotcu.kernel.runs import active_run, capability_of
from dotcu.kernel.tensors import is_plain

Int = TypeVar("Int", bound=Union[int, "torch.SymInt"])


def cdiv(a: Int, b: Int | int) -> Int:
    """The quotient of two whole numbers, rounded up: how many blocks of b cover a.

    Takes symbolic sizes and puts no guard on them.

    Raises:
        ArgumentError: One of them is a float.
    """
    if any(isinstance(number, float) for number in (a, b)):
        raise ArgumentError(
            f"cdiv takes two whole numbers, got {a!r} and {b!r}.\nWrite dotcu.cdiv(int(x), 256), say."
        )
    return -(-a // b)  # type: ignore[return-value]


def is_aligned(tensor: Tensor, bytes: int) -> bool:
    """Whether a tensor's first element lies at an address divisible by `bytes`.

    A tensor without memory is as torch's allocator would make it: aligned. So a body must not
    let the shape of what it returns depend on this.
    """
    scope = context.current()
    if not is_plain(tensor):
        return True
    if scope.recorder is not None:
        return scope.recorder.aligned(tensor, bytes)
    return tensor.data_ptr() % bytes == 0


def sm_count(tensor: Tensor | torch.device | str) -> int:
    """How many multiprocessors the device of a tensor has.

    On CPU tensors, and where there is no GPU, those of the GPU that the simulator stands for.

    Raises:
        ArgumentError: It is neither a tensor nor a device.
    """
    device = tensor.device if isinstance(tensor, Tensor) else _device(tensor)
    recorder, index = context.current().recorder, cast("int | None", device.index)
    if recorder is not None and index is None and not isinstance(tensor, Tensor):
        recorder.asked_device()
    count = _multiprocessors(device)
    return count if recorder is None else recorder.multiprocessors(count)


def _multiprocessors(device: torch.device) -> int:
    if device.type == "cuda" and cuda.available():
        return torch.cuda.get_device_properties(device).multi_processor_count
    run = active_run()
    return limits(*capability_of(run.arch if run is not None else "sm_80")).multiprocessors


def _device(asked: torch.device | str) -> torch.device:
    try:
        return torch.device(asked)
    except (RuntimeError, TypeError) as error:
        raise ArgumentError(
            f'sm_count takes a tensor or a device, got {asked!r}.\nPass a tensor, "cuda:0" or "cpu".'
        ) from error
