"""One course of a measurement: first calls, warm-up, host time and blocks, by one means."""

from __future__ import annotations

import gc
import math
import statistics as plain
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

from dotcu.benchmark import clocks, stopping
from dotcu.benchmark.measured import Block, Call, Clocks, Measured
from dotcu.benchmark.timers import (
    LostRecords,
    MeansFailed,
    NotCapturable,
    Shot,
    ShotFailed,
    Timer,
    host_times_us,
)
from dotcu.benchmark.turns import Conditions, Run, Turns

HOST_BATCHES = 20
HOST_CALLS = 20
HOST_DEVICE_S = 0.2
"""Host time is taken with so many calls, and fewer where the device would be busy with them for longer."""

AHEAD = 500
"""Launches that the driver surely takes ahead of the device."""

Calls = dict[str, tuple[Call, ...]]


class Course:
    """A course of some contenders.

    Attributes:
        left: Contenders that can still be measured.
        errors: What others raised.
        refused: Contenders that this means cannot time, and why.
        stopped: Why it ended.
    """

    def __init__(self, contenders: Mapping[str, Run], conditions: Conditions, timer: Timer) -> None:
        self.left = dict(contenders)
        self.errors: dict[str, Exception] = {}
        self.refused: dict[str, str] = {}
        self.stopped = ""
        self._conditions = conditions
        self._timer = timer
        self._turns = Turns(list(contenders), conditions, timer)
        self._blocks: dict[str, list[Block]] = defaultdict(list)
        self._warm: Calls = {}
        self._host_us: dict[str, tuple[float, ...]] = {}

    def run(self) -> None:
        """Go through it.

        Raises:
            MeansFailed: The means failed for all contenders.
        """
        self._call_first()
        self._warm_up()
        self._take_host_times()
        self._take_blocks()

    def measured(self) -> dict[str, Measured]:
        """What there is of each contender that is not refused, whether the course went to its end or not."""
        return {
            name: Measured(
                contender=name,
                l2=self._conditions.l2,
                by=self._timer.name,
                blocks=tuple(self._blocks[name]) if name in self.left else (),
                host_us=self._host_us.get(name, ()),
                resolution_us=self._timer.resolution_us,
                stopped=self.stopped,
            )
            for name in (*self.left, *self.errors)
        }

    # -------------------------------------------------------------- before blocks

    def _call_first(self) -> None:
        """Call each contender on each set, so that nothing is compiled, loaded or planned later on.

        What a call takes at least says how many warm-up begins with.
        """
        quickest_s: dict[str, float] = {}
        for name, call in list(self.left.items()):
            try:
                for sample in [sample for sample in self._conditions.sets for _ in range(2)]:
                    began = perf_counter()
                    self._turns.call_freely(name, call, sample)
                    quickest_s[name] = min(quickest_s.get(name, math.inf), perf_counter() - began)
            except Exception as error:
                self._drop(name, error)
        turn_s, protocol = sum(quickest_s[name] for name in self.left), self._conditions.protocol
        self._turns.calls = min(protocol.calls, stopping.calls_of_block(turn_s=turn_s, protocol=protocol))

    def _warm_up(self) -> None:
        began = perf_counter()
        earlier: deque[tuple[float, dict[str, float]]] = deque()
        while self.left:
            block_began = perf_counter()
            self._warm = self._timed(0, probing=False)
            turn_s = (perf_counter() - block_began) / self._turns.calls
            now = {name: plain.median(c.time_us for c in calls) for name, calls in self._warm.items()}
            for name, median_us in now.items():
                self._turns.took(name, median_us)
            self._turns.calls = stopping.calls_of_block(turn_s=turn_s, protocol=self._conditions.protocol)
            self._turns.keep_busy(self.left)
            elapsed_s = perf_counter() - began
            before: dict[str, float] = {}
            while earlier and earlier[0][0] <= elapsed_s - self._conditions.protocol.warmup_s:
                before = earlier.popleft()[1]
            if stopping.is_warm(
                before,
                now,
                elapsed_s=elapsed_s,
                resolution_us=self._timer.resolution_us,
                protocol=self._conditions.protocol,
            ):
                return
            earlier.append((elapsed_s, now))

    def _take_host_times(self) -> None:
        sample = self._conditions.sets[0]
        for name, call in list(self.left.items()):
            calls = 1 if self._conditions.mutates else _host_calls(self._warm[name])
            renew = partial(self._turns.renew, sample)
            try:
                times = host_times_us(
                    partial(call, sample), HOST_BATCHES, calls, wait=self._timer.wait, prepare=renew
                )
            except Exception as error:
                self._drop(name, error)
            else:
                self._host_us[name] = tuple(times)

    # -------------------------------------------------------------- blocks

    def _take_blocks(self) -> None:
        began, before = perf_counter(), clocks.read(self._conditions.device)
        taken = 0
        while self.left and not self.stopped:
            looks: list[Clocks] = []
            calls = self._timed(taken, probing=True, looks=looks)
            self._turns.keep_busy(self.left)
            after = looks[-1] if looks else before
            for name, own in calls.items():
                self._blocks[name].append(Block(calls=own, before=before, after=after))
            before, taken = after, taken + 1
            self.stopped = self._why_stop(taken, perf_counter() - began)

    def _why_stop(self, taken: int, elapsed_s: float) -> str:
        protocol, step = self._conditions.protocol, self._timer.resolution_us
        noise = float("inf")
        if taken >= protocol.blocks:  # it takes a while to tell, and nobody asks before
            each = (self._blocks[name] for name in self.left)
            noise = max(
                (stopping.noise(own, resolution_us=step, protocol=protocol) for own in each), default=0.0
            )
        return stopping.why_stop(blocks=taken, elapsed_s=elapsed_s, noise=noise, protocol=protocol)

    def _timed(self, block: int, *, probing: bool, looks: list[Clocks] | None = None) -> Calls:
        """Time a block in one go; again without a contender that fails in it, or where records got lost.

        Args:
            looks: Gets the clocks as they are when the block is queued.
        """
        lost = 0
        while self.left:
            shots = self._turns.shots(self.left, block, probing=probing)
            if looks is not None:
                shots[-1] = replace(shots[-1], probe=partial(self._look, looks, shots[-1].probe))
            try:
                with _without_collector():
                    calls = self._timer.time(shots)
            except Exception as error:
                lost += isinstance(error, LostRecords)
                self._failed(error, again=lost == 1)
            else:
                return _by_name(shots, calls)
        return {}

    def _failed(self, error: Exception, *, again: bool) -> None:
        """Drop whom a failure concerns.

        Raises:
            MeansFailed: It concerns the means itself.
        """
        if isinstance(error, ShotFailed):
            cause = error.__cause__
            self._drop(error.name, cause if isinstance(cause, Exception) else error)
        elif isinstance(error, NotCapturable):
            self.refused[error.name] = str(error).partition("\n")[0]
            del self.left[error.name]
        elif isinstance(error, LostRecords) and again:
            return
        elif isinstance(error, MeansFailed):
            raise error
        else:  # a fault of the device: nobody can tell whose
            for name in list(self.left):
                self._drop(name, error)

    def _look(self, looks: list[Clocks], probe: Callable[[Any], None] | None, result: Any) -> None:
        """Look at the clocks as soon as a block is queued: the device may still be busy with it."""
        if probe is not None:
            probe(result)
        looks.append(clocks.read(self._conditions.device))

    def _drop(self, name: str, error: Exception) -> None:
        self.errors[name] = error
        self.left.pop(name, None)


def _host_calls(calls: Sequence[Call]) -> int:
    """How many calls of a contender to make without waiting for the device."""
    kernels = max(call.kernels or 1 for call in calls)
    device_s = max(1e-6 * plain.median(call.time_us for call in calls), 1e-6)
    return max(1, min(HOST_CALLS, AHEAD // kernels, int(HOST_DEVICE_S / HOST_BATCHES / device_s)))


def _by_name(shots: Sequence[Shot], calls: Sequence[Call]) -> Calls:
    found: dict[str, list[Call]] = defaultdict(list)
    for shot, call in zip(shots, calls, strict=True):
        found[shot.name].append(call)
    return {name: tuple(own) for name, own in found.items()}


@contextmanager
def _without_collector() -> Iterator[None]:
    """Let Python collect no garbage meanwhile: that would take longer than a stream is held."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
