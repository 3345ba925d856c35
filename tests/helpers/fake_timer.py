"""A timer that needs no GPU: it makes the calls, and says what they took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dotcu.benchmark.results import CallTime, Means
from dotcu.benchmark.timers import TimedCall, Timer

Us = Callable[[], float]


class FakeHelpers:
    """Notes what is queued around calls."""

    def __init__(self, l2_bytes: int = 1000) -> None:
        self.device = "a device"
        self.l2_bytes = l2_bytes
        self.flush_us = 0.0
        self.log: list[str] = []
        self.held_us: list[float] = []

    def flush(self) -> None:
        self.log.append("flush")

    def hold(self, us: float) -> None:
        self.log.append("hold")
        self.held_us.append(us)

    def begin(self) -> None:
        self.log.append("begin")

    def end(self) -> None:
        self.log.append("end")


class FakeTimer(Timer):
    """Times calls by a table: for each contender microseconds, or what gives them.

    `failures` are raised one by one, each instead of a block's figures; None lets a block pass.
    """

    name: Means = "cupti"  # type: ignore[misc]
    resolution_us = 0.032

    def __init__(
        self,
        us: Mapping[str, float | Us] | None = None,
        failures: Sequence[BaseException | None] = (),
        name: Means = "cupti",
    ) -> None:
        self.helpers: Any = FakeHelpers()
        self.why = {}
        self.us = dict(us or {})
        self.name = name  # type: ignore[misc]
        self.failures = list(failures)
        self.blocks: list[list[TimedCall]] = []
        self.waited = 0

    @property
    def log(self) -> list[str]:
        """What was queued so far."""
        return self.helpers.log  # type: ignore[no-any-return]

    def time(self, timed_calls: Sequence[TimedCall]) -> list[CallTime]:
        self.blocks.append(list(timed_calls))
        calls = [self._call(timed_call) for timed_call in timed_calls]
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        return calls

    def _call(self, timed_call: TimedCall) -> CallTime:
        self._take(timed_call, self.helpers.begin, self.helpers.end)
        us = self.us.get(timed_call.name, 10.0)
        return CallTime(time_us=us() if callable(us) else us, kernels=1)

    def wait(self) -> None:
        self.waited += 1
