"""The common part of `rms_norm` and `layer_norm`: threads, vectors and clusters of a row, and checks.

An example that is copied into a project takes this file and `common.py` along.
"""

from __future__ import annotations

import torch
from torch import Tensor

import dotcu
from dotcu.gallery.common import FLOATS, VECTOR_BYTES, require_dtype

WARP = 32
MOST_COLUMNS = 1 << 30
"""Elements of a row at most: columns are counted in 32 bits."""

MOST_BLOCKS = 8
"""Blocks of a cluster at most, on every GPU that has them."""

SHARED_BYTES = 48 << 10
"""Shared memory of a block; a multiprocessor of sm_90 or sm_100 holds four of them, one of sm_80 three."""

PART_COLUMNS, PART_THREADS = 16, 512
ROW_THREADS = 512

Numbers = tuple[int, int, float]
"""Rows, elements of a row, and the share that each has in the row's mean."""

Pair = tuple[int, int]
ForwardLaunch = tuple[dotcu.Kernel, Numbers, Pair, int, Pair | None]
"""The kernel, its numbers, grid, block and cluster."""

BackwardLaunch = tuple[
    tuple[dotcu.Kernel | None, dotcu.Kernel, dotcu.Kernel], Numbers, Pair, int, int, Pair | None
]
"""The three kernels, and of the second one numbers, grid, block, shared memory and cluster."""


def vector_width(n: int, x: Tensor, weight: Tensor, *others: Tensor | None) -> int:
    """Return the elements of a vector: 16 bytes of them, or fewer where rows or tensors begin elsewhere.

    Args:
        n: Elements of a row.
        x: The rows.
        weight: Their weight.
        *others: More tensors of rows; None for one that is left out.
    """
    width = VECTOR_BYTES // x.element_size()
    while width > 1 and not (n % width == 0 and _all_aligned(width, x, weight, *others)):
        width //= 2
    return width


def _all_aligned(width: int, *tensors: Tensor | None) -> bool:
    return all(
        tensor is None or dotcu.is_aligned(tensor, min(VECTOR_BYTES, width * tensor.element_size()))
        for tensor in tensors
    )


def split(n: int, width: int, choices: tuple[int, ...], most_lanes: int) -> tuple[int, int]:
    """Return vectors of a thread and threads of a row, a power of two: without a rest if that can be.

    Args:
        n: Elements of a row.
        width: Elements of a vector.
        choices: Vectors of a thread, the best first.
        most_lanes: Threads of a row at most.
    """
    for vectors in choices:
        lanes = n // (vectors * width)
        if lanes * vectors * width == n and 0 < lanes <= most_lanes and lanes & (lanes - 1) == 0:
            return vectors, lanes
    lanes = 1
    while lanes < 1024 and lanes * 2 * width < n:
        lanes *= 2
    return 2, lanes


def cluster_blocks(n: int, columns: int) -> int:
    """Return the blocks that share a row of n elements, each of which takes `columns`: a power of two."""
    blocks = 1
    while blocks < MOST_BLOCKS and n > blocks * columns:
        blocks *= 2
    return blocks


def resident_grid(
    kernel: dotcu.Kernel, x: Tensor, rows: int, blocks: int, launch: Pair, most_resident: int
) -> Pair:
    """Return the grid of the backward: no larger than what runs at once, so that each block sums its rows.

    Args:
        kernel: The kernel.
        x: The tensor whose GPU runs it.
        rows: Rows, or groups of rows that a block takes at a time.
        blocks: Blocks that share a row.
        launch: Threads of a block, and its shared memory in bytes.
        most_resident: Blocks of a multiprocessor at most, each of which writes a part.
    """
    resident = min(kernel.occupancy(*launch), most_resident) * dotcu.sm_count(x)
    # Not every multiprocessor has room in a cluster.
    resident = max(1, (resident * 7 // 8 if blocks > 1 else resident) // blocks)
    rounds = dotcu.cdiv(rows, resident)
    return dotcu.cdiv(rows, torch.sym_max(rounds, 1)), blocks


def require_rows(name: str, x: Tensor, weight: Tensor, example: str) -> None:
    """Raise for rows that a norm does not take.

    Args:
        name: The operator, for the messages.
        x: Its rows.
        weight: Their weight.
        example: A call that is right.
    """
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
    if x.shape[-1] > MOST_COLUMNS:
        raise ValueError(
            f"{name} takes rows of at most {MOST_COLUMNS} elements (got {x.shape[-1]}).\n"
            f"Compute it by torch's operators: torch.nn.functional.{name}"
        )


def require_like(name: str, x: Tensor, other: Tensor, argument: str) -> None:
    """Raise for a tensor of another shape or dtype than x.

    Args:
        name: The operator, for the message.
        x: The tensor to compare with.
        other: The argument.
        argument: Its name.
    """
    if other.dtype != x.dtype or other.shape != x.shape:
        raise ValueError(
            f"{name} takes {argument} of shape {tuple(x.shape)} and dtype {x.dtype} "
            f"(got {tuple(other.shape)} and {other.dtype}).\n"
            f"Make it so: {argument}.to({x.dtype}), in that shape"
        )
