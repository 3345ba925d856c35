"""Which call the device did something for: told from a trace and the marks in it.

A kernel belongs to the call that *launched* it, on whichever stream it runs and whenever it starts: a
kernel on a stream of its own may start while the caller's stream is still held, before the call's mark:
then it is `early`, since it did not wait for what the caller had queued.
The trace has both times of a launch, the host's and the device's; where a kernel has no launch by the
host (another kernel launched it), the place where it starts decides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dotcu.benchmark.measured import Call
from dotcu.benchmark.timers.timer import LostRecords

OWN = "dotcu_bench_"
"""Begins the name of every kernel of `kernels.cu`."""

BEGIN, END = f"{OWN}begin", f"{OWN}end"


@dataclass(frozen=True, kw_only=True)
class Activity:
    """A kernel, copy or fill that the device ran.

    Attributes:
        start_ns: By the device, as `end_ns`.
        stream: A number for it, that no other device's stream has.
        device: Whose it is.
        launched_ns: When the host launched it, by the host's clock; None where the trace does not tell.
        thread: That launched it; None where the trace does not tell.
    """

    name: str
    start_ns: int
    end_ns: int
    stream: int
    device: int = 0
    launched_ns: int | None = None
    thread: int | None = None


@dataclass(frozen=True, kw_only=True)
class _Window:
    """From a call's begin mark to its end mark."""

    begin: Activity
    end: Activity

    def prepares(self, activity: Activity) -> bool:
        """Whether an activity outside of calls is what we queued between them."""
        if activity.stream != self.begin.stream:
            return False
        return None in (activity.thread, self.begin.thread) or activity.thread == self.begin.thread


class _Spans:
    """The windows of all calls on one clock, the host's or the device's; they do not overlap."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]

    def place(self, moment: int) -> tuple[int, bool]:
        """The last call that had begun by then, the first one before all, and whether it was in it."""
        at = bisect_right(self._starts, moment) - 1
        return max(at, 0), at >= 0 and moment <= self._ends[at]


def attribute(activities: Iterable[Activity], shots: int) -> list[Call]:
    """What each call made the device do, and how long that took.

    A call that made it do nothing took no time. What ran outside of calls, and is not of the marks' thread
    and stream, is stray: of the call that was made last before it.

    Raises:
        LostRecords: The marks are not those of so many shots.
    """
    found = sorted(activities, key=lambda activity: activity.start_ns)
    windows = _windows(found, shots)
    calls: list[list[Activity]] = [[] for _ in windows]
    stray = [0] * len(windows)
    on_device = _Spans([(window.begin.start_ns, window.end.end_ns) for window in windows])
    on_host = _launches(windows)
    for activity in found if windows else ():
        if OWN in activity.name:
            continue
        if on_host is not None and activity.launched_ns is not None:
            at, inside = on_host.place(activity.launched_ns)
        else:
            at, inside = on_device.place(activity.start_ns)
        if inside:
            calls[at].append(activity)
        elif not windows[at].prepares(activity):
            stray[at] += 1
    return [_call(window, own, stray=count) for window, own, count in zip(windows, calls, stray, strict=True)]


def _launches(windows: Sequence[_Window]) -> _Spans | None:
    """When the host was in each call; None where the trace does not tell of all."""
    spans = [
        (window.begin.launched_ns, window.end.launched_ns)
        for window in windows
        if window.begin.launched_ns is not None and window.end.launched_ns is not None
    ]
    return _Spans(spans) if len(spans) == len(windows) else None


def _call(window: _Window, own: Sequence[Activity], *, stray: int) -> Call:
    if not own:
        return Call(time_us=0.0, kernels=0, stray=stray)
    first, last = min(a.start_ns for a in own), max(a.end_ns for a in own)
    here = [activity for activity in own if activity.device == window.begin.device]
    return Call(
        time_us=(last - first) / 1e3,
        kernels=len(own),
        late=sum(activity.end_ns > window.end.end_ns for activity in own),
        early=sum(activity.start_ns < window.begin.start_ns for activity in here),
        stray=stray,
        elsewhere=len(own) - len(here),
    )


def _windows(found: Sequence[Activity], shots: int) -> list[_Window]:
    begins = [activity for activity in found if BEGIN in activity.name]
    ends = [activity for activity in found if END in activity.name]
    if len(begins) != shots or len(ends) != shots:
        raise _lost(f"{len(begins)} begin and {len(ends)} end marks were recorded for {shots} calls")
    windows = [_Window(begin=begin, end=end) for begin, end in zip(begins, ends, strict=True)]
    for window in windows:
        if window.end.start_ns < window.begin.start_ns:
            raise _lost("a call's end mark was recorded before its begin mark")
    for earlier, later in pairwise(windows):
        if later.begin.start_ns < earlier.end.start_ns:
            raise _lost("a call's begin mark was recorded before the end mark of the call before it")
    return windows


def _lost(what: str) -> LostRecords:
    return LostRecords(
        f"CUPTI's trace is not whole: {what}.\nEvery call needs a begin and an end mark, in order.\n"
        'Time fewer calls at once, or by another means: means="events".'
    )
