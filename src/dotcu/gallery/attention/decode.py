"""attention_decode: the newest queries of each sequence with the keys and values of a paged cache."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

import dotcu
from dotcu.gallery.attention.op import HALVES, HEAD_DIMS, TOLERANCE, mapped
from dotcu.gallery.common import random_tensors
from dotcu.gallery.heads import SIDE, scale_of, scores_of, weighted

kernels = dotcu.load("decode.cu")

STAGES = (6, 3, 3, 4, 3)
"""By `HEAD_DIMS`: steps that a block has in shared memory, of 64 keys; up to 128, two blocks fit."""

AT_ONCE = 2
"""Blocks that a multiprocessor runs at the same time."""

ROUNDS = 4
"""How often it gets as many at least, so that sequences may differ in length; once, where heads are few."""

LEAST_KEYS = 256
"""Of a part, so that it is worth a block."""

MOST_TOKENS = 8


@dotcu.op(
    "dotcu::attention_decode",
    dtypes=HALVES,
    tolerance={dtype: TOLERANCE[dtype] for dtype in HALVES},
    sharding=("q:0 block_table:0 lengths:0 -> 0, 0", "even q:2 k_cache:2 v_cache:2 -> 2, 1"),
)
def attention_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    window: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Compute attention of the last queries of each sequence, with keys and values of a paged cache.

    Args:
        q: Queries (B, S, H, D) in bfloat16 or float16, of the last S tokens of each sequence, 1 to 8; D is a
            multiple of 8, up to 256.
        k_cache: Keys (blocks, tokens of a block, H / groups, D), with those of the last S tokens. It may be
            strided in all but the last dimension, by multiples of 16 bytes.
        v_cache: Values, of k_cache's shape and strides.
        block_table: int32 (B, blocks of the longest sequence): which block has the tokens of each; only as
            many as its length needs are read.
        lengths: int32 (B), on the device: the tokens of each sequence in the cache.
        window: Each query sees the keys of the last `window` tokens before it, and its own.
        scale: Factor of the scores, above 0; 1 / sqrt(D) by default.
        softcap: Scores s become softcap * tanh(s / softcap); 0 leaves them.

    Returns:
        The result, of q's shape and dtype, and the log-sum-exp (B, H, S) in float32. Query i is at position
        length - S + i, and sees the keys up to there; without any its result is 0.

    Note:
        The same bits at every run: parts of a sequence are added up in a fixed order.
    """
    _require(q, k_cache, v_cache, block_table, lengths, window, softcap)
    (b, tokens, h, d), heads = q.shape, k_cache.shape[2]
    out, lse = q.new_empty(q.shape), q.new_empty((b, h, tokens), dtype=torch.float32)
    if out.numel() == 0:
        return out, lse
    kernel, grid, block, smem_bytes = _choose(q, k_cache, block_table, softcap > 0)
    parts = part_lse = None
    if grid[1] > 1:
        parts = lse.new_empty((grid[1], b, tokens, h, d))
        part_lse = lse.new_empty((grid[1], b, tokens, h))
    numbers = h // heads, SIDE if window is None else window, scale_of("attention_decode", q, scale), softcap
    kernel(
        mapped(q), k_cache, v_cache, block_table, lengths.contiguous(), out, lse, parts, part_lse, *numbers,
        grid=grid, block=block, smem_bytes=smem_bytes,
    )  # fmt: skip
    if parts is not None:
        combine = kernels.attention_combine[q.dtype]
        combine(parts, part_lse, out, lse, grid[1], grid=b * tokens * h, block=128)
    return out, lse


@dotcu.by_layout
def _choose(
    q: Tensor, k_cache: Tensor, block_table: Tensor, capped: bool
) -> tuple[dotcu.Kernel, tuple[int, int, int], int, int]:
    """The kernel, its grid of heads, parts and sequences, its block, and shared memory."""
    b, tokens, h, width = q.shape
    heads, keys = k_cache.shape[2], block_table.shape[1] * k_cache.shape[1]
    at = next(i for i, size in enumerate(HEAD_DIMS) if size >= width)
    d, stages = HEAD_DIMS[at], STAGES[at]
    rows = tokens * (h // heads)
    tiles = 1 if rows <= 16 else 2 if rows <= 32 else 4
    row_blocks = dotcu.cdiv(rows, 16 * tiles)
    slots, blocks = AT_ONCE * dotcu.sm_count(q), b * heads * row_blocks
    fill = slots // blocks if 2 * blocks <= slots else dotcu.cdiv(ROUNDS * slots, blocks)
    parts = max(1, min(fill, dotcu.cdiv(keys, LEAST_KEYS)))
    smem_bytes = dotcu.cdiv(d, 64) * 128 * (128 * stages + 16 * tiles) + 2 * 4 * 4 * 16 * tiles
    kernel = kernels.attention_decode[q.dtype, d, tiles, stages, capped]
    return kernel, (heads * row_blocks, parts, b), 128 * tiles, smem_bytes


def _require(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    window: int | None,
    softcap: float,
) -> None:
    if not (q.dtype == k_cache.dtype == v_cache.dtype and q.dtype in HALVES):
        raise TypeError(
            "attention_decode takes bfloat16 or float16, all the same "
            f"(got {q.dtype}, {k_cache.dtype} and {v_cache.dtype}).\n"
            "Convert the queries to the cache's dtype: q.to(k_cache.dtype)"
        )
    shapes = tuple(q.shape), tuple(k_cache.shape)
    if (
        q.dim() != 4
        or k_cache.dim() != 4
        or k_cache.shape != v_cache.shape
        or k_cache.stride() != v_cache.stride()
        or q.shape[3] != k_cache.shape[3]
        or k_cache.shape[2] == 0
        or q.shape[2] % k_cache.shape[2]
    ):
        raise ValueError(
            "attention_decode takes q (B, S, H, D) and caches (blocks, tokens of a block, H / groups, D) of "
            f"equal shapes and strides (got {shapes[0]}, {shapes[1]} and {tuple(v_cache.shape)}).\n"
            "Put positions before heads: q.transpose(1, 2)"
        )
    if q.shape[1] > MOST_TOKENS or q.shape[3] % 8 or not 0 < q.shape[3] <= 256:
        raise ValueError(
            f"attention_decode takes up to {MOST_TOKENS} queries of each sequence, and head dimensions that "
            f"are multiples of 8 up to 256 (got {shapes[0]}).\nTake attention_varlen for many queries"
        )
    if any(stride % 8 for stride in k_cache.stride()[:3]) or k_cache.stride(3) != 1:
        raise ValueError(
            f"caches are read by 16 bytes: strides are multiples of 8, and the last one is 1 (got "
            f"{k_cache.stride()}).\nAllocate them contiguous: torch.empty(blocks, tokens, heads, D)"
        )
    if not (dotcu.is_aligned(k_cache, 16) and dotcu.is_aligned(v_cache, 16)):
        raise ValueError(
            "caches begin at multiples of 16 bytes.\n"
            "Allocate them contiguous: torch.empty(blocks, tokens, heads, D)"
        )
    if not (
        block_table.dtype == lengths.dtype == torch.int32
        and block_table.dim() == 2
        and tuple(lengths.shape) == tuple(block_table.shape[:1]) == shapes[0][:1]
    ):
        raise ValueError(
            f"block_table is int32 (B, blocks) and lengths int32 (B) (got {block_table.dtype} "
            f"{tuple(block_table.shape)} and {lengths.dtype} {tuple(lengths.shape)} for B = {q.shape[0]}).\n"
            "Convert them: block_table.int(), lengths.int()"
        )
    if (window is not None and window < 0) or not 0 <= softcap < math.inf:
        raise ValueError(
            f"window and softcap are not negative (got {window} and {softcap}).\n"
            "Leave them out to see all keys: attention_decode(q, k_cache, v_cache, block_table, lengths)"
        )


@attention_decode.reference
def _(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    window: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor]:
    out, lse = torch.zeros_like(q), q.new_zeros((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
    factor, tokens, page = scale_of("attention_decode", q, scale), q.shape[1], k_cache.shape[1]
    for b, length in enumerate(lengths.clamp(max=block_table.shape[1] * page).tolist()):
        blocks = block_table[b, : -(-length // page)].long()
        k, v = (x[blocks].flatten(0, 1)[:length].transpose(0, 1)[None] for x in (k_cache, v_cache))
        # The queries before the last ones are zeros, so that the last ones are at their positions.
        queries = q.new_zeros((max(length, tokens), *q.shape[2:]))
        queries[-tokens:] = q[b]
        k, v = (torch.nn.functional.pad(x, (0, 0, queries.shape[0] - length, 0)) for x in (k, v))
        scores, _ = scores_of(queries.transpose(0, 1)[None], k, factor, True, window, softcap)
        scores[..., : queries.shape[0] - length] = -math.inf
        result, logs = weighted(queries.transpose(0, 1)[None], k, v, scores)
        out[b], lse[b] = result[0, :, -tokens:].transpose(0, 1), logs[0, :, -tokens:]
    return out, lse


@attention_decode.work
def _(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    window: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
) -> tuple[int, int]:
    (_, tokens, h, d), most = q.shape, SIDE if window is None else window + q.shape[1]
    keys = sum(min(length, most) for length in lengths.tolist())
    return 2 * q.nbytes + 2 * keys * k_cache.shape[2] * d * q.element_size(), 4 * keys * tokens * h * d


def _sample(
    device: torch.device,
    dtype: torch.dtype,
    tokens: int,
    h: int,
    heads: int,
    d: int,
    page: int,
    lengths: tuple[int, ...],
) -> tuple[Tensor, ...]:
    """Sequences whose blocks lie in the cache backwards."""
    random = random_tensors(device, dtype, -1, 1)
    most = max(1, *(-(-length // page) for length in lengths))
    table = torch.arange(len(lengths) * most - 1, -1, -1, dtype=torch.int32, device=device).view(-1, most)
    cache = random(len(lengths) * most, page, heads, d), random(len(lengths) * most, page, heads, d)
    return (
        random(len(lengths), tokens, h, d),
        *cache,
        table,
        torch.tensor(lengths, dtype=torch.int32, device=device),
    )


@attention_decode.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(*_sample(device, dtype, 1, 4, 2, 64, 16, (70, 1, 0)))
    yield dotcu.Sample(*_sample(device, dtype, 3, 8, 1, 128, 5, (2, 150)), window=40)
    yield dotcu.Sample(*_sample(device, dtype, 2, 2, 2, 80, 64, (40,)), scale=0.5, softcap=2.0)
