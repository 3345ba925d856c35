"""Timers of device time: their base, the calls that they time, the kernels around those, and CUDA events."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

import torch

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
MOST_HOLD_US = 100_000.0
THREADS = 512


@functools.cache
def kernels() -> Module:
    """The module of `kernels.cu`."""
    return load("kernels.cu")


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
        """Time calls, in their order, and wait for them; one Call for each timed_call.

        Raises:
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
        result = timed_call.run()
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
