"""Kernels on the memory of peers: sums over two GPUs, as NCCL has them, also in CUDA graphs."""

from __future__ import annotations

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
