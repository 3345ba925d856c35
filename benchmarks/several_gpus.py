"""How fast are the gallery's operators over GPUs, beside NCCL? On every GPU of this machine.

    python benchmarks/several_gpus.py [--check] [--save FILE]
    python benchmarks/several_gpus.py --dtensor

Each case is first compared with NCCL's result, in CUDA graphs too, then timed in a graph of 20 calls,
alternating, as the median of 20 replays. Bus bandwidth is the bytes that must leave a GPU over the time; its
limit is a copy to the next GPU by all at once. Multicast is off for both.
With --check nothing is timed. With --dtensor it is the host time that a call on DTensors takes beyond one on
tensors, of an operator of dotcu and of one of torch.library that does the same, with the Python calls that it
makes: one rank, the least of many.

Exit codes: 0 done, 1 a result is wrong, 3 there are fewer than two GPUs.
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric

from calls.host import machine, processor
from dotcu import gallery

CALLS, REPLAYS = 20, 20
SIZES = tuple(2**power for power in (13, 15, 17, 19, 20, 21, 23, 26, 28))
"""Bytes of bfloat16."""

NORMED = ((1, 8192), (64, 8192))
WAIT = timedelta(seconds=20)
DOTCU = Path(gallery.__file__).parents[1]

Call = Callable[[], object]


def graph_of(call: Call) -> torch.cuda.CUDAGraph:
    """Return a graph of some calls, which every rank captures alike."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph


def times_us(calls: dict[str, Call]) -> dict[str, float]:
    """Return the median microseconds of each call, which take turns."""
    graphs = {name: graph_of(call) for name, call in calls.items()}
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


def wrong(name: str, call: Callable[[], Tensor], expected: Tensor) -> list[str]:
    """Return what differs of a call and of one in a graph: their names."""
    found = [] if close(call(), expected) else [name]
    results: list[Tensor] = []
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results += [call(), call()]
    for _ in range(2):
        for result in results:
            result.zero_()
        graph.replay()
    return found if all(close(each, expected) for each in results) else [*found, f"{name} in a graph"]


def close(got: Tensor, expected: Tensor) -> bool:
    """Compare in float32, with a few places of bfloat16 for what was rounded between."""
    return bool(((got.float() - expected).abs() <= 0.02 * (1 + expected.abs())).all())


class Rank:
    """What one rank measures: rows of name, bytes that leave a GPU, and microseconds."""

    def __init__(self, number: int, ranks: int, *, check: bool) -> None:
        self.device, self.ranks, self.check = torch.device("cuda", number), ranks, check
        self.rows: list[dict[str, Any]] = []
        self.wrong: list[str] = []

    def random(self, *shape: int) -> Tensor:
        """Return bfloat16 in symmetric memory, other values on each rank."""
        x = symmetric.empty(shape, dtype=torch.bfloat16, device=self.device)
        return x.copy_(torch.randn(shape, device=self.device))

    def record(self, case: str, moved: float, calls: dict[str, Call]) -> None:
        """Time some calls, and print them."""
        if self.check:
            return
        row = {"case": case, "bytes": moved, "us": times_us(calls)}
        self.rows.append(row)
        if self.device.index == 0:
            told = (f"{name} {us:.2f} us {moved / us / 1e3:.0f} GB/s" for name, us in row["us"].items())
            print(f"{case}: {'; '.join(told)}", flush=True)

    def all_reduce(self, size: int) -> None:
        """Compare and time sums of so many bytes."""
        x = self.random(size // 2)
        kept, expected = x.clone(), x.float()
        dist.all_reduce(expected)
        self.wrong += wrong(f"all_reduce {size}", lambda: gallery.all_reduce(x), expected)
        self.wrong += wrong(f"all_reduce_ {size}", lambda: self.in_place(x.copy_(kept)), expected)
        x.zero_()
        nccl = torch.zeros_like(kept)
        calls: dict[str, Call] = {
            "NCCL": lambda: dist.all_reduce(nccl),
            "all_reduce": lambda: gallery.all_reduce(x),
            "all_reduce_": lambda: gallery.all_reduce_(x),
        }
        self.record(f"all_reduce {size}", size * 2 * (self.ranks - 1) / self.ranks, calls)

    def in_place(self, x: Tensor) -> Tensor:
        """Return a copy of x after the call."""
        gallery.all_reduce_(x)
        return x.clone()

    def reduce_scatter(self, size: int) -> None:
        """Compare and time the parts of sums of so many bytes."""
        x = self.random(size // 2)
        expected, out = x.float(), torch.empty(size // 2 // self.ranks, dtype=x.dtype, device=x.device)
        dist.all_reduce(expected)
        part = expected.chunk(self.ranks)[self.device.index]
        self.wrong += wrong(f"reduce_scatter {size}", lambda: gallery.reduce_scatter(x, self.ranks), part)
        calls: dict[str, Call] = {
            "NCCL": lambda: dist.reduce_scatter_tensor(out, x),
            "reduce_scatter": lambda: gallery.reduce_scatter(x, self.ranks),
        }
        self.record(f"reduce_scatter {size}", size * (self.ranks - 1) / self.ranks, calls)

    def normed(self, rows: int, n: int) -> None:
        """Compare and time what ends a tensor-parallel layer."""
        x = self.random(rows, n)
        torch.manual_seed(0)
        residual, weight = (
            torch.randn(*shape, device=self.device, dtype=torch.bfloat16) for shape in ((rows, n), (n,))
        )
        total = x.float()
        dist.all_reduce(total)
        expected = torch.nn.functional.rms_norm(total + residual, (n,), weight.float(), 1e-6)
        fused = gallery.all_reduce_add_rms_norm
        name = f"all_reduce_add_rms_norm {rows}x{n}"
        self.wrong += wrong(name, lambda: fused(x, residual, weight)[0], expected)
        nccl = torch.zeros_like(x)

        def apart() -> object:
            dist.all_reduce(nccl)
            return gallery.add_rms_norm(nccl, residual, weight)

        moved = x.nbytes * 2 * (self.ranks - 1) / self.ranks
        self.record(name, moved, {"NCCL, add_rms_norm": apart, "fused": lambda: fused(x, residual, weight)})

    def limit(self, size: int) -> None:
        """Time copies to the next rank by all at once."""
        x = self.random(size // 2)
        handle: Any = symmetric.rendezvous(x, dist.group.WORLD)
        to = handle.get_buffer((self.device.index + 1) % self.ranks, x.shape, x.dtype)
        own = torch.zeros_like(to, device=self.device)
        self.record(f"copy {size}", size, {"to the next GPU": lambda: to.copy_(own)})


def run(number: int, ranks: int, options: argparse.Namespace) -> None:
    """Measure everything as one rank."""
    torch.cuda.set_device(number)
    torch.manual_seed(number)
    address = "tcp://127.0.0.1:29571"
    device = torch.device("cuda", number)
    dist.init_process_group(
        "nccl", init_method=address, rank=number, world_size=ranks, timeout=WAIT, device_id=device
    )
    rank = Rank(number, ranks, check=options.check)
    try:
        rank.limit(2**28)
        for size in SIZES:
            rank.all_reduce(size)
        for size in (2**20, 2**26):
            rank.reduce_scatter(size)
        for shape in NORMED:
            rank.normed(*shape)
    finally:
        dist.destroy_process_group()
    if number == 0 and options.save:
        found = {"machine": machine(), "gpus": ranks, "cases": rank.rows}
        options.save.write_text(json.dumps(found, indent=1) + "\n")
    if rank.wrong:
        print(f"rank {number}: wrong: {rank.wrong}", flush=True)
        sys.exit(1)


def host_us(calls: Sequence[Call]) -> list[float]:
    """Return the least CPU microseconds of each call; they take turns."""
    least = [float("inf")] * len(calls)
    for _ in range(500):
        for i, call in enumerate(calls):
            start = time.thread_time_ns()
            for _ in range(4):
                call()
            least[i] = min(least[i], (time.thread_time_ns() - start) / 4e3)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
    return least


def python_calls(call: Call) -> Counter[str]:
    """Return how often one call calls functions of Python, by file."""
    profile = cProfile.Profile()
    profile.runcall(call)
    found: Counter[str] = Counter()
    for entry in profile.getstats():
        if not isinstance(entry.code, str):
            found[entry.code.co_filename] += entry.callcount
    return found


def on_dtensors() -> None:
    """Print what a call on DTensors takes beyond one on tensors."""
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = dist.device_mesh.init_device_mesh(device, (1,))

    @torch.library.custom_op("several_gpus::swiglu", mutates_args=())
    def swiglu(gate: Tensor, up: Tensor) -> Tensor:
        return gallery.swiglu(gate, up)  # the same work: after more of it, DTensor's own code is colder

    swiglu.register_fake(lambda gate, up: torch.empty_like(gate))
    register_sharding(torch.ops.several_gpus.swiglu.default)(
        lambda gate, up: [([where], [where, where]) for where in (Replicate(), Shard(0))]
    )
    plain = [torch.randn(8, 8, device=device) for _ in range(2)]
    split = [DTensor.from_local(x, mesh, [Shard(0)]) for x in plain]
    operators = {"torch.library.custom_op": swiglu, "dotcu.op": gallery.swiglu}
    calls = [functools.partial(op, *tensors) for op in operators.values() for tensors in (plain, split)]
    with torch.no_grad():
        for call in 20 * calls:
            call()
        us = host_us(calls)
        counts = [python_calls(call) for call in calls]
    where = torch.cuda.get_device_name() if device == "cuda" else processor()
    print(f"tensors on {where}, torch {torch.__version__}")
    for i, name in enumerate(operators):
        alone, sharded = us[2 * i : 2 * i + 2]
        more = counts[2 * i + 1].copy()
        more.subtract(counts[2 * i])
        own = sum(count for file, count in more.items() if Path(file).is_relative_to(DOTCU))
        print(
            f"{name}: {alone:.1f} us on tensors, {sharded:.1f} on DTensors, {sharded - alone:.1f} more; "
            f"{more.total()} more Python calls, {own} of them of dotcu"
        )
    dist.destroy_process_group()


def main() -> int:
    """Start a process for each GPU."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--save", type=Path, help="write the figures as JSON, with the machine they hold for")
    parser.add_argument("--dtensor", action="store_true", help="the host time of calls on DTensors, instead")
    options = parser.parse_args()
    if options.dtensor:
        on_dtensors()
        return 0
    ranks = torch.cuda.device_count()
    if ranks < 2:
        print("there are fewer than two GPUs here")
        return 3
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    print(f"{ranks} x {torch.cuda.get_device_name(0)}, torch {torch.__version__}, bfloat16", flush=True)
    torch.multiprocessing.spawn(run, args=(ranks, options), nprocs=ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
