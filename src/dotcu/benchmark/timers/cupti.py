"""Device time from CUPTI's records of kernels, which torch's profiler collects.

One session of the profiler holds the calls of one `time`. The first of a process takes seconds, later ones
some 3 ms. Source: measured, H200, torch 2.11, CUDA 13.0, 2026-11.

A kernel belongs to the call that launched it, on whichever stream it runs and whenever it starts. The trace
has both times of a launch, the host's and the device's; where a kernel launched it, its start decides.
"""

from __future__ import annotations

import os
import re
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile

from dotcu.benchmark.results import CallTime
from dotcu.benchmark.timers.timer import TimedCall, Timer, TimerFailed

LINE = re.compile(
    rb"[A-Z]+:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ \w+\.(cpp|h):\d+\]"  # Kineto's log
    rb"|\[\w+ [^\]]*(kineto|profiler)[^\]]*\]",  # torch's, where it speaks for Kineto
    re.IGNORECASE,
)
"""The beginning of a line of Kineto or torch's profiler. Source: libkineto/src/Logger.cpp; seen: torch 2.11
and 2.13."""


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Kineto's lines from standard output and error; what others write there comes when the block ends.

    It writes to the descriptors themselves, for the whole process: keep the block short.
    """
    with _without_log(1), _without_log(2):
        yield


@contextmanager
def _without_log(descriptor: int) -> Iterator[None]:
    try:
        outlet = os.dup(descriptor)
    except OSError:  # the process has closed it
        yield
        return
    with tempfile.TemporaryFile() as output, os.fdopen(outlet, "wb") as file:
        os.dup2(output.fileno(), descriptor)
        try:
            yield
        finally:
            os.dup2(outlet, descriptor)
            output.seek(0)
            file.writelines(line for line in output if not LINE.match(line))


OWN = "dotcu_bench_"  # begins the name of every kernel of `kernels.cu`
BEGIN, END = f"{OWN}begin", f"{OWN}end"


@dataclass(frozen=True, kw_only=True)
class Activity:
    """A kernel, copy or fill that the device ran.

    Attributes:
        start_ns, end_ns: By the device's clock.
        stream: The stream's number, which no other device's stream has.
        launched_ns, thread: When, by the host's clock, and which thread launched it; None if unknown.
    """

    name: str
    start_ns: int
    end_ns: int
    stream: int
    device: int = 0
    launched_ns: int | None = None
    thread: int | None = None


_Window = tuple[Activity, Activity]
"""The begin mark of a call and its end mark."""


def attribute(activities: Iterable[Activity], count: int) -> list[CallTime]:
    """Return the device time and the kernels of each call; one without kernels took no time.

    A kernel outside of calls that is not of the marks' thread and stream is stray, of the call before it.

    Raises:
        TimerFailed: The marks are not those of so many calls.
    """
    found = sorted(activities, key=lambda activity: activity.start_ns)
    windows = _windows(found, count)
    calls: list[list[Activity]] = [[] for _ in windows]
    stray = [0] * len(windows)
    on_device = [(begin.start_ns, end.end_ns) for begin, end in windows]
    on_host = [
        (begin.launched_ns, end.launched_ns)
        for begin, end in windows
        if begin.launched_ns is not None and end.launched_ns is not None
    ]
    host_is_known = len(on_host) == len(windows)
    for activity in found if windows else ():
        if OWN in activity.name:
            continue
        if host_is_known and activity.launched_ns is not None:
            at, inside = _locate(on_host, activity.launched_ns)
        else:
            at, inside = _locate(on_device, activity.start_ns)
        begin, _ = windows[at]
        is_own_thread = None in (activity.thread, begin.thread) or activity.thread == begin.thread
        if inside:
            calls[at].append(activity)
        elif activity.stream != begin.stream or not is_own_thread:  # else it prepares the next call
            stray[at] += 1
    return [_call(*each) for each in zip(windows, calls, stray, strict=True)]


def _locate(spans: Sequence[tuple[int, int]], moment: int) -> tuple[int, bool]:
    """Return the last span that had begun by a moment, or the first, and True if the moment is in it."""
    at = bisect_right(spans, moment, key=lambda span: span[0]) - 1
    return max(at, 0), at >= 0 and moment <= spans[at][1]


def _call(window: _Window, own: Sequence[Activity], stray: int) -> CallTime:
    if not own:
        return CallTime(time_us=0.0, kernels=0, stray=stray)
    begin, end = window
    first, last = min(a.start_ns for a in own), max(a.end_ns for a in own)
    here = [activity for activity in own if activity.device == begin.device]
    return CallTime(
        time_us=(last - first) / 1e3, kernels=len(own), late=sum(a.end_ns > end.end_ns for a in own),
        early=sum(a.start_ns < begin.start_ns for a in here), stray=stray, elsewhere=len(own) - len(here),
    )  # fmt: skip


def _windows(found: Sequence[Activity], count: int) -> list[_Window]:
    begins = [activity for activity in found if BEGIN in activity.name]
    ends = [activity for activity in found if END in activity.name]
    if len(begins) != count or len(ends) != count:
        raise _lost(f"{len(begins)} begin and {len(ends)} end marks were recorded for {count} calls")
    windows = list(zip(begins, ends, strict=True))
    if any(end.start_ns < begin.start_ns for begin, end in windows):
        raise _lost("a call's end mark was recorded before its begin mark")
    if any(begin.start_ns < end.start_ns for (_, end), (begin, _) in pairwise(windows)):
        raise _lost("a call's begin mark was recorded before the end mark of the call before it")
    return windows


def _lost(what: str) -> TimerFailed:
    return TimerFailed(
        f"CUPTI's trace is not whole: {what}.\nEvery call needs a begin and an end mark, in order.\n"
        "Time fewer calls at once: dotcu.bench(op, protocol=dotcu.benchmark.Protocol(most_calls=10)).",
        again=True,
    )


RESOLUTION_US = 0.032
"""The step of a kernel's time stamps. Source: measured, H200, CUDA 13.0, 2026-11."""

MARGIN_US = 100.0
"""Time that the stream is blocked at either end of a session: Kineto drops what seems to lie outside."""


class Cupti(Timer):
    """Times calls by the records of their kernels, copies and fills; sees every stream and thread."""

    name = "cupti"
    resolution_us = RESOLUTION_US

    def time(self, timed_calls: Sequence[TimedCall]) -> list[CallTime]:
        """Time calls from the start of their first kernel to the end of their last."""
        with torch.cuda.device(self.helpers.device):
            with tracing() as session:
                self.helpers.hold(MARGIN_US)
                for timed_call in timed_calls:
                    self._take(timed_call, self.helpers.begin, self.helpers.end)
                self.helpers.hold(MARGIN_US)
                self.wait()
            results = session.kineto_results
        return attribute(activities(results.events() if results is not None else ()), len(timed_calls))


@contextmanager
def tracing() -> Iterator[Any]:
    """Trace what GPUs do until the block ends.

    Raises:
        TimerFailed: The profiler does not start: another one is running, say.
    """
    try:
        # Not torch.profiler.profile: it warns that its events are of one session only.
        session = profile(use_cpu=False, use_device="cuda", use_kineto=True)
        with quiet():
            session.__enter__()
    except Exception as error:
        raise TimerFailed(
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
    launches = {  # by its name a call of the runtime or the driver; their correlation ids are CUPTI's own
        event.correlation_id(): (event.start_ns(), event.device_resource_id())
        for event in listed
        if event.device_type() == DeviceType.CPU and event.name().startswith("cu")
    }
    activities = []
    for event in listed:
        if event.device_type() == DeviceType.CUDA and not event.is_user_annotation():
            start_ns, index = event.start_ns(), event.device_index()
            launched_ns, thread = launches.get(event.correlation_id(), (None, None))
            activities.append(
                Activity(
                    name=event.name(), start_ns=start_ns, end_ns=start_ns + event.duration_ns(),
                    stream=(index << 32) + event.device_resource_id(), device=index,
                    launched_ns=launched_ns, thread=thread,
                )
            )  # fmt: skip
    return activities
