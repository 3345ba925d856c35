"""Device time by replay of a CUDA graph: many calls between two events, so that neither the host nor the
launch of a single one counts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any

import torch

from dotcu.benchmark.measured import Call
from dotcu.benchmark.timers.events import RESOLUTION_US, Event, elapsed_us
from dotcu.benchmark.timers.shots import Shot
from dotcu.benchmark.timers.timer import NotCapturable, Timer

LEAST_CALLS = 20
"""In a graph, so that its own launch of a few microseconds is little beside them."""

HOLD_US = 100.0
"""Enough for the host to queue an event, a replay and an event."""

_SPOILT: list[torch.cuda.CUDAGraph] = []
"""Graphs whose capture failed."""


@dataclass(frozen=True, kw_only=True)
class _Captured:
    """A graph of one contender's calls, and the result of each of its shots that is looked at."""

    graph: torch.cuda.CUDAGraph
    calls: int
    results: dict[int, Any]


class Graph(Timer):
    """Times calls by replays of a graph that holds all of a contender's shots, one after the other.

    Nothing flushes L2 between the calls of one replay: they find it cold only where the shots' inputs lie
    in different memory, together several times its size. `prepare` comes once before each replay.
    """

    name = "graph"
    resolution_us = RESOLUTION_US / LEAST_CALLS

    def time(self, shots: Sequence[Shot]) -> list[Call]:
        """Time as many replays as there are shots; each Call is the mean of the calls in its replay.

        Raises:
            NotCapturable: A contender's calls cannot be captured.
        """
        with torch.cuda.device(self.helpers.device):
            stream = torch.cuda.current_stream()
            graphs = {name: self._capture(name, shots) for name in dict.fromkeys(s.name for s in shots)}
            pairs = [(Event(enable_timing=True), Event(enable_timing=True)) for _ in shots]
            for at, (shot, (start, stop)) in enumerate(zip(shots, pairs, strict=True)):
                self._replay(shot, graphs[shot.name], at, partial(start.record, stream), stop, stream)
            self.wait()
        return [
            Call(time_us=elapsed_us(start, stop) / graphs[shot.name].calls)
            for shot, (start, stop) in zip(shots, pairs, strict=True)
        ]

    def _replay(
        self, shot: Shot, captured: _Captured, at: int, begin: Any, stop: Any, stream: torch.cuda.Stream
    ) -> None:
        shot.prepare()
        self.helpers.hold(HOLD_US)
        begin()
        captured.graph.replay()
        stop.record(stream)
        if shot.probe is not None:
            shot.probe(captured.results[at])

    def _capture(self, name: str, shots: Sequence[Shot]) -> _Captured:
        """Capture a contender's calls, over and over until there are enough."""
        own = [(at, shot) for at, shot in enumerate(shots) if shot.name == name]
        calls = max(LEAST_CALLS, len(own))
        graph, results = torch.cuda.CUDAGraph(), {}
        stream = torch.cuda.current_stream()
        raised: list[Exception] = []
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
                try:
                    for at, shot in islice(cycle(own), calls):
                        result = shot.run()
                        if shot.probe is not None:
                            results[at] = result
                except Exception as error:
                    raised.append(error)
                    raise
        except Exception as error:
            self._recover(graph)
            cause = (raised or [error])[0]  # a capture that was spoilt fails at its end too, and tells less
            raise NotCapturable(name, cause) from cause
        finally:
            torch.cuda.set_stream(stream)  # where the end fails, torch leaves its own current
        return _Captured(graph=graph, calls=calls, results=results)

    def _recover(self, spoilt: torch.cuda.CUDAGraph) -> None:
        """Make random numbers work again after a capture that failed at its end.

        torch ends the capture of its generators after the driver's, and not at all where that fails: until
        another capture ends well, they refuse to draw. Its allocator asks the spoilt graph on, so it stays.
        """
        _SPOILT.append(spoilt)
        with suppress(Exception), torch.cuda.graph(torch.cuda.CUDAGraph(), stream=torch.cuda.Stream()):
            self.helpers.begin()
