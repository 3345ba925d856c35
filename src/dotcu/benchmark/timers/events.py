"""Device time between two events: around one call, the launch included, or around replays of a CUDA graph.

A graph holds many calls, so that neither the host nor the launch of a single one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle, islice
from typing import Any, TypeAlias

import torch

from dotcu.benchmark.results import CallTime
from dotcu.benchmark.timers.timer import TimedCall, Timer, TimerFailed

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
