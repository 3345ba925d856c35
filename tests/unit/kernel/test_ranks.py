"""Kernels on several GPUs, in the simulator: ranks that meet, and what is found between them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed import FileStore

import dotcu
from dotcu.errors import ArgumentError, FindingError, SimulationError, UsageError
from dotcu.kernel import ranks

kernels = dotcu.load_inline(r"""
#include <dotcu/peers.cuh>

__global__ void add_up(const float* const* parts, unsigned* const* pads, int rank, int ranks, float* out,
                       int n) {
    dotcu::meet_ranks<0>(pads, rank, ranks);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float sum = 0;
        for (int r = 0; r < ranks; ++r) sum += parts[r][i];
        out[i] = sum;
    }
    dotcu::meet_ranks<1>(pads, rank, ranks);
}

__global__ void two_by_mail(const float* x, unsigned char* const* boxes, int rank, float* out, int n) {
    const dotcu::mail<2> mail(boxes, rank, 64, n);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) mail.send(i, {__float_as_uint(x[i]), 7});
    uint2 data[1][2];
    mail.receive<1>(i, 0, n, data);
    if (i < n) out[i] = __uint_as_float(data[0][1 - rank].x);
    mail.end();
}

__device__ void take(unsigned* word) {  // in no order with anything else
    while (atomicCAS_system(word, 1u, 0u) != 1u) {
    }
}

template <int FENCE>
__global__ void pass_on(int* const* boxes, unsigned* const* pads, int rank, int ranks, int* out) {
    boxes[(rank + 1) % ranks][threadIdx.x] = rank;
    __syncthreads();
    if (threadIdx.x == 0) {
        if (FENCE == 1) __threadfence();
        if (FENCE == 2) __threadfence_system();
        atomicExch_system(pads[(rank + 1) % ranks], 1u);
        take(pads[rank]);
        if (FENCE == 1) __threadfence();
        if (FENCE == 2) __threadfence_system();
    }
    __syncthreads();
    out[threadIdx.x] = boxes[rank][threadIdx.x];
}

__global__ void all_but_the_first(unsigned* const* pads, int* const* boxes, int rank, int ranks) {
    if (rank > 0) dotcu::meet_ranks<0>(pads, rank, ranks);
}

__global__ void of_other_sizes(unsigned* const* pads, int* const* boxes, int rank, int ranks) {
    dotcu::meet_ranks<0>(pads, rank, ranks, 10 + rank);
    dotcu::meet_ranks<1>(pads, rank, ranks, 10 + rank);
}

__global__ void past_the_peer(int* const* boxes, int rank, int ranks) {
    boxes[(rank + 1) % ranks][threadIdx.x + 1] = rank;
}
""")


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_ranks_add_up_what_all_have(ranks: int) -> None:
    inputs = torch.randn(ranks, 70)

    def add_up(rank: int) -> Tensor:
        own = inputs[rank].clone()
        peers, out = dotcu.peers(own), torch.empty(70)
        for _ in range(2):  # the pads are as they were
            kernels.add_up(peers.pointers, peers.signals, rank, peers.size, out, 70, grid=3, block=32)
        return out

    for got in dotcu.simulate_ranks(ranks, add_up):
        torch.testing.assert_close(got, inputs.sum(0))


def test_mail_of_a_call_is_not_taken_for_that_of_another() -> None:
    """The second call sends less than the first, and the third finds letters of the first at its places."""
    lengths = (40, 3, 40, 64)

    def swap(rank: int) -> list[Tensor]:
        work = dotcu.workspace("test::mail", 2 * 32 + 2 * 64 * 16, torch.device("cpu"))
        outs = []
        for call, n in enumerate(lengths):
            x, out = torch.full((n,), 10.0 * call + rank), torch.empty(n)
            kernels.two_by_mail(x, work.pointers, rank, out, n, grid=2, block=32)
            outs.append(out)
        return outs

    for seed in (None, 1):
        for rank, outs in enumerate(dotcu.simulate_ranks(2, swap, seed=seed)):
            for call, out in enumerate(outs):
                assert (out == 10 * call + 1 - rank).all()


def test_a_rank_that_sends_another_size_ends_the_kernel() -> None:
    def swap(rank: int) -> None:
        work = dotcu.workspace("test::sizes", 2 * 32 + 2 * 64 * 16, torch.device("cpu"))
        x, out = torch.ones(4 + rank), torch.empty(4 + rank)
        kernels.two_by_mail(x, work.pointers, rank, out, 4 + rank, grid=2, block=32)

    with pytest.raises(FindingError, match="trap"):
        dotcu.simulate_ranks(2, swap)


def test_all_gather_gives_each_rank_what_all_have_and_its_number() -> None:
    for rank, (tensors, number) in enumerate(
        dotcu.simulate_ranks(3, lambda rank: dotcu.all_gather(torch.full((2,), rank)))
    ):
        assert number == rank
        assert [int(tensor[0]) for tensor in tensors] == [0, 1, 2]
    alone = torch.ones(2)
    (copy,), number = dotcu.all_gather(alone)
    assert (number, copy.tolist()) == (0, [1, 1])
    assert copy is not alone


def test_a_simulated_call_without_ranks_is_the_only_rank() -> None:
    own, out = torch.ones(70), torch.empty(70)
    with dotcu.simulate():
        peers = dotcu.peers(own)
        kernels.add_up(peers.pointers, peers.signals, 0, peers.size, out, 70, grid=3, block=32)
    assert torch.equal(out, own)


def passing(fence: int) -> Callable[[int], Tensor]:
    def pass_on(rank: int) -> Tensor:
        peers, out = dotcu.peers(torch.zeros(32, dtype=torch.int32)), torch.empty(32, dtype=torch.int32)
        kernels.pass_on[fence](peers.pointers, peers.signals, rank, peers.size, out, grid=1, block=32)
        return out

    return pass_on


def test_a_rank_is_in_the_regions_that_its_caller_is_in() -> None:
    def product(rank: int) -> tuple[torch.dtype, bool, bool]:
        x = torch.ones(2, 2)
        return (x @ x).dtype, torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    assert dotcu.simulate_ranks(2, product) == [(torch.float32, True, False)] * 2
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert dotcu.simulate_ranks(2, product) == [(torch.bfloat16, False, False)] * 2
    with torch.inference_mode():
        assert dotcu.simulate_ranks(2, product) == [(torch.float32, False, True)] * 2


def test_a_fence_of_the_system_publishes_to_another_gpu() -> None:
    assert [int(out[0]) for out in dotcu.simulate_ranks(3, passing(2))] == [2, 0, 1]


@pytest.mark.parametrize("fence", [0, 1])
def test_no_fence_or_one_of_the_gpu_is_a_race_with_rank_and_line(fence: int) -> None:
    with pytest.raises(FindingError, match="of different GPUs: publish") as caught:
        dotcu.simulate_ranks(3, passing(fence))
    finding = caught.value.finding
    assert (finding.kind, finding.address_of.partition("[")[0]) == ("race", "boxes")
    assert finding.rank is not None
    assert "out[threadIdx.x] = boxes[rank]" in finding.source
    assert "of rank" in finding.message
    assert f"of block (0,0,0) of rank {finding.rank}" in str(finding)


def test_a_rank_that_does_not_come_is_a_deadlock_that_names_the_others() -> None:
    def wait(rank: int) -> None:
        peers = dotcu.peers(torch.zeros(4, dtype=torch.int32))
        kernels.all_but_the_first(peers.signals, peers.pointers, rank, peers.size, grid=1, block=32)

    with pytest.raises(FindingError, match=r"deadlock: no thread can continue: .* threads of rank 1 at line"):
        dotcu.simulate_ranks(3, wait)


def test_ranks_that_meet_with_other_sizes_end_the_kernel() -> None:
    def meet(rank: int) -> None:
        peers = dotcu.peers(torch.zeros(4, dtype=torch.int32))
        kernels.of_other_sizes(peers.signals, peers.pointers, rank, peers.size, grid=1, block=32)

    with pytest.raises(FindingError, match="trap"):
        dotcu.simulate_ranks(2, meet)


def test_a_write_past_a_peers_tensor_is_out_of_bounds() -> None:
    def write(rank: int) -> None:
        peers = dotcu.peers(torch.zeros(32, dtype=torch.int32))
        kernels.past_the_peer(peers.pointers, rank, peers.size, grid=1, block=32)

    with pytest.raises(FindingError, match="out-of-bounds"):
        dotcu.simulate_ranks(2, write)


def test_seeds_and_collecting_are_those_of_the_simulator() -> None:
    with dotcu.simulate(on_finding="collect", seed=3) as run:
        dotcu.simulate_ranks(2, passing(0))
    assert {finding.kind for finding in run.findings} == {"race"}


def test_a_rank_that_ends_early_is_named_with_what_the_others_wait_for() -> None:
    def leave(rank: int) -> None:
        if rank != 1:
            dotcu.peers(torch.zeros(4))

    with pytest.raises(SimulationError, match="Rank 1 has ended, and rank 0 waits for it"):
        dotcu.simulate_ranks(2, leave)


def test_ranks_that_launch_different_things_are_named() -> None:
    def launch(rank: int) -> None:
        peers = dotcu.peers(torch.zeros(40, dtype=torch.int32))
        kernels.past_the_peer(peers.pointers, rank, peers.size, grid=1 + rank, block=32)

    with pytest.raises(SimulationError, match=r"Rank 0 is at the launch of past_the_peer .* rank 1 at"):
        dotcu.simulate_ranks(2, launch)


def test_tensors_of_different_sizes_are_refused_with_both() -> None:
    with pytest.raises(ArgumentError, match=r"\(4,\).* on rank 0 and .*\(5,\).* on rank 1"):
        dotcu.simulate_ranks(2, lambda rank: dotcu.peers(torch.zeros(4 + rank)))


@pytest.fixture(params=["in memory", "in a file"])
def group(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], Any]:
    """Make the group of two as a rank sees it, with a store that waits for 0.2 s."""
    in_file = request.param == "in a file"
    store: Any = FileStore(str(tmp_path / "store"), 2) if in_file else torch.distributed.HashStore()
    store.set_timeout(timedelta(seconds=0.2))
    known = torch.distributed.distributed_c10d
    monkeypatch.setattr(known, "_get_process_group_store", lambda group: store)
    return lambda rank: SimpleNamespace(rank=lambda: rank, size=lambda: 2)


def together(group: Callable[[int], Any], *texts: str) -> list[str]:
    """Let a rank say each text, and return their errors."""

    def say(rank: int) -> str:
        try:
            ranks.agree(texts[rank], group(rank))
        except ArgumentError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor() as pool:
        return list(pool.map(say, range(len(texts))))


def test_ranks_that_meet_say_the_same_or_fail_alike_with_both(group: Callable[[int], Any]) -> None:
    assert together(group, "(4,)", "(4,)") == ["", ""]
    errors = together(group, "(4,)", "(5,)")
    assert errors[0] == errors[1]
    assert errors[0].startswith("dotcu.peers got (4,) on rank 0 and (5,) on rank 1.")
    assert together(group, "(6,)", "(6,)") == ["", ""]


def test_a_rank_that_passes_what_all_know_is_waited_for_no_longer_than_the_group_says(
    group: Callable[[int], Any],
) -> None:
    with pytest.raises(ArgumentError, match=r"got \(5,\) on rank 1, .* waited \d s for rank 0, which passed"):
        ranks.agree("(5,)", group(1))
    assert together(group, "(6,)", "(6,)") == ["", ""], "the next meeting is not told of that one"


def test_a_time_out_at_the_moment_when_the_last_rank_comes_ends_neither(
    group: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank must not fail while the other passes: they would not meet again."""
    known = torch.distributed.distributed_c10d
    store = known._get_process_group_store(group(0))
    get, came = store.get, list[str]()

    def late(key: str) -> bytes:
        if not came:
            came.append(key)
            ranks.agree("(4,)", group(1))
            raise RuntimeError("wait timeout")
        return get(key)

    late_store = SimpleNamespace(
        get=late, add=store.add, set=store.set, check=store.check, delete_key=store.delete_key
    )
    monkeypatch.setattr(known, "_get_process_group_store", lambda group: late_store)
    ranks.agree("(4,)", group(0))
    assert together(group, "(6,)", "(6,)") == ["", ""]


def test_an_error_of_a_rank_is_raised_and_ends_the_others() -> None:
    def fail(rank: int) -> None:
        if rank == 1:
            raise ValueError("of rank 1")
        dotcu.peers(torch.zeros(4))

    with pytest.raises(ValueError, match="of rank 1"):
        dotcu.simulate_ranks(4, fail)


def test_a_write_to_a_variable_that_each_gpu_has_is_found() -> None:
    counting = dotcu.load_inline("""
        __device__ int count;
        __global__ void counts(int* const* boxes) { count = boxes[0][0]; }
    """)

    def launch(rank: int) -> None:
        counting.counts(dotcu.peers(torch.zeros(4, dtype=torch.int32)).pointers, grid=1, block=1)

    with pytest.raises(FindingError, match=r"`count`\[0\], which is read-only: each GPU has a variable"):
        dotcu.simulate_ranks(2, launch)


def test_what_is_not_to_be_shared_is_refused() -> None:
    with pytest.raises(UsageError, match="simulate_ranks"):
        dotcu.peers(torch.zeros(4))
    with pytest.raises(ArgumentError, match="contiguous"):
        dotcu.simulate_ranks(2, lambda rank: dotcu.peers(torch.zeros(4, 4).T))
    with pytest.raises(UsageError, match="one rank or more"):
        dotcu.simulate_ranks(0, lambda rank: None)
