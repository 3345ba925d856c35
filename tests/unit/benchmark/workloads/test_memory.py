"""What fits the memory of a device."""

from __future__ import annotations

import torch

from dotcu.benchmark.workloads.memory import free_bytes, how_many, needed, too_large

GIB = 2**30


def test_as_many_sets_as_fit_are_taken_and_at_least_one() -> None:
    inputs, results = 2 * GIB, GIB
    assert how_many(inputs, results, needed(inputs, results, 4), 4) == 4
    assert how_many(inputs, results, needed(inputs, results, 4) - 1, 4) == 3
    assert how_many(inputs, results, 0, 4) == 1


def test_where_the_values_of_all_sets_are_kept_fewer_fit() -> None:
    free = needed(GIB, GIB, 4)
    assert how_many(GIB, GIB, free, 4) == 4
    assert how_many(GIB, GIB, free, 4, kept=GIB) == 2
    assert needed(GIB, GIB, 1, kept=GIB) == needed(GIB, GIB)


def test_what_does_not_fit_once_is_told_with_what_there_is() -> None:
    assert too_large(GIB, GIB, 100 * GIB) == ""
    assert too_large(90 * GIB, GIB, 100 * GIB) == (
        "needs 304.4 GiB of memory on the GPU, which has 100.0 GiB free"
    )


def test_without_a_gpu_memory_is_no_limit() -> None:
    assert free_bytes(torch.device("cpu")) > 2**60
