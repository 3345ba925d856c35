"""all_reduce: the sum of a tensor over the GPUs of a group, by mail or by each other's memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.gallery.common import FLOATS, VECTOR_BYTES, random_tensors, require_dtype, vector_width

kernels = dotcu.load("kernel.cu")

BLOCK = 512

MAIL_BLOCKS, MAIL_HEAD = 128, 32
"""The grid of every kernel on a workspace, and the bytes of its head for each block and rank."""

LETTER, PLACE, CALLS = 8, 16, 2
"""Bytes of a tensor in a letter; bytes of the letter; calls that a workspace has places for."""

MAIL_BYTES = 2**20
"""The bytes of a tensor up to which it goes by mail."""

COPY_BYTES = 2**23
"""The bytes of each rank's copies for a pair of ranks, where x is in no symmetric memory."""

SIGNALS = 512
"""Words of a signal pad, of which a block takes two for each rank."""

MEETING_BLOCKS = 64


@dotcu.op("dotcu::all_reduce", dtypes=FLOATS, sharding="replicated")
def all_reduce(x: Tensor, group_name: str = "", symmetric: bool = True) -> Tensor:
    """Add up x over the ranks of a group. Every rank gets the same bits.

    Args:
        x: A tensor of one shape and dtype out of `FLOATS` on all ranks.
        group_name: The name of a process group; all ranks if empty.
        symmetric: Whether x is symmetric memory, if it has more than `MAIL_BYTES`. Any other is copied.
    """
    require_dtype("all_reduce", x.dtype, FLOATS)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel() and x.nbytes <= MAIL_BYTES:
        x = x.contiguous()
        peers, places = mailboxes("dotcu::all_reduce", x.device, group_name)
        whole = vector_width(LETTER // x.element_size(), (x.numel(),), x, out) * x.element_size() == LETTER
        kernel = kernels.all_reduce[x.dtype, peers.size]
        kernel(x, peers.pointers, peers.rank, out, x.numel(), places, whole, grid=MAIL_BLOCKS, block=BLOCK)
    elif x.numel() and symmetric:
        peers, lanes = (
            dotcu.peers(x, group_name),
            vector_width(VECTOR_BYTES // x.element_size(), (x.numel(),), x),
        )
        grid = meeting_blocks(x.numel() // lanes, peers.size)
        kernel = kernels.one_shot[x.dtype, lanes, peers.size]
        kernel(peers.pointers, peers.signals, peers.rank, out, x.numel(), grid=grid, block=BLOCK)
    elif x.numel():
        x = x.contiguous()
        if not dotcu.is_aligned(x, VECTOR_BYTES):  # ranks share the vectors alike
            x = x.clone()
        peers = dotcu.workspace("dotcu::all_reduce, copies", COPY_BYTES, x.device, group_name)
        lanes = vector_width(VECTOR_BYTES // x.element_size(), (x.numel(),))
        vectors, room = x.numel() // lanes, COPY_BYTES * peers.size // (lanes * x.element_size())
        kernel = kernels.by_copies[x.dtype, lanes, peers.size]
        kernel(
            x, peers.pointers, peers.signals, peers.rank, out, x.numel(), room,
            grid=meeting_blocks(min(vectors, room), peers.size), block=BLOCK,
        )  # fmt: skip
    return out


@dotcu.op("dotcu::all_reduce_", dtypes=FLOATS, sharding="replicated", mutates_args=("x",))
def all_reduce_(x: Tensor, group_name: str = "") -> None:
    """Put the sum of x over the ranks of a group in the place of x.

    Args:
        x: Symmetric memory, contiguous, of one shape and dtype out of `FLOATS` on all ranks.
        group_name: As for `all_reduce`.
    """
    require_dtype("all_reduce_", x.dtype, FLOATS)
    if x.numel():
        peers, lanes = (
            dotcu.peers(x, group_name),
            vector_width(VECTOR_BYTES // x.element_size(), (x.numel(),), x),
        )
        grid = meeting_blocks(dotcu.cdiv(x.numel() // lanes, peers.size), peers.size)
        kernel = kernels.two_shots[x.dtype, lanes, peers.size]
        kernel(peers.pointers, peers.signals, peers.rank, x.numel(), grid=grid, block=BLOCK)


def mailboxes(name: str, device: torch.device, group_name: str) -> tuple[Any, int]:
    """Return the workspace of an operator that sends mail, and its places; all its kernels have one grid.

    Args:
        name: The operator.
        device: Of this rank.
        group_name: As for `all_reduce`.
    """
    places = MAIL_BYTES // LETTER
    return dotcu.workspace(name, MAIL_BLOCKS * MAIL_HEAD + CALLS * places * PLACE, device, group_name), places


def meeting_blocks(vectors: int, ranks: int) -> int:
    """Return how many blocks share so many vectors: no more than the signal pads have words for."""
    return max(1, min(dotcu.cdiv(vectors, BLOCK), MEETING_BLOCKS, SIGNALS // (2 * ranks)))


@all_reduce.fake
def _(x: Tensor, group_name: str = "", symmetric: bool = True) -> Tensor:
    require_dtype("all_reduce", x.dtype, FLOATS)
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@all_reduce_.fake
def _(x: Tensor, group_name: str = "") -> None:
    require_dtype("all_reduce_", x.dtype, FLOATS)


@all_reduce.reference
def _(x: Tensor, group_name: str = "", symmetric: bool = True) -> Tensor:
    return total(x, group_name)[0].to(x.dtype)


@all_reduce_.reference
def _(x: Tensor, group_name: str = "") -> None:
    x.copy_(total(x, group_name)[0])


def total(x: Tensor, group_name: str) -> tuple[Tensor, int]:
    """Return the sum of x over the ranks, float32 for half types, and which rank this is: for references."""
    tensors, rank = dotcu.all_gather(x, group_name)
    wide = torch.promote_types(x.dtype, torch.float32)
    return torch.stack(tensors).to(wide).sum(0), rank


@all_reduce.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.group_name = inputs[1]


@all_reduce.backward
def _(ctx: Any, grad: Tensor) -> Any:
    return all_reduce(grad, ctx.group_name, False), None, None  # autograd allocates no symmetric memory


@all_reduce.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -2, 2)
    for shape in ((3, 257), (4, 1024), (), (0, 8)):
        yield dotcu.Sample(random(*shape))
    yield dotcu.Sample(random(7, 9).t())
    yield dotcu.Sample(random(130)[1:])


@all_reduce_.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for shape in ((3, 257), (4, 1024), (1,), (0, 8), (64, 10)):
        yield dotcu.Sample(random_tensors(device, dtype, -2, 2)(*shape))
