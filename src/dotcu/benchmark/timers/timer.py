"""The base of all timers of device time, the calls that they time, and the kernels around these calls."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

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
