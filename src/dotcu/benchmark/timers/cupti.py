"""Device time from CUPTI's records of kernels, which torch's profiler brings.

One session of the profiler holds the shots of one `time`. The first of a process takes seconds, later
ones some 3 ms. Source: measured, H200, torch 2.11, CUDA 13.0, 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile

from dotcu.benchmark.measured import Call
from dotcu.benchmark.timers.quiet import quiet
from dotcu.benchmark.timers.shots import Shot
from dotcu.benchmark.timers.timer import MeansFailed, Timer
from dotcu.benchmark.timers.trace import Activity, attribute

RESOLUTION_US = 0.032
"""The step of a kernel's time stamps. Source: measured, H200, CUDA 13.0, 2026-11."""

MARGIN_US = 100.0
"""Held at either end of a session: Kineto drops what seems to lie outside of it, and its two clocks may
differ by some microseconds."""


class Cupti(Timer):
    """Times calls by the records of their kernels, copies and fills; sees every stream and thread."""

    name = "cupti"
    resolution_us = RESOLUTION_US

    def time(self, shots: Sequence[Shot]) -> list[Call]:
        """Time calls from the start of their first kernel to the end of their last."""
        with torch.cuda.device(self.helpers.device):
            with tracing() as session:
                self.helpers.hold(MARGIN_US)
                for shot in shots:
                    self._take(shot, self.helpers.begin, self.helpers.end)
                self.helpers.hold(MARGIN_US)
                self.wait()
            results = session.kineto_results
        return attribute(activities(results.events() if results is not None else ()), len(shots))


@contextmanager
def tracing() -> Iterator[Any]:
    """Trace what GPUs do until the block ends.

    Raises:
        MeansFailed: The profiler does not start: another one is running, say.
    """
    try:
        # Not torch.profiler.profile: it warns that its events are of one session only.
        session = profile(use_cpu=False, use_device="cuda", use_kineto=True)
        with quiet():
            session.__enter__()
    except Exception as error:
        raise MeansFailed(
            f"torch's profiler does not start: {error}\nTiming by CUPTI needs it, and one at a time.\n"
            "End the other profiler."
        ) from error
    try:
        yield session
    finally:
        with quiet():
            session.__exit__(None, None, None)


def activities(events: Iterable[Any]) -> list[Activity]:
    """The kernels, copies and fills among Kineto's events, each with its launch.

    Args:
        events: `torch._C._autograd._KinetoEvent`, or what has its methods.
    """
    listed = list(events)
    launches: dict[int, tuple[int, int]] = {}
    for event in listed:
        # By its name a call of the runtime or the driver; their correlation ids are CUPTI's own.
        if event.device_type() == DeviceType.CPU and event.name().startswith("cu"):
            launches[event.correlation_id()] = (event.start_ns(), event.device_resource_id())
    return [
        _activity(event, launches.get(event.correlation_id(), (None, None)))
        for event in listed
        if event.device_type() == DeviceType.CUDA and not event.is_user_annotation()
    ]


def _activity(event: Any, launch: tuple[int | None, int | None]) -> Activity:
    start = event.start_ns()
    return Activity(
        name=event.name(),
        start_ns=start,
        end_ns=start + event.duration_ns(),
        stream=(event.device_index() << 32) + event.device_resource_id(),
        device=event.device_index(),
        launched_ns=launch[0],
        thread=launch[1],
    )
