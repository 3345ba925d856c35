"""Gluon kernels run in the simulator as they are written; missing barriers and waits are named by line."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

import dotcu

pytest.importorskip("triton", minversion="3.9", reason="Triton 3.9 is not installed")
gluon: Any = pytest.importorskip("triton.experimental.gluon", reason="this Triton has no Gluon")
from triton.experimental.gluon import language as gl  # noqa: E402
from triton.experimental.gluon.language.nvidia.hopper import (  # noqa: E402
    async_copy,
    fence_async_shared,
    mbarrier,
    mma_v2,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor  # noqa: E402

SIDE = 64


def descriptor(tensor: torch.Tensor, block: list[int]) -> Any:
    element = {torch.float16: gl.float16, torch.float32: gl.float32}[tensor.dtype]
    return TensorDescriptor.from_tensor(tensor, block, gl.NVMMASharedLayout.get_default_for(block, element))


@gluon.jit
def transpose(x_ptr, out_ptr, N: gl.constexpr):
    """Two blocked layouts, and a conversion between them."""
    by_row: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    by_column: gl.constexpr = gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1])
    row = gl.arange(0, N, layout=gl.SliceLayout(1, by_row))[:, None]
    column = gl.arange(0, N, layout=gl.SliceLayout(0, by_row))[None, :]
    x = gl.convert_layout(gl.load(x_ptr + row * N + column), by_column)
    row = gl.arange(0, N, layout=gl.SliceLayout(1, by_column))[:, None]
    column = gl.arange(0, N, layout=gl.SliceLayout(0, by_column))[None, :]
    gl.store(out_ptr + column * N + row, x)


@gluon.jit
def row_sums(x_ptr, out_ptr, N: gl.constexpr):
    """A tile in swizzled shared memory, read in another layout, and a reduction."""
    by_row: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    by_column: gl.constexpr = gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1])
    row = gl.arange(0, N, layout=gl.SliceLayout(1, by_row))[:, None]
    column = gl.arange(0, N, layout=gl.SliceLayout(0, by_row))[None, :]
    tile = gl.allocate_shared_memory(gl.float32, [N, N], gl.SwizzledSharedLayout(4, 1, 8, [1, 0]))
    tile.store(gl.load(x_ptr + row * N + column))
    total = gl.sum(tile.load(by_column), axis=1)
    gl.store(out_ptr + gl.arange(0, N, layout=gl.SliceLayout(1, by_column)), total)


@gluon.jit
def copied(x_ptr, out_ptr, n, STAGES: gl.constexpr, BLOCK: gl.constexpr, WAIT: gl.constexpr):
    """A pipeline of cp.async."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    at = gl.arange(0, BLOCK, layout=layout)
    tiles = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    blocks = gl.cdiv(n, BLOCK)
    for block in gl.static_range(STAGES - 1):
        async_copy.async_load(tiles.index(block), x_ptr + block * BLOCK + at, mask=block * BLOCK + at < n)
        async_copy.commit_group()
    for block in range(blocks):
        ahead = block + STAGES - 1
        async_copy.async_load(
            tiles.index(ahead % STAGES), x_ptr + ahead * BLOCK + at, mask=ahead * BLOCK + at < n
        )
        async_copy.commit_group()
        async_copy.wait_group(STAGES - 1 if WAIT else STAGES)
        x = tiles.index(block % STAGES).load(layout)  # race
        gl.store(out_ptr + block * BLOCK + at, x + 1, mask=block * BLOCK + at < n)


@gluon.jit
def tensor_cores(a_ptr, b_ptr, out_ptr, N: gl.constexpr):
    """mma.sync with operands in registers."""
    mma: gl.constexpr = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[2, 2], instr_shape=[16, 8])
    blocked: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    row = gl.arange(0, N, layout=gl.SliceLayout(1, blocked))[:, None]
    column = gl.arange(0, N, layout=gl.SliceLayout(0, blocked))[None, :]
    a = gl.convert_layout(gl.load(a_ptr + row * N + column), gl.DotOperandLayout(0, mma, 2))
    b = gl.convert_layout(gl.load(b_ptr + row * N + column), gl.DotOperandLayout(1, mma, 2))
    out = mma_v2(a, b, gl.zeros([N, N], gl.float32, mma))
    row = gl.arange(0, N, layout=gl.SliceLayout(1, mma))[:, None]
    column = gl.arange(0, N, layout=gl.SliceLayout(0, mma))[None, :]
    gl.store(out_ptr + row * N + column, out)


@gluon.jit
def through_tma(x, out, WAIT: gl.constexpr):
    """A tile by TMA in and out."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    at = gl.program_id(0) * x.block_type.shape[0]
    tile = gl.allocate_shared_memory(x.dtype, x.block_type.shape, x.layout)
    here = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(here, count=1)
    fence_async_shared()
    mbarrier.expect(here, x.block_type.nbytes)
    tma.async_load(x, [at, 0], here, tile)
    if WAIT:
        mbarrier.wait(here, phase=0)
    value = tile.load(layout) + 1  # proxy-fence
    result = gl.allocate_shared_memory(out.dtype, out.block_type.shape, out.layout)
    result.store(value)
    fence_async_shared()
    tma.async_store(out, [at, 0], result)
    tma.store_wait(pendings=0)


@gluon.jit
def warpgroup_product(a, b, out_ptr, K: gl.constexpr, N: gl.constexpr, WAIT: gl.constexpr):
    """wgmma on tiles that TMA brings."""
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16]
    )
    a_tile = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    b_tile = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    here = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(here, count=1)
    fence_async_shared()
    out = gl.zeros([N, N], gl.float32, mma)
    phase = 0
    for k in range(0, K, N):
        mbarrier.expect(here, a.block_type.nbytes + b.block_type.nbytes)
        tma.async_load(a, [0, k], here, a_tile)  # wgmma
        tma.async_load(b, [k, 0], here, b_tile)
        mbarrier.wait(here, phase)
        phase ^= 1
        token = warpgroup_mma(a_tile, b_tile, out, is_async=True)
        out = warpgroup_mma_wait(num_outstanding=0 if WAIT else 1, deps=(token,))
    row = gl.arange(0, N, layout=gl.SliceLayout(1, mma))[:, None]
    column = gl.arange(0, N, layout=gl.SliceLayout(0, mma))[None, :]
    gl.store(out_ptr + row * N + column, out)


@gluon.jit
def producer(x, tiles, full, empty, blocks, WAIT: gl.constexpr):
    for block in range(blocks):
        stage = block % 2
        if WAIT:
            mbarrier.wait(empty.index(stage), (block // 2 & 1) ^ 1)
        mbarrier.expect(full.index(stage), x.block_type.nbytes)
        at = block * x.block_type.shape[0]
        tma.async_load(x, [at, 0], full.index(stage), tiles.index(stage))  # proxy-fence


@gluon.jit
def consumer(out_ptr, tiles, full, empty, blocks, layout: gl.constexpr):
    ROWS: gl.constexpr = tiles.type.shape[1]
    COLUMNS: gl.constexpr = tiles.type.shape[2]
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))[:, None]
    column = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, layout))[None, :]
    for block in range(blocks):
        stage = block % 2
        mbarrier.wait(full.index(stage), block // 2 & 1)
        x = tiles.index(stage).load(layout)
        fence_async_shared()
        mbarrier.arrive(empty.index(stage), count=1)
        gl.store(out_ptr + (block * ROWS + row) * COLUMNS + column, x + 1)


@gluon.jit
def warps_apart(x, out_ptr, blocks, WAIT: gl.constexpr):
    """A warp that loads by TMA, and four that compute, with two tiles between them."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    tiles = gl.allocate_shared_memory(x.dtype, [2] + x.block_type.shape, x.layout)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(2):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (consumer, (out_ptr, tiles, full, empty, blocks, layout)),
            (producer, (x, tiles, full, empty, blocks, WAIT)),
        ],
        [1],
        [24],
    )


@gluon.jit
def reversed_in_place(x_ptr, N: gl.constexpr, BARRIER: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.arange(0, N, layout=layout)
    x = gl.load(x_ptr + N - 1 - at)
    if BARRIER:
        gl.barrier()
    gl.store(x_ptr + at, x)  # race


Results = tuple[torch.Tensor, torch.Tensor]
"""What a kernel has computed, and what it should have."""


def run_transpose() -> Results:
    x, out = torch.rand(SIDE, SIDE), torch.empty(SIDE, SIDE)
    transpose[(1,)](x, out, SIDE)
    return out, x.T


def run_row_sums() -> Results:
    x, out = torch.rand(SIDE, SIDE), torch.empty(SIDE)
    row_sums[(1,)](x, out, SIDE)
    return out, x.sum(1)


def run_copied(*, WAIT: bool = True) -> Results:
    x, out = torch.rand(2000), torch.empty(2000)
    copied[(1,)](x, out, 2000, STAGES=3, BLOCK=512, WAIT=WAIT)
    return out, x + 1


def run_tensor_cores() -> Results:
    a, b = torch.rand(SIDE, SIDE).half(), torch.rand(SIDE, SIDE).half()
    out = torch.empty(SIDE, SIDE)
    tensor_cores[(1,)](a, b, out, SIDE)
    return out, a.float() @ b.float()


def run_through_tma(*, WAIT: bool = True) -> Results:
    x, out = torch.rand(100, 32), torch.empty(100, 32)
    through_tma[(4,)](descriptor(x, [32, 32]), descriptor(out, [32, 32]), WAIT)
    return out, x + 1


def run_warpgroup_product(*, WAIT: bool = True) -> Results:
    a, b = torch.rand(SIDE, 3 * SIDE).half(), torch.rand(3 * SIDE, SIDE).half()
    out, block = torch.empty(SIDE, SIDE), [SIDE, SIDE]
    warpgroup_product[(1,)](descriptor(a, block), descriptor(b, block), out, 3 * SIDE, SIDE, WAIT)
    return out, a.float() @ b.float()


def run_warps_apart(*, WAIT: bool = True) -> Results:
    x, out = torch.rand(160, 32), torch.empty(160, 32)
    warps_apart[(1,)](descriptor(x, [32, 32]), out, 5, WAIT, num_warps=4, maxnreg=128)
    return out, x + 1


def run_reversed_in_place(*, BARRIER: bool = True) -> Results:
    x = torch.rand(512)
    want = x.flip(0)
    reversed_in_place[(1,)](x, 512, BARRIER)
    return x, want


OF_AMPERE = [run_transpose, run_row_sums, run_copied, run_tensor_cores, run_reversed_in_place]
OF_HOPPER = [run_through_tma, run_warpgroup_product, run_warps_apart]


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize(
    ("arch", "launch"),
    [("sm_80", launch) for launch in OF_AMPERE] + [("sm_90", launch) for launch in OF_AMPERE + OF_HOPPER],
)
def test_a_right_kernel_is_right_and_silent(arch: str, launch: Any, seed: int | None) -> None:
    with dotcu.simulate(arch=arch, on_finding="collect", seed=seed) as run:
        got, want = launch()
    assert [str(finding) for finding in run.findings] == []
    assert run.launches
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    ("launch", "lacks", "kernel"),
    [
        (run_copied, "WAIT", copied),
        (run_reversed_in_place, "BARRIER", reversed_in_place),
        (run_through_tma, "WAIT", through_tma),
        (run_warpgroup_product, "WAIT", warpgroup_product),
        (run_warps_apart, "WAIT", producer),
    ],
)
def test_what_a_kernel_lacks_is_found_by_kind_and_line(launch: Any, lacks: str, kernel: Any) -> None:
    lines, first = inspect.getsourcelines(kernel.fn)
    number, line = next(each for each in enumerate(lines) if "  # " in each[1])
    with dotcu.simulate(arch="sm_90", on_finding="collect") as run:
        launch(**{lacks: False})
    found = {(finding.kind, finding.line) for finding in run.findings}
    assert (line.split("  # ")[1].strip(), first + number) in found, [str(each) for each in run.findings]
