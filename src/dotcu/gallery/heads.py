"""The formulas of attention, and what its operators require of their arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

SIDE = 2**30
"""Keys before and after a query's position where all are seen."""


class Scoring(NamedTuple):
    """The arguments of attention that say which keys a query sees, and how their scores are computed."""

    causal: bool = False
    window: int | None = None
    scale: float | None = None
    softcap: float = 0.0


def reach(causal: bool, window: int | None) -> tuple[int, int]:
    """Return how many keys a query sees before and after its position."""
    side = SIDE if window is None else window
    return side, 0 if causal else side


def scale_of(name: str, q: Tensor, scale: float | None) -> float:
    """Return the factor of the scores of q (B, H, S, D): 1 / sqrt(D) where none is given."""
    if scale is not None and not scale > 0:
        raise ValueError(
            f"the scale of scores is above 0 (got {scale}).\n"
            f"For a negative one, negate q: {name}(-q, k, v, scale={-scale})"
        )
    return 1 / math.sqrt(q.shape[3]) if scale is None else scale


def require_heads(
    name: str, q: Tensor, k: Tensor, v: Tensor, dtypes: Sequence[torch.dtype], *, empty: bool = False
) -> None:
    """Require q (B, H, S, D), and k and v (B, H / groups, T, D) of one dtype; T may be 0 if `empty`."""
    if not (q.dtype == k.dtype == v.dtype and q.dtype in dtypes):
        taken = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(
            f"{name} takes tensors of one dtype out of {taken} (got {q.dtype}, {k.dtype} and {v.dtype}).\n"
            f"Convert them first: {name}(*(x.to(torch.bfloat16) for x in (q, k, v)))"
        )
    shapes = tuple(q.shape), tuple(k.shape), tuple(v.shape)
    if q.dim() != 4 or k.dim() != 4 or k.shape != v.shape or q.shape[::3] != k.shape[::3]:
        raise ValueError(
            f"{name} takes q (B, H, S, D), and k and v (B, H / groups, T, D) "
            f"(got {shapes[0]}, {shapes[1]} and {shapes[2]}).\nPut heads before positions: q.transpose(1, 2)"
        )
    if k.shape[1] == 0 or q.shape[1] % k.shape[1] or (k.shape[2] == 0 and not empty):
        keys = "" if empty else ", and at least one key"
        raise ValueError(
            f"{name} takes heads of q that are a multiple of k's{keys} "
            f"(got q {shapes[0]} and k {shapes[1]}).\n"
            f"Leave heads of q out, such as all but {k.shape[1]}: q[:, :{k.shape[1]}]"
        )


def require_gradient(
    name: str, grad: Tensor, q: Tensor, out: Tensor, lse: Tensor, *, sums: torch.dtype
) -> None:
    """Require the gradient and both results of a call, whose log-sum-exp has the dtype `sums`."""
    for which, x in (("grad", grad), ("out", out)):
        if x.dtype != q.dtype or x.shape != q.shape:
            raise ValueError(
                f"{which} has the shape {tuple(q.shape)} and the dtype {q.dtype} of q (got {tuple(x.shape)}, "
                f"{x.dtype}).\nPass the result and its gradient: out, lse = {name}(q, k, v)"
            )
    if lse.dtype != sums or lse.shape != q.shape[:3]:
        raise ValueError(
            f"lse has the shape {tuple(q.shape[:3])} and the dtype {sums} (got {tuple(lse.shape)}, "
            f"{lse.dtype}).\nPass the second result: out, lse = {name}(q, k, v)"
        )


def scores_of(
    q: Tensor, k: Tensor, scale: float, causal: bool, window: int | None = None, softcap: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return scores in float32 or float64, and their slope by softcap; -inf and -1 where a key is not seen.

    Args:
        window: How many keys a query sees to each side.
        softcap: Bends scores below this; 0 for none.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    keys = k.to(wide).repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores: Tensor = q.to(wide) @ keys.mT * scale
    slope = torch.ones_like(scores)
    if softcap > 0:
        bent = torch.tanh(scores / softcap)
        scores, slope = softcap * bent, 1 - bent * bent
    left, right = reach(causal, window)
    ones = scores.new_ones(scores.shape[-2:]).bool()
    hidden = ones.triu(right + 1) if causal or window is not None else ~ones
    hidden = hidden | ones.tril(-left - 1) if window is not None else hidden
    return scores.masked_fill(hidden, -math.inf), slope.masked_fill(hidden, -1.0)


def _product(weights: Tensor, x: Tensor, hidden: Tensor) -> Tensor:
    """Return weights @ x. What is hidden has a weight of 0, and in float64 no part in it.

    In other types a NaN or an infinity there gives NaN: kernels on tensor cores multiply it by 0.
    """
    if weights.dtype != torch.float64 or bool(x.isfinite().all()):
        return weights @ x
    # one by one: all at once may not fit into memory
    columns = (weights * column.unsqueeze(-2) for column in x.unbind(-1))
    return torch.stack([terms.masked_fill(hidden, 0.0).sum(-1) for terms in columns], -1)


def weighted(q: Tensor, k: Tensor, v: Tensor, scores: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """Return softmax(scores) @ v in the dtype of q, and the log-sum-exp of the scores.

    That is NaN in float32 if a score is infinite.

    Args:
        scores: (B, H, S, T), as `scores_of` gives them.
        slope: Their slope.
    """
    values = v.to(scores.dtype).repeat_interleave(q.shape[1] // k.shape[1], 1)
    blind = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores, -1).masked_fill(blind, 0.0)
    logs = torch.logsumexp(scores, -1)
    if logs.dtype != torch.float64:
        logs = logs.masked_fill(logs == math.inf, math.nan)
    result = _product(weights, values, slope < 0)
    if logs.dtype == torch.float64:  # in other types 0 times an infinity may be left
        result = result.masked_fill(blind, 0.0)
    return result.to(q.dtype), logs


def gradients_of(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scores: tuple[Tensor, Tensor],
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients by q, k and v.

    Args:
        lse: The log-sum-exp of the scores.
        scores: They and their slope, as `scores_of` gives them.
        scale: The factor of the products.
    """
    group, (values_of, slope), wide = q.shape[1] // k.shape[1], scores, scores[0].dtype
    keys, values = (x.to(wide).repeat_interleave(group, 1) for x in (k, v))
    logs, hidden = lse.unsqueeze(-1), slope < 0
    nothing = logs == -math.inf
    if wide == torch.float64:
        nothing = nothing | hidden
    p, dy = torch.exp(values_of - logs).masked_fill(nothing, 0.0), grad.to(wide)
    ds = p * slope * (dy @ values.mT - (dy * out).sum(-1, keepdim=True)) * scale
    ds = ds.masked_fill(nothing, 0.0) if wide == torch.float64 else ds

    def shared(x: Tensor) -> Tensor:
        """The sum over the heads that share one of k."""
        sum: Tensor = x.unflatten(1, (k.shape[1], group)).sum(2)
        return sum.to(q.dtype)

    by_k, by_v = _product(ds.mT, q.to(wide), hidden.mT), _product(p.mT, dy, hidden.mT)
    return _product(ds, keys, hidden).to(q.dtype), shared(by_k), shared(by_v)
