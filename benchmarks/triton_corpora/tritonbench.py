"""Cases of TritonBench: kernels that were collected from many repositories, each a file with its launcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from benchmarks.triton_corpora.case import Case
from torch import Tensor

SOURCE = "thunlp/TritonBench"
FOLDER = "data"
CHECKED = "TritonBench_G_v1"
"""The folder of the files. Each ends in a test of its own, which runs when it is imported."""


EXPANDED = (
    "The file's own test calls backward on a sum, whose gradient is one element with strides of 0. The "
    "backward passes it on as if it were contiguous."
)


def launcher(name: str, *rest: Any) -> Callable[..., Any]:
    """Return what calls a function of a file, named as "file.function", with arguments after the tensors."""

    def call(*args: Any) -> Any:
        file, _, function = name.partition(".")
        found: Any = import_module(f"{CHECKED}.{file}")
        for part in function.split("."):
            found = getattr(found, part)
        return found(*args, *rest)

    return call


def case(
    name: str,
    plain: Callable[..., Any],
    *inputs: Callable[[], Any],
    rest: tuple[Any, ...] = (),
    take: Callable[[Any], Any] = lambda result: result,
    tolerance: float = 1e-4,
    faults: Mapping[str, str] | None = None,
) -> Case:
    """Return the case of a launcher: its inputs, what follows them, and what is compared of its result."""
    call = launcher(name, *rest)
    return Case(
        name=name,
        inputs=lambda: [make() for make in inputs],
        library=lambda *args: take(call(*args)),
        plain=plain,
        tolerance=tolerance,
        faults=faults or {},
        cuda=True,
    )


def written(
    name: str,
    plain: Callable[..., Any],
    at: int,
    *inputs: Callable[[], Any],
    rest: tuple[Any, ...] = (),
    tolerance: float = 1e-4,
) -> Case:
    """Return the case of a launcher that writes its result into one of its arguments."""
    call = launcher(name, *rest)

    def library(*args: Any) -> Any:
        call(*args)
        return args[at]

    return Case(
        name=name,
        inputs=lambda: [make() for make in inputs],
        library=library,
        plain=plain,
        tolerance=tolerance,
        cuda=True,
    )


def randn(*sizes: int, grad: bool = False) -> Callable[[], Tensor]:
    """Return what makes a tensor of normal values."""
    return lambda: torch.randn(sizes).requires_grad_(grad)


def half(*sizes: int) -> Callable[[], Tensor]:
    """Return what makes a tensor of float16."""
    return lambda: torch.randn(sizes).half()


def first(result: Any) -> Any:
    """Return the first of some results."""
    return result[0]


def rms(x: Tensor, weight: Tensor) -> Tensor:
    """Return `weight * x / rms(x)`."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def causal_attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
    """Return attention of one sequence, (T, H, D), in which a query sees the keys before it."""
    return F.scaled_dot_product_attention(
        q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), is_causal=True
    ).transpose(0, 1)


def quantized(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a tensor as int8 of its largest value, and that value."""
    largest = x.abs().max()
    return (x * 127 / largest).round().to(torch.int8), largest


def hgrn(x: Tensor, g: Tensor) -> Tensor:
    """Return the states of h = g h + x, for tensors (B, H, T, D)."""
    h, states = torch.zeros_like(x[:, :, 0]), []
    for t in range(x.shape[2]):
        h = g[:, :, t] * h + x[:, :, t]
        states.append(h)
    return torch.stack(states, 2)


CASES = (
    case("add_value.puzzle1", lambda x: x + 10, randn(1000)),
    case("square_matrix.square", torch.square, randn(7, 133)),
    case("vector_addition.add", torch.add, randn(1000), randn(1000)),
    case("cosine_compute.cos", torch.cos, randn(1000)),
    case("relu_triton_kernel.relu", torch.relu, randn(1000)),
    case("softmax_triton1.softmax", lambda x: x.softmax(-1), randn(7, 133)),
    case("matrix_vector_multip.mv", torch.mv, randn(37, 50), randn(50)),
    case("triton_argmax.argmax", lambda x: x.argmax(1), randn(7, 133), rest=(1,)),
    case("max_reduction.max", torch.max, randn(7, 133)),
    case("mean_reduction.mean_dim", lambda x: x.mean(1), randn(7, 133), rest=([1],)),
    case("swiglu_triton.swiglu_forward", lambda a, b: F.silu(a) * b, randn(7, 133), randn(7, 133),
         take=lambda result: result[-1]),
    case("geglu_tanh_triton.geglu_forward", lambda a, b: F.gelu(a, approximate="tanh") * b,
         randn(7, 128), randn(7, 128), take=lambda result: result[-1]),
    case("l2_norm_triton1._l2_norm_fwd", lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6),
         randn(7, 133)),
    case("logsumexp_fwd.logsumexp_fwd", lambda x: x.logsumexp(-1), randn(7, 133)),
    case("quantize_global.quantize_global", quantized, randn(64, 128), tolerance=0.01,
         take=lambda result: (result[0], result[1].view(()))),
    case("reversed_cumsum.chunk_global_reversed_cumsum_vector", lambda s: s.flip(2).cumsum(2).flip(2),
         randn(2, 2, 40, 32)),
    case("chunk_cumsum_vector.chunk_global_cumsum_vector", lambda s: s.cumsum(2), randn(2, 2, 40, 32)),
    case("fused_recurrent_hgrn.fused_recurrent_hgrn", hgrn, randn(2, 2, 20, 64, grad=True),
         lambda: F.logsigmoid(torch.randn(2, 2, 20, 64)).requires_grad_(), take=first,
         faults={"out-of-bounds fused_recurrent_hgrn.py:107": EXPANDED}),
    case("cross_entropy1.cross_entropy_loss", lambda x, y: F.cross_entropy(x, y, reduction="none"),
         randn(7, 133, grad=True), lambda: torch.randint(0, 133, (7,))),
    case("rmsnorm_triton.rmsnorm_triton_wrapper", rms, half(2, 5, 128), half(128), tolerance=1e-2),
    case("fast_rope_embedding.Fast_RoPE_Embedding.apply",
         lambda q, c, s: q * torch.cat([c, c], -1)[None, :, None] + torch.cat(
             [-q[..., 16:], q[..., :16]], -1) * torch.cat([s, s], -1)[None, :, None],
         randn(2, 5, 4, 32, grad=True), randn(5, 16), randn(5, 16)),
    case("layer_norm_triton.LayerNorm.apply", lambda x, size, w, b: F.layer_norm(x, size, w, b),
         randn(7, 128, grad=True), lambda: (128,), randn(128, grad=True), randn(128, grad=True),
         rest=(1e-5,), faults={
             "out-of-bounds layer_norm_triton.py:74": EXPANDED,
             "race layer_norm_triton.py:92": "All threads of a program load Count, and the first sets it. "
             "A warp that loads late finds it set, and adds sums that nothing has written."}),
    case("lightning_attention.lightning_attn2_no_decay",
         lambda q, k, v: torch.tril(q @ k.mT) @ v, *(randn(1, 2, 64, 32),) * 3, tolerance=1e-2),
    case("matmul_triton1.matmul", torch.matmul, half(64, 64), half(64, 64), tolerance=1e-2),
    case("dequantize_rowwise.dequantize_rowwise",
         lambda x, top: (x.half() * top[:, None] / 127).half(),
         lambda: torch.randint(-127, 127, (7, 128), dtype=torch.int8), lambda: torch.rand(7).half(),
         tolerance=1e-2),
    written("embedding_triton_kernel.embedding", lambda i, w, a, b, out: w[i], 4,
            lambda: torch.randint(0, 50, (9,)), randn(50, 128), lambda: 0, lambda: 50,
            lambda: torch.zeros(9, 128)),
    written("context_attn_nopad.context_attention_fwd", causal_attention, 3, half(40, 2, 64),
            half(40, 2, 64), half(40, 2, 64), lambda: torch.zeros(40, 2, 64).half(),
            lambda: torch.zeros(1, dtype=torch.int32), lambda: torch.tensor([40], dtype=torch.int32),
            rest=(40,), tolerance=1e-2),
    written("token_softmax_llama.token_softmax_fwd", lambda x, *rest: x.softmax(-1), 3, randn(2, 40),
            lambda: torch.zeros(1, dtype=torch.int32), lambda: torch.tensor([40], dtype=torch.int32),
            lambda: torch.zeros(2, 40), rest=(40,)),
)  # fmt: skip
