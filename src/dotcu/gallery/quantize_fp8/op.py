"""quantize_fp8: the rows of a tensor as float8 e4m3, with a float32 scale for each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.gallery.common import (
    ALIGNED,
    ALIKE,
    APART,
    LEAST_RAGGED_BYTES,
    VECTOR_BYTES,
    random_tensors,
    require_dtype,
    vector_width,
)

kernels = dotcu.load("kernel.cu")

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
E4M3 = torch.float8_e4m3fn
LARGEST = 448.0
"""The largest e4m3: OCP 8-bit Floating Point Specification, table 1."""

WARP = 32
SMALL_BLOCK, LARGE_BLOCK = 128, 1024
"""Threads of a block of rows that share a warp, and the most that one row has."""

LINE_LANES = 8
"""Lanes that read a line of 128 bytes together; fewer share a row only where it is shorter."""

FEW, MANY = 4, 8
"""Loads of 16 bytes that a thread has on their way: in a warp with several rows, and for a longer row."""

MAX_VECTORS = 32
CLUSTERS = (2, 4, 8)
CLUSTER_LANES = 256
SMEM_BYTES = 48 * 1024
"""A multiprocessor with clusters has room for four times as much shared memory, others have not."""


@dotcu.op("dotcu::quantize_fp8", dtypes=FLOATS, sharding="x:rows -> rows, rows")
def quantize_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize each row, along the last dimension, to float8 e4m3 with a scale of its own.

    `scale = max(abs(row)) / 448` in float32, 1 where that is 0; `values = row / scale`, rounded to nearest
    even and at most 448 in size. So `values.float() * scales` is near `x`.

    Args:
        x: A tensor of at least one dimension and of any strides, of a dtype out of `FLOATS`.

    Returns:
        values, of the shape of x, in float8_e4m3fn; scales, in float32, of that shape with a last dimension
        of 1. A row with a NaN is NaN. In a row with an infinity that becomes NaN, and what is finite 0.

    Note:
        There is no gradient.
    """
    _require(x)
    n = x.shape[-1]
    values = torch.empty(x.shape, dtype=E4M3, device=x.device)
    if n == 0:
        return values, torch.ones((*x.shape[:-1], 1), dtype=torch.float32, device=x.device)
    scales = torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device)
    rows = x if x.dim() == 2 and x.stride(1) == 1 else x.contiguous().reshape(scales.numel(), n)
    kernel, grid, block, cluster = _choose(rows)
    kernel(rows, values, scales, grid=grid, block=block, cluster=cluster)
    return values, scales


@dotcu.by_layout
def _choose(x: Tensor) -> tuple[dotcu.Kernel, int, int, int | None]:
    """The kernel, grid, block and cluster."""
    way, width = _lying(x)
    rows, pieces = x.shape[0], x.shape[1] // width
    deepest = _at_most(MANY * (VECTOR_BYTES // x.element_size()) // width, MAX_VECTORS)
    blocks, lanes = _sharing(x, rows, pieces, width, deepest)
    vectors = _at_most(dotcu.cdiv(pieces, lanes * blocks), deepest)
    threads = lanes if lanes > WARP else SMALL_BLOCK
    kernel = kernels.quantize_fp8[x.dtype, way, width, vectors, lanes, threads, blocks]
    grid = dotcu.cdiv(rows, threads // lanes) * blocks
    return kernel, grid, threads, blocks if blocks > 1 else None


def _lying(x: Tensor) -> tuple[str, int]:
    """Return how rows lie, beside those of the values, and the elements of their vectors."""
    most, n, row = VECTOR_BYTES // x.element_size(), x.shape[1], x.stride(0)
    width = vector_width(most, (n, row), x)
    if width == most or n * x.element_size() < LEAST_RAGGED_BYTES:
        return ALIGNED, width
    alike = dotcu.is_aligned(x, VECTOR_BYTES) and row % most == n % most
    return ALIKE if alike else APART, most


def _sharing(x: Tensor, rows: int, pieces: int, width: int, deepest: int) -> tuple[int, int]:
    """Blocks of a cluster, and threads of each, for one row of so many pieces."""
    if rows * pieces <= dotcu.sm_count(x) * LARGE_BLOCK:  # few: what counts is how soon one row is done
        if pieces > 2 * LARGE_BLOCK and _has_clusters(x, width):
            fits = pieces <= CLUSTERS[-1] * CLUSTER_LANES * deepest
            return CLUSTERS[-1], CLUSTER_LANES if fits else LARGE_BLOCK
        return 1, _lanes(pieces, 2, 2)
    if pieces > LARGE_BLOCK * deepest and _has_clusters(x, width):
        for blocks in CLUSTERS:
            if pieces <= LARGE_BLOCK * deepest * blocks:
                return blocks, LARGE_BLOCK
        return CLUSTERS[-1], LARGE_BLOCK
    return 1, _lanes(pieces, _at_most(FEW, deepest), deepest)


def _lanes(pieces: int, few: int, many: int) -> int:
    """Threads of a row, a power of two: a line's, and more while they would have too many pieces each."""
    lanes = 1
    while lanes < LARGE_BLOCK and lanes < pieces:
        if lanes >= LINE_LANES and lanes * (few if lanes < WARP else many) >= pieces:
            break
        lanes *= 2
    return lanes


def _has_clusters(x: Tensor, width: int) -> bool:
    """Return True if blocks can share a row: not in the simulator, nor before sm_90."""
    if not x.is_cuda:
        return False
    kernel = kernels.quantize_fp8[x.dtype, ALIGNED, width, MANY, CLUSTER_LANES, CLUSTER_LANES, CLUSTERS[-1]]
    return kernel.occupancy(WARP, SMEM_BYTES) >= 4


def _at_most(number: int, most: int) -> int:
    return number if number < most else most


def _require(x: Tensor) -> None:
    require_dtype("quantize_fp8", x.dtype, FLOATS)
    if x.dim() == 0:
        raise ValueError(
            "quantize_fp8 takes rows, a tensor of at least one dimension (got none).\nType: x.reshape(1)"
        )


@quantize_fp8.fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    _require(x)
    return x.new_empty(x.shape, dtype=E4M3), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)


@quantize_fp8.reference
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if x.shape[-1] == 0:
        return x.to(E4M3), wide.new_ones((*x.shape[:-1], 1), dtype=torch.float32)
    most = wide.abs().amax(-1, keepdim=True)
    scales = most / torch.full_like(most, LARGEST)  # by a Python number CUDA would multiply with its inverse
    scales = torch.where(scales == 0, torch.ones_like(scales), scales)
    return (wide / scales).clamp(-LARGEST, LARGEST).to(E4M3), scales.to(torch.float32)


@quantize_fp8.vmap
def _(info: Any, in_dims: tuple[int | None, ...], x: Tensor) -> Any:
    return quantize_fp8(x.movedim(in_dims[0] or 0, 0)), (0, 0)


@quantize_fp8.work
def _(x: Tensor) -> tuple[int, int]:
    rows = x.numel() // x.shape[-1] if x.numel() else 0
    return x.numel() * (x.element_size() + 1) + rows * 4, 0


@quantize_fp8.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -9, 9)
    yield dotcu.Sample(random(5, 1024))
    yield dotcu.Sample(random(70, 32))
    yield dotcu.Sample(random(3, 7, 100))
    yield dotcu.Sample(random(9, 77))
    yield dotcu.Sample(random(6, 136)[:, 3:131])
    yield dotcu.Sample(random(30, 8).T)
    yield dotcu.Sample(random(2, 9000))
    yield dotcu.Sample(random(1, 66_000))
    yield dotcu.Sample(random(1))
    yield dotcu.Sample(random(4, 0))
    yield dotcu.Sample(random(0, 4))
