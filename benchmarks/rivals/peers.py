"""Others who compute the same, where they are installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

LIGER_COLUMNS = 65536
"""Longer rows it refuses."""


def liger(op: str) -> dict[str, Callable[..., Any]]:
    """Liger's kernels of that name, which are Triton's; nothing where it is not installed."""
    try:
        from liger_kernel.ops.layer_norm import LigerLayerNormFunction
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction
        from liger_kernel.ops.softmax import LigerSoftmaxFunction
    except ImportError:
        return {}

    def rms_norm(x: Tensor, weight: Tensor) -> Any:
        return LigerRMSNormFunction.apply(x, weight, 1e-6, 0.0, "llama", False)

    def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        return LigerLayerNormFunction.apply(x, weight, bias, 1e-5)

    def softmax(x: Tensor) -> Any:
        return LigerSoftmaxFunction.apply(x)

    function: Callable[..., Any] = {"rms_norm": rms_norm, "layer_norm": layer_norm, "softmax": softmax}[op]
    function.__name__ = "liger"
    return {"liger": function}
