"""Cases of Unsloth: the layers and the loss of its fine-tuning, and its fp8 kernels.

Its kernels need unsloth_zoo and transformers, and take tensors on the CPU where UNSLOTH_ALLOW_CPU is set. The
package itself changes other packages as it is imported; the cases import its kernels without that.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from benchmarks.triton_corpora.case import Case
from torch import Tensor

SOURCE = "unslothai/unsloth"
FOLDER = ""

B, T, C, V = 2, 5, 96, 333
WIDE = 1 << 16
"""The classes that the loss takes at a time."""


def kernels(module: str) -> Any:
    """Import a module of the kernels."""
    os.environ.update(UNSLOTH_ALLOW_CPU="1", UNSLOTH_IS_PRESENT="1")
    os.environ["UNSLOTH_COMPILE_LOCATION"] = str(Path(tempfile.gettempdir()) / "triton_corpora_unsloth")
    folder = next(Path(path) for path in sys.path if (Path(path) / "unsloth" / "kernels").is_dir())
    for name in ("unsloth", "unsloth.kernels"):
        if name not in sys.modules:
            package = ModuleType(name)
            package.__path__ = [str(folder.joinpath(*name.split(".")))]
            package.__spec__ = ModuleSpec(name, None, is_package=True)
            sys.modules[name] = package
    return import_module(f"unsloth.kernels.{module}")


def function(name: str, *rest: Any) -> Callable[..., Any]:
    """Return what calls a function of the kernels, named as "module.function"."""

    def call(*args: Any) -> Any:
        module, _, attribute = name.partition(".")
        return getattr(kernels(module), attribute)(*args, *rest)

    return call


def randn(*shape: int) -> Tensor:
    """Return normal values that require a gradient."""
    return torch.randn(shape).requires_grad_()


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Return `weight * x / rms(x)`."""
    return weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def layer(weight: Tensor, bias: Tensor | None = None) -> SimpleNamespace:
    """Return what the library takes for a layer."""
    return SimpleNamespace(weight=weight, bias=bias, eps=1e-6, elementwise_affine=True)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return a rotary embedding of (B, H, T, D), by tables of (T, D / 2)."""
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def tables(steps: int, dimensions: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of (T, D), of which both halves are equal."""
    angle = 6.28 * torch.rand(steps, dimensions // 2)
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross entropy."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def glu(activation: Callable[[Tensor], Tensor]) -> Callable[..., list[Tensor]]:
    """Return the backward of a gated unit: what it returns, the gradients of its value and of its gate."""

    def backward(grad: Tensor, gate: Tensor, value: Tensor) -> list[Tensor]:
        gate, value = gate.clone().requires_grad_(), value.clone().requires_grad_()
        output = activation(gate) * value
        for_gate, _ = torch.autograd.grad(output, (gate, value), grad)
        return [output.detach(), grad * activation(gate).detach(), for_gate]

    return backward


def gated(
    name: str, forward: str, backward: str, activation: Callable[[Tensor], Tensor]
) -> tuple[Case, Case]:
    """Return the cases of a gated unit, whose backward is a function of its own."""
    return (
        Case(
            name=name,
            inputs=lambda: (torch.randn(B, T, C), torch.randn(B, T, C)),
            library=function(forward),
            plain=lambda gate, value: activation(gate) * value,
        ),
        Case(
            name=f"{name}_backward",
            inputs=lambda: (torch.randn(B * T, C), torch.randn(B * T, C), torch.randn(B * T, C)),
            library=function(backward),
            plain=glu(activation),
        ),
    )


def quantized(x: Tensor) -> list[Tensor]:
    """Return fp8 values and the scale of each 128 of them."""
    scale = x.unflatten(-1, (-1, 128)).abs().amax(-1) / 448
    return [(x / scale.repeat_interleave(128, -1)).to(torch.float8_e4m3fn).float(), scale]


def blocks(x: Tensor, scale: Tensor) -> Tensor:
    """Return values whose blocks of 128 x 128 have a scale each."""
    return x.float() * scale.repeat_interleave(128, 0).repeat_interleave(128, 1)


CASES = (
    Case(
        name="rms_norm",
        inputs=lambda: (randn(B, T, C), randn(C)),
        library=lambda x, w: function("rms_layernorm.fast_rms_layernorm")(layer(w.detach()), x),
        plain=lambda x, w: rms_norm(x, w.detach()),
    ),
    Case(
        name="gemma_rms_norm",
        inputs=lambda: (randn(B, T, C), torch.randn(C)),
        library=lambda x, w: function("rms_layernorm.fast_rms_layernorm", True)(layer(w), x),
        plain=lambda x, w: rms_norm(x, 1 + w),
    ),
    Case(
        name="layer_norm",
        inputs=lambda: (randn(B, T, C), torch.randn(C), torch.randn(C)),
        library=lambda x, w, b: function("layernorm.fast_layernorm")(layer(w, b), x),
        plain=lambda x, w, b: F.layer_norm(x, (C,), w, b, 1e-6),
    ),
    Case(
        name="rope",
        inputs=lambda: (randn(2, 4, 5, 64), randn(2, 2, 5, 64), *tables(5, 64)),
        library=function("rope_embedding.fast_rope_embedding"),
        plain=lambda q, k, cos, sin: [rotated(x, cos[:, :32], sin[:, :32]) for x in (q, k)],
    ),
    Case(
        name="rope_by_position",
        inputs=lambda: (
            randn(2, 4, 5, 64),
            randn(2, 2, 5, 64),
            *tables(9, 64),
            torch.tensor([0, 1, 2, 0, 1, 4, 5, 6, 7, 8]),
        ),
        library=function("rope_embedding.fast_rope_embedding"),
        plain=lambda q, k, cos, sin, at: [
            rotated(x, cos[at, :32].view(2, 1, 5, 32), sin[at, :32].view(2, 1, 5, 32)) for x in (q, k)
        ],
    ),
    Case(
        name="cross_entropy",
        inputs=lambda: (randn(B, T, V), torch.randint(0, V, (B, T))),
        library=function("cross_entropy_loss.fast_cross_entropy_loss"),
        plain=loss,
    ),
    Case(
        name="cross_entropy_of_many_classes",
        inputs=lambda: (randn(1, 2, WIDE + 100), torch.tensor([[7, WIDE + 3]])),
        library=function("cross_entropy_loss.fast_cross_entropy_loss"),
        plain=loss,
    ),
    *gated("swiglu", "swiglu.swiglu_fg_kernel", "swiglu.swiglu_DWf_DW_dfg_kernel", F.silu),
    *gated("geglu", "geglu.geglu_exact_forward_kernel", "geglu.geglu_exact_backward_kernel", F.gelu),
    *gated(
        "geglu_by_tanh",
        "geglu.geglu_approx_forward_kernel",
        "geglu.geglu_approx_backward_kernel",
        lambda x: F.gelu(x, approximate="tanh"),
    ),
    Case(
        name="fp8_quantize",
        inputs=lambda: (torch.randn(5, 256),),
        library=lambda x: [each.float() for each in function("fp8.act_quant")(x)],
        plain=quantized,
        tolerance=0.08,  # a rounding to the next of 3 bits
    ),
    Case(
        name="fp8_dequantize",
        inputs=lambda: (torch.randn(256, 256).to(torch.float8_e4m3fn), torch.rand(2, 2)),
        library=function("fp8.weight_dequant_block", 128, torch.float32),
        plain=blocks,
    ),
    Case(
        name="fp8_matmul",
        inputs=lambda: (
            torch.randn(16, 256).to(torch.float8_e4m3fn),
            torch.randn(128, 256).to(torch.float8_e4m3fn),
            torch.rand(16, 2),
            torch.rand(1, 2),
        ),
        library=function("fp8.w8a8_block_fp8_matmul_triton", [128, 128]),
        plain=lambda a, b, a_scale, b_scale: (
            (a.float() * a_scale.repeat_interleave(128, 1)) @ blocks(b, b_scale).T
        ),
        tolerance=1e-3,
    ),
)
