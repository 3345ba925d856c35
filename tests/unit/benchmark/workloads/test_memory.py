"""What fits the memory of a device."""

from __future__ import annotations

import torch

from dotcu.benchmark.workloads.workload import fitting_sets, free_bytes, needed_bytes, too_large

GIB = 2**30


def test_as_many_sets_as_fit_are_taken_and_at_least_one() -> None:
    inputs, results = 2 * GIB, GIB
    assert fitting_sets(inputs, results, needed_bytes(inputs, results, 4), 4) == 4
    assert fitting_sets(inputs, results, needed_bytes(inputs, results, 4) - 1, 4) == 3
    assert fitting_sets(inputs, results, 0, 4) == 1


def test_what_does_not_fit_once_is_reported_with_what_there_is() -> None:
    assert too_large(GIB, GIB, 100 * GIB) == ""
    assert too_large(90 * GIB, GIB, 100 * GIB) == (
        "needs 304.4 GiB of memory on the GPU, which has 100.0 GiB free"
    )


def test_without_a_gpu_memory_is_no_limit() -> None:
    assert free_bytes(torch.device("cpu")) > 2**60
