"""Clusters, cooperative and programmatic launches, and ranges, by the driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from dotcu.errors import LaunchConfigError
from dotcu.kernel import Module, load_inline, sm_count

pytestmark = pytest.mark.gpu

SOURCE = """
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

// Each block gives its number to the next one of its cluster, through that one's shared memory.
__global__ void pass_on(int* out) {
    extern __shared__ int inbox[];
    cg::cluster_group cluster = cg::this_cluster();
    cluster.sync();
    if (threadIdx.x == 0) {
        unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
        *cluster.map_shared_rank(inbox, next) = blockIdx.x;
    }
    cluster.sync();
    if (threadIdx.x == 0) out[blockIdx.x] = inbox[0];
}
__global__ void __cluster_dims__(2, 1, 1) own_cluster(int* out) {
    if (threadIdx.x == 0) out[blockIdx.x] = cg::this_cluster().num_blocks();
}
__global__ void rounds(float* x, float* y, int n, int times) {
    cg::grid_group grid = cg::this_grid();
    for (int round = 0; round < times; ++round) {
        for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = x[(i + 1) % n] + 1;
        grid.sync();
        float* other = x;
        x = y;
        y = other;
    }
}
__global__ void shift(const float* x, float* out, int n) {
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[(i + 1) % n] + 1;
}
__device__ long long now() {
    long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time) :: "memory");
    return time;
}
__global__ void first(long long* ended, long long busy_ns) {
    cudaTriggerProgrammaticLaunchCompletion();
    long long began = now();
    while (now() - began < busy_ns) {}
    *ended = now();
}
__global__ void second(long long* started) {
    *started = now();
    cudaGridDependencySynchronize();
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters and programmatic launches need compute capability 9.0")
    return load_inline(SOURCE)


@pytest.fixture
def side() -> Iterator[torch.cuda.Stream]:
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        yield stream
    torch.cuda.synchronize()


@pytest.mark.parametrize("size", [1, 2, 8, 16])
def test_blocks_of_a_cluster_reach_each_others_shared_memory(module: Module, size: int) -> None:
    out = torch.full((32,), -1, dtype=torch.int32, device="cuda")
    module.pass_on(out, grid=32, block=64, smem_bytes=64 * 1024, cluster=size)
    blocks = torch.arange(32, dtype=torch.int32)
    expected = blocks.view(-1, size).roll(1, dims=1).flatten()
    assert out.tolist() == expected.tolist()


def test_a_kernels_own_clusters_are_kept_to(module: Module) -> None:
    out = torch.zeros(2 * 4 * 6, dtype=torch.int32, device="cuda")
    module.own_cluster(out, grid=(4, 6, 2), block=32)
    assert out[:4].eq(2).all()
    with pytest.raises(LaunchConfigError, match=r"compiled for __cluster_dims__\(2, 1, 1\)"):
        module.own_cluster(out, grid=8, block=32, cluster=4)
    with pytest.raises(LaunchConfigError, match=r"grid=\(3, 1, 1\) with cluster=\(2, 1, 1\)"):
        module.own_cluster(out, grid=3, block=32)


def test_a_cluster_with_too_much_shared_memory_is_refused_by_its_limit(module: Module) -> None:
    out = torch.zeros(32, dtype=torch.int32, device="cuda")
    most = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
    with pytest.raises(LaunchConfigError, match=f"has {most}.\nPass smem_bytes={most} or less"):
        module.pass_on(out, grid=32, block=64, smem_bytes=most + 16, cluster=16)
    module.pass_on(out, grid=32, block=64, smem_bytes=most, cluster=2)
    assert out[:4].tolist() == [1, 0, 3, 2]


def test_a_grid_as_large_as_the_gpu_holds_synchronizes(module: Module) -> None:
    n, times = 1_000_003, 10
    x, y = torch.randn(n, device="cuda"), torch.zeros(n, device="cuda")
    expected = x.roll(-times)
    for _ in range(times):
        expected = expected + 1
    grid = sm_count(x) * module.rounds.occupancy(512)
    module.rounds(x, y, n, times, grid=grid, block=512, cooperative=True)
    assert torch.equal(x, expected)


def overlap_ns(module: Module, *, programmatic: bool) -> int:
    ended, started = (torch.zeros(1, dtype=torch.int64, device="cuda") for _ in range(2))
    torch.cuda.synchronize()
    module.first(ended, 20_000_000, grid=1, block=1)
    module.second(started, grid=1, block=1, programmatic=programmatic)
    torch.cuda.synchronize()
    return int(ended.item() - started.item())


def test_a_programmatic_launch_starts_before_the_one_before_it_ends(
    module: Module, side: torch.cuda.Stream
) -> None:
    module.warm()
    assert overlap_ns(module, programmatic=False) <= 0
    assert overlap_ns(module, programmatic=True) > 0


def test_a_chain_of_programmatic_launches_can_be_captured_and_replayed(module: Module) -> None:
    module.warm()
    n, times = 300_000, 10
    x, y = torch.zeros(n, device="cuda"), torch.zeros(n, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times // 2):
            module.shift(x, y, n, grid=1172, block=256, programmatic=True)
            module.shift(y, x, n, grid=1172, block=256, programmatic=True)
    start = torch.randn(n, device="cuda")
    x.copy_(start)
    expected = start.roll(-3 * times)
    for _ in range(3):
        graph.replay()
    for _ in range(3 * times):
        expected = expected + 1
    assert torch.equal(x, expected)


def test_torchs_profiler_shows_the_launch_and_the_kernel_under_it(module: Module) -> None:
    x, y = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")
    module.shift(x, y, 1000, grid=4, block=256)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as prof:
        module.shift(x, y, 1000, grid=4, block=256)
        torch.cuda.synchronize()
    counts = {event.key: event.count for event in prof.key_averages()}
    assert counts["shift"] >= 1


def test_under_emit_nvtx_a_launch_runs_in_a_range(module: Module) -> None:
    x, y = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")
    with torch.autograd.profiler.emit_nvtx():
        module.shift(x, y, 1000, grid=4, block=256)
    assert y.eq(1).all()
