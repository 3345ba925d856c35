"""The common part of `rms_norm` and `layer_norm`: threads, vectors and clusters of a row, and checks.

An example that is copied into a project takes this file and `common.py` along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

import dotcu
from dotcu.gallery.common import (
    ALIGNED,
    ALIKE,
    FLOATS,
    LEAST_RAGGED_BYTES,
    VECTOR_BYTES,
    PlannedLaunch,
    has_few_rows,
    require_dtype,
    row_vectors,
    sum_type,
    vector_width,
)

WARP = 32
MAX_COLUMNS = 1 << 30
"""Elements of a row at most: columns are counted in 32 bits."""

MAX_BLOCKS = 8
"""Blocks of a cluster at most, on every GPU that has them."""

SHARED_BYTES = 48 << 10
"""Shared memory of a block; a multiprocessor of sm_90 or sm_100 holds four of them, one of sm_80 three."""

FORWARD_LANES = 512
"""Threads of a block of the forward at most."""

FEW_ROWS_LANES, FEW_ROWS_ELEMENTS = 256, 16
"""Threads of a row at most, and elements of a thread at least, where rows are few: by trials on an H100. The
README of layer_norm tells."""

BACKWARD_COLUMNS = 2048
"""Vectors of a block of the backward."""

PART_COLUMNS, PART_THREADS = 16, 512
ROW_THREADS = 512

BackwardLaunch = tuple[dotcu.Kernel | None, PlannedLaunch, dotcu.Kernel]
"""The kernel of the sums of long rows, the launch of the backward, and the kernel of the sums of parts."""

Way = tuple[int, int, int, bool]
"""Of a backward: vectors of a thread, threads of a row, blocks of a multiprocessor, each of which writes a
part, and whether they sum up the next row before they complete one."""

WARP_WAYS: tuple[Way, ...] = tuple(
    (vectors, lanes, 2, False)
    for vectors, lanes in ((1, 1), (2, 1), (2, 2), (2, 4), (2, 8), (2, 16), (3, 16), (2, 32), (3, 32))
)
"""Those of rows of a warp or less, of which a block of 256 threads has several."""


class Rows(NamedTuple):
    """The shares of threads in a row: vectors of a thread, threads of a block, blocks of a cluster."""

    vectors: int
    lanes: int
    blocks: int


MAX_VECTORS = 8
STEP = 2, 1024
"""Vectors of a thread and threads, of rows that none holds."""


def row_configurations() -> Iterator[Rows]:
    """Yield what a forward can be tuned to; its rule gives one for every row."""
    yield Rows(2, WARP, 1)
    for vectors in range(1, MAX_VECTORS + 1):
        for lanes in (1 << power for power in range(11)):
            yield from (Rows(vectors, lanes, blocks) for blocks in (1, 2, 4, MAX_BLOCKS))


def holds(rows: Rows, dtype: torch.dtype, n: int, count: int) -> bool:
    """Return whether threads hold a row of n elements, and most of them something of it, or take steps."""
    held = math.prod(rows) * (VECTOR_BYTES // dtype.itemsize)
    return n <= held < 2 * max(n, VECTOR_BYTES) or (n > held and rows[:2] == STEP)


def forward_launch(
    kernel: dotcu.Kernel, sum_parts: dotcu.Kernel, x: Tensor, weight: Tensor, way: str, width: int,
    choices: tuple[int, ...], configuration: Callable[..., Rows], *flags: bool,
) -> PlannedLaunch:  # fmt: skip
    """Choose the launch of a forward: the tuned one of such rows, or by a rule.

    Args:
        kernel: The template.
        sum_parts: The template whose occupancy tells the GPU's shared memory.
        way: How the rows lie.
        width: Elements of a vector.
        choices: Vectors of a thread, the best first.
        configuration: The operator's.
        *flags: More arguments of the template.
    """
    n, rows, sums = int(x.shape[-1]), math.prod(x.shape[:-1]), sum_type(x.dtype)
    clusters = _has_clusters(sum_parts, x)
    held = n if way == ALIGNED else n // width * width  # the rest of a row are edges
    blocks = _cluster_blocks(held, FORWARD_LANES * choices[0] * width) if clusters else 1
    vectors, lanes = _split(dotcu.cdiv(held, blocks), width, choices, FORWARD_LANES, way != ALIGNED)
    if way == ALIGNED and width * x.element_size() == VECTOR_BYTES and (clusters or blocks == 1):
        spread = _spread(vectors, lanes, width)
        if spread != (vectors, lanes) and has_few_rows(x, rows):
            vectors, lanes = spread
        tuned = configuration(x.dtype, n, rows, default=(vectors, lanes, blocks))
        if clusters or tuned[2] == 1:
            vectors, lanes, blocks = tuned
    rows_of_block = 128 // lanes if lanes <= WARP else 1
    exact = way == ALIGNED and n == blocks * lanes * vectors * width and bool(rows % rows_of_block == 0)
    instance = (x.dtype, way, weight.dtype, sums, width, vectors, lanes, exact, *flags)
    grid, cluster = (dotcu.cdiv(rows, rows_of_block), blocks), (1, blocks) if blocks > 1 else None
    numbers = rows, n, 1 / max(n, 1)  # the last is the share of an element in the row's mean
    return PlannedLaunch(kernel[instance], numbers, grid, rows_of_block * lanes, 0, cluster)


def forward_rows(rows: tuple[Tensor | None, ...], weights: tuple[Tensor, ...]) -> tuple[str, int]:
    """Return how the rows of a forward lie, and the elements of their vectors.

    Args:
        rows: x, and what else has its shape, if it is given.
        weights: What has the length of a row; loaded one by one where rows begin anywhere.
    """
    given = tuple(tensor for tensor in rows if tensor is not None)
    n = int(given[0].shape[-1])
    way, width = row_vectors(n, *given)
    narrow = vector_width(width, (n,), *given, *weights)
    if way != ALIGNED or narrow == width:
        return way, width
    return (ALIKE, width) if width * given[0].element_size() == VECTOR_BYTES else (ALIGNED, narrow)


def aligned(x: Tensor) -> Tensor:
    """Return x contiguous, beginning at a multiple of 16 bytes: rows of a backward then lie alike."""
    x = x.contiguous()
    return x if dotcu.is_aligned(x, VECTOR_BYTES) else x.clone()


def backward_launch(
    kernels: tuple[dotcu.Kernel, dotcu.Kernel, dotcu.Kernel], x: Tensor, weight: Tensor, width: int,
    ways: tuple[Way, ...], staged: int, most_stages: int, *flags: bool,
) -> BackwardLaunch:  # fmt: skip
    """Choose the launches of a backward.

    Args:
        kernels: The templates `row_sums`, that of the backward, and `sum_parts`.
        width: Elements of a vector that divides the rows and the tensors' addresses; where these are less
            than 16 bytes, rows of some length are read by words of 16 bytes anyhow. All tensors but the
            weight begin at multiples of 16 bytes.
        ways: The shares of threads, for short rows first: the first that holds a row is taken.
        staged: Tensors whose rows are copied to shared memory.
        most_stages: Rows of each in a block's shared memory at most.
        *flags: More arguments of the template, between `anywhere` and `given`.
    """
    row_sums, kernel, sum_parts = kernels
    n, rows, sums = int(x.shape[-1]), math.prod(x.shape[:-1]), sum_type(x.dtype)
    most = VECTOR_BYTES // x.element_size()
    anywhere = width < most and n * x.element_size() >= LEAST_RAGGED_BYTES
    given_width, width = width, most if anywhere else width
    blocks = _cluster_blocks(n, BACKWARD_COLUMNS * width) if _has_clusters(sum_parts, x) else 1
    shared_bytes = SHARED_BYTES * _quarters(sum_parts, sums)
    reach = n + width - 1 if anywhere else n  # from a multiple of 16 bytes before a row
    words = dotcu.cdiv(dotcu.cdiv(reach, blocks), width)
    room = [way for way in ways if staged * way[0] * way[1] * VECTOR_BYTES <= shared_bytes]
    vectors, lanes, most_resident, ahead = next((way for way in room if way[0] * way[1] >= words), room[-1])
    columns = lanes * vectors * width
    given = reach > blocks * columns
    if given:
        blocks = dotcu.cdiv(reach, columns)
    rows_of_block = 256 // lanes if lanes <= WARP else 1
    stage_bytes = staged * rows_of_block * columns * x.element_size()
    if anywhere and not ahead and vectors < 4 and most_resident > 1:
        most_stages = min(most_stages, 2)
    stages = min(most_stages, max(2, shared_bytes // (stage_bytes * most_resident)))
    stages = max(1, min(stages, shared_bytes // stage_bytes))
    in_all = max(0, min((n - (blocks - 1) * columns) // (lanes * width), vectors))
    whole = in_all if rows % rows_of_block == 0 else min(in_all, vectors - 1)
    types: tuple[Any, ...] = (x.dtype, weight.dtype, sums)
    shares = (width, vectors, lanes, most_resident, stages)
    way = (*types, *shares, ahead and stages > 2, whole, anywhere, *flags, given)
    way_of_sums = (*types, given_width, ROW_THREADS)
    chosen = kernel[way]
    chosen_sums = row_sums[way_of_sums] if given else None
    chosen_parts = sum_parts[weight.dtype, sums, PART_COLUMNS, PART_THREADS]
    block, smem_bytes = rows_of_block * lanes, stages * stage_bytes
    # No larger than what runs at once, so that each block sums its rows.
    resident = min(chosen.occupancy(block, smem_bytes), most_resident) * dotcu.sm_count(x)
    # Not every multiprocessor has room in a cluster.
    resident = max(1, (resident * 7 // 8 if blocks > 1 else resident) // blocks)
    # So many rows apart all lie alike, and so must those of a thread.
    alike = most // math.gcd(most, n * rows_of_block) if anywhere else 1
    resident = max(resident // alike, 1) * alike
    row_groups = dotcu.cdiv(rows, rows_of_block)
    rounds = torch.sym_max(dotcu.cdiv(row_groups, resident), 1)
    cluster = (1, blocks) if blocks > 1 and not given else None
    numbers = (rows, n, 1 / max(n, 1))
    grid = (dotcu.cdiv(row_groups, rounds * alike) * alike, blocks)
    return chosen_sums, PlannedLaunch(chosen, numbers, grid, block, smem_bytes, cluster), chosen_parts


def run_backward(
    launch: BackwardLaunch, tensors: tuple[Tensor | None, ...], grad_x: Tensor, grads: tuple[Tensor, ...],
    eps: float,
) -> None:  # fmt: skip
    """Write the gradients: sums of each long row, then parts of each block, then the sums of the parts.

    Args:
        tensors: The gradient by the result, x, its weight, and what else the kernel reads.
        grads: The gradients by the weight and, if there is one, by the bias.
    """
    row_sums, (kernel, (rows, n, share), grid, block, smem_bytes, cluster), sum_parts = launch
    of_rows, sums = None, sum_type(grad_x.dtype)
    if row_sums is not None:
        of_rows = torch.empty((rows, 2 * len(grads)), dtype=sums, device=grad_x.device)
        row_sums(*tensors[:3], of_rows, n, share, eps, grid=rows, block=ROW_THREADS)
    parts = torch.empty((len(grads), grid[0], n), dtype=sums, device=grad_x.device)
    arguments = (*tensors, of_rows, grad_x, parts, rows, n, share, eps)
    kernel(*arguments, grid=grid, block=block, smem_bytes=smem_bytes, cluster=cluster)
    grid_of_parts = (dotcu.cdiv(n, PART_COLUMNS), len(grads))
    sum_parts(parts, *grads, grid[0], n, grid=grid_of_parts, block=PART_THREADS, programmatic=True)


def _split(
    n: int, width: int, choices: tuple[int, ...], most_lanes: int, least: bool = False
) -> tuple[int, int]:
    """Return vectors of a thread and threads of a row, a power of two: without a rest if that can be.

    Args:
        choices: Vectors of a thread, the best first.
        least: Else take the fewest that hold a row, if any do.
    """
    for vectors in choices:
        lanes = n // (vectors * width)
        if lanes * vectors * width == n and 0 < lanes <= most_lanes and lanes & (lanes - 1) == 0:
            return vectors, lanes
    if least and n <= max(choices) * most_lanes * width:
        return _split_least(n, width, choices, most_lanes)
    lanes = 1
    while lanes < 1024 and lanes * 2 * width < n:
        lanes *= 2
    return STEP[0], lanes


def _split_least(n: int, width: int, choices: tuple[int, ...], most_lanes: int) -> tuple[int, int]:
    """Return vectors of a thread and threads of a row: as few as hold it, or all."""
    ways = [
        (vectors, 1 << power)
        for vectors in choices
        for power in range(most_lanes.bit_length())
        if 1 << power >= WARP // 2 or vectors == 1
    ]
    holding = [way for way in ways if way[0] * way[1] * width >= n]
    return min(holding, key=math.prod) if holding else max(ways, key=math.prod)


def _spread(vectors: int, lanes: int, width: int) -> tuple[int, int]:
    """Return fewer vectors of a thread and more threads of a row that has a block: as many in all."""
    while WARP < lanes < FEW_ROWS_LANES and vectors % 2 == 0 and vectors * width > FEW_ROWS_ELEMENTS:
        vectors, lanes = vectors // 2, 2 * lanes
    return vectors, lanes


def _cluster_blocks(n: int, columns: int) -> int:
    """Return the blocks that share a row of n elements, each of which takes `columns`: a power of two."""
    blocks = 1
    while blocks < MAX_BLOCKS and n > blocks * columns:
        blocks *= 2
    return blocks


def _quarters(sum_parts: dotcu.Kernel, sums: torch.dtype) -> int:
    """Return the number of blocks of `SHARED_BYTES` that a multiprocessor holds."""
    return sum_parts[sums, sums, PART_COLUMNS, PART_THREADS].occupancy(WARP, SHARED_BYTES)


def _has_clusters(sum_parts: dotcu.Kernel, x: Tensor) -> bool:
    """Return True if the GPU has clusters: with so much shared memory it does. The simulator has none."""
    return x.is_cuda and _quarters(sum_parts, sum_type(x.dtype)) >= 4


def require_rows(name: str, x: Tensor, weight: Tensor, example: str) -> None:
    """Raise for rows that a norm does not take; `example` is a call that is right."""
    require_dtype(name, x.dtype, FLOATS)
    if weight.dtype != x.dtype and (weight.dtype != torch.float32 or x.dtype == torch.float64):
        raise TypeError(
            f"{name} takes a weight of x's dtype {x.dtype}, or for half types of float32 "
            f"(got {weight.dtype}).\n"
            "Convert it first: weight.to(x.dtype)"
        )
    if x.dim() == 0 or weight.dim() != 1 or weight.shape[0] != x.shape[-1]:
        raise ValueError(
            f"{name} takes x with at least one dimension, and a weight for each element of the last one "
            f"(got shapes {tuple(x.shape)} and {tuple(weight.shape)}).\n"
            f"Type: {example}"
        )
    if x.shape[-1] > MAX_COLUMNS:
        raise ValueError(
            f"{name} takes rows of at most {MAX_COLUMNS} elements (got {x.shape[-1]}).\n"
            f"Compute it by torch's operators: torch.nn.functional.{name}"
        )


def require_like(name: str, x: Tensor, other: Tensor, argument: str) -> None:
    """Raise for a tensor of another shape or dtype than x; `argument` is its name."""
    if other.dtype != x.dtype or other.shape != x.shape:
        raise ValueError(
            f"{name} takes {argument} of shape {tuple(x.shape)} and dtype {x.dtype} "
            f"(got {tuple(other.shape)} and {other.dtype}).\n"
            f"Make it so: {argument}.to({x.dtype}), in that shape"
        )
