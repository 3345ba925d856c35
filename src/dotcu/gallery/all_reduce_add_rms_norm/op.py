"""all_reduce_add_rms_norm: a sum over GPUs, a residual and the norm of what follows, in one kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

import dotcu
from dotcu.gallery import norms
from dotcu.gallery.all_reduce.op import LETTER, MAIL_BLOCKS, MAIL_BYTES, mailboxes, total
from dotcu.gallery.common import FLOATS, random_tensors, vector_width

kernels = dotcu.load("kernel.cu")

THREADS = 512

LETTERS = (1, 2, 4, 8, 16, 32)
"""Letters that a thread holds, at most."""


@dotcu.op("dotcu::all_reduce_add_rms_norm", dtypes=FLOATS, sharding="replicated")
def all_reduce_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, group_name: str = ""
) -> tuple[Tensor, Tensor]:
    """Add up x over the ranks of a group and a residual, then normalize: (rms_norm(sum, weight, eps), sum).

    Args:
        x: A tensor of one shape and dtype out of `FLOATS` on all ranks, of `MAIL_BYTES` at most; its last
            dimension is the rows.
        residual: Of x's shape and dtype, the same on all ranks, as is the weight.
        weight: As many elements as a row, of x's dtype; for half types float32 too.
        eps: Added to the mean.
        group_name: The name of a process group; all ranks if empty.
    """
    out, sum = _results(x, residual, weight)
    if x.numel():
        x, residual, weight = x.contiguous(), residual.contiguous(), weight.contiguous()
        n, size = int(x.shape[-1]), x.element_size()
        whole = vector_width(LETTER // size, (n,), x, residual, out, sum, weight) * size == LETTER
        most = dotcu.cdiv(dotcu.cdiv(n * size, LETTER), THREADS)
        letters = next(count for count in LETTERS if count >= most)
        peers, places = mailboxes("dotcu::all_reduce_add_rms_norm", x.device, group_name)
        kernels.all_reduce_add_rms_norm[x.dtype, weight.dtype, peers.size, letters, THREADS](
            x, peers.pointers, peers.rank, residual, weight, sum, out, x.numel() // n, n, eps, places, whole,
            grid=MAIL_BLOCKS, block=THREADS,
        )  # fmt: skip
    return out, sum


@all_reduce_add_rms_norm.fake
def _results(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, group_name: str = ""
) -> tuple[Tensor, Tensor]:
    norms.require_rows(
        "all_reduce_add_rms_norm", x, weight, "all_reduce_add_rms_norm(x, x, torch.ones_like(x[0]))"
    )
    norms.require_like("all_reduce_add_rms_norm", x, residual, "residual")
    of_row = dotcu.cdiv(x.shape[-1] * x.element_size(), LETTER)
    if of_row > LETTERS[-1] * THREADS or of_row * math.prod(x.shape[:-1]) > MAIL_BYTES // LETTER:
        raise ValueError(
            f"all_reduce_add_rms_norm takes {MAIL_BYTES} bytes, rows of {LETTERS[-1] * THREADS * LETTER}, at "
            f"most (got {tuple(x.shape)}, {x.dtype}).\n"
            "Use all_reduce_ and add_rms_norm: the link bounds larger sums"
        )
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    return out, torch.empty_like(out)


@all_reduce_add_rms_norm.reference
def _(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, group_name: str = ""
) -> tuple[Tensor, Tensor]:
    sum = (total(x, group_name)[0] + residual).to(x.dtype)
    wide = torch.promote_types(x.dtype, weight.dtype)
    normed = torch.nn.functional.rms_norm(sum.to(wide), x.shape[-1:], weight.to(wide), eps)
    return normed.to(x.dtype), sum


@all_reduce_add_rms_norm.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -2, 2)
    for shape in ((6, 256), (3, 2500), (2, 3, 77), (0, 8), (200, 4)):
        yield dotcu.Sample(random(*shape), random(*shape), random(shape[-1]), 1e-5)
    transposed = random(40, 9).t()
    yield dotcu.Sample(transposed, transposed, random(40))
    wide = torch.promote_types(dtype, torch.float32)
    yield dotcu.Sample(random(2, 130), random(2, 130), random(130, dtype=wide))
