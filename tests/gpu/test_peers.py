"""Kernels on the memory of peers: sums over two GPUs, as NCCL has them, also in CUDA graphs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu.errors import UsageError

pytestmark = pytest.mark.gpu

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "several_gpus.py"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_sums_over_gpus_are_those_of_nccl() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_a_process_group_peers_says_so() -> None:
    with pytest.raises(UsageError, match="there is none"):
        dotcu.peers(torch.zeros(4, device="cuda"))
