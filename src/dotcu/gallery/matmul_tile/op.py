"""matmul_tile: matrix products on tensor cores, with epilogues, by one kernel in CUDA Tile C++."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import dotcu
from dotcu.gallery.common import random_tensors

kernels = dotcu.load("kernel.cu")

HALVES = (torch.bfloat16, torch.float16)

BIAS, GELU, RESIDUAL, SWIGLU = 1, 2, 4, 8
"""Epilogues as the kernel counts them: a sum of the first three, or the last."""

TMA_LANES = 8
"""Elements of 16 bytes: TMA needs rows that are multiples of as many, and start at multiples of 16 bytes."""

TMA_BYTES = 16

GROUP = 8

SWIGLU_MOST = 64
"""Sums of a thread at most for SwiGLU, which has two of them for each element."""

FIRST_WITH_CLUSTERS = (9, 0)
"""The compute capability from which blocks of a cluster share a tile."""


class TileInstance(NamedTuple):
    """An instance of the kernel: tile, warps, blocks of a cluster, and blocks that share a multiprocessor."""

    bm: int
    bn: int
    bk: int
    warps: int
    ctas: int
    blocks: int
    latency: int


INSTANCES: tuple[tuple[TileInstance, float, float], ...] = (
    (TileInstance(128, 256, 64, 8, 1, 1, 6), 7.6, 0.578),
    (TileInstance(256, 128, 64, 8, 1, 1, 6), 7.6, 0.579),
    (TileInstance(256, 256, 64, 8, 2, 1, 0), 3.1, 0.707),
    (TileInstance(128, 128, 64, 4, 1, 1, 0), 6.5, 0.285),
    (TileInstance(128, 128, 64, 8, 1, 1, 0), 6.5, 0.300),
    (TileInstance(64, 128, 128, 4, 1, 1, 0), 5.7, 0.562),
    (TileInstance(64, 64, 128, 4, 1, 2, 0), 5.2, 0.670),
    (TileInstance(64, 32, 128, 4, 1, 2, 0), 4.5, 0.600),
)
"""With each, what a wave of its blocks takes on an H100, in microseconds: begin and end, and a step of BK."""


@dotcu.op("dotcu::matmul_tile", dtypes=HALVES)
def matmul_tile(
    a: Tensor, b: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, *, gelu: bool = False
) -> Tensor:
    """Multiply two matrices: act(a @ b + bias) + residual, in one kernel that adds up in float32.

    Args:
        a: A matrix of M x K elements, bfloat16 or float16; also a transposed one, which is not copied.
        b: A matrix of K x N elements of the same dtype; also a transposed one, such as `linear.weight.T`.
        bias: N elements, added to each row.
        residual: A matrix of M x N elements, added at the end.
        gelu: Apply GELU, as torch has it by default (erf), to the sum with the bias.
    """
    _require("matmul_tile", a, b)
    _require_extra(a, b, bias, residual)
    epilogue = BIAS * (bias is not None) + GELU * gelu + RESIDUAL * (residual is not None)
    return _product(a, b, bias, residual, epilogue)


@dotcu.op("dotcu::matmul_swiglu_tile", dtypes=HALVES, sharding=("a:0 -> 0", "gate:1 up:1 -> 1"))
def matmul_swiglu_tile(a: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """Multiply by two matrices at once: silu(a @ gate) * (a @ up), the first half of a transformer's MLP.

    Args:
        a: As for `matmul_tile`.
        gate: A matrix of K x N elements.
        up: One of the same shape and dtype; copied if it is transposed and `gate` is not, or the reverse.
    """
    _require("matmul_swiglu_tile", a, gate)
    _require("matmul_swiglu_tile", a, up)
    if gate.shape != up.shape:
        raise ValueError(
            f"gate and up have one shape (got {tuple(gate.shape)} and {tuple(up.shape)}).\n"
            "Pass the two halves of a weight: matmul_swiglu_tile(x, *(w.T for w in weight.chunk(2)))"
        )
    return _product(a, gate, None, up, SWIGLU)


def _product(a: Tensor, b: Tensor, bias: Tensor | None, other: Tensor | None, epilogue: int) -> Tensor:
    out = a.new_empty((a.shape[0], b.shape[1]))
    if out.numel() == 0:
        return out
    (m, n), k = out.shape, a.shape[1]
    a, a_columns = _memory(a)
    if other is not None and epilogue == SWIGLU:
        if b.stride() != other.stride() or _is_aligned(b) != _is_aligned(other):  # one layout for both
            b, other = (x.clone(memory_format=torch.contiguous_format) for x in (b, other))
        other, _ = _memory(other)
    elif other is not None:
        other = other.contiguous()
    b, b_columns = _memory(b)
    bias = None if bias is None else bias.contiguous()
    kernel, grid = _choose(a, b, out, bias, other, k, a_columns, b_columns, epilogue)
    (m_a, k_a), (k_b, n_b) = a.shape[:: -1 if a_columns else 1], b.shape[:: -1 if b_columns else 1]
    kernel(a, b, out, bias, other, m, n, k, m_a, k_a, k_b, n_b, grid=grid)
    return out


def _memory(x: Tensor) -> tuple[Tensor, bool]:
    """Return the rows of a matrix, which TMA takes, and whether these are its columns.

    A matrix without such rows is copied, to rows that end in zeros: loads without TMA cost more.
    """
    columns = not x.is_contiguous() and x.mT.is_contiguous()
    rows = x.mT if columns else x
    if rows.shape[1] % TMA_LANES == 0 and rows.is_contiguous() and _is_aligned(rows):
        return rows, columns
    padded = x.new_zeros((rows.shape[0], dotcu.cdiv(rows.shape[1], TMA_LANES) * TMA_LANES))
    padded[:, : rows.shape[1]] = rows
    return padded, columns


def _is_aligned(x: Tensor) -> bool:
    return dotcu.is_aligned(x, TMA_BYTES)


@dotcu.by_layout
def _choose(
    a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None, other: Tensor | None, k: int, a_columns: bool,
    b_columns: bool, epilogue: int,
) -> tuple[dotcu.Kernel, int]:  # fmt: skip
    """The kernel, and blocks: as many as run at once, or as there are tiles."""
    (m, n), sms = out.shape, dotcu.sm_count(out)
    clusters = dotcu.capability(out) >= FIRST_WITH_CLUSTERS
    default = _instance(m, n, k, sms, swiglu=epilogue == SWIGLU, clusters=clusters)
    if epilogue == SWIGLU:
        chosen = matmul_swiglu_tile.configuration(a.dtype, m, n, k, default=default)
    else:
        chosen = matmul_tile.configuration(a.dtype, m, n, k, default=default)
    bm, bn, bk, warps, ctas, blocks, latency = chosen
    align = _align(out, bias, None if epilogue == SWIGLU else other)
    sizes = (bm, bn, bk, GROUP, warps, ctas, blocks, latency)
    instance = (a.dtype, *sizes, a_columns, b_columns, align, epilogue)
    most = sms // ctas * blocks
    return kernels.matmul[instance], min(dotcu.cdiv(m, bm) * dotcu.cdiv(n, bn), most)


def _instance(m: int, n: int, k: int, sms: int, *, swiglu: bool, clusters: bool) -> TileInstance:
    """Return the instance whose waves of blocks take the least time."""

    def time(row: tuple[TileInstance, float, float]) -> float:
        (bm, bn, bk, warps, ctas, blocks, _), first, step = row
        if ctas > 1 and not clusters:  # one block alone has too few registers for such a tile
            return math.inf
        if swiglu and bm * bn > 32 * warps * SWIGLU_MOST:
            return math.inf
        waves = dotcu.cdiv(dotcu.cdiv(m, bm) * dotcu.cdiv(n, bn), sms // ctas * blocks)
        return waves * (first + dotcu.cdiv(k, bk) * step)

    return min(INSTANCES, key=time)[0]


def _align(*tensors: Tensor | None) -> int:
    """Return the elements that rows of all these are a multiple of, and start at: those of TMA, or one."""
    aligned = all(t is None or (t.shape[-1] % TMA_LANES == 0 and _is_aligned(t)) for t in tensors)
    return TMA_LANES if aligned else 1


def _require(name: str, a: Tensor, b: Tensor) -> None:
    if a.dtype != b.dtype or a.dtype not in HALVES:
        raise TypeError(
            f"{name} takes matrices of one dtype out of bfloat16, float16 (got {a.dtype} and {b.dtype}).\n"
            f"Convert them first: {name}(a.to(torch.bfloat16), b.to(torch.bfloat16))"
        )
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"{name} takes (M, K) and (K, N) matrices (got {tuple(a.shape)} and {tuple(b.shape)}).\n"
            f"Transpose one of them, {name}(a, b.T), or make a matrix of a batch: a.flatten(0, -2)"
        )


def _require_extra(a: Tensor, b: Tensor, bias: Tensor | None, residual: Tensor | None) -> None:
    shapes = {"bias": (b.shape[1],), "residual": (a.shape[0], b.shape[1])}
    for name, extra in (("bias", bias), ("residual", residual)):
        if extra is not None and (extra.dtype != a.dtype or extra.shape != shapes[name]):
            raise ValueError(
                f"{name} has the shape {shapes[name]} and the dtype {a.dtype} "
                f"(got {tuple(extra.shape)}, {extra.dtype}).\n"
                f"Expand or convert it: {name}.expand({shapes[name]}).to({a.dtype})"
            )


@matmul_tile.fake
def _(
    a: Tensor, b: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, *, gelu: bool = False
) -> Tensor:
    _require("matmul_tile", a, b)
    _require_extra(a, b, bias, residual)
    return a.new_empty((a.shape[0], b.shape[1]))


@matmul_swiglu_tile.fake
def _(a: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    _require("matmul_swiglu_tile", a, gate)
    return a.new_empty((a.shape[0], gate.shape[1]))


@matmul_tile.configurations
def _() -> Iterator[TileInstance]:
    """Yield the instances of the table, and others that no model has times of."""
    for instance, _, _ in INSTANCES:
        yield instance
    for bm, bn, warps in ((128, 256, 8), (256, 128, 8), (128, 128, 4), (128, 64, 4), (64, 64, 4)):
        for bk in (32, 64, 128):
            for latency in (0, 4, 6):
                yield TileInstance(bm, bn, bk, warps, 1, 1, latency)


@matmul_swiglu_tile.configurations
def _() -> Iterator[TileInstance]:
    for instance, _, _ in INSTANCES:
        if instance.bm * instance.bn <= 32 * instance.warps * SWIGLU_MOST:
            yield instance


@matmul_tile.reference
def _(
    a: Tensor, b: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, *, gelu: bool = False
) -> Tensor:
    wide = torch.promote_types(a.dtype, torch.float32)
    sum = a.to(wide) @ b.to(wide)
    sum = sum if bias is None else sum + bias
    sum = sum * torch.special.erfc(-math.sqrt(0.5) * sum) / 2 if gelu else sum  # exact for low ones, too
    return (sum if residual is None else sum + residual).to(a.dtype)


@matmul_swiglu_tile.reference
def _(a: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    wide = torch.promote_types(a.dtype, torch.float32)
    x = a.to(wide)
    return (F.silu(x @ gate.to(wide)) * (x @ up.to(wide))).to(a.dtype)


@matmul_tile.setup_context
def _(ctx: Any, inputs: Any, output: Tensor, keyword_only_inputs: Any) -> None:
    a, b, bias, residual = inputs
    ctx.gelu, ctx.adds = keyword_only_inputs["gelu"], residual is not None
    ctx.save_for_backward(a, b, bias)


@matmul_tile.backward
def _(ctx: Any, grad: Tensor) -> Any:
    """Two products; the argument of GELU is computed again, rather than kept."""
    a, b, bias = ctx.saved_tensors
    by_residual = grad if ctx.adds else None
    if ctx.gelu:
        grad = torch.ops.aten.gelu_backward(grad, matmul_tile(a, b, bias))
    by_bias = None if bias is None else grad.sum(0)
    return matmul_tile(grad, b.T), matmul_tile(a.T, grad), by_bias, by_residual


@matmul_swiglu_tile.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


@matmul_swiglu_tile.backward
def _(ctx: Any, grad: Tensor) -> Any:
    a, gate, up = ctx.saved_tensors
    x, y = matmul_tile(a, gate), matmul_tile(a, up)
    by_x, by_y = torch.ops.aten.silu_backward(grad * y, x), grad * F.silu(x)
    by_a = matmul_tile(by_y, up.T, None, matmul_tile(by_x, gate.T))
    return by_a, matmul_tile(a.T, by_x), matmul_tile(a.T, by_y)


@matmul_tile.sharding
def _(a: Tensor, b: Tensor, bias: Any = None, residual: Any = None, *, gelu: bool = False) -> list[str]:
    """Parts of K give parts of a sum, unless GELU follows."""
    parts = [] if gelu else ["a:1 b:0 bias:sum residual:sum -> sum"]
    return ["a:0 residual:0 -> 0", "b:1 bias:0 residual:1 -> 1", *parts]


@matmul_tile.work
def _(a: Tensor, b: Tensor, bias: Any = None, residual: Any = None, *, gelu: bool = False) -> tuple[int, int]:
    (m, k), n = a.shape, b.shape[1]
    elements = m * k + k * n + m * n + (0 if bias is None else n) + (0 if residual is None else m * n)
    return elements * a.element_size(), 2 * m * n * k


@matmul_swiglu_tile.work
def _(a: Tensor, gate: Tensor, up: Tensor) -> tuple[int, int]:
    (m, k), n = a.shape, gate.shape[1]
    return (m * k + 2 * k * n + m * n) * a.element_size(), 4 * m * n * k


@matmul_tile.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -1, 1)
    yield dotcu.Sample(random(64, 72), random(72, 80))
    yield dotcu.Sample(random(70, 40), random(200, 40).T, random(200), gelu=True)
    yield dotcu.Sample(random(40, 70).T, random(40, 136), None, random(70, 136))
    yield dotcu.Sample(random(33, 17), random(17, 41), random(41), random(33, 41))
    yield dotcu.Sample(random(48, 66).T[::2], random(31, 48).T)
    yield dotcu.Sample(random(5, 0), random(0, 6))
    yield dotcu.Sample(random(0, 5), random(5, 6))


@matmul_swiglu_tile.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -1, 1)
    yield dotcu.Sample(random(64, 72), random(72, 80), random(72, 80))
    yield dotcu.Sample(random(70, 33), *random(2, 41, 33).mT)
    yield dotcu.Sample(random(40, 24).T, random(40, 56), random(56, 40).T)
    yield dotcu.Sample(random(5, 0), random(0, 6), random(0, 6))
    yield dotcu.Sample(random(0, 5), random(5, 6), random(5, 6))
