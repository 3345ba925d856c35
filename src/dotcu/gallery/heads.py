"""The formulas of attention, and what its operators require of their arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

SIDE = 2**30
"""Keys before and after a query's position where all are seen."""


def reach(causal: bool, window: int | None) -> tuple[int, int]:
    """Return how many keys a query sees before and after its position."""
    side = SIDE if window is None else window
    return side, 0 if causal else side


def scale_of(name: str, q: Tensor, scale: float | None) -> float:
    """Return the factor of the scores: 1 / sqrt(D) where none is given.

    Args:
        name: The operator.
        q: Queries (B, H, S, D).
        scale: The one that is given.

    Raises:
        ValueError: It is not above 0.
    """
    if scale is not None and not scale > 0:
        raise ValueError(
            f"the scale of scores is above 0 (got {scale}).\n"
            f"For a negative one, negate q: {name}(-q, k, v, scale={-scale})"
        )
    return 1 / math.sqrt(q.shape[3]) if scale is None else scale


def require_heads(
    name: str, q: Tensor, k: Tensor, v: Tensor, dtypes: Sequence[torch.dtype], *, empty: bool = False
) -> None:
    """Require q (B, H, S, D), and k and v (B, H / groups, T, D) of one dtype.

    Args:
        name: The operator.
        q: Queries.
        k: Keys.
        v: Values.
        dtypes: Those that it takes.
        empty: Takes T = 0, too.

    Raises:
        TypeError: Another dtype.
        ValueError: Other shapes.
    """
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
    """Require the gradient and both results of a call.

    Args:
        name: The operator of the call.
        grad: The gradient by the result.
        q: The call's queries.
        out: Its result.
        lse: Its log-sum-exp.
        sums: The dtype of that.

    Raises:
        ValueError: Another shape or dtype.
    """
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
    """Return scores in float32 or float64, -inf where a query does not see a key, and their slope by softcap.

    Args:
        q: Queries (B, H, S, D).
        k: Keys (B, H / groups, T, D).
        scale: The factor of the products.
        causal: Query i sees the keys 0 to i only.
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
    if causal or window is not None:
        scores = scores.masked_fill(ones.triu(right + 1), -math.inf)
    if window is not None:
        scores = scores.masked_fill(ones.tril(-left - 1), -math.inf)
    return scores, slope


def weighted(q: Tensor, k: Tensor, v: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return softmax(scores) @ v in the dtype of q, and the log-sum-exp of the scores.

    Args:
        q: Queries (B, H, S, D).
        k: Keys (B, H / groups, T, D).
        v: Values, of their shape.
        scores: (B, H, S, T).
    """
    values = v.to(scores.dtype).repeat_interleave(q.shape[1] // k.shape[1], 1)
    blind = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores, -1).masked_fill(blind, 0.0)
    return (weights @ values).to(q.dtype), torch.logsumexp(scores, -1)


def gradients_of(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    scores: tuple[Tensor, Tensor],
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients by q, k and v.

    Args:
        grad: The gradient by the result.
        q: Queries (B, H, S, D).
        k: Keys (B, H / groups, T, D).
        v: Values, of their shape.
        out: The result.
        lse: The log-sum-exp of the scores.
        scores: They and their slope, as `scores_of` gives them.
        scale: The factor of the products.
    """
    group, (values_of, slope) = q.shape[1] // k.shape[1], scores
    keys, values = (x.to(values_of.dtype).repeat_interleave(group, 1) for x in (k, v))
    p = torch.exp(values_of - lse.unsqueeze(-1)).masked_fill(values_of == -math.inf, 0.0)
    dy = grad.to(values_of.dtype)
    ds = p * slope * (dy @ values.mT - (dy * out).sum(-1, keepdim=True)) * scale

    def shared(x: Tensor) -> Tensor:
        """The sum over the heads that share one of k."""
        sum: Tensor = x.unflatten(1, (-1, group)).sum(2)
        return sum.to(q.dtype)

    return (ds @ keys).to(q.dtype), shared(ds.mT @ q.to(ds.dtype)), shared(p.mT @ dy)
