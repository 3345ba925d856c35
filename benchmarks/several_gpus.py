"""How fast are sums over GPUs by their peers' memory, beside NCCL? On every GPU of this machine.

    python benchmarks/several_gpus.py [--check]

With --check it compares only, in CUDA graphs too, and times nothing.
Each size is first compared with NCCL's result, then timed in a CUDA graph of 20 calls, alternating, as the
median of 20 replays. Bus bandwidth is bytes * 2 (ranks - 1) / ranks over the time. Multicast is off for both.

Exit codes: 0 done, 1 a result is wrong, 3 there are fewer than two GPUs.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

import dotcu

kernels = dotcu.load(Path(__file__).parent / "all_reduce.cu")

BLOCK = 512
MOST_BLOCKS = 64
SIGNALS = 512
"""Words of a signal pad, of which a block takes one for each rank."""

SIZES = tuple(2**power for power in (13, 15, 17, 19, 21, 23, 26, 28))
"""Bytes."""

CALLS, REPLAYS = 20, 20


def blocks(vectors: int, ranks: int) -> int:
    """Return how many blocks share so many vectors: no more than the signal pads have words for."""
    return max(1, min(dotcu.cdiv(vectors, BLOCK), MOST_BLOCKS, SIGNALS // ranks))


def one_shot(x: Tensor, out: Tensor) -> Tensor:
    """Write the sum of every rank's x into `out`. x is symmetric memory, a multiple of 16 bytes."""
    peers, lanes, n = dotcu.peers(x), 16 // x.element_size(), x.numel()
    kernel = kernels.one_shot[x.dtype, lanes, peers.size]
    grid = blocks(n // lanes, peers.size)
    kernel(peers.pointers, peers.signals, peers.rank, out, n, grid=grid, block=BLOCK)
    return out


def two_shots(x: Tensor) -> Tensor:
    """Put the sum of every rank's x in its place. x is symmetric memory, a multiple of 16 bytes."""
    peers, lanes, n = dotcu.peers(x), 16 // x.element_size(), x.numel()
    kernel = kernels.two_shots[x.dtype, lanes, peers.size]
    grid = blocks(dotcu.cdiv(n // lanes, peers.size), peers.size)
    kernel(peers.pointers, peers.signals, peers.rank, n, grid=grid, block=BLOCK)
    return x


def captured(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Return a graph of some calls, all of which every rank captures."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph


def times_us(graphs: dict[str, torch.cuda.CUDAGraph]) -> dict[str, float]:
    """Return the median microseconds of a call in each graph; the graphs take turns."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(REPLAYS):
        for name, graph in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            dist.barrier()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) * 1e3 / CALLS)
    return {name: statistics.median(each) for name, each in times.items()}


def measure(rank: int, size: int, check: bool) -> bool:
    """Compare one size, and time it unless it is only a check; return whether all results are right."""
    from torch.distributed import _symmetric_memory as symmetric

    device, n = torch.device("cuda", rank), size // 2
    torch.manual_seed(rank)
    x = symmetric.empty(n, dtype=torch.bfloat16, device=device)
    x.copy_(torch.randn(n, device=device))
    kept, out = x.clone(), torch.empty(n, dtype=x.dtype, device=device)
    expected = kept.float()
    dist.all_reduce(expected)
    right = {"one shot": one_shot(x, out).clone(), "two shots": two_shots(x).clone()}
    wrong = [name for name, got in right.items() if (got.float() - expected).abs().max() > 0.1]
    if wrong:
        print(f"rank {rank}: {size} bytes: wrong: {wrong}", flush=True)
        return False
    if check:
        graph = captured(lambda: one_shot(x.copy_(kept), out.zero_()))
        out.zero_()
        graph.replay()
        if (out.float() - expected).abs().max() > 0.1:
            print(f"rank {rank}: {size} bytes: wrong: one shot in a graph", flush=True)
            return False
        return True
    x.zero_()
    nccl = torch.zeros_like(out)
    graphs = {
        "NCCL": captured(lambda: dist.all_reduce(nccl)),
        "one shot": captured(lambda: one_shot(x, out)),
        "two shots": captured(lambda: two_shots(x)),
    }
    times = times_us(graphs)
    if rank == 0:
        ranks = dist.get_world_size()
        moved = size * 2 * (ranks - 1) / ranks
        row = "  ".join(f"{name} {us:8.1f} us {moved / us / 1e3:6.1f} GB/s" for name, us in times.items())
        best = min(times["one shot"], times["two shots"])
        print(f"{size:>10} bytes  {row}  best/NCCL {best / times['NCCL']:.2f}", flush=True)
    return True


def run(rank: int, ranks: int, check: bool) -> None:
    """Measure every size as one rank."""
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29571", rank=rank, world_size=ranks)
    try:
        right = [measure(rank, size, check) for size in SIZES]
    finally:
        dist.destroy_process_group()
    if not all(right):
        sys.exit(1)


def main() -> int:
    """Start a process for each GPU."""
    ranks = torch.cuda.device_count()
    if ranks < 2:
        print("there are fewer than two GPUs here")
        return 3
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    print(f"{ranks} x {torch.cuda.get_device_name(0)}, torch {torch.__version__}, bfloat16", flush=True)
    torch.multiprocessing.spawn(run, args=(ranks, "--check" in sys.argv), nprocs=ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
