"""Launches alone: the kernel and its arguments are ready, and no memory is allocated."""

from __future__ import annotations

import torch
from torch import Tensor

from calls.ours import kernels
from calls.work import BLOCK, BLOCKS, ELEMENTS, KERNELS, Call, Contender, Inputs

DOTCU = "dotcu, bare launch"
CUPY = "CuPy RawKernel, bare launch on raw pointers"


def launch(inputs: Inputs) -> Call:
    """dotcu's launch of four arguments, with all its checks."""
    a, b, out = inputs.a, inputs.b, torch.empty_like(inputs.a)

    def call() -> Tensor:
        kernels.add(a, b, out, ELEMENTS, grid=BLOCKS, block=BLOCK)
        return out

    return call


def cupy(inputs: Inputs) -> Call:
    """cupy.RawKernel on torch's stream, with pointers that were read before; it checks nothing."""
    import cupy

    kernel = cupy.RawKernel(KERNELS.read_text(), "add")
    cupy.cuda.Stream.from_external(torch.cuda.current_stream()).use()
    out = torch.empty_like(inputs.a)
    a, b, to = inputs.a.data_ptr(), inputs.b.data_ptr(), out.data_ptr()
    count = cupy.int32(ELEMENTS)

    def call() -> Tensor:
        kernel((BLOCKS,), (BLOCK,), (a, b, to, count))
        return out

    return call


def compile_kernel(inputs: Inputs) -> Call:
    """torch.cuda._compile_kernel."""
    kernel = torch.cuda._compile_kernel(KERNELS.read_text(), "add")
    a, b, out = inputs.a, inputs.b, torch.empty_like(inputs.a)

    def call() -> Tensor:
        kernel(grid=(BLOCKS, 1, 1), block=(BLOCK, 1, 1), args=[a, b, out, ELEMENTS])
        return out

    return call


CONTENDERS = (
    Contender(name=CUPY, make=cupy, base=CUPY, writes=True),
    Contender(name=DOTCU, make=launch, base=CUPY, writes=True),
    Contender(name="torch.cuda._compile_kernel, bare launch", make=compile_kernel, base=CUPY, writes=True),
)
