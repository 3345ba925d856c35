"""Cases of flash-linear-attention: recurrences with a matrix as their state, and the layers around them.

The library needs einops and transformers. It does not import with Triton 3.9, which refuses one of its
autotuner keys; 3.8 and 3.7 take it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from benchmarks.triton_corpora.case import Case
from torch import Tensor

SOURCE = "fla-org/flash-linear-attention"
FOLDER = ""

B, T, H, K = 1, 80, 2, 32


def function(name: str, **named: Any) -> Callable[..., Any]:
    """Return what calls a function of `fla`, named as "module.function", and gives its first result."""

    def call(*args: Any) -> Any:
        module, _, attribute = name.rpartition(".")
        result = getattr(import_module(f"fla.{module}"), attribute)(*args, **named)
        return result if isinstance(result, Tensor) else result[0]

    return call


def case(
    name: str,
    inputs: Callable[[], Sequence[Any]],
    plain: Callable[..., Any],
    tolerance: float = 1e-4,
    **named: Any,
) -> Case:
    """Return a case of the function `name`, on "cuda": the library looks for a GPU as it is imported."""
    return Case(
        name=name.rpartition(".")[2],
        inputs=inputs,
        library=function(name, **named),
        plain=plain,
        tolerance=tolerance,
        cuda=True,
    )


def randn(*shape: int, scale: float = 1.0) -> Tensor:
    """Return normal values that require a gradient."""
    return (scale * torch.randn(shape)).requires_grad_()


def gate(*shape: int) -> Tensor:
    """Return logarithms of decays that require a gradient."""
    return F.logsigmoid(torch.randn(shape) + 2).requires_grad_()


def unit(*shape: int) -> Tensor:
    """Return vectors of length 1 that require a gradient."""
    return F.normalize(torch.randn(shape), dim=-1).requires_grad_()


def qkv() -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values."""
    return randn(B, T, H, K), randn(B, T, H, K), randn(B, T, H, K)


def delta_inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return queries, keys of length 1, values, and shares to replace."""
    beta = torch.rand(B, T, H).requires_grad_()
    return randn(B, T, H, K), unit(B, T, H, K), randn(B, T, H, K), beta


def recurrence(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    bonus: Tensor | None = None,
) -> Tensor:
    """Return the outputs of a linear attention.

    Args:
        q: Queries, (B, T, H, K).
        k: Keys, as queries.
        v: Values, (B, T, H, V).
        decay: Logarithms of what remains of the state at each step, (B, T, H, K) or (B, T, H, 1).
        beta: How much of what the state has for a key is replaced, by the delta rule, (B, T, H).
        bonus: The weight of a step's own key, which enters the state after the output, (H, K).
    """
    state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    outputs = []
    for t in range(q.shape[1]):
        query, key, value = q[:, t] * q.shape[3] ** -0.5, k[:, t], v[:, t]
        if bonus is not None:
            seen = state + (bonus * key).unsqueeze(-1) * value.unsqueeze(-2)
            outputs.append((query.unsqueeze(-1) * seen).sum(-2))
        if decay is not None:
            state = state * decay[:, t].exp().unsqueeze(-1)
        if beta is not None:
            value = beta[:, t].unsqueeze(-1) * (value - (state * key.unsqueeze(-1)).sum(-2))
        state = state + key.unsqueeze(-1) * value.unsqueeze(-2)
        if bonus is None:
            outputs.append((query.unsqueeze(-1) * state).sum(-2))
    return torch.stack(outputs, 1)


def retention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the recurrence with a constant decay for each head."""
    decay = torch.log(1 - 2.0 ** (-5 - torch.arange(float(q.shape[2]))))
    return recurrence(q, k, v, decay[None, None, :, None].expand(*q.shape[:3], 1))


def attention(q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None = None) -> Tensor:
    """Return causal attention, with logarithms of decays added to the scores."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores: Tensor = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    if decay is not None:
        total = decay.transpose(1, 2).cumsum(-1)
        scores = scores + total.unsqueeze(-1) - total.unsqueeze(-2)
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return (scores.masked_fill(later, -torch.inf).softmax(-1) @ v).transpose(1, 2)


def polynomial_attention(q: Tensor, k: Tensor, v: Tensor, first_terms: bool) -> Tensor:
    """Return causal attention whose weights are the square of the scores, or the Taylor series of exp."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores: Tensor = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    weights = (1 + scores + scores.square() / 2 if first_terms else scores.square()).tril()
    return ((weights @ v) / (weights.sum(-1, keepdim=True) + 1e-6)).transpose(1, 2)


def hgrn(x: Tensor, g: Tensor) -> Tensor:
    """Return the recurrence of a vector."""
    state, outputs = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        state = g[:, t].exp() * state + x[:, t]
        outputs.append(state)
    return torch.stack(outputs, 1)


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    """Return `weight * x / rms(x)`."""
    return weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return a rotary embedding of (B, T, H, D), by tables of (T, D / 2)."""
    left, right = x.chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)


def causal_conv(x: Tensor, weight: Tensor) -> Tensor:
    """Return a convolution over time of each channel, and SiLU."""
    padded = F.pad(x.transpose(1, 2), (weight.shape[1] - 1, 0))
    return F.silu(F.conv1d(padded, weight.unsqueeze(1), groups=x.shape[2])).transpose(1, 2)


def pooled(x: Tensor, chunk: int) -> Tensor:
    """Return means over chunks of time."""
    return torch.stack([part.mean(1) for part in x.split(chunk, 1)], 1)


def local_cumsum(g: Tensor, chunk: int) -> Tensor:
    """Return sums up to each step, within chunks of time."""
    return torch.cat([part.cumsum(1) for part in g.split(chunk, 1)], 1)


def solved(a: Tensor) -> Tensor:
    """Return the inverse of the identity plus each chunk's strictly lower triangle, (B, T, H, chunk)."""
    chunk = a.shape[3]
    blocks = a.unflatten(1, (-1, chunk)).transpose(2, 3)
    inverse: Tensor = torch.linalg.inv(torch.eye(chunk) + blocks)
    return inverse.transpose(2, 3).flatten(1, 2)


def strictly_lower(chunk: int) -> Tensor:
    """Return such triangles."""
    blocks = 0.1 * torch.randn(B, 2, H, chunk, chunk).tril(-1)
    return blocks.transpose(2, 3).flatten(1, 2).contiguous()


def packed(x: Tensor, ends: Tensor) -> Tensor:
    """Return the ends of padded sequences after each other."""
    lengths = ends.diff().tolist()
    return torch.cat([row[row.shape[0] - n :] for row, n in zip(x, lengths, strict=True)])


TF32 = 1e-2
"""The tolerance of products of matrices by tensor cores."""

CASES = (
    case(
        "ops.simple_gla.chunk_simple_gla",
        lambda: (*qkv(), gate(B, T, H)),
        lambda q, k, v, g: recurrence(q, k, v, g.unsqueeze(-1)),
        TF32,
    ),
    case(
        "ops.simple_gla.fused_recurrent_simple_gla",
        lambda: (*qkv(), gate(B, T, H)),
        lambda q, k, v, g: recurrence(q, k, v, g.unsqueeze(-1)),
    ),
    case(
        "ops.simple_gla.parallel_simple_gla",
        lambda: (*qkv(), gate(B, T, H)),
        lambda q, k, v, g: recurrence(q, k, v, g.unsqueeze(-1)),
        TF32,
    ),
    case("ops.gla.chunk_gla", lambda: (*qkv(), gate(B, T, H, K)), recurrence, TF32),
    case("ops.gla.fused_recurrent_gla", lambda: (*qkv(), gate(B, T, H, K)), recurrence),
    case("ops.retention.chunk_retention", qkv, retention, TF32),
    case("ops.retention.fused_recurrent_retention", qkv, retention),
    case("ops.retention.parallel_retention", qkv, retention, TF32),
    case("ops.linear_attn.chunk_linear_attn", qkv, recurrence, TF32, normalize=False),
    case("ops.linear_attn.fused_chunk_linear_attn", qkv, recurrence, TF32, normalize=False),
    case(
        "ops.delta_rule.chunk_delta_rule",
        lambda: [x.detach().bfloat16().requires_grad_() for x in delta_inputs()],
        lambda q, k, v, beta: recurrence(q.float(), k.float(), v.float(), None, beta.float()).bfloat16(),
        3e-2,  # bfloat16, which is all that it takes
    ),
    case(
        "ops.delta_rule.fused_recurrent_delta_rule",
        lambda: (
            randn(B, T, H, K),
            unit(B, T, H, K),
            randn(B, T, H, K),
            torch.rand(B, T, H).requires_grad_(),
        ),
        lambda q, k, v, beta: recurrence(q, k, v, None, beta),
    ),
    case(
        "ops.gated_delta_rule.chunk_gated_delta_rule",
        lambda: (
            randn(B, T, H, K),
            unit(B, T, H, K),
            randn(B, T, H, K),
            gate(B, T, H),
            torch.rand(B, T, H).requires_grad_(),
        ),
        lambda q, k, v, g, beta: recurrence(q, k, v, g.unsqueeze(-1), beta),
        TF32,
    ),
    case(
        "ops.gated_delta_rule.fused_recurrent_gated_delta_rule",
        lambda: (
            torch.randn(B, T, H, K),
            unit(B, T, H, K).detach(),
            torch.randn(B, T, H, K),
            gate(B, T, H).detach(),
            None,
            None,
            torch.rand(B, T, H),
        ),
        lambda q, k, v, g, gk, gv, beta: recurrence(q, k, v, g.unsqueeze(-1), beta),
    ),
    case(
        "ops.kda.chunk_kda",
        lambda: (
            randn(B, T, H, K),
            unit(B, T, H, K),
            randn(B, T, H, K),
            gate(B, T, H, K),
            torch.rand(B, T, H).requires_grad_(),
        ),
        recurrence,
        TF32,
    ),
    case("ops.hgrn.chunk_hgrn", lambda: (randn(B, T, 64), gate(B, T, 64)), hgrn),
    case("ops.hgrn.fused_recurrent_hgrn", lambda: (randn(B, T, 64), gate(B, T, 64)), hgrn),
    case(
        "ops.based.parallel_based",
        lambda: (randn(B, 128, H, 16), randn(B, 128, H, 16), randn(B, 128, H, K)),
        lambda q, k, v: polynomial_attention(q, k, v, True),
        TF32,
    ),
    case(
        "ops.rebased.parallel_rebased",
        lambda: (randn(B, 128, H, 16), randn(B, 128, H, 16), randn(B, 128, H, K)),
        lambda q, k, v: polynomial_attention(q, k, v, False),
        TF32,
    ),
    case(
        "ops.rwkv6.chunk_rwkv6",
        lambda: (*qkv(), gate(B, T, H, K), randn(H, K)),
        lambda q, k, v, w, u: recurrence(q, k, v, w, None, u),
        TF32,
    ),
    case(
        "ops.rwkv6.fused_recurrent_rwkv6",
        lambda: (*qkv(), gate(B, T, H, K), randn(H, K)),
        lambda q, k, v, w, u: recurrence(q, k, v, w, None, u),
    ),
    case(
        "ops.rwkv7.fused_k_update.fused_k_rwkv7",
        lambda: (randn(B, T, 64), randn(B, T, 64), randn(64)),
        lambda k, a, ka: k + k * (a - 1) * ka,
    ),
    case(
        "ops.rwkv7.gate_output_correction.gate_output_correction",
        lambda: (randn(B, T, H * K), *qkv()[:2], randn(H, K), randn(B, T, H, K), randn(B, T, H * K)),
        lambda o, r, k, w, v, g: (o + ((r * k * w).sum(-1, keepdim=True) * v).flatten(2)) * g,
    ),
    case("ops.attn.parallel_attn", qkv, attention, TF32),
    case("ops.forgetting_attn.parallel_forgetting_attn", lambda: (*qkv(), gate(B, T, H)), attention, TF32),
    case(
        "ops.utils.chunk_global_cumsum",
        lambda: (torch.randn(B, T, H),),
        lambda g: g.cumsum(1),
    ),
    case(
        "ops.utils.chunk_local_cumsum",
        lambda: (torch.randn(B, T, H, K), 32),
        local_cumsum,
    ),
    case("ops.utils.mean_pooling", lambda: (randn(B, T, H, K), 32), pooled),
    case("ops.utils.softmax_fwd", lambda: (torch.randn(10, 100),), lambda x: x.softmax(-1)),
    case("ops.utils.logsumexp_fwd", lambda: (torch.randn(10, 100),), lambda x: x.logsumexp(-1)),
    case("ops.utils.matmul", lambda: (torch.randn(70, 50), torch.randn(50, 90)), torch.matmul, TF32),
    case("ops.utils.solve_tril", lambda: (strictly_lower(16),), solved),
    case(
        "ops.utils.pack_sequence",
        lambda: (randn(2, 9, 16), torch.tensor([0, 5, 14])),
        packed,
    ),
    case("modules.l2norm.l2norm", lambda: (randn(10, 96),), lambda x: F.normalize(x, dim=-1)),
    case("modules.activations.sigmoid", lambda: (randn(10, 96),), torch.sigmoid),
    case("modules.activations.swish", lambda: (randn(10, 96),), F.silu),
    case("modules.activations.logsigmoid", lambda: (randn(10, 96),), F.logsigmoid),
    case("modules.activations.swiglu", lambda: (randn(10, 96), randn(10, 96)), lambda x, y: F.silu(x) * y),
    case(
        "modules.activations.sigmoidglu",
        lambda: (randn(10, 96), randn(10, 96)),
        lambda x, y: torch.sigmoid(x) * y,
    ),
    case(
        "modules.layernorm.layer_norm",
        lambda: (randn(10, 96), randn(96), randn(96)),
        lambda x, w, b: F.layer_norm(x, (96,), w, b),
    ),
    case(
        "modules.layernorm.rms_norm",
        lambda: (randn(10, 96), randn(96), None),
        lambda x, w, _: rms_norm(x, w),
    ),
    case(
        "modules.layernorm.group_norm",
        lambda: (randn(10, 96), randn(96), randn(96)),
        lambda x, w, b: F.group_norm(x, 3, w, b),
        num_groups=3,
    ),
    case(
        "modules.fused_norm_gate.rms_norm_gated",
        lambda: (randn(10, 96), randn(10, 96), randn(96), None),
        lambda x, g, w, _: rms_norm(x, w, 1e-6) * F.silu(g),
    ),
    case(
        "modules.rotary.rotary_embedding",
        lambda: (randn(B, T, H, K), torch.randn(T, K // 2), torch.randn(T, K // 2)),
        rotary,
    ),
    case(
        "modules.conv.causal_conv1d.causal_conv1d",
        lambda: (randn(2, 20, 40), randn(40, 4)),
        causal_conv,
        activation="silu",
    ),
    case(
        "modules.token_shift.token_shift",
        lambda: (randn(2, 20, 40),),
        lambda x: F.pad(x, (0, 0, 1, 0))[:, :-1] - x,
    ),
    case(
        "modules.fused_cross_entropy.cross_entropy_loss",
        lambda: (randn(10, 333), torch.randint(0, 333, (10,))),
        lambda x, t: F.cross_entropy(x, t, reduction="none"),
    ),
    case(
        "modules.fused_linear_cross_entropy.fused_linear_cross_entropy_loss",
        lambda: (randn(10, 64), torch.randint(0, 333, (10,)), randn(333, 64)),
        lambda x, t, w: F.cross_entropy(x @ w.T, t),
        TF32,
    ),
)
