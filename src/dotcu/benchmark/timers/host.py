"""Host time: how long a call keeps its caller, apart from what the device does."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch

_wait = torch.cuda.synchronize


def host_times_us(
    run: Callable[[], Any],
    batches: int,
    calls: int,
    *,
    wait: Callable[[], Any] = _wait,
    prepare: Callable[[], Any] | None = None,
) -> list[float]:
    """The wall time of a call without waiting for the device: the mean of each batch.

    Args:
        calls: In a batch. The driver takes some 1000 launches ahead of the device; a batch with more of
            them would wait for it.
        wait: Waits for the device, between batches.
        prepare: What comes before each batch, and does not count.
    """
    samples = []
    for _ in range(batches):
        if prepare is not None:
            prepare()
        wait()
        began = perf_counter_ns()
        for _ in range(calls):
            run()
        samples.append((perf_counter_ns() - began) / (1e3 * calls))
    wait()
    return samples
