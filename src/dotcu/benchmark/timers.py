"""Timers of device time: CUPTI's records of kernels, which torch's profiler collects, or else CUDA events.

One session of the profiler holds the calls of one `time`. The first of a process takes seconds, later ones
some 3 ms. Source: measured, H200, torch 2.11, CUDA 13.0, 2026-11.

A kernel belongs to the call that launched it, on whichever stream it runs and whenever it starts. The trace
has both times of a launch, the host's and the device's; where a kernel launched it, its start decides.
"""

from __future__ import annotations

import functools
import os
import re
import tempfile
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile

from dotcu.benchmark.results import CallTime, Means
from dotcu.errors import EnvironmentFault
from dotcu.kernel import Module, cdiv, load


@dataclass(frozen=True, kw_only=True)
class TimedCall:
    """One call of the contender `name` to time, on torch's current stream.

    Attributes:
        prepare: Queues its preparation, outside of the timed window.
        probe: Takes the result right after the call in stream order, outside of the timed window.
        hold_us: The time that the stream is blocked before the call, so that the host can queue it whole. Too
            little adds host time to the device time; too much only takes longer.
    """

    name: str
    run: Callable[[], Any]
    prepare: Callable[[], None] | None = None
    probe: Callable[[Any], None] | None = None
    hold_us: float = 0.0


FLUSHED = 4  # sizes of L2 that a flush reads, so that nothing else stays there
SMALLEST_FLUSH = 32 << 20  # bytes of it, for a GPU that does not report the size of its L2
FASTEST_FLUSH_GBPS = 10_000.0  # an upper bound of the bandwidth of memory
MAX_HOLD_US = 100_000.0
THREADS = 512


@functools.cache
def kernels() -> Module:
    """The module of `timers.cu`."""
    return load("timers.cu")


class TimingKernels:
    """Flush, hold and marks on one GPU, on torch's current stream of it; all are compiled and loaded."""

    def __init__(self, device: torch.device) -> None:
        properties = torch.cuda.get_device_properties(device)
        self.device = device
        self.l2_bytes = int(properties.L2_cache_size)
        flushed = max(FLUSHED * self.l2_bytes, SMALLEST_FLUSH)
        self._vectors = cdiv(flushed, 16)
        self._buffer = torch.zeros(4 * self._vectors, dtype=torch.int32, device=device)
        self.flush_us = flushed / FASTEST_FLUSH_GBPS / 1e3
        self._kept = torch.zeros(1, dtype=torch.int32, device=device)
        self._blocks = 4 * int(properties.multi_processor_count)
        self._kernels = kernels()
        for warm in (self.flush, self.begin, partial(self.hold, 1.0), self.end):
            warm()
        torch.cuda.synchronize(device)

    def flush(self) -> None:
        """Fill L2 with clean lines that no call reads."""
        self._kernels.dotcu_bench_flush_l2(
            self._buffer, self._vectors, self._kept, grid=self._blocks, block=THREADS
        )

    def hold(self, us: float) -> None:
        """Keep the stream busy for some microseconds; nothing is launched for none."""
        if us > 0:
            ns = int(1e3 * min(us, MAX_HOLD_US))
            self._kernels.dotcu_bench_hold(ns, grid=1, block=1, device=self.device)

    def begin(self) -> None:
        """Mark the beginning of a call in a trace."""
        self._kernels.dotcu_bench_begin(grid=1, block=1, device=self.device)

    def end(self) -> None:
        """Mark the end of a call in a trace."""
        self._kernels.dotcu_bench_end(grid=1, block=1, device=self.device)


_wait = torch.cuda.synchronize  # as torch has it now: code under test could put another in its place


class TimerFailed(EnvironmentFault):
    """A timer does not work here; `again` is true if it may when it is tried once more."""

    def __init__(self, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.again = again


class Timer(ABC):
    """A timer of device time, with the step of its clock; `why` says why each better timer is not used."""

    name: ClassVar[Means]
    resolution_us: float

    def __init__(self, helpers: TimingKernels, why: Mapping[Means, str] = MappingProxyType({})) -> None:
        self.helpers = helpers
        self.why = dict(why)

    @abstractmethod
    def time(self, timed_calls: Sequence[TimedCall]) -> list[CallTime]:
        """Time calls, in their order, and wait for them; TimerFailed if another timer may work."""

    def wait(self) -> None:
        """Wait until the device is idle."""
        _wait(self.helpers.device)

    def _take(self, timed_call: TimedCall, begin: Callable[[], object], end: Callable[[], object]) -> None:
        """Queue one timed_call, between what begins and what ends its window."""
        if timed_call.prepare is not None:
            timed_call.prepare()
        self.helpers.hold(timed_call.hold_us)
        begin()
        result = timed_call.run()
        end()
        if timed_call.probe is not None:
            timed_call.probe(result)


# torch's C type, and not torch.cuda.Event: methods of that one can be replaced by code under test.
CudaEvent: Any = torch._C._CudaEventBase

RESOLUTION_US = 0.5
"""Source: CUDA runtime API, cudaEventElapsedTime. (Measured: H200, CUDA 13.0, 2026-11: steps of 32 ns.)"""


class Events(Timer):
    """A timer by an event before a call and one after, which sees one stream, and some 2 us of launch."""

    name = "events"
    resolution_us = RESOLUTION_US

    def time(self, timed_calls: Sequence[TimedCall]) -> list[CallTime]:
        """Time calls between events; how many kernels they launch is not known."""
        with torch.cuda.device(self.helpers.device):
            stream = torch.cuda.current_stream()
            pairs = [(CudaEvent(enable_timing=True), CudaEvent(enable_timing=True)) for _ in timed_calls]
            for start, stop in pairs:  # the first record makes an event, and takes the host longer
                start.record(stream)
                stop.record(stream)
            for timed_call, (start, stop) in zip(timed_calls, pairs, strict=True):
                self._take(timed_call, partial(start.record, stream), partial(stop.record, stream))
            self.wait()
        return [CallTime(time_us=elapsed_us(start, stop)) for start, stop in pairs]


def elapsed_us(start: Any, stop: Any) -> float:
    """Return the time between two events that are over; TimerFailed if it is negative."""
    elapsed = 1e3 * float(start.elapsed_time(stop))
    if elapsed < 0:
        raise TimerFailed(
            f"The time between two CUDA events is {elapsed:.3f} us.\nTime must pass forward to be measured.\n"
            "Confidential computing does this to events: measure on a GPU without it."
        )
    return elapsed


LINE = re.compile(
    rb"[A-Z]+:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ \w+\.(cpp|h):\d+\]"  # Kineto's log
    rb"|\[\w+ [^\]]*(kineto|profiler)[^\]]*\]",  # torch's, where it speaks for Kineto
    re.IGNORECASE,
)
"""Begins a line of Kineto or torch's profiler. Source: libkineto/src/Logger.cpp; torch 2.11 and 2.13."""


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Kineto's lines from stdout and stderr; what others write there comes when the block ends."""
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


OWN = "dotcu_bench_"  # begins the name of every kernel of `timers.cu`
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


_Window = tuple[Activity, Activity]  # the begin mark of a call and its end mark


def attribute(activities: Iterable[Activity], count: int) -> list[CallTime]:
    """Return the device time and the kernels of each call; TimerFailed if there are not the marks of so many.

    A kernel outside of calls that is not of the marks' thread and stream is stray, of the call before it.
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
    marks = [mark.start_ns for window in windows for mark in window]
    if any(later < earlier for earlier, later in pairwise(marks)):
        raise _lost("marks of calls were recorded out of order")
    return windows


def _lost(what: str) -> TimerFailed:
    return TimerFailed(
        f"CUPTI's trace is not whole: {what}.\nEvery call needs a begin and an end mark, in order.\n"
        "Time fewer calls at once: dotcu.bench(op, protocol=dotcu.benchmark.Protocol(most_calls=10)).",
        again=True,
    )


CUPTI_RESOLUTION_US = 0.032  # a kernel's time stamps. Source: measured, H200, CUDA 13.0, 2026-11
MARGIN_US = 100.0  # the stream is blocked at either end of a session: Kineto drops what seems to lie outside


class Cupti(Timer):
    """Times calls by the records of their kernels, copies and fills; sees every stream and thread."""

    name = "cupti"
    resolution_us = CUPTI_RESOLUTION_US

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
    """Trace what GPUs do until the block ends; TimerFailed if another profiler is running, say."""
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
    """Return the kernels, copies and fills among Kineto's events, each with its launch."""
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


BEST_FIRST: tuple[type[Timer], ...] = (Cupti, Events)


def choose(device: torch.device, means: Means | None = None) -> Timer:
    """Return the best timer that works on a GPU, or the one asked for; tried on a small call, for seconds."""
    if device.type != "cuda":
        raise EnvironmentFault(
            f"Device time was asked for on {device}.\nIt can be taken on a CUDA GPU only.\n"
            "See what torch finds: dotcu doctor"
        )
    kinds = [kind for kind in BEST_FIRST if means in (None, kind.name)]
    return _first_that_works(TimingKernels(device), kinds, {})


def after(timer: Timer, reason: str) -> Timer:
    """Return the next best timer after one that failed for some reason, which is in the new one's `why`."""
    worse = BEST_FIRST[[kind.name for kind in BEST_FIRST].index(timer.name) + 1 :]
    return _first_that_works(timer.helpers, worse, {**timer.why, timer.name: reason})


def _first_that_works(
    helpers: TimingKernels, kinds: Sequence[type[Timer]], reasons: dict[Means, str]
) -> Timer:
    for kind in kinds:
        numbers = torch.zeros(1 << 16, device=helpers.device)
        trial = TimedCall(name="trial", run=partial(numbers.add_, 1), hold_us=50.0)
        trial.run()  # what it loads, it loads now
        timer = kind(helpers, reasons)
        try:
            calls = timer.time([trial] * 3)
        except Exception as error:
            reasons[kind.name] = str(error).partition("\n")[0] or type(error).__name__
            continue
        wrong = [call for call in calls if call.time_us <= 0 or call.kernels not in (None, 1)]
        if not wrong:
            return timer
        reasons[kind.name] = f"a small addition was measured as {wrong[0]}"
    failures = "\n".join(f"    {name}: {reason}" for name, reason in reasons.items())
    raise EnvironmentFault(
        f"Device time cannot be taken on {helpers.device}:\n{failures}\n"
        "CUPTI or events must work there.\nSee what torch finds: dotcu doctor"
    )
