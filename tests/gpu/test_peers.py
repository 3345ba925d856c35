"""Kernels on the memory of peers: sums over two GPUs, as NCCL has them, and two ranks on one GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu import gallery
from dotcu.benchmark.ranks import bench_ranks
from dotcu.errors import UsageError

pytestmark = pytest.mark.gpu

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "several_gpus.py"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_sums_over_gpus_are_those_of_nccl() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("name", ["all_reduce", "all_reduce_", "all_reduce_add_rms_norm", "reduce_scatter"])
def test_check_calls_an_operator_on_each_gpu(name: str) -> None:
    report = dotcu.check(getattr(gallery, name), only=f"dotcu::{name}/ranks")
    assert report.passed, str(report)
    assert {result.check for result in report.results} == {"ranks"}


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_bench_gives_the_bus_bandwidth_of_each_contender() -> None:
    report = bench_ranks("dotcu.gallery:reduce_scatter", 2, shapes="64x1024", dtypes=("bfloat16",))
    assert [row.contender for row in report.rows] == ["dotcu", "reference"]
    assert all(row.us and row.bus_bytes == 64 * 1024 for row in report.rows)
    assert report.link_gb_s > 50


def test_without_a_process_group_peers_says_so() -> None:
    with pytest.raises(UsageError, match="there is none"):
        dotcu.peers(torch.zeros(4, device="cuda"))


RANK = """
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import _symmetric_memory as symmetric

import dotcu
from dotcu.gallery import all_reduce

case, rank, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.cuda.set_device(0)
dist.init_process_group(
    "gloo", store=dist.FileStore(path, 2), rank=rank, world_size=2, timeout=timedelta(seconds=4)
)
dist.distributed_c10d._get_process_group_store(dist.group.WORLD).set_timeout(timedelta(seconds=4))
x = symmetric.empty(2**19, dtype=torch.float32, device="cuda").fill_(rank + 1)
"""
"""A rank of two that share a GPU: their kernels take turns there, so it is right, and slow."""

CASES = {
    "sums": """
assert all_reduce(x).eq(3).all()
assert all_reduce(x[:100] * 2).eq(6).all()
other = torch.full((2**19 + 1,), rank + 1.0, device="cuda", requires_grad=True)
total = all_reduce(other[1:], "", False)
(total * (rank + 1)).sum().backward()
assert total.eq(3).all()
assert other.grad[1:].eq(3).all()
print("right")
""",
    "known and new": """
all_reduce(x)
torch.cuda.synchronize()
if rank == 1:
    try:
        dotcu.peers(x[:2**18])
    except dotcu.errors.ArgumentError as error:
        print(error)
""",
}


def both_ranks(case: str, folder: Path) -> list[str]:
    """Run a case as two ranks on the first GPU, and return what each prints."""
    env = {**os.environ, "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES": "1"}
    script, store = RANK + CASES[case], str(folder / "store")
    crew = [
        subprocess.Popen(
            [sys.executable, "-c", script, case, str(rank), store],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        return [process.communicate(timeout=120)[0] for process in crew]
    finally:
        for process in crew:
            process.kill()


def test_two_ranks_of_one_gpu_add_up_and_have_the_gradient(tmp_path: Path) -> None:
    for said in both_ranks("sums", tmp_path):
        assert said.splitlines()[-1:] == ["right"], said


def test_a_rank_with_a_new_tensor_waits_for_one_with_a_known_tensor_and_says_so(tmp_path: Path) -> None:
    said = both_ranks("known and new", tmp_path)[1]
    assert "got (262144,) of torch.float32 at byte 0 of its allocation on rank 1" in said, said
    assert "s for rank 0, which passed a tensor that all know ((524288,) of torch.float32)" in said, said
