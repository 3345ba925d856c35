"""Device time between two events: the plainest means, with the launch's own time in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from dotcu.benchmark.measured import Call
from dotcu.benchmark.timers.shots import Shot
from dotcu.benchmark.timers.timer import MeansFailed, Timer

# torch's C type, and not torch.cuda.Event: methods of that one can be replaced by code under test.
Event: Any = torch._C._CudaEventBase

RESOLUTION_US = 0.5
"""Source: CUDA runtime API, cudaEventElapsedTime. (Measured: H200, CUDA 13.0, 2026-11: steps of 32 ns.)"""


class Events(Timer):
    """Times calls by an event right before and one right after.

    What a call does on a stream that its own does not wait for is not seen; some 2 us of launch are.
    """

    name = "events"
    resolution_us = RESOLUTION_US

    def time(self, shots: Sequence[Shot]) -> list[Call]:
        """Time calls between events; how many kernels they launch is not known."""
        with torch.cuda.device(self.helpers.device):
            stream = torch.cuda.current_stream()
            pairs = [(Event(enable_timing=True), Event(enable_timing=True)) for _ in shots]
            for start, stop in pairs:  # the first record makes an event, and takes the host longer
                start.record(stream)
                stop.record(stream)
            for shot, (start, stop) in zip(shots, pairs, strict=True):
                self._take(shot, partial(start.record, stream), partial(stop.record, stream))
            self.wait()
        return [Call(time_us=elapsed_us(start, stop)) for start, stop in pairs]


def elapsed_us(start: Any, stop: Any) -> float:
    """The time between two events that are over.

    Raises:
        MeansFailed: It is negative.
    """
    elapsed = 1e3 * float(start.elapsed_time(stop))
    if elapsed < 0:
        raise MeansFailed(
            f"The time between two CUDA events is {elapsed:.3f} us.\nTime must pass forward to be measured.\n"
            "Confidential computing does this to events: measure on a GPU without it."
        )
    return elapsed
