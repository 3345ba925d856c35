"""Clusters: launches, addresses of other blocks, barriers, and what is ordered between blocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dotcu
from dotcu.errors import LaunchConfigError, UnsupportedInstruction
from dotcu.simulator import Finding
from dotcu.simulator.machine import state

i32 = torch.int32
HEAD = """
#include <dotcu/cluster.cuh>
using dotcu::cluster_rank, dotcu::cluster_sync, dotcu::shared_of;
__device__ unsigned near(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ unsigned far(const void* p, unsigned to) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(near(p)), "r"(to));
    return there;
}
__device__ void init(const void* barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(near(barrier)), "r"(count) : "memory");
}
__device__ void wait(const void* barrier) {
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;"
                     " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(near(barrier)) : "memory");
}
"""


def run(body: str, *args: Any, head: str = "", seed: int | None = None, **config: Any) -> list[Finding]:
    """Launch a kernel `k(const int* in, int* out)` with a body; what was found."""
    attributes = config.pop("attributes", "")
    text = f"{HEAD}{head}\n__global__ void {attributes} k(const int* in, int* out) {{\n{body}\n}}"
    config = {"grid": 2, "block": 32, "cluster": 2} | config
    if attributes:
        config.pop("cluster")
    with dotcu.simulate(arch="sm_90", on_finding="collect", seed=seed) as simulation:
        dotcu.load_inline(text).k(*args, **config)
    return simulation.findings


def kinds(*args: Any, **config: Any) -> list[str]:
    """The kinds of findings of a launch."""
    return [finding.kind for finding in run(*args, **config)]


def launched(body: str, shape: tuple[int, ...], **config: Any) -> torch.Tensor:
    """What a kernel without a fault writes."""
    out = torch.full(shape, -1, dtype=i32)
    assert run(body, torch.arange(1024, dtype=i32), out, **config) == []
    return out


NEIGHBOUR = """
    __shared__ int box;
    int block = blockIdx.x + gridDim.x * blockIdx.y;
    if (threadIdx.x == 0) box = block;
    cluster_sync();
    int found = *shared_of(&box, cluster_rank() ^ 3);
    if (threadIdx.x == 0) out[block] = found;
    cluster_sync();"""


@pytest.mark.parametrize("given", [{"cluster": (2, 2)}, {"attributes": "__cluster_dims__(2, 2, 1)"}])
def test_blocks_of_a_cluster_are_neighbours_in_each_dimension(given: dict[str, Any]) -> None:
    out = launched(NEIGHBOUR, (4, 6), grid=(6, 4), **given)
    blocks = torch.arange(24, dtype=i32).view(2, 2, 3, 2)
    assert torch.equal(out, blocks.flip(1, 3).view(4, 6))


def test_a_launch_of_several_chunks_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = launched(NEIGHBOUR, (4, 6), grid=(6, 4), cluster=(2, 2))
    monkeypatch.setattr(state, "CLUSTER_CLOCKS", 1)
    assert torch.equal(launched(NEIGHBOUR, (4, 6), grid=(6, 4), cluster=(2, 2)), whole)


@pytest.mark.parametrize("given", [{"cluster": 2}, {"attributes": "__cluster_dims__(2, 1, 1)"}])
def test_a_grid_that_is_no_multiple_of_the_cluster_is_refused(given: dict[str, Any]) -> None:
    out = torch.zeros(3, dtype=i32)
    with pytest.raises(LaunchConfigError, match="is a multiple of the cluster in each dimension"):
        run("out[blockIdx.x] = 1;", out, out, grid=3, **given)


def test_a_cluster_of_more_than_16_blocks_is_refused() -> None:
    out = torch.zeros(32, dtype=i32)
    with pytest.raises(LaunchConfigError, match="a cluster has at most 16"):
        run("out[blockIdx.x] = 1;", out, out, grid=32, cluster=32)


def test_a_finding_names_the_block_by_its_index() -> None:
    out = torch.zeros(4, dtype=i32)
    (finding,) = run("if (blockIdx.y && blockIdx.x == 1) out[4] = 1;", out, out, grid=(2, 2), cluster=(1, 2))
    assert (finding.kind, finding.block, finding.thread) == ("out-of-bounds", (1, 1, 0), (0, 0, 0))


@pytest.mark.parametrize("seed", [None, 0])
def test_reduce_cluster_and_cluster_mail_run_as_they_are(seed: int | None) -> None:
    body = """
    __shared__ int of_block[dotcu::max_cluster];
    __shared__ dotcu::cluster_mail<int, 4> mail;
    mail.open();
    dotcu::cluster_wait();
    int sum = dotcu::reduce_cluster(in[blockIdx.x], of_block, dotcu::plus());
    dotcu::cluster_arrive();
    mail.send(sum + cluster_rank());
    const int* values = mail.get();
    if (threadIdx.x < 4) out[4 * blockIdx.x + threadIdx.x] = values[threadIdx.x];
    cluster_sync();"""
    out = launched(body, (8, 4), grid=8, cluster=4, seed=seed)
    sums = torch.tensor([6, 22], dtype=i32).repeat_interleave(4)[:, None]
    assert torch.equal(out, sums + torch.arange(4, dtype=i32))


def test_a_thread_that_never_arrives_is_a_deadlock_at_the_barrier() -> None:
    body = """
    if (blockIdx.x == 0) cluster_sync();
    else while (atomicAdd(out, 0) == 0) { }"""
    out = torch.zeros(1, dtype=i32)
    (finding,) = run(body, out, out)
    assert finding.kind == "deadlock"
    assert "32 threads" in finding.message
    assert "barrier.cluster.wait" in finding.message


def test_the_barrier_of_a_cluster_orders_global_memory_of_its_blocks_alone() -> None:
    exchange = """
    out[blockIdx.x * 32 + threadIdx.x] = threadIdx.x;
    cluster_sync();
    if (out[(blockIdx.x ^ WHOM) * 32 + threadIdx.x] != threadIdx.x) __trap();"""
    out = torch.zeros(128, dtype=i32)
    assert kinds(exchange.replace("WHOM", "1"), out, out, grid=4) == []
    assert kinds(exchange.replace("WHOM", "2"), out, out, grid=4) == ["race"]


PUSH = """
    __shared__ alignas(8) unsigned long long full;
    __shared__ int box[32];
    int t = threadIdx.x, other = cluster_rank() ^ 1;
    if (t == 0) init(&full, 32);
    cluster_sync();
    *shared_of(box + t, other) = in[t];
    asm volatile("mbarrier.arrive.HOW.shared::cluster.b64 _, [%0];" ::"r"(far(&full, other)) : "memory");
    wait(&full);
    out[32 * blockIdx.x + t] = box[31 - t];
    cluster_sync();"""


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize(
    ("how", "expected"), [("release.cluster", []), ("release.cta", ["race"]), ("relaxed.cluster", ["race"])]
)
def test_an_arrival_at_another_block_releases_at_cluster_scope(
    how: str, expected: list[str], seed: int | None
) -> None:
    x, out = torch.arange(32, dtype=i32), torch.zeros(64, dtype=i32)
    assert kinds(PUSH.replace("HOW", how), x, out, seed=seed) == expected


FLAG = """
    __shared__ int flag, box[32];
    int t = threadIdx.x;
    if (t == 0) flag = 0;
    cluster_sync();
    if (cluster_rank() == 0) {
        *shared_of(box + t, 1) = in[t];
        __syncwarp();
        unsigned there = far(&flag, 1);
        if (t == 0)
            asm volatile("FENCE red.relaxed.cluster.shared::cluster.add.u32 [%0], 1;" ::"r"(there));
    } else {
        unsigned seen = 0;
        while (!seen)
            asm volatile("ld.acquire.cluster.shared::cta.u32 %0, [%1];" : "=r"(seen) : "r"(near(&flag)));
        out[t] = box[31 - t];
    }
    cluster_sync();"""


@pytest.mark.parametrize(
    ("fence", "expected"), [("fence.acq_rel.cluster;", []), ("fence.acq_rel.cta;", ["race"]), ("", ["race"])]
)
def test_a_flag_in_another_block_needs_a_fence_of_the_cluster(fence: str, expected: list[str]) -> None:
    x, out = torch.arange(32, dtype=i32), torch.zeros(32, dtype=i32)
    assert kinds(FLAG.replace("FENCE", fence), x, out) == expected


@pytest.mark.parametrize(
    ("fence", "expected"), [("fence.mbarrier_init.release.cluster;", []), ("", ["race", "race"])]
)
def test_a_relaxed_barrier_orders_the_initialisation_of_mbarriers_behind_its_fence(
    fence: str, expected: list[str]
) -> None:
    body = f"""
    __shared__ alignas(8) unsigned long long full;
    if (threadIdx.x == 0) init(&full, 32);
    asm volatile("{fence}" ::: "memory");
    dotcu::cluster_arrive();
    dotcu::cluster_wait();
    unsigned there = far(&full, cluster_rank() ^ 1);
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
    wait(&full);
    cluster_sync();"""
    out = torch.zeros(1, dtype=i32)
    assert kinds(body, out, out) == expected


def test_what_a_block_reads_of_its_own_needs_only_its_own_barrier() -> None:
    body = """
    __shared__ int tile[64], far_sum;
    int t = threadIdx.x;
    if (t == 0) far_sum = 0;
    cluster_sync();
    for (int i = 0; i < 3; ++i) {
        tile[t] = in[t] + i;
        __syncthreads();
        atomicAdd(shared_of(&far_sum, cluster_rank() ^ 1), tile[63 - t]);
        __syncthreads();
    }
    cluster_sync();
    if (t == 0) out[blockIdx.x] = far_sum;"""
    out = launched(body, (2,), block=64)
    assert out.tolist() == [3 * 2016 + 64 * 3] * 2


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_stores_into_a_block_that_may_have_ended_are_found(seed: int | None) -> None:
    body = """
    __shared__ int box[32];
    cluster_sync();
    if (cluster_rank() == 0) *shared_of(box + threadIdx.x, 1) = in[threadIdx.x];"""
    out = torch.zeros(32, dtype=i32)
    (finding,) = run(body, out, out, seed=seed)
    assert finding.kind == "exited-block"
    assert "cluster.sync()" in finding.message


@pytest.mark.parametrize(
    "text",
    [
        "mbarrier.try_wait.parity.shared::cluster.b64 p, [%0], 0;",
        "mbarrier.arrive.shared::cluster.b64 s, [%0];",
    ],
)
def test_what_no_remote_mbarrier_gives_is_refused_by_name(text: str) -> None:
    body = f"""
    __shared__ unsigned long long full;
    asm volatile("{{ .reg .pred p; .reg .b64 s; {text} }}" ::"r"(near(&full)) : "memory");"""
    out = torch.zeros(1, dtype=i32)
    with pytest.raises(UnsupportedInstruction, match=text.split()[0]):
        run(body, out, out)


def test_an_address_of_the_own_block_has_its_rank_and_is_what_mapa_gives() -> None:
    body = """
    __shared__ alignas(16) int box[32];
    int t = threadIdx.x, rank = cluster_rank();
    box[t] = 100 * rank + t;
    __syncwarp();
    unsigned symbol = near(box), found;
    asm volatile("ld.shared.b32 %0, [%1+4];" : "=r"(found) : "r"(symbol) : "memory");
    if (t == 0) {
        int* o = out + 6 * blockIdx.x;
        o[0] = symbol >> 24;
        o[1] = far(box, rank) == symbol && far(box, 0) + (rank << 24) == symbol;
        o[2] = shared_of(box, rank) == box && __isShared(box) && *shared_of(box, rank) == box[0];
        o[3] = (unsigned long long)box << 32 == (unsigned long long)symbol << 32;
        o[4] = (symbol & 0xffffff) == far(box, 0);
        o[5] = found;
    }
    cluster_sync();"""
    rows = torch.tensor([[rank, 1, 1, 1, 1, 100 * rank + 1] for rank in (0, 1, 2, 3)] * 2, dtype=i32)
    assert torch.equal(launched(body, (8, 6), grid=8, cluster=4), rows)


OWN = """
    __shared__ int box[32];
    box[threadIdx.x] = in[threadIdx.x];
    unsigned at = near(box), found;
    asm volatile("ld.shared::cta.b32 %0, [%1];" : "=r"(found) : "r"(AT) : "memory");
    out[threadIdx.x] = found;
    cluster_sync();"""


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("address", "by_rank"),
    [
        ("at & 0xffffff", ["", "in shared memory of block 0 of the cluster"]),
        ("at - 4", ["`box`[-1]", "`box`[-1]"]),
        ("at + 128", ["`box`[32]", "`box`[32]"]),
    ],
)
def test_an_address_that_is_not_of_the_own_block_is_reported(
    address: str, by_rank: list[str], rank: int
) -> None:
    body = OWN.replace("AT", f"cluster_rank() == {rank} ? {address} : at")
    x, out = torch.arange(32, dtype=i32), torch.zeros(32, dtype=i32)
    found = [f.message for f in run(body, x, out, seed=0) if f.kind == "out-of-bounds"]
    assert len(found) == bool(by_rank[rank])
    assert all(by_rank[rank] in message for message in found)
