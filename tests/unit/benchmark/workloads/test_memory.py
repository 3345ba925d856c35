"""What fits the memory of a device."""

from __future__ import annotations

import torch

from dotcu.benchmark.workloads import free_bytes


def test_without_a_gpu_memory_is_no_limit() -> None:
    assert free_bytes(torch.device("cpu")) > 2**60
