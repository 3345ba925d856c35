"""attention_tile: attention of many heads, forward and backward, in CUDA Tile C++."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

import dotcu
from dotcu.gallery.common import random_tensors
from dotcu.gallery.heads import (
    gradients_of,
    require_gradient,
    require_heads,
    scale_of,
    scores_of,
    weighted,
)

kernels = dotcu.load("kernel.cu")
backward_kernels = dotcu.load("backward.cu")

HALVES = (torch.bfloat16, torch.float16)

HEAD_DIMS = (64, 128, 256)


class Forward(NamedTuple):
    """A launch of the forward: queries of a block, keys of a step, warps, blocks of a multiprocessor."""

    queries: int
    keys: int
    warps: int
    blocks: int


NARROW, WIDE = Forward(64, 128, 4, 2), Forward(128, 128, 8, 1)

FORWARD = ((NARROW, NARROW), (NARROW, WIDE), (WIDE, WIDE))
"""Full and causal, by `HEAD_DIMS`, where none is tuned."""

BY_KEYS = ((64, 128, 8), (64, 128, 8), (64, 64, 8))
"""Queries of a step, keys of a block and warps, for the gradients by k and v."""

BY_QUERIES = ((128, 64, 8), (128, 64, 8), (128, 32, 8))
"""Queries of a block, keys of a step and warps, for the gradient by q."""

DELTA_ROWS = 64

TOLERANCE = {torch.bfloat16: 3e-2, torch.float16: 4e-3}
"""The second product takes exp(scores) in half precision, and so do those of the gradients, which cancel."""


@dotcu.op("dotcu::attention_tile", dtypes=HALVES, tolerance=TOLERANCE)
def attention_tile(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Compute softmax(scale * q @ k^T) @ v for each head, and the log-sum-exp of each query's scores.

    Args:
        q: Queries (B, H, S, D), bfloat16 or float16; D is 64, 128 or 256.
        k: Keys (B, H / groups, T, D) of the same dtype: several heads of q may share one of k and v.
        v: Values, of k's shape and dtype.
        causal: Query i sees the keys 0 to i only, as in torch's scaled_dot_product_attention.
        scale: Factor of the scores, above 0; 1 / sqrt(D) by default.

    Returns:
        The result, of q's shape and dtype, and the log-sum-exp (B, H, S) in float32. Both are contiguous; the
        second has no gradient.
    """
    _require(q, k, v)
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
    if out.numel() == 0:
        return out, lse
    kernel, grid, numbers = _choose(q, k, causal)
    kernel(q, k, v, out, lse, *numbers, scale_of("attention_tile", q, scale), grid=grid)
    return out, lse


@dotcu.op("dotcu::attention_tile_backward", dtypes=HALVES, tolerance=TOLERANCE)
def attention_tile_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Give the gradients of attention_tile by q, k and v.

    Args:
        grad: The gradient by the result, of its shape and dtype.
        out: The result.
        lse: The log-sum-exp that came with it. The rest as for `attention_tile`.
    """
    _require(q, k, v)
    require_gradient("attention_tile", grad, q, out, lse, sums=torch.float32)
    q, k, v, grad = q.contiguous(), k.contiguous(), v.contiguous(), grad.contiguous()
    out, lse = out.contiguous(), lse.contiguous()
    by_q, by_k, by_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    if q.numel() == 0:
        return by_q, by_k.zero_(), by_v.zero_()
    delta = torch.empty_like(lse)
    of_delta, of_keys, of_queries, numbers = _choose_backward(q, k, causal)
    heads, _, queries, _ = numbers
    factor = scale_of("attention_tile", q, scale)
    of_delta[0](out, grad, delta, heads, queries, grid=of_delta[1])
    of_keys[0](q, k, v, grad, lse, delta, by_k, by_v, *numbers, factor, grid=of_keys[1])
    of_queries[0](q, k, v, grad, lse, delta, by_q, *numbers, factor, grid=of_queries[1])
    return by_q, by_k, by_v


def _numbers(q: Tensor, k: Tensor) -> tuple[int, int, int, int]:
    """Return heads of q, how many share a head of k, queries and keys."""
    return q.shape[0] * q.shape[1], q.shape[1] // k.shape[1], q.shape[2], k.shape[2]


@dotcu.by_layout
def _choose(q: Tensor, k: Tensor, causal: bool) -> tuple[dotcu.Kernel, int, tuple[int, int, int, int]]:
    heads, group, queries, keys = _numbers(q, k)
    rule = FORWARD[HEAD_DIMS.index(q.shape[3])][causal]
    chosen = attention_tile.configuration(q.dtype, q.shape[3], causal, heads, queries, keys, default=rule)
    bm, bn, warps, blocks = chosen
    kernel = kernels.attention[q.dtype, q.shape[3], bm, bn, warps, blocks, causal]
    return kernel, heads * dotcu.cdiv(queries, bm), (heads, group, queries, keys)


@dotcu.by_layout
def _choose_backward(q: Tensor, k: Tensor, causal: bool) -> Any:
    """The kernel and its tile blocks for delta, for k and v, and for q; then the numbers."""
    heads, group, queries, keys = _numbers(q, k)
    d = q.shape[3]
    at = HEAD_DIMS.index(d)
    (bm, bn, warps), (rows, columns, many) = BY_KEYS[at], BY_QUERIES[at]
    delta = backward_kernels.attention_delta[q.dtype, d, DELTA_ROWS]
    by_keys = backward_kernels.attention_keys_backward[q.dtype, d, bm, bn, warps, causal]
    by_queries = backward_kernels.attention_queries_backward[q.dtype, d, rows, columns, many, causal]
    return (
        (delta, heads * dotcu.cdiv(queries, DELTA_ROWS)),
        (by_keys, heads // group * dotcu.cdiv(keys, bn)),
        (by_queries, heads * dotcu.cdiv(queries, rows)),
        (heads, group, queries, keys),
    )


def _require(q: Tensor, k: Tensor, v: Tensor) -> None:
    require_heads("attention_tile", q, k, v, HALVES)
    if int(q.shape[3]) not in HEAD_DIMS:
        raise ValueError(
            f"attention_tile takes head dimensions 64, 128 and 256 (got {q.shape[3]}).\n"
            "Pad it with zeros, and pass scale=: F.pad(q, (0, 64 - q.shape[-1]))"
        )


@attention_tile.fake
def _(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    _require(q, k, v)
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


@attention_tile_backward.fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *_: Any, **__: Any) -> Any:
    _require(q, k, v)
    require_gradient("attention_tile", grad, q, out, lse, sums=torch.float32)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


@attention_tile.configurations
def _() -> Iterator[Forward]:
    yield NARROW
    for queries in (64, 128):
        for keys in (64, 128):
            yield from (Forward(queries, keys, warps, blocks) for warps in (4, 8) for blocks in (1, 2))


@attention_tile.reference
def _(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    return weighted(q, k, v, *scores_of(q, k, scale_of("attention_tile", q, scale), causal))


@attention_tile_backward.reference
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    factor = scale_of("attention_tile", q, scale)
    return gradients_of(grad, q, k, v, out, lse, scores_of(q, k, factor, causal), factor)


@attention_tile.sharding
def _(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> list[str]:
    """By batch, by heads, each with those of q that share it, and by queries, where each sees every key."""
    heads = ["q:0 k:0 v:0 -> 0, 0", "even q:1 k:1 v:1 -> 1, 1"]
    return heads if causal else [*heads, "q:2 -> 2, 2"]


@attention_tile_backward.sharding
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool = False,
    scale: float | None = None,
) -> list[str]:  # fmt: skip
    whole = [
        "grad:0 q:0 k:0 v:0 out:0 lse:0 -> 0, 0, 0",
        "even grad:1 q:1 k:1 v:1 out:1 lse:1 -> 1, 1, 1",
    ]
    return whole if causal else [*whole, "grad:2 q:2 out:2 lse:2 -> 2, sum, sum", "even k:2 v:2 -> sum, 2, 2"]


@attention_tile.setup_context
def _(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
    q, k, v, ctx.causal, ctx.scale = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(q, k, v, *output)


@attention_tile.backward
def _(ctx: Any, grad: Tensor, grad_lse: Tensor) -> Any:
    q, k, v, out, lse = ctx.saved_tensors
    if k.shape[2] == 1:  # the key has all the weight, whatever q and k are
        by_v = grad.unflatten(1, (k.shape[1], -1)).sum((2, 3)).unsqueeze(2)
        return torch.zeros_like(q), torch.zeros_like(k), by_v, None, None
    gradients = attention_tile_backward(grad, q, k, v, out, lse, ctx.causal, ctx.scale)
    return (*gradients, None, None)


@attention_tile.work
def _(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> tuple[int, int]:
    products = 4 * q.numel() * k.shape[2]
    return 2 * q.nbytes + k.nbytes + v.nbytes + 4 * q[..., 0].numel(), products // 2 if causal else products


@attention_tile_backward.work
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool = False,
    scale: float | None = None,
) -> tuple[int, int]:  # fmt: skip
    products = 10 * q.numel() * k.shape[2]
    return 4 * q.nbytes + 4 * k.nbytes, products // 2 if causal else products


def _inputs(
    device: torch.device, dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor, Tensor, bool, float | None]]:
    """q, k, v, causal and scale: every head dimension, shared heads, sizes off any tile, other strides."""
    random = random_tensors(device, dtype, -1, 1)
    for b, h, of_k, s, t, d, causal in (
        (1, 2, 2, 128, 128, 64, False),
        (2, 4, 2, 33, 70, 64, True),
        (1, 2, 1, 150, 150, 128, True),
        (1, 1, 1, 40, 65, 256, False),
    ):
        yield random(b, h, s, d), random(b, of_k, t, d), random(b, of_k, t, d), causal, None
    q, k, v = random(3, 2, 21, 3, 64).transpose(2, 3)
    yield q, k, v, False, 0.5
    yield q[:, :, :0], k, v, True, None


@attention_tile.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield from (dotcu.Sample(*values) for values in _inputs(device, dtype))


@attention_tile_backward.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for q, k, v, causal, scale in _inputs(device, dtype):
        scores = scores_of(q, k, scale_of("attention_tile", q, scale), causal)[0]
        values = v.to(scores.dtype).repeat_interleave(q.shape[1] // k.shape[1], 1)
        out, lse = (torch.softmax(scores, -1) @ values).to(dtype), torch.logsumexp(scores, -1)
        grad = random_tensors(device, dtype, -1, 1)(*q.shape)
        yield dotcu.Sample(grad, q, k, v, out, lse, causal, scale)
