"""The base of all timers of device time, the calls that they time, the kernels around these calls,
and the timer by CUDA events.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import torch

from dotcu.benchmark.results import CallTime, Means
from dotcu.errors import DotcuError, EnvironmentFault
from dotcu.kernel import Module, cdiv, load


class TimedCallFailed(DotcuError):
    """A call raised while it was timed; what it raised is the cause.

    Attributes:
        name: The contender of the call.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} raised while it was timed.\nA call that is timed must return.\n"
            "Call it once by itself on these inputs: it raises there too, or depends on calls before it."
        )
        self.name = name


@dataclass(frozen=True, kw_only=True)
class TimedCall:
    """One call to time, on torch's current stream.

    Attributes:
        name: The contender of the call.
        run: The call.
        prepare: Queues its preparation, outside of the timed window.
        probe: Takes the result right after the call in stream order, outside of the timed window; None if
            it is not looked at.
        hold_us: The time that the stream is blocked before the call, so that the host can queue it whole. Too
            little adds host time to the device time; too much only takes longer.
    """

    name: str
    run: Callable[[], Any]
    prepare: Callable[[], None] | None = None
    probe: Callable[[Any], None] | None = None
    hold_us: float = 0.0


FLUSHED = 4
"""The size of the buffer that a flush reads, in sizes of L2, so that nothing else stays there."""

SMALLEST_FLUSH = 32 << 20
"""Bytes of the buffer for a GPU that does not report the size of its L2."""

FASTEST_FLUSH_GBPS = 10_000.0
"""An upper bound of the bandwidth of memory."""

MOST_HOLD_US = 100_000.0
THREADS = 512


@functools.cache
def kernels() -> Module:
    """The module of `kernels.cu`."""
    return load("kernels.cu")


class TimingKernels:
    """Flush, hold and marks on one GPU, on torch's current stream of it.

    Compiles, loads and runs each kernel once, and waits for them.
    """

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
        for warm in (self.flush, self.begin, functools.partial(self.hold, 1.0), self.end):
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
            ns = int(1e3 * min(us, MOST_HOLD_US))
            self._kernels.dotcu_bench_hold(ns, grid=1, block=1, device=self.device)

    def begin(self) -> None:
        """Mark the beginning of a call in a trace."""
        self._kernels.dotcu_bench_begin(grid=1, block=1, device=self.device)

    def end(self) -> None:
        """Mark the end of a call in a trace."""
        self._kernels.dotcu_bench_end(grid=1, block=1, device=self.device)


_wait = torch.cuda.synchronize  # as torch has it now: code under test could put another in its place


class TimerFailed(EnvironmentFault):
    """A timer does not work here.

    Attributes:
        contender: The one whose calls it cannot time; empty if it fails for all.
        again: True if it may work when it is tried once more.
    """

    def __init__(self, message: str, *, contender: str = "", again: bool = False) -> None:
        super().__init__(message)
        self.contender, self.again = contender, again


class Timer(ABC):
    """A timer of device time.

    Attributes:
        name: Which.
        resolution_us: The step of its clock.
        why: Why each better timer is not used here.
    """

    name: ClassVar[Means]
    resolution_us: float

    def __init__(self, helpers: TimingKernels, why: Mapping[Means, str] = MappingProxyType({})) -> None:
        self.helpers = helpers
        self.why = dict(why)

    @abstractmethod
    def time(self, timed_calls: Sequence[TimedCall]) -> list[CallTime]:
        """Time calls, in their order, and wait for them; one Call for each timed_call.

        Raises:
            TimedCallFailed: One of them raised.
            TimerFailed: The timer itself failed; another one may work.
        """

    def wait(self) -> None:
        """Wait until the device is idle."""
        _wait(self.helpers.device)

    def _take(self, timed_call: TimedCall, begin: Callable[[], object], end: Callable[[], object]) -> None:
        """Queue one timed_call, between what begins and what ends its window."""
        if timed_call.prepare is not None:
            timed_call.prepare()
        self.helpers.hold(timed_call.hold_us)
        begin()
        try:
            result = timed_call.run()
        except Exception as error:
            raise TimedCallFailed(timed_call.name) from error
        end()
        if timed_call.probe is not None:
            timed_call.probe(result)


# torch's C type, and not torch.cuda.Event: methods of that one can be replaced by code under test.
Event: Any = torch._C._CudaEventBase

RESOLUTION_US = 0.5
"""Source: CUDA runtime API, cudaEventElapsedTime. (Measured: H200, CUDA 13.0, 2026-11: steps of 32 ns.)"""


class Events(Timer):
    """A timer by an event right before a call and one right after.

    What a call does on a stream that its own does not wait for is not seen; some 2 us of launch are.
    """

    name = "events"
    resolution_us = RESOLUTION_US

    def time(self, timed_calls: Sequence[TimedCall]) -> list[CallTime]:
        """Time calls between events; how many kernels they launch is not known."""
        with torch.cuda.device(self.helpers.device):
            stream = torch.cuda.current_stream()
            pairs = [(Event(enable_timing=True), Event(enable_timing=True)) for _ in timed_calls]
            for start, stop in pairs:  # the first record makes an event, and takes the host longer
                start.record(stream)
                stop.record(stream)
            for timed_call, (start, stop) in zip(timed_calls, pairs, strict=True):
                self._take(timed_call, partial(start.record, stream), partial(stop.record, stream))
            self.wait()
        return [CallTime(time_us=elapsed_us(start, stop)) for start, stop in pairs]


def elapsed_us(start: Any, stop: Any) -> float:
    """The time between two events that are over.

    Raises:
        TimerFailed: It is negative.
    """
    elapsed = 1e3 * float(start.elapsed_time(stop))
    if elapsed < 0:
        raise TimerFailed(
            f"The time between two CUDA events is {elapsed:.3f} us.\nTime must pass forward to be measured.\n"
            "Confidential computing does this to events: measure on a GPU without it."
        )
    return elapsed


LEAST_CALLS = 20
"""The least number of calls in a graph: its own launch of a few microseconds is little beside them."""

HOLD_US = 100.0
"""Enough for the host to queue an event, a replay and an event."""

_SPOILT: list[torch.cuda.CUDAGraph] = []
"""Graphs whose capture failed."""


_Captured: TypeAlias = tuple[torch.cuda.CUDAGraph, int, dict[int, Any]]
"""A graph of one contender's calls, their number, and the result of each probed call by its position."""


class Graph(Timer):
    """A timer by replays of a graph that holds all of a contender's calls, one after the other.

    Nothing flushes L2 between the calls of one replay: they find it cold only if their inputs lie in
    different memory, together several times its size. `prepare` comes once before each replay.
    """

    name = "graph"
    resolution_us = RESOLUTION_US / LEAST_CALLS

    def time(self, timed_calls: Sequence[TimedCall]) -> list[CallTime]:
        """Time a replay for each call; each result is the mean of the calls in its replay.

        Raises:
            TimerFailed: A contender's calls cannot be captured.
        """
        with torch.cuda.device(self.helpers.device):
            stream = torch.cuda.current_stream()
            graphs = {
                name: self._capture(name, timed_calls) for name in dict.fromkeys(s.name for s in timed_calls)
            }
            pairs = [(Event(enable_timing=True), Event(enable_timing=True)) for _ in timed_calls]
            for at, (call, (start, stop)) in enumerate(zip(timed_calls, pairs, strict=True)):
                graph, _, results = graphs[call.name]
                if call.prepare is not None:
                    call.prepare()
                self.helpers.hold(HOLD_US)
                start.record(stream)
                graph.replay()
                stop.record(stream)
                if call.probe is not None:
                    call.probe(results[at])
            self.wait()
        return [
            CallTime(time_us=elapsed_us(start, stop) / graphs[call.name][1])
            for call, (start, stop) in zip(timed_calls, pairs, strict=True)
        ]

    def _capture(self, name: str, timed_calls: Sequence[TimedCall]) -> _Captured:
        """Capture a contender's calls, over and over until there are enough."""
        own = [(at, timed_call) for at, timed_call in enumerate(timed_calls) if timed_call.name == name]
        calls = max(LEAST_CALLS, len(own))
        graph, results = torch.cuda.CUDAGraph(), {}
        stream = torch.cuda.current_stream()
        raised: list[Exception] = []
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
                try:
                    for at, timed_call in islice(cycle(own), calls):
                        result = timed_call.run()
                        if timed_call.probe is not None:
                            results[at] = result
                except Exception as error:
                    raised.append(error)
                    raise
        except Exception as error:
            # torch ends the capture of its generators after the driver's, and not at all if that fails: until
            # another capture succeeds, they refuse to draw. Its allocator still refers to the spoilt graph.
            _SPOILT.append(graph)
            with suppress(Exception), torch.cuda.graph(torch.cuda.CUDAGraph(), stream=torch.cuda.Stream()):
                self.helpers.begin()
            cause = (raised or [error])[0]  # a spoilt capture also fails at its end
            reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
            raise TimerFailed(
                f"{name} cannot be captured in a CUDA graph: {reason}\n"
                "Timing by graph replay needs that.\nTime it by events instead.",
                contender=name,
            ) from cause
        finally:
            torch.cuda.set_stream(stream)  # where the end fails, torch leaves its own current
        return graph, calls, results
