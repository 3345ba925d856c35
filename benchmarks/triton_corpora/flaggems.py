"""Cases of FlagGems: operators of PyTorch, many of them generated when they are first called.

Its pointwise operators use block pointers, which Triton 3.9 has no more: run these with Triton 3.7 or 3.8.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from benchmarks.triton_corpora.case import Case
from torch import Tensor

SOURCE = "FlagOpen/FlagGems"
FOLDER = "src"


def operator(name: str, *rest: Any, **named: Any) -> Callable[..., Any]:
    """Return what calls an operator of FlagGems, with arguments after the tensors."""

    def call(*args: Any) -> Any:
        os.environ["GEMS_VENDOR"] = "nvidia"  # it asks nvidia-smi otherwise
        return getattr(import_module("flag_gems"), name)(*args, *rest, **named)

    return call


def same(name: str, *inputs: Callable[[], Any], rest: Sequence[Any] = (), tolerance: float = 1e-4) -> Case:
    """Return the case of an operator that torch has under the same name, with the same arguments."""

    def plain(*args: Any) -> Any:
        return getattr(torch, name)(*args, *rest)

    return gems(name, plain, *inputs, rest=rest, tolerance=tolerance)


def gems(
    name: str,
    plain: Callable[..., Any],
    *inputs: Callable[[], Any],
    rest: Sequence[Any] = (),
    take: Callable[[Any], Any] = lambda result: result,
    tolerance: float = 1e-4,
    faults: Mapping[str, str] | None = None,
    case: str = "",
) -> Case:
    """Return the case of an operator.

    Args:
        name: Its name in FlagGems.
        plain: The same by torch, of the inputs alone.
        inputs: Each returns an input.
        rest: What follows the inputs.
        take: Returns what is compared, of the operator's result.
        tolerance: As in Case, as are faults.
        faults: The known ones.
        case: The name of the case, if not that of the operator.
    """
    call = operator(name, *rest)
    return Case(
        name=case or name,
        inputs=lambda: [make() for make in inputs],
        library=lambda *args: take(call(*args)),
        plain=plain,
        tolerance=tolerance,
        faults=faults or {},
        cuda=True,
    )


def x() -> Tensor:
    """Return a matrix with an edge in each dimension."""
    return torch.randn(7, 133)


def positive() -> Tensor:
    """Return a matrix of values from 0.5 to 1.5."""
    return torch.rand(7, 133) + 0.5


def row() -> Tensor:
    """Return a vector that broadcasts to the matrix."""
    return torch.randn(133)


def whole() -> Tensor:
    """Return a matrix of integers."""
    return torch.randint(-9, 9, (7, 133))


def mask() -> Tensor:
    """Return a matrix of truth values."""
    return torch.rand(7, 133) > 0.5


def shape(*sizes: int, grad: bool = False) -> Callable[[], Tensor]:
    """Return what makes a tensor of a shape."""
    return lambda: torch.randn(sizes).requires_grad_(grad)


def below(limit: int, *sizes: int, start: int = 0) -> Callable[[], Tensor]:
    """Return what makes indices below a limit."""
    return lambda: torch.randint(start, limit, sizes)


def half(*sizes: int) -> Callable[[], Tensor]:
    """Return what makes a tensor of float16."""
    return lambda: torch.randn(sizes).half()


def first(result: Any) -> Any:
    """Return the first of some results."""
    return result[0]


def rms(value: Tensor, weight: Tensor) -> Tensor:
    """Return `weight * value / rms(value)`."""
    return value * torch.rsqrt(value.square().mean(-1, keepdim=True) + 1e-5) * weight


POINTWISE = (
    *(same(name, x) for name in ("abs", "cos", "sin", "exp", "exp2", "erf", "neg", "relu", "sigmoid")),
    *(same(name, x) for name in ("atan", "isnan", "isinf", "isfinite", "nan_to_num", "angle", "tanh")),
    *(same(name, positive) for name in ("log", "sqrt", "rsqrt", "reciprocal")),
    *(same(name, x, row) for name in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge", "maximum")),
    *(same(name, x, row) for name in ("minimum", "logical_and", "logical_or", "logical_xor")),
    *(same(name, whole, below(9, 7, 133, start=1)) for name in ("floor_divide", "remainder")),
    same("bitwise_not", whole),
    gems("true_divide", torch.true_divide, x, positive),
    gems("bitwise_and_tensor", torch.bitwise_and, whole, whole),
    gems("bitwise_or_tensor", torch.bitwise_or, whole, whole),
    gems("pow_tensor_tensor", torch.pow, positive, positive),
    gems("pow_tensor_scalar", lambda a: a**3, x, rest=(3,)),
    gems("where_self", torch.where, mask, x, x),
    gems("lerp_tensor", torch.lerp, x, x, x),
    gems("polar", lambda a, b: torch.polar(a, b), positive, x),
    gems("elu", F.elu, x),
    gems("celu", F.celu, x),
    gems("silu", F.silu, x),
    gems("softplus", F.softplus, x),
    gems("gelu", F.gelu, x),
    gems("log_sigmoid", F.logsigmoid, x),
    gems("glu", F.glu, shape(7, 134)),
    gems("silu_and_mul", lambda a, b: F.silu(a) * b, shape(7, 133, grad=True), shape(7, 133, grad=True)),
    gems("gelu_and_mul", lambda a, b: F.gelu(a) * b, shape(7, 133, grad=True), shape(7, 133, grad=True)),
    same("clamp", x, rest=(-0.5, 0.5)),
    same("addcmul", x, x, x),
    same("addcdiv", x, x, positive),
    same("isclose", x, x),
    same("masked_fill", x, mask, rest=(2.0,)),
    same("flip", x, rest=((0, 1),)),
)

REDUCTIONS = (
    *(same(name, x) for name in ("sum", "mean", "max", "min", "prod", "argmax", "argmin", "all", "any")),
    *(same(name, x) for name in ("amax", "std", "count_nonzero")),
    same("var_mean", x, rest=([1],)),
    gems("sum_dim", lambda a: a.sum(0), x, rest=((0,),)),
    gems("mean_dim", lambda a: a.mean(1), x, rest=((1,),)),
    gems("max_dim", lambda a: tuple(a.max(1)), x, rest=(1,), take=tuple),
    gems("min_dim", lambda a: tuple(a.min(0)), x, rest=(0,), take=tuple),
    gems("prod_dim", lambda a: a.prod(1), x, rest=(1,)),
    gems("all_dim", lambda a: a.all(1), mask, rest=(1,)),
    gems("any_dim", lambda a: a.any(0), mask, rest=(0,)),
    gems("vector_norm", lambda a: torch.linalg.vector_norm(a, 2, [1]), x, rest=(2, [1])),
    same("cumsum", x, rest=(1,)),
    gems("cummax", lambda a: tuple(a.cummax(1)), x, rest=(1,), take=tuple),
    gems("cummin", lambda a: tuple(a.cummin(1)), x, rest=(1,), take=tuple),
    gems("sort", lambda a: tuple(a.sort(1)), x, rest=(1,), take=tuple),
    gems("topk", lambda a: tuple(a.topk(5, 1)), x, rest=(5, 1), take=tuple),
    same("trace", x),
    same("quantile", x, rest=(0.3, 1)),
    gems("softmax", lambda a: a.softmax(1), x, rest=(1,)),
    gems("softmax_backward",
         lambda g, y: torch._softmax_backward_data(g, y, 1, torch.float32), x, positive,
         rest=(1, torch.float32)),
    gems("log_softmax", lambda a: a.log_softmax(1), x, rest=(1,)),
    gems("log_softmax_backward",
         lambda g, y: torch._log_softmax_backward_data(g, y, 1, torch.float32), x, x,
         rest=(1, torch.float32)),
)  # fmt: skip

NORMS = (
    gems("layer_norm", lambda a, size, w, b: F.layer_norm(a, size, w, b), x, lambda: (133,), row, row,
         take=first),
    gems("rms_norm", lambda a, size, w: rms(a, w), shape(7, 133, grad=True), lambda: (133,),
         shape(133, grad=True)),
    gems("skip_layer_norm", lambda a, r, size, w, b: F.layer_norm(a + r, size, w, b),
         x, x, lambda: (133,), row, row),
    gems("fused_add_rms_norm", lambda a, r, size, w: (rms(a + r, w), a + r), x, x, lambda: (133,), row),
    gems("group_norm", lambda a, w, b: F.group_norm(a, 3, w, b), shape(2, 6, 35), shape(6), shape(6),
         rest=(2, 6, 35, 3), take=first),
    gems("instance_norm", lambda a, w, b: F.instance_norm(a, weight=w, bias=b),
         shape(2, 6, 35, grad=True), shape(6, grad=True), shape(6, grad=True)),
    gems("batch_norm", lambda a, w, b, m, v: F.batch_norm(a, m, v, w, b, True), shape(5, 6, 35), shape(6),
         shape(6), shape(6), lambda: torch.ones(6), rest=(True, 0.1, 1e-5), take=first),
    gems("batch_norm", lambda *tensors: (), shape(5, 6, 35), shape(6), shape(6),
         rest=(None, None, True, 0.1, 1e-5), take=lambda result: (), case="batch_norm_of_the_batch_alone",
         faults={"race batch_norm.py:166": "The input stands in for running_mean where that is None. Each "
                 "program writes its running mean there, into elements that program 0 normalizes."}),
    gems("weight_norm", lambda v, g: torch._weight_norm(v, g, 0), shape(9, 35, grad=True),
         shape(9, 1, grad=True)),
)  # fmt: skip

PRODUCTS = (
    same("mm", half(37, 50), half(50, 41), tolerance=1e-2),
    same("bmm", shape(2, 37, 50), shape(2, 50, 41), tolerance=1e-2),
    same("mv", shape(37, 50), shape(50)),
    same("dot", row, row),
    same("vdot", row, row),
    gems("outer", torch.outer, shape(37, grad=True), shape(41, grad=True), tolerance=1e-2),
    same("addmm", shape(41), shape(37, 50), shape(50, 41), tolerance=1e-2),
    same("addmv", shape(37), shape(37, 50), shape(50)),
    same("addr", shape(37, 41), shape(37), shape(41)),
    same("kron", shape(3, 5), shape(4, 2)),
    gems("conv1d", F.conv1d, shape(2, 3, 17), shape(4, 3, 3), tolerance=1e-2),
    gems("conv2d", lambda a, w: F.conv2d(a, w, padding=1), shape(2, 3, 9, 9, grad=True),
         shape(4, 3, 3, 3, grad=True), rest=(None, 1, 1), tolerance=1e-2),
    gems("conv3d", F.conv3d, shape(1, 3, 5, 5, 5), shape(4, 3, 3, 3, 3), tolerance=1e-2),
)  # fmt: skip

PLACES = (
    same("index_select", x, lambda: 1, below(133, 9)),
    same("gather", x, lambda: 1, below(133, 7, 9)),
    same("scatter", x, lambda: 1, lambda: torch.arange(18).view(2, 9), shape(2, 9)),
    same("index_add", x, lambda: 1, lambda: torch.randperm(133)[:9], shape(7, 9)),
    same("index_put", x, lambda: [torch.randperm(7)[:3]], shape(3, 133)),
    gems("embedding", lambda w, i: F.embedding(i, w), shape(50, 33), below(50, 2, 9)),
    same("masked_select", x, mask),
    same("nonzero", whole),
    same("isin", whole, below(9, 20)),
    same("triu", x, rest=(1,)),
    same("diag", row),
    same("diag_embed", shape(5, 9)),
    same("tile", x, rest=((2, 3),)),
    gems("repeat", lambda a: a.repeat(2, 3), x, rest=((2, 3),)),
    gems("repeat_interleave_self_tensor", lambda a, n: a.repeat_interleave(n, 0), x, below(4, 7),
         rest=(0,)),
    gems("cat", lambda parts: torch.cat(parts, 1), lambda: [x(), x()], rest=(1,)),
    gems("pad", lambda a: F.pad(a, (1, 2, 3, 4)), x, rest=((1, 2, 3, 4),)),
    same("select_scatter", x, shape(133), rest=(0, 3)),
    same("slice_scatter", x, shape(2, 133), rest=(0, 2, 4)),
    gems("max_pool2d_with_indices", lambda a: F.max_pool2d(a, 3, 2, 1, return_indices=True),
         shape(2, 3, 17, 19), rest=(3, 2, 1)),
    gems("avg_pool2d", lambda a: F.avg_pool2d(a, 3, 2, 1), shape(2, 3, 17, 19), rest=(3, 2, 1)),
    gems("upsample_nearest2d", lambda a: F.interpolate(a, (11, 20)), shape(2, 3, 5, 7), rest=((11, 20),)),
    gems("nll_loss_forward", F.nll_loss, x, below(133, 7), take=first,
         faults={"race nllloss.py:54": "The counter that each program raises by an atomic is read by a plain "
                 "load, also by threads of the same program before the atomic: two programs, or none, may "
                 "find that they are the last."}),
    gems("cross_entropy_loss", F.cross_entropy, shape(7, 133, grad=True), below(133, 7)),
    gems("mse_loss", F.mse_loss, x, x),
)  # fmt: skip

CASES = (*POINTWISE, *REDUCTIONS, *NORMS, *PRODUCTS, *PLACES)
