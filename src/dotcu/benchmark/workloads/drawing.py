"""Tensors of other shapes, drawn on the device, with values of the kind that an author's samples have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dotcu.benchmark.workloads.shapes import Shape
from dotcu.checking.cases.derived import is_integer
from dotcu.checking.precision import real

_DRAWN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The dtypes that torch draws numbers in; others are drawn in float32 and rounded."""


def drawn(like: Tensor, shape: Shape, top: Callable[[int], int], generator: torch.Generator) -> Tensor:
    """A contiguous tensor of a shape, with values like another's, on its device.

    Floating-point numbers are normal, since constants draw less power, and so run faster, than what a user
    has; but where an author's are all of one sign, or within -1 to 1, they stay so. Whole numbers are
    from the author's range. What ascends in the author's ascends again.

    Args:
        top: What the largest whole number becomes.
        generator: On the tensor's device.
    """
    if like.dtype == torch.bool:
        return torch.randint(0, 2, shape, device=like.device, generator=generator).to(torch.bool)
    if is_integer(like.dtype):
        return _integers(like, shape, top, generator)
    wide = like.dtype if real(like).dtype in _DRAWN else torch.float32
    made = torch.empty(shape, dtype=wide, device=like.device)
    _floats(real(like))(real(made), generator)
    if like.is_floating_point() and made.dim() and ascends(like):
        made = made.sort().values
    return made.to(like.dtype)


def ascends(tensor: Tensor) -> bool:
    """Whether a tensor has rows of three elements or more, and all of them ascend: as edges of bins must."""
    if tensor.dim() == 0 or tensor.size(-1) < 3:
        return False
    wide = tensor if real(tensor).dtype in _DRAWN or is_integer(tensor.dtype) else tensor.float()
    return bool((wide[..., :-1] <= wide[..., 1:]).all())


def _floats(old: Tensor) -> Callable[[Tensor, torch.Generator], object]:
    """What draws numbers like some old ones."""
    finite = old.double().flatten()
    finite = finite[finite.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 0.0)
    if low == high == 0:
        return lambda made, generator: made.normal_(0, 1, generator=generator)
    if low < 0 < high and max(-low, high) > 1:
        mean, deviation = float(finite.mean()), float(finite.std())
        return lambda made, generator: made.normal_(mean, deviation, generator=generator)
    if low == high:  # a constant
        low, high = sorted((low / 2, 1.5 * low))
    return lambda made, generator: made.uniform_(low, high, generator=generator)


def _integers(like: Tensor, shape: Shape, top: Callable[[int], int], generator: torch.Generator) -> Tensor:
    old = like.to(torch.int64)
    low, high = (int(old.min()), int(old.max())) if old.numel() else (0, 1)
    high = max(low, min(top(high), 2**63 - 2))
    values = torch.randint(low, high + 1, shape, device=like.device, generator=generator)
    if len(shape) == old.dim() == 1 and ascends(old):
        values = values.sort().values
        values[:1], values[1:][-1:] = low, high
    return values.to(like.dtype)


def unchanged(largest: int) -> int:
    """For whole numbers that are data: their range stays."""
    return largest


def within(old: Sequence[Shape], new: Sequence[Shape]) -> Callable[[int], int]:
    """For whole numbers that may be indices or offsets: what the largest of some sizes becomes in others.

    It may be an index into any of the old sizes above it, so it stays below the least of what these become.
    A number that is one of the sizes may be an end, and then becomes what that size becomes, or an index
    after all: it stays below the others all the same.
    """
    pairs = {
        (before, after)
        for a, b in zip(old, new, strict=True)
        if len(a) == len(b)
        for before, after in zip(a, b, strict=True)
    }

    def top(largest: int) -> int:
        ends = [after for before, after in pairs if before == largest]
        bounds = [after for before, after in pairs if before > largest]
        return min([*ends, *(bound - 1 for bound in bounds)], default=largest)

    return top
