"""Cases of Liger-Kernel: the layers and losses of language models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from benchmarks.triton_corpora.case import Case
from torch import Tensor

SOURCE = "linkedin/Liger-Kernel"
FOLDER = "src"

B, T, C, V = 2, 5, 96, 333


def function(name: str, *rest: Any) -> Callable[..., Any]:
    """Return what calls an autograd function of `liger_kernel.ops`, named as "module.Class"."""

    def call(*args: Any) -> Any:
        module, _, cls = name.rpartition(".")
        return getattr(import_module(f"liger_kernel.ops.{module}"), cls).apply(*args, *rest)

    return call


def randn(*shape: int, scale: float = 1.0) -> Tensor:
    """Return normal values that require a gradient."""
    return (scale * torch.randn(shape)).requires_grad_()


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Return `weight * x / rms(x)`."""
    return weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def case(name: str, inputs: Callable[[], Sequence[Any]], library: Callable[..., Any],
         plain: Callable[..., Any], tolerance: float = 1e-4) -> Case:  # fmt: skip
    """Return a case that is on "cuda": the library asks that for its processors."""
    return Case(name=name, inputs=inputs, library=library, plain=plain, tolerance=tolerance, cuda=True)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return a rotary embedding: each half of the last dimension with the other."""
    left, right = x.chunk(2, -1)
    return x * cos.unsqueeze(1) + torch.cat([-right, left], -1) * sin.unsqueeze(1)


def log_softmax(*shape: int) -> Tensor:
    """Return logarithms of probabilities that require a gradient."""
    return F.log_softmax(torch.randn(shape), -1).requires_grad_()


def labels(*shape: int, below: int = V) -> Tensor:
    """Return random class numbers."""
    return torch.randint(0, below, shape)


def jsd(student: Tensor, teacher: Tensor, beta: float = 0.5) -> Tensor:
    """Return the generalized Jensen-Shannon divergence of two logarithms of probabilities, per row."""
    mixed = torch.log(beta * teacher.exp() + (1 - beta) * student.exp())
    divergence = beta * (teacher.exp() * (teacher - mixed)) + (1 - beta) * (student.exp() * (student - mixed))
    return divergence.sum() / student.shape[0]


def sparsemax(x: Tensor) -> Tensor:
    """Return the projection of rows on the simplex."""
    ordered = x.sort(-1, descending=True).values
    rank = torch.arange(1, x.shape[-1] + 1)
    total = ordered.cumsum(-1)
    inside = (1 + rank * ordered > total).sum(-1, keepdim=True)
    threshold = (total.gather(-1, inside - 1) - 1) / inside
    projected: Tensor = (x - threshold).clamp(min=0)
    return projected


def poly_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the weighted sum of the normalized cube, square and value."""
    powers = [power * torch.rsqrt(power.square().mean(-1, keepdim=True) + 1e-6) for power in (x**3, x**2, x)]
    return weight[0] * powers[0] + weight[1] * powers[1] + weight[2] * powers[2] + bias


def attention_over_blocks(blocks: Tensor, query: Tensor, weight: Tensor) -> Tensor:
    """Return the mean of blocks, weighted by softmax of a query's product with the normalized blocks."""
    scores = (rms_norm(blocks, weight) * query).sum(-1)
    return (scores.softmax(0).unsqueeze(-1) * blocks).sum(0)


def neighborhood_attention(q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
    """Return attention to the `size` nearest positions."""
    places = torch.arange(q.shape[2])
    far = (places[:, None] - places[None, :]).abs() > size // 2
    scores: Tensor = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    return scores.masked_fill(far, -torch.inf).softmax(-1) @ v


def multi_token_attention(scores: Tensor, weight: Tensor) -> Tensor:
    """Return causal attention weights that a convolution mixes."""
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    mixed = F.conv2d(scores.masked_fill(later, -1e9).softmax(-1), weight, padding=1)
    return mixed.masked_fill(later, 0)


def moe(x: Tensor, up: Tensor, down: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of the chosen experts, each a SwiGLU."""
    rows = []
    for token, experts, shares in zip(x, chosen, weights, strict=True):
        outs = []
        for expert, share in zip(experts.tolist(), shares, strict=True):
            gate, value = (up[expert] @ token).chunk(2)
            outs.append(share * (down[expert] @ (F.silu(gate) * value)))
        rows.append(torch.stack(outs).sum(0))
    return torch.stack(rows)


def grpo(logits: Tensor, old: Tensor, ref: Tensor, ids: Tensor, advantages: Tensor) -> Tensor:
    """Return the clipped policy loss of each token, with a penalty on its distance from a reference."""
    logp = F.log_softmax(logits[:, :-1] / 0.9, -1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    ratio = (logp - old).exp()
    gain = torch.minimum(ratio * advantages[:, None], ratio.clamp(0.8, 1.2) * advantages[:, None])
    return -gain + 0.04 * ((ref - logp).exp() - (ref - logp) - 1)


def sinkhorn(x: Tensor, phi: Tensor, bias: Tensor, pre: Tensor, post: Tensor, res: Tensor) -> list[Tensor]:
    """Return the coefficients of manifold-constrained hyper-connections."""
    flat = x.flatten(-2)
    n = x.shape[-2]
    mix = (flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + 1e-6)) @ phi
    matrix = (res * mix[..., 2 * n :] + bias[2 * n :]).unflatten(-1, (n, n)).softmax(-1) + 1e-6
    matrix = matrix / (matrix.sum(-2, keepdim=True) + 1e-6)
    for _ in range(4):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + 1e-6)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + 1e-6)
    return [
        torch.sigmoid(pre * mix[..., :n] + bias[:n]) + 1e-6,
        2 * torch.sigmoid(post * mix[..., n : 2 * n] + bias[n : 2 * n]),
        matrix,
    ]


def angles(*shape: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of which the halves of the last dimension are equal."""
    angle = 6.28 * torch.rand(*shape[:-1], shape[-1] // 2)
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def by_section(table: Tensor) -> Tensor:
    """Return a table of angles whose dimensions are those of time, height and width in turn."""
    half = torch.cat([part[i] for i, part in enumerate(table[..., :32].split([8, 12, 12], -1))], -1)
    return torch.cat([half, half], -1)


CASES = (
    case(
        name="rms_norm",
        inputs=lambda: (randn(B, T, C), randn(C)),
        library=function("rms_norm.LigerRMSNormFunction", 1e-6),
        plain=rms_norm,
    ),
    case(
        name="rms_norm_rows",
        inputs=lambda: (randn(3, 40, 64), randn(64)),
        library=function("rms_norm.LigerRMSNormFunction", 1e-6, 1.0, "gemma", False, False),
        plain=lambda x, w: rms_norm(x, 1 + w),
    ),
    case(
        name="layer_norm",
        inputs=lambda: (randn(B, T, C), randn(C), randn(C)),
        library=function("layer_norm.LigerLayerNormFunction", 1e-5),
        plain=lambda x, w, b: F.layer_norm(x, (C,), w, b),
    ),
    case(
        name="group_norm",
        inputs=lambda: (randn(2, 12, 8), randn(12), randn(12)),
        library=function("group_norm.LigerGroupNormFunction", 12, 3, 1e-6),
        plain=lambda x, w, b: F.group_norm(x, 3, w, b, 1e-6),
    ),
    case(
        name="swiglu",
        inputs=lambda: (randn(B, T, C), randn(B, T, C)),
        library=function("swiglu.LigerSiLUMulFunction"),
        plain=lambda a, b: F.silu(a) * b,
    ),
    case(
        name="geglu",
        inputs=lambda: (randn(B, T, C), randn(B, T, C)),
        library=function("geglu.LigerGELUMulFunction"),
        plain=lambda a, b: F.gelu(a, approximate="tanh") * b,
    ),
    case(
        name="relu_squared",
        inputs=lambda: (randn(B, T, C),),
        library=function("relu_squared.LigerReLUSquaredFunction"),
        plain=lambda a: F.relu(a).square(),
    ),
    case(
        name="softmax",
        inputs=lambda: (randn(B, T, C),),
        library=function("softmax.LigerSoftmaxFunction"),
        plain=lambda a: F.softmax(a, -1),
    ),
    case(
        name="dyt",
        inputs=lambda: (randn(B, T, C), randn(1), randn(C), randn(C)),
        library=function("dyt.LigerDyTFunction"),
        plain=lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
    ),
    case(
        name="rope",
        inputs=lambda: (randn(2, 4, 5, 64), randn(2, 2, 5, 64), *angles(1, 5, 64)),
        library=function("rope.LigerRopeFunction"),
        plain=lambda q, k, cos, sin: [rotated(x, cos, sin) for x in (q, k)],
    ),
    case(
        name="llama4_rope",
        inputs=lambda: (randn(2, 5, 4, 64), randn(2, 5, 2, 64), 6.28 * torch.rand(5, 32)),
        library=lambda q, k, angle: function("llama4_rope.LigerLlama4RopeFunction")(
            q, k, torch.polar(torch.ones_like(angle), angle)
        ),
        plain=lambda q, k, angle: [
            torch.view_as_real(
                torch.view_as_complex(x.unflatten(-1, (-1, 2)))
                * torch.polar(torch.ones_like(angle), angle)[None, :, None]
            ).flatten(-2)
            for x in (q, k)
        ],
    ),
    case(
        name="qwen2vl_mrope",
        inputs=lambda: (randn(2, 4, 5, 64), randn(2, 2, 5, 64), *angles(3, 2, 5, 64)),
        library=function("qwen2vl_mrope.LigerQwen2VLMRopeFunction", [8, 12, 12]),
        plain=lambda q, k, cos, sin: [rotated(x, by_section(cos), by_section(sin)) for x in (q, k)],
    ),
    case(
        name="sparsemax",
        inputs=lambda: (randn(B, T, C),),
        library=function("sparsemax.LigerSparsemaxFunction", -1),
        plain=sparsemax,
    ),
    case(
        name="poly_norm",
        inputs=lambda: (randn(B, T, C), randn(3), randn()),
        library=function("poly_norm.LigerPolyNormFunction", 1e-6),
        plain=poly_norm,
        tolerance=1e-3,
    ),
    case(
        name="fused_add_rms_norm",
        inputs=lambda: (randn(B, T, C), randn(B, T, C), randn(C)),
        library=function("fused_add_rms_norm.LigerFusedAddRMSNormFunction", 1e-6),
        plain=lambda x, r, w: [rms_norm(x + r, w), x + r],
    ),
    case(
        name="modulated_rms_norm",
        inputs=lambda: (randn(B, T, C), randn(C), randn(B, T, C), randn(B, T, C)),
        library=function("modulated_rms_norm.LigerModulatedRMSNormFunction", 1e-6),
        plain=lambda x, w, scale, shift: rms_norm(x, w) * (1 + scale) + shift,
    ),
    case(
        name="fused_gate_up",
        inputs=lambda: (randn(B * T, 2 * C),),
        library=function("swiglu.LigerFusedGateUpSiLUMulFunction"),
        plain=lambda y: F.silu(y[..., :C]) * y[..., C:],
    ),
    case(
        name="kl_div",
        inputs=lambda: (log_softmax(10, C), F.softmax(torch.randn(10, C), -1)),
        library=function("kl_div.LigerKLDivLossFunction"),
        plain=lambda p, t: F.kl_div(p, t, reduction="batchmean"),
    ),
    case(
        name="jsd",
        inputs=lambda: (log_softmax(10, C), F.log_softmax(torch.randn(10, C), -1)),
        library=function("jsd.LigerJSDFunction"),
        plain=jsd,
    ),
    case(
        name="tvd",
        inputs=lambda: (
            F.softmax(torch.randn(10, C), -1).requires_grad_(),
            F.softmax(torch.randn(10, C), -1),
        ),
        library=function("tvd.LigerTVDLossFunction"),
        plain=lambda p, q: (p - q).abs().sum() / 20,
    ),
    case(
        name="cross_entropy",
        inputs=lambda: (randn(10, V), labels(10)),
        library=lambda x, t: function("cross_entropy.LigerCrossEntropyFunction", None)(x, t)[0],
        plain=F.cross_entropy,
    ),
    case(
        name="cross_entropy_options",
        inputs=lambda: (randn(10, V), labels(10), torch.rand(V)),
        library=lambda x, t, w: function("cross_entropy.LigerCrossEntropyFunction", -100, 0.0, 0.1, "sum")(
            x, t, w
        )[0],
        plain=lambda x, t, w: F.cross_entropy(x, t, w, reduction="sum", label_smoothing=0.1),
    ),
    case(
        name="fused_linear_cross_entropy",
        inputs=lambda: (randn(10, 64), randn(V, 64), labels(10)),
        library=lambda x, w, t: function("fused_linear_cross_entropy.LigerFusedLinearCrossEntropyFunction")(
            x, w, t
        )[0],
        plain=lambda x, w, t: F.cross_entropy(x @ w.T, t),
    ),
    case(
        name="fused_linear_jsd",
        inputs=lambda: (randn(10, 64), randn(V, 64), torch.randn(10, 64), torch.randn(V, 64)),
        library=function("fused_linear_jsd.LigerFusedLinearJSDFunction"),
        plain=lambda x, w, y, v: jsd(F.log_softmax(x @ w.T, -1), F.log_softmax(y @ v.T, -1)),
        tolerance=1e-3,
    ),
    case(
        name="vocab_parallel_cross_entropy",
        inputs=lambda: (randn(5, 2, V), labels(5, 2)),
        library=function(
            "vocab_parallel_cross_entropy.LigerVocabParallelCEFunction",
            None,
            -100,
            0.0,
            "pytorch",
            "global",
        ),
        plain=lambda x, t: F.cross_entropy(x.flatten(0, 1), t.flatten(), reduction="none").view(5, 2),
    ),
    case(
        name="attention_over_blocks",
        inputs=lambda: (randn(4, B, T, C), randn(C), randn(C)),
        library=function("attn_res.LigerAttnResFunction", 1e-6),
        plain=attention_over_blocks,
        tolerance=1e-3,
    ),
    case(
        name="neighborhood_attention",
        inputs=lambda: (randn(1, 2, 40, 32), randn(1, 2, 40, 32), randn(1, 2, 40, 32)),
        library=function("fused_neighborhood_attention.LigerFusedNeighborhoodAttentionFunction", 7),
        plain=lambda q, k, v: neighborhood_attention(q, k, v, 7),
        tolerance=1e-2,  # tf32
    ),
    case(
        name="multi_token_attention",
        inputs=lambda: (randn(2, 3, 20, 20), randn(3, 3, 3, 3)),
        library=function("multi_token_attention.LigerMultiTokenAttentionFunction", None, 1, 1),
        plain=multi_token_attention,
    ),
    case(
        name="grpo",
        inputs=lambda: (
            randn(2, 6, V),
            -6 + 0.1 * torch.randn(2, 5),
            -6 + torch.randn(2, 5),
            labels(2, 5),
            torch.randn(2),
        ),
        library=lambda x, old, ref, ids, advantages: function("grpo_loss.GrpoLossFunction")(
            x, old, ref, ids, advantages, None, 0.9, 0.04, 0.2, 0.2, False, "grpo", None, False
        )[0],
        plain=grpo,
    ),
    case(
        name="grpo_log_softmax",
        inputs=lambda: (torch.randn(2, 6, V), labels(2, 5)),
        library=lambda x, ids: import_module("liger_kernel.ops.grpo_loss").fused_selective_log_softmax(
            x, ids
        ),
        plain=lambda x, ids: F.log_softmax(x[:, :-1] / 0.9, -1).gather(-1, ids.unsqueeze(-1)).squeeze(-1),
    ),
    case(
        name="embedding",
        inputs=lambda: (randn(50, 96), labels(2, 9, below=50)),
        library=function("experimental.embedding.LigerEmbeddingFunction"),
        plain=lambda w, i: F.embedding(i, w),
    ),
    case(
        name="moe",
        inputs=lambda: (
            randn(12, 64),
            randn(4, 64, 64, scale=0.1),
            randn(4, 64, 32, scale=0.1),
            torch.rand(12, 4).argsort(-1)[:, :2].int(),
            torch.rand(12, 2).requires_grad_(),
        ),
        library=function("fused_moe.LigerFusedMoEFunction"),
        plain=moe,
        tolerance=1e-2,  # tf32
    ),
    case(
        name="hyper_connection_coefficients",
        inputs=lambda: (
            randn(6, 4, 32),
            randn(128, 24, scale=0.1),
            randn(24),
            randn(),
            randn(),
            randn(),
        ),
        library=function("mhc.LigerMHCCoeffsFunction", True, 5, 1e-6, 1e-6, 1e-6, 2.0),
        plain=sinkhorn,
        tolerance=1e-2,  # tf32
    ),
    case(
        name="hyper_connection_before",
        inputs=lambda: (randn(6, 4, 32), randn(6, 4)),
        library=function("mhc.LigerMHCPreFunction"),
        plain=lambda x, h: (x * h.unsqueeze(-1)).sum(-2),
    ),
    case(
        name="hyper_connection_after",
        inputs=lambda: (randn(6, 4, 32), randn(6, 32), randn(6, 4), randn(6, 4, 4)),
        library=function("mhc.LigerMHCPostResFunction"),
        plain=lambda x, f, post, res: post.unsqueeze(-1) * f.unsqueeze(-2) + res @ x,
    ),
    case(
        name="mlp",
        inputs=lambda: (
            randn(2, 16, 64),
            randn(128, 64, scale=0.1),
            randn(128, 64, scale=0.1),
            randn(64, 128, scale=0.1),
        ),
        library=function("mlp.LigerMLPFunction"),
        plain=lambda x, g, u, d: (F.silu(x @ g.T) * (x @ u.T)) @ d.T,
        tolerance=1e-2,  # tf32
    ),
)
