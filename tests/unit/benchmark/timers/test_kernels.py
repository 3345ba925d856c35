"""The device code around timed calls, in the simulator."""

from __future__ import annotations

import time

import torch

import dotcu
from dotcu.benchmark.timers import OWN, kernels


def test_a_flush_reads_all_of_the_buffer_and_writes_nothing() -> None:
    buffer, kept = torch.zeros(4 * 10_000, dtype=torch.int32), torch.full((1,), 5, dtype=torch.int32)
    with dotcu.simulate() as run:
        kernels().dotcu_bench_flush_l2(buffer, 10_000, kept, grid=4, block=512)
    assert run.counters.global_bytes == 16 * 10_000
    assert kept.item() == 5


def test_the_compiler_keeps_the_loads_of_a_flush() -> None:
    buffer, kept = torch.zeros(4 * 100, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    buffer[-1] = 8
    kernels().dotcu_bench_flush_l2(buffer, 100, kept, grid=1, block=64)
    assert kept.item() == 8


def test_a_hold_takes_at_least_its_time() -> None:
    began = time.perf_counter()
    kernels().dotcu_bench_hold(20_000_000, grid=1, block=1, device="cpu")
    assert time.perf_counter() - began >= 0.02


def test_marks_run() -> None:
    kernels().dotcu_bench_begin(grid=1, block=1, device="cpu")
    kernels().dotcu_bench_end(grid=1, block=1, device="cpu")


def test_no_users_kernel_can_be_taken_for_one_of_these() -> None:
    assert all(name.startswith(OWN) for name in kernels().kernels)
