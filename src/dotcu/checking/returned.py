"""Whether what a call returned is plain memory of its own, each element of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from dotcu.checking.memory import meet, span
from dotcu.errors import BodyError
from dotcu.kernel.allocations import extent
from dotcu.kernel.tensors import is_plain


def opaque(tensors: Sequence[Tensor], device: torch.device) -> list[str]:
    """Which outputs cannot be read as what they seem to be, and why."""
    found = ((i, _why(tensor, device)) for i, tensor in enumerate(tensors))
    return [f"output {i} {why}" for i, why in found if why]


def _why(tensor: Tensor, device: torch.device) -> str:
    if type(tensor) is not Tensor:
        return f"is a {type(tensor).__name__}, not a torch.Tensor"
    if tensor.device.type != device.type:
        return f"is on {tensor.device}, its inputs on {device}"
    return "" if tensor.layout is torch.strided else f"has the layout {tensor.layout}, not torch.strided"


def require_memory(tensors: Sequence[Tensor]) -> None:
    """Refuse outputs whose memory is smaller than they say: whoever reads one ends the process.

    Raises:
        BodyError: There is one.
    """
    for i, tensor in enumerate(tensors):
        if not is_plain(tensor) or tensor.numel() == 0:
            continue
        needed = (tensor.storage_offset() + extent(tensor)) * tensor.itemsize
        held = tensor.untyped_storage().nbytes()
        if held < needed:
            raise BodyError(
                f"output {i} needs {needed} bytes of memory, and has {held}.\n"
                "An operator's result has memory for each element: return what torch.empty gave."
            )


def shared(tensors: Sequence[Tensor], taken: Sequence[tuple[range, str]]) -> Iterator[str]:
    """Which outputs have memory that is somebody else's too, or elements that share it.

    Args:
        taken: Spans of addresses, and whose they are.
    """
    owned = list(taken)
    for i, tensor in enumerate(tensors):
        if _repeats(tensor):
            yield f"output {i} has elements that share memory: its strides are {list(tensor.stride())}"
        others = (owner for area, owner in owned if meet(area, span(tensor)))
        yield from (f"output {i} is memory of {owner}" for owner in others)
        owned.append((span(tensor), f"output {i}"))


def _repeats(tensor: Tensor) -> bool:
    """Whether some of a tensor's elements are known to lie in the same memory."""
    spread = zip(tensor.shape, tensor.stride(), strict=True)
    still = any(size > 1 and stride == 0 for size, stride in spread)
    return tensor.numel() > 0 and (still or extent(tensor) < tensor.numel())
