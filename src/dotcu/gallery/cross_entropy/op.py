"""cross_entropy: the loss of class indices, and the log-sum-exp of each row of logits, by one read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing import make_tensor

import dotcu
from dotcu.gallery.common import ALIKE, APART, FLOATS, random_tensors, row_vectors, sum_type

kernels = dotcu.load("kernel.cu")
backward_kernels = dotcu.load("backward.cu")

REDUCTIONS = ("mean", "sum", "none")

BLOCK = 256
REDUCE_BLOCK = 256
COUNT_BLOCK = 1024

READERS = ((4, 16, 64), (4, 64, 256), (8, 64, 512), (16, 64, 1024), (32, 64, 4096))
"""Threads of a row, bytes that each loads at once, and the bytes of the longest row that they read."""

LONG = (BLOCK, 64)
"""The same for longer rows."""

WRITERS = (
    (4, 16, 64), (4, 64, 256), (8, 64, 512), (16, 64, 1024), (32, 64, 2048), (64, 64, 4096), (128, 64, 8192),
)  # fmt: skip
"""The same for the backward, where more than one part of a longer row has `LONG`."""


@dotcu.op("dotcu::cross_entropy", dtypes=FLOATS)
def cross_entropy(
    logits: Tensor, target: Tensor, ignore_index: int = -100, reduction: str = "mean"
) -> tuple[Tensor, Tensor]:
    """Give the cross entropy between logits and classes, and the log-sum-exp of each row of logits.

    Args:
        logits: A tensor (..., V) of a dtype out of `FLOATS`; classes are along the last dimension.
        target: The class of each row, int64, of shape (...). One that is neither a class nor
            `ignore_index` makes the loss NaN.
        ignore_index: Rows of this target have loss 0 and are not counted.
        reduction: "mean" over the rows that are not ignored, "sum", or "none".

    Returns:
        The loss, in the dtype of the logits, and the log-sum-exp of shape (...), in float32, or float64
        where the logits are. Both are differentiable.
    """
    _require(logits, target, reduction)
    logits, target = logits.contiguous(), target.contiguous()
    loss, lse = _results(logits, target, reduction)
    kernel, rows, n, grid = _choose(logits, target)
    if reduction == "none":
        kernel(logits, target, lse, loss, None, None, rows, n, ignore_index, grid=grid, block=BLOCK)
        return loss, lse
    totals, counts = logits.new_empty((grid,), dtype=lse.dtype), target.new_empty((grid,))
    kernel(logits, target, lse, None, totals, counts, rows, n, ignore_index, grid=grid, block=BLOCK)
    reduce, mean = kernels.cross_entropy_reduce[logits.dtype], reduction == "mean"
    reduce(totals, counts, grid, mean, loss, grid=1, block=REDUCE_BLOCK, programmatic=True)
    return loss, lse


@dotcu.op("dotcu::cross_entropy_backward", dtypes=FLOATS)
def cross_entropy_backward(
    grad_loss: Tensor,
    grad_lse: Tensor,
    logits: Tensor,
    target: Tensor,
    lse: Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Give the gradient of cross_entropy's logits.

    Args:
        grad_loss: The gradient of the loss, of its shape and dtype.
        grad_lse: The gradient of the log-sum-exp, of its shape and dtype.
        lse: The log-sum-exp of each row. The rest as for cross_entropy.
    """
    _require(logits, target, reduction)
    _require_gradients(grad_loss, grad_lse, logits, target, lse, reduction)
    logits, target, lse = logits.contiguous(), target.contiguous(), lse.contiguous()
    out = torch.empty_like(logits)
    if out.numel() == 0:
        return out
    grad_loss, grad_lse = grad_loss.contiguous(), grad_lse.contiguous()
    kernel, rows, n, parts, grid = _choose_backward(logits, target, out)
    mean = reduction == "mean"
    count = target.new_empty((1,)) if mean else None
    if mean:
        backward_kernels.cross_entropy_count(target, rows, ignore_index, count, grid=1, block=COUNT_BLOCK)
    arguments = (grad_loss, reduction == "none", grad_lse, logits, target, lse, count, out)
    kernel(*arguments, rows, n, parts, ignore_index, grid=grid, block=BLOCK, programmatic=mean)
    return out


def _results(logits: Tensor, target: Tensor, reduction: str) -> tuple[Tensor, Tensor]:
    """Memory for the loss and the log-sum-exp."""
    lse = logits.new_empty(target.shape, dtype=sum_type(logits.dtype))
    return logits.new_empty(target.shape if reduction == "none" else ()), lse


@dotcu.by_layout
def _choose(logits: Tensor, target: Tensor) -> tuple[dotcu.Kernel, int, int, int]:
    """The kernel, rows, elements of a row, and blocks."""
    rows, n = target.numel(), logits.shape[-1]
    threads, way, width, steps = _shape(READERS, logits)
    way = ALIKE if way == APART else way  # there is no result to lie otherwise
    kernel = kernels.cross_entropy[logits.dtype, way, width, steps, threads]
    resident = kernel.occupancy(BLOCK) * dotcu.sm_count(logits)
    return kernel, rows, n, torch.sym_min(dotcu.cdiv(rows, BLOCK // threads), resident)


@dotcu.by_layout
def _choose_backward(logits: Tensor, target: Tensor, out: Tensor) -> tuple[dotcu.Kernel, int, int, int, int]:
    """The kernel, rows, elements of a row, parts of a row, and blocks."""
    rows, n = target.numel(), logits.shape[-1]
    threads, way, width, steps = _shape(WRITERS, logits, out)
    kernel = backward_kernels.cross_entropy_backward[logits.dtype, way, width, steps, threads]
    parts = dotcu.cdiv(n, threads * width * steps)
    return kernel, rows, n, parts, dotcu.cdiv(rows, BLOCK // threads) * parts


def _shape(table: tuple[tuple[int, int, int], ...], *tensors: Tensor) -> tuple[int, str, int, int]:
    """Threads of a row, how rows lie, elements of an access, accesses of a thread."""
    n, size = tensors[0].shape[-1], tensors[0].element_size()
    way, width = row_vectors(n, *tensors)
    for threads, share, most in table:
        if n * size <= most:
            return threads, way, width, max(1, share // (width * size))
    return LONG[0], way, width, LONG[1] // (width * size)


def _require(logits: Tensor, target: Tensor, reduction: str) -> None:
    if logits.dtype not in FLOATS:
        taken = ", ".join(str(dtype).removeprefix("torch.") for dtype in FLOATS)
        raise TypeError(
            f"cross_entropy takes logits of {taken} (got {logits.dtype}).\n"
            "Convert them first: logits.to(torch.float32)"
        )
    if target.dtype != torch.int64:
        raise TypeError(
            f"cross_entropy takes classes as int64 (got {target.dtype}).\n"
            "Convert them first: target.to(torch.int64)"
        )
    if logits.dim() == 0 or logits.shape[-1] == 0 or logits.shape[:-1] != target.shape:
        raise ValueError(
            "cross_entropy takes logits (..., V) with one class or more, and targets (...) "
            f"(got {tuple(logits.shape)} and {tuple(target.shape)}).\n"
            "Move the classes last: logits.movedim(1, -1)"
        )
    if reduction not in REDUCTIONS:
        raise ValueError(f'reduction is "mean", "sum" or "none" (got {reduction!r}).\nType: reduction="mean"')


def _require_gradients(
    grad_loss: Tensor, grad_lse: Tensor, logits: Tensor, target: Tensor, lse: Tensor, reduction: str
) -> None:
    wide, shape = sum_type(logits.dtype), target.shape if reduction == "none" else ()
    if grad_loss.dtype != logits.dtype or grad_loss.shape != shape:
        raise ValueError(
            f"grad_loss has the loss's dtype and shape, {logits.dtype} and {tuple(shape)} "
            f"(got {grad_loss.dtype}, {tuple(grad_loss.shape)}).\nType: torch.ones_like(loss)"
        )
    for each in (grad_lse, lse):
        if each.dtype != wide or each.shape != target.shape:
            raise ValueError(
                f"lse and its gradient have the dtype {wide} and the shape {tuple(target.shape)} of the rows "
                f"(got {each.dtype}, {tuple(each.shape)}).\nType: loss, lse = cross_entropy(logits, target)"
            )


@cross_entropy.fake
def _(
    logits: Tensor, target: Tensor, ignore_index: int = -100, reduction: str = "mean"
) -> tuple[Tensor, Tensor]:
    """Allocate as the body does, without its launches: their choice by size would guard every graph."""
    _require(logits, target, reduction)
    return _results(logits, target, reduction)


@cross_entropy_backward.fake
def _(
    grad_loss: Tensor, grad_lse: Tensor, logits: Tensor, target: Tensor, lse: Tensor,
    ignore_index: int = -100, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    _require(logits, target, reduction)
    _require_gradients(grad_loss, grad_lse, logits, target, lse, reduction)
    return torch.empty_like(logits.contiguous())


@cross_entropy.reference
def _(
    logits: Tensor, target: Tensor, ignore_index: int = -100, reduction: str = "mean"
) -> tuple[Tensor, Tensor]:
    n, unknown = logits.shape[-1], _unknown(logits, target, ignore_index)
    some_class = 0 if ignore_index != 0 else n - 1
    rows = logits * torch.where(unknown, torch.nan, 1.0).to(logits.dtype).unsqueeze(-1)
    loss = torch.nn.functional.cross_entropy(
        rows.reshape(-1, n),
        torch.where(unknown, some_class, target).reshape(-1),
        ignore_index=ignore_index,
        reduction=reduction,
    )
    loss = loss.reshape(target.shape) if reduction == "none" else loss
    lse = torch.logsumexp(logits.to(sum_type(logits.dtype)), -1)
    return loss, lse


def _unknown(logits: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    """Return a mask of the targets that are neither a class nor ignored."""
    return (target != ignore_index) & ((target < 0) | (target >= logits.shape[-1]))


@cross_entropy_backward.reference
def _(
    grad_loss: Tensor, grad_lse: Tensor, logits: Tensor, target: Tensor, lse: Tensor,
    ignore_index: int = -100, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    p, hit, weight = _probabilities(logits, target, lse, ignore_index, reduction)
    of_loss = torch.where(weight == 0, 0, weight * grad_loss.to(p.dtype)).unsqueeze(-1)
    return ((of_loss + grad_lse.unsqueeze(-1)) * p - torch.where(hit, of_loss, 0)).to(logits.dtype)


def _probabilities(
    logits: Tensor, target: Tensor, lse: Tensor, ignore_index: int, reduction: str
) -> tuple[Tensor, Tensor, Tensor]:
    """The softmax of the logits, where the targets are, and each row's part of the loss."""
    p = (logits.to(lse.dtype) - lse.unsqueeze(-1)).exp()
    hit = torch.arange(logits.shape[-1], device=target.device) == target.unsqueeze(-1)
    counted = target != ignore_index
    weight = torch.where(_unknown(logits, target, ignore_index), torch.nan, counted.to(p.dtype))
    return p, hit, weight / counted.sum().clamp(min=1) if reduction == "mean" else weight


@cross_entropy.sharding
def _(logits: Tensor, target: Tensor, ignore_index: int = -100, reduction: str = "mean") -> list[str]:
    """A mean has a count of its own on each rank."""
    loss = {"none": "rows", "sum": "sum"}.get(reduction)
    return [f"logits:rows target:rows -> {loss}, rows"] if loss else []


@cross_entropy_backward.sharding
def _(*tensors: Any, ignore_index: int = -100, reduction: str = "mean") -> list[str]:
    rows = "grad_lse:rows logits:rows target:rows lse:rows -> rows"
    return {"none": [f"grad_loss:rows {rows}"], "sum": [rows]}.get(reduction, [])


@cross_entropy.setup_context
def _(ctx: Any, inputs: Any, output: Any) -> None:
    logits, target, ctx.ignore_index, ctx.reduction = inputs
    ctx.save_for_backward(logits, target, output[1])


@cross_entropy.backward
def _(ctx: Any, grad_loss: Tensor, grad_lse: Tensor) -> Any:
    grad = cross_entropy_backward(grad_loss, grad_lse, *ctx.saved_tensors, ctx.ignore_index, ctx.reduction)
    return grad, None, None, None


@cross_entropy_backward.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    *tensors, ctx.ignore_index, ctx.reduction = inputs
    ctx.save_for_backward(*tensors)


@cross_entropy_backward.backward
def _(ctx: Any, bend: Tensor) -> Any:
    grad_loss, grad_lse, logits, target, lse = ctx.saved_tensors
    p, hit, weight = _probabilities(logits, target, lse, ctx.ignore_index, ctx.reduction)
    bend = bend.to(p.dtype)
    along = (bend * p).sum(-1)
    of_loss = weight * (along - (bend * hit).sum(-1))
    scale = weight * grad_loss.to(p.dtype) + grad_lse
    of_logits = (scale.unsqueeze(-1) * bend * p).to(logits.dtype)
    of_loss = of_loss if ctx.reduction == "none" else of_loss.sum()
    return of_loss.to(grad_loss.dtype), along, of_logits, None, -scale * along, None, None


@cross_entropy.work
def _(logits: Tensor, target: Tensor, ignore_index: int = -100, reduction: str = "mean") -> tuple[int, int]:
    rows, size = target.numel(), sum_type(logits.dtype).itemsize
    return logits.numel() * logits.element_size() + rows * (8 + size), 3 * logits.numel()


@cross_entropy_backward.work
def _(grad_loss: Tensor, grad_lse: Tensor, logits: Tensor, target: Tensor, *rest: Any) -> tuple[int, int]:
    rows, size = target.numel(), sum_type(logits.dtype).itemsize
    return 2 * logits.numel() * logits.element_size() + rows * (8 + 2 * size), 3 * logits.numel()


LAYOUTS: tuple[tuple[tuple[int, ...], str], ...] = (
    ((20, 31), "mean"), ((33, 64), "sum"), ((5, 3, 200), "none"), ((7,), "mean"), ((0, 5), "sum"),
    ((2, 0, 9), "none"), ((6, 2056), "mean"), ((2, 9000), "none"),
)  # fmt: skip
"""Shapes of the logits and reductions: several rows to a warp, one, and a block to a row."""


def _logits_and_targets(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor, str]]:
    random = random_tensors(device, dtype, -6, 6)

    def classes(shape: tuple[int, ...], n: int) -> Tensor:
        target = make_tensor(shape, device=device, dtype=torch.int64, low=0, high=n)
        return torch.where(target % 5 == 1, -100, target) if shape else target

    for shape, reduction in LAYOUTS:
        yield random(*shape), classes(shape[:-1], shape[-1]), reduction
    yield random(40, 33)[1:, ::2], classes((39,), 17), "mean"
    yield random(12 * 64 + 1)[1:].view(12, 64), classes((24,), 64)[::2], "sum"


@cross_entropy.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for logits, target, reduction in _logits_and_targets(device, dtype):
        yield dotcu.Sample(logits, target, -100, reduction)


@cross_entropy_backward.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for logits, target, reduction in _logits_and_targets(device, dtype):
        lse = torch.logsumexp(logits.to(sum_type(dtype)), -1)
        shape = target.shape if reduction == "none" else ()
        grad_loss = make_tensor(shape, device=device, dtype=dtype, low=-2, high=2)
        grad_lse = make_tensor(lse.shape, device=device, dtype=lse.dtype, low=-1, high=1)
        yield dotcu.Sample(grad_loss, grad_lse, logits, target, lse, -100, reduction)
