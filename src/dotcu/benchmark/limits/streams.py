"""How fast memory moves on this GPU: torch's own operations and dotcu's kernels on the same buffers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from dotcu.errors import DotcuError, EnvironmentFault
from dotcu.kernel import Kernel, Module, cdiv, load, sm_count

Time = Callable[[Callable[[], Any]], float]
"""Calls something some times, and gives the median device time of a call in us."""

THREADS = 256
"""Of a block; kernels.cu has the same number."""

VECTOR_BYTES = 16
LOADS = (2, 4, 8)
"""Vectors that a thread of a kernel has on their way at once: which is best hangs on the GPU."""

TILE_BYTES = THREADS * max(LOADS) * VECTOR_BYTES
"""The tiles of all kernels divide this."""

PASSES = 32
"""Over a buffer that fits in L2, in one launch, so that starting it does not count."""


@dataclass(frozen=True, kw_only=True)
class Buffers:
    """Memory to move: three arrays of as many floats, whole tiles, and room for the sums of all blocks.

    Attributes:
        keep: Whether they fit in L2 and are to stay there; else they stream past it.
    """

    a: Tensor
    b: Tensor
    out: Tensor
    sums: Tensor
    keep: bool

    @property
    def nbytes(self) -> int:
        """Of one array."""
        return self.a.numel() * self.a.element_size()

    @property
    def passes(self) -> int:
        """Of a kernel over its arrays, in one launch."""
        return PASSES if self.keep else 1


def make_buffers(nbytes: int, device: torch.device, *, keep: bool) -> Buffers:
    """Buffers of random normal values, each array of about so many bytes, and at least of one tile.

    What values are decides how much power it takes to move them, and so how fast it goes.
    """
    count = max(1, nbytes // TILE_BYTES) * TILE_BYTES // 4
    tiles = 4 * count // (THREADS * min(LOADS) * VECTOR_BYTES)
    a, b, out = (torch.empty(count, device=device).normal_() for _ in range(3))
    sums = torch.empty(max(tiles, 64 * sm_count(a)) * THREADS // 32, device=device)
    return Buffers(a=a, b=b, out=out, sums=sums, keep=keep)


@dataclass(frozen=True, kw_only=True)
class Mix:
    """One mix of reads and writes.

    Attributes:
        arrays: How many arrays are read or written.
        kernel: Its name in kernels.cu.
        arguments: The kernel's, before those that every kernel takes.
        torch: torch's own operations that move the same bytes.
    """

    arrays: int
    kernel: str
    arguments: Callable[[Buffers], tuple[Tensor, ...]]
    torch: tuple[Callable[[Buffers], Any], ...]


MIXES: Mapping[str, Mix] = MappingProxyType(
    {
        "read": Mix(
            arrays=1,
            kernel="stream_read",
            arguments=lambda on: (on.a, on.sums),
            torch=(lambda on: torch.sum(on.a),),
        ),
        "two_to_one": Mix(
            arrays=3,
            kernel="stream_add",
            arguments=lambda on: (on.a, on.b, on.out),
            torch=(lambda on: torch.add(on.a, on.b, out=on.out),),
        ),
        "copy": Mix(
            arrays=2,
            kernel="stream_copy",
            arguments=lambda on: (on.a, on.out),
            torch=(lambda on: on.out.copy_(on.a),),
        ),
        "write": Mix(
            arrays=1,
            kernel="stream_write",
            arguments=lambda on: (on.out,),
            torch=(lambda on: on.out.zero_(), lambda on: on.out.fill_(1.5)),
        ),
    }
)


@functools.cache
def kernels() -> Module:
    """The kernels of this folder; nothing is compiled before one is launched."""
    return load("kernels.cu")


def best_gbps(mix: Mix, on: Buffers, time: Time) -> float:
    """The highest bandwidth that anybody reaches, in 10^9 bytes a second.

    Raises:
        EnvironmentFault: Nobody could run at all.
    """
    reached, failed = [], ""
    for passes, run in contenders(mix, on):
        try:
            run()  # loads its code, which no capture of a graph could
            taken_us = time(run)
        except (DotcuError, RuntimeError) as error:  # without a compiler, say, torch's operations remain
            failed = failed or str(error).splitlines()[0]
            continue
        if taken_us > 0:
            reached.append(passes * mix.arrays * on.nbytes / taken_us / 1e3)
    if reached:
        return max(reached)
    raise EnvironmentFault(
        f"The bandwidth of {on.a.device} cannot be measured: {failed or 'nothing took any time'}\n"
        "It needs a GPU that torch can run its own operations on.\nSee: dotcu doctor"
    )


def contenders(mix: Mix, on: Buffers) -> Iterator[tuple[int, Callable[[], Any]]]:
    """Every way to move a mix's bytes, and how often each moves them."""
    for operation in mix.torch:
        yield 1, functools.partial(operation, on)
    for loads in LOADS:
        for resident in (False, True):
            yield on.passes, functools.partial(launch, mix, on, loads, resident=resident)


def launch(mix: Mix, on: Buffers, loads: int, *, resident: bool) -> None:
    """Run a mix's kernel.

    Args:
        loads: Vectors of a thread at once, out of `LOADS`.
        resident: As many blocks as the GPU holds at once, each of which moves tiles until none is left;
            else a block for each tile.
    """
    kernel: Kernel = kernels().kernels[mix.kernel][loads, not on.keep]
    tiles = cdiv(on.nbytes, THREADS * loads * VECTOR_BYTES)
    most = kernel.occupancy(THREADS) * sm_count(on.a) if resident else tiles
    kernel(*mix.arguments(on), tiles, on.passes, grid=min(tiles, most), block=THREADS)
