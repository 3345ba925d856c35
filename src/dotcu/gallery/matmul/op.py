"""matmul: the product of two matrices, by a ladder of kernels of which the last one has cuBLAS' speed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import dotcu
from dotcu.gallery.common import FLOATS, random_tensors, sum_type, vector_width

kernels = dotcu.load("kernel.cu")
line_kernels = dotcu.load("lines.cu")
mma_kernels = dotcu.load("mma.cu")
hopper_kernels = dotcu.load("hopper.cu")
wgmma_kernels = dotcu.load("step_wgmma.cu")
specialized_kernels = dotcu.load("step_specialized.cu")
clusters_kernels = dotcu.load("step_clusters.cu")

HALVES = (torch.bfloat16, torch.float16)
EIGHTS = (torch.float8_e4m3fn, torch.float8_e5m2)

LADDER = ("naive", "tiled", "mma", "wgmma", "specialized", "clusters", "persistent")
"""The kernels, each faster than the last."""

STEPS = ("wgmma", "specialized", "clusters")
"""Those between mma and persistent, for types of 16 bits."""

TOLERANCE = {torch.float64: 1e-12}
"""The reference adds up in another order, and in float64 there is nothing more exact to tell them apart."""

BIAS, OTHER, GELU, SILU, SWIGLU, SCALES, ROW_SCALES, GROUPS = 1, 2, 4, 8, 16, 32, 64, 128
"""Epilogues as the kernels count them."""

OF_OTHERS = SWIGLU | SCALES | ROW_SCALES
"""Those of `matmul_swiglu` and `matmul_fp8`."""

ACTIVATIONS = ("gelu", "silu")

ROW = 128
"""Bytes of a row of a box that TMA copies, as long as its swizzle."""

BOX_ROWS = 64
TMA_BYTES = 16
WIDE = 1024
GROUP = 8


class HopperInstance(NamedTuple):
    """An instance of hopper.cu, which is a configuration, too.

    An entry of a tuned file counts for its own product alone: for any other, the model of time below knows
    the waves of blocks, and the nearest entry does not.

    Attributes:
        bm, bn: Sides of a tile.
        stages: Steps of K in shared memory.
        sharing: Blocks that share an operand.
        split: Blocks that share a tile's K.
        turns: Whether the warpgroups of a block take turns at tiles.
        boxes: Boxes for results of each warpgroup.
    """

    bm: int
    bn: int
    stages: int
    sharing: int
    split: int
    turns: bool
    boxes: int


APART = 64 * 128
"""Elements of a tile up to which parts of its sums have shared memory of their own in hopper.cu."""

SHARED_BYTES = 226 * 1024
"""Dynamic shared memory of a block."""

PORTABLE = 8
"""Blocks of a cluster that every GPU takes."""

# The model of time, of an H100: which instance is fastest depends on the waves of blocks, on any GPU.

SMS = 132
"""Its multiprocessors; an H200 has as many."""

SPLITS = {2: 66, 3: 39, 4: 30, 6: 17, 8: 15, 11: 7, 16: 7}
"""By blocks that share a tile's K: clusters of so many that run at once, as the driver says."""

CROWD = 1.71
"""How much longer, in addition, 128 bytes of K take such blocks where all multiprocessors have one."""

EXCHANGE = 0.236
"""Microseconds that each block adds by which a tile's K is divided."""

FEW = 0.8
"""How much shorter those are where blocks that share nothing fill a third of the multiprocessors at most."""

UNALIGNED = 1.7
"""How much longer 128 bytes of K take blocks that share nothing, where they are in two of L2's lines each."""


def _shared_bytes(instance: HopperInstance, b_mn: bool, tma_store: bool) -> int:
    """Return the bytes of shared memory of a block: its stages, and boxes or parts of sums behind them."""
    bm, bn, stages, _, split, _, boxes = instance
    bytes = stages * (bm + (dotcu.cdiv(bn, BOX_ROWS) * BOX_ROWS if b_mn else bn)) * ROW
    if split > 1 and bm * bn <= APART:
        eighths = bm * bn // (2 * BOX_ROWS * 8)  # eight columns of 64 rows, of each warpgroup
        bytes += 2 * split * dotcu.cdiv(eighths, split) * BOX_ROWS * 8 * 4
    return bytes + (2 * boxes * BOX_ROWS * ROW if tma_store else 0)


def _sharing_k(
    bm: int, bn: int, stages: int, first: float, step: float
) -> Iterator[tuple[HopperInstance, float, float]]:
    """Yield the instances of a tile whose blocks share K, with what a block takes that runs alone."""
    for split in SPLITS:
        instance = HopperInstance(bm, bn, stages, 1, split, False, 1)
        if _shared_bytes(instance, b_mn=False, tma_store=False) <= SHARED_BYTES:
            yield instance, first, step


INSTANCES: tuple[tuple[HopperInstance, float, float], ...] = (
    (HopperInstance(128, 256, 4, 2, 1, False, 2), 2.2, 0.64),
    (HopperInstance(256, 128, 4, 2, 1, False, 2), 2.3, 0.645),
    (HopperInstance(128, 224, 4, 2, 1, False, 2), 1.8, 0.576),
    (HopperInstance(128, 192, 5, 2, 1, True, 1), 0.75, 0.4955),
    (HopperInstance(128, 128, 6, 2, 1, True, 2), 1.1, 0.370),
    (HopperInstance(64, 128, 8, 2, 1, False, 1), 1.0, 0.265),
    (HopperInstance(128, 256, 4, 1, 1, False, 2), 2.2, 0.72),
    (HopperInstance(128, 192, 5, 1, 1, True, 1), 1.0, 0.565),
    (HopperInstance(128, 128, 6, 1, 1, False, 1), 1.3, 0.455),
    (HopperInstance(64, 128, 8, 1, 1, False, 1), 1.0, 0.30),
    *_sharing_k(64, 64, 11, 2.1, 0.12),
    *_sharing_k(128, 64, 7, 3.1, 0.147),
    *_sharing_k(128, 128, 6, 2.95, 0.261),
    *_sharing_k(192, 128, 5, 7.1, 0.238),
)
"""With each, what a wave of its blocks takes in microseconds: its ends, and 128 bytes of K."""

MmaInstance = tuple[int, int, int, int, int]
"""BM, BN, warps down and across, stages."""

MMA_LARGE: MmaInstance = (128, 128, 2, 4, 3)
MMA_SMALL: MmaInstance = (64, 64, 2, 2, 3)
MMA_PAIR: MmaInstance = (64, 128, 2, 2, 3)
"""The small one for SwiGLU, of whose two halves each has a box of 64 columns."""


class Epilogue(NamedTuple):
    """The end of a kernel, with what it takes; `flags` are a sum of `BIAS` and the like."""

    flags: int
    bias: Tensor | None = None
    other: Tensor | None = None
    scale_a: Tensor | None = None
    scale_b: Tensor | None = None
    alpha: float = 1.0
    beta: float = 1.0


@dotcu.op("dotcu::matmul", dtypes=FLOATS, tolerance=TOLERANCE)
def matmul(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    other: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    activation: str | None = None,
    tf32: bool = False,
    algorithm: str | None = None,
    block_size: int = 16,
) -> Tensor:
    """Multiply two matrices, or those of two batches: act(alpha * (a @ b) + bias) + beta * other.

    `matmul(a, b, out=c)` writes into a tensor that is there already.

    Args:
        a: A matrix of M x K elements, of any strides, of a dtype out of `FLOATS`; or B of them.
        b: A matrix of K x N elements, of the same dtype; or B of them.
        bias: N elements, added to each row.
        other: Of the result's shape, added at the end.
        alpha: A factor of the product.
        beta: A factor of `other`.
        activation: "gelu", as torch has it by default (erf), or "silu".
        tf32: Multiply float32 on tensor cores, which read 10 bits of each mantissa.
        algorithm: One of `LADDER`; by default the fastest one that the GPU and the dtype have.
        block_size: The side of a block and of its tile, 1 to 32, of the kernels naive and tiled.
    """
    flags = _flags(bias, other, activation)
    plan = _plan(a, b, bias, other, flags, tf32) if algorithm is None else None
    if plan is not None:
        out = a.new_empty(plan.shape)
        _launch_planned(plan, a, b, out, bias, other, alpha, beta)
        return out
    _require_factors(a, b)
    _require_extra(a, b, bias, other)
    out = a.new_empty((*a.shape[:-1], b.shape[-1]))
    epilogue = Epilogue(flags, bias, other, alpha=alpha, beta=beta)
    _launch(a, b, out, epilogue, tf32, algorithm, block_size)
    return out


@matmul.overload("out", mutates_args=("out",))
def matmul_out(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    other: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    activation: str | None = None,
    tf32: bool = False,
    algorithm: str | None = None,
    block_size: int = 16,
    out: Tensor,
) -> None:
    """Write the result into `out`, of any strides; it may share memory with the others, which are read first.

    Args:
        out: A tensor of the result's shape and dtype. The rest as for `matmul`.
    """
    _require_factors(a, b)
    _require_extra(a, b, bias, other)
    product = a.new_empty((*a.shape[:-1], b.shape[-1]))
    if (out.dtype, out.shape, out.device) != (product.dtype, product.shape, product.device):
        raise ValueError(
            f"out= must have the result's shape {tuple(product.shape)}, dtype {product.dtype} and device "
            f"{product.device} (got {tuple(out.shape)}, {out.dtype}, {out.device}).\n"
            f"Allocate it so: a.new_empty({tuple(product.shape)})"
        )
    epilogue = Epilogue(_flags(bias, other, activation), bias, other, alpha=alpha, beta=beta)
    _launch(a, b, product, epilogue, tf32, algorithm, block_size)
    if out.is_contiguous() and dotcu.is_aligned(out, TMA_BYTES):  # a launch can be recorded, unlike copy_
        _copy_lines(product.view(1, 1, product.numel()), out, product.numel())
    else:
        out.copy_(product)


@dotcu.op("dotcu::matmul_swiglu", dtypes=HALVES)
def matmul_swiglu(a: Tensor, gate: Tensor, up: Tensor, *, algorithm: str | None = None) -> Tensor:
    """Multiply by two matrices at once: silu(a @ gate) * (a @ up), the first half of a transformer's MLP.

    Args:
        a: A matrix of M x K elements, bfloat16 or float16, or B of them.
        gate: A matrix of K x N elements, or B of them.
        up: One of the same shape and dtype; copied if its layout is not that of `gate`.
        algorithm: "mma" or "persistent"; by default the one that the GPU has.
    """
    _require_pair(a, gate, up)
    out = a.new_empty((*a.shape[:-1], gate.shape[-1]))
    if up.stride() != gate.stride():
        gate, up = gate.contiguous(), up.contiguous()
    _on_tensor_cores(a, gate, out, Epilogue(SWIGLU), algorithm, up=up)
    return out


@dotcu.op("dotcu::matmul_fp8", dtypes=(torch.float8_e4m3fn,))
def matmul_fp8(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    *,
    algorithm: str | None = None,
) -> Tensor:
    """Multiply two matrices in float8: scale_a * scale_b * (a @ b) + bias, in bfloat16.

    Args:
        a: A matrix of M x K elements in float8 e4m3, as `quantize_fp8` gives them.
        b: A matrix of K x N elements; fastest if it is transposed, so that K is innermost.
        scale_a: float32, of one element, or of M: one for each row.
        scale_b: float32, of one element, or of N, as `scale_a`.
        bias: N elements in bfloat16, added to each row.
        algorithm: "mma" or "persistent"; by default the one that the GPU has.

    Note:
        There is no gradient. Hopper's tensor cores add up float8 in about 14 bits.
    """
    _require_fp8(a, b, scale_a, scale_b, bias)
    out = a.new_empty((a.shape[0], b.shape[1]), dtype=torch.bfloat16)
    flags = (SCALES if scale_a.numel() == scale_b.numel() == 1 else ROW_SCALES) | BIAS * (bias is not None)
    epilogue = Epilogue(flags, bias, None, scale_a.contiguous(), scale_b.contiguous())
    _on_tensor_cores(a, b, out, epilogue, algorithm)
    return out


@dotcu.op("dotcu::grouped_matmul", dtypes=HALVES)
def grouped_matmul(a: Tensor, b: Tensor, ends: Tensor, *, algorithm: str | None = None) -> Tensor:
    """Multiply groups of the rows of a matrix by a matrix each, as the experts of a model do.

    Args:
        a: A matrix of M x K elements, bfloat16 or float16: the rows of the groups, one after the other.
        b: E matrices of K x N elements, of the same dtype.
        ends: E numbers in int32 that do not decrease, on a's device: where each group's rows end. They are
            read by the kernel alone, so that groups may differ from call to call without a wait.
        algorithm: "mma" or "persistent"; by default the one that the GPU has.

    Returns:
        M x N elements. Rows that no group has are zeros.

    Note:
        There is no gradient.
    """
    _require_groups(a, b, ends)
    out = a.new_empty((a.shape[0], b.shape[2]))
    a = a if a.stride(-1) == 1 else a.contiguous()
    _on_tensor_cores(a, b, out, Epilogue(GROUPS), algorithm, ends=ends.contiguous())
    return out


def _launch(
    a: Tensor, b: Tensor, out: Tensor, epilogue: Epilogue, tf32: bool, kernel: str | None, block_size: int
) -> None:
    if kernel is not None and kernel not in LADDER:
        raise ValueError(
            f"algorithm is one of {', '.join(LADDER)}, or None (got {kernel!r}).\nType: matmul(a, b)"
        )
    if not 1 <= block_size <= 32:
        raise ValueError(
            f"block_size is the side of a square block, 1 to 32 (got {block_size}).\n"
            "Type: matmul(a, b, block_size=16)"
        )
    on_tensor_cores = a.dtype in HALVES or (tf32 and a.dtype == torch.float32)
    if on_tensor_cores and kernel in (None, "mma", "persistent"):
        _on_tensor_cores(a, b, out, epilogue, kernel)
        return
    if a.dim() == 3:
        for index in range(a.shape[0]):
            _one(a[index], b[index], out[index], kernel, block_size)
    else:
        _one(a, b, out, kernel, block_size)
    _finish(out, epilogue)


def _flags(bias: Tensor | None, other: Tensor | None, activation: str | None) -> int:
    """Return what an epilogue does, as the kernels count it."""
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(f"activation is None, 'gelu' or 'silu' (got {activation!r}).\nType: matmul(a, b)")
    flags = BIAS * (bias is not None) | OTHER * (other is not None)
    return flags if activation is None else flags | (GELU if activation == "gelu" else SILU)


def _finish(out: Tensor, epilogue: Epilogue) -> None:
    """Do after a kernel what others do in their epilogues."""
    flags, bias, other, _, _, alpha, beta = epilogue
    if alpha != 1.0:
        out *= alpha
    if bias is not None:
        out += bias
    if flags & GELU:
        out *= torch.erfc(-math.sqrt(0.5) * out) / 2
    elif flags & SILU:
        out *= torch.sigmoid(out)
    if other is not None:
        out += beta * other


def _one(a: Tensor, b: Tensor, out: Tensor, kernel: str | None, block_size: int) -> None:
    """Launch a kernel of the ladder without epilogues, for two matrices."""
    if kernel in STEPS:
        if a.dtype not in HALVES:
            raise TypeError(
                f"the algorithm {kernel} takes bfloat16 and float16 (got {a.dtype}).\nType: matmul(a, b)"
            )
        _step(a, b, out, kernel)
        return
    block_size = int(block_size)  # the tile is compiled in, so torch.compile must know it too
    chosen, grid = _choose(out, kernel != "naive", block_size)
    chosen(a, b, out, grid=grid, block=(block_size, block_size))


@dotcu.by_layout
def _choose(out: Tensor, tiled: bool, block_size: int) -> tuple[dotcu.Kernel, int]:
    """The kernel, and as many blocks as there are tiles, or as run at once."""
    template = kernels.matmul_tiled if tiled else kernels.matmul_naive
    kernel = template[out.dtype, sum_type(out.dtype), block_size]
    tiles = dotcu.cdiv(out.shape[0], block_size) * dotcu.cdiv(out.shape[1], block_size)
    resident = kernel.occupancy((block_size, block_size)) * dotcu.sm_count(out)
    return kernel, torch.sym_min(tiles, resident)


def _step(a: Tensor, b: Tensor, out: Tensor, name: str) -> None:
    """Launch a step between mma and persistent: both matrices with K innermost."""
    (m, n), k = out.shape, a.shape[1]
    if m == 0 or n == 0 or k == 0:
        out.zero_()
        return
    a, b = (_for_tma(x if x.stride(-1) == 1 else x.contiguous()) for x in (a, b.mT))
    bn, in_box = (128, 128) if name == "wgmma" else (256, 128 if name == "clusters" else 256)
    maps = (_boxes(a, 128), _boxes(b, in_box))
    down, across = dotcu.cdiv(m, 128), dotcu.cdiv(n, bn)
    if name == "clusters":
        kernel, grid, cluster = clusters_kernels.matmul_clusters, (2 * dotcu.cdiv(down, 2), across), 2
        kernel[a.dtype](*maps, out, m, n, k, grid=grid, block=384, cluster=cluster, smem_bytes=4 * 384 * ROW)
    elif name == "specialized":
        kernel, grid = specialized_kernels.matmul_specialized, (across, down)
        kernel[a.dtype](*maps, out, m, n, k, grid=grid, block=384, smem_bytes=4 * 384 * ROW)
    else:
        wgmma_kernels.matmul_wgmma[a.dtype](*maps, out, m, n, k, grid=(across, down), block=256)


def _on_tensor_cores(
    a: Tensor, b: Tensor, out: Tensor, epilogue: Epilogue, kernel: str | None, *, up: Tensor | None = None,
    ends: Tensor | None = None,
) -> None:  # fmt: skip
    """Launch mma.cu or hopper.cu.

    Args:
        up: SwiGLU's second matrix, with the strides of b.
        ends: Of the groups of a's rows that multiply one matrix of b each.
    """
    if out.numel() == 0:
        return
    flags, bias, other, scale_a, scale_b, alpha, beta = epilogue
    if a.shape[-1] == 0:  # eight zeros add up to the same
        a, b = a.new_zeros((*a.shape[:-1], 8)), b.new_zeros((*b.shape[:-2], 8, b.shape[-1]))
        up = None if up is None else b
    bias, other = (None if x is None else x.contiguous() for x in (bias, other))
    a, b, to = (x if x.dim() == 3 else x.unsqueeze(0) for x in (a, b, out))
    up = None if up is None else up.mT if up.dim() == 3 else up.mT.unsqueeze(0)
    both = a.dtype in HALVES  # tensor cores read other types with K innermost only
    a, a_mn = _lines(a, both and ends is None)  # groups begin anywhere
    b, b_mn = _lines(b.mT, both)
    up = b if up is None else _lines(up, both)[0]
    numbers = (alpha, beta, b.shape[0], *to.shape[1:], a.shape[1] if a_mn else a.shape[2])
    rest = (bias, other, scale_a, scale_b, ends, *numbers)
    if kernel == "mma" or (kernel is None and dotcu.capability(out)[0] != 9):
        chosen, grid, block, smem = _choose_mma(a, b, up, out, a_mn, b_mn, flags)
        chosen(a, b, up, out, *rest, grid=grid, block=block, smem_bytes=smem)
        return
    a, b, up = _for_tma(a), _for_tma(b), b if up is b else up
    up = b if not flags & SWIGLU else _for_tma(up)
    chosen, boxes, grid, cluster, smem = _choose_hopper(a, b, to.dtype, a_mn, b_mn, flags)
    of_a, of_b, tma_store = boxes
    maps = (_boxes(a, of_a), _boxes(b, of_b), _boxes(up, of_b), _boxes(to if tma_store else a, BOX_ROWS))
    chosen(*maps, out, *rest, grid=grid, block=384, cluster=cluster, smem_bytes=smem)


class _Product(NamedTuple):
    """The launch of hopper.cu for a product of plain operands that TMA takes as they are.

    Attributes:
        shape: The result's.
        sizes: Batches, M, N and K.
        a_mn, b_mn: K counts the lines of an operand, not the elements of one.
        boxes: The box of a, b and what is stored; `tma_stores` says whether that is the result, or else a.
        whole: The bytes that L2 fetches at once of each.
    """

    kernel: dotcu.Kernel
    shape: tuple[int, ...]
    sizes: tuple[int, int, int, int]
    a_mn: bool
    b_mn: bool
    boxes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    whole: tuple[int, int, int]
    tma_stores: bool
    grid: int
    cluster: int
    smem_bytes: int


@dotcu.by_layout
def _plan(
    a: Tensor, b: Tensor, bias: Tensor | None, other: Tensor | None, flags: int, tf32: bool
) -> _Product | None:
    """Check a product and plan it; None if it takes other steps than one launch of hopper.cu."""
    _require_factors(a, b)
    _require_extra(a, b, bias, other)
    if not (a.dtype in HALVES or (tf32 and a.dtype == torch.float32)) or dotcu.capability(a)[0] != 9:
        return None
    if any(x is not None and not x.is_contiguous() for x in (bias, other)) or 0 in (*a.shape, *b.shape):
        return None
    x, y = (each if each.dim() == 3 else each.unsqueeze(0) for each in (a, b.mT))
    both = a.dtype in HALVES
    if any(each.stride(-1) != 1 and not (both and each.stride(-2) == 1) for each in (x, y)):
        return None
    (x, a_mn), (y, b_mn) = _lines(x, both), _lines(y, both)
    if not (_fits_tma(x) and _fits_tma(y)):
        return None
    kernel, (of_a, of_b, tma_stores), grid, cluster, smem = _choose_hopper(x, y, a.dtype, a_mn, b_mn, flags)
    k, n = b.shape[-2:]
    (box_a, whole_a), (box_b, whole_b), stored = _box_of(x, of_a), _box_of(y, of_b), _box_of(x, BOX_ROWS)
    if tma_stores:
        stored = stored[0], _whole(n * a.element_size())
    return _Product(
        kernel=kernel, shape=(*a.shape[:-1], n), sizes=(x.shape[0], a.shape[-2], n, k), a_mn=a_mn, b_mn=b_mn,
        boxes=(box_a, box_b, stored[0]), whole=(whole_a, whole_b, stored[1]), tma_stores=tma_stores,
        grid=grid, cluster=cluster, smem_bytes=smem,
    )  # fmt: skip


def _launch_planned(
    plan: _Product, a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None, other: Tensor | None,
    alpha: float, beta: float,
) -> None:  # fmt: skip
    x, y, to = a.mT if plan.a_mn else a, b if plan.b_mn else b.mT, out
    if a.dim() == 2:
        x, y, to = x.unsqueeze(0), y.unsqueeze(0), out.unsqueeze(0)
    (box_a, box_b, box_out), (whole_a, whole_b, whole_out) = plan.boxes, plan.whole
    of_b = dotcu.tensor_map(y, box=box_b, swizzle=ROW, l2_promotion=whole_b)
    plan.kernel(
        dotcu.tensor_map(x, box=box_a, swizzle=ROW, l2_promotion=whole_a), of_b, of_b,
        dotcu.tensor_map(to if plan.tma_stores else x, box=box_out, swizzle=ROW, l2_promotion=whole_out),
        out, bias, other, None, None, None, alpha, beta, *plan.sizes,
        grid=plan.grid, block=384, cluster=plan.cluster, smem_bytes=plan.smem_bytes,
    )  # fmt: skip


def _lines(x: Tensor, both: bool) -> tuple[Tensor, bool]:
    """Return an operand (B, rows, K) by its contiguous lines, and whether K counts these, not the rows."""
    if x.stride(-1) == 1:
        return x, False
    if both and x.stride(-2) == 1:
        return x.mT, True
    return x.contiguous(), False


def _for_tma(x: Tensor) -> Tensor:
    """Return lines that TMA takes: a copy with padded lines if they do not start at multiples of 16 bytes."""
    if _fits_tma(x):
        return x
    lanes = TMA_BYTES // x.element_size()
    lanes *= 1 if x.shape[-1] < WIDE else ROW // TMA_BYTES  # of long ones, at whole lines of L2
    padded = x.new_empty((*x.shape[:-1], dotcu.cdiv(x.shape[-1], lanes) * lanes))
    _copy_lines(x if x.dim() == 3 else x.unsqueeze(0), padded, padded.shape[-1])
    return padded[..., : x.shape[-1]]


@dotcu.by_layout
def _fits_tma(x: Tensor) -> bool:
    lanes = TMA_BYTES // x.element_size()
    *outer, pitch, _ = x.stride()
    fits = pitch >= x.shape[-1] and all(step >= pitch for step in outer)
    return fits and all(step % lanes == 0 for step in x.stride()[:-1]) and dotcu.is_aligned(x, TMA_BYTES)


def _copy_lines(x: Tensor, out: Tensor, pitch: int) -> None:
    """Copy lines (B, rows, K) into memory that has them `pitch` elements apart, at multiples of 16 bytes."""
    (batches, rows, columns), lanes = x.shape, TMA_BYTES // x.element_size()
    threads = batches * rows * dotcu.cdiv(pitch, lanes)
    line_kernels.matmul_lines[x.dtype](
        dotcu.strided(x), out, rows, columns, pitch, out.numel(), grid=dotcu.cdiv(threads, 256), block=256
    )


def _boxes(x: Tensor, rows: int) -> dotcu.TensorMap:
    """Return the tensor map that copies `rows` lines of 128 bytes at once."""
    box, whole = _box_of(x, rows)
    return dotcu.tensor_map(x, box=box, swizzle=ROW, l2_promotion=whole)


@dotcu.by_layout
def _box_of(x: Tensor, rows: int) -> tuple[tuple[int, ...], int]:
    """The box, and the bytes that L2 fetches at once."""
    return (*(1,) * (x.dim() - 2), rows, ROW // x.element_size()), _whole(_pitch(x))


def _whole(pitch: int) -> int:
    """Return the bytes that L2 fetches at once of lines that are `pitch` bytes apart."""
    return next(bytes for bytes in (256, 128, 0) if not bytes or pitch % bytes == 0)


def _pitch(x: Tensor) -> int:
    """Return the bytes from one line to the next."""
    return x.stride(-2) * x.element_size()


@dotcu.by_layout
def _choose_hopper(
    a: Tensor, b: Tensor, to: torch.dtype, a_mn: bool, b_mn: bool, flags: int
) -> tuple[dotcu.Kernel, tuple[int, int, bool], int, int, int]:
    """The kernel, rows of the boxes of a and b, whether TMA stores; grid, cluster, bytes of shared memory."""
    m, n, batches, sms = a.shape[1 + a_mn], b.shape[1 + b_mn], b.shape[0], dotcu.sm_count(a)
    if flags & GROUPS:  # those of equal groups: the others are not known here
        m = dotcu.cdiv(m, batches)
    steps = dotcu.cdiv(a.shape[1 if a_mn else 2] * a.element_size(), ROW)
    aligned = all(_pitch(x) % ROW == 0 for x in (a, b))
    instance = _instance(batches, m, n, steps, sms, flags, b_mn, aligned)
    if not flags & OF_OTHERS:
        tuned = matmul.configuration(a.dtype, batches, m, n, steps, a_mn, b_mn, flags, default=instance)
        if tuned[4] <= PORTABLE or sms >= SMS:
            instance = tuned
    bm, bn, _, sharing, split, *_ = instance
    tma_store = split == 1 and n * to.itemsize % TMA_BYTES == 0
    below = bn >= bm  # the blocks that share an operand
    of_a = BOX_ROWS if a_mn else bm // (1 if below else sharing)
    of_b = BOX_ROWS if b_mn else bn // (2 if flags & SWIGLU else sharing if below else 1)
    tiles = _tiles(instance, batches, m, n, flags)
    at_once = tiles if split > 1 else sms // sharing  # those that share K have one tile
    waves = dotcu.cdiv(tiles, at_once)  # as many blocks as have equally many tiles
    grid = sharing * split * (at_once if flags & GROUPS else dotcu.cdiv(tiles, waves))
    tile = (*instance[:4], split > 1, *instance[5:])
    arguments = (a.dtype, to, *tile, GROUP, a_mn, b_mn, tma_store, flags, to)
    kernel = hopper_kernels.matmul[arguments]
    smem = _shared_bytes(instance, b_mn, tma_store)
    return kernel, (of_a, of_b, tma_store), grid, sharing * split, smem


def _tiles(instance: HopperInstance, batches: int, m: int, n: int, flags: int) -> int:
    """Return the tiles of a product, two blocks' as one where they share an operand."""
    bm, bn, _, sharing, *_ = instance
    down, across = (bm * sharing, bn) if bn >= bm else (bm, bn * sharing)
    return batches * dotcu.cdiv(m, down) * dotcu.cdiv(n, across // 2 if flags & SWIGLU else across)


def _instance(
    batches: int, m: int, n: int, steps: int, sms: int, flags: int, b_mn: bool, aligned: bool
) -> HopperInstance:
    """Return the instance whose waves of blocks take the least time."""

    def time(row: tuple[HopperInstance, float, float]) -> float:
        instance, first, step = row
        bm, bn, _, sharing, split, *_ = instance
        tiles = _tiles(instance, batches, m, n, flags)
        if split > 1:
            if flags & (GROUPS | SWIGLU) or steps < 2 * split or (sms < SMS and split > PORTABLE):
                return math.inf
            waves = dotcu.cdiv(tiles, max(SPLITS[split] * sms // SMS, 1))
            step *= 1 + CROWD * min(tiles * split, sms) / sms
            return waves * (first + dotcu.cdiv(steps, split) * step) + EXCHANGE * split
        waves = dotcu.cdiv(tiles, sms // sharing)
        if flags & SWIGLU and (bm < 128 or bn % 128):  # halves of whole boxes
            return math.inf
        if b_mn and dotcu.cdiv(bn, BOX_ROWS) % sharing:
            return math.inf
        if sharing == 1:
            step *= 1.0 if aligned else UNALIGNED
            step *= FEW if tiles <= sms // 3 else 1.0
        return waves * (first + steps * step)

    return min(INSTANCES, key=time)[0]


@dotcu.by_layout
def _choose_mma(
    a: Tensor, b: Tensor, up: Tensor, out: Tensor, a_mn: bool, b_mn: bool, flags: int
) -> tuple[dotcu.Kernel, int, int, int]:
    """The kernel, grid, threads and bytes of shared memory."""
    most, (batches, m, n) = TMA_BYTES // a.element_size(), (a.shape[0], *out.shape[-2:])
    m += b.shape[0] * MMA_LARGE[0] if flags & GROUPS else 0  # each group may begin a tile
    vectors = [vector_width(most, x.stride()[:-1], x) for x in (a, b, up)]

    def tiles(instance: MmaInstance) -> int:
        across = instance[1] // 2 if flags & SWIGLU else instance[1]
        return batches * dotcu.cdiv(m, instance[0]) * dotcu.cdiv(n, across)

    small = MMA_PAIR if flags & SWIGLU else MMA_SMALL
    instance = MMA_LARGE if tiles(MMA_LARGE) >= dotcu.sm_count(out) else small
    bm, bn, down, across, stages = instance
    lines = vectors[0], min(vectors[1:]), a_mn, b_mn
    arguments = (a.dtype, out.dtype, *instance, GROUP, *lines, flags, out.dtype)
    kernel = mma_kernels.matmul_mma[arguments]
    return kernel, tiles(instance), 32 * down * across, stages * (bm + bn) * ROW


def _require_factors(a: Tensor, b: Tensor) -> None:
    if a.dtype != b.dtype or a.dtype not in FLOATS:
        taken = ", ".join(str(dtype).removeprefix("torch.") for dtype in FLOATS)
        raise TypeError(
            f"matmul takes two matrices of one dtype out of {taken} (got {a.dtype} and {b.dtype}).\n"
            "Convert them first: matmul(a.to(torch.float32), b.to(torch.float32))"
        )
    _require_shapes("matmul", a, b)


def _require_shapes(name: str, a: Tensor, b: Tensor) -> None:
    fits = a.dim() == b.dim() and a.dim() in (2, 3) and a.shape[-1] == b.shape[-2]
    if not fits or (a.dim() == 3 and a.shape[0] != b.shape[0]):
        raise ValueError(
            f"{name} takes (M, K) and (K, N) matrices, or (B, M, K) and (B, K, N) "
            f"(got {tuple(a.shape)} and {tuple(b.shape)}).\n"
            f"Transpose one of them, {name}(a, b.mT), or make a matrix of a batch: a.flatten(0, -2)"
        )


def _require_extra(a: Tensor, b: Tensor, bias: Tensor | None, other: Tensor | None) -> None:
    shapes = {"bias": (b.shape[-1],), "other": (*a.shape[:-1], b.shape[-1])}
    for name, extra in (("bias", bias), ("other", other)):
        if extra is not None and (extra.dtype != a.dtype or extra.shape != shapes[name]):
            raise ValueError(
                f"{name} has the shape {shapes[name]} and the dtype {a.dtype} "
                f"(got {tuple(extra.shape)}, {extra.dtype}).\n"
                f"Expand or convert it: {name}.expand({shapes[name]}).to({a.dtype})"
            )


def _require_groups(a: Tensor, b: Tensor, ends: Tensor) -> None:
    if a.dtype not in HALVES or a.dtype != b.dtype or ends.dtype != torch.int32:
        raise TypeError(
            "grouped_matmul takes matrices of one dtype out of bfloat16, float16, and ends in int32 "
            f"(got {a.dtype}, {b.dtype} and {ends.dtype}).\nType: counts.cumsum(0, dtype=torch.int32)"
        )
    if (a.dim(), b.dim()) != (2, 3) or a.shape[1] != b.shape[1] or ends.shape != b.shape[:1] or not len(b):
        raise ValueError(
            "grouped_matmul takes (M, K) rows, (E, K, N) matrices, one or more, and E ends "
            f"(got {tuple(a.shape)}, {tuple(b.shape)} and {tuple(ends.shape)}).\n"
            "Type: grouped_matmul(rows, weights.mT, ends), of weights (E, N, K)"
        )


def _require_pair(a: Tensor, gate: Tensor, up: Tensor) -> None:
    if any(x.dtype not in HALVES or x.dtype != a.dtype for x in (a, gate, up)):
        raise TypeError(
            "matmul_swiglu takes matrices of one dtype out of bfloat16, float16 "
            f"(got {a.dtype}, {gate.dtype} and {up.dtype}).\nConvert them first: x.to(torch.bfloat16)"
        )
    _require_shapes("matmul_swiglu", a, gate)
    if gate.shape != up.shape:
        raise ValueError(
            f"gate and up have one shape (got {tuple(gate.shape)} and {tuple(up.shape)}).\n"
            "Pass both halves of a weight: matmul_swiglu(x, *(w.T for w in weight.chunk(2)))"
        )


def _require_fp8(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None) -> None:
    wrong = a.dtype not in EIGHTS or scale_a.dtype != torch.float32 or scale_b.dtype != torch.float32
    if wrong or a.dtype != b.dtype:
        raise TypeError(
            f"matmul_fp8 takes float8 matrices of one dtype and float32 scales (got {a.dtype}, "
            f"{b.dtype}, {scale_a.dtype}, {scale_b.dtype}).\nType: a, scale_a = quantize_fp8(x)"
        )
    if a.dim() != 2:
        raise ValueError(f"matmul_fp8 takes matrices (got {a.dim()} dimensions).\nType: a.flatten(0, -2)")
    _require_shapes("matmul_fp8", a, b)
    if (scale_a.numel(), scale_b.numel()) not in ((1, 1), (a.shape[0], b.shape[1])):
        raise ValueError(
            f"matmul_fp8 takes one scale of each, or {a.shape[0]} of rows and {b.shape[1]} of columns "
            f"(got {scale_a.numel()} and {scale_b.numel()}).\nType: scale_a.expand({a.shape[0]})"
        )
    if bias is not None and (bias.dtype != torch.bfloat16 or bias.shape != (b.shape[1],)):
        raise ValueError(
            f"bias has {b.shape[1]} elements in bfloat16 (got {tuple(bias.shape)}, {bias.dtype}).\n"
            "Type: bias.to(torch.bfloat16)"
        )


@grouped_matmul.fake
def _(a: Tensor, b: Tensor, ends: Tensor, *, algorithm: str | None = None) -> Tensor:
    _require_groups(a, b, ends)
    return a.new_empty((a.shape[0], b.shape[2]))


@matmul.sharding
def _(
    a: Tensor, b: Tensor, bias: Tensor | None = None, other: Tensor | None = None, **rest: Any
) -> list[str]:
    if a.ndim == 3:
        return [f"a:0 b:0{' other:0' * (other is not None)} -> 0"]
    rules = [f"a:0{' other:0' * (other is not None)} -> 0"]
    rules.append(f"b:1{' bias:0' * (bias is not None)}{' other:1' * (other is not None)} -> 1")
    linear = bias is None and other is None and rest.get("activation") is None
    return [*rules, "a:1 b:0 -> sum"] if linear else rules


@grouped_matmul.sharding
def _(a: Tensor, b: Tensor, ends: Tensor, **rest: Any) -> list[str]:
    return ["b:2 -> 1", "a:1 b:1 -> sum"]


@matmul_swiglu.sharding
def _(a: Tensor, gate: Tensor, up: Tensor, **rest: Any) -> list[str]:
    return ["a:0 gate:0 up:0 -> 0"] if a.ndim == 3 else ["a:0 -> 0", "gate:1 up:1 -> 1"]


@matmul_fp8.sharding
def _(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None, **rest: Any
) -> list[str]:
    if scale_a.shape.numel() == scale_b.shape.numel() == 1:
        return ["a:0 -> 0"]
    rows = "a:0 scale_a:", scale_a.shape, a.shape[0], " -> 0"
    columns = "b:1 scale_b:", scale_b.shape, b.shape[1], f"{' bias:0' * (bias is not None)} -> 1"
    return [
        f"{split}{shape.index(count)}{rest}"  # of (N,), (N, 1) or (1, N)
        for split, shape, count, rest in (rows, columns)
        if count in shape
    ]


def _is_possible(
    row: HopperInstance, dtype: torch.dtype, batches: int, m: int, n: int, steps: int, a_mn: bool, b_mn: bool,
    flags: int,
) -> bool:  # fmt: skip
    """Return whether an instance is worth a try: blocks that share K where all run at once, on an H100."""
    at_once = _tiles(row, batches, m, n, flags) <= SPLITS.get(row.split, 0)
    split_fits = row.split == 1 or (at_once and steps >= 2 * row.split)
    return split_fits and not (b_mn and dotcu.cdiv(row.bn, BOX_ROWS) % row.sharing)


@matmul.configurations(exact=True, when=_is_possible)
def _() -> Iterator[HopperInstance]:
    for instance, _, _ in INSTANCES:
        yield instance


@matmul.reference
def _(
    a: Tensor, b: Tensor, bias: Tensor | None = None, other: Tensor | None = None, *, alpha: float = 1.0,
    beta: float = 1.0, activation: str | None = None, **launch: Any,
) -> Tensor:  # fmt: skip
    plain = bias is None and other is None and activation is None and alpha == 1.0
    wide = a.dtype if plain else torch.promote_types(a.dtype, torch.float32)
    sum = alpha * (a.to(wide) @ b.to(wide)) if alpha != 1.0 else a.to(wide) @ b.to(wide)
    sum = sum if bias is None else sum + bias
    if activation == "gelu":
        sum = sum * torch.special.erfc(-math.sqrt(0.5) * sum) / 2  # exact for low ones, too
    elif activation == "silu":
        sum = F.silu(sum)
    return (sum if other is None else sum + beta * other).to(a.dtype)


@matmul_swiglu.reference
def _(a: Tensor, gate: Tensor, up: Tensor, **launch: Any) -> Tensor:
    wide = torch.promote_types(a.dtype, torch.float32)
    x = a.to(wide)
    return (F.silu(x @ gate.to(wide)) * (x @ up.to(wide))).to(a.dtype)


@grouped_matmul.reference
def _(a: Tensor, b: Tensor, ends: Tensor, **launch: Any) -> Tensor:
    wide = torch.promote_types(a.dtype, torch.float32)
    out = torch.zeros((a.shape[0], b.shape[2]), dtype=wide, device=a.device)
    begin = 0
    for group, end in enumerate(ends.tolist()):
        out[begin:end] = a[begin:end].to(wide) @ b[group].to(wide)
        begin = max(begin, end)
    return out.to(a.dtype)


@matmul_fp8.reference
def _(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None, **launch: Any
) -> Tensor:
    sum = a.double() @ b.double() * scale_a.double().view(-1, 1) * scale_b.double().view(1, -1)
    return (sum if bias is None else sum + bias).to(torch.bfloat16)


@matmul.setup_context
def _(ctx: Any, inputs: Any, output: Tensor, keyword_only_inputs: Any) -> None:
    a, b, bias, other = inputs
    ctx.save_for_backward(a, b, bias)
    ctx.adds = other is not None
    ctx.launch = dict(keyword_only_inputs)
    ctx.epilogue = {name: ctx.launch.pop(name) for name in ("alpha", "beta", "activation")}


@matmul.backward
def _(ctx: Any, grad: Tensor) -> Any:
    """Two products; the argument of the activation is computed again, rather than kept."""
    a, b, bias = ctx.saved_tensors
    needs_a, needs_b = ctx.needs_input_grad[:2]
    alpha, beta, activation = (ctx.epilogue[name] for name in ("alpha", "beta", "activation"))
    by_other = None if not ctx.adds else grad if beta == 1.0 else grad * beta
    if activation is not None:
        sum = matmul(a, b, bias, alpha=alpha, **ctx.launch)
        grad = torch.ops.aten.gelu_backward(grad, sum) if activation == "gelu" else _by_silu(grad, sum)
    by_bias = None if bias is None else grad.flatten(0, -2).sum(0)

    def product(x: Tensor, y: Tensor, of: Tensor) -> Tensor:
        """The product in the layout of a factor: the weight of a linear layer is a transposed one."""
        transposed = of.stride(-1) != 1 and of.stride(-2) == 1
        factors = (y.mT, x.mT) if transposed else (x, y)
        result: Tensor = matmul(*factors, alpha=alpha, **ctx.launch)
        return result.mT if transposed else result

    return (
        product(grad, b.mT, a) if needs_a else None,
        product(a.mT, grad, b) if needs_b else None,
        by_bias,
        by_other,
    )


def _by_silu(grad: Tensor, x: Tensor) -> Tensor:
    """Return SiLU's gradient by x; written out where it is differentiated again, as torch does."""
    if not torch.is_grad_enabled():
        result: Tensor = torch.ops.aten.silu_backward(grad, x)
        return result
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    part = torch.sigmoid(wide)
    return (grad * (part * (1 + wide * (1 - part)))).to(x.dtype)


@matmul_swiglu.setup_context
def _(ctx: Any, inputs: Any, output: Tensor, keyword_only_inputs: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.launch = keyword_only_inputs


@matmul_swiglu.backward
def _(ctx: Any, grad: Tensor) -> Any:
    a, gate, up = ctx.saved_tensors
    x, y = matmul(a, gate, **ctx.launch), matmul(a, up, **ctx.launch)
    by_x, by_y = _by_silu(grad * y, x), grad * F.silu(x)
    by_a = matmul(by_y, up.mT, None, matmul(by_x, gate.mT, **ctx.launch), **ctx.launch)
    return by_a, matmul(a.mT, by_x, **ctx.launch), matmul(a.mT, by_y, **ctx.launch)


@matmul.work
def _(a: Tensor, b: Tensor, bias: Any = None, other: Any = None, **launch: Any) -> tuple[int, int]:
    k, n = b.shape[-2:]
    extra = (0 if bias is None else n) + (0 if other is None else other.numel())
    elements = a.numel() + b.numel() + a.numel() // max(k, 1) * n + extra
    return elements * a.element_size(), 2 * a.numel() * n


@matmul_swiglu.work
def _(a: Tensor, gate: Tensor, up: Tensor, **launch: Any) -> tuple[int, int]:
    rows, n = a.numel() // max(a.shape[-1], 1), gate.shape[-1]
    return (a.numel() + 2 * gate.numel() + rows * n) * a.element_size(), 4 * a.numel() * n


@grouped_matmul.work
def _(a: Tensor, b: Tensor, ends: Tensor, **launch: Any) -> tuple[int, int]:
    elements = a.numel() + b.numel() + a.shape[0] * b.shape[2]
    return elements * a.element_size(), 2 * a.numel() * b.shape[2]


@matmul_fp8.work
def _(a: Tensor, b: Tensor, *rest: Any, **launch: Any) -> tuple[int, int]:
    (m, k), n = a.shape, b.shape[1]
    return m * k + k * n + 2 * m * n, 2 * m * n * k


@matmul.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -2, 2)
    yield dotcu.Sample(random(64, 48), random(48, 32))
    yield dotcu.Sample(random(33, 17), random(17, 41))
    yield dotcu.Sample(random(33, 17), random(17, 41), algorithm="naive")
    yield dotcu.Sample(random(1, 70), random(70, 1), algorithm="tiled", block_size=8)
    yield dotcu.Sample(random(5, 0), random(0, 6))
    yield dotcu.Sample(random(0, 5), random(5, 6), algorithm="naive")
    yield dotcu.Sample(random(19, 20).T, random(25, 40)[3:22, ::2])
    if dtype in HALVES:
        small = random_tensors(device, dtype, -1, 1)  # of a GELU far below zero nothing is left
        yield dotcu.Sample(small(2, 40, 24), small(2, 24, 56), small(56), activation="gelu")
        if _has_wgmma(device):
            yield dotcu.Sample(random(70, 72), random(72, 136), algorithm="persistent")
            yield dotcu.Sample(
                random(40, 70).T, random(136, 40).T, None, random(70, 136), algorithm="persistent"
            )


for _overload in matmul.overloads.values():
    _overload.waive("tf32-negated", "TF32 keeps 10 bits of each mantissa, and the reference keeps them all.")


@matmul_swiglu.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -1, 1)
    yield dotcu.Sample(random(64, 72), random(72, 80), random(72, 80))
    yield dotcu.Sample(random(70, 33), *random(2, 41, 33).mT)
    yield dotcu.Sample(random(40, 24).T, random(40, 56), random(56, 40).T)
    yield dotcu.Sample(random(5, 0), random(0, 6), random(0, 6))
    yield dotcu.Sample(random(0, 5), random(5, 6), random(5, 6))
    if _has_wgmma(device):
        yield dotcu.Sample(random(70, 72), *random(2, 136, 72).mT, algorithm="persistent")


@matmul_fp8.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, torch.float32, -2, 2)
    scales = random_tensors(device, torch.float32, 1, 2)
    algorithm = "persistent" if _has_wgmma(device) else None
    for m, k, n in ((70, 160, 136), (64, 64, 64), (33, 17, 41), (5, 0, 6), (0, 5, 6)):
        a, b = random(m, k).to(dtype), random(n, k).to(dtype).T
        yield dotcu.Sample(a, b, scales(1), scales(1), algorithm=algorithm)
    a, b = random(40, 48).to(dtype), random(48, 56).to(dtype)
    bias = random(56).to(torch.bfloat16)
    yield dotcu.Sample(a, b, scales(40, 1), scales(1, 56), bias, algorithm=algorithm)


@grouped_matmul.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -1, 1)

    def ends(*numbers: int) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int32, device=device)

    yield dotcu.Sample(random(90, 72), random(3, 72, 80), ends(13, 13, 90))
    yield dotcu.Sample(random(70, 33), random(2, 41, 33).mT, ends(3, 60))
    yield dotcu.Sample(random(40, 9).T, random(1, 40, 7), ends(9))
    yield dotcu.Sample(random(5, 0), random(2, 0, 6), ends(2, 5))
    yield dotcu.Sample(random(0, 5), random(2, 5, 6), ends(0, 0))
    if _has_wgmma(device):
        yield dotcu.Sample(random(200, 72), random(3, 136, 72).mT, ends(70, 71, 199), algorithm="persistent")


def _has_wgmma(device: torch.device) -> bool:
    """Return whether the device runs hopper.cu; the simulator does."""
    return device.type != "cuda" or dotcu.capability(device)[0] == 9
