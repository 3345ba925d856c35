"""reduce_scatter: each GPU of a group gets its part of the sum of a tensor over them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import dotcu
from dotcu.gallery.all_reduce.op import BLOCK, meeting_blocks, total
from dotcu.gallery.common import FLOATS, VECTOR_BYTES, random_tensors, require_dtype, vector_width

kernels = dotcu.load("kernel.cu")


@dotcu.op("dotcu::reduce_scatter", dtypes=FLOATS, sharding="replicated")
def reduce_scatter(x: Tensor, group_size: int, group_name: str = "") -> Tensor:
    """Add up x over the ranks of a group, and return this rank's part along dimension 0.

    Args:
        x: Symmetric memory, contiguous, of one shape and dtype out of `FLOATS` on all ranks. Its dimension 0
            is a multiple of `group_size`.
        group_size: How many ranks the group has: the result's shape depends on it.
        group_name: The name of a process group; all ranks if empty.
    """
    out: Tensor = _part(x, group_size)
    if x.numel():
        peers, n = dotcu.peers(x, group_name), out.numel()
        if peers.size != group_size:
            raise ValueError(
                f"reduce_scatter got group_size={group_size}, and the group has {peers.size}.\n"
                f"Type: reduce_scatter(x, {peers.size})"
            )
        lanes = vector_width(VECTOR_BYTES // x.element_size(), (n,), x, out)
        kernel = kernels.reduce_scatter[x.dtype, lanes, group_size]
        grid = meeting_blocks(n // lanes, group_size)
        kernel(peers.pointers, peers.signals, peers.rank, out, n, grid=grid, block=BLOCK)
    return out


@reduce_scatter.fake
def _part(x: Tensor, group_size: int, group_name: str = "") -> Tensor:
    require_dtype("reduce_scatter", x.dtype, FLOATS)
    if x.ndim == 0 or group_size < 1 or x.shape[0] % group_size:
        raise ValueError(
            f"reduce_scatter takes a tensor whose dimension 0 the ranks divide (got {tuple(x.shape)} and "
            f"{group_size} ranks).\nPad it, or split it along another dimension"
        )
    return x.new_empty((x.shape[0] // group_size, *x.shape[1:]))


@reduce_scatter.reference
def _(x: Tensor, group_size: int, group_name: str = "") -> Tensor:
    sum, rank = total(x, group_name)
    n = x.shape[0] // group_size
    return sum[rank * n : (rank + 1) * n].to(x.dtype)


@reduce_scatter.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -2, 2)
    for shape in ((24, 33), (24, 128), (24,), (0, 8), (48, 3, 5)):
        yield dotcu.Sample(random(*shape), 1)
