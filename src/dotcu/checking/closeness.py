"""Whether results too large for an oracle are near enough to what the reference gives in the same dtype.

Integers are equal; a floating-point number is off by at most some units in its last place and of the root
mean square around it, and what adding up so many numbers may lose. Those bounds are wide.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dotcu.checking.precision import is_whole, real

CHUNK = 2**27
"""So many elements are compared at once."""

UNITS = 8.0
"""In the last place: how far a floating-point number may be off."""


def difference(got: tuple[Tensor, ...], expected: tuple[Tensor, ...], added: int) -> str:
    """The first difference, in words; empty where there is none.

    Args:
        added: How many numbers there are that may have been added up, over all elements.
    """
    if len(got) != len(expected):
        return f"it gives {len(got)} tensors, its reference {len(expected)}"
    for position, (a, b) in enumerate(zip(got, expected, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return (
                f"output {position} is {a.dtype}{list(a.shape)}, its reference gives {b.dtype}{list(b.shape)}"
            )
        found = first_difference(a, b, added)
        if found is not None:
            index = [int(i) for i in torch.unravel_index(torch.tensor(found), a.shape)]
            values = a.reshape(-1)[found].item(), b.reshape(-1)[found].item()
            return f"output {position}{index}: got {values[0]}, expected {values[1]}"
    return ""


def first_difference(got: Tensor, expected: Tensor, added: int) -> int | None:
    """The flat index of the first element that is wrong.

    Args:
        added: How many numbers there are that may have been added up, over all elements.
    """
    terms = max(1, added // max(got.numel(), 1))
    start = 0
    for a, b in zip(got.reshape(-1).split(CHUNK), expected.reshape(-1).split(CHUNK), strict=True):
        wrong = a != b if is_whole(a) else ~_close(real(a), real(b), terms)
        if a.is_complex():
            wrong = wrong.any(-1)
        if bool(wrong.any()):
            return start + int(wrong.int().argmax())
        start += a.numel()
    return None


def _close(got: Tensor, expected: Tensor, terms: int) -> Tensor:
    """Where numbers are near enough, or both NaN. Infinity counts as the next to the largest number."""
    wide = torch.float64 if got.dtype == torch.float64 else torch.float32
    largest = torch.finfo(got.dtype).max
    a, b = got.to(wide).clamp(-largest, largest), expected.to(wide).clamp(-largest, largest)
    finite = expected.to(wide).nan_to_num(0, 0, 0)
    scale = b.nan_to_num(0).abs() + finite.double().square().mean().sqrt().to(wide)
    lost = UNITS * torch.finfo(got.dtype).eps + math.sqrt(terms) * torch.finfo(wide).eps
    return ((a - b).abs() <= lost * scale) | (a == b) | (a.isnan() & b.isnan())
