"""attention: softmax(q @ k^T * scale) @ v of many heads on Hopper's tensor cores, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import dotcu
from dotcu.gallery.common import random_tensors
from dotcu.gallery.heads import (
    SIDE,
    Scoring,
    gradients_of,
    reach,
    require_gradient,
    require_heads,
    scale_of,
    scores_of,
    weighted,
)

plain, plain_backward = dotcu.load("kernel.cu"), dotcu.load("plain_backward.cu")
hopper, hopper_backward = dotcu.load("hopper.cu"), dotcu.load("hopper_backward.cu")
hopper_queries, decode = dotcu.load("hopper_queries.cu"), dotcu.load("decode.cu")

HALVES = (torch.bfloat16, torch.float16)
DTYPES = (*HALVES, torch.float32, torch.float64)

HEAD_DIMS = (64, 96, 128, 192, 256)

FORWARD = ((3, 128, 128), (3, 96, 96), (2, 176, 128), (2, 112, 112), (2, 80, 80))
"""By `HEAD_DIMS`: warpgroups of 64 queries, keys of a step, and of a step of few keys."""

FEW_QUERIES = 1024
"""Up to as many queries a tile has two warpgroups of them: its tail counts more than what it reads."""

THREE_GROUPS = 1.28
"""Time of a tile of three warpgroups over that of one of two, where all keys are seen and tiles take as long.
Source: trials on an H100, which the README tells."""

L2_KEYS = 4096
"""Up to as many keys, those of several heads share L2."""

L2_BYTES = 8 * 2**20
"""What those keys and values may take that are read at the same time: queries and results pass L2, too."""

L2_MANY = 32 * 2**20
"""The same for many keys, of whose heads each has few tiles: several are needed to fill the GPU."""

AHEAD_BYTES = 224 * 2**10
"""Shared memory up to which a block of the forward has the queries of its next tile, too."""

STEP_QUERIES = (128, 64, 64, 32, 32)
"""By `HEAD_DIMS`: queries of a step of the backward, whose blocks have 128 keys."""

STEP_KEYS = (64, 64, 64, 64, 32)
"""By `HEAD_DIMS`: keys of a step of the gradient by q alone, whose blocks have 128 queries."""

LARGEST_AT_ONCE = 128
"""The head dimension up to which a block's registers hold both gradients, by k and v."""

DECODE_STAGES = (6, 3, 3, 4, 3)
"""By `HEAD_DIMS`: steps that a block has in shared memory, of 64 keys; up to 128, two blocks fit."""

SMEM_KB = ((8, 0), 163), ((8, 7), 163), ((9, 0), 227), ((10, 0), 227), ((10, 3), 227)
"""Shared memory of a block by compute capability; others have 99 KB. Source: CUDA C++ Programming Guide."""

AT_ONCE = 2
"""Blocks that a multiprocessor runs at the same time."""

ROUNDS = 4
"""How often it gets as many at least, so that sequences may differ in length; once, where heads are few."""

LEAST_KEYS = 256
"""Of a part, so that it is worth a block."""

MAX_TOKENS = 8

ALL, CAUSAL, WINDOW = 0, 1, 2
"""Which keys a query sees, as the kernels count."""

FEW_KEYS = (1024, 2048, L2_KEYS)
"""By which keys a query sees, up to as many keys of dense attention, a step has few.
Source: trials on an H100, except for windows."""

TOLERANCE = {torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float32: 2e-5, torch.float64: 1e-12}
"""The second product takes exp(scores) in half precision."""

WITH_GRADIENTS = TOLERANCE | {torch.bfloat16: 4e-2}
"""Four of their five products take such factors, and what they add up cancels: an H100 had 3.3e-2. `check`
holds the gradients of an operator to its own tolerance."""


@dotcu.op(
    "dotcu::attention",
    dtypes=DTYPES,
    tolerance=WITH_GRADIENTS,
    sharding=("q:0 k:0 v:0 -> 0, 0", "even q:1 k:1 v:1 -> 1, 1"),
)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Compute softmax(scale * q @ k^T) @ v for each head, and the log-sum-exp of each query's scores.

    Args:
        q: Queries (B, H, S, D), of any float type; D is a multiple of 8, up to 256. Tensors may be strided
            in all but the last dimension, such as (B, S, H, D) with two dimensions exchanged.
        k: Keys (B, H / groups, T, D) of the same dtype: several heads of q may share one of k and v.
        v: Values, of k's shape and dtype.
        causal: Query i sees the keys 0 to i only, as in torch's scaled_dot_product_attention.
        window: Query i sees the keys i - window to i + window only.
        scale: Factor of the scores, above 0; 1 / sqrt(D) by default.
        softcap: Scores s become softcap * tanh(s / softcap); 0 leaves them.

    Returns:
        The result, of q's shape, dtype and layout, and the log-sum-exp (B, H, S) in float32, or float64,
        which has no gradient. A query that sees no key has the result 0 and the log-sum-exp -inf.
    """
    _require("attention", q, k, v, window, softcap)
    out, lse = _like(q), q.new_empty(q.shape[:3], dtype=_sum_type(q))
    _forward(q, k, v, out, lse, Scoring(causal, window, scale_of("attention", q, scale), softcap))
    return out, lse


@dotcu.op(
    "dotcu::attention_backward",
    dtypes=DTYPES,
    tolerance=WITH_GRADIENTS,
    sharding=(
        "grad:0 q:0 k:0 v:0 out:0 lse:0 -> 0, 0, 0",
        "even grad:1 q:1 k:1 v:1 out:1 lse:1 -> 1, 1, 1",
    ),
)
def attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Give the gradients of attention by q, k and v.

    Args:
        grad: The gradient by the result, of its shape and dtype.
        out: The result.
        lse: The log-sum-exp that came with it. The rest as for `attention`.
        deterministic: Gives the same bits in every run, in more time: the gradient by q is not added up by
            atomics. Head dimensions above 128 always do.
    """
    _require("attention", q, k, v, window, softcap)
    require_gradient("attention", grad, q, out, lse, sums=_sum_type(q))
    by = _like(q), _like(k), _like(v)
    scoring = Scoring(causal, window, scale_of("attention", q, scale), softcap)
    _backward(grad, q, k, v, out, lse, by, scoring, deterministic)
    return by


@dotcu.op(
    "dotcu::attention_varlen",
    dtypes=DTYPES,
    tolerance=WITH_GRADIENTS,
    sharding=("even q:1 k:1 v:1 -> 1, 0",),
)
def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Compute attention of sequences of different lengths, which are packed one after the other.

    Args:
        q: Queries (rows of all sequences, H, D), of any float type; D is a multiple of 8, up to 256.
        k: Keys (rows of all sequences, H / groups, D) of the same dtype.
        v: Values, of k's shape and dtype.
        cu_seq_q: int32 (B + 1), on the device: the first row of each sequence in q, from 0 on, and the end of
            the last one. A sequence may be empty. Rows behind the last are one more sequence.
        cu_seq_k: The same for k and v.
        max_q: The length of the longest sequence in q. It and max_k only decide which tiles are taken.
        max_k: The same for k and v.
        causal: Query i of a sequence sees its keys 0 to i only. The rest as for `attention`.

    Returns:
        The result, of q's shape, dtype and layout, and the log-sum-exp (H, rows) in float32, or float64.
    """
    _require_varlen(q, k, v, cu_seq_q, cu_seq_k, window, softcap)
    out, lse = _like(q), q.new_empty((q.shape[1], q.shape[0]), dtype=_sum_type(q))
    scoring = Scoring(causal, window, scale_of("attention_varlen", _batch(q), scale), softcap)
    packed = cu_seq_q.contiguous(), cu_seq_k.contiguous(), max_q, max_k
    _forward(_batch(q), _batch(k), _batch(v), _batch(out), lse, scoring, packed)
    return out, lse


@dotcu.op(
    "dotcu::attention_varlen_backward",
    dtypes=DTYPES,
    tolerance=WITH_GRADIENTS,
    sharding=("even grad:1 q:1 k:1 v:1 out:1 lse:0 -> 1, 1, 1",),
)
def attention_varlen_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Give the gradients of attention_varlen by q, k and v.

    Args:
        grad: The gradient by the result, of its shape and dtype.
        out: The result.
        lse: The log-sum-exp that came with it. The rest as for `attention_varlen`.
        deterministic: As for `attention_backward`.
    """
    _require_varlen(q, k, v, cu_seq_q, cu_seq_k, window, softcap)
    dy, one, keys, values, result = (_batch(x) for x in (grad, q, k, v, out))
    require_gradient("attention_varlen", dy, one, result, lse.unsqueeze(0), sums=_sum_type(q))
    by = _like(q), _like(k), _like(v)
    scoring = Scoring(causal, window, scale_of("attention_varlen", one, scale), softcap)
    packed = cu_seq_q.contiguous(), cu_seq_k.contiguous(), max_q, max_k
    gradients = tuple(_batch(x) for x in by)
    _backward(dy, one, keys, values, result, lse, gradients, scoring, deterministic, packed)
    return by


Packed = tuple[Tensor, Tensor, int, int]
"""Of packed sequences: where each begins in q and in k, and the lengths of the longest ones."""


def _forward(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scoring: Scoring, packed: Packed | None = None
) -> None:
    """Write the result and the log-sum-exp: of B sequences, or of packed ones in a batch of one."""
    if out.numel() == 0 or k.numel() == 0:
        out.zero_(), lse.fill_(-math.inf)
        return
    causal, window, scale, softcap = scoring
    starts, key_starts, queries, keys = packed or (None, None, q.shape[2], k.shape[2])
    sequences = 0 if starts is None else starts.shape[0]
    packing = starts, key_starts, sequences
    if _is_plain(q):
        kernel, grid = _choose_plain(plain.attention_plain, q, q)
        plainly = (*packing, *reach(causal, window), scale, softcap)
        kernel(q, k, v, out, lse, *plainly, grid=grid, block=256)
        return
    q, k, v = _mapped(q), _mapped(k), _mapped(v)
    kernel, rows, columns, tiles, numbers, grid, smem_bytes = _choose(
        q, k, sequences, queries, keys, causal, window, softcap > 0
    )
    counter = q.new_zeros(1, dtype=torch.int32) if tiles > grid else None
    q_map = dotcu.tensor_map(q, box=(1, 1, rows, 64), swizzle=128)
    k_map, v_map = (dotcu.tensor_map(x, box=(1, 1, columns, 64), swizzle=128) for x in (k, v))
    kernel(
        q_map, k_map, v_map, out, lse, counter, *packing, *numbers, scale, softcap,
        grid=grid, block=rows * 2 + 128, smem_bytes=smem_bytes,
    )  # fmt: skip


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, by: tuple[Tensor, ...],
    scoring: Scoring, deterministic: bool, packed: Packed | None = None,
) -> None:  # fmt: skip
    """Write the gradients by q, k and v."""
    (by_q, by_k, by_v), (causal, window, scale, softcap) = by, scoring
    if q.numel() == 0 or k.numel() == 0:
        for x in by:
            x.zero_()
        return
    starts, key_starts, *_ = packed or (None, None)
    lse, sequences = lse.contiguous(), 0 if starts is None else starts.shape[0]
    packing, of_queries = (starts, key_starts, sequences), (starts, sequences)
    if _is_plain(q):
        plainly = (*packing, *reach(causal, window), scale, softcap)
        kernel, grid = _choose_plain(plain_backward.attention_plain_queries, q, q)
        kernel(q, k, v, out, grad, lse, by_q, *plainly, grid=grid, block=256)
        kernel, grid = _choose_plain(plain_backward.attention_plain_keys, q, k)
        kernel(q, k, v, out, grad, lse, by_k, by_v, *plainly, grid=grid, block=256)
        return
    q, k, v, grad, out = _mapped(q), _mapped(k), _mapped(v), _mapped(grad), _mapped(out)
    d, m, all_rows, numbers, key_blocks, query_blocks = _choose_backward(q, k, sequences, causal, window)
    masked, capped, heads = _masked(causal, window), softcap > 0, q.shape[1]
    sums_up = d <= LARGEST_AT_ONCE and not deterministic
    logs = lse.new_empty((heads, all_rows))
    delta = torch.empty_like(logs)
    sums = logs.new_empty((heads, all_rows, dotcu.cdiv(d, 64) * 64)) if sums_up else None
    rows_grid = (all_rows // m, heads)
    hopper_backward.attention_rows[q.dtype, d, m, sums_up](
        out, grad, lse, logs, delta, sums, *of_queries, all_rows, grid=rows_grid, block=256
    )
    q_map, grad_map = (dotcu.tensor_map(x, box=(1, 1, m, 64), swizzle=128) for x in (q, grad))
    k_map, v_map = (dotcu.tensor_map(x, box=(1, 1, 128, 64), swizzle=128) for x in (k, v))
    for both in ((True, True),) if d <= LARGEST_AT_ONCE else ((True, False), (False, True)):
        instance = (q.dtype, d, m, masked, capped, *both, sums_up, sequences > 0)
        hopper_backward.attention_backward[instance](
            q_map, k_map, v_map, grad_map, logs, delta, sums, by_k, by_v, *packing, *numbers, scale, softcap,
            grid=key_blocks, block=384, smem_bytes=_backward_smem(d, m),
        )  # fmt: skip
    if sums_up:
        by_rows = hopper_backward.attention_round[q.dtype, d, m]
        by_rows(sums, by_q, *of_queries, all_rows, scale, grid=rows_grid, block=256)
        return
    n, group, keys, padded = STEP_KEYS[HEAD_DIMS.index(d)], numbers[0], numbers[2], numbers[3]
    q_map, grad_map = (dotcu.tensor_map(x, box=(1, 1, 128, 64), swizzle=128) for x in (q, grad))
    k_map, v_map = (dotcu.tensor_map(x, box=(1, 1, n, 64), swizzle=128) for x in (k, v))
    hopper_queries.attention_queries[q.dtype, d, n, masked, capped, sequences > 0](
        q_map, k_map, v_map, grad_map, logs, delta, by_q, *packing, group, keys, padded, all_rows,
        *reach(causal, window), scale, softcap,
        grid=query_blocks, block=384, smem_bytes=_queries_smem(d, n),
    )  # fmt: skip


def _batch(x: Tensor) -> Tensor:
    """Packed rows (rows, H, D) as a batch of one (1, H, rows, D)."""
    return x.transpose(0, 1).unsqueeze(0)


def _is_plain(q: Tensor) -> bool:
    """True for what has no kernel on tensor cores: wide types, and GPUs that are no Hopper."""
    return q.dtype not in HALVES or (q.device.type == "cuda" and dotcu.capability(q)[0] != 9)


def _sum_type(q: Tensor) -> torch.dtype:
    return torch.promote_types(q.dtype, torch.float32)


@dotcu.by_layout
def _choose_plain(kernel: Any, q: Tensor, rows: Tensor) -> tuple[dotcu.Kernel, int]:
    """The kernel and its grid: a warp for each row, eight in a block."""
    count = rows.shape[0] * rows.shape[1] * rows.shape[2]
    return kernel[q.dtype, _sum_type(q)], dotcu.cdiv(count, 8)


def _mapped(x: Tensor) -> Tensor:
    """The tensor itself where TMA can read it, else a contiguous copy."""
    return x if _fits_tma(x) else x.clone(memory_format=torch.contiguous_format)


@dotcu.by_layout
def _fits_tma(x: Tensor) -> bool:
    fits = x.stride(-1) == 1 and all(stride % 8 == 0 and stride > 0 for stride in x.stride()[:-1])
    return fits and dotcu.is_aligned(x, 16)


def _like(x: Tensor) -> Tensor:
    """An empty tensor in x's layout where that is dense, with rows of neighbouring elements."""
    empty = torch.empty_like(x)
    return empty if empty.stride(-1) == 1 else torch.empty_like(x, memory_format=torch.contiguous_format)


def _padded(d: int) -> int:
    return next(size for size in HEAD_DIMS if size >= d)


def _masked(causal: bool, window: int | None) -> int:
    return WINDOW if window is not None else CAUSAL if causal else ALL


def _together(heads_of_k: int, group: int, keys: int, d: int, l2_bytes: int = L2_BYTES) -> int:
    """Heads of q whose keys and values L2 holds at the same time, about as many in each round.

    A last round of few heads would begin with their longest rows, for few blocks, when all others are done.
    """
    most = max(1, min(heads_of_k, l2_bytes // (4 * keys * d)))
    return group * dotcu.cdiv(heads_of_k, dotcu.cdiv(heads_of_k, most))


@dotcu.by_layout
def _choose(
    q: Tensor, k: Tensor, sequences: int, longest: int, keys: int, causal: bool, window: int | None,
    capped: bool,
) -> tuple[dotcu.Kernel, int, int, int, tuple[int, ...], int, int]:  # fmt: skip
    """The kernel, rows of its boxes of queries and of keys, tiles, numbers, grid, and shared memory."""
    b, h, queries, width = q.shape
    d, group, masked = _padded(int(width)), q.shape[1] // k.shape[1], _masked(causal, window)
    groups, many, few = FORWARD[HEAD_DIMS.index(d)]
    columns = few if keys <= (L2_KEYS if sequences else FEW_KEYS[masked]) else many
    if sequences or masked != ALL or queries < FEW_QUERIES:
        groups = 2 if longest <= FEW_QUERIES else groups
    elif groups == 3:
        sms = dotcu.sm_count(q)
        of_two, of_three = (dotcu.cdiv(b * h * dotcu.cdiv(queries, 64 * n), sms) for n in (2, 3))
        groups = 3 if THREE_GROUPS * of_three < of_two else 2
    if sequences == 0:
        key = q.dtype, d, queries, keys, b * h, masked, capped
        groups, columns = attention.configuration(*key, default=(groups, columns))
    rows = 64 * groups
    blocks = queries // rows + sequences if sequences else dotcu.cdiv(queries, rows)
    tiles = b * h * blocks
    l2_bytes = L2_BYTES if keys <= L2_KEYS else L2_MANY
    together = _together(b * k.shape[1], group, keys, d, l2_bytes) if masked and not sequences else 1
    numbers = (group, queries, int(k.shape[2]), blocks, tiles, together, *reach(causal, window))
    smem_bytes = _forward_smem(d, rows, columns)
    grid = min(tiles, dotcu.sm_count(q))
    kernel = hopper.attention[q.dtype, d, columns, groups, masked, capped, sequences > 0]
    return kernel, rows, columns, tiles, numbers, grid, smem_bytes


@dotcu.by_layout
def _choose_backward(
    q: Tensor, k: Tensor, sequences: int, causal: bool, window: int | None
) -> tuple[int, int, int, tuple[int, ...], int, int]:
    """D, queries of a step, rows of lse, numbers of the kernel, and grids: of keys and of queries."""
    (b, h, queries, width), (_, of_k, keys, _) = q.shape, k.shape
    d = _padded(int(width))
    m = STEP_QUERIES[HEAD_DIMS.index(d)]
    if sequences:
        padded, all_rows = m, (queries // m + sequences) * m
        grids = (keys // 128 + sequences) * of_k, (queries // 128 + sequences) * h
    else:
        padded = dotcu.cdiv(queries, m) * m
        all_rows = b * padded
        grids = dotcu.cdiv(keys, 128) * b * of_k, dotcu.cdiv(queries, 128) * b * h
    together = _together(b * of_k, 1, queries, d) if causal else 1
    numbers = (h // of_k, queries, keys, padded, all_rows, together, *reach(causal, window))
    return d, m, all_rows, numbers, *grids


def _forward_smem(d: int, rows: int, columns: int) -> int:
    row_bytes = dotcu.cdiv(d, 64) * 128
    ahead = 2 if row_bytes * (2 * rows + 4 * columns) <= AHEAD_BYTES else 1
    return row_bytes * (ahead * rows + 4 * columns) + 1024


def _backward_smem(d: int, m: int) -> int:
    tiles = dotcu.cdiv(d, 64) * 128 * (2 * 128 + 4 * m)
    return tiles + 2 * dotcu.cdiv(m, 64) * 128 * 128 + 4 * 4 * m + 1024


def _queries_smem(d: int, n: int) -> int:
    return dotcu.cdiv(d, 64) * 128 * (2 * 128 + 4 * n) + 1024


def _require_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, window: int | None, softcap: float
) -> None:
    if not q.dim() == k.dim() == v.dim() == 3 or k.shape != v.shape or q.shape[2] != k.shape[2]:
        raise ValueError(
            "attention_varlen takes q (rows, H, D), and k and v (rows, H / groups, D) "
            f"(got {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}).\n"
            "Pack sequences (length, H, D): torch.cat(sequences)"
        )
    _require("attention_varlen", _batch(q), _batch(k), _batch(v), window, softcap, empty=True)
    shapes = tuple(cu_seq_q.shape), tuple(cu_seq_k.shape)
    alike = shapes[0] == shapes[1] and cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    if not alike or cu_seq_q.dim() != 1 or cu_seq_q.shape[0] < 2:
        raise ValueError(
            "cu_seq_q and cu_seq_k are int32 (sequences + 1), for at least one sequence "
            f"(got {cu_seq_q.dtype} {shapes[0]} and {cu_seq_k.dtype} {shapes[1]}).\n"
            "Add lengths up: F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))"
        )


def _require(
    name: str, q: Tensor, k: Tensor, v: Tensor, window: int | None, softcap: float, *, empty: bool = False
) -> None:
    require_heads(name, q, k, v, DTYPES, empty=empty)
    d = int(q.shape[3])
    if d % 8 or not 0 < d <= 256:
        raise ValueError(
            f"{name} takes head dimensions that are multiples of 8 up to 256 (got {d}).\n"
            "Pad it with zeros, and pass scale=: F.pad(q, (0, -q.shape[-1] % 8))"
        )
    if (window is not None and window < 0) or not 0 <= softcap < math.inf:
        raise ValueError(
            f"window and softcap are not negative (got {window} and {softcap}).\n"
            f"Leave them out to see all keys: {name}(..., window=None, softcap=0.0)"
        )


class AttentionTile(NamedTuple):
    """Warpgroups of 64 queries of a block, and keys of a step."""

    groups: int
    keys: int


def _fits_block(tile: AttentionTile, dtype: torch.dtype, d: int, *_: object) -> bool:
    return _forward_smem(d, 64 * tile.groups, tile.keys) <= 2**10 * dict(SMEM_KB)[9, 0]


@attention.configurations(when=_fits_block, exact=1)
def _() -> Iterator[AttentionTile]:
    for groups in (3, 2):
        for keys in (128, 176, 160, 144, 112, 96, 80, 64):
            yield AttentionTile(groups, keys)


@attention.reference
def _(q: Tensor, k: Tensor, v: Tensor, *settings: Any, **named: Any) -> tuple[Tensor, Tensor]:
    causal, window, scale, softcap = Scoring(*settings, **named)
    return weighted(q, k, v, *scores_of(q, k, scale_of("attention", q, scale), causal, window, softcap))


@attention_backward.reference
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *settings: Any,
    deterministic: bool = False, **named: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    causal, window, scale, softcap = Scoring(*settings[:4], **named)
    factor = scale_of("attention", q, scale)
    scores = scores_of(q, k, factor, causal, window, softcap)
    return gradients_of(grad, q, k, v, out, lse, scores, factor)


def _each(q: Tensor, k: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor) -> Iterator[tuple[slice, slice]]:
    """The rows of each sequence in q, and in k."""

    def rows(starts: Tensor, count: int) -> Iterator[slice]:
        for first, end in pairwise((*starts.clamp(max=count).tolist(), count)):
            yield slice(first, end)

    yield from zip(rows(cu_seq_q, q.shape[0]), rows(cu_seq_k, k.shape[0]), strict=True)


@attention_varlen.reference
def _varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int, max_k: int,
    *settings: Any, **named: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    causal, window, scale, softcap = Scoring(*settings, **named)
    out, lse = torch.zeros_like(q), q.new_zeros((q.shape[1], q.shape[0]), dtype=_sum_type(q))
    for i, j in _each(q, k, cu_seq_q, cu_seq_k):
        one, keys, values = _batch(q[i]), _batch(k[j]), _batch(v[j])
        factor = scale_of("attention_varlen", one, scale)
        scores = scores_of(one, keys, factor, causal, window, softcap)
        result, logs = weighted(one, keys, values, *scores)
        out[i], lse[:, i] = result[0].transpose(0, 1), logs[0]
    return out, lse


@attention_varlen_backward.reference
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, cu_seq_q: Tensor,
    cu_seq_k: Tensor, max_q: int, max_k: int, *settings: Any, deterministic: bool = False, **named: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    causal, window, scale, softcap = Scoring(*settings[:4], **named)
    by_q, by_k, by_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for i, j in _each(q, k, cu_seq_q, cu_seq_k):
        one, keys, values = _batch(q[i]), _batch(k[j]), _batch(v[j])
        factor = scale_of("attention_varlen", one, scale)
        scores = scores_of(one, keys, factor, causal, window, softcap)
        result = _batch(out[i]), lse[None, :, i]
        gradients = gradients_of(_batch(grad[i]), one, keys, values, *result, scores, factor)
        by_q[i], by_k[j], by_v[j] = (x[0].transpose(0, 1) for x in gradients)
    return by_q, by_k, by_v


@attention.setup_context
def _(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
    q, k, v, *ctx.settings = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(q, k, v, *output)


@attention.backward
def _(ctx: Any, grad: Tensor, grad_lse: Tensor) -> Any:
    q, k, v, out, lse = ctx.saved_tensors
    deterministic = torch.are_deterministic_algorithms_enabled()
    gradients = attention_backward(grad, q, k, v, out, lse, *ctx.settings, deterministic)
    return (*gradients, None, None, None, None)


@attention_varlen.setup_context
def _(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
    q, k, v, cu_seq_q, cu_seq_k, *ctx.settings = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(q, k, v, *output, cu_seq_q, cu_seq_k)


@attention_varlen.backward
def _(ctx: Any, grad: Tensor, grad_lse: Tensor) -> Any:
    deterministic = torch.are_deterministic_algorithms_enabled()
    gradients = attention_varlen_backward(grad, *ctx.saved_tensors, *ctx.settings, deterministic)
    return (*gradients, *(None,) * 8)


def _seen(q: Tensor, k: Tensor, scoring: Scoring) -> int:
    """Return the number of pairs of a query and a key of a head that count."""
    queries, keys = q.shape[2], k.shape[2]
    if scoring.window is not None:
        return queries * min(keys, sum(reach(scoring.causal, scoring.window)) + 1)
    return queries * keys // 2 if scoring.causal else queries * keys


@attention.work
def _(q: Tensor, k: Tensor, v: Tensor, *settings: Any, **named: Any) -> tuple[int, int]:
    b, h, _, d = q.shape
    moved = 2 * q.nbytes + k.nbytes + v.nbytes + 4 * q[..., 0].numel()
    return moved, 4 * b * h * d * _seen(q, k, Scoring(*settings, **named))


@attention_backward.work
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *settings: Any,
    deterministic: bool = False, **named: Any,
) -> tuple[int, int]:  # fmt: skip
    b, h, _, d = q.shape
    return 4 * q.nbytes + 4 * k.nbytes, 10 * b * h * d * _seen(q, k, Scoring(*settings[:4], **named))


def _seen_of_each(q: Tensor, k: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, scoring: Scoring) -> int:
    return sum(_seen(_batch(q[i]), _batch(k[j]), scoring) for i, j in _each(q, k, cu_seq_q, cu_seq_k))


@attention_varlen.work
def _(
    q: Tensor, k: Tensor, v: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int, max_k: int,
    *settings: Any, **named: Any,
) -> tuple[int, int]:  # fmt: skip
    pairs = _seen_of_each(q, k, cu_seq_q, cu_seq_k, Scoring(*settings, **named))
    return 2 * q.nbytes + k.nbytes + v.nbytes + 4 * q[..., 0].numel(), 4 * q.shape[1] * q.shape[2] * pairs


@attention_varlen_backward.work
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, cu_seq_q: Tensor,
    cu_seq_k: Tensor, max_q: int, max_k: int, *settings: Any, deterministic: bool = False, **named: Any,
) -> tuple[int, int]:  # fmt: skip
    pairs = _seen_of_each(q, k, cu_seq_q, cu_seq_k, Scoring(*settings[:4], **named))
    return 4 * q.nbytes + 4 * k.nbytes, 10 * q.shape[1] * q.shape[2] * pairs


Inputs = tuple[Tensor, Tensor, Tensor, bool, int | None, float | None, float]
"""q, k, v, causal, window, scale and softcap."""


def _inputs(device: torch.device, dtype: torch.dtype) -> Iterator[Inputs]:
    """Samples of head dimensions: shared heads, sizes off any tile, windows, softcap, other strides."""
    random = random_tensors(device, dtype, -1, 1)
    for b, h, of_k, s, t, d, causal, window, softcap in (
        (1, 1, 1, 40, 90, 128, False, None, 0.0),
        (1, 4, 2, 33, 70, 64, True, None, 0.0),
        (1, 1, 1, 150, 131, 128, True, None, 2.0),
        (1, 1, 1, 70, 70, 80, False, 20, 0.0),
        (1, 1, 1, 20, 85, 256, True, 7, 0.0),
        (1, 1, 1, 20, 65, 192, False, None, 0.0),
        (2, 2, 1, 1, 9, 64, False, 3, 1.0),
    ):
        if dtype not in HALVES and d > 80:
            continue
        settings = (causal, window, None, softcap)
        yield random(b, h, s, d), random(b, of_k, t, d), random(b, of_k, t, d), *settings
    q, k, v = random(3, 2, 21, 3, 64).transpose(2, 3)
    yield q, k, v, False, None, 0.5, 0.0
    yield q[:, :, :0], k, v, True, None, None, 0.0


@attention.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield from (dotcu.Sample(*values) for values in _inputs(device, dtype))


@attention_backward.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for q, k, v, causal, window, scale, softcap in _inputs(device, dtype):
        scores, _ = scores_of(q, k, scale_of("attention", q, scale), causal, window, softcap)
        values = v.to(scores.dtype).repeat_interleave(q.shape[1] // k.shape[1], 1)
        out, lse = (torch.softmax(scores, -1) @ values).to(dtype), torch.logsumexp(scores, -1)
        grad = random_tensors(device, dtype, -1, 1)(*q.shape)
        yield dotcu.Sample(grad, q, k, v, out, lse, causal, window, scale, softcap, window == 20)


def _packed(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Any, ...]]:
    """Samples of packed sequences, with empty ones: q, k, v, where they begin, and settings."""
    random = random_tensors(device, dtype, -1, 1)
    for lengths, of_keys, h, of_k, d, causal, window in (
        ((30, 0, 1, 40), (30, 5, 0, 50), 2, 1, 64, True, None),
        ((130, 3), (70, 140), 1, 1, 128, False, 60),
    ):
        if dtype not in HALVES and d > 64:
            continue
        starts = (
            torch.tensor((0, *accumulate(x)), dtype=torch.int32, device=device) for x in (lengths, of_keys)
        )
        q, k, v = random(sum(lengths), h, d), random(sum(of_keys), of_k, d), random(sum(of_keys), of_k, d)
        yield q, k, v, *starts, max(lengths), max(of_keys), causal, window
    q, k, v = random(21, 3, 2, 64).unbind(1)
    at = torch.tensor((0, 8, 21), dtype=torch.int32, device=device)
    yield q, k, v, at, at, 13, 13, False, None
    yield q, k, v, at, at, 13, 13, True, 4, 0.5, 2.0
    few = torch.tensor((0, 2, 5), dtype=torch.int32, device=device)
    yield q[:5], k, v, few, at, 3, 13, True, None
    yield q[:0], k, v, at * 0, at, 0, 13, False, None
    yield q[:5], k[:0], v[:0], few, at * 0, 3, 0, False, None


@attention_varlen.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield from (dotcu.Sample(*values) for values in _packed(device, dtype))


@attention_varlen_backward.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for q, k, v, *settings in _packed(device, dtype):
        out, lse = _varlen(q, k, v, *settings)
        grad = random_tensors(device, dtype, -1, 1)(*q.shape)
        yield dotcu.Sample(grad, q, k, v, out, lse, *settings)


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
            multiple of 8, up to 256, or to 128 where a block has less than 128 KB of shared memory.
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
    _require_cache(q, k_cache, v_cache, block_table, lengths, window, softcap)
    (b, tokens, h, d), heads = q.shape, k_cache.shape[2]
    out, lse = q.new_empty(q.shape), q.new_empty((b, h, tokens), dtype=torch.float32)
    if out.numel() == 0:
        return out, lse
    kernel, grid, block, smem_bytes = _choose_decode(q, k_cache, block_table, softcap > 0)
    parts = part_lse = None
    if grid[1] > 1:
        parts = lse.new_empty((grid[1], b, tokens, h, d))
        part_lse = lse.new_empty((grid[1], b, tokens, h))
    numbers = h // heads, SIDE if window is None else window, scale_of("attention_decode", q, scale), softcap
    kernel(
        _mapped(q), k_cache, v_cache, block_table, lengths.contiguous(), out, lse, parts, part_lse, *numbers,
        grid=grid, block=block, smem_bytes=smem_bytes,
    )  # fmt: skip
    if parts is not None:
        combine = decode.attention_combine[q.dtype]
        combine(parts, part_lse, out, lse, grid[1], grid=b * tokens * h, block=128, programmatic=True)
    return out, lse


@dotcu.by_layout
def _choose_decode(
    q: Tensor, k_cache: Tensor, block_table: Tensor, capped: bool
) -> tuple[dotcu.Kernel, tuple[int, int, int], int, int]:
    """The kernel, its grid of heads, parts and sequences, its block, and shared memory."""
    b, tokens, h, width = q.shape
    heads, keys = k_cache.shape[2], block_table.shape[1] * k_cache.shape[1]
    at = next(i for i, size in enumerate(HEAD_DIMS) if size >= width)
    d, rows = HEAD_DIMS[at], tokens * (h // heads)
    tiles = 1 if rows <= 16 else 2 if rows <= 32 else 4
    row_blocks = dotcu.cdiv(rows, 16 * tiles)
    slots, blocks = AT_ONCE * dotcu.sm_count(q), b * heads * row_blocks
    fill = slots // blocks if 2 * blocks <= slots else dotcu.cdiv(ROUNDS * slots, blocks)
    parts = max(1, min(fill, dotcu.cdiv(keys, LEAST_KEYS)))
    row_bytes, fixed_bytes = dotcu.cdiv(d, 64) * 128, 512 * tiles
    most_kb = next((kb for capability, kb in SMEM_KB if capability == dotcu.capability(q)), 99)
    fits = (1024 * most_kb - fixed_bytes) // row_bytes - 16 * tiles
    stages = max(2, min(DECODE_STAGES[at], fits // 128))
    smem_bytes = row_bytes * (128 * stages + 16 * tiles) + fixed_bytes
    kernel = decode.attention_decode[q.dtype, d, tiles, stages, capped]
    return kernel, (heads * row_blocks, parts, b), 128 * tiles, smem_bytes


def _require_cache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, lengths: Tensor, window: int | None,
    softcap: float,
) -> None:  # fmt: skip
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
    if q.shape[1] > MAX_TOKENS or q.shape[3] % 8 or not 0 < q.shape[3] <= 256:
        raise ValueError(
            f"attention_decode takes up to {MAX_TOKENS} queries of each sequence, and head dimensions that "
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
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, lengths: Tensor,
    window: int | None = None, scale: float | None = None, softcap: float = 0.0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    out, lse = torch.zeros_like(q), q.new_zeros((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
    factor, tokens, page = scale_of("attention_decode", q, scale), q.shape[1], k_cache.shape[1]
    for b, length in enumerate(lengths.clamp(max=block_table.shape[1] * page).tolist()):
        blocks = block_table[b, : -(-length // page)].long()
        k, v = (x[blocks].flatten(0, 1)[:length].transpose(0, 1)[None] for x in (k_cache, v_cache))
        # The queries before the last ones are zeros, so that the last ones are at their positions.
        queries = q.new_zeros((max(length, tokens), *q.shape[2:]))
        queries[-tokens:] = q[b]
        k, v = (torch.nn.functional.pad(x, (0, 0, queries.shape[0] - length, 0)) for x in (k, v))
        scores, slope = scores_of(queries.transpose(0, 1)[None], k, factor, True, window, softcap)
        scores[..., : queries.shape[0] - length] = -math.inf
        result, logs = weighted(queries.transpose(0, 1)[None], k, v, scores, slope)
        out[b], lse[b] = result[0, :, -tokens:].transpose(0, 1), logs[0, :, -tokens:]
    return out, lse


@attention_decode.work
def _(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, lengths: Tensor,
    window: int | None = None, *rest: Any, **named: Any,
) -> tuple[int, int]:  # fmt: skip
    (_, tokens, h, d), most = q.shape, SIDE if window is None else window + q.shape[1]
    keys = sum(min(length, most) for length in lengths.tolist())
    return 2 * q.nbytes + 2 * keys * k_cache.shape[2] * d * q.element_size(), 4 * keys * tokens * h * d


def _paged(
    device: torch.device, dtype: torch.dtype, tokens: int, h: int, heads: int, d: int, page: int,
    lengths: tuple[int, ...],
) -> tuple[Tensor, ...]:  # fmt: skip
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
    yield dotcu.Sample(*_paged(device, dtype, 1, 4, 2, 64, 16, (70, 1, 0)))
    yield dotcu.Sample(*_paged(device, dtype, 1, 4, 2, 64, 16, (33,)), scale=0.3)
    yield dotcu.Sample(*_paged(device, dtype, 3, 8, 1, 128, 5, (2, 150)), window=40)
    q, k, v, table, lengths = _paged(device, dtype, 2, 2, 16, 80, 2, (30,))
    k, v = k.transpose(1, 2), v.transpose(1, 2)  # of each page, the heads one after the other
    yield dotcu.Sample(q, k, v, table[:, :2], lengths, scale=0.5, softcap=2.0)
    yield dotcu.Sample(q[:0], k, v, table[:0], lengths[:0])


class InPlaceOfSdpa(TorchFunctionMode):
    """Let torch's scaled_dot_product_attention call attention, where that computes the same and fast.

    Calls with a mask, dropout, other dtypes, sizes or devices stay torch's.

    Example:
        `with InPlaceOfSdpa(): model(x)`
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call attention in place of the function, or the function."""
        if func is torch.nn.functional.scaled_dot_product_attention:
            given = _sdpa(*args, **(kwargs or {}))
            if given is not None:
                q, k, v, causal, scale = given
                return attention(q, k, v, causal, None, scale)[0]
        return func(*args, **(kwargs or {}))


def _sdpa(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> tuple[Tensor, Tensor, Tensor, bool, float | None] | None:  # fmt: skip
    """The arguments of attention for a call of scaled_dot_product_attention; None where it stays torch's."""
    if (
        attn_mask is not None
        or dropout_p
        or query.dim() != 4
        or query.dtype not in HALVES
        or _is_plain(query)
    ):
        return None
    shared = query.shape[1] % max(1, key.shape[1]) == 0 if enable_gqa else query.shape[1] == key.shape[1]
    sizes = query.shape[3] % 8 == 0 and 0 < query.shape[3] <= 256 and key.shape[2] > 0
    alike = (
        key.shape == value.shape
        and query.shape[::3] == key.shape[::3]
        and query.dtype == key.dtype == value.dtype
    )
    if not (shared and sizes and alike and (scale is None or scale > 0)):
        return None
    return query, key, value, is_causal, scale
