"""Cases of Liger-Kernel: the layers and losses of language models."""

from __future__ import annotations

from collections.abc import Callable
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
        module, _, cls = name.partition(".")
        return getattr(import_module(f"liger_kernel.ops.{module}"), cls).apply(*args, *rest)

    return call


def randn(*shape: int, scale: float = 1.0) -> Tensor:
    """Return normal values that require a gradient."""
    return (scale * torch.randn(shape)).requires_grad_()


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Return `weight * x / rms(x)`."""
    return weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def first(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return what gives the first result of a function."""
    return lambda *args: call(*args)[0]


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return a rotary embedding: each half of the last dimension with the other."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


CASES = (
    Case(
        name="rms_norm",
        inputs=lambda: (randn(B, T, C), randn(C)),
        library=function("rms_norm.LigerRMSNormFunction", 1e-6),
        plain=rms_norm,
    ),
    Case(
        name="rms_norm_rows",
        inputs=lambda: (randn(3, 40, 64), randn(64)),
        library=function("rms_norm.LigerRMSNormFunction", 1e-6, 1.0, "gemma", False, False),
        plain=lambda x, w: rms_norm(x, 1 + w),
    ),
    Case(
        name="layer_norm",
        inputs=lambda: (randn(B, T, C), randn(C), randn(C)),
        library=function("layer_norm.LigerLayerNormFunction", 1e-5),
        plain=lambda x, w, b: F.layer_norm(x, (C,), w, b),
    ),
    Case(
        name="group_norm",
        inputs=lambda: (randn(2, 12, 8), randn(12), randn(12)),
        library=function("group_norm.LigerGroupNormFunction", 12, 3, 1e-6),
        plain=lambda x, w, b: F.group_norm(x, 3, w, b, 1e-6),
    ),
    Case(
        name="swiglu",
        inputs=lambda: (randn(B, T, C), randn(B, T, C)),
        library=function("swiglu.LigerSiLUMulFunction"),
        plain=lambda a, b: F.silu(a) * b,
    ),
    Case(
        name="geglu",
        inputs=lambda: (randn(B, T, C), randn(B, T, C)),
        library=function("geglu.LigerGELUMulFunction"),
        plain=lambda a, b: F.gelu(a, approximate="tanh") * b,
    ),
    Case(
        name="relu_squared",
        inputs=lambda: (randn(B, T, C),),
        library=function("relu_squared.LigerReLUSquaredFunction"),
        plain=lambda a: F.relu(a).square(),
    ),
    Case(
        name="softmax",
        inputs=lambda: (randn(B, T, C),),
        library=function("softmax.LigerSoftmaxFunction"),
        plain=lambda a: F.softmax(a, -1),
    ),
    Case(
        name="dyt",
        inputs=lambda: (randn(B, T, C), randn(1), randn(C), randn(C)),
        library=function("dyt.LigerDyTFunction"),
        plain=lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
    ),
)
