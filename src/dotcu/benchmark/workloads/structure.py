"""Values that mean something together, so that they cannot be moved about and scaled: a matrix that is to be
positive definite, a mask, a triangular factor, probabilities."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dotcu.checking.precision import real
from dotcu.kernel.allocations import extent

LOOKED = 2**22
"""So many elements are looked at, in a part of a tensor that has more: what that takes is little beside what
the tensor is timed for."""

FEW = 4
"""So many different values are few, where each is there as often on the average: a mask's, say."""

_FIRST = 4096
"""So many elements have more than a few values as a rule, and then the others need no look."""

_COMPUTED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def kept(tensor: Tensor) -> bool:
    """Whether a tensor keeps the values that its author gave it, one set's at a time: so all sets' are kept.

    Whole numbers do, as indices have to fit each other; and values with structure.
    """
    if extent(tensor) < tensor.numel():  # elements share memory: nothing is written
        return False
    return not (tensor.is_floating_point() or tensor.is_complex()) or structured(tensor)


def structured(tensor: Tensor) -> bool:
    """Whether floating-point values have a structure that other values in their places would not have.

    A tensor above `LOOKED` elements is judged by a part: by the upper left of matrices, and by rows that lie
    evenly apart. What is not finite is found wherever it is.
    """
    if tensor.numel() == 0:
        return False
    values = tensor.detach()
    rows = _rows(values)
    part = _wide(_thinned(rows))
    return not _finite(values) or _few(part) or _matrix(values) or _sums_to_one(rows)


def _rows(values: Tensor) -> Tensor:
    """As many of a tensor's last dimension as hold `LOOKED` elements, whole; at least one."""
    for axis in range(values.dim() - 1):
        values = _every(values, axis, _excess(values))
    return values


def _thinned(rows: Tensor) -> Tensor:
    """No more than `LOOKED` elements of them."""
    return _every(rows, rows.dim() - 1, _excess(rows)) if rows.dim() else rows


def _excess(values: Tensor) -> int:
    return -(-values.numel() // LOOKED)


def _every(values: Tensor, axis: int, step: int) -> Tensor:
    """Every so manieth along an axis."""
    return values[(slice(None),) * axis + (slice(None, None, step),)]


def _wide(values: Tensor) -> Tensor:
    """In a dtype that torch computes in: it only holds 8-bit floats, and complex numbers of halves."""
    if values.dtype == torch.complex32:
        return values.to(torch.complex64)
    return values if values.is_complex() or values.dtype in _COMPUTED else values.float()


def _finite(values: Tensor) -> bool:
    if real(values).dtype not in _COMPUTED:
        return bool(_wide(_thinned(_rows(values))).isfinite().all())
    least, most = real(values).aminmax()  # in no memory of their own; NaN is either
    return math.isfinite(least) and math.isfinite(most)


def _few(part: Tensor) -> bool:
    flat = real(part).reshape(-1)
    some = min(FEW, flat.numel() // FEW)
    return len(flat[:_FIRST].unique()) <= some and len(flat.unique()) <= some


def _matrix(values: Tensor) -> bool:
    """Whether matrices, two rows of them or more, are symmetric or triangular."""
    if values.dim() < 2 or values.size(-1) != values.size(-2) or values.size(-1) < 2:
        return False
    corner = values[..., : math.isqrt(LOOKED), : math.isqrt(LOOKED)]
    for axis in range(values.dim() - 2):
        corner = _every(corner, axis, _excess(corner))
    return _symmetric(_wide(corner), _step(values.dtype)) or _triangular(_wide(corner))


def _symmetric(matrices: Tensor, step: float) -> bool:
    """Up to what a product of a matrix and its own transpose is off; a complex one may be its conjugate's."""
    near = max(1e-5, min(2 * step, 0.02)) * matrices.abs().max()
    return bool((matrices - matrices.mH).abs().max() <= near) or bool(
        matrices.is_complex() and (matrices - matrices.mT).abs().max() <= near
    )


def _triangular(matrices: Tensor) -> bool:
    return not bool(matrices.triu(1).any()) or not bool(matrices.tril(-1).any())


def _sums_to_one(rows: Tensor) -> bool:
    if rows.is_complex() or rows.dim() == 0 or rows.size(-1) < 2 or rows.dtype not in _COMPUTED:
        return False
    near = max(1e-3, 4 * _step(rows.dtype))
    return bool(rows.min() >= 0) and bool(((rows.sum(-1, dtype=torch.float64) - 1).abs() <= near).all())


def _step(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps
